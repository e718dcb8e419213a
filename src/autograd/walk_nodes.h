/* walk_nodes.h - the nodes and leaves of a backward pass (walker.c). */
#ifndef GRADUS_AUTOGRAD_WALK_NODES_H
#define GRADUS_AUTOGRAD_WALK_NODES_H

#include "autograd/node.h"
#include "autograd/walker.h"
#include "core/map.h"

/* An accumulator of gradients: of the outputs of a node, or of a leaf. */
typedef struct gd_accumulator {
    gd_node *node; /* NULL: a leaf */
    gd_tensor *leaf;
    gd_tensor **grads;           /* one for each output; 1 for a leaf */
    int target;                  /* the first input of the walk that is one of these; -1: none */
    int pending;                 /* leaf: users that are not visited yet */
    bool done;                   /* leaf: its gradient is delivered */
    bool needed;                 /* its gradient, or the gradient of an ancestor, is requested */
    bool has_requested_ancestor; /* node: an ancestor's is; if not, the rule need not run */
} gd_accumulator;

typedef struct gd_walker {
    gd_accumulator *accumulators;
    int count, capacity;
    gd_map at; /* from nodes and leaves to indices of accumulators */
    const gd_walk *walk;
    int *next_target; /* for each input of the walk: the next one of its accumulator; -1: none */
} gd_walker;

/* The index of the accumulator of a node or a leaf; -1: none. */
static inline int gd_walker_find(const gd_walker *w, const void *key) {
    return gd_map_find(&w->at, key);
}

/* Creates an accumulator for each node and leaf that the walk may reach. `order` gets their
 * indices, latest nodes first; free it. */
gd_status gd_walker_collect(gd_walker *w, int **order);

/* Sets `needed` and `has_requested_ancestor` of all accumulators. */
void gd_walker_mark_needed(gd_walker *w, const int *order);

/* Whether the gradient of a leaf (index 0), or of output `index` of a node, is requested. */
bool gd_walker_is_target(const gd_walker *w, const gd_accumulator *a, int index);

/* Whether the walk ends at this node. */
bool gd_walker_ends_at(const gd_walker *w, const gd_node *node);

void gd_walker_free(gd_walker *w);

#endif
