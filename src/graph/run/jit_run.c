/* jit_run.c - runs a traced function: the forward part of a call. */
#include "core/alloc.h"
#include "core/random.h"
#include "graph/build/trace_grad.h"
#include "graph/run/jit.h"
#include "graph/run/session.h"
#include "gradus/ops.h"

/* The feeds of a run: symbol, value, symbol, value, ... NULL: no memory. */
static gd_tensor **list_feeds(const gd_jit_trace *t, gd_tensor *const *x, gd_tensor *const *gy,
                              int *count) {
    gd_tensor **feeds =
        gd_calloc((size_t)(2 * (t->n_in + t->n_out + t->graph->n_grads)) + 1, sizeof *feeds);
    if (!feeds) return NULL;
    int n = 0;
    for (int i = 0; i < t->n_in; i++) feeds[n++] = t->in[i], feeds[n++] = x[i];
    for (int k = 0; gy && k < t->n_out; k++)
        if (gy[k]) feeds[n++] = t->gy[k], feeds[n++] = gy[k];
    *count = n + gd_leaf_grads_feed(t->graph, feeds + n);
    return feeds;
}

gd_status gd_jit_run(gd_jit_trace *t, gd_tensor *const *x, gd_tensor *const *gy, gd_tensors fetches,
                     gd_rng rng_offset, gd_tensor **results) {
    int n;
    gd_tensor **feeds = list_feeds(t, x, gy, &n);
    if (!feeds) return gd_no_memory(NULL, "for a jit");
    const gd_run_rng *before = gd_session_rng(&(gd_run_rng){rng_offset, gy != NULL, t->caller});
    gd_tensors r = gd_session_run(t->session, ((gd_tensors){feeds, n}), fetches);
    gd_session_rng(before);
    gd_free(feeds);
    if (gd_failed() || r.count != fetches.count) return gd_failure();
    for (int64_t i = 0; i < r.count; i++) results[i] = r.at[i];
    gd_list_drop(r);
    return GD_OK;
}

gd_rng gd_jit_take_rng(const gd_jit_trace *t) {
    gd_rng *given = gd_this_thread.replay_rng; /* not NULL inside a body that is replayed */
    if (t->n_random_calls == 0) return (gd_rng){0, 0};
    if (!given) return gd_rng_take_many(t->n_random_calls);
    const gd_rng rng_offset = *given;
    given->call += t->n_random_calls;
    return rng_offset;
}

static int max_fetches(const gd_jit_trace *t) {
    return t->n_out + 1 + t->n_written + t->graph->n_grads;
}

/* What a call fetches: results, new values of inputs, effects, and new gradients of captured
 * leaves. Returns the count. */
static int list_fetches(const gd_jit_trace *t, gd_tensor **fetches) {
    int n = 0;
    for (int k = 0; k < t->n_out; k++) fetches[n++] = t->out[k];
    for (int i = 0; i < t->n_in; i++)
        if (t->written[i]) fetches[n++] = t->written[i];
    if (t->effects) fetches[n++] = t->effects;
    return n + gd_leaf_grads_fetch(t->graph, fetches + n);
}

gd_status gd_jit_query_plan(const gd_jit_trace *t, gd_tensor *const *x, gd_plan_memory *memory,
                            char **text) {
    int n_feeds;
    gd_tensor **feeds = list_feeds(t, x, NULL, &n_feeds);
    gd_tensor **fetches = gd_calloc((size_t)max_fetches(t), sizeof *fetches);
    gd_status status = feeds && fetches ? GD_OK : gd_no_memory(NULL, "for a jit");
    if (status == GD_OK) {
        const gd_tensors from = {feeds, n_feeds}, to = {fetches, list_fetches(t, fetches)};
        if (memory) status = gd_session_plan(t->session, from, to, memory);
        if (text && !(*text = gd_session_plan_text(t->session, from, to))) status = gd_failure();
    }
    gd_free(feeds);
    gd_free(fetches);
    return status;
}

/* Runs the session once. */
static gd_status run_fetches(gd_jit_trace *t, gd_tensor *const *x, gd_rng rng_offset,
                             gd_tensor **y) {
    const int most = max_fetches(t);
    gd_tensor **lists = gd_calloc(3 * (size_t)most, sizeof *lists), **results = lists + most;
    if (!lists) return gd_no_memory(NULL, "for a jit");
    const int n = list_fetches(t, lists);
    gd_status status = gd_leaf_grads_begin(t->graph, x, t->n_in);
    if (status == GD_OK && n > 0)
        status = gd_jit_run(t, x, NULL, (gd_tensors){lists, n}, rng_offset, results);
    for (int k = 0; k < t->n_out && status == GD_OK; k++) y[k] = results[k];
    for (int i = 0, k = t->n_out; i < t->n_in && status == GD_OK; i++)
        if (t->written[i] && gd_assign(x[i], results[k++])->kind == GD_FAILED)
            status = gd_failure();
    if (status == GD_OK) status = gd_leaf_grads_end(t->graph, results, n, results + most);
    gd_free(lists);
    return status;
}

gd_status gd_jit_run_forward(gd_jit_trace *t, gd_tensor *const *x, gd_rng rng_offset,
                             gd_tensor **y) {
    if (t->graph->n_grads == 0) return run_fetches(t, x, rng_offset, y);
    /* only the leaves must hold the new gradients, so that the next call can reuse their memory */
    gd_scope *scope = gd_scope_open();
    int grad = gd_no_grad_begin();
    gd_status status = run_fetches(t, x, rng_offset, y);
    gd_grad_mode_end(&grad);
    for (int k = 0; k < t->n_out && status == GD_OK; k++) gd_keep(y[k]);
    gd_scope_close(&scope);
    return status;
}

/* What a call on the tape saves for backward, as an i64 tensor: its random numbers (seed and call),
 * and the version of each captured tensor. */
static gd_tensor *save_call_state(const gd_jit_trace *t, gd_rng rng_offset) {
    const int n = t->graph->n_captured;
    int64_t *data = gd_malloc((size_t)(2 + n) * sizeof *data);
    if (!data) return gd_tensor_fail(gd_no_memory(NULL, "for a jit"));
    data[0] = (int64_t)rng_offset.seed;
    data[1] = (int64_t)rng_offset.call;
    for (int i = 0; i < n; i++)
        data[2 + i] = atomic_load(&t->graph->captured[i].tensor->storage->version);
    gd_device *device = gd_this_thread.device;
    gd_this_thread.device = NULL; /* on the CPU: the host reads it */
    gd_tensor *saved_state = gd_from_array(gd_dims(2 + n), GD_I64, data);
    gd_this_thread.device = device;
    gd_free(data);
    return saved_state;
}

/* The inputs as they are before the run: copies of those that it writes. */
static gd_status copy_written_inputs(const gd_jit_trace *t, gd_tensor *const *x,
                                     gd_tensor **before) {
    for (int i = 0; i < t->n_in; i++) {
        before[i] = t->written[i] ? gd_clone(x[i]) : x[i];
        if (before[i]->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}

void gd_jit_forward(gd_context *c) {
    gd_jit_trace *t = c->user;
    gd_tensor **before = gd_calloc((size_t)t->n_in + 1, sizeof *before);
    gd_status status =
        before ? copy_written_inputs(t, c->x, before) : gd_no_memory(NULL, "for a jit");
    const gd_rng rng_offset = gd_jit_take_rng(t);
    gd_tensor *saved_state = status == GD_OK ? save_call_state(t, rng_offset) : &gd_error_tensor;
    if (status == GD_OK && saved_state->kind == GD_FAILED) status = gd_failure();
    if (status == GD_OK) status = gd_jit_run_forward(t, c->x, rng_offset, c->y);
    if (status == GD_OK) gd_save(c, saved_state);
    for (int i = 0; i < t->n_in && status == GD_OK; i++) gd_save(c, before[i]);
    gd_free(before);
    if (status == GD_OK) return;
    gd_error_record(status);
    for (int k = 0; k < c->n_out; k++) c->y[k] = &gd_error_tensor;
}
