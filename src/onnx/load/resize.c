/* resize.c - Resize, OneHot and TopK. */
#include <math.h>
#include <string.h>

#include "core/number.h"
#include "gradus/ops.h"
#include "onnx/load/load.h"
#include "ops/probe.h"

/* --- Resize ----------------------------------------------------------------------------------- */

typedef struct resize_mode {
    bool own;     /* ONNX finds the elements where our op does */
    bool linear;  /* else: nearest */
    bool corners; /* align_corners */
    bool first;   /* pytorch_half_pixel: a result of size 1 is the first element, not the middle */
} resize_mode;

static gd_status read_mode(const gd_pb *node, resize_mode *m) {
    static const char *const where = "coordinate_transformation_mode";
    int64_t antialias, outside;
    GD_TRY(gd_onnx_int_attribute(node, "antialias", 0, &antialias));
    GD_TRY(gd_onnx_int_attribute(node, "exclude_outside", 0, &outside));
    m->linear = gd_onnx_word_is(node, "mode", "nearest", "linear");
    m->corners = m->linear && gd_onnx_word_is(node, where, "half_pixel", "align_corners");
    m->first = m->linear && gd_onnx_word_is(node, where, "half_pixel", "pytorch_half_pixel");
    const bool half = m->first || gd_onnx_word_is(node, where, "half_pixel", "half_pixel");
    const bool nearest = gd_onnx_word_is(node, "mode", "nearest", "nearest") &&
                         gd_onnx_word_is(node, where, "half_pixel", "asymmetric") &&
                         gd_onnx_word_is(node, "nearest_mode", "round_prefer_floor", "floor");
    m->own = !antialias && !outside && (nearest || (m->linear && (m->corners || half)));
    if (gd_onnx_word_is(node, "keep_aspect_ratio_policy", "stretch", "stretch")) return GD_OK;
    return gd_fail(GD_E_UNSUPPORTED, "its keep_aspect_ratio_policy must be stretch");
}

/* The axes that its numbers are for: all of them, or those that are named. */
static gd_status read_axes(const gd_pb *node, const gd_tensor *x, const gd_tensor *list, int *count,
                           int64_t *axes) {
    const gd_pb_list *named = gd_pb_get(gd_onnx_attribute_of(node, "axes"), "ints");
    const int64_t have = gd_numel(list->rank, list->dims),
                  want = named ? (int64_t)named->count : x->rank;
    if (list->rank != 1 || have != want || want > GD_MAX_RANK)
        return gd_fail(GD_E_FORMAT, "it has %lld numbers for %lld axes", (long long)have,
                       (long long)want);
    *count = (int)want;
    for (int i = 0; i < *count; i++) {
        axes[i] = named ? named->ints[i] : i;
        GD_TRY(gd_onnx_fix_axis(&axes[i], x->rank));
    }
    return GD_OK;
}

/* The numbers of the axes, NAN for one that keeps its size. */
static gd_status read_numbers(gd_tensor *list, int rank, int count, const int64_t *axes,
                              double *numbers) {
    double given[GD_MAX_RANK];
    for (int i = 0; i < rank; i++) numbers[i] = NAN;
    GD_TRY(gd_copy_out(gd_cast(list, GD_F64), given, (size_t)count * sizeof *given));
    for (int i = 0; i < count; i++)
        numbers[axes[i]] = list->dtype == GD_F32 ? gd_float_shortest((float)given[i]) : given[i];
    return GD_OK;
}

/* An input that is there, and has elements: older files give empty lists for what is absent. */
static gd_status get_list(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_tensor **list) {
    GD_TRY(gd_onnx_get_list(l, node, i, list));
    if (*list && gd_numel((*list)->rank, (*list)->dims) == 0) *list = NULL;
    return GD_OK;
}

/* Sizes that follow from those of a run. */
static gd_status resize_late(gd_onnx_loader *l, const gd_pb *node, gd_tensor *x, gd_tensor *sizes,
                             const resize_mode *m) {
    int64_t axes[GD_MAX_RANK];
    int count;
    gd_tensor *parts[GD_MAX_RANK], *all, *y;
    gd_onnx_size size;
    GD_TRY(read_axes(node, x, sizes, &count, axes));
    for (int i = 0; i < x->rank; i++) {
        GD_TRY(gd_onnx_size_of(x, i, &size));
        parts[i] = gd_reshape(gd_onnx_size_number(size), gd_dims(1));
    }
    for (int i = 0; i < count; i++) parts[axes[i]] = gd_narrow(gd_cast(sizes, GD_I64), 0, i, 1);
    all = gd_cat(((gd_tensors){parts, x->rank}), .axis = 0);
    if (all->kind == GD_FAILED) return gd_failure();
    GD_TRY(gd_onnx_late(l,
                        (gd_late_options){.kind = GD_LATE_RESIZE,
                                          .mode = m->linear ? GD_LINEAR : GD_NEAREST,
                                          .align_corners = m->corners,
                                          .first = m->first,
                                          .dtype = (gd_dtype)x->dtype},
                        x, &all, 1, &y));
    return gd_onnx_set_output(l, node, 0, y);
}

/* By our op: the axes behind the first two, with one factor for all, or to sizes that say the same.
 * *y NULL where that is not possible. */
static void resize_own(gd_tensor *x, bool scaled, const double *numbers, const resize_mode *m,
                       gd_tensor **y) {
    const gd_word mode = m->linear ? GD_LINEAR : GD_NEAREST;
    gd_shape size = {.rank = x->rank - 2, .form = 1};
    bool same = true;
    *y = NULL;
    if (x->rank < 3 || x->rank > 5) return;
    for (int i = 0; i < x->rank; i++) {
        const double n = numbers[i], whole = isnan(n) ? (double)x->dims[i]
                                             : scaled ? floor((double)x->dims[i] * n)
                                                      : n;
        if (i < 2 && !isnan(n) && n != (scaled ? 1 : (double)x->dims[i])) return;
        if (i < 2) continue;
        const bool may_be_one = x->dims[i] == GD_UNKNOWN && scaled ? n < 1 : whole == 1;
        if (m->first && x->dims[i] != 1 && may_be_one) return; /* ours would take the middle */
        same = same && n == numbers[2];
        size.at[i - 2] = whole > 0 && whole < 0x1p31 ? (int64_t)whole : 0;
    }
    if (scaled && same && !m->corners) {
        *y = gd_resize(x, .scale = numbers[2], .mode = mode);
        return;
    }
    for (int i = 2; i < x->rank; i++) /* as many times, exactly: then sizes say the same */
        if ((scaled || isnan(numbers[i])) &&
            (x->dims[i] == GD_UNKNOWN ||
             (!isnan(numbers[i]) && (double)x->dims[i] * numbers[i] != (double)size.at[i - 2])))
            return;
    *y = gd_resize(x, .size = size, .mode = mode, .align_corners = m->corners);
}

gd_status gd_onnx_load_resize(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *scales, *sizes, *y = NULL;
    gd_status status;
    resize_mode m;
    int64_t axes[GD_MAX_RANK];
    int count;
    double numbers[GD_MAX_RANK];
    GD_ONNX_NEED(x, 0);
    GD_TRY(read_mode(node, &m));
    GD_TRY(get_list(l, node, 2, &scales));
    GD_TRY(get_list(l, node, 3, &sizes));
    if (!scales == !sizes) return gd_fail(GD_E_FORMAT, "it needs either scales or sizes");
    gd_tensor *list = scales ? scales : sizes;
    if (list->kind == GD_SYMBOL && (!m.own || scales))
        return gd_fail(GD_E_UNSUPPORTED,
                       "its %s follow from sizes of a run; that is possible for sizes with mode "
                       "nearest (asymmetric, floor) and mode linear (half_pixel or align_corners)",
                       scales ? "scales" : "sizes");
    if (list->kind == GD_SYMBOL || (sizes && m.own && m.first && gd_has_unknown(&x, 1)))
        return resize_late(l, node, x, sizes, &m);
    GD_TRY(read_axes(node, x, list, &count, axes));
    const gd_tracing tracing = gd_tracing_off();
    status = read_numbers(list, x->rank, count, axes, numbers);
    gd_tracing_on(tracing);
    GD_TRY(status);
    if (m.own) resize_own(x, scales != NULL, numbers, &m, &y);
    if (!y) GD_TRY(gd_onnx_resize_axes(node, x, scales != NULL, numbers, &y));
    return gd_onnx_set_output(l, node, 0, y);
}

/* --- OneHot ----------------------------------------------------------------------------------- */

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

/* --- TopK ------------------------------------------------------------------------------------- */

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
