/* trace_grad.c - gradients of captured leaves in a jit: while tracing, and in a run. */
#include "graph/build/trace_grad.h"

#include <stdlib.h>

#include "autograd/walker.h"
#include "core/alloc.h"
#include "core/copy.h"
#include "core/grow.h"
#include "gradus/ops.h"
#include "dispatch/call.h"

/* --- tracing: reading and replacing a leaf's gradient ----------------------------------------- */

static bool is_tracing(void) { return gd_graph_traced() != NULL; }

static gd_status check_not_in_body(const gd_graph *graph, const char *what) {
    if (gd_graph_building() == graph) return GD_OK;
    return gd_fail(GD_E_UNSUPPORTED,
                   "%s in a branch or in the body of a loop: gradients of leaves belong to the "
                   "function around it; call it there, or compute gradients with gd_grad",
                   what);
}

/* A symbol has no .grad. But a placeholder may stand for a leaf when the jit is called: it is
 * marked, and the call then fails if its input has a gradient. */
static gd_status mark_graded_input(const gd_tensor *t, const char *what) {
    char text[200];
    gd_origin *o = t->node->origin;
    if (o && o->kind == GD_FROM_PLACEHOLDER) {
        o->graded = true;
        return GD_OK;
    }
    return gd_fail(GD_E_UNSUPPORTED,
                   "%s: %s is a result in the function that is being traced, and gets no "
                   "gradient; gd_grad(results, gd_list(it)) computes one",
                   what, gd_symbol_text_hook(t, text, sizeof text));
}

static gd_leaf_grad *find_leaf_grad(const gd_graph *graph, const gd_tensor *leaf) {
    const int i = gd_map_find(&graph->grad_of, leaf);
    return i < 0 ? NULL : &graph->grads[i];
}

static gd_status add_leaf_grad(gd_graph *graph, gd_tensor *leaf, gd_leaf_grad **added) {
    if (!gd_grow(graph->grads, graph->n_grads, graph->grad_room) ||
        !gd_map_put(&graph->grad_of, leaf, graph->n_grads))
        return gd_no_memory(NULL, "for a graph");
    *added = &graph->grads[graph->n_grads++];
    **added = (gd_leaf_grad){.leaf = gd_retain(leaf)};
    return GD_OK;
}

static bool has_history(const gd_tensor *grad) { return grad->node || grad->requires_grad; }

/* Makes the gradient that a leaf has before the call an input of the graph. `fed` stays the
 * placeholder; `now` is a second handle, which ops in place change. */
static gd_status feed_previous_grad(gd_leaf_grad *g) {
    const gd_tensor *before = g->leaf->grad;
    g->looked = true;
    if (!before) return GD_OK;
    if (has_history(before))
        return gd_fail(GD_E_UNSUPPORTED,
                       "the gradient that a leaf has before the call was computed with "
                       ".create_graph and has a history of its own; clear it before the call "
                       "(gd_zero_grad), or give the leaf a gd_detach of it (gd_set_grad)");
    gd_device *device = gd_this_thread.device;
    gd_this_thread.device = before->device;
    gd_tensor *symbol =
        gd_placeholder(gd_shape_of(before->rank, before->dims), .dtype = (gd_dtype)before->dtype);
    gd_this_thread.device = device;
    gd_tensor *handle = symbol->kind == GD_FAILED ? NULL : gd_node_symbol(symbol->node, 0);
    if (!handle) return gd_failure();
    g->fed = gd_retain(symbol);
    g->now = gd_retain(handle);
    g->kept = true;
    return GD_OK;
}

static gd_status get_leaf_grad(const gd_tensor *leaf, gd_tensor **grad) {
    gd_graph *graph = gd_graph_traced();
    GD_TRY(check_not_in_body(graph, "gd_tensor_grad"));
    *grad = NULL;
    if (leaf->kind != GD_VALUE) return mark_graded_input(leaf, "gd_tensor_grad");
    gd_leaf_grad *g = find_leaf_grad(graph, leaf);
    if (!g) {
        GD_TRY(add_leaf_grad(graph, (gd_tensor *)leaf, &g)); /* retained, not changed */
        GD_TRY(feed_previous_grad(g));
    }
    *grad = g->now;
    return GD_OK;
}

static gd_status set_leaf_grad(gd_tensor *leaf, gd_tensor *grad) {
    gd_graph *graph = gd_graph_traced();
    GD_TRY(check_not_in_body(graph, "gd_set_grad"));
    if (leaf->kind != GD_VALUE)
        return mark_graded_input(leaf, grad ? "gd_set_grad" : "gd_zero_grad");
    GD_TRY(gd_graph_read(graph, grad, &grad));
    if (grad && grad->kind != GD_SYMBOL) grad = gd_clone(grad); /* traced as a copy */
    if (grad && grad->kind != GD_SYMBOL) return gd_failure();
    gd_leaf_grad *g = find_leaf_grad(graph, leaf);
    if (!g) GD_TRY(add_leaf_grad(graph, leaf, &g));
    gd_retain(grad);
    gd_release(g->now);
    g->now = grad;
    g->kept = false;
    return GD_OK;
}

/* --- tracing: gd_backward --------------------------------------------------------------------- */

/* Accumulates in place, as eager code does. A leaf without a gradient gets a copy of its own. */
static gd_status accumulate_grad(gd_tensor *leaf, gd_tensor *g) {
    gd_tensor *now;
    GD_TRY(get_leaf_grad(leaf, &now));
    if (now) return gd_add_(now, g)->kind == GD_FAILED ? gd_failure() : GD_OK;
    gd_tensor *own = gd_clone(g);
    return own->kind == GD_FAILED ? gd_failure() : set_leaf_grad(leaf, own);
}

/* The tensors where a backward walk may end: captured tensors, later versions of captured leaves,
 * and inputs of the function. */
typedef struct walk_ends {
    gd_tensor **symbols; /* the captured tensor itself, or a symbol */
    gd_tensor **leaves;  /* the leaf that symbols[i] stands for; NULL: none */
    bool *reached;
    int count;
} walk_ends;

static void add_end(walk_ends *e, gd_tensor *symbol, gd_tensor *leaf) {
    e->symbols[e->count] = symbol;
    e->leaves[e->count++] = leaf;
}

static gd_status find_ends(gd_graph *graph, walk_ends *e) {
    const size_t most = (size_t)(graph->n_captured + graph->n_versions + graph->n_placeholders) + 1;
    e->symbols = gd_calloc(most, 2 * sizeof *e->symbols + sizeof *e->reached);
    if (!e->symbols) return gd_no_memory(NULL, "for gradients");
    e->leaves = e->symbols + most;
    e->reached = (bool *)(e->leaves + most);
    for (int i = 0; i < graph->n_captured; i++) {
        gd_tensor *t = graph->captured[i].tensor;
        if (t->requires_grad) add_end(e, t, t->node ? NULL : t);
    }
    for (int i = 0; i < graph->n_versions; i++)
        add_end(e, graph->versions[i].symbol, graph->versions[i].leaf);
    for (int i = 0; i < graph->n_placeholders; i++) {
        gd_node *node = graph->placeholders[i];
        if (!gd_dtype_is_float((gd_dtype)node->slots[0].dtype)) continue;
        gd_tensor *symbol = gd_node_symbol(node, 0);
        if (!symbol) return gd_failure();
        add_end(e, symbol, NULL);
    }
    return GD_OK;
}

/* Keeps the leaves that the walk reaches. Inputs are marked: they may be leaves in a call. */
static gd_status keep_leaves(walk_ends *e) {
    char shape[128];
    int n = 0;
    for (int i = 0; i < e->count; i++) {
        gd_tensor *t = e->symbols[i];
        if (!e->reached[i]) continue;
        if (e->leaves[i]) {
            e->symbols[n] = t;
            e->leaves[n++] = e->leaves[i];
        } else if (t->kind == GD_SYMBOL) t->node->origin->graded = true;
        else
            return gd_fail(GD_E_UNSUPPORTED,
                           "gd_backward: the result depends on a tensor of shape %s that was "
                           "computed outside of the function that is being traced, and would walk "
                           "on from there; compute it in the function, or gd_detach it",
                           gd_shape_text(t->rank, t->dims, shape, sizeof shape));
    }
    e->count = n;
    return n > 0 ? GD_OK
                 : gd_fail(GD_E_STATE, "gd_backward: the result does not depend on a leaf outside "
                                       "of the function that requires grad");
}

/* Sums the gradients of all versions of a leaf, of which `i` is the first, calls its hooks, and
 * accumulates the sum into its gradient. */
static gd_status accumulate_versions(const walk_ends *e, gd_tensor *const *g, const int *next,
                                     int i) {
    gd_tensor *sum = g[i];
    for (int k = next[i]; k >= 0; k = next[k]) {
        sum = gd_add(sum, g[k]);
        if (sum->kind == GD_FAILED) return gd_failure();
    }
    gd_tensor *final = gd_retain(sum);
    gd_status status = gd_call_hooks(e->leaves[i]->hooks, 0, &final);
    if (status == GD_OK) status = accumulate_grad(e->leaves[i], final);
    gd_release(final);
    return status;
}

/* Accumulates the gradients of all ends into those of their leaves. */
static gd_status accumulate_all(const walk_ends *e, gd_tensor *const *g) {
    gd_map first = {NULL, 0, 0}; /* of each leaf: the first end that has a gradient */
    int *next = gd_malloc(((size_t)e->count + 1) * sizeof *next); /* the next end of the leaf */
    gd_status status = next ? GD_OK : gd_no_memory(NULL, "for gradients");
    for (int i = e->count; i-- > 0 && status == GD_OK;) {
        if (!g[i]) continue;
        next[i] = gd_map_find(&first, e->leaves[i]);
        if (!gd_map_put(&first, e->leaves[i], i)) status = gd_no_memory(NULL, "for gradients");
    }
    for (int i = 0; i < e->count && status == GD_OK; i++)
        if (g[i] && gd_map_find(&first, e->leaves[i]) == i)
            status = accumulate_versions(e, g, next, i);
    gd_map_free(&first);
    gd_free(next);
    return status;
}

static gd_status walk_to_leaves(gd_graph *graph, gd_tensor *result, gd_tensor *gradient) {
    walk_ends e = {.count = 0};
    gd_status status = find_ends(graph, &e);
    if (status == GD_OK)
        status = gd_walk_reaches(&(gd_walk){.outputs = &result,
                                            .gradients = &gradient,
                                            .n_outputs = 1,
                                            .inputs = e.symbols,
                                            .n_inputs = e.count},
                                 e.reached);
    if (status == GD_OK) status = keep_leaves(&e);
    if (status == GD_OK) {
        gd_walks_stay_inside = true;
        gd_tensors g =
            gd_grad(gd_list(result), ((gd_tensors){e.symbols, e.count}),
                    .gradients = gd_list(gradient), .allow_unused = true, .create_graph = true);
        gd_walks_stay_inside = false;
        if (gd_failed() || g.count != e.count) status = gd_failure();
        int before = gd_no_grad_begin(); /* gradients have no gradient here */
        if (status == GD_OK) status = accumulate_all(&e, g.at);
        gd_grad_mode_end(&before);
    }
    gd_free(e.symbols);
    return status;
}

static gd_status trace_backward(gd_tensor *result, gd_tensor *gradient,
                                const gd_backward_options *o) {
    gd_graph *graph = gd_graph_traced();
    GD_TRY(check_not_in_body(graph, "gd_backward"));
    GD_TRY(gd_graph_read(graph, result, &result));
    if (o->create_graph)
        return gd_fail(GD_E_UNSUPPORTED,
                       "gd_backward: .create_graph in a function that is being traced; there, "
                       "gd_grad with .create_graph gives gradients that have gradients");
    if (result->kind != GD_SYMBOL)
        return gd_fail(GD_E_UNSUPPORTED,
                       "gd_backward: the result is not computed by the function that is being "
                       "traced; call gd_backward outside, or compute it in the function");
    return walk_to_leaves(graph, result, gradient);
}

/* --- tracing: effects that happen during the trace -------------------------------------------- */

/* Records requires_grad of a leaf as it was when the call began. */
static gd_status record_frozen(gd_tensor *leaf) {
    gd_graph *graph = gd_graph_traced();
    if (gd_map_find(&graph->frozen_of, leaf) >= 0) return GD_OK;
    if (!gd_grow(graph->frozen, graph->n_frozen, graph->frozen_room) ||
        !gd_map_put(&graph->frozen_of, leaf, graph->n_frozen))
        return gd_no_memory(NULL, "for a graph");
    graph->frozen[graph->n_frozen++] = (gd_frozen){gd_retain(leaf), leaf->requires_grad};
    return GD_OK;
}

gd_status gd_frozen_leaves_end(gd_graph *graph, gd_status status) {
    char shape[128];
    for (int i = 0; i < graph->n_frozen && status == GD_OK; i++) {
        const gd_tensor *t = graph->frozen[i].tensor;
        if (t->requires_grad != graph->frozen[i].before)
            status = gd_fail(
                GD_E_UNSUPPORTED,
                "the function leaves a tensor of shape %s %s, which a later call of its jit would "
                "not do; change it back before the function returns, or change it outside",
                gd_shape_text(t->rank, t->dims, shape, sizeof shape),
                t->requires_grad ? "requiring a gradient" : "frozen");
    }
    for (int i = 0; i < graph->n_frozen && status != GD_OK; i++)
        graph->frozen[i].tensor->requires_grad = graph->frozen[i].before;
    return status;
}

/* C code would write a tensor only once, during the trace. And a tensor that the function has
 * written has its new value only after the call has run, so C code cannot read it. */
static gd_status check_access(const gd_tensor *t, const char *what, bool writes) {
    char shape[128];
    const gd_graph *graph = gd_graph_traced();
    GD_TRY(gd_check_hook_access(what));
    if (!graph) return GD_OK;
    if (writes)
        return gd_fail(
            GD_E_UNSUPPORTED,
            "%s in the function of a gd_jit would be done when the function is traced, and not in "
            "later calls; %s",
            what,
            t ? "pass the values as an input and gd_assign them, or copy them outside"
              : "call it outside");
    const gd_written *w = t ? gd_graph_find_write(graph, t) : NULL;
    if (!w) return GD_OK;
    const gd_node *node = w->symbol->node;
    return gd_fail(GD_E_STATE,
                   "%s: the tensor of shape %s was written by %s (%s) in the function that is "
                   "being traced, and has its new value when the call has run; read it then",
                   what, gd_shape_text(t->rank, t->dims, shape, sizeof shape),
                   node->op ? node->op->name : "it", node->site ? node->site : "?");
}

static void __attribute__((constructor)) set_trace_hooks(void) {
    gd_traced_grads = (gd_grad_hooks){is_tracing,    get_leaf_grad,  set_leaf_grad, trace_backward,
                                      record_frozen, gd_traced_hook, gd_check_hook};
    gd_traced_access_hook = check_access;
}

/* --- running ---------------------------------------------------------------------------------- */

bool gd_leaf_grads_fit(const gd_graph *graph) {
    for (int i = 0; i < graph->n_grads; i++) {
        const gd_leaf_grad *g = &graph->grads[i];
        const gd_tensor *before = g->leaf->grad;
        if (!g->looked) continue;
        if (!before != !g->fed ||
            (before && (before->dtype != g->fed->dtype || has_history(before))))
            return false;
    }
    return true;
}

/* The gradient from before the call stays the leaf's, and is not written. */
static bool is_unchanged(const gd_leaf_grad *g) { return g->kept && g->now->node == g->fed->node; }
static bool is_fetched(const gd_leaf_grad *g) { return g->now && !is_unchanged(g); }

/* Adds the storages of the gradients that the function accumulates into. */
static gd_status find_accumulated(const gd_graph *graph, gd_map *storages) {
    for (int i = 0; i < graph->n_grads; i++) {
        const gd_leaf_grad *g = &graph->grads[i];
        if (g->kept && is_fetched(g) && !gd_map_put(storages, g->leaf->grad->storage, i))
            return gd_no_memory(NULL, "for a jit");
    }
    return GD_OK;
}

static gd_status check_grads_not_shared(const gd_graph *graph, gd_tensor *const *inputs,
                                        int n_inputs) {
    gd_map storages = {NULL, 0, 0};
    const char *what = NULL;
    gd_status status = find_accumulated(graph, &storages);
    for (int i = 0; i < n_inputs && !what; i++)
        if (gd_map_find(&storages, inputs[i]->storage) >= 0) what = "is an input as well";
    for (int i = 0; i < graph->n_captured && !what; i++)
        if (gd_map_find(&storages, graph->captured[i].tensor->storage) >= 0)
            what = "is used by it directly as well";
    gd_map_free(&storages);
    if (status != GD_OK || !what) return status;
    return gd_fail(GD_E_UNSUPPORTED,
                   "the function accumulates into a leaf's gradient that %s; read the gradient "
                   "in the function (gd_tensor_grad), or pass a gd_clone of it",
                   what);
}

gd_status gd_leaf_grads_begin(const gd_graph *graph, gd_tensor *const *inputs, int n_inputs) {
    GD_TRY(check_grads_not_shared(graph, inputs, n_inputs));
    for (int i = 0; i < graph->n_grads; i++) /* so that new gradients can use their memory */
        if (!graph->grads[i].kept && !graph->grads[i].fed)
            GD_TRY(gd_replace_grad(graph->grads[i].leaf, NULL));
    return GD_OK;
}

int gd_leaf_grads_feed(const gd_graph *graph, gd_tensor **feeds) {
    int n = 0;
    for (int i = 0; i < graph->n_grads; i++)
        if (graph->grads[i].fed)
            feeds[n++] = graph->grads[i].fed, feeds[n++] = graph->grads[i].leaf->grad;
    return n;
}

int gd_leaf_grads_fetch(const gd_graph *graph, gd_tensor **fetches) {
    int n = 0;
    for (int i = 0; i < graph->n_grads; i++)
        if (is_fetched(&graph->grads[i])) fetches[n++] = graph->grads[i].now;
    return n;
}

static int by_storage(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t)(*(gd_tensor *const *)a)->storage,
                    y = (uintptr_t)(*(gd_tensor *const *)b)->storage;
    return (x > y) - (x < y);
}

/* Whether a result is contiguous and shares its memory with no other result. `sorted` has all
 * results in the order of their storages. */
static bool is_unshared(gd_tensor *const *sorted, int n_results, gd_tensor *t) {
    int low = 0, high = n_results; /* finds the first result in the storage */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (by_storage(&sorted[middle], &t) < 0) low = middle + 1;
        else high = middle;
    }
    const bool shared = low + 1 < n_results && sorted[low + 1]->storage == t->storage;
    return !shared && gd_is_row_major(t->rank, t->dims, t->strides);
}

/* On the CPU it allocates nothing: the run has written parameters, so nothing may fail any more. */
static gd_status overwrite_grad(gd_tensor *grad, gd_tensor *result) {
    const gd_view to = gd_view_of(grad), from = gd_view_of(result);
    atomic_fetch_add(&grad->storage->version, 1);
    if (!grad->device->api->host_reads) return gd_copy_tensor(grad, result);
    gd_copy_elements(&to, &from);
    return GD_OK;
}

gd_status gd_leaf_grads_end(const gd_graph *graph, gd_tensor *const *results, int n_results,
                            gd_tensor **sorted) {
    int k = n_results;
    for (int i = 0; i < n_results; i++) sorted[i] = results[i];
    if (graph->n_grads > 0 && n_results > 1)
        qsort(sorted, (size_t)n_results, sizeof *sorted, by_storage);
    for (int i = 0; i < graph->n_grads; i++) k -= is_fetched(&graph->grads[i]);
    for (int i = 0; i < graph->n_grads; i++) {
        const gd_leaf_grad *g = &graph->grads[i];
        gd_tensor *leaf = g->leaf;
        if (!g->now) GD_TRY(gd_replace_grad(leaf, NULL));
        if (!is_fetched(g)) continue;
        gd_tensor *result = results[k++];
        if (g->kept) {
            GD_TRY(overwrite_grad(leaf->grad, result));
            continue;
        }
        if (!is_unshared(sorted, n_results, result)) result = gd_clone(result);
        if (result->kind == GD_FAILED) return gd_failure();
        GD_TRY(gd_replace_grad(leaf, result));
    }
    return GD_OK;
}
