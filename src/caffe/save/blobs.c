/* blobs.c - the blobs of a file: their names, what Caffe needs beside the layers, and shared weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caffe/layer_text.h"
#include "caffe/save/save.h"
#include "core/alloc.h"
#include "core/error.h"
#include "dispatch/intern.h"
#include "gradus/caffe.h"

enum { ROOM = 1200 }; /* of a name */

/* --- further layers --------------------------------------------------------------------------- */

/* Whether outputs have the names of the text: the net is one of gd_caffe_net. */
static bool has_text(const gd_caffe_saver *s) {
    gd_caffe_blob blob;
    return gd_caffe_output(s->trace->net, 0, &blob);
}

/* An output of a net is a blob that no layer reads. One that a layer reads, that is an input, or that is
 * there twice, becomes a copy. */
static gd_status copy_outputs(gd_caffe_saver *s) {
    for (int i = 0; i < s->n_outputs && !has_text(s); i++) {
        const int value = s->outputs[i];
        bool repeated = s->values[value].n_readers > 0 || s->values[value].writer < 0;
        for (int k = 0; k < i; k++) repeated |= s->outputs[k] == value;
        if (!repeated) continue;
        const gd_shape shape = s->values[value].shape;
        const int copy = gd_caffe_new_value(s, &shape);
        gd_caffe_new_layer(s, "Split", "output");
        gd_caffe_put_bottom(s, value);
        gd_caffe_put_top(s, copy);
        GD_TRY(s->status);
        s->outputs[i] = copy;
        s->values[copy].is_output = true;
    }
    for (int i = 0; i < s->n_values && !has_text(s); i++) {
        s->values[i].is_output = false;
        for (int k = 0; k < s->n_outputs; k++) s->values[i].is_output |= s->outputs[k] == i;
    }
    return GD_OK;
}

/* The number of tops that the file names: a loss may have none. */
static int named_tops(const gd_caffe_out_layer *l) {
    const int named = l->from_text ? (int)gd_pb_count(l->message, "top") : l->n_tops;
    return named < l->n_tops ? named : l->n_tops;
}

/* Whether nobody reads a value that has a name in the file. */
static bool is_left(const gd_caffe_saver *s, int value) {
    const gd_caffe_value *v = &s->values[value];
    if (v->n_readers > 0 || v->is_output) return false;
    const gd_caffe_out_layer *l = v->writer >= 0 ? &s->layers[v->writer] : NULL;
    for (int k = 0; l && k < named_tops(l); k++)
        if (l->tops[k] == value) return true;
    return !l;
}

/* A blob that nobody reads would be an output: Silence reads it. It stands behind the layer that writes the
 * blob, because OpenCV takes the last layer of a net for its output. */
static gd_status silence(gd_caffe_saver *s) {
    const int count = s->n_values;
    int last = -2; /* the writer of the blobs of the newest Silence */
    char name[ROOM];
    for (int i = 0; i < count && s->status == GD_OK; i++) {
        if (!is_left(s, i)) continue;
        const int writer = s->values[i].writer;
        if (writer != last) {
            snprintf(name, sizeof name, "%s/silence", writer < 0 ? "data" : s->layers[writer].name);
            gd_caffe_out_layer *l = gd_caffe_new_layer(s, "Silence", name);
            GD_TRY(s->status);
            l->follows = writer + 1;
            l->is_moved = true;
        }
        last = writer;
        gd_caffe_put_bottom(s, i);
    }
    return s->status;
}

/* --- names ------------------------------------------------------------------------------------ */

/* Gives a value a name that no other blob has. */
static gd_status give_name(gd_caffe_saver *s, int value, const char *name) {
    char text[ROOM];
    snprintf(text, sizeof text - 20, "%s", name);
    gd_number_name(&s->blob_names, text, strlen(text), sizeof text);
    const char *kept = gd_intern(text);
    if (!kept || !gd_set_entry_number(&s->blob_names, kept, 0))
        return gd_no_memory(NULL, "to save a net");
    s->values[value].name = kept;
    return GD_OK;
}

static gd_status name_inputs(gd_caffe_saver *s) {
    gd_caffe_blob blob;
    for (int i = 0; i < s->trace->n_inputs; i++) {
        const bool known = gd_caffe_input(s->trace->net, i, &blob);
        GD_TRY(give_name(s, i, known ? blob.name : "data"));
    }
    return GD_OK;
}

/* The name that a top has by itself. */
static const char *own_name(const gd_caffe_out_layer *l, int top, char text[ROOM]) {
    if (l->from_text) return gd_pb_string_at(l->message, "top", (size_t)top);
    if (l->n_tops == 1) return l->name;
    snprintf(text, ROOM, "%s_%d", l->name, top);
    return text;
}

/* Outputs come in the order of their names. */
static bool are_ordered(const gd_caffe_saver *s) {
    char a[ROOM], b[ROOM];
    const char *before = "";
    for (int i = 0; i < s->n_outputs; i++) {
        const gd_caffe_value *v = &s->values[s->outputs[i]];
        if (v->writer < 0) return true;
        const gd_caffe_out_layer *l = &s->layers[v->writer];
        int top = 0;
        while (l->tops[top] != s->outputs[i]) top++;
        const char *name = own_name(l, top, i & 1 ? a : b);
        if (strcmp(name, before) < 0) return false;
        before = name;
    }
    return true;
}

static gd_status name_outputs(gd_caffe_saver *s) {
    char text[ROOM];
    gd_caffe_blob blob;
    const bool texts = has_text(s);
    int digits = 1;
    for (int n = s->n_outputs; n >= 10; n /= 10) digits++;
    if (!texts && are_ordered(s)) return GD_OK;
    for (int i = 0; i < s->n_outputs; i++) {
        gd_caffe_value *v = &s->values[s->outputs[i]];
        if (v->name || (texts && (v->writer < 0 || s->layers[v->writer].from_text))) continue;
        snprintf(text, sizeof text, "output%0*d", digits & 15, i + 1);
        if (!texts || gd_caffe_output(s->trace->net, i, &blob))
            GD_TRY(give_name(s, s->outputs[i], texts ? blob.name : text));
    }
    return GD_OK;
}

/* Whether a top may have the name of the bottom: the layer works in place, and nobody reads the bottom
 * later. */
static bool is_in_place(const gd_caffe_saver *s, int layer, int top, const char *name) {
    const gd_caffe_out_layer *l = &s->layers[layer];
    const gd_caffe_value *v = top < l->n_bottoms ? &s->values[l->bottoms[top]] : NULL;
    return v && l->from_text && !v->is_output && v->last_reader == layer && v->name &&
           strcmp(v->name, name) == 0;
}

static gd_status name_tops(gd_caffe_saver *s, int layer) {
    const gd_caffe_out_layer *l = &s->layers[layer];
    char text[ROOM];
    for (int i = 0; i < named_tops(l); i++) {
        gd_caffe_value *v = &s->values[l->tops[i]];
        const char *name = own_name(l, i, text);
        if (v->name) continue;
        if (is_in_place(s, layer, i, name)) v->name = s->values[l->bottoms[i]].name;
        else GD_TRY(give_name(s, l->tops[i], name));
    }
    return GD_OK;
}

/* --- shared weights --------------------------------------------------------------------------- */

/* A tensor that is the blob of several layers. */
typedef struct shared {
    const gd_tensor *tensor;
    int layer, blob;
    const char *name; /* interned; NULL: no text names it */
} shared;

static const char *param_name(const gd_caffe_out_layer *l, int blob) {
    return (size_t)blob < gd_pb_count(l->message, "param")
               ? gd_pb_string(gd_pb_message_at(l->message, "param", (size_t)blob), "name")
               : "";
}

static int compare(const void *a, const void *b) {
    const shared *p = a, *q = b;
    const uintptr_t x = (uintptr_t)p->tensor->storage, y = (uintptr_t)q->tensor->storage;
    if (x != y) return x < y ? -1 : 1;
    if (p->tensor->offset != q->tensor->offset)
        return p->tensor->offset < q->tensor->offset ? -1 : 1;
    return p->layer != q->layer ? p->layer - q->layer : p->blob - q->blob;
}

static bool same_tensor(const shared *a, const shared *b) {
    return a->tensor->storage == b->tensor->storage && a->tensor->offset == b->tensor->offset;
}

/* `param { name: "..." }` for a blob that has none. Statistics are not trained. */
static gd_status put_param(gd_caffe_saver *s, const shared *at, const char *name) {
    gd_caffe_out_layer *l = &s->layers[at->layer];
    const bool trains = strcmp(gd_pb_string(l->message, "type"), "BatchNorm") != 0;
    while (gd_pb_count(l->message, "param") <= (size_t)at->blob) {
        gd_pb *param = gd_pb_put_message(l->message, "param");
        if (!trains) gd_pb_put_float(param, "lr_mult", 0);
        GD_TRY(gd_pb_check(s->doc));
    }
    if (!*param_name(l, at->blob))
        gd_pb_put_string(gd_pb_get(l->message, "param")->messages[at->blob], "name", name);
    return GD_OK;
}

static gd_status share_run(gd_caffe_saver *s, const shared *first, int count) {
    char text[ROOM];
    const char *name = NULL;
    for (int i = 0; i < count && !name; i++) {
        const char *given = param_name(&s->layers[first[i].layer], first[i].blob);
        if (*given) name = given;
    }
    snprintf(text, sizeof text, "%s/blob%d", s->layers[first->layer].name, first->blob);
    for (int i = 0; i < count; i++) GD_TRY(put_param(s, &first[i], name ? name : text));
    return GD_OK;
}

static gd_status share_weights(gd_caffe_saver *s) {
    int count = 0, n = 0;
    for (int i = 0; i < s->n_layers; i++) count += s->layers[i].n_weights;
    shared *all = gd_calloc((size_t)count + 1, sizeof *all);
    if (!all) return gd_no_memory(NULL, "to save a net");
    for (int i = 0; i < s->n_layers; i++)
        for (int k = 0; k < s->layers[i].n_weights; k++)
            if (s->layers[i].weights[k]->storage)
                all[n++] = (shared){s->layers[i].weights[k], i, k, NULL};
    if (n > 1) qsort(all, (size_t)n, sizeof *all, compare);
    gd_status status = GD_OK;
    for (int i = 0, end; i < n && status == GD_OK; i = end) {
        for (end = i + 1; end < n && same_tensor(&all[i], &all[end]);) end++;
        if (end - i > 1) status = share_run(s, &all[i], end - i);
    }
    gd_free(all);
    return status;
}

/* --- the file --------------------------------------------------------------------------------- */

static void write_names(gd_caffe_saver *s, const gd_caffe_out_layer *l) {
    const int n = named_tops(l);
    gd_pb_clear(l->message, "top");
    for (int i = 0; i < l->n_bottoms; i++)
        gd_pb_put_string(l->message, "bottom", s->values[l->bottoms[i]].name);
    for (int i = 0; i < n; i++) gd_pb_put_string(l->message, "top", s->values[l->tops[i]].name);
}

static gd_status check_names(const gd_caffe_saver *s, const gd_caffe_out_layer *l) {
    for (int i = 0; i < l->n_bottoms; i++)
        if (!s->values[l->bottoms[i]].name)
            return gd_fail(GD_E_UNSUPPORTED, "layer '%s' reads a top that has no name", l->name);
    return GD_OK;
}

gd_status gd_caffe_saver_name_blobs(gd_caffe_saver *s) {
    GD_TRY(copy_outputs(s));
    GD_TRY(silence(s));
    GD_TRY(name_inputs(s));
    GD_TRY(name_outputs(s));
    for (int i = 0; i < s->n_layers; i++) GD_TRY(name_tops(s, i));
    for (int i = 0; i < s->n_layers; i++) GD_TRY(check_names(s, &s->layers[i]));
    GD_TRY(share_weights(s));
    for (int i = 0; i < s->n_layers; i++) write_names(s, &s->layers[i]);
    return gd_pb_check(s->doc);
}
