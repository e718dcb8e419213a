/* list_copies.c - combines copies into list steps: one kernel call for many small tensors.
 *
 * Where each kernel call has a fixed cost, as on a GPU, a plan of a deep net spends much of its time
 * in copies of a few kilobytes. Two kinds are combined:
 *
 * - Copies of variables that steps write: the running statistics of batch norms. If a later step may
 *   fail, a step must not write the variable itself, so it writes a copy, which is committed at the
 *   end. All of these copies are taken where the first one is.
 * - Casts of gradients for a list of updates (list_updates.c). They run where the last one is.
 *
 * Variables are here also captured tensors. See list_updates.c for list steps.
 */
#include "core/alloc.h"
#include "graph/lower/program.h"
#include "ops/launch.h"

enum { MOST_ENTRIES = 1024 };

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

/* --- copies of variables ---------------------------------------------------------------------- */

/* The first step after `from` that writes the root; n_steps: none. */
static int find_next_write(const gd_program *p, int root, int from) {
    for (int i = from + 1; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].n_out && !p->steps[i].removed && !p->steps[i].view; k++)
            if (gd_value_root(p, p->steps[i].out[k]) == root) return i;
    return p->n_steps;
}

/* Whether the step copies a variable, and the copy is written before a step that may fail. */
static bool copies_variable(const copy_list *l, int at) {
    const gd_program *p = l->p;
    const gd_pstep *s = &p->steps[at];
    if (!is_copy(s) || !gd_step_copies(p, s)) return false;
    const gd_root_kind kind = p->roots[p->values[s->in[0]].root].kind;
    const int root = p->values[s->out[0]].root;
    return (kind == GD_ROOT_VARIABLE || kind == GD_ROOT_CAPTURED) &&
           l->writes[p->values[s->in[0]].root] == 0 && l->writes[root] == 2 &&
           gd_root_is_temporary(p, root) && find_next_write(p, root, at) < l->last_risk;
}

/* --- casts of gradients ----------------------------------------------------------------------- */

/* Whether only list step `update` reads the result of the cast. */
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

static int list_variables(copy_list *l) {
    const gd_program *p = l->p;
    int lists = 0;
    for (int i = 0; i < p->n_steps; i++) {
        if (!copies_variable(l, i)) continue;
        l->count = 0;
        for (int k = i; k < p->n_steps && l->count < MOST_ENTRIES; k++)
            if (copies_variable(l, k) && are_alike(p, &p->steps[i], &p->steps[k]))
                l->steps[l->count++] = k;
        lists += combine_members(l, 0);
    }
    return lists;
}

static int list_gradients(copy_list *l, int update) {
    const gd_program *p = l->p;
    int lists = 0;
    for (int i = 0; i < update; i++) {
        if (!casts_gradient(l, i, update)) continue;
        l->count = 0;
        for (int k = i; k < update && l->count < MOST_ENTRIES; k++)
            if (casts_gradient(l, k, update) && are_alike(p, &p->steps[i], &p->steps[k]))
                l->steps[l->count++] = k;
        lists += combine_members(l, l->count - 1);
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
    l->steps = gd_malloc(MOST_ENTRIES * sizeof *l->steps);
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

int gd_pass_list_copies(gd_program *p, gd_device *device) {
    if (device->api->host_reads || !gd_list_kernel_exists(device->api->kind)) return 0;
    copy_list l = {.p = p, .device = device};
    const gd_status status = init_list(&l);
    int lists = 0;
    if (status == GD_OK) {
        lists = list_variables(&l);
        for (int i = 0; i < p->n_steps; i++)
            if (p->steps[i].each && !p->steps[i].removed && p->steps[i].op->n_mutated > 0)
                lists += list_gradients(&l, i);
    }
    gd_free(l.risks);
    gd_free(l.readers);
    gd_free(l.writes);
    gd_free(l.reader);
    gd_free(l.steps);
    return status == GD_OK ? lists : -1;
}
