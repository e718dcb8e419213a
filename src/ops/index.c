/* index.c - gd_index and gd_index_put: places as the ops that they are.
 *
 * Numbers, ranges and new axes become views, one after the other. Tensors are what is left for
 * index_axes, all at once. Writing does the same, and then puts each view back into what it is a
 * view of.
 */
#include "gradus/index.h"

#include <string.h>

#include "core/error.h"
#include "core/tensor.h"
#include "gradus/ops.h"
#include "ops/index_axes.h"
#include "ops/op.h"

enum { MAX_STEPS = 4 * GD_MAX_RANK };

/* One view on the way from x to the part that the tensors index. */
typedef struct {
    gd_place place;
    gd_tensor *before;
    int axis;
} step;

typedef struct {
    const char *site;
    gd_tensor *x, *part;
    step steps[MAX_STEPS];
    int n_steps;
    int axis, own; /* the next axis of `part`, and of x */
    gd_tensor *indices[GD_MAX_RANK];
    gd_shape axes, names; /* of `part`, and of x */
} walk;

/* --- checks ----------------------------------------------------------------------------------- */

/* How many axes of x a place stands for. */
static int axes_taken(const gd_place *p) {
    if (p->kind == GD_PLACE_TENSOR) return p->tensor->dtype == GD_BOOL ? p->tensor->rank : 1;
    return p->kind != GD_PLACE_NEWAXIS && p->kind != GD_PLACE_ELLIPSIS;
}

/* Everything that can be seen without a tensor's sizes. `*left`: axes that no place stands for. */
static gd_status check_places(const gd_tensor *x, gd_place_list places, int *left) {
    int taken = 0, ellipses = 0;
    if (places.count < 0 || places.count > MAX_STEPS || (places.count > 0 && !places.at))
        return gd_fail(GD_E_ARGUMENT, "%d places; at most %d", places.count, MAX_STEPS);
    for (int i = 0; i < places.count; i++) {
        const gd_place *p = &places.at[i];
        if (p->kind < GD_PLACE_ALL || p->kind > GD_PLACE_TENSOR)
            return gd_fail(GD_E_ARGUMENT, "place %d is of no known kind", i);
        if (p->kind == GD_PLACE_TENSOR) {
            if (!p->tensor)
                return gd_fail(GD_E_ARGUMENT, "place %d is NULL; write GD_ALL for all of an axis",
                               i);
            if (gd_dtype_is_float((gd_dtype)p->tensor->dtype))
                return gd_fail(GD_E_DTYPE,
                               "place %d is a tensor of %s; indices are integers, masks are bool",
                               i, gd_dtype_name((gd_dtype)p->tensor->dtype));
        }
        taken += axes_taken(p);
        ellipses += p->kind == GD_PLACE_ELLIPSIS;
    }
    if (ellipses > 1)
        return gd_fail(GD_E_ARGUMENT, "GD_ELLIPSIS stands at %d places; at most at one", ellipses);
    if (taken > x->rank)
        return gd_fail(GD_E_SHAPE, "the places are for %d dimensions, and x has %d", taken,
                       x->rank);
    *left = x->rank - taken;
    return GD_OK;
}

/* A mask fits the axes that it stands for. */
static gd_status check_mask(const walk *w, const gd_tensor *mask) {
    if (w->part->kind == GD_FAILED) return GD_OK;
    for (int d = 0; d < mask->rank; d++) {
        int64_t size = w->part->dims[w->axis + d];
        if (size != GD_UNKNOWN && mask->dims[d] != GD_UNKNOWN && size != mask->dims[d])
            return gd_fail(GD_E_SHAPE,
                           "a mask has size %lld in dimension %d, and axis %d of x %lld",
                           (long long)mask->dims[d], d, w->own + d, (long long)size);
    }
    return GD_OK;
}

/* --- places to views -------------------------------------------------------------------------- */

static gd_status add_index(walk *w, gd_tensor *index) {
    if (w->axes.rank == GD_MAX_RANK)
        return gd_fail(GD_E_SHAPE, "more than %d tensors of indices", GD_MAX_RANK);
    w->indices[w->axes.rank] = index;
    w->axes.at[w->axes.rank++] = w->axis++;
    w->names.at[w->names.rank++] = w->own++;
    return GD_OK;
}

/* part becomes a view of itself. */
static gd_status add_step(walk *w, const gd_place *p, gd_tensor *part) {
    if (w->n_steps == MAX_STEPS) return gd_fail(GD_E_ARGUMENT, "more than %d places", MAX_STEPS);
    w->steps[w->n_steps++] = (step){*p, w->part, w->axis};
    w->part = part;
    return GD_OK;
}

static gd_status new_axis(walk *w) {
    const gd_place p = {GD_PLACE_NEWAXIS, NULL, 0, 0, 1};
    return add_step(w, &p, gd_unsqueeze_at(w->site, w->part, w->axis));
}

/* A mask is the positions where it is true: for each of its axes a list of them. */
static gd_status add_mask(walk *w, gd_tensor *mask) {
    GD_TRY(check_mask(w, mask));
    if (mask->rank == 0) { /* one for a new axis of size 1, all or nothing */
        int own = w->own;
        GD_TRY(new_axis(w));
        gd_tensor *where = gd_nonzero_at(w->site, gd_reshape_at(w->site, mask, gd_dims(1)));
        GD_TRY(add_index(w, gd_select_at(w->site, where, 1, 0)));
        w->own = own;
        return GD_OK;
    }
    gd_tensor *where = gd_nonzero_at(w->site, mask); /* (count, rank) */
    for (int d = 0; d < mask->rank; d++) GD_TRY(add_index(w, gd_select_at(w->site, where, 1, d)));
    return GD_OK;
}

static gd_status add_position(walk *w, const gd_place *p) {
    int64_t size = w->part->kind == GD_FAILED ? GD_UNKNOWN : w->part->dims[w->axis];
    if (size != GD_UNKNOWN && (p->start < -size || p->start >= size))
        return gd_fail(
            GD_E_INDEX, "index %lld is out of range for axis %d of size %lld (%lld to %lld)",
            (long long)p->start, w->own, (long long)size, (long long)-size, (long long)size - 1);
    GD_TRY(add_step(w, p, gd_select_at(w->site, w->part, w->axis, p->start)));
    w->own++;
    return GD_OK;
}

static gd_status add_range(walk *w, const gd_place *p) {
    gd_slice_options o = {.axis = w->axis, .start = p->start, .stop = p->stop, .step = p->step};
    if (p->step == 0)
        return gd_fail(GD_E_ARGUMENT, "the range for axis %d has a step of 0", w->own);
    GD_TRY(add_step(w, p, gd_slice_at(w->site, w->part, &o)));
    w->axis++;
    w->own++;
    return GD_OK;
}

static gd_status add_place(walk *w, const gd_place *p, int left) {
    switch (p->kind) {
    case GD_PLACE_ALL: left = 1; /* fall through */
    case GD_PLACE_ELLIPSIS: w->axis += left, w->own += left; return GD_OK;
    case GD_PLACE_AT: return add_position(w, p);
    case GD_PLACE_RANGE: return add_range(w, p);
    case GD_PLACE_NEWAXIS:
        GD_TRY(new_axis(w));
        w->axis++;
        return GD_OK;
    default: return p->tensor->dtype == GD_BOOL ? add_mask(w, p->tensor) : add_index(w, p->tensor);
    }
}

static gd_status follow(walk *w, const char *site, gd_tensor *x, gd_place_list places) {
    int left = 0;
    *w = (walk){.site = site, .x = x, .part = x, .axes.form = 1, .names.form = 1};
    if (!x) return gd_fail(GD_E_ARGUMENT, "x is NULL");
    GD_TRY(check_places(x, places, &left));
    for (int i = 0; i < places.count; i++) GD_TRY(add_place(w, &places.at[i], left));
    return GD_OK;
}

/* --- the calls -------------------------------------------------------------------------------- */

/* An error tensor among x and the places, which the call then returns; NULL: none. */
static gd_tensor *failed_one(gd_tensor *x, gd_place_list places) {
    if (x && x->kind == GD_FAILED) return x;
    for (int i = 0; i < places.count && places.at; i++) {
        gd_tensor *t = places.at[i].kind == GD_PLACE_TENSOR ? places.at[i].tensor : NULL;
        if (t && t->kind == GD_FAILED) return t;
    }
    return NULL;
}

static gd_tensor *refuse(const char *call, const char *site, gd_status status) {
    gd_error_prefix("%s: ", call);
    if (site) gd_error_suffix(" (%s)", site);
    return gd_tensor_fail(status);
}

static gd_tensor *read_part(const walk *w) {
    const gd_index_axes_options o = {.axes = w->axes, .names = w->names};
    if (w->axes.rank == 0) return w->part;
    return gd_index_axes_at(w->site, w->part, w->axes, (gd_tensors){w->indices, w->axes.rank}, &o);
}

gd_tensor *gd_index_at(const char *site, gd_tensor *x, gd_place_list places) {
    walk w;
    gd_tensor *failed = failed_one(x, places);
    if (failed) return failed;
    gd_status status = follow(&w, site, x, places);
    return status == GD_OK ? read_part(&w) : refuse("gd_index", site, status);
}

/* The shape of what is read; false: a size is not known yet, or the call will fail. */
static bool part_shape(const walk *w, gd_shape *shape) {
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

/* value in the shape of the part. Where sizes are not known yet, it takes those of what is there. */
static gd_tensor *spread(const walk *w, gd_tensor *value) {
    gd_shape shape;
    if (value->dtype != w->x->dtype) value = gd_cast_at(w->site, value, (gd_dtype)w->x->dtype);
    if (part_shape(w, &shape)) return gd_expand_at(w->site, value, shape);
    return gd_where_at(w->site, gd_scalar_of(1, GD_BOOL), value, read_part(w));
}

/* A view put back into what it is a view of. */
static gd_tensor *put_back(const walk *w, const step *s, gd_tensor *part) {
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
    return gd_slice_scatter_at(w->site, s->before, part, &o);
}

gd_tensor *gd_index_put_at(const char *site, gd_tensor *x, gd_place_list places, gd_tensor *value,
                           const gd_index_put_options *options) {
    const bool add = options && options->accumulate;
    walk w;
    gd_tensor *failed = failed_one(x, places);
    if (failed) return failed;
    if (value && value->kind == GD_FAILED) return value;
    gd_status status =
        value ? follow(&w, site, x, places) : gd_fail(GD_E_ARGUMENT, "value is NULL");
    if (status != GD_OK) return refuse("gd_index_put", site, status);
    value = spread(&w, value);
    const gd_index_axes_put_options o = {.axes = w.axes, .accumulate = add, .names = w.names};
    gd_tensor *part;
    if (w.axes.rank > 0)
        part = gd_index_axes_put_at(site, w.part, value, w.axes,
                                    (gd_tensors){w.indices, w.axes.rank}, &o);
    else part = add ? gd_add_at(site, w.part, value) : value;
    for (int i = w.n_steps; i-- > 0;) part = put_back(&w, &w.steps[i], part);
    return part == value ? gd_clone_at(site, part) : part;
}
