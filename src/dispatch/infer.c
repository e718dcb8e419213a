/* infer.c - shape and dtype rules that many ops share. */
#include <math.h>
#include <string.h>

#include "dispatch/call.h"
#include "dispatch/infer.h"

/* The rule of PyTorch: tensors with dimensions decide. A rank-0 tensor counts as a number and
 * matters only if it is of a higher kind (bool < integer < float). */
gd_dtype gd_result_dtype(gd_tensor *const *in, int n_in) {
    gd_dtype dimensioned = GD_DTYPE_NONE, number = GD_DTYPE_NONE;
    for (int i = 0; i < n_in; i++) {
        if (!in[i]) continue;
        gd_dtype *slot = in[i]->rank > 0 ? &dimensioned : &number;
        *slot = *slot ? gd_promote(*slot, (gd_dtype)in[i]->dtype) : (gd_dtype)in[i]->dtype;
    }
    if (!dimensioned || !number) return dimensioned ? dimensioned : number;
    int a = gd_dtype_is_float(dimensioned) ? 2 : gd_dtype_is_int(dimensioned) ? 1 : 0;
    int b = gd_dtype_is_float(number) ? 2 : gd_dtype_is_int(number) ? 1 : 0;
    return b > a ? gd_promote(dimensioned, number) : dimensioned;
}

gd_status gd_broadcast_dims(gd_tensor *const *in, int n_in, int *rank, int64_t *dims) {
    *rank = 0;
    for (int i = 0; i < n_in; i++)
        if (in[i] && in[i]->rank > *rank) *rank = in[i]->rank;
    for (int d = 0; d < *rank; d++) {
        int64_t size = 1;
        for (int i = 0; i < n_in; i++) {
            int k = in[i] ? d - (*rank - in[i]->rank) : -1;
            int64_t n = k < 0 ? 1 : in[i]->dims[k];
            if (n == 1 || n == size) continue;
            if (size != 1)
                return gd_op_fail(
                    GD_E_SHAPE,
                    "dimension -%d has sizes %lld and %lld; they must be equal, or one of them 1",
                    *rank - d, (long long)size, (long long)n);
            size = n;
        }
        dims[d] = size;
    }
    return GD_OK;
}

/* For an op that writes inputs: they must have the broadcast shape, and an output with the name
 * of such an input is that input itself. */
static gd_status infer_mutating(gd_infer *infer) {
    const gd_op *op = infer->op;
    int rank;
    int64_t dims[GD_MAX_RANK];
    char a[160], b[160];
    GD_TRY(gd_broadcast_dims(infer->in, infer->n_in, &rank, dims));
    for (int i = 0; i < op->n_inputs; i++) {
        if (!op->inputs[i].mutated) continue;
        const gd_tensor *x = infer->in[i];
        if (x->rank != rank || memcmp(x->dims, dims, sizeof(int64_t) * (size_t)rank) != 0)
            return gd_op_fail(GD_E_SHAPE,
                              "'%s' is written and must have the shape of the result, %s, not %s",
                              op->inputs[i].name, gd_shape_text(rank, dims, a, sizeof a),
                              gd_shape_text(x->rank, x->dims, b, sizeof b));
        if (!gd_dtype_is_float((gd_dtype)x->dtype))
            return gd_op_fail(GD_E_DTYPE, "'%s' must be float, not %s", op->inputs[i].name,
                              gd_dtype_name((gd_dtype)x->dtype));
        for (int k = 0; k < infer->n_out; k++)
            if (strcmp(op->outputs[k].name, op->inputs[i].name) == 0)
                gd_meta_view(&infer->out[k], x, i);
    }
    return GD_OK;
}

/* Whether all inputs have the same dtype and shape. */
static bool all_alike(gd_tensor *const *in, int n_in) {
    const gd_tensor *x = in[0];
    for (int i = 1; i < n_in; i++) {
        const gd_tensor *t = in[i];
        if (!t || t->dtype != x->dtype || t->rank != x->rank) return false;
        for (int d = 0; d < x->rank; d++)
            if (t->dims[d] != x->dims[d]) return false;
    }
    return n_in > 0 && x;
}

static bool uses_param(const gd_ir *ir, int number) {
    for (int i = 0; i < ir->count; i++)
        if (ir->nodes[i].code == GD_IR_PARAM && ir->nodes[i].arg[0] == number) return true;
    return false;
}

/* Whether an option that the expression uses has a fraction. Infinity counts as an integer: it
 * is the default of a bound. */
static bool has_fraction(const gd_op *op, const void *attrs) {
    for (int i = 0; attrs && i < op->n_attrs; i++) {
        if (op->attrs[i].type != GD_ATTR_FLOAT && op->attrs[i].type != GD_ATTR_NUMBER) continue;
        const double value = gd_attr_number(&op->attrs[i], attrs).value;
        if (value != trunc(value) && uses_param(op->ir, i)) return true;
    }
    return false;
}

/* For integer inputs of an op without the flag `float`: a constant with a fraction is an error,
 * an option with a fraction makes the result f32. */
static gd_status infer_integers(gd_infer *infer, const gd_op *op, gd_meta *y) {
    const bool constant_has_fraction = !(gd_ir_types(op->ir) & GD_PRIM_INT),
               option_has_fraction = has_fraction(op, infer->attrs);
    if (constant_has_fraction || (option_has_fraction && (op->flags & GD_OP_PREDICATE)))
        return gd_op_fail(
            GD_E_DTYPE,
            "computes with fractions, which %s cannot hold; cast to a float dtype first",
            gd_dtype_name(y->dtype));
    if (option_has_fraction) y->dtype = GD_F32;
    return GD_OK;
}

gd_status gd_infer_elementwise(gd_infer *infer) {
    const gd_op *op = infer->op->base ? infer->op->base : infer->op;
    if (op->n_mutated > 0 && !infer->op->base) return infer_mutating(infer);
    gd_meta *y = &infer->out[0];
    if (all_alike(infer->in, infer->n_in)) { /* nothing to broadcast or promote */
        const gd_tensor *x = infer->in[0];
        y->rank = x->rank;
        for (int i = 0; i < x->rank; i++) y->dims[i] = x->dims[i];
        y->dtype = (gd_dtype)x->dtype;
    } else {
        y->dtype = gd_result_dtype(infer->in, infer->n_in);
        GD_TRY(gd_broadcast_dims(infer->in, infer->n_in, &y->rank, y->dims));
    }
    bool is_float = gd_is_float(y->dtype);
    if ((op->flags & GD_OP_INTEGRAL) && is_float)
        return gd_op_fail(GD_E_DTYPE, "takes integers and bools, not %s", gd_dtype_name(y->dtype));
    if (!is_float && op->ir && !(op->flags & GD_OP_FLOAT)) GD_TRY(infer_integers(infer, op, y));
    if (op->flags & GD_OP_PREDICATE) y->dtype = GD_BOOL;
    else if ((op->flags & GD_OP_FLOAT) && !is_float) y->dtype = GD_F32;
    for (int i = 1; i < infer->n_out; i++) infer->out[i] = *y;
    return GD_OK;
}

void gd_dtype_range(gd_dtype dtype, double *low, double *high) {
    const double bits = 8 * (double)gd_dtype_size(dtype);
    *low = dtype == GD_U8 ? 0 : -exp2(bits - 1);
    *high = dtype == GD_U8 ? 255
                           : exp2(bits - 1) -
                                 (dtype == GD_I64 ? 1024 : 1); /* the largest that a double holds */
}

gd_status gd_need_fits(gd_number value, gd_dtype dtype) {
    double low, high;
    if (!gd_dtype_is_int(dtype)) return GD_OK;
    gd_dtype_range(dtype, &low, &high);
    if (dtype == GD_U8) low = -255; /* negative values wrap, as in PyTorch */
    const double integer = trunc(value.value);
    if (integer >= low &&
        (integer <= high || (dtype == GD_I64 && (double)value.integer == value.value)))
        return GD_OK;
    return gd_op_fail(GD_E_ARGUMENT, "the value %g does not fit %s", value.value,
                      gd_dtype_name(dtype));
}

gd_status gd_infer_bounds(gd_infer *infer, double min, double max) {
    GD_TRY(gd_infer_elementwise(infer));
    gd_meta *y = &infer->out[0];
    double low, high;
    if (y->dtype == GD_BOOL) y->dtype = GD_I64;
    if (gd_dtype_is_float(y->dtype)) return GD_OK;
    gd_dtype_range(y->dtype, &low, &high);
    if (max < low || min > high)
        return gd_op_fail(GD_E_ARGUMENT,
                          "no %s lies between min %g and max %g; cast to a wider dtype first",
                          gd_dtype_name(y->dtype), min, max);
    return GD_OK;
}

/* --- axes ------------------------------------------------------------------------------------- */

bool gd_shape_is_set(const gd_shape *list) { return list->form == 1; }

gd_status gd_axes_mask(const gd_shape *axes, int rank, uint32_t *mask) {
    *mask = 0;
    if (!gd_shape_is_set(axes)) {
        *mask = (1u << rank) - 1u;
        return GD_OK;
    }
    for (int i = 0; i < axes->rank; i++) {
        int axis;
        GD_TRY(gd_axis(axes->at[i], rank, &axis));
        if (rank > 0 && (*mask >> axis & 1))
            return gd_op_fail(GD_E_INDEX, "axis %lld is given twice", (long long)axes->at[i]);
        if (rank > 0) *mask |= 1u << axis;
    }
    return GD_OK;
}

void gd_reduced_dims(const gd_tensor *x, uint32_t mask, bool keepdim, gd_meta *y) {
    y->rank = 0;
    for (int i = 0; i < x->rank; i++) {
        if (!(mask >> i & 1)) y->dims[y->rank++] = x->dims[i];
        else if (keepdim) y->dims[y->rank++] = 1;
    }
}

void gd_meta_like(gd_meta *y, const gd_tensor *x) {
    y->dtype = (gd_dtype)x->dtype;
    y->rank = x->rank;
    for (int i = 0; i < x->rank; i++) y->dims[i] = x->dims[i];
}

void gd_meta_view(gd_meta *y, const gd_tensor *x, int input) {
    gd_meta_like(y, x);
    y->view_of = input;
    y->offset = x->offset;
    for (int i = 0; i < x->rank; i++) y->strides[i] = x->strides[i];
}

gd_status gd_need_float(const gd_tensor *t, const char *name) {
    if (gd_dtype_is_float((gd_dtype)t->dtype)) return GD_OK;
    return gd_op_fail(GD_E_DTYPE, "'%s' must be a float tensor, not %s", name,
                      gd_dtype_name((gd_dtype)t->dtype));
}

gd_status gd_need_int(const gd_tensor *t, const char *name) {
    if (gd_dtype_is_int((gd_dtype)t->dtype)) return GD_OK;
    return gd_op_fail(GD_E_DTYPE, "'%s' must be an integer tensor, not %s", name,
                      gd_dtype_name((gd_dtype)t->dtype));
}

gd_status gd_need_rank(const gd_tensor *t, const char *name, int rank) {
    if (t->rank == rank) return GD_OK;
    return gd_op_fail(GD_E_SHAPE, "'%s' must have %d dimensions, not %d", name, rank, t->rank);
}

gd_status gd_need_same_dtype(const gd_tensor *a, const gd_tensor *b, const char *name_a,
                             const char *name_b) {
    if (a->dtype == b->dtype) return GD_OK;
    return gd_op_fail(GD_E_DTYPE, "'%s' is %s and '%s' is %s; they must be the same", name_a,
                      gd_dtype_name((gd_dtype)a->dtype), name_b, gd_dtype_name((gd_dtype)b->dtype));
}
