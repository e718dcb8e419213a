/* call.c - values and layers of a file, and what functions of ops use to add them. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "caffe/layer.h"
#include "caffe/own.h"
#include "caffe/save/save.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/grow.h"
#include "core/number.h"
#include "dispatch/attrs.h"
#include "dispatch/intern.h"
#include "gradus/ops.h"
#include "onnx/operator_table.h"

enum { ROOM = 1200 }; /* of a name */

void gd_caffe_keep(gd_caffe_saver *s, gd_status status) {
    if (s->status == GD_OK) s->status = status;
}
static bool no_memory(gd_caffe_saver *s) {
    gd_caffe_keep(s, gd_no_memory(NULL, "to save a net"));
    return false;
}

/* --- values and layers ------------------------------------------------------------------------ */

int gd_caffe_new_value(gd_caffe_saver *s, const gd_shape *shape) {
    if (!gd_grow(s->values, s->n_values, s->values_room)) return no_memory(s) - 1;
    s->values[s->n_values] = (gd_caffe_value){.shape = *shape, .writer = -1, .last_reader = -1};
    return s->n_values++;
}

/* A name that no layer has so far. */
static const char *unique_name(gd_caffe_saver *s, const char *name) {
    char text[ROOM];
    snprintf(text, sizeof text - 20, "%s", name);
    gd_number_name(&s->layer_names, text, strlen(text), sizeof text);
    const char *kept = gd_intern(text);
    if (!kept || !gd_set_entry_number(&s->layer_names, kept, 0)) no_memory(s);
    return kept;
}

gd_caffe_out_layer *gd_caffe_new_layer(gd_caffe_saver *s, const char *type, const char *name) {
    static gd_caffe_out_layer none;
    name = unique_name(s, name);
    if (s->status != GD_OK || !gd_grow(s->layers, s->n_layers, s->layers_room)) {
        no_memory(s);
        return &none;
    }
    gd_caffe_out_layer *l = &s->layers[s->n_layers++];
    *l = (gd_caffe_out_layer){.name = name};
    l->message = gd_pb_put_message(gd_pb_root(s->doc), "layer");
    gd_pb_put_string(l->message, "name", name);
    if (type) gd_pb_put_string(l->message, "type", type);
    return l;
}

static gd_caffe_out_layer *newest(gd_caffe_saver *s) {
    return s->n_layers ? &s->layers[s->n_layers - 1] : NULL;
}

void gd_caffe_put_bottom(gd_caffe_saver *s, int value) {
    gd_caffe_out_layer *l = newest(s);
    if (s->status != GD_OK || value < 0 || !l) return;
    if (!gd_grow(l->bottoms, l->n_bottoms, l->bottoms_room)) {
        no_memory(s);
        return;
    }
    l->bottoms[l->n_bottoms++] = value;
    s->values[value].n_readers++;
    s->values[value].last_reader = s->n_layers - 1;
}

void gd_caffe_put_top(gd_caffe_saver *s, int value) {
    gd_caffe_out_layer *l = newest(s);
    if (s->status != GD_OK || value < 0 || !l) return;
    if (!gd_grow(l->tops, l->n_tops, l->tops_room)) {
        no_memory(s);
        return;
    }
    l->tops[l->n_tops++] = value;
    s->values[value].writer = s->n_layers - 1;
}

void gd_caffe_add_weight(gd_caffe_saver *s, gd_tensor *t) {
    gd_caffe_out_layer *l = newest(s);
    if (s->status != GD_OK || !l) return;
    if (t->kind == GD_FAILED) {
        gd_caffe_keep(s, gd_failure());
        return;
    }
    if (!gd_grow(l->weights, l->n_weights, l->weights_room)) {
        no_memory(s);
        return;
    }
    l->weights[l->n_weights++] = gd_retain(t);
}

/* --- a call ----------------------------------------------------------------------------------- */

gd_status gd_caffe_cannot(const gd_caffe_call *c, const char *format, ...) {
    char text[GD_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    gd_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    gd_caffe_saver *s = c->saver;
    if (s->status == GD_OK)
        s->status =
            gd_fail(GD_E_UNSUPPORTED, "layer '%.200s' (%s): %s", c->name, c->op->name, text);
    return s->status;
}

gd_shape gd_caffe_slot_shape(const gd_slot *slot) { return gd_shape_of(slot->rank, slot->dims); }

static int *values_of(gd_caffe_saver *s, const gd_node *node) {
    const int number = node->origin->number;
    if (!s->value_of[number])
        s->value_of[number] = gd_calloc((size_t)node->n_out + 1, sizeof **s->value_of);
    if (!s->value_of[number]) no_memory(s);
    return s->value_of[number];
}

/* The value of output k of a node; a new one if it has none. */
int gd_caffe_value_of(gd_caffe_saver *s, const gd_node *node, int k) {
    int *values = values_of(s, node);
    if (!values) return -1;
    if (values[k] == 0) {
        const gd_shape shape = gd_caffe_slot_shape(&node->slots[node->n_in + k]);
        values[k] = gd_caffe_new_value(s, &shape) + 1;
    }
    return values[k] - 1;
}

static bool is_constant(const gd_caffe_saver *s, const gd_slot *slot) {
    return slot->present && (!slot->symbol || s->constant[slot->node->origin->number]);
}

/* The name of an input in messages. */
static const char *input_name(const gd_caffe_call *c, int i) {
    const gd_op *op = c->op;
    return op->n_inputs ? op->inputs[i < op->n_inputs ? i : op->n_inputs - 1].name : "";
}

int gd_caffe_bottom(gd_caffe_call *c, int i) {
    if (c->saver->status != GD_OK || i >= c->n_in || !c->in[i].present) return -1;
    if (!is_constant(c->saver, &c->in[i]))
        return gd_caffe_value_of(c->saver, c->in[i].node, c->in[i].index);
    gd_caffe_cannot(
        c,
        "its input '%s' does not depend on the inputs of the net, and Caffe has no layer "
        "that takes it as a constant",
        input_name(c, i));
    return -1;
}

int gd_caffe_top(gd_caffe_call *c, int k) { return gd_caffe_value_of(c->saver, c->node, k); }

int gd_caffe_between(gd_caffe_call *c, gd_shape shape) {
    return gd_caffe_new_value(c->saver, &shape);
}

gd_status gd_caffe_save_same(gd_caffe_call *c) {
    const int x = gd_caffe_bottom(c, 0);
    int *values = values_of(c->saver, c->node);
    if (values) values[0] = x + 1;
    return c->saver->status;
}

void gd_caffe_out(gd_caffe_call *c, const char *type, int bottom, int top) {
    char name[ROOM];
    const size_t n = strlen(c->name);
    snprintf(name, sizeof name, "%s", c->name);
    if (c->n_layers++ > 0) {
        snprintf(name, sizeof name, "%s/%s", c->name, type);
        for (char *at = name + n; *at; at++)
            if (*at >= 'A' && *at <= 'Z') *at += 'a' - 'A';
    }
    gd_caffe_new_layer(c->saver, type, name);
    c->options = gd_caffe_message_of(type);
    if (!c->options) { /* an op of the program */
        const int length = snprintf(name, sizeof name, "%s_param", type);
        c->options = gd_caffe_own_field(name, (size_t)length);
    }
    gd_caffe_put_bottom(c->saver, bottom);
    gd_caffe_put_top(c->saver, top);
}

/* --- options ---------------------------------------------------------------------------------- */

static gd_pb *option_message(gd_caffe_call *c) {
    return gd_pb_put_message(newest(c->saver)->message, c->options->name);
}

bool gd_caffe_is_default(const gd_caffe_call *c, const char *field, double value) {
    static const gd_pb_schema no_fields = {0};
    const gd_pb empty = {.schema = c->options ? c->options->message : &no_fields};
    for (int i = 0; i < empty.schema->count; i++) {
        const gd_pb_field *f = &empty.schema->fields[i];
        if (strcmp(f->name, field) != 0) continue;
        if (f->flags & GD_PB_REPEATED) return false;
        return f->type == GD_PB_FLOAT || f->type == GD_PB_DOUBLE
                   ? gd_pb_float_of(&empty, field) == value
                   : (double)gd_pb_int_of(&empty, field) == value;
    }
    return false;
}

void gd_caffe_put_int(gd_caffe_call *c, const char *field, int64_t value) {
    if (c->saver->status == GD_OK && !gd_caffe_is_default(c, field, (double)value))
        gd_pb_put_int(option_message(c), field, value);
}

void gd_caffe_put_always(gd_caffe_call *c, const char *field, int64_t value) {
    if (c->saver->status == GD_OK) gd_pb_put_int(option_message(c), field, value);
}

gd_tensor *gd_caffe_full(gd_shape shape, double value) {
    GD_EAGER;
    return gd_full(shape, value, .dtype = GD_F32);
}

void gd_caffe_put_float(gd_caffe_call *c, const char *field, double value) {
    if (c->saver->status == GD_OK && !gd_caffe_is_default(c, field, value))
        gd_pb_put_float(option_message(c), field, value);
}

void gd_caffe_put_sizes(gd_caffe_call *c, const char *field, int count, const int64_t *sizes,
                        int64_t by_default) {
    bool equal = true;
    for (int i = 1; i < count; i++) equal &= sizes[i] == sizes[0];
    if (count < 1 || (equal && sizes[0] == by_default)) return;
    for (int i = 0; i < (equal ? 1 : count); i++) gd_caffe_put_int(c, field, sizes[i]);
}

gd_status gd_caffe_put_weight(gd_caffe_call *c, gd_tensor *t) {
    if (!t)
        return gd_caffe_cannot(
            c,
            "its weights depend on the inputs of the net, and Caffe's layers have constant ones");
    gd_caffe_add_weight(c->saver, t);
    return c->saver->status;
}

double gd_caffe_option(const gd_caffe_call *c, const char *name) {
    const gd_op_attr *a = gd_onnx_find_option(c->op, name);
    return a ? gd_attr_number(a, c->attrs).value : NAN;
}

int gd_caffe_option_list(const gd_caffe_call *c, const char *name, int64_t *numbers) {
    const gd_op_attr *a = gd_onnx_find_option(c->op, name);
    return a ? gd_onnx_option_numbers(a, c->attrs, numbers) : -1;
}

void gd_caffe_option_axes(const gd_caffe_call *c, const char *name, bool axes[GD_MAX_RANK]) {
    int64_t given[GD_MAX_RANK];
    const int count = gd_caffe_option_list(c, name, given), rank = c->in[0].rank;
    for (int i = 0; i < GD_MAX_RANK; i++) axes[i] = count < 0 && i < rank;
    for (int i = 0; i < count; i++) {
        const int64_t axis = given[i] < 0 ? given[i] + rank : given[i];
        if (axis >= 0 && axis < rank) axes[axis] = true;
    }
}

/* --- constants -------------------------------------------------------------------------------- */

static gd_tensor *constant_slot(gd_caffe_saver *s, const gd_slot *slot, int depth);

/* Runs a node whose inputs are constants. False: it has failed. */
static bool run_node(gd_caffe_saver *s, const gd_node *node, gd_tensor **out, int depth) {
    gd_tensor *few[8], **in = node->n_in <= 8 ? few : gd_list_new(node->n_in);
    if (depth > 500) gd_fail(GD_E_UNSUPPORTED, "a constant is computed by more than 500 ops");
    if (!in || depth > 500) return false;
    for (int i = 0; i < node->n_in; i++) {
        in[i] = node->slots[i].present ? constant_slot(s, &node->slots[i], depth + 1) : NULL;
        if (node->slots[i].present && !in[i]) return false;
    }
    return gd_dispatch(node->op, NULL, in, node->n_in, node->attrs, out, node->n_out) == GD_OK;
}

static gd_tensor *constant_slot(gd_caffe_saver *s, const gd_slot *slot, int depth) {
    if (!slot->symbol) return gd_slot_current(slot);
    const gd_node *node = slot->node;
    gd_tensor ***known = &s->constants[node->origin->number];
    if (!*known) {
        gd_tensor **out = gd_calloc((size_t)node->n_out + 1, sizeof *out);
        GD_EAGER;
        if (!out) gd_no_memory(NULL, "to save a net");
        if (!out || !run_node(s, node, out, depth)) {
            gd_free(out);
            return NULL;
        }
        *known = out;
    }
    return (*known)[slot->index];
}

gd_tensor *gd_caffe_constant(gd_caffe_call *c, int i) {
    if (c->saver->status != GD_OK || i >= c->n_in || !is_constant(c->saver, &c->in[i])) return NULL;
    gd_tensor *t = constant_slot(c->saver, &c->in[i], 0);
    if (t && t->kind != GD_FAILED) return t;
    gd_caffe_keep(c->saver, gd_failure());
    return NULL;
}
