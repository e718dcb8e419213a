/* special.c - ops that ONNX says in nodes which no op of ours is. */
#include <math.h>
#include <string.h>

#include "core/copy.h"
#include "core/integer.h"
#include "core/number.h"
#include "gradus/ops.h"
#include "onnx/save/save.h"
#include "ops/late.h"

/* --- pieces ----------------------------------------------------------------------------------- */

/* A node of up to three inputs, and the name of its result: `to`, or a new one where it is NULL. */
static gd_pb *put_node(gd_onnx_saver *s, const gd_onnx_call *c, const char *op_type,
                       const char *const in[3], const char *to, const char **result) {
    *result = to ? to : gd_onnx_unique_name(s, c->label, "/part");
    gd_pb *node = gd_onnx_add_node(s, op_type, "", *result ? *result : c->label);
    for (int i = 0; i < 3 && in[i]; i++) gd_pb_put_string(node, "input", in[i]);
    if (*result) gd_pb_put_string(node, "output", *result);
    return node;
}
#define INPUTS(...) ((const char *const[3]){__VA_ARGS__})

static const char *put_exact(gd_onnx_saver *s, const gd_onnx_call *c, gd_dtype dtype,
                             gd_number value) {
    char bytes[8];
    if (gd_dtype_is_int(dtype)) gd_store_i64(dtype, bytes, gd_number_i64(value));
    else gd_store_f64(dtype, bytes, value.value);
    return gd_onnx_add_constant(s, c->label, dtype, 0, NULL, bytes);
}
static const char *put_number(gd_onnx_saver *s, const gd_onnx_call *c, gd_dtype dtype,
                              double value) {
    return put_exact(s, c, dtype, gd_number_of(value));
}

static const char *put_list(gd_onnx_saver *s, const gd_onnx_call *c, int count,
                            const int64_t *numbers) {
    return gd_onnx_add_constant(s, c->label, GD_I64, 1, &(int64_t){count}, numbers);
}

static bool is_known(const gd_slot *x) {
    for (int i = 0; i < x->rank; i++)
        if (x->dims[i] == GD_UNKNOWN) return false;
    return true;
}

static const char *cast_to(gd_onnx_saver *s, const gd_onnx_call *c, const char *name, gd_dtype from,
                           gd_dtype to) {
    const char *result = name;
    if (from == to) return name;
    gd_onnx_put_int(put_node(s, c, "Cast", INPUTS(name), NULL, &result), "to", gd_onnx_type_of(to));
    return result;
}

/* --- whole numbers ---------------------------------------------------------------------------- */

/* ONNX divides towards 0: one less, where something is left and a and b lie on different sides of
 * 0. */
gd_status gd_onnx_save_floor_divide(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_dtype dtype = (gd_dtype)c->out[0].dtype;
    const char *a = cast_to(s, c, c->in_names[0], (gd_dtype)c->in[0].dtype, dtype),
               *b = cast_to(s, c, c->in_names[1], (gd_dtype)c->in[1].dtype, dtype),
               *zero = put_number(s, c, dtype, 0), *t[8];
    if (!a || !b || !zero) return GD_E_MEMORY;
    put_node(s, c, "Div", INPUTS(a, b), NULL, &t[0]);
    put_node(s, c, "Mod", INPUTS(a, b), NULL, &t[1]);
    put_node(s, c, "Less", INPUTS(a, zero), NULL, &t[2]);
    put_node(s, c, "Less", INPUTS(b, zero), NULL, &t[3]);
    t[4] = t[1] ? cast_to(s, c, t[1], dtype, GD_BOOL) : NULL;
    put_node(s, c, "Xor", INPUTS(t[2], t[3]), NULL, &t[5]);
    put_node(s, c, "And", INPUTS(t[4], t[5]), NULL, &t[6]);
    for (int i = 0; i < 7; i++)
        if (!t[i]) return GD_E_MEMORY;
    const char *less = cast_to(s, c, t[6], GD_BOOL, dtype);
    if (!less) return GD_E_MEMORY;
    put_node(s, c, "Sub", INPUTS(t[0], less), c->out_names[0], &t[7]);
    *done = true;
    return GD_OK;
}

/* --- constants -------------------------------------------------------------------------------- */

/* One number, as often as x has elements. */
gd_status gd_onnx_save_full_like(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_full_like_options *o = c->attrs;
    const char *number = put_exact(s, c, (gd_dtype)c->out[0].dtype, o->value), *shape;
    if (is_known(&c->in[0])) shape = put_list(s, c, c->in[0].rank, c->in[0].dims);
    else put_node(s, c, "Shape", INPUTS(c->in_names[0]), NULL, &shape);
    if (!number || !shape) return GD_E_MEMORY;
    put_node(s, c, "Expand", INPUTS(number, shape), c->out_names[0], &shape);
    *done = true;
    return GD_OK;
}

/* --- indices ---------------------------------------------------------------------------------- */

/* The largest n of n. */
gd_status gd_onnx_save_sort(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_sort_options *o = c->attrs;
    const gd_slot *x = &c->in[0];
    const int64_t axis = o->axis < 0 ? o->axis + x->rank : o->axis;
    const char *count, *unused;
    if (x->rank == 0 || x->dtype == GD_BOOL || x->dtype == GD_BF16) return GD_OK;
    if (x->dims[axis] == GD_UNKNOWN) {
        gd_pb *shape = put_node(s, c, "Shape", INPUTS(c->in_names[0]), NULL, &count);
        gd_onnx_put_int(shape, "start", axis);
        gd_onnx_put_int(shape, "end", axis + 1);
    } else {
        count = put_list(s, c, 1, &x->dims[axis]);
    }
    if (!count) return GD_E_MEMORY;
    gd_pb *node = put_node(s, c, "TopK", INPUTS(c->in_names[0], count), c->out_names[0], &unused);
    gd_pb_put_string(node, "output", c->out_names[1]);
    gd_onnx_put_int(node, "axis", axis);
    gd_onnx_put_int(node, "largest", o->descending);
    gd_onnx_put_int(node, "sorted", 1);
    *done = true;
    return GD_OK;
}

gd_status gd_onnx_save_one_hot(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const bool found = strcmp(c->op->name, "one_hot") == 0; /* it may have to count them */
    const gd_one_hot_options *any = c->attrs;
    const gd_one_hot_classes_options *own = c->attrs;
    const int64_t count = found ? any->classes : own->classes;
    const gd_dtype dtype = found ? any->dtype : own->dtype;
    char bytes[16];
    const size_t size = gd_dtype_bytes(dtype);
    if (c->in[0].rank == 0 || count < 1) return GD_OK; /* ONNX wants axes, and a number */
    gd_store_f64(dtype, bytes, 0);
    gd_store_f64(dtype, bytes + size, 1);
    const char *x = cast_to(s, c, c->in_names[0], (gd_dtype)c->in[0].dtype, GD_I64),
               *classes = gd_onnx_add_constant(s, c->label, GD_I64, 0, NULL, &count),
               *values = gd_onnx_add_constant(s, c->label, dtype, 1, &(int64_t){2}, bytes), *unused;
    if (!x || !classes || !values) return GD_E_MEMORY;
    put_node(s, c, "OneHot", INPUTS(x, classes, values), c->out_names[0], &unused);
    *done = true;
    return GD_OK;
}

/* ONNX's is a column for each; ours a row. */
gd_status gd_onnx_save_nonzero(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const char *columns, *unused;
    if (c->in[0].rank == 0) return GD_OK; /* ONNX wants axes */
    put_node(s, c, "NonZero", INPUTS(c->in_names[0]), NULL, &columns);
    if (!columns) return GD_E_MEMORY;
    gd_pb *node = put_node(s, c, "Transpose", INPUTS(columns), c->out_names[0], &unused);
    gd_onnx_put_ints(node, "perm", 2, (const int64_t[]){1, 0});
    *done = true;
    return GD_OK;
}

/* How many elements a plane of x (N, C, ...) has, as a name. */
static const char *plane_size(gd_onnx_saver *s, const gd_onnx_call *c) {
    const gd_slot *x = &c->in[0];
    const char *sizes, *product;
    int64_t all = 1;
    bool known = true;
    for (int i = 2; i < x->rank; i++) {
        known = known && x->dims[i] != GD_UNKNOWN;
        if (known && __builtin_mul_overflow(all, x->dims[i], &all)) return NULL;
    }
    if (known) return gd_onnx_add_constant(s, c->label, GD_I64, 0, NULL, &all);
    gd_onnx_put_int(put_node(s, c, "Shape", INPUTS(c->in_names[0]), NULL, &sizes), "start", 2);
    if (!sizes) return NULL;
    gd_onnx_put_int(put_node(s, c, "ReduceProd", INPUTS(sizes), NULL, &product), "keepdims", 0);
    return product;
}

/* A window of gaps may have nothing but padding in it: ours finds -1 there, and ONNX says nothing.
 */
static bool may_be_empty(const gd_onnx_call *c) {
    int64_t padding[GD_MAX_RANK], dilation[GD_MAX_RANK];
    const int n = gd_onnx_numbers(gd_onnx_option(c->op, "padding"), c->attrs, padding);
    gd_onnx_numbers(gd_onnx_option(c->op, "dilation"), c->attrs, dilation);
    for (int i = 0; i < n; i++)
        if (padding[i] > 0 && dilation[i] > 1) return true;
    return false;
}

/* ONNX's indices count all elements of x; ours those of a plane. */
gd_status gd_onnx_save_max_pool_indices(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_onnx_row *row = NULL;
    for (int i = 0; i < gd_onnx_row_count; i++)
        if (gd_onnx_rows[i].op && strcmp(gd_onnx_rows[i].op, c->op->name) == 0)
            row = &gd_onnx_rows[i];
    if (!row || c->in[0].dtype == GD_BF16 || c->in[0].rank < 3 || may_be_empty(c)) return GD_OK;
    const char *plane = plane_size(s, c), *all = gd_onnx_unique_name(s, c->label, "/part"), *unused;
    if (!plane || !all) return GD_E_MEMORY;
    gd_onnx_call whole = *c;
    whole.out_names = (const char *[]){c->out_names[0], all};
    GD_TRY(gd_onnx_save_by_row(s, &whole, row));
    if (c->used >> 1 & 1) put_node(s, c, "Mod", INPUTS(all, plane), c->out_names[1], &unused);
    *done = true;
    return GD_OK;
}

/* One window over all there is. */
gd_status gd_onnx_save_adaptive(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    int64_t size[GD_MAX_RANK];
    const int n = gd_onnx_numbers(gd_onnx_option(c->op, "size"), c->attrs, size);
    if (n < 1 || c->in[0].rank != n + 2 || c->in[0].dtype == GD_BF16) return GD_OK;
    for (int i = 0; i < n; i++)
        if (size[i] != 1) return GD_OK;
    gd_onnx_put_simple(s, strstr(c->op->name, "max") ? "GlobalMaxPool" : "GlobalAveragePool",
                       c->in_names[0], c->out_names[0]);
    *done = true;
    return GD_OK;
}

/* --- images ----------------------------------------------------------------------------------- */

static void put_resize_modes(gd_pb *node, bool linear, bool align_corners, bool first) {
    gd_onnx_put_string(node, "mode", linear ? "linear" : "nearest");
    gd_onnx_put_string(node, "coordinate_transformation_mode",
                       !linear         ? "asymmetric"
                       : align_corners ? "align_corners"
                       : first         ? "pytorch_half_pixel"
                                       : "half_pixel");
    if (!linear) gd_onnx_put_string(node, "nearest_mode", "floor");
}

/* By its sizes; by its factor where that was given, for it says where the elements lie. */
gd_status gd_onnx_save_resize(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_resize_options *o = c->attrs;
    const gd_slot *x = &c->in[0];
    const bool linear = o->mode == GD_LINEAR, scaled = !isnan(o->scale);
    int64_t dims[GD_MAX_RANK];
    float scales[GD_MAX_RANK];
    const char *numbers;
    if (x->dtype == GD_BF16 || (linear && scaled && o->align_corners)) return GD_OK;
    if (scaled && x->dtype == GD_F64 && gd_float_shortest((float)o->scale) != o->scale)
        return GD_OK;
    for (int i = 0; i < x->rank; i++) {
        dims[i] = c->out[0].dims[i];
        scales[i] = i < 2 ? 1 : (float)o->scale;
        if (!scaled && dims[i] == GD_UNKNOWN && i >= 2) return GD_OK;
        /* ONNX's factors are floats: they must round to the same size */
        if (scaled && x->dims[i] != GD_UNKNOWN &&
            (int64_t)floor((double)x->dims[i] * (double)scales[i]) != dims[i])
            return GD_OK;
    }
    const int64_t count = scaled ? x->rank : x->rank - 2, first = scaled ? 0 : 2;
    numbers = scaled ? gd_onnx_add_constant(s, c->label, GD_F32, 1, &count, scales)
                     : gd_onnx_add_constant(s, c->label, GD_I64, 1, &count, dims + first);
    if (!numbers) return GD_E_MEMORY;
    gd_pb *node = gd_onnx_add_node(s, "Resize", "", c->label);
    gd_pb_put_string(node, "input", c->in_names[0]);
    gd_pb_put_string(node, "input", "");
    if (!scaled) gd_pb_put_string(node, "input", "");
    gd_pb_put_string(node, "input", numbers);
    gd_pb_put_string(node, "output", c->out_names[0]);
    put_resize_modes(node, linear, o->align_corners, false);
    if (!scaled) { /* the batch and the channels keep their sizes, whatever they are */
        int64_t axes[GD_MAX_RANK];
        for (int i = 2; i < x->rank; i++) axes[i - 2] = i;
        gd_onnx_put_ints(node, "axes", x->rank - 2, axes);
    }
    *done = true;
    return GD_OK;
}

/* --- numbers that follow from sizes ----------------------------------------------------------- */

gd_status gd_onnx_save_sizes_of(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    gd_onnx_put_simple(s, "Shape", c->in_names[0], c->out_names[0]);
    *done = true;
    return GD_OK;
}

/* Resize has its sizes as its fourth input. */
static gd_status save_late_resize(gd_onnx_saver *s, const gd_onnx_call *c) {
    const gd_late_options *o = c->attrs;
    const bool linear = o->mode == GD_LINEAR;
    gd_pb *node = gd_onnx_add_node(s, "Resize", "", c->label);
    const char *const in[] = {c->in_names[0], "", "", c->in_names[1]};
    for (int i = 0; i < 4; i++) gd_pb_put_string(node, "input", in[i]);
    gd_pb_put_string(node, "output", c->out_names[0]);
    put_resize_modes(node, linear, o->align_corners, o->first);
    return GD_OK;
}

static gd_status save_late_pad(gd_onnx_saver *s, const gd_onnx_call *c) {
    const gd_late_options *o = c->attrs;
    const char *value = put_number(s, c, (gd_dtype)c->in[0].dtype, o->value);
    if (!value) return GD_E_MEMORY;
    gd_pb *node = gd_onnx_add_node(s, "Pad", "", c->label);
    const char *const in[] = {c->in_names[0], c->in_names[1], value};
    for (int i = 0; i < 3; i++) gd_pb_put_string(node, "input", in[i]);
    gd_pb_put_string(node, "output", c->out_names[0]);
    gd_onnx_put_string(node, "mode",
                       o->mode == GD_REFLECT     ? "reflect"
                       : o->mode == GD_REPLICATE ? "edge"
                       : o->mode == GD_CIRCULAR  ? "wrap"
                                                 : "constant");
    return GD_OK;
}

/* ONNX has these lists as tensors anyway. */
gd_status gd_onnx_save_late(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    static const char *const operators[GD_LATE_KINDS] = {
        [GD_LATE_RESHAPE] = "Reshape", [GD_LATE_EXPAND] = "Expand", [GD_LATE_SLICE] = "Slice",
        [GD_LATE_REPEAT] = "Tile",     [GD_LATE_SELECT] = "Gather", [GD_LATE_RANGE] = "Range"};
    const gd_late_options *o = c->attrs;
    *done = true;
    if (o->kind == GD_LATE_PAD) return save_late_pad(s, c);
    if (o->kind == GD_LATE_RESIZE) return save_late_resize(s, c);
    gd_pb *node = gd_onnx_add_node(s, operators[o->kind], "", c->label);
    for (int i = 0; i < c->n_in; i++) gd_pb_put_string(node, "input", c->in_names[i]);
    gd_pb_put_string(node, "output", c->out_names[0]);
    if (o->kind == GD_LATE_RESHAPE && o->zero) gd_onnx_put_int(node, "allowzero", 1);
    if (o->kind == GD_LATE_SELECT) gd_onnx_put_int(node, "axis", o->axis);
    return GD_OK;
}
