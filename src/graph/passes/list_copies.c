/* list_copies.c - combines copies into list steps: one kernel call for many tensors.
 *
 * Where each kernel call has a fixed cost, as on a GPU, a plan of a deep net spends much of its
 * time in copies of a few kilobytes. Three kinds are combined:
 *
 * - Casts of parameters, which autocast adds for each layer. They are known when the run begins, so
 *   one call converts all of them where the first cast is.
 * - Copies of variables that steps write: the running statistics of batch norms. If a later step
 *   may fail, a step must not write the variable itself, so it writes a copy, which is committed at
 *   the end. All of these copies are made where the first one is.
 * - Casts of gradients for a list of updates (list_updates.c). They run where the last one is.
 *
 * Results of the first two kinds live longer than before, so a plan with a memory limit has no such
 * lists. Variables are here also captured tensors. See list_updates.c for list steps.
 */
#include "core/alloc.h"
#include "graph/passes/passes.h"
#include "dispatch/launch.h"

enum { MAX_ENTRIES = 1024 };

typedef struct copy_list {
    gd_program *p;
    gd_device *device;
    bool *risks;   /* per step: it may fail */
    int *readers;  /* per root */
    int *writes;   /* per root */
    int *reader;   /* per root: the last step that reads it; -1: none */
    int *steps;    /* members */
    int count;     /* of members */
    int last_risk; /* the last step that may fail; -1: none */
} copy_list;

static bool is_copy(const gd_pstep *s) {
    return !s->removed && !s->view && !s->each && gd_op_copies(s->op) && s->n_in == 1 &&
           s->n_out == 1 && s->in[0] >= 0 && s->out[0] >= 0;
}

/* Whether the step copies a variable that no step writes. */
static bool reads_variable(const copy_list *l, const gd_pstep *s) {
    if (!is_copy(s)) return false;
    const int root = l->p->values[s->in[0]].root;
    const gd_root_kind kind = l->p->roots[root].kind;
    return (kind == GD_ROOT_VARIABLE || kind == GD_ROOT_CAPTURED) && l->writes[root] == 0;
}

/* --- members ---------------------------------------------------------------------------------- */

/* Whether step `at` belongs to a list before step `end`. */
typedef bool (*member_rule)(const copy_list *l, int at, int end);

static bool casts_parameter(const copy_list *l, int at, int end) {
    const gd_program *p = l->p;
    const gd_pstep *s = &p->steps[at];
    (void)end;
    if (!reads_variable(l, s)) return false;
    const gd_pvalue *from = &p->values[s->in[0]], *to = &p->values[s->out[0]];
    return from->dtype != to->dtype && gd_value_is_row_major(from) &&
           gd_root_is_temporary(p, to->root) && gd_value_covers_root(p, to);
}

/* The first step after `from` that writes the root; n_steps: none. */
static int find_next_write(const gd_program *p, int root, int from) {
    for (int i = from + 1; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_out && !p->steps[i].removed && !p->steps[i].view; k++)
            if (gd_value_root(p, p->steps[i].out[k]) == root) return i;
    return p->n_steps;
}

/* The copy of a variable is written before a step that may fail. */
static bool copies_variable(const copy_list *l, int at, int end) {
    const gd_program *p = l->p;
    const gd_pstep *s = &p->steps[at];
    (void)end;
    if (!reads_variable(l, s) || !gd_step_copies(p, s)) return false;
    const int root = p->values[s->out[0]].root;
    return l->writes[root] == 2 && gd_root_is_temporary(p, root) &&
           find_next_write(p, root, at) < l->last_risk;
}

/* Only list step `update` reads the result of the cast. */
static bool casts_gradient(const copy_list *l, int at, int update) {
    const gd_program *p = l->p;
    const gd_pstep *s = &p->steps[at];
    if (!is_copy(s)) return false;
    const int from = p->values[s->in[0]].root, to = p->values[s->out[0]].root;
    return gd_root_is_temporary(p, from) && gd_root_is_temporary(p, to) && l->writes[from] == 1 &&
           l->writes[to] == 1 && l->readers[to] == 1 && l->reader[to] == update;
}

/* --- list steps ------------------------------------------------------------------------------- */

static bool are_alike(const gd_program *p, const gd_pstep *a, const gd_pstep *b) {
    return a->op == b->op && p->values[a->in[0]].dtype == p->values[b->in[0]].dtype &&
           p->values[a->out[0]].dtype == p->values[b->out[0]].dtype;
}

/* Replaces the members by a list step in the place of member `at`. False: there are too few, or the
 * device has no kernel for it. */
static bool combine_members(copy_list *l, int at) {
    gd_program *p = l->p;
    if (l->count < 2) return false;
    const gd_pstep *model = &p->steps[l->steps[0]];
    int *values = gd_program_alloc(p, 2 * (size_t)l->count * sizeof *values);
    if (!values) return false;
    const gd_pstep made = {.op = model->op,
                           .attrs = model->attrs,
                           .node = model->node,
                           .each = l->count,
                           .n_in = l->count,
                           .n_out = l->count,
                           .in = values,
                           .out = values + l->count};
    for (int i = 0; i < l->count; i++) {
        made.in[i] = p->steps[l->steps[i]].in[0];
        made.out[i] = p->steps[l->steps[i]].out[0];
    }
    if (!gd_step_kernel(p, &made, l->device)) return false;
    for (int i = 0; i < l->count; i++) p->steps[l->steps[i]].removed = true;
    p->steps[l->steps[at]] = made;
    return true;
}

/* Combines the steps before `end` that follow the rule, where the first or the last of them is.
 * Returns the number of lists. */
static int combine_copies(copy_list *l, member_rule rule, int end, bool at_last) {
    const gd_program *p = l->p;
    int lists = 0;
    for (int i = 0; i < end; i++) {
        if (!rule(l, i, end)) continue;
        l->count = 0;
        for (int k = i; k < end && l->count < MAX_ENTRIES; k++)
            if (rule(l, k, end) && are_alike(p, &p->steps[i], &p->steps[k]))
                l->steps[l->count++] = k;
        lists += combine_members(l, at_last ? l->count - 1 : 0);
    }
    return lists;
}

/* --- the pass --------------------------------------------------------------------------------- */

static gd_status init_list(copy_list *l) {
    const gd_program *p = l->p;
    l->risks = gd_program_risks(p);
    l->readers = gd_program_readers(p);
    l->writes = gd_program_writes(p);
    l->reader = gd_malloc(((size_t)p->n_roots + 1) * sizeof *l->reader);
    l->steps = gd_malloc(MAX_ENTRIES * sizeof *l->steps);
    if (!l->risks || !l->readers || !l->writes || !l->reader || !l->steps)
        return gd_no_memory(NULL, "to plan a run");
    l->last_risk = -1;
    for (int r = 0; r < p->n_roots; r++) l->reader[r] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        if (l->risks[i]) l->last_risk = i;
        for (int k = 0; k < s->n_in && !s->removed && !s->view; k++)
            if (s->in[k] >= 0) l->reader[p->values[s->in[k]].root] = i;
    }
    return GD_OK;
}

gd_status gd_pass_list_copies(gd_rewrite *r) {
    const gd_program *p = r->program;
    copy_list l = {.p = r->program, .device = r->device};
    const gd_status status = init_list(&l);
    if (status == GD_OK) {
        r->changes += combine_copies(&l, casts_parameter, p->n_steps, false) +
                      combine_copies(&l, copies_variable, p->n_steps, false);
        for (int i = 0; i < p->n_steps; i++)
            if (p->steps[i].each && !p->steps[i].removed && p->steps[i].op->n_mutated > 0)
                r->changes += combine_copies(&l, casts_gradient, i, true);
    }
    gd_free(l.risks);
    gd_free(l.readers);
    gd_free(l.writes);
    gd_free(l.reader);
    gd_free(l.steps);
    return status;
}
