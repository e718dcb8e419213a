/* subgraph.h - subgraphs: traced from functions (branches, loop bodies), run on values or
 * symbols. */
#ifndef GRADUS_GRAPH_SUBGRAPH_H
#define GRADUS_GRAPH_SUBGRAPH_H

#include "graph/build/graph.h"
#include "gradus/control.h"
#include "dispatch/subgraph.h"

/* --- tracing ---------------------------------------------------------------------------------- */

/* The captured tensors that the functions of one call (both branches, say) share. */
typedef struct gd_capturing {
    gd_tensor **captured; /* retained */
    int count, capacity;
} gd_capturing;

/* Calls `body` once with symbols of the given shapes. Call gd_subgraph_close with the result. */
gd_status gd_subgraph_trace(gd_body body, void *user, const gd_meta *inputs, int n_inputs,
                            gd_subgraph **made);

/* Turns captured tensors into inputs of the subgraphs, after the call's own inputs. */
gd_status gd_subgraph_close(gd_capturing *c, gd_subgraph *const *subs, int n_subs);
void gd_capturing_free(gd_capturing *c);

/* Dtype, shape and device of a tensor. */
gd_meta gd_meta_of(const gd_tensor *t);

/* The subgraph number `index` among a node's options; NULL past the last. */
gd_subgraph *gd_node_subgraph(const gd_node *node, int index);

/* The GD_HAS_... flags of a node and its subgraphs. */
unsigned gd_node_traits(const gd_node *node);
/* Traits of nodes whose shapes or steps depend on values. */
enum { GD_NEEDS_VALUES = GD_HAS_BRANCH | GD_HAS_WHILE | GD_HAS_SIZES };

/* --- running ---------------------------------------------------------------------------------- */

/* How the nodes of one run are run. "Replay" is tracing nodes again with symbols as inputs. */
typedef struct gd_running {
    uint64_t run;   /* added to the call numbers of random ops, so that they differ between runs */
    uint64_t steps; /* gd_step_hash of the current steps of all loops around; 0: no loop */
    bool tape;      /* put everything on the tape, for deferred gradients */
    int64_t *left;  /* how many more nodes a replay may trace; NULL: any number */
    bool keep;      /* in a replay: branches and long scans stay nodes */
    bool stacked;   /* in a replay: scans also return the states before each step, for gradients */
} gd_running;

/* A number that identifies step `step` of a loop, and the steps `steps` of the loops around it. */
static inline uint64_t gd_step_hash(uint64_t steps, int64_t step) {
    uint64_t h = steps + 0x9E3779B97F4A7C15u * (uint64_t)(step + 1);
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
    return h ^ (h >> 31);
}

/* Runs a node: it computes values, or traces the node again if inputs are symbols. `out` belong to
 * the current scope. */
gd_status gd_node_run(gd_node *node, gd_tensor *const *in, gd_tensor **out,
                      const gd_running *running);

/* Runs a subgraph. The caller releases the results. */
gd_status gd_subgraph_run(const gd_subgraph *sub, gd_tensor *const *in, gd_tensor **out,
                          const gd_running *running);

/* Runs a control-flow node (dispatch/control.c) on values. */
gd_status gd_control_run(const gd_node *node, gd_tensor *const *in, gd_tensor **out,
                         const gd_running *running);

/* Plans unroll scans whose steps have at most this many nodes together. Tests set it. */
extern int64_t gd_short_scan;

/* Replays a control-flow node, its subgraphs with the shapes of these inputs. */
gd_status gd_control_trace(const gd_node *node, gd_tensor *const *in, gd_tensor **out,
                           const gd_running *running);

/* The value as a leaf of the tape, if its dtype is a float. */
gd_tensor *gd_on_tape(gd_tensor *value);

#endif
