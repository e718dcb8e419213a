/* index_places.c - gd_index and gd_index_put: translates a list of gd_place to calls of ops.
 *
 * Numbers, ranges and new axes become views, one after the other. Then one call of index_axes
 * handles all tensors. gd_index_put does the same, writes the last view, and then writes each view
 * back into the tensor that it is a view of. gd_index_put_ writes the last view, which shares its
 * memory with x. For symbols, and where a gradient is needed, x becomes the result of gd_index_put.
 */
#include "gradus/index.h"

#include <string.h>

#include "core/error.h"
#include "core/tensor.h"
#include "gradus/ops.h"
#include "ops/index/index_axes.h"
#include "dispatch/call.h"
#include "dispatch/launch.h"
#include "dispatch/op.h"

enum { MAX_VIEWS = 4 * GD_MAX_RANK };

/* One of the views that lead from x to the part that the tensors index. */
typedef struct {
    gd_place place;
    gd_tensor *base; /* the tensor that it is a view of */
    int axis;
} view_step;

typedef struct {
    const char *site;
    gd_tensor *x, *part;
    view_step steps[MAX_VIEWS];
    int n_steps;
    int axis, x_axis; /* the next axis of `part`, and of x */
    gd_tensor *indices[GD_MAX_RANK];
    gd_shape axes, names; /* the axes of `indices`: numbers in `part`, and in x for messages */
} index_walk;

/* --- checks ----------------------------------------------------------------------------------- */

/* The number of axes of x that a place indexes. */
static int axes_taken(const gd_place *p) {
    if (p->kind == GD_PLACE_TENSOR) return p->tensor->dtype == GD_BOOL ? p->tensor->rank : 1;
    return p->kind != GD_PLACE_NEWAXIS && p->kind != GD_PLACE_ELLIPSIS;
}

/* Checks everything that does not depend on sizes. `*left`: the number of axes that no place
 * indexes. */
static gd_status check_places(const gd_tensor *x, gd_place_list places, int *left) {
    int taken = 0, ellipses = 0;
    if (places.count < 0 || places.count > MAX_VIEWS || (places.count > 0 && !places.at))
        return gd_fail(GD_E_ARGUMENT, "there are %d places; at most %d are allowed", places.count,
                       MAX_VIEWS);
    for (int i = 0; i < places.count; i++) {
        const gd_place *p = &places.at[i];
        if (p->kind < GD_PLACE_ALL || p->kind > GD_PLACE_TENSOR)
            return gd_fail(GD_E_ARGUMENT, "place %d has an unknown kind", i);
        if (p->kind == GD_PLACE_TENSOR) {
            if (!p->tensor)
                return gd_fail(GD_E_ARGUMENT, "place %d is NULL; write GD_ALL for all of an axis",
                               i);
            if (gd_dtype_is_float((gd_dtype)p->tensor->dtype))
                return gd_fail(GD_E_DTYPE,
                               "place %d is a tensor of %s; indices must be integers, masks bool",
                               i, gd_dtype_name((gd_dtype)p->tensor->dtype));
        }
        taken += axes_taken(p);
        ellipses += p->kind == GD_PLACE_ELLIPSIS;
    }
    if (ellipses > 1)
        return gd_fail(GD_E_ARGUMENT, "GD_ELLIPSIS is given %d times; at most one is allowed",
                       ellipses);
    if (taken > x->rank)
        return gd_fail(GD_E_SHAPE, "the places index %d dimensions, but x has %d", taken, x->rank);
    *left = x->rank - taken;
    return GD_OK;
}

/* Checks that a mask has the sizes of the axes that it indexes. */
static gd_status check_mask(const index_walk *w, const gd_tensor *mask) {
    if (w->part->kind == GD_FAILED) return GD_OK;
    for (int d = 0; d < mask->rank; d++) {
        int64_t size = w->part->dims[w->axis + d];
        if (size != GD_UNKNOWN && mask->dims[d] != GD_UNKNOWN && size != mask->dims[d])
            return gd_fail(GD_E_SHAPE,
                           "a mask has size %lld in dimension %d, but axis %d of x has size %lld",
                           (long long)mask->dims[d], d, w->x_axis + d, (long long)size);
    }
    return GD_OK;
}

/* --- translation to views --------------------------------------------------------------------- */

static gd_status add_index(index_walk *w, gd_tensor *index) {
    if (w->axes.rank == GD_MAX_RANK)
        return gd_fail(GD_E_SHAPE, "there are more than %d tensors of indices", GD_MAX_RANK);
    w->indices[w->axes.rank] = index;
    w->axes.at[w->axes.rank++] = w->axis++;
    w->names.at[w->names.rank++] = w->x_axis++;
    return GD_OK;
}

/* Replaces the current part by a view of it. */
static gd_status add_view(index_walk *w, const gd_place *p, gd_tensor *part) {
    if (w->n_steps == MAX_VIEWS) return gd_fail(GD_E_ARGUMENT, "more than %d places", MAX_VIEWS);
    w->steps[w->n_steps++] = (view_step){*p, w->part, w->axis};
    w->part = part;
    return GD_OK;
}

static gd_status add_new_axis(index_walk *w) {
    const gd_place p = {GD_PLACE_NEWAXIS, NULL, 0, 0, 1};
    return add_view(w, &p, gd_unsqueeze_at(w->site, w->part, w->axis));
}

/* A mask becomes tensors of indices: for each of its axes the positions of its true elements. */
static gd_status add_mask(index_walk *w, gd_tensor *mask) {
    GD_TRY(check_mask(w, mask));
    if (mask->rank == 0) { /* it selects all or nothing of a new axis of size 1 */
        int x_axis = w->x_axis;
        GD_TRY(add_new_axis(w));
        gd_tensor *where = gd_nonzero_at(w->site, gd_reshape_at(w->site, mask, gd_dims(1)));
        GD_TRY(add_index(w, gd_select_at(w->site, where, 1, 0)));
        w->x_axis = x_axis;
        return GD_OK;
    }
    gd_tensor *where = gd_nonzero_at(w->site, mask); /* (count, rank) */
    for (int d = 0; d < mask->rank; d++) GD_TRY(add_index(w, gd_select_at(w->site, where, 1, d)));
    return GD_OK;
}

static gd_status add_position(index_walk *w, const gd_place *p) {
    int64_t size = w->part->kind == GD_FAILED ? GD_UNKNOWN : w->part->dims[w->axis];
    if (size != GD_UNKNOWN && (p->start < -size || p->start >= size))
        return gd_fail(
            GD_E_INDEX, "index %lld is out of range for axis %d of size %lld (%lld to %lld)",
            (long long)p->start, w->x_axis, (long long)size, (long long)-size, (long long)size - 1);
    GD_TRY(add_view(w, p, gd_select_at(w->site, w->part, w->axis, p->start)));
    w->x_axis++;
    return GD_OK;
}

static gd_status add_range(index_walk *w, const gd_place *p) {
    gd_slice_options o = {.axis = w->axis, .start = p->start, .stop = p->stop, .step = p->step};
    if (p->step == 0) return gd_fail(GD_E_ARGUMENT, "the range for axis %d has step 0", w->x_axis);
    GD_TRY(add_view(w, p, gd_slice_at(w->site, w->part, &o)));
    w->axis++;
    w->x_axis++;
    return GD_OK;
}

static gd_status add_place(index_walk *w, const gd_place *p, int left) {
    switch (p->kind) {
    case GD_PLACE_ALL: left = 1; /* fall through */
    case GD_PLACE_ELLIPSIS: w->axis += left, w->x_axis += left; return GD_OK;
    case GD_PLACE_AT: return add_position(w, p);
    case GD_PLACE_RANGE: return add_range(w, p);
    case GD_PLACE_NEWAXIS:
        GD_TRY(add_new_axis(w));
        w->axis++;
        return GD_OK;
    default: return p->tensor->dtype == GD_BOOL ? add_mask(w, p->tensor) : add_index(w, p->tensor);
    }
}

/* Translates all places. */
static gd_status walk_places(index_walk *w, const char *site, gd_tensor *x, gd_place_list places) {
    int left = 0;
    *w = (index_walk){.site = site, .x = x, .part = x, .axes.form = 1, .names.form = 1};
    if (!x) return gd_fail(GD_E_ARGUMENT, "x is NULL");
    GD_TRY(check_places(x, places, &left));
    for (int i = 0; i < places.count; i++) GD_TRY(add_place(w, &places.at[i], left));
    return GD_OK;
}

/* --- the calls -------------------------------------------------------------------------------- */

/* An error tensor among x and the places, which the call returns; NULL: none. */
static gd_tensor *find_failed_input(gd_tensor *x, gd_place_list places) {
    if (x && x->kind == GD_FAILED) return x;
    for (int i = 0; i < places.count && places.at; i++) {
        gd_tensor *t = places.at[i].kind == GD_PLACE_TENSOR ? places.at[i].tensor : NULL;
        if (t && t->kind == GD_FAILED) return t;
    }
    return NULL;
}

static gd_tensor *fail_index_call(const char *call, const char *site, gd_status status) {
    gd_error_prefix("%s: ", call);
    if (site) gd_error_suffix(" (%s)", site);
    return gd_tensor_fail(status);
}

static gd_tensor *read_part(const index_walk *w) {
    const gd_index_axes_options o = {.axes = w->axes, .names = w->names};
    if (w->axes.rank == 0) return w->part;
    return gd_index_axes_at(w->site, w->part, w->axes, (gd_tensors){w->indices, w->axes.rank}, &o);
}

/* The result of a call that ends its scope. Places that select all of x have x as their part. */
static gd_tensor *hand_out(gd_tensor *y) {
    if (y->kind != GD_FAILED) gd_scope_hand_out(&y->object);
    return y;
}

gd_tensor *gd_index_at(const char *site, gd_tensor *x, gd_place_list places) {
    index_walk w;
    gd_tensor *failed = find_failed_input(x, places);
    if (failed) return failed;
    GD_SCOPE;
    gd_status status = walk_places(&w, site, x, places);
    if (status != GD_OK) return fail_index_call("gd_index", site, status);
    return hand_out(read_part(&w));
}

/* The shape of the indexed part; false: a size is still unknown, or the call will fail. */
static bool part_shape(const index_walk *w, gd_shape *shape) {
    gd_meta part;
    if (w->part->kind == GD_FAILED) return false;
    if (w->axes.rank == 0) *shape = gd_tensor_shape(w->part);
    else {
        for (int k = 0; k < w->axes.rank; k++)
            if (w->indices[k]->kind == GD_FAILED) return false;
        for (int k = 0; k < w->axes.rank; k++)
            for (int d = 0; d < w->indices[k]->rank; d++)
                if (w->indices[k]->dims[d] == GD_UNKNOWN) return false;
        if (gd_axes_shape(&w->axes, w->part, w->indices, w->axes.rank, &part) != GD_OK)
            return false;
        *shape = gd_shape_of(part.rank, part.dims);
    }
    for (int d = 0; d < shape->rank; d++)
        if (shape->at[d] == GD_UNKNOWN) return false;
    return true;
}

/* value in the dtype of x, and on its device if it is a scalar. */
static gd_tensor *fit_value(const index_walk *w, gd_tensor *value) {
    if (value->dtype != w->x->dtype) value = gd_cast_at(w->site, value, (gd_dtype)w->x->dtype);
    if (value->kind == GD_VALUE && value->rank == 0 && value->device != w->x->device)
        value = gd_record_hooks.move(value, w->x->device);
    return value;
}

/* value broadcast to the shape of the part. If sizes are still unknown, gd_where broadcasts it
 * to the part that is there. */
static gd_tensor *broadcast_value(const index_walk *w, gd_tensor *value) {
    gd_shape shape;
    value = fit_value(w, value);
    if (part_shape(w, &shape)) return gd_expand_at(w->site, value, shape);
    return gd_where_at(w->site, gd_scalar_of(1, GD_BOOL), value, read_part(w));
}

/* The base of a view, with the view replaced by `part`. */
static gd_tensor *write_back(const index_walk *w, const view_step *s, gd_tensor *part) {
    gd_slice_scatter_options o = {
        .axis = s->axis, .start = s->place.start, .stop = s->place.stop, .step = s->place.step};
    if (s->place.kind == GD_PLACE_NEWAXIS) {
        const gd_squeeze_options squeeze = {.axis = gd_dims(s->axis)};
        return gd_squeeze_at(w->site, part, &squeeze);
    }
    if (s->place.kind == GD_PLACE_AT) {
        part = gd_unsqueeze_at(w->site, part, s->axis);
        o.stop = o.start == -1 ? GD_END : o.start + 1;
    }
    return gd_slice_scatter_at(w->site, s->base, part, &o);
}

gd_tensor *gd_index_put_at(const char *site, gd_tensor *x, gd_place_list places, gd_tensor *value,
                           const gd_index_put_options *options) {
    options = options ? options : GD_INDEX_PUT_OPTIONS_();
    const bool add = options->accumulate;
    index_walk w;
    gd_tensor *failed = find_failed_input(x, places);
    if (failed) return failed;
    if (value && value->kind == GD_FAILED) return value;
    GD_SCOPE;
    gd_status status =
        value ? walk_places(&w, site, x, places) : gd_fail(GD_E_ARGUMENT, "value is NULL");
    if (status != GD_OK) return fail_index_call("gd_index_put", site, status);
    value = broadcast_value(&w, value);
    const gd_index_axes_put_options o = {.axes = w.axes, .accumulate = add, .names = w.names};
    gd_tensor *part;
    if (w.axes.rank > 0)
        part = gd_index_axes_put_at(site, w.part, value, w.axes,
                                    (gd_tensors){w.indices, w.axes.rank}, &o);
    else part = add ? gd_add_at(site, w.part, value) : value;
    for (int i = w.n_steps; i-- > 0;) part = write_back(&w, &w.steps[i], part);
    return hand_out(part == value ? gd_clone_at(site, part) : part);
}

/* --- in place --------------------------------------------------------------------------------- */

static gd_status check_written(const gd_tensor *x, gd_place_list places, const gd_tensor *value) {
    int left;
    if (!x || !value) return gd_fail(GD_E_ARGUMENT, "%s is NULL", x ? "value" : "x");
    GD_TRY(check_places(x, places, &left));
    GD_TRY(gd_check_writable(x, "x"));
    for (int d = 0; d < x->rank && x->kind == GD_VALUE; d++)
        if (x->strides[d] == 0 && x->dims[d] > 1)
            return gd_fail(GD_E_ARGUMENT, "'x' is expanded: several of its elements share memory; "
                                          "clone it first");
    return GD_OK;
}

/* Whether the call is recorded, by a trace or by the tape. */
static bool is_recorded(gd_tensor *x, gd_place_list places, gd_tensor *value) {
    const gd_thread *thread = &gd_this_thread;
    bool recorded = thread->tracer || x->kind != GD_VALUE || value->kind != GD_VALUE;
    for (int i = 0; i < places.count; i++)
        recorded |= places.at[i].kind == GD_PLACE_TENSOR && places.at[i].tensor->kind != GD_VALUE;
    return recorded || (thread->no_grad == 0 && (x->requires_grad || value->requires_grad));
}

/* x becomes the result of gd_index_put. The views are those of a copy, because the tape and graphs
 * refuse to write a tensor that has views. */
static gd_tensor *become(const char *site, gd_tensor *x, gd_place_list places, gd_tensor *value,
                         const gd_index_put_options *options) {
    gd_tensor *copy = gd_clone_at(site, x);
    gd_tensor *y = gd_overwrite__at(site, x, gd_index_put_at(site, copy, places, value, options));
    return y->kind == GD_FAILED ? y : x;
}

/* Sets the view of a tensor that the kernel reads while it writes `part`. */
static gd_status set_operand(gd_view *view, gd_tensor *t, const gd_tensor *part) {
    if (t->storage == part->storage) t = gd_clone(t);
    if (t->kind == GD_FAILED) return gd_failure();
    gd_view_set(view, t);
    return GD_OK;
}

/* Writes only the indexed elements, by the kernel of index_axes_put. */
static gd_status write_elements(const index_walk *w, gd_tensor *value, bool add) {
    gd_index_axes_put_options o = gd_index_axes_put_defaults();
    gd_view views[GD_MAX_RANK + 3];
    const int n = w->axes.rank + 2;
    o.axes = w->axes;
    o.names = w->names;
    o.accumulate = add;
    gd_view_set(&views[0], w->part);
    gd_view_set(&views[n], w->part);
    GD_TRY(set_operand(&views[1], value, w->part));
    for (int k = 0; k < w->axes.rank; k++)
        GD_TRY(set_operand(&views[k + 2], w->indices[k], w->part));
    gd_kernel_call call;
    gd_kernel_call_set(&call, &o, views, n, &views[n], 1);
    call.site = w->site;
    call.overwrites = true;
    if (gd_numel(w->part->rank, w->part->dims) > 0)
        GD_TRY(gd_run_kernel(gd_op_find("index_axes_put"), &call, w->part->device));
    atomic_fetch_add(&w->part->storage->version, 1);
    return GD_OK;
}

/* Whether write_elements can run: gd_index_axes_put reports what does not fit, and runs where the
 * op has no kernel. */
static bool can_write_elements(const index_walk *w, const gd_tensor *value) {
    const gd_device *device = w->part->device;
    gd_shape shape;
    bool can = device == gd_cpu() && value->device == device && part_shape(w, &shape);
    for (int k = 0; k < w->axes.rank; k++) can &= w->indices[k]->device == device;
    return can;
}

/* Writes into the view of x that the places select. */
static gd_tensor *write_part(const index_walk *w, gd_tensor *value, bool add) {
    value = w->axes.rank > 0 ? broadcast_value(w, value) : fit_value(w, value);
    if (value->kind == GD_FAILED) return value;
    if (w->axes.rank > 0 && can_write_elements(w, value)) {
        const gd_status status = write_elements(w, value, add);
        return status == GD_OK ? w->x : fail_index_call("gd_index_put_", w->site, status);
    }
    if (w->axes.rank > 0) {
        const gd_index_axes_put_options o = {.axes = w->axes, .accumulate = add, .names = w->names};
        value = gd_index_axes_put_at(w->site, w->part, value, w->axes,
                                     (gd_tensors){w->indices, w->axes.rank}, &o);
    } else if (add) {
        value = gd_add_at(w->site, w->part, value);
    }
    return gd_overwrite__at(w->site, w->part, value);
}

gd_tensor *gd_index_put__at(const char *site, gd_tensor *x, gd_place_list places, gd_tensor *value,
                            const gd_index_put_options *options) {
    options = options ? options : GD_INDEX_PUT_OPTIONS_();
    index_walk w;
    gd_tensor *failed = find_failed_input(x, places);
    if (failed) return failed;
    if (value && value->kind == GD_FAILED) return value;
    GD_SCOPE;
    gd_status status = check_written(x, places, value);
    if (status == GD_OK && is_recorded(x, places, value))
        return become(site, x, places, value, options);
    if (status == GD_OK) status = walk_places(&w, site, x, places);
    if (status != GD_OK) return fail_index_call("gd_index_put_", site, status);
    /* a range with a negative step is no view */
    if (w.part->kind == GD_VALUE && w.part->storage != x->storage)
        return become(site, x, places, value, options);
    gd_tensor *y = write_part(&w, value, options->accumulate);
    return y->kind == GD_FAILED ? y : x;
}
