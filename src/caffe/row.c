/* row.c - layers that are one op: rows of text in the records of ops, behind the word `caffe`.
 *
 *     caffe ELU                            the fields of elu_param that are options of the op
 *     caffe ReLU negative_slope=slope      the op's option slope is the field negative_slope
 *     caffe ReLU negative_slope!0          this op, if the field is 0
 *     caffe Concat axis=axis concat_dim=axis   two names of a field: the one that is set counts
 *     caffe Embed(index, weight)           the order of the bottoms
 *
 * codegen/operator_text.h has all forms. Options get the values of the fields, or Caffe's defaults. Several
 * ops may have one type: the op is taken whose row fixes the most fields, and whose fixed fields agree.
 */
#include <stdio.h>
#include <string.h>

#include "caffe/layer.h"
#include "caffe/schema.h"
#include "codegen/operator_text.h"
#include "core/alloc.h"
#include "core/ascii.h"
#include "core/number.h"
#include "dispatch/intern.h"
#include "dispatch/op.h"
#include "gradus/layers.h"
#include "nn/module.h"

enum { TEXT = 2000 };

/* --- the message of a type -------------------------------------------------------------------- */

/* Whether "inner_product_param" is the message of "InnerProduct". */
static bool is_message_of(const char *field, const char *type) {
    for (; *type; field++) {
        if (*field == '_') continue;
        if (gd_to_lower(*field) != gd_to_lower(*type++)) return false;
    }
    return strcmp(field, "_param") == 0;
}

const gd_pb_field *gd_caffe_message_of(const char *type) {
    const gd_pb_schema *schema = &gd_caffe_layer_schema;
    for (int i = 0; i < schema->count; i++)
        if (schema->fields[i].type == GD_PB_MESSAGE && is_message_of(schema->fields[i].name, type))
            return &schema->fields[i];
    return NULL;
}

static const gd_pb_field *find_field(const gd_pb_field *message, const char *name) {
    for (int i = 0; message && i < message->message->count; i++)
        if (strcmp(message->message->fields[i].name, name) == 0)
            return &message->message->fields[i];
    return NULL;
}

/* The value of a field of the type's message as text: "0.5", "[1,2]"; a word in lower case. */
static void print_value(const gd_caffe_layer *l, const gd_pb_field *message,
                        const gd_pb_field *field, char *text, size_t size) {
    char path[160];
    snprintf(path, sizeof path, "%s.%s", message->name, field->name);
    const gd_pb_list *list = field->flags & GD_PB_REPEATED ? gd_pb_list_of(l->message, path) : NULL;
    size_t used = 0;
    *text = 0;
    if (field->flags & GD_PB_REPEATED) {
        for (size_t i = 0; list && i < list->count && used < size; i++)
            used += (size_t)(field->type == GD_PB_FLOAT
                                 ? gd_snprintf(text + used, size - used, "%s%.9g", i ? "," : "",
                                               (double)list->floats[i])
                                 : snprintf(text + used, size - used, "%s%lld", i ? "," : "",
                                            (long long)list->ints[i]));
    } else if (field->type == GD_PB_FLOAT || field->type == GD_PB_DOUBLE)
        gd_snprintf(text, size, "%.9g", gd_pb_float_of(l->message, path));
    else if (field->type == GD_PB_ENUM) {
        snprintf(text, size, "%s", gd_pb_word_of(l->message, path));
        for (char *c = text; *c; c++) *c = gd_to_lower(*c);
    } else if (field->type == GD_PB_STRING)
        snprintf(text, size, "%s", gd_pb_string_of(l->message, path));
    else snprintf(text, size, "%lld", (long long)gd_pb_int_of(l->message, path));
}

/* --- a row ------------------------------------------------------------------------------------ */

static bool has_option(const gd_op *op, const char *name) {
    for (int i = 0; i < op->n_attrs; i++)
        if (strcmp(op->attrs[i].name, name) == 0) return true;
    return false;
}

static void add_option(char *options, const char *name, const char *value) {
    const size_t used = strlen(options);
    snprintf(options + used, TEXT - used, "%s%s=%s", used ? " " : "", name, value);
}

static bool equal_numbers(const char *a, const char *b) {
    char *end_a, *end_b;
    const double x = gd_double_parse(a, &end_a), y = gd_double_parse(b, &end_b);
    return end_a > a && !*end_a && end_b > b && !*end_b && x == y;
}

static bool is_set(const gd_caffe_layer *l, const gd_pb_field *message, const char *field) {
    char path[160];
    snprintf(path, sizeof path, "%s.%s", message->name, field);
    return gd_pb_has(l->message, path);
}

/* Whether an option gets its value from another field of the row: it is set, and `field` is not, or it
 * comes first. */
static bool has_other_field(const gd_caffe_layer *l, const gd_pb_field *message,
                            const char *attributes, const gd_operator_attribute *own) {
    gd_operator_attribute a;
    bool before = true;
    while (gd_operator_next_attribute(&attributes, &a)) {
        if (strcmp(a.theirs, own->theirs) == 0) before = false;
        else if (strcmp(a.ours, own->ours) == 0 && find_field(message, a.theirs)) {
            const bool theirs = is_set(l, message, a.theirs),
                       ours = is_set(l, message, own->theirs);
            if (before ? theirs || !ours : theirs && !ours) return true;
        }
    }
    return false;
}

/* Fills the options of the op for this layer. Returns how many fields the row fixes; -1: one of them has
 * another value, so the row is not for this layer. */
static int read_row(const gd_caffe_layer *l, const gd_op *op, char *options) {
    const gd_pb_field *message = gd_caffe_message_of(l->type);
    const char *attributes = op->caffe.attributes, *when = op->caffe.when;
    gd_operator_attribute a;
    gd_operator_condition c;
    char value[400];
    int n_fixed = 0;
    *options = 0;
    while (attributes && gd_operator_next_attribute(&attributes, &a)) {
        const gd_pb_field *field = find_field(message, a.theirs);
        if (!field) continue; /* a test reads all rows and finds such words */
        print_value(l, message, field, value, sizeof value);
        if (*a.fixed) {
            if (strcmp(value, a.fixed) != 0 && !equal_numbers(value, a.fixed)) return -1;
            n_fixed++;
        } else if (*a.ours && *value && !has_other_field(l, message, op->caffe.attributes, &a))
            add_option(options, a.ours, value);
    }
    while (when && gd_operator_next_condition(&when, &c))
        if (c.kind == GD_OPERATOR_OPTION) add_option(options, c.name, c.value);
    if (op->caffe.attributes || !message) return n_fixed;
    for (int i = 0; i < message->message->count; i++) {
        const gd_pb_field *field = &message->message->fields[i];
        if (!has_option(op, field->name)) continue;
        print_value(l, message, field, value, sizeof value);
        if (*value) add_option(options, field->name, value);
    }
    return n_fixed;
}

static gd_status check_inputs(const gd_caffe_layer *l, const gd_op *op) {
    const bool list = op->n_inputs > 0 && op->inputs[op->n_inputs - 1].variadic;
    if (l->n_bottoms < op->n_required || (l->n_bottoms > op->n_inputs && !list))
        return gd_caffe_fail(l, "it takes %s%d bottom%s, but has %d", list ? "at least " : "",
                             op->n_required, op->n_required == 1 ? "" : "s", l->n_bottoms);
    return GD_OK;
}

gd_status gd_caffe_make_row(gd_caffe_layer *l, bool *found) {
    char options[TEXT], best_options[TEXT] = "";
    const gd_op *best = NULL;
    int most = -1;
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        if (!op->caffe.name || strcmp(op->caffe.name, l->type) != 0) continue;
        const int fixed = read_row(l, op, options);
        if (fixed <= most) continue;
        best = op;
        most = fixed;
        memcpy(best_options, options, sizeof options);
    }
    *found = best != NULL;
    if (!best) return GD_OK;
    GD_TRY(check_inputs(l, best));
    l->module = gd_nn_op(best->name, .options = best_options);
    if (!l->module) return gd_failure();
    l->module->type = gd_intern(l->type);
    return l->module->type ? GD_OK : gd_no_memory(l->file, "for a net");
}

const char *gd_caffe_family(const char *type) {
    const gd_caffe_type *entry = gd_caffe_find_type(type);
    if (entry) return entry->family;
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        if (op->caffe.name && strcmp(op->caffe.name, type) == 0) return op->family;
    }
    return NULL;
}
