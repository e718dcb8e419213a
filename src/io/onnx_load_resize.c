/* onnx_load_resize.c - Resize, OneHot and TopK. */
#include <math.h>
#include <string.h>

#include "format/number.h"
#include "gradus/ops.h"
#include "io/onnx_load.h"

/* --- Resize -------------------------------------------------------------------------------------
 */

static bool word_is(const gd_pb *node, const char *name, const char *otherwise, const char *word) {
    const gd_pb_list *s = gd_pb_get(gd_onnx_attribute_of(node, name), "s");
    if (!s) return strcmp(otherwise, word) == 0;
    return s->bytes[0].length == strlen(word) && memcmp(s->bytes[0].data, word, strlen(word)) == 0;
}

/* Whether ONNX finds the elements where ours does. */
static gd_status read_mode(const gd_pb *node, bool *linear, bool *corners) {
    static const char *const where = "coordinate_transformation_mode";
    int64_t antialias;
    GD_TRY(gd_onnx_int_attribute(node, "antialias", 0, &antialias));
    *linear = word_is(node, "mode", "nearest", "linear");
    *corners = *linear && word_is(node, where, "half_pixel", "align_corners");
    const bool half = word_is(node, where, "half_pixel", "half_pixel") ||
                      word_is(node, where, "half_pixel", "pytorch_half_pixel");
    const bool nearest = word_is(node, "mode", "nearest", "nearest") &&
                         word_is(node, where, "half_pixel", "asymmetric") &&
                         word_is(node, "nearest_mode", "round_prefer_floor", "floor");
    if (!antialias && word_is(node, "keep_aspect_ratio_policy", "stretch", "stretch") &&
        (nearest || (*linear && (*corners || half))))
        return GD_OK;
    return gd_fail(GD_E_UNSUPPORTED,
                   "possible are mode nearest (asymmetric, floor) and mode linear (half_pixel or "
                   "align_corners), without antialias");
}

/* The numbers of the spatial axes, out of those for all axes or for the `axes` that are named. */
static gd_status spatial(const gd_pb *node, const gd_tensor *x, const gd_tensor *list,
                         double *numbers) {
    const gd_pb_list *axes = gd_pb_get(gd_onnx_attribute_of(node, "axes"), "ints");
    const int64_t count = gd_numel(list->rank, list->dims),
                  want = axes ? (int64_t)axes->count : x->rank;
    double given[GD_MAX_RANK];
    if (list->rank != 1 || count != want || count > GD_MAX_RANK)
        return gd_fail(GD_E_FORMAT, "it has %lld numbers for %lld axes", (long long)count,
                       (long long)want);
    for (int i = 0; i < x->rank; i++) numbers[i] = NAN; /* keeps its size */
    gd_tensor *wide = gd_cast((gd_tensor *)(uintptr_t)list, GD_F64);
    GD_TRY(gd_copy_to(wide, given, (size_t)count * sizeof *given));
    for (int64_t i = 0; i < count; i++) {
        const int64_t axis = !axes               ? i
                             : axes->ints[i] < 0 ? axes->ints[i] + x->rank
                                                 : axes->ints[i];
        if (axis < 0 || axis >= x->rank)
            return gd_fail(GD_E_INDEX, "its axis is %lld", (long long)axis);
        numbers[axis] = list->dtype == GD_F32 ? gd_float_shortest((float)given[i]) : given[i];
    }
    return GD_OK;
}

static gd_status known_list(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_tensor **list) {
    const char *name = gd_pb_string_at(node, "input", i);
    *list = NULL;
    if (!*name) return GD_OK;
    GD_TRY(gd_onnx_known(l, name, list));
    if (*list && gd_tensor_numel(*list) == 0)
        *list = NULL; /* older files: absent */
    else if (!*list)
        return gd_fail(GD_E_UNSUPPORTED, "its input '%.200s' must be known when the file is read",
                       name);
    return GD_OK;
}

gd_status gd_onnx_load_resize(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *scales, *sizes, *y;
    gd_status status;
    bool linear, corners, same = true;
    double numbers[GD_MAX_RANK];
    gd_tensor *x = gd_onnx_get_input(l, node, 0, &status);
    GD_TRY(status);
    if (!x || x->rank < 3 || x->rank > 5)
        return gd_fail(GD_E_UNSUPPORTED, "its input must have 3 to 5 dimensions");
    GD_TRY(read_mode(node, &linear, &corners));
    GD_TRY(known_list(l, node, 2, &scales));
    GD_TRY(known_list(l, node, 3, &sizes));
    if (!scales == !sizes) return gd_fail(GD_E_FORMAT, "it needs either scales or sizes");
    void *tracing = gd_tracing_off();
    status = spatial(node, x, scales ? scales : sizes, numbers);
    gd_tracing_on(tracing);
    GD_TRY(status);
    for (int i = 0; i < 2; i++)
        if (!isnan(numbers[i]) && numbers[i] != (scales ? 1 : (double)x->dims[i]))
            return gd_fail(GD_E_UNSUPPORTED, "the batch and the channels cannot be resized here");
    gd_shape size = {.rank = x->rank - 2, .form = 1};
    for (int i = 2; i < x->rank; i++) {
        same = same && numbers[i] == numbers[2];
        const double whole = isnan(numbers[i]) ? (double)x->dims[i]
                             : scales          ? floor((double)x->dims[i] * numbers[i])
                                               : numbers[i];
        size.at[i - 2] = whole > 0 && whole < 0x1p31 ? (int64_t)whole : 0;
    }
    const gd_word mode = linear ? GD_LINEAR : GD_NEAREST;
    if (scales && same && !corners) {
        y = gd_resize(x, .scale = numbers[2], .mode = mode);
    } else {
        for (int i = 2; i < x->rank; i++) /* as many times, exactly: then sizes say the same */
            if ((scales || isnan(numbers[i])) &&
                (x->dims[i] == GD_UNKNOWN ||
                 (!isnan(numbers[i]) && (double)x->dims[i] * numbers[i] != (double)size.at[i - 2])))
                return gd_fail(
                    GD_E_UNSUPPORTED,
                    "other factors for each axis are possible where sizes are known, and "
                    "come out whole");
        y = gd_resize(x, .size = size, .mode = mode, .align_corners = corners);
    }
    return gd_onnx_set_output(l, node, 0, y);
}

/* --- OneHot -------------------------------------------------------------------------------------
 */

gd_status gd_onnx_load_one_hot(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *in[3], *depth;
    gd_status status;
    int64_t axis;
    for (size_t i = 0; i < 3; i++) {
        in[i] = gd_onnx_get_input(l, node, i, &status);
        GD_TRY(status);
        if (!in[i]) return gd_fail(GD_E_FORMAT, "its input %zu is missing", i);
    }
    GD_TRY(gd_onnx_int_attribute(node, "axis", -1, &axis));
    GD_TRY(gd_onnx_known(l, gd_pb_string_at(node, "input", 1), &depth));
    if (!depth || gd_tensor_numel(depth) != 1 || !(gd_item(depth) >= 1 && gd_item(depth) < 0x1p31))
        return gd_fail(GD_E_UNSUPPORTED, "its depth must be one positive number that is known");
    const int64_t classes = (int64_t)gd_item(depth);
    const int rank = in[0]->rank;
    if (in[2]->rank != 1 || in[2]->dims[0] != 2 || rank >= GD_MAX_RANK || axis < -rank - 1 ||
        axis > rank)
        return gd_fail(GD_E_FORMAT, "its values must be two numbers, and its axis one of %d",
                       rank + 1);
    gd_tensor *x = gd_cast(in[0], GD_I64),
              *numbers = gd_arange(0, (double)classes, .dtype = GD_I64);
    x = gd_where(gd_lt(x, gd_scalar_of(0, GD_I64)),
                 gd_add(x, gd_scalar_of((double)classes, GD_I64)), x);
    gd_tensor *y = gd_where(gd_eq(gd_unsqueeze(x, -1), numbers), gd_select(in[2], 0, 1),
                            gd_select(in[2], 0, 0));
    if (axis != -1 && axis != rank) y = gd_movedim(y, gd_dims(-1), gd_dims(axis));
    return gd_onnx_set_output(l, node, 0, y);
}

/* --- TopK ---------------------------------------------------------------------------------------
 */

/* Whether a list of one number is the size of an axis, whatever that is. */
static gd_status is_size(gd_onnx_loader *l, gd_tensor *list, int64_t size, bool *is) {
    gd_tensor *value;
    for (int64_t probe = 3; probe < 8 && *is; probe++) {
        GD_TRY(gd_onnx_evaluate(l, list, probe, &value));
        *is = gd_tensor_numel(value) == 1 &&
              gd_item(value) == (double)(size == GD_UNKNOWN ? probe : size);
    }
    return GD_OK;
}

/* All of them are a sort; that is possible for a size that only a run tells. */
gd_status gd_onnx_load_topk(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *k, *values, *indices;
    gd_status status;
    gd_numbers count;
    int64_t axis, largest;
    bool whole = true;
    gd_tensor *x = gd_onnx_get_input(l, node, 0, &status);
    GD_TRY(status);
    GD_TRY(gd_onnx_get_list(l, node, 1, &k));
    GD_TRY(gd_onnx_int_attribute(node, "axis", -1, &axis));
    GD_TRY(gd_onnx_int_attribute(node, "largest", 1, &largest));
    if (!x || !k || x->rank == 0) return gd_fail(GD_E_FORMAT, "it needs an input with axes, and k");
    if (axis < -x->rank || axis >= x->rank)
        return gd_fail(GD_E_INDEX, "its axis is %lld, and its input has %d dimensions",
                       (long long)axis, x->rank);
    const int64_t size = x->dims[axis < 0 ? axis + x->rank : axis];
    if (k->kind == GD_SYMBOL) {
        GD_TRY(is_size(l, k, size, &whole));
        if (!whole)
            return gd_fail(GD_E_UNSUPPORTED,
                           "its k follows from sizes, and is not that of its axis");
        gd_sort_outputs s = gd_sort(x, .axis = axis, .descending = largest != 0);
        values = s.values, indices = s.indices;
    } else {
        GD_TRY(gd_late_numbers(k, &count));
        if (count.count != 1) return gd_fail(GD_E_FORMAT, "its k must be one number");
        gd_topk_outputs t = gd_topk(x, count.at[0], .axis = axis, .largest = largest != 0);
        values = t.values, indices = t.indices;
    }
    GD_TRY(gd_onnx_set_output(l, node, 0, values));
    return gd_pb_count(node, "output") > 1 ? gd_onnx_set_output(l, node, 1, indices) : GD_OK;
}
