/* layers_distance.c - distances and similarities of tensors. */
#include <math.h>

#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/*layer cosine_similarity(a, b) -> y
 * The cosine of the angle between a and b along an axis.
 *   axis int = 1
 *   eps float = 1e-8   norms are at least this
 *   python (dim=axis, eps)
 */
static gd_status cosine_similarity_check(const gd_module *m) {
    const gd_nn_cosine_similarity_options *o = m->options;
    return gd_layer_within(m, "eps", o->eps, 0, (double)INFINITY, false);
}

/* a divided by its norm, which is at least eps. */
static gd_tensor *normalize_vector(gd_tensor *a, int64_t axis, double eps) {
    return gd_div(a, gd_clamp(gd_norm(a, .axis = gd_dims(axis), .keepdim = true), .min = eps));
}
static gd_tensors cosine_similarity_forward(gd_module *m, gd_tensors in) {
    const gd_nn_cosine_similarity_options *o = m->options;
    gd_tensor *product = gd_mul(normalize_vector(in.at[0], o->axis, o->eps),
                                normalize_vector(in.at[1], o->axis, o->eps));
    return gd_listed(gd_sum(product, .axis = gd_dims(o->axis)));
}

/*layer pairwise_distance(a, b) -> y
 * The p-norm of a - b + eps along the last axis.
 *   p float = 2
 *   eps float = 1e-6   added to the difference
 *   keepdim bool = false
 *   python (p, eps, keepdim)
 */
static gd_tensors pairwise_distance_forward(gd_module *m, gd_tensors in) {
    const gd_nn_pairwise_distance_options *o = m->options;
    gd_tensor *difference = gd_sub(in.at[0], in.at[1]);
    difference = gd_add(difference, gd_layer_scalar(difference, o->eps));
    return gd_listed(gd_norm(difference, .p = o->p, .axis = gd_dims(-1), .keepdim = o->keepdim));
}

#include "nn/layers_distance.gen.h"
