/* shape.c - Reshape, Flatten, Unsqueeze, Expand, Transpose, Tile, DepthToSpace and SpaceToDepth. */
#include <stdlib.h>
#include <string.h>

#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"

/* For a Reshape that keeps an unknown size of x at axis `kept` and infers another one (-1). If x
 * has no other unknown size, the kept one cancels out, and the inferred size follows from the known
 * ones. Returns false if it cannot be inferred. */
static bool infer_size(const gd_tensor *x, int rank, int64_t *dims, int kept) {
    int64_t x_known = 1, y_known = 1;
    int inferred = -1, unknown = 0;
    for (int i = 0; i < x->rank; i++) {
        if (x->dims[i] == GD_UNKNOWN) unknown++;
        else if (__builtin_mul_overflow(x_known, x->dims[i], &x_known)) return false;
    }
    for (int i = 0; i < rank; i++) {
        if (i == kept) continue;
        if (dims[i] == -1) inferred = i;
        else if (__builtin_mul_overflow(y_known, dims[i], &y_known)) return false;
    }
    if (inferred < 0) return true;
    if (unknown != 1 || y_known <= 0 || x_known % y_known) return false;
    dims[inferred] = x_known / y_known;
    return true;
}

gd_status gd_onnx_load_reshape(gd_onnx_loader *l, const gd_pb *node) {
    int64_t dims[GD_ONNX_MAX_NUMBERS], zero;
    int rank, kept = -1, n_inferred = 0;
    gd_tensor *list;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "allowzero", 0, &zero));
    GD_TRY(gd_onnx_get_list(l, node, 1, &list));
    const gd_deferred_call_options o = {.kind = GD_DEFERRED_RESHAPE, .zero = zero != 0};
    if (gd_onnx_is_symbolic(list)) return gd_onnx_set_deferred_output(l, node, o, x, &list, 1);
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "shape", &rank, dims));
    if (rank < 0 || rank > GD_MAX_RANK) return gd_onnx_fail_too_long("its shape", rank);
    for (int i = 0; i < rank; i++) { /* 0 copies the size of x */
        if (dims[i] == 0 && !zero) {
            if (i >= x->rank)
                return gd_fail(
                    GD_E_SHAPE,
                    "dimension %d is copied from its input, which has only %d dimensions", i,
                    x->rank);
            dims[i] = x->dims[i];
            if (dims[i] == GD_UNKNOWN) kept = i; /* GD_UNKNOWN is -1, too */
        }
        n_inferred += dims[i] == -1;
    }
    if (kept >= 0 && n_inferred > 1 && !infer_size(x, rank, dims, kept))
        return list ? gd_onnx_set_deferred_output(l, node, o, x, &list, 1)
                    : gd_fail(GD_E_UNSUPPORTED, "two of its sizes are not known");
    return gd_onnx_set_output(l, node, 0, gd_reshape(x, gd_shape_of(rank, dims)));
}

/* The result is a matrix: axes before `axis`, and axes from `axis` on. */
gd_status gd_onnx_load_flatten(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis;
    gd_onnx_size sides[2] = {gd_onnx_known_size(1), gd_onnx_known_size(1)}, size;
    gd_tensor *y;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 1, &axis));
    if (axis < 0) axis += x->rank;
    if (axis < 0 || axis > x->rank)
        return gd_fail(GD_E_INDEX, "its axis is %lld, and its input has %d dimensions",
                       (long long)axis, x->rank);
    for (int i = 0; i < x->rank; i++) {
        GD_TRY(gd_onnx_size_of(x, i, &size));
        GD_TRY(gd_onnx_size_multiply(sides[i >= axis], size, &sides[i >= axis]));
    }
    GD_TRY(gd_onnx_reshape_to(l, x, 2, sides, &y));
    return gd_onnx_set_output(l, node, 0, y);
}

static int compare_axes(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

gd_status gd_onnx_load_unsqueeze(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axes[GD_ONNX_MAX_NUMBERS];
    int count;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "axes", &count, axes));
    if (count < 1 || x->rank + count > GD_MAX_RANK)
        return gd_onnx_fail_too_long("the list of its axes", count);
    for (int i = 0; i < count; i++) GD_TRY(gd_onnx_normalize_axis(&axes[i], x->rank + count));
    qsort(axes, (size_t)count, sizeof *axes, compare_axes);
    gd_tensor *y = x;
    for (int i = 0; i < count; i++) y = gd_unsqueeze(y, axes[i]);
    return gd_onnx_set_output(l, node, 0, y);
}

/* The shape of x and the list broadcast to each other: a size of 1 in the list keeps that of x. */
gd_status gd_onnx_load_expand(gd_onnx_loader *l, const gd_pb *node) {
    int64_t dims[GD_ONNX_MAX_NUMBERS];
    int count;
    gd_tensor *list;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_get_list(l, node, 1, &list));
    if (gd_onnx_is_symbolic(list))
        return gd_onnx_set_deferred_output(
            l, node, (gd_deferred_call_options){.kind = GD_DEFERRED_EXPAND}, x, &list, 1);
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "shape", &count, dims));
    if (count < 0 || count > GD_MAX_RANK) return gd_onnx_fail_too_long("its shape", count);
    gd_shape result = {.rank = count > x->rank ? count : x->rank, .form = 1};
    for (int i = 0; i < result.rank; i++) {
        const int k = i - (result.rank - count), axis = i - (result.rank - x->rank);
        const int64_t size = k >= 0 ? dims[k] : 1;
        result.at[i] = size == 1 && axis >= 0 ? -1 : size;
    }
    return gd_onnx_set_output(l, node, 0, gd_expand(x, result));
}

gd_status gd_onnx_load_transpose(gd_onnx_loader *l, const gd_pb *node) {
    const gd_pb_list *perm = gd_pb_get(gd_onnx_find_attribute(node, "perm"), "ints");
    GD_ONNX_REQUIRE_INPUT(x, 0);
    gd_shape axes = {.rank = x->rank, .form = 1};
    if (perm && perm->count != (size_t)x->rank)
        return gd_fail(GD_E_SHAPE, "its perm has %zu axes, and its input %d dimensions",
                       perm->count, x->rank);
    for (int i = 0; i < x->rank; i++) axes.at[i] = perm ? perm->ints[i] : x->rank - 1 - i;
    return gd_onnx_set_output(l, node, 0, gd_permute(x, axes));
}

gd_status gd_onnx_load_tile(gd_onnx_loader *l, const gd_pb *node) {
    gd_tensor *list;
    gd_numbers numbers;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_get_list(l, node, 1, &list));
    if (!list) return gd_fail(GD_E_FORMAT, "its repeats are missing");
    const gd_deferred_call_options o = {.kind = GD_DEFERRED_REPEAT};
    if (gd_onnx_is_symbolic(list)) return gd_onnx_set_deferred_output(l, node, o, x, &list, 1);
    GD_TRY(gd_deferred_numbers(list, &numbers));
    return gd_onnx_set_output(l, node, 0, gd_deferred_now(&o, x, &numbers, 1));
}

/* x (N, C, H, W): moves b*b channels into blocks of b*b elements, or blocks into channels. */
static gd_status move_blocks(gd_onnx_loader *l, const gd_pb *node, bool to_space) {
    static const int64_t orders[3][6] = {
        {0, 3, 4, 1, 5, 2},  /* (N, b, b, C, H, W), DepthToSpace DCR */
        {0, 1, 4, 2, 5, 3},  /* (N, C, b, b, H, W), CRD */
        {0, 3, 5, 1, 2, 4}}; /* (N, C, H, b, W, b), SpaceToDepth */
    int64_t b;
    gd_onnx_size s[4], block, split[6], result[4];
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "blocksize", 0, &b));
    if (x->rank != 4 || b < 1 || b > INT16_MAX)
        return gd_fail(GD_E_FORMAT, "it needs 4 dimensions and a blocksize, not %d and %lld",
                       x->rank, (long long)b);
    const bool crd = gd_onnx_attribute_is(node, "mode", "DCR", "CRD");
    for (int i = 0; i < 4; i++) GD_TRY(gd_onnx_size_of(x, i, &s[i]));
    block = gd_onnx_known_size(b);
    if (to_space) {
        gd_onnx_size c;
        GD_TRY(gd_onnx_size_divide(s[1], b * b, &c));
        const gd_onnx_size dcr_split[] = {s[0], block, block, c, s[2], s[3]},
                           crd_split[] = {s[0], c, block, block, s[2], s[3]};
        memcpy(split, crd ? crd_split : dcr_split, sizeof split);
        result[1] = c;
        for (int i = 2; i < 4; i++) GD_TRY(gd_onnx_size_multiply(s[i], block, &result[i]));
    } else {
        GD_TRY(gd_onnx_size_multiply(s[1], gd_onnx_known_size(b * b), &result[1]));
        for (int i = 2; i < 4; i++) GD_TRY(gd_onnx_size_divide(s[i], b, &result[i]));
        const gd_onnx_size tiles[] = {s[0], s[1], result[2], block, result[3], block};
        memcpy(split, tiles, sizeof split);
    }
    result[0] = s[0];
    gd_tensor *y;
    GD_TRY(gd_onnx_reshape_to(l, x, 6, split, &y));
    y = gd_permute(y, gd_shape_of(6, orders[!to_space ? 2 : crd]));
    GD_TRY(gd_onnx_reshape_to(l, y, 4, result, &y));
    return gd_onnx_set_output(l, node, 0, y);
}
gd_status gd_onnx_load_depth_to_space(gd_onnx_loader *l, const gd_pb *node) {
    return move_blocks(l, node, true);
}
gd_status gd_onnx_load_space_to_depth(gd_onnx_loader *l, const gd_pb *node) {
    return move_blocks(l, node, false);
}
