/* net.c - builds the module of a net from its text.
 *
 * First every layer gets its module, in the order of the text, and runs on shapes alone, so that the shapes
 * of its tops are known. Then the layers become rows of a gd_nn_net (nn/net.h).
 */
#include "caffe/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caffe/net_build.h"
#include "caffe/read.h"
#include "core/alloc.h"
#include "core/checked.h"
#include "core/grow.h"
#include "core/nearest.h"
#include "dispatch/intern.h"
#include "graph/build/shapes_only.h"
#include "gradus/ops.h"
#include "nn/net.h"

/* --- blobs ------------------------------------------------------------------------------------ */

/* The number of a blob; -1: no layer so far writes it. */
static int find_blob(const net_builder *b, const char *name) {
    return gd_entry_number(&b->by_name, name);
}

/* Whether the products of any sizes of a shape are below 2^61: layers multiply them without checks. */
static bool is_countable(const gd_shape *shape) {
    int64_t count = 4;
    for (int i = 0; i < shape->rank; i++)
        if (shape->at[i] > 1 && !gd_mul_i64(count, shape->at[i], &count)) return false;
    return true;
}

static gd_status add_blob(net_builder *b, const char *name, const gd_shape *shape) {
    const char *kept = gd_intern(name);
    if (!is_countable(shape))
        return gd_pb_fail(b->message, "the blob '%s' has too many elements to count", name);
    if (!kept || !gd_grow(b->blobs, b->n_blobs, b->blobs_room) ||
        !gd_set_entry_number(&b->by_name, kept, b->n_blobs))
        return gd_no_memory(b->net->file, "for a net");
    b->blobs[b->n_blobs++] = (net_blob){.name = kept, .shape = *shape};
    return GD_OK;
}

static gd_status add_input(net_builder *b, const char *name, const gd_shape *shape,
                           bool from_text) {
    gd_caffe_text_net *net = b->net;
    if (find_blob(b, name) >= 0)
        return gd_pb_fail(b->message, "two inputs of the net have the name '%s'", name);
    GD_TRY(add_blob(b, name, shape));
    if (!gd_grow(net->inputs, net->n_inputs, b->inputs_room))
        return gd_no_memory(net->file, "for a net");
    net->inputs[net->n_inputs++] =
        (gd_caffe_net_input){b->blobs[b->n_blobs - 1].name, *shape, from_text};
    return GD_OK;
}

/* --- inputs ----------------------------------------------------------------------------------- */

static gd_status check_rank(const gd_pb *at, const char *name, size_t rank) {
    if (rank <= GD_MAX_RANK) return GD_OK;
    return gd_pb_fail(at, "'%s' has %zu axes; there can be %d", name, rank, GD_MAX_RANK);
}

/* `input: "data"` with `input_shape { dim: 1 ... }`, or with four numbers `input_dim`. */
static gd_status read_inputs(net_builder *b) {
    const gd_pb *m = b->message;
    const size_t count = gd_pb_count(m, "input"), shapes = gd_pb_count(m, "input_shape");
    const gd_pb_list *dims = gd_pb_get(m, "input_dim");
    const size_t n_dims = dims ? dims->count : 0;
    if (shapes > 0 ? shapes != count : n_dims != 4 * count)
        return gd_pb_fail(m,
                          "the net has %zu input%s, but %zu input_shape and %zu input_dim; each "
                          "input needs one input_shape, or four numbers input_dim",
                          count, count == 1 ? "" : "s", shapes, n_dims);
    for (size_t i = 0; i < count; i++) {
        const char *name = gd_pb_string_at(m, "input", i);
        const gd_pb_list *list =
            shapes > 0 ? gd_pb_get(gd_pb_message_at(m, "input_shape", i), "dim") : NULL;
        const int64_t *sizes = shapes > 0 ? (list ? list->ints : NULL) : dims->ints + 4 * i;
        const size_t rank = shapes > 0 ? (list ? list->count : 0) : 4;
        GD_TRY(check_rank(m, name, rank));
        for (size_t k = 0; k < rank; k++)
            if (sizes[k] < 0)
                return gd_pb_fail(m, "size %lld of the input '%s' is negative", (long long)sizes[k],
                                  name);
        const gd_shape shape = gd_shape_of((int)rank, sizes);
        GD_TRY(add_input(b, name, &shape, true));
    }
    return GD_OK;
}

/* The tops of the data layers, which one loader gives. */
static gd_status open_data(net_builder *b) {
    static const gd_caffe_data_options none = {.workers = 0};
    gd_caffe_text_net *net = b->net;
    const gd_pb **layers = gd_calloc((size_t)net->n_layers + 1, sizeof *layers);
    int count = 0;
    if (!layers) return gd_no_memory(net->file, "for a net");
    for (int i = 0; i < net->n_layers; i++)
        if (gd_caffe_is_data(gd_pb_string(net->layers[i], "type")))
            layers[count++] = net->layers[i];
    const gd_caffe_data_options *options = b->settings->data ? b->settings->data : &none;
    gd_status status =
        count == 0 ? GD_OK
                   : gd_caffe_data_open(&net->data, layers, count, net->phase, net->file, options);
    gd_free(layers);
    if (status != GD_OK || !net->data) return status;
    gd_retain(gd_caffe_data_loader(net->data));
    for (int i = 0; i < gd_caffe_data_tops(net->data); i++) {
        const gd_shape shape = gd_caffe_data_shape(net->data, i);
        GD_TRY(add_input(b, gd_caffe_data_top(net->data, i), &shape, false));
    }
    return GD_OK;
}

/* --- layers ----------------------------------------------------------------------------------- */

static gd_status no_bottom(const net_builder *b, const gd_caffe_layer *l, const char *name) {
    gd_nearest n = gd_nearest_to(name);
    for (int i = 0; i < b->n_blobs; i++) gd_nearest_try(&n, b->blobs[i].name);
    return gd_caffe_fail(
        l, "its bottom '%s' is neither an input nor a top of an earlier layer%s%s%s", name,
        n.best ? "; did you mean '" : "", n.best ? n.best : "", n.best ? "'?" : "");
}

/* Reads the names and the shapes of the bottoms. A blob that is read is no output of the net, until it is
 * written again. */
static gd_status take_bottoms(net_builder *b, net_layer *layer, gd_caffe_layer *l) {
    gd_shape *shapes = gd_calloc((size_t)l->n_bottoms + 1, sizeof *shapes);
    layer->bottoms = gd_calloc((size_t)l->n_bottoms + 1, sizeof *layer->bottoms);
    l->bottoms = shapes;
    if (!shapes || !layer->bottoms) return gd_no_memory(b->net->file, "for a net");
    for (int i = 0; i < l->n_bottoms; i++) {
        const char *name = gd_pb_string_at(l->message, "bottom", (size_t)i);
        const int k = find_blob(b, name);
        if (k < 0) return no_bottom(b, l, name);
        b->blobs[k].is_read = true;
        shapes[i] = b->blobs[k].shape;
        layer->bottoms[i] = b->blobs[k].name;
    }
    layer->n_bottoms = l->n_bottoms;
    return GD_OK;
}

/* Infers the shapes of the tops. */
static gd_status run_on_shapes(const gd_caffe_layer *l, gd_shape *tops, int *count, int room) {
    gd_shapes_only only;
    gd_shapes_only_begin(&only);
    gd_tensor **in = gd_list_new(l->n_bottoms);
    gd_status status = in ? GD_OK : gd_no_memory(l->file, "for a net");
    for (int i = 0; i < l->n_bottoms && status == GD_OK; i++)
        in[i] = gd_symbol(l->bottoms[i], GD_F32, NULL);
    if (status == GD_OK) {
        const gd_tensors out = gd_module_run(l->module, (gd_tensors){in, l->n_bottoms});
        *count = (int)out.count;
        if (out.count < 1 || out.at[0]->kind == GD_FAILED) status = gd_failure();
        for (int i = 0; i < out.count && i < room && status == GD_OK; i++)
            tops[i] = gd_shape_of(out.at[i]->rank, out.at[i]->dims);
    }
    gd_shapes_only_end(&only);
    return status;
}

/* Whether top i is written in the place of bottom i. */
static bool is_in_place(const gd_caffe_layer *l, int i) {
    return i < l->n_bottoms && strcmp(gd_pb_string_at(l->message, "bottom", (size_t)i),
                                      gd_pb_string_at(l->message, "top", (size_t)i)) == 0;
}

static gd_status add_top(net_builder *b, const gd_caffe_layer *l, int i, const char *name,
                         const gd_shape *shape) {
    const int k = find_blob(b, name);
    if (k < 0) return add_blob(b, name, shape);
    if (i >= (int)gd_pb_count(l->message, "top") || !is_in_place(l, i))
        return gd_caffe_fail(l,
                             "its top '%s' is already a top of an earlier layer; only a layer that "
                             "reads a blob as its bottom %d may write it again",
                             name, i);
    b->blobs[k].shape = *shape;
    b->blobs[k].is_read = false;
    return GD_OK;
}

/* The weight of top i in the loss. */
static double loss_weight(const gd_caffe_layer *l, int i) {
    const gd_pb_list *weights = gd_pb_get(l->message, "loss_weight");
    const gd_caffe_type *t = gd_caffe_find_type(l->type);
    if (weights && (size_t)i < weights->count) return weights->floats[i];
    return i == 0 && t && t->flags & GD_CAFFE_LOSS ? 1 : 0;
}

/* A field that is there must be there for each bottom or top. */
static gd_status check_field_count(const gd_caffe_layer *l, const char *field, int count,
                                   const char *of) {
    const int given = (int)gd_pb_count(l->message, field);
    if (given == 0 || given == count) return GD_OK;
    return gd_caffe_fail(l, "it has %d %s, but %d %s%s; each needs one, or none has one", given,
                         field, count, of, count == 1 ? "" : "s");
}

static gd_status take_tops(net_builder *b, net_layer *layer, gd_caffe_layer *l) {
    enum { ROOM = 64 };
    gd_shape few[ROOM], *shapes = few;
    int count = 0, named = l->n_tops;
    if (named > ROOM && !(shapes = gd_calloc((size_t)named, sizeof *shapes)))
        return gd_no_memory(b->net->file, "for a net");
    gd_status status = run_on_shapes(l, shapes, &count, named > ROOM ? named : ROOM);
    if (status != GD_OK) status = gd_caffe_add_place(l, status);
    else if (count < named)
        status = gd_caffe_fail(l, "it has %d top%s, but %d names for them", count,
                               count == 1 ? "" : "s", named);
    const bool automatic = named == 0 && loss_weight(l, 0) != 0;
    if (status == GD_OK) status = check_field_count(l, "loss_weight", named + automatic, "top");
    layer->tops = gd_calloc((size_t)named + 1, sizeof *layer->tops);
    if (status == GD_OK && !layer->tops) status = gd_no_memory(b->net->file, "for a net");
    for (int i = 0; i < named + automatic && status == GD_OK; i++) {
        char name[300];
        if (automatic) snprintf(name, sizeof name, "(automatic) %.250s", l->name);
        const char *top = automatic ? name : gd_pb_string_at(l->message, "top", (size_t)i);
        status = add_top(b, l, i, top, &shapes[i]);
        net_blob *blob = status == GD_OK ? &b->blobs[find_blob(b, top)] : NULL;
        if (!blob) break;
        layer->tops[layer->n_tops++] = blob->name;
        blob->loss_weight = loss_weight(l, i);
        blob->automatic = automatic;
    }
    if (shapes != few) gd_free(shapes);
    return status;
}

static gd_status make_module(net_builder *b, net_layer *layer, gd_caffe_layer *l) {
    if (l->n_bottoms == 0 && l->n_tops == 0)
        return gd_caffe_fail(l, "it has neither bottoms nor tops");
    GD_TRY(check_field_count(l, "propagate_down", l->n_bottoms, "bottom"));
    GD_TRY(take_bottoms(b, layer, l));
    GD_TRY(gd_caffe_make_layer(l));
    layer->module = l->module;
    if (!layer->module) return GD_OK; /* a layer that computes nothing: Silence */
    layer->name = l->name;
    if (b->net->phase == GD_CAFFE_TEST) gd_module_eval(l->module);
    GD_TRY(gd_caffe_keep_text(&b->texts, l->module, l->message));
    GD_TRY(gd_caffe_take_parameters(b, l));
    return take_tops(b, layer, l);
}

/* Names are those of the text, but parts of a module need names, and different ones: a layer without one has
 * that of its type, and further layers of one name get numbers, "relu_1". */
static gd_status name_layer(net_builder *b, gd_caffe_layer *l) {
    char text[GD_MAX_NAME + 40];
    const char *given = *l->name ? l->name : l->type;
    if (strlen(given) > GD_MAX_NAME) return GD_OK; /* the net refuses it */
    const size_t length = (size_t)snprintf(text, sizeof text, "%s", given);
    gd_number_name(&b->layer_names, text, length, sizeof text);
    if ((l->name = gd_intern(text)) && gd_set_entry_number(&b->layer_names, l->name, 0))
        return GD_OK;
    return gd_no_memory(b->net->file, "for a net");
}

static gd_status make_layer(net_builder *b, const gd_pb *message) {
    if (!gd_grow(b->layers, b->n_layers, b->layers_room))
        return gd_no_memory(b->net->file, "for a net");
    net_layer *layer = &b->layers[b->n_layers++];
    *layer = (net_layer){.message = message};
    gd_caffe_layer l = {.message = message,
                        .name = gd_pb_string(message, "name"),
                        .type = gd_pb_string(message, "type"),
                        .phase = b->net->phase,
                        .file = b->net->file,
                        .n_bottoms = (int)gd_pb_count(message, "bottom"),
                        .n_tops = (int)gd_pb_count(message, "top"),
                        .fill = !b->settings->no_fill && !b->settings->share};
    if (!*l.type) return gd_pb_fail(message, "layer '%s' has no type", l.name);
    GD_TRY(name_layer(b, &l));
    const gd_status status = make_module(b, layer, &l);
    gd_free((void *)l.bottoms);
    return status;
}

/* --- the module ------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b) {
    return strcmp(((const gd_caffe_net_output *)a)->name, ((const gd_caffe_net_output *)b)->name);
}

static gd_status add_output(net_builder *b, const net_blob *blob, bool hidden) {
    gd_caffe_text_net *net = b->net;
    if (!gd_grow(net->outputs, net->n_outputs, b->outputs_room))
        return gd_no_memory(net->file, "for a net");
    net->outputs[net->n_outputs++] =
        (gd_caffe_net_output){blob->name, blob->shape, blob->loss_weight, hidden};
    return GD_OK;
}

/* The blobs that the setting `outputs` names. */
static gd_status add_named_outputs(net_builder *b, const char *names) {
    char name[GD_MAX_NAME + 1];
    for (const char *s = names; *(s += strspn(s, " "));) {
        const size_t n = strcspn(s, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, s);
        const int k = find_blob(b, name);
        if (k < 0)
            return gd_fail(GD_E_ARGUMENT, "%s: the net has no blob '%s'", b->net->file, name);
        GD_TRY(add_output(b, &b->blobs[k], false));
        s += n;
    }
    if (b->net->n_outputs > 0) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "%s: the list of outputs has no names", b->net->file);
}

static gd_status find_outputs(net_builder *b) {
    if (b->settings->outputs) return add_named_outputs(b, b->settings->outputs);
    for (int i = 0; i < b->n_blobs; i++)
        if (!b->blobs[i].is_read && !b->blobs[i].automatic)
            GD_TRY(add_output(b, &b->blobs[i], false));
    if (b->net->n_outputs > 0)
        qsort(b->net->outputs, (size_t)b->net->n_outputs, sizeof *b->net->outputs, compare_names);
    for (int i = 0; i < b->n_blobs; i++)
        if ((b->blobs[i].is_read || b->blobs[i].automatic) && b->blobs[i].loss_weight != 0)
            GD_TRY(add_output(b, &b->blobs[i], true));
    if (b->net->n_outputs > 0) return GD_OK;
    return gd_pb_fail(b->message, "the net has no layers in this phase");
}

/* `propagate_down: false`: no gradient goes to that bottom. */
static void stop_gradients(gd_module *module, const net_layer *layer) {
    const gd_pb_list *down = gd_pb_get(layer->message, "propagate_down");
    for (int i = 0; down && i < layer->n_bottoms && (size_t)i < down->count; i++)
        if (!down->ints[i]) gd_net_detach_input(module, i);
}

static gd_status make_net(net_builder *b) {
    gd_caffe_text_net *net = b->net;
    const size_t count = (size_t)(net->n_inputs + net->n_outputs);
    const char **names = gd_calloc(count + 1, sizeof *names);
    if (!names) return gd_no_memory(net->file, "for a net");
    for (int i = 0; i < net->n_inputs; i++) names[i] = net->inputs[i].name;
    for (int i = 0; i < net->n_outputs; i++) names[net->n_inputs + i] = net->outputs[i].name;
    net->module = gd_net_new_with((gd_name_list){names, net->n_inputs},
                                  (gd_name_list){names + net->n_inputs, net->n_outputs});
    gd_free(names);
    if (!net->module) return gd_failure();
    gd_retain(net->module);
    for (int i = 0; i < b->n_layers; i++) {
        const net_layer *l = &b->layers[i];
        if (!l->module) continue;
        const gd_status status = gd_net_add_with(net->module, l->name, l->module,
                                                 (gd_name_list){l->bottoms, l->n_bottoms},
                                                 (gd_name_list){l->tops, l->n_tops});
        if (status == GD_E_MEMORY) return status;
        if (status != GD_OK) return gd_pb_fail(l->message, "%s", gd_latest_failure());
        stop_gradients(net->module, l);
    }
    if (net->phase == GD_CAFFE_TEST) gd_module_eval(net->module);
    return gd_caffe_describe_module(net);
}

/* --- a net ------------------------------------------------------------------------------------ */

static gd_status collect_layers(net_builder *b) {
    gd_caffe_text_net *net = b->net;
    const gd_pb_list *layers = gd_pb_get(b->message, "layer");
    net->layers = gd_calloc((layers ? layers->count : 0) + 1, sizeof *net->layers);
    net->names = gd_calloc((layers ? layers->count : 0) + 1, sizeof *net->names);
    if (!net->layers || !net->names) return gd_no_memory(net->file, "for a net");
    for (size_t i = 0; layers && i < layers->count; i++) {
        bool included;
        GD_TRY(gd_caffe_check_included(layers->messages[i], b->settings, &included));
        if (included) net->layers[net->n_layers++] = layers->messages[i];
    }
    return GD_OK;
}

static gd_status build(net_builder *b) {
    GD_TRY(collect_layers(b));
    GD_TRY(gd_caffe_drop_unneeded(b));
    GD_TRY(read_inputs(b));
    GD_TRY(open_data(b));
    for (int i = 0; i < b->net->n_layers; i++)
        if (!gd_caffe_is_data(gd_pb_string(b->net->layers[i], "type"))) {
            GD_TRY(make_layer(b, b->net->layers[i]));
            b->net->names[i] = b->layers[b->n_layers - 1].name;
        }
    if (!b->settings->share) GD_TRY(gd_caffe_freeze_parameters(b->net));
    GD_TRY(find_outputs(b));
    return make_net(b);
}

static void free_builder(net_builder *b) {
    for (int i = 0; i < b->n_layers; i++) {
        gd_free(b->layers[i].bottoms);
        gd_free(b->layers[i].tops);
    }
    gd_free(b->layers);
    gd_free(b->blobs);
    gd_free(b->owners);
    gd_name_map_free(&b->by_name);
    gd_name_map_free(&b->layer_names);
    gd_name_map_free(&b->owner_numbers);
    gd_caffe_texts_release(b->texts);
}

gd_status gd_caffe_net_build(gd_caffe_text_net **out, const gd_pb *message, const char *file,
                             const gd_caffe_net_settings *settings) {
    GD_SCOPE;
    gd_caffe_text_net *net = *out = gd_calloc(1, sizeof *net);
    if (!net) return gd_no_memory(file, "for a net");
    net->name = gd_intern(gd_pb_string(message, "name"));
    net->file = gd_intern(file);
    net->phase = settings->phase;
    net_builder b = {.net = net, .message = message, .settings = settings};
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_status status = net->name && net->file ? build(&b) : gd_no_memory(file, "for a net");
    status = gd_attempt_end(&attempt, status);
    free_builder(&b);
    if (status == GD_OK) return GD_OK;
    gd_caffe_net_free(net);
    *out = NULL;
    return status;
}

gd_status gd_caffe_net_read(gd_caffe_text_net **out, const char *path,
                            const gd_caffe_net_settings *settings) {
    gd_pb_doc *doc = NULL;
    *out = NULL;
    GD_TRY(gd_caffe_read_net(&doc, path));
    const gd_status status = gd_caffe_net_build(out, gd_pb_root(doc), path, settings);
    if (status == GD_OK) (*out)->doc = doc;
    else gd_pb_free(doc);
    return status;
}

void gd_caffe_net_free(gd_caffe_text_net *net) {
    if (!net) return;
    gd_release(net->module);
    if (net->data) gd_release(gd_caffe_data_loader(net->data));
    gd_free(net->inputs);
    gd_free(net->outputs);
    gd_free(net->parameters);
    gd_free(net->layers);
    gd_free(net->names);
    gd_pb_free(net->doc);
    gd_free(net);
}

gd_tensor *gd_caffe_net_loss(const gd_caffe_text_net *net, gd_tensors outputs) {
    gd_tensor *loss = NULL;
    for (int i = 0; i < net->n_outputs; i++) {
        const gd_caffe_net_output *o = &net->outputs[i];
        if (o->loss_weight == 0) continue;
        gd_tensor *part = o->shape.rank > 0 ? gd_sum(outputs.at[i]) : outputs.at[i];
        if (o->loss_weight != 1) part = gd_mul(part, gd_scalar(o->loss_weight));
        loss = loss ? gd_add(loss, part) : part;
    }
    return loss ? loss : gd_full(gd_dims(), 0, .dtype = GD_F32);
}
