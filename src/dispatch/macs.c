/* macs.c - counts the multiply-adds of op calls. See macs.h. */
#include "dispatch/macs.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "dispatch/call_infer.h"

double gd_shape_elements_from(const gd_meta *shape, int axis) {
    double product = 1;
    for (int d = axis; d < shape->rank; d++) product *= (double)shape->dims[d];
    return product;
}

double gd_shape_elements(const gd_meta *shape) { return gd_shape_elements_from(shape, 0); }

static bool any_unknown(const gd_meta *list, int n) {
    for (int i = 0; i < n; i++)
        for (int d = 0; d < list[i].rank; d++)
            if (list[i].dims[d] == GD_UNKNOWN) return true;
    return false;
}

/* Runs the body on shapes alone. The dispatcher adds the counts of its ops to *macs. */
static gd_status count_body(const gd_op *op, const gd_op_shapes *s, double *macs) {
    const bool list = op->n_outputs > 0 && op->outputs[op->n_outputs - 1].variadic;
    const int n_out = list ? s->n_out : op->n_outputs; /* s may lack the outputs for gradients */
    gd_tensor *tensors = gd_calloc((size_t)s->n_in + 1, sizeof *tensors);
    gd_tensor **in = gd_calloc((size_t)s->n_in + 1, sizeof *in);
    gd_meta *out = gd_calloc((size_t)n_out + 1, sizeof *out);
    gd_status status =
        tensors && in && out ? GD_OK : gd_fail(GD_E_MEMORY, "no memory to count multiply-adds");
    for (int i = 0; i < s->n_in && status == GD_OK; i++) {
        const gd_meta *m = &s->in[i];
        if (m->rank < 0) continue;
        tensors[i] = (gd_tensor){
            .dtype = (uint8_t)m->dtype, .rank = (uint8_t)m->rank, .device = gd_default_device()};
        memcpy(tensors[i].dims, m->dims, sizeof tensors[i].dims);
        in[i] = &tensors[i];
    }
    if (status == GD_OK) {
        double *before = gd_this_thread.macs;
        gd_this_thread.macs = macs;
        status = gd_infer_by_body(&(gd_infer){op, s->attrs, in, s->n_in, out, n_out});
        gd_this_thread.macs = before;
    }
    gd_free(tensors);
    gd_free(in);
    gd_free(out);
    return status;
}

enum { ANY_SIZE = 840 }; /* for unknown sizes; it has many divisors, so most bodies accept it */

/* Counts the body with ANY_SIZE for each unknown size. If that gives 0, the count is 0 for all
 * sizes; otherwise it depends on the unknown sizes and is NAN. */
static gd_status count_unknown(const gd_op *op, const gd_op_shapes *s, double *macs) {
    gd_meta *in = gd_malloc((size_t)(s->n_in + 1) * sizeof *in);
    if (!in) return gd_fail(GD_E_MEMORY, "no memory to count multiply-adds");
    for (int i = 0; i < s->n_in; i++) {
        in[i] = s->in[i];
        for (int d = 0; d < in[i].rank; d++)
            if (in[i].dims[d] == GD_UNKNOWN) in[i].dims[d] = ANY_SIZE;
    }
    gd_op_shapes known = *s;
    known.in = in;
    const gd_status status = count_body(op, &known, macs);
    if (status != GD_OK || *macs != 0) *macs = NAN; /* the body may fail for ANY_SIZE */
    gd_free(in);
    return status == GD_E_MEMORY ? status : GD_OK;
}

gd_status gd_op_macs(const gd_op *op, const gd_op_shapes *s, double *macs) {
    if (op->base) op = op->base;
    *macs = 0;
    if (!op->macs && !op->expand) return GD_OK;
    const bool unknown_in = any_unknown(s->in, s->n_in);
    if (!op->macs) return unknown_in ? count_unknown(op, s, macs) : count_body(op, s, macs);
    if (unknown_in || any_unknown(s->out, s->n_out)) {
        *macs = NAN;
        return GD_OK;
    }
    *macs = op->macs(s);
    return GD_OK;
}

static gd_meta meta_of(int rank, const int64_t *dims, gd_dtype dtype) {
    gd_meta m = {.dtype = dtype, .rank = rank, .view_of = -1};
    for (int d = 0; d < rank; d++) m.dims[d] = dims[d];
    return m;
}

static gd_meta meta_of_tensor(const gd_tensor *t) {
    return t ? meta_of(t->rank, t->dims, (gd_dtype)t->dtype) : (gd_meta){.rank = -1};
}

static bool counts_macs(const gd_op *op) {
    if (op->base) op = op->base;
    return op->macs || op->expand;
}

gd_status gd_tensor_macs(const gd_op *op, const void *attrs, gd_tensor *const *in, int n_in,
                         gd_tensor *const *out, int n_out, double *macs) {
    *macs = 0;
    if (!counts_macs(op)) return GD_OK;
    gd_meta *shapes = gd_malloc((size_t)(n_in + n_out + 1) * sizeof *shapes);
    if (!shapes) return gd_no_memory(NULL, "to count multiply-adds");
    for (int i = 0; i < n_in; i++) shapes[i] = meta_of_tensor(in[i]);
    for (int i = 0; i < n_out; i++) shapes[n_in + i] = meta_of_tensor(out[i]);
    gd_status status =
        gd_op_macs(op, &(gd_op_shapes){attrs, shapes, shapes + n_in, n_in, n_out}, macs);
    gd_free(shapes);
    return status;
}

gd_status gd_kernel_macs(const gd_kernel_call *k, double *macs) {
    *macs = 0;
    if (!counts_macs(k->op)) return GD_OK;
    gd_meta *shapes = gd_malloc((size_t)(k->n_in + k->n_out + 1) * sizeof *shapes);
    if (!shapes) return gd_no_memory(NULL, "to count multiply-adds");
    for (int i = 0; i < k->n_in + k->n_out; i++) {
        const gd_view *v = i < k->n_in ? &k->in[i] : &k->out[i - k->n_in];
        shapes[i] =
            i < k->n_in && !v->data ? (gd_meta){.rank = -1} : meta_of(v->rank, v->dims, v->dtype);
    }
    gd_status status = gd_op_macs(
        k->op, &(gd_op_shapes){k->attrs, shapes, shapes + k->n_in, k->n_in, k->n_out}, macs);
    gd_free(shapes);
    return status;
}

gd_status gd_count_macs(const gd_invocation *call, const gd_meta *out) {
    if (!counts_macs(call->op)) return GD_OK;
    double macs;
    gd_meta *in = gd_malloc((size_t)(call->n_in + 1) * sizeof *in);
    if (!in) return gd_no_memory(NULL, "to count multiply-adds");
    for (int i = 0; i < call->n_in; i++) in[i] = meta_of_tensor(call->in[i]);
    gd_status status =
        gd_op_macs(call->op, &(gd_op_shapes){call->attrs, in, out, call->n_in, call->n_out}, &macs);
    gd_free(in);
    if (status == GD_OK) *gd_this_thread.macs += macs;
    return status;
}
