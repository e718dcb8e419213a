/* fuse_group.c - puts steps into groups that become one kernel each.
 *
 * Two steps join if one reads the other's result as it is, both write the same shape in the same
 * order of elements and compute in the same type, and no step outside depends on one and is needed
 * by the other: a group becomes one step, so that would be a cycle. Values between members of a
 * group are not in memory, unless a step outside reads them.
 *
 * Halves are computed as f32, as they are step by step, but rounded to a half only where they leave
 * the group. Bools are 1 and 0 of the type computed in. Smaller integers, which wrap around when
 * they are stored, are not passed on inside a group.
 */
#include "graph/passes/fuse.h"

/* --- whether two groups can be one ------------------------------------------------------------ */

static bool in_either(const gd_fuse *f, int step, int a, int b) {
    return f->steps[step].group == a || f->steps[step].group == b;
}

/* Pushes the groups of the steps up to `last` that depend directly on group `g`. True if `g` is
 * outside of a and b, and one of those is a or b: a path leads back, through the step `*gate`. */
static bool push_users(gd_fuse *f, int g, bool inside, int a, int b, int last, int *depth,
                       int *gate) {
    for (int m = g; m >= 0; m = f->steps[m].next)
        for (int u = 0; u < f->steps[m].n_users; u++) {
            const int to = f->users[f->steps[m].first_user + u];
            f->visited++;
            if (to > last) continue;
            if (in_either(f, to, a, b)) {
                if (inside) continue;
                *gate = m;
                return true;
            }
            const int group = f->steps[to].group;
            if (f->seen[group] == f->stamp) continue;
            f->seen[group] = f->stamp;
            f->stack[(*depth)++] = group;
        }
    return false;
}

static void find_bounds(const gd_fuse *f, int group, int *first, int *last) {
    *first = *last = group;
    for (int m = group; m >= 0; m = f->steps[m].next) {
        if (m < *first) *first = m;
        if (m > *last) *last = m;
    }
}

/* The last step of all groups that begin at step `i` or before; `reach` is a Fenwick tree of that
 * maximum. After groups were dissolved it may be too large, which is harmless. */
static int get_reach(const gd_fuse *f, int i) {
    int most = i;
    for (int at = i + 1; at > 0; at -= at & -at)
        if (f->reach[at] > most) most = f->reach[at];
    return most;
}

static void record_reach(gd_fuse *f, int group) {
    int first, last;
    find_bounds(f, group, &first, &last);
    for (int at = first + 1; at <= f->p->n_steps; at += at & -at)
        if (last > f->reach[at]) f->reach[at] = last;
}

static int mark_group(gd_fuse *f, int g) {
    for (int m = g; m >= 0; m = f->steps[m].next) f->leads[m] = f->n_leads;
    return g;
}

/* Many paths lead back through the same step: each gradient that a loss scale divides depends on the
 * group of the division, which also has what depends on all gradients. The groups that this gate
 * depends on are marked when searches have visited more users than there are steps; from then on, a
 * look at the neighbours of two groups finds such a path. The marks stay right while groups are
 * united, and are dropped when one is split. */
static void choose_gate(gd_fuse *f, int gate) {
    int depth = 0;
    f->gate = gate;
    f->visited = 0;
    f->n_leads++;
    f->stack[depth++] = mark_group(f, f->steps[gate].group);
    while (depth > 0)
        for (int m = f->stack[--depth], next; m >= 0; m = next) {
            const gd_fuse_step *s = &f->steps[m];
            next = s->next;
            for (int k = 0; k < s->n_needs; k++) {
                const int need = f->needs[s->first_need + k];
                if (f->leads[need] == f->n_leads) continue;
                f->stack[depth++] = mark_group(f, f->steps[need].group);
            }
        }
}

static void drop_gate(gd_fuse *f) { f->gate = -1; }

static bool needs_gate(const gd_fuse *f, int g) {
    for (int m = g; m >= 0; m = f->steps[m].next)
        for (int k = 0; k < f->steps[m].n_needs; k++)
            if (f->needs[f->steps[m].first_need + k] == f->gate) return true;
    return false;
}

static bool leads_to_gate(const gd_fuse *f, int g, int a, int b) {
    for (int m = g; m >= 0; m = f->steps[m].next)
        for (int u = 0; u < f->steps[m].n_users; u++) {
            const int to = f->users[f->steps[m].first_user + u];
            if (f->leads[to] == f->n_leads && !in_either(f, to, a, b)) return true;
        }
    return false;
}

/* Whether a path leaves a and b and leads back through the gate. */
static bool leads_through_gate(const gd_fuse *f, int a, int b) {
    return f->gate >= 0 && !in_either(f, f->gate, a, b) && (needs_gate(f, a) || needs_gate(f, b)) &&
           (leads_to_gate(f, a, a, b) || leads_to_gate(f, b, a, b));
}

/* Steps depend on earlier ones only, so the search ends at the last member of both groups, or at
 * the last member of a group that begins before and reaches beyond it. */
bool gd_fuse_forms_cycle(gd_fuse *f, int a, int b) {
    int depth = 0, first, last, other, gate = -1;
    find_bounds(f, a, &first, &last);
    find_bounds(f, b, &first, &other);
    if (other > last) last = other;
    for (int further = get_reach(f, last); further > last; further = get_reach(f, last))
        last = further;
    if (leads_through_gate(f, a, b)) return true;
    f->stamp++;
    push_users(f, a, true, a, b, last, &depth, &gate);
    push_users(f, b, true, a, b, last, &depth, &gate);
    while (depth > 0) {
        if (push_users(f, f->stack[--depth], false, a, b, last, &depth, &gate)) {
            if (f->visited > f->p->n_steps) choose_gate(f, gate);
            return true;
        }
    }
    return false;
}

static bool is_read_outside(const gd_fuse *f, int value, int a, int b) {
    const int root = f->p->values[value].root;
    if (f->kept[root]) return true;
    for (int r = f->first_reader[root]; r < f->first_reader[root + 1]; r++)
        if (!in_either(f, f->readers[r], a, b)) return true;
    return false;
}

bool gd_fuse_is_wanted(const gd_fuse *f, int value) {
    const int group = f->steps[f->producer[value]].group;
    return is_read_outside(f, value, group, group);
}

/* What the kernel of a group needs. */
typedef struct kernel_needs {
    int nodes, members, outputs, tensors, params, reductions, columns;
    int distinct[GD_FUSED_TENSORS + GD_FUSED_PARAMS], n_distinct; /* operands */
} kernel_needs;

static bool add_operand(const gd_fuse *f, kernel_needs *n, int value, gd_dtype type,
                        int64_t count) {
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
                      kernel_needs *n) {
    for (int m = g; m >= 0; m = f->steps[m].next) {
        const gd_pstep *s = &f->p->steps[m];
        n->members++;
        if (f->steps[m].kind == GD_FUSE_REDUCTION && !f->steps[m].row_axes) {
            n->outputs++;
            continue;
        }
        if (f->steps[m].kind == GD_FUSE_REDUCTION) { /* the count of a mean is a parameter */
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
        const bool of_rows = gd_value_elements(&f->p->values[s->out[0]]) != count;
        for (int k = 0; k < s->n_in; k++) {
            const int writer = f->writer[f->p->values[s->in[k]].root];
            if (writer >= 0 && in_either(f, writer, a, b)) continue;
            n->columns += of_rows && f->steps[m].kind == GD_FUSE_EACH;
            if (!add_operand(f, n, s->in[k], type, count)) return false;
        }
    }
    return true;
}

/* Whether a count is within the device's limit and the size of a fused op. */
static bool is_within(int count, int limit, int largest) {
    return count <= limit && count <= largest;
}

bool gd_fuse_fits(const gd_fuse *f, int a, int b, gd_dtype type, int64_t count) {
    kernel_needs n = {0};
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

bool gd_fuse_can_pass(const gd_fuse *f, int value, gd_dtype type) {
    const gd_pstep *producer = &f->p->steps[f->producer[value]];
    const gd_dtype dtype = (gd_dtype)f->p->values[value].dtype;
    if (dtype == GD_BOOL) return producer->op->flags & GD_OP_PREDICATE;
    if (dtype == GD_F16 || dtype == GD_BF16) {
        const bool rounds =
            gd_op_copies(producer->op) && f->p->values[producer->in[0]].dtype != dtype;
        return type == GD_F32 && !rounds; /* the purpose of a cast is to round */
    }
    return dtype == type;
}

/* Whether all values that members of the groups a and b pass to members of `g` can stay in this
 * type. */
static bool can_pass_values(const gd_fuse *f, int g, int a, int b, gd_dtype type) {
    for (int m = g; m >= 0; m = f->steps[m].next) {
        const gd_pstep *s = &f->p->steps[m];
        for (int k = 0; k < s->n_in; k++) {
            const int writer = f->writer[f->p->values[s->in[k]].root];
            if (writer < 0 || !in_either(f, writer, a, b)) continue;
            if (f->producer[s->in[k]] != writer ||
                !gd_fuse_can_pass(f, s->in[k], type ? type : GD_I32))
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

void gd_fuse_restore(gd_fuse *f) {
    drop_gate(f);
    while (f->n_undo > 0) {
        const gd_fuse_undo *u = &f->undo[--f->n_undo];
        f->steps[u->step] = u->was;
        f->changed[u->step] = 0;
    }
}

static int64_t get_shape(const gd_fuse *f, int step, const gd_pvalue **shape) {
    *shape = &f->p->values[f->p->steps[step].out[0]];
    return gd_value_elements(*shape);
}

static void try_to_join(gd_fuse *f, int producer, int consumer) {
    const int a = f->steps[producer].group, b = f->steps[consumer].group;
    if (a == b) return;
    const gd_pvalue *x, *y;
    const int64_t count = get_shape(f, producer, &x);
    get_shape(f, consumer, &y);
    const gd_dtype s = gd_fuse_type(f, a), t = gd_fuse_type(f, b), type = s ? s : t;
    if (!gd_values_lie_alike(x, y) || (s && t && s != t)) return;
    if (!can_pass_values(f, a, a, b, type) || !can_pass_values(f, b, a, b, type)) return;
    if (!gd_fuse_fits(f, a, b, type, count) || gd_fuse_forms_cycle(f, a, b)) return;
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
    return (axes >> last & 1) && gd_value_elements(x) <= f->rules->short_row * gd_value_elements(y);
}

/* A reduction joins the group that computes its operand, unless other steps read the operand, too:
 * it is in memory then, and storing it in the order of the reduction costs more than reading it
 * again. */
static void try_to_reduce(gd_fuse *f, int step) {
    const int value = f->p->steps[step].in[0], producer = f->producer[value];
    if (producer < 0 || f->steps[producer].kind != GD_FUSE_EACH) return;
    const int a = f->steps[producer].group;
    if (!gd_fuse_always() && (is_read_outside(f, value, a, step) || reduces_short_rows(f, step)))
        return;
    const gd_dtype type = gd_fuse_type(f, a);
    if ((type != GD_F32 && type != GD_F64) || has_reduction(f, a) ||
        !gd_fuse_can_pass(f, value, type))
        return;
    if (!gd_fuse_fits(f, a, step, type, gd_value_elements(&f->p->values[value])) ||
        gd_fuse_forms_cycle(f, a, step))
        return;
    gd_fuse_unite(f, a, step);
}

void gd_fuse_dissolve(gd_fuse *f, int group) {
    drop_gate(f);
    for (int m = group, next; m >= 0; m = next) {
        next = f->steps[m].next;
        f->steps[m].group = m;
        f->steps[m].next = -1;
        f->steps[m].row_axes = 0;
    }
}

static void dissolve_slow_groups(gd_fuse *f) {
    for (int i = 0; i < f->p->n_steps; i++)
        if (f->steps[i].group == i && f->steps[i].next >= 0 && !gd_fuse_is_worth(f, i))
            gd_fuse_dissolve(f, i);
}

/* --- siblings --------------------------------------------------------------------------------- */

/* Whether the step reads no tensors but those that `other` reads. */
static bool reads_no_others(const gd_fuse *f, int step, int other) {
    const gd_pstep *s = &f->p->steps[step];
    const int64_t count = gd_value_elements(&f->p->values[s->out[0]]);
    int shared = 0;
    double number;
    for (int k = 0; k < s->n_in; k++) {
        const int value = s->in[k];
        if (gd_fuse_constant(f, value, &number) ||
            gd_fuse_is_scalar(f, value, f->steps[step].type, count))
            continue;
        bool found = false;
        for (int i = 0; i < f->p->steps[other].n_in; i++)
            found = found || f->p->steps[other].in[i] == value;
        if (!found) return false;
        shared++;
    }
    return shared > 0;
}

/* The terms of a loss are only reduced, and their gradient reads the same operands without needing
 * the loss. Where each kernel call has a fixed cost, one kernel computes both. */
static void try_to_join_sibling(gd_fuse *f, int reduction) {
    const int terms = f->producer[f->p->steps[reduction].in[0]];
    if (f->device->api->host_reads || terms < 0 || f->steps[terms].kind != GD_FUSE_EACH ||
        f->steps[terms].group != terms || f->steps[terms].next >= 0 ||
        is_read_outside(f, f->p->steps[reduction].in[0], terms, reduction))
        return;
    for (int i = 0; i < f->p->n_steps; i++) {
        const gd_fuse_step *s = &f->steps[i];
        if (i == terms || s->kind != GD_FUSE_EACH || s->group != i || s->next >= 0 ||
            !reads_no_others(f, i, terms))
            continue;
        try_to_join(f, terms, i);
        return;
    }
}

/* --- members that move to another group ------------------------------------------------------- */

/* The only other group that reads a step's result; -1: there is none, or several. */
static int find_only_reader(const gd_fuse *f, int step) {
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

/* Whether moving a step to another group adds at most one operand to it, in place of the step's
 * result. */
static bool is_cheaper_there(const gd_fuse *f, int step, int group) {
    const gd_pstep *s = &f->p->steps[step];
    const int64_t count = gd_value_elements(&f->p->values[s->out[0]]);
    int more = 0;
    double number;
    for (int k = 0; k < s->n_in; k++) {
        const int value = s->in[k], producer = f->producer[value];
        if (gd_fuse_constant(f, value, &number) ||
            gd_fuse_is_scalar(f, value, f->steps[step].type, count))
            continue;
        bool repeated = is_read_by(f, value, group);
        for (int b = 0; b < k; b++) repeated |= s->in[b] == value;
        more += !repeated;
        if (producer < 0 || f->steps[producer].group != f->steps[step].group) continue;
        /* computed in the group that the step leaves: another group must read it from memory */
        bool wanted = f->kept[f->p->values[value].root];
        for (int u = 0; u < f->steps[producer].n_users; u++) {
            const int to = f->users[f->steps[producer].first_user + u];
            wanted |= f->steps[to].group != f->steps[step].group && is_read_by(f, value, to);
        }
        if (!wanted) return false;
    }
    return more <= 1;
}

static void detach_member(gd_fuse *f, int step) {
    int group = f->steps[step].group;
    drop_gate(f);
    if (group == step) { /* the group gets the number of its next member */
        const int head = f->steps[step].next;
        for (int m = head; m >= 0; m = f->steps[m].next) f->steps[m].group = head;
    } else {
        while (f->steps[group].next != step) group = f->steps[group].next;
        f->steps[group].next = f->steps[step].next;
    }
    f->steps[step].group = step;
    f->steps[step].next = -1;
}

/* Moves a member whose result only another group reads to that group, if that saves a store. The
 * other group comes later anyway, so no cycle can form. */
static void try_to_move(gd_fuse *f, int step) {
    const gd_pstep *s = &f->p->steps[step];
    const int from = f->steps[step].group, mate = from == step ? f->steps[step].next : from;
    if (mate < 0 || s->n_out != 1) return;
    const int to = find_only_reader(f, step);
    if (to < 0 || !is_cheaper_there(f, step, to)) return;
    const gd_pvalue *x, *y;
    const int64_t count = get_shape(f, step, &x);
    get_shape(f, to, &y);
    const gd_dtype type = gd_fuse_type(f, to);
    if (!gd_values_lie_alike(x, y) || !type || type != f->steps[step].type) return;
    detach_member(f, step);
    if (can_pass_values(f, to, to, step, type) && gd_fuse_fits(f, to, step, type, count))
        gd_fuse_unite(f, to, step);
    else gd_fuse_unite(f, f->steps[mate].group, step);
}

/* A single step becomes a fused step if the device has no kernel for it, such as derivatives of
 * derivatives and ops that a program defines. */
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
            const int producer = f->producer[p->steps[i].in[k]];
            if (producer >= 0 && f->steps[producer].kind == GD_FUSE_EACH)
                try_to_join(f, producer, i);
        }
    }
    for (int i = p->n_steps; i-- > 0;)
        if (f->steps[i].kind == GD_FUSE_EACH) try_to_move(f, i);
    if (f->rules->rows) gd_fuse_rows(f);
    for (int i = 0; f->rules->reductions && i < p->n_steps; i++)
        if (f->steps[i].kind == GD_FUSE_REDUCTION && f->steps[i].group == i &&
            f->steps[i].next < 0) {
            try_to_join_sibling(f, i);
            try_to_reduce(f, i);
        }
    dissolve_slow_groups(f);
    for (int i = 0; i < p->n_steps; i++) groups += gd_fuse_is_group(f, i);
    return groups;
}
