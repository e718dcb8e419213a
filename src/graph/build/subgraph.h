/* subgraph.h - making subgraphs from functions, and running them on values or symbols. */
#ifndef GRADUS_GRAPH_SUBGRAPH_H
#define GRADUS_GRAPH_SUBGRAPH_H

#include "graph/build/graph.h"
#include "gradus/control.h"
#include "ops/subgraph.h"

/* --- making ----------------------------------------------------------------------------------- */

/* The functions of one call, which take the same inputs and share what they capture. */
typedef struct gd_capturing {
    gd_tensor **captured; /* held */
    int count, capacity;
} gd_capturing;

/* Calls `body` once with symbols of the given shapes. What it gives must be gd_subgraph_close'd. */
gd_status gd_subgraph_trace(gd_body body, void *user, const gd_meta *inputs, int n_inputs,
                            gd_subgraph **made);

/* Makes inputs of whatever the functions take from outside; the captured tensors come behind the
 * call's own inputs. */
gd_status gd_subgraph_close(gd_capturing *c, gd_subgraph *const *subs, int n_subs);
void gd_capturing_free(gd_capturing *c);

/* The shape of a tensor, or of one position of its first axis. */
gd_meta gd_meta_of(const gd_tensor *t);

/* The subgraphs among a node's options, in order; NULL behind the last. */
gd_subgraph *gd_node_subgraph(const gd_node *node, int index);

/* GD_HAS_... of a node, that of its subgraphs included. */
unsigned gd_node_traits(const gd_node *node);
enum {
    GD_NEEDS_VALUES = GD_HAS_BRANCH | GD_HAS_WHILE | GD_HAS_SIZES
}; /* no plan without steps for loops */

/* --- running ---------------------------------------------------------------------------------- */

/* What nodes of one run have in common. */
typedef struct gd_running {
    uint64_t run;   /* added to the call numbers of random ops: others in each run */
    uint64_t steps; /* a number for the steps of all loops around; 0: none */
    bool tape;      /* everything is put on the tape, for deferred gradients */
    int64_t *left;  /* how many nodes may still be noted; NULL: any number */
    bool keep;      /* when nodes are noted once more: branches and long scans stay nodes */
    bool stacked;   /* and scans give the states before each step as well: a gradient wants them */
} gd_running;

/* A number for step `step` of a loop in the steps `steps` of those around it. */
static inline uint64_t gd_step_hash(uint64_t steps, int64_t step) {
    uint64_t h = steps + 0x9E3779B97F4A7C15u * (uint64_t)(step + 1);
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
    return h ^ (h >> 31);
}

/* Runs a node: with values it computes, with symbols (and a tracer) it is noted once more. `out` are
 * in the current scope. */
gd_status gd_node_run(gd_node *node, gd_tensor *const *in, gd_tensor **out,
                      const gd_running *running);

/* Runs a subgraph; the results are references that the caller releases. */
gd_status gd_subgraph_run(const gd_subgraph *sub, gd_tensor *const *in, gd_tensor **out,
                          const gd_running *running);

/* Runs a node of control.c (ops). */
gd_status gd_control_run(const gd_node *node, gd_tensor *const *in, gd_tensor **out,
                         const gd_running *running);

/* Scans of at most so many nodes in all steps together are unrolled in plans. Tests set it. */
extern int64_t gd_short_scan;

/* Notes such a node once more, its functions with the shapes of these inputs. */
gd_status gd_control_trace(const gd_node *node, gd_tensor *const *in, gd_tensor **out,
                           const gd_running *running);

/* The value as a leaf of the tape. */
gd_tensor *gd_on_tape(gd_tensor *value);

#endif
