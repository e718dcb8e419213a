/* loss_class.c - losses of scores or probabilities for labels that are class numbers: SoftmaxWithLoss,
 * MultinomialLogisticLoss, HingeLoss.
 */
#include <math.h>

#include "caffe/layers/bottoms.h"
#include "caffe/layers/loss.h"
#include "gradus/autograd.h"

/* --- SoftmaxWithLoss -------------------------------------------------------------------------- */

typedef struct softmax_loss {
    int axis;
    bool gives_probabilities; /* as second top */
    gd_caffe_loss loss;
} softmax_loss;

/* The scores x as cross_entropy takes them: x itself if its classes are on axis 1. */
static gd_tensor *scores_of(const softmax_loss *m, gd_tensor *x) {
    const gd_shape s = gd_tensor_shape(x);
    const bool single = gd_caffe_count(&s, m->axis + 1, s.rank) == 1;
    if (single) return gd_caffe_shaped(x, gd_dims(gd_caffe_count(&s, 0, m->axis), s.at[m->axis]));
    return m->axis == 1 ? x : gd_caffe_by_class(x, m->axis);
}

/* The labels in the shape of the scores without the classes, which are on axis 1. */
static gd_tensor *targets_of(gd_tensor *labels, gd_tensor *scores) {
    const gd_shape s = gd_tensor_shape(scores);
    gd_shape shape = {.form = 1};
    for (int i = 0; i < s.rank; i++)
        if (i != 1) shape.at[shape.rank++] = s.at[i];
    return gd_caffe_shaped(gd_caffe_labels(labels), shape);
}

/* The common case is the one call that a program would write. */
static gd_tensor *softmax_loss_of(const softmax_loss *m, gd_tensor *scores, gd_tensor *targets) {
    GD_CAFFE_NAME_LAYER;
    const gd_shape s = gd_tensor_shape(scores);
    const bool is_mean = gd_caffe_is_mean(&m->loss, gd_caffe_count(&s, 2, s.rank));
    if (is_mean && !m->loss.ignores) return gd_cross_entropy(scores, targets);
    gd_tensor *sum = gd_cross_entropy(scores, targets, .reduction = GD_SUM,
                                      .ignore_index = m->loss.ignores ? m->loss.ignored : -100);
    return gd_caffe_normalized(&m->loss, sum,
                               gd_flatten(gd_unsqueeze(targets, -1), .start_axis = 1));
}

static gd_tensors softmax_loss_forward(gd_tensors in, void *self) {
    const softmax_loss *m = self;
    gd_tensor *scores = scores_of(m, in.at[0]);
    gd_tensor *loss = softmax_loss_of(m, scores, targets_of(in.at[1], scores));
    if (!m->gives_probabilities) return gd_listed(loss);
    gd_tensor *probabilities = gd_softmax(gd_detach(in.at[0]), .axis = m->axis);
    return gd_listed(loss, probabilities);
}

gd_status gd_caffe_make_SoftmaxWithLoss(gd_caffe_layer *l) {
    int axis;
    GD_TRY(gd_caffe_axis(l, "softmax_param.axis", &axis));
    GD_TRY(gd_caffe_need_labels(l, 1, axis));
    softmax_loss *m = gd_caffe_module(l, softmax_loss_forward, sizeof *m);
    if (!m) return gd_failure();
    m->axis = axis;
    m->gives_probabilities = l->n_tops > 1;
    gd_caffe_read_loss(l, GD_CAFFE_VALID, &m->loss);
    return GD_OK;
}

/* --- MultinomialLogisticLoss ------------------------------------------------------------------ */

enum { SAMPLES = 0 }; /* the axis behind which all is one axis of classes */

/* x (N, ...) as (N, classes, 1), and a label for each of the N. */
static gd_tensor *rows_of(gd_tensor *x) {
    return gd_caffe_by_class(gd_tensor_rank(x) == 2 ? x : gd_flatten(x, .start_axis = SAMPLES + 1),
                             1);
}

/* The labels of bottom 1 of a loss that takes one for each sample. */
static gd_status need_label_for_each(const gd_caffe_layer *l) {
    if (l->bottoms[0].rank < 2) {
        char text[128];
        return gd_caffe_fail(l, "its first bottom is %s; it must be (samples, classes)",
                             gd_caffe_bottom_text(l, 0, text));
    }
    gd_shape flat =
        gd_dims(l->bottoms[0].at[0], gd_caffe_count(&l->bottoms[0], 1, l->bottoms[0].rank));
    const gd_shape shapes[] = {flat, l->bottoms[1]};
    gd_caffe_layer as_rows = *l;
    as_rows.bottoms = shapes;
    return gd_caffe_need_labels(&as_rows, 1, 1);
}

/* The gradient also reaches probabilities below the least one. */
static gd_tensors multinomial_forward(gd_tensors in, void *self) {
    const double least = 1e-20;
    (void)self;
    gd_tensor *p = rows_of(in.at[0]), *labels = gd_caffe_class_numbers(in.at[1], p, GD_UNSET);
    gd_tensor *own = gd_gather(p, 1, gd_unsqueeze(labels, 1));
    return gd_listed(gd_neg(gd_mean(gd_log(gd_floored(own, least)))));
}

gd_status gd_caffe_make_MultinomialLogisticLoss(gd_caffe_layer *l) {
    GD_TRY(need_label_for_each(l));
    return gd_caffe_module(l, multinomial_forward, 0) ? GD_OK : gd_failure();
}

/* --- HingeLoss -------------------------------------------------------------------------------- */

enum { L1 = 1, L2 = 2 }; /* the numbers of HingeLossParameter.Norm */

typedef struct hinge {
    int64_t norm;
} hinge;

/* The sum over classes of max(0, 1 + x), or of 1 - x for the label's class: its mean over samples. */
static gd_tensors hinge_forward(gd_tensors in, void *self) {
    const hinge *m = self;
    gd_tensor *x = rows_of(in.at[0]), *labels = gd_caffe_class_numbers(in.at[1], x, GD_UNSET);
    const int64_t classes = gd_tensor_dim(x, 1);
    gd_tensor *own =
        gd_eq(gd_unsqueeze(labels, 1),
              gd_reshape(gd_arange(0, (double)classes, .dtype = GD_I64), gd_dims(1, classes, 1)));
    gd_tensor *terms = gd_relu(gd_affine(gd_where(own, gd_neg(x), x), 1, 1));
    if (m->norm == L2) terms = gd_square(terms);
    return gd_listed(gd_affine(gd_mean(terms), (double)classes, 0));
}

gd_status gd_caffe_make_HingeLoss(gd_caffe_layer *l) {
    GD_TRY(need_label_for_each(l));
    hinge *m = gd_caffe_module(l, hinge_forward, sizeof *m);
    if (!m) return gd_failure();
    m->norm = gd_pb_int_of(l->message, "hinge_loss_param.norm");
    return GD_OK;
}
