/* node_io.c - inputs and outputs of the node that is being loaded.
 *
 * Order: inputs as tensors, as numbers, as options; outputs, and whether they can be folded.
 */
#include <string.h>

#include "core/number.h"
#include "gradus/ops.h"
#include "onnx/load/load.h"
#include "dispatch/call.h"
#include "dispatch/probe.h"

enum { MAX_FOLDED = 1 << 16 }; /* elements of a value that is folded */

/* --- inputs ----------------------------------------------------------------------------------- */

size_t gd_onnx_input_count(const gd_pb *node) { return gd_pb_count(node, "input"); }

gd_tensor *gd_onnx_get_input(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_status *status) {
    const char *name = gd_pb_string_at(node, "input", i);
    gd_onnx_value *v;
    gd_tensor *t = NULL;
    *status = GD_OK;
    if (!*name) return NULL;
    *status = gd_onnx_find_value(l, name, &v);
    if (*status == GD_OK) *status = gd_onnx_value_tensor(v, &t);
    return t;
}

gd_status gd_onnx_fail_too_long(const char *list, int count) {
    return gd_fail(GD_E_UNSUPPORTED, "%s has %d numbers; at most %d are supported", list, count,
                   GD_MAX_RANK);
}

gd_tensor *gd_onnx_scalar_like(const gd_tensor *x, double value) {
    return gd_scalar_of(value, (gd_dtype)x->dtype);
}

gd_status gd_onnx_normalize_axis(int64_t *axis, int rank) {
    if (*axis < -rank || *axis >= rank)
        return gd_fail(GD_E_INDEX, "its axis is %lld, and its input has %d dimensions",
                       (long long)*axis, rank);
    if (*axis < 0) *axis += rank;
    return GD_OK;
}

/* The data of a value that must be constant. */
static gd_status require_constant(gd_onnx_loader *l, const char *name, gd_tensor **out) {
    GD_TRY(gd_onnx_constant_value(l, name, out));
    if (*out) return GD_OK;
    return gd_fail(
        GD_E_UNSUPPORTED,
        "its input '%.200s' is known only when the graph runs; here it must be a constant", name);
}

gd_status gd_onnx_set_number(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_attrs *attrs,
                             const char *option) {
    gd_tensor *t;
    GD_TRY(require_constant(l, gd_pb_string_at(node, "input", i), &t));
    if (gd_numel(t->rank, t->dims) != 1)
        return gd_fail(GD_E_FORMAT, "its input %zu must be one number", i);
    if (t->dtype == GD_I64) return gd_attrs_put_int(attrs, option, gd_item_int(t));
    const double number = gd_item(t);
    return gd_attrs_put_float(attrs, option,
                              t->dtype == GD_F32 ? gd_float_shortest((float)number) : number);
}

static gd_status read_integers(gd_onnx_loader *l, const char *name, int *count, int64_t *numbers) {
    gd_tensor *t;
    GD_TRY(require_constant(l, name, &t));
    const int64_t n = gd_numel(t->rank, t->dims);
    if (gd_dtype_is_float((gd_dtype)t->dtype) || t->rank > 1)
        return gd_fail(GD_E_FORMAT, "its input '%.200s' must be a list of integers", name);
    if (n > GD_ONNX_MAX_NUMBERS)
        return gd_fail(GD_E_UNSUPPORTED, "its input '%.200s' has %lld numbers", name, (long long)n);
    if (n == 0) {
        *count = 0;
        return GD_OK;
    }
    const gd_tracing tracing = gd_tracing_off();
    gd_tensor *integers = gd_cast(t, GD_I64);
    gd_tracing_on(tracing);
    GD_TRY(gd_copy_out(integers, numbers, (size_t)n * sizeof *numbers));
    *count = (int)n;
    return GD_OK;
}

gd_status gd_onnx_get_numbers(gd_onnx_loader *l, const gd_pb *node, size_t i, const char *attribute,
                              int *count, int64_t *numbers) {
    const char *name = gd_pb_string_at(node, "input", i);
    *count = -1;
    if (*name) return read_integers(l, name, count, numbers);
    const gd_pb *a = gd_onnx_find_attribute(node, attribute);
    const gd_pb_list *list = gd_pb_get(a, "ints");
    if (!a) return GD_OK;
    if (!list && gd_pb_count(a, "i")) list = gd_pb_get(a, "i");
    *count =
        list ? (int)(list->count < GD_ONNX_MAX_NUMBERS ? list->count : GD_ONNX_MAX_NUMBERS) : 0;
    if (*count) memcpy(numbers, list->ints, (size_t)*count * sizeof *numbers);
    return GD_OK;
}

/* --- outputs ---------------------------------------------------------------------------------- */

/* Whether a node depends on constants only, or on constants and sizes only. A node with subgraphs
 * is neither, since their reads are not examined. */
static void find_dependencies(gd_onnx_loader *l, const gd_pb *node, bool *constants, bool *sizes) {
    *constants = *sizes = true;
    for (size_t i = 0; i < gd_pb_count(node, "attribute"); i++)
        if (gd_pb_message(gd_pb_message_at(node, "attribute", i), "g")) *constants = *sizes = false;
    for (size_t i = 0; i < gd_pb_count(node, "input"); i++) {
        const char *name = gd_pb_string_at(node, "input", i);
        const gd_onnx_value *v = *name ? gd_onnx_lookup_value(l, name) : NULL;
        const bool constant = !*name || (v && (v->foldable || v->constant));
        *constants = *constants && constant;
        *sizes = *sizes && (constant || (v && v->from_sizes));
    }
}

/* Whether this node must not rename a tensor: an earlier node created it. */
static bool is_shared(const gd_onnx_loader *l, const gd_tensor *t) {
    return t->kind == GD_VALUE || t->node->origin->kind != GD_FROM_OP ||
           t->node->origin->graph != gd_graph_building() ||
           t->node->origin->number < l->first_new_node;
}

/* Gives a symbol its name in the file, without the prefix of the name scope. */
static void set_name(gd_tensor *t, const char *name) {
    char *prefix = gd_this_building.prefix;
    gd_this_building.prefix = NULL;
    gd_named(t, name);
    gd_this_building.prefix = prefix;
}

/* Whether a value is an output of the model's graph: programs find those by name. */
static bool is_graph_output(const gd_onnx_loader *l, const char *name) {
    return gd_name_map_find(&l->frame->outputs, name) != NULL;
}

gd_status gd_onnx_set_output(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_tensor *t) {
    const char *name = gd_pb_string_at(node, "output", i);
    gd_onnx_value *v;
    if (!*name) return GD_OK;
    if (!t || t->kind == GD_FAILED) return gd_failure();
    GD_TRY(gd_onnx_add_value(l, name, &v));
    if (t->kind == GD_VALUE && !is_graph_output(l, name)) {
        v->tensor = v->constant = t;
        return GD_OK;
    }
    /* an output of the graph needs a node that has its name */
    if (is_shared(l, t) && is_graph_output(l, name)) t = gd_clone(t);
    if (t->kind != GD_SYMBOL) return gd_failure();
    v->tensor = t;
    const bool is_small = !gd_has_unknown(&t, 1) && gd_numel(t->rank, t->dims) <= MAX_FOLDED;
    const bool is_deterministic =
        t->node->op && !(t->node->op->flags & (GD_OP_RANDOM | GD_OP_DYNAMIC));
    find_dependencies(l, node, &v->foldable, &v->from_sizes);
    v->foldable = v->foldable && is_small && is_deterministic;
    v->from_sizes = v->from_sizes && !v->foldable && is_small && is_deterministic;
    if (!is_shared(l, t)) set_name(t, name);
    return GD_OK;
}

gd_status gd_onnx_set_size_output(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_tensor *t) {
    const char *name = gd_pb_string_at(node, "output", i);
    GD_TRY(gd_onnx_set_output(l, node, i, t));
    gd_onnx_value *v = *name ? gd_onnx_lookup_value(l, name) : NULL;
    if (v) v->from_sizes = true;
    return GD_OK;
}
