#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/test/device.h"
#include "caffe/net.h"
#include "caffe_run.h"

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
    const gd_shape want = gd_tensor_shape(part->object);
    if (!value) return GD_OK;
    const gd_shape have = gd_tensor_shape(value);
    if (have.rank != want.rank || memcmp(have.at, want.at, (size_t)have.rank * sizeof *have.at))
        return gd_raise(GD_E_SHAPE,
                        "blob %d (%s) of layer '%s' has %lld elements in %d dimensions,"
                        " not %lld in %d",
                        number, part->name, w->name, (long long)gd_tensor_numel(part->object),
                        want.rank, (long long)gd_tensor_numel(value), have.rank);
    GD_NO_GRAD;
    gd_assign(part->object, gd_to_device(value, gd_tensor_device(part->object)));
    return gd_error_status();
}

static gd_tensor *on_host(gd_tensor *t) {
    return gd_clone(gd_to_device(gd_detach(t), gd_device_get("cpu")));
}

static gd_status save_blob(blob_walk *w, int number, gd_module_part *part) {
    gd_tensor *gradient = part->kind == GD_PART_PARAMETER ? gd_tensor_grad(part->object) : NULL;
    named_add(w->results, on_host(part->object), "after:%s:%d", w->name, number);
    if (gradient) named_add(w->results, on_host(gradient), "gblob:%s:%d", w->name, number);
    return gd_error_status();
}

/* --- a run ------------------------------------------------------------------------------------ */

static gd_tensors call_net(gd_tensors in, void *net) { return gd_module_call(net, in); }

/* The backward pass, from the sum of all outputs times their gradients. */
static gd_status run_backward(const gd_caffe_text_net *net, gd_tensors y, const named_tensors *given) {
    gd_tensor *sum = NULL;
    for (int i = 0; i < net->n_outputs; i++) {
        gd_tensor *gy = named_find(given, "grad:%s", net->outputs[i].name);
        if (!gy || net->outputs[i].hidden || !gd_tensor_requires_grad(y.at[i])) continue;
        gy = gd_to_device(gy, gd_tensor_device(y.at[i]));
        gy = gd_reshape(gy, gd_tensor_shape(y.at[i]));
        gd_tensor *part = gd_sum(gd_mul(y.at[i], gy));
        sum = sum ? gd_add(sum, part) : part;
    }
    return sum ? gd_backward(sum) : gd_error_status();
}

static gd_status run_net(gd_caffe_text_net *net, bool train, const char *mode,
                         const named_tensors *given, named_tensors *results) {
    gd_tensor *in[NAMED_MAX];
    gd_device *device = gd_default_device();
    if (strcmp(mode, "test") == 0) {
        device = gd_test_device();
        GD_TRY(gd_module_to(net->module, gd_device_name(device), GD_DTYPE_NONE));
    }
    if (train) gd_module_train(net->module);
    else gd_module_eval(net->module);
    blob_walk walk = {given, results, NULL, NULL};
    GD_TRY(each_blob(&walk, net->module, load_blob));
    for (int i = 0; i < net->n_inputs; i++) {
        gd_tensor *x = named_find(given, "in:%s", net->inputs[i].name);
        if (!x) return gd_raise(GD_E_ARGUMENT, "input '%s' is not given", net->inputs[i].name);
        in[i] = gd_requires_grad(gd_to_device(gd_clone(gd_detach(x)), device));
    }
    const gd_tensors inputs = {in, net->n_inputs};
    const gd_tensors y = strcmp(mode, "jit") == 0
                             ? gd_jit_call(gd_jit_new(call_net, net->module), inputs)
                             : gd_module_call(net->module, inputs);
    GD_TRY(gd_error_status());
    if (y.count != net->n_outputs)
        return gd_raise(GD_E_STATE, "the module gives %lld tensors, not %d", (long long)y.count,
                        net->n_outputs);
    GD_TRY(run_backward(net, y, given));
    for (int i = 0; i < net->n_outputs; i++)
        if (!net->outputs[i].hidden)
            named_add(results, on_host(y.at[i]), "top:%s", net->outputs[i].name);
    for (int i = 0; i < net->n_inputs; i++)
        if (gd_tensor_grad(in[i]))
            named_add(results, on_host(gd_tensor_grad(in[i])), "gin:%s", net->inputs[i].name);
    GD_TRY(each_blob(&walk, net->module, save_blob));
    GD_TRY(gd_synchronize(device));
    return gd_error_status();
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
    if (status == GD_OK) {
        if (strcmp(mode, "test") == 0) gd_set_default_device(gd_test_device());
        status = run_net(net, train, mode, given, results);
        gd_set_default_device(before);
    }
    gd_caffe_net_free(net);
    return status;
}
