/* fold.c - constant folding: steps with constant operands are computed while the plan is built.
 *
 * A step is folded if it reads nothing, or only results of folded steps. Captured tensors are not
 * constant: the program may write them between runs. Nor is a copy that a later step writes.
 */
#include <string.h>

#include "core/alloc.h"
#include "core/tensor.h"
#include "graph/passes/passes.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"

/* Larger constants are computed in each run, which is cheap; keeping them would cost memory. */
enum { MAX_CONSTANT_BYTES = 1 << 20 };

static bool is_constant(const gd_program *p, const gd_pstep *s, const bool *constant,
                        const int *writes) {
    if (s->removed || s->view ||
        (s->op->flags & (GD_OP_RANDOM | GD_OP_OPAQUE | GD_OP_DYNAMIC | GD_OP_CALLS)))
        return false;
    for (int i = 0; i < s->op->n_inputs; i++)
        if (s->op->inputs[i].mutated) return false;
    for (int i = 0; i < s->n_in && !(s->op->flags & GD_OP_SHAPE_ONLY); i++)
        if (s->in[i] >= 0 && !constant[p->values[s->in[i]].root]) return false;
    size_t bytes = 0;
    for (int k = 0; k < s->n_out; k++) {
        if (s->out[k] < 0 || writes[p->values[s->out[k]].root] > 1) return false;
        bytes += p->roots[p->values[s->out[k]].root].bytes;
    }
    return bytes <= MAX_CONSTANT_BYTES && s->n_out > 0;
}

/* The value as a tensor. If it is not a constant, only its shape matters: it is filled with 0. */
static gd_tensor *make_operand(const gd_program *p, int value, gd_device *device) {
    const gd_pvalue *v = &p->values[value];
    const gd_root *root = &p->roots[v->root];
    if (root->kind != GD_ROOT_CAPTURED) { /* an expanded view, which needs memory for one element */
        int64_t ones[GD_MAX_RANK];
        for (int i = 0; i < v->rank; i++) ones[i] = 1;
        gd_tensor *one = gd_full(gd_shape_of(v->rank, ones), 0, .dtype = (gd_dtype)v->dtype);
        return one->kind == GD_FAILED ? NULL : gd_expand(one, gd_shape_of(v->rank, v->dims));
    }
    gd_tensor *t = gd_tensor_bare(GD_VALUE, device, (gd_dtype)v->dtype, v->rank, v->dims);
    if (!t) return NULL;
    for (int i = 0; i < v->rank; i++) t->strides[i] = v->strides[i];
    t->offset = v->offset;
    t->storage = root->storage;
    gd_storage_retain(t->storage);
    return t;
}

static gd_status fold_step(gd_program *p, gd_pstep *s, gd_device *device, bool *constant) {
    gd_tensor **in = gd_calloc((size_t)(s->n_in + s->n_out) + 1, sizeof *in), **out = in + s->n_in;
    if (!in) return gd_no_memory(NULL, "to plan a run");
    gd_scope *scope = gd_scope_open();
    gd_status status = GD_OK;
    for (int i = 0; i < s->n_in && status == GD_OK; i++)
        if (s->in[i] >= 0 && !(in[i] = make_operand(p, s->in[i], device))) status = GD_E_MEMORY;
    if (status == GD_OK)
        status = gd_dispatch_again(s->op, s->node ? s->node->site : NULL, in, s->n_in, s->attrs,
                                   (gd_rng){0, 0}, out, s->n_out);
    for (int k = 0; k < s->n_out && status == GD_OK; k++) { /* fold all outputs, or none */
        out[k] = out[k] ? gd_contiguous(out[k]) : NULL;
        if (!out[k] || out[k]->kind != GD_VALUE || out[k]->offset != 0) status = GD_E_UNSUPPORTED;
    }
    for (int k = 0; k < s->n_out && status == GD_OK; k++) {
        gd_tensor *y = out[k];
        gd_root *root = &p->roots[p->values[s->out[k]].root];
        root->kind = GD_ROOT_CAPTURED;
        root->constant = true;
        root->number = p->values[s->out[k]].root;
        root->storage = y->storage;
        gd_storage_retain(y->storage);
        constant[p->values[s->out[k]].root] = true;
    }
    gd_scope_close(&scope);
    gd_free(in);
    if (status == GD_OK) s->removed = true;
    return status;
}

gd_status gd_pass_fold(gd_rewrite *r) {
    gd_program *p = r->program;
    bool *constant = gd_calloc((size_t)p->n_roots + 1, sizeof *constant);
    int *writes = constant ? gd_program_writes(p) : NULL;
    if (!writes) {
        gd_free(constant);
        return gd_no_memory(NULL, "to plan a run");
    }
    gd_thread *thread = &gd_this_thread;
    const gd_tracing tracing = gd_tracing_off();
    gd_device *before = thread->device;
    int grad = gd_no_grad_begin();
    thread->device = r->device;
    for (int i = 0; i < p->n_steps; i++) {
        if (!is_constant(p, &p->steps[i], constant, writes)) continue;
        /* if the step fails it is not folded, and the run reports the failure */
        gd_attempt attempt;
        gd_attempt_begin(&attempt);
        gd_status status = fold_step(p, &p->steps[i], r->device, constant);
        r->changes += gd_attempt_end(&attempt, status) == GD_OK;
    }
    thread->device = before;
    gd_grad_mode_end(&grad);
    gd_tracing_on(tracing);
    gd_free(constant);
    gd_free(writes);
    return GD_OK;
}
