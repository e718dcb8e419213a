/* walker.h - the one backward walk. */
#ifndef GRADUS_AUTOGRAD_WALKER_H
#define GRADUS_AUTOGRAD_WALKER_H

#include "gradus/autograd.h"
#include "gradus/extend.h"

struct gd_hook;

typedef struct gd_walk {
    gd_tensor *const *outputs;
    gd_tensor *const *gradients; /* of the outputs, none NULL */
    int64_t n_outputs;
    gd_tensor *const *inputs; /* NULL: add to every leaf's own gradient instead */
    int64_t n_inputs;
    gd_tensor **results; /* for each input a reference to its gradient, or NULL */
    uint64_t since;      /* nodes with smaller numbers are where the walk ends; 0: none is */
    bool retain_graph, create_graph;
} gd_walk;

gd_status gd_walk_back(const gd_walk *walk);

/* While it is set, walks through a graph end at tensors outside of it. Hooks of those are left to
 * the caller, or to the walk of the tape that goes on from there. */
extern _Thread_local bool gd_walks_stay_inside;
/* Calls the hooks of output `index`; *grad is the gradient to go on with, a reference. */
gd_status gd_call_hooks(const struct gd_hook *hooks, int index, gd_tensor **grad);

/* Whether a size behind the outputs of a graph, or the way through it, is known only when it runs; and
 * which of the inputs a gradient can get to at all. */
gd_status gd_walk_waits(const gd_walk *walk, bool *waits, bool *reached);
gd_status gd_walk_reaches(const gd_walk *walk, bool *reached);

/* The gradient rule of every elementwise op, from its IR. */
void gd_elementwise_vjp(gd_vjp *vjp);

#endif
