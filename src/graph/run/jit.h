/* jit.h - the internals of a jit, shared by the jit*.c files.
 *
 * For each signature the function is traced to a graph of its own, with a session that runs it. A
 * signature is the caller's key, the inputs' devices, dtypes and shapes, the settings of autocast and tf32,
 * which captured tensors require a gradient, which of them have one that the function reads, and C
 * values such as the modes of modules.
 *
 * The gradient of a call is one more run of that session, which computes the forward part again
 * with the same random numbers.
 */
#ifndef GRADUS_GRAPH_RUN_JIT_H
#define GRADUS_GRAPH_RUN_JIT_H

#include "core/guard.h"
#include "gradus/autograd.h"
#include "gradus/jit.h"
#include "graph/build/graph.h"

/* The trace of the function for one signature. All tensors are retained. */
typedef struct gd_jit_trace {
    _Atomic int32_t refs; /* the jit's, one for each running call, and one for each on the tape */
    struct gd_jit_trace *next;
    gd_forked forked;
    gd_guard guard;
    gd_work deriving; /* one thread at a time adds gy and gx to the graph */
    bool torn;        /* in a child: the process was forked while another thread did so */
    gd_graph *graph;
    gd_session *session;
    const char *caller; /* that of the jit */
    int64_t key, number;
    int autocast; /* the settings during the trace */
    bool tf32;
    int n_in, n_out, n_leaves;
    uint64_t n_random_calls; /* how many call numbers of the generator a call takes */
    gd_tensor **in, **out;   /* symbols */
    gd_tensor **written;     /* new values of inputs that are written in place; NULL: not written */
    int n_written;
    bool *read;         /* which captured tensors gx reads */
    bool derived[2];    /* whether gx[0] and gx[1] exist, and `read` is known for them */
    gd_tensor **leaves; /* captured tensors that require a gradient */
    gd_tensor *effects; /* is fetched so that captured tensors are written; NULL: none are */
    gd_tensor **gy;     /* placeholders for the gradients of the results */
    gd_tensor **gx[2]; /* gradients of inputs and leaves, added at the first backward call; those of
                         * [1] have gradients themselves (create_graph) */
    gd_function function;
} gd_jit_trace;

struct gd_jit {
    gd_object object;
    gd_body fn;
    void *user;
    int level, most;
    const char *caller; /* the function that calls it, for messages: "gd_jit_call", "gd_fit" */
    _Atomic int traces;
    gd_forked forked;
    gd_guard guard;      /* protects the next two */
    gd_work tracing;     /* one thread at a time traces the function */
    gd_jit_trace *first; /* the most recently used trace comes first */
};

/* --- jit_trace.c ------------------------------------------------------------------------------ */

gd_status gd_jit_trace_make(gd_jit *jit, gd_tensors inputs, gd_jit_trace **made);
void gd_jit_trace_release(void *trace);
/* Whether the trace is valid for a call with these inputs. */
bool gd_jit_trace_fits(const gd_jit_trace *t, gd_tensors inputs, int64_t key);
/* Writes why it is not, and returns how much fits: 0, the key or the inputs differ; 1. `text` is empty if
 * the trace is valid. */
int gd_jit_trace_difference(const gd_jit_trace *t, gd_tensors inputs, int64_t key, char *text,
                            size_t size);
/* Whether a captured tensor was replaced since (gd_tensor_become): the trace is useless then. */
bool gd_jit_trace_is_stale(const gd_jit_trace *t);
void gd_release_all(gd_tensor **list, int count); /* and frees the list */

/* --- jit_run.c -------------------------------------------------------------------------------- */

/* Runs the session with inputs `x` and, for a gradient, `gy`. */
gd_status gd_jit_run(gd_jit_trace *t, gd_tensor *const *x, gd_tensor *const *gy, gd_tensors fetches,
                     gd_rng rng_offset, gd_tensor **results);
/* A call that is not on the tape: writes what the function writes; `y` are the results. */
gd_status gd_jit_run_forward(gd_jit_trace *t, gd_tensor *const *x, gd_rng rng_offset,
                             gd_tensor **y);
/* The memory of a call's plan, and the plan as text, which the caller frees; each may be NULL. */
gd_status gd_jit_query_plan(const gd_jit_trace *t, gd_tensor *const *x, gd_plan_memory *memory,
                            char **text);
/* The random numbers of a call: the generator's next ones, as if the function were called. */
gd_rng gd_jit_take_rng(const gd_jit_trace *t);
/* The forward rule of a call on the tape (gd_function). */
void gd_jit_forward(gd_context *context);

/* --- jit_grad.c ------------------------------------------------------------------------------- */

/* The backward rule of a call on the tape. */
void gd_jit_backward(gd_context *context);

#endif
