/* nodes.h - runs nodes and subgraphs, on values or on symbols. */
#ifndef GRADUS_GRAPH_CONTROL_NODES_H
#define GRADUS_GRAPH_CONTROL_NODES_H

#include "graph/build/subgraph.h"

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

/* The value as a leaf of the tape, if its dtype is a float. */
gd_tensor *gd_on_tape(gd_tensor *value);

#endif
