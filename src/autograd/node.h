/* node.h - how a tensor came to be: one struct for the tape and for graphs.
 *
 * A node remembers its op, its attributes, and a slot for each input and output. On the tape a slot
 * holds the storage of what the gradient needs; in a graph slots hold no data at all, since the
 * node can be run again.
 */
#ifndef GRADUS_AUTOGRAD_NODE_H
#define GRADUS_AUTOGRAD_NODE_H

#include "gradus/autograd.h"
#include "ops/op.h"

/* A tensor as a node remembers it. */
typedef struct gd_slot {
    gd_node
        *node; /* where it came from; NULL: a leaf or a constant. An output's own node: not held */
    int32_t index;
    uint32_t version;
    gd_tensor *leaf;     /* a leaf that requires grad */
    gd_storage *storage; /* the data, if saved */
    gd_tensor *captured; /* of a graph's node: the tensor outside that it reads, held */
    gd_device *device;
    int64_t offset;
    uint8_t dtype, rank;
    bool present; /* false: an optional input that is absent */
    bool requires_grad;
    bool saved;
    bool symbol;
    int64_t dims[GD_MAX_RANK], strides[GD_MAX_RANK];
} gd_slot;

struct gd_hook {
    gd_hook *next;
    gd_hook_fn fn;
    void *user;
    int index;        /* which output of its node */
    const char *site; /* where it was added */
};

struct gd_node {
    _Atomic int32_t refs;
    bool spent;     /* saved values were given up after a walk */
    bool graph;     /* a node of a graph: its outputs are symbols */
    bool stops;     /* of a graph's: noted under GD_NO_GRAD, so no gradient goes back through it */
    uint64_t order; /* nodes made later have larger numbers */
    uint64_t as_of; /* of a graph's: it sees what nodes before this number have written; gd_as_of,
                       or its order */
    const gd_op *op;
    const char *site;
    gd_rng rng;
    int n_in, n_out, n_saved;
    gd_slot *slots; /* inputs, outputs, then what a user's function saved */
    void *attrs;
    const gd_function *function; /* a user's function; op is then NULL */
    void *user;
    void (*user_free)(void *user);
    gd_hook *hooks;
    gd_node *next_dead;
    size_t bytes;
    struct gd_origin *origin; /* of a graph's node: where it stands (graph/graph.h) */
};

/* Frees an origin; set by graphs, so that the tape need not know them. */
extern void (*gd_origin_free_hook)(struct gd_origin *origin);

/* While a function is traced, what eager code does to the gradients of leaves is noted instead; set
 * by graphs, too (graph/build/trace_grad.c). */
typedef struct gd_grad_hooks {
    bool (*tracing)(void); /* the others are called only then */
    gd_status (*get)(const gd_tensor *leaf, gd_tensor **grad);
    gd_status (*set)(gd_tensor *leaf, gd_tensor *grad);
    gd_status (*backward)(gd_tensor *result, gd_tensor *gradient,
                          const gd_backward_options *options);
    gd_status (*freeze)(gd_tensor *leaf); /* before its requires_grad changes */
    /* In any graph: calls a hook with a symbol, and refuses what would not be done in later runs.
     */
    gd_status (*hook)(const gd_hook *hook, gd_tensor *gradient, gd_tensor **other);
    gd_status (*check_hook)(const gd_tensor *symbol); /* before a symbol gets one */
} gd_grad_hooks;
extern gd_grad_hooks gd_traced_grads;
/* gd_set_grad for library code: a failure is not recorded. */
gd_status gd_replace_grad(gd_tensor *t, gd_tensor *grad);

static inline bool gd_grads_are_traced(void) {
    return gd_this_thread.tracer && gd_traced_grads.tracing && gd_traced_grads.tracing();
}

/* In the gradient rule of a graph's node: that node's as_of. The rule reads what the node has read,
 * whatever was written since. 0: not in a rule. */
extern _Thread_local uint64_t gd_as_of;

/* A node with room for its slots and a copy of the attributes. NULL when there is no memory. */
gd_node *gd_node_new(const gd_op *op, const void *attrs, int n_in, int n_out, int n_saved);
void gd_node_retain(gd_node *node);
uint64_t gd_node_next_order(void); /* of all nodes that will be made from here on, the least */
void gd_node_release(gd_node *node);

/* Fills a slot from a tensor; with `save` its data are kept too. */
void gd_slot_set(gd_slot *slot, gd_tensor *t, bool save);
/* The tensor again, in the current scope: with data and history if it was saved, else a META
 * tensor (a symbol in a graph). `self` is the node if the slot is one of its outputs. NULL, with
 * the failure noted, when the data were overwritten or there is no memory. */
gd_tensor *gd_slot_get(const gd_slot *slot, gd_node *self, const char *what);

/* The same source as another slot, without its data. */
void gd_slot_link(gd_slot *slot, const gd_slot *from);
/* Puts another tensor into an input's slot. */
void gd_slot_replace(gd_slot *slot, gd_tensor *t);
/* Holds a tensor outside that a graph's node reads, so that it is found again where it has become
 * another (gd_tensor_become). */
void gd_slot_capture(gd_slot *slot, gd_tensor *t);
/* A value that a graph's node captured, whatever has been written to it since. NULL, noted, when there
 * is no memory. */
gd_tensor *gd_slot_as_it_is(const gd_slot *slot);

/* Makes t the output `index` of node. */
void gd_node_attach(gd_node *node, gd_tensor *t, int index);
/* The same, and hands the caller's reference over to it. */
void gd_node_give(gd_node *node, gd_tensor *t, int index);

#endif
