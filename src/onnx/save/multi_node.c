/* multi_node.c - ops that become several ONNX nodes, or one node with inputs that must be computed.
 *
 * Each function saves one op. Order: arithmetic; constants; sorting and indices; pooling.
 */
#include <string.h>

#include "core/copy.h"
#include "core/integer.h"
#include "gradus/ops.h"
#include "onnx/save/save.h"

static const char *add_list(gd_onnx_saver *s, const gd_onnx_call *c, int count,
                            const int64_t *numbers) {
    return gd_onnx_add_constant(s, c->label, GD_I64, 1, &(int64_t){count}, numbers);
}

static bool has_known_sizes(const gd_slot *x) {
    for (int i = 0; i < x->rank; i++)
        if (x->dims[i] == GD_UNKNOWN) return false;
    return true;
}

static const char *cast_input(gd_onnx_saver *s, const gd_onnx_call *c, int i, gd_dtype to) {
    return c->in[i].dtype == to ? c->in_names[i]
                                : gd_onnx_put_cast(s, c->label, c->in_names[i], to, NULL);
}

/* --- arithmetic ------------------------------------------------------------------------------- */

/* ONNX's Div of integers truncates. This subtracts 1 if there is a remainder and a and b have
 * different signs. */
gd_status gd_onnx_save_floor_divide(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_dtype dtype = (gd_dtype)c->out[0].dtype;
    const char *a = cast_input(s, c, 0, dtype), *b = cast_input(s, c, 1, dtype),
               *zero = gd_onnx_add_number(s, c->label, dtype, gd_number_of(0));
    if (!a || !b || !zero) return GD_E_MEMORY;
    const char *quotient = gd_onnx_put_node(s, c->label, "Div", GD_ONNX_INPUTS(a, b), NULL, NULL),
               *rest = gd_onnx_put_node(s, c->label, "Mod", GD_ONNX_INPUTS(a, b), NULL, NULL),
               *a_sign = gd_onnx_put_node(s, c->label, "Less", GD_ONNX_INPUTS(a, zero), NULL, NULL),
               *b_sign = gd_onnx_put_node(s, c->label, "Less", GD_ONNX_INPUTS(b, zero), NULL, NULL);
    if (!quotient || !rest || !a_sign || !b_sign) return GD_E_MEMORY;
    const char *has_rest = gd_onnx_put_cast(s, c->label, rest, GD_BOOL, NULL),
               *differ =
                   gd_onnx_put_node(s, c->label, "Xor", GD_ONNX_INPUTS(a_sign, b_sign), NULL, NULL);
    if (!has_rest || !differ) return GD_E_MEMORY;
    const char *both =
        gd_onnx_put_node(s, c->label, "And", GD_ONNX_INPUTS(has_rest, differ), NULL, NULL);
    const char *correction = both ? gd_onnx_put_cast(s, c->label, both, dtype, NULL) : NULL;
    if (!correction || !gd_onnx_put_node(s, c->label, "Sub", GD_ONNX_INPUTS(quotient, correction),
                                         c->out_names[0], NULL))
        return GD_E_MEMORY;
    *done = true;
    return GD_OK;
}

/* --- constants -------------------------------------------------------------------------------- */

/* The number, expanded to the shape of x. */
gd_status gd_onnx_save_full_like(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_full_like_options *o = c->attrs;
    const char *number = gd_onnx_add_number(s, c->label, (gd_dtype)c->out[0].dtype, o->value);
    const char *shape = has_known_sizes(&c->in[0])
                            ? add_list(s, c, c->in[0].rank, c->in[0].dims)
                            : gd_onnx_put_node(s, c->label, "Shape", 1, c->in_names, NULL, NULL);
    if (!number || !shape ||
        !gd_onnx_put_node(s, c->label, "Expand", GD_ONNX_INPUTS(number, shape), c->out_names[0],
                          NULL))
        return GD_E_MEMORY;
    *done = true;
    return GD_OK;
}

/* --- shapes with unknown sizes ---------------------------------------------------------------- */

/* flatten and unflatten as Reshape: axes in front keep their sizes, which are 0 in its list, and one
 * other size may be -1. */
gd_status gd_onnx_save_axes(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_slot *x = &c->in[0], *y = &c->out[0];
    int64_t dims[GD_MAX_RANK];
    int64_t same; /* axes in front that the op leaves alone */
    int open = 0; /* sizes that are -1 */
    const gd_op_attr *axis = gd_onnx_find_option(c->op, "axis");
    gd_onnx_option_numbers(axis ? axis : gd_onnx_find_option(c->op, "start_axis"), c->attrs, &same);
    if (same < 0) same += x->rank;
    for (int i = 0; i < y->rank; i++) {
        dims[i] = y->dims[i];
        if (dims[i] == 0) return GD_OK; /* it would copy a size */
        if (dims[i] != GD_UNKNOWN) continue;
        if (i < same) dims[i] = 0;
        else open++;
    }
    if (open > 1) return GD_OK;
    const char *list = add_list(s, c, y->rank, dims);
    if (!list || !gd_onnx_put_node(s, c->label, "Reshape", GD_ONNX_INPUTS(c->in_names[0], list),
                                   c->out_names[0], NULL))
        return GD_E_MEMORY;
    *done = true;
    return GD_OK;
}

/* Causal attention with unknown lengths: the op's body has a constant mask of known size. */
gd_status gd_onnx_save_causal(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    if (has_known_sizes(&c->in[0]) && has_known_sizes(&c->in[1])) return GD_OK;
    return gd_onnx_save_body(s, c, gd_onnx_causal_body, 0, done);
}

/* --- sorting and indices ---------------------------------------------------------------------- */

/* TopK of all elements of the axis. */
gd_status gd_onnx_save_sort(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const gd_sort_options *o = c->attrs;
    const gd_slot *x = &c->in[0];
    const int64_t axis = o->axis < 0 ? o->axis + x->rank : o->axis;
    const char *count;
    gd_pb *node;
    if (x->rank == 0 || x->dtype == GD_BOOL || x->dtype == GD_BF16) return GD_OK;
    if (x->dims[axis] == GD_UNKNOWN) {
        count = gd_onnx_put_node(s, c->label, "Shape", 1, c->in_names, NULL, &node);
        if (!count) return GD_E_MEMORY;
        gd_onnx_put_int(node, "start", axis);
        gd_onnx_put_int(node, "end", axis + 1);
    } else {
        count = add_list(s, c, 1, &x->dims[axis]);
    }
    if (!count || !gd_onnx_put_node(s, c->label, "TopK", GD_ONNX_INPUTS(c->in_names[0], count),
                                    c->out_names[0], &node))
        return GD_E_MEMORY;
    gd_pb_put_string(node, "output", c->out_names[1]);
    gd_onnx_put_int(node, "axis", axis);
    gd_onnx_put_int(node, "largest", o->descending);
    gd_onnx_put_int(node, "sorted", 1);
    *done = true;
    return GD_OK;
}

gd_status gd_onnx_save_one_hot(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    const bool is_one_hot = strcmp(c->op->name, "one_hot") == 0;
    const gd_one_hot_options *one_hot = c->attrs;
    const gd_one_hot_classes_options *one_hot_classes = c->attrs;
    const int64_t count = is_one_hot ? one_hot->classes : one_hot_classes->classes;
    const gd_dtype dtype = is_one_hot ? one_hot->dtype : one_hot_classes->dtype;
    char bytes[16];
    const size_t size = gd_dtype_bytes(dtype);
    if (c->in[0].rank == 0 || count < 1) return GD_OK; /* ONNX needs an axis and a depth */
    gd_store_f64(dtype, bytes, 0);
    gd_store_f64(dtype, bytes + size, 1);
    const char *x = cast_input(s, c, 0, GD_I64),
               *classes = gd_onnx_add_constant(s, c->label, GD_I64, 0, NULL, &count),
               *values = gd_onnx_add_constant(s, c->label, dtype, 1, &(int64_t){2}, bytes);
    if (!x || !classes || !values ||
        !gd_onnx_put_node(s, c->label, "OneHot", GD_ONNX_INPUTS(x, classes, values),
                          c->out_names[0], NULL))
        return GD_E_MEMORY;
    *done = true;
    return GD_OK;
}

/* ONNX returns a column for each element, the op a row. */
gd_status gd_onnx_save_nonzero(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    gd_pb *node;
    if (c->in[0].rank == 0) return GD_OK; /* ONNX needs an axis */
    const char *columns = gd_onnx_put_node(s, c->label, "NonZero", 1, c->in_names, NULL, NULL);
    if (!columns ||
        !gd_onnx_put_node(s, c->label, "Transpose", 1, &columns, c->out_names[0], &node))
        return GD_E_MEMORY;
    gd_onnx_put_ints(node, "perm", 2, (const int64_t[]){1, 0});
    *done = true;
    return GD_OK;
}

/* --- pooling ---------------------------------------------------------------------------------- */

/* The number of elements of a plane of x (N, C, ...), as a value of the file. */
static const char *plane_size(gd_onnx_saver *s, const gd_onnx_call *c) {
    const gd_slot *x = &c->in[0];
    gd_pb *node;
    int64_t elements = 1;
    bool known = true;
    for (int i = 2; i < x->rank; i++) {
        known = known && x->dims[i] != GD_UNKNOWN;
        if (known && __builtin_mul_overflow(elements, x->dims[i], &elements)) return NULL;
    }
    if (known) return gd_onnx_add_constant(s, c->label, GD_I64, 0, NULL, &elements);
    const char *sizes = gd_onnx_put_node(s, c->label, "Shape", 1, c->in_names, NULL, &node);
    if (!sizes) return NULL;
    gd_onnx_put_int(node, "start", 2);
    const char *product = gd_onnx_put_node(s, c->label, "ReduceProd", 1, &sizes, NULL, &node);
    if (product) gd_onnx_put_int(node, "keepdims", 0);
    return product;
}

/* Whether a dilated window may have only padding: the op returns index -1 there, and ONNX does not
 * define it. */
static bool may_have_empty_windows(const gd_onnx_call *c) {
    int64_t padding[GD_MAX_RANK], dilation[GD_MAX_RANK];
    const int n = gd_onnx_option_numbers(gd_onnx_find_option(c->op, "padding"), c->attrs, padding);
    gd_onnx_option_numbers(gd_onnx_find_option(c->op, "dilation"), c->attrs, dilation);
    for (int i = 0; i < n; i++)
        if (padding[i] > 0 && dilation[i] > 1) return true;
    return false;
}

/* ONNX's indices are flat indices of x; the op's are relative to a plane. */
gd_status gd_onnx_save_max_pool_indices(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    gd_onnx_row row;
    if (!gd_onnx_next_row(c->op, &(int){0}, &row) || c->in[0].dtype == GD_BF16 ||
        c->in[0].rank < 3 || may_have_empty_windows(c))
        return GD_OK;
    const char *plane = plane_size(s, c), *flat = gd_onnx_unique_name(s, c->label, "/part");
    if (!plane || !flat) return GD_E_MEMORY;
    gd_onnx_call max_pool = *c;
    max_pool.out_names = (const char *[]){c->out_names[0], flat};
    GD_TRY(gd_onnx_save_row(s, &max_pool, &row));
    if ((c->used >> 1 & 1) &&
        !gd_onnx_put_node(s, c->label, "Mod", GD_ONNX_INPUTS(flat, plane), c->out_names[1], NULL))
        return GD_E_MEMORY;
    *done = true;
    return GD_OK;
}

/* One window over all elements of a plane. */
gd_status gd_onnx_save_adaptive(gd_onnx_saver *s, const gd_onnx_call *c, bool *done) {
    int64_t size[GD_MAX_RANK];
    const int n = gd_onnx_option_numbers(gd_onnx_find_option(c->op, "size"), c->attrs, size);
    if (n < 1 || c->in[0].rank != n + 2 || c->in[0].dtype == GD_BF16) return GD_OK;
    for (int i = 0; i < n; i++)
        if (size[i] != 1) return GD_OK;
    gd_onnx_put_unary(s, strstr(c->op->name, "max") ? "GlobalMaxPool" : "GlobalAveragePool",
                      c->in_names[0], c->out_names[0]);
    *done = true;
    return GD_OK;
}
