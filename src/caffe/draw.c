/* draw.c - the picture of a net from text (gd_caffe_draw_net): its layers as the text has them, with the shapes
 * of a run on shapes only. Layers in place are in the box of the layer whose top they change. */
#include <stdio.h>
#include <string.h>

#include "caffe/net_build.h"
#include "caffe/read.h"
#include "caffe/stages.h"
#include "core/alloc.h"
#include "core/freed.h"
#include "core/number.h"
#include "core/tensor.h"
#include "gradus/caffe.h"
#include "gradus/ops.h"
#include "graph/build/shapes_only.h"
#include "nn/draw.h"
#include "nn/module.h"
#include "nn/watch.h"

enum { TEXT = 400 };

/* Where a blob comes from. */
typedef struct blob {
    int box, output;
} blob;

typedef struct picture {
    gd_module_watch watch; /* of the run on shapes */
    const gd_caffe_net_settings *settings;
    const gd_pb *message;
    gd_caffe_text_net *net; /* NULL: its data are not there, and no shapes are known */
    char **shapes;          /* of each layer of the module: a line for each top */
    gd_name_map layers;     /* their numbers by the names in the module */
    int n_shapes, depth;
    gd_name_map blobs; /* numbers in `at` */
    blob *at;
    int n_blobs;
    gd_drawing *drawing;
    bool failed; /* no memory */
} picture;

/* --- shapes ----------------------------------------------------------------------------------- */

static int begin_call(gd_module_watch *watch, gd_module *module) {
    (void)module;
    return ((picture *)watch)->depth++;
}

/* Keeps the shapes of the tops of a layer. */
static void end_call(gd_module_watch *watch, int depth, gd_tensors out) {
    picture *p = (picture *)watch;
    p->depth--;
    const gd_module *m = gd_this_thread.module_frame->module;
    const gd_entry *e = depth == 1 ? gd_module_child_entry(p->net->module, m) : NULL;
    if (!e || p->n_shapes >= p->net->module->count) return;
    char *text = gd_calloc((size_t)out.count + 1, TEXT);
    if (!text || !gd_set_entry_number(&p->layers, e->name, p->n_shapes)) {
        gd_free(text);
        p->failed = true;
        return;
    }
    for (int64_t i = 0; i < out.count; i++)
        if (out.at[i]) gd_shape_text(out.at[i]->rank, out.at[i]->dims, text + i * TEXT, TEXT);
    p->shapes[p->n_shapes++] = text;
}

static gd_status find_shapes(picture *p) {
    gd_shapes_only only;
    const gd_caffe_text_net *net = p->net;
    p->shapes = gd_calloc((size_t)net->module->count + 1, sizeof *p->shapes);
    if (!p->shapes) return gd_no_memory(net->file, "for a picture");
    gd_shapes_only_begin(&only);
    gd_tensor **in = gd_list_new(net->n_inputs);
    gd_status status = in ? GD_OK : gd_no_memory(net->file, "for a picture");
    for (int i = 0; i < net->n_inputs && status == GD_OK; i++)
        in[i] = gd_symbol(net->inputs[i].shape, GD_F32, NULL);
    gd_module_watch *before = gd_this_thread.module_watch;
    gd_this_thread.module_watch = &p->watch;
    if (status == GD_OK &&
        gd_module_run(net->module, (gd_tensors){in, net->n_inputs}).at[0]->kind == GD_FAILED)
        status = gd_failure();
    gd_this_thread.module_watch = before;
    gd_shapes_only_end(&only);
    return p->failed ? gd_no_memory(net->file, "for a picture") : status;
}

/* The shape of a top of layer number `index` of the net, or of an input: "": not known. */
static const char *shape_of(const picture *p, int index, size_t top) {
    const char *name = p->net && index < p->net->n_layers ? p->net->names[index] : NULL;
    const int number = name ? gd_entry_number(&p->layers, name) : -1;
    return number >= 0 ? p->shapes[number] + top * TEXT : "";
}
static void input_shape(const picture *p, const char *name, char text[TEXT]) {
    *text = 0;
    for (int i = 0; p->net && i < p->net->n_inputs; i++)
        if (strcmp(p->net->inputs[i].name, name) == 0)
            gd_shape_text(p->net->inputs[i].shape.rank, p->net->inputs[i].shape.at, text, TEXT);
}

/* --- the fields of a layer -------------------------------------------------------------------- */

/* The value of a field as a person would write it; "": it is a message, or a list of them. */
static void format_value(const gd_pb *m, const gd_pb_list *list, char *text, size_t size) {
    const gd_pb_field *f = list->field;
    const bool numbers = f->type == GD_PB_FLOAT || f->type == GD_PB_DOUBLE;
    size_t used = 0;
    *text = 0;
    if (f->type == GD_PB_MESSAGE || f->type == GD_PB_BYTES) return;
    if (f->type == GD_PB_STRING) snprintf(text, size, "%s", gd_pb_string(m, f->name));
    else if (f->type == GD_PB_ENUM && list->count == 1)
        snprintf(text, size, "%s", gd_pb_word_of(m, f->name));
    else if (f->type == GD_PB_BOOL) snprintf(text, size, "%s", list->ints[0] ? "true" : "false");
    else if (numbers && list->count == 1)
        gd_snprintf(text, size, "%.6g", gd_pb_float_of(m, f->name));
    else
        for (size_t i = 0; i < list->count && i < 4 && used + 30 < size; i++)
            used += (size_t)(numbers ? gd_snprintf(text + used, size - used, "%s%.6g", i ? "," : "",
                                                   gd_pb_float_at(list, i))
                                     : snprintf(text + used, size - used, "%s%lld", i ? "," : "",
                                                (long long)list->ints[i]));
    if (list->count > 4 && used + 5 < size) snprintf(text + used, size - used, ",...");
}

/* The fields that the text sets in the message of the type: "64 outputs, kernel 7, stride 2". */
static void format_fields(const gd_pb *layer, char text[TEXT]) {
    const gd_pb_field *field = gd_caffe_message_of(gd_pb_string(layer, "type"));
    const gd_pb *m = field && field->number ? gd_pb_message(layer, field->name) : NULL;
    size_t used = 0;
    *text = 0;
    for (int i = 0; m && i < m->count; i++) {
        char value[120];
        const gd_pb_list *list = &m->lists[i];
        const char *name = list->field->name, *comma = used ? ", " : "";
        if (list->count == 0) continue;
        format_value(m, list, value, sizeof value);
        if (!*value || used + strlen(name) + sizeof value + 4 > TEXT) continue;
        if (strcmp(name, "num_output") == 0)
            used += (size_t)snprintf(text + used, TEXT - used, "%s%s outputs", comma, value);
        else if (list->field->type == GD_PB_ENUM)
            used += (size_t)snprintf(text + used, TEXT - used, "%s%s", comma, value);
        else
            used += (size_t)snprintf(text + used, TEXT - used, "%s%s %s", comma,
                                     strcmp(name, "kernel_size") == 0 ? "kernel" : name, value);
    }
}

/* --- boxes ------------------------------------------------------------------------------------ */

static void put_blob(picture *p, const char *name, int box, int output) {
    int number = gd_entry_number(&p->blobs, name);
    if (number < 0 && !gd_set_entry_number(&p->blobs, name, number = p->n_blobs++))
        p->failed = true;
    else p->at[number] = (blob){box, output};
}

static void draw_inputs(picture *p) {
    for (size_t i = 0; i < gd_pb_count(p->message, "input"); i++) {
        const char *name = gd_pb_string_at(p->message, "input", i);
        char shape[TEXT];
        const int box = gd_draw_box(p->drawing);
        input_shape(p, name, shape);
        gd_draw_part(p->drawing, box, name, "input", "", "data");
        put_blob(p, name, box, gd_draw_output(p->drawing, box, "", shape));
    }
}

/* The box that a layer in place joins; -1: it gets its own. */
static int box_in_place(const picture *p, const gd_pb *layer) {
    if (gd_pb_count(layer, "bottom") != 1 || gd_pb_count(layer, "top") != 1) return -1;
    const char *name = gd_pb_string(layer, "bottom");
    if (strcmp(name, gd_pb_string(layer, "top")) != 0) return -1;
    const int number = gd_entry_number(&p->blobs, name);
    return number >= 0 ? p->at[number].box : -1;
}

static gd_status draw_bottoms(picture *p, const gd_pb *layer, int box) {
    for (size_t i = 0; i < gd_pb_count(layer, "bottom"); i++) {
        const char *name = gd_pb_string_at(layer, "bottom", i);
        const int number = gd_entry_number(&p->blobs, name);
        if (number < 0)
            return gd_pb_fail(
                layer,
                "layer '%s' (%s): its bottom '%s' is neither an input nor a top of an "
                "earlier layer",
                gd_pb_string(layer, "name"), gd_pb_string(layer, "type"), name);
        gd_draw_connect(p->drawing, p->at[number].box, p->at[number].output, box);
    }
    return GD_OK;
}

/* A top that has the name of its layer is not named again. */
static void draw_tops(picture *p, const gd_pb *layer, int index, int box) {
    const char *own = gd_pb_string(layer, "name");
    const size_t count = gd_pb_count(layer, "top");
    const bool data = gd_caffe_is_data(gd_pb_string(layer, "type"));
    for (size_t i = 0; i < count; i++) {
        const char *name = gd_pb_string_at(layer, "top", i);
        char shape[TEXT];
        if (data) input_shape(p, name, shape);
        const int output =
            gd_draw_output(p->drawing, box, count == 1 && strcmp(name, own) == 0 ? "" : name,
                           data ? shape : shape_of(p, index, i));
        put_blob(p, name, box, output);
    }
}

static gd_status draw_layer(picture *p, const gd_pb *layer, int index) {
    const char *name = gd_pb_string(layer, "name"), *type = gd_pb_string(layer, "type");
    const bool data = gd_caffe_is_data(type);
    char fields[TEXT];
    format_fields(layer, fields);
    int box = box_in_place(p, layer);
    const bool in_place = box >= 0;
    if (!in_place) box = gd_draw_box(p->drawing);
    gd_draw_part(p->drawing, box, name, type, fields, data ? "data" : gd_caffe_family(type));
    if (p->drawing->failed || p->failed || in_place) return GD_OK;
    GD_TRY(draw_bottoms(p, layer, box));
    draw_tops(p, layer, index, box);
    return GD_OK;
}

static gd_status draw_layers(picture *p) {
    const gd_pb_list *layers = gd_pb_get(p->message, "layer");
    size_t blobs = gd_pb_count(p->message, "input") + 1;
    for (size_t i = 0; layers && i < layers->count; i++)
        blobs += gd_pb_count(layers->messages[i], "top");
    int index = 0; /* among the layers of this phase */
    if (!(p->at = gd_calloc(blobs, sizeof *p->at))) return gd_no_memory(NULL, "for a picture");
    draw_inputs(p);
    for (size_t i = 0; layers && i < layers->count && !p->drawing->failed; i++) {
        bool included;
        GD_TRY(gd_caffe_check_included(layers->messages[i], p->settings, &included));
        if (included) GD_TRY(draw_layer(p, layers->messages[i], index++));
    }
    if (p->drawing->failed || p->failed) return gd_no_memory(NULL, "for a picture");
    if (p->drawing->n_boxes > 0) return GD_OK;
    return gd_pb_fail(p->message, "the net has no layers in this phase");
}

/* --- a net ------------------------------------------------------------------------------------ */

/* A net whose data are missing is drawn without shapes; one that is wrong is not drawn. */
static gd_status build(picture *p, const char *path) {
    const gd_status status = gd_caffe_net_build(&p->net, p->message, path, p->settings);
    if (status == GD_OK) return find_shapes(p);
    if ((status != GD_E_IO && status != GD_E_UNSUPPORTED) || p->settings->data->dummy)
        return status;
    gd_notice(GD_LOG_WARNING, "the picture has no shapes, since the data cannot be read: %s",
              gd_latest_failure());
    return GD_OK;
}

static gd_status draw(const char *path, const char *file, const gd_caffe_draw_net_options *o) {
    const char *stages[GD_CAFFE_MAX_STAGES];
    const gd_caffe_data_options data = {.dummy = o->dummy};
    gd_caffe_net_settings settings = {.phase = o->train ? GD_CAFFE_TRAIN : GD_CAFFE_TEST,
                                      .level = o->level,
                                      .stages = stages,
                                      .data = &data,
                                      .no_fill = true};
    picture p = {.watch = {begin_call, end_call}, .settings = &settings};
    gd_pb_doc *doc;
    if (!path || !file)
        return gd_fail(GD_E_ARGUMENT, "gd_caffe_draw_net: the path of the %s is NULL",
                       path ? "picture" : "net");
    GD_TRY(gd_caffe_read_stages(o->stages, stages, &settings.n_stages));
    GD_TRY(gd_caffe_read_net(&doc, path));
    p.message = gd_pb_root(doc);
    const char *name = gd_pb_string(p.message, "name"), *slash = strrchr(path, '/');
    p.drawing = gd_drawing_new(*name ? name : slash ? slash + 1 : path);
    gd_status status = p.drawing ? build(&p, path) : gd_no_memory(path, "for a picture");
    if (status == GD_OK) status = draw_layers(&p);
    if (status == GD_OK) status = gd_drawing_save(p.drawing, file, o->left_to_right);
    for (int i = 0; i < p.n_shapes; i++) gd_free(p.shapes[i]);
    gd_free(p.shapes);
    gd_free(p.at);
    gd_name_map_free(&p.layers);
    gd_name_map_free(&p.blobs);
    gd_drawing_free(p.drawing);
    gd_caffe_net_free(p.net);
    gd_pb_free(doc);
    return status;
}

gd_status gd_caffe_draw_net_at(const char *site, const char *path, const char *file,
                               const gd_caffe_draw_net_options *o) {
    static const gd_caffe_draw_net_options by_default = {.level = 0};
    GD_CALLED_FROM(site);
    GD_SCOPE;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    const gd_status status = draw(path, file, o ? o : &by_default);
    return gd_report(site, gd_attempt_end(&attempt, status));
}
