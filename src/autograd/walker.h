/* walker.h - the backward pass, for the tape and for graphs. */
#ifndef GRADUS_AUTOGRAD_WALKER_H
#define GRADUS_AUTOGRAD_WALKER_H

#include "gradus/autograd.h"
#include "gradus/extend.h"

struct gd_hook;

typedef struct gd_walk {
    gd_tensor *const *outputs;
    gd_tensor *const *gradients; /* of the outputs, none NULL */
    int64_t n_outputs;
    gd_tensor *const *inputs; /* NULL: accumulate into the gradients of all leaves instead */
    int64_t n_inputs;
    gd_tensor **results; /* for each input a reference to its gradient, or NULL */
    uint64_t since;      /* the walk ends at nodes with smaller numbers; 0: at none */
    bool retain_graph, create_graph;
    bool inner; /* a walk around it goes on at the inputs, and calls their hooks */
} gd_walk;

gd_status gd_walk_back(const gd_walk *walk);

/* While it is set, walks through a graph end at captured tensors. The caller calls their hooks, or
 * the walk of the tape that continues there. */
extern _Thread_local bool gd_walks_stay_inside;
/* Calls the hooks of output `index`. *grad is the resulting gradient, a reference. */
gd_status gd_call_hooks(const struct gd_hook *hooks, int index, gd_tensor **grad);

/* Whether a walk must wait for a run: it passes unknown sizes, or control flow that depends on
 * data. Also which inputs a gradient reaches. */
gd_status gd_walk_is_deferred(const gd_walk *walk, bool *waits, bool *reached);
gd_status gd_walk_reaches(const gd_walk *walk, bool *reached);

/* The gradient rule of every elementwise op, from its IR. */
void gd_elementwise_vjp(gd_vjp *vjp);

#endif
