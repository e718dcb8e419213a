/* graph.h - the internals of a graph: nodes in the order in which they were added.
 *
 * A node is the tape's struct (autograd/node.h), so that one backward walk serves both; a graph
 * adds an origin to each node. A graph retains its nodes, and a symbol retains its node: the symbol
 * stays valid after the graph is freed, but no op can take it as an input then.
 */
#ifndef GRADUS_GRAPH_BUILD_GRAPH_H
#define GRADUS_GRAPH_BUILD_GRAPH_H

#include "autograd/node.h"
#include "core/guard.h"
#include "core/map.h"
#include "core/name_map.h"
#include "gradus/graph.h"

typedef enum gd_origin_kind { GD_FROM_OP, GD_FROM_PLACEHOLDER, GD_FROM_VARIABLE } gd_origin_kind;

/* What a graph knows about one of its nodes. */
typedef struct gd_origin {
    gd_graph *graph; /* NULL once it is freed */
    gd_origin_kind kind;
    int number; /* index in the graph's nodes */
    char *name; /* also that of its first output */
    bool named; /* the program gave the name; else it is the op's name and the number */
    char *
        *output_names; /* of outputs 1, 2, ... at 0, 1, ...: a name that the program gave, or NULL;
                          * NULL: none has one */
    int n_output_names;
    const gd_op *caller; /* of a node of an op's body: the op that the program called; else NULL */
    int random_index;    /* of a random op: its index among the random ops; else -1 */
    int variable;        /* of a variable: its index among the variables; else -1 */
    bool trainable;
    gd_tensor *initial; /* of a variable: its initial value */
    bool graded;     /* of a jit's input: the function reads or changes the gradient that the input
                  * has if it is a leaf */
    gd_node **after; /* nodes that must run before it */
    int n_after;
} gd_origin;

/* A write to a captured tensor: until the next write, the tensor means `symbol` in the graph. */
typedef struct gd_written {
    gd_tensor *tensor, *symbol; /* both retained */
    gd_node *node; /* writes the tensor itself, retained; NULL: no node does, an assign is needed */
    uint64_t order; /* of the node that computed the new value */
    bool opaque;    /* `symbol` is another output of the node, not the new value */
    int before;     /* the previous write to the same storage; -1: none */
} gd_written;

/* The value of a captured leaf after a write: gradients of the symbol are gradients of the leaf. */
typedef struct gd_leaf_version {
    gd_tensor *leaf, *symbol; /* both retained */
} gd_leaf_version;

/* The gradient of a captured leaf (its .grad) while a jit's function is traced. */
typedef struct gd_leaf_grad {
    gd_tensor *leaf; /* retained, as are the next two */
    gd_tensor *now;  /* the gradient as a symbol; NULL: the leaf has none */
    gd_tensor *fed;  /* a placeholder for the gradient before the call; NULL: there was none, or the
                      * function does not read it */
    bool looked;     /* the trace depends on whether there was a gradient before the call */
    bool kept;       /* the leaf still has the gradient tensor from before the call, and the
                      * function accumulates into that tensor */
} gd_leaf_grad;

/* A captured tensor of a jit, as it was when the function was traced. */
typedef struct gd_captured {
    gd_tensor *tensor;   /* retained, as is the next */
    gd_storage *storage; /* the tensor was replaced (gd_tensor_become) if it has another one now */
    bool requires_grad;
} gd_captured;

/* A captured leaf whose requires_grad was changed while the graph was traced. */
typedef struct gd_frozen {
    gd_tensor *tensor; /* retained */
    bool before;
} gd_frozen;

/* A C value that a jit's function depends on, such as a module's mode, as it was when the function
 * first read it. */
typedef struct gd_traced_value {
    gd_object *owner; /* contains `where`, retained */
    const int *where;
    int value;
    bool is_mode; /* training (1) or evaluation (0) */
} gd_traced_value;

/* For the graph of a branch or of a loop's body: open while its function is traced, then sealed. */
typedef enum gd_body_state { GD_NO_BODY, GD_BODY_OPEN, GD_BODY_SEALED } gd_body_state;

struct gd_graph {
    gd_object object;
    gd_body_state body;
    struct gd_graph *outer; /* of an open body: the graph around it, which is also being built */
    bool jit;               /* the graph of a jit */
    bool traces_writes;     /* a jit's function is being traced: captured tensors may be written */
    bool writes_values;     /* some node writes a captured tensor */
    gd_written *written;    /* in the order of the writes */
    int n_written, written_room;
    gd_map latest_write;   /* of each storage */
    gd_captured *captured; /* of a jit, each tensor once */
    int n_captured, captured_room;
    gd_map capture_of; /* tensors to indices in `captured`; the next three maps are like it */
    gd_leaf_version *versions; /* of a jit, in the order of the writes */
    int n_versions, version_room;
    gd_leaf_grad *grads; /* of a jit, each leaf once */
    int n_grads, grad_room;
    gd_map grad_of;
    gd_frozen *frozen; /* of a jit, each leaf once */
    int n_frozen, frozen_room;
    gd_map frozen_of;
    gd_traced_value *values; /* of a jit, each `where` once */
    int n_values, value_room;
    gd_map value_of;
    gd_node **nodes;
    int count, capacity;
    gd_map views; /* slots of results to the numbers of the first nodes that are views of them */
    gd_name_map names;   /* names that the program gave; a name leads to its first node */
    gd_name_map symbols; /* names of gd_named, which lead to the symbols, retained */
    gd_node **variables; /* those of `nodes` that are variables */
    int n_variables, variable_capacity;
    gd_node **placeholders; /* those that are placeholders */
    int n_placeholders, placeholder_capacity;
    gd_guard guard;             /* locked while the next two change */
    _Atomic uint64_t became;    /* gd_tensors_became() at the last refresh */
    _Atomic uint64_t refreshed; /* counts refreshes that changed nodes: older plans are stale */
    int n_random;               /* number of random nodes */
    uint64_t random_base; /* the call number that the first random node would have as an eager op */
};

/* What the open blocks of this thread add to each new node. */
typedef struct gd_building {
    char *prefix; /* "encoder/layer1/"; NULL: none */
    gd_node **after;
    int n_after;
} gd_building;
extern _Thread_local gd_building gd_this_building;

/* The graph that is being built, or NULL. */
static inline gd_graph *gd_graph_building(void) {
    void *tracer = gd_this_thread.tracer;
    return tracer == &gd_no_graph ? NULL : tracer;
}

/* The graph of the jit's function that this thread traces, also inside a branch; or NULL. */
static inline gd_graph *gd_graph_traced(void) {
    gd_graph *graph = gd_graph_building();
    while (graph && graph->outer) graph = graph->outer;
    return graph && graph->traces_writes ? graph : NULL;
}

/* Adds a new node. Does nothing if `graph` is NULL: the node then belongs to no graph. */
gd_status gd_graph_add(gd_graph *graph, gd_node *node, gd_origin_kind kind, const char *name);

/* Adds a node that has no op, a placeholder or a variable. Its symbol belongs to the current
 * scope. */
gd_status gd_graph_source(gd_graph *graph, gd_origin_kind kind, const char *site, const char *name,
                          const gd_meta *meta, gd_tensor **symbol);

/* The first node of the graph that is a view of a symbol; NULL: there is none. */
const gd_node *gd_graph_view_of(const gd_graph *graph, const gd_tensor *symbol);

/* A new handle for output `index` of a node. NULL, and the failure is recorded: no memory. */
static inline gd_tensor *gd_node_symbol(gd_node *node, int index) {
    return gd_slot_get(&node->slots[node->n_in + index], node, "a graph");
}

/* The name of an output: one that the program gave, "topk_3" for the first one of a node, or
 * "topk_3:1". */
const char *gd_output_name(const gd_node *node, int index, char *text, size_t size);

/* The graph that an op with these inputs belongs to. */
gd_graph *gd_graph_of(gd_tensor *const *in, int n_in);

/* In a jit's graph: records that `tensor` means `symbol` from now on. */
gd_status gd_graph_record_write(gd_graph *graph, gd_written written);
/* The latest write to a tensor that is visible as of gd_as_of; NULL: there was none. */
gd_written *gd_graph_find_write(const gd_graph *graph, const gd_tensor *tensor);
/* What a tensor means now: itself, or the symbol of the latest write to it. Fails for a tensor that
 * partly overlaps one that was written. */
gd_status gd_graph_read(gd_graph *graph, gd_tensor *tensor, gd_tensor **now);
/* Whether both tensors are the same view of one storage; whether they have an element in common. */
bool gd_same_view(const gd_tensor *a, const gd_tensor *b);
bool gd_overlap(const gd_tensor *a, const gd_tensor *b);
/* Gives write number `index`, which is opaque, a symbol for the new value (trace.c). */
gd_status gd_graph_show_write(gd_graph *graph, int index);
/* Makes `node` depend on `before`: a run that needs `node` runs `before` first. */
gd_status gd_graph_run_after(gd_node *node, gd_node *before);
/* In a jit's graph, or a body inside it: records that a node uses a captured tensor. */
gd_status gd_graph_record_capture(gd_graph *graph, gd_tensor *tensor);

/* Records that the function of a jit depends on a C value. Call it before the value is read and
 * before it is changed: the jit uses the trace only for calls that begin with the current value of
 * *where, and traces again for others. A function that returns with another value in *where fails.
 * Retains `owner`, which `where` is part of. Does nothing where no jit traces: a graph that is
 * built explicitly stays in the mode in which it was built. */
gd_status gd_trace_record_value(gd_object *owner, const int *where);
/* The same for the mode of a module: 1, training, or 0. */
gd_status gd_trace_record_mode(gd_object *owner, const int *where);
/* Whether all recorded values are unchanged. */
bool gd_traced_values_fit(const gd_graph *graph);
/* The first one that has changed, or NULL. */
const gd_traced_value *gd_traced_values_changed(const gd_graph *graph);
/* After the function was traced: GD_E_UNSUPPORTED if it left a recorded value changed. */
gd_status gd_traced_values_check(const gd_graph *graph);

/* Call it before a graph is run or saved: nodes whose captured tensors were replaced
 * (gd_tensor_become) now read the new memory. GD_E_STATE if a dtype or a shape has changed. */
gd_status gd_graph_refresh(gd_graph *graph);

/* Whether a symbol belongs to a jit's function that is not being traced any more. */
bool gd_symbol_is_left_over(const gd_tensor *symbol);

/* Frees an origin; for gd_node_release. */
void gd_origin_free(gd_origin *origin);

/* Turns tracing and autocast off, for code that computes while a graph is being built. */
typedef struct gd_tracing {
    void *tracer;
    int autocast;
} gd_tracing;
gd_tracing gd_tracing_off(void);
void gd_tracing_on(gd_tracing before);

/* GD_EAGER; makes ops run eagerly for the rest of the block, also where a function is traced or a
 * graph is built. It is for tensors that outlive the trace, such as a parameter that a module
 * creates in its first forward call. Random ops take the generator's next numbers, and autocast is
 * off. Grad mode, default device and open scopes do not change. Do not read captured tensors that
 * the traced function has written: their new values are computed later. */
typedef struct gd_eager {
    gd_tracing tracing;
    struct gd_rng *replay_rng;
} gd_eager;
gd_eager gd_eager_begin(void);
void gd_eager_end(gd_eager *before);
#define GD_EAGER \
    __attribute__((cleanup(gd_eager_end), unused)) gd_eager eager_before_ = gd_eager_begin()

#endif
