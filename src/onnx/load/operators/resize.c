/* resize.c - a Resize that the op `resize` can compute: nearest (asymmetric, floor) and linear
 * (half_pixel or align_corners) over the axes behind the first two. resize_axes.c has all other
 * modes. */
#include <math.h>
#include <string.h>

#include "core/number.h"
#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"
#include "dispatch/probe.h"

typedef struct resize_mode {
    bool is_op;   /* the op `resize` computes it */
    bool linear;  /* else: nearest */
    bool corners; /* align_corners */
    bool first;   /* pytorch_half_pixel: a result of size 1 is the first element, not the middle */
} resize_mode;

static gd_status read_mode(const gd_pb *node, resize_mode *m) {
    static const char *const coordinates = "coordinate_transformation_mode";
    int64_t antialias, outside;
    GD_TRY(gd_onnx_int_attribute(node, "antialias", 0, &antialias));
    GD_TRY(gd_onnx_int_attribute(node, "exclude_outside", 0, &outside));
    m->linear = gd_onnx_attribute_is(node, "mode", "nearest", "linear");
    m->corners =
        m->linear && gd_onnx_attribute_is(node, coordinates, "half_pixel", "align_corners");
    m->first =
        m->linear && gd_onnx_attribute_is(node, coordinates, "half_pixel", "pytorch_half_pixel");
    const bool half =
        m->first || gd_onnx_attribute_is(node, coordinates, "half_pixel", "half_pixel");
    const bool nearest = gd_onnx_attribute_is(node, "mode", "nearest", "nearest") &&
                         gd_onnx_attribute_is(node, coordinates, "half_pixel", "asymmetric") &&
                         gd_onnx_attribute_is(node, "nearest_mode", "round_prefer_floor", "floor");
    m->is_op = !antialias && !outside && (nearest || (m->linear && (m->corners || half)));
    if (gd_onnx_attribute_is(node, "keep_aspect_ratio_policy", "stretch", "stretch")) return GD_OK;
    return gd_fail(GD_E_UNSUPPORTED, "its keep_aspect_ratio_policy must be stretch");
}

/* The axes of its numbers: the attribute `axes`, or all axes. */
static gd_status read_axes(const gd_pb *node, const gd_tensor *x, const gd_tensor *list, int *count,
                           int64_t *axes) {
    const gd_pb_list *given = gd_pb_get(gd_onnx_find_attribute(node, "axes"), "ints");
    const int64_t have = gd_numel(list->rank, list->dims),
                  want = given ? (int64_t)given->count : x->rank;
    if (list->rank != 1 || have != want || want > GD_MAX_RANK)
        return gd_fail(GD_E_FORMAT, "it has %lld numbers for %lld axes", (long long)have,
                       (long long)want);
    *count = (int)want;
    for (int i = 0; i < *count; i++) {
        axes[i] = given ? given->ints[i] : i;
        GD_TRY(gd_onnx_normalize_axis(&axes[i], x->rank));
    }
    return GD_OK;
}

/* The number of each axis, NAN for an axis that keeps its size. */
static gd_status read_numbers(gd_tensor *list, int rank, int count, const int64_t *axes,
                              double *numbers) {
    double given[GD_MAX_RANK];
    for (int i = 0; i < rank; i++) numbers[i] = NAN;
    GD_TRY(gd_copy_out(gd_cast(list, GD_F64), given, (size_t)count * sizeof *given));
    for (int i = 0; i < count; i++)
        numbers[axes[i]] = list->dtype == GD_F32 ? gd_float_shortest((float)given[i]) : given[i];
    return GD_OK;
}

/* A list of the node; NULL: it is absent, or empty as in older files. */
static gd_status get_nonempty_list(gd_onnx_loader *l, const gd_pb *node, size_t i,
                                   gd_tensor **list) {
    GD_TRY(gd_onnx_get_list(l, node, i, list));
    if (*list && gd_numel((*list)->rank, (*list)->dims) == 0) *list = NULL;
    return GD_OK;
}

/* Resizes to sizes that are known only at run time. */
static gd_status resize_symbolic(gd_onnx_loader *l, const gd_pb *node, gd_tensor *x,
                                 gd_tensor *sizes, const resize_mode *m) {
    int64_t axes[GD_MAX_RANK];
    int count;
    gd_tensor *parts[GD_MAX_RANK], *all, *y;
    gd_onnx_size size;
    GD_TRY(read_axes(node, x, sizes, &count, axes));
    for (int i = 0; i < x->rank; i++) {
        GD_TRY(gd_onnx_size_of(x, i, &size));
        parts[i] = gd_reshape(gd_onnx_size_tensor(size), gd_dims(1));
    }
    for (int i = 0; i < count; i++) parts[axes[i]] = gd_narrow(gd_cast(sizes, GD_I64), 0, i, 1);
    all = gd_cat(((gd_tensors){parts, x->rank}), .axis = 0);
    if (all->kind == GD_FAILED) return gd_failure();
    GD_TRY(gd_onnx_add_deferred_node(
        l,
        (gd_deferred_call_options){.kind = GD_DEFERRED_RESIZE,
                                   .mode = m->linear ? GD_LINEAR : GD_NEAREST,
                                   .align_corners = m->corners,
                                   .first = m->first,
                                   .dtype = (gd_dtype)x->dtype},
        x, &all, 1, &y));
    return gd_onnx_set_output(l, node, 0, y);
}

/* Calls the op: the axes behind the first two, by one factor or to sizes. *y is NULL if the op
 * cannot compute it. */
static void resize_by_op(gd_tensor *x, bool scaled, const double *numbers, const resize_mode *m,
                         gd_tensor **y) {
    const gd_word mode = m->linear ? GD_LINEAR : GD_NEAREST;
    gd_shape size = {.rank = x->rank - 2, .form = 1};
    bool same = true;
    *y = NULL;
    if (x->rank < 3 || x->rank > 5) return;
    for (int i = 0; i < x->rank; i++) {
        const double n = numbers[i], result = isnan(n) ? (double)x->dims[i]
                                              : scaled ? floor((double)x->dims[i] * n)
                                                       : n;
        if (i < 2 && !isnan(n) && n != (scaled ? 1 : (double)x->dims[i])) return;
        if (i < 2) continue;
        const bool may_be_one = x->dims[i] == GD_UNKNOWN && scaled ? n < 1 : result == 1;
        if (m->first && x->dims[i] != 1 && may_be_one) return; /* the op would take the middle */
        same = same && n == numbers[2];
        size.at[i - 2] = result > 0 && result < 0x1p31 ? (int64_t)result : 0;
    }
    if (scaled && same && !m->corners) {
        *y = gd_resize(x, .scale = numbers[2], .mode = mode);
        return;
    }
    for (int i = 2; i < x->rank; i++) /* exact factors can be replaced by sizes */
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
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(read_mode(node, &m));
    GD_TRY(get_nonempty_list(l, node, 2, &scales));
    GD_TRY(get_nonempty_list(l, node, 3, &sizes));
    if (!scales == !sizes) return gd_fail(GD_E_FORMAT, "it needs either scales or sizes");
    gd_tensor *list = scales ? scales : sizes;
    if (list->kind == GD_SYMBOL && (!m.is_op || scales))
        return gd_fail(
            GD_E_UNSUPPORTED,
            "its %s are known only when the graph runs; that is supported for sizes with mode "
            "nearest (asymmetric, floor) and mode linear (half_pixel or align_corners)",
            scales ? "scales" : "sizes");
    if (list->kind == GD_SYMBOL || (sizes && m.is_op && m.first && gd_has_unknown(&x, 1)))
        return resize_symbolic(l, node, x, sizes, &m);
    GD_TRY(read_axes(node, x, list, &count, axes));
    const gd_tracing tracing = gd_tracing_off();
    status = read_numbers(list, x->rank, count, axes, numbers);
    gd_tracing_on(tracing);
    GD_TRY(status);
    if (m.is_op) resize_by_op(x, scales != NULL, numbers, &m, &y);
    if (!y) GD_TRY(gd_onnx_resize_axes(node, x, scales != NULL, numbers, &y));
    return gd_onnx_set_output(l, node, 0, y);
}
