/* assign.c - ops that write a variable (assign) and that fetch several results at once (group). */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/infer.h"

/*op assign(x!, value) -> y  assigns
 * Writes value, broadcast to the shape and cast to the dtype of x, into x and returns the new
 * value. In a graph x is a variable: nodes that are added later read the new value, and so does the
 * next run.
 *   saves nothing
 */
static gd_status assign_infer(gd_infer *i) {
    const gd_tensor *x = i->in[0], *value = i->in[1];
    char a[160], b[160];
    bool broadcasts = value->rank <= x->rank;
    for (int d = 0; d < value->rank && broadcasts; d++) {
        const int64_t size = x->dims[x->rank - value->rank + d];
        broadcasts = value->dims[d] == size || value->dims[d] == 1;
    }
    if (!broadcasts)
        return gd_op_fail(GD_E_SHAPE, "%s does not broadcast to %s, which it is assigned to",
                          gd_describe(value, b, sizeof b), gd_describe(x, a, sizeof a));
    gd_meta_like(&i->out[0], x);
    return GD_OK;
}
static void assign_vjp(gd_vjp *v) { v->gx[1] = v->gy[0]; }
static gd_status assign_raw(gd_kernel_call *k) {
    gd_view value = k->in[1], *x = &k->out[1];
    const int lead = x->rank - value.rank;
    for (int d = x->rank; d-- > 0;) {
        const bool is_broadcast = d < lead || value.dims[d - lead] != x->dims[d];
        value.strides[d] = is_broadcast ? 0 : k->in[1].strides[d - lead];
        value.dims[d] = x->dims[d];
    }
    value.rank = x->rank;
    if (k->out[0].data) gd_copy_elements(&k->out[0], &value);
    gd_copy_elements(x, &value);
    return GD_OK;
}

/*op overwrite(x, value) -> y  elementwise inplace internal
 * value. gd_overwrite_ writes it into x, and unlike gd_assign it works on symbols and intermediate
 * results, whose handle then means the new value.
 *   y = value
 */

/*op group(tensors*) -> done  nograd awaits
 * True. Fetching it from a graph computes all tensors in the list.
 */
static gd_status group_infer(gd_infer *i) {
    i->out[0].dtype = GD_BOOL;
    i->out[0].rank = 0;
    return GD_OK;
}
static gd_status group_raw(gd_kernel_call *k) {
    *(uint8_t *)k->out[0].data = 1;
    return GD_OK;
}

#include "ops/assign/assign.gen.h"
