/* session.h - running graphs.
 *
 * A session holds the values of a graph's variables on one device. The first run with new shapes or
 * other fetches builds a plan: the kernel calls in order, and their memory. Later runs execute the
 * plan and allocate nothing.
 *
 * A session can be saved and loaded (state.h): its variables by name, and the number of runs, on
 * which its random ops depend. Both wait for runs of other threads.
 *
 * Threads: several threads may run one session. Runs that assign no variable are concurrent; a run
 * that assigns is exclusive. A run waits only for runs that came before it. A function that a run
 * calls (gd_apply) may run the same session if neither run assigns a variable.
 */
#ifndef GRADUS_SESSION_H
#define GRADUS_SESSION_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/autocast.h"
#include "gradus/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_session gd_session;

typedef struct gd_session_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    gd_device *device GD_DEFAULT_(nullptr); /* NULL: the default device */
    /* The level of optimization.
     * 0: the same bits as eager ops, also in branches, loops and gradients; only common
     *    subexpressions are eliminated.
     * 1: also simplifications that are exact in real arithmetic: constant folding, x * 1 = x.
     * 2: also fusion, which may change the last bits: a chain of elementwise ops becomes one
     * kernel,
     *    with a sum, mean, max or min at its end, or with such reductions over the last axes
     *    inside. f16 and bf16 are rounded at the end of such a kernel, not after each op. */
    int level GD_DEFAULT_(2);
    int plans GD_DEFAULT_(32); /* plans that are kept; the least recently used is freed first */
    /* The most bytes of one run's slab (peak_bytes of gd_plan_memory), without variables, feeds and
     * fetches; 0: no limit. If a run would need more, some values are recomputed instead of kept:
     * the results have the same bits, and the run takes longer. If that is not enough, the run
     * fails before it starts, and the message has the required size. Initial values of variables,
     * and runs whose sizes depend on data, have no plan and no limit. */
    int64_t memory_limit GD_DEFAULT_(0);
    /* Whether f32 products may compute in tf32 (gd_allow_tf32), in all runs of this session. -1: the
     * setting of the thread that creates the session. */
    int tf32 GD_DEFAULT_(-1);
} GD_GIVEN_BY_NAME_ gd_session_options;
#define GD_SESSION_OPTIONS_(...)                                                          \
    GD_OPTIONS_(gd_session_options,                                                       \
                (.device = NULL, .level = 2, .plans = 32, .memory_limit = 0, .tf32 = -1), \
                __VA_ARGS__)

/* A session in the current scope; it holds the graph. NULL, with the failure recorded, if out of
 * memory. */
#define gd_session_new(graph, ...) \
    GD_WITH_OPTIONS_(gd_session_new_at(GD_HERE, graph, GD_SESSION_OPTIONS_(__VA_ARGS__)))
GD_API gd_session *gd_session_new_at(const char *site, gd_graph *graph,
                                     const gd_session_options *options);

/* Symbols and their values, alternating: gd_feed(x, images, y, labels); gd_feed() is empty. Any
 * symbol may be fed, not only placeholders: the nodes that compute it are skipped. A value has the
 * dtype and the known sizes of its symbol. Feeds that the fetches do not need are checked and
 * ignored. */
#define gd_feed(...) gd_list(__VA_ARGS__)
#define gd_nothing   ((gd_tensors){NULL, 0})

typedef struct gd_run_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    /* Tensors to which the fetches are written, in order. They have the shapes of the fetches;
     * dtypes are converted. A NULL entry or a missing one at the end: a buffer of the session. */
    gd_tensors into GD_DEFAULT_({nullptr, GD_LIST_NOT_GIVEN_});
} GD_GIVEN_BY_NAME_ gd_run_options;
#define GD_RUN_OPTIONS_(...) \
    GD_OPTIONS_(gd_run_options, (.into = {NULL, GD_LIST_NOT_GIVEN_}), __VA_ARGS__)

/* Computes `fetches` and returns their values, in the current scope. The buffers belong to the
 * session, which reuses them once they are released. If the call fails, no variable has changed and
 * the list holds error tensors. */
#define gd_session_run(session, feeds, fetches, ...) \
    GD_WITH_OPTIONS_(                                \
        gd_session_run_at(GD_HERE, session, feeds, fetches, GD_RUN_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensors gd_session_run_at(const char *site, gd_session *session, gd_tensors feeds,
                                    gd_tensors fetches, const gd_run_options *options);

/* The memory of a plan. gd_memory_stats counts the first four to the byte, once all branches of the
 * plan have run. scratch_bytes come from the system and are shared by all plans. A process grows by
 * the sum of these, and by the plan itself: a few kilobytes for each step. */
typedef struct gd_plan_memory {
    int64_t peak_bytes;     /* of the slab of one run; concurrent runs have one each */
    int64_t variable_bytes; /* of the session's variables */
    int64_t fetch_bytes;    /* of the buffers of fetches */
    int64_t constant_bytes; /* of values that were computed when the plan was built */
    int64_t scratch_bytes;  /* upper bound of the memory that threads keep for matrix products */
    int64_t live_bytes;     /* the most bytes in use at one time: a lower bound of peak_bytes */
    int recomputed_steps;   /* steps that run twice, to stay within the memory limit */
    bool at_least;          /* sizes that depend on data are not included */
} gd_plan_memory;

/* Builds the plan of such a run now and reports its memory; `memory` may be NULL. */
#define gd_session_plan(...) gd_session_plan_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_session_plan_at(const char *site, gd_session *session, gd_tensors feeds,
                                    gd_tensors fetches, gd_plan_memory *memory);

/* The plan as text after all passes, one line for each step, with its kernel. free() it. */
#define gd_session_plan_text(...) gd_session_plan_text_at(GD_HERE, __VA_ARGS__)
GD_API char *gd_session_plan_text_at(const char *site, gd_session *session, gd_tensors feeds,
                                     gd_tensors fetches);

/* gd_session_get returns a copy of a variable's value, in the current scope; gd_session_set assigns
 * a value of its shape, converting the dtype. Both wait for runs that write. */
#define gd_session_get(...) gd_session_get_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_session_get_at(const char *site, gd_session *session, gd_tensor *variable);
#define gd_session_set(...) gd_session_set_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_session_set_at(const char *site, gd_session *session, gd_tensor *variable,
                                   gd_tensor *value);

#ifdef __cplusplus
}
#endif
#endif
