/* session.c - variables, plans, and runs. */
#include "gradus/session.h"

#include <stddef.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/state.h"
#include "graph/build/graph.h"
#include "graph/run/plan.h"
#include "graph/build/subgraph.h"
#include "graph/build/trace.h"
#include "graph/run/rwlock.h"
#include "gradus/ops.h"
#include "ops/call.h"

/* A plan and what it is for. */
typedef struct cached {
    gd_plan *plan;
    gd_program *dynamic;      /* instead: a run whose sizes depend on data */
    gd_node **fetched, **fed; /* held */
    int *fetch_index, *fed_index;
    int n_fetches, n_feeds;
    bool repeats;       /* assigns nothing */
    gd_meta *shapes;    /* of the feeds */
    uint64_t refreshed; /* the graph's counter when it was made */
    uint64_t used;      /* when it was used last */
    int users;          /* runs that have it now */
} cached;

struct gd_session {
    gd_object object;
    gd_graph *graph;
    gd_device *device;
    int level, most_plans;
    size_t memory_limit; /* 0: none */
    gd_forked forked;
    gd_guard guard; /* of what follows, up to `variables` */
    gd_work making; /* a plan */
    cached **plans;
    int n_plans;
    uint64_t clock;
    gd_tensor **variables; /* NULL: not initialized yet */
    int n_variables;
    _Atomic int
        n_ready; /* so many variables have values, for runs that ask before it is their turn */
    _Atomic uint64_t runs;
    gd_rwlock turn; /* at the variables */
};

/* --- plans ------------------------------------------------------------------------------------ */

static void cached_free(cached *c) {
    if (!c) return;
    gd_plan_free(c->plan);
    gd_program_free(c->dynamic);
    for (int i = 0; i < c->n_fetches && c->fetched; i++) gd_node_release(c->fetched[i]);
    for (int i = 0; i < c->n_feeds && c->fed; i++) gd_node_release(c->fed[i]);
    gd_free(c->fetched);
    gd_free(c->fed);
    gd_free(c->fetch_index);
    gd_free(c->fed_index);
    gd_free(c->shapes);
    gd_free(c);
}

/* The number of a run decides about its noise, unless the caller has said something else. */
static _Thread_local const gd_run_noise *said;

const gd_run_noise *gd_session_noise(const gd_run_noise *noise) {
    const gd_run_noise *before = said;
    said = noise;
    return before;
}

static bool repeats(void) { return said && said->repeats; }

static gd_rng next_noise(gd_session *s) {
    if (said) return said->at;
    return (gd_rng){.call = atomic_fetch_add_explicit(&s->runs, 1, memory_order_relaxed) << 32};
}

/* On an asynchronous device the host does not know yet whether a run has failed. */
static inline void log_run(gd_session *s, const gd_instance *instance, gd_rng noise) {
    if (!s->device->api->host_reads && !said)
        gd_device_log_counter(s->device, gd_plan_run_number(instance), &s->runs, noise.call >> 32);
}

/* A run that fails has not been: the next one has its number. */
static void give_number_back(gd_session *s, gd_rng noise) {
    uint64_t run = noise.call >> 32, latest = run + 1;
    if (!said) atomic_compare_exchange_strong(&s->runs, &latest, run);
}

static bool is_for(const cached *c, gd_tensors symbols, gd_tensors values, gd_tensors fetches) {
    if (c->repeats != repeats()) return false;
    if (c->n_fetches != fetches.count || c->n_feeds != symbols.count) return false;
    for (int i = 0; i < c->n_fetches; i++)
        if (c->fetched[i] != fetches.at[i]->node || c->fetch_index[i] != fetches.at[i]->node_index)
            return false;
    for (int i = 0; i < c->n_feeds; i++) {
        const gd_tensor *v = values.at[i];
        const gd_meta *m = &c->shapes[i];
        if (c->fed[i] != symbols.at[i]->node || c->fed_index[i] != symbols.at[i]->node_index ||
            m->dtype != (gd_dtype)v->dtype || m->rank != v->rank ||
            memcmp(m->dims, v->dims, sizeof(int64_t) * v->rank) != 0)
            return false;
    }
    return true;
}

static cached *remember(gd_tensors symbols, gd_tensors values, gd_tensors fetches) {
    cached *c = gd_calloc(1, sizeof *c);
    if (!c) return NULL;
    c->repeats = repeats();
    c->fetched = gd_calloc((size_t)fetches.count + 1, sizeof *c->fetched);
    c->fed = gd_calloc((size_t)symbols.count + 1, sizeof *c->fed);
    c->fetch_index = gd_calloc((size_t)fetches.count + 1, sizeof *c->fetch_index);
    c->fed_index = gd_calloc((size_t)symbols.count + 1, sizeof *c->fed_index);
    c->shapes = gd_calloc((size_t)symbols.count + 1, sizeof *c->shapes);
    if (!c->fetched || !c->fed || !c->fetch_index || !c->fed_index || !c->shapes) {
        cached_free(c);
        return NULL;
    }
    for (int64_t i = 0; i < fetches.count; i++) {
        gd_node_retain(c->fetched[i] = fetches.at[i]->node);
        c->fetch_index[i] = fetches.at[i]->node_index;
        c->n_fetches++;
    }
    for (int64_t i = 0; i < symbols.count; i++) {
        gd_node_retain(c->fed[i] = symbols.at[i]->node);
        c->fed_index[i] = symbols.at[i]->node_index;
        c->shapes[i] =
            (gd_meta){.dtype = (gd_dtype)values.at[i]->dtype, .rank = values.at[i]->rank};
        memcpy(c->shapes[i].dims, values.at[i]->dims, sizeof(int64_t) * values.at[i]->rank);
        c->n_feeds++;
    }
    return c;
}

static gd_status compile_with(const gd_session *s, cached *c, gd_tensors symbols, gd_tensors values,
                              gd_tensors fetches, size_t limit, bool loops) {
    gd_program *program;
    GD_TRY((loops ? gd_program_make_loops : gd_program_make)(fetches, symbols, values, &program));
    if (c->repeats) program->n_commits = 0;
    if (program->dynamic) {
        c->dynamic = program;
        return GD_OK;
    }
    return gd_plan_make(program, s->device, s->level, limit, &c->plan);
}

static gd_status compile(const gd_session *s, cached *c, gd_tensors symbols, gd_tensors values,
                         gd_tensors fetches, size_t limit) {
    const bool loops = s->level > 0; /* at level 0 no bit changes */
    gd_status status = compile_with(s, c, symbols, values, fetches, limit, loops);
    /* a function that no plan can be made of, deep inside of loops */
    return loops && status == GD_E_UNSUPPORTED
               ? compile_with(s, c, symbols, values, fetches, limit, false)
               : status;
}

/* Plans that this thread's runs have now, the latest first. */
typedef struct using {
    struct using *before;
    gd_session *session;
    cached *plan;
}
using;
static _Thread_local using *in_use;

/* Takes out plans with memory that captured tensors have left, one of those that nobody uses. */
static cached *take_stale(gd_session *s) {
    const uint64_t refreshed = atomic_load(&s->graph->refreshed);
    for (int i = 0; i < s->n_plans; i++) {
        cached *c = s->plans[i];
        if (c->refreshed == refreshed || c->users > 0) continue;
        s->plans[i] = s->plans[--s->n_plans];
        return c;
    }
    return NULL;
}

static void free_stale(gd_session *s) {
    cached *stale;
    do {
        gd_guard_lock(s->guard);
        stale = take_stale(s);
        gd_guard_unlock(s->guard);
        cached_free(stale);
    } while (stale);
}

static cached *look_up(const gd_session *s, gd_tensors symbols, gd_tensors values,
                       gd_tensors fetches) {
    for (int i = 0; i < s->n_plans; i++)
        if (s->plans[i]->refreshed == atomic_load(&s->graph->refreshed) &&
            is_for(s->plans[i], symbols, values, fetches))
            return s->plans[i];
    return NULL;
}

/* Adds a plan, and takes out the one that was not used for longest where there is no room. */
static gd_status add_plan(gd_session *s, cached *c, cached **taken_out) {
    int oldest = -1;
    if (s->n_plans == s->most_plans) {
        for (int i = 0; i < s->n_plans; i++)
            if (s->plans[i]->users == 0 &&
                (oldest < 0 || s->plans[i]->used < s->plans[oldest]->used))
                oldest = i;
        if (oldest < 0)
            return gd_fail(GD_E_STATE,
                           "all %d plans of the session are running; allow more with .plans",
                           s->most_plans);
        *taken_out = s->plans[oldest];
    }
    s->plans[oldest < 0 ? s->n_plans++ : oldest] = c;
    return GD_OK;
}

/* The plan of such a run, from the cache or new. One thread at a time makes plans; the others wait,
 * and then look again. */
static gd_status find_plan(gd_session *s, gd_tensors symbols, gd_tensors values, gd_tensors fetches,
                           using *use) {
    gd_status status = GD_OK;
    cached *c, *spare = NULL;
    if (atomic_load(&s->graph->refreshed) > 0) free_stale(s);
    gd_guard_lock(s->guard);
    while (!(c = look_up(s, symbols, values, fetches)) && gd_work_waited(&s->making, s->guard)) {
    }
    if (!c) {
        gd_work_begin(&s->making);
        gd_guard_unlock(s->guard);
        c = remember(symbols, values, fetches);
        if (c) c->refreshed = atomic_load(&s->graph->refreshed);
        status = c ? compile(s, c, symbols, values, fetches, s->memory_limit)
                   : gd_fail(GD_E_MEMORY, "no memory to plan a run");
        gd_guard_lock(s->guard);
        gd_work_end(&s->making);
        if (status == GD_OK) status = add_plan(s, c, &spare);
        if (status != GD_OK) spare = c, c = NULL;
    }
    if (c) {
        c->used = ++s->clock;
        c->users++;
        *use = (using){in_use, s, c};
        in_use = use;
    }
    gd_guard_unlock(s->guard);
    cached_free(spare);
    return status;
}

static void leave_plan(using *use) {
    gd_guard_lock(use->session->guard);
    use->plan->users--;
    in_use = use->before;
    gd_guard_unlock(use->session->guard);
}

/* Only the runs of the forking thread go on. */
static void session_in_child(gd_forked *forked) {
    gd_session *s = (gd_session *)((char *)forked - offsetof(gd_session, forked));
    gd_work_in_child(&s->making);
    gd_rwlock_in_child(&s->turn);
    for (int i = 0; i < s->n_plans; i++) s->plans[i]->users = 0;
    for (const using *u = in_use; u; u = u->before)
        if (u->session == s) u->plan->users++;
}

/* --- the object ------------------------------------------------------------------------------- */

static void session_destroy(gd_object *object) {
    gd_session *s = (gd_session *)object;
    gd_forked_remove(&s->forked);
    gd_device_forget_counter(s->device, &s->runs);
    for (int i = 0; i < s->n_plans; i++) cached_free(s->plans[i]);
    for (int i = 0; i < s->n_variables; i++)
        if (s->variables[i]) gd_object_release(&s->variables[i]->object);
    gd_free(s->plans);
    gd_free(s->variables);
    gd_release(s->graph);
    gd_free(s);
    gd_object_count(-1);
}
extern const gd_state_rules gd_session_state_rules; /* below */
static const gd_class session_class = {
    .name = "session", .destroy = session_destroy, .state = &gd_session_state_rules};

static gd_session *no_session(gd_status status) {
    gd_error_stick(status);
    return NULL;
}

gd_session *gd_session_new_at(const char *site, gd_graph *graph, const gd_session_options *o) {
    GD_CALLED_FROM(site);
    if (!graph) return no_session(gd_fail(GD_E_ARGUMENT, "gd_session_new: the graph is NULL"));
    if (o->plans < 1 || o->level < 0 || o->level > 2)
        return no_session(gd_fail(GD_E_ARGUMENT,
                                  "gd_session_new: %d plans at level %d; at least 1, and 0 to 2",
                                  o->plans, o->level));
    if (o->memory_limit < 0)
        return no_session(
            gd_fail(GD_E_ARGUMENT,
                    "gd_session_new: a memory limit of %lld bytes; at least 1, or 0 for none",
                    (long long)o->memory_limit));
    gd_session *s = gd_scope_reserve(1) == GD_OK ? gd_calloc(1, sizeof *s) : NULL;
    cached **plans = s ? gd_calloc((size_t)o->plans, sizeof *plans) : NULL;
    if (!plans) {
        gd_free(s);
        return no_session(gd_fail(GD_E_MEMORY, "no memory for a session"));
    }
    gd_object_init(&s->object, &session_class);
    s->graph = gd_retain(graph);
    s->device = o->device ? o->device : gd_default_device();
    s->level = o->level;
    s->most_plans = o->plans;
    s->memory_limit = (size_t)o->memory_limit;
    s->plans = plans;
    s->guard = gd_guard_new();
    gd_work_init(&s->making);
    gd_rwlock_init(&s->turn);
    s->forked = (gd_forked){.in_child = session_in_child, .turn = &s->turn};
    gd_forked_add(&s->forked);
    gd_object_count(1);
    gd_scope_adopt(&s->object);
    return s;
}

void gd_session_set_device(gd_session *s, gd_device *device) { s->device = device; }

/* --- variables -------------------------------------------------------------------------------- */

/* A row-major copy on the session's device that no scope owns. */
static gd_status own_copy(gd_session *s, gd_tensor *value, gd_tensor **copy) {
    gd_scope *scope = gd_scope_open();
    gd_status status = GD_OK;
    gd_tensor *here = value->device == s->device ? value : gd_to_device(value, s->device);
    gd_tensor *own = gd_detach(gd_clone(here));
    if (own->kind == GD_FAILED) status = gd_failure();
    else *copy = gd_retain(own);
    gd_scope_close(&scope);
    return status;
}

static gd_status run_plan(gd_session *s, cached *c, gd_tensors symbols, gd_tensors values,
                          gd_tensors fetches, gd_tensor **results);

/* Variables that the graph has gained since, or that no run has needed yet, get their first values.
 * No run is going on. */
static gd_status initialize(gd_session *s) {
    gd_graph *g = s->graph;
    if (s->n_variables < g->n_variables) {
        gd_tensor **grown = gd_realloc(s->variables, (size_t)g->n_variables * sizeof *grown);
        if (!grown) return gd_fail(GD_E_MEMORY, "no memory for variables");
        for (int i = s->n_variables; i < g->n_variables; i++) grown[i] = NULL;
        s->variables = grown;
        s->n_variables = g->n_variables;
    }
    bool computed = false;
    for (int i = 0; i < s->n_variables; i++) {
        if (s->variables[i]) continue;
        gd_tensor *initial = g->variables[i]->origin->initial, *value = initial;
        gd_scope *scope = gd_scope_open();
        gd_status status = GD_OK;
        if (initial->kind == GD_SYMBOL) { /* by a plan that runs once */
            cached c = {.plan = NULL};
            status = compile(s, &c, gd_nothing, gd_nothing, gd_list(initial), 0);
            if (status == GD_OK)
                status = run_plan(s, &c, gd_nothing, gd_nothing, gd_list(initial), &value);
            gd_plan_free(c.plan);
            gd_program_free(c.dynamic);
            computed = true;
        }
        if (status == GD_OK) status = own_copy(s, value, &s->variables[i]);
        gd_scope_close(&scope);
        if (status != GD_OK) {
            gd_error_prefix("the initial value of '%s': ", g->variables[i]->origin->name);
            return status;
        }
    }
    if (computed) gd_memory_trim(s->device); /* what those plans needed is of no use to the next */
    atomic_store_explicit(&s->n_ready, s->n_variables, memory_order_release);
    return GD_OK;
}

static bool all_initialized(const gd_session *s) {
    return atomic_load_explicit(&s->n_ready, memory_order_acquire) >= s->graph->n_variables;
}

/* --- checks ----------------------------------------------------------------------------------- */

static const char *symbol_name(const gd_tensor *t) {
    return t->node->origin ? t->node->origin->name : "a symbol";
}

static gd_status check_feed(const gd_session *s, const gd_tensor *symbol, const gd_tensor *value,
                            int64_t i) {
    char want[160], got[160];
    if (!symbol || symbol->kind != GD_SYMBOL)
        return gd_fail(GD_E_ARGUMENT, "feed %lld: what is fed is no symbol of a graph",
                       (long long)i);
    if (!value || value->kind != GD_VALUE)
        return gd_fail(GD_E_ARGUMENT, "feed '%s': the value is %s", symbol_name(symbol),
                       !value                     ? "NULL"
                       : value->kind == GD_SYMBOL ? "a symbol"
                                                  : "an error");
    if (symbol->node->origin && symbol->node->origin->graph != s->graph)
        return gd_fail(GD_E_ARGUMENT, "feed '%s': a symbol of another graph", symbol_name(symbol));
    bool fits = symbol->dtype == value->dtype && symbol->rank == value->rank;
    for (int d = 0; fits && d < symbol->rank; d++)
        fits = symbol->dims[d] == GD_UNKNOWN || symbol->dims[d] == value->dims[d];
    if (!fits)
        return gd_fail(symbol->dtype != value->dtype ? GD_E_DTYPE : GD_E_SHAPE,
                       "feed '%s' takes %s, not %s", symbol_name(symbol),
                       gd_describe(symbol, want, sizeof want), gd_describe(value, got, sizeof got));
    return GD_OK;
}

static gd_status check_run(const gd_session *s, gd_tensors feeds, gd_tensors fetches) {
    if (!s) return gd_fail(GD_E_ARGUMENT, "the session is NULL");
    if (feeds.count % 2)
        return gd_fail(GD_E_ARGUMENT, "feeds are symbols and their values in turn; there are %lld",
                       (long long)feeds.count);
    for (int64_t i = 0; i < feeds.count; i += 2) {
        GD_TRY(check_feed(s, feeds.at[i], feeds.at[i + 1], i / 2));
        for (int64_t k = 0; k < i; k += 2)
            if (feeds.at[k]->node == feeds.at[i]->node &&
                feeds.at[k]->node_index == feeds.at[i]->node_index)
                return gd_fail(GD_E_ARGUMENT, "feed '%s': it is fed twice",
                               symbol_name(feeds.at[i]));
    }
    for (int64_t i = 0; i < fetches.count; i++) {
        const gd_tensor *t = fetches.at[i];
        if (!t || t->kind != GD_SYMBOL)
            return gd_fail(GD_E_ARGUMENT, "fetch %lld is %s, not a symbol", (long long)i,
                           !t                     ? "NULL"
                           : t->kind == GD_FAILED ? "an error"
                                                  : "a value");
        if (t->node->origin && t->node->origin->graph != s->graph)
            return gd_fail(GD_E_ARGUMENT, "fetch %lld, '%s', is a symbol of another graph",
                           (long long)i, symbol_name(t));
    }
    return GD_OK;
}

/* --- runs ------------------------------------------------------------------------------------- */

enum { FEW_FEEDS = 16 };

/* What is fed, as plans want it: row-major, on the session's device. */
static gd_status bring(const gd_session *s, gd_tensor *value, gd_tensor **brought) {
    gd_tensor *t = value->device == s->device ? value : gd_to_device(value, s->device);
    if (t->kind != GD_FAILED && !gd_is_row_major(t->rank, t->dims, t->strides))
        t = gd_contiguous(t);
    *brought = t;
    return t->kind != GD_FAILED ? GD_OK : gd_failure();
}

/* A run that depends on data, in its sizes or its way: every node as an eager op. Assigns are done at
 * the end. */
static gd_status run_dynamic(gd_session *s, gd_tensors symbols, gd_tensors values,
                             gd_tensors fetches, gd_tensor **results) {
    const int64_t most = symbols.count + s->n_variables;
    gd_tensor **all = gd_malloc((size_t)(2 * most + 1) * sizeof *all), **given = all + most;
    if (!all) return gd_fail(GD_E_MEMORY, "no memory for a run");
    int64_t n = 0;
    for (; n < symbols.count; n++) all[n] = symbols.at[n], given[n] = values.at[n];
    gd_status status = GD_OK;
    for (int i = 0; i < s->n_variables && status == GD_OK; i++) {
        gd_node *node = s->graph->variables[i];
        if (!s->variables[i]) continue; /* this run is for another one's first value */
        all[n] = gd_slot_get(&node->slots[0], node, "a graph");
        given[n] = s->variables[i];
        if (!all[n++]) status = GD_E_MEMORY;
    }
    gd_tensors got = {NULL, 0};
    if (status == GD_OK) {
        const gd_rng noise = next_noise(s);
        got = gd_evaluate_run(fetches, (gd_tensors){all, n}, (gd_tensors){given, n}, noise,
                              !repeats());
        for (int64_t i = 0; i < fetches.count && status == GD_OK; i++)
            if (!got.at || got.at[i]->kind == GD_FAILED) status = gd_failure();
        if (status != GD_OK) give_number_back(s, noise);
    }
    for (int64_t i = 0; i < fetches.count && status == GD_OK; i++) results[i] = got.at[i];
    gd_free(all);
    return status;
}

static gd_status run_plan(gd_session *s, cached *c, gd_tensors symbols, gd_tensors values,
                          gd_tensors fetches, gd_tensor **results) {
    if (c->dynamic) return run_dynamic(s, symbols, values, fetches, results);
    gd_instance *instance;
    GD_TRY(gd_plan_borrow(c->plan, &instance));
    const gd_rng noise = next_noise(s);
    gd_status status = gd_plan_prepare(c->plan, instance);
    for (int64_t i = 0; i < fetches.count && status == GD_OK;
         i++) /* first: a run that fails changes nothing */
        if (!(results[i] = gd_plan_result(c->plan, instance, (int)i))) status = GD_E_MEMORY;
    if (status == GD_OK) status = gd_plan_run(c->plan, instance, values, s->variables, noise);
    if (status == GD_OK) log_run(s, instance, noise);
    gd_plan_return(c->plan, instance);
    if (status != GD_OK) give_number_back(s, noise);
    return status;
}

static gd_status check_place(const gd_tensor *to, int64_t i, gd_dtype dtype, int rank,
                             const int64_t *dims) {
    char a[128], b[160];
    if (to && to->kind == GD_VALUE && to->rank == rank &&
        memcmp(to->dims, dims, sizeof(int64_t) * (size_t)rank) == 0)
        return GD_OK;
    return gd_fail(GD_E_SHAPE, "fetch %lld is %s%s and cannot be written into %s%s", (long long)i,
                   gd_dtype_name(dtype), gd_shape_text(rank, dims, a, sizeof a),
                   to->kind == GD_SYMBOL ? "a symbol, " : "", gd_describe(to, b, sizeof b));
}

/* Whether the fetches fit into what the caller has for them. */
static gd_status check_into(gd_tensors into, const gd_program *p) {
    for (int64_t i = 0; i < p->n_fetches && i < into.count; i++) {
        const gd_pvalue *from = &p->values[p->fetches[i]];
        if (into.at[i])
            GD_TRY(check_place(into.at[i], i, (gd_dtype)from->dtype, from->rank, from->dims));
    }
    return GD_OK;
}

static gd_status copy_into(gd_tensors into, gd_tensor *const *results, int64_t n) {
    for (int64_t i = 0; i < n && i < into.count; i++) {
        gd_tensor *to = into.at[i];
        if (!to) continue;
        GD_TRY(check_place(to, i, (gd_dtype)results[i]->dtype, results[i]->rank, results[i]->dims));
        GD_TRY(gd_copy_tensor(to, results[i]));
        atomic_fetch_add(&to->storage->version, 1);
    }
    return GD_OK;
}

static bool writes(const cached *c) { return c->dynamic ? !c->repeats : gd_plan_writes(c->plan); }

/* Gives variables their first values, if some have none. */
static gd_status initialize_once(gd_session *s) {
    gd_rwlock_hold hold;
    GD_TRY(gd_graph_refresh(s->graph));
    if (all_initialized(s)) return GD_OK;
    GD_TRY(gd_rwlock_take(&s->turn, true, &hold));
    gd_status status = initialize(s);
    gd_rwlock_release(&hold);
    return status;
}

static gd_status run(gd_session *s, gd_tensors feeds, gd_tensors fetches, gd_tensors into,
                     gd_tensor **results) {
    gd_tensor *few[2 * FEW_FEEDS], **symbols = few;
    const int64_t n = feeds.count / 2;
    if (n > FEW_FEEDS && !(symbols = gd_malloc((size_t)(2 * n) * sizeof *symbols)))
        return gd_fail(GD_E_MEMORY, "no memory for a run");
    gd_tensor **values = symbols + n;
    gd_status status = GD_OK;
    for (int64_t i = 0; i < n && status == GD_OK; i++) {
        symbols[i] = feeds.at[2 * i];
        status = bring(s, feeds.at[2 * i + 1], &values[i]);
    }
    const gd_tensors fed = {symbols, n}, with = {values, n};
    using use;
    if (status == GD_OK) status = initialize_once(s);
    if (status == GD_OK) status = find_plan(s, fed, with, fetches, &use);
    if (status == GD_OK) {
        cached *c = use.plan;
        if (c->plan) status = check_into(into, gd_plan_program(c->plan));
        for (int64_t i = 0; i < n && c->plan && status == GD_OK; i++) {
            if (!gd_plan_overwrites(c->plan, values[i]->storage)) continue;
            values[i] = gd_clone(values[i]);
            if (values[i]->kind == GD_FAILED) status = gd_failure();
        }
        gd_rwlock_hold hold;
        if (status == GD_OK) status = gd_rwlock_take(&s->turn, writes(c), &hold);
        if (status == GD_OK) {
            status = run_plan(s, c, fed, with, fetches, results);
            gd_rwlock_release(&hold);
        }
        leave_plan(&use);
    }
    if (status == GD_OK && into.count) status = copy_into(into, results, fetches.count);
    if (symbols != few) gd_free(symbols);
    return status;
}

gd_tensors gd_session_run_at(const char *site, gd_session *s, gd_tensors feeds, gd_tensors fetches,
                             const gd_run_options *o) {
    gd_thread *thread = &gd_this_thread;
    gd_tensor **results = gd_list_new(fetches.count);
    gd_status status = !results ? GD_E_MEMORY : thread->recorded;
    const bool earlier = results && status != GD_OK; /* a failed chain changes nothing */
    if (status == GD_OK) status = check_run(s, feeds, fetches);
    if (status == GD_OK && o->into.count > fetches.count)
        status = gd_fail(GD_E_ARGUMENT, "%lld tensors to write %lld fetches into",
                         (long long)o->into.count, (long long)fetches.count);
    if (status == GD_OK) {
        const gd_tracing tracing = gd_tracing_off();
        gd_device *device = thread->device; /* what a replay creates belongs to the session's */
        thread->device = s->device;
        int grad = gd_no_grad_begin();
        gd_attempt attempt;
        gd_attempt_begin(&attempt);
        status = run(s, feeds, fetches, o->into, results);
        status = gd_attempt_end(&attempt, status);
        gd_grad_mode_end(&grad);
        thread->device = device;
        gd_tracing_on(tracing);
    }
    if (status == GD_OK) return (gd_tensors){results, fetches.count};
    if (!earlier) {
        gd_error_prefix("gd_session_run: ");
        gd_report(site, status);
    }
    for (int64_t i = 0; results && i < fetches.count; i++) results[i] = &gd_error_tensor;
    return results && fetches.count > 0 ? (gd_tensors){results, fetches.count}
                                        : gd_list_of_errors(fetches.count);
}

/* --- asking ----------------------------------------------------------------------------------- */

/* Finds or makes the plan of a run, and hands it to `look`. */
static gd_status with_plan(gd_session *s, gd_tensors feeds, gd_tensors fetches,
                           void (*look)(const cached *c, void *arg), void *arg) {
    GD_TRY(check_run(s, feeds, fetches));
    const gd_tracing tracing = gd_tracing_off();
    const int64_t n = feeds.count / 2;
    gd_tensor **symbols = gd_malloc((size_t)(2 * n + 1) * sizeof *symbols), **values = symbols + n;
    gd_status status = symbols ? GD_OK : gd_fail(GD_E_MEMORY, "no memory to plan a run");
    for (int64_t i = 0; i < n && symbols; i++)
        symbols[i] = feeds.at[2 * i], values[i] = feeds.at[2 * i + 1];
    using use;
    gd_device *device = gd_this_thread.device;
    gd_this_thread.device = s->device;
    if (status == GD_OK) status = gd_graph_refresh(s->graph);
    if (status == GD_OK)
        status = find_plan(s, (gd_tensors){symbols, n}, (gd_tensors){values, n}, fetches, &use);
    gd_this_thread.device = device;
    if (status == GD_OK) {
        look(use.plan, arg);
        leave_plan(&use);
    }
    gd_free(symbols);
    gd_tracing_on(tracing);
    return status;
}

static void look_at_memory(const cached *c, void *arg) {
    gd_plan_memory *m = arg;
    if (!m) return;
    *m = (gd_plan_memory){.at_least = c->dynamic != NULL};
    if (!c->plan) return;
    m->peak_bytes = (int64_t)gd_plan_slab(c->plan);
    m->live_bytes = (int64_t)gd_plan_live(c->plan);
    m->fetch_bytes = (int64_t)gd_plan_fetch_bytes(c->plan);
    m->constant_bytes = (int64_t)gd_plan_constant_bytes(c->plan);
    m->scratch_bytes = (int64_t)gd_plan_scratch(c->plan);
    m->recomputed_steps = gd_plan_recomputed(c->plan);
}

gd_status gd_session_plan_at(const char *site, gd_session *s, gd_tensors feeds, gd_tensors fetches,
                             gd_plan_memory *memory) {
    GD_CALLED_FROM(site);
    gd_status status = with_plan(s, feeds, fetches, look_at_memory, memory);
    if (status != GD_OK) {
        gd_error_prefix("gd_session_plan: ");
        return gd_report(site, status);
    }
    for (int i = 0; memory && i < s->graph->n_variables; i++) {
        const gd_slot *slot = &s->graph->variables[i]->slots[0];
        memory->variable_bytes +=
            gd_numel(slot->rank, slot->dims) * (int64_t)gd_dtype_size((gd_dtype)slot->dtype);
    }
    return GD_OK;
}

static void look_at_text(const cached *c, void *arg) {
    *(char **)arg = gd_program_text(c->plan ? gd_plan_program(c->plan) : c->dynamic);
}

char *gd_session_plan_text_at(const char *site, gd_session *s, gd_tensors feeds,
                              gd_tensors fetches) {
    GD_CALLED_FROM(site);
    char *text = NULL;
    gd_status status = with_plan(s, feeds, fetches, look_at_text, &text);
    if (status != GD_OK) {
        gd_error_prefix("gd_session_plan_text: ");
        gd_error_stick(status);
    }
    return text;
}

static gd_status check_variable(gd_session *s, const gd_tensor *v, const char *what) {
    const char *wrong = !s                                         ? "the session is NULL"
                        : !v                                       ? "the variable is NULL"
                        : v->kind == GD_FAILED                     ? "the variable is an error"
                        : v->kind != GD_SYMBOL || !v->node->origin ? "not a variable, but a value"
                        : v->node->origin->graph != s->graph       ? "a symbol of another graph"
                                                                   : NULL;
    if (wrong) return gd_fail(GD_E_ARGUMENT, "%s: %s", what, wrong);
    if (v->node->origin->kind != GD_FROM_VARIABLE)
        return gd_fail(GD_E_ARGUMENT, "%s: '%s' is no variable", what, symbol_name(v));
    return GD_OK;
}

gd_tensor *gd_session_get_at(const char *site, gd_session *s, gd_tensor *variable) {
    GD_CALLED_FROM(site);
    gd_status status = check_variable(s, variable, "gd_session_get");
    if (status != GD_OK) return gd_tensor_fail(status);
    const gd_tracing tracing = gd_tracing_off();
    gd_tensor *copy = &gd_error_tensor;
    gd_rwlock_hold hold;
    status = initialize_once(s);
    if (status == GD_OK) status = gd_rwlock_take(&s->turn, false, &hold);
    if (status == GD_OK) {
        copy = gd_clone(s->variables[variable->node->origin->variable]);
        gd_rwlock_release(&hold);
    }
    gd_tracing_on(tracing);
    return status == GD_OK ? copy : gd_tensor_fail(status);
}

static gd_status set_variable(gd_session *s, gd_tensor *variable, gd_tensor *value) {
    char a[160], b[160];
    GD_TRY(check_variable(s, variable, "gd_session_set"));
    if (!value || value->kind != GD_VALUE)
        return gd_fail(GD_E_ARGUMENT, "gd_session_set: the value for '%s' is %s",
                       symbol_name(variable),
                       !value                     ? "NULL"
                       : value->kind == GD_SYMBOL ? "a symbol"
                                                  : "an error");
    if (value->rank != variable->rank ||
        memcmp(value->dims, variable->dims, sizeof(int64_t) * value->rank) != 0)
        return gd_fail(GD_E_SHAPE, "gd_session_set: '%s' is %s, not %s", symbol_name(variable),
                       gd_describe(variable, a, sizeof a), gd_describe(value, b, sizeof b));
    const gd_tracing tracing = gd_tracing_off();
    gd_scope *scope = gd_scope_open();
    gd_tensor *here = value;
    gd_rwlock_hold hold;
    gd_status status = initialize_once(s);
    if (status == GD_OK) status = bring(s, value, &here);
    if (status == GD_OK) status = gd_rwlock_take(&s->turn, true, &hold);
    if (status == GD_OK) {
        status = gd_copy_tensor(s->variables[variable->node->origin->variable], here);
        gd_rwlock_release(&hold);
    }
    gd_scope_close(&scope);
    gd_tracing_on(tracing);
    return status;
}

gd_status gd_session_set_at(const char *site, gd_session *s, gd_tensor *variable,
                            gd_tensor *value) {
    GD_CALLED_FROM(site);
    return gd_report(site, set_variable(s, variable, value));
}

/* --- state ------------------------------------------------------------------------------------ */

/* A turn at the variables, from the call of give or take to the end of the save or load. */
typedef struct state_hold {
    gd_rwlock_hold turn;
    gd_session *session;
    uint64_t runs; /* that a load has found */
} state_hold;

static void end_hold(void *user, bool loaded) {
    state_hold *hold = user;
    if (loaded && hold->turn.writes) atomic_store(&hold->session->runs, hold->runs);
    gd_rwlock_release(&hold->turn);
    gd_free(hold);
}

static gd_status begin_hold(gd_session *s, bool writes, state_hold **out) {
    const gd_tracing tracing = gd_tracing_off();
    gd_status status = initialize_once(s);
    gd_tracing_on(tracing);
    GD_TRY(status);
    *out = gd_calloc(1, sizeof **out);
    if (!*out) return gd_fail(GD_E_MEMORY, "no memory for the state of a session");
    (*out)->session = s;
    (*out)->runs = atomic_load(&s->runs);
    status = gd_rwlock_take(&s->turn, writes, &(*out)->turn);
    if (status != GD_OK) gd_free(*out);
    return status;
}

static gd_status give_state(gd_object *object, gd_state *state) {
    gd_session *s = (gd_session *)object;
    state_hold *hold;
    GD_TRY(gd_device_synchronize(s->device)); /* a run that has failed sets `runs` back */
    GD_TRY(begin_hold(s, false, &hold));
    GD_TRY(gd_state_when_done(state, end_hold, hold));
    for (int i = 0; i < s->n_variables; i++)
        GD_TRY(gd_state_put_tensor(state, s->graph->variables[i]->origin->name, s->variables[i]));
    return gd_state_put_unsigned(state, "runs", atomic_load(&s->runs));
}

static gd_status take_state(gd_object *object, gd_taking *in) {
    gd_session *s = (gd_session *)object;
    state_hold *hold;
    GD_TRY(begin_hold(s, true, &hold));
    GD_TRY(gd_taking_when_done(in, end_hold, hold));
    for (int i = 0; i < s->n_variables; i++)
        GD_TRY(gd_taking_tensor(in, s->graph->variables[i]->origin->name, s->variables[i]));
    return gd_taking_unsigned(in, "runs", &hold->runs);
}

const gd_state_rules gd_session_state_rules = {give_state, take_state};
