/* trace_grad.h - gradients of captured leaves (their .grad) in a function that a jit traces.
 *
 * During the trace gd_backward, gd_zero_grad and the like change what a leaf's gradient means in
 * the graph (gd_leaf_grad in graph.h), and write no tensor. A run feeds the earlier gradients that
 * the function reads, and leaves the gradients that eager code would.
 */
#ifndef GRADUS_GRAPH_BUILD_TRACE_GRAD_H
#define GRADUS_GRAPH_BUILD_TRACE_GRAD_H

#include "graph/build/graph.h"

/* Call it after the trace: fails if the function leaves requires_grad of a leaf changed. If the
 * trace has failed (`status`), restores requires_grad of all leaves. */
gd_status gd_frozen_leaves_end(gd_graph *graph, gd_status status);

/* Hooks on gradients that are symbols (trace_hook.c): see gd_grad_hooks. */
gd_status gd_traced_hook(const gd_hook *hook, gd_tensor *gradient, gd_tensor **other);
gd_status gd_check_hook(const gd_tensor *symbol);
/* Fail if a hook is being traced: it may not read or write values (`what`: the call), nor write
 * `input` with an op in a graph where the op would not run. */
gd_status gd_check_hook_access(const char *what);
gd_status gd_check_hook_writes(const gd_graph *graph, const char *input);

/* Whether exactly those leaves have gradients that had one when the function was traced. */
bool gd_leaf_grads_fit(const gd_graph *graph);

/* Before a run with these inputs: fails if the run would read and write the same gradient; frees
 * the gradients that the function replaces without reading. */
gd_status gd_leaf_grads_begin(const gd_graph *graph, gd_tensor *const *inputs, int n_inputs);
/* Fills `feeds` with symbol, value, symbol, value, ... Returns the count (2 n_grads at most). */
int gd_leaf_grads_feed(const gd_graph *graph, gd_tensor **feeds);
/* Fills `fetches` with the symbols of new gradients. Returns the count (n_grads at most). */
int gd_leaf_grads_fetch(const gd_graph *graph, gd_tensor **fetches);
/* After the run: gives the leaves their new gradients, the last of the run's `results`. `sorted`
 * has room for all results: nothing may be allocated any more. */
gd_status gd_leaf_grads_end(const gd_graph *graph, gd_tensor *const *results, int n_results,
                            gd_tensor **sorted);

#endif
