/* linear_gradients.c - joins the gradients of a linear layer's weight and bias, and their updates.
 *
 * The gradient of the weight is a product, matmul(transpose(gy), x), that of the bias a sum of the
 * rows of gy. One kernel reads gy once for both: linear_grad(gy, x). If only steps of gradient
 * descent read the two gradients, they become part of the kernel, too: linear_step(w!, b!, gy, x,
 * lr). Neither change has a data flow between the steps, so epilogue.c does not find them.
 */
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "graph/build/options.h"
#include "graph/passes/epilogue.h"

static bool has_default_options(const gd_pstep *s) {
    for (int i = 0; i < s->op->n_attrs && s->attrs; i++) {
        const gd_op_attr *a = &s->op->attrs[i];
        if (!gd_same_option(a, (const char *)s->attrs + a->offset,
                            (const char *)s->op->defaults + a->offset))
            return false;
    }
    return true;
}

/* --- two gradients ---------------------------------------------------------------------------- */

/* Whether the step sums the rows of a matrix. */
static bool sums_rows(const gd_program *p, const gd_pstep *s) {
    if (!gd_step_is(s, "sum") || s->in[0] < 0 || s->out[0] < 0) return false;
    const gd_sum_options *o = s->attrs;
    const gd_pvalue *x = &p->values[s->in[0]], *y = &p->values[s->out[0]];
    return x->rank == 2 && o && o->axis.rank == 1 && (o->axis.at[0] == 0 || o->axis.at[0] == -2) &&
           y->dtype == x->dtype && gd_value_is_row_major(y);
}

static bool is_transpose(const gd_pvalue *a, const gd_pvalue *b) {
    return a->rank == 2 && b->rank == 2 && a->root == b->root && a->offset == b->offset &&
           a->dtype == b->dtype && a->dims[0] == b->dims[1] && a->dims[1] == b->dims[0] &&
           a->strides[0] == b->strides[1] && a->strides[1] == b->strides[0];
}

/* The first product of the transpose of value gy and another matrix; -1: none. */
static int find_weight_gradient(const gd_uses *uses, int gy) {
    const gd_program *p = uses->program;
    int found = -1;
    for (int e = gd_uses_readers(uses, p->values[gy].root); e >= 0; e = uses->entries[e].next) {
        const int i = uses->entries[e].step;
        const gd_pstep *s = &p->steps[i];
        if ((found < 0 || i < found) && gd_step_is(s, "matmul") && s->in[0] >= 0 && s->in[1] >= 0 &&
            s->out[0] >= 0 && p->values[s->in[1]].rank == 2 &&
            is_transpose(&p->values[s->in[0]], &p->values[gy]))
            found = i;
    }
    return found;
}

/* The result of the sum as a vector. */
static int make_vector(gd_program *p, int value) {
    gd_pvalue v = p->values[value];
    v.dims[0] = gd_value_elements(&v);
    v.rank = 1;
    v.strides[0] = 1;
    return gd_program_value(p, v);
}

/* Replaces a product and a sum by linear_grad where the later of the two is. Returns the number of
 * the new step; -1: not possible. */
static int join_gradients(gd_program *p, gd_uses *uses, int product, int sum, gd_device *device) {
    const int first = product < sum ? product : sum, last = product < sum ? sum : product;
    int *ids = gd_program_alloc(p, 4 * sizeof *ids);
    if (!ids || !gd_step_can_move(uses, first, last, false, last)) return -1;
    ids[0] = p->steps[sum].in[0];
    ids[1] = p->steps[product].in[1];
    ids[2] = p->steps[product].out[0];
    ids[3] = make_vector(p, p->steps[sum].out[0]);
    const gd_pstep made = {.op = gd_op_find("linear_grad"),
                           .node = p->steps[product].node,
                           .n_in = 2,
                           .n_out = 2,
                           .in = ids,
                           .out = ids + 2};
    if (ids[3] < 0 || !gd_step_can_run(p, &made, device)) return -1;
    p->steps[first].removed = true;
    p->steps[last] = made;
    gd_uses_add(uses, last);
    return last;
}

/* --- two updates ------------------------------------------------------------------------------ */

/* Per root: how many steps, fetches and commits read it. Views of it do not count as reads. NULL: no
 * memory. */
static int *count_readers(const gd_program *p) {
    int *readers = gd_program_readers(p);
    for (int i = 0; i < p->n_steps && readers; i++)
        for (int k = 0; k < p->steps[i].n_in && p->steps[i].view && !p->steps[i].removed; k++)
            if (p->steps[i].in[k] >= 0) readers[p->values[p->steps[i].in[k]].root]--;
    return readers;
}

/* The step of gradient descent that alone reads a gradient; -1: none. A parameter that the layer
 * uses transposed has another one: the transpose. */
static int find_update(const gd_uses *uses, int gradient, const int *readers) {
    const gd_program *p = uses->program;
    const gd_pvalue *g = &p->values[gradient];
    int e = readers[g->root] == 1 ? gd_uses_readers(uses, g->root) : -1;
    for (; e >= 0; e = uses->entries[e].next) {
        const gd_pstep *s = &p->steps[uses->entries[e].step];
        if (gd_step_is(s, "sgd_step") && s->n_in == 3 && has_default_options(s) && s->in[1] >= 0 &&
            gd_values_are_same(&p->values[s->in[1]], g) && s->out[1] >= 0)
            return uses->entries[e].step;
    }
    return -1;
}

/* Replaces linear_grad and the updates of weight and bias by linear_step where the last of them is.
 * Returns whether it did. */
static bool join_updates(gd_program *p, gd_uses *uses, int gradients, const int *readers,
                         gd_device *device) {
    const gd_pstep *g = &p->steps[gradients];
    const int weight = find_update(uses, g->out[0], readers),
              bias = weight < 0 ? -1 : find_update(uses, g->out[1], readers);
    if (bias < 0 || p->steps[weight].in[2] != p->steps[bias].in[2]) return false;
    const gd_pstep *w = &p->steps[weight], *b = &p->steps[bias];
    const int first = weight < bias ? weight : bias, last = weight < bias ? bias : weight;
    int *ids = gd_program_alloc(p, 8 * sizeof *ids);
    if (!ids || !gd_step_can_move(uses, first, last, false, last) ||
        !gd_step_can_move(uses, gradients, last, false, first))
        return false;
    const int made_of[] = {w->in[0], b->in[0],  g->in[0],  g->in[1],
                           w->in[2], w->out[0], w->out[1], b->out[1]};
    memcpy(ids, made_of, sizeof made_of);
    const gd_pstep made = {.op = gd_op_find("linear_step"),
                           .node = w->node,
                           .n_in = 5,
                           .n_out = 3,
                           .in = ids,
                           .out = ids + 5};
    if (!gd_step_can_run(p, &made, device)) return false;
    p->steps[gradients].removed = p->steps[first].removed = true;
    p->steps[last] = made;
    gd_uses_add(uses, last);
    return true;
}

gd_status gd_pass_linear_gradients(gd_rewrite *r) {
    gd_program *p = r->program;
    if (!gd_kernel_exists(gd_op_find("linear_grad"), r->device->api->kind)) return GD_OK;
    int *readers = count_readers(p);
    gd_uses uses = {.program = p};
    gd_status status = readers ? gd_uses_make(&uses, p) : GD_E_MEMORY;
    for (int i = 0; i < p->n_steps && status == GD_OK; i++) {
        if (!sums_rows(p, &p->steps[i])) continue;
        const int product = find_weight_gradient(&uses, p->steps[i].in[0]);
        const int joined = product < 0 ? -1 : join_gradients(p, &uses, product, i, r->device);
        if (joined < 0) continue;
        r->changes++;
        r->changes += join_updates(p, &uses, joined, readers, r->device);
    }
    gd_free(readers);
    const gd_status ended = gd_uses_end(&uses);
    return status != GD_OK ? status : ended;
}
