/* debug.c - the lines of debug_info. A hook on each layer reads its tops and blobs when it has run, and hooks on
 * its bottoms and parameters read their gradients. See debug.h. */
#include "caffe/debug.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "gradus/autograd.h"
#include "nn/module.h"

/* A bottom or a parameter, and its gradient in this iteration. */
typedef struct watched {
    struct gd_caffe_debug *debug;
    gd_tensor *gradient; /* retained; NULL: none so far */
} watched;

typedef struct layer_watch {
    struct gd_caffe_debug *debug;
    const gd_pb *message;
    gd_module *module; /* a child of the net */
    int64_t hook;
    watched *bottoms, *blobs;
    int n_bottoms, n_blobs;
} layer_watch;

struct gd_caffe_debug {
    const gd_caffe_text_net *net;
    const gd_caffe_log *log;
    const bool *on;
    double batches;
    int64_t hook; /* of the net */
    layer_watch *layers;
    int n_layers;
    double norm_1, norm_2; /* of all parameters, before the step */
};

/* --- numbers ---------------------------------------------------------------------------------- */

static double sum_of(gd_tensor *t, bool squares) {
    GD_NO_GRAD;
    GD_SCOPE;
    gd_tensor *x = gd_cast(gd_detach(t), GD_F64);
    return gd_item(gd_sum(squares ? gd_mul(x, x) : gd_abs(x)));
}

static double mean_of(gd_tensor *t) {
    const int64_t count = gd_tensor_numel(t);
    return count > 0 ? sum_of(t, false) / (double)count : 0;
}

/* --- gradients -------------------------------------------------------------------------------- */

/* gd_fit has divided the loss by the batches of an iteration; Caffe divides the sum of the gradients later. */
static gd_tensor *take_gradient(gd_tensor *gradient, void *user) {
    watched *w = user;
    if (!*w->debug->on) return NULL;
    GD_NO_GRAD;
    GD_SCOPE;
    gd_tensor *g = gd_mul(gd_detach(gradient), gd_scalar(w->debug->batches));
    if (w->gradient) g = gd_add(w->gradient, g);
    if (g->kind == GD_FAILED) return NULL;
    gd_release(w->gradient);
    w->gradient = gd_retain(g);
    return NULL;
}

static void forget(watched *w) {
    gd_release(w->gradient);
    w->gradient = NULL;
}

static void forget_gradients(gd_caffe_debug *d, bool of_blobs) {
    for (int i = 0; i < d->n_layers; i++) {
        for (int k = 0; k < d->layers[i].n_bottoms; k++) forget(&d->layers[i].bottoms[k]);
        for (int k = 0; k < d->layers[i].n_blobs && of_blobs; k++) forget(&d->layers[i].blobs[k]);
    }
}

static void say_gradients(const layer_watch *l) {
    const gd_caffe_log *log = l->debug->log;
    const char *name = gd_pb_string(l->message, "name");
    for (int k = 0; k < l->n_bottoms; k++)
        if (l->bottoms[k].gradient)
            gd_caffe_say(log, "    [Backward] Layer %s, bottom blob %s diff: %g", name,
                         gd_pb_string_at(l->message, "bottom", (size_t)k),
                         mean_of(l->bottoms[k].gradient));
    for (int k = 0; k < l->n_blobs; k++)
        if (l->blobs[k].gradient)
            gd_caffe_say(log, "    [Backward] Layer %s, param blob %d diff: %g", name, k,
                         mean_of(l->blobs[k].gradient));
}

gd_status gd_caffe_debug_backward(gd_caffe_debug *d, bool ends) {
    double norm_1 = 0, norm_2 = 0;
    for (int i = d->n_layers - 1; i >= 0; i--) {
        say_gradients(&d->layers[i]);
        for (int k = 0; k < d->layers[i].n_blobs; k++)
            if (d->layers[i].blobs[k].gradient) {
                norm_1 += sum_of(d->layers[i].blobs[k].gradient, false);
                norm_2 += sum_of(d->layers[i].blobs[k].gradient, true);
            }
    }
    gd_caffe_say_at(d->log, 'E', __FILE__, __LINE__,
                    "    [Backward] All net params (data, diff): L1 norm = (%g, %g); L2 norm = "
                    "(%g, %g)",
                    d->norm_1, norm_1, sqrt(d->norm_2), sqrt(norm_2));
    forget_gradients(d, ends);
    return gd_failed() ? gd_failure() : GD_OK;
}

/* --- hooks of layers -------------------------------------------------------------------------- */

static void say_blob(const gd_caffe_log *log, const char *layer, const char *what, const char *name,
                     gd_tensor *t) {
    gd_caffe_say(log, "    [Forward] Layer %s, %s %s data: %g", layer, what, name, mean_of(t));
}

static bool needs_gradient(const gd_tensor *t) { return t->requires_grad && gd_grad_enabled(); }

static gd_tensors after_layer(gd_module *m, gd_tensors inputs, gd_tensors outputs, void *user) {
    layer_watch *l = user;
    const gd_caffe_debug *d = l->debug;
    const char *name = gd_pb_string(l->message, "name");
    char number[20];
    if (!*d->on) return (gd_tensors){NULL, 0};
    const size_t tops = gd_pb_count(l->message, "top");
    for (int64_t i = 0; i < outputs.count && ((size_t)i < tops || (tops == 0 && i == 0)); i++)
        say_blob(d->log, name, "top blob",
                 tops ? gd_pb_string_at(l->message, "top", (size_t)i) : "(automatic)",
                 outputs.at[i]);
    for (int i = 0, blob = 0; i < m->count && blob < l->n_blobs; i++) {
        if (m->entries[i].kind == GD_A_CHILD || !m->entries[i].object) continue;
        snprintf(number, sizeof number, "%d", blob++);
        say_blob(d->log, name, "param blob", number, (gd_tensor *)m->entries[i].object);
    }
    for (int i = 0; i < inputs.count && i < l->n_bottoms; i++)
        if (needs_gradient(inputs.at[i]))
            gd_tensor_hook_at(NULL, inputs.at[i], take_gradient, &l->bottoms[i], NULL);
    return (gd_tensors){NULL, 0};
}

/* The layer whose top an input of the net is. */
static const char *layer_of_top(const gd_caffe_text_net *net, const char *top) {
    for (int i = 0; i < net->n_layers; i++)
        for (size_t k = 0; k < gd_pb_count(net->layers[i], "top"); k++)
            if (strcmp(gd_pb_string_at(net->layers[i], "top", k), top) == 0)
                return gd_pb_string(net->layers[i], "name");
    return "input";
}

/* Before the layers: the tops of data layers, and the norms of the parameters before the step. */
static gd_tensors before_net(gd_module *m, gd_tensors inputs, gd_tensors outputs, void *user) {
    gd_caffe_debug *d = user;
    (void)m, (void)outputs;
    if (!*d->on) return (gd_tensors){NULL, 0};
    d->norm_1 = d->norm_2 = 0;
    for (int i = 0; i < d->net->n_parameters; i++) {
        d->norm_1 += sum_of(d->net->parameters[i].tensor, false);
        d->norm_2 += sum_of(d->net->parameters[i].tensor, true);
    }
    for (int i = 0; i < d->net->n_inputs && i < inputs.count; i++)
        say_blob(d->log, layer_of_top(d->net, d->net->inputs[i].name), "top blob",
                 d->net->inputs[i].name, inputs.at[i]);
    return (gd_tensors){NULL, 0};
}

/* --- opening ---------------------------------------------------------------------------------- */

static gd_status watch_layer(gd_caffe_debug *d, const gd_pb *message) {
    const gd_entry *e = gd_module_entry(d->net->module, gd_pb_string(message, "name"));
    if (!e || e->kind != GD_A_CHILD) return GD_OK;
    layer_watch *l = &d->layers[d->n_layers];
    *l = (layer_watch){.debug = d, .message = message, .module = (gd_module *)e->object};
    const int bottoms = (int)gd_pb_count(message, "bottom");
    l->bottoms = gd_calloc((size_t)bottoms + 1, sizeof *l->bottoms);
    l->blobs = gd_calloc((size_t)l->module->count + 1, sizeof *l->blobs);
    d->n_layers++;
    if (!l->bottoms || !l->blobs) return gd_no_memory(d->net->file, "for debug_info");
    while (l->n_bottoms < bottoms) l->bottoms[l->n_bottoms++].debug = d;
    for (int i = 0; i < l->module->count; i++) {
        gd_tensor *t = (gd_tensor *)l->module->entries[i].object;
        if (l->module->entries[i].kind == GD_A_CHILD || !t) continue;
        watched *w = &l->blobs[l->n_blobs++];
        w->debug = d;
        if (t->requires_grad && d->net->phase == GD_CAFFE_TRAIN)
            GD_TRY(gd_tensor_hook_at(NULL, t, take_gradient, w, NULL));
    }
    l->hook = gd_module_on_forward_at(NULL, l->module, after_layer, l, GD_HOOK_OPTIONS_());
    return gd_failed() ? gd_failure() : GD_OK;
}

gd_status gd_caffe_debug_open(gd_caffe_debug **out, const gd_caffe_text_net *net,
                              const gd_caffe_log *log, const bool *on, int64_t batches) {
    gd_caffe_debug *d = *out = gd_calloc(1, sizeof *d);
    if (!d) return gd_no_memory(net->file, "for debug_info");
    *d = (gd_caffe_debug){.net = net, .log = log, .on = on, .batches = (double)batches};
    d->layers = gd_calloc((size_t)net->n_layers + 1, sizeof *d->layers);
    if (!d->layers) return gd_no_memory(net->file, "for debug_info");
    for (int i = 0; i < net->n_layers; i++) GD_TRY(watch_layer(d, net->layers[i]));
    gd_hook_options before = *GD_HOOK_OPTIONS_();
    before.before = true;
    d->hook = gd_module_on_forward_at(NULL, net->module, before_net, d, &before);
    return gd_failed() ? gd_failure() : GD_OK;
}

static void close_layer(layer_watch *l) {
    if (l->hook) gd_module_unhook(l->module, l->hook);
    for (int i = 0, blob = 0; i < l->module->count && blob < l->n_blobs; i++)
        if (l->module->entries[i].kind != GD_A_CHILD && l->module->entries[i].object)
            gd_tensor_unhook((gd_tensor *)l->module->entries[i].object, take_gradient,
                             &l->blobs[blob++]);
    gd_free(l->bottoms);
    gd_free(l->blobs);
}

void gd_caffe_debug_close(gd_caffe_debug *d) {
    if (!d) return;
    forget_gradients(d, true);
    if (d->hook) gd_module_unhook(d->net->module, d->hook);
    for (int i = 0; i < d->n_layers; i++) close_layer(&d->layers[i]);
    gd_free(d->layers);
    gd_free(d);
}
