/* call_infer.c - infers the results of a call. See call_infer.h. */
#include "dispatch/call_infer.h"

#include <string.h>

#include "core/alloc.h"
#include "dispatch/probe.h"

gd_status gd_infer_outputs(gd_infer *infer, int n) {
    gd_meta *out = gd_malloc((size_t)(n > 0 ? n : 1) * sizeof *out);
    if (!out) return gd_fail(GD_E_MEMORY, "no memory for %d outputs", n);
    infer->out = out;
    infer->n_out = n;
    for (int i = 0; i < n; i++) gd_meta_clear(&out[i], infer->in, infer->n_in);
    return GD_OK;
}

/* Fails if the bytes of a result overflow. Views need no memory. */
static gd_status check_sizes(const gd_meta *metas, int n) {
    for (int i = 0; i < n; i++) {
        size_t bytes;
        if (metas[i].view_of >= 0 || metas[i].rank == 0) continue;
        bool unknown = false;
        for (int d = 0; d < metas[i].rank; d++) unknown |= metas[i].dims[d] == GD_UNKNOWN;
        if (unknown) continue;
        GD_TRY(gd_dims_bytes(metas[i].rank, metas[i].dims, metas[i].dtype, &bytes));
    }
    return GD_OK;
}

gd_status gd_infer_by_body(gd_infer *i) {
    gd_thread *thread = &gd_this_thread;
    void *tracer = thread->tracer;
    gd_rng counter = {0, 0}, *replay_rng = thread->replay_rng;
    gd_tensor **x = gd_calloc((size_t)(i->n_in + i->n_out) + 1, sizeof *x), **y;
    if (!x) return gd_fail(GD_E_MEMORY, "no memory to infer shapes");
    y = x + i->n_in;
    gd_attempt attempt; /* the caller may try other shapes, so a failure must not be recorded */
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = GD_OK;
    thread->tracer = &gd_no_graph;
    thread->replay_rng = &counter; /* draws nothing from the random generator */
    for (int k = 0; k < i->n_in && status == GD_OK; k++) {
        const gd_tensor *t = i->in[k];
        if (t &&
            !(x[k] = gd_tensor_bare(GD_SYMBOL, t->device, (gd_dtype)t->dtype, t->rank, t->dims)))
            status = GD_E_MEMORY;
    }
    gd_expansion expand = {i->op, i->attrs, i->n_in, i->n_out, x, y};
    if (status == GD_OK) i->op->expand(&expand);
    for (int k = 0; k < i->n_out && status == GD_OK; k++) {
        if (!y[k]) continue; /* hidden */
        if (y[k]->kind == GD_FAILED) {
            status = gd_failure();
            break;
        }
        i->out[k].dtype = (gd_dtype)y[k]->dtype;
        i->out[k].rank = y[k]->rank;
        memcpy(i->out[k].dims, y[k]->dims, sizeof(int64_t) * y[k]->rank);
    }
    thread->tracer = tracer;
    thread->replay_rng = replay_rng;
    gd_scope_close(&scope);
    gd_free(x);
    return gd_attempt_end(&attempt, status);
}

gd_status gd_call_infer(const gd_invocation *call, gd_infer *infer) {
    /* a plain call has values only; rules of GD_OP_CALLS ops handle unknown sizes themselves */
    const bool known =
        call->plain || (call->op->flags & GD_OP_CALLS) || !gd_has_unknown(call->in, call->n_in);
    GD_TRY(known ? gd_infer_known(infer) : gd_probe_sizes(infer));
    return check_sizes(infer->out, infer->n_out);
}
