/* rule.c - runs the gradient rule of one node: its vjp, the derivative of its expression, the
 * backward of a user-defined function, or the gradient of its body. */
#include "autograd/rule.h"

#include "autograd/function.h"
#include "core/alloc.h"
#include "gradus/ops.h"
#include "dispatch/call.h"

/* The gradient of an op without a rule: its body runs again on the tape, and is differentiated.
 * Inputs are passed as separate views, so that a tensor that is given twice has two gradients, and
 * second derivatives still reach the original. */
static gd_status run_body(const gd_walk *walk, gd_node *node, gd_rule_args *a) {
    int n = node->n_in, m = node->n_out, n_by = 0, n_outs = 0;
    gd_tensor **block = gd_calloc((size_t)(3 * n + 3 * m) + 1, sizeof *block);
    if (!block) return gd_no_memory(NULL, "for a gradient");
    gd_tensor **x = block, **by = x + n, **result = by + n, **y = result + n, **outs = y + m,
              **gy = outs + m;
    gd_status status = GD_OK;
    int before = gd_enable_grad_begin();
    for (int i = 0; i < n; i++) {
        x[i] = a->x[i] && a->needs[i] ? gd_reshape(a->x[i], gd_tensor_shape(a->x[i])) : a->x[i];
        if (a->needs[i]) by[n_by++] = x[i];
        if (x[i] && x[i]->kind == GD_FAILED) status = gd_failure(); /* bodies read shapes */
    }
    if (status == GD_OK) node->op->expand(&(gd_expansion){node->op, node->attrs, n, m, x, y});
    gd_grad_mode_end(&before);
    for (int i = 0; i < m && status == GD_OK; i++) {
        if (!y[i]) continue;
        if (y[i]->kind == GD_FAILED) status = gd_failure();
        else if (y[i]->requires_grad && a->gy[i]) {
            outs[n_outs] = y[i];
            gy[n_outs++] = a->gy[i];
        }
    }
    if (status == GD_OK && n_outs > 0)
        status = gd_walk_back(&(gd_walk){.outputs = outs,
                                         .gradients = gy,
                                         .n_outputs = n_outs,
                                         .inputs = by,
                                         .n_inputs = n_by,
                                         .results = result,
                                         .retain_graph = walk->create_graph,
                                         .create_graph = walk->create_graph});
    for (int i = 0, k = 0; i < n; i++) {
        gd_tensor *g = a->needs[i] ? result[k++] : NULL;
        if (!g) continue;
        gd_status taken = gd_scope_take(&g->object);
        a->gx[i] = taken == GD_OK ? g : NULL;
        if (status == GD_OK) status = taken;
    }
    gd_free(block);
    return status;
}

gd_status gd_rule_run(const gd_walk *walk, gd_node *node, gd_rule_args *a) {
    gd_attempt attempt;
    gd_attempt_begin(&attempt); /* a call that fails makes the rule fail */
    gd_status status = GD_OK;
    if (node->function) {
        gd_function_state state = {.node = node};
        gd_context context = {node->n_in, node->n_out, a->x,       a->y,  a->gy,
                              a->needs,   a->gx,       node->user, &state};
        node->function->backward(&context);
        return gd_attempt_end(&attempt, status);
    }
    gd_vjp vjp = {node->op, node->attrs, node->n_in, node->n_out, a->x,
                  a->y,     a->gy,       a->needs,   a->gx};
    gd_device *before =
        gd_this_thread.device; /* constants of a rule belong on the device of its values */
    const char *site = gd_this_thread.site;
    const uint64_t as_of = gd_as_of;
    if (node->graph) gd_as_of = node->as_of;
    gd_this_thread.site = node->site;
    gd_this_thread.device = node->slots[node->n_in].device;
    if (node->op->vjp) node->op->vjp(&vjp);
    else if (node->op->ir) gd_elementwise_vjp(&vjp);
    else if (node->op->expand) status = run_body(walk, node, a);
    else status = gd_fail(GD_E_UNSUPPORTED, "%s has no gradient", node->op->name);
    gd_as_of = as_of;
    gd_this_thread.device = before;
    gd_this_thread.site = site;
    return gd_attempt_end(&attempt, status);
}
