/* session.c - sessions: the object, its variables, and reading and writing them. */
#include "graph/run/session.h"

#include <stddef.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/freed.h"
#include "gradus/ops.h"
#include "dispatch/call.h"

/* --- the object ------------------------------------------------------------------------------- */

/* In the child of a fork only the runs of the forking thread continue. */
static void session_in_child(gd_forked *forked) {
    gd_session *s = (gd_session *)((char *)forked - offsetof(gd_session, forked));
    gd_work_in_child(&s->planning);
    gd_rwlock_in_child(&s->lock);
    gd_session_plans_in_child(s);
}

static void session_destroy(gd_object *object) {
    gd_session *s = (gd_session *)object;
    gd_forked_remove(&s->forked);
    gd_device_forget_counter(s->device, &s->runs);
    for (int i = 0; i < s->n_plans; i++) gd_cached_plan_free(s->plans[i]);
    for (int i = 0; i < s->n_variables; i++)
        if (s->variables[i]) gd_object_release(&s->variables[i]->object);
    gd_free(s->plans);
    gd_free(s->variables);
    gd_release(s->graph);
    gd_object_free(object);
    gd_object_count(-1);
}
static const gd_class session_class = {
    .name = "session", .destroy = session_destroy, .state = &gd_session_state_rules};
GD_KNOWN_CLASS(session_class)

static gd_session *fail_session(gd_status status) {
    gd_error_record(status);
    return NULL;
}

gd_session *gd_session_new_at(const char *site, gd_graph *graph, const gd_session_options *o) {
    GD_LIVE_AT(site, graph);
    o = o ? o : GD_SESSION_OPTIONS_();
    GD_CALLED_FROM(site);
    if (!graph) return fail_session(gd_fail(GD_E_ARGUMENT, "gd_session_new: the graph is NULL"));
    if (o->plans < 1 || o->level < 0 || o->level > 2)
        return fail_session(gd_fail(GD_E_ARGUMENT,
                                    "gd_session_new: .plans is %d and .level %d; expected at least "
                                    "1 plan, and level 0 to 2",
                                    o->plans, o->level));
    if (o->memory_limit < 0)
        return fail_session(gd_fail(
            GD_E_ARGUMENT,
            "gd_session_new: .memory_limit is %lld bytes; expected at least 1, or 0 for none",
            (long long)o->memory_limit));
    gd_session *s = gd_scope_reserve(1) == GD_OK ? gd_calloc(1, sizeof *s) : NULL;
    gd_cached_plan **plans = s ? gd_calloc((size_t)o->plans, sizeof *plans) : NULL;
    if (!plans) {
        gd_free(s);
        return fail_session(gd_no_memory(NULL, "for a session"));
    }
    gd_object_init(&s->object, &session_class);
    s->graph = gd_retain(graph);
    s->device = o->device ? o->device : gd_default_device();
    s->level = o->level;
    s->tf32 = o->tf32 < 0 ? gd_tf32_allowed() : o->tf32 > 0;
    s->max_plans = o->plans;
    s->memory_limit = (size_t)o->memory_limit;
    s->plans = plans;
    s->guard = gd_guard_new();
    gd_work_init(&s->planning);
    gd_rwlock_init(&s->lock);
    s->forked = (gd_forked){.in_child = session_in_child, .lock = &s->lock};
    gd_forked_add(&s->forked);
    gd_object_count(1);
    gd_scope_adopt(&s->object);
    return s;
}

void gd_session_set_device(gd_session *s, gd_device *device) { s->device = device; }

/* --- variables -------------------------------------------------------------------------------- */

/* A row-major copy on the session's device, retained for the caller. */
static gd_status copy_to_session(gd_session *s, gd_tensor *value, gd_tensor **copy) {
    gd_scope *scope = gd_scope_open();
    gd_status status = GD_OK;
    gd_tensor *here = value->device == s->device ? value : gd_to_device(value, s->device);
    gd_tensor *own = gd_detach(gd_clone(here));
    if (own->kind == GD_FAILED) status = gd_failure();
    else *copy = gd_retain(own);
    gd_scope_close(&scope);
    return status;
}

/* Gives all variables without a value their initial values, also those added to the graph since the
 * last run. The lock is held for writing. */
static gd_status initialize_variables(gd_session *s) {
    gd_graph *g = s->graph;
    if (s->n_variables < g->n_variables) {
        gd_tensor **grown = gd_realloc(s->variables, (size_t)g->n_variables * sizeof *grown);
        if (!grown) return gd_no_memory(NULL, "for variables");
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
        if (initial->kind == GD_SYMBOL) { /* compute it with a plan that runs once */
            gd_cached_plan c = {.plan = NULL};
            status = gd_session_compile(s, &c, gd_nothing, gd_nothing, gd_list(initial), 0);
            if (status == GD_OK)
                status =
                    gd_session_run_plan(s, &c, gd_nothing, gd_nothing, gd_list(initial), &value);
            gd_plan_free(c.plan);
            gd_program_free(c.dynamic);
            computed = true;
        }
        if (status == GD_OK) status = copy_to_session(s, value, &s->variables[i]);
        gd_scope_close(&scope);
        if (status != GD_OK) {
            gd_error_prefix("the initial value of '%s': ", g->variables[i]->origin->name);
            return status;
        }
    }
    if (computed) gd_memory_trim(s->device); /* later plans do not need the memory of those */
    atomic_store_explicit(&s->n_ready, s->n_variables, memory_order_release);
    return GD_OK;
}

static bool all_initialized(const gd_session *s) {
    return atomic_load_explicit(&s->n_ready, memory_order_acquire) >= s->graph->n_variables;
}

gd_status gd_session_initialize(gd_session *s) {
    gd_rwlock_hold hold;
    GD_TRY(gd_graph_refresh(s->graph));
    if (all_initialized(s)) return GD_OK;
    GD_TRY(gd_rwlock_take(&s->lock, true, &hold));
    gd_device *device = gd_this_thread.device;
    gd_this_thread.device = s->device;
    const bool tf32 = gd_allow_tf32(s->tf32);
    gd_status status = initialize_variables(s);
    gd_allow_tf32(tf32);
    gd_this_thread.device = device;
    gd_rwlock_release(&hold);
    return status;
}

gd_status gd_session_stage_feed(const gd_session *s, gd_tensor *value, gd_tensor **staged) {
    gd_tensor *t = value->device == s->device ? value : gd_to_device(value, s->device);
    if (t->kind != GD_FAILED && !gd_is_row_major(t->rank, t->dims, t->strides))
        t = gd_contiguous(t);
    *staged = t;
    return t->kind != GD_FAILED ? GD_OK : gd_failure();
}

/* --- reading and writing ---------------------------------------------------------------------- */

static gd_status check_variable(gd_session *s, const gd_tensor *v, const char *what) {
    const char *wrong = !s                                         ? "the session is NULL"
                        : !v                                       ? "the variable is NULL"
                        : v->kind == GD_FAILED                     ? "the variable is an error"
                        : v->kind != GD_SYMBOL || !v->node->origin ? "not a variable, but a value"
                        : v->node->origin->graph != s->graph       ? "a symbol of another graph"
                                                                   : NULL;
    if (wrong) return gd_fail(GD_E_ARGUMENT, "%s: %s", what, wrong);
    if (v->node->origin->kind != GD_FROM_VARIABLE)
        return gd_fail(GD_E_ARGUMENT, "%s: '%s' is not a variable", what, gd_symbol_name(v));
    return GD_OK;
}

gd_tensor *gd_session_get_at(const char *site, gd_session *s, gd_tensor *variable) {
    GD_LIVE_AT(site, s);
    GD_CALLED_FROM(site);
    gd_status status = check_variable(s, variable, "gd_session_get");
    if (status != GD_OK) return gd_tensor_fail(status);
    const gd_tracing tracing = gd_tracing_off();
    gd_tensor *copy = &gd_error_tensor;
    gd_rwlock_hold hold;
    status = gd_session_initialize(s);
    if (status == GD_OK) status = gd_rwlock_take(&s->lock, false, &hold);
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
                       gd_symbol_name(variable),
                       !value                     ? "NULL"
                       : value->kind == GD_SYMBOL ? "a symbol"
                                                  : "an error");
    if (value->rank != variable->rank ||
        memcmp(value->dims, variable->dims, sizeof(int64_t) * value->rank) != 0)
        return gd_fail(GD_E_SHAPE, "gd_session_set: '%s' is %s, not %s", gd_symbol_name(variable),
                       gd_describe(variable, a, sizeof a), gd_describe(value, b, sizeof b));
    const gd_tracing tracing = gd_tracing_off();
    gd_scope *scope = gd_scope_open();
    gd_tensor *here = value;
    gd_rwlock_hold hold;
    gd_status status = gd_session_initialize(s);
    if (status == GD_OK) status = gd_session_stage_feed(s, value, &here);
    if (status == GD_OK) status = gd_rwlock_take(&s->lock, true, &hold);
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
    GD_LIVE_AT(site, s);
    GD_CALLED_FROM(site);
    return gd_report(site, set_variable(s, variable, value));
}
