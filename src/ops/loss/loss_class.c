/* loss_class.c - losses over classes: nll_loss and cross_entropy.
 *
 * x is (C), (N,C) or (N,C,d1,...). The target has the class of each position: x's shape without C.
 */
#include <math.h>
#include <string.h>

#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"
#include "ops/loss/loss_class.h"
#include "dispatch/problem.h"
#include "dispatch/view_element.h"

/* --- shapes ----------------------------------------------------------------------------------- */

static int class_axis(const gd_tensor *x) { return x->rank > 1; }

static gd_status need_classes(const gd_tensor *x, const gd_tensor *weight) {
    GD_TRY(gd_need_float(x, "x"));
    if (x->rank == 0)
        return gd_op_fail(GD_E_SHAPE,
                          "'x' must have a dimension of classes: (C), (N,C) or (N,C,d1,...)");
    if (!weight) return GD_OK;
    int64_t classes = x->dims[class_axis(x)];
    GD_TRY(gd_need_same_dtype(x, weight, "x", "weight"));
    if (weight->rank != 1 || weight->dims[0] != classes)
        return gd_op_fail(GD_E_SHAPE, "'weight' must have one number for each of the %lld classes",
                          (long long)classes);
    return GD_OK;
}

/* Requires x's shape without the classes: one number for each position. */
static gd_status need_positions(const gd_tensor *t, const char *name, int rank,
                                const int64_t *dims) {
    int axis = rank > 1;
    bool same = t->rank == rank - 1;
    for (int k = 0; k < t->rank && same; k++) same = t->dims[k] == dims[k + (k >= axis)];
    return same
               ? GD_OK
               : gd_op_fail(GD_E_SHAPE,
                            "'%s' must have the shape of 'x' without its dimension %d, the classes",
                            name, axis);
}

static gd_status need_indices(const gd_tensor *x, const gd_tensor *target) {
    GD_TRY(gd_need_int(target, "target"));
    return need_positions(target, "target", x->rank, x->dims);
}

/* Requires gy to have the shape of the loss: rank 0, or one number for each position. */
static gd_status need_loss(const gd_tensor *gy, gd_word reduction, int rank, const int64_t *dims) {
    GD_TRY(gd_need_float(gy, "gy"));
    return reduction == GD_NONE ? need_positions(gy, "gy", rank, dims) : gd_need_rank(gy, "gy", 0);
}

static gd_status need_total(const gd_tensor *total) {
    GD_TRY(gd_need_float(total, "total"));
    return gd_need_rank(total, "total", 0);
}

/* Sets y to the shape of the loss: one number for each position, or rank 0. */
static void loss_shape(gd_meta *y, const gd_tensor *x, gd_word reduction) {
    gd_meta_like(y, x);
    int axis = class_axis(x);
    y->rank = reduction == GD_NONE ? x->rank - 1 : 0;
    for (int k = axis; k < y->rank; k++) y->dims[k] = x->dims[k + 1];
}

/* The dtype of saved statistics: f16 and bf16 are too coarse for them. */
static gd_dtype statistics_dtype(gd_dtype dtype) { return dtype == GD_F64 ? GD_F64 : GD_F32; }

gd_status gd_fail_class(const gd_view *target, int64_t position, int64_t classes, int64_t ignore) {
    int64_t value = gd_load_i64(target->dtype, gd_view_element(target, position));
    return gd_data_fail(&(gd_data_error){.problem = GD_DATA_CLASS,
                                         .element = position,
                                         .values = {value, classes, ignore}},
                        &(gd_data_operand){target->rank, target->dims, NULL});
}

/* --- parts of gradient rules ------------------------------------------------------------------ */

/* Reshapes a vector with one number for each class so that it broadcasts against x. */
static gd_tensor *along_classes(gd_tensor *v, const gd_tensor *x) {
    gd_shape dims = {.rank = x->rank - class_axis(x), .form = 1};
    for (int k = 0; k < dims.rank; k++) dims.at[k] = k ? 1 : x->dims[class_axis(x)];
    return gd_reshape(v, dims);
}

/* The target as a one-hot mask in x's shape: true at the class that the target names. */
static gd_tensor *target_mask(const gd_tensor *x, gd_tensor *target) {
    gd_tensor *numbers =
        gd_arange(0, (double)gd_tensor_dim(x, class_axis(x)), .dtype = (gd_dtype)target->dtype);
    return gd_eq(gd_unsqueeze(target, class_axis(x)), along_classes(numbers, x));
}

static gd_tensor *ignored_targets(gd_tensor *target, int64_t ignore) {
    return gd_eq(target, gd_full_like(target, ignore));
}

/* The gradient of each position's term, from the gradient g of the loss; a dimension of size 1
 * stands for the classes. `total` is the sum of weights that a mean divides by, NULL for other
 * reductions. */
static gd_tensor *position_gradient(gd_tensor *g, gd_tensor *total, const gd_tensor *x,
                                    gd_tensor *target, int64_t ignore) {
    gd_dtype dtype = (gd_dtype)x->dtype;
    if (total) g = gd_div(g, gd_cast(total, dtype));
    g = gd_where(ignored_targets(target, ignore), gd_full_like(target, 0, .dtype = dtype), g);
    return gd_unsqueeze(g, class_axis(x));
}

/* The sum of the weights of all targets' classes, computed by ops so that it can
 * be differentiated. */
static gd_tensor *weight_total(gd_tensor *x, gd_tensor *target, gd_tensor *weight, int64_t ignore) {
    return gd_neg(gd_nll_loss(gd_ones_like(x), target, .reduction = GD_SUM, .ignore_index = ignore,
                              .weight = weight));
}

/* The gradient by the weights, from `losses` (-log p of every class) and g of position_gradient. A
 * weight's gradient is the sum of g * loss over the positions whose target names its class. A mean
 * also divides by the sum of weights, which subtracts g * y at each of these positions; y is NULL
 * for other reductions. */
static gd_tensor *weight_gradient(gd_tensor *losses, gd_tensor *g, gd_tensor *y, gd_tensor *target,
                                  double smoothing) {
    gd_tensor *mask = target_mask(losses, target), *part;
    if (smoothing > 0) {
        gd_tensor *shares =
            gd_affine(gd_cast(mask, (gd_dtype)losses->dtype), 1 - smoothing,
                      smoothing / (double)gd_tensor_dim(losses, class_axis(losses)));
        part = gd_mul(losses, shares);
    } else part = gd_where(mask, losses, gd_zeros_like(losses)); /* no product: 0 * inf is NaN */
    if (y) part = gd_sub(part, gd_mul(mask, y));
    gd_shape axes = {.form = 1};
    for (int k = 0; k < losses->rank; k++)
        if (k != class_axis(losses)) axes.at[axes.rank++] = k;
    part = gd_mul(part, g);
    return axes.rank ? gd_sum(part, .axis = axes) : part;
}

/* --- negative log likelihood ------------------------------------------------------------------ */

/*op nll_loss(x, target) -> y, total~  fullp
 * Negative log likelihood: the weighted mean of -x at the class that the target names. x holds
 * log-probabilities (C), (N,C) or (N,C,d1,...).
 *   reduction {none, mean, sum} = mean  mean: divided by the sum of the weights of the targets' classes
 *   ignore_index int = -100  targets with this number do not count
 *   weight tensor?  one number for each class
 *   index target < x[1] or ignore_index
 *   saves x, target, weight, y, total
 *   onnx NegativeLogLikelihoodLoss(x, target, weight) reduction=reduction ignore_index=ignore_index
 *        when x:rank>1  cast -i-
 *   python (x, target, weight)
 */
static gd_status nll_loss_infer(gd_infer *i) {
    const gd_nll_loss_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    GD_TRY(need_classes(x, i->n_in > 2 ? i->in[2] : NULL));
    GD_TRY(need_indices(x, i->in[1]));
    loss_shape(&i->out[0], x, o->reduction);
    i->out[1].dtype = GD_F64;
    i->out[1].rank = 0;
    return GD_OK;
}

static void nll_loss_vjp(gd_vjp *v) {
    const gd_nll_loss_options *o = v->attrs;
    gd_tensor *x = v->x[0], *target = v->x[1], *weight = gd_optional_input(v->x, v->n_in, 2),
              *total = v->y[1];
    bool mean = o->reduction == GD_MEAN;
    if (!weight || !v->needs[2]) {
        v->gx[0] =
            gd_nll_loss_grad(v->gy[0], target, total, gd_tensor_shape(x), .reduction = o->reduction,
                             .ignore_index = o->ignore_index, .weight = weight);
        return;
    }
    /* The gradient by the weights sums over many positions, so f16 and bf16 are widened. Gradients
     * of this gradient flow into the weights, too. */
    const gd_dtype inside = gd_wide_dtype((gd_dtype)x->dtype);
    x = gd_as_dtype(x, inside);
    weight = gd_as_dtype(weight, inside);
    gd_tensor *gy = gd_as_dtype(v->gy[0], inside), *y = v->y[0];
    if (mean && y->dtype != inside) /* a loss rounded to f16 is too coarse to be subtracted */
        y = gd_nll_loss(x, target, .ignore_index = o->ignore_index, .weight = weight);
    if (mean) total = weight_total(x, target, weight, o->ignore_index);
    gd_tensor *g = position_gradient(gy, mean ? total : NULL, x, target, o->ignore_index);
    if (v->needs[0])
        v->gx[0] = gd_where(target_mask(x, target), gd_neg(gd_mul(g, along_classes(weight, x))),
                            gd_zeros_like(x));
    v->gx[2] = weight_gradient(gd_neg(x), g, mean ? y : NULL, target, 0);
}

/* An iterator over the targets. Start it with position = -1. */
typedef struct {
    gd_class_shape shape;
    const gd_view *target;
    gd_view weight;
    int64_t ignore;
    int64_t position, outer_at, inner_at; /* p, n and d of loss_class.h */
    int64_t class_at;                     /* the target's class; -1: ignored */
    double weight_at;                     /* the weight of that class */
} target_walk;

/* False at the end. Sets *bad if the target names a class that does not exist. */
static bool next_target(target_walk *w, bool *bad) {
    if (++w->position >= w->shape.outer * w->shape.inner) return false;
    w->outer_at = w->position / w->shape.inner;
    w->inner_at = w->position % w->shape.inner;
    int64_t class = gd_load_i64(w->target->dtype, gd_view_element(w->target, w->position));
    *bad = class != w->ignore && (class < 0 || class >= w->shape.classes);
    w->class_at = class == w->ignore || *bad ? -1 : class;
    w->weight_at = 1;
    if (w->weight.data && w->class_at >= 0)
        w->weight_at =
            gd_load_f64(w->weight.dtype,
                        (const char *)w->weight.data + w->class_at * w->weight.strides[0] *
                                                           (int64_t)gd_dtype_size(w->weight.dtype));
    return true;
}

/* Element (n, c, d) of a view with x's dims. */
static char *class_element(const gd_view *x, int64_t n, int64_t c, int64_t d) {
    int axis = x->rank > 1;
    int64_t at = c * x->strides[axis] + (axis ? n * x->strides[0] : 0);
    for (int k = x->rank; k-- > axis + 1;) {
        at += d % x->dims[k] * x->strides[k];
        d /= x->dims[k];
    }
    return (char *)x->data + at * (int64_t)gd_dtype_size(x->dtype);
}

static gd_status nll_loss_raw(gd_kernel_call *k) {
    const gd_nll_loss_options *o = k->attrs;
    const gd_view *x = &k->in[0], *y = &k->out[0];
    target_walk w = {.shape = gd_class_shape_of(x->rank, x->dims),
                     .target = &k->in[1],
                     .weight = gd_optional_view(k, 2),
                     .ignore = o->ignore_index,
                     .position = -1};
    double sum = 0, total = 0;
    for (bool bad; next_target(&w, &bad);) {
        if (bad) return gd_fail_class(w.target, w.position, w.shape.classes, w.ignore);
        double loss = 0;
        if (w.class_at >= 0) {
            loss = -w.weight_at *
                   gd_load_f64(x->dtype, class_element(x, w.outer_at, w.class_at, w.inner_at));
            total += w.weight_at;
        }
        sum += loss;
        if (o->reduction == GD_NONE) gd_store_f64(y->dtype, gd_view_element(y, w.position), loss);
    }
    if (o->reduction != GD_NONE)
        gd_store_f64(y->dtype, y->data, o->reduction == GD_MEAN ? sum / total : sum);
    if (k->out[1].data) *(double *)k->out[1].data = total;
    return GD_OK;
}

/* Targets, checked: each must name a class or be the ignored index. */
static gd_tensor *checked_targets(gd_tensor *target, int64_t classes, int64_t ignore) {
    return gd_check_range(target, 0, classes - 1, .but = ignore, .what = "target");
}

/* Gathers the elements of x at the targets' classes, then weights and reduces them. */
static void nll_loss_expand(gd_expansion *e) {
    const gd_nll_loss_options *o = e->attrs;
    gd_tensor *x = e->x[0], *weight = gd_optional_input(e->x, e->n_in, 2);
    const int axis = class_axis(x);
    const gd_dtype dtype = (gd_dtype)x->dtype, inside = gd_wide_dtype(dtype);
    gd_tensor *target = checked_targets(e->x[1], gd_tensor_dim(x, axis), o->ignore_index);
    gd_tensor *ignored = ignored_targets(target, o->ignore_index);
    gd_tensor *class = gd_masked_fill(target, ignored, 0);
    gd_tensor *picked = gd_squeeze(gd_gather(x, axis, gd_unsqueeze(class, axis)), .axis = axis);
    picked = gd_neg(gd_as_dtype(picked, inside));
    gd_tensor *weights = gd_ones_like(picked);
    if (weight) {
        gd_tensor *own = gd_gather(weight, 0, gd_reshape(class, gd_dims(-1)));
        weights = gd_reshape(gd_as_dtype(own, inside), gd_tensor_shape(e->x[1]));
    }
    weights = gd_masked_fill(weights, ignored, 0);
    gd_tensor *terms = gd_masked_fill(gd_mul(picked, weights), ignored, 0);
    terms = o->reduction == GD_NONE  ? terms
            : o->reduction == GD_SUM ? gd_sum(terms)
                                     : gd_div(gd_sum(terms), gd_sum(weights));
    e->y[0] = gd_as_dtype(terms, dtype);
}

/*op nll_loss_grad(gy, target, total, dims:int[]) -> gx  internal
 * The gradient of nll_loss by x; dims is the shape of x.
 *   reduction {none, mean, sum} = mean
 *   ignore_index int = -100
 *   weight tensor?
 *   index target < dims[1] or ignore_index
 *   saves target, weight
 */
static gd_status nll_loss_grad_infer(gd_infer *i) {
    const gd_nll_loss_grad_options *o = i->attrs;
    const gd_tensor *target = i->in[1], *weight = i->n_in > 3 ? i->in[3] : NULL;
    int rank = o->dims.rank;
    size_t bytes;
    if (rank == 0) return gd_op_fail(GD_E_SHAPE, "dims must have a dimension of classes");
    GD_TRY(gd_shape_bytes(o->dims, (gd_dtype)i->in[0]->dtype, &bytes));
    GD_TRY(need_loss(i->in[0], o->reduction, rank, o->dims.at));
    GD_TRY(gd_need_int(target, "target"));
    GD_TRY(need_positions(target, "target", rank, o->dims.at));
    GD_TRY(need_total(i->in[2]));
    if (weight && (weight->rank != 1 || weight->dims[0] != o->dims.at[rank > 1] ||
                   !gd_dtype_is_float((gd_dtype)weight->dtype)))
        return gd_op_fail(GD_E_SHAPE, "'weight' must have one number for each class");
    i->out[0].rank = rank;
    memcpy(i->out[0].dims, o->dims.at, sizeof o->dims.at);
    return GD_OK;
}
static void nll_loss_grad_vjp(gd_vjp *v) { /* linear in gy: its transpose is the loss itself */
    const gd_nll_loss_grad_options *o = v->attrs;
    v->gx[0] =
        gd_nll_loss(v->gy[0], v->x[1], .reduction = o->reduction, .ignore_index = o->ignore_index,
                    .weight = gd_optional_input(v->x, v->n_in, 3));
}
/* -gy times the weight at the class that each position's target names, 0 at all other classes. */
static void nll_loss_grad_expand(gd_expansion *e) {
    const gd_nll_loss_grad_options *o = e->attrs;
    const int rank = o->dims.rank, axis = rank > 1;
    const int64_t classes = o->dims.at[axis];
    const gd_dtype dtype = (gd_dtype)e->x[0]->dtype, inside = gd_wide_dtype(dtype);
    gd_tensor *weight = gd_optional_input(e->x, e->n_in, 3), *g = gd_as_dtype(e->x[0], inside);
    gd_tensor *target = checked_targets(e->x[1], classes, o->ignore_index);
    gd_tensor *numbers = gd_positions(rank, axis, 0, classes, 1);
    gd_tensor *mask = gd_eq(gd_unsqueeze(target, axis), numbers);
    if (o->ignore_index >= 0 && o->ignore_index < classes)
        mask = gd_logical_and(
            mask, gd_logical_not(gd_unsqueeze(ignored_targets(target, o->ignore_index), axis)));
    if (o->reduction == GD_MEAN) g = gd_div(g, gd_as_dtype(e->x[2], inside));
    if (o->reduction == GD_NONE) g = gd_unsqueeze(g, axis);
    if (weight) {
        gd_shape dims = {.rank = rank, .form = 1};
        for (int d = 0; d < rank; d++) dims.at[d] = d == axis ? classes : 1;
        g = gd_mul(g, gd_reshape(gd_as_dtype(weight, inside), dims));
    }
    g = gd_masked_fill(gd_expand(gd_neg(g), o->dims), gd_logical_not(mask), 0);
    e->y[0] = gd_as_dtype(g, dtype);
}
static gd_status nll_loss_grad_raw(gd_kernel_call *k) {
    const gd_nll_loss_grad_options *o = k->attrs;
    const gd_view *gy = &k->in[0], *gx = &k->out[0];
    target_walk w = {.shape = gd_class_shape_of(gx->rank, gx->dims),
                     .target = &k->in[1],
                     .weight = gd_optional_view(k, 3),
                     .ignore = o->ignore_index,
                     .position = -1};
    char zero[8] = {0};
    gd_view zeros = *gx; /* one zero in the shape of gx: all strides are 0 */
    zeros.data = zero;
    memset(zeros.strides, 0, sizeof zeros.strides);
    gd_copy_elements(gx, &zeros);
    double share = o->reduction == GD_MEAN ? 1 / gd_load_f64(k->in[2].dtype, k->in[2].data) : 1;
    for (bool bad; next_target(&w, &bad);) {
        if (bad) return gd_fail_class(w.target, w.position, w.shape.classes, w.ignore);
        if (w.class_at < 0) continue;
        double g = gd_load_f64(gy->dtype, o->reduction == GD_NONE ? gd_view_element(gy, w.position)
                                                                  : gy->data);
        gd_store_f64(gx->dtype, class_element(gx, w.outer_at, w.class_at, w.inner_at),
                     -g * w.weight_at * share);
    }
    return GD_OK;
}

/* --- cross-entropy ---------------------------------------------------------------------------- */

/*op cross_entropy(x, target) -> y  fullp
 * Cross-entropy of softmax(x) with a target, for logits x (C), (N,C) or (N,C,d1,...). The target is
 * class numbers (integers, x's shape without the classes) or probabilities (floats, x's shape).
 *   reduction {none, mean, sum} = mean  mean: divided by the sum of the weights of the targets' classes
 *   ignore_index int = -100      targets with this class number do not count
 *   label_smoothing float = 0    this fraction of the target is spread evenly over all classes
 *   axis int = 1    the axis of the classes in x; -1: the last one, for the (N,T,C) of text models
 *   weight tensor?  one number for each class
 *   onnx SoftmaxCrossEntropyLoss
 *   python (x, target, weight)
 */
static gd_status check_smoothing(double smoothing) {
    if (smoothing >= 0 && smoothing <= 1) return GD_OK;
    return gd_op_fail(GD_E_ARGUMENT, "label_smoothing is %g; it must lie between 0 and 1",
                      smoothing);
}

/* The axis of the classes. x of rank 1 has only classes. */
static gd_status find_class_axis(const gd_tensor *x, int64_t given, int *axis) {
    *axis = 0;
    if (x->rank < 2) return GD_OK;
    GD_TRY(gd_axis(given, x->rank, axis));
    return *axis > 0 ? GD_OK
                     : gd_op_fail(GD_E_ARGUMENT, "axis is %lld, the axis of the samples",
                                  (long long)given);
}

/* x's shape with the classes on axis 1. */
static gd_tensor with_classes_first(const gd_tensor *x, int axis) {
    gd_tensor moved = *x;
    for (int k = axis; k > 1; k--) moved.dims[k] = x->dims[k - 1];
    if (axis > 1) moved.dims[1] = x->dims[axis];
    return moved;
}

static bool fits_without(const gd_tensor *target, const gd_tensor *x, int axis) {
    bool same = target->rank == x->rank - 1;
    for (int k = 0; k < target->rank && same; k++)
        same = target->dims[k] == x->dims[k + (k >= axis)];
    return same;
}

static gd_status need_class_numbers(const gd_tensor *x, const gd_tensor *target, int axis) {
    GD_TRY(gd_need_int(target, "target"));
    if (fits_without(target, x, axis)) return GD_OK;
    return gd_op_fail(
        GD_E_SHAPE,
        "'target' must have the shape of 'x' without its dimension %d, the "
        "classes%s",
        axis,
        x->rank > 1 && fits_without(target, x, x->rank - 1) ? "; with axis=-1 they would fit" : "");
}

static gd_status cross_entropy_infer(gd_infer *i) {
    const gd_cross_entropy_options *o = i->attrs;
    const gd_tensor *x = i->in[0], *target = i->in[1];
    int axis;
    GD_TRY(find_class_axis(x, o->axis, &axis));
    const gd_tensor moved = with_classes_first(x, axis);
    GD_TRY(need_classes(&moved, i->n_in > 2 ? i->in[2] : NULL));
    GD_TRY(check_smoothing(o->label_smoothing));
    loss_shape(&i->out[0], &moved, o->reduction);
    if (!gd_dtype_is_float((gd_dtype)target->dtype)) return need_class_numbers(x, target, axis);
    bool same = target->rank == x->rank;
    for (int k = 0; k < x->rank && same; k++) same = target->dims[k] == x->dims[k];
    if (!same)
        return gd_op_fail(GD_E_SHAPE,
                          "a 'target' of probabilities (floats) must have the shape of 'x'");
    i->out[0].dtype = gd_promote((gd_dtype)x->dtype, (gd_dtype)target->dtype);
    return GD_OK;
}

/* Puts the classes on axis 1. */
static gd_tensor *classes_first(gd_tensor *x, int axis) {
    return axis < 2 ? x : gd_movedim(x, gd_dims(axis), gd_dims(1));
}

static gd_tensor *probabilities_loss(gd_tensor *x, gd_tensor *target, gd_tensor *weight,
                                     const gd_cross_entropy_options *o) {
    int axis = class_axis(x);
    double smoothing = o->label_smoothing;
    if (smoothing > 0)
        target = gd_affine(target, 1 - smoothing, smoothing / (double)gd_tensor_dim(x, axis));
    gd_tensor *terms = gd_mul(gd_log_softmax(x, .axis = axis), target);
    if (weight) terms = gd_mul(terms, along_classes(weight, x));
    terms = gd_neg(gd_sum(terms, .axis = axis));
    return o->reduction == GD_NONE  ? terms
           : o->reduction == GD_SUM ? gd_sum(terms)
                                    : gd_mean(terms);
}

/* Classes on the last axis: rows of (..., C) are samples of (N, C), without a copy. */
static gd_tensor *numbers_loss(gd_tensor *x, gd_tensor *target, gd_tensor *weight, int axis,
                               const gd_cross_entropy_options *o) {
    const bool rows = axis > 1 && axis == x->rank - 1;
    const gd_shape shape = gd_shape_of(target->rank, target->dims);
    if (rows) {
        const int64_t count = gd_numel(target->rank, target->dims);
        x = gd_reshape(x, gd_dims(count, x->dims[axis]));
        target = gd_reshape(target, gd_dims(count));
    } else {
        x = classes_first(x, axis);
    }
    gd_tensor *y = gd_index_cross_entropy(x, target, .reduction = o->reduction,
                                          .ignore_index = o->ignore_index,
                                          .label_smoothing = o->label_smoothing, .weight = weight);
    return rows && o->reduction == GD_NONE ? gd_reshape(y, shape) : y;
}

static void cross_entropy_expand(gd_expansion *e) {
    const gd_cross_entropy_options *o = e->attrs;
    gd_tensor *x = e->x[0], *target = e->x[1], *weight = gd_optional_input(e->x, e->n_in, 2);
    int axis;
    find_class_axis(x, o->axis, &axis); /* infer has checked it */
    if (gd_dtype_is_float((gd_dtype)target->dtype))
        e->y[0] =
            probabilities_loss(classes_first(x, axis), classes_first(target, axis), weight, o);
    else e->y[0] = numbers_loss(x, target, weight, axis, o);
}

/*op index_cross_entropy(x, target) -> y, shift~, scale~, total~  internal
 * cross_entropy with class numbers, in one kernel. For the gradient it also returns, for each
 * position, shift, the largest logit, and scale = 1 / sum(exp(x - shift)); and total, the sum of
 * the weights.
 *   reduction {none, mean, sum} = mean
 *   ignore_index int = -100
 *   label_smoothing float = 0
 *   weight tensor?
 *   index target < x[1] or ignore_index
 *   saves x, target, weight, y, shift, scale, total
 *   onnx SoftmaxCrossEntropyLoss(x, target, weight) reduction=reduction ignore_index=ignore_index
 *        when label_smoothing=0 x:rank>1 target:int saving  cast -i-
 */
static gd_status index_cross_entropy_infer(gd_infer *i) {
    const gd_index_cross_entropy_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    GD_TRY(need_classes(x, i->n_in > 2 ? i->in[2] : NULL));
    GD_TRY(need_indices(x, i->in[1]));
    GD_TRY(check_smoothing(o->label_smoothing));
    loss_shape(&i->out[0], x, o->reduction);
    loss_shape(&i->out[1], x, GD_NONE);
    i->out[1].dtype = statistics_dtype((gd_dtype)x->dtype);
    i->out[2] = i->out[1];
    i->out[3].dtype = GD_F64;
    i->out[3].rank = 0;
    return GD_OK;
}

static void index_cross_entropy_vjp(gd_vjp *v) {
    const gd_index_cross_entropy_options *o = v->attrs;
    gd_tensor *x = v->x[0], *target = v->x[1], *weight = gd_optional_input(v->x, v->n_in, 2),
              *total = v->y[3];
    bool mean = o->reduction == GD_MEAN;
    const gd_dtype inside = gd_wide_dtype((gd_dtype)x->dtype);
    if (weight && v->needs[2] && mean) /* gradients of gradients flow into the weights */
        total = weight_total(gd_as_dtype(x, inside), target, gd_as_dtype(weight, inside),
                             o->ignore_index);
    if (v->needs[0])
        v->gx[0] =
            gd_index_cross_entropy_grad(v->gy[0], x, target, v->y[1], v->y[2], total,
                                        .reduction = o->reduction, .ignore_index = o->ignore_index,
                                        .label_smoothing = o->label_smoothing, .weight = weight);
    if (weight && v->needs[2]) { /* sums over many positions: f16 and bf16 are widened */
        x = gd_as_dtype(x, inside);
        gd_tensor *gy = gd_as_dtype(v->gy[0], inside), *y = v->y[0];
        if (mean && y->dtype != inside) /* a loss rounded to f16 is too coarse to be subtracted */
            y = gd_index_cross_entropy(x, target, .ignore_index = o->ignore_index,
                                       .label_smoothing = o->label_smoothing,
                                       .weight = gd_as_dtype(weight, inside));
        gd_tensor *g = position_gradient(gy, mean ? total : NULL, x, target, o->ignore_index);
        gd_tensor *losses = gd_neg(gd_log_softmax(x, .axis = class_axis(x)));
        v->gx[2] = weight_gradient(losses, g, mean ? y : NULL, target, o->label_smoothing);
    }
}

/* The part of the loss from label smoothing: -sum(weight * log p) over all classes, reduced as the
 * loss is. */
static gd_tensor *smoothing_loss(gd_tensor *x, gd_tensor *logp, gd_tensor *target,
                                 gd_tensor *weight, const gd_index_cross_entropy_options *o) {
    gd_tensor *terms = gd_neg(
        gd_sum(weight ? gd_mul(logp, along_classes(weight, x)) : logp, .axis = class_axis(x)));
    gd_tensor *ignored = ignored_targets(target, o->ignore_index);
    terms = gd_where(ignored, gd_zeros_like(terms), terms);
    if (o->reduction == GD_NONE) return terms;
    if (o->reduction == GD_SUM) return gd_sum(terms);
    return gd_div(gd_sum(terms), weight_total(x, target, weight, o->ignore_index));
}

static void index_cross_entropy_expand(gd_expansion *e) {
    const gd_index_cross_entropy_options *o = e->attrs;
    const gd_dtype dtype = (gd_dtype)e->x[0]->dtype, inside = gd_wide_dtype(dtype);
    gd_tensor *x = gd_as_dtype(e->x[0], inside), *weight = gd_optional_input(e->x, e->n_in, 2);
    gd_tensor *target = /* checked here so that an error names this op, not nll_loss */
        checked_targets(e->x[1], gd_tensor_dim(x, class_axis(x)), o->ignore_index);
    if (weight) weight = gd_as_dtype(weight, inside);
    double smoothing = o->label_smoothing, classes = (double)gd_tensor_dim(x, class_axis(x));
    gd_tensor *logp = gd_log_softmax(x, .axis = class_axis(x));
    gd_tensor *loss = gd_nll_loss(logp, target, .reduction = o->reduction,
                                  .ignore_index = o->ignore_index, .weight = weight);
    if (smoothing != 0)
        loss =
            gd_add(gd_affine(loss, 1 - smoothing, 0),
                   gd_affine(smoothing_loss(x, logp, target, weight, o), smoothing / classes, 0));
    e->y[0] = gd_as_dtype(loss, dtype);
}

/* Statistics of the logits of one position. */
typedef struct {
    double shift;    /* the largest logit */
    double sum;      /* of exp(x - shift) */
    double weighted; /* the sum of weight * x */
} logit_statistics;

static logit_statistics read_logits(const double *x, gd_class_shape s, const double *weight) {
    logit_statistics l = {.shift = -(double)INFINITY};
    for (int64_t c = 0; c < s.classes; c++)
        if (x[c * s.inner] > l.shift) l.shift = x[c * s.inner];
    for (int64_t c = 0; c < s.classes; c++) {
        l.sum += exp(x[c * s.inner] - l.shift);
        l.weighted += (weight ? weight[c] : 1) * x[c * s.inner];
    }
    return l;
}

static double weight_sum(const double *weight, int64_t classes) {
    double sum = 0;
    for (int64_t c = 0; c < classes; c++) sum += weight ? weight[c] : 1;
    return sum;
}

static gd_status index_cross_entropy_reference(gd_kernel_call *k) {
    const gd_index_cross_entropy_options *o = k->attrs;
    const double *x = k->in[0].data, *weight = gd_optional_view(k, 2).data;
    double *y = k->out[0].data, *shift = k->out[1].data, *scale = k->out[2].data,
           *total_out = k->out[3].data;
    gd_class_shape s = gd_class_shape_of(k->in[0].rank, k->in[0].dims);
    target_walk w = {.shape = s,
                     .target = &k->in[1],
                     .weight = gd_optional_view(k, 2),
                     .ignore = o->ignore_index,
                     .position = -1};
    double sum = 0, total = 0, all = weight_sum(weight, s.classes), smoothing = o->label_smoothing;
    for (bool bad; next_target(&w, &bad);) {
        if (bad) return gd_fail_class(w.target, w.position, s.classes, w.ignore);
        const double *scores = x + w.outer_at * s.classes * s.inner + w.inner_at;
        logit_statistics l = read_logits(scores, s, weight);
        double loss = 0;
        if (w.class_at >= 0) {
            double logsum = log(l.sum);
            loss =
                (1 - smoothing) * w.weight_at * (logsum - (scores[w.class_at * s.inner] - l.shift));
            if (smoothing > 0)
                loss += smoothing / (double)s.classes * (all * (logsum + l.shift) - l.weighted);
            total += w.weight_at;
        }
        sum += loss;
        if (o->reduction == GD_NONE) y[w.position] = loss;
        if (shift) shift[w.position] = l.shift;
        if (scale) scale[w.position] = 1 / l.sum;
    }
    if (o->reduction != GD_NONE) y[0] = o->reduction == GD_MEAN ? sum / total : sum;
    if (total_out) *total_out = total;
    return GD_OK;
}

/*op index_cross_entropy_grad(gy, x, target, shift, scale, total) -> gx  internal
 * The gradient of index_cross_entropy by x.
 *   reduction {none, mean, sum} = mean
 *   ignore_index int = -100
 *   label_smoothing float = 0
 *   weight tensor?
 *   index target < x[1] or ignore_index
 */
static gd_status index_cross_entropy_grad_infer(gd_infer *i) {
    const gd_index_cross_entropy_grad_options *o = i->attrs;
    const gd_tensor *x = i->in[1], *shift = i->in[3], *scale = i->in[4];
    GD_TRY(need_classes(x, i->n_in > 6 ? i->in[6] : NULL));
    GD_TRY(need_loss(i->in[0], o->reduction, x->rank, x->dims));
    GD_TRY(gd_need_same_dtype(i->in[0], x, "gy", "x"));
    GD_TRY(need_indices(x, i->in[2]));
    GD_TRY(need_positions(shift, "shift", x->rank, x->dims));
    GD_TRY(need_positions(scale, "scale", x->rank, x->dims));
    if (shift->dtype != statistics_dtype((gd_dtype)x->dtype) || scale->dtype != shift->dtype)
        return gd_op_fail(GD_E_DTYPE, "'shift' and 'scale' must be %s",
                          gd_dtype_name(statistics_dtype((gd_dtype)x->dtype)));
    GD_TRY(need_total(i->in[5]));
    GD_TRY(check_smoothing(o->label_smoothing));
    gd_meta_like(&i->out[0], x);
    return GD_OK;
}

/* The options of index_cross_entropy, and the weights or NULL. */
typedef struct entropy_options {
    gd_word reduction;
    int64_t ignore_index;
    double label_smoothing;
    gd_tensor *weight;
} entropy_options;

/* gx = g ((own + even * all) softmax(x) - own * onehot - even * weight), where own = (1 -
 * smoothing) * weight of the target's class, even = smoothing / classes, and all is the sum of the
 * weights. Softmax is computed from x again, not from shift and scale, so that gradients of
 * gradients flow into x. `total` is the divisor of a mean. */
static gd_tensor *entropy_gradient(gd_tensor *gy, gd_tensor *scores, gd_tensor *targets,
                                   gd_tensor *total, const entropy_options *o) {
    const gd_dtype dtype = (gd_dtype)scores->dtype, inside = gd_wide_dtype(dtype);
    gd_tensor *x = gd_as_dtype(scores, inside), *weight = o->weight;
    const int axis = class_axis(x);
    gd_tensor *target = checked_targets(targets, gd_tensor_dim(x, axis), o->ignore_index);
    if (weight) weight = gd_as_dtype(weight, inside);
    double even = o->label_smoothing / (double)gd_tensor_dim(x, axis);
    gd_tensor *g =
        position_gradient(gd_as_dtype(gy, inside), o->reduction == GD_MEAN ? total : NULL, x,
                          target, o->ignore_index);
    gd_tensor *own = gd_affine(gd_cast(target_mask(x, target), inside), 1 - o->label_smoothing, 0);
    if (weight) own = gd_mul(own, weight = along_classes(weight, x));
    gd_tensor *mass = gd_sum(own, .axis = axis, .keepdim = true), *taken = own;
    if (even > 0 && weight) {
        mass = gd_add(mass, gd_affine(gd_sum(weight), even, 0));
        taken = gd_add(own, gd_affine(weight, even, 0));
    } else if (even > 0) {
        mass = gd_affine(mass, 1, o->label_smoothing);
        taken = gd_affine(own, 1, even);
    }
    g = gd_mul(g, gd_sub(gd_mul(mass, gd_softmax(x, .axis = axis)), taken));
    return gd_as_dtype(g, dtype);
}

static void index_cross_entropy_grad_expand(gd_expansion *e) {
    const gd_index_cross_entropy_grad_options *o = e->attrs;
    e->y[0] = entropy_gradient(e->x[0], e->x[1], e->x[2], e->x[5],
                               &(entropy_options){o->reduction, o->ignore_index, o->label_smoothing,
                                                  gd_optional_input(e->x, e->n_in, 6)});
}

static gd_status index_cross_entropy_grad_reference(gd_kernel_call *k) {
    const gd_index_cross_entropy_grad_options *o = k->attrs;
    const double *gy = k->in[0].data, *x = k->in[1].data, *shift = k->in[3].data,
                 *scale = k->in[4].data;
    const double *weight = gd_optional_view(k, 6).data;
    double *gx = k->out[0].data;
    gd_class_shape s = gd_class_shape_of(k->in[1].rank, k->in[1].dims);
    target_walk w = {.shape = s,
                     .target = &k->in[2],
                     .weight = gd_optional_view(k, 6),
                     .ignore = o->ignore_index,
                     .position = -1};
    double share = o->reduction == GD_MEAN ? 1 / *(const double *)k->in[5].data : 1;
    double even = o->label_smoothing / (double)s.classes, all = weight_sum(weight, s.classes);
    for (bool bad; next_target(&w, &bad);) {
        if (bad) return gd_fail_class(w.target, w.position, s.classes, w.ignore);
        int64_t first = w.outer_at * s.classes * s.inner + w.inner_at;
        double g = share * gy[o->reduction == GD_NONE ? w.position : 0],
               own = (1 - o->label_smoothing) * w.weight_at;
        for (int64_t c = 0; c < s.classes; c++) {
            int64_t at = first + c * s.inner;
            double p = exp(x[at] - shift[w.position]) * scale[w.position];
            gx[at] = w.class_at < 0 ? 0
                                    : g * ((own + even * all) * p - (c == w.class_at ? own : 0) -
                                           even * (weight ? weight[c] : 1));
        }
    }
    return GD_OK;
}

/*op index_cross_entropy_with_grad(gy, x, target) -> y, gx  nograd internal
 * index_cross_entropy and its gradient gx by x in one kernel, for plans whose gy, the gradient of
 * the loss, does not depend on the loss.
 *   reduction {none, mean, sum} = mean
 *   ignore_index int = -100
 *   label_smoothing float = 0
 *   weight tensor?
 *   index target < x[1] or ignore_index
 */
static gd_status index_cross_entropy_with_grad_infer(gd_infer *i) {
    const gd_index_cross_entropy_with_grad_options *o = i->attrs;
    const gd_tensor *x = i->in[1];
    GD_TRY(need_classes(x, i->n_in > 3 ? i->in[3] : NULL));
    GD_TRY(need_loss(i->in[0], o->reduction, x->rank, x->dims));
    GD_TRY(gd_need_same_dtype(i->in[0], x, "gy", "x"));
    GD_TRY(need_indices(x, i->in[2]));
    GD_TRY(check_smoothing(o->label_smoothing));
    loss_shape(&i->out[0], x, o->reduction);
    gd_meta_like(&i->out[1], x);
    return GD_OK;
}
static void index_cross_entropy_with_grad_expand(gd_expansion *e) {
    const gd_index_cross_entropy_with_grad_options *o = e->attrs;
    gd_tensor *x = e->x[1], *target = e->x[2], *weight = gd_optional_input(e->x, e->n_in, 3);
    const gd_dtype inside = gd_wide_dtype((gd_dtype)x->dtype);
    e->y[0] = gd_index_cross_entropy(x, target, .reduction = o->reduction,
                                     .ignore_index = o->ignore_index,
                                     .label_smoothing = o->label_smoothing, .weight = weight);
    gd_tensor *total =
        o->reduction == GD_MEAN
            ? weight_total(gd_as_dtype(x, inside), target,
                           weight ? gd_as_dtype(weight, inside) : NULL, o->ignore_index)
            : NULL;
    e->y[1] = entropy_gradient(
        e->x[0], x, target, total,
        &(entropy_options){o->reduction, o->ignore_index, o->label_smoothing, weight});
}

#include "ops/loss/loss_class.gen.h"
