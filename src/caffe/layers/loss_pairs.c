/* loss_pairs.c - losses that compare bottoms element by element or row by row: EuclideanLoss,
 * SigmoidCrossEntropyLoss, ContrastiveLoss.
 */
#include "caffe/layers/bottoms.h"
#include "caffe/layers/loss.h"
#include "gradus/autograd.h"

/* The number of elements of a sample of x (N, ...). */
static int64_t sample_count(gd_tensor *x) {
    const gd_shape s = gd_tensor_shape(x);
    return s.rank ? gd_caffe_count(&s, 1, s.rank) : 1;
}

static gd_tensor *times(gd_tensor *x, double by) { return by == 1 ? x : gd_affine(x, by, 0); }

/* --- EuclideanLoss ---------------------------------------------------------------------------- */

/* The sum of (a - b)^2, divided by 2 N. */
static gd_tensors euclidean_forward(gd_tensors in, void *self) {
    (void)self;
    gd_tensor *a = gd_caffe_known(in.at[0], 1), *b = gd_caffe_shaped(in.at[1], gd_tensor_shape(a));
    return gd_listed(times(gd_mse_loss(a, b), 0.5 * (double)sample_count(a)));
}

gd_status gd_caffe_make_EuclideanLoss(gd_caffe_layer *l) {
    GD_TRY(gd_caffe_need_count_of_first(l, 1));
    return gd_caffe_module(l, euclidean_forward, 0) ? GD_OK : gd_failure();
}

/* --- SigmoidCrossEntropyLoss ------------------------------------------------------------------ */

typedef struct sigmoid_loss {
    gd_caffe_loss loss;
} sigmoid_loss;

static gd_tensors sigmoid_loss_forward(gd_tensors in, void *self) {
    const gd_caffe_loss *loss = &((const sigmoid_loss *)self)->loss;
    gd_tensor *x = gd_caffe_known(in.at[0], 1);
    gd_tensor *target = gd_caffe_shaped(gd_detach(in.at[1]), gd_tensor_shape(x));
    const int64_t count = sample_count(x);
    if (!loss->ignores && loss->normalization != GD_CAFFE_NONE)
        return gd_listed(times(gd_bce_with_logits(x, target),
                               gd_caffe_is_mean(loss, count) ? 1 : (double)count));
    gd_tensor *labels = gd_reshape(gd_caffe_labels(target), gd_dims(-1, count));
    gd_tensor *counted =
        !loss->ignores ? NULL : gd_caffe_counted(loss, gd_caffe_labels(target), gd_tensor_dtype(x));
    return gd_listed(gd_caffe_normalized(
        loss, gd_bce_with_logits(x, target, .reduction = GD_SUM, .weight = counted), labels));
}

gd_status gd_caffe_make_SigmoidCrossEntropyLoss(gd_caffe_layer *l) {
    GD_TRY(gd_caffe_need_count_of_first(l, 1));
    sigmoid_loss *m = gd_caffe_module(l, sigmoid_loss_forward, sizeof *m);
    if (!m) return gd_failure();
    gd_caffe_read_loss(l, GD_CAFFE_BATCH_SIZE, &m->loss);
    return GD_OK;
}

/* --- ContrastiveLoss -------------------------------------------------------------------------- */

typedef struct contrastive {
    double margin;
    bool legacy;
} contrastive;

/* d^2 of similar pairs (N, C); max(0, margin - d)^2 of others, in the older form max(0, margin - d^2). The
 * gradient of the distance d is divided by d + 1e-4. */
static gd_tensors contrastive_forward(gd_tensors in, void *self) {
    const contrastive *m = self;
    gd_tensor *a = gd_flatten(in.at[0], .start_axis = 1),
              *b = gd_flatten(in.at[1], .start_axis = 1);
    gd_tensor *squared = gd_sum(gd_square(gd_sub(a, b)), .axis = gd_dims(1));
    gd_tensor *similar =
        gd_ne(gd_reshape(gd_caffe_labels(in.at[2]), gd_dims(-1)), gd_scalar_int(0));
    gd_tensor *missing =
        gd_relu(gd_affine(m->legacy ? squared : gd_damped_sqrt(squared, 1e-4), -1, m->margin));
    gd_tensor *terms = gd_where(similar, squared, m->legacy ? missing : gd_square(missing));
    return gd_listed(gd_affine(gd_mean(terms), 0.5, 0));
}

gd_status gd_caffe_make_ContrastiveLoss(gd_caffe_layer *l) {
    const gd_shape *x = &l->bottoms[0], *labels = &l->bottoms[2];
    char text[128];
    GD_TRY(gd_caffe_need_shape_of_first(l, 1));
    if (x->rank < 2 || gd_caffe_count(x, 2, x->rank) > 1)
        return gd_caffe_fail(l, "its bottoms are %s; they must be (samples, features)",
                             gd_caffe_bottom_text(l, 0, text));
    const int64_t count = gd_caffe_count(labels, 0, labels->rank);
    if (x->at[0] >= 0 && count >= 0 && count != x->at[0])
        return gd_caffe_fail(l, "its labels are %s; it takes one for each of the %lld pairs",
                             gd_caffe_bottom_text(l, 2, text), (long long)x->at[0]);
    contrastive *m = gd_caffe_module(l, contrastive_forward, sizeof *m);
    if (!m) return gd_failure();
    m->margin = gd_pb_float_of(l->message, "contrastive_loss_param.margin");
    m->legacy = gd_pb_int_of(l->message, "contrastive_loss_param.legacy_version") != 0;
    return GD_OK;
}
