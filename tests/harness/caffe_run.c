#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/test/device.h"
#include "caffe/net.h"
#include "caffe_run.h"
#include "core/tensor_list.h"
#include "temp.h"

gd_tensor *named_find(const named_tensors *from, const char *name, ...) {
    char text[NAMED_LENGTH];
    va_list args;
    va_start(args, name);
    vsnprintf(text, sizeof text, name, args);
    va_end(args);
    for (int i = 0; i < from->count; i++)
        if (strcmp(from->names[i], text) == 0) return from->at[i];
    return NULL;
}

void named_add(named_tensors *to, gd_tensor *tensor, const char *name, ...) {
    va_list args;
    if (to->count == NAMED_MAX) return;
    va_start(args, name);
    vsnprintf(to->names[to->count], NAMED_LENGTH, name, args);
    va_end(args);
    to->at[to->count++] = tensor;
}

/* --- blobs of a layer ------------------------------------------------------------------------- */

typedef struct blob_walk {
    const named_tensors *given;
    named_tensors *results;
    struct net_step *step;
    const char *name; /* of the layer */
    gd_module *layer;
} blob_walk;

/* Calls a function for each blob of each layer. */
static gd_status each_blob(blob_walk *w, gd_module *net,
                           gd_status (*visit)(blob_walk *w, int number, gd_module_part *part)) {
    gd_module_part layer, part;
    for (int i = 0; gd_module_part_at(net, i, &layer); i++) {
        if (layer.kind != GD_PART_CHILD) continue;
        w->name = layer.name;
        w->layer = layer.object;
        for (int k = 0, number = 0; gd_module_part_at(layer.object, k, &part); k++)
            if (part.kind != GD_PART_CHILD && part.object) GD_TRY(visit(w, number++, &part));
    }
    return GD_OK;
}

static gd_status load_blob(blob_walk *w, int number, gd_module_part *part) {
    gd_tensor *value = named_find(w->given, "blob:%s:%d", w->name, number);
    const gd_shape shape = gd_tensor_shape(part->object);
    if (!value) return GD_OK;
    if (gd_tensor_numel(value) != gd_tensor_numel(part->object))
        return gd_raise(GD_E_SHAPE, "blob %d (%s) of layer '%s' has %lld elements, not %lld",
                        number, part->name, w->name, (long long)gd_tensor_numel(part->object),
                        (long long)gd_tensor_numel(value));
    GD_NO_GRAD;
    value = gd_to_device(gd_reshape(value, shape), gd_tensor_device(part->object));
    value = gd_cast(value, gd_tensor_dtype(part->object));
    gd_assign(part->object, value);
    return gd_error_status();
}

static gd_tensor *on_host(gd_tensor *t) {
    return gd_cast(gd_clone(gd_to_device(gd_detach(t), gd_device_get("cpu"))), GD_F32);
}

static gd_status save_blob(blob_walk *w, int number, gd_module_part *part) {
    named_add(w->results, on_host(part->object), "after:%s:%d", w->name, number);
    return gd_error_status();
}

/* --- a step ----------------------------------------------------------------------------------- */

/* A call of the net and its gradients, as a function that a jit can trace. */
typedef struct net_step {
    const gd_caffe_text_net *net;
    const named_tensors *given;
    gd_tensor *parameters[NAMED_MAX];
    char names[NAMED_MAX][NAMED_LENGTH]; /* of their gradients */
    int n_parameters;
    bool has[2 * NAMED_MAX]; /* inputs, then parameters: there is a gradient */
} net_step;

/* The sum of all outputs times their gradients; NULL: there are none. */
static gd_tensor *weighted_sum(const net_step *s, gd_tensors y) {
    gd_tensor *sum = NULL;
    for (int i = 0; i < s->net->n_outputs && i < y.count; i++) {
        gd_tensor *gy = named_find(s->given, "grad:%s", s->net->outputs[i].name);
        if (!gy || s->net->outputs[i].hidden) continue;
        gy = gd_to_device(gy, gd_tensor_device(y.at[i]));
        gy = gd_reshape(gy, gd_tensor_shape(y.at[i]));
        gd_tensor *part = gd_sum(gd_mul(y.at[i], gy));
        sum = sum ? gd_add(sum, part) : part;
    }
    return sum;
}

/* The outputs, then the gradients. */
static gd_tensors run_step(gd_tensors in, void *user) {
    net_step *s = user;
    gd_tensor *by[2 * NAMED_MAX];
    gd_tensors y = gd_module_call(s->net->module, in);
    gd_tensor *sum = weighted_sum(s, y);
    memset(s->has, 0, sizeof s->has);
    if (!sum || !(gd_tensor_is_symbol(sum) || gd_tensor_requires_grad(sum))) return y;
    int n = 0;
    for (; n < in.count; n++) by[n] = in.at[n];
    for (int i = 0; i < s->n_parameters; i++) by[n++] = s->parameters[i];
    const gd_tensors g = gd_grad(gd_list(sum), ((gd_tensors){by, n}), .allow_unused = true);
    gd_tensor **out = gd_list_new(y.count + g.count);
    int64_t count = 0;
    for (; out && count < y.count; count++) out[count] = y.at[count];
    for (int i = 0; out && i < g.count; i++) {
        s->has[i] = g.at[i] != NULL;
        if (g.at[i]) out[count++] = g.at[i];
    }
    return (gd_tensors){out, count};
}

static gd_status add_parameter(net_step *s, const char *layer, int number, gd_tensor *t) {
    if (s->n_parameters == NAMED_MAX || !gd_tensor_requires_grad(t)) return GD_OK;
    snprintf(s->names[s->n_parameters], NAMED_LENGTH, "gblob:%s:%d", layer, number);
    s->parameters[s->n_parameters++] = t;
    return GD_OK;
}

static gd_status find_parameter(blob_walk *w, int number, gd_module_part *part) {
    return part->kind == GD_PART_PARAMETER ? add_parameter(w->step, w->name, number, part->object)
                                           : GD_OK;
}

static void save_results(const net_step *s, gd_tensors all, named_tensors *to) {
    const gd_caffe_text_net *net = s->net;
    int64_t at = net->n_outputs;
    for (int i = 0; i < net->n_outputs; i++)
        if (!net->outputs[i].hidden)
            named_add(to, on_host(all.at[i]), "top:%s", net->outputs[i].name);
    for (int i = 0; i < net->n_inputs; i++)
        if (s->has[i]) named_add(to, on_host(all.at[at++]), "gin:%s", net->inputs[i].name);
    for (int i = 0; i < s->n_parameters; i++)
        if (s->has[net->n_inputs + i]) named_add(to, on_host(all.at[at++]), "%s", s->names[i]);
}

/* The outputs of the net as an ONNX file and back. */
static gd_status run_onnx(const gd_caffe_text_net *net, gd_tensors in, named_tensors *results) {
    char inputs[NAMED_LENGTH * 4] = "", outputs[NAMED_LENGTH * 4] = "";
    const char *path = temp_path("net.onnx");
    for (int i = 0; i < net->n_inputs; i++)
        snprintf(inputs + strlen(inputs), sizeof inputs - strlen(inputs), "in%d ", i);
    for (int i = 0; i < net->n_outputs; i++)
        snprintf(outputs + strlen(outputs), sizeof outputs - strlen(outputs), "out%d ", i);
    GD_TRY(gd_onnx_save_module(path, net->module, in, .inputs = inputs, .outputs = outputs));
    const gd_tensors y = gd_module_call(gd_onnx_module(path), in);
    GD_TRY(gd_error_status());
    for (int i = 0; i < net->n_outputs && i < y.count; i++)
        if (!net->outputs[i].hidden)
            named_add(results, on_host(y.at[i]), "top:%s", net->outputs[i].name);
    return gd_error_status();
}

static gd_status run_net(gd_caffe_text_net *net, bool train, const char *mode,
                         const named_tensors *given, named_tensors *results) {
    static net_step step;
    gd_tensor *in[NAMED_MAX];
    const bool jit = strcmp(mode, "jit") == 0;
    gd_device *device = gd_default_device();
    if (strcmp(mode, "test") == 0)
        GD_TRY(gd_module_to(net->module, gd_device_name(device), GD_DTYPE_NONE));
    if (strcmp(mode, "f64") == 0) GD_TRY(gd_module_to(net->module, NULL, GD_F64));
    if (train) gd_module_train(net->module);
    else gd_module_eval(net->module);
    step = (net_step){.net = net, .given = given};
    blob_walk walk = {given, results, &step, NULL, NULL};
    GD_TRY(each_blob(&walk, net->module, load_blob));
    GD_TRY(each_blob(&walk, net->module, find_parameter));
    for (int i = 0; i < net->n_inputs; i++) {
        gd_tensor *x = named_find(given, "in:%s", net->inputs[i].name);
        if (!x) return gd_raise(GD_E_ARGUMENT, "input '%s' is not given", net->inputs[i].name);
        in[i] = gd_to_device(gd_clone(gd_detach(x)), device);
        if (strcmp(mode, "f64") == 0) in[i] = gd_cast(in[i], GD_F64);
        if (!jit && strcmp(mode, "onnx") != 0) gd_requires_grad(in[i]);
    }
    const gd_tensors inputs = {in, net->n_inputs};
    if (strcmp(mode, "onnx") == 0) return run_onnx(net, inputs, results);
    const gd_tensors all =
        jit ? gd_jit_call(gd_jit_new(run_step, &step), inputs) : run_step(inputs, &step);
    GD_TRY(gd_error_status());
    if (all.count < net->n_outputs)
        return gd_raise(GD_E_STATE, "the module gives %lld tensors, not %d", (long long)all.count,
                        net->n_outputs);
    save_results(&step, all, results);
    GD_TRY(each_blob(&walk, net->module, save_blob));
    GD_TRY(gd_synchronize(device));
    return gd_error_status();
}

/* Saves the net, with the given blobs, and reads it back. */
static gd_status save_and_read(gd_caffe_text_net **net, const gd_caffe_net_settings *settings,
                               const named_tensors *given) {
    static net_step step;
    const char *text = temp_path("saved.prototxt"), *weights = temp_path("saved.caffemodel");
    blob_walk walk = {given, NULL, &step, NULL, NULL};
    GD_TRY(each_blob(&walk, (*net)->module, load_blob));
    GD_TRY(gd_caffe_save_net(text, (*net)->module));
    GD_TRY(gd_caffe_save(weights, (*net)->module));
    gd_caffe_net_free(*net);
    *net = NULL;
    GD_TRY(gd_caffe_net_read(net, text, settings));
    const bool has_blobs = gd_module_parameters((*net)->module).count > 0 ||
                           gd_module_buffers((*net)->module).count > 0;
    return has_blobs ? gd_caffe_load(weights, (*net)->module) : GD_OK;
}

gd_status caffe_run(const char *path, bool train, const char *mode, const named_tensors *given,
                    named_tensors *results) {
    gd_caffe_text_net *net = NULL;
    gd_device *before = gd_default_device();
    const gd_caffe_net_settings settings = {.phase = train ? GD_CAFFE_TRAIN : GD_CAFFE_TEST};
    results->count = 0;
    gd_clear_error();
    gd_seed(7);
    gd_status status = gd_caffe_net_read(&net, path, &settings);
    if (status == GD_OK && strcmp(mode, "saved") == 0) {
        status = save_and_read(&net, &settings, given);
        mode = "eager";
    }
    if (status == GD_OK) {
        if (strcmp(mode, "test") == 0) gd_set_default_device(gd_test_device());
        status = run_net(net, train, mode, given, results);
        gd_set_default_device(before);
    }
    gd_caffe_net_free(net);
    return status;
}
