/* graph.h - graphs: ops that are recorded now and run later, many times.
 *
 *     gd_graph *graph = gd_graph_new();
 *     gd_tensor *x, *y, *loss, *train;
 *     {
 *         GD_GRAPH(graph);                          // ops in this block are recorded, not run
 *         x = gd_placeholder(gd_dims(GD_ANY, 1000), .name = "x");
 *         y = gd_placeholder(gd_dims(GD_ANY, 10), .name = "y");
 *         gd_tensor *w = gd_variable(gd_randn(gd_dims(1000, 10)), .name = "w");
 *         loss = gd_mse_loss(gd_matmul(x, w), y);
 *         gd_tensor *gradient = gd_gradients(gd_list(loss), gd_list(w)).at[0];
 *         train = gd_assign(w, gd_sub(w, gd_mul(gradient, 1e-3)));
 *     }
 *     gd_session *session = gd_session_new(graph);  // session.h
 *     gd_tensor *xs = gd_randn(gd_dims(64, 1000));  // outside the block: values
 *     gd_tensor *ys = gd_randn(gd_dims(64, 10));
 *     gd_tensors r = gd_session_run(session, gd_feed(x, xs, y, ys), gd_list(loss, train));
 *
 * Ops in the block return symbols: tensors with a shape and a dtype but no data. Every op accepts
 * symbols, and an op with a symbol among its inputs is recorded also outside the block. Shapes are
 * checked while the graph is built. A captured tensor (a tensor with data) is not copied: each run
 * reads its current value.
 *
 * Random ops draw new numbers in each run of a session. The numbers depend on the seed (gd_seed) at
 * the time the graph was built and on the number of the run, so two sessions of one graph draw the
 * same numbers.
 *
 * A run computes only what its fetches need. As in eager code, a node that reads a variable or a
 * captured tensor sees what nodes built before it have written in this run, or else the value from
 * before the run. The last of several writes remains. A gradient uses the values that its forward
 * part has read, wherever the gradient is built. A view of a variable is a view of the value at
 * that point. (C does not define the order in which the arguments of a call are evaluated: if the
 * order matters, build assigns in separate statements.)
 *
 * Threads: a graph is built by one thread at a time; sessions may run it in others.
 */
#ifndef GRADUS_GRAPH_H
#define GRADUS_GRAPH_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/autograd.h"
#include "gradus/options.h"
#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_graph gd_graph;

/* An empty graph, in the current scope. NULL if out of memory. */
GD_API gd_graph *gd_graph_new(void);

/* From here to the end of the block, ops are added to the graph: GD_GRAPH(graph); */
#define GD_GRAPH(graph) GD_BLOCK_(gd_graph_end, gd_graph_begin(graph))
typedef struct gd_block {
    void *before;
} gd_block;
#define GD_BLOCK_(end, begin) \
    __attribute__((cleanup(end), unused)) gd_block GD_SCOPE_NAME_(__COUNTER__) = begin
GD_API gd_block gd_graph_begin(gd_graph *graph);
GD_API void gd_graph_end(gd_block *block);
/* Whether ops of this thread are added to a graph: in such a block, and while a jit traces. */
GD_API bool gd_is_tracing(void);

/* --- placeholders and variables --------------------------------------------------------------- */

typedef struct gd_placeholder_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    const char *name GD_DEFAULT_(nullptr);
    gd_dtype dtype GD_DEFAULT_(GD_F32);
} GD_GIVEN_BY_NAME_ gd_placeholder_options;
#define GD_PLACEHOLDER_OPTIONS_(...) \
    GD_OPTIONS_(gd_placeholder_options, (.name = NULL, .dtype = GD_F32), __VA_ARGS__)

/* A value that is fed in each run. Its dims may be GD_ANY. */
#define gd_placeholder(dims, ...) \
    GD_WITH_OPTIONS_(gd_placeholder_at(GD_HERE, dims, GD_PLACEHOLDER_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_placeholder_at(const char *site, gd_shape dims,
                                    const gd_placeholder_options *options);

typedef struct gd_variable_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    const char *name GD_DEFAULT_(nullptr);
    bool trainable GD_DEFAULT_(true); /* among gd_graph_variables, which gd_minimize takes */
} GD_GIVEN_BY_NAME_ gd_variable_options;
#define GD_VARIABLE_OPTIONS_(...) \
    GD_OPTIONS_(gd_variable_options, (.name = NULL, .trainable = true), __VA_ARGS__)

/* A value that the session keeps between runs. `initial` is its first value: a symbol, which each
 * session computes once, or a tensor, which is copied. */
#define gd_variable(initial, ...) \
    GD_WITH_OPTIONS_(gd_variable_at(GD_HERE, initial, GD_VARIABLE_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_variable_at(const char *site, gd_tensor *initial,
                                 const gd_variable_options *options);

/* The trainable variables, in the order of their creation. */
GD_API gd_tensors gd_graph_variables(gd_graph *graph);

/* A placeholder, a variable or another named symbol; NULL if the graph has no such name. */
GD_API gd_tensor *gd_graph_find(gd_graph *graph, const char *name);

/* --- gradients, order, names, devices ----------------------------------------------------------
 *
 * gd_assign(variable, value) and gd_group(list) are ops (ops.h). The result of gd_assign is the new
 * value; fetching the result of gd_group computes all of its list. Fetching a variable itself gives
 * its value from before the run. */

/* The gradients of the sum of `outputs` with respect to each of `inputs`: new nodes of the graph,
 * which can be differentiated again. Fails if the outputs do not depend on an input (gd_grad with
 * .allow_unused = true returns NULL instead). gd_detach and GD_NO_GRAD stop gradients. */
#define gd_gradients(outputs, inputs) gd_grad(outputs, inputs)

/* From here to the end of the block, nodes run only after `symbols`, and fetching one of these
 * nodes also runs `symbols`: GD_AFTER(gd_list(update)); */
#define GD_AFTER(symbols) GD_BLOCK_(gd_after_end, gd_after_begin(symbols))
GD_API gd_block gd_after_begin(gd_tensors symbols);
GD_API void gd_after_end(gd_block *block);

/* From here to the end of the block, names of nodes begin with "name/": GD_NAME_SCOPE("encoder");
 * gd_graph_find(graph, "encoder/w") finds them. */
#define GD_NAME_SCOPE(name) GD_BLOCK_(gd_name_scope_end, gd_name_scope_begin(name))
GD_API gd_block gd_name_scope_begin(const char *name);
GD_API void gd_name_scope_end(gd_block *block);

/* From here to the end of the block, nodes without inputs are created on this device:
 * GD_DEVICE(d); */
#define GD_DEVICE(device) GD_BLOCK_(gd_device_end, gd_device_begin(device))
GD_API gd_block gd_device_begin(gd_device *device);
GD_API void gd_device_end(gd_block *block);

/* Names a symbol and returns it. Each output of an op can have a name of its own, which
 * gd_graph_find, texts and ONNX files use. Giving the same name to two symbols is an error. (Other
 * nodes are named by their op and a number: "relu_7", and their further outputs "topk_7:1".) */
#define gd_named(...) gd_named_at(GD_HERE, __VA_ARGS__)
GD_API gd_tensor *gd_named_at(const char *site, gd_tensor *symbol, const char *name);

/* --- text and diagrams ------------------------------------------------------------------------ */

/* The graph as text, one line for each node, and as Graphviz DOT (`dot -Tsvg`). NULL if out of
 * memory; free() the result. */
GD_API char *gd_graph_text(gd_graph *graph);
GD_API char *gd_graph_dot(gd_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
