/* onnx.h - saving and loading ONNX files.
 *
 *     gd_onnx_save("net.onnx", session, gd_list(x), gd_list(y));      // with the session's weights
 *
 *     gd_graph *graph = gd_onnx_load("net.onnx");                     // in another program
 *     gd_session *session = gd_session_new(graph);
 *     gd_tensor *x = gd_graph_find(graph, "x"), *y = gd_graph_find(graph, "y");
 *     gd_tensors r = gd_session_run(session, gd_feed(x, image), gd_list(y));
 *
 * Saving maps ops to the operators of ai.onnx, opset 21 (docs/guide/onnx.md has the list). An
 * elementwise op without an operator is written as its expression, another op as its body in other
 * ops. gd_cond becomes an If, gd_while_loop a Loop, gd_scan and gd_foldl a Scan. Other ops
 * (assigning a variable, random numbers) fail, unless .own_ops allows nodes of the domain "gradus",
 * which only this library reads. Loading supports opset 13 and later.
 */
#ifndef GRADUS_ONNX_H
#define GRADUS_ONNX_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/module.h"
#include "gradus/session.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_onnx_save_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    /* Tensors of more than this many bytes are written to a second file, PATH.data- followed by 16
     * digits that depend on its contents; 0: all tensors. (If the first file would exceed 1 GiB,
     * all but the small tensors are.) */
    int64_t external_above GD_DEFAULT_(1 << 26);
    /* Writes an op that ONNX cannot express (assigning a variable, a gradient with unknown sizes)
     * as a node of the domain "gradus", which only this library reads; false: such ops fail. */
    bool own_ops GD_DEFAULT_(false);
    /* Metadata of the file, keys and values alternating, ended by NULL:
     * .metadata = gd_names("author", "me", NULL). */
    const char *const *metadata GD_DEFAULT_(nullptr);
} GD_GIVEN_BY_NAME_ gd_onnx_save_options;
#define GD_ONNX_SAVE_OPTIONS_(...)    \
    GD_OPTIONS_(gd_onnx_save_options, \
                (.external_above = 1 << 26, .own_ops = false, .metadata = NULL), __VA_ARGS__)

/* Saves the part of a session's graph that `outputs` need. `inputs` become the inputs of the file:
 * placeholders, or other symbols at which the saved part begins. Unknown sizes are named
 * dimensions. Variables and captured tensors are saved with their current values. Names are those
 * of the symbols.
 *
 * An existing model and its data file are replaced together: after a crash or on a full disk there
 * is either the old model with its old data or the new model with its new data. The old data file
 * is removed once the new model is in place, as are files that a killed process has left.
 *
 * GD_AFTER: ONNX cannot express that one node runs after another. Nodes that only had to run before
 * are left out if that changes nothing; if they write a variable, or are functions of the program,
 * saving fails and names both nodes. */
#define gd_onnx_save(path, session, inputs, outputs, ...)                     \
    GD_WITH_OPTIONS_(gd_onnx_save_at(GD_HERE, path, session, inputs, outputs, \
                                     GD_ONNX_SAVE_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_onnx_save_at(const char *site, const char *path, gd_session *session,
                                 gd_tensors inputs, gd_tensors outputs,
                                 const gd_onnx_save_options *options);

typedef struct gd_onnx_load_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    bool trainable GD_DEFAULT_(false);
} GD_GIVEN_BY_NAME_ gd_onnx_load_options;
#define GD_ONNX_LOAD_OPTIONS_(...) \
    GD_OPTIONS_(gd_onnx_load_options, (.trainable = false), __VA_ARGS__)

/* Loads a file into a new graph, in the current scope. Its constants are on the default device.
 * gd_graph_find finds inputs, outputs and the first result of each node by name.
 *
 * In a file that this library has saved, variables become variables again, trainable if they were.
 * In other files float initializers become variables, trainable if .trainable is true.
 *
 * Returns NULL and records the failure if the file is damaged, has an unsupported operator, or
 * refers to data outside its own folder. The message names the node and its operator. */
#define gd_onnx_load(path, ...) \
    GD_WITH_OPTIONS_(gd_onnx_load_at(GD_HERE, path, GD_ONNX_LOAD_OPTIONS_(__VA_ARGS__)))
GD_API gd_graph *gd_onnx_load_at(const char *site, const char *path,
                                 const gd_onnx_load_options *options);

/* --- modules ---------------------------------------------------------------------------------- */

typedef struct gd_onnx_save_module_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t external_above GD_DEFAULT_(1 << 26); /* as above */
    bool own_ops GD_DEFAULT_(false);             /* as above */
    const char *const *metadata GD_DEFAULT_(nullptr);
    bool any_batch GD_DEFAULT_(true);        /* makes the first size of the inputs unknown */
    bool any_length GD_DEFAULT_(false);      /* and the second: the length of (N, T, ...) */
    const char *inputs GD_DEFAULT_("input"); /* names, separated by spaces */
    const char *outputs GD_DEFAULT_("output");
} GD_GIVEN_BY_NAME_ gd_onnx_save_module_options;
#define GD_ONNX_SAVE_MODULE_OPTIONS_(...)                                                          \
    GD_OPTIONS_(gd_onnx_save_module_options,                                                       \
                (.external_above = 1 << 26, .own_ops = false, .metadata = NULL, .any_batch = true, \
                 .any_length = false, .inputs = "input", .outputs = "output"),                     \
                __VA_ARGS__)

/* Saves a net in eval mode, for inputs with the shapes and dtypes of `examples`. Tensors have the
 * names of the parameters. If the net makes decisions in C by its batch size, it is saved for the
 * batch size of the examples, and the log says so.
 *
 *     gd_onnx_save_module("digits.onnx", net, gd_list(gd_zeros(gd_dims(1, 1, 28, 28))));
 *
 * A net for sequences of any length, as gpt, takes .any_length. A net that needs to know the length
 * fails then.
 *
 *     gd_tensor *tokens = gd_zeros(gd_dims(1, 16), .dtype = GD_I64);
 *     gd_onnx_save_module("gpt.onnx", gpt, gd_list(tokens), .any_length = true);
 */
#define gd_onnx_save_module(path, net, examples, ...)                     \
    GD_WITH_OPTIONS_(gd_onnx_save_module_at(GD_HERE, path, net, examples, \
                                            GD_ONNX_SAVE_MODULE_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_onnx_save_module_at(const char *site, const char *path, gd_module *net,
                                        gd_tensors examples,
                                        const gd_onnx_save_module_options *options);

/* Loads a file as a module, in the current scope, which can be called, trained and saved. In a file
 * that this library has saved, parameters and buffers are the original ones; in other files all
 * floats are parameters. Parts that are only for inference (batch norms with fixed statistics) stay
 * so. */
#define gd_onnx_module(path) gd_onnx_module_at(GD_HERE, path)
GD_API gd_module *gd_onnx_module_at(const char *site, const char *path);

/* Writes the metadata value of a key into `text`, truncated to `size`, and returns its full length,
 * or -1 if the file has no such key. Fails if the file cannot be read. */
#define gd_onnx_metadata(path, key, text, size) gd_onnx_metadata_at(GD_HERE, path, key, text, size)
GD_API int64_t gd_onnx_metadata_at(const char *site, const char *path, const char *key, char *text,
                                   size_t size);

#ifdef __cplusplus
}
#endif
#endif
