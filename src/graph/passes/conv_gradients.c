/* conv_gradients.c - joins the gradients of a convolution's weight and bias.
 *
 * Both read gy, the gradient of the result: conv_grad_weight(x, gy) and the sum of gy over all axes
 * but the channels. One kernel can compute both: conv_grad_weight_bias(x, gy). There is no data
 * flow between the two steps, so epilogue.c does not find them.
 */
#include <string.h>

#include "gradus/ops.h"
#include "graph/passes/epilogue.h"

/* Whether the step sums all axes but the channels of a batch of images. */
static bool sums_channels(const gd_program *p, const gd_pstep *s) {
    if (!gd_step_is(s, "sum") || s->in[0] < 0 || s->out[0] < 0 || !s->attrs) return false;
    const gd_pvalue *x = &p->values[s->in[0]], *y = &p->values[s->out[0]];
    const gd_shape *axes = &((const gd_sum_options *)s->attrs)->axis;
    if (x->rank < 3 || y->rank != 1 || y->dtype != x->dtype || axes->rank != x->rank - 1)
        return false;
    for (int i = 0; i < axes->rank; i++)
        if (axes->at[i] == 1 || axes->at[i] == 1 - x->rank) return false;
    return true;
}

/* The first step that computes the gradient of the weight from value gy; -1: none. */
static int find_weight_gradient(const gd_uses *uses, int gy) {
    const gd_program *p = uses->program;
    int found = -1;
    for (int e = gd_uses_readers(uses, p->values[gy].root); e >= 0; e = uses->entries[e].next) {
        const int i = uses->entries[e].step;
        const gd_pstep *s = &p->steps[i];
        if ((found < 0 || i < found) && gd_step_is(s, "conv_grad_weight") && s->in[1] >= 0 &&
            s->out[0] >= 0 && p->values[s->out[0]].rank == p->values[gy].rank && /* gy is a batch */
            gd_values_are_same(&p->values[s->in[1]], &p->values[gy]))
            found = i;
    }
    return found;
}

/* Replaces both steps by one where the later of the two is. Returns whether it did. */
static bool join_steps(gd_program *p, gd_uses *uses, int weight, int sum, gd_device *device) {
    const int first = weight < sum ? weight : sum, last = weight < sum ? sum : weight;
    gd_pstep made = p->steps[weight];
    made.op = gd_op_find("conv_grad_weight_bias");
    made.n_out = 2;
    made.out = gd_program_alloc(p, 2 * sizeof *made.out);
    if (!made.out || !gd_step_can_move(uses, first, last, false, last)) return false;
    made.out[0] = p->steps[weight].out[0];
    made.out[1] = p->steps[sum].out[0];
    if (!gd_take_options(p, made.op, NULL, &p->steps[weight], &made.attrs) ||
        !gd_step_can_run(p, &made, device))
        return false;
    p->steps[first].removed = true;
    p->steps[last] = made;
    gd_uses_add(uses, last);
    return true;
}

gd_status gd_pass_conv_gradients(gd_rewrite *r) {
    gd_program *p = r->program;
    if (!gd_kernel_exists(gd_op_find("conv_grad_weight_bias"), r->device->api->kind)) return GD_OK;
    gd_uses uses;
    gd_status status = gd_uses_make(&uses, p);
    for (int i = 0; i < p->n_steps && status == GD_OK; i++) {
        if (!sums_channels(p, &p->steps[i])) continue;
        const int weight = find_weight_gradient(&uses, p->steps[i].in[0]);
        if (weight >= 0) r->changes += join_steps(p, &uses, weight, i, r->device);
    }
    return gd_uses_end(&uses);
}
