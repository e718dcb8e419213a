/* sequence.c - sequences of tensors. Gradus has no such values: the loader keeps a sequence as a
 * list of tensors, so its length must be known at load time. */
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"
#include "dispatch/call.h"

enum { MAX_ITEMS = 1 << 12 };

/* --- values that are sequences ---------------------------------------------------------------- */

static gd_status get_sequence(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_onnx_value **v) {
    const char *name = gd_pb_string_at(node, "input", i);
    if (!*name) return gd_fail(GD_E_FORMAT, "its input %zu is missing", i);
    GD_TRY(gd_onnx_find_value(l, name, v));
    if ((*v)->items) return GD_OK;
    return gd_fail(GD_E_FORMAT, "its input '%.200s' must be a sequence", name);
}

/* Adds a sequence of `count` elements as the output of the node. */
static gd_status add_sequence(gd_onnx_loader *l, const gd_pb *node, int64_t count,
                              gd_onnx_value **v) {
    if (count < 0 || count > MAX_ITEMS)
        return gd_fail(GD_E_UNSUPPORTED, "its sequence has %lld elements; at most %d are supported",
                       (long long)count, MAX_ITEMS);
    GD_TRY(gd_onnx_add_value(l, gd_pb_string_at(node, "output", 0), v));
    (*v)->items = gd_calloc((size_t)count + 1, sizeof *(*v)->items);
    (*v)->n_items = count;
    return (*v)->items ? GD_OK : gd_no_memory(NULL, "to load a graph");
}

/* The position in input i, from 0 to `last`. A negative one counts from the end of `count`
 * elements. */
static gd_status read_position(gd_onnx_loader *l, const gd_pb *node, size_t i, int64_t count,
                               int64_t last, int64_t *at) {
    int64_t numbers[GD_ONNX_MAX_NUMBERS];
    int n;
    GD_TRY(gd_onnx_get_numbers(l, node, i, "", &n, numbers));
    if (n != 1) return gd_fail(GD_E_FORMAT, "its position must be one number");
    *at = numbers[0] < 0 ? numbers[0] + count : numbers[0];
    if (*at >= 0 && *at <= last) return GD_OK;
    return gd_fail(GD_E_INDEX, "its position is %lld, in a sequence of %lld", (long long)numbers[0],
                   (long long)count);
}

/* --- nodes ------------------------------------------------------------------------------------ */

gd_status gd_onnx_load_sequence_construct(gd_onnx_loader *l, const gd_pb *node) {
    const size_t n = gd_onnx_input_count(node);
    gd_onnx_value *v;
    GD_TRY(add_sequence(l, node, (int64_t)n, &v));
    for (size_t i = 0; i < n; i++) {
        GD_ONNX_REQUIRE_INPUT(x, i);
        v->items[i] = x;
    }
    return GD_OK;
}

gd_status gd_onnx_load_sequence_empty(gd_onnx_loader *l, const gd_pb *node) {
    gd_onnx_value *v;
    return add_sequence(l, node, 0, &v);
}

gd_status gd_onnx_load_sequence_at(gd_onnx_loader *l, const gd_pb *node) {
    gd_onnx_value *from;
    int64_t at;
    GD_TRY(get_sequence(l, node, 0, &from));
    GD_TRY(read_position(l, node, 1, from->n_items, from->n_items - 1, &at));
    return gd_onnx_set_output(l, node, 0, from->items[at]);
}

gd_status gd_onnx_load_sequence_length(gd_onnx_loader *l, const gd_pb *node) {
    gd_onnx_value *from;
    GD_TRY(get_sequence(l, node, 0, &from));
    return gd_onnx_set_output(l, node, 0, gd_from_array(gd_dims(), GD_I64, &from->n_items));
}

gd_status gd_onnx_load_sequence_insert(gd_onnx_loader *l, const gd_pb *node) {
    gd_onnx_value *from, *v;
    int64_t at;
    GD_ONNX_REQUIRE_INPUT(x, 1);
    GD_TRY(get_sequence(l, node, 0, &from));
    at = from->n_items; /* append */
    if (*gd_pb_string_at(node, "input", 2))
        GD_TRY(read_position(l, node, 2, from->n_items, from->n_items, &at));
    GD_TRY(add_sequence(l, node, from->n_items + 1, &v));
    for (int64_t i = 0; i < v->n_items; i++)
        v->items[i] = i == at ? x : from->items[i < at ? i : i - 1];
    return GD_OK;
}

gd_status gd_onnx_load_sequence_erase(gd_onnx_loader *l, const gd_pb *node) {
    gd_onnx_value *from, *v;
    GD_TRY(get_sequence(l, node, 0, &from));
    int64_t at = from->n_items - 1;
    if (from->n_items == 0) return gd_fail(GD_E_INDEX, "its sequence has no elements");
    if (*gd_pb_string_at(node, "input", 1))
        GD_TRY(read_position(l, node, 1, from->n_items, from->n_items - 1, &at));
    GD_TRY(add_sequence(l, node, from->n_items - 1, &v));
    for (int64_t i = 0; i < v->n_items; i++) v->items[i] = from->items[i < at ? i : i + 1];
    return GD_OK;
}

/* Concatenates along an axis, or stacks along a new one. */
gd_status gd_onnx_load_concat_from_sequence(gd_onnx_loader *l, const gd_pb *node) {
    gd_onnx_value *from;
    int64_t axis, new_axis;
    GD_TRY(get_sequence(l, node, 0, &from));
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(gd_onnx_int_attribute(node, "new_axis", 0, &new_axis));
    if (from->n_items < 1 || from->n_items > GD_MAX_VARIADIC)
        return gd_fail(GD_E_UNSUPPORTED, "it joins %lld tensors; from 1 to %d are supported",
                       (long long)from->n_items, GD_MAX_VARIADIC);
    const gd_tensors all = {from->items, from->n_items};
    return gd_onnx_set_output(l, node, 0,
                              new_axis ? gd_stack(all, .axis = axis) : gd_cat(all, .axis = axis));
}

/* The sizes of the pieces of an axis of size `total`: a list, or one size for all but the last
 * piece. */
static gd_status read_piece_sizes(gd_onnx_loader *l, const gd_pb *node, int64_t total,
                                  int64_t *count, int64_t **sizes) {
    int64_t numbers[GD_ONNX_MAX_NUMBERS] = {1};
    gd_tensor *list = NULL;
    int n = -1;
    if (*gd_pb_string_at(node, "input", 1)) GD_TRY(gd_onnx_get_list(l, node, 1, &list));
    if (list) GD_TRY(gd_onnx_get_numbers(l, node, 1, "", &n, numbers));
    if (n >= 0 && list->rank == 1) {
        *count = n;
    } else {
        if (total == GD_UNKNOWN || numbers[0] < 1)
            return gd_fail(GD_E_UNSUPPORTED,
                           "its number of pieces is known only when the graph runs");
        *count = total / numbers[0] + (total % numbers[0] != 0);
    }
    if (*count > MAX_ITEMS)
        return gd_fail(GD_E_UNSUPPORTED, "it splits into %lld pieces; at most %d are supported",
                       (long long)*count, MAX_ITEMS);
    *sizes = gd_calloc((size_t)*count + 1, sizeof **sizes);
    if (!*sizes) return gd_no_memory(NULL, "to load a graph");
    int64_t rest = total;
    for (int64_t k = 0; k < *count; k++) {
        if (n >= 0 && list->rank == 1) (*sizes)[k] = numbers[k];
        else (*sizes)[k] = numbers[0] < rest ? numbers[0] : rest;
        rest -= (*sizes)[k];
    }
    return GD_OK;
}

static gd_status split_axis(gd_onnx_loader *l, const gd_pb *node, gd_tensor *x, int64_t axis,
                            int64_t count, const int64_t *sizes, bool squeeze) {
    gd_onnx_value *v;
    int64_t at = 0;
    GD_TRY(add_sequence(l, node, count, &v));
    for (int64_t k = 0; k < count; k++) {
        int64_t end;
        if (sizes[k] < 0 || __builtin_add_overflow(at, sizes[k], &end) ||
            (x->dims[axis] != GD_UNKNOWN && end > x->dims[axis]))
            return gd_fail(GD_E_SHAPE, "its pieces do not fit the size %lld",
                           (long long)x->dims[axis]);
        gd_tensor *piece = gd_slice(x, .axis = axis, .start = at, .stop = end);
        v->items[k] = squeeze ? gd_squeeze(piece, .axis = axis) : piece;
        if (v->items[k]->kind == GD_FAILED) return gd_failure();
        at = end;
    }
    if (x->dims[axis] != GD_UNKNOWN && at != x->dims[axis])
        return gd_fail(GD_E_SHAPE, "its pieces add up to %lld, and the size is %lld", (long long)at,
                       (long long)x->dims[axis]);
    return GD_OK;
}

gd_status gd_onnx_load_split_to_sequence(gd_onnx_loader *l, const gd_pb *node) {
    int64_t axis, keep, count, *sizes = NULL;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(gd_onnx_int_attribute(node, "axis", 0, &axis));
    GD_TRY(gd_onnx_int_attribute(node, "keepdims", 1, &keep));
    GD_TRY(gd_onnx_normalize_axis(&axis, x->rank));
    gd_status status = read_piece_sizes(l, node, x->dims[axis], &count, &sizes);
    const bool squeeze = !keep && !*gd_pb_string_at(node, "input", 1);
    if (status == GD_OK) status = split_axis(l, node, x, axis, count, sizes, squeeze);
    gd_free(sizes);
    return status;
}
