/* run.h - runs branches and loops: for eager calls, whose bodies are C functions, and for nodes of
 * graphs, whose bodies are subgraphs. */
#ifndef GRADUS_GRAPH_CONTROL_RUN_H
#define GRADUS_GRAPH_CONTROL_RUN_H

#include "graph/control/nodes.h"

/* A C function of the program, or a subgraph with its captured tensors. */
typedef struct gd_callee {
    gd_body body;
    void *user;
    const gd_subgraph *sub;
    gd_tensor *const *captured;
} gd_callee;

/* A list of retained tensors. */
typedef struct gd_held {
    gd_tensor **at;
    int count;
} gd_held;

gd_status gd_held_init(gd_held *h, gd_tensor *const *tensors, int64_t count);
void gd_held_release(gd_held *h); /* releases the tensors and frees the list */

/* Results go into `out`, which is empty before; the caller releases it. */
gd_status gd_run_cond(gd_tensor *predicate, const gd_callee *yes, const gd_callee *no,
                      gd_tensor *const *in, int n_in, gd_held *out, const gd_running *r);
/* The state is replaced. The caller releases it, also after a failure. */
gd_status gd_run_while(const gd_callee *condition, const gd_callee *body, gd_held *state,
                       int64_t max_steps, const gd_running *r);
gd_status gd_run_scan(const gd_callee *body, gd_held *state, gd_tensors xs, bool reverse,
                      gd_held *out, const gd_running *r);

/* Runs a control-flow node (dispatch/control.c) on values. */
gd_status gd_control_run(const gd_node *node, gd_tensor *const *in, gd_tensor **out,
                         const gd_running *running);

/* Plans unroll scans whose steps have at most this many nodes together. Tests set it. */
extern int64_t gd_short_scan;

/* Replays a control-flow node, its subgraphs with the shapes of these inputs. */
gd_status gd_control_trace(const gd_node *node, gd_tensor *const *in, gd_tensor **out,
                           const gd_running *running);

/* --- checks, when a node is traced and in each step ------------------------------------------- */

/* Fails if state k changes its shape or dtype in a step. */
gd_status gd_check_state(const gd_meta *before, const gd_meta *after, int k);
/* Fails if it has more than one element. */
gd_status gd_check_condition(const gd_meta *m, const char *what);
bool gd_metas_alike(const gd_meta *a, const gd_meta *b); /* unknown sizes are equal to any */
const char *gd_meta_text(const gd_meta *m, char *text, size_t size);

#endif
