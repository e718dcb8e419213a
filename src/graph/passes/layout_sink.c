/* layout_sink.c - moves permutes through chains of elementwise steps: a chain runs over its
 * operands in the order in which they lie in memory, and its results are permuted instead. */
#include "core/alloc.h"
#include "graph/passes/layout.h"
#include "dispatch/call.h"

/* The axes of a value from the largest stride to the smallest. Axes of size 1 keep their positions
 * where possible. */
static void sort_axes(const gd_pvalue *v, int *order) {
    for (int i = 0; i < v->rank; i++) order[i] = i;
    for (int i = 1; i < v->rank; i++)
        for (int k = i; k > 0; k--) {
            const int a = order[k - 1], b = order[k];
            if (v->dims[a] == 1 || v->dims[b] == 1 || v->strides[a] >= v->strides[b]) break;
            order[k - 1] = b;
            order[k] = a;
        }
}

static bool is_identity(const int *order, int rank) {
    for (int i = 0; i < rank; i++)
        if (order[i] != i) return false;
    return true;
}

/* The value with its axes in another order. A value with fewer axes gets leading axes of size 1. */
static gd_pvalue reorder_axes(const gd_pvalue *v, const int *order, int rank) {
    gd_pvalue to = {.root = v->root, .dtype = v->dtype, .rank = (uint8_t)rank, .offset = v->offset};
    for (int i = 0; i < rank; i++) {
        const int k = order[i] - (rank - v->rank);
        to.dims[i] = k < 0 ? 1 : v->dims[k];
        to.strides[i] = k < 0 ? 0 : v->strides[k];
    }
    int64_t step = 1; /* axes of size 1 get row-major strides */
    for (int i = rank; i-- > 0; step *= to.dims[i])
        if (to.dims[i] == 1) to.strides[i] = step;
    return to;
}

static bool is_same_view(const gd_pvalue *a, const gd_pvalue *b) {
    bool same = a->root == b->root && a->offset == b->offset && a->dtype == b->dtype &&
                gd_values_have_same_dims(a, b);
    for (int d = 0; d < b->rank && same; d++)
        same = a->dims[d] == 1 || a->strides[d] == b->strides[d];
    return same;
}

/* The first value that is this view; -1: none. */
static int find_view(gd_layout *l, const gd_pvalue *v) {
    int found = -1;
    for (int i = gd_uses_values(&l->uses, v->root); i >= 0; i = l->uses.next_value[i])
        if ((found < 0 || i < found) && is_same_view(&l->p->values[i], v)) found = i;
    return found;
}

static bool can_sink(const gd_layout *l, const gd_pstep *s) {
    const gd_program *p = l->p;
    if (s->removed || s->view || !s->op->ir || (s->op->flags & GD_OP_RANDOM) ||
        s->n_out != s->op->n_outputs || s->n_out < 1)
        return false;
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] < 0 || s->op->inputs[k < s->op->n_inputs ? k : 0].mutated) return false;
    for (int k = 0; k < s->n_out; k++) {
        const gd_pvalue *y = s->out[k] < 0 ? NULL : &p->values[s->out[k]];
        if (!y || !gd_layout_can_change(l, y->root) || !gd_value_fills_root(p, y) ||
            !gd_values_have_same_dims(y, &p->values[s->out[0]]))
            return false;
        if (y->rank < 2 || gd_numel(y->rank, y->dims) == 0) return false;
    }
    return true;
}

/* The first step of a step's chain, as known so far. */
static int first_of_chain(const gd_layout *l, int step) {
    while (step >= 0 && l->chain[step] != step) step = l->chain[step];
    return step;
}

/* The chain that computes operand k of a step; -1: none. The operand may be a reshaped view of a
 * result with another shape. */
static int chain_of_operand(const gd_layout *l, const gd_pstep *s, int k) {
    const gd_program *p = l->p;
    const gd_pvalue *v = &p->values[s->in[k]];
    const int from = l->producer[v->root];
    return from >= 0 && gd_values_have_same_dims(v, &p->values[s->out[0]]) &&
                   gd_values_have_same_dims(v, &p->values[p->steps[from].out[0]]) &&
                   gd_value_is_row_major(v)
               ? first_of_chain(l, from)
               : -1;
}

static void link_chains(gd_layout *l) {
    const int n = l->p->n_steps;
    int *latest = l->next + n; /* per chain: the step found last */
    for (int i = n; i-- > 0;) latest[i] = n;
    for (int i = n; i-- > 0;) {
        if (l->chain[i] < 0) continue;
        l->next[i] = latest[l->chain[i]];
        latest[l->chain[i]] = i;
    }
}

/* A chain is a set of elementwise steps of one shape that read each other's results. All its steps
 * run in the same order, so that they can be fused later. */
static void find_chains(gd_layout *l) {
    const gd_program *p = l->p;
    for (int r = 0; r < p->n_roots; r++) l->producer[r] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        l->chain[i] = -1;
        if (!can_sink(l, s)) continue;
        l->chain[i] = i;
        for (int k = 0; k < s->n_in; k++) {
            const int other = chain_of_operand(l, s, k), mine = first_of_chain(l, i);
            if (other < 0 || other == mine) continue;
            l->chain[other < mine ? mine : other] = other < mine ? other : mine;
        }
        l->chain[i] = first_of_chain(l, i);
        for (int k = 0; k < s->n_out; k++) l->producer[p->values[s->out[k]].root] = i;
    }
    for (int i = 0; i < p->n_steps; i++) /* earlier steps are right already */
        if (l->chain[i] >= 0) l->chain[i] = l->chain[l->chain[i]];
    link_chains(l);
}

/* The order of a value's axes in memory. False if elements overlap, or the innermost ones are not
 * contiguous. */
static bool get_memory_order(const gd_pvalue *v, int *order) {
    for (int d = 0; d < v->rank; d++)
        if (v->dims[d] != 1 && v->strides[d] <= 0) return false;
    sort_axes(v, order);
    for (int i = v->rank; i-- > 0;)
        if (v->dims[order[i]] != 1) return v->strides[order[i]] == 1;
    return false;
}

enum { ORDERS = 8, OPERANDS = 64 };

/* The operands of a chain vote for the order of their axes in memory. */
typedef struct order_votes {
    int orders[ORDERS][GD_MAX_RANK], n_orders;
    size_t votes[ORDERS];             /* the sum of the operands' element sizes */
    int counted[OPERANDS], n_counted; /* operands that have voted */
} order_votes;

static void add_vote(const gd_layout *l, order_votes *b, int value) {
    const gd_pvalue *v = &l->p->values[value];
    int mine[GD_MAX_RANK], at = 0;
    for (int i = 0; i < b->n_counted; i++)
        if (b->counted[i] == value) return;
    if (!get_memory_order(v, mine) || b->n_counted == OPERANDS) return;
    b->counted[b->n_counted++] = value;
    while (at < b->n_orders && memcmp(b->orders[at], mine, sizeof(int) * v->rank) != 0) at++;
    if (at == ORDERS) return;
    if (at == b->n_orders) memcpy(b->orders[b->n_orders++], mine, sizeof mine);
    b->votes[at] += gd_dtype_bytes(v->dtype);
}

/* The order of most operands of a chain; false: it is the current order. */
static bool choose_order(const gd_layout *l, int chain, int *order) {
    const gd_program *p = l->p;
    const gd_pvalue *y = &p->values[p->steps[chain].out[0]];
    order_votes b = {.n_orders = 0};
    int best = 0;
    for (int i = chain; i < p->n_steps; i = l->next[i])
        for (int k = 0; k < p->steps[i].n_in; k++)
            if (gd_values_have_same_dims(&p->values[p->steps[i].in[k]], y) &&
                chain_of_operand(l, &p->steps[i], k) != chain)
                add_vote(l, &b, p->steps[i].in[k]);
    for (int i = 1; i < b.n_orders; i++)
        if (b.votes[i] > b.votes[best] ||
            (b.votes[i] == b.votes[best] && is_identity(b.orders[i], y->rank)))
            best = i;
    if (b.n_orders == 0 || is_identity(b.orders[best], y->rank)) return false;
    memcpy(order, b.orders[best], sizeof(int) * y->rank);
    return true;
}

/* axes[i] is the axis of `made` that becomes axis i of `value`. */
static gd_status record_permute(gd_layout *l, int made, int value, const int *axes,
                                bool is_result) {
    gd_permute_options *o = gd_program_alloc(l->p, sizeof *o);
    if (!o) return GD_E_MEMORY;
    o->axes = (gd_shape){.rank = l->p->values[value].rank, .form = 1};
    for (int i = 0; i < o->axes.rank; i++) o->axes.at[i] = axes[i];
    l->permuted[l->n_permuted++] = (gd_layout_permute){made, value, is_result, o};
    return GD_OK;
}

/* Makes one step of a chain read its operands in their memory order, and write its result so. */
static gd_status sink_through_step(gd_layout *l, int at, const int *order, const int64_t *strides) {
    gd_program *p = l->p;
    gd_pstep *s = &p->steps[at];
    const int rank = p->values[s->out[0]].rank;
    int *ids = gd_program_alloc(p, (size_t)(s->n_in + s->n_out) * sizeof *ids);
    int back[GD_MAX_RANK];
    if (!ids) return GD_E_MEMORY;
    for (int i = 0; i < rank; i++) back[order[i]] = i;
    for (int k = 0; k < s->n_in; k++) {
        const gd_pvalue *x = &p->values[s->in[k]], v = reorder_axes(x, order, rank);
        ids[k] = gd_numel(x->rank, x->dims) == 1 ? s->in[k] : find_view(l, &v);
        if (ids[k] >= 0) continue;
        if ((ids[k] = gd_program_value(p, v)) < 0) return GD_E_MEMORY;
        GD_TRY(record_permute(l, s->in[k], ids[k], order, false));
    }
    for (int k = 0; k < s->n_out; k++) {
        gd_layout_set_strides(l, p->values[s->out[k]], strides);
        const gd_pvalue v = reorder_axes(&p->values[s->out[k]], order, rank);
        if ((ids[s->n_in + k] = gd_program_value(p, v)) < 0) return GD_E_MEMORY;
        GD_TRY(record_permute(l, ids[s->n_in + k], s->out[k], back, true));
    }
    s->in = ids;
    s->out = ids + s->n_in;
    l->changes++;
    return GD_OK;
}

static gd_status sink_chain(gd_layout *l, int chain) {
    const gd_program *p = l->p;
    int order[GD_MAX_RANK];
    int64_t strides[GD_MAX_RANK], step = 1;
    if (!choose_order(l, chain, order)) return GD_OK;
    const gd_pvalue y = p->values[p->steps[chain].out[0]];
    for (int i = y.rank; i-- > 0; step *= y.dims[order[i]]) strides[order[i]] = step;
    for (int i = chain; i < p->n_steps; i = l->next[i])
        for (int k = 0; k < p->steps[i].n_out; k++)
            if (!gd_layout_readers_agree(l, &p->values[p->steps[i].out[k]], strides, -1, chain))
                return GD_OK;
    for (int i = chain; i < p->n_steps; i = l->next[i])
        GD_TRY(sink_through_step(l, i, order, strides));
    return GD_OK;
}

/* Replaces values that are the same view as the step's result by that result, which removes
 * permutes that undo each other. */
static void unify_views(gd_layout *l, int made) {
    const gd_pvalue look = l->p->values[made];
    for (int v = gd_uses_values(&l->uses, look.root); v >= 0; v = l->uses.next_value[v])
        if (v != made && is_same_view(&l->p->values[v], &look)) gd_layout_replace(l, v, made);
}

/* The steps as a list, while permutes are inserted. */
typedef struct step_list {
    gd_pstep *at;  /* the steps of the program, then the permutes */
    int *next;     /* for each: the one after it; -1: none */
    int *producer; /* for each value: the last step that has it as a result; -1: none */
    int first, count;
} step_list;

static gd_status list_steps(const gd_program *p, int more, step_list *list) {
    const size_t most = (size_t)(p->n_steps + more) + 1;
    *list = (step_list){.at = gd_malloc(most * sizeof *list->at),
                        .next = gd_malloc(most * sizeof *list->next),
                        .producer = gd_malloc(((size_t)p->n_values + 1) * sizeof(int)),
                        .first = p->n_steps > 0 ? 0 : -1,
                        .count = p->n_steps};
    if (!list->at || !list->next || !list->producer) return gd_no_memory(NULL, "to plan a run");
    for (int v = 0; v < p->n_values; v++) list->producer[v] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        list->at[i] = p->steps[i];
        list->next[i] = i + 1 < p->n_steps ? i + 1 : -1;
        for (int k = 0; k < p->steps[i].n_out; k++)
            if (p->steps[i].out[k] >= 0) list->producer[p->steps[i].out[k]] = i;
    }
    return GD_OK;
}

/* Inserts a permute after the step that computes its operand. */
static gd_status insert_permute(gd_program *p, step_list *list, const gd_layout_permute *n) {
    int *ids = gd_program_alloc(p, 2 * sizeof *ids), at = list->count++;
    if (!ids) return GD_E_MEMORY;
    ids[0] = n->made;
    ids[1] = n->value;
    list->at[at] = (gd_pstep){.op = gd_op_find("permute"),
                              .attrs = n->options,
                              .n_in = 1,
                              .n_out = 1,
                              .in = ids,
                              .out = ids + 1,
                              .view = true};
    int *after = list->producer[n->made] < 0 ? &list->first : &list->next[list->producer[n->made]];
    list->next[at] = *after;
    *after = at;
    list->producer[n->value] = at;
    return GD_OK;
}

/* Inserts the permutes into the program, the last ones first. */
static gd_status insert_permutes(gd_layout *l) {
    gd_program *p = l->p;
    step_list list;
    gd_status status = list_steps(p, l->n_permuted, &list);
    for (int i = l->n_permuted; i-- > 0 && status == GD_OK;)
        status = insert_permute(p, &list, &l->permuted[i]);
    while (p->n_steps < list.count && status == GD_OK)
        if (!gd_program_step(p)) status = GD_E_MEMORY;
    for (int i = list.first, n = 0; i >= 0 && status == GD_OK; i = list.next[i])
        p->steps[n++] = list.at[i];
    gd_free(list.at);
    gd_free(list.next);
    gd_free(list.producer);
    return status;
}

gd_status gd_layout_sink_permutes(gd_layout *l) {
    gd_program *p = l->p;
    const int n_steps = p->n_steps;
    find_chains(l);
    for (int i = 0; i < n_steps; i++)
        if (l->chain[i] == i) GD_TRY(sink_chain(l, i));
    for (int i = 0; i < l->n_permuted; i++)
        if (l->permuted[i].is_result) unify_views(l, l->permuted[i].made);
    return l->n_permuted > 0 ? insert_permutes(l) : GD_OK;
}
