/* list_updates.c - combines updates of variables into list steps: one kernel call for many
 * parameters.
 *
 * An optimizer's update is a step for each parameter: adam_step(p!, m!, v!, g, step, root, keep), or
 * for each layer: linear_step(w!, b!, gy, x, lr).
 * Where each kernel call has a fixed cost, as on a GPU, one call for all of them is much faster. A
 * list step has the operands of its entries one after the other, without the trailing scalars, and
 * then the scalars (see gd_each in dispatch/call.h):
 *
 *     in:  p0 m0 v0 g0  p1 m1 v1 g1 ...  step root keep
 *     out: p0 m0 v0  p1 m1 v1 ...
 *
 * A number is a tensor of rank 0 that all entries share, or one of rank 1 with an element for each
 * entry. The entries run where the last of them was, so gradients live until then; early_updates.c
 * does the opposite, for devices whose kernels cost little to call.
 */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "graph/passes/passes.h"
#include "dispatch/launch.h"

enum { MAX_ENTRIES = 1024 };

typedef struct update_list {
    gd_program *p;
    int *steps; /* members, in the order of the entries */
    int count;
    int n_scalars;    /* trailing inputs of rank 0 */
    unsigned *reads;  /* per root: the stamp of the list of which a member reads it */
    unsigned *writes; /* per root: the same for writes */
    unsigned stamp;
} update_list;

/* Whether the only results of a step are the operands that it updates, and views of them. */
static bool only_updates(const gd_program *p, const gd_pstep *s) {
    const int results = s->n_out - s->op->n_mutated;
    for (int k = 0; k < results; k++) {
        const int root = gd_value_root(p, s->out[k]);
        bool updated = root < 0;
        for (int i = results; i < s->n_out; i++)
            updated = updated || gd_value_root(p, s->out[i]) == root;
        if (!updated) return false;
    }
    return true;
}

static bool is_update(const gd_program *p, const gd_pstep *s) {
    return !s->removed && !s->view && !s->each && !s->op->fusion && !s->op->base &&
           s->op->n_mutated > 0 && s->n_in == s->op->n_inputs && only_updates(p, s);
}

/* The number of last inputs that have rank 0 and are not written. */
static int count_scalars(const gd_program *p, const gd_pstep *s) {
    int n = 0;
    while (n < s->n_in - 1) {
        const int k = s->n_in - 1 - n;
        if (s->in[k] < 0 || p->values[s->in[k]].rank != 0 || s->op->inputs[k].mutated) break;
        n++;
    }
    return n;
}

static bool is_up_to_f32(int dtype) {
    return dtype == GD_F32 || dtype == GD_F16 || dtype == GD_BF16;
}

/* Whether two updates have the same op, options and dtypes. Gradients may have any float dtype up to
 * that of the parameter, f32: the updates compute in f32 all the same. */
static bool are_alike(const gd_program *p, const gd_pstep *a, const gd_pstep *b) {
    if (a->op != b->op || !gd_same_options(a, b) || count_scalars(p, a) != count_scalars(p, b))
        return false;
    bool wide = false;
    for (int k = 0; k < a->n_in; k++)
        wide |= a->in[k] >= 0 && a->op->inputs[k].mutated && p->values[a->in[k]].dtype == GD_F32;
    for (int k = 0; k < a->n_in; k++) {
        if ((a->in[k] < 0) != (b->in[k] < 0)) return false;
        if (a->in[k] < 0) continue;
        const int first = p->values[a->in[k]].dtype, second = p->values[b->in[k]].dtype;
        if (first == second) continue;
        if (!wide || a->op->inputs[k].mutated || !is_up_to_f32(first) || !is_up_to_f32(second))
            return false;
    }
    return true;
}

/* --- members ---------------------------------------------------------------------------------- */

/* Whether a step cannot stay between members that are moved to a position after it. */
static bool conflicts(const update_list *l, const gd_pstep *s) {
    if (s->removed || s->view) return false;
    for (int k = 0; k < s->n_in; k++) {
        const int root = gd_value_root(l->p, s->in[k]);
        if (root >= 0 && l->writes[root] == l->stamp) return true;
    }
    for (int k = 0; k < s->n_out; k++) {
        const int root = gd_value_root(l->p, s->out[k]);
        if (root >= 0 && (l->writes[root] == l->stamp || l->reads[root] == l->stamp)) return true;
    }
    return false;
}

static void add_member(update_list *l, int at) {
    const gd_pstep *s = &l->p->steps[at];
    for (int k = 0; k < s->n_in; k++) {
        const int root = gd_value_root(l->p, s->in[k]);
        if (root >= 0) l->reads[root] = l->stamp;
    }
    for (int k = 0; k < s->n_out; k++) {
        const int root = gd_value_root(l->p, s->out[k]);
        if (root >= 0) l->writes[root] = l->stamp;
    }
    l->steps[l->count++] = at;
}

/* Collects the updates like step `first` that can run where the last of them is. */
static void collect_members(update_list *l, int first) {
    const gd_pstep *model = &l->p->steps[first];
    l->count = 0;
    l->stamp++;
    l->n_scalars = count_scalars(l->p, model);
    add_member(l, first);
    for (int i = first + 1; i < l->p->n_steps && l->count < MAX_ENTRIES; i++) {
        const gd_pstep *s = &l->p->steps[i];
        if (conflicts(l, s)) break;
        if (is_update(l->p, s) && are_alike(l->p, model, s)) add_member(l, i);
    }
}

/* --- scalars ---------------------------------------------------------------------------------- */

static const gd_pvalue *scalar_of(const update_list *l, int entry, int number) {
    const gd_pstep *s = &l->p->steps[l->steps[entry]];
    return &l->p->values[s->in[s->n_in - l->n_scalars + number]];
}

/* Sorts the entries by the offset of the number, so that elements of one tensor are in order. */
static void sort_by_scalar(update_list *l, int number) {
    for (int i = 1; i < l->count; i++)
        for (int k = i;
             k > 0 && scalar_of(l, k, number)->offset < scalar_of(l, k - 1, number)->offset; k--) {
            const int step = l->steps[k];
            l->steps[k] = l->steps[k - 1];
            l->steps[k - 1] = step;
        }
}

/* The value of rank 0 or 1 with the number of each entry; -1: the scalars are not evenly spaced
 * elements of one tensor, or no memory. */
static int combine_scalar(update_list *l, int number) {
    gd_pvalue v = *scalar_of(l, 0, number);
    const int64_t step = scalar_of(l, 1, number)->offset - v.offset;
    for (int i = 1; i < l->count; i++) {
        const gd_pvalue *other = scalar_of(l, i, number);
        if (other->root != v.root || other->offset != v.offset + i * step) return -1;
    }
    if (step == 0) { /* shared */
        const gd_pstep *s = &l->p->steps[l->steps[0]];
        return s->in[s->n_in - l->n_scalars + number];
    }
    v.rank = 1;
    v.dims[0] = l->count;
    v.strides[0] = step;
    return gd_program_value(l->p, v);
}

/* --- the list step ---------------------------------------------------------------------------- */

static gd_pstep make_list_step(update_list *l) {
    const gd_pstep *model = &l->p->steps[l->steps[0]];
    const int width = model->n_in - l->n_scalars, written = model->op->n_mutated;
    gd_pstep made = {.op = model->op,
                     .attrs = model->attrs,
                     .node = model->node,
                     .each = l->count,
                     .n_in = l->count * width + l->n_scalars,
                     .n_out = l->count * written};
    made.in = gd_program_alloc(l->p, (size_t)(made.n_in + made.n_out) * sizeof *made.in);
    if (!made.in) return (gd_pstep){.removed = true};
    made.out = made.in + made.n_in;
    for (int i = 0; i < l->count; i++) {
        const gd_pstep *s = &l->p->steps[l->steps[i]];
        memcpy(made.in + i * width, s->in, (size_t)width * sizeof *s->in);
        memcpy(made.out + i * written, s->out + s->n_out - written,
               (size_t)written * sizeof *s->out); /* after the outputs, which are views of them */
    }
    for (int k = 0; k < l->n_scalars; k++)
        if ((made.in[l->count * width + k] = combine_scalar(l, k)) < 0)
            return (gd_pstep){.removed = true};
    return made;
}

/* Replaces the members by a list step. False: the device has no kernel for it, or the scalars
 * cannot be combined. */
static bool combine_members(update_list *l, gd_device *device) {
    int last = 0;
    for (int i = 0; i < l->count; i++)
        if (l->steps[i] > last) last = l->steps[i];
    for (int k = 0; k < l->n_scalars; k++)
        if (scalar_of(l, 0, k)->offset != scalar_of(l, l->count - 1, k)->offset) {
            sort_by_scalar(l, k);
            break;
        }
    const gd_pstep made = make_list_step(l);
    if (made.removed || !gd_step_kernel(l->p, &made, device)) return false;
    for (int i = 0; i < l->count; i++) l->p->steps[l->steps[i]].removed = true;
    l->p->steps[last] = made;
    return true;
}

gd_status gd_pass_list_updates(gd_rewrite *r) {
    gd_program *p = r->program;
    const size_t roots = (size_t)p->n_roots + 1;
    update_list l = {.p = p,
                     .steps = gd_malloc(MAX_ENTRIES * sizeof *l.steps),
                     .reads = gd_calloc(2 * roots, sizeof *l.reads)};
    const gd_status status = l.steps && l.reads ? GD_OK : gd_no_memory(NULL, "to plan a run");
    l.writes = l.reads + roots;
    for (int i = 0; i < p->n_steps && status == GD_OK; i++) {
        if (!is_update(p, &p->steps[i])) continue;
        collect_members(&l, i);
        if (l.count > 1) r->changes += combine_members(&l, r->device);
    }
    gd_free(l.steps);
    gd_free(l.reads);
    return status;
}
