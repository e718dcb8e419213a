/* op.h - the record of an op as data, the op table, and the dispatcher.
 *
 * Records are static data written by the generator, or come from gd_op_define. Everything that
 * changes at run time (kernels, derived ops) is in `state`.
 */
#ifndef GRADUS_DISPATCH_OP_H
#define GRADUS_DISPATCH_OP_H

#include <string.h>

#include "codegen/facts.h"
#include "codegen/ir.h"
#include "codegen/operator_text.h"
#include "core/error.h"
#include "core/tensor.h"
#include "core/tensor_list.h"
#include "gradus/extend.h"

typedef struct gd_op_state gd_op_state;

struct gd_op {
    const char *name, *doc;
    gd_operator_text onnx, caffe;
    const char *family; /* its folder in src/ops; NULL: created at run time */
    unsigned flags;
    const gd_op_param *inputs, *outputs;
    int n_inputs, n_outputs;
    int n_required; /* leading inputs that are not optional */
    int n_mutated;  /* inputs that the op writes */
    const gd_op_attr *attrs;
    int n_attrs;
    size_t attrs_size;
    const void *defaults;         /* an options struct with all defaults */
    uint32_t saves_in, saves_out; /* bit i: the gradient reads input i, output i */
    gd_op_facts facts;            /* properties that passes read */
    gd_status (*infer)(gd_infer *);
    void (*vjp)(gd_vjp *);
    void (*expand)(gd_expansion *);
    double (*macs)(
        const gd_op_shapes *);  /* multiply-adds of a call; NULL: those of its body, or none */
    const gd_kernel *reference; /* rank 0, CPU; NULL: elementwise, view or expand only */
    const gd_op *base;          /* the op that an in-place op (add_) is derived from; else NULL */

    /* elementwise ops */
    const gd_ir *ir;
    const gd_ir *const *gradient_ir; /* for each input; NULL entries are derived from `ir` */
    const struct gd_fusion *fusion;  /* for an op that a plan has fused (fused.h); else NULL */
    gd_op_state *state;
};

enum {
    GD_MAX_OUTPUTS = 8, /* of an op that does not return a list */
    GD_BAD_LIST = -1, /* as n_in: the caller's list was NULL, or its length negative or too large */
};

/* The part of an op that changes at run time. */
enum { GD_DEVICE_KINDS = 8, GD_MAX_KERNELS = 16 };
typedef struct gd_kernel_list {
    const char *device;
    const gd_kernel **entries; /* best first */
    int count;
} gd_kernel_list;

struct gd_op_state {
    gd_kernel_list kernels[GD_DEVICE_KINDS];
    const gd_kernel *first[GD_MAX_KERNELS]; /* entries of kernels[0], the CPU's; not allocated */
    /* Elementwise ops: the gradient of each input as an op, derived at first use. */
    struct gd_derived {
        const gd_op *op; /* NULL where the gradient is zero or passes through */
        bool ready, zero;
        int passes; /* the output whose gradient passes through unchanged, or -1 */
        int n_sources;
        int8_t source[24]; /* of each input of `op`: its index in (gradients, inputs, outputs) */
    } * derived;
    const gd_op *unless;     /* see gd_op_unless; derived at first use */
    const void *compiled[4]; /* elementwise kernels of this IR, for the CPU backend */
};

/* --- the table -------------------------------------------------------------------------------- */

/* The generated list: the records of each source file that has some. */
typedef struct gd_op_file {
    const gd_op *const *ops;
    int count;
} gd_op_file;
extern const gd_op_file gd_op_files[];
extern const int gd_op_file_count;

/* Reads the generated lists into the table, once. All public functions that use the table
 * call it. Each kernel call does, so its first test is inline. */
extern _Atomic bool gd_table_is_filled;
void gd_table_fill(void);
static inline void gd_table_init(void) {
    if (!atomic_load_explicit(&gd_table_is_filled, memory_order_acquire)) gd_table_fill();
}

/* gd_kernel_register for library code: a failure is not recorded. */
gd_status gd_kernel_add(const gd_kernel *kernel);

/* The kernel that runs this call, or NULL. */
const gd_kernel *gd_kernel_select(const gd_op *op, const gd_kernel_call *call, const char *device);
/* The one after it if call->kernel declines the call; NULL: none. */
const gd_kernel *gd_kernel_select_next(const gd_op *op, const gd_kernel_call *call,
                                       const char *device);
/* The name of call->kernel with what it says about this call: "tiled: tiles 64x32, 4 parts". The call
 * is prepared. Returns `text`. */
const char *gd_kernel_text(const gd_kernel_call *call, char *text, size_t size);
bool gd_kernel_exists(const gd_op *op, const char *device);
/* Whether all kernels that the op has for the device have a `match`, so that a call may have none. */
bool gd_kernels_are_partial(const gd_op *op, const char *device);
/* Whether the device can run an elementwise op for a list of tensors in one call
 * (gd_dispatch_each). */
bool gd_list_kernel_exists(const char *device);
/* Whether only reference kernels may run (GRADUS_KERNELS=reference). */
bool gd_reference_only(void);

/* The gradient of input i of an elementwise op. */
const struct gd_derived *gd_op_derived(const gd_op *op, int input);

/* Derives from an elementwise op that mutates inputs (sgd_step) an op with one more input at the
 * end, the number `skip`. If it is not 0, the op changes nothing. NULL: failed. */
const gd_op *gd_op_unless(const gd_op *op);

/* --- the dispatcher --------------------------------------------------------------------------- */

/* One call in the dispatcher. */
typedef struct gd_invocation {
    const gd_op *op;
    const char *site;
    gd_tensor *const *in;
    int n_in;
    const void *attrs;
    gd_tensor **out; /* n_out entries, filled by the dispatcher */
    int n_out;
    bool
        is_list; /* the op returns a list: the infer rule computes n_out, the dispatcher makes `out` */
    gd_rng rng;
    bool rng_given;   /* rng is that of a recorded call, which runs again */
    bool want_hidden; /* hidden outputs are needed because the tape will record the call */
    bool plain;       /* all inputs are given and are values on one device, and nothing is traced */
} gd_invocation;

/* Runs or records one op. `out` has room for n_out tensors; ops with variadic outputs use
 * gd_dispatch_list. On failure every output is the error tensor and the failure is recorded. */
gd_status gd_dispatch(const gd_op *op, const char *site, gd_tensor *const *in, int n_in,
                      const void *attrs, gd_tensor **out, int n_out);
gd_tensors gd_dispatch_list(const gd_op *op, const char *site, gd_tensor *const *in, int n_in,
                            const void *attrs);
/* Runs a recorded call again with the random state that it had. n_out counts all outputs. */
gd_status gd_dispatch_again(const gd_op *op, const char *site, gd_tensor *const *in, int n_in,
                            const void *attrs, gd_rng rng, gd_tensor **out, int n_out);
/* gd_dispatch for an op with one visible output. */
gd_tensor *gd_dispatch_one(const gd_op *op, const char *site, gd_tensor *const *in, int n_in,
                           const void *attrs);

/* Checks the number of inputs, and that none is missing or without data. */
gd_status gd_check_inputs(const gd_op *op, gd_tensor *const *in, int n_in);

/* The tape and the tracer register here, so that src/dispatch does not depend on src/autograd
 * and src/graph. */
typedef struct gd_recorder {
    /* Records a call on the tape, after an op ran with an input that requires a gradient. */
    gd_status (*tape)(gd_invocation *call);
    /* Appends a node instead of running; outputs become symbols. `metas` has the shapes. */
    gd_status (*trace)(gd_invocation *call, const gd_meta *metas);
    /* gd_to_device: a copy of t on the device, recorded on the tape. */
    gd_tensor *(*move)(gd_tensor *t, gd_device *device);
} gd_recorder;
extern gd_recorder gd_record_hooks;

/* A value of the thread's tracer: ops give symbols and are recorded in no graph. */
extern char gd_no_graph;

bool gd_grad_wanted(const gd_op *op, gd_tensor *const *in, int n_in);

/* Whether the call of a random op has a key, its last input: then it draws no number of the
 * generator. It always runs as its body, because only bodies read keys. */
static inline bool gd_draws_from_key(const gd_op *op, gd_tensor *const *in, int n_in) {
    return (op->flags & GD_OP_RANDOM) && op->n_inputs > op->n_required && n_in == op->n_inputs &&
           in[n_in - 1] && strcmp(op->inputs[n_in - 1].name, "key") == 0;
}

/* The shape rule of elementwise ops: broadcasting and promotion. */
gd_status gd_infer_elementwise(gd_infer *infer);
gd_dtype gd_result_dtype(gd_tensor *const *in, int n_in);
gd_status gd_broadcast_dims(gd_tensor *const *in, int n_in, int *rank, int64_t *dims);

#endif
