/* session_plans.c - the plan cache of a session: a plan for each combination of fetches, feeds and
 * shapes; and queries of plans. */
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "graph/run/control_step.h"
#include "graph/run/session.h"

void gd_cached_plan_free(gd_cached_plan *c) {
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

static bool is_plan_for(const gd_cached_plan *c, gd_tensors symbols, gd_tensors values,
                        gd_tensors fetches) {
    if (c->repeats != gd_runs_repeat()) return false;
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

static gd_cached_plan *make_cached_plan(gd_tensors symbols, gd_tensors values, gd_tensors fetches) {
    gd_cached_plan *c = gd_calloc(1, sizeof *c);
    if (!c) return NULL;
    c->repeats = gd_runs_repeat();
    c->fetched = gd_calloc((size_t)fetches.count + 1, sizeof *c->fetched);
    c->fed = gd_calloc((size_t)symbols.count + 1, sizeof *c->fed);
    c->fetch_index = gd_calloc((size_t)fetches.count + 1, sizeof *c->fetch_index);
    c->fed_index = gd_calloc((size_t)symbols.count + 1, sizeof *c->fed_index);
    c->shapes = gd_calloc((size_t)symbols.count + 1, sizeof *c->shapes);
    if (!c->fetched || !c->fed || !c->fetch_index || !c->fed_index || !c->shapes) {
        gd_cached_plan_free(c);
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

/* Feeds that are in the cache were checked when their plan was built. */
static gd_status check_fed_once(gd_tensors symbols) {
    gd_map slots = {NULL, 0, 0};
    gd_status status = GD_OK;
    for (int64_t i = 0; i < symbols.count && status == GD_OK; i++) {
        const gd_node *node = symbols.at[i]->node;
        const gd_slot *slot = &node->slots[node->n_in + symbols.at[i]->node_index];
        if (gd_map_find(&slots, slot) >= 0)
            status =
                gd_fail(GD_E_ARGUMENT, "feed '%s' is fed twice", gd_symbol_name(symbols.at[i]));
        else if (!gd_map_put(&slots, slot, 0)) status = gd_no_memory(NULL, "to plan a run");
    }
    gd_map_free(&slots);
    return status;
}

static gd_status compile_with(const gd_session *s, gd_cached_plan *c, gd_tensors symbols,
                              gd_tensors values, gd_tensors fetches, size_t limit, bool loops) {
    gd_program *program;
    GD_TRY((loops ? gd_program_make_loops : gd_program_make)(fetches, symbols, values, &program));
    if (c->repeats) program->n_commits = 0;
    if (program->dynamic) {
        c->dynamic = program;
        return GD_OK;
    }
    const gd_status status = gd_control_add_kernels(program, s->device->api->kind);
    if (status != GD_OK) {
        gd_program_free(program);
        return status;
    }
    return gd_plan_make(program, s->device, s->level, limit, &c->plan);
}

gd_status gd_session_compile(const gd_session *s, gd_cached_plan *c, gd_tensors symbols,
                             gd_tensors values, gd_tensors fetches, size_t limit) {
    const bool loops = s->level > 0; /* at level 0 results have the bits of eager ops */
    gd_status status = compile_with(s, c, symbols, values, fetches, limit, loops);
    /* a subgraph inside loops cannot be planned: run the loops by the interpreter */
    return loops && status == GD_E_UNSUPPORTED
               ? compile_with(s, c, symbols, values, fetches, limit, false)
               : status;
}

/* The plans that runs of this thread use now, the latest first. */
static _Thread_local gd_plan_use *plans_in_use;

/* Removes and returns an unused plan that refers to storage which its captured tensors no longer
 * have; NULL: there is none. */
static gd_cached_plan *take_stale_plan(gd_session *s) {
    const uint64_t refreshed = atomic_load(&s->graph->refreshed);
    for (int i = 0; i < s->n_plans; i++) {
        gd_cached_plan *c = s->plans[i];
        if (c->refreshed == refreshed || c->users > 0) continue;
        s->plans[i] = s->plans[--s->n_plans];
        return c;
    }
    return NULL;
}

static void free_stale_plans(gd_session *s) {
    gd_cached_plan *stale;
    do {
        gd_guard_lock(s->guard);
        stale = take_stale_plan(s);
        gd_guard_unlock(s->guard);
        gd_cached_plan_free(stale);
    } while (stale);
}

static gd_cached_plan *look_up_plan(const gd_session *s, gd_tensors symbols, gd_tensors values,
                                    gd_tensors fetches) {
    for (int i = 0; i < s->n_plans; i++)
        if (s->plans[i]->refreshed == atomic_load(&s->graph->refreshed) &&
            is_plan_for(s->plans[i], symbols, values, fetches))
            return s->plans[i];
    return NULL;
}

/* Adds a plan. If the cache is full, removes the least recently used plan and returns it. */
static gd_status add_to_cache(gd_session *s, gd_cached_plan *c, gd_cached_plan **evicted) {
    int oldest = -1;
    if (s->n_plans == s->max_plans) {
        for (int i = 0; i < s->n_plans; i++)
            if (s->plans[i]->users == 0 &&
                (oldest < 0 || s->plans[i]->used < s->plans[oldest]->used))
                oldest = i;
        if (oldest < 0)
            return gd_fail(GD_E_STATE,
                           "all %d plans of the session are running; allow more with .plans",
                           s->max_plans);
        *evicted = s->plans[oldest];
    }
    s->plans[oldest < 0 ? s->n_plans++ : oldest] = c;
    return GD_OK;
}

/* One thread at a time builds plans; the others wait, and then look again. */
gd_status gd_session_find_plan(gd_session *s, gd_tensors symbols, gd_tensors values,
                               gd_tensors fetches, gd_plan_use *use) {
    gd_status status = GD_OK;
    gd_cached_plan *c, *unused = NULL;
    if (atomic_load(&s->graph->refreshed) > 0) free_stale_plans(s);
    gd_guard_lock(s->guard);
    while (!(c = look_up_plan(s, symbols, values, fetches)) &&
           gd_work_waited(&s->planning, s->guard)) {
    }
    if (!c) {
        gd_work_begin(&s->planning);
        gd_guard_unlock(s->guard);
        c = make_cached_plan(symbols, values, fetches);
        if (c) c->refreshed = atomic_load(&s->graph->refreshed);
        status = c ? check_fed_once(symbols) : gd_no_memory(NULL, "to plan a run");
        if (status == GD_OK)
            status = gd_session_compile(s, c, symbols, values, fetches, s->memory_limit);
        gd_guard_lock(s->guard);
        gd_work_end(&s->planning);
        if (status == GD_OK) status = add_to_cache(s, c, &unused);
        if (status != GD_OK) unused = c, c = NULL;
    }
    if (c) {
        c->used = ++s->clock;
        c->users++;
        *use = (gd_plan_use){plans_in_use, s, c};
        plans_in_use = use;
    }
    gd_guard_unlock(s->guard);
    gd_cached_plan_free(unused);
    return status;
}

void gd_session_leave_plan(gd_plan_use *use) {
    gd_guard_lock(use->session->guard);
    use->plan->users--;
    plans_in_use = use->before;
    gd_guard_unlock(use->session->guard);
}

void gd_session_plans_in_child(gd_session *s) {
    for (int i = 0; i < s->n_plans; i++) s->plans[i]->users = 0;
    for (const gd_plan_use *u = plans_in_use; u; u = u->before)
        if (u->session == s) u->plan->users++;
}

/* --- queries ---------------------------------------------------------------------------------- */

/* Finds or builds the plan of a run, and calls `query` with it. */
static gd_status query_plan(gd_session *s, gd_tensors feeds, gd_tensors fetches,
                            void (*query)(const gd_cached_plan *c, void *arg), void *arg) {
    GD_TRY(gd_session_check_run(s, feeds, fetches));
    const gd_tracing tracing = gd_tracing_off();
    const int64_t n = feeds.count / 2;
    gd_tensor **symbols = gd_malloc((size_t)(2 * n + 1) * sizeof *symbols), **values = symbols + n;
    gd_status status = symbols ? GD_OK : gd_no_memory(NULL, "to plan a run");
    for (int64_t i = 0; i < n && symbols; i++)
        symbols[i] = feeds.at[2 * i], values[i] = feeds.at[2 * i + 1];
    gd_plan_use use;
    gd_device *device = gd_this_thread.device;
    gd_this_thread.device = s->device;
    const bool tf32 = gd_allow_tf32(s->tf32);
    if (status == GD_OK) status = gd_graph_refresh(s->graph);
    if (status == GD_OK)
        status = gd_session_find_plan(s, (gd_tensors){symbols, n}, (gd_tensors){values, n}, fetches,
                                      &use);
    gd_this_thread.device = device;
    gd_allow_tf32(tf32);
    if (status == GD_OK) {
        query(use.plan, arg);
        gd_session_leave_plan(&use);
    }
    gd_free(symbols);
    gd_tracing_on(tracing);
    return status;
}

static void get_plan_memory(const gd_cached_plan *c, void *arg) {
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
    GD_LIVE_AT(site, s);
    GD_CALLED_FROM(site);
    gd_status status = query_plan(s, feeds, fetches, get_plan_memory, memory);
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

static void get_plan_text(const gd_cached_plan *c, void *arg) {
    *(char **)arg = c->plan ? gd_plan_text(c->plan) : gd_program_text(c->dynamic);
}

char *gd_session_plan_text_at(const char *site, gd_session *s, gd_tensors feeds,
                              gd_tensors fetches) {
    GD_LIVE_AT(site, s);
    GD_CALLED_FROM(site);
    char *text = NULL;
    gd_status status = query_plan(s, feeds, fetches, get_plan_text, &text);
    if (status != GD_OK) {
        gd_error_prefix("gd_session_plan_text: ");
        gd_error_record(status);
    }
    return text;
}
