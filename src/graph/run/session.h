/* session.h - the internals of a session, shared by the session_*.c files. */
#ifndef GRADUS_GRAPH_RUN_SESSION_H
#define GRADUS_GRAPH_RUN_SESSION_H

#include "core/rwlock.h"
#include "core/state.h"
#include "gradus/session.h"
#include "graph/build/graph.h"
#include "graph/run/plan_run.h"

/* A plan in a session's cache, and the run that it is for. */
typedef struct gd_cached_plan {
    gd_plan *plan;
    gd_program *dynamic;      /* instead of a plan: a run whose sizes depend on data */
    gd_node **fetched, **fed; /* retained */
    int *fetch_index, *fed_index;
    int n_fetches, n_feeds;
    bool repeats;       /* assigns nothing (gd_run_rng) */
    gd_meta *shapes;    /* of the feeds */
    uint64_t refreshed; /* the graph's counter when the plan was built */
    uint64_t used;      /* the session's clock at the last use */
    int users;          /* runs that use it now */
} gd_cached_plan;

struct gd_session {
    gd_object object;
    gd_graph *graph;
    gd_device *device;
    int level, max_plans;
    bool tf32;           /* runs and plans of this session allow tf32 */
    size_t memory_limit; /* 0: none */
    gd_forked forked;
    gd_guard guard;   /* protects the members up to `clock` */
    gd_work planning; /* one thread at a time builds a plan */
    gd_cached_plan **plans;
    int n_plans;
    uint64_t clock;
    gd_tensor **variables; /* NULL: not initialized yet */
    int n_variables;
    _Atomic int n_ready; /* this many variables have values; read without the lock */
    _Atomic uint64_t runs;
    gd_rwlock lock; /* protects the variables */
};

/* --- session.c -------------------------------------------------------------------------------- */

/* Sets the device of a session that has no variables and no plans. */
void gd_session_set_device(gd_session *s, gd_device *device);
/* Refreshes the graph, and gives variables that have no value their initial values. */
gd_status gd_session_initialize(gd_session *s);
/* A feed as plans require it: row-major, on the session's device. */
gd_status gd_session_stage_feed(const gd_session *s, gd_tensor *value, gd_tensor **staged);

static inline const char *gd_symbol_name(const gd_tensor *symbol) {
    const gd_origin *o = symbol->node->origin;
    const int k = symbol->node_index;
    const bool own = o && k > 0 && k <= o->n_output_names && o->output_names[k - 1];
    return !o ? "a symbol" : own ? o->output_names[k - 1] : o->name;
}

/* --- session_plans.c -------------------------------------------------------------------------- */

/* A plan that a run of this thread uses; on the stack of the run. */
typedef struct gd_plan_use {
    struct gd_plan_use *before;
    gd_session *session;
    gd_cached_plan *plan;
} gd_plan_use;

/* The plan for such a run, from the cache or new. gd_session_leave_plan ends its use. */
gd_status gd_session_find_plan(gd_session *s, gd_tensors symbols, gd_tensors values,
                               gd_tensors fetches, gd_plan_use *use);
void gd_session_leave_plan(gd_plan_use *use);
/* Builds a plan (or finds that the run is dynamic) without the cache. */
gd_status gd_session_compile(const gd_session *s, gd_cached_plan *c, gd_tensors symbols,
                             gd_tensors values, gd_tensors fetches, size_t limit);
void gd_cached_plan_free(gd_cached_plan *c);
/* In the child of a fork: only the forking thread still uses plans. All guards are locked. */
void gd_session_plans_in_child(gd_session *s);

/* --- session_run.c ---------------------------------------------------------------------------- */

/* The random numbers of this thread's next runs of sessions. */
typedef struct gd_run_rng {
    gd_rng at;    /* its seed is combined with those of random nodes, its call number is added */
    bool repeats; /* the runs repeat an earlier one: nothing is assigned */
    const char *caller; /* of the jit, for messages: "gd_jit_call" */
} gd_run_rng;
/* NULL: the number of a run determines its random numbers. Returns the previous setting. */
const gd_run_rng *gd_session_rng(const gd_run_rng *rng_offset);

/* What gd_session_rng has set for this thread; NULL: nothing. */
extern _Thread_local const gd_run_rng *gd_this_run_rng;

static inline bool gd_runs_repeat(void) { return gd_this_run_rng && gd_this_run_rng->repeats; }

gd_status gd_session_check_run(const gd_session *s, gd_tensors feeds, gd_tensors fetches);
gd_status gd_session_run_plan(gd_session *s, gd_cached_plan *c, gd_tensors symbols,
                              gd_tensors values, gd_tensors fetches, gd_tensor **results);

/* --- session_state.c -------------------------------------------------------------------------- */

extern const gd_state_rules gd_session_state_rules;

#endif
