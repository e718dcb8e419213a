/* extend.h - what the rules and kernels of an op see. For those who add ops.
 *
 * A program's own op is described by the same text as the library's own records:
 *
 *     gd_op_define("swish(x) -> y  elementwise float\n"
 *                  "x times the sigmoid of beta x.\n"
 *                  "  beta float = 1\n"
 *                  "  y = x / (1 + exp(-beta*x))\n", NULL);
 *     gd_tensor *y = gd_call("swish", gd_list(x), "beta=2");
 *
 * An elementwise op is its text alone: gradients of any order come from the expression. Other ops
 * bring functions.
 */
#ifndef GRADUS_EXTEND_H
#define GRADUS_EXTEND_H

#include "gradus/op.h"
#include "gradus/random.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- shapes ----------------------------------------------------------------------------------- */

/* Shape, strides and type of a tensor to be. */
typedef struct gd_meta {
    gd_dtype dtype;
    int rank;
    int64_t dims[GD_MAX_RANK];
    /* A view shares the storage of input `view_of` at `offset` (elements from the start of the
     * storage) with `strides`; -1: storage of its own, row-major. */
    int view_of;
    int64_t offset;
    int64_t strides[GD_MAX_RANK];
    gd_device *device; /* NULL: that of the inputs, or the default device */
} gd_meta;

/* The question put to an infer rule: given the inputs' shapes, what comes out? It fills `out` and
 * returns GD_OK, or says with gd_op_fail what does not fit. */
typedef struct gd_infer {
    const gd_op *op;
    const void *attrs;    /* the op's options struct */
    gd_tensor *const *in; /* NULL: an optional input that is absent. Look at shapes only. */
    int n_in;
    gd_meta *out; /* n_out entries, view_of = -1, dtype that of the first input */
    int n_out;
} gd_infer;

/* For ops with a variable number of outputs: makes room for n of them, called before filling. */
GD_API gd_status gd_infer_outputs(gd_infer *infer, int n);

/* Notes a failure and returns `status`. The op's name, the shapes of all inputs and the place of
 * the call are added: say only what does not fit, and what would. */
GD_API gd_status gd_op_fail(gd_status status, const char *format, ...) GD_PRINTF(2, 3);

/* --- gradients -------------------------------------------------------------------------------- */

/* The question put to a gradient rule: given the gradients gy of the outputs, what are those of
 * the inputs? It answers with ordinary ops, so it works on values and on symbols, and can be
 * differentiated again. For inputs with needs[i] it sets gx[i]; NULL means zero. A call that fails
 * inside fails the walk; the ops called after it return error tensors. */
typedef struct gd_vjp {
    const gd_op *op;
    const void *attrs;
    int n_in, n_out;
    gd_tensor **x;  /* the inputs; those the record does not save have a shape but no data */
    gd_tensor **y;  /* the outputs, likewise */
    gd_tensor **gy; /* zeros where nothing depends on that output; NULL for a hidden one */
    const bool *needs;
    gd_tensor **gx;
} gd_vjp;

/* An op said in public ops: fills y from x. */
typedef struct gd_expand {
    const gd_op *op;
    const void *attrs;
    int n_in, n_out;
    gd_tensor **x;
    gd_tensor **y;
} gd_expand;

/* --- kernels ---------------------------------------------------------------------------------- */

/* A tensor as a kernel sees it: plain data. */
typedef struct gd_view {
    void *data; /* the first element (a device address); NULL: absent */
    gd_dtype dtype;
    int rank;
    int64_t dims[GD_MAX_RANK];
    int64_t strides[GD_MAX_RANK]; /* in elements */
} gd_view;

typedef struct gd_kernel gd_kernel;

/* One kernel launch. Plain data: it can be copied, queued and kept in a plan. */
typedef struct gd_kernel_call {
    const gd_op *op;
    const gd_kernel *kernel;
    const void *attrs; /* the op's options struct; NULL where it has none */
    const gd_view *in; /* read only */
    gd_view *out;      /* the outputs, then the inputs that the op mutates; data NULL: not wanted */
    int n_in, n_out;
    int each;   /* the library's own: of a call for a list, the number of its entries; else 0 */
    gd_rng rng; /* for random ops: the number this call has taken */
    /* Asynchronous devices: the handle of a gd_rng that is combined with `rng` when the kernel runs
     * (seed ^ seed, call + call); NULL: none. */
    const void *noise;
    void *workspace; /* as many bytes as the kernel asked for, aligned as the device's buffers */
    size_t workspace_bytes;
    gd_device *device;
    void *prepared;   /* what gd_kernel.prepare made; NULL without one */
    uint64_t number;  /* of a call that may find bad data, for the device's error word; else 0 */
    bool overwrites;  /* the library's own: the outputs are tensors that existed before the call */
    const char *site; /* the library's own: where the program called */
    void **made;      /* the library's own: what gd_kernel_output made */
} gd_kernel_call;

/* What a kernel entry may leave to the library: it then sees only the simple case. */
enum {
    GD_KERNEL_CONTIGUOUS = 1, /* inputs and outputs come row-major (copied if need be) */
    GD_KERNEL_WIDE = 2,       /* the same, and f16 and bf16 come, and go, as f32 */
    GD_KERNEL_DOUBLE = 4,     /* the same, and every float comes as f64, every integer as i64 */
    GD_KERNEL_STAGED = 7,     /* any of these */
    /* On asynchronous devices: the kernel writes nothing while the device's error word is set. Only
     * such kernels write tensors that outlive the call; others write a buffer, which the device's
     * copy kernel (op "clone", which must have this flag) copies. */
    GD_KERNEL_CHECKED = 8,
};

/* One way to run an op on one kind of device. */
struct gd_kernel {
    const char *op, *variant, *device; /* "conv2d", "direct", "cpu" */
    int rank;                          /* the matching entry of highest rank runs */
    unsigned flags;
    /* Whether it can serve this call (dtypes, layouts, attributes, instruction set). A pure
     * function of the call's metadata, never of data; NULL: always. */
    bool (*match)(const gd_kernel_call *call);
    size_t (*workspace)(const gd_kernel_call *call); /* NULL: none */
    /* On the CPU: computes. On other devices: queues the work, and neither allocates nor waits nor
     * leaves host memory to be read later. (The kernel of a dynamic op waits, and makes its outputs
     * with gd_kernel_output.) A plan makes the same call many times: the kernel does not change
     * it. */
    gd_status (*run)(gd_kernel_call *call);
    /* Chooses the algorithm for a problem (options, shapes, strides, dtypes, alignment), compiles
     * what it needs, and says the workspace; the library caches the result and passes it to run as
     * call->prepared. NULL: nothing to prepare. */
    gd_status (*prepare)(const gd_kernel_call *call, void **prepared, size_t *workspace_bytes);
    void (*release)(gd_device *device, void *prepared);
    /* At most so many bytes each thread that runs it takes from the system and keeps; NULL: none. */
    size_t (*scratch)(const gd_kernel_call *call);
};

/* For a kernel of a dynamic op: makes output i with these dims; call->out[i] is then valid. */
GD_API gd_status gd_kernel_output(gd_kernel_call *call, int i, int rank, const int64_t *dims);

/* --- counting --------------------------------------------------------------------------------- */

/* The shapes of one call of an op. Only dtype, rank and dims count; a rank of -1: an absent input.
 */
typedef struct gd_op_shapes {
    const void *attrs; /* the op's options struct */
    const gd_meta *in, *out;
    int n_in, n_out;
} gd_op_shapes;

/* --- adding an op ----------------------------------------------------------------------------- */

typedef struct gd_op_rules {
    gd_status (*infer)(gd_infer *infer);
    void (*vjp)(gd_vjp *vjp);
    void (*expand)(gd_expand *expand);
    gd_status (*reference)(gd_kernel_call *call); /* a CPU kernel of rank 0 */
    unsigned reference_flags;                     /* GD_KERNEL_... */
    double (*macs)(const gd_op_shapes *shapes); /* multiply-adds; NULL: those of expand, or none */
} gd_op_rules;

/* Adds an op. `record` is the text of an op block without the comment signs; it is copied. Refused
 * when the name is taken or the record does not parse, with line and reason in the message. */
#define gd_op_define(...) gd_op_define_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_op_define_at(const char *site, const char *record, const gd_op_rules *rules);

/* Adds a kernel to an op that exists. The struct must stay valid. */
GD_API gd_status gd_kernel_register(const gd_kernel *kernel);

#ifdef __cplusplus
}
#endif
#endif
