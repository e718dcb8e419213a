/* subgraph.h - subgraphs, traced from functions: branches and bodies of loops. */
#ifndef GRADUS_GRAPH_BUILD_SUBGRAPH_H
#define GRADUS_GRAPH_BUILD_SUBGRAPH_H

#include "graph/build/graph.h"
#include "gradus/control.h"
#include "dispatch/subgraph.h"

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

#endif
