/* node.h - the node of a call: one struct for the tape and for graphs.
 *
 * A node has its op, its attributes, and a slot for each input and output. On the tape a slot holds
 * the storage of a tensor that the gradient needs; in a graph slots hold no data, since the node
 * can be run again.
 */
#ifndef GRADUS_AUTOGRAD_NODE_H
#define GRADUS_AUTOGRAD_NODE_H

#include "gradus/autograd.h"
#include "dispatch/op.h"

/* An input or output of a node. */
typedef struct gd_slot {
    /* the node that computes it; NULL: a leaf or a constant. Output slots do not retain their node
     * */
    gd_node *node;
    int32_t index;
    uint32_t version;
    gd_tensor *leaf;     /* a leaf that requires grad */
    gd_storage *storage; /* the data, if saved */
    gd_tensor *captured; /* of a graph's node: the captured tensor, retained */
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
    gd_hook_fn fn; /* NULL: it was removed */
    void *user;
    void (*release)(void *user);
    int index;        /* which output of its node */
    const char *site; /* of the call that added it */
};

struct gd_node {
    _Atomic int32_t refs;
    bool spent;     /* the backward pass has freed the saved tensors */
    bool graph;     /* a node of a graph: its outputs are symbols */
    bool stops;     /* of a graph: recorded under GD_NO_GRAD, so it passes no gradient */
    uint64_t order; /* increases with each node */
    uint64_t as_of; /* graph: it sees the writes of nodes before this number (gd_as_of) */
    const gd_op *op;
    const char *site;
    gd_rng rng;
    int n_in, n_out, n_saved;
    gd_slot *slots; /* inputs, outputs, then saved tensors of a user's function */
    void *attrs;
    const gd_function *function; /* a user's function; op is then NULL */
    void *user;
    void (*user_free)(void *user);
    gd_hook *hooks;
    gd_node *next_dead;
    size_t bytes;
    struct gd_origin *origin; /* of a graph's node: its place in the graph (graph/build/graph.h) */
};

/* Frees an origin. src/graph sets it, since src/autograd does not depend on graphs. */
extern void (*gd_origin_free_hook)(struct gd_origin *origin);

/* While a function is traced, changes of the gradients of leaves are recorded instead; set by
 * src/graph, too (graph/build/trace_grad.c). */
typedef struct gd_grad_hooks {
    bool (*tracing)(void); /* the others are called only then */
    gd_status (*get)(const gd_tensor *leaf, gd_tensor **grad);
    gd_status (*set)(gd_tensor *leaf, gd_tensor *grad);
    gd_status (*backward)(gd_tensor *result, gd_tensor *gradient,
                          const gd_backward_options *options);
    gd_status (*freeze)(gd_tensor *leaf); /* before its requires_grad changes */
    /* In any graph: calls a hook with a symbol; fails for effects that later runs would not
     * repeat. */
    gd_status (*hook)(const gd_hook *hook, gd_tensor *gradient, gd_tensor **other);
    gd_status (*check_hook)(const gd_tensor *symbol); /* before a symbol gets one */
} gd_grad_hooks;
extern gd_grad_hooks gd_traced_grads;
void gd_hook_free(gd_hook *hook);
/* Whether hooks of this thread are being called: none may be freed. */
extern _Thread_local int gd_hooks_running;

/* gd_set_grad for library code: a failure is not recorded. */
gd_status gd_replace_grad(gd_tensor *t, gd_tensor *grad);

static inline bool gd_grads_are_traced(void) {
    return gd_this_thread.tracer && gd_traced_grads.tracing && gd_traced_grads.tracing();
}

/* While the gradient rule of a graph's node runs: the as_of of that node. The rule reads the values
 * that the node has read, without later writes. 0: no rule is running. */
extern _Thread_local uint64_t gd_as_of;

/* A node with room for its slots and a copy of the attributes. NULL: no memory. */
gd_node *gd_node_new(const gd_op *op, const void *attrs, int n_in, int n_out, int n_saved);
void gd_node_retain(gd_node *node);
uint64_t gd_node_next_order(void); /* the order of the next node */
void gd_node_release(gd_node *node);

/* Fills a slot from a tensor; with `save` it holds the storage, too. */
void gd_slot_set(gd_slot *slot, gd_tensor *t, bool save);
/* The tensor of a slot, in the current scope: with data and history if it was saved, otherwise a
 * META tensor (a symbol in a graph). `self` is the node if the slot is one of its outputs. NULL:
 * the data were overwritten, or there is no memory; the failure is recorded. */
gd_tensor *gd_slot_get(const gd_slot *slot, gd_node *self, const char *what);

/* Copies a slot without its data. */
void gd_slot_link(gd_slot *slot, const gd_slot *from);
/* Replaces the tensor of an input slot. */
void gd_slot_replace(gd_slot *slot, gd_tensor *t);
/* Retains a captured tensor that a graph's node reads, so that the node finds it again after
 * gd_tensor_become. */
void gd_slot_capture(gd_slot *slot, gd_tensor *t);
/* The captured tensor of a slot with its present value. NULL: no memory; the failure is
 * recorded. */
gd_tensor *gd_slot_current(const gd_slot *slot);

/* Makes t the output `index` of node. */
void gd_node_attach(gd_node *node, gd_tensor *t, int index);
/* The same, and passes the caller's reference to it. */
void gd_node_give(gd_node *node, gd_tensor *t, int index);

#endif
