/* layout.c - in which order the elements of intermediate values lie in memory.
 *
 * A permute costs nothing by itself: it is a view. What costs is reading against the grain, and the
 * copies that come of it. So
 *
 * - an elementwise step whose operands are permuted runs over them in the order in which they lie,
 *   and its result is permuted instead: permutes sink, and where another one undoes them both are
 *   gone;
 * - a product writes its result in the order in which the copy behind it (a reshape of a permuted
 *   value, as where the heads of attention are put together) would put it: the copy is a view then;
 * - a copy that only puts elements in order is dropped where all who read it can do without.
 *
 * Nothing is done that would make a kernel copy an operand which it takes as it is now.
 *
 * Convolutions, pooling and batch norm stay channels-first. Measured with these kernels (one
 * thread, AVX-512, milliseconds, x (N,C,H,W), `product` being what a channels-last kernel could
 * reach at best: one matrix product, with all windows laid out already):
 *
 *     x (4,64,56,56),   1x1 -> 64:    first 0.95   last (copied) 1.59   product 0.88
 *     x (4,64,56,56),   1x1 -> 256:   first 3.8    last (copied) 4.8    product 3.6
 *     x (4,256,14,14),  1x1 -> 1024:  first 3.2    last (copied) 3.7    product 3.25
 *     x (4,64,56,56),   3x3 -> 64:    first 3.8    last (copied) 5.1    product 6.4
 *     x (4,256,14,14),  3x3 -> 256:   first 4.3    last (copied) 4.7    product 7.9
 *     x (4,64,56,56),   5x5 -> 64:    first 25.7   last (copied) 27.4   product 23.1
 *     x (4,64,56,56),   batch norm:   first 0.25   last (copied) 0.84
 *
 * A channels-last chain could gain a tenth at 1x1 and 5x5, and lose more than half at 3x3, where
 * Winograd's transform works on planes. All of these kernels read and write channels-first as it
 * is, so a chain of them repacks nothing between its steps.
 */
#include <string.h>

#include "core/alloc.h"
#include "core/tensor.h"
#include "graph/lower/program.h"
#include "gradus/ops.h"
#include "ops/call.h"

/* A permute to be noted behind the step that `made` is a result of: `value` is a view of it. */
typedef struct permuted {
    int made, value;
    bool is_result; /* `made` is what the step writes now, and `value` what it wrote before */
    gd_permute_options *options;
} permuted;

typedef struct layout {
    gd_program *p;
    gd_device *device;
    int *writes;   /* of each root: how many steps write it */
    bool *fixed;   /* of each root: fetched or committed, so it stays as it is */
    int *chain;    /* of each step: the first step of its chain of elementwise steps; -1: none */
    int *next;     /* of each step: the next of its chain; n_steps: none */
    int *producer; /* of each root: the step of a chain that writes it; -1: none */
    permuted *permuted;
    int n_permuted, changes;
} layout;

static bool is_row_major(const gd_pvalue *v) {
    return gd_is_row_major(v->rank, v->dims, v->strides);
}

static bool same_dims(const gd_pvalue *a, const gd_pvalue *b) {
    return a->rank == b->rank && memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) == 0;
}

/* A root of the run, written once, that nobody outside looks into. */
static bool is_free(const layout *l, int root) {
    return l->p->roots[root].kind == GD_ROOT_TEMPORARY && l->writes[root] == 1 && !l->fixed[root];
}

/* All of its root, row-major. */
static bool is_whole(const gd_program *p, const gd_pvalue *v) {
    return v->offset == 0 && is_row_major(v) &&
           (size_t)gd_numel(v->rank, v->dims) * gd_dtype_bytes(v->dtype) == p->roots[v->root].bytes;
}

/* --- values whose memory gets other strides --------------------------------------------------- */

/* A view `v` of `base`, row-major so far, when base has new strides. False for views that cut axes
 * in parts or join them. */
static bool follow(const gd_pvalue *base, const int64_t *strides, const gd_pvalue *v,
                   gd_pvalue *to) {
    bool used[GD_MAX_RANK] = {false};
    *to = *v;
    if (v->dtype != base->dtype) return false;
    for (int k = 0; k < v->rank; k++) {
        if (v->dims[k] == 1 || v->strides[k] == 0) continue;
        int a = 0;
        while (a < base->rank &&
               (base->dims[a] == 1 || used[a] || base->strides[a] != v->strides[k]))
            a++;
        if (a == base->rank || v->dims[k] > base->dims[a]) return false;
        used[a] = true;
        to->strides[k] = strides[a];
    }
    int64_t rest = v->offset;
    to->offset = 0;
    for (int a = 0; a < base->rank; a++) {
        if (base->dims[a] == 1) continue;
        to->offset += rest / base->strides[a] * strides[a];
        rest %= base->strides[a];
    }
    return rest == 0;
}

/* Whether the step's kernel takes operands as they lie. */
static bool takes_strides(const layout *l, const gd_pstep *s) {
    if (s->op->ir) return true;
    const gd_kernel *kernel = gd_step_kernel(l->p, s, l->device);
    return kernel && kernel->flags == 0;
}

enum { NO_CHAIN = -1, AND_ELEMENTWISE = -2 };

/* Whether everyone who reads the root of `base` (but for step `but`, and those of a chain) can do
 * so when it has these strides: no kernel has to copy what it does not copy now, and, unless that
 * is wanted, no elementwise step reads against the grain what it does not read so now. */
static bool readers_agree(const layout *l, const gd_pvalue *base, const int64_t *strides, int but,
                          int chain) {
    const gd_program *p = l->p;
    gd_pvalue to;
    for (int v = 0; v < p->n_values; v++)
        if (p->values[v].root == base->root && !follow(base, strides, &p->values[v], &to))
            return false;
    for (int i = 0; i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        if (s->removed || s->view || i == but || (chain >= 0 && l->chain[i] == chain)) continue;
        for (int k = 0; k < s->n_in; k++) {
            if (s->in[k] < 0 || p->values[s->in[k]].root != base->root) continue;
            follow(base, strides, &p->values[s->in[k]], &to);
            if (!is_row_major(&p->values[s->in[k]]) || is_row_major(&to)) continue;
            if (s->op->ir ? chain != AND_ELEMENTWISE : !takes_strides(l, s)) return false;
        }
    }
    return true;
}

static void set_strides(gd_program *p, gd_pvalue base, const int64_t *strides) {
    for (int v = 0; v < p->n_values; v++) {
        gd_pvalue to;
        if (p->values[v].root == base.root && follow(&base, strides, &p->values[v], &to))
            p->values[v] = to;
    }
}

/* --- elementwise steps run in the order of their operands ------------------------------------- */

/* The axes of a value from the largest step to the smallest. Axes without a step keep their place
 * among the others as far as they can. */
static void order_of(const gd_pvalue *v, int *order) {
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

/* A value as the axes in another order show it: operands of fewer axes get those that are missing.
 */
static gd_pvalue reordered(const gd_pvalue *v, const int *order, int rank) {
    gd_pvalue to = {.root = v->root, .dtype = v->dtype, .rank = (uint8_t)rank, .offset = v->offset};
    for (int i = 0; i < rank; i++) {
        const int k = order[i] - (rank - v->rank);
        to.dims[i] = k < 0 ? 1 : v->dims[k];
        to.strides[i] = k < 0 ? 0 : v->strides[k];
    }
    int64_t step = 1; /* strides of axes of one element, as row-major has them */
    for (int i = rank; i-- > 0; step *= to.dims[i])
        if (to.dims[i] == 1) to.strides[i] = step;
    return to;
}

static bool looks_same(const gd_pvalue *a, const gd_pvalue *b) {
    bool same =
        a->root == b->root && a->offset == b->offset && a->dtype == b->dtype && same_dims(a, b);
    for (int d = 0; d < b->rank && same; d++)
        same = a->dims[d] == 1 || a->strides[d] == b->strides[d];
    return same;
}

/* A value that looks so, if there is one. */
static int find_value(const gd_program *p, const gd_pvalue *v) {
    for (int i = 0; i < p->n_values; i++)
        if (looks_same(&p->values[i], v)) return i;
    return -1;
}

static bool can_sink(const layout *l, const gd_pstep *s) {
    const gd_program *p = l->p;
    if (s->removed || s->view || !s->op->ir || (s->op->flags & GD_OP_RANDOM) ||
        s->n_out != s->op->n_outputs || s->n_out < 1)
        return false;
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] < 0 || s->op->inputs[k < s->op->n_inputs ? k : 0].mutated) return false;
    for (int k = 0; k < s->n_out; k++) {
        const gd_pvalue *y = s->out[k] < 0 ? NULL : &p->values[s->out[k]];
        if (!y || !is_free(l, y->root) || !is_whole(p, y) || !same_dims(y, &p->values[s->out[0]]))
            return false;
        if (y->rank < 2 || gd_numel(y->rank, y->dims) == 0) return false;
    }
    return true;
}

/* The first step of a step's chain, as far as chains are known. */
static int first_of_chain(const layout *l, int step) {
    while (step >= 0 && l->chain[step] != step) step = l->chain[step];
    return step;
}

/* The chain that a step's operand is made in; -1: in none. */
static int chain_of_operand(const layout *l, const gd_pstep *s, int k) {
    const gd_pvalue *v = &l->p->values[s->in[k]];
    const int from = l->producer[v->root];
    return from >= 0 && same_dims(v, &l->p->values[s->out[0]]) && is_row_major(v)
               ? first_of_chain(l, from)
               : -1;
}

static void list_chains(layout *l) {
    const int n = l->p->n_steps;
    int *latest = l->next + n; /* of each chain: the step found last */
    for (int i = n; i-- > 0;) latest[i] = n;
    for (int i = n; i-- > 0;) {
        if (l->chain[i] < 0) continue;
        l->next[i] = latest[l->chain[i]];
        latest[l->chain[i]] = i;
    }
}

/* Elementwise steps of one shape that read each other's results: they go one way together, so that
 * they can be one kernel later. */
static void find_chains(layout *l) {
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
    for (int i = 0; i < p->n_steps; i++) /* an earlier one is right already */
        if (l->chain[i] >= 0) l->chain[i] = l->chain[l->chain[i]];
    list_chains(l);
}

/* A value that says in which order to run: it has all elements, in places of their own, and its
 * innermost ones lie next to each other. */
static bool has_order(const gd_pvalue *v, int *order) {
    for (int d = 0; d < v->rank; d++)
        if (v->dims[d] != 1 && v->strides[d] <= 0) return false;
    order_of(v, order);
    for (int i = v->rank; i-- > 0;)
        if (v->dims[order[i]] != 1) return v->strides[order[i]] == 1;
    return false;
}

enum { ORDERS = 8, OPERANDS = 64 };

/* What a chain reads, and in which orders that lies. */
typedef struct ballot {
    int orders[ORDERS][GD_MAX_RANK], n_orders;
    size_t votes[ORDERS]; /* bytes of an element */
    int counted[OPERANDS], n_counted;
} ballot;

static void count_vote(const layout *l, ballot *b, int value) {
    const gd_pvalue *v = &l->p->values[value];
    int mine[GD_MAX_RANK], at = 0;
    for (int i = 0; i < b->n_counted; i++)
        if (b->counted[i] == value) return;
    if (!has_order(v, mine) || b->n_counted == OPERANDS) return;
    b->counted[b->n_counted++] = value;
    while (at < b->n_orders && memcmp(b->orders[at], mine, sizeof(int) * v->rank) != 0) at++;
    if (at == ORDERS) return;
    if (at == b->n_orders) memcpy(b->orders[b->n_orders++], mine, sizeof mine);
    b->votes[at] += gd_dtype_bytes(v->dtype);
}

/* The order in which most of what a chain reads lies; false: as it is. */
static bool best_order(const layout *l, int chain, int *order) {
    const gd_program *p = l->p;
    const gd_pvalue *y = &p->values[p->steps[chain].out[0]];
    ballot b = {.n_orders = 0};
    int best = 0;
    for (int i = chain; i < p->n_steps; i = l->next[i])
        for (int k = 0; k < p->steps[i].n_in; k++)
            if (same_dims(&p->values[p->steps[i].in[k]], y) &&
                chain_of_operand(l, &p->steps[i], k) != chain)
                count_vote(l, &b, p->steps[i].in[k]);
    for (int i = 1; i < b.n_orders; i++)
        if (b.votes[i] > b.votes[best] ||
            (b.votes[i] == b.votes[best] && is_identity(b.orders[i], y->rank)))
            best = i;
    if (b.n_orders == 0 || is_identity(b.orders[best], y->rank)) return false;
    memcpy(order, b.orders[best], sizeof(int) * y->rank);
    return true;
}

/* axes[i]: the axis of `made` that axis i of `value` is. */
static gd_status note_permute(layout *l, int made, int value, const int *axes, bool is_result) {
    gd_permute_options *o = gd_program_alloc(l->p, sizeof *o);
    if (!o) return GD_E_MEMORY;
    o->axes = (gd_shape){.rank = l->p->values[value].rank, .form = 1};
    for (int i = 0; i < o->axes.rank; i++) o->axes.at[i] = axes[i];
    l->permuted[l->n_permuted++] = (permuted){made, value, is_result, o};
    return GD_OK;
}

/* One step of a chain: its operands as they lie, its result in their order. */
static gd_status sink(layout *l, int at, const int *order, const int64_t *strides) {
    gd_program *p = l->p;
    gd_pstep *s = &p->steps[at];
    const int rank = p->values[s->out[0]].rank;
    int *ids = gd_program_alloc(p, (size_t)(s->n_in + s->n_out) * sizeof *ids);
    int back[GD_MAX_RANK];
    if (!ids) return GD_E_MEMORY;
    for (int i = 0; i < rank; i++) back[order[i]] = i;
    for (int k = 0; k < s->n_in; k++) {
        const gd_pvalue *x = &p->values[s->in[k]], v = reordered(x, order, rank);
        ids[k] = gd_numel(x->rank, x->dims) == 1 ? s->in[k] : find_value(p, &v);
        if (ids[k] >= 0) continue;
        if ((ids[k] = gd_program_value(p, v)) < 0) return GD_E_MEMORY;
        GD_TRY(note_permute(l, s->in[k], ids[k], order, false));
    }
    for (int k = 0; k < s->n_out; k++) {
        set_strides(p, p->values[s->out[k]], strides);
        const gd_pvalue v = reordered(&p->values[s->out[k]], order, rank);
        if ((ids[s->n_in + k] = gd_program_value(p, v)) < 0) return GD_E_MEMORY;
        GD_TRY(note_permute(l, ids[s->n_in + k], s->out[k], back, true));
    }
    s->in = ids;
    s->out = ids + s->n_in;
    l->changes++;
    return GD_OK;
}

static gd_status sink_chain(layout *l, int chain) {
    const gd_program *p = l->p;
    int order[GD_MAX_RANK];
    int64_t strides[GD_MAX_RANK], step = 1;
    if (!best_order(l, chain, order)) return GD_OK;
    const gd_pvalue y = p->values[p->steps[chain].out[0]];
    for (int i = y.rank; i-- > 0; step *= y.dims[order[i]]) strides[order[i]] = step;
    for (int i = chain; i < p->n_steps; i = l->next[i])
        for (int k = 0; k < p->steps[i].n_out; k++)
            if (!readers_agree(l, &p->values[p->steps[i].out[k]], strides, -1, chain)) return GD_OK;
    for (int i = chain; i < p->n_steps; i = l->next[i]) GD_TRY(sink(l, i, order, strides));
    return GD_OK;
}

/* What looks as the step's own result does is that result: permutes that undo each other are gone.
 */
static void unite(gd_program *p, int made) {
    const gd_pvalue look = p->values[made];
    for (int v = 0; v < p->n_values; v++)
        if (v != made && looks_same(&p->values[v], &look)) gd_program_replace(p, v, made);
}

/* Writes the permutes into the program, each behind what it is a view of. */
static gd_status write_permutes(layout *l) {
    gd_program *p = l->p;
    for (int i = l->n_permuted; i-- > 0;) {
        const permuted *n = &l->permuted[i];
        int *ids = gd_program_alloc(p, 2 * sizeof *ids);
        if (!ids || !gd_program_step(p)) return GD_E_MEMORY;
        int at = p->n_steps - 1;
        for (; at > 0; at--) {
            const gd_pstep *before = &p->steps[at - 1];
            bool producer = false;
            for (int k = 0; k < before->n_out; k++) producer |= before->out[k] == n->made;
            if (producer) break;
            p->steps[at] = p->steps[at - 1];
        }
        ids[0] = n->made;
        ids[1] = n->value;
        p->steps[at] = (gd_pstep){.op = gd_op_find("permute"),
                                  .attrs = n->options,
                                  .n_in = 1,
                                  .n_out = 1,
                                  .in = ids,
                                  .out = ids + 1,
                                  .view = true};
    }
    return GD_OK;
}

/* --- copies ----------------------------------------------------------------------------------- */

/* Whether an op that gives a view where it can copies the elements in their order: of a row-major
 * operand it would show all, as they lie. (A slice that runs back would not.) */
static bool keeps_order(const layout *l, const gd_pstep *s) {
    const gd_pvalue *v = &l->p->values[s->in[0]];
    gd_tensor x = {.kind = GD_META, .dtype = v->dtype, .rank = v->rank, .device = l->device};
    gd_tensor *const in[] = {&x};
    gd_meta y;
    gd_infer infer = {s->op, s->attrs, in, 1, &y, 1};
    memcpy(x.dims, v->dims, sizeof x.dims);
    gd_row_major(x.rank, x.dims, x.strides);
    gd_meta_clear(&y, in, 1);
    return s->op->infer(&infer) == GD_OK && y.view_of == 0 && y.offset == 0 &&
           gd_is_row_major(y.rank, y.dims, y.strides);
}

/* A step that copies elements, in their order, because its operand does not lie so. */
static bool is_copy(const layout *l, const gd_pstep *s) {
    const gd_program *p = l->p;
    const bool copies = (s->op->flags & GD_OP_VIEW) || gd_op_copies(s->op);
    if (s->removed || s->view || !copies || s->n_in != 1 || s->n_out != 1 || s->in[0] < 0 ||
        s->out[0] < 0)
        return false;
    if ((s->op->flags & GD_OP_VIEW) && !keeps_order(l, s)) return false;
    const gd_pvalue *x = &p->values[s->in[0]], *y = &p->values[s->out[0]];
    return x->dtype == y->dtype && gd_numel(x->rank, x->dims) == gd_numel(y->rank, y->dims) &&
           is_free(l, y->root) && is_whole(p, y) &&
           l->writes[x->root] == (p->roots[x->root].kind == GD_ROOT_TEMPORARY);
}

static int producer_of(const gd_program *p, int root) {
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_out && !p->steps[i].removed && !p->steps[i].view; k++)
            if (p->steps[i].out[k] >= 0 && p->values[p->steps[i].out[k]].root == root) return i;
    return -1;
}

/* A product has put its elements in the order that the copy is for: the copy is a view. Rows of the
 * product stay rows: it writes them as vectors. */
static bool write_as_copied(layout *l, int at) {
    gd_program *p = l->p;
    gd_pstep *s = &p->steps[at];
    const gd_pvalue x = p->values[s->in[0]];
    if (!is_copy(l, s) || is_row_major(&x) || !is_free(l, x.root)) return false;
    const int producer = producer_of(p, x.root);
    if (producer < 0 || !(p->steps[producer].op->flags & GD_OP_STRIDED_ROWS) ||
        !takes_strides(l, &p->steps[producer]))
        return false;
    const gd_pvalue made = p->values[p->steps[producer].out[0]];
    const int64_t count = gd_numel(made.rank, made.dims);
    if (!is_whole(p, &made) || count == 0 || count != gd_numel(x.rank, x.dims) || made.rank < 2)
        return false;
    int64_t wanted[GD_MAX_RANK], strides[GD_MAX_RANK];
    gd_row_major(x.rank, x.dims, wanted);
    gd_row_major(made.rank, made.dims, strides);
    for (int k = 0; k < x.rank; k++) { /* the axis of the product that axis k of x is */
        int a = 0;
        if (x.dims[k] == 1) continue;
        while (a < made.rank && (made.dims[a] != x.dims[k] || made.strides[a] != x.strides[k])) a++;
        if (a == made.rank) return false;
        strides[a] = wanted[k];
    }
    if (strides[made.rank - 1] != 1 || !readers_agree(l, &made, strides, at, NO_CHAIN))
        return false;
    set_strides(p, made, strides);
    const int from = p->values[s->out[0]].root;
    for (int v = 0; v < p->n_values; v++)
        if (p->values[v].root == from) p->values[v].root = x.root;
    s->view = true;
    return true;
}

/* All who read the copy can read what it is a copy of. */
static bool drop_copy(layout *l, int at) {
    gd_program *p = l->p;
    gd_pstep *s = &p->steps[at];
    if (!is_copy(l, s) || !same_dims(&p->values[s->in[0]], &p->values[s->out[0]])) return false;
    const gd_pvalue x = p->values[s->in[0]], y = p->values[s->out[0]];
    if (gd_numel(y.rank, y.dims) == 0 || !readers_agree(l, &y, x.strides, at, AND_ELEMENTWISE))
        return false;
    for (int v = 0; v < p->n_values; v++) {
        gd_pvalue to;
        if (p->values[v].root != y.root || !follow(&y, x.strides, &p->values[v], &to)) continue;
        to.root = x.root;
        to.offset += x.offset;
        p->values[v] = to;
    }
    gd_program_replace(p, s->out[0], s->in[0]);
    s->removed = true;
    return true;
}

/* --- the pass --------------------------------------------------------------------------------- */

static gd_status begin(layout *l) {
    const gd_program *p = l->p;
    int operands = 0;
    for (int i = 0; i < p->n_steps; i++) operands += p->steps[i].n_in + p->steps[i].n_out;
    l->writes = gd_program_writes(p);
    l->fixed = gd_calloc((size_t)p->n_roots + 1, sizeof *l->fixed);
    l->chain = gd_malloc(((size_t)p->n_steps + 1) * sizeof *l->chain);
    l->next = gd_malloc((2 * (size_t)p->n_steps + 1) * sizeof *l->next);
    l->producer = gd_malloc(((size_t)p->n_roots + 1) * sizeof *l->producer);
    l->permuted = gd_malloc(((size_t)operands + 1) * sizeof *l->permuted);
    if (!l->writes || !l->fixed || !l->chain || !l->next || !l->producer || !l->permuted)
        return gd_fail(GD_E_MEMORY, "no memory to plan a run");
    for (int i = 0; i < p->n_fetches; i++) l->fixed[p->values[p->fetches[i]].root] = true;
    for (int i = 0; i < p->n_commits; i++) l->fixed[p->values[p->commits[i].value].root] = true;
    return GD_OK;
}

int gd_pass_layout(gd_program *p, gd_device *device) {
    layout l = {.p = p, .device = device};
    gd_status status = begin(&l);
    for (int i = 0; i < p->n_steps && status == GD_OK; i++)
        l.changes += write_as_copied(&l, i) || drop_copy(&l, i);
    if (status == GD_OK) find_chains(&l);
    const int n_steps = p->n_steps;
    for (int i = 0; i < n_steps && status == GD_OK; i++)
        if (l.chain[i] == i) status = sink_chain(&l, i);
    for (int i = 0; i < l.n_permuted && status == GD_OK; i++)
        if (l.permuted[i].is_result) unite(p, l.permuted[i].made);
    if (status == GD_OK) status = write_permutes(&l);
    gd_free(l.writes);
    gd_free(l.fixed);
    gd_free(l.chain);
    gd_free(l.next);
    gd_free(l.producer);
    gd_free(l.permuted);
    if (status != GD_OK) return -1;
    return l.changes && gd_pass_prune(p) < 0 ? -1 : l.changes;
}
