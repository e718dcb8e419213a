/* session_run.c - gd_session_run: checks, staging of feeds, and the run of a plan. */
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/freed.h"
#include "graph/run/evaluate.h"
#include "graph/run/session.h"
#include "gradus/ops.h"
#include "dispatch/call.h"

/* --- random numbers --------------------------------------------------------------------------- */

_Thread_local const gd_run_rng *gd_this_run_rng;

const gd_run_rng *gd_session_rng(const gd_run_rng *rng_offset) {
    const gd_run_rng *before = gd_this_run_rng;
    gd_this_run_rng = rng_offset;
    return before;
}

/* The random numbers of a run follow from its number, unless gd_session_rng has set them. */
static gd_rng next_rng_offset(gd_session *s) {
    if (gd_this_run_rng) return gd_this_run_rng->at;
    return (gd_rng){.call = atomic_fetch_add_explicit(&s->runs, 1, memory_order_relaxed) << 32};
}

/* On an asynchronous device the host does not know yet whether the run will fail: the device resets
 * the counter if it does. */
static inline void log_run(gd_session *s, const gd_instance *instance, gd_rng rng_offset) {
    if (!gd_this_run_rng)
        gd_device_log_counter(s->device, gd_plan_run_number(instance), &s->runs,
                              rng_offset.call >> 32);
}

/* A run that failed does not count: the next one gets its number. */
static void return_run_number(gd_session *s, gd_rng rng_offset) {
    uint64_t run = rng_offset.call >> 32, latest = run + 1;
    if (!gd_this_run_rng) atomic_compare_exchange_strong(&s->runs, &latest, run);
}

/* --- checks ----------------------------------------------------------------------------------- */

static gd_status check_feed(const gd_session *s, const gd_tensor *symbol, const gd_tensor *value,
                            int64_t i) {
    char want[160], got[160];
    if (!symbol || symbol->kind != GD_SYMBOL)
        return gd_fail(GD_E_ARGUMENT, "feed %lld: the first of the pair is not a symbol of a graph",
                       (long long)i);
    if (!value || value->kind != GD_VALUE)
        return gd_fail(GD_E_ARGUMENT, "feed '%s': the value is %s", gd_symbol_name(symbol),
                       !value                     ? "NULL"
                       : value->kind == GD_SYMBOL ? "a symbol"
                                                  : "an error");
    if (symbol->node->origin && symbol->node->origin->graph != s->graph)
        return gd_fail(GD_E_ARGUMENT, "feed '%s' is a symbol of another graph",
                       gd_symbol_name(symbol));
    bool fits = symbol->dtype == value->dtype && symbol->rank == value->rank;
    for (int d = 0; fits && d < symbol->rank; d++)
        fits = symbol->dims[d] == GD_UNKNOWN || symbol->dims[d] == value->dims[d];
    if (!fits)
        return gd_fail(symbol->dtype != value->dtype ? GD_E_DTYPE : GD_E_SHAPE,
                       "feed '%s' takes %s, not %s", gd_symbol_name(symbol),
                       gd_describe(symbol, want, sizeof want), gd_describe(value, got, sizeof got));
    return GD_OK;
}

gd_status gd_session_check_run(const gd_session *s, gd_tensors feeds, gd_tensors fetches) {
    if (!s) return gd_fail(GD_E_ARGUMENT, "the session is NULL");
    if (feeds.count % 2)
        return gd_fail(GD_E_ARGUMENT,
                       "feeds are pairs of a symbol and its value; the list has %lld entries",
                       (long long)feeds.count);
    for (int64_t i = 0; i < feeds.count; i += 2)
        GD_TRY(check_feed(s, feeds.at[i], feeds.at[i + 1], i / 2));
    for (int64_t i = 0; i < fetches.count; i++) {
        const gd_tensor *t = fetches.at[i];
        if (!t || t->kind != GD_SYMBOL)
            return gd_fail(GD_E_ARGUMENT, "fetch %lld is %s, not a symbol", (long long)i,
                           !t                     ? "NULL"
                           : t->kind == GD_FAILED ? "an error"
                                                  : "a value");
        if (t->node->origin && t->node->origin->graph != s->graph)
            return gd_fail(GD_E_ARGUMENT, "fetch %lld, '%s', is a symbol of another graph",
                           (long long)i, gd_symbol_name(t));
    }
    return GD_OK;
}

/* --- runs ------------------------------------------------------------------------------------- */

enum { FEW_FEEDS = 16 };

/* A run whose sizes or control flow depend on data: runs every node as an eager op. Variables are
 * assigned at the end. */
static gd_status run_dynamic(gd_session *s, gd_tensors symbols, gd_tensors values,
                             gd_tensors fetches, gd_tensor **results) {
    const int64_t most = symbols.count + s->n_variables;
    gd_tensor **all = gd_malloc((size_t)(2 * most + 1) * sizeof *all), **given = all + most;
    if (!all) return gd_no_memory(NULL, "for a run");
    int64_t n = 0;
    for (; n < symbols.count; n++) all[n] = symbols.at[n], given[n] = values.at[n];
    gd_status status = GD_OK;
    for (int i = 0; i < s->n_variables && status == GD_OK; i++) {
        gd_node *node = s->graph->variables[i];
        if (!s->variables[i]) continue; /* this run computes an initial value of a variable */
        all[n] = gd_node_symbol(node, 0);
        given[n] = s->variables[i];
        if (!all[n++]) status = GD_E_MEMORY;
    }
    gd_tensors got = {NULL, 0};
    if (status == GD_OK) {
        const gd_rng rng_offset = next_rng_offset(s);
        got = gd_evaluate_run(fetches, (gd_tensors){all, n}, (gd_tensors){given, n}, rng_offset,
                              !gd_runs_repeat());
        for (int64_t i = 0; i < fetches.count && status == GD_OK; i++)
            if (!got.at || got.at[i]->kind == GD_FAILED) status = gd_failure();
        if (status != GD_OK) return_run_number(s, rng_offset);
    }
    for (int64_t i = 0; i < fetches.count && status == GD_OK; i++) results[i] = got.at[i];
    gd_free(all);
    return status;
}

gd_status gd_session_run_plan(gd_session *s, gd_cached_plan *c, gd_tensors symbols,
                              gd_tensors values, gd_tensors fetches, gd_tensor **results) {
    if (c->dynamic) return run_dynamic(s, symbols, values, fetches, results);
    gd_instance *instance;
    GD_TRY(gd_plan_borrow(c->plan, &instance));
    const gd_rng rng_offset = next_rng_offset(s);
    gd_status status = gd_plan_prepare(c->plan, instance);
    /* create the results before the run: nothing can fail after it has changed variables */
    for (int64_t i = 0; i < fetches.count && status == GD_OK; i++)
        if (!(results[i] = gd_plan_result(c->plan, instance, (int)i))) status = GD_E_MEMORY;
    if (status == GD_OK) status = gd_plan_run(c->plan, instance, values, s->variables, rng_offset);
    if (status == GD_OK && !gd_plan_is_on_host(c->plan)) log_run(s, instance, rng_offset);
    gd_plan_return(c->plan, instance);
    if (status != GD_OK) return_run_number(s, rng_offset);
    return status;
}

static gd_status check_target(const gd_tensor *to, int64_t i, gd_dtype dtype, int rank,
                              const int64_t *dims) {
    char a[128], b[160];
    if (to && to->kind == GD_VALUE && to->rank == rank &&
        memcmp(to->dims, dims, sizeof(int64_t) * (size_t)rank) == 0)
        return gd_check_writable(to, NULL);
    return gd_fail(GD_E_SHAPE, "fetch %lld is %s%s and cannot be written into %s%s", (long long)i,
                   gd_dtype_name(dtype), gd_shape_text(rank, dims, a, sizeof a),
                   to->kind == GD_SYMBOL ? "a symbol, " : "", gd_describe(to, b, sizeof b));
}

/* Fails unless the tensors that the caller wants results written into have the right shapes. */
static gd_status check_targets(gd_tensors into, const gd_program *p) {
    for (int64_t i = 0; i < p->n_fetches && i < into.count; i++) {
        const gd_pvalue *from = &p->values[p->fetches[i]];
        if (into.at[i])
            GD_TRY(check_target(into.at[i], i, (gd_dtype)from->dtype, from->rank, from->dims));
    }
    return GD_OK;
}

static gd_status copy_to_targets(gd_tensors into, gd_tensor *const *results, int64_t n) {
    for (int64_t i = 0; i < n && i < into.count; i++) {
        gd_tensor *to = into.at[i];
        if (!to) continue;
        GD_TRY(
            check_target(to, i, (gd_dtype)results[i]->dtype, results[i]->rank, results[i]->dims));
        GD_TRY(gd_copy_tensor(to, results[i]));
        atomic_fetch_add(&to->storage->version, 1);
    }
    return GD_OK;
}

static bool plan_writes(const gd_cached_plan *c) {
    return c->dynamic ? !c->repeats : gd_plan_writes(c->plan);
}

static gd_status run_session(gd_session *s, gd_tensors feeds, gd_tensors fetches, gd_tensors into,
                             gd_tensor **results) {
    gd_tensor *few[2 * FEW_FEEDS], **symbols = few;
    const int64_t n = feeds.count / 2;
    if (n > FEW_FEEDS && !(symbols = gd_malloc((size_t)(2 * n) * sizeof *symbols)))
        return gd_no_memory(NULL, "for a run");
    gd_tensor **values = symbols + n;
    gd_status status = GD_OK;
    for (int64_t i = 0; i < n && status == GD_OK; i++) {
        symbols[i] = feeds.at[2 * i];
        status = gd_session_stage_feed(s, feeds.at[2 * i + 1], &values[i]);
    }
    const gd_tensors fed = {symbols, n}, with = {values, n};
    gd_plan_use use;
    if (status == GD_OK) status = gd_session_initialize(s);
    if (status == GD_OK) status = gd_session_find_plan(s, fed, with, fetches, &use);
    if (status == GD_OK) {
        gd_cached_plan *c = use.plan;
        if (c->plan) status = check_targets(into, gd_plan_program(c->plan));
        for (int64_t i = 0; i < n && c->plan && status == GD_OK; i++) {
            if (!gd_plan_overwrites(c->plan, values[i]->storage)) continue;
            values[i] = gd_clone(values[i]);
            if (values[i]->kind == GD_FAILED) status = gd_failure();
        }
        gd_rwlock_hold hold;
        if (status == GD_OK) status = gd_rwlock_take(&s->lock, plan_writes(c), &hold);
        if (status == GD_OK) {
            status = gd_session_run_plan(s, c, fed, with, fetches, results);
            gd_rwlock_release(&hold);
        }
        gd_session_leave_plan(&use);
    }
    if (status == GD_OK && into.count > 0) status = copy_to_targets(into, results, fetches.count);
    if (symbols != few) gd_free(symbols);
    return status;
}

gd_tensors gd_session_run_at(const char *site, gd_session *s, gd_tensors feeds, gd_tensors fetches,
                             const gd_run_options *o) {
    GD_LIVE_AT(site, s);
    o = o ? o : GD_RUN_OPTIONS_();
    gd_thread *thread = &gd_this_thread;
    gd_tensor **results = gd_list_new(fetches.count);
    gd_status status = !results ? GD_E_MEMORY : thread->recorded;
    const bool earlier = results && status != GD_OK; /* an earlier failure is recorded: no run */
    if (status == GD_OK) status = gd_session_check_run(s, feeds, fetches);
    if (status == GD_OK)
        status = gd_check_list_option(o->into.at, o->into.count, ".into",
                                      "gd_list(a, b), or gd_list_of(array, 2)");
    if (status == GD_OK && o->into.count > fetches.count)
        status = gd_fail(GD_E_ARGUMENT, ".into has %lld tensors for %lld fetches",
                         (long long)o->into.count, (long long)fetches.count);
    if (status == GD_OK) {
        const gd_tracing tracing = gd_tracing_off();
        gd_device *device = thread->device; /* a replay creates tensors on the session's */
        thread->device = s->device;
        const bool tf32 = gd_allow_tf32(s->tf32);
        int grad = gd_no_grad_begin();
        gd_attempt attempt;
        gd_attempt_begin(&attempt);
        status = run_session(s, feeds, fetches, o->into, results);
        status = gd_attempt_end(&attempt, status);
        gd_grad_mode_end(&grad);
        thread->device = device;
        gd_allow_tf32(tf32);
        gd_tracing_on(tracing);
    }
    if (status == GD_OK) return (gd_tensors){results, fetches.count};
    if (!earlier) {
        gd_error_prefix("%s: ", gd_this_run_rng ? gd_this_run_rng->caller : "gd_session_run");
        gd_report(site, status);
    }
    for (int64_t i = 0; results && i < fetches.count; i++) results[i] = &gd_error_tensor;
    return results && fetches.count > 0 ? (gd_tensors){results, fetches.count}
                                        : gd_list_of_errors(fetches.count);
}
