/* fold_norm.c - folds a batch norm into the weights of the convolution or linear layer before it.
 *
 * Outside of training, batch norm multiplies each channel by a number and adds another. A
 * convolution with scaled weights and a shifted bias does the same. A record with `folds` names the
 * op that computes those weights. Weights may change between runs, so they are computed in each
 * run, which pays if there are fewer weights than results. The convolution that remains can take a
 * relu as its epilogue (passes/epilogue.c).
 */
#include <string.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "core/tensor.h"
#include "graph/passes/epilogue.h"

enum { LEAST_RESULTS_PER_WEIGHT = 2 };

/* --- copies of variables ---------------------------------------------------------------------- */

/* The state of the pass. */
typedef struct norm_fold {
    gd_program *p;
    gd_device *device;
    int *readers, *writes;
    gd_uses uses;
    int *commit_of;   /* for each root: its commit; -1: none */
    bool *dropped;    /* per commit */
    gd_pstep *before; /* per step: a step to insert before it; without op: none */
} norm_fold;

static bool is_written(const norm_fold *n, int root, int but, int but_too) {
    return gd_uses_writes(&n->uses, root, 0, but, but_too) ||
           gd_uses_writes(&n->uses, root, but + 1, n->p->n_steps, but_too);
}

/* A variable that an op may write is copied first, and the copy is committed at the end. If neither
 * the op at `at` nor another step writes the copy, returns the variable instead of the copy, and
 * drops the commit. */
static int skip_variable_copy(norm_fold *n, int value, int at) {
    const gd_program *p = n->p;
    const int root = p->values[value].root, producer = gd_uses_producer(&n->uses, value, at);
    if (producer < 0 || !gd_step_copies(p, &p->steps[producer]) ||
        is_written(n, root, producer, at))
        return value;
    const int from = p->steps[producer].in[0], commit = n->commit_of[p->values[from].root];
    if (commit >= 0 && p->values[p->commits[commit].value].root == root) n->dropped[commit] = true;
    return from;
}

/* --- the steps -------------------------------------------------------------------------------- */

/* Adds a value of the same shape in a new root; -1: no memory. */
static int add_value_like(gd_program *p, int value) {
    gd_pvalue v = p->values[value];
    size_t bytes;
    if (gd_dims_bytes(v.rank, v.dims, (gd_dtype)v.dtype, &bytes) != GD_OK) return -1;
    v.root = gd_program_root(p, (gd_root){.kind = GD_ROOT_TEMPORARY, .bytes = bytes});
    v.offset = 0;
    gd_row_major(v.rank, v.dims, v.strides);
    return v.root < 0 ? -1 : gd_program_value(p, v);
}

/* Whether only the first output of the step is used. */
static bool has_one_result(const gd_pstep *outer) {
    for (int k = 1; k < outer->op->n_outputs; k++)
        if (outer->out[k] >= 0) return false;
    return outer->out[0] >= 0;
}

/* Makes the step that computes the folded weight and bias. The bias of `inner` may be absent; the
 * folded bias is always there. False: the fold is not possible, or does not pay. */
static bool make_fold_step(gd_program *p, const gd_op *op, const gd_pstep *inner,
                           const gd_pstep *outer, gd_device *device, gd_pstep *made) {
    const gd_op_fuses *f = &op->facts.folds;
    *made = (gd_pstep){.op = op, .node = outer->node, .n_out = op->n_outputs};
    made->in =
        gd_program_alloc(p, ((size_t)op->n_inputs + (size_t)op->n_outputs) * sizeof *made->in);
    if (!made->in) return false;
    made->out = made->in + op->n_inputs;
    for (int i = 0; i < op->n_inputs; i++) made->in[i] = -1;
    if (!gd_take_operands(inner, f->inner_in, f->n_inner, made->in, &made->n_in) ||
        !gd_take_operands(outer, f->outer_in, f->n_outer, made->in, &made->n_in) ||
        !gd_take_options(p, op, NULL, outer, &made->attrs) || made->in[0] < 0)
        return false;
    const gd_pvalue *w = &p->values[made->in[0]], *y = &p->values[outer->out[0]];
    if (w->rank != y->rank ||
        LEAST_RESULTS_PER_WEIGHT * gd_value_elements(w) > gd_value_elements(y))
        return false;
    made->out[0] = add_value_like(p, made->in[0]);
    made->out[1] = add_value_like(p, outer->in[f->n_outer - 1]); /* one value per channel */
    return made->out[0] >= 0 && made->out[1] >= 0 && gd_step_can_run(p, made, device);
}

/* Makes the inner step with the folded weights; its result is that of the outer step. */
static bool make_inner_step(gd_program *p, const gd_op_fuses *f, const gd_pstep *inner,
                            const gd_pstep *outer, const gd_pstep *folded, gd_device *device,
                            gd_pstep *made) {
    *made = *inner;
    made->n_in = f->n_inner;
    made->in = gd_program_alloc(p, ((size_t)f->n_inner + 1) * sizeof *made->in);
    if (!made->in) return false;
    made->out = made->in + f->n_inner;
    made->out[0] = outer->out[0];
    for (int k = 0; k < f->n_inner; k++)
        made->in[k] = f->inner_in[k] < 0 ? inner->in[k] : folded->out[f->inner_in[k]];
    return gd_step_can_run(p, made, device);
}

/* The inner step moves to a later position, so no step may write its inputs. */
static bool inputs_are_constant(const gd_program *p, const gd_pstep *inner, const int *writes) {
    for (int k = 0; k < inner->n_in; k++)
        if (inner->in[k] >= 0 &&
            writes[p->values[inner->in[k]].root] >
                (p->roots[p->values[inner->in[k]].root].kind == GD_ROOT_TEMPORARY))
            return false;
    return true;
}

static bool fold_into_weights(norm_fold *n, const gd_op *op, int at) {
    const gd_op_fuses *f = &op->facts.folds;
    gd_program *p = n->p;
    const int from = gd_inner_step(&n->uses, f, at, n->readers);
    if (from < 0 || !has_one_result(&p->steps[at]) ||
        !inputs_are_constant(p, &p->steps[from], n->writes))
        return false;
    gd_pstep folded, made;
    const gd_pstep *inner = &p->steps[from], *outer = &p->steps[at];
    if (!make_fold_step(p, op, inner, outer, n->device, &folded) ||
        !make_inner_step(p, f, inner, outer, &folded, n->device, &made))
        return false;
    for (int k = 0; k < f->n_outer; k++) {
        const int to = f->outer_in[k];
        if (to >= 0 && folded.in[to] >= 0 && outer->op->inputs[k].mutated)
            folded.in[to] = skip_variable_copy(n, folded.in[to], at);
    }
    p->steps[from].removed = true;
    p->steps[at] = made;
    gd_uses_add(&n->uses, at);
    n->before[at] = folded;
    return true;
}

/* Inserts the steps that compute the folded weights. */
static gd_status insert_steps(norm_fold *n, int count) {
    gd_program *p = n->p;
    const int n_steps = p->n_steps;
    for (int i = 0; i < count; i++)
        if (!gd_program_step(p)) return GD_E_MEMORY;
    for (int i = n_steps, to = p->n_steps; i-- > 0 && to > i + 1;) {
        p->steps[--to] = p->steps[i];
        if (n->before[i].op) p->steps[--to] = n->before[i];
    }
    return GD_OK;
}

static void drop_commits(const norm_fold *n) {
    gd_program *p = n->p;
    int kept = 0;
    for (int i = 0; i < p->n_commits; i++)
        if (!n->dropped[i]) p->commits[kept++] = p->commits[i];
    p->n_commits = kept;
}

static gd_status begin_fold(norm_fold *n) {
    const gd_program *p = n->p;
    n->readers = gd_program_readers(p);
    n->writes = gd_program_writes(p);
    n->commit_of = gd_malloc(((size_t)p->n_roots + 1) * sizeof *n->commit_of);
    n->dropped = gd_calloc((size_t)p->n_commits + 1, sizeof *n->dropped);
    n->before = gd_calloc((size_t)p->n_steps + 1, sizeof *n->before);
    if (!n->readers || !n->writes || !n->commit_of || !n->dropped || !n->before)
        return gd_no_memory(NULL, "to plan a run");
    for (int r = 0; r < p->n_roots; r++) n->commit_of[r] = -1;
    for (int i = 0; i < p->n_commits; i++) n->commit_of[p->commits[i].root] = i;
    return gd_uses_make(&n->uses, p);
}

static void free_fold(norm_fold *n) {
    gd_free(n->readers);
    gd_free(n->writes);
    gd_free(n->commit_of);
    gd_free(n->dropped);
    gd_free(n->before);
    gd_uses_free(&n->uses);
}

gd_status gd_pass_fold_norm(gd_rewrite *r) {
    gd_program *p = r->program;
    norm_fold n = {.p = p, .device = r->device};
    gd_status status = begin_fold(&n);
    const int known = p->n_roots;
    int folds = 0;
    for (int o = 0; status == GD_OK && o < gd_op_count(); o++) {
        const gd_op *op = gd_op_at(o);
        if (!op->facts.folds.outer) continue;
        for (int i = 0; i < p->n_steps; i++) {
            const gd_pstep *s = &p->steps[i];
            if (s->removed || strcmp(s->op->name, op->facts.folds.outer) != 0 ||
                p->values[s->in[0]].root >= known)
                continue;
            folds += fold_into_weights(&n, op, i);
        }
    }
    if (folds > 0) {
        drop_commits(&n);
        status = insert_steps(&n, folds);
    }
    if (status == GD_OK && n.uses.incomplete) status = gd_no_memory(NULL, "to plan a run");
    r->changes += folds;
    free_fold(&n);
    return status;
}
