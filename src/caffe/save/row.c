/* row.c - saves a call as one layer, by the word `caffe` of the op's record: caffe/row.c reads the same words
 * from fields to options. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "caffe/layer.h"
#include "caffe/own.h"
#include "caffe/save/save.h"
#include "codegen/operator_text.h"
#include "core/number.h"
#include "dispatch/attrs.h"
#include "graph/build/options.h"
#include "onnx/operator_table.h"

static const gd_pb_field *find_field(const gd_caffe_call *c, const char *name) {
    const gd_pb_schema *schema = c->options ? c->options->message : NULL;
    for (int i = 0; schema && i < schema->count; i++)
        if (strcmp(schema->fields[i].name, name) == 0) return &schema->fields[i];
    return NULL;
}

static bool is_float(const gd_pb_field *f) {
    return f->type == GD_PB_FLOAT || f->type == GD_PB_DOUBLE;
}

/* The options that fix the op: it is Caffe's only with these values. */
static gd_status check_conditions(gd_caffe_call *c) {
    gd_operator_condition when;
    for (const char *text = c->op->caffe.when; text && gd_operator_next_condition(&text, &when);) {
        if (when.kind != GD_OPERATOR_OPTION) continue;
        const double value = gd_caffe_option(c, when.name);
        if (value != gd_double_parse(when.value, NULL))
            return gd_caffe_cannot(c, "Caffe's %s has %s = %s, and this one has %.9g",
                                   c->op->caffe.name, when.name, when.value, value);
    }
    return GD_OK;
}

/* An axis from the end has its number from the front: not every reader knows the other one. */
static int64_t from_front(const gd_caffe_call *c, const char *field, int64_t axis) {
    const size_t n = strlen(field);
    const bool is_axis = n >= 4 && strcmp(field + n - 4, "axis") == 0;
    const bool stays = !is_axis || axis >= 0 || gd_caffe_is_default(c, field, (double)axis);
    return stays ? axis : axis + c->in[0].rank;
}

static gd_status put_number(gd_caffe_call *c, const gd_pb_field *field, const gd_op_attr *a) {
    const double value = gd_attr_number(a, c->attrs).value;
    if (isnan(value) || isinf(value))
        return gd_caffe_cannot(c, "%s has no value, and Caffe's %s needs one", a->name,
                               c->op->caffe.name);
    if (is_float(field)) gd_caffe_put_float(c, field->name, value);
    else gd_caffe_put_int(c, field->name, from_front(c, field->name, (int64_t)value));
    return GD_OK;
}

static gd_status put_option(gd_caffe_call *c, const gd_pb_field *field, const gd_op_attr *a) {
    int64_t numbers[GD_MAX_RANK];
    switch (a->type) {
    case GD_ATTR_INT:
    case GD_ATTR_BOOL:
    case GD_ATTR_FLOAT:
    case GD_ATTR_NUMBER: return put_number(c, field, a);
    case GD_ATTR_INTS:
    case GD_ATTR_SHAPE: {
        const int count = gd_onnx_option_numbers(a, c->attrs, numbers);
        for (int i = 0; i < count; i++) gd_caffe_put_int(c, field->name, numbers[i]);
        return GD_OK;
    }
    default:
        return gd_caffe_cannot(c, "the option %s cannot be written as a field of %s", a->name,
                               c->op->caffe.name);
    }
}

/* Whether an earlier word of the row has the same option: a field with two names is written once. */
static bool is_repeated(const char *words, const gd_operator_attribute *own) {
    gd_operator_attribute a;
    while (gd_operator_next_attribute(&words, &a)) {
        if (strcmp(a.theirs, own->theirs) == 0) return false;
        if (strcmp(a.ours, own->ours) == 0) return true;
    }
    return false;
}

static gd_status put_words(gd_caffe_call *c) {
    gd_operator_attribute a;
    for (const char *text = c->op->caffe.attributes; gd_operator_next_attribute(&text, &a);) {
        const gd_pb_field *field = find_field(c, a.theirs);
        if (!field) continue;
        const gd_op_attr *option = *a.ours ? gd_onnx_find_option(c->op, a.ours) : NULL;
        if (option && !is_repeated(c->op->caffe.attributes, &a))
            GD_TRY(put_option(c, field, option));
        else if (*a.fixed && is_float(field))
            gd_caffe_put_float(c, a.theirs, gd_double_parse(a.fixed, NULL));
        else if (*a.fixed) gd_caffe_put_int(c, a.theirs, (int64_t)gd_double_parse(a.fixed, NULL));
    }
    return GD_OK;
}

/* The fields of an op of the program have its defaults, those of Caffe's messages their own. */
static gd_status put_options_by_name(gd_caffe_call *c) {
    const bool own = !c->op->caffe.name || !*c->op->caffe.name;
    for (int i = 0; i < c->op->n_attrs; i++) {
        const gd_op_attr *a = &c->op->attrs[i];
        const gd_pb_field *field = find_field(c, a->name);
        if (own && gd_same_option(a, (const char *)c->attrs + a->offset,
                                  (const char *)c->op->defaults + a->offset))
            continue;
        if (field) GD_TRY(put_option(c, field, a));
    }
    return GD_OK;
}

gd_status gd_caffe_save_row(gd_caffe_call *c, bool *found) {
    const char *type = c->op->caffe.name;
    if (!type || !*type)
        type = gd_caffe_own_op(c->op->name, strlen(c->op->name)) == c->op ? c->op->name : NULL;
    *found = type != NULL;
    if (!type) return GD_OK;
    GD_TRY(check_conditions(c));
    gd_caffe_out(c, type, gd_caffe_bottom(c, 0), gd_caffe_top(c, 0));
    for (int i = 1; i < c->n_in; i++) gd_caffe_put_bottom(c->saver, gd_caffe_bottom(c, i));
    GD_TRY(c->saver->status);
    return c->op->caffe.attributes ? put_words(c) : put_options_by_name(c);
}
