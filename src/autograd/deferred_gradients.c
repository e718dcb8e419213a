/* deferred_gradients.c - gradients as a node, for graphs with sizes that are unknown until a
 * run. */
#include "core/alloc.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"
#include "dispatch/infer.h"

/*op deferred_gradients(tensors*) -> gx*  internal opaque
 * Gradients of the first `outputs` tensors by the last ones; the `outputs` tensors between them are
 * the gradients to start from. gd_grad adds such a node if a shape is still unknown, so that
 * gradient rules see known sizes only.
 *   outputs int = 1
 *   control gradients
 */
static gd_status deferred_gradients_infer(gd_infer *i) {
    const gd_deferred_gradients_options *o = i->attrs;
    const int64_t inputs = o->outputs < 1 || o->outputs > i->n_in ? 0 : i->n_in - 2 * o->outputs;
    if (inputs < 1)
        return gd_op_fail(GD_E_ARGUMENT,
                          "%d tensors are too few for %lld outputs, a gradient of each, and inputs",
                          i->n_in, (long long)o->outputs);
    GD_TRY(gd_infer_outputs(i, (int)inputs));
    for (int64_t k = 0; k < inputs; k++) gd_meta_like(&i->out[k], i->in[2 * o->outputs + k]);
    return GD_OK;
}
static void deferred_gradients_expand(gd_expansion *e) {
    const gd_deferred_gradients_options *o = e->attrs;
    const int64_t n = o->outputs;
    gd_tensors x = {e->x + 2 * n, e->n_in - 2 * n};
    gd_tensors g = gd_grad(((gd_tensors){e->x, n}), x, .gradients = (gd_tensors){e->x + n, n},
                           .create_graph = true, .allow_unused = true);
    for (int64_t k = 0; k < g.count && k < e->n_out; k++)
        e->y[k] = g.at[k] ? g.at[k] : gd_zeros_like(x.at[k]);
}

#include "autograd/deferred_gradients.gen.h"
