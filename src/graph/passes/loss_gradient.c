/* loss_gradient.c - joins a cross-entropy and its gradient into one step.
 *
 * The gradient reads statistics of the scores that the loss has computed. Where kernel calls have a
 * fixed cost, as on a GPU, one kernel for both is faster. The gradient of the loss itself, gy, is
 * usually a constant, so both can run where the loss is.
 */
#include <string.h>

#include "core/alloc.h"
#include "graph/passes/epilogue.h"

/* index_cross_entropy(x, target, weight?) -> y, shift, scale, total
 * index_cross_entropy_grad(gy, x, target, shift, scale, total, weight?) -> gx */
enum { LOSS_WEIGHT = 2, GRADIENT_SHIFT = 3, GRADIENT_WEIGHT = 6, STATISTICS = 3 };

static int input_of(const gd_pstep *s, int k) { return k < s->n_in ? s->in[k] : -1; }

/* The loss whose gradient step `at` computes, and whose statistics only this step reads; -1: there
 * is none. */
static int find_loss(const gd_uses *uses, int at, const int *readers) {
    const gd_program *p = uses->program;
    const gd_pstep *g = &p->steps[at];
    if (!gd_step_is(g, "index_cross_entropy_grad") || g->out[0] < 0) return -1;
    const int loss = gd_uses_producer(uses, g->in[GRADIENT_SHIFT], at);
    if (loss < 0 || !gd_step_is(&p->steps[loss], "index_cross_entropy")) return -1;
    const gd_pstep *l = &p->steps[loss];
    for (int k = 0; k < STATISTICS; k++)
        if (l->out[1 + k] < 0 || g->in[GRADIENT_SHIFT + k] != l->out[1 + k] ||
            readers[gd_value_root(p, l->out[1 + k])] != 1)
            return -1;
    const bool same = l->in[0] == g->in[1] && l->in[1] == g->in[2] &&
                      input_of(l, LOSS_WEIGHT) == input_of(g, GRADIENT_WEIGHT);
    return same && l->out[0] >= 0 ? loss : -1;
}

/* Replaces the loss by a step that also computes the gradient. */
static bool join_gradient(gd_program *p, const gd_uses *uses, int loss, int gradient,
                          gd_device *device) {
    const gd_pstep *l = &p->steps[loss], *g = &p->steps[gradient];
    const int ids[] = {g->in[0],  l->in[0], l->in[1], input_of(l, LOSS_WEIGHT),
                       l->out[0], g->out[0]};
    gd_pstep made = *l;
    made.op = gd_op_find("index_cross_entropy_with_grad");
    made.n_in = 4;
    made.n_out = 2;
    made.in = gd_program_alloc(p, sizeof ids);
    if (!made.in || !gd_take_options(p, made.op, l, g, &made.attrs)) return false;
    memcpy(made.in, ids, sizeof ids);
    made.out = made.in + made.n_in;
    if (!gd_step_can_move(uses, gradient, loss, true, loss) || !gd_step_can_run(p, &made, device))
        return false;
    p->steps[loss] = made;
    p->steps[gradient].removed = true;
    return true;
}

gd_status gd_pass_loss_gradient(gd_rewrite *r) {
    gd_program *p = r->program;
    if (!gd_kernel_exists(gd_op_find("index_cross_entropy_with_grad"), r->device->api->kind))
        return GD_OK;
    int *readers = gd_program_readers(p);
    gd_uses uses = {.program = p};
    gd_status status = readers ? gd_uses_make(&uses, p) : GD_E_MEMORY;
    for (int i = 0; i < p->n_steps && status == GD_OK; i++) {
        const int loss = find_loss(&uses, i, readers);
        if (loss < 0 || !join_gradient(p, &uses, loss, i, r->device)) continue;
        gd_uses_add(&uses, loss);
        r->changes++;
    }
    gd_free(readers);
    const gd_status ended = gd_uses_end(&uses);
    return status != GD_OK ? status : ended;
}
