/* fold_norm.c - a batch norm behind a convolution or a linear layer becomes part of its weights.
 *
 * Without training, batch norm multiplies each channel by a number and adds one. So does a convolution
 * whose weights and bias were multiplied and moved accordingly. Records say which op computes those
 * (`folds`). Weights may change from run to run, so that they are computed in each run, which pays
 * where there are fewer weights than results. What is left is a convolution, and relu behind it
 * becomes part of it, too (passes/epilogue.c).
 */
#include <string.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "core/tensor.h"
#include "graph/passes/epilogue.h"

enum { GAIN = 2 /* results for each weight, at least */ };

static int64_t elements(const gd_program *p, int value) {
    return gd_numel(p->values[value].rank, p->values[value].dims);
}

/* --- what an op without training writes ------------------------------------------------------- */

static bool is_written(const gd_program *p, int root, int but, int but_too) {
    for (int i = 0; i < p->n_steps; i++) {
        const gd_pstep *s = &p->steps[i];
        if (i == but || i == but_too || s->removed || s->view) continue;
        for (int k = 0; k < s->n_out; k++)
            if (s->out[k] >= 0 && p->values[s->out[k]].root == root) return true;
    }
    return false;
}

/* A variable that an op may write is copied first, and the copy becomes its value at the end. Where the
 * op at `at` does not write it, and nobody else does, the copy is the variable. */
static int read_directly(gd_program *p, int value, int at) {
    const int root = p->values[value].root, maker = gd_program_maker(p, value, at);
    if (maker < 0 || !gd_step_copies(p, &p->steps[maker]) || is_written(p, root, maker, at))
        return value;
    const int from = p->steps[maker].in[0];
    int kept = 0;
    for (int i = 0; i < p->n_commits; i++) {
        const gd_commit *c = &p->commits[i];
        if (p->values[c->value].root == root && c->root == p->values[from].root) continue;
        p->commits[kept++] = *c;
    }
    p->n_commits = kept;
    return from;
}

/* --- the steps -------------------------------------------------------------------------------- */

/* A value like another, in memory of its own; -1: no memory. */
static int value_like(gd_program *p, int value) {
    gd_pvalue v = p->values[value];
    size_t bytes;
    if (gd_dims_bytes(v.rank, v.dims, (gd_dtype)v.dtype, &bytes) != GD_OK) return -1;
    v.root = gd_program_root(p, (gd_root){.kind = GD_ROOT_TEMPORARY, .bytes = bytes});
    v.offset = 0;
    gd_row_major(v.rank, v.dims, v.strides);
    return v.root < 0 ? -1 : gd_program_value(p, v);
}

/* Only y is wanted of the outer step, and what it has in place of variables. */
static bool gives_one(const gd_program *p, const gd_pstep *outer) {
    for (int k = 1; k < outer->op->n_outputs; k++)
        if (outer->out[k] >= 0) return false;
    (void)p;
    return outer->out[0] >= 0;
}

/* The step that computes other weights; of the two inputs that `inner` reads the second may be absent,
 * the bias, and its result is there all the same. False: it cannot be. */
static bool fold_step(gd_program *p, const gd_op *op, const gd_pstep *inner, const gd_pstep *outer,
                      gd_device *device, gd_pstep *made) {
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
    if (w->rank != y->rank || GAIN * elements(p, made->in[0]) > elements(p, outer->out[0]))
        return false;
    made->out[0] = value_like(p, made->in[0]);
    made->out[1] = value_like(p, outer->in[f->n_outer - 1]); /* a number for each channel */
    return made->out[0] >= 0 && made->out[1] >= 0 && gd_step_can_run(p, made, device);
}

/* The inner step with these weights, which gives what the outer one gave. */
static bool inner_step(gd_program *p, const gd_op_fuses *f, const gd_pstep *inner,
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

/* Inputs of the inner step are read later than they were: nobody may write them. */
static bool stays(const gd_program *p, const gd_pstep *inner, const int *writes) {
    for (int k = 0; k < inner->n_in; k++)
        if (inner->in[k] >= 0 &&
            writes[p->values[inner->in[k]].root] >
                (p->roots[p->values[inner->in[k]].root].kind == GD_ROOT_TEMPORARY))
            return false;
    return true;
}

static bool fold(gd_program *p, const gd_op *op, int at, const int *readers, const int *writes,
                 gd_device *device) {
    const gd_op_fuses *f = &op->facts.folds;
    const int from = gd_inner_step(p, f, at, readers);
    if (from < 0 || !gives_one(p, &p->steps[at]) || !stays(p, &p->steps[from], writes))
        return false;
    gd_pstep folded, made;
    const gd_pstep *inner = &p->steps[from], *outer = &p->steps[at];
    if (!fold_step(p, op, inner, outer, device, &folded) ||
        !inner_step(p, f, inner, outer, &folded, device, &made))
        return false;
    for (int k = 0; k < f->n_outer; k++) {
        const int place = f->outer_in[k];
        if (place >= 0 && folded.in[place] >= 0 && outer->op->inputs[k].mutated)
            folded.in[place] = read_directly(p, folded.in[place], at);
    }
    p->steps[from].removed = true;
    p->steps[at] = made;
    if (!gd_program_step(p)) return false; /* at the end: the others move */
    memmove(p->steps + at + 1, p->steps + at, (size_t)(p->n_steps - 1 - at) * sizeof *p->steps);
    p->steps[at] = folded;
    return true;
}

int gd_pass_fold_norm(gd_program *p, gd_device *device) {
    int *readers = gd_program_readers(p), *writes = gd_program_writes(p), changes = 0;
    const int known = p->n_roots;
    for (int o = 0; readers && writes && o < gd_op_count(); o++) {
        const gd_op *op = gd_op_at(o);
        if (!op->facts.folds.outer) continue;
        for (int i = 0; i < p->n_steps; i++) {
            const gd_pstep *s = &p->steps[i];
            if (s->removed || strcmp(s->op->name, op->facts.folds.outer) != 0 ||
                p->values[s->in[0]].root >= known)
                continue;
            const bool done = fold(p, op, i, readers, writes, device);
            changes += done;
            i += done; /* its step is one further on */
        }
    }
    const bool room = readers && writes;
    gd_free(readers);
    gd_free(writes);
    return !room || (changes && gd_pass_prune(p) < 0) ? -1 : changes;
}
