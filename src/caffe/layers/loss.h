/* loss.h - what the terms of a loss are divided by (LossParameter), and which labels are ignored. */
#ifndef GRADUS_CAFFE_LAYERS_LOSS_H
#define GRADUS_CAFFE_LAYERS_LOSS_H

#include "caffe/layer.h"

/* The numbers are those of NormalizationMode. */
typedef enum gd_caffe_normalization {
    GD_CAFFE_FULL,       /* by all positions, */
    GD_CAFFE_VALID,      /* by those that are not ignored, */
    GD_CAFFE_BATCH_SIZE, /* by the size of the batch, */
    GD_CAFFE_NONE,       /* by 1 */
} gd_caffe_normalization;

typedef struct gd_caffe_loss {
    gd_caffe_normalization normalization;
    bool ignores;
    int64_t ignored; /* this label; GD_UNSET: none */
} gd_caffe_loss;

/* Reads loss_param. `normalize` is the older form of the field `normalization`; `by_default` counts if
 * neither is set. */
void gd_caffe_read_loss(const gd_caffe_layer *l, gd_caffe_normalization by_default,
                        gd_caffe_loss *loss);

/* Whether the loss is the mean of its terms over all positions, of which there are `inner` in each sample. */
bool gd_caffe_is_mean(const gd_caffe_loss *loss, int64_t inner);

/* The loss, from the terms of the positions (outer, inner), or from their sum. Terms of ignored labels are
 * 0. `labels` has the label of each position. */
gd_tensor *gd_caffe_normalized(const gd_caffe_loss *loss, gd_tensor *terms, gd_tensor *labels);

/* 1 where the label counts, 0 where it is ignored. */
gd_tensor *gd_caffe_counted(const gd_caffe_loss *loss, gd_tensor *labels, gd_dtype dtype);

#endif
