/* call.c - options (attributes) of ops by name, and calls of ops by name. */
#include "ops/call.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/record.h"
#include "core/alloc.h"
#include "core/integer.h"
#include "core/number.h"
#include "core/random.h"
#include "ops/intern.h"
#include "ops/launch.h"

int gd_join_inputs(gd_tensor **in, int fixed, gd_tensors list) {
    if (list.count < 0 || list.count > GD_MAX_VARIADIC || (list.count > 0 && !list.at))
        return GD_BAD_LIST;
    for (int64_t i = 0; i < list.count; i++) in[fixed + i] = list.at[i];
    return fixed + (int)list.count;
}

gd_word gd_word_of(const char *text) {
    uint32_t h = 2166136261u;
    for (; text && *text; text++) h = (h ^ (unsigned char)*text) * 16777619u;
    return h;
}

/* --- options as structs ----------------------------------------------------------------------- */

void gd_attrs_normalize(const gd_op *op, void *attrs) {
    for (int i = 0; i < op->n_attrs; i++) {
        const gd_op_attr *a = &op->attrs[i];
        void *field = (char *)attrs + a->offset;
        if (a->type == GD_ATTR_INTS) {
            int64_t *list = field;
            for (int k = 1; k < a->count; k++)
                if (list[k] == GD_UNSET) list[k] = list[0];
        } else if (a->type == GD_ATTR_SHAPE) {
            gd_shape *list = field;
            if (list->form == -1 && list->at[0] != GD_UNSET) list->rank = list->form = 1;
        } else if (a->type == GD_ATTR_FLOATS) {
            gd_floats *list = field;
            if (list->form == -1 && !isnan(list->at[0])) list->count = list->form = 1;
            if (list->form == -1 && op->defaults)
                *list = *(const gd_floats *)((const char *)op->defaults + a->offset);
        }
    }
}

/* Whether value is the hash of one of `words`, which spaces separate. */
static bool word_allowed(const char *words, gd_word value) {
    while (*words) {
        char word[64];
        size_t n = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, words);
        if (gd_word_of(word) == value) return true;
        words += n;
        while (*words == ' ') words++;
    }
    return false;
}

/* Lists of fixed length are strides, paddings and kernel sizes. The limit lets rules add and
 * multiply two of them without overflow. */
static gd_status check_ints(const gd_op_attr *a, const int64_t *list) {
    for (int k = 0; k < a->count; k++)
        if (list[k] != GD_UNSET && (list[k] > INT32_MAX || list[k] < -INT32_MAX))
            return gd_fail(GD_E_ARGUMENT, "%s is %lld; it must lie between -%d and %d", a->name,
                           (long long)list[k], INT32_MAX, INT32_MAX);
    return GD_OK;
}

static gd_status check_floats(const gd_op_attr *a, const gd_floats *list) {
    if (list->form == 0)
        return gd_fail(GD_E_ARGUMENT,
                       "%s: the length of a list in braces is unknown; write gd_floats(...)",
                       a->name);
    if (list->form == 1 && (list->count < 0 || list->count > GD_MAX_FLOATS))
        return gd_fail(GD_E_ARGUMENT, "%s has %d numbers; it may have at most %d", a->name,
                       list->count, GD_MAX_FLOATS);
    return GD_OK;
}

gd_status gd_attrs_check(const gd_op *op, const void *attrs) {
    for (int i = 0; attrs && i < op->n_attrs; i++) {
        const gd_op_attr *a = &op->attrs[i];
        const void *field = (const char *)attrs + a->offset;
        if (a->type == GD_ATTR_INTS) GD_TRY(check_ints(a, field));
        if (a->type == GD_ATTR_WORD && !word_allowed(a->words, *(const gd_word *)field))
            return gd_fail(GD_E_ARGUMENT, "%s must be one of: %s", a->name, a->words);
        if (a->type == GD_ATTR_SHAPE) {
            const gd_shape *list = field;
            if (list->form == 0)
                return gd_fail(GD_E_ARGUMENT,
                               "%s: the length of a list in braces is unknown; "
                               "write gd_dims(...)",
                               a->name);
            if (list->form == 1 && (list->rank < 0 || list->rank > GD_MAX_RANK))
                return gd_fail(GD_E_ARGUMENT, "%s has %d numbers; it may have at most %d", a->name,
                               list->rank, GD_MAX_RANK);
        }
        if (a->type == GD_ATTR_FLOATS) GD_TRY(check_floats(a, field));
    }
    return GD_OK;
}

size_t gd_attr_size(const gd_op_attr *attr) {
    switch (attr->type) {
    case GD_ATTR_BOOL: return 1;
    case GD_ATTR_WORD:
    case GD_ATTR_DTYPE: return 4;
    case GD_ATTR_INTS: return 8 * (size_t)attr->count;
    case GD_ATTR_SHAPE: return sizeof(gd_shape);
    case GD_ATTR_NUMBER: return sizeof(gd_number);
    case GD_ATTR_FLOATS: return sizeof(gd_floats);
    default: return 8;
    }
}

gd_number gd_attr_number(const gd_op_attr *attr, const void *attrs) {
    const void *field = (const char *)attrs + attr->offset;
    switch (attr->type) {
    case GD_ATTR_INT: return gd_number_of(*(const int64_t *)field);
    case GD_ATTR_FLOAT: return gd_number_of(*(const double *)field);
    case GD_ATTR_NUMBER: return *(const gd_number *)field;
    case GD_ATTR_BOOL: return gd_number_of(*(const bool *)field);
    case GD_ATTR_WORD: return gd_number_of(*(const gd_word *)field);
    case GD_ATTR_DTYPE: return gd_number_of(*(const gd_dtype *)field);
    default: return gd_number_of(0);
    }
}

gd_param gd_attr_param(const gd_op_attr *attr, const void *attrs, gd_dtype type) {
    const gd_number n = gd_attr_number(attr, attrs);
    if (gd_dtype_is_float(type)) return (gd_param){.real = n.value};
    const int64_t integer = gd_number_i64(n), low = type == GD_I32 ? INT32_MIN : INT64_MIN,
                  high = type == GD_I32 ? INT32_MAX : INT64_MAX;
    return (gd_param){.integer = integer < low ? low : integer > high ? high : integer};
}

/* --- options by name -------------------------------------------------------------------------- */

struct gd_attrs {
    gd_object object;
    const gd_op *op;
    uint64_t given; /* bit i: attribute i was set */
    _Alignas(16) char data[];
};

static void attrs_destroy(gd_object *object) { gd_free(object); }
static const gd_class attrs_class = {.name = "attrs", .destroy = attrs_destroy};

gd_attrs *gd_attrs_new(const gd_op *op) {
    gd_attrs *attrs = NULL;
    gd_status status =
        op ? gd_scope_reserve(1) : gd_fail(GD_E_ARGUMENT, "gd_attrs_new: op is NULL");
    if (status == GD_OK && !(attrs = gd_malloc(sizeof *attrs + op->attrs_size)))
        status = gd_fail(GD_E_MEMORY, "no memory for the options of %s", op->name);
    if (status != GD_OK) {
        gd_error_stick(status);
        return NULL;
    }
    gd_object_init(&attrs->object, &attrs_class);
    attrs->op = op;
    attrs->given = 0;
    if (op->attrs_size) memcpy(attrs->data, op->defaults, op->attrs_size);
    gd_scope_adopt(&attrs->object);
    return attrs;
}

static gd_status find_attr(gd_attrs *attrs, const char *name, const gd_op_attr **attr,
                           void **field) {
    if (!attrs || !name)
        return gd_fail(GD_E_ARGUMENT, "the options or the name of an option are NULL");
    for (int i = 0; i < attrs->op->n_attrs; i++)
        if (strcmp(attrs->op->attrs[i].name, name) == 0) {
            *attr = &attrs->op->attrs[i];
            *field = attrs->data + (*attr)->offset;
            if (i < 64) attrs->given |= 1ull << i;
            return GD_OK;
        }
    char known[400] = "";
    for (int i = 0; i < attrs->op->n_attrs && strlen(known) < 330; i++) {
        if (i) strcat(known, ", ");
        strncat(known, attrs->op->attrs[i].name, 60);
    }
    return gd_fail(GD_E_ARGUMENT, "%s has no option '%s'; it has %s", attrs->op->name, name,
                   *known ? known : "none");
}

static const char *const type_names[] = {
    "an integer",      "a number", "true or false", "integers", "a list of integers", "a word",
    "an element type", "a string", "a graph",       "a number", "a list of numbers"};

static gd_status wrong_type(const gd_attrs *attrs, const gd_op_attr *a, const char *given) {
    return gd_fail(GD_E_ARGUMENT, "%s: %s takes %s%s%s, not '%.80s'", attrs->op->name, a->name,
                   type_names[a->type], a->words ? ": one of " : "", a->words ? a->words : "",
                   given);
}

gd_status gd_attrs_put_ints(gd_attrs *attrs, const char *name, int count, const int64_t *values) {
    const gd_op_attr *a;
    void *field;
    GD_TRY(find_attr(attrs, name, &a, &field));
    char text[64];
    snprintf(text, sizeof text, "a list of %d numbers", count);
    if (count > 0 && !values) return wrong_type(attrs, a, "NULL");
    if (a->type == GD_ATTR_INTS && (count == 1 || count == a->count)) {
        for (int i = 0; i < a->count; i++) ((int64_t *)field)[i] = values[count == 1 ? 0 : i];
        return GD_OK;
    }
    if (a->type == GD_ATTR_SHAPE && count >= 0 && count <= GD_MAX_RANK) {
        *(gd_shape *)field = gd_shape_of(count, values);
        return GD_OK;
    }
    if (count == 1) return gd_attrs_put_int(attrs, name, values[0]);
    return wrong_type(attrs, a, text);
}

gd_status gd_attrs_put_int(gd_attrs *attrs, const char *name, int64_t value) {
    const gd_op_attr *a;
    void *field;
    GD_TRY(find_attr(attrs, name, &a, &field));
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    switch (a->type) {
    case GD_ATTR_INT: *(int64_t *)field = value; return GD_OK;
    case GD_ATTR_FLOAT: *(double *)field = (double)value; return GD_OK;
    case GD_ATTR_NUMBER: *(gd_number *)field = gd_number_of(value); return GD_OK;
    case GD_ATTR_BOOL:
        if (value != 0 && value != 1) return wrong_type(attrs, a, text);
        *(bool *)field = value != 0;
        return GD_OK;
    case GD_ATTR_INTS:
    case GD_ATTR_SHAPE: return gd_attrs_put_ints(attrs, name, 1, &value);
    case GD_ATTR_FLOATS: return gd_attrs_put_float(attrs, name, (double)value);
    default: return wrong_type(attrs, a, text);
    }
}

gd_status gd_attrs_put_float(gd_attrs *attrs, const char *name, double value) {
    const gd_op_attr *a;
    void *field;
    GD_TRY(find_attr(attrs, name, &a, &field));
    if (a->type == GD_ATTR_FLOAT) {
        *(double *)field = value;
        return GD_OK;
    }
    if (a->type == GD_ATTR_NUMBER) {
        *(gd_number *)field = gd_number_of(value);
        return GD_OK;
    }
    if (a->type == GD_ATTR_FLOATS) {
        *(gd_floats *)field = gd_floats(value);
        return GD_OK;
    }
    if (value == trunc(value) && fabs(value) < 0x1p62)
        return gd_attrs_put_int(attrs, name, (int64_t)value);
    char text[40];
    gd_snprintf(text, sizeof text, "%g", value);
    return wrong_type(attrs, a, text);
}

/* A sign and digits; "-0" counts as a float, since integers have no -0. */
static bool is_integer(const char *text) {
    if (strcmp(text, "-0") == 0) return false;
    if (*text == '-' || *text == '+') text++;
    return *text && text[strspn(text, "0123456789")] == 0;
}

/* Parses comma-separated integers, in brackets or not. Returns their number, or -1. */
static int parse_ints(const char *text, int64_t *values, int most) {
    int n = 0;
    while (*text == ' ' || *text == '[' || *text == '(') text++;
    if (!*text || *text == ']' || *text == ')') return 0;
    for (;;) {
        char *end;
        errno = 0;
        long long v = strtoll(text, &end, 10);
        if (end == text || errno || n == most) return -1;
        values[n++] = v;
        while (*end == ' ' || *end == ']' || *end == ')') end++;
        if (!*end) return n;
        if (*end != ',') return -1;
        text = end + 1;
    }
}

/* Parses comma-separated floats, in brackets or not. */
static bool parse_floats(const char *text, gd_floats *list) {
    *list = (gd_floats){.form = 1};
    while (*text == ' ' || *text == '[' || *text == '(') text++;
    if (!*text || *text == ']' || *text == ')') return true;
    for (;;) {
        char *end;
        const double v = gd_double_parse(text, &end);
        if (end == text || list->count == GD_MAX_FLOATS) return false;
        list->at[list->count++] = v;
        while (*end == ' ' || *end == ']' || *end == ')') end++;
        if (!*end) return true;
        if (*end != ',') return false;
        text = end + 1;
    }
}

gd_status gd_attrs_put_text(gd_attrs *attrs, const char *name, const char *text) {
    const gd_op_attr *a;
    void *field;
    GD_TRY(find_attr(attrs, name, &a, &field));
    if (!text) return wrong_type(attrs, a, "NULL");
    int64_t values[GD_MAX_RANK];
    char *end;
    bool none = strcmp(text, "none") == 0;
    switch (a->type) {
    case GD_ATTR_INT:
        if (none) *(int64_t *)field = GD_UNSET;
        else if (parse_ints(text, values, 1) != 1) return wrong_type(attrs, a, text);
        else *(int64_t *)field = values[0];
        return GD_OK;
    case GD_ATTR_INTS:
    case GD_ATTR_SHAPE: {
        if (none && a->type == GD_ATTR_SHAPE) {
            *(gd_shape *)field = (gd_shape){.at = {GD_UNSET}, .form = -1};
            return GD_OK;
        }
        int n = parse_ints(text, values, GD_MAX_RANK);
        if (n < 0) return wrong_type(attrs, a, text);
        return gd_attrs_put_ints(attrs, name, n, values);
    }
    case GD_ATTR_NUMBER:
    case GD_ATTR_FLOAT: {
        if (a->type == GD_ATTR_NUMBER && is_integer(text) && parse_ints(text, values, 1) == 1) {
            *(gd_number *)field = gd_number_of(values[0]);
            return GD_OK;
        }
        double v = none ? NAN : gd_double_parse(text, &end);
        if (!none && (end == text || *end)) return wrong_type(attrs, a, text);
        if (a->type == GD_ATTR_NUMBER) *(gd_number *)field = gd_number_of(v);
        else *(double *)field = v;
        return GD_OK;
    }
    case GD_ATTR_BOOL:
        if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0) *(bool *)field = true;
        else if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0) *(bool *)field = false;
        else return wrong_type(attrs, a, text);
        return GD_OK;
    case GD_ATTR_WORD:
        if (!word_allowed(a->words, gd_word_of(text))) return wrong_type(attrs, a, text);
        *(gd_word *)field = gd_word_of(text);
        return GD_OK;
    case GD_ATTR_DTYPE:
        if (!none && gd_dtype_from_name(text) == GD_DTYPE_NONE) return wrong_type(attrs, a, text);
        *(gd_dtype *)field = gd_dtype_from_name(text);
        return GD_OK;
    case GD_ATTR_STRING: {
        const char *kept = gd_intern(text);
        if (!kept) return gd_fail(GD_E_MEMORY, "no memory for an option");
        *(const char **)field = kept;
        return GD_OK;
    }
    case GD_ATTR_FLOATS: {
        gd_floats list;
        if (none) list = (gd_floats){.at = {NAN}, .form = -1};
        else if (!parse_floats(text, &list)) return wrong_type(attrs, a, text);
        *(gd_floats *)field = list;
        return GD_OK;
    }
    case GD_ATTR_GRAPH: /* a graph has no text form */
        if (!none) return wrong_type(attrs, a, text);
        *(gd_subgraph **)field = NULL;
        return GD_OK;
    }
    return GD_OK;
}

enum { WORD_MAX = 4200 }; /* longer than any path */

/* Reads a value that ends at a space, or a quoted one, in which '' is a quote. Returns the text
 * after it, or NULL if the value is too long. */
static const char *take_word(const char *s, char *word, size_t size) {
    const bool quoted = *s == '\'';
    size_t n = 0;
    if (quoted) s++;
    for (; *s && (quoted || *s != ' '); s++) {
        if (quoted && *s == '\'' && *++s != '\'') break;
        if (n + 1 >= size) return NULL;
        word[n++] = *s;
    }
    word[n] = '\0';
    return s;
}

/* Sets options from text: "stride=2 padding=1". */
static gd_status put_options(gd_attrs *attrs, const char *text) {
    if (!attrs) return gd_fail(GD_E_ARGUMENT, "gd_attrs_parse: attrs is NULL");
    char word[WORD_MAX];
    for (const char *s = text ? text : ""; *s;) {
        while (*s == ' ') s++;
        if (!*s) break;
        const size_t name = strcspn(s, "= ");
        char key[64];
        if (s[name] != '=' || name >= sizeof key)
            return gd_fail(GD_E_ARGUMENT, "%s: expected name=value at '%.40s'", attrs->op->name, s);
        snprintf(key, sizeof key, "%.*s", (int)name, s);
        s = take_word(s + name + 1, word, WORD_MAX);
        if (!s)
            return gd_fail(GD_E_ARGUMENT, "%s: the value of %s is too long", attrs->op->name, key);
        GD_TRY(gd_attrs_put_text(attrs, key, word));
    }
    return GD_OK;
}

gd_status gd_attrs_set_int(gd_attrs *attrs, const char *name, int64_t value) {
    return gd_report(NULL, gd_attrs_put_int(attrs, name, value));
}
gd_status gd_attrs_set_float(gd_attrs *attrs, const char *name, double value) {
    return gd_report(NULL, gd_attrs_put_float(attrs, name, value));
}
gd_status gd_attrs_set_ints(gd_attrs *attrs, const char *name, int count, const int64_t *values) {
    return gd_report(NULL, gd_attrs_put_ints(attrs, name, count, values));
}
gd_status gd_attrs_set_text(gd_attrs *attrs, const char *name, const char *text) {
    return gd_report(NULL, gd_attrs_put_text(attrs, name, text));
}
gd_status gd_attrs_parse(gd_attrs *attrs, const char *text) {
    return gd_report(NULL, put_options(attrs, text));
}

size_t gd_attrs_lay_out(gd_op_attr *attrs, int n) {
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        const size_t size = gd_attr_size(&attrs[i]), align = size < 8 ? size : 8;
        at = (at + align - 1) / align * align;
        attrs[i].offset = at;
        at += size;
    }
    return (at + 15) / 16 * 16;
}

gd_status gd_attrs_fill_defaults(const gd_op *op, void *defaults) {
    gd_attrs *attrs = gd_attrs_new(op);
    if (!attrs) return GD_E_MEMORY;
    gd_status status = GD_OK;
    for (int i = 0; i < op->n_attrs && status == GD_OK; i++)
        if (op->attrs[i].default_text)
            status = gd_attrs_put_text(attrs, op->attrs[i].name, op->attrs[i].default_text);
    if (status == GD_OK) memcpy(defaults, gd_attrs_data(attrs), op->attrs_size);
    return status;
}

/* --- calling ---------------------------------------------------------------------------------- */

gd_status gd_attrs_check_given(const gd_op *op, const gd_attrs *attrs) {
    for (int i = 0; i < op->n_attrs && i < 64; i++)
        if (op->attrs[i].required && !(attrs && (attrs->given >> i & 1)))
            return gd_fail(GD_E_ARGUMENT, "%s needs the option '%s' (%s)", op->name,
                           op->attrs[i].name, type_names[op->attrs[i].type]);
    if (attrs && attrs->op != op)
        return gd_fail(GD_E_ARGUMENT, "the options are those of %s, not of %s", attrs->op->name,
                       op->name);
    return GD_OK;
}

/* Appends NULL for optional inputs that were left out at the end. */
static gd_tensors pad_inputs(const gd_op *op, gd_tensors inputs, gd_tensor *padded[GD_RECORD_MAX]) {
    bool variadic = op->n_inputs > 0 && op->inputs[op->n_inputs - 1].variadic;
    if (inputs.count < 0 || inputs.count > INT32_MAX || (inputs.count > 0 && !inputs.at))
        return (gd_tensors){NULL, GD_BAD_LIST};
    if (variadic || inputs.count < op->n_required || inputs.count >= op->n_inputs) return inputs;
    for (int i = 0; i < op->n_inputs; i++) padded[i] = i < inputs.count ? inputs.at[i] : NULL;
    return (gd_tensors){padded, op->n_inputs};
}

gd_tensors gd_call_with(const gd_op *op, const char *site, gd_tensors inputs, const void *data) {
    gd_tensor *padded[GD_RECORD_MAX];
    inputs = pad_inputs(op, inputs, padded);
    if (op->n_outputs > 0 && op->outputs[op->n_outputs - 1].variadic)
        return gd_dispatch_list(op, site, inputs.at, (int)inputs.count, data);
    int visible = 0;
    for (int i = 0; i < op->n_outputs; i++) visible += !op->outputs[i].hidden;
    gd_tensor **out = gd_list_new(op->n_outputs);
    if (!out) {
        gd_report(site, GD_E_MEMORY);
        return gd_list_of_errors(visible);
    }
    if (gd_dispatch(op, site, inputs.at, (int)inputs.count, data, out, op->n_outputs) != GD_OK) {
        if (gd_this_thread.depth == 0) gd_release_list((gd_tensors){out, 0}); /* no scope owns it */
        return gd_list_of_errors(visible);
    }
    for (int i = 0, k = 0; i < op->n_outputs; i++)
        if (!op->outputs[i].hidden) out[k++] = out[i];
    return (gd_tensors){out, visible};
}

static gd_tensors call_op(const gd_op *op, const char *site, gd_tensors inputs,
                          const gd_attrs *attrs) {
    gd_status status =
        op ? gd_attrs_check_given(op, attrs) : gd_fail(GD_E_ARGUMENT, "gd_op_call: op is NULL");
    if (status != GD_OK) {
        gd_report(site, status);
        return gd_list_of_errors(0);
    }
    if (!attrs || op->n_attrs == 0)
        return gd_call_with(op, site, inputs, op->n_attrs ? op->defaults : NULL);
    /* normalize a copy, so that the program can change and reuse its gd_attrs */
    char few[512];
    char *data = op->attrs_size <= sizeof few ? few : gd_malloc(op->attrs_size);
    if (!data) {
        gd_report(site, gd_fail(GD_E_MEMORY, "no memory for the options of %s", op->name));
        return gd_list_of_errors(0);
    }
    memcpy(data, attrs->data, op->attrs_size);
    gd_attrs_normalize(op, data);
    gd_tensors result = gd_call_with(op, site, inputs, data);
    if (data != few) gd_free(data);
    return result;
}

gd_tensors gd_op_call_at(const char *site, const gd_op *op, gd_tensors inputs,
                         const gd_attrs *attrs) {
    return call_op(op, site, inputs, attrs);
}

gd_tensor *gd_call_at(const char *site, const char *name, gd_tensors inputs, const char *options) {
    const gd_op *op = gd_op_find(name);
    if (!op)
        return (gd_report(site, gd_fail(GD_E_ARGUMENT, "there is no op '%s'", name ? name : "")),
                &gd_error_tensor);
    gd_scope *scope = gd_scope_open();
    gd_attrs *attrs = gd_attrs_new(op);
    gd_status status = attrs ? put_options(attrs, options) : GD_E_MEMORY;
    gd_tensor *y = &gd_error_tensor;
    if (status != GD_OK) {
        gd_report(site, status);
    } else {
        y = call_op(op, site, inputs, attrs).at[0];
    }
    if (y->kind != GD_FAILED) gd_scope_keep(&y->object);
    gd_scope_close(&scope);
    return y;
}

gd_status gd_copy_tensor(gd_tensor *dst, gd_tensor *src) {
    if (src->device != dst->device) {
        gd_scope *scope = gd_scope_open();
        gd_tensor *moved = gd_to_device(src, dst->device);
        gd_status status = moved->kind == GD_FAILED ? gd_failure() : gd_copy_tensor(dst, moved);
        gd_scope_close(&scope);
        return status;
    }
    gd_view in = gd_view_of(src), out = gd_view_of(dst);
    gd_kernel_call call = {.in = &in, .n_in = 1, .out = &out, .n_out = 1};
    if (gd_numel(dst->rank, dst->dims) == 0) return GD_OK;
    call.overwrites = true;
    return gd_run_kernel(gd_op_find("clone"), &call, dst->device);
}

/* Checks that the op can write its results into existing tensors, and that the tensors are
 * suitable. */
static gd_status check_run_into(const gd_op *op, gd_tensors inputs, const void *attrs,
                                gd_tensors outputs, int max_inputs) {
    bool supported = op->infer && op->n_outputs > 0 && !op->outputs[op->n_outputs - 1].variadic &&
                     !op->base && !(op->flags & (GD_OP_DYNAMIC | GD_OP_INPLACE));
    for (int i = 0; i < op->n_inputs; i++) supported &= !op->inputs[i].mutated;
    if (!supported || inputs.count > max_inputs || outputs.count != op->n_outputs || !outputs.at)
        return gd_fail(GD_E_ARGUMENT,
                       "gd_op_run_into: %s cannot write its results into %lld given tensors",
                       op->name, (long long)outputs.count);
    GD_TRY(gd_attrs_check(op, attrs));
    GD_TRY(gd_check_inputs(op, inputs.at, (int)inputs.count));
    for (int64_t i = 0; i < outputs.count; i++) {
        const gd_tensor *y = outputs.at[i];
        if (!y || y->kind != GD_VALUE)
            return gd_fail(GD_E_ARGUMENT, "gd_op_run_into: output %d has no data", (int)i);
        if (!gd_is_row_major(y->rank, y->dims, y->strides))
            return gd_fail(GD_E_ARGUMENT, "gd_op_run_into: output %d is not contiguous", (int)i);
    }
    for (int64_t i = 0; i < inputs.count + outputs.count; i++) {
        const gd_tensor *t = i < inputs.count ? inputs.at[i] : outputs.at[i - inputs.count];
        if (t && t->kind != GD_VALUE)
            return gd_fail(GD_E_ARGUMENT, "gd_op_run_into: input %d has no data", (int)i);
        if (t && t->device != outputs.at[0]->device)
            return gd_fail(GD_E_DEVICE, "gd_op_run_into: tensors are on %s and on %s",
                           t->device->name, outputs.at[0]->device->name);
    }
    return GD_OK;
}

static gd_status run_into(const gd_op *op, gd_tensors inputs, const gd_attrs *attrs,
                          gd_tensors outputs) {
    if (!op) return gd_fail(GD_E_ARGUMENT, "gd_op_run_into: op is NULL");
    GD_TRY(gd_attrs_check_given(op, attrs));
    gd_tensor *padded[GD_RECORD_MAX];
    inputs = pad_inputs(op, inputs, padded);
    enum { MAX_INPUTS = 16 };
    gd_view views[MAX_INPUTS + GD_MAX_OUTPUTS];
    gd_meta metas[GD_MAX_OUTPUTS];
    const void *data = attrs ? attrs->data : op->defaults;
    GD_TRY(check_run_into(op, inputs, data, outputs, MAX_INPUTS));
    gd_infer infer = {op, data, inputs.at, (int)inputs.count, metas, op->n_outputs};
    for (int i = 0; i < op->n_outputs; i++) gd_meta_clear(&metas[i], inputs.at, (int)inputs.count);
    GD_TRY(op->infer(&infer));
    for (int64_t i = 0; i < inputs.count; i++)
        views[i] = inputs.at[i] ? gd_view_of(inputs.at[i]) : (gd_view){.data = NULL};
    for (int i = 0; i < op->n_outputs; i++) {
        gd_view *v = &views[inputs.count + i];
        char a[160], b[160];
        *v = gd_view_of(outputs.at[i]);
        if (v->dtype != metas[i].dtype || v->rank != metas[i].rank ||
            memcmp(v->dims, metas[i].dims, sizeof(int64_t) * (size_t)v->rank) != 0)
            return gd_fail(GD_E_SHAPE, "gd_op_run_into: output %d of %s is %s%s, not %s", i,
                           op->name, gd_dtype_name(metas[i].dtype),
                           gd_shape_text(metas[i].rank, metas[i].dims, a, sizeof a),
                           gd_describe(outputs.at[i], b, sizeof b));
    }
    for (int i = 0; i < op->n_outputs; i++) atomic_fetch_add(&outputs.at[i]->storage->version, 1);
    gd_kernel_call call;
    gd_kernel_call_set(&call, data, views, (int)inputs.count, views + inputs.count, op->n_outputs);
    call.overwrites = true;
    if (op->flags & GD_OP_RANDOM) call.rng = gd_rng_take();
    return gd_run_kernel(op, &call, outputs.at[0]->device);
}

gd_status gd_op_run_into_at(const char *site, const gd_op *op, gd_tensors inputs,
                            const gd_attrs *attrs, gd_tensors outputs) {
    return gd_report(site, run_into(op, inputs, attrs, outputs));
}

const void *gd_attrs_data(const gd_attrs *attrs) { return attrs->data; }
