/* fuse_group.c - puts steps into groups that become one kernel each.
 *
 * Two steps join if one reads the other's result as it is, both run over the same shape and compute
 * in the same type, and no step outside depends on one and is needed by the other: a group becomes
 * one step, so that would be a cycle. Values between members of a group are not in memory, unless a
 * step outside reads them.
 *
 * Halves are computed as f32, as they are step by step, but rounded to a half only where they leave
 * the group. Bools are 1 and 0 of the type computed in. Smaller integers, which wrap around when
 * they are stored, are not passed on inside a group.
 */

#include "graph/passes/fuse.h"

static int64_t elements(const gd_pvalue *v) { return gd_numel(v->rank, v->dims); }

/* --- whether two groups can be one ------------------------------------------------------------ */

static bool in_either(const gd_fuse *f, int step, int a, int b) {
    return f->steps[step].group == a || f->steps[step].group == b;
}

/* Marks and stacks the groups that come right after group `g`, as far as step `last`; true if one
 * outside comes back to a or b. */
static bool spread(gd_fuse *f, int g, bool inside, int a, int b, int last, int *depth) {
    for (int m = g; m >= 0; m = f->steps[m].next)
        for (int u = 0; u < f->steps[m].n_users; u++) {
            const int to = f->users[f->steps[m].first_user + u];
            if (to > last) continue;
            if (in_either(f, to, a, b)) {
                if (!inside) return true;
                continue;
            }
            const int group = f->steps[to].group;
            if (f->seen[group] == f->stamp) continue;
            f->seen[group] = f->stamp;
            f->stack[(*depth)++] = group;
        }
    return false;
}

static void bounds(const gd_fuse *f, int group, int *first, int *last) {
    *first = *last = group;
    for (int m = group; m >= 0; m = f->steps[m].next) {
        if (m < *first) *first = m;
        if (m > *last) *last = m;
    }
}

/* The last step of all groups that begin at step `i` or before; `reach` is a Fenwick tree of that
 * maximum. Where groups were taken apart again it may be too much, which does no harm. */
static int reach_of(const gd_fuse *f, int i) {
    int most = i;
    for (int at = i + 1; at > 0; at -= at & -at)
        if (f->reach[at] > most) most = f->reach[at];
    return most;
}

static void record_reach(gd_fuse *f, int group) {
    int first, last;
    bounds(f, group, &first, &last);
    for (int at = first + 1; at <= f->p->n_steps; at += at & -at)
        if (last > f->reach[at]) f->reach[at] = last;
}

/* Steps need earlier ones only, so that the search ends at the last member, or at the last one of a
 * group that reaches beyond it: no group on the far side of that has a member on this one. */
bool gd_fuse_waits(gd_fuse *f, int a, int b) {
    int depth = 0, first, last, other;
    bounds(f, a, &first, &last);
    bounds(f, b, &first, &other);
    if (other > last) last = other;
    for (int further = reach_of(f, last); further > last; further = reach_of(f, last))
        last = further;
    f->stamp++;
    spread(f, a, true, a, b, last, &depth);
    spread(f, b, true, a, b, last, &depth);
    while (depth > 0)
        if (spread(f, f->stack[--depth], false, a, b, last, &depth)) return true;
    return false;
}

static bool is_read_outside(const gd_fuse *f, int value, int a, int b) {
    const gd_fuse_step *maker = &f->steps[f->made_by[value]];
    const int root = f->p->values[value].root;
    if (f->kept[root]) return true;
    for (int u = 0; u < maker->n_users; u++) {
        const int to = f->users[maker->first_user + u];
        if (in_either(f, to, a, b)) continue;
        const gd_pstep *s = &f->p->steps[to];
        for (int k = 0; k < s->n_in && !s->view; k++) /* who reads a view is a user, too */
            if (s->in[k] >= 0 && f->p->values[s->in[k]].root == root) return true;
    }
    return false;
}

bool gd_fuse_is_wanted(const gd_fuse *f, int value) {
    const int group = f->steps[f->made_by[value]].group;
    return is_read_outside(f, value, group, group);
}

/* The operands and nodes of a group. */
typedef struct needs_of {
    int nodes, members, outputs, tensors, params, reductions, columns;
    int distinct[GD_FUSED_TENSORS + GD_FUSED_PARAMS], n_distinct;
} needs_of;

static bool add_operand(const gd_fuse *f, needs_of *n, int value, gd_dtype type, int64_t count) {
    double number;
    for (int i = 0; i < n->n_distinct; i++)
        if (n->distinct[i] == value) return true;
    if (n->n_distinct == GD_FUSED_TENSORS + GD_FUSED_PARAMS) return false;
    n->distinct[n->n_distinct++] = value;
    if (gd_fuse_constant(f, value, &number) || gd_fuse_is_scalar(f, value, type, count))
        n->params++;
    else n->tensors++;
    return true;
}

static bool add_needs(const gd_fuse *f, int g, int a, int b, gd_dtype type, int64_t count,
                      needs_of *n) {
    for (int m = g; m >= 0; m = f->steps[m].next) {
        const gd_pstep *s = &f->p->steps[m];
        n->members++;
        if (f->steps[m].kind == GD_FUSE_REDUCTION && !f->steps[m].row_axes) {
            n->outputs++;
            continue;
        }
        if (f->steps[m].kind == GD_FUSE_REDUCTION) { /* a mean has the count as a parameter */
            n->reductions++;
            n->params++;
            n->nodes++;
        } else {
            n->params += s->op->ir->n_params;
            for (int i = 0; i < s->op->ir->count; i++)
                n->nodes += s->op->ir->nodes[i].code == GD_IR_CONST ||
                            s->op->ir->nodes[i].code >= GD_IR_PRIM;
        }
        for (int k = 0; k < s->n_out; k++) n->outputs += is_read_outside(f, s->out[k], a, b);
        const bool of_rows = elements(&f->p->values[s->out[0]]) != count;
        for (int k = 0; k < s->n_in; k++) {
            const int writer = f->writer[f->p->values[s->in[k]].root];
            if (writer >= 0 && in_either(f, writer, a, b)) continue;
            n->columns += of_rows && f->steps[m].kind == GD_FUSE_EACH;
            if (!add_operand(f, n, s->in[k], type, count)) return false;
        }
    }
    return true;
}

/* The device's limit, but never more than a fused op holds. */
static bool is_within(int count, int limit, int largest) {
    return count <= limit && count <= largest;
}

bool gd_fuse_fits(const gd_fuse *f, int a, int b, gd_dtype type, int64_t count) {
    needs_of n = {0};
    if (!add_needs(f, a, a, b, type, count, &n)) return false;
    if (a != b && !add_needs(f, b, a, b, type, count, &n)) return false;
    const gd_fusion_rules *r = f->rules;
    return is_within(n.members, r->max_ops, GD_FUSED_OPS) &&
           is_within(n.nodes + n.tensors + n.params, r->max_nodes, GD_FUSED_NODES) &&
           is_within(n.outputs, r->max_outputs, GD_FUSED_OUTPUTS) &&
           is_within(n.tensors, r->max_tensors, GD_FUSED_TENSORS) &&
           is_within(n.params, r->max_params, GD_FUSED_PARAMS) &&
           n.reductions <= GD_ROW_REDUCTIONS && n.columns <= GD_ROW_COLUMNS;
}

/* --- groups ----------------------------------------------------------------------------------- */

gd_dtype gd_fuse_type(const gd_fuse *f, int g) {
    for (int m = g; m >= 0; m = f->steps[m].next)
        if (f->steps[m].kind == GD_FUSE_EACH && f->steps[m].type) return f->steps[m].type;
    return GD_DTYPE_NONE;
}

bool gd_fuse_passes(const gd_fuse *f, int value, gd_dtype type) {
    const gd_pstep *maker = &f->p->steps[f->made_by[value]];
    const gd_dtype dtype = (gd_dtype)f->p->values[value].dtype;
    if (dtype == GD_BOOL) return maker->op->flags & GD_OP_TRUTH;
    if (dtype == GD_F16 || dtype == GD_BF16) {
        const bool rounds = gd_op_copies(maker->op) && f->p->values[maker->in[0]].dtype != dtype;
        return type == GD_F32 && !rounds; /* a cast is there to round */
    }
    return dtype == type;
}

/* Whether all values between or within the groups can be passed on in this type. */
static bool all_pass(const gd_fuse *f, int g, int a, int b, gd_dtype type) {
    for (int m = g; m >= 0; m = f->steps[m].next) {
        const gd_pstep *s = &f->p->steps[m];
        for (int k = 0; k < s->n_in; k++) {
            const int writer = f->writer[f->p->values[s->in[k]].root];
            if (writer < 0 || !in_either(f, writer, a, b)) continue;
            if (f->made_by[s->in[k]] != writer ||
                !gd_fuse_passes(f, s->in[k], type ? type : GD_I32))
                return false;
        }
    }
    return true;
}

void gd_fuse_unite(gd_fuse *f, int a, int b) {
    int last = a;
    for (int m = b; m >= 0; m = f->steps[m].next) {
        gd_fuse_change(f, m);
        f->steps[m].group = a;
    }
    while (f->steps[last].next >= 0) last = f->steps[last].next;
    gd_fuse_change(f, last);
    f->steps[last].next = b;
    record_reach(f, a);
}

void gd_fuse_save(gd_fuse *f) {
    f->saves++;
    f->n_undo = 0;
}

void gd_fuse_change(gd_fuse *f, int step) {
    if (f->changed[step] == f->saves) return;
    f->changed[step] = f->saves;
    f->undo[f->n_undo++] = (gd_fuse_undo){step, f->steps[step]};
}

void gd_fuse_take_back(gd_fuse *f) {
    while (f->n_undo > 0) {
        const gd_fuse_undo *u = &f->undo[--f->n_undo];
        f->steps[u->step] = u->was;
        f->changed[u->step] = 0;
    }
}

static int64_t shape_of(const gd_fuse *f, int step, const gd_pvalue **shape) {
    *shape = &f->p->values[f->p->steps[step].out[0]];
    return elements(*shape);
}

static void try_to_join(gd_fuse *f, int producer, int consumer) {
    const int a = f->steps[producer].group, b = f->steps[consumer].group;
    if (a == b) return;
    const gd_pvalue *x, *y;
    const int64_t count = shape_of(f, producer, &x);
    shape_of(f, consumer, &y);
    const gd_dtype s = gd_fuse_type(f, a), t = gd_fuse_type(f, b), type = s ? s : t;
    if (!gd_fuse_same_dims(x, y) || (s && t && s != t)) return;
    if (!all_pass(f, a, a, b, type) || !all_pass(f, b, a, b, type)) return;
    if (!gd_fuse_fits(f, a, b, type, count) || gd_fuse_waits(f, a, b)) return;
    gd_fuse_unite(f, a, b);
}

static bool has_reduction(const gd_fuse *f, int g) {
    for (int m = g; m >= 0; m = f->steps[m].next)
        if (f->steps[m].kind == GD_FUSE_REDUCTION) return true;
    return false;
}

static bool reduces_short_rows(const gd_fuse *f, int step) {
    const gd_pvalue *x = &f->p->values[f->p->steps[step].in[0]],
                    *y = &f->p->values[f->p->steps[step].out[0]];
    uint32_t axes;
    int last = x->rank - 1;
    while (last > 0 && x->dims[last] == 1) last--;
    if (gd_fuse_axes(f->p, &f->p->steps[step], &axes) != GD_OK) return true;
    return (axes >> last & 1) && elements(x) <= f->rules->short_row * elements(y);
}

/* A reduction joins the group that computes its operand. Not where other steps read that, too: then
 * it is in memory anyway, and storing it in the order of the reduction costs more than reading it
 * once more. */
static void try_to_reduce(gd_fuse *f, int step) {
    const int value = f->p->steps[step].in[0], maker = f->made_by[value];
    if (maker < 0 || f->steps[maker].kind != GD_FUSE_EACH) return;
    const int a = f->steps[maker].group;
    if (!gd_fuse_always() && (is_read_outside(f, value, a, step) || reduces_short_rows(f, step)))
        return;
    const gd_dtype type = gd_fuse_type(f, a);
    if ((type != GD_F32 && type != GD_F64) || has_reduction(f, a) ||
        !gd_fuse_passes(f, value, type))
        return;
    if (!gd_fuse_fits(f, a, step, type, elements(&f->p->values[value])) ||
        gd_fuse_waits(f, a, step))
        return;
    gd_fuse_unite(f, a, step);
}

void gd_fuse_dissolve(gd_fuse *f, int group) {
    for (int m = group, next; m >= 0; m = next) {
        next = f->steps[m].next;
        f->steps[m].group = m;
        f->steps[m].next = -1;
        f->steps[m].row_axes = 0;
    }
}

static void dissolve_losers(gd_fuse *f) {
    for (int i = 0; i < f->p->n_steps; i++)
        if (f->steps[i].group == i && f->steps[i].next >= 0 && !gd_fuse_is_worth(f, i))
            gd_fuse_dissolve(f, i);
}

/* --- members that move to another group ------------------------------------------------------- */

/* The one other group that reads all of a step's result; -1: there are none, or several. */
static int only_reader(const gd_fuse *f, int step) {
    int reader = -1;
    const gd_fuse_step *s = &f->steps[step];
    if (f->kept[f->p->values[f->p->steps[step].out[0]].root]) return -1;
    for (int u = 0; u < s->n_users; u++) {
        const int to = f->users[s->first_user + u], group = f->steps[to].group;
        if (f->steps[to].kind != GD_FUSE_EACH || group == s->group ||
            (reader >= 0 && group != reader))
            return -1;
        reader = group;
    }
    return reader;
}

static bool is_read_by(const gd_fuse *f, int value, int group) {
    for (int m = group; m >= 0; m = f->steps[m].next)
        for (int k = 0; k < f->p->steps[m].n_in; k++)
            if (f->p->steps[m].in[k] == value) return true;
    return false;
}

/* Whether a step's operands are there for another group too, and no more than its result is. */
static bool is_cheaper_there(const gd_fuse *f, int step, int group) {
    const gd_pstep *s = &f->p->steps[step];
    const int64_t count = elements(&f->p->values[s->out[0]]);
    int more = 0;
    double number;
    for (int k = 0; k < s->n_in; k++) {
        const int value = s->in[k], maker = f->made_by[value];
        if (gd_fuse_constant(f, value, &number) ||
            gd_fuse_is_scalar(f, value, f->steps[step].type, count))
            continue;
        bool repeated = is_read_by(f, value, group);
        for (int b = 0; b < k; b++) repeated |= s->in[b] == value;
        more += !repeated;
        if (maker < 0 || f->steps[maker].group != f->steps[step].group) continue;
        /* made in the group that the step leaves: somebody else must want it there */
        bool wanted = f->kept[f->p->values[value].root];
        for (int u = 0; u < f->steps[maker].n_users; u++) {
            const int to = f->users[f->steps[maker].first_user + u];
            wanted |= f->steps[to].group != f->steps[step].group && is_read_by(f, value, to);
        }
        if (!wanted) return false;
    }
    return more <= 1;
}

static void detach(gd_fuse *f, int step) {
    int group = f->steps[step].group;
    if (group == step) { /* the next member gives its number */
        const int head = f->steps[step].next;
        for (int m = head; m >= 0; m = f->steps[m].next) f->steps[m].group = head;
    } else {
        while (f->steps[group].next != step) group = f->steps[group].next;
        f->steps[group].next = f->steps[step].next;
    }
    f->steps[step].group = step;
    f->steps[step].next = -1;
}

/* A member whose result another group alone reads goes over to it where that saves a store. That
 * group comes later anyway, so that nothing waits for itself. */
static void try_to_move(gd_fuse *f, int step) {
    const gd_pstep *s = &f->p->steps[step];
    const int from = f->steps[step].group, mate = from == step ? f->steps[step].next : from;
    if (mate < 0 || s->n_out != 1) return;
    const int to = only_reader(f, step);
    if (to < 0 || !is_cheaper_there(f, step, to)) return;
    const gd_pvalue *x, *y;
    const int64_t count = shape_of(f, step, &x);
    shape_of(f, to, &y);
    const gd_dtype type = gd_fuse_type(f, to);
    if (!gd_fuse_same_dims(x, y) || !type || type != f->steps[step].type) return;
    detach(f, step);
    if (all_pass(f, to, to, step, type) && gd_fuse_fits(f, to, step, type, count))
        gd_fuse_unite(f, to, step);
    else gd_fuse_unite(f, f->steps[mate].group, step);
}

/* One step alone is worth a kernel where it has none: derivatives of derivatives, a program's own
 * ops. */
bool gd_fuse_is_group(const gd_fuse *f, int step) {
    const gd_fuse_step *s = &f->steps[step];
    if (s->group != step) return false;
    return s->next >= 0 ||
           (s->kind == GD_FUSE_EACH && !f->rules->has_own_kernel(f->device, f->p->steps[step].op));
}

int gd_fuse_group(gd_fuse *f) {
    const gd_program *p = f->p;
    int groups = 0;
    for (int i = 0; i < p->n_steps; i++) {
        if (f->steps[i].kind != GD_FUSE_EACH) continue;
        for (int k = 0; k < p->steps[i].n_in; k++) {
            const int maker = f->made_by[p->steps[i].in[k]];
            if (maker >= 0 && f->steps[maker].kind == GD_FUSE_EACH) try_to_join(f, maker, i);
        }
    }
    for (int i = p->n_steps; i-- > 0;)
        if (f->steps[i].kind == GD_FUSE_EACH) try_to_move(f, i);
    if (f->rules->rows) gd_fuse_rows(f);
    for (int i = 0; f->rules->reductions && i < p->n_steps; i++)
        if (f->steps[i].kind == GD_FUSE_REDUCTION && f->steps[i].group == i && f->steps[i].next < 0)
            try_to_reduce(f, i);
    dissolve_losers(f);
    for (int i = 0; i < p->n_steps; i++) groups += gd_fuse_is_group(f, i);
    return groups;
}
