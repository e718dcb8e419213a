/* op.h - the op table: looking up ops and calling them by name.
 *
 * Every op is defined by one record, which the typed calls of ops.h, graphs, importers and bindings
 * use. This header is for programs that choose an op at run time:
 *
 *     gd_tensor *y = gd_call("conv2d", gd_list(x, w, b), "stride=2 padding=1");
 */
#ifndef GRADUS_OP_H
#define GRADUS_OP_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_op gd_op;
typedef struct gd_subgraph gd_subgraph; /* a traced function of tensors (control.h) */

/* --- reading the table ------------------------------------------------------------------------ */

/* Ops in the order of their names, including user-defined ops. */
GD_API int gd_op_count(void);
GD_API const gd_op *gd_op_at(int index);
GD_API const gd_op *gd_op_find(const char *name); /* NULL if there is no such op */

enum {
    /* Element i of the result depends on elements i of the inputs. */
    GD_OP_ELEMENTWISE = 1 << 0,
    GD_OP_VIEW = 1 << 1,        /* the result may share the input's storage */
    GD_OP_RANDOM = 1 << 2,      /* takes a call number of the generator */
    GD_OP_DYNAMIC = 1 << 3,     /* the size of the result depends on data */
    GD_OP_INPLACE = 1 << 4,     /* writes its first input and returns it */
    GD_OP_NO_GRAD = 1 << 5,     /* has no gradient: results never require one */
    GD_OP_INTERNAL = 1 << 6,    /* part of another op; callable, but not part of the interface */
    GD_OP_USER = 1 << 7,        /* defined by the program */
    GD_OP_FLOAT = 1 << 8,       /* integers are computed as f32 */
    GD_OP_PREDICATE = 1 << 9,   /* the result is bool */
    GD_OP_INTEGRAL = 1 << 10,   /* accepts only integers and bools */
    GD_OP_OPAQUE = 1 << 11,     /* stays one node of a graph until values are known */
    GD_OP_IDEMPOTENT = 1 << 12, /* one input: f(f(x)) = f(x) for the same options */
    GD_OP_INVOLUTION = 1 << 13, /* one input: f(f(x)) = x */
    GD_OP_SHAPE_ONLY = 1 << 14, /* reads the shapes of its inputs and no data */
    GD_OP_HEAVY = 1 << 15, /* much more costly than its memory traffic: a matrix product, a sort */
    /* Writes its result row by row, and is as fast for any row stride. */
    GD_OP_STRIDED_ROWS = 1 << 16,
    GD_OP_ASSIGNS = 1 << 17,        /* assigns its second input, broadcast and cast, to its first */
    GD_OP_AWAITS = 1 << 18,         /* waits for its inputs and reads none of them */
    GD_OP_FALLIBLE = 1 << 19,       /* may fail because of data, other than an index out of range */
    GD_OP_CALLS = 1 << 20,          /* calls a function of the program, once for each node */
    GD_OP_LOW_PRECISION = 1 << 21,  /* GD_AUTOCAST casts its float inputs to bf16 or f16 */
    GD_OP_FULL_PRECISION = 1 << 22, /* GD_AUTOCAST casts inputs of bf16 and f16 to f32 */
};

/* An input or output. */
typedef struct gd_op_param {
    const char *name;
    bool optional; /* may be NULL */
    bool variadic; /* any number of tensors; only the last input */
    bool mutated;  /* written by the op */
    bool option;   /* given by name in the typed call (.weight = w) */
    bool hidden;   /* an output that only the gradient uses; typed calls do not return it */
    /* Of a binary op: if all elements of this input are `neutral`, the result is the other input.
     * */
    bool has_neutral;
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
    GD_ATTR_STRING, /* const char *, copied by the library */
    GD_ATTR_GRAPH,  /* gd_subgraph *, held by the node: a branch, the body of a loop */
    GD_ATTR_NUMBER, /* gd_number: a double, or an exact 64-bit integer */
    GD_ATTR_FLOATS, /* gd_floats: up to 16 numbers; not for ops */
} gd_attr_type;

typedef struct gd_op_attr {
    const char *name;
    gd_attr_type type;
    int count;                /* GD_ATTR_INTS: how many */
    bool required;            /* has no default; a positional argument of the typed call */
    const char *default_text; /* in the form of gd_attrs_set_text; NULL if required */
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
/* The name in other systems, or "". */
GD_API const char *gd_op_onnx_name(const gd_op *op);
GD_API const char *gd_op_caffe_name(const gd_op *op);
/* Whether gradients flow through the op. */
GD_API bool gd_op_differentiable(const gd_op *op);
/* The kernels of an op on a kind of device, best first: "direct winograd gemm reference". For logs. */
GD_API const char *gd_op_kernels(const gd_op *op, const char *device_kind, char *text, size_t size);

/* How an op runs on a kind of device: "kernel" (it has its own), "expression" (the elementwise
 * kernel computes it), "body" (as other ops), "view" (no data moves), "host" (control flow,
 * functions of the program, writes, waiting, random call numbers), or "none". */
GD_API const char *gd_op_runs_as(const gd_op *op, const char *device_kind);
/* Whether a kind of device needs a kernel for this op because it has neither an expression nor a
 * body. */
GD_API bool gd_op_needs_kernel(const gd_op *op);
/* The kinds of devices that have kernels, from 0; "cpu" is the first. NULL beyond the last. */
GD_API const char *gd_kernel_kind_at(int index);
/* Loads the kernels of all backends in the folders that gd_device_get searches, for such lists. A
 * backend without a device has kernels, too; one that cannot be loaded is left out. */
GD_API void gd_backends_load(void);

/* --- other records ---------------------------------------------------------------------------- */

/* Records of other kinds: "layer", "init", "optimizer", "schedule", "net", "dataset", "transform",
 * "metric", "callback". The functions above also read these. gd_record_at has the library's records
 * first, then those that the program has defined; both return NULL if there is no such record. */
GD_API const gd_op *gd_record_at(const char *kind, int index);
GD_API const gd_op *gd_record_get(const char *kind, const char *name);

/* --- words ------------------------------------------------------------------------------------ */

/* The value of an option that is one of several words (.reduction = GD_SUM): a hash of the text, so
 * that it is the same in every version of the library. */
typedef uint32_t gd_word;
GD_API gd_word gd_word_of(const char *text);

/* --- calling by name -------------------------------------------------------------------------- */

/* The options of one call, by name. A new one has the record's defaults; it belongs to the scope.
 * */
typedef struct gd_attrs gd_attrs;
GD_API gd_attrs *gd_attrs_new(const gd_op *op);
GD_API gd_status gd_attrs_set_int(gd_attrs *attrs, const char *name, int64_t value);
GD_API gd_status gd_attrs_set_float(gd_attrs *attrs, const char *name, double value);
GD_API gd_status gd_attrs_set_ints(gd_attrs *attrs, const char *name, int count,
                                   const int64_t *values);
/* Sets an option of any type from text: "2", "0.5", "true", "1,2", "same", "f32". */
GD_API gd_status gd_attrs_set_text(gd_attrs *attrs, const char *name, const char *text);
/* Sets several options: "stride=2 padding=1,1 pad_mode=same". */
GD_API gd_status gd_attrs_parse(gd_attrs *attrs, const char *text);

/* Calls an op. Inputs are in the record's order; absent ones are NULL, and trailing absent ones may
 * be left out. attrs NULL: all defaults. Returns the outputs that are not hidden. */
#define gd_op_call(...) gd_op_call_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensors gd_op_call_at(const char *site, const gd_op *op, gd_tensors inputs,
                                const gd_attrs *attrs);

/* Calls an op by name with options as text (NULL: none). Returns the first output. */
#define gd_call(name, inputs, options) gd_call_at(GD_HERE, name, inputs, options)
GD_API gd_tensor *gd_call_at(const char *site, const char *name, gd_tensors inputs,
                             const char *options);

/* Runs an op into existing tensors, which have the shapes and dtypes of its outputs. The tape does
 * not record it. */
#define gd_op_run_into(...) gd_op_run_into_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_op_run_into_at(const char *site, const gd_op *op, gd_tensors inputs,
                                   const gd_attrs *attrs, gd_tensors outputs);

#ifdef __cplusplus
}
#endif
#endif
