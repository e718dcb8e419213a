/* attrs_by_name.c - gd_attrs: the options of an op call, set by name or read from text. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/freed.h"
#include "core/alloc.h"
#include "core/number.h"
#include "dispatch/attrs.h"
#include "dispatch/intern.h"

struct gd_attrs {
    gd_object object;
    const gd_op *op;
    uint64_t given; /* bit i: attribute i was set */
    uint64_t any;   /* bit i: attribute i may be "any", GD_ANY */
    _Alignas(16) char data[];
};

static void attrs_destroy(gd_object *object) { gd_object_free(object); }
static const gd_class attrs_class = {.name = "set of options", .destroy = attrs_destroy};
GD_KNOWN_CLASS(attrs_class)

gd_attrs *gd_attrs_new(const gd_op *op) {
    gd_attrs *attrs = NULL;
    gd_status status =
        op ? gd_scope_reserve(1) : gd_fail(GD_E_ARGUMENT, "gd_attrs_new: op is NULL");
    if (status == GD_OK && !(attrs = gd_malloc(sizeof *attrs + op->attrs_size)))
        status = gd_fail(GD_E_MEMORY, "no memory for the options of %s", op->name);
    if (status != GD_OK) {
        gd_error_record(status);
        return NULL;
    }
    gd_object_init(&attrs->object, &attrs_class);
    attrs->op = op;
    attrs->given = attrs->any = 0;
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

static bool may_be_any(const gd_attrs *attrs, const gd_op_attr *a) {
    const ptrdiff_t i = a - attrs->op->attrs;
    return i < 64 && (attrs->any >> i & 1);
}

void gd_attrs_allow_any(gd_attrs *attrs, const char *name) {
    for (int i = 0; attrs && i < attrs->op->n_attrs && i < 64; i++)
        if (strcmp(attrs->op->attrs[i].name, name) == 0) attrs->any |= 1ull << i;
}

/* What follows the name of a type in a message. */
static const char *or_any(const gd_attrs *attrs, const gd_op_attr *a) {
    return attrs && may_be_any(attrs, a) ? ", or any: inferred from the first input" : "";
}

static gd_status wrong_type(const gd_attrs *attrs, const gd_op_attr *a, const char *given) {
    return gd_fail(GD_E_ARGUMENT, "%s: %s takes %s%s%s%s, not '%.80s'", attrs->op->name, a->name,
                   type_names[a->type], a->words ? ": one of " : "", a->words ? a->words : "",
                   or_any(attrs, a), given);
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
    if (strcmp(text, "any") == 0 && may_be_any(attrs, a))
        return gd_attrs_put_int(attrs, name, GD_ANY);
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
        if (!gd_word_is_among(gd_word_of(text), a->words)) return wrong_type(attrs, a, text);
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

/* Reads a value that ends at a space, or a quoted one, in which '' is a quote. Returns the text
 * after it. */
static const char *take_word(const char *s, char *word) {
    const bool quoted = *s == '\'';
    size_t n = 0;
    if (quoted) s++;
    for (; *s && (quoted || *s != ' '); s++) {
        if (quoted && *s == '\'' && *++s != '\'') break;
        word[n++] = *s;
    }
    word[n] = '\0';
    return s;
}

/* `word` has room for any value of the text. */
static gd_status put_options(gd_attrs *attrs, const char *text, char *word) {
    for (const char *s = text; *s;) {
        while (*s == ' ') s++;
        if (!*s) break;
        const size_t name = strcspn(s, "= ");
        char key[64];
        if (s[name] != '=' || name >= sizeof key)
            return gd_fail(GD_E_ARGUMENT, "%s: expected name=value at '%.40s'", attrs->op->name, s);
        snprintf(key, sizeof key, "%.*s", (int)name, s);
        s = take_word(s + name + 1, word);
        GD_TRY(gd_attrs_put_text(attrs, key, word));
    }
    return GD_OK;
}

gd_status gd_attrs_put_options(gd_attrs *attrs, const char *text) {
    if (!attrs) return gd_fail(GD_E_ARGUMENT, "gd_attrs_parse: attrs is NULL");
    if (!text || !*text) return GD_OK;
    char *word = gd_malloc(strlen(text) + 1);
    if (!word) return gd_fail(GD_E_MEMORY, "no memory for the options of %s", attrs->op->name);
    const gd_status status = put_options(attrs, text, word);
    gd_free(word);
    return status;
}

gd_status gd_attrs_set_int(gd_attrs *attrs, const char *name, int64_t value) {
    GD_LIVE(attrs);
    return gd_report(NULL, gd_attrs_put_int(attrs, name, value));
}
gd_status gd_attrs_set_float(gd_attrs *attrs, const char *name, double value) {
    GD_LIVE(attrs);
    return gd_report(NULL, gd_attrs_put_float(attrs, name, value));
}
gd_status gd_attrs_set_ints(gd_attrs *attrs, const char *name, int count, const int64_t *values) {
    GD_LIVE(attrs);
    return gd_report(NULL, gd_attrs_put_ints(attrs, name, count, values));
}
gd_status gd_attrs_set_text(gd_attrs *attrs, const char *name, const char *text) {
    GD_LIVE(attrs);
    return gd_report(NULL, gd_attrs_put_text(attrs, name, text));
}
gd_status gd_attrs_parse(gd_attrs *attrs, const char *text) {
    GD_LIVE(attrs);
    return gd_report(NULL, gd_attrs_put_options(attrs, text));
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

gd_status gd_attrs_check_given(const gd_op *op, const gd_attrs *attrs) {
    for (int i = 0; i < op->n_attrs && i < 64; i++)
        if (op->attrs[i].required && !(attrs && (attrs->given >> i & 1)))
            return gd_fail(GD_E_ARGUMENT, "%s needs the option '%s' (%s%s)", op->name,
                           op->attrs[i].name, type_names[op->attrs[i].type],
                           or_any(attrs, &op->attrs[i]));
    if (attrs && attrs->op != op)
        return gd_fail(GD_E_ARGUMENT, "the options are those of %s, not of %s", attrs->op->name,
                       op->name);
    return GD_OK;
}

const void *gd_attrs_data(const gd_attrs *attrs) { return attrs->data; }
