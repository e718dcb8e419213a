/* subgraph.h - a function of tensors as a graph: a branch of cond, the body of a loop.
 *
 * It is closed: what its nodes take from outside is among its inputs. Nodes hold theirs as an option
 * of type graph, so that whatever carries options along carries it, too.
 */
#ifndef GRADUS_OPS_SUBGRAPH_H
#define GRADUS_OPS_SUBGRAPH_H

#include <stdatomic.h>

#include "core/tensor.h"
#include "gradus/extend.h"

struct gd_subgraph {
    _Atomic int32_t refs;
    void (*destroy)(gd_subgraph *sub); /* src/graph's: it knows what a graph is */
    struct gd_graph *graph;            /* its nodes, in the order they run */
    gd_node **in; /* sources: first what the call gives, then what was captured */
    int n_in, n_given;
    gd_node **out; /* output k is result out_index[k] of node out[k] */
    int *out_index;
    gd_meta *metas; /* of the outputs */
    int n_out;
    int n_made; /* nodes of the function itself: behind them come those that only name a result */
    int *first_value; /* of each node, among the results of all; -1: nobody needs it */
    int n_values;
    int n_needed;    /* nodes that run */
    unsigned traits; /* of all nodes that run: GD_HAS_... */
    double macs;     /* of one run, where they were counted (ops/macs.h) */
};

/* What there is in a graph that plans have to know of. */
enum {
    GD_HAS_BRANCH = 1,    /* cond */
    GD_HAS_WHILE = 2,     /* a loop of unknown length */
    GD_HAS_SIZES = 4,     /* sizes that depend on data */
    GD_HAS_GRADIENTS = 8, /* a deferred gradient */
    GD_HAS_SCAN = 16,
};

/* The gradient rules of branches and loops are src/graph's: they make graphs. */
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
