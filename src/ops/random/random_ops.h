/* random_ops.h - helpers that the files of random ops share. */
#ifndef GRADUS_OPS_RANDOM_RANDOM_OPS_H
#define GRADUS_OPS_RANDOM_RANDOM_OPS_H

#include "dispatch/op.h"
#include "ops/random/random_dist.h"
#include "dispatch/view_element.h"

/* For infer rules: sets y to this shape and dtype, which must be a float. */
gd_status gd_random_float_meta(gd_meta *y, gd_shape dims, gd_dtype dtype);
/* For infer rules: p must be a probability. */
gd_status gd_check_probability(double p);

/* For bodies: the words of gd_word_at that a random call draws, on x's device. */
gd_tensor *gd_draw_words(gd_tensor *x, gd_shape dims);
/* A tensor on the default device, as x for a call that has no input. */
gd_tensor *gd_random_anchor(void);

/* Fills y with normal numbers of this mean and standard deviation. */
void gd_fill_normals(gd_rng rng, const gd_view *y, double mean, double std);

#endif
