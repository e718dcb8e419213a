/* extend.h - the interface for user-defined ops: rules, kernels and their arguments.
 *
 * A user-defined op is described by a record, as the library's own ops are:
 *
 *     gd_op_define("swish(x) -> y  elementwise float\n"
 *                  "x times the sigmoid of beta x.\n"
 *                  "  beta float = 1\n"
 *                  "  y = x / (1 + exp(-beta*x))\n", NULL);
 *     gd_tensor *y = gd_call("swish", gd_list(x), "beta=2");
 *
 * An elementwise op needs only this text: its gradients of any order are derived from the
 * expression. Other ops provide functions.
 */
#ifndef GRADUS_EXTEND_H
#define GRADUS_EXTEND_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/op.h"
#include "gradus/random.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- shapes ----------------------------------------------------------------------------------- */

/* Shape, strides and dtype of a result that does not exist yet. */
typedef struct gd_meta {
    gd_dtype dtype;
    int rank;
    int64_t dims[GD_MAX_RANK];
    /* A view shares the storage of input `view_of` at `offset` (elements from the start of the
     * storage) with `strides`; -1: new storage, row-major. */
    int view_of;
    int64_t offset;
    int64_t strides[GD_MAX_RANK];
    gd_device *device; /* NULL: that of the inputs, or the default device */
} gd_meta;

/* The argument of an infer rule, which computes the shapes of the outputs from those of the inputs.
 * It fills `out` and returns GD_OK, or returns gd_op_fail with a message. */
typedef struct gd_infer {
    const gd_op *op;
    const void *attrs;    /* the op's options struct */
    gd_tensor *const *in; /* only shapes may be read; NULL: an absent optional input */
    int n_in;
    gd_meta *out; /* n_out entries; at first view_of is -1 and dtype that of the first input */
    int n_out;
} gd_infer;

/* For ops with a variable number of outputs: allocates n entries of `out`. Call it before filling.
 * */
GD_API gd_status gd_infer_outputs(gd_infer *infer, int n);

/* Sets the message of a failure and returns `status`. The library adds the op's name, the shapes of
 * all inputs and the location of the call: the text only says what does not fit and what would. */
GD_API gd_status gd_op_fail(gd_status status, const char *format, ...) GD_PRINTF(2, 3);

/* --- gradients -------------------------------------------------------------------------------- */

/* The argument of a gradient rule (vjp), which computes the gradients gx of the inputs from those
 * of the outputs, gy. The rule calls ordinary ops, so it works on values and symbols and can be
 * differentiated again. It sets gx[i] for inputs with needs[i]; NULL means zero. If a call in it
 * fails, the backward pass fails; ops that are called afterwards return error tensors. */
typedef struct gd_vjp {
    const gd_op *op;
    const void *attrs;
    int n_in, n_out;
    gd_tensor **x;  /* the inputs; those that the record does not save have a shape but no data */
    gd_tensor **y;  /* the outputs; the same holds */
    gd_tensor **gy; /* zeros for an output that is not used; NULL for a hidden output */
    const bool *needs;
    gd_tensor **gx;
} gd_vjp;

/* The argument of a body, which expresses an op in other ops: it sets y from x. */
typedef struct gd_expansion {
    const gd_op *op;
    const void *attrs;
    int n_in, n_out;
    gd_tensor **x;
    gd_tensor **y;
} gd_expansion;

/* --- kernels ---------------------------------------------------------------------------------- */

/* A tensor as an operand of a kernel. */
typedef struct gd_view {
    void *data; /* the first element (a device address); NULL: absent */
    gd_dtype dtype;
    int rank;
    int64_t dims[GD_MAX_RANK];
    int64_t strides[GD_MAX_RANK]; /* in elements */
} gd_view;

typedef struct gd_kernel gd_kernel;

/* One kernel call. It is plain data, which can be copied, queued and kept in a plan. */
typedef struct gd_kernel_call {
    const gd_op *op;
    const gd_kernel *kernel;
    const void *attrs; /* the op's options struct; NULL where it has none */
    const gd_view *in; /* read only */
    gd_view *out;      /* the outputs, then the inputs that the op mutates; data NULL: not needed */
    int n_in, n_out;
    int each;   /* internal: the length of the list in a call for a list; otherwise 0 */
    gd_rng rng; /* for random ops: seed and call number */
    /* Asynchronous devices: the handle of a gd_rng that is combined with `rng` when the kernel runs
     * (seed ^ seed, call + call); NULL: none. */
    const void *rng_offset;
    void *workspace; /* workspace_bytes, aligned like the device's buffers */
    size_t workspace_bytes;
    gd_device *device;
    void *prepared;   /* the result of gd_kernel.prepare, or NULL */
    uint64_t number;  /* the error word's number for a call that may find bad data; otherwise 0 */
    bool tf32;        /* products of f32 may round their operands to tf32 (gd_allow_tf32) */
    bool overwrites;  /* internal: the outputs are tensors that existed before the call */
    const char *site; /* internal: source location of the program's call */
    void **made;      /* internal: outputs that gd_kernel_output has created */
} gd_kernel_call;

/* Requirements and promises of a kernel. The library stages operands to meet the first three. */
enum {
    GD_KERNEL_CONTIGUOUS = 1, /* operands must be row-major; others are copied */
    GD_KERNEL_WIDE = 2,       /* CONTIGUOUS, and f16 and bf16 operands are converted to f32 */
    GD_KERNEL_DOUBLE = 4,     /* CONTIGUOUS, with floats as f64 and integers as i64 */
    GD_KERNEL_STAGED = 7,     /* mask: any of these */
    /* On asynchronous devices: the kernel writes nothing while the device's error word is set. Only
     * such kernels write tensors that outlive the call. Others write a buffer, which the device's
     * copy kernel (op "clone", which must have this flag) copies. */
    GD_KERNEL_CHECKED = 8,
    /* The kernel writes outputs with any strides that `match` accepts. Plans choose the strides of
     * temporaries; elsewhere outputs are row-major. Elementwise kernels always support this. */
    GD_KERNEL_STRIDED_RESULTS = 32,
    /* The kernel also takes f16 or bf16 for operands that are f32 by the op's rules; `match` decides
     * for which. It computes in f32 and rounds each result once, so plans leave out casts before
     * and after it. */
    GD_KERNEL_MIXED = 16,
};

/* A kernel: one way to run an op on one kind of device. */
struct gd_kernel {
    const char *op, *variant, *device; /* "conv2d", "direct", "cpu" */
    int rank;                          /* the matching kernel of highest rank runs */
    unsigned flags;
    /* Whether it supports this call (dtypes, layouts, attributes, instruction set). A pure function
     * of the call's metadata, never of data; NULL: always. */
    bool (*match)(const gd_kernel_call *call);
    size_t (*workspace)(const gd_kernel_call *call); /* NULL: none */
    /* On the CPU: computes. On other devices: queues the work. It must not allocate, wait, or queue
     * reads of host memory. (The kernel of a dynamic op waits, and creates its outputs with
     * gd_kernel_output.) Plans run the same call many times, so the kernel must not change it. */
    gd_status (*run)(gd_kernel_call *call);
    /* Chooses the algorithm for a problem (options, shapes, strides, dtypes, alignment), compiles
     * code if necessary, and returns the workspace size. The library caches the result and passes
     * it to run as call->prepared. NULL: nothing to prepare.
     *
     * GD_E_UNSUPPORTED declines: there is no algorithm for the problem. The library remembers that
     * and goes on with the matching kernel of next lower rank, so it is no failure, unless there is
     * none. A pure function of the problem, like `match`. */
    gd_status (*prepare)(const gd_kernel_call *call, void **prepared, size_t *workspace_bytes);
    void (*release)(gd_device *device, void *prepared);
    /* An upper bound of the bytes that each thread takes from the system and keeps; NULL: 0. */
    size_t (*scratch)(const gd_kernel_call *call);
    /* Whether the call is faster if channels, axis 1 of images (N, C, ...), are the innermost axis
     * in memory. Plans then use this layout for temporaries where all kernels support it. A pure
     * function of the call's metadata; NULL: no. */
    bool (*prefers_channels_last)(const gd_kernel_call *call);
    /* The dtypes of the first result that it supports, as a mask: 1u << GD_F32 | 1u << GD_F64. It is
     * tested before `match`; 0: any. */
    unsigned dtypes;
    /* Writes how it runs this call: the engine, the tile, whatever `prepare` has chosen. Profiles and
     * the texts of plans show it. NULL: its name says all. */
    void (*describe)(const gd_kernel_call *call, char *text, size_t size);
    const char *doc; /* what it is, in one sentence, for lists of kernels; NULL: no text */
};

/* For a kernel of a dynamic op: creates output i with these dims; call->out[i] is then valid. */
GD_API gd_status gd_kernel_output(gd_kernel_call *call, int i, int rank, const int64_t *dims);

/* --- counting --------------------------------------------------------------------------------- */

/* The shapes of one call of an op. Only dtype, rank and dims are set; rank -1 is an absent input.
 * */
typedef struct gd_op_shapes {
    const void *attrs; /* the op's options struct */
    const gd_meta *in, *out;
    int n_in, n_out;
} gd_op_shapes;

/* --- adding an op ----------------------------------------------------------------------------- */

typedef struct gd_op_rules {
    gd_status (*infer)(gd_infer *infer);
    void (*vjp)(gd_vjp *vjp);
    void (*expand)(gd_expansion *expand);
    gd_status (*reference)(gd_kernel_call *call); /* a CPU kernel of rank 0 */
    unsigned reference_flags;                     /* GD_KERNEL_... */
    double (*macs)(const gd_op_shapes *shapes); /* multiply-adds; NULL: those of expand, or none */
} gd_op_rules;

/* Adds an op. `record` is the text of an op block without the comment signs; it is copied. Fails if
 * the name is taken or the record does not parse; the message has line and reason. */
#define gd_op_define(...) gd_op_define_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_op_define_at(const char *site, const char *record, const gd_op_rules *rules);

/* Adds a kernel to an op that exists. The struct must stay valid. */
GD_API gd_status gd_kernel_register(const gd_kernel *kernel);

/* The kernels of an op on a kind of device, from 0, in the order in which they are tried: its own, then
 * those for all expressions if it has one. NULL beyond the last. */
GD_API const gd_kernel *gd_op_kernel_at(const gd_op *op, const char *device_kind, int index);
/* What a kernel requires and promises, in words: "contiguous checked". Returns `text`. */
GD_API const char *gd_kernel_words(const gd_kernel *kernel, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
