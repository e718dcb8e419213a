/* save_net.c - gd_caffe_save_net: a module as a prototxt, and its weights as the blobs of the same layers. */
#include <string.h>

#include "caffe/net.h"
#include "caffe/save/save.h"
#include "core/alloc.h"
#include "core/freed.h"
#include "core/thread.h"
#include "caffe/blob.h"
#include "dispatch/call.h"
#include "format/file.h"
#include "gradus/autograd.h"
#include "gradus/caffe.h"
#include "gradus/ops.h"
#include "nn/module.h"

/* --- the shapes of the inputs ----------------------------------------------------------------- */

/* What a module remembers: gd_caffe_save writes the blobs of the same layers. */
typedef struct input_shapes {
    gd_object object;
    int count;
    gd_caffe_input_shape at[];
} input_shapes;

static void destroy_shapes(gd_object *object) {
    gd_free(object);
    gd_object_count(-1);
}
static const gd_class shapes_class = {.name = "shapes", .destroy = destroy_shapes};

static input_shapes *new_shapes(int count) {
    input_shapes *s = gd_calloc(1, sizeof *s + (size_t)count * sizeof *s->at);
    if (!s) {
        gd_no_memory(NULL, "to save a net");
        return NULL;
    }
    gd_object_init(&s->object, &shapes_class);
    gd_object_count(1);
    s->count = count;
    return s;
}

/* Those of the examples; without examples those of the text, if the net has one. */
static gd_status read_inputs(const gd_module *net, gd_tensors in, input_shapes **out) {
    gd_caffe_blob blob;
    int count = (int)in.count;
    for (int i = 0; i < count; i++) {
        if (!in.at[i]) return gd_fail(GD_E_ARGUMENT, "gd_caffe_save_net: input %d is NULL", i);
        if (in.at[i]->kind == GD_FAILED) return gd_failure();
    }
    while (in.count == 0 && gd_caffe_input(net, count, &blob)) count++;
    if (count == 0)
        return gd_fail(GD_E_ARGUMENT, "gd_caffe_save_net: it needs an example of each input of the "
                                      "module, for the shapes of the file");
    if (!(*out = new_shapes(count))) return gd_failure();
    for (int i = 0; i < count; i++)
        if (in.count > 0)
            (*out)->at[i] =
                (gd_caffe_input_shape){gd_tensor_shape(in.at[i]), gd_tensor_dtype(in.at[i])};
        else if (gd_caffe_input(net, i, &blob))
            (*out)->at[i] = (gd_caffe_input_shape){blob.shape, GD_F32};
    return GD_OK;
}

/* --- layers ----------------------------------------------------------------------------------- */

/* Receives the layers. */
typedef gd_status (*layers_fn)(gd_caffe_saver *s, const input_shapes *inputs, void *user);

static gd_status walk(gd_caffe_saver *s, const input_shapes *inputs, layers_fn use, void *user) {
    GD_TRY(gd_caffe_saver_walk(s));
    GD_TRY(gd_caffe_saver_name_blobs(s));
    return use(s, inputs, user);
}

/* A module on another device is copied: a device may run an op as other ops, which are no layers. */
static gd_status move_to_cpu(gd_module **net) {
    gd_tensors all = gd_module_parameters_so_far(*net);
    if (all.count == 0) all = gd_module_buffers_so_far(*net);
    if (all.count == 0 || gd_tensor_device(all.at[0]) == gd_device_get("cpu")) return GD_OK;
    gd_module *copy = gd_module_clone(*net);
    if (!copy) return gd_failure();
    *net = copy;
    return gd_module_to(copy, "cpu", GD_DTYPE_NONE);
}

static gd_status with_layers(gd_module *net, const input_shapes *inputs, layers_fn use,
                             void *user) {
    GD_SCOPE;
    GD_NO_GRAD;
    GD_DEVICE(gd_device_get("cpu"));
    gd_caffe_trace trace = {.net = net};
    gd_caffe_saver saver = {.trace = &trace};
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_status status = move_to_cpu(&net);
    if (status == GD_OK) status = gd_caffe_trace_run(&trace, net, inputs->at, inputs->count);
    if (status == GD_OK) status = walk(&saver, inputs, use, user);
    if (trace.graph) gd_caffe_saver_free(&saver);
    gd_caffe_trace_free(&trace);
    if (gd_failed())
        status = GD_OK; /* the failure of an op, which comes before those that follow from it */
    return gd_attempt_end(&attempt, status);
}

/* --- the prototxt ----------------------------------------------------------------------------- */

/* layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 } } } */
static void put_input(gd_pb *net, const gd_caffe_value *v) {
    gd_pb *layer = gd_pb_put_message(net, "layer");
    gd_pb_put_string(layer, "name", v->name);
    gd_pb_put_string(layer, "type", "Input");
    gd_pb_put_string(layer, "top", v->name);
    gd_pb *shape = gd_pb_put_message(gd_pb_put_message(layer, "input_param"), "shape");
    for (int i = 0; i < v->shape.rank; i++) gd_pb_put_int(shape, "dim", v->shape.at[i]);
}

/* Layer number `at`, behind those that were moved in front of it. */
static void put_layers_at(const gd_caffe_saver *s, gd_pb *net, int at) {
    for (int i = s->n_layers; i-- > 0 && s->layers[i].is_moved;)
        if (s->layers[i].follows == at)
            gd_pb_copy(gd_pb_put_message(net, "layer"), s->layers[i].message);
    if (at < s->n_layers && !s->layers[at].is_moved)
        gd_pb_copy(gd_pb_put_message(net, "layer"), s->layers[at].message);
}

static gd_status write_bytes(void *writer, const void *data, size_t bytes) {
    return gd_file_writer_write(writer, data, bytes);
}

static gd_status write_text(gd_pb_doc *doc, const char *path) {
    gd_file_writer *writer;
    GD_TRY(gd_file_writer_begin(&writer, path));
    const gd_status status = gd_pb_write_text(doc, write_bytes, writer);
    if (status == GD_OK) return gd_file_writer_commit(writer);
    gd_file_writer_cancel(writer);
    return status;
}

static gd_status write_net(gd_caffe_saver *s, const input_shapes *inputs, void *path) {
    gd_pb_doc *doc = gd_pb_new(&gd_caffe_net_schema);
    if (!doc) return gd_failure();
    gd_pb *net = gd_pb_root(doc);
    const char *name = gd_caffe_net_name(s->trace->net);
    gd_pb_put_string(net, "name", name ? name : gd_module_type(s->trace->net));
    for (int i = 0; i < inputs->count; i++) put_input(net, &s->values[i]);
    for (int i = 0; i <= s->n_layers; i++) put_layers_at(s, net, i);
    gd_status status = gd_pb_check(doc);
    if (status == GD_OK) status = write_text(doc, path);
    gd_pb_free(doc);
    return status;
}

static gd_status save_net(const char *path, gd_module *net, gd_tensors in) {
    input_shapes *inputs;
    GD_TRY(read_inputs(net, in, &inputs));
    const gd_status status = with_layers(net, inputs, write_net, (void *)path);
    if (status != GD_OK) {
        gd_object_release(&inputs->object);
        return status;
    }
    gd_object_release(net->saved_shapes);
    net->saved_shapes = &inputs->object;
    return GD_OK;
}

gd_status gd_caffe_save_net_at(const char *site, const char *path, gd_module *net, gd_tensors in) {
    GD_LIVE_AT(site, net);
    GD_CALLED_FROM(site);
    gd_status status = GD_OK;
    if (!net && gd_failed()) status = gd_failure();
    else if (!net || !path)
        status =
            gd_fail(GD_E_ARGUMENT, "gd_caffe_save_net: the %s is NULL", net ? "path" : "module");
    else if (in.count < 0 || (in.count > 0 && !in.at))
        status = gd_fail(GD_E_ARGUMENT, "gd_caffe_save_net: the list of inputs is NULL");
    if (status == GD_OK) status = save_net(path, net, in);
    return gd_report(site, status);
}

/* --- weights ---------------------------------------------------------------------------------- */

static gd_status put_weights(gd_caffe_saver *s, const input_shapes *inputs, void *message) {
    (void)inputs;
    for (int i = 0; i < s->n_layers; i++) {
        const gd_caffe_out_layer *l = &s->layers[i];
        gd_pb *layer = gd_pb_put_message(message, "layer");
        gd_pb_put_string(layer, "name", l->name);
        gd_pb_put_string(layer, "type", gd_pb_string(l->message, "type"));
        for (int k = 0; k < l->n_weights; k++)
            GD_TRY(gd_caffe_put_blob(gd_pb_put_message(layer, "blobs"), l->weights[k]));
    }
    return GD_OK;
}

/* The blobs must live as long as the message: they get one more reference in the scope of the caller. */
typedef struct kept_weights {
    gd_pb *message;
    gd_tensor **at;
    int count;
} kept_weights;

static gd_status keep_weights(gd_caffe_saver *s, const input_shapes *inputs, void *user) {
    kept_weights *kept = user;
    int count = 0;
    for (int i = 0; i < s->n_layers; i++) count += s->layers[i].n_weights;
    kept->at = gd_calloc((size_t)count + 1, sizeof *kept->at);
    if (!kept->at) return gd_no_memory(NULL, "to save a net");
    for (int i = 0; i < s->n_layers; i++)
        for (int k = 0; k < s->layers[i].n_weights; k++)
            kept->at[kept->count++] = gd_retain(s->layers[i].weights[k]);
    return put_weights(s, inputs, kept->message);
}

gd_status gd_caffe_put_saved_layers(gd_pb *message, gd_module *net, bool *found) {
    const gd_object *shapes = net->saved_shapes;
    kept_weights kept = {.message = message};
    *found = shapes != NULL && shapes->class == &shapes_class;
    if (!*found) return GD_OK;
    const gd_status status = with_layers(net, (const input_shapes *)shapes, keep_weights, &kept);
    for (int i = 0; i < kept.count; i++) {
        gd_hold(kept.at[i]);
        gd_release(kept.at[i]);
    }
    gd_free(kept.at);
    return status;
}
