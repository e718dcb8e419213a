/* reduce.c - Reduction over the last axes, and MVN, which makes the mean 0 and the variance 1. */
#include "caffe/layer.h"
#include "caffe/save/save.h"

/* --- Reduction -------------------------------------------------------------------------------- */

enum { SUM = 1, ASUM, SUMSQ, MEAN }; /* the numbers of ReductionOp */

typedef struct reduction {
    int64_t operation;
    int axis; /* the first that is summed */
    double coeff;
} reduction;

static gd_shape axes_from(int first, int rank) {
    gd_shape axes = {.form = 1};
    for (int i = first; i < rank; i++) axes.at[axes.rank++] = i;
    return axes;
}

static gd_tensors reduction_forward(gd_tensors in, void *self) {
    const reduction *m = self;
    gd_tensor *x = in.at[0];
    const gd_shape axes = axes_from(m->axis, gd_tensor_rank(x));
    if (m->operation == ASUM) x = gd_abs(x);
    if (m->operation == SUMSQ) x = gd_square(x);
    gd_tensor *y = m->operation == MEAN ? gd_mean(x, .axis = axes) : gd_sum(x, .axis = axes);
    return gd_listed(m->coeff == 1 ? y : gd_affine(y, m->coeff, 0));
}

gd_status gd_caffe_make_Reduction(gd_caffe_layer *l) {
    int axis;
    GD_TRY(gd_caffe_axis(l, "reduction_param.axis", &axis));
    reduction *m = gd_caffe_module(l, reduction_forward, sizeof *m);
    if (!m) return gd_failure();
    m->operation = gd_pb_int_of(l->message, "reduction_param.operation");
    m->axis = axis;
    m->coeff = gd_pb_float_of(l->message, "reduction_param.coeff");
    return GD_OK;
}

/* --- MVN -------------------------------------------------------------------------------------- */

typedef struct mvn {
    int first; /* of the axes over which the mean is computed */
    bool divides;
    double eps;
} mvn;

/* The result has at least 4 axes. eps is added to the root of the variance, and the gradient of the root is that of root + eps. */
static gd_tensors mvn_forward(gd_tensors in, void *self) {
    const mvn *m = self;
    gd_tensor *x = in.at[0];
    while (gd_tensor_rank(x) < 4) x = gd_unsqueeze(x, -1);
    const gd_shape axes = axes_from(m->first, gd_tensor_rank(x));
    gd_tensor *y = gd_sub(x, gd_mean(x, .axis = axes, .keepdim = true));
    if (!m->divides) return gd_listed(y);
    gd_tensor *variance = gd_mean(gd_square(y), .axis = axes, .keepdim = true);
    return gd_listed(gd_div(y, gd_affine(gd_damped_sqrt(variance, m->eps), 1, m->eps)));
}

gd_status gd_caffe_make_MVN(gd_caffe_layer *l) {
    mvn *m = gd_caffe_module(l, mvn_forward, sizeof *m);
    if (!m) return gd_failure();
    m->first = gd_pb_int_of(l->message, "mvn_param.across_channels") ? 1 : 2;
    m->divides = gd_pb_int_of(l->message, "mvn_param.normalize_variance") != 0;
    m->eps = gd_pb_float_of(l->message, "mvn_param.eps");
    return GD_OK;
}

/* --- saving ----------------------------------------------------------------------------------- */

/* The sum or the mean over the last axes; that of planes is a pooling, which all readers know. */
gd_status gd_caffe_save_reduction(gd_caffe_call *c) {
    bool axes[GD_MAX_RANK];
    const bool is_mean = c->op->name[0] == 'm';
    int first = 0;
    gd_caffe_option_axes(c, "axis", axes);
    if (is_mean && gd_caffe_save_mean_of_planes(c, axes)) return c->saver->status;
    while (first < c->in[0].rank && !axes[first]) first++;
    for (int i = first; i < c->in[0].rank; i++)
        if (!axes[i])
            return gd_caffe_cannot(c,
                                   "it reduces axis %d but not axis %d, and Caffe's Reduction "
                                   "reduces all axes from one on",
                                   first, i);
    if (first == c->in[0].rank) return gd_caffe_save_same(c);
    gd_shape shape = gd_caffe_slot_shape(c->in);
    shape.rank = first;
    const bool keeps = c->out[0].rank != first;
    const int top = gd_caffe_top(c, 0), sum = keeps ? gd_caffe_between(c, shape) : top;
    gd_caffe_out(c, "Reduction", gd_caffe_bottom(c, 0), sum);
    gd_caffe_put_int(c, "operation", is_mean ? MEAN : SUM);
    gd_caffe_put_int(c, "axis", first);
    if (keeps) gd_caffe_shape_as(c, sum, top);
    return c->saver->status;
}
