/* loss.c - what the terms of a loss are divided by. */
#include "caffe/layers/loss.h"

#include "core/tensor.h"

void gd_caffe_read_loss(const gd_caffe_layer *l, gd_caffe_normalization by_default,
                        gd_caffe_loss *loss) {
    const gd_pb *m = l->message;
    loss->normalization = by_default;
    if (gd_pb_has(m, "loss_param.normalization"))
        loss->normalization = (gd_caffe_normalization)gd_pb_int_of(m, "loss_param.normalization");
    else if (gd_pb_has(m, "loss_param.normalize"))
        loss->normalization =
            gd_pb_int_of(m, "loss_param.normalize") ? GD_CAFFE_VALID : GD_CAFFE_BATCH_SIZE;
    loss->ignores = gd_pb_has(m, "loss_param.ignore_label");
    loss->ignored = loss->ignores ? gd_pb_int_of(m, "loss_param.ignore_label") : GD_UNSET;
}

bool gd_caffe_is_mean(const gd_caffe_loss *loss, int64_t inner) {
    switch (loss->normalization) {
    case GD_CAFFE_FULL: return true;
    case GD_CAFFE_VALID: return !loss->ignores;
    case GD_CAFFE_BATCH_SIZE: return inner == 1;
    default: return false;
    }
}

gd_tensor *gd_caffe_counted(const gd_caffe_loss *loss, gd_tensor *labels, gd_dtype dtype) {
    return gd_cast(gd_ne(labels, gd_full_like(labels, loss->ignored)), dtype);
}

/* How many labels count, or, for BATCH_SIZE, how many samples there are: a number of rank 0. */
static gd_tensor *count_of(const gd_caffe_loss *loss, gd_tensor *labels) {
    if (loss->normalization == GD_CAFFE_BATCH_SIZE) labels = gd_narrow(labels, 1, 0, 1);
    return gd_sum(loss->normalization == GD_CAFFE_VALID ? gd_caffe_counted(loss, labels, GD_F32)
                                                        : gd_full_like(labels, 1, .dtype = GD_F32));
}

/* Sums and means of the terms differ by the number of positions, which may be unknown in a graph. */
gd_tensor *gd_caffe_normalized(const gd_caffe_loss *loss, gd_tensor *terms, gd_tensor *labels) {
    const int64_t outer = gd_tensor_dim(labels, 0), inner = gd_tensor_dim(labels, 1);
    const bool is_sum = gd_tensor_rank(terms) == 0;
    if (!is_sum && gd_caffe_is_mean(loss, inner)) return gd_mean(terms);
    if (!is_sum && loss->normalization == GD_CAFFE_BATCH_SIZE && inner >= 0)
        return gd_affine(gd_mean(terms), (double)inner, 0);
    gd_tensor *sum = is_sum ? terms : gd_sum(terms);
    if (loss->normalization == GD_CAFFE_NONE) return sum;
    if ((loss->normalization == GD_CAFFE_VALID && loss->ignores) || outer < 0 || inner < 0)
        return gd_div(sum,
                      gd_cast(gd_clamp(count_of(loss, labels), .min = 1), gd_tensor_dtype(sum)));
    const int64_t by = loss->normalization == GD_CAFFE_BATCH_SIZE ? outer : outer * inner;
    return by > 1 ? gd_affine(sum, 1 / (double)by, 0) : sum;
}
