/* deferred_call.c - the ops sizes_of and deferred_call, and the calls that the latter stands
 * for. */
#include "dispatch/deferred_call.h"

#include <string.h>

#include "dispatch/infer.h"

gd_status (*gd_deferred_numbers)(gd_tensor *tensor, gd_numbers *numbers);

/*op sizes_of(x) -> y  internal opaque nograd
 * The sizes of x as i64. The node becomes a value as soon as the sizes are known.
 *   onnx Shape
 */
static gd_status sizes_of_infer(gd_infer *i) {
    i->out[0].dtype = GD_I64;
    i->out[0].rank = 1;
    i->out[0].dims[0] = i->in[0]->rank;
    return GD_OK;
}
static void sizes_of_expand(gd_expansion *e) {
    const gd_tensor *x = e->x[0];
    e->y[0] = gd_from_array(gd_dims(x->rank), GD_I64, x->dims);
}

/*op deferred_call(tensors*) -> y  internal opaque
 * A call whose list options are tensors: all inputs after x. `kind` says which call.
 *   kind  int = 0       gd_deferred_kind
 *   axis  int = 0       for select
 *   zero  bool = false  for reshape: 0 is a size and does not copy that of x
 *   dims  int[] = none  the sizes of the result; -1: unknown
 *   dtype dtype = f32
 *   mode  {constant, reflect, replicate, circular, nearest, linear} = constant  for pad and resize
 *   value float = 0                 for pad
 *   align_corners bool = false      for resize
 *   first bool = false              for resize: an axis of new size 1 keeps its first element
 */
static gd_status deferred_call_infer(gd_infer *i) {
    const gd_deferred_call_options *o = i->attrs;
    i->out[0].dtype = o->dtype;
    i->out[0].rank = o->dims.rank;
    for (int d = 0; d < o->dims.rank; d++)
        i->out[0].dims[d] = o->dims.at[d] < 0 ? GD_UNKNOWN : o->dims.at[d];
    return GD_OK;
}
static void deferred_call_expand(gd_expansion *e) {
    const gd_deferred_call_options *o = e->attrs;
    const int has_x = o->kind == GD_DEFERRED_RANGE ? 0 : 1, n = e->n_in - has_x;
    gd_numbers lists[GD_DEFERRED_LISTS];
    gd_status status = n >= 1 && n <= GD_DEFERRED_LISTS
                           ? GD_OK
                           : gd_fail(GD_E_ARGUMENT, "a deferred call with %d lists of numbers", n);
    for (int k = 0; k < n && status == GD_OK; k++)
        status = gd_deferred_numbers(e->x[has_x + k], &lists[k]);
    e->y[0] = status == GD_OK ? gd_deferred_now(o, has_x ? e->x[0] : NULL, lists, n)
                              : gd_tensor_fail(status);
}

/* --- the calls -------------------------------------------------------------------------------- */

static gd_tensor *fail_too_many(const gd_numbers *list) {
    return gd_tensor_fail(gd_fail(GD_E_UNSUPPORTED,
                                  "a list has %d numbers; at most %d are supported", list->count,
                                  GD_MAX_RANK));
}

static gd_tensor *reshape_now(gd_tensor *x, const gd_numbers *list, bool zero) {
    gd_shape dims = {.rank = list->count, .form = 1};
    if (list->count > GD_MAX_RANK) return fail_too_many(list);
    for (int i = 0; i < list->count; i++) {
        dims.at[i] = list->at[i];
        if (dims.at[i] != 0 || zero) continue;
        if (i >= x->rank)
            return gd_tensor_fail(gd_fail(GD_E_SHAPE,
                                          "dimension %d is 0, which copies that of the input; but "
                                          "the input has %d dimensions",
                                          i, x->rank));
        dims.at[i] = x->dims[i];
    }
    return gd_reshape(x, dims);
}

static gd_tensor *expand_now(gd_tensor *x, const gd_numbers *list) {
    gd_shape to = {.rank = list->count > x->rank ? list->count : x->rank, .form = 1};
    if (to.rank > GD_MAX_RANK) return fail_too_many(list);
    for (int i = 0; i < to.rank; i++) {
        const int from = i - (to.rank - list->count), old = i - (to.rank - x->rank);
        const int64_t size = from >= 0 ? list->at[from] : 1;
        to.at[i] = size == 1 && old >= 0 ? -1 : size;
    }
    return gd_expand(x, to);
}

static gd_tensor *slice_now(gd_tensor *x, const gd_numbers *lists, int n_lists) {
    const gd_numbers *starts = &lists[0], *ends = &lists[1], *axes = &lists[2], *steps = &lists[3];
    if (n_lists != 4 || ends->count != starts->count || axes->count != starts->count ||
        steps->count != starts->count)
        return gd_tensor_fail(
            gd_fail(GD_E_FORMAT, "starts, ends, axes and steps have different lengths"));
    for (int i = 0; i < starts->count; i++) {
        const int64_t step = steps->at[i];
        if (step == 0) return gd_tensor_fail(gd_fail(GD_E_FORMAT, "a step is 0"));
        /* ONNX starts a slice with a negative step beyond the end; gd_slice does so if start is
         * unset */
        const int64_t start = step < 0 && starts->at[i] > INT64_MAX - GD_MAX_RANK ? GD_UNSET
                              : starts->at[i] == GD_UNSET                         ? GD_UNSET + 1
                                                                                  : starts->at[i];
        x = gd_slice(x, .axis = axes->at[i], .start = start, .stop = ends->at[i], .step = step);
    }
    return x;
}

static gd_tensor *range_now(const gd_numbers *lists, int n_lists, gd_dtype dtype) {
    if (n_lists != 3 || lists[0].count != 1 || lists[1].count != 1 || lists[2].count != 1 ||
        lists[2].at[0] == 0)
        return gd_tensor_fail(
            gd_fail(GD_E_FORMAT, "a range needs a start, an end, and a step that is not 0"));
    return gd_arange(lists[0].at[0], lists[1].at[0], .step = gd_number_of(lists[2].at[0]),
                     .dtype = dtype);
}

/* ONNX lists the padding before each axis, then that after each axis. gd_pad takes pairs from
 * the last axis on, and the first axes can be left out. */
static gd_tensor *pad_now(gd_tensor *x, const gd_numbers *pads, const gd_deferred_call_options *o) {
    gd_shape sides = {.rank = 0, .form = 1};
    int first = 0;
    if (pads->count != 2 * x->rank)
        return gd_tensor_fail(
            gd_fail(GD_E_FORMAT, "there are %d pads for %d axes", pads->count, x->rank));
    while (first < x->rank && pads->at[first] == 0 && pads->at[x->rank + first] == 0) first++;
    if (first == x->rank) return gd_clone(x);
    if (2 * (x->rank - first) > GD_MAX_RANK)
        return gd_tensor_fail(
            gd_fail(GD_E_UNSUPPORTED, "more than %d axes are padded", GD_MAX_RANK / 2));
    for (int axis = x->rank - 1; axis >= first; axis--) {
        sides.at[sides.rank++] = pads->at[axis];
        sides.at[sides.rank++] = pads->at[x->rank + axis];
    }
    return gd_pad(x, sides, .mode = o->mode, .value = o->value);
}

static gd_tensor *resize_now(gd_tensor *x, const gd_numbers *sizes,
                             const gd_deferred_call_options *o) {
    gd_shape size = {.rank = x->rank - 2, .form = 1};
    if (sizes->count != x->rank || x->rank < 3)
        return gd_tensor_fail(
            gd_fail(GD_E_FORMAT, "there are %d sizes for %d axes", sizes->count, x->rank));
    for (int i = 0; i < x->rank; i++) {
        if (i >= 2) {
            size.at[i - 2] = sizes->at[i];
            if (o->first && sizes->at[i] == 1) x = gd_narrow(x, i, 0, 1);
        } else if (sizes->at[i] != x->dims[i])
            return gd_tensor_fail(
                gd_fail(GD_E_UNSUPPORTED, "the batch and channel axes cannot be resized"));
    }
    return gd_resize(x, .size = size, .mode = o->mode, .align_corners = o->align_corners);
}

gd_tensor *gd_deferred_now(const gd_deferred_call_options *o, gd_tensor *x, const gd_numbers *lists,
                           int n_lists) {
    switch (o->kind) {
    case GD_DEFERRED_RANGE: return range_now(lists, n_lists, o->dtype);
    case GD_DEFERRED_EXPAND: return expand_now(x, &lists[0]);
    case GD_DEFERRED_SLICE: return slice_now(x, lists, n_lists);
    case GD_DEFERRED_REPEAT:
        return lists[0].count > GD_MAX_RANK
                   ? fail_too_many(&lists[0])
                   : gd_repeat(x, gd_shape_of(lists[0].count, lists[0].at));
    case GD_DEFERRED_PAD: return pad_now(x, &lists[0], o);
    case GD_DEFERRED_RESIZE: return resize_now(x, &lists[0], o);
    case GD_DEFERRED_SELECT:
        return lists[0].count == 1 ? gd_select(x, o->axis, lists[0].at[0])
                                   : fail_too_many(&lists[0]);
    default: return reshape_now(x, &lists[0], o->zero);
    }
}

#include "dispatch/deferred_call.gen.h"
