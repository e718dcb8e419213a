/* save.h - a module as layers of Caffe: shared by the files of save/.
 *
 * The module is called once with symbols (trace.c). A layer of gd_caffe_net does not run: it has its text, and
 * gives symbols with the shapes of its tops. All other ops that the outputs need become layers (walk.c): by
 * the word `caffe` of the op's record (row.c), or by a function beside the one that makes the layer
 * (op_table.c, call.c). Then blobs get their names, and are shared, split or silenced as Caffe needs it (blobs.c).
 * The prototxt and the .caffemodel are two prints of the same layers (save_net.c).
 *
 * A function of an op takes the call, and adds layers:
 *
 *     gd_status gd_caffe_save_linear(gd_caffe_call *c) {
 *         gd_caffe_out(c, "InnerProduct", gd_caffe_bottom(c, 0), gd_caffe_top(c, 0));
 *         gd_caffe_put_int(c, "num_output", c->in[1].dims[0]);
 *         return gd_caffe_put_weight(c, gd_caffe_constant(c, 1));
 *     }
 *
 * The first failure is kept in the saver, so these need no checks before the end.
 */
#ifndef GRADUS_CAFFE_SAVE_SAVE_H
#define GRADUS_CAFFE_SAVE_SAVE_H

#include "caffe/schema.h"
#include "core/name_map.h"
#include "graph/build/graph.h"
#include "nn/watch.h"

/* --- the trace (trace.c) ---------------------------------------------------------------------- */

/* A call of a module: its path, "layer1/0/conv1". */
typedef struct gd_caffe_frame {
    const char *path; /* interned; "" is the module that is saved */
    bool is_layer;    /* of the library: it is a layer by itself */
    int first_node;
} gd_caffe_frame;

/* What a call of a layer of gd_caffe_net reads: output `index` of a node, or a value. */
typedef struct gd_caffe_read {
    int node, index;
    gd_tensor *value; /* retained; or NULL */
} gd_caffe_read;

/* Such a call. Its outputs are placeholders: nodes from `first_out` on. */
typedef struct gd_caffe_text_call {
    gd_module *module;
    const gd_pb *text;
    const char *path;
    gd_caffe_read *in;
    int n_in, first_out, n_out;
} gd_caffe_text_call;

typedef struct gd_caffe_trace {
    gd_module_watch watch; /* must be first */
    gd_module *net;
    gd_graph *graph;
    gd_caffe_frame *frames;
    gd_caffe_text_call *calls;
    int *frame_of; /* of each node, the number of its innermost frame, plus 1 */
    int n_frames, frames_room, n_calls, calls_room, n_owned, owned_room;
    gd_pb_doc *made;    /* texts of layers that compute nothing in eval mode */
    gd_tensors outputs; /* symbols of the graph */
    int n_inputs;       /* placeholders: the first nodes */
    gd_status status;
} gd_caffe_trace;

/* What the files remember of the inputs. */
typedef struct gd_caffe_input_shape {
    gd_shape shape;
    gd_dtype dtype;
} gd_caffe_input_shape;

/* Calls the module in eval mode. The tensors belong to the current scope. */
gd_status gd_caffe_trace_run(gd_caffe_trace *t, gd_module *net, const gd_caffe_input_shape *inputs,
                             int n_inputs);
void gd_caffe_trace_free(gd_caffe_trace *t);

/* --- layers ----------------------------------------------------------------------------------- */

/* A blob between layers. */
typedef struct gd_caffe_value {
    gd_shape shape;
    int writer; /* number of its layer; -1: an input of the net */
    int n_readers, last_reader;
    bool is_output;
    const char *name; /* interned; NULL: not known yet */
} gd_caffe_value;

/* A layer of the file. */
typedef struct gd_caffe_out_layer {
    gd_pb *message;
    const char *name;
    bool from_text; /* its message has the names of its tops, and may have `param` */
    bool is_moved;  /* it stands in front of layer number `follows`, not at its own place */
    int follows;
    int *bottoms, *tops;
    gd_tensor **weights; /* its blobs in a .caffemodel, retained */
    int n_bottoms, bottoms_room, n_tops, tops_room, n_weights, weights_room;
} gd_caffe_out_layer;

typedef struct gd_caffe_saver {
    gd_caffe_trace *trace;
    gd_pb_doc *doc; /* the net */
    gd_caffe_value *values;
    gd_caffe_out_layer *layers;
    int n_values, values_room, n_layers, layers_room;
    int **value_of;          /* the values of each node's outputs, plus 1 */
    gd_tensor ***constants;  /* the outputs of nodes that depend on no input, once computed */
    bool *needed, *constant; /* of each node */
    gd_name_map layer_names, blob_names;
    int *outputs; /* values */
    int n_outputs;
    gd_status status;
} gd_caffe_saver;

/* The layers of a traced module, without names of blobs (walk.c); these names (blobs.c). */
gd_status gd_caffe_saver_walk(gd_caffe_saver *s);
gd_status gd_caffe_saver_name_blobs(gd_caffe_saver *s);
void gd_caffe_saver_free(gd_caffe_saver *s);

/* Keeps the first failure. */
void gd_caffe_keep(gd_caffe_saver *s, gd_status status);
/* The value of output k of a node; a new value, a new layer with a name that begins so (call.c). */
int gd_caffe_value_of(gd_caffe_saver *s, const gd_node *node, int k);
int gd_caffe_new_value(gd_caffe_saver *s, const gd_shape *shape);
gd_caffe_out_layer *gd_caffe_new_layer(gd_caffe_saver *s, const char *type, const char *name);
void gd_caffe_put_bottom(gd_caffe_saver *s, int value); /* of the newest layer */
void gd_caffe_put_top(gd_caffe_saver *s, int value);
void gd_caffe_add_weight(gd_caffe_saver *s, gd_tensor *t);

/* --- a call of an op -------------------------------------------------------------------------- */

typedef struct gd_caffe_call {
    gd_caffe_saver *saver;
    const gd_node *node;
    const gd_op *op;
    const void *attrs;
    const gd_slot *in, *out;
    int n_in, n_out;
    const char *name;           /* of its first layer: "layer1/0/conv1" */
    const gd_pb_field *options; /* of the newest layer: the field of its type */
    int n_layers;               /* so far */
} gd_caffe_call;

/* GD_E_UNSUPPORTED: "layer 'conv1' (conv2d): ...". */
gd_status gd_caffe_cannot(const gd_caffe_call *c, const char *format, ...) GD_PRINTF(2, 3);

/* The value of an input, which must not be a constant; of an output. */
int gd_caffe_bottom(gd_caffe_call *c, int i);
int gd_caffe_top(gd_caffe_call *c, int k);
/* An input that depends on no input of the net: its value, in the current scope. NULL: it is absent, or no
 * constant. */
gd_tensor *gd_caffe_constant(gd_caffe_call *c, int i);
gd_shape gd_caffe_slot_shape(const gd_slot *slot);
/* A new value between two layers of this call. */
int gd_caffe_between(gd_caffe_call *c, gd_shape shape);
/* The first output is the first input. */
gd_status gd_caffe_save_same(gd_caffe_call *c);

/* A new layer with a bottom and a top. Further layers of one call have names with the type: "bn1/scale". */
void gd_caffe_out(gd_caffe_call *c, const char *type, int bottom, int top);
/* Whether a field of its options has this value without being set. */
bool gd_caffe_is_default(const gd_caffe_call *c, const char *field, double value);
/* Fields of its options: one that has Caffe's default is left out, unless it is repeated. */
void gd_caffe_put_int(gd_caffe_call *c, const char *field, int64_t value);
void gd_caffe_put_always(gd_caffe_call *c, const char *field, int64_t value); /* also a default */
void gd_caffe_put_float(gd_caffe_call *c, const char *field, double value);
/* A list with one number if all are equal, and none if all are the default. */
void gd_caffe_put_sizes(gd_caffe_call *c, const char *field, int count, const int64_t *sizes,
                        int64_t by_default);
/* Its next blob. Fails if it is NULL: a weight must be a constant. */
gd_status gd_caffe_put_weight(gd_caffe_call *c, gd_tensor *t);

/* Options of the op. Lists: returns the count, -1 if it is not given. */
double gd_caffe_option(const gd_caffe_call *c, const char *name);
int gd_caffe_option_list(const gd_caffe_call *c, const char *name, int64_t *numbers);
/* A list of axes as flags for the axes of the first input; all if it is not given. */
void gd_caffe_option_axes(const gd_caffe_call *c, const char *name, bool axes[GD_MAX_RANK]);

/* Parts of layers, beside those that have them: `to` is a part of the value `from` (layers/shape.c); it is
 * `from` with another shape; the means of the planes of the first input, false if its axes are others
 * (layers/pooling.c); y = (scale x + shift)^power (layers/elementwise.c); x plus or times a constant
 * (layers/scale.c). */
void gd_caffe_cut(gd_caffe_call *c, int from, int axis, int64_t start, int64_t size, int to);
void gd_caffe_shape_as(gd_caffe_call *c, int from, int to);
bool gd_caffe_save_mean_of_planes(gd_caffe_call *c, const bool axes[GD_MAX_RANK]);
void gd_caffe_put_power(gd_caffe_call *c, int from, double power, double scale, double shift,
                        int to);
gd_status gd_caffe_save_with_constant(gd_caffe_call *c, int x, gd_tensor *t, bool multiplies,
                                      int to);
gd_status gd_caffe_save_broadcast(gd_caffe_call *c, int x, int second, bool multiplies);

/* A tensor with one value in all elements, in the current scope. */
gd_tensor *gd_caffe_full(gd_shape shape, double value);

/* --- ops -------------------------------------------------------------------------------------- */

/* Saves by the record of the op; *found is false if it has no type (row.c). */
gd_status gd_caffe_save_row(gd_caffe_call *c, bool *found);

typedef gd_status (*gd_caffe_save_fn)(gd_caffe_call *c);
/* The function of an op; NULL: there is none (op_table.c). Whether the layer reads input i of the op. */
gd_caffe_save_fn gd_caffe_find_save(const gd_op *op);
bool gd_caffe_reads(const gd_op *op, int i);

/* The layer of a gd_nn_dropout, which computes nothing in eval mode, added to a net. NULL: the module is another
 * one (layers/plain.c). */
const gd_pb *gd_caffe_dropout_text(gd_pb *net, const gd_module *module, const char *name);

/* --- files ------------------------------------------------------------------------------------ */

/* Adds the layers of a module that gd_caffe_save_net has written, with their blobs, to a NetParameter
 * (save_net.c). The blobs belong to the current scope. *found is false if it has not written it. */
gd_status gd_caffe_put_saved_layers(gd_pb *message, gd_module *net, bool *found);

#endif
