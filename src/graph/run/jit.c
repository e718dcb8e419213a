/* jit.c - eager functions as plans: see gradus/jit.h.
 *
 * For each signature (the caller's key, devices, dtypes and shapes of the inputs, which captured
 * tensors require a gradient, which have one that counts, the autocast setting, and C values such as
 * the modes of modules) the function is traced into a graph of its own, with a session that runs it. The
 * gradient of a call is one more run of that session, which computes the forward part again with
 * the same noise.
 */
#include "gradus/jit.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "autograd/walker.h"
#include "core/freed.h"
#include "core/alloc.h"
#include "core/random.h"
#include "graph/build/graph.h"
#include "graph/run/guard.h"
#include "graph/build/subgraph.h"
#include "graph/build/trace.h"
#include "graph/build/trace_grad.h"
#include "gradus/autograd.h"
#include "gradus/ops.h"

/* One traced form of the function. All tensors are held. */
typedef struct traced {
    _Atomic int32_t refs; /* the jit's, one for each call that runs, and one for each on the tape */
    struct traced *next;
    gd_forked forked;
    gd_guard guard;
    gd_work deriving; /* one thread at a time makes gy and gx */
    bool torn;        /* the process was forked while another thread did */
    gd_graph *graph;
    gd_session *session;
    int64_t key;
    int autocast; /* the setting that it was traced under */
    int n_in, n_out, n_leaves;
    uint64_t
        n_noise; /* how many numbers of the generator a call takes; its random nodes count from 0 */
    gd_tensor **in, **out; /* symbols */
    gd_tensor *
        *written; /* what the function has made of its inputs; NULL: the input itself, unwritten */
    int n_written;
    bool *read,
        looked[2]; /* which captured tensors gx needs; and for which of the two that is known */
    gd_tensor *
        *leaves; /* tensors outside that want a gradient: parameters, or results on the tape */
    gd_tensor *effects; /* to be fetched for what the function writes; NULL: nothing */
    gd_tensor **gy;     /* symbols for the gradients of the results */
    gd_tensor *
        *gx[2]; /* and of the inputs and leaves, made when they are first asked for; [1]: such as
                            * have gradients themselves */
    gd_function function;
} traced;

struct gd_jit {
    gd_object object;
    gd_body fn;
    void *user;
    int level, most;
    _Atomic int traces;
    gd_forked forked;
    gd_guard guard;  /* of what follows */
    gd_work tracing; /* one thread at a time traces the function */
    traced *first;   /* the one used last comes first */
};

/* --- objects ---------------------------------------------------------------------------------- */

static void traced_in_child(gd_forked *forked) {
    traced *t = (traced *)((char *)forked - offsetof(traced, forked));
    t->torn |= gd_work_in_child(&t->deriving);
}

static void jit_in_child(gd_forked *forked) {
    gd_work_in_child(&((gd_jit *)((char *)forked - offsetof(gd_jit, forked)))->tracing);
}

static void release_all(gd_tensor **list, int count) {
    for (int i = 0; list && i < count; i++) gd_release(list[i]);
    gd_free(list);
}

static void traced_release(void *arg) {
    traced *t = arg;
    if (!t || atomic_fetch_sub(&t->refs, 1) != 1) return;
    if (t->torn) return; /* its graph may be half built */
    gd_forked_remove(&t->forked);
    release_all(t->in, t->n_in);
    release_all(t->written, t->n_in);
    release_all(t->out, t->n_out);
    release_all(t->gy, t->n_out);
    for (int again = 0; again < 2; again++) release_all(t->gx[again], t->n_in + t->n_leaves);
    release_all(t->leaves, t->n_leaves);
    gd_free(t->read);
    gd_release(t->effects);
    gd_release(t->session);
    gd_release(t->graph);
    gd_free(t);
}

static void jit_destroy(gd_object *object) {
    gd_jit *jit = (gd_jit *)object;
    gd_forked_remove(&jit->forked);
    while (jit->first) {
        traced *t = jit->first;
        jit->first = t->next;
        traced_release(t);
    }
    gd_free(jit);
    gd_object_count(-1);
}
static const gd_class jit_class = {.name = "jit", .destroy = jit_destroy};

static gd_status check_options(gd_body fn, const gd_jit_options *o) {
    if (!fn) return gd_fail(GD_E_ARGUMENT, "gd_jit_new: the function is NULL");
    if (o->level < 0 || o->level > 2)
        return gd_fail(GD_E_ARGUMENT, "gd_jit_new: level %d; there are 0 to 2", o->level);
    if (o->plans < 1) return gd_fail(GD_E_ARGUMENT, "gd_jit_new: %d plans; at least 1", o->plans);
    return GD_OK;
}

gd_jit *gd_jit_new_at(const char *site, gd_body fn, void *user, const gd_jit_options *o) {
    gd_status status = check_options(fn, o);
    gd_jit *jit =
        status == GD_OK && gd_scope_reserve(1) == GD_OK ? gd_calloc(1, sizeof *jit) : NULL;
    if (!jit) {
        gd_report(site, status != GD_OK ? status : gd_fail(GD_E_MEMORY, "no memory for a jit"));
        return NULL;
    }
    gd_object_init(&jit->object, &jit_class);
    gd_object_count(1);
    gd_scope_adopt(&jit->object);
    jit->fn = fn;
    jit->user = user;
    jit->level = o->level;
    jit->most = o->plans;
    jit->guard = gd_guard_new();
    gd_work_init(&jit->tracing);
    jit->forked = (gd_forked){.in_child = jit_in_child};
    gd_forked_add(&jit->forked);
    return jit;
}

int gd_jit_traces(const gd_jit *jit) { return jit ? atomic_load(&jit->traces) : 0; }

/* --- tracing ---------------------------------------------------------------------------------- */

/* Captured tensors that want a gradient, each once. */
static gd_status find_leaves(traced *t) {
    const gd_graph *g = t->graph;
    t->leaves = gd_calloc((size_t)g->n_captured + 1, sizeof *t->leaves);
    if (!t->leaves) return gd_fail(GD_E_MEMORY, "no memory for a jit");
    for (int i = 0; i < g->n_captured; i++)
        if (g->captured[i].requires_grad) t->leaves[t->n_leaves++] = gd_retain(g->captured[i].tensor);
    return GD_OK;
}

/* What the function has written last to each tensor becomes an assign, and all of them one symbol.
 */
static gd_status gather_effects(traced *t) {
    gd_graph *g = t->graph;
    if (g->n_written == 0) return GD_OK;
    gd_tensor **done = gd_calloc((size_t)g->n_written + 1, sizeof *done);
    if (!done) return gd_fail(GD_E_MEMORY, "no memory for a jit");
    g->traces_writes = false; /* from here on a tensor outside is itself again */
    int n = 0;
    for (int i = 0; i < g->n_written; i++) {
        const gd_written *w = &g->written[i];
        if (gd_graph_find_write(g, w->tensor) != w) continue;
        done[n++] = w->node ? w->symbol : gd_assign(w->tensor, w->symbol);
    }
    gd_tensor *all = gd_group(((gd_tensors){done, n}));
    gd_free(done);
    if (all->kind == GD_FAILED) return gd_failure();
    t->effects = gd_retain(all);
    return GD_OK;
}

static void backward(gd_context *context);
static void forward(gd_context *context);

/* Placeholders, twice: our handles, and those that the function gets, which mean something else after
 * they were written in place. */
static gd_status make_inputs(traced *t, gd_tensors inputs, gd_tensor **given) {
    for (int64_t i = 0; i < inputs.count; i++) {
        const gd_tensor *x = inputs.at[i];
        gd_device *device = gd_this_thread.device;
        char name[24];
        snprintf(name, sizeof name, "input%d", (int)i);
        gd_this_thread.device = x->device;
        gd_tensor *symbol = gd_placeholder(gd_shape_of(x->rank, x->dims),
                                           .dtype = (gd_dtype)x->dtype, .name = name);
        gd_this_thread.device = device;
        if (symbol->kind == GD_FAILED) return gd_failure();
        t->in[t->n_in++] = gd_retain(symbol);
        given[i] = gd_slot_get(&symbol->node->slots[0], symbol->node, "a graph");
        if (!given[i]) return GD_E_MEMORY;
    }
    return GD_OK;
}

static gd_status take_results(traced *t, gd_tensors y) {
    if (y.count < 0 || (y.count > 0 && !y.at))
        return gd_fail(GD_E_STATE, "the function returned a list that is none");
    t->out = gd_calloc((size_t)y.count + 1, sizeof *t->out);
    if (!t->out) return gd_fail(GD_E_MEMORY, "no memory for a jit");
    for (int64_t k = 0; k < y.count; k++) {
        if (!y.at[k])
            return gd_fail(GD_E_STATE, "result %lld of the function is NULL", (long long)k);
        gd_tensor *symbol;
        GD_TRY(gd_graph_read(t->graph, y.at[k], &symbol));
        if (symbol->kind == GD_VALUE)
            symbol = gd_clone(symbol); /* not made by the function: noted as a copy */
        if (symbol->kind != GD_SYMBOL) return gd_failure();
        t->out[t->n_out++] = gd_retain(symbol);
    }
    return GD_OK;
}

/* Inputs that the function has written in place. */
static gd_status take_written(traced *t, gd_tensor *const *given) {
    for (int i = 0; i < t->n_in; i++) {
        if (given[i]->node == t->in[i]->node) continue;
        t->written[i] = gd_retain(given[i]);
        t->n_written++;
    }
    return GD_OK;
}

static gd_status trace_function(gd_jit *jit, traced *t, gd_tensors inputs) {
    GD_GRAPH(t->graph);
    int grad = gd_enable_grad_begin();
    gd_rng numbers = {0, 0}, *before = gd_this_thread.noise;
    gd_this_thread.noise = &numbers; /* tracing takes none of the generator's */
    gd_tensor **given = gd_list_new(inputs.count);
    gd_status status = given ? make_inputs(t, inputs, given) : GD_E_MEMORY;
    gd_keep_freed_begin();
    if (status == GD_OK) {
        gd_tensors y = jit->fn((gd_tensors){given, t->n_in}, jit->user);
        status = gd_failed() ? gd_failure() : gd_check_returned(y, __builtin_frame_address(0));
        if (status == GD_OK) status = take_results(t, y);
    }
    gd_keep_freed_end();
    if (status == GD_OK) status = take_written(t, given);
    if (status == GD_OK) status = gather_effects(t);
    status = gd_frozen_leaves_end(t->graph, status);
    if (status == GD_OK) status = gd_traced_values_check(t->graph);
    gd_this_thread.noise = before;
    t->n_noise = numbers.call;
    gd_grad_mode_end(&grad);
    return status;
}

/* A call runs where its tensors are. Scalars of the host count only where there is nothing else. */
static gd_device *device_of_trace(const traced *t, gd_tensors inputs) {
    for (int64_t i = 0; i < inputs.count; i++)
        if (inputs.at[i]->rank > 0 || inputs.at[i]->device != gd_cpu()) return inputs.at[i]->device;
    for (int i = 0; i < t->graph->n_captured; i++) {
        const gd_tensor *x = t->graph->captured[i].tensor;
        if (x->rank > 0 || x->device != gd_cpu()) return x->device;
    }
    return inputs.count > 0 ? inputs.at[0]->device : gd_default_device();
}

static gd_status make_traced(gd_jit *jit, gd_tensors inputs, traced **made) {
    traced *t = gd_calloc(1, sizeof *t);
    *made = NULL;
    if (!t) return gd_fail(GD_E_MEMORY, "no memory for a jit");
    atomic_init(&t->refs, 1);
    t->autocast = gd_this_thread.autocast;
    t->guard = gd_guard_new();
    gd_work_init(&t->deriving);
    t->forked = (gd_forked){.in_child = traced_in_child};
    gd_forked_add(&t->forked);
    t->in = gd_calloc((size_t)inputs.count + 1, sizeof *t->in);
    t->written = gd_calloc((size_t)inputs.count + 1, sizeof *t->written);
    gd_scope *scope = gd_scope_open();
    gd_device *device = inputs.count > 0 ? inputs.at[0]->device : gd_default_device();
    t->graph = t->in && t->written ? gd_retain(gd_graph_new()) : NULL;
    t->session = t->graph
                     ? gd_retain(gd_session_new(t->graph, .device = device, .level = jit->level))
                     : NULL;
    gd_status status = t->session ? GD_OK : gd_fail(GD_E_MEMORY, "no memory for a jit");
    if (status == GD_OK) {
        t->graph->jit = t->graph->traces_writes = true;
        status = trace_function(jit, t, inputs);
        t->graph->traces_writes = false;
    }
    if (status == GD_OK) status = find_leaves(t);
    if (status == GD_OK) gd_session_set_device(t->session, device_of_trace(t, inputs));
    gd_scope_close(&scope);
    if (status != GD_OK) {
        traced_release(t);
        return status;
    }
    t->function =
        (gd_function){.name = "jit", .n_out = t->n_out, .forward = forward, .backward = backward};
    atomic_fetch_add(&jit->traces, 1);
    *made = t;
    return GD_OK;
}

/* Whether a tensor that the function uses has become another (gd_tensor_become): the form is of no
 * use then. */
static bool has_moved(const traced *t) {
    for (int i = 0; i < t->graph->n_captured; i++)
        if (t->graph->captured[i].tensor->storage != t->graph->captured[i].storage) return true;
    return false;
}

static bool is_for(const traced *t, gd_tensors inputs, int64_t key) {
    if (t->key != key || t->autocast != gd_this_thread.autocast || t->n_in != inputs.count)
        return false;
    for (int i = 0; i < t->graph->n_captured;
         i++) /* parameters may have been frozen since, or the other way */
        if (t->graph->captured[i].requires_grad != t->graph->captured[i].tensor->requires_grad)
            return false;
    if (!gd_traced_values_fit(t->graph) || !gd_leaf_grads_fit(t->graph)) return false;
    for (int i = 0; i < t->n_in; i++) {
        const gd_tensor *a = t->in[i], *b = inputs.at[i];
        if (a->dtype != b->dtype || a->device != b->device || a->rank != b->rank ||
            memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) != 0)
            return false;
    }
    return true;
}

/* --- running ---------------------------------------------------------------------------------- */

/* Feeds symbols their values, then runs; `results` gets the fetches. */
static gd_status run(traced *t, gd_tensor *const *x, gd_tensor *const *gy, gd_tensors fetches,
                     gd_rng noise, gd_tensor **results) {
    gd_tensor **feeds =
        gd_calloc((size_t)(2 * (t->n_in + t->n_out + t->graph->n_grads)) + 1, sizeof *feeds);
    if (!feeds) return gd_fail(GD_E_MEMORY, "no memory for a jit");
    int n = 0;
    for (int i = 0; i < t->n_in; i++) feeds[n++] = t->in[i], feeds[n++] = x[i];
    for (int k = 0; gy && k < t->n_out; k++)
        if (gy[k]) feeds[n++] = t->gy[k], feeds[n++] = gy[k];
    n += gd_leaf_grads_feed(t->graph, feeds + n);
    const gd_run_noise *before = gd_session_noise(&(gd_run_noise){noise, gy != NULL});
    gd_tensors r = gd_session_run(t->session, ((gd_tensors){feeds, n}), fetches);
    gd_session_noise(before);
    gd_free(feeds);
    if (gd_failed() || r.count != fetches.count) return gd_failure();
    for (int64_t i = 0; i < r.count; i++) results[i] = r.at[i];
    return GD_OK;
}

/* The numbers that a call has: the generator's next ones, as if its function were called itself. */
static gd_rng take_noise(const traced *t) {
    gd_rng *given = gd_this_thread.noise; /* inside of a body that is replayed */
    if (t->n_noise == 0) return (gd_rng){0, 0};
    if (!given) return gd_rng_take_many(t->n_noise);
    const gd_rng noise = *given;
    given->call += t->n_noise;
    return noise;
}

/* Runs for the results, for what the function writes, and for gradients that it leaves behind. */
static gd_status run_fetches(traced *t, gd_tensor *const *x, gd_rng noise, gd_tensor **y) {
    const int most = t->n_out + 1 + t->n_written + t->graph->n_grads;
    gd_tensor **lists = gd_calloc(2 * (size_t)most, sizeof *lists), **results = lists + most;
    if (!lists) return gd_fail(GD_E_MEMORY, "no memory for a jit");
    int n = 0;
    for (int k = 0; k < t->n_out; k++) lists[n++] = t->out[k];
    for (int i = 0; i < t->n_in; i++)
        if (t->written[i]) lists[n++] = t->written[i];
    if (t->effects) lists[n++] = t->effects;
    n += gd_leaf_grads_fetch(t->graph, lists + n);
    gd_status status = gd_leaf_grads_begin(t->graph, x, t->n_in);
    if (status == GD_OK && n > 0) status = run(t, x, NULL, (gd_tensors){lists, n}, noise, results);
    for (int k = 0; k < t->n_out && status == GD_OK; k++) y[k] = results[k];
    for (int i = 0, k = t->n_out; i < t->n_in && status == GD_OK; i++)
        if (t->written[i] && gd_assign(x[i], results[k++])->kind == GD_FAILED)
            status = gd_failure();
    if (status == GD_OK) status = gd_leaf_grads_end(t->graph, results, n);
    gd_free(lists);
    return status;
}

static gd_status run_forward(traced *t, gd_tensor *const *x, gd_rng noise, gd_tensor **y) {
    if (t->graph->n_grads == 0) return run_fetches(t, x, noise, y);
    gd_scope *scope = gd_scope_open(); /* gradients belong to their leaves alone: the next call
                                          takes their memory again */
    int grad = gd_no_grad_begin();
    gd_status status = run_fetches(t, x, noise, y);
    gd_grad_mode_end(&grad);
    for (int k = 0; k < t->n_out && status == GD_OK; k++) gd_keep(y[k]);
    gd_scope_close(&scope);
    return status;
}

/* What a call on the tape must remember: its noise, and how often each captured tensor had been written
 * before. */
static gd_tensor *remember(const traced *t, gd_rng noise) {
    const int n = t->graph->n_captured;
    int64_t *data = gd_malloc((size_t)(2 + n) * sizeof *data);
    if (!data) return gd_tensor_fail(gd_fail(GD_E_MEMORY, "no memory for a jit"));
    data[0] = (int64_t)noise.seed;
    data[1] = (int64_t)noise.call;
    for (int i = 0; i < n; i++)
        data[2 + i] = atomic_load(&t->graph->captured[i].tensor->storage->version);
    gd_device *device = gd_this_thread.device;
    gd_this_thread.device = NULL; /* it is read here */
    gd_tensor *memory = gd_from_array(gd_dims(2 + n), GD_I64, data);
    gd_this_thread.device = device;
    gd_free(data);
    return memory;
}

/* Inputs as they are before the run; of one that it writes, a copy. */
static gd_status inputs_before(const traced *t, gd_tensor *const *x, gd_tensor **before) {
    for (int i = 0; i < t->n_in; i++) {
        before[i] = t->written[i] ? gd_clone(x[i]) : x[i];
        if (before[i]->kind == GD_FAILED) return gd_failure();
    }
    return GD_OK;
}

static void forward(gd_context *c) {
    traced *t = c->user;
    gd_tensor **before = gd_calloc((size_t)t->n_in + 1, sizeof *before);
    gd_status status =
        before ? inputs_before(t, c->x, before) : gd_fail(GD_E_MEMORY, "no memory for a jit");
    const gd_rng noise = take_noise(t);
    gd_tensor *memory = status == GD_OK ? remember(t, noise) : &gd_error_tensor;
    if (status == GD_OK && memory->kind == GD_FAILED) status = gd_failure();
    if (status == GD_OK) status = run_forward(t, c->x, noise, c->y);
    if (status == GD_OK) gd_save(c, memory);
    for (int i = 0; i < t->n_in && status == GD_OK; i++) gd_save(c, before[i]);
    gd_free(before);
    if (status == GD_OK) return;
    gd_error_stick(status);
    for (int k = 0; k < c->n_out; k++) c->y[k] = &gd_error_tensor;
}

/* --- gradients -------------------------------------------------------------------------------- */

static gd_tensor *wanted_by(const traced *t, int i) {
    return i < t->n_in ? t->in[i] : t->leaves[i - t->n_in];
}

/* Adds placeholders for the gradients of the results to the graph, which is being built. */
static gd_status make_feeds(traced *t) {
    if (t->gy) return GD_OK;
    gd_tensor **gy = gd_calloc((size_t)t->n_out + 1, sizeof *gy);
    gd_status status = gy ? GD_OK : gd_fail(GD_E_MEMORY, "no memory for a jit");
    for (int k = 0; k < t->n_out && status == GD_OK; k++) {
        const gd_tensor *y = t->out[k];
        if (!gd_dtype_is_float((gd_dtype)y->dtype)) continue;
        gd_device *device = gd_this_thread.device;
        gd_this_thread.device = y->device;
        gd_tensor *symbol =
            gd_placeholder(gd_shape_of(y->rank, y->dims), .dtype = (gd_dtype)y->dtype);
        gd_this_thread.device = device;
        if (symbol->kind == GD_FAILED) status = gd_failure();
        else gy[k] = gd_retain(symbol);
    }
    if (status == GD_OK) t->gy = gy;
    else release_all(gy, t->n_out);
    return status;
}

/* Adds the gradients to the graph; `again`: in ops that have gradients. */
static gd_status add_gradients(traced *t, bool again) {
    if (t->gx[again]) return GD_OK;
    const int n_by = t->n_in + t->n_leaves;
    gd_tensor **gx = gd_calloc((size_t)n_by + 1, sizeof *gx);
    gd_tensor **by = gd_calloc((size_t)(n_by + 2 * t->n_out) + 1, sizeof *by), **of = by + n_by,
              **gy = of + t->n_out;
    gd_scope *scope = gd_scope_open();
    gd_block block = gd_graph_begin(t->graph);
    gd_status status = gx && by ? make_feeds(t) : gd_fail(GD_E_MEMORY, "no memory for a jit");
    int n_floats = 0, n_of = 0;
    for (int i = 0; i < n_by && status == GD_OK; i++)
        if (gd_dtype_is_float((gd_dtype)wanted_by(t, i)->dtype)) by[n_floats++] = wanted_by(t, i);
    for (int k = 0; k < t->n_out && status == GD_OK; k++)
        if (t->gy[k]) of[n_of] = t->out[k], gy[n_of++] = t->gy[k];
    if (status == GD_OK && n_floats > 0 && n_of > 0) {
        gd_walks_stay_inside = true; /* those of leaves are called when the tape is walked back */
        gd_tensors g = gd_grad(((gd_tensors){of, n_of}), ((gd_tensors){by, n_floats}),
                               .gradients = (gd_tensors){gy, n_of}, .allow_unused = true,
                               .create_graph = again);
        gd_walks_stay_inside = false;
        if (gd_failed()) status = gd_failure();
        for (int i = 0, k = 0; i < n_by && status == GD_OK; i++)
            if (gd_dtype_is_float((gd_dtype)wanted_by(t, i)->dtype)) gx[i] = gd_retain(g.at[k++]);
    }
    gd_graph_end(&block);
    gd_scope_close(&scope);
    gd_free(by);
    if (status == GD_OK) t->gx[again] = gx;
    else release_all(gx, n_by);
    return status;
}

/* Marks what a node reads of the captured tensors. What it writes it has read, too, but the statistics of
 * gd_batch_norm are no part of its gradient, nor is anything else that ops write. */
static void mark_read(traced *t, const gd_node *node) {
    const gd_graph *g = t->graph;
    for (int i = 0; i < node->n_in; i++) {
        const gd_op *op = node->op;
        const gd_slot *slot = &node->slots[i];
        if (slot->symbol || !slot->storage || (op && i < op->n_inputs && op->inputs[i].mutated))
            continue;
        for (int k = 0; k < g->n_captured; k++)
            t->read[k] |= g->captured[k].tensor->storage == slot->storage;
    }
    const gd_subgraph *sub;
    for (int k = 0; (sub = gd_node_subgraph(node, k)); k++)
        for (int n = 0; n < sub->graph->count; n++) mark_read(t, sub->graph->nodes[n]);
}

/* Nodes come after those they use, so one pass from the last finds all that gx needs. */
static gd_status find_read(traced *t, gd_tensor *const *gx) {
    const gd_graph *g = t->graph;
    bool *needed = gd_calloc((size_t)g->count + 1, sizeof *needed);
    if (!t->read) t->read = gd_calloc((size_t)g->n_captured + 1, sizeof *t->read);
    if (!needed || !t->read) {
        gd_free(needed);
        return gd_fail(GD_E_MEMORY, "no memory for a jit");
    }
    for (int i = 0; i < t->n_in + t->n_leaves; i++)
        if (gx[i] && gx[i]->kind == GD_SYMBOL && gx[i]->node->origin)
            needed[gx[i]->node->origin->number] = true;
    for (int n = g->count; n-- > 0;) {
        const gd_node *node = g->nodes[n];
        if (!needed[n]) continue;
        mark_read(t, node);
        for (int i = 0; i < node->n_in; i++)
            if (node->slots[i].symbol && node->slots[i].node->origin)
                needed[node->slots[i].node->origin->number] = true;
        for (int i = 0; i < node->origin->n_after; i++)
            if (node->origin->after[i]->origin)
                needed[node->origin->after[i]->origin->number] = true;
    }
    gd_free(needed);
    return GD_OK;
}

/* Whether this thread has to make them; else they are there. */
static gd_status begin_gradients(traced *t, bool again, bool *begun) {
    gd_guard_lock(t->guard);
    while (!t->looked[again] && gd_work_waited(&t->deriving, t->guard)) {
    }
    *begun = !t->looked[again] && !t->torn;
    const bool torn = !t->looked[again] && t->torn;
    if (*begun) gd_work_begin(&t->deriving);
    gd_guard_unlock(t->guard);
    if (!torn) return GD_OK;
    return gd_fail(
        GD_E_STATE,
        "the process was forked while another thread made the gradient of this call's plan; "
        "call the jit again in this child, and walk back from what that gives");
}

static gd_status make_gradients(traced *t, bool again) {
    bool begun;
    GD_TRY(begin_gradients(t, again, &begun));
    if (!begun) return GD_OK;
    gd_status status = add_gradients(t, again);
    if (status == GD_OK) status = find_read(t, t->gx[again]);
    gd_guard_lock(t->guard);
    t->looked[again] |= status == GD_OK;
    gd_work_end(&t->deriving);
    gd_guard_unlock(t->guard);
    return status;
}

/* The gradient computes once more what the call did: from tensors that must still be what they were. */
static gd_status check_captured(const traced *t, const int64_t *versions) {
    char shape[128];
    const gd_graph *g = t->graph;
    for (int i = 0; i < g->n_captured; i++) {
        const gd_tensor *x = g->captured[i].tensor;
        if (x->storage != g->captured[i].storage)
            return gd_fail(GD_E_STATE,
                           "a tensor that the function uses has moved to another device or dtype "
                           "since the call; it is "
                           "%s on %s now",
                           gd_describe(x, shape, sizeof shape), x->device->name);
        if (!t->read[i] || (int64_t)atomic_load(&x->storage->version) == versions[i]) continue;
        bool by_function = false;
        for (int k = 0; k < g->n_written; k++)
            by_function |= g->written[k].tensor->storage == x->storage;
        return gd_fail(GD_E_STATE, "a tensor of shape %s that the function uses was overwritten %s",
                       gd_shape_text(x->rank, x->dims, shape, sizeof shape),
                       by_function
                           ? "by the function itself, and its gradient needs what was there before"
                           : "since the call");
    }
    return GD_OK;
}

/* For gradients of gradients: the nodes of the graph one after the other, as eager ops on the tape. */
static gd_status run_on_tape(traced *t, gd_tensor *const *x, gd_tensor *const *gy,
                             gd_tensors wanted, gd_rng noise, gd_tensor **results) {
    const int n = t->n_in + t->n_out;
    gd_tensor **feeds = gd_malloc((2 * (size_t)n + 1) * sizeof *feeds), **values = feeds + n;
    if (!feeds) return gd_fail(GD_E_MEMORY, "no memory for a jit");
    int fed = 0;
    for (int i = 0; i < t->n_in; i++) feeds[fed] = t->in[i], values[fed++] = x[i];
    for (int k = 0; k < t->n_out; k++)
        if (gy[k]) feeds[fed] = t->gy[k], values[fed++] = gy[k];
    gd_status status = gd_evaluate_on_tape(wanted, (gd_tensors){feeds, fed},
                                           (gd_tensors){values, fed}, noise, results);
    gd_free(feeds);
    if (status == GD_E_UNSUPPORTED)
        gd_error_suffix(
            "; for gradients of gradients, call the function itself instead of its gd_jit");
    return status;
}

static gd_status run_backward(traced *t, gd_context *c) {
    const bool again = gd_grad_enabled(); /* create_graph */
    GD_TRY(make_gradients(t, again));
    gd_tensor **const gx = t->gx[again];
    const int n_by = t->n_in + t->n_leaves;
    gd_tensor *memory = gd_saved(c, 0);
    if (memory->kind == GD_FAILED) return gd_failure();
    const int64_t *remembered = gd_data(memory);
    const gd_rng noise = {(uint64_t)remembered[0], (uint64_t)remembered[1]};
    GD_TRY(check_captured(t, remembered + 2));
    gd_tensor **lists = gd_calloc((size_t)(t->n_in + 2 * n_by) + 1, sizeof *lists),
              **wanted = lists + t->n_in, **results = wanted + n_by;
    if (!lists) return gd_fail(GD_E_MEMORY, "no memory for a jit");
    gd_status status = GD_OK;
    int n = 0;
    for (int i = 0; i < t->n_in && status == GD_OK; i++)
        if ((lists[i] = gd_saved(c, 1 + i))->kind == GD_FAILED) status = gd_failure();
    for (int i = 0; i < n_by; i++)
        if (c->needs[i] && gx[i] && gx[i]->kind == GD_SYMBOL) wanted[n++] = gx[i];
    if (status == GD_OK && n > 0 && again) {
        status = run_on_tape(t, lists, c->gy, (gd_tensors){wanted, n}, noise, results);
    } else if (status == GD_OK && n > 0) {
        status = run(t, lists, c->gy, (gd_tensors){wanted, n}, noise, results);
    }
    for (int i = 0, k = 0; i < n_by && status == GD_OK; i++) {
        if (!c->needs[i] || !gx[i]) continue;
        c->gx[i] = gx[i]->kind == GD_SYMBOL ? results[k++] : gx[i];
    }
    gd_free(lists);
    return status;
}

static void backward(gd_context *c) {
    gd_status status = run_backward(c->user, c);
    if (status == GD_OK) return;
    gd_error_stick(status);
    for (int i = 0; i < c->n_in; i++)
        if (c->needs[i]) c->gx[i] = &gd_error_tensor;
}

/* --- the call --------------------------------------------------------------------------------- */

static gd_status check_inputs(const gd_jit *jit, gd_tensors inputs) {
    if (!jit) return gd_fail(GD_E_ARGUMENT, "the jit is NULL");
    for (int64_t i = 0; i < inputs.count; i++) {
        const gd_tensor *x = inputs.at[i];
        if (!x) return gd_fail(GD_E_ARGUMENT, "input %lld is NULL", (long long)i);
        if (x->kind == GD_FAILED) return gd_failure();
        if (x->kind == GD_META)
            return gd_fail(GD_E_ARGUMENT, "input %lld has no data", (long long)i);
    }
    return GD_OK;
}

/* Inside of a graph, which may be that of another jit, the function's ops are noted there. */
static bool is_symbolic(gd_tensors inputs) {
    bool any = gd_this_thread.tracer != NULL;
    for (int64_t i = 0; i < inputs.count; i++) any |= inputs.at[i]->kind == GD_SYMBOL;
    return any;
}

enum { DEEPEST = 64 };
static _Thread_local int depth;

static gd_status call_in_place(gd_jit *jit, gd_tensors inputs, gd_tensors *results) {
    if (depth >= DEEPEST)
        return gd_fail(GD_E_STATE, "functions call each other by their jits without end");
    depth++;
    *results = jit->fn(inputs, jit->user);
    depth--;
    return gd_failed() ? gd_failure() : GD_OK;
}

/* Takes the form for these inputs out of the list; NULL: there is none. Forms that hold memory
 * which their tensors have left go to `moved`. */
static traced *take_out(gd_jit *jit, gd_tensors inputs, int64_t key, traced **moved) {
    traced **at = &jit->first, *t;
    while ((t = *at) && (t->torn || has_moved(t) || !is_for(t, inputs, key))) {
        if (t->torn || !has_moved(t)) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        t->next = *moved;
        *moved = t;
    }
    if (t) *at = t->next;
    return t;
}

/* Puts a form first; the last of too many is returned. */
static traced *put_first(gd_jit *jit, traced *t) {
    t->next = jit->first;
    jit->first = t;
    atomic_fetch_add(&t->refs, 1);
    traced **at = &jit->first;
    for (int kept = 0; *at && kept < jit->most; kept++) at = &(*at)->next;
    traced *old = *at; /* at most one */
    *at = NULL;
    return old;
}

/* The form for these inputs, which the caller releases. While one thread traces the function, the
 * others wait, and then look again. */
static gd_status find_traced(gd_jit *jit, gd_tensors inputs, int64_t key, traced **found) {
    gd_status status = GD_OK;
    traced *t, *old = NULL, *moved = NULL;
    gd_guard_lock(jit->guard);
    while (!(t = take_out(jit, inputs, key, &moved)) && gd_work_waited(&jit->tracing, jit->guard)) {
    }
    if (!t) {
        gd_work_begin(&jit->tracing);
        gd_guard_unlock(jit->guard);
        status = make_traced(jit, inputs, &t);
        if (t) t->key = key;
        gd_guard_lock(jit->guard);
        gd_work_end(&jit->tracing);
    }
    if (t) old = put_first(jit, t);
    gd_guard_unlock(jit->guard);
    traced_release(old);
    while ((old = moved)) {
        moved = old->next;
        traced_release(old);
    }
    *found = t;
    return status;
}

/* What cannot be known before the function is called with these inputs. */
static gd_status check_call(const traced *t, gd_tensors inputs) {
    const gd_graph *g = t->graph;
    for (int i = 0; i < t->n_in; i++) {
        const gd_tensor *x = inputs.at[i];
        if (x->requires_grad && t->in[i]->node->origin->graded)
            return gd_fail(GD_E_UNSUPPORTED,
                           "the function walks back to input %d or asks for its gradient, and it "
                           "requires one; leaves "
                           "whose gradient a jit adds to are those that the function has from "
                           "elsewhere: give it a gd_detach, or take "
                           "gradients with gd_grad",
                           i);
        for (int k = 0; k < g->n_written; k++)
            if (g->written[k].tensor->storage == x->storage)
                return gd_fail(GD_E_UNSUPPORTED,
                               "input %d shares its memory with a tensor that the function has "
                               "from elsewhere and "
                               "writes; give it a gd_clone",
                               i);
    }
    return GD_OK;
}

/* Whether the call belongs on the tape; what is written in place must not. */
static gd_status wants_gradient(const traced *t, gd_tensors inputs, bool *wants) {
    *wants = false;
    if (gd_this_thread.no_grad > 0) return GD_OK;
    for (int64_t i = 0; i < inputs.count; i++) {
        *wants |= inputs.at[i]->requires_grad;
        if (t->written[i] && inputs.at[i]->requires_grad)
            return gd_fail(GD_E_STATE,
                           "the function writes input %lld in place, which requires a gradient; "
                           "use the op that makes "
                           "a new tensor, or GD_NO_GRAD",
                           (long long)i);
    }
    /* a function that has walked back itself has spent what it would need */
    *wants = (*wants || t->n_leaves > 0) && t->n_out > 0 && t->graph->n_grads == 0;
    return GD_OK;
}

/* As one node of the tape: inputs and leaves are what it depends on. */
static gd_status call_on_tape(traced *t, gd_tensors inputs, gd_tensors *results) {
    gd_tensor **all = gd_malloc((size_t)(t->n_in + t->n_leaves + 1) * sizeof *all);
    if (!all) return gd_fail(GD_E_MEMORY, "no memory for a jit");
    for (int i = 0; i < t->n_in; i++) all[i] = inputs.at[i];
    for (int i = 0; i < t->n_leaves; i++) all[t->n_in + i] = t->leaves[i];
    *results = gd_apply(&t->function, (gd_tensors){all, t->n_in + t->n_leaves}, t);
    gd_free(all);
    if (gd_failed()) return gd_failure();
    for (int k = 0; k < t->n_out; k++) {
        gd_node *node = results->at[k]->node;
        if (!node || node->function != &t->function || node->user_free) continue;
        atomic_fetch_add(&t->refs, 1); /* the traced form lives as long as the node */
        node->user_free = traced_release;
    }
    return GD_OK;
}

static gd_status call(gd_jit *jit, gd_tensors inputs, int64_t key, gd_tensors *results) {
    GD_TRY(check_inputs(jit, inputs));
    if (is_symbolic(inputs)) return call_in_place(jit, inputs, results);
    traced *t;
    bool on_tape = false;
    GD_TRY(find_traced(jit, inputs, key, &t));
    gd_status status = check_call(t, inputs);
    if (status == GD_OK) status = wants_gradient(t, inputs, &on_tape);
    if (status == GD_OK && on_tape) status = call_on_tape(t, inputs, results);
    else if (status == GD_OK) {
        gd_tensor **y = gd_list_new(t->n_out);
        *results = (gd_tensors){y, t->n_out};
        status = y ? run_forward(t, inputs.at, take_noise(t), y) : GD_E_MEMORY;
    }
    traced_release(t);
    return status;
}

gd_tensors gd_jit_call_at(const char *site, gd_jit *jit, gd_tensors inputs,
                          const gd_jit_call_options *options) {
    gd_tensors results = {NULL, 0};
    if (gd_this_thread.recorded != GD_OK) return gd_list_of_errors(0);
    GD_CALLED_FROM(site);
    gd_status status = call(jit, inputs, options->key, &results);
    if (status == GD_OK) return results;
    if (gd_this_thread.recorded == GD_OK) {
        gd_error_prefix("gd_jit_call: ");
        gd_report(site, status);
    }
    return gd_list_of_errors(0);
}
