/* layers_pool.c - pooling. */
#include "gradus/layers.h"
#include "nn/layer.h"

/*layer max_pool2d(x, kernel:int[2]) -> y  of max_pool2d
 * The largest value of each window of x (N, C, H, W).
 *   options of max_pool2d
 */
static gd_status max_pool2d_check(const gd_module *m) {
    const gd_nn_max_pool2d_options *o = m->options;
    return gd_layer_all_at_least(m, "kernel", 2, o->kernel.at, 1);
}

#include "layers_pool.gen.h"
