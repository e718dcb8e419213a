/* attribute.c - attributes of a node that is being loaded.
 *
 * Order: attributes as values; attributes as options of an op.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/number.h"
#include "gradus/ops.h"
#include "onnx/load/load.h"
#include "dispatch/call.h"

/* --- values ----------------------------------------------------------------------------------- */

const gd_pb *gd_onnx_find_attribute(const gd_pb *node, const char *name) {
    for (size_t i = 0; i < gd_pb_count(node, "attribute"); i++) {
        const gd_pb *a = gd_pb_message_at(node, "attribute", i);
        if (strcmp(gd_pb_string(a, "name"), name) == 0) return a;
    }
    return NULL;
}

bool gd_onnx_attribute_is(const gd_pb *node, const char *name, const char *by_default,
                          const char *word) {
    const gd_pb_list *s = gd_pb_get(gd_onnx_find_attribute(node, name), "s");
    if (!s) return strcmp(by_default, word) == 0;
    return s->bytes[0].length == strlen(word) && memcmp(s->bytes[0].data, word, strlen(word)) == 0;
}

gd_status gd_onnx_word_attribute(const gd_pb *node, const char *name, const char *const *words,
                                 int count, int *index) {
    for (*index = 0; *index < count; (*index)++)
        if (gd_onnx_attribute_is(node, name, words[0], words[*index])) return GD_OK;
    return gd_fail(GD_E_UNSUPPORTED, "its %s is not supported; it must be one of %s, %s, ...", name,
                   words[0], words[1]);
}

static gd_status fail_attribute(const char *name, const char *expected) {
    return gd_fail(GD_E_FORMAT, "its attribute '%.60s' must be %s", name, expected);
}

gd_status gd_onnx_int_attribute(const gd_pb *node, const char *name, int64_t by_default,
                                int64_t *value) {
    const gd_pb *a = gd_onnx_find_attribute(node, name);
    *value = a ? gd_pb_int(a, "i", 0) : by_default;
    const bool empty = a && !gd_pb_count(a, "i") && gd_pb_int(a, "type", 2) != 2;
    return empty ? fail_attribute(name, "an integer") : GD_OK;
}

gd_status gd_onnx_float_attribute(const gd_pb *node, const char *name, double by_default,
                                  double *value) {
    const gd_pb *a = gd_onnx_find_attribute(node, name);
    *value = a ? gd_float_shortest((float)gd_pb_float(a, "f", 0)) : by_default;
    const bool empty = a && !gd_pb_count(a, "f") && gd_pb_int(a, "type", 1) != 1;
    return empty ? fail_attribute(name, "a number") : GD_OK;
}

gd_status gd_onnx_ints_attribute(const gd_pb *node, const char *name, int count, int64_t by_default,
                                 int64_t *values) {
    const gd_pb_list *list = gd_pb_get(gd_onnx_find_attribute(node, name), "ints");
    for (int i = 0; i < count; i++) values[i] = by_default;
    if (!list) return GD_OK;
    if (list->count != (size_t)count)
        return gd_fail(GD_E_FORMAT, "its attribute '%s' has %zu numbers, and should have %d", name,
                       list->count, count);
    memcpy(values, list->ints, (size_t)count * sizeof *values);
    return GD_OK;
}

/* --- options ---------------------------------------------------------------------------------- */

/* Copies a string attribute; false: not a string, or too long. */
static bool attribute_text(const gd_pb *a, char *text, size_t size) {
    const gd_pb_list *s = gd_pb_get(a, "s");
    const size_t length = s ? s->bytes[0].length : 0;
    if (!s || length >= size || memchr(s->bytes[0].data, 0, length)) return false;
    memcpy(text, s->bytes[0].data, length);
    text[length] = '\0';
    return true;
}

/* A number from a float, an integer, or a tensor of rank 0 that holds a double. */
static gd_status attribute_number(const gd_pb *a, const char *name, double *value) {
    const gd_pb *t = gd_pb_message(a, "t");
    if (t && gd_pb_count(t, "double_data") == 1) *value = gd_pb_float(t, "double_data", 0);
    else if (gd_pb_count(a, "i")) *value = (double)gd_pb_int(a, "i", 0);
    else if (gd_pb_count(a, "f") || gd_pb_int(a, "type", 0) == 1)
        *value = gd_float_shortest((float)gd_pb_float(a, "f", 0));
    else return fail_attribute(name, "a number");
    return GD_OK;
}

/* Translates a word of ONNX to the op's, by renames ",ours:onnx,ours:onnx". */
static const char *rename_word(const char *renames, const char *word, char *renamed) {
    for (const char *at = renames; at && *at; at = strchr(at + 1, ',')) {
        const char *colon = strchr(at, ':');
        const size_t length = colon ? strcspn(colon + 1, ",") : 0;
        if (colon && strlen(word) == length && strncmp(colon + 1, word, length) == 0) {
            snprintf(renamed, GD_OPERATOR_WORD, "%.*s", (int)(colon - at - 1), at + 1);
            return renamed;
        }
    }
    return word;
}

/* The first half of a list that a row saves twice (pads: before, then after each axis). Fails if
 * the halves differ. */
static gd_status halve_list(const char *name, int *count, const int64_t *numbers) {
    const int half = *count / 2;
    if (*count % 2 || memcmp(numbers, numbers + half, sizeof *numbers * (size_t)half) != 0)
        return gd_fail(
            GD_E_UNSUPPORTED,
            "its attribute '%s' must be the same at the beginning and the end of each axis", name);
    *count = half;
    return GD_OK;
}

gd_status gd_onnx_set_numbers(gd_attrs *attrs, const gd_op_attr *option, const char *name,
                              int count, const int64_t *numbers) {
    if (option->type == GD_ATTR_INT && count == 1)
        return gd_attrs_put_int(attrs, option->name, numbers[0]);
    if (option->type == GD_ATTR_INTS && count == option->count)
        return gd_attrs_put_ints(attrs, option->name, count, numbers);
    if (option->type == GD_ATTR_SHAPE && count <= GD_MAX_RANK)
        return gd_attrs_put_ints(attrs, option->name, count, numbers);
    return gd_fail(GD_E_FORMAT, "'%s' has %d numbers, which %s does not take", name, count,
                   option->name);
}

gd_status gd_onnx_set_option(gd_attrs *attrs, const gd_operator_attribute *word,
                             const gd_op_attr *option, const gd_pb *a) {
    char text[256], renamed[GD_OPERATOR_WORD];
    double number = 0;
    if (attribute_text(a, text, sizeof text) && strcmp(text, "none") == 0 &&
        option->type != GD_ATTR_WORD)
        return gd_attrs_put_text(attrs, option->name, text);
    switch (option->type) {
    case GD_ATTR_FLOAT:
    case GD_ATTR_NUMBER:
        if (option->type == GD_ATTR_NUMBER && gd_pb_count(a, "i"))
            return gd_attrs_put_int(attrs, option->name, gd_pb_int(a, "i", 0));
        GD_TRY(attribute_number(a, word->theirs, &number));
        return gd_attrs_put_float(attrs, option->name, number);
    case GD_ATTR_BOOL: return gd_attrs_put_int(attrs, option->name, gd_pb_int(a, "i", 0) != 0);
    case GD_ATTR_DTYPE: {
        if (attribute_text(a, text, sizeof text))
            return gd_attrs_put_text(attrs, option->name, text);
        const gd_dtype dtype = gd_onnx_dtype(gd_pb_int(a, "i", 0));
        if (dtype == GD_DTYPE_NONE)
            return gd_fail(GD_E_UNSUPPORTED, "its attribute '%s' is %s, which no dtype can hold",
                           word->theirs, gd_onnx_type_name(gd_pb_int(a, "i", 0)));
        return gd_attrs_put_text(attrs, option->name, gd_dtype_name(dtype));
    }
    case GD_ATTR_WORD:
        if (!attribute_text(a, text, sizeof text)) return fail_attribute(word->theirs, "a word");
        return gd_attrs_put_text(attrs, option->name, rename_word(word->renames, text, renamed));
    case GD_ATTR_STRING:
        if (!attribute_text(a, text, sizeof text)) return fail_attribute(word->theirs, "a string");
        return gd_attrs_put_text(attrs, option->name, text);
    default: {
        const gd_pb_list *list = gd_pb_get(a, "ints");
        if (!list) list = gd_pb_get(a, "i");
        int64_t numbers[GD_ONNX_MAX_NUMBERS], zero = 0;
        if (list && list->count > GD_ONNX_MAX_NUMBERS)
            return fail_attribute(word->theirs, "a shorter list");
        int count = list ? (int)list->count : gd_pb_int(a, "type", 0) == 2 ? 1 : 0;
        memcpy(numbers, list ? list->ints : &zero, sizeof *numbers * (size_t)count);
        if (word->twice) GD_TRY(halve_list(word->theirs, &count, numbers));
        return gd_onnx_set_numbers(attrs, option, word->theirs, count, numbers);
    }
    }
}

bool gd_onnx_has_fixed_value(const gd_pb *a, const gd_operator_attribute *word) {
    char text[64];
    if (!a) return strcmp(word->fixed, word->their_default) == 0;
    if (attribute_text(a, text, sizeof text)) return strcmp(text, word->fixed) == 0;
    const double expected = gd_double_parse(word->fixed, NULL);
    const gd_pb_list *list = gd_pb_get(a, "ints");
    for (size_t i = 0; list && i < list->count; i++)
        if ((double)list->ints[i] != expected) return false;
    if (list) return true;
    const double have = gd_pb_count(a, "f") ? gd_pb_float(a, "f", 0) : (double)gd_pb_int(a, "i", 0);
    return fabs(have - expected) <= 1e-6;
}
