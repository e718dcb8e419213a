/* metric_inputs.c - converts outputs and targets to the forms that metrics compare: class numbers
 * or f64. */
#include "train/metric_inputs.h"

#include <math.h>
#include <string.h>

#include "gradus/ops.h"

static bool fail_update(gd_status status) {
    gd_tensor_fail(status);
    return false;
}

/* Sizes of a symbol may be unknown. */
static bool same_size(int64_t a, int64_t b) { return a == b || a < 0 || b < 0; }

static bool same_dims(const gd_tensor *t, int rank, const int64_t *dims) {
    bool same = t->rank == rank;
    for (int i = 0; i < rank && same; i++) same = same_size(t->dims[i], dims[i]);
    return same;
}

gd_tensor *gd_divide_or(gd_tensor *a, gd_tensor *b, double otherwise) {
    gd_tensor *zero = gd_scalar_of(0, GD_F64);
    return gd_where(gd_eq(b, zero), gd_scalar_of(otherwise, GD_F64), gd_div(a, b));
}

gd_tensor *gd_weighted_sum(gd_tensor *x, gd_tensor *weight, bool columns) {
    gd_tensor *zero = gd_scalar_of(0, GD_F64);
    gd_tensor *each = gd_where(gd_eq(weight, zero), zero, gd_mul(x, weight));
    return columns ? gd_sum(each, .axis = gd_dims(0)) : gd_sum(each);
}

/* Expands sample weights, (N) or NULL, to f64 of the shape of `like`, (N, ...). */
static gd_tensor *expand_weights(gd_tensor *weight, gd_tensor *like) {
    if (!weight) return gd_ones_like(like, .dtype = GD_F64);
    gd_tensor *w = gd_cast(weight, GD_F64);
    for (int i = 1; i < like->rank; i++) w = gd_unsqueeze(w, i);
    return like->rank > 1 ? gd_mul(w, gd_ones_like(like, .dtype = GD_F64)) : w;
}

/* --- classes ---------------------------------------------------------------------------------- */

typedef struct shapes {
    int axis, rank;            /* of the classes; of (N, ...) */
    int64_t dims[GD_MAX_RANK]; /* (N, ...) */
} shapes;

static bool find_axis(const gd_tensor *output, gd_class_form form, shapes *s, gd_class_batch *b) {
    if (output->rank == 0)
        return fail_update(gd_fail(
            GD_E_SHAPE, "the output is a number; it must be (N), (N,1), (N,C) or (N,C,...)"));
    s->axis = -1; /* (N): one column */
    if (output->rank > 1) {
        const gd_status status = gd_axis(form.axis, output->rank, &s->axis);
        if (status != GD_OK) return fail_update(status);
        if (s->axis == 0)
            return fail_update(gd_fail(GD_E_ARGUMENT, "axis is 0, the axis of the samples"));
    }
    s->rank = 0;
    for (int i = 0; i < output->rank; i++)
        if (i != s->axis) s->dims[s->rank++] = output->dims[i];
    b->binary = s->axis < 0 || output->dims[s->axis] == 1;
    b->classes = b->binary ? 2 : output->dims[s->axis];
    if (b->classes >= 2) return true;
    return fail_update(gd_fail(GD_E_SHAPE, "the output has %lld classes; it must have at least one",
                               (long long)b->classes));
}

/* A target of the wrong shape: the message has the shapes that fit, and the axis if it is wrong. */
static bool fail_target(const gd_tensor *output, const gd_tensor *target, const shapes *s) {
    char outputs[128], targets[128], fits[128], hint[64] = "";
    const int last = output->rank - 1;
    if (s->axis >= 0 && s->axis != last && target->rank == last &&
        same_dims(target, last, output->dims))
        strcpy(hint, "; with axis=-1 they would fit");
    return fail_update(gd_fail(GD_E_SHAPE,
                               "the output is %s and the target %s; class numbers would be %s, and "
                               "probabilities would have the output's shape%s",
                               gd_describe(output, outputs, sizeof outputs),
                               gd_describe(target, targets, sizeof targets),
                               gd_shape_text(s->rank, s->dims, fits, sizeof fits), hint));
}

/* Classes 0 and 1 for an output with one column. Targets may have that column, too, and any dtype.
 * */
static bool read_binary(gd_class_batch *b, gd_tensor *output, gd_tensor *target, const shapes *s,
                        gd_class_form form, gd_tensor **valid) {
    b->scores = s->axis < 0 ? output : gd_squeeze(output, .axis = s->axis);
    if (same_dims(target, output->rank, output->dims) && s->axis >= 0)
        target = gd_squeeze(target, .axis = s->axis);
    else if (target->rank == s->rank + 1 && s->axis < 0 && target->dims[1] == 1)
        target = gd_squeeze(target, .axis = 1);
    else if (!same_dims(target, s->rank, s->dims)) return fail_target(output, target, s);
    const double limit = form.logits ? log(form.threshold / (1 - form.threshold)) : form.threshold;
    gd_tensor *half = gd_scalar(0.5);
    *valid = gd_ne(target, gd_scalar_of((double)form.ignore_index, GD_F64));
    b->predicted = gd_cast(gd_gt(b->scores, gd_scalar_of(limit, GD_F64)), GD_I64);
    b->actual = gd_cast(gd_gt(target, half), GD_I64);
    return true;
}

static bool read_multiclass(gd_class_batch *b, gd_tensor *output, gd_tensor *target,
                            const shapes *s, gd_class_form form, gd_tensor **valid) {
    b->scores = s->axis == 1 ? output : gd_movedim(output, gd_dims(s->axis), gd_dims(1));
    b->predicted = gd_argmax(output, .axis = s->axis);
    *valid = NULL;
    if (same_dims(target, output->rank, output->dims)) { /* one-hot or probabilities */
        b->actual = gd_argmax(target, .axis = s->axis);
        return true;
    }
    if (target->rank == output->rank && target->dims[s->axis] == 1)
        target = gd_squeeze(target, .axis = s->axis);
    if (!same_dims(target, s->rank, s->dims)) return fail_target(output, target, s);
    if (gd_is_float(target->dtype))
        return fail_update(gd_fail(GD_E_DTYPE, "class numbers are integers; the target is %s",
                                   gd_dtype_name((gd_dtype)target->dtype)));
    *valid = gd_ne(target, gd_scalar_int(form.ignore_index));
    b->actual = gd_cast(target, GD_I64);
    return true;
}

bool gd_class_batch_read(gd_class_batch *b, gd_tensor *output, gd_tensor *target, gd_tensor *weight,
                         gd_class_form form) {
    shapes s;
    gd_tensor *valid;
    if (!find_axis(output, form, &s, b)) return false;
    if (!(b->binary ? read_binary : read_multiclass)(b, output, target, &s, form, &valid))
        return false;
    if (b->actual->kind == GD_FAILED) return false;
    b->weight = expand_weights(weight, b->actual);
    if (valid) {
        b->weight = gd_where(valid, b->weight, gd_scalar_of(0, GD_F64));
        b->actual = gd_where(valid, b->actual, gd_scalar_int(0));
    }
    return b->weight->kind != GD_FAILED && b->actual->kind != GD_FAILED;
}

gd_tensor *gd_class_logits(const gd_class_batch *b, gd_class_form form) {
    gd_tensor *x = gd_cast(b->scores, GD_F64);
    return form.logits ? x : gd_sub(gd_log(x), gd_log1p(gd_neg(x)));
}

gd_tensor *gd_class_sum(const gd_class_batch *b, gd_tensor *index, gd_tensor *weight) {
    return gd_index_add(gd_zeros(gd_dims(b->classes), .dtype = GD_F64), 0, gd_flatten(index),
                        gd_flatten(weight));
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* Whether the dims are equal except for those of size 1: (N,1) and (N). */
static bool same_except_ones(const gd_tensor *a, const gd_tensor *b) {
    int i = 0, j = 0;
    for (;; i++, j++) {
        while (i < a->rank && a->dims[i] == 1) i++;
        while (j < b->rank && b->dims[j] == 1) j++;
        if (i == a->rank || j == b->rank) return i == a->rank && j == b->rank;
        if (!same_size(a->dims[i], b->dims[j])) return false;
    }
}

bool gd_f64_batch_read(gd_f64_batch *b, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    char outputs[128], targets[128];
    /* broadcasting (N,1) with (N) would compare every output with every target */
    if (!same_except_ones(output, target))
        return fail_update(
            gd_fail(GD_E_SHAPE, "the output is %s and the target %s; they must have the same shape",
                    gd_describe(output, outputs, sizeof outputs),
                    gd_describe(target, targets, sizeof targets)));
    b->output = gd_cast(output, GD_F64);
    b->target = gd_cast(target, GD_F64);
    if (!same_dims(target, output->rank, output->dims))
        b->target = gd_reshape(b->target, gd_shape_of(output->rank, output->dims));
    b->weight = expand_weights(weight, output);
    return b->target->kind != GD_FAILED && b->weight->kind != GD_FAILED;
}
