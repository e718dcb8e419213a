/* random_ops.h - helpers that the files of random ops share. */
#ifndef GRADUS_OPS_RANDOM_RANDOM_OPS_H
#define GRADUS_OPS_RANDOM_RANDOM_OPS_H

#include "dispatch/body.h"
#include "dispatch/op.h"
#include "ops/random/random_dist.h"
#include "dispatch/view_element.h"

/* For infer rules: sets y to this shape and dtype, which must be a float. */
gd_status gd_random_float_meta(gd_meta *y, gd_shape dims, gd_dtype dtype);
/* For infer rules: p must be a probability. */
gd_status gd_check_probability(double p);

/* For infer rules: input `at` must be a key, i64[2], or absent. */
gd_status gd_check_key(const gd_tensor *key);
static inline gd_status gd_need_key(const gd_infer *i, int at) {
    const gd_tensor *key = gd_optional_input(i->in, i->n_in, at);
    return key ? gd_check_key(key) : GD_OK;
}
gd_rng gd_rng_of_key(const gd_view *key);
/* For bodies: the key that the call draws from. It is input `at`, or, if that is absent, the next one
 * of the generator, on x's device; x NULL: on that of the call. Kernels of random ops read no key,
 * because a call with a key always runs as its body (gd_draws_from_key). */
gd_tensor *gd_call_key(const gd_expansion *e, int at, gd_tensor *x);

/* Fills y with normal numbers of this mean and standard deviation. */
void gd_fill_normals(gd_rng rng, const gd_view *y, double mean, double std);

#endif
