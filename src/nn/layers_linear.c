/* layers_linear.c - layers of matrix products and tables: linear, embedding, and what has no weights. */
#include <math.h>

#include "gradus/layers.h"
#include "nn/layer.h"

/*layer linear(x, in_features:int, out_features:int) -> y  of linear
 * y = x weight^T + bias: x (..., in_features) gives y (..., out_features).
 *   bias bool = true
 *   finds in_features x[-1]
 */
static gd_status linear_check(const gd_module *m) {
    const gd_nn_linear_options *o = m->options;
    GD_TRY(gd_layer_size(m, "in_features", o->in_features));
    return gd_layer_at_least(m, "out_features", o->out_features, 1);
}
static gd_status linear_build(gd_module *m) {
    const gd_nn_linear_options *o = m->options;
    const double bound = 1 / sqrt((double)o->in_features);
    GD_TRY(gd_layer_uniform(m, "weight", gd_dims(o->out_features, o->in_features), bound));
    return o->bias ? gd_layer_uniform(m, "bias", gd_dims(o->out_features), bound) : gd_layer_absent(m, "bias");
}

/*layer identity(x) -> y
 * y = x.
 */
static gd_tensors identity_forward(gd_module *m, gd_tensors in) {
    (void)m;
    return gd_listed(in.at[0]);
}

/*layer flatten(x) -> y  of flatten
 * Joins the dimensions from start_axis to end_axis into one: x (N, C, H, W) gives y (N, C*H*W).
 *   start_axis int = 1
 *   end_axis int = -1
 */

#include "layers_linear.gen.h"
