/* symbolic_size.c - sizes, and lists of integers computed from sizes, that are known only at run
 * time.
 *
 * ONNX passes shapes, axes and counts as tensors; ops take them as options. Where such a list
 * depends on an unknown size, the op deferred_call (dispatch/deferred_call.h) represents the call in the
 * graph, and a run makes the call once the sizes are known. Order: lists; arithmetic with sizes;
 * the op deferred_call and the shape of its result.
 */
#include <string.h>

#include "core/alloc.h"
#include "graph/build/trace.h"
#include "onnx/load/load.h"

/* --- lists ------------------------------------------------------------------------------------ */

gd_status gd_onnx_sizes_of(gd_tensor *x, gd_tensor **sizes) {
    *sizes = gd_sizes_of(x);
    return (*sizes)->kind == GD_SYMBOL ? GD_OK : gd_failure();
}

gd_status gd_onnx_get_list(gd_onnx_loader *l, const gd_pb *node, size_t i, gd_tensor **list) {
    const char *name = gd_pb_string_at(node, "input", i);
    gd_onnx_value *v;
    *list = NULL;
    if (!*name) return GD_OK;
    GD_TRY(gd_onnx_constant_value(l, name, list));
    if (*list) return GD_OK;
    GD_TRY(gd_onnx_find_value(l, name, &v));
    *list = v->tensor;
    if (v->from_sizes) return GD_OK;
    return gd_fail(GD_E_UNSUPPORTED,
                   "its input '%.200s' is known only when the graph runs; here it must be a "
                   "constant, or depend on sizes only",
                   name);
}

bool gd_onnx_is_data_independent(const gd_onnx_loader *l, const char *name) {
    const gd_onnx_value *v = gd_onnx_lookup_value(l, name);
    return v && (v->constant || v->foldable || v->from_sizes);
}

/* --- sizes ------------------------------------------------------------------------------------ */

gd_onnx_size gd_onnx_known_size(int64_t known) { return (gd_onnx_size){known, NULL}; }

gd_status gd_onnx_size_of(gd_tensor *x, int axis, gd_onnx_size *size) {
    gd_tensor *sizes;
    *size = gd_onnx_known_size(x->dims[axis]);
    if (size->known != GD_UNKNOWN) return GD_OK;
    GD_TRY(gd_onnx_sizes_of(x, &sizes));
    size->symbol = gd_select(sizes, 0, axis);
    return size->symbol->kind == GD_FAILED ? gd_failure() : GD_OK;
}

gd_tensor *gd_onnx_size_tensor(gd_onnx_size size) {
    return size.known == GD_UNKNOWN ? size.symbol : gd_from_array(gd_dims(), GD_I64, &size.known);
}

gd_status gd_onnx_size_multiply(gd_onnx_size a, gd_onnx_size b, gd_onnx_size *product) {
    *product = gd_onnx_known_size(GD_UNKNOWN);
    if (a.known == GD_UNKNOWN || b.known == GD_UNKNOWN)
        product->symbol = gd_mul(gd_onnx_size_tensor(a), gd_onnx_size_tensor(b));
    else if (__builtin_mul_overflow(a.known, b.known, &product->known))
        return gd_fail(GD_E_OVERFLOW, "a size overflows");
    return GD_OK;
}

gd_status gd_onnx_size_divide(gd_onnx_size a, int64_t by, gd_onnx_size *quotient) {
    if (by < 1 || (a.known != GD_UNKNOWN && a.known % by))
        return gd_fail(GD_E_SHAPE, "a size of %lld is not a multiple of %lld", (long long)a.known,
                       (long long)by);
    *quotient = gd_onnx_known_size(a.known == GD_UNKNOWN ? GD_UNKNOWN : a.known / by);
    if (a.known == GD_UNKNOWN)
        quotient->symbol = gd_floor_divide(a.symbol, gd_from_array(gd_dims(), GD_I64, &by));
    return GD_OK;
}

gd_status gd_onnx_reshape_to(gd_onnx_loader *l, gd_tensor *x, int rank, const gd_onnx_size *sizes,
                             gd_tensor **y) {
    gd_shape dims = {.rank = rank, .form = 1};
    gd_tensor *list[GD_MAX_RANK];
    int unknown = 0;
    bool empty = false;
    if (x->kind == GD_FAILED) return gd_failure();
    if (rank > GD_MAX_RANK)
        return gd_fail(GD_E_UNSUPPORTED, "its result has %d dimensions; at most %d are supported",
                       rank, GD_MAX_RANK);
    for (int k = 0; k < rank; k++) {
        dims.at[k] = sizes[k].known;
        unknown += dims.at[k] == GD_UNKNOWN;
        empty = empty || dims.at[k] == 0;
    }
    if (unknown == 0 || (unknown == 1 && !empty)) { /* GD_UNKNOWN is -1: reshape infers it */
        *y = gd_reshape(x, dims);
        return (*y)->kind == GD_FAILED ? gd_failure() : GD_OK;
    }
    for (int k = 0; k < rank; k++) list[k] = gd_reshape(gd_onnx_size_tensor(sizes[k]), gd_dims(1));
    gd_tensor *all = gd_cat(((gd_tensors){list, rank}), .axis = 0);
    if (all->kind == GD_FAILED) return gd_failure();
    return gd_onnx_add_deferred_node(l,
                                     (gd_deferred_call_options){.kind = GD_DEFERRED_RESHAPE,
                                                                .zero = true,
                                                                .dtype = (gd_dtype)x->dtype},
                                     x, &all, 1, y);
}

/* --- deferred calls --------------------------------------------------------------------------- */

/* The integers of a list, with `size` for each unknown size. */
static gd_status evaluate_list(gd_onnx_loader *l, gd_tensor *list, int64_t size, gd_numbers *n) {
    gd_tensor *value = list;
    if (list->kind == GD_SYMBOL) GD_TRY(gd_onnx_evaluate(l, list, size, &value));
    return gd_deferred_numbers(value, n);
}

/* The shape of the result, with `size` for each unknown size. */
static gd_status evaluate_shape(gd_onnx_loader *l, const gd_deferred_call_options *o,
                                const gd_tensor *x, gd_tensor *const *lists, int n_lists,
                                int64_t size, gd_shape *shape) {
    gd_numbers numbers[GD_DEFERRED_LISTS];
    int64_t dims[GD_MAX_RANK];
    gd_tensor *stand_in = NULL;
    for (int k = 0; k < n_lists; k++) GD_TRY(evaluate_list(l, lists[k], size, &numbers[k]));
    void *before = gd_this_thread.tracer;
    gd_this_thread.tracer = &gd_no_graph;
    if (x) {
        for (int i = 0; i < x->rank; i++) dims[i] = x->dims[i] == GD_UNKNOWN ? size : x->dims[i];
        stand_in = gd_symbol(gd_shape_of(x->rank, dims), (gd_dtype)x->dtype, x->device);
    }
    const gd_tensor *y = gd_deferred_now(o, stand_in, numbers, n_lists);
    gd_this_thread.tracer = before;
    if (y->kind == GD_FAILED) return gd_failure();
    *shape = gd_shape_of(y->rank, y->dims);
    return GD_OK;
}

/* The rank of the result. It does not depend on the sizes. */
static int result_rank(const gd_deferred_call_options *o, const gd_tensor *x,
                       gd_tensor *const *lists) {
    const int count = (int)gd_numel(lists[0]->rank, lists[0]->dims);
    switch (o->kind) {
    case GD_DEFERRED_RESHAPE: return count;
    case GD_DEFERRED_EXPAND: return count > x->rank ? count : x->rank;
    case GD_DEFERRED_SELECT: return x->rank - 1;
    case GD_DEFERRED_RANGE: return 1;
    default: return x->rank;
    }
}

/* Infers the shape by probing: a size of the result that is the same for several values of the
 * unknown sizes is known. */
static gd_status infer_shape(gd_onnx_loader *l, gd_deferred_call_options *o, const gd_tensor *x,
                             gd_tensor *const *lists, int n_lists) {
    static const int64_t probes[] = {120, 240, 7, 1};
    const int rank = result_rank(o, x, lists);
    if (rank < 0 || rank > GD_MAX_RANK)
        return gd_fail(GD_E_UNSUPPORTED, "its result has %d dimensions; at most %d are supported",
                       rank, GD_MAX_RANK);
    o->dims = (gd_shape){.rank = rank, .form = 1};
    for (int i = 0; i < rank; i++) o->dims.at[i] = GD_UNKNOWN;
    for (size_t p = 0; p < sizeof probes / sizeof *probes; p++) {
        gd_shape shape = {.rank = -1};
        gd_attempt attempt;
        gd_attempt_begin(&attempt);
        gd_status status = evaluate_shape(l, o, x, lists, n_lists, probes[p], &shape);
        status = gd_attempt_end(&attempt, status);
        if (status == GD_E_MEMORY) return status;
        const bool fits = status == GD_OK && shape.rank == rank;
        if (!fits && p < 2) { /* no size can be inferred */
            for (int i = 0; i < rank; i++) o->dims.at[i] = GD_UNKNOWN;
            return GD_OK;
        }
        for (int i = 0; i < rank && fits; i++) {
            if (p == 0) o->dims.at[i] = shape.at[i];
            if (o->dims.at[i] != shape.at[i]) o->dims.at[i] = GD_UNKNOWN;
        }
    }
    return GD_OK;
}

gd_status gd_onnx_add_deferred_node(gd_onnx_loader *l, gd_deferred_call_options o, gd_tensor *x,
                                    gd_tensor *const *lists, int n_lists, gd_tensor **y) {
    gd_tensor *in[1 + GD_DEFERRED_LISTS];
    int n = 0;
    if (n_lists < 1 || n_lists > GD_DEFERRED_LISTS)
        return gd_fail(GD_E_FORMAT, "it has %d lists of numbers", n_lists);
    for (int k = 0; k < n_lists; k++)
        if (lists[k]->rank > 1 || gd_numel(lists[k]->rank, lists[k]->dims) > GD_DEFERRED_NUMBERS)
            return gd_fail(GD_E_FORMAT,
                           "its list %d must have one dimension and at most %d numbers", k,
                           GD_DEFERRED_NUMBERS);
    if (!o.mode) o.mode = GD_CONSTANT; /* for kinds without a mode */
    GD_TRY(infer_shape(l, &o, x, lists, n_lists));
    if (x) in[n++] = x;
    memcpy(in + n, lists, (size_t)n_lists * sizeof *lists);
    *y = gd_deferred_call_at(NULL, (gd_tensors){in, n + n_lists}, &o);
    return (*y)->kind == GD_FAILED ? gd_failure() : GD_OK;
}

gd_status gd_onnx_set_deferred_output(gd_onnx_loader *l, const gd_pb *node,
                                      gd_deferred_call_options o, gd_tensor *x,
                                      gd_tensor *const *lists, int n_lists) {
    gd_tensor *y;
    if (x) o.dtype = (gd_dtype)x->dtype;
    GD_TRY(gd_onnx_add_deferred_node(l, o, x, lists, n_lists, &y));
    return gd_onnx_set_output(l, node, 0, y);
}
