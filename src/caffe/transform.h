/* transform.h - transform_param of a data layer: mean, crop, mirror, scale, as Caffe applies them.
 *
 * Value (c, y, x) of a picture becomes (value - mean) * scale. The mean is that of the channel
 * (mean_value), or the value of mean_file at the position in the picture, before the crop. In
 * training the crop is at a random place, in a test in the middle; `mirror` mirrors half of the
 * pictures at random, in both phases. */
#ifndef GRADUS_CAFFE_TRANSFORM_H
#define GRADUS_CAFFE_TRANSFORM_H

#include "caffe/phase.h"
#include "caffe/picture.h"
#include "gradus/random.h"

typedef struct gd_caffe_transform {
    gd_caffe_phase phase;
    gd_caffe_colours colours; /* force_color, force_gray */
    float scale;
    bool mirror;
    int crop;           /* 0: none */
    float *mean;        /* of mean_file: (channels, height, width); NULL: none */
    int mean_sizes[3];  /* its channels, height and width */
    float *mean_values; /* NULL: none */
    int n_mean_values;  /* 1, or one for each channel */
} gd_caffe_transform;

/* `layer` is a LayerParameter; the mean_file is looked for from `of_file` (read.h). */
gd_status gd_caffe_transform_open(gd_caffe_transform *transform, const gd_pb *layer,
                                  gd_caffe_phase phase, const char *of_file);
void gd_caffe_transform_close(gd_caffe_transform *transform); /* {0} is fine */

/* The height and the width of the result for a picture. */
gd_status gd_caffe_transform_sizes(const gd_caffe_transform *transform,
                                   const gd_caffe_picture *picture, int sizes[2]);

/* Writes the result (channels, height, width), of these sizes, to `to`. Fails if the picture is
 * smaller than the crop or has another size than the mean. */
gd_status gd_caffe_transform_apply(const gd_caffe_transform *transform,
                                   const gd_caffe_picture *picture, gd_random *random, float *to);

#endif
