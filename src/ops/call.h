/* call.h - attributes and calls by name; helpers of the generated typed calls. */
#ifndef GRADUS_OPS_CALL_H
#define GRADUS_OPS_CALL_H

#include "core/integer.h"
#include "ops/op.h"

enum { GD_MAX_VARIADIC = 256 };

/* Puts a list behind `fixed` inputs and returns how many there are then, or GD_BAD_LIST. */
int gd_join_inputs(gd_tensor **in, int fixed, gd_tensors list);

/* List options written as one number: fills in the rest. */
void gd_attrs_normalize(const gd_op *op, void *attrs);

/* Words must be among the record's, lists must have kept their length. */
gd_status gd_attrs_check(const gd_op *op, const void *attrs);

/* gd_attrs_set_int and the others for library code: a failure is not recorded. */
gd_status gd_attrs_put_int(gd_attrs *attrs, const char *name, int64_t value);
gd_status gd_attrs_put_float(gd_attrs *attrs, const char *name, double value);
gd_status gd_attrs_put_ints(gd_attrs *attrs, const char *name, int count, const int64_t *values);
gd_status gd_attrs_put_text(gd_attrs *attrs, const char *name, const char *text);

/* Options that are required must have been set. */
gd_status gd_attrs_check_given(const gd_op *op, const gd_attrs *attrs);

/* Places of options in a struct: in the order of the record, each at its natural alignment, as a C
 * compiler does it. Returns the struct's size. */
size_t gd_attrs_lay_out(gd_op_attr *attrs, int n);
/* Fills a struct with the defaults of a record that was parsed at run time. */
gd_status gd_attrs_fill_defaults(const gd_op *op, void *defaults);

/* The options struct inside. */
const void *gd_attrs_data(const gd_attrs *attrs);

/* The bytes of an option in its struct. */
size_t gd_attr_size(const gd_op_attr *attr);

/* An attribute as a number, for expressions; and as the parameter of a kernel that computes in a
 * dtype (f32, f64, i32 or i64). A number that an i32 does not hold is the nearest one that it does.
 */
gd_number gd_attr_number(const gd_op_attr *attr, const void *attrs);
gd_param gd_attr_param(const gd_op_attr *attr, const void *attrs, gd_dtype type);

/* Field by field, not by an initializer: the compiler clears structs of this size with a string
 * instruction that takes longer to start than a small op takes to run. */
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
    k->noise = NULL;
    k->workspace = NULL;
    k->workspace_bytes = 0;
    k->device = NULL;
    k->prepared = NULL;
    k->number = 0;
    k->overwrites = false;
    k->site = NULL;
    k->made = NULL;
}

/* What an output is before its op's rule has spoken: a number of the first input's type. */
static inline void gd_meta_clear(gd_meta *m, gd_tensor *const *in, int n_in) {
    m->dtype = n_in > 0 && in[0] ? (gd_dtype)in[0]->dtype : GD_F32;
    m->rank = 0;
    m->view_of = -1;
    m->offset = 0;
    m->device = NULL;
}

/* From gd_transaction_begin on, ops of this thread make their results, but their kernels wait for
 * gd_transaction_end: which runs them in order, or, if something has failed or there is no memory for one
 * of them, none. So several tensors are written or none is, where the kernels themselves do not fail.
 * Nothing may look at data in between, and tensors that are written must live. */
typedef struct gd_transaction_call gd_transaction_call;
typedef struct gd_transaction {
    struct gd_transaction *before;
    gd_transaction_call *first, **end;
} gd_transaction;
void gd_transaction_begin(gd_transaction *list);
gd_status gd_transaction_end(gd_transaction *list, gd_status status);
/* One more of them. */
gd_status gd_transaction_add(const gd_op *op, const gd_kernel_call *call, gd_device *device);

/* Writes a call as "matmul(a f32[2,3], b f32[4,5])", cut to `size`. `describe` writes input i. */
typedef void (*gd_describe_input_fn)(const void *call, int i, char *text, size_t size);
void gd_describe_call(const gd_op *op, int n_in, gd_describe_input_fn describe, const void *call,
                      char *text, size_t size);

/* Calls an op with an options struct; absent inputs at the end may be left out. The outputs that are not hidden. */
gd_tensors gd_call_with(const gd_op *op, const char *site, gd_tensors inputs, const void *options);

/* One call of an elementwise op for each entry of a list. The op writes its first input (gd_mul_),
 * or some of its inputs (adam_step), and each entry gives new values for its own. All of them are
 * one kernel call where the device has a kernel for lists; else, and in a graph, they are one call
 * each. The bits are the same. */
typedef struct gd_each {
    const gd_op *op;
    const void *attrs;
    gd_tensor *const *in; /* `count` times those inputs of the op that come before its numbers */
    int count;
    gd_tensor *const
        *numbers; /* the last inputs: of rank 0, or of rank 1: entry i has element which[i] */
    int n_numbers;
    const int *which; /* NULL: element i */
    gd_view *views;   /* room for gd_each_views, until the call has run */
} gd_each;
enum { GD_EACH_INPUTS = 16 }; /* of an op, at most */
/* Views of a call for `count` entries, each of which has so many inputs and writes so many of them.
 */
static inline size_t gd_each_views(int count, int inputs, int written) {
    return (size_t)count * (size_t)(inputs + written) + GD_EACH_INPUTS;
}
/* `out` gets the results, `count` of them; NULL: nobody wants them. */
gd_status gd_dispatch_each(const gd_each *each, const char *site, gd_tensor **out);

/* Copies src into dst (same dims, any strides and dtypes) on its device. */
gd_status gd_copy_tensor(gd_tensor *dst, gd_tensor *src);

#endif
