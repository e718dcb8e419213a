/* list_casts.c - combines casts of parameters into list steps: one kernel call for many tensors.
 *
 * Autocast casts the parameters of all layers at each run, one small call for each. They are known
 * when the run begins, so one call can convert all of them where the first cast is:
 *
 *     in:  w0 w1 w2 ...
 *     out: c0 c1 c2 ...
 *
 * The results live longer than before, so a plan with a memory limit has no such lists. See
 * list_updates.c for list steps.
 */
#include "core/alloc.h"
#include "graph/lower/program.h"
#include "ops/launch.h"

enum { MOST_ENTRIES = 1024 };

typedef struct cast_list {
    gd_program *p;
    int *steps; /* members */
    int count;
    bool *written; /* per root: a step writes it */
} cast_list;

/* Whether the step converts a parameter that no step writes to another dtype. */
static bool is_parameter_cast(const cast_list *l, const gd_pstep *s) {
    const gd_program *p = l->p;
    if (s->removed || s->view || s->each || !gd_op_copies(s->op) || s->n_in != 1 || s->n_out != 1 ||
        s->in[0] < 0 || s->out[0] < 0)
        return false;
    const gd_pvalue *from = &p->values[s->in[0]], *to = &p->values[s->out[0]];
    const gd_root_kind kind = p->roots[from->root].kind;
    return (kind == GD_ROOT_VARIABLE || kind == GD_ROOT_CAPTURED) && !l->written[from->root] &&
           from->dtype != to->dtype && gd_value_is_row_major(from) &&
           gd_root_is_temporary(p, to->root) && gd_value_covers_root(p, to);
}

static bool are_alike(const gd_program *p, const gd_pstep *a, const gd_pstep *b) {
    return a->op == b->op && p->values[a->in[0]].dtype == p->values[b->in[0]].dtype &&
           p->values[a->out[0]].dtype == p->values[b->out[0]].dtype;
}

static void find_written_roots(cast_list *l) {
    for (int i = 0; i < l->p->n_steps; i++) {
        const gd_pstep *s = &l->p->steps[i];
        for (int k = 0; k < s->n_out && !s->removed && !s->view; k++)
            if (s->out[k] >= 0) l->written[l->p->values[s->out[k]].root] = true;
    }
}

static void collect_casts(cast_list *l, int first) {
    l->count = 0;
    for (int i = first; i < l->p->n_steps && l->count < MOST_ENTRIES; i++) {
        const gd_pstep *s = &l->p->steps[i];
        if (is_parameter_cast(l, s) && are_alike(l->p, &l->p->steps[first], s))
            l->steps[l->count++] = i;
    }
}

/* Replaces the members by a list step where the first of them is. False: the device has no kernel
 * for it. */
static bool combine_casts(cast_list *l, gd_device *device) {
    gd_program *p = l->p;
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
    if (!gd_step_kernel(p, &made, device)) return false;
    for (int i = 0; i < l->count; i++) p->steps[l->steps[i]].removed = true;
    p->steps[l->steps[0]] = made;
    return true;
}

int gd_pass_list_casts(gd_program *p, gd_device *device) {
    if (device->api->host_reads || !gd_list_kernel_exists(device->api->kind)) return 0;
    cast_list l = {.p = p,
                   .steps = gd_malloc(MOST_ENTRIES * sizeof *l.steps),
                   .written = gd_calloc((size_t)p->n_roots + 1, sizeof *l.written)};
    int lists = 0;
    if (!l.steps || !l.written) {
        gd_no_memory(NULL, "to plan a run");
        lists = -1;
    } else {
        find_written_roots(&l);
    }
    for (int i = 0; i < p->n_steps && lists >= 0; i++) {
        if (!is_parameter_cast(&l, &p->steps[i])) continue;
        collect_casts(&l, i);
        if (l.count > 1) lists += combine_casts(&l, device);
    }
    gd_free(l.steps);
    gd_free(l.written);
    return lists;
}
