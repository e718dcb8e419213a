/* accuracy.c - Accuracy: the share of labels whose score is among the top_k largest. */
#include "caffe/layers/bottoms.h"
#include "caffe/layers/loss.h"
#include "gradus/autograd.h"

typedef struct accuracy {
    int axis;
    int64_t top_k;
    bool for_each_class; /* a second top */
    gd_caffe_loss loss;  /* for the label that is ignored */
} accuracy;

static gd_tensor *share(gd_tensor *part, gd_tensor *all) {
    return gd_div(part, gd_clamp(all, .min = 1));
}

/* A label is correct if fewer than top_k other scores are as large as its own. */
static gd_tensors accuracy_forward(gd_tensors in, void *self) {
    const accuracy *m = self;
    gd_tensor *x = gd_caffe_by_class(gd_detach(in.at[0]), m->axis);
    gd_tensor *labels = gd_unsqueeze(gd_caffe_class_numbers(in.at[1], x, m->loss.ignored), 1);
    gd_tensor *counted = gd_caffe_counted(&m->loss, labels, GD_F32); /* (outer, 1, inner) */
    gd_tensor *class = m->loss.ignores ? gd_mul(labels, gd_cast(counted, GD_I64)) : labels;
    gd_tensor *as_large = gd_cast(gd_ge(x, gd_gather(x, 1, class)), GD_F32);
    gd_tensor *rank = gd_sum(as_large, .axis = gd_dims(1), .keepdim = true);
    gd_tensor *correct = gd_mul(gd_cast(gd_le(rank, (double)m->top_k), GD_F32), counted);
    gd_tensor *all = share(gd_sum(correct), gd_sum(counted));
    if (!m->for_each_class) return gd_listed(all);
    const int64_t classes = gd_tensor_dim(x, 1);
    gd_tensor *numbers =
        gd_reshape(gd_arange(0, (double)classes, .dtype = GD_I64), gd_dims(1, classes, 1));
    gd_tensor *own = gd_cast(gd_eq(labels, numbers), GD_F32);
    const gd_shape others = gd_dims(0, 2);
    return gd_listed(all, share(gd_sum(gd_mul(own, correct), .axis = others),
                                gd_sum(gd_mul(own, counted), .axis = others)));
}

gd_status gd_caffe_make_Accuracy(gd_caffe_layer *l) {
    const int64_t top_k = gd_pb_int_of(l->message, "accuracy_param.top_k");
    int axis;
    GD_TRY(gd_caffe_axis(l, "accuracy_param.axis", &axis));
    GD_TRY(gd_caffe_need_labels(l, 1, axis));
    const int64_t classes = l->bottoms[0].at[axis];
    if (top_k < 1 || (classes >= 0 && top_k > classes))
        return gd_caffe_fail(l, "top_k is %lld, but axis %d has %lld classes", (long long)top_k,
                             axis, (long long)classes);
    accuracy *m = gd_caffe_module(l, accuracy_forward, sizeof *m);
    if (!m) return gd_failure();
    m->axis = axis;
    m->top_k = top_k;
    m->for_each_class = l->n_tops > 1;
    m->loss.ignores = gd_pb_has(l->message, "accuracy_param.ignore_label");
    m->loss.ignored =
        m->loss.ignores ? gd_pb_int_of(l->message, "accuracy_param.ignore_label") : GD_UNSET;
    return GD_OK;
}
