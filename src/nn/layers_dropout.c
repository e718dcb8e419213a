/* layers_dropout.c - dropout and its variants: what they do depends on the mode. */
#include "gradus/layers.h"
#include "gradus/ops.h"
#include "nn/layer.h"

/*layer dropout(x) -> y  of dropout
 * In train mode, sets elements to 0 with probability p and divides the others by 1 - p; in eval mode, y = x.
 *   p float = 0.5
 */
static gd_status dropout_check(const gd_module *m) {
    const gd_nn_dropout_options *o = m->options;
    return gd_layer_within(m, "p", o->p, 0, 1, true);
}
static gd_tensors dropout_forward(gd_module *m, gd_tensors in) {
    const gd_nn_dropout_options *o = m->options;
    if (!gd_layer_is_training(m) || o->p == 0) return gd_listed(in.at[0]);
    return gd_listed(gd_dropout(in.at[0], .p = o->p));
}

#include "layers_dropout.gen.h"
