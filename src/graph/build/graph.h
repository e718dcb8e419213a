/* graph.h - the inside of a graph: nodes in the order they were made.
 *
 * A node is the tape's own struct (autograd/node.h), so that one backward walk serves both; what a
 * graph adds to it is its origin. A graph holds its nodes; a symbol holds its node too, so that it
 * stays valid when the graph is gone, though nothing can be added to it then.
 */
#ifndef GRADUS_GRAPH_GRAPH_H
#define GRADUS_GRAPH_GRAPH_H

#include "autograd/node.h"
#include "core/names.h"
#include "gradus/graph.h"
#include "graph/run/guard.h"

typedef enum gd_origin_kind { GD_FROM_OP, GD_FROM_PLACEHOLDER, GD_FROM_VARIABLE } gd_origin_kind;

/* Where a node of a graph stands in it. */
typedef struct gd_origin {
    gd_graph *graph; /* NULL once it is gone */
    gd_origin_kind kind;
    int number; /* in the graph */
    char *name;
    bool named;          /* by the program; else the name is its op and number */
    const gd_op *caller; /* a node of an op's body: the op that the program called; else NULL */
    int noise;           /* a random op: its number among them, from 0 */
    int variable;        /* a variable: its number among them */
    bool trainable;
    gd_tensor *initial; /* a variable's */
    bool graded; /* a jit's input: whose gradient, if it has one, the function would change or read
                  */
    gd_node **after; /* nodes that must have run before it */
    int n_after;
} gd_origin;

/* A tensor outside was written while the graph was traced: what it means until the next write. */
typedef struct gd_written {
    gd_tensor *tensor, *symbol; /* both held */
    gd_node *node;              /* that writes it, held; NULL: none does, and an assign is needed */
    uint64_t order;             /* of the node that wrote it */
    bool opaque;                /* `symbol` belongs to the node, and is not the new value */
} gd_written;

/* What a leaf outside has become by being written: gradients of this symbol are gradients of the
 * leaf. */
typedef struct gd_leaf_version {
    gd_tensor *leaf, *symbol; /* both held */
} gd_leaf_version;

/* The gradient of a leaf outside (its .grad) while a jit's function is traced. */
typedef struct gd_leaf_grad {
    gd_tensor *leaf; /* held, as are the next two */
    gd_tensor *now;  /* a symbol; NULL: it has none */
    gd_tensor *fed;  /* a placeholder for the one that was there before the call; NULL: there was
                        none, or it does not count */
    bool looked;     /* whether there was one before the call counts */
    bool kept;       /* that one is still the leaf's: what is added to it is written there */
} gd_leaf_grad;

/* A tensor outside that a jit's function uses; and its memory, and whether it required a gradient,
 * then. */
typedef struct gd_captured {
    gd_tensor *tensor;   /* held, as is the next */
    gd_storage *storage; /* another one: the tensor has become another */
    bool wants;
} gd_captured;

/* A leaf outside whose requires_grad was changed while the graph was traced. */
typedef struct gd_frozen {
    gd_tensor *tensor; /* held */
    bool before;
} gd_frozen;

/* A C value that decided what a jit's function did, such as a module's mode; and what it was when
 * the function first read it. */
typedef struct gd_traced_value {
    gd_object *owner; /* of `where`, held */
    const int *where;
    int value;
} gd_traced_value;

/* The graph of a branch or of a loop's body: open while its function is being traced, then sealed. */
typedef enum gd_body_state { GD_NO_BODY, GD_BODY_OPEN, GD_BODY_SEALED } gd_body_state;

struct gd_graph {
    gd_object object;
    gd_body_state body;
    struct gd_graph
        *outer;         /* of a body that is open: the graph around it, which is being built, too */
    bool jit;           /* a jit's */
    bool traces_writes; /* of a jit while its function is traced: tensors outside may be written in
                           place */
    bool writes_values; /* some node writes a tensor outside */
    gd_written *written; /* in the order in which they were written */
    int n_written, written_room;
    gd_captured *captured; /* of a jit, each tensor once */
    int n_captured, captured_room;
    gd_leaf_version *versions; /* of a jit, in the order in which they were written */
    int n_versions, version_room;
    gd_leaf_grad *grads; /* of a jit, each leaf once */
    int n_grads, grad_room;
    gd_frozen *frozen; /* of a jit, each leaf once */
    int n_frozen, frozen_room;
    gd_traced_value *values; /* of a jit, each `where` once */
    int n_values, value_room;
    gd_node **nodes;
    int count, capacity;
    gd_names names;      /* that the program has given to nodes: the first node of each */
    gd_node **variables; /* those of `nodes` that are variables */
    int n_variables, variable_capacity;
    gd_guard guard;             /* of the next two, while they change */
    _Atomic uint64_t became;    /* the gd_tensors_became() that its nodes have seen */
    _Atomic uint64_t refreshed; /* counts changes of its nodes: plans of before are of no use */
    int n_noise;
    uint64_t
        noise_base; /* the call number that the first random node would have had as an eager op */
};

/* What the thread's open blocks say about nodes to come. */
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

/* The graph of the jit's function that this thread traces, also in a branch of it; or NULL. */
static inline gd_graph *gd_graph_traced(void) {
    gd_graph *graph = gd_graph_building();
    while (graph && graph->outer) graph = graph->outer;
    return graph && graph->traces_writes ? graph : NULL;
}

/* Adds a node that was just made. `graph` NULL: a node of no graph. */
gd_status gd_graph_add(gd_graph *graph, gd_node *node, gd_origin_kind kind, const char *name);

/* Adds a node that no op makes; its symbol, in the current scope. */
gd_status gd_graph_source(gd_graph *graph, gd_origin_kind kind, const char *site, const char *name,
                          const gd_meta *meta, gd_tensor **symbol);

/* The graph that an op with these inputs belongs to. */
gd_graph *gd_graph_of(gd_tensor *const *in, int n_in);

/* In a jit's graph: notes that `tensor` is `symbol` from now on. */
gd_status gd_graph_record_write(gd_graph *graph, gd_written written);
/* The latest write of a tensor that counts (gd_as_of); NULL: there was none. */
gd_written *gd_graph_find_write(const gd_graph *graph, const gd_tensor *tensor);
/* What a tensor is now: itself, or the symbol for what was written to it. A tensor that shares
 * memory with one that was written, and is not the same, is refused. */
gd_status gd_graph_read(gd_graph *graph, gd_tensor *tensor, gd_tensor **now);
/* Whether both look at the same elements in the same way; and whether both look at some element. */
bool gd_same_view(const gd_tensor *a, const gd_tensor *b);
bool gd_overlap(const gd_tensor *a, const gd_tensor *b);
/* Gives write number `index`, whose symbol is not the new value, a symbol that is (trace.c). */
gd_status gd_graph_show_write(gd_graph *graph, int index);
/* From now on `node` runs after `before`, and brings it along. */
gd_status gd_graph_run_after(gd_node *node, gd_node *before);
/* Notes that a node of this graph, or of a body in it, uses a tensor from outside: if it is a jit's. */
gd_status gd_graph_record_capture(gd_graph *graph, gd_tensor *tensor);

/* Records that the function of a jit depends on a C value. Call it before the value is read, and
 * also before it is changed: the jit uses what was traced for calls that begin with *where as it is
 * now, and traces again for others. A function that returns with another value in *where is
 * refused. Holds `owner`, which `where` is part of. Does nothing where no jit traces: a graph that
 * is built by hand stays in the mode in which it was built. */
gd_status gd_trace_record_value(gd_object *owner, const int *where);
/* Whether all values that were recorded are the same now. */
bool gd_traced_values_fit(const gd_graph *graph);
/* After the function was traced: GD_E_UNSUPPORTED if it leaves one of them changed. */
gd_status gd_traced_values_check(const gd_graph *graph);

/* Before a graph is run or saved: nodes whose captured tensors have become others
 * (gd_tensor_become) read the new memory. GD_E_STATE where the dtype or the shape is another, which
 * the nodes were not made for. */
gd_status gd_graph_refresh(gd_graph *graph);

/* What a caller of a session may say of this thread's next runs. */
typedef struct gd_run_noise {
    gd_rng at;    /* their seed is combined with that of random nodes, their call number is added */
    bool repeats; /* they do once more what a run has done: nothing is assigned */
} gd_run_noise;
/* Where a session without variables and plans runs from now on. */
void gd_session_set_device(gd_session *session, gd_device *device);

/* NULL: each run has the noise of its own number. Returns the setting from before. */
const gd_run_noise *gd_session_noise(const gd_run_noise *noise);

/* Frees an origin; for gd_node_release. */
void gd_origin_free(gd_origin *origin);

/* Tracing and autocast off, for code that computes while a graph is being built. */
typedef struct gd_tracing {
    void *tracer;
    int autocast;
} gd_tracing;
gd_tracing gd_tracing_off(void);
void gd_tracing_on(gd_tracing before);

/* For the rest of the block ops run, also where a function is traced or a graph is built: GD_EAGER;
 * For tensors that outlive the trace, such as a parameter that a module makes in its first forward.
 * Random ops take the generator's next numbers, and autocast is off. Grad mode, default device and the
 * open scopes stay as they are. What the traced function has written to tensors outside is not there yet, so do not
 * read those. */
typedef struct gd_eager {
    gd_tracing tracing;
    struct gd_rng *noise;
} gd_eager;
gd_eager gd_eager_begin(void);
void gd_eager_end(gd_eager *before);
#define GD_EAGER \
    __attribute__((cleanup(gd_eager_end), unused)) gd_eager eager_before_ = gd_eager_begin()

#endif
