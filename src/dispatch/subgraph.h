/* subgraph.h - a function of tensors as a graph: a branch of cond, the body of a loop.
 *
 * It is closed: tensors that its function captures are inputs. A node holds its subgraphs as
 * options of type graph, so that all code that copies options handles them.
 */
#ifndef GRADUS_DISPATCH_SUBGRAPH_H
#define GRADUS_DISPATCH_SUBGRAPH_H

#include <stdatomic.h>

#include "core/tensor.h"
#include "gradus/extend.h"

struct gd_subgraph {
    _Atomic int32_t refs;
    void (*destroy)(gd_subgraph *sub); /* in src/graph, which defines gd_graph */
    struct gd_graph *graph;            /* its nodes, in the order they run */
    gd_node **in;                      /* sources: the n_given arguments, then captured tensors */
    int n_in, n_given;
    gd_node **out; /* output k is result out_index[k] of node out[k] */
    int *out_index;
    gd_meta *metas; /* of the outputs */
    int n_out;
    int n_function_nodes; /* nodes of the function; nodes after them only name a result */
    int *first_value; /* for each node, the index of its first result; -1: the node is not needed */
    int n_values;     /* results of all needed nodes */
    int n_needed;     /* nodes that run */
    unsigned traits;  /* GD_HAS_... flags of all nodes that run */
    double macs;      /* multiply-adds of one run, if they were counted (dispatch/macs.h) */
};

/* Properties of a graph that affect plans. */
enum {
    GD_HAS_BRANCH = 1,    /* cond */
    GD_HAS_WHILE = 2,     /* a loop of unknown length */
    GD_HAS_SIZES = 4,     /* sizes that depend on data */
    GD_HAS_GRADIENTS = 8, /* a deferred gradient */
    GD_HAS_SCAN = 16,
};

/* The gradient rules of branches and loops. src/graph sets them, because they create graphs. */
typedef struct gd_control_rules {
    void (*cond)(gd_vjp *v);
    void (*scan)(gd_vjp *v);
} gd_control_rules;
extern gd_control_rules gd_control_hooks;

static inline void gd_subgraph_retain(gd_subgraph *sub) {
    if (sub) atomic_fetch_add_explicit(&sub->refs, 1, memory_order_relaxed);
}

static inline void gd_subgraph_release(gd_subgraph *sub) {
    if (sub && atomic_fetch_sub_explicit(&sub->refs, 1, memory_order_acq_rel) == 1)
        sub->destroy(sub);
}

#endif
