/* trace_grad.h - gradients of leaves (their .grad) in a function that a jit traces.
 *
 * While it is traced, gd_backward, gd_zero_grad and the others change what a leaf's gradient means
 * in the graph (gd_leaf_grad in graph.h), and touch no tensor. A run feeds the gradients that were
 * there before and that count, and leaves behind what eager code would.
 */
#ifndef GRADUS_GRAPH_TRACE_GRAD_H
#define GRADUS_GRAPH_TRACE_GRAD_H

#include "graph/build/graph.h"

/* After the function was traced: refuses one that leaves requires_grad of a leaf changed. Where the
 * trace has failed, the leaves are as they were. */
gd_status gd_frozen_leaves_end(gd_graph *graph, gd_status status);

/* Hooks on gradients that are symbols (trace_hook.c): see gd_grad_hooks. */
gd_status gd_traced_hook(const gd_hook *hook, gd_tensor *gradient, gd_tensor **other);
gd_status gd_check_hook(const gd_tensor *symbol);
/* What a hook that is traced may not do: read or write values, and write with ops where they would
 * not run. */
gd_status gd_check_hook_access(const char *what);
gd_status gd_check_hook_writes(const gd_graph *graph, const char *input);

/* Whether the leaves have gradients now where they had them when the function was traced. */
bool gd_leaf_grads_fit(const gd_graph *graph);

/* Before a run with these inputs: refuses what would be read and written at once; forgets gradients
 * that the function forgets. */
gd_status gd_leaf_grads_begin(const gd_graph *graph, gd_tensor *const *inputs, int n_inputs);
/* Symbols and their values, in turn; returns how many there are of both (2 n_grads at most). */
int gd_leaf_grads_feed(const gd_graph *graph, gd_tensor **feeds);
/* What is to be fetched for them; returns how many (n_grads at most). */
int gd_leaf_grads_fetch(const gd_graph *graph, gd_tensor **fetches);
/* After the run: gives the leaves what was fetched. `results` are all of the run's, the last of
 * them for this. */
gd_status gd_leaf_grads_end(const gd_graph *graph, gd_tensor *const *results, int n_results);

#endif
