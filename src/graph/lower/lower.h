/* lower.h - the state of lowering a graph to a program, shared by the files that do it. */
#ifndef GRADUS_GRAPH_LOWER_LOWER_H
#define GRADUS_GRAPH_LOWER_LOWER_H

#include "graph/control/nodes.h"
#include "graph/lower/program.h"

/* A node that the run needs. */
typedef struct gd_lowered_node {
    gd_node *node;
    int feed;            /* the first feed of one of its results; -1: it is not fed */
    int *values;         /* its outputs in the program */
    gd_tensor **symbols; /* its outputs in the replay */
    uint64_t began;      /* in the replay: nodes from this order on were added for it, or later */
} gd_lowered_node;

/* A write to a variable or a captured tensor: nodes after `order` see `value` instead of `of`. */
typedef struct gd_value_version {
    int of, value; /* values of the program; `of` is the contents before the run */
    uint64_t order;
    int commit; /* the commit of `of` */
    int before; /* the previous version in the same memory; -1: none */
} gd_value_version;

typedef struct gd_lowering {
    gd_program *p;
    gd_tensors feeds, fed;    /* the symbols, and their values */
    gd_map feed_of;           /* the first feed of each fed node */
    int *next_feed;           /* for each feed: the next one of its node; -1: none */
    gd_lowered_node *entries; /* sorted by the order of the nodes */
    int count, capacity;
    gd_value_version *versions; /* in the order of the writes */
    int n_versions, versions_room;
    int64_t left; /* how many more nodes loops may be unrolled to */
    gd_running running;
} gd_lowering;

/* Collects all nodes that `roots` need. The search ends at feeds. */
gd_status gd_lowering_collect(gd_lowering *l, gd_node *const *roots, int64_t n_roots);
gd_lowered_node *gd_lowering_find(gd_lowering *l, const gd_node *node); /* NULL: not needed */

/* Traces all nodes again with the sizes of the feeds (replay.c). `after` gets what the same fetches
 * need in the new trace. */
gd_status gd_lowering_replay(gd_lowering *l, gd_tensors fetches, gd_lowering *after);
/* Turns all nodes into steps of the program (steps.c). */
gd_status gd_lowering_add_steps(gd_lowering *l, gd_tensors fetches);

static inline bool gd_node_is_variable(const gd_node *node) {
    return node->origin && node->origin->kind == GD_FROM_VARIABLE;
}

/* The name of a node in messages. */
static inline const char *gd_node_name(const gd_node *node) {
    return node->origin ? node->origin->name : node->op ? node->op->name : "a symbol";
}

#endif
