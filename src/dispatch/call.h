/* call.h - calls of ops by name, kernel calls, transactions, and calls for lists of tensors. */
#ifndef GRADUS_DISPATCH_CALL_H
#define GRADUS_DISPATCH_CALL_H

#include "dispatch/attrs.h"
#include "dispatch/op.h"

enum { GD_MAX_VARIADIC = 256 };

/* Appends a list to `fixed` inputs. Returns the new number of inputs, or GD_BAD_LIST. */
int gd_join_inputs(gd_tensor **in, int fixed, gd_tensors list);

/* Sets the fields one by one. With an initializer the compiler would clear the struct by a string
 * instruction, whose startup takes longer than a small op. */
static inline void gd_kernel_call_set(gd_kernel_call *k, const void *attrs, const gd_view *in,
                                      int n_in, gd_view *out, int n_out) {
    k->op = NULL;
    k->kernel = NULL;
    k->attrs = attrs;
    k->in = in;
    k->out = out;
    k->n_in = n_in;
    k->n_out = n_out;
    k->each = 0;
    k->rng.seed = k->rng.call = 0;
    k->rng_offset = NULL;
    k->workspace = NULL;
    k->workspace_bytes = 0;
    k->device = NULL;
    k->prepared = NULL;
    k->number = 0;
    k->tf32 = gd_this_thread.tf32;
    k->overwrites = false;
    k->site = NULL;
    k->made = NULL;
}

/* A transaction: after gd_transaction_begin, ops of this thread create their results, but their
 * kernels wait. gd_transaction_end runs the kernels in order; if a call has failed or memory for
 * a kernel is missing, it runs none. So all tensors are written or none is, as long as no kernel
 * itself fails. In between nothing may read data, and tensors that are written must stay alive. */
typedef struct gd_transaction_call gd_transaction_call;
typedef struct gd_transaction {
    struct gd_transaction *before;
    gd_transaction_call *first, **end;
} gd_transaction;
void gd_transaction_begin(gd_transaction *list);
gd_status gd_transaction_end(gd_transaction *list, gd_status status);
/* Appends a kernel call to the thread's transaction. */
gd_status gd_transaction_add(const gd_op *op, const gd_kernel_call *call, gd_device *device);

/* Writes a call as "matmul(a f32[2,3], b f32[4,5])", cut to `size`. `describe` writes input i. */
typedef void (*gd_describe_input_fn)(const void *call, int i, char *text, size_t size);
void gd_describe_call(const gd_op *op, int n_in, gd_describe_input_fn describe, const void *call,
                      char *text, size_t size);

/* Calls an op with an options struct and returns its visible outputs. Absent inputs at the end
 * may be left out. */
gd_tensors gd_call_with(const gd_op *op, const char *site, gd_tensors inputs, const void *options);

/* A call of an elementwise op for each entry of a list. The op writes its first input (gd_mul_)
 * or some of its inputs (adam_step). If the device has a kernel for lists, all entries are one
 * kernel call; otherwise, and in a graph, each entry is a call. Both compute the same bits. */
typedef struct gd_each {
    const gd_op *op;
    const void *attrs;
    gd_tensor *const *in; /* for each of `count` entries the inputs of the op before its scalars */
    int count;
    gd_tensor *const *scalars; /* the last inputs: rank 0, or rank 1 with one element per entry */
    int n_scalars;
    const int
        *which;     /* the element of rank-1 scalars for each entry; NULL: element i for entry i */
    gd_view *views; /* room for gd_each_views views; must live until the call has run */
} gd_each;
enum { GD_EACH_INPUTS = 16 }; /* the most inputs of such an op */
/* The number of views for `count` entries with `inputs` inputs each, `written` of which the op
 * writes. */
static inline size_t gd_each_views(int count, int inputs, int written) {
    return (size_t)count * (size_t)(inputs + written) + GD_EACH_INPUTS;
}
/* `out` receives `count` results; it may be NULL. */
gd_status gd_dispatch_each(const gd_each *each, const char *site, gd_tensor **out);

/* Copies src into dst: same dims, any strides and dtypes, any devices. */
gd_status gd_copy_tensor(gd_tensor *dst, gd_tensor *src);

#endif
