/* remat_apply.c - changes a program to follow a schedule (remat.h).
 *
 * A repeated step becomes a new step with new results, which later readers read. View steps of
 * those results are repeated where the views are read.
 */
#include <string.h>

#include "core/alloc.h"
#include "graph/passes/remat.h"

typedef struct schedule_writer {
    gd_program *p;
    gd_pstep *steps; /* the new steps */
    int count, room;
    int *root;    /* per old root: the root of its latest results */
    int *value;   /* per old value: the value that currently stands for it */
    int *view_of; /* per old value: the view step that has it as a result; -1: none */
} schedule_writer;

static gd_pstep *add_new_step(schedule_writer *a) {
    if (a->count == a->room) {
        const int larger = a->room ? 2 * a->room : 64;
        gd_pstep *grown = gd_realloc(a->steps, (size_t)larger * sizeof *grown);
        if (!grown) {
            gd_no_memory(NULL, "to plan a run");
            return NULL;
        }
        a->steps = grown;
        a->room = larger;
    }
    return &a->steps[a->count++];
}

/* The value that stands for an old value now, in the latest results of its root; -1: no memory. */
static int get_latest_value(schedule_writer *a, int v) {
    gd_program *p = a->p;
    if (v < 0) return v;
    const int root = a->root[p->values[v].root];
    if (p->values[a->value[v]].root == root) return a->value[v];
    gd_pvalue copy = p->values[v];
    copy.root = root;
    const int made = gd_program_value(p, copy);
    if (made < 0) return -1;
    a->value[v] = made;
    if (a->view_of[v] < 0) return made;
    const gd_pstep *old =
        &p->steps[a->view_of[v]]; /* repeat the view step, for the text of the plan */
    int *ids = gd_program_alloc(p, (size_t)(old->n_in + old->n_out + 1) * sizeof *ids);
    if (!ids) return -1;
    gd_pstep view = *old;
    view.in = ids;
    view.out = ids + old->n_in;
    for (int k = 0; k < old->n_in; k++) {
        ids[k] = get_latest_value(a, old->in[k]);
        if (old->in[k] >= 0 && ids[k] < 0) return -1;
    }
    for (int k = 0; k < old->n_out; k++)
        view.out[k] = old->out[k] == v  ? made
                      : old->out[k] < 0 ? old->out[k]
                                        : GD_UNWANTED(old->out[k]);
    gd_pstep *s = add_new_step(a);
    if (!s) return -1;
    *s = view;
    return made;
}

/* Gives the results of a repeated step new roots. */
static gd_status add_new_results(schedule_writer *a, gd_pstep *s, const gd_pstep *old) {
    gd_program *p = a->p;
    for (int k = 0; k < s->n_out; k++) {
        const int v = old->out[k];
        if (v < 0) continue;
        const int root = p->values[v].root;
        bool done = false; /* an input that it updates, or the root of an earlier result */
        for (int l = 0; l < old->n_in; l++)
            done |= old->in[l] >= 0 && p->values[old->in[l]].root == root;
        for (int l = 0; l < k; l++) done |= old->out[l] >= 0 && p->values[old->out[l]].root == root;
        if (!done) {
            const int fresh = gd_program_root(
                p, (gd_root){.kind = GD_ROOT_TEMPORARY, .bytes = p->roots[root].bytes});
            if (fresh < 0) return GD_E_MEMORY;
            a->root[root] = fresh;
        }
        if ((s->out[k] = get_latest_value(a, v)) < 0) return GD_E_MEMORY;
    }
    return GD_OK;
}

static gd_status emit_step(schedule_writer *a, int number, bool repeated) {
    gd_program *p = a->p;
    const gd_pstep *old = &p->steps[number];
    int *ids = gd_program_alloc(p, (size_t)(old->n_in + old->n_out + 1) * sizeof *ids);
    if (!ids) return GD_E_MEMORY;
    gd_pstep s = *old;
    s.in = ids;
    s.out = ids + old->n_in;
    memcpy(s.out, old->out, (size_t)old->n_out * sizeof *s.out);
    for (int k = 0; k < s.n_in; k++) {
        s.in[k] = get_latest_value(a, old->in[k]);
        if (old->in[k] >= 0 && s.in[k] < 0) return GD_E_MEMORY;
    }
    if (repeated) GD_TRY(add_new_results(a, &s, old));
    gd_pstep *slot = add_new_step(a);
    if (!slot) return GD_E_MEMORY;
    *slot = s;
    return GD_OK;
}

gd_status gd_remat_apply(const gd_remat_model *m, const gd_remat_schedule *s) {
    gd_program *p = m->p;
    schedule_writer a = {.p = p};
    a.root = gd_malloc(((size_t)p->n_roots + 1) * sizeof(int));
    a.value = gd_malloc(((size_t)p->n_values + 1) * sizeof(int));
    a.view_of = gd_malloc(((size_t)p->n_values + 1) * sizeof(int));
    bool *seen = gd_calloc((size_t)p->n_steps + 1, sizeof(bool));
    gd_status status =
        a.root && a.value && a.view_of && seen ? GD_OK : gd_no_memory(NULL, "to plan a run");
    for (int r = 0; r < p->n_roots && status == GD_OK; r++) a.root[r] = r;
    for (int v = 0; v < p->n_values && status == GD_OK; v++) a.value[v] = v, a.view_of[v] = -1;
    for (int i = 0; i < p->n_steps && status == GD_OK; i++)
        for (int k = 0; k < p->steps[i].n_out && p->steps[i].view; k++)
            if (p->steps[i].out[k] >= 0) a.view_of[p->steps[i].out[k]] = i;
    for (int j = 0; j < s->count && status == GD_OK; j++) {
        const int number = s->steps[j];
        if (p->steps[number].view) { /* a view of the first results stays where it is */
            gd_pstep *slot = add_new_step(&a);
            if (slot) *slot = p->steps[number];
            else status = GD_E_MEMORY;
            continue;
        }
        status = emit_step(&a, number, seen[number]);
        seen[number] = true;
    }
    gd_free(a.root);
    gd_free(a.value);
    gd_free(a.view_of);
    gd_free(seen);
    if (status != GD_OK) {
        gd_free(a.steps);
        return status;
    }
    p->steps = a.steps; /* the caller frees the old array */
    p->n_steps = a.count;
    p->steps_room = a.room;
    return GD_OK;
}
