/* session.h - running graphs.
 *
 * A session holds the values of a graph's variables, on one device, between runs. The first run
 * with new shapes or other fetches makes a plan: what has to be computed, in which order, by which
 * kernels, where in memory. Later runs only carry it out, and allocate nothing.
 *
 * A session can be saved and loaded (state.h): its variables by name, and how often it has run, on
 * which the numbers of its random ops depend. Both wait for runs of other threads.
 *
 * Threads: several may run one session. Runs that assign no variable go side by side, one that does
 * is alone, and each waits only for those that came before it. A function that a run calls
 * (gd_apply) may run the same session again if neither run assigns a variable.
 */
#ifndef GRADUS_SESSION_H
#define GRADUS_SESSION_H

#include "gradus/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_session gd_session;

typedef struct gd_session_options {
    gd_device *device GD_DEFAULT_(nullptr); /* where it computes; NULL: the default device */
    /* 0: the same bits as eager ops (what is computed twice is shared, nothing else is changed),
     *    through branches and loops, and in gradients, too.
     * 1: also what changes no bit on paper: constants are folded, x * 1 is x.
     * 2: also what may change the last bits: chains of elementwise ops, with a sum, mean, max or min
     *    behind them, or with such reductions of rows (the last axes) among them, become one kernel.
     *    f16 and bf16 are rounded where such a kernel ends, not at each op. */
    int level GD_DEFAULT_(2);
    int plans
        GD_DEFAULT_(32); /* how many plans are kept; the one not used for longest goes first */
    /* Bytes that the block of one run (peak_bytes of gd_plan_memory) may have; 0: any number. Variables,
     * what is fed and the buffers of fetches are not in it. Where a run would need more, some values
     * are not kept but computed once more when they are needed: results are the same, to the bit, and
     * the run takes longer. Where even that needs more, the run fails before it begins, and says how
     * much it would take. The first values of variables are computed without a limit, and so are runs
     * whose sizes depend on data: they have no plan. */
    int64_t memory_limit GD_DEFAULT_(0);
} gd_session_options;

/* A session in the current scope; it keeps the graph. NULL, with the failure recorded, when there
 * is no memory. */
#define gd_session_new(graph, ...)                                                \
    GD_WITH_OPTIONS_(gd_session_new_at(                                           \
        GD_HERE, graph,                                                           \
        GD_OPTIONS_(gd_session_options, (.device = NULL, .level = 2, .plans = 32, \
                                         .memory_limit = 0) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_session *gd_session_new_at(const char *site, gd_graph *graph,
                                     const gd_session_options *options);

/* Symbols and their values in turn: gd_feed(x, images, y, labels). gd_feed() is nothing. Any symbol may be
 * fed, not placeholders alone: what is behind it is not computed then. A value has the symbol's dtype and
 * its known sizes; feeds that the fetches do not need are checked and not used. */
#define gd_feed(...) gd_list(__VA_ARGS__)
#define gd_nothing   ((gd_tensors){NULL, 0})

typedef struct gd_run_options {
    /* tensors to write the fetches to, in order: of their shapes; another dtype is converted to. NULL among
     * them, and none at the end: not this one */
    gd_tensors into GD_DEFAULT_({});
} gd_run_options;

/* Runs what `fetches` need and returns their values. They are the session's own buffers, in the
 * current scope: once nobody holds them any more, the next run uses them again. On failure no
 * variable has changed, and the list is filled with error tensors. */
#define gd_session_run(session, feeds, fetches, ...) \
    GD_WITH_OPTIONS_(gd_session_run_at(              \
        GD_HERE, session, feeds, fetches,            \
        GD_OPTIONS_(gd_run_options, (.into = {NULL, 0}) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_tensors gd_session_run_at(const char *site, gd_session *session, gd_tensors feeds,
                                    gd_tensors fetches, const gd_run_options *options);

/* Makes the plan of such a run now, and says what memory it needs (NULL: nothing). The device counts (gd_memory_stats)
 * what the first four say, to the byte, once all branches of a plan have been gone; the last is taken
 * from the system, and is the same memory for all plans. What a process holds grows by their sum, and
 * by what describes the plan itself: some kilobytes a step. */
typedef struct gd_plan_memory {
    int64_t peak_bytes; /* of the block that a run computes in; runs side by side have one each */
    int64_t variable_bytes; /* of the session's variables */
    int64_t fetch_bytes;    /* of the buffers of fetches */
    int64_t constant_bytes; /* of values that were computed when the plan was made */
    int64_t scratch_bytes;  /* at most so many: what the threads keep to compute products in */
    int64_t
        live_bytes; /* of peak_bytes, the most that is needed at one time: no block could be smaller */
    int recomputed_steps; /* steps that run twice, to stay within the memory limit */
    bool at_least;        /* sizes that depend on data are not in it */
} gd_plan_memory;
#define gd_session_plan(...) gd_session_plan_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_session_plan_at(const char *site, gd_session *session, gd_tensors feeds,
                                    gd_tensors fetches, gd_plan_memory *memory);

/* The plan as text, one step a line: what is left of the graph after all changes. free() it. */
#define gd_session_plan_text(...) gd_session_plan_text_at(GD_HERE, __VA_ARGS__)
GD_API char *gd_session_plan_text_at(const char *site, gd_session *session, gd_tensors feeds,
                                     gd_tensors fetches);

/* The value of a variable: a copy, in the current scope; and another value for it, of its shape (another
 * dtype is converted). Both wait for runs that write. */
#define gd_session_get(...) gd_session_get_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_session_get_at(const char *site, gd_session *session, gd_tensor *variable);
#define gd_session_set(...) gd_session_set_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_session_set_at(const char *site, gd_session *session, gd_tensor *variable,
                                   gd_tensor *value);

#ifdef __cplusplus
}
#endif
#endif
