/* jit.c - jits: the object, the list of traces, and calls. jit.h describes how a jit works. */
#include "graph/run/jit.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/tensor_list.h"
#include "gradus/ops.h"

/* --- objects ---------------------------------------------------------------------------------- */

static void jit_in_child(gd_forked *forked) {
    gd_work_in_child(&((gd_jit *)((char *)forked - offsetof(gd_jit, forked)))->tracing);
}

static void jit_destroy(gd_object *object) {
    gd_jit *jit = (gd_jit *)object;
    gd_forked_remove(&jit->forked);
    while (jit->first) {
        gd_jit_trace *t = jit->first;
        jit->first = t->next;
        gd_jit_trace_release(t);
    }
    gd_object_free(object);
    gd_object_count(-1);
}
static const gd_class jit_class = {.name = "jit", .destroy = jit_destroy};
GD_KNOWN_CLASS(jit_class)

static gd_status check_jit_options(gd_body fn, const gd_jit_options *o) {
    if (!fn) return gd_fail(GD_E_ARGUMENT, "gd_jit_new: the function is NULL");
    if (o->level < 0 || o->level > 2)
        return gd_fail(GD_E_ARGUMENT, "gd_jit_new: .level is %d; expected 0 to 2", o->level);
    if (o->plans < 1)
        return gd_fail(GD_E_ARGUMENT, "gd_jit_new: .plans is %d; expected at least 1", o->plans);
    return GD_OK;
}

gd_jit *gd_jit_new_at(const char *site, gd_body fn, void *user, const gd_jit_options *o) {
    o = o ? o : GD_JIT_OPTIONS_();
    gd_status status = check_jit_options(fn, o);
    gd_jit *jit =
        status == GD_OK && gd_scope_reserve(1) == GD_OK ? gd_calloc(1, sizeof *jit) : NULL;
    if (!jit) {
        gd_report(site, status != GD_OK ? status : gd_no_memory(NULL, "for a jit"));
        return NULL;
    }
    gd_object_init(&jit->object, &jit_class);
    gd_object_count(1);
    gd_scope_adopt(&jit->object);
    jit->fn = fn;
    jit->user = user;
    jit->caller = "gd_jit_call";
    jit->level = o->level;
    jit->most = o->plans;
    jit->guard = gd_guard_new();
    gd_work_init(&jit->tracing);
    jit->forked = (gd_forked){.in_child = jit_in_child};
    gd_forked_add(&jit->forked);
    return jit;
}

int gd_jit_traces(const gd_jit *jit) {
    GD_LIVE(jit);
    return jit ? atomic_load(&jit->traces) : 0;
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

/* Whether the call is inside a graph, perhaps that of another jit: it then traces the function's
 * ops into that graph. */
static bool is_traced_call(gd_tensors inputs) {
    bool any = gd_this_thread.tracer != NULL;
    for (int64_t i = 0; i < inputs.count; i++) any |= inputs.at[i]->kind == GD_SYMBOL;
    return any;
}

enum { MAX_CALL_DEPTH = 64 };
static _Thread_local int call_depth;

static gd_status call_function(gd_jit *jit, gd_tensors inputs, gd_tensors *results) {
    if (call_depth >= MAX_CALL_DEPTH)
        return gd_fail(GD_E_STATE, "jits call each other without end (%d calls deep)",
                       MAX_CALL_DEPTH);
    call_depth++;
    const gd_tensors given = gd_list_for(GD_READER_JIT, inputs);
    *results = jit->fn(given, jit->user);
    if (results->at != given.at) gd_list_drop(given);
    call_depth--;
    return gd_failed() ? gd_failure() : GD_OK;
}

/* Removes the trace for these inputs from the list; NULL: there is none. Moves stale traces to the
 * list `stale`. */
static gd_jit_trace *take_trace(gd_jit *jit, gd_tensors inputs, int64_t key, gd_jit_trace **stale) {
    gd_jit_trace **at = &jit->first, *t;
    while ((t = *at) &&
           (t->torn || gd_jit_trace_is_stale(t) || !gd_jit_trace_fits(t, inputs, key))) {
        if (t->torn || !gd_jit_trace_is_stale(t)) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        t->next = *stale;
        *stale = t;
    }
    if (t) *at = t->next;
    return t;
}

/* Adds a trace at the head of the list. Returns the last one if there are too many. */
static gd_jit_trace *add_trace_first(gd_jit *jit, gd_jit_trace *t) {
    t->next = jit->first;
    jit->first = t;
    atomic_fetch_add(&t->refs, 1);
    gd_jit_trace **at = &jit->first;
    for (int kept = 0; *at && kept < jit->most; kept++) at = &(*at)->next;
    gd_jit_trace *old = *at; /* at most one */
    *at = NULL;
    return old;
}

/* The trace for these inputs, which the caller releases. While one thread traces the function, the
 * others wait, and then look again. */
static gd_status find_trace(gd_jit *jit, gd_tensors inputs, int64_t key, gd_jit_trace **found) {
    gd_status status = GD_OK;
    gd_jit_trace *t, *old = NULL, *stale = NULL;
    gd_guard_lock(jit->guard);
    while (!(t = take_trace(jit, inputs, key, &stale)) &&
           gd_work_waited(&jit->tracing, jit->guard)) {
    }
    if (!t) {
        gd_work_begin(&jit->tracing);
        gd_guard_unlock(jit->guard);
        status = gd_jit_trace_make(jit, inputs, &t);
        if (t) t->key = key;
        gd_guard_lock(jit->guard);
        gd_work_end(&jit->tracing);
    }
    if (t) old = add_trace_first(jit, t);
    gd_guard_unlock(jit->guard);
    gd_jit_trace_release(old);
    while ((old = stale)) {
        stale = old->next;
        gd_jit_trace_release(old);
    }
    *found = t;
    return status;
}

/* Checks that depend on the inputs of this call. */
static gd_status check_call(const gd_jit_trace *t, gd_tensors inputs) {
    const gd_graph *g = t->graph;
    for (int i = 0; i < t->n_in; i++) {
        const gd_tensor *x = inputs.at[i];
        if (x->requires_grad && t->in[i]->node->origin->graded)
            return gd_fail(GD_E_UNSUPPORTED,
                           "the function calls gd_backward or gd_tensor_grad on input %d, which "
                           "requires a gradient; a jit can only accumulate gradients of leaves "
                           "that it captures: pass a gd_detach, or compute gradients with gd_grad",
                           i);
        if (gd_map_find(&g->latest_write, x->storage) >= 0)
            return gd_fail(GD_E_UNSUPPORTED,
                           "input %d shares its memory with a tensor that the function "
                           "captures and writes; pass a gd_clone",
                           i);
    }
    return GD_OK;
}

/* Whether the call goes on the tape. Fails if it would write an input in place that requires
 * grad. */
static gd_status needs_tape(const gd_jit_trace *t, gd_tensors inputs, bool *wants) {
    *wants = false;
    if (gd_this_thread.no_grad > 0) return GD_OK;
    for (int64_t i = 0; i < inputs.count; i++) {
        *wants |= inputs.at[i]->requires_grad;
        if (t->written[i] && inputs.at[i]->requires_grad)
            return gd_fail(GD_E_STATE,
                           "the function writes input %lld in place, which requires a gradient; "
                           "use the op that returns a new tensor, or GD_NO_GRAD",
                           (long long)i);
    }
    /* a function that calls gd_backward itself has used up its tape */
    *wants = (*wants || t->n_leaves > 0) && t->n_out > 0 && t->graph->n_grads == 0;
    return GD_OK;
}

/* Calls it as one node of the tape, which depends on inputs and leaves. */
static gd_status call_on_tape(gd_jit_trace *t, gd_tensors inputs, gd_tensors *results) {
    gd_tensor **all = gd_malloc((size_t)(t->n_in + t->n_leaves + 1) * sizeof *all);
    if (!all) return gd_no_memory(NULL, "for a jit");
    for (int i = 0; i < t->n_in; i++) all[i] = inputs.at[i];
    for (int i = 0; i < t->n_leaves; i++) all[t->n_in + i] = t->leaves[i];
    *results = gd_apply(&t->function, (gd_tensors){all, t->n_in + t->n_leaves}, t);
    gd_free(all);
    if (gd_failed()) return gd_failure();
    for (int k = 0; k < t->n_out; k++) {
        gd_node *node = results->at[k]->node;
        if (!node || node->function != &t->function || node->user_free) continue;
        atomic_fetch_add(&t->refs, 1); /* the trace lives as long as the node */
        node->user_free = gd_jit_trace_release;
    }
    return GD_OK;
}

static gd_status call_jit(gd_jit *jit, gd_tensors inputs, const gd_jit_call_options *options,
                          gd_tensors *results) {
    if (options->trace) *options->trace = -1;
    GD_TRY(check_inputs(jit, inputs));
    if (is_traced_call(inputs)) return call_function(jit, inputs, results);
    gd_jit_trace *t;
    bool on_tape = false;
    GD_TRY(find_trace(jit, inputs, options->key, &t));
    if (options->trace) *options->trace = t->number;
    gd_status status = check_call(t, inputs);
    if (status == GD_OK) status = needs_tape(t, inputs, &on_tape);
    if (status == GD_OK && on_tape) status = call_on_tape(t, inputs, results);
    else if (status == GD_OK) {
        gd_tensor **y = gd_list_new(t->n_out);
        *results = (gd_tensors){y, t->n_out};
        status = y ? gd_jit_run_forward(t, inputs.at, gd_jit_take_rng(t), y) : GD_E_MEMORY;
    }
    gd_jit_trace_release(t);
    return status;
}

gd_tensors gd_jit_call_at(const char *site, gd_jit *jit, gd_tensors inputs,
                          const gd_jit_call_options *options) {
    GD_LIVE_AT(site, jit);
    options = options ? options : GD_JIT_CALL_OPTIONS_();
    gd_tensors results = {NULL, 0};
    if (gd_this_thread.recorded != GD_OK) return gd_list_of_errors(0);
    GD_CALLED_FROM(site);
    gd_status status = call_jit(jit, inputs, options, &results);
    if (status == GD_OK) return results;
    if (gd_this_thread.recorded == GD_OK) {
        gd_error_prefix("%s: ", jit ? jit->caller : "gd_jit_call");
        gd_report(site, status);
    }
    return gd_list_of_errors(0);
}

static gd_status query_plan(gd_jit *jit, gd_tensors inputs, int64_t key, gd_plan_memory *memory,
                            char **text) {
    gd_jit_trace *t;
    GD_TRY(check_inputs(jit, inputs));
    if (is_traced_call(inputs))
        return gd_fail(GD_E_ARGUMENT, "a call in a graph has no plan of its own");
    GD_TRY(find_trace(jit, inputs, key, &t));
    const gd_status status = gd_jit_query_plan(t, inputs.at, memory, text);
    gd_jit_trace_release(t);
    return status;
}

/* The end of a query. What a session has reported is recorded, and has its prefix. */
static gd_status report_query(const char *site, const char *name, gd_status status) {
    if (status == GD_OK || gd_this_thread.recorded != GD_OK) return status;
    gd_error_prefix("%s: ", name);
    return gd_report(site, status);
}

gd_status gd_jit_plan_at(const char *site, gd_jit *jit, gd_tensors inputs, gd_plan_memory *memory,
                         const gd_jit_call_options *options) {
    GD_LIVE_AT(site, jit);
    options = options ? options : GD_JIT_CALL_OPTIONS_();
    if (gd_this_thread.recorded != GD_OK) return gd_this_thread.recorded;
    GD_CALLED_FROM(site);
    gd_plan_memory unread;
    return report_query(site, "gd_jit_plan",
                        query_plan(jit, inputs, options->key, memory ? memory : &unread, NULL));
}

char *gd_jit_plan_text_at(const char *site, gd_jit *jit, gd_tensors inputs,
                          const gd_jit_call_options *options) {
    GD_LIVE_AT(site, jit);
    options = options ? options : GD_JIT_CALL_OPTIONS_();
    char *text = NULL;
    if (gd_this_thread.recorded != GD_OK) return NULL;
    GD_CALLED_FROM(site);
    report_query(site, "gd_jit_plan_text", query_plan(jit, inputs, options->key, NULL, &text));
    return text;
}

/* --- for programs that keep something about each trace ----------------------------------------- */

bool gd_jit_keeps(const gd_jit *jit, int64_t trace) {
    GD_LIVE(jit);
    if (!jit) return false;
    gd_guard_lock(((gd_jit *)jit)->guard);
    const gd_jit_trace *t = jit->first;
    while (t && t->number != trace) t = t->next;
    gd_guard_unlock(((gd_jit *)jit)->guard);
    return t != NULL;
}

char *gd_jit_difference_at(gd_jit *jit, gd_tensors inputs, const gd_jit_call_options *options) {
    GD_LIVE(jit);
    options = options ? options : GD_JIT_CALL_OPTIONS_();
    if (!jit || check_inputs(jit, inputs) != GD_OK) return NULL;
    char best[400] = "", text[sizeof best];
    int most = -1;
    gd_guard_lock(jit->guard);
    for (const gd_jit_trace *t = jit->first; t; t = t->next) {
        if (gd_jit_trace_is_stale(t)) snprintf(text, sizeof text, "a captured tensor was replaced");
        const int fit = gd_jit_trace_is_stale(t)
                            ? 0
                            : gd_jit_trace_difference(t, inputs, options->key, text, sizeof text);
        if (fit > most) memcpy(best, text, sizeof best), most = fit;
        if (fit > 0 && !*text) break; /* it fits */
    }
    gd_guard_unlock(jit->guard);
    return *best ? strdup(best) : NULL;
}
