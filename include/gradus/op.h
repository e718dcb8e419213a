/* op.h - the op table, read and called at run time.
 *
 * Every op is one record. The typed calls of ops.h, the graph, importers and bindings all go
 * through it; this header is for programs that do not know the op when they are compiled:
 *
 *     gd_tensor *y = gd_call("conv2d", gd_list(x, w, b), "stride=2 padding=1");
 */
#ifndef GRADUS_OP_H
#define GRADUS_OP_H

#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_op gd_op;
typedef struct gd_subgraph
    gd_subgraph; /* a function of tensors, as a graph; control.h makes them */

/* --- reading the table ------------------------------------------------------------------------ */

/* Ops in order of their names, those a program has added included. */
GD_API int gd_op_count(void);
GD_API const gd_op *gd_op_at(int index);
GD_API const gd_op *gd_op_find(const char *name); /* NULL where there is none */

enum {
    GD_OP_ELEMENTWISE = 1 << 0, /* each element of the result from the same element of the inputs */
    GD_OP_VIEW = 1 << 1,        /* the result may share the input's storage */
    GD_OP_RANDOM = 1 << 2,      /* takes a number of the generator */
    GD_OP_DYNAMIC = 1 << 3,     /* the size of the result depends on data */
    GD_OP_INPLACE = 1 << 4,     /* writes its first input and returns it */
    GD_OP_NO_GRAD = 1 << 5,     /* has no gradient: results never require one */
    GD_OP_INTERNAL = 1 << 6,    /* a piece of another op; callable, but not part of the interface */
    GD_OP_USER = 1 << 7,        /* added by the program */
    GD_OP_FLOAT = 1 << 8,       /* integers are computed as f32 */
    GD_OP_TRUTH = 1 << 9,       /* the result is bool */
    GD_OP_INTEGRAL = 1 << 10,   /* takes integers and bools only */
    GD_OP_OPAQUE = 1 << 11, /* one node in a graph, whose body is run when its values are known */
    GD_OP_IDEMPOTENT =
        1 << 12, /* of one input: done again, with the same options, it changes nothing */
    GD_OP_INVOLUTION = 1 << 13, /* of one input: done again it undoes itself */
    GD_OP_SHAPE_ONLY = 1 << 14, /* reads the shapes of its inputs, and no data */
    GD_OP_HEAVY =
        1 << 15, /* costs far more than to read and write its tensors: a product, a sort */
    GD_OP_STRIDED_ROWS =
        1 << 16, /* writes its result row by row; the stride of rows costs it nothing */
    GD_OP_ASSIGNS =
        1 << 17,            /* its first input becomes what its second one is, broadcast and cast */
    GD_OP_AWAITS = 1 << 18, /* its inputs must be there, but it looks at none of them */
    GD_OP_REFUSES =
        1 << 19,           /* it may fail for what its tensors hold, beyond indices out of range */
    GD_OP_CALLS = 1 << 20, /* it calls a function of the program, once for each time that it stands
                              in a graph */
    GD_OP_LOW_PRECISION = 1 << 21,  /* GD_AUTOCAST casts its float inputs to bf16 or f16 */
    GD_OP_FULL_PRECISION = 1 << 22, /* GD_AUTOCAST casts inputs of bf16 and f16 to f32 */
};

/* An input or output. */
typedef struct gd_op_param {
    const char *name;
    bool optional; /* may be NULL */
    bool variadic; /* any number of tensors; the last one */
    bool mutated;  /* written by the op */
    bool option;   /* given by name in the typed call (.weight = w) */
    bool hidden;   /* an output for the gradient's use alone; typed calls do not return it */
    bool
        has_neutral; /* an input of two: where it is `neutral` everywhere, the result is the other one */
    double neutral;
} gd_op_param;

typedef enum gd_attr_type {
    GD_ATTR_INT,    /* int64_t */
    GD_ATTR_FLOAT,  /* double */
    GD_ATTR_BOOL,   /* bool */
    GD_ATTR_INTS,   /* gd_int1, gd_int2, gd_int3: `count` numbers */
    GD_ATTR_SHAPE,  /* gd_shape: up to 8 numbers */
    GD_ATTR_WORD,   /* gd_word: one of `words` */
    GD_ATTR_DTYPE,  /* gd_dtype */
    GD_ATTR_STRING, /* const char *, kept by the library */
    GD_ATTR_GRAPH,  /* gd_subgraph *, kept by the node: a branch, the body of a loop */
    GD_ATTR_NUMBER, /* gd_number: a double, or an integer of 64 bits exactly */
    GD_ATTR_FLOATS, /* gd_floats: up to 16 numbers; not of ops */
} gd_attr_type;

typedef struct gd_op_attr {
    const char *name;
    gd_attr_type type;
    int count;                /* GD_ATTR_INTS: how many */
    bool required;            /* has no default; a positional argument of the typed call */
    const char *default_text; /* as gd_attrs_set_text takes it; NULL where required */
    const char *words;        /* GD_ATTR_WORD: "mean sum none" */
    const char *doc;
    size_t offset; /* in the op's options struct */
} gd_op_attr;

GD_API const char *gd_op_name(const gd_op *op);
GD_API const char *gd_op_doc(const gd_op *op);
GD_API unsigned gd_op_flags(const gd_op *op);
GD_API int gd_op_input_count(const gd_op *op);
GD_API const gd_op_param *gd_op_input(const gd_op *op, int index);
GD_API int gd_op_output_count(const gd_op *op);
GD_API const gd_op_param *gd_op_output(const gd_op *op, int index);
GD_API int gd_op_attr_count(const gd_op *op);
GD_API const gd_op_attr *gd_op_attr_at(const gd_op *op, int index);
/* What other systems call it, or "". */
GD_API const char *gd_op_onnx_name(const gd_op *op);
GD_API const char *gd_op_caffe_name(const gd_op *op);
/* Whether gradients flow through it. */
GD_API bool gd_op_differentiable(const gd_op *op);
/* The kernels of an op on a kind of device, best first: "direct im2col reference". For logs. */
GD_API const char *gd_op_kernels(const gd_op *op, const char *device_kind, char *text, size_t size);

/* How an op runs on a kind of device: by a "kernel" of its own, by its "expression" (the kind's
 * elementwise kernel computes it), as its "body" in other ops, as a "view" that moves no data, on the
 * "host" (control flow, functions of the program, writes, waiting, numbers of the generator), or not
 * at all: "none". */
GD_API const char *gd_op_runs_as(const gd_op *op, const char *device_kind);
/* Whether a kind of device that runs elementwise ops needs a kernel for this op: there is no other way
 * to run it. */
GD_API bool gd_op_needs_kernel(const gd_op *op);
/* The kinds of devices that kernels are registered for, from 0: "cpu" first; NULL where there are fewer. */
GD_API const char *gd_kernel_kind_at(int index);

/* --- other records ---------------------------------------------------------------------------- */

/* Records of what else is made by name: "layer", "init", "optimizer", "schedule", "net", "dataset",
 * "transform", "metric", "callback". The calls above read them. In the order of the library's sources,
 * then those that the program has defined; NULL where there is none. */
GD_API const gd_op *gd_record_at(const char *kind, int index);
GD_API const gd_op *gd_record_get(const char *kind, const char *name);

/* --- words ------------------------------------------------------------------------------------ */

/* The value of an option that is one of a few words (.reduction = GD_SUM). It is a hash of the
 * text, so it means the same in every version of the library. */
typedef uint32_t gd_word;
GD_API gd_word gd_word_of(const char *text);

/* --- calling by name -------------------------------------------------------------------------- */

/* The options of one call, by name. Made with the record's defaults; belongs to the scope. */
typedef struct gd_attrs gd_attrs;
GD_API gd_attrs *gd_attrs_new(const gd_op *op);
GD_API gd_status gd_attrs_set_int(gd_attrs *attrs, const char *name, int64_t value);
GD_API gd_status gd_attrs_set_float(gd_attrs *attrs, const char *name, double value);
GD_API gd_status gd_attrs_set_ints(gd_attrs *attrs, const char *name, int count,
                                   const int64_t *values);
/* From text, whatever the type: "2", "0.5", "true", "1,2", "same", "f32". */
GD_API gd_status gd_attrs_set_text(gd_attrs *attrs, const char *name, const char *text);
/* Several at once: "stride=2 padding=1,1 pad_mode=same". */
GD_API gd_status gd_attrs_parse(gd_attrs *attrs, const char *text);

/* Calls an op. Inputs stand in the record's order, absent ones as NULL; absent ones at the end may
 * be left out. attrs NULL: all defaults. Returns the outputs that are not hidden. */
#define gd_op_call(...) gd_op_call_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensors gd_op_call_at(const char *site, const gd_op *op, gd_tensors inputs,
                                const gd_attrs *attrs);

/* The short form: by name, options as text (NULL: none), the first output. */
#define gd_call(name, inputs, options) gd_call_at(GD_HERE, name, inputs, options)
GD_API gd_tensor *gd_call_at(const char *site, const char *name, gd_tensors inputs,
                             const char *options);

/* Runs an op into tensors that exist already (the shapes and dtypes it would make), without
 * recording a gradient. */
#define gd_op_run_into(...) gd_op_run_into_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_op_run_into_at(const char *site, const gd_op *op, gd_tensors inputs,
                                   const gd_attrs *attrs, gd_tensors outputs);

#ifdef __cplusplus
}
#endif
#endif
