/* attrs.c - the options (attributes) of an op call as a struct: checks, numbers, layout. */
#include "dispatch/attrs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

gd_word gd_word_of(const char *text) {
    uint32_t h = 2166136261u;
    for (; text && *text; text++) h = (h ^ (unsigned char)*text) * 16777619u;
    return h;
}

/* The form of a list that is one number, .axis = 1, which another number follows: it has no name,
 * .axis = 1, true, and C makes it the second of the list. */
enum { FOLLOWED = 2 };

static gd_status fail_followed(const char *name, double first, double next, const char *list) {
    return gd_fail(GD_E_ARGUMENT,
                   "%s = %.10g is followed by %.10g without a name; write its name, or .%s = "
                   "%s(%.10g, %.10g)",
                   name, first, next, name, list, first, next);
}

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
            if (list->form == -1 && list->at[0] != GD_UNSET)
                list->rank = 1, list->form = list->at[1] ? FOLLOWED : 1;
        } else if (a->type == GD_ATTR_FLOATS) {
            gd_floats *list = field;
            if (list->form == -1 && !isnan(list->at[0]))
                list->count = 1, list->form = list->at[1] != 0 ? FOLLOWED : 1;
            if (list->form == -1 && op->defaults)
                *list = *(const gd_floats *)((const char *)op->defaults + a->offset);
        }
    }
}

bool gd_word_is_among(gd_word value, const char *words) {
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
    if (list->form == FOLLOWED)
        return fail_followed(a->name, list->at[0], list->at[1], "gd_floats");
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
        if (a->type == GD_ATTR_WORD && !gd_word_is_among(*(const gd_word *)field, a->words))
            return gd_fail(GD_E_ARGUMENT, "%s must be one of: %s", a->name, a->words);
        if (a->type == GD_ATTR_SHAPE) {
            const gd_shape *list = field;
            if (list->form == 0)
                return gd_fail(GD_E_ARGUMENT,
                               "%s: the length of a list in braces is unknown; "
                               "write gd_dims(...)",
                               a->name);
            if (list->form == FOLLOWED)
                return fail_followed(a->name, (double)list->at[0], (double)list->at[1], "gd_dims");
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
