/* onnx.h - graphs in and out of ONNX files.
 *
 *     gd_onnx_save("net.onnx", session, gd_list(x), gd_list(y));      // weights as the session has them
 *
 *     gd_graph *graph = gd_onnx_load("net.onnx");                     // another program
 *     gd_session *session = gd_session_new(graph);
 *     gd_tensor *x = gd_graph_find(graph, "x"), *y = gd_graph_find(graph, "y");
 *     gd_tensors r = gd_session_run(session, gd_feed(x, image), gd_list(y));
 *
 * Files have the operators of ai.onnx, opset 21, where there is one for what an op does; what is mapped
 * is listed in docs/onnx.md. An elementwise op without one is said by its expression, another by its
 * body; gd_cond is an If, gd_while_loop a Loop, gd_scan and gd_foldl a Scan. What is left (assigning a
 * variable, random numbers) is refused, unless .own_ops allows nodes of the domain "gradus": such a file is
 * read here, and not by others. Read are files of opset 13 and later.
 */
#ifndef GRADUS_ONNX_H
#define GRADUS_ONNX_H

#include "gradus/module.h"
#include "gradus/session.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_onnx_save_options {
    /* Tensors of more than so many bytes go into a second file beside the first, PATH.data- and 16 digits
     * that follow from its contents; 0: all. (If the first would get larger than 1 GiB, all but the small
     * tensors do.) */
    int64_t external_above GD_DEFAULT_(1 << 26);
    /* An op that ONNX has no way to say (assigning a variable, a gradient that waits for sizes) becomes
     * a node of the domain "gradus", which this library reads and no other; else it is refused. */
    bool own_ops GD_DEFAULT_(false);
    /* What else the file says, keys and values in turn and NULL at the end:
     * .metadata = gd_names("author", "me", NULL). */
    const char *const *metadata GD_DEFAULT_(nullptr);
} gd_onnx_save_options;

/* Saves what `outputs` need of a session's graph. `inputs` become the file's inputs: placeholders, or
 * other symbols where the saved part shall begin; sizes that are not known have a name in it.
 * Variables are saved with their present values, and so are tensors outside the graph. Names are those
 * of the symbols.
 *
 * A model that was there before is replaced, together with its data or not at all: a process that is killed
 * and a disk that is full leave the old model with its old data, or the new one with its new data. The
 * old data are removed once the new model is in place; so is what a killed process has left behind.
 *
 * GD_AFTER: a file cannot say that one node brings another. Nodes that only had to run before are left
 * out if nothing remains of them; if they write a variable, or are functions of the program, what
 * runs after them is refused with both names. */
#define gd_onnx_save(path, session, inputs, outputs, ...)                               \
    GD_WITH_OPTIONS_(gd_onnx_save_at(                                                   \
        GD_HERE, path, session, inputs, outputs,                                        \
        GD_OPTIONS_(gd_onnx_save_options, (.external_above = 1 << 26, .own_ops = false, \
                                           .metadata = NULL) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_status gd_onnx_save_at(const char *site, const char *path, gd_session *session,
                                 gd_tensors inputs, gd_tensors outputs,
                                 const gd_onnx_save_options *options);

typedef struct gd_onnx_load_options {
    bool trainable GD_DEFAULT_(false);
} gd_onnx_load_options;

/* Reads a file into a new graph, in the current scope, for the default device. Inputs and outputs are found by their names
 * (gd_graph_find), and so are the first results of the nodes between them.
 *
 * In a file that was saved here, variables are variables again, trainable if they were. In others, the
 * initializers that are floats become variables, trainable if .trainable says so.
 *
 * NULL, with the failure recorded, when the file is damaged, has something that is not known here, or
 * asks for data outside its own folder: the message names the node and its operator. */
#define gd_onnx_load(path, ...)       \
    GD_WITH_OPTIONS_(gd_onnx_load_at( \
        GD_HERE, path,                \
        GD_OPTIONS_(gd_onnx_load_options, (.trainable = false) __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_graph *gd_onnx_load_at(const char *site, const char *path,
                                 const gd_onnx_load_options *options);

/* --- modules ---------------------------------------------------------------------------------- */

typedef struct gd_onnx_save_module_options {
    int64_t external_above GD_DEFAULT_(1 << 26); /* as above */
    const char *const *metadata GD_DEFAULT_(nullptr);
    bool any_batch GD_DEFAULT_(true);        /* the first size of inputs may be any */
    const char *inputs GD_DEFAULT_("input"); /* names, with spaces between */
    const char *outputs GD_DEFAULT_("output");
} gd_onnx_save_module_options;

/* Saves a net as it computes in eval mode, for inputs like these. Tensors have the names of the
 * parameters. A net that decides by the size of its batch is saved for this one; the log says so.
 *
 *     gd_onnx_save_module("digits.onnx", net, gd_list(gd_zeros(gd_dims(1, 1, 28, 28))));
 */
#define gd_onnx_save_module(path, net, examples, ...)                                \
    GD_WITH_OPTIONS_(gd_onnx_save_module_at(                                         \
        GD_HERE, path, net, examples,                                                \
        GD_OPTIONS_(gd_onnx_save_module_options,                                     \
                    (.external_above = 1 << 26, .metadata = NULL, .any_batch = true, \
                     .inputs = "input", .outputs = "output") __VA_OPT__(, ) __VA_ARGS__)))
GD_API gd_status gd_onnx_save_module_at(const char *site, const char *path, gd_module *net,
                                        gd_tensors examples,
                                        const gd_onnx_save_module_options *options);

/* A file as a module, in the current scope: to call, to train further, to save again. Variables are
 * its parameters and buffers: in a file that was saved here those that were, in others all floats are
 * parameters. What a file has for prediction alone (batch norms with fixed statistics) stays so. */
#define gd_onnx_module(path) gd_onnx_module_at(GD_HERE, path)
GD_API gd_module *gd_onnx_module_at(const char *site, const char *path);

/* What a file says under a key, into `text`, cut to `size`; and how long it is, -1 where there is no
 * such key. A file that cannot be read is a failure. */
#define gd_onnx_metadata(path, key, text, size) gd_onnx_metadata_at(GD_HERE, path, key, text, size)
GD_API int64_t gd_onnx_metadata_at(const char *site, const char *path, const char *key, char *text,
                                   size_t size);

#ifdef __cplusplus
}
#endif
#endif
