/* shape.c - layers that only move elements: Slice, Split, Reshape, Tile. */
#include "caffe/layer.h"
#include "caffe/save/save.h"
#include "core/tensor.h"
#include "core/tensor_list.h"

/* --- Slice ------------------------------------------------------------------------------------ */

typedef struct slice {
    int axis, n_tops;
    bool has_points;
    int64_t points[]; /* where the tops begin, and the end, if it has points */
} slice;

/* With points the last top has what is left. */
static gd_tensors slice_by_points(const slice *m, gd_tensor *x) {
    const int64_t total = gd_tensor_dim(x, m->axis);
    gd_shape sizes = {.rank = m->n_tops, .form = 1};
    gd_tensor **tops = gd_list_new(m->n_tops);
    if (!tops) return gd_list_of_errors(m->n_tops);
    for (int i = 0; i < m->n_tops; i++) {
        const int64_t start = i ? m->points[i - 1] : 0,
                      size = (i + 1 < m->n_tops ? m->points[i] : total) - start;
        if (m->n_tops <= GD_MAX_RANK) sizes.at[i] = size;
        else tops[i] = gd_narrow(x, m->axis, start, size);
    }
    if (m->n_tops <= GD_MAX_RANK) return gd_split(x, sizes, .axis = m->axis);
    return (gd_tensors){tops, m->n_tops};
}

static gd_tensors slice_forward(gd_tensors in, void *self) {
    const slice *m = self;
    gd_tensor *x = in.at[0];
    const int64_t total = gd_tensor_dim(x, m->axis);
    if (m->n_tops == 1) return gd_listed(x);
    if (m->has_points) return slice_by_points(m, x);
    if (total % m->n_tops == 0) return gd_split(x, gd_dims(total / m->n_tops), .axis = m->axis);
    return gd_listed(gd_tensor_fail(gd_fail(GD_E_SHAPE,
                                            "axis %d has %lld elements, which %d tops "
                                            "cannot share evenly",
                                            m->axis, (long long)total, m->n_tops)));
}

static gd_status check_points(const gd_caffe_layer *l, const gd_pb_list *points, int64_t size) {
    int64_t last = 0;
    if ((int)points->count != l->n_tops - 1)
        return gd_caffe_fail(l, "%d tops need %d slice_point, but it has %zu", l->n_tops,
                             l->n_tops - 1, points->count);
    for (size_t i = 0; i < points->count; last = points->ints[i++])
        if (points->ints[i] <= last || (size >= 0 && points->ints[i] >= size))
            return gd_caffe_fail(l,
                                 "slice_point %zu is %lld; the points must increase, and lie "
                                 "between 0 and %lld, the size of the axis",
                                 i, (long long)points->ints[i], (long long)size);
    return GD_OK;
}

gd_status gd_caffe_make_Slice(gd_caffe_layer *l) {
    const gd_pb_list *points = gd_pb_list_of(l->message, "slice_param.slice_point");
    int axis;
    GD_TRY(gd_caffe_axis(l,
                         gd_pb_has(l->message, "slice_param.slice_dim") ? "slice_param.slice_dim"
                                                                        : "slice_param.axis",
                         &axis));
    const int64_t size = l->bottoms[0].at[axis];
    const size_t count = points ? points->count : 0;
    if (count > 0) GD_TRY(check_points(l, points, size));
    else if (size >= 0 && size % l->n_tops != 0)
        return gd_caffe_fail(l,
                             "axis %d has %lld elements, which %d tops cannot share evenly; "
                             "slice_point says where to cut",
                             axis, (long long)size, l->n_tops);
    slice *m = gd_caffe_module(l, slice_forward, sizeof *m + count * sizeof(int64_t));
    if (!m) return gd_failure();
    m->axis = axis;
    m->n_tops = l->n_tops;
    m->has_points = count > 0;
    for (size_t i = 0; i < count; i++) m->points[i] = points->ints[i];
    return GD_OK;
}

/* --- Split ------------------------------------------------------------------------------------ */

typedef struct split {
    int n_tops;
} split;

static gd_tensors split_forward(gd_tensors in, void *self) {
    const split *m = self;
    gd_tensor **tops = gd_list_new(m->n_tops);
    if (!tops) return gd_list_of_errors(m->n_tops);
    for (int i = 0; i < m->n_tops; i++) tops[i] = in.at[0];
    return (gd_tensors){tops, m->n_tops};
}

gd_status gd_caffe_make_Split(gd_caffe_layer *l) {
    split *m = gd_caffe_module(l, split_forward, sizeof *m);
    if (!m) return gd_failure();
    m->n_tops = l->n_tops;
    return GD_OK;
}

/* --- Reshape ---------------------------------------------------------------------------------- */

typedef struct reshape {
    int first, end; /* the axes of the bottom from first to before end are replaced */
    int n;          /* by n sizes: 0 is the bottom's own, -1 follows from the others */
    int64_t sizes[GD_MAX_RANK];
} reshape;

static gd_shape shape_after(const reshape *m, gd_shape x) {
    gd_shape y = {.form = 1};
    for (int i = 0; i < m->first; i++) y.at[y.rank++] = x.at[i];
    for (int i = 0; i < m->n; i++)
        y.at[y.rank++] = m->sizes[i] == 0 ? x.at[m->first + i] : m->sizes[i];
    for (int i = m->end; i < x.rank; i++) y.at[y.rank++] = x.at[i];
    return y;
}

/* The product of the known sizes, 0 if it is too large; *unknown counts the others. */
static int64_t known_count(const gd_shape *s, int *unknown) {
    int64_t known = 1;
    *unknown = 0;
    for (int i = 0; i < s->rank; i++)
        if (s->at[i] < 0) ++*unknown;
        else if (__builtin_mul_overflow(known, s->at[i], &known)) return 0;
    return known;
}

/* In a graph a size of the bottom may be unknown. If it is copied, the size that follows from the others
 * must be a number, because a shape can leave one open. */
static gd_tensors reshape_forward(gd_tensors in, void *self) {
    const reshape *m = self;
    const gd_shape x = gd_tensor_shape(in.at[0]);
    gd_shape y = shape_after(m, x);
    int of_x, of_y;
    const int64_t from = known_count(&x, &of_x), to = known_count(&y, &of_y);
    for (int i = 0; i < m->n && of_y > 1 && of_y == of_x + 1; i++)
        if (m->sizes[i] == -1 && to > 0) y.at[m->first + i] = from / to;
    return gd_listed(gd_reshape(in.at[0], y));
}

/* The axes that are replaced: from `axis`, where -1 is behind the last one. */
static gd_status reshaped_axes(const gd_caffe_layer *l, reshape *m) {
    const int rank = l->bottoms[0].rank;
    const int64_t axis = gd_pb_int_of(l->message, "reshape_param.axis"),
                  count = gd_pb_int_of(l->message, "reshape_param.num_axes"),
                  first = axis < 0 ? rank + axis + 1 : axis, end = count < 0 ? rank : first + count;
    if (first < 0 || first > rank)
        return gd_caffe_fail(l, "axis is %lld, but its bottom has %d axes (%d to %d)",
                             (long long)axis, rank, -rank - 1, rank);
    if (count < -1 || end > rank)
        return gd_caffe_fail(l, "num_axes is %lld, but its bottom has %d axes from axis %lld on",
                             (long long)count, rank - (int)first, (long long)first);
    m->first = (int)first;
    m->end = (int)end;
    return GD_OK;
}

static gd_status read_sizes(const gd_caffe_layer *l, reshape *m) {
    const gd_pb_list *sizes = gd_pb_list_of(l->message, "reshape_param.shape.dim");
    const size_t count = sizes ? sizes->count : 0;
    const int kept = l->bottoms[0].rank - (m->end - m->first);
    int n_inferred = 0;
    if (count + (size_t)kept > GD_MAX_RANK)
        return gd_caffe_fail(l, "the top would have %zu axes; %d are the most",
                             count + (size_t)kept, GD_MAX_RANK);
    for (m->n = 0; m->n < (int)count; m->n++) {
        const int64_t size = m->sizes[m->n] = sizes->ints[m->n];
        n_inferred += size == -1;
        if (size < -1 || n_inferred > 1)
            return gd_caffe_fail(
                l, "dim %d is %lld; a dim is a size, 0, or -1, which may be there once", m->n,
                (long long)size);
        if (size == 0 && m->first + m->n >= l->bottoms[0].rank)
            return gd_caffe_fail(l, "dim %d is 0, the size of axis %d, but its bottom has %d axes",
                                 m->n, m->first + m->n, l->bottoms[0].rank);
    }
    return GD_OK;
}

/* Whether the elements of the bottom fit. */
static gd_status check_elements(const gd_caffe_layer *l, const reshape *m) {
    const gd_shape *x = &l->bottoms[0], y = shape_after(m, *x);
    const int64_t total = gd_caffe_count(x, 0, x->rank);
    char from[128], to[128];
    int64_t known = 1;
    bool inferred = false, fits = true;
    for (int i = 0; i < y.rank && fits; i++)
        if (y.at[i] < 0) inferred = true;
        else fits = !__builtin_mul_overflow(known, y.at[i], &known);
    if (total < 0) return GD_OK;
    if (fits && (inferred ? known > 0 && total % known == 0 : known == total)) return GD_OK;
    return gd_caffe_fail(l, "the %lld elements of its bottom %s do not fit %s", (long long)total,
                         gd_shape_text(x->rank, x->at, from, sizeof from),
                         gd_shape_text(y.rank, y.at, to, sizeof to));
}

gd_status gd_caffe_make_Reshape(gd_caffe_layer *l) {
    reshape found = {0};
    GD_TRY(reshaped_axes(l, &found));
    GD_TRY(read_sizes(l, &found));
    GD_TRY(check_elements(l, &found));
    reshape *m = gd_caffe_module(l, reshape_forward, sizeof *m);
    if (!m) return gd_failure();
    *m = found;
    return GD_OK;
}

/* --- Tile ------------------------------------------------------------------------------------- */

typedef struct tile {
    int axis;
    int64_t tiles;
} tile;

static gd_tensors tile_forward(gd_tensors in, void *self) {
    const tile *m = self;
    gd_shape repeats = {.rank = gd_tensor_rank(in.at[0]), .form = 1};
    for (int i = 0; i < repeats.rank; i++) repeats.at[i] = i == m->axis ? m->tiles : 1;
    return gd_listed(gd_repeat(in.at[0], repeats));
}

gd_status gd_caffe_make_Tile(gd_caffe_layer *l) {
    const int64_t tiles = gd_pb_int_of(l->message, "tile_param.tiles");
    int axis;
    GD_TRY(gd_caffe_axis(l, "tile_param.axis", &axis));
    if (tiles < 1)
        return gd_caffe_fail(l, "tiles is %lld; it must be at least 1", (long long)tiles);
    tile *m = gd_caffe_module(l, tile_forward, sizeof *m);
    if (!m) return gd_failure();
    m->axis = axis;
    m->tiles = tiles;
    return GD_OK;
}

/* --- saving ----------------------------------------------------------------------------------- */

static const gd_shape *shape_of(const gd_caffe_call *c, int value) {
    static const gd_shape none;
    return value < 0 || c->saver->status != GD_OK ? &none : &c->saver->values[value].shape;
}

/* Leading sizes that are equal, as the batch, stay free; one size after them, too. */
void gd_caffe_shape_as(gd_caffe_call *c, int from, int to) {
    const gd_shape x = *shape_of(c, from), y = *shape_of(c, to);
    gd_caffe_out(c, "Reshape", from, to);
    if (c->saver->status != GD_OK) return;
    gd_pb *options =
        gd_pb_put_message(c->saver->layers[c->saver->n_layers - 1].message, "reshape_param");
    gd_pb *shape = gd_pb_put_message(options, "shape");
    int same = 0;
    while (same < x.rank && same < y.rank && x.at[same] == y.at[same]) same++;
    for (int i = 0; i < y.rank; i++)
        gd_pb_put_int(shape, "dim", i < same ? 0 : i == same && i == y.rank - 1 ? -1 : y.at[i]);
}

gd_status gd_caffe_save_reshape(gd_caffe_call *c) {
    const gd_slot *x = &c->in[0], *y = &c->out[0];
    bool same = x->rank == y->rank;
    for (int i = 0; i < y->rank && same; i++) same = x->dims[i] == y->dims[i];
    if (same) return gd_caffe_save_same(c);
    if (gd_numel(x->rank, x->dims) != gd_numel(y->rank, y->dims))
        return gd_caffe_cannot(
            c, "it repeats elements, and Caffe has no layer that does so along all axes");
    gd_caffe_shape_as(c, gd_caffe_bottom(c, 0), gd_caffe_top(c, 0));
    return c->saver->status;
}

/* The axis of the input that is axis i of the output. */
static void read_order(const gd_caffe_call *c, int64_t order[GD_MAX_RANK]) {
    int64_t from[GD_MAX_RANK], to[GD_MAX_RANK];
    const int rank = c->in[0].rank;
    bool moved[GD_MAX_RANK] = {false};
    for (int i = 0; i < rank; i++) order[i] = i;
    if (gd_caffe_option_list(c, "axes", order) > 0) return;
    if (gd_caffe_option_list(c, "axis0", from) > 0) { /* transpose */
        gd_caffe_option_list(c, "axis1", to);
        from[0] += from[0] < 0 ? rank : 0;
        to[0] += to[0] < 0 ? rank : 0;
        order[from[0]] = to[0];
        order[to[0]] = from[0];
        return;
    }
    const int count = gd_caffe_option_list(c, "source", from);
    gd_caffe_option_list(c, "destination", to);
    for (int i = 0; i < rank; i++) order[i] = -1;
    for (int i = 0; i < count; i++) {
        const int64_t at = from[i] < 0 ? from[i] + rank : from[i];
        order[to[i] < 0 ? to[i] + rank : to[i]] = at;
        moved[at] = true;
    }
    for (int i = 0, next = 0; i < rank; i++) {
        if (order[i] >= 0) continue;
        while (moved[next]) next++;
        order[i] = next++;
    }
}

gd_status gd_caffe_save_permute(gd_caffe_call *c) {
    int64_t order[GD_MAX_RANK];
    read_order(c, order);
    gd_caffe_out(c, "Permute", gd_caffe_bottom(c, 0), gd_caffe_top(c, 0));
    for (int i = 0; i < c->in[0].rank; i++)
        gd_caffe_put_int(c, "order", order[i] < 0 ? order[i] + c->in[0].rank : order[i]);
    return c->saver->status;
}

static int axis_of(const gd_caffe_call *c) {
    const int axis = (int)gd_caffe_option(c, "axis");
    return axis < 0 ? axis + c->in[0].rank : axis;
}

gd_status gd_caffe_save_split(gd_caffe_call *c) {
    const int axis = axis_of(c);
    int64_t at = 0;
    if (c->n_out == 1) return gd_caffe_save_same(c);
    gd_caffe_out(c, "Slice", gd_caffe_bottom(c, 0), gd_caffe_top(c, 0));
    gd_caffe_put_int(c, "axis", axis);
    for (int i = 1; i < c->n_out; i++) {
        gd_caffe_put_top(c->saver, gd_caffe_top(c, i));
        gd_caffe_put_int(c, "slice_point", at += c->out[i - 1].dims[axis]);
    }
    return c->saver->status;
}

/* The parts before and after are tops that nobody reads. */
void gd_caffe_cut(gd_caffe_call *c, int from, int axis, int64_t start, int64_t size, int to) {
    gd_shape part = *shape_of(c, from);
    const int64_t after = part.at[axis] - start - size;
    int before = -1, rest = -1;
    part.at[axis] = start;
    if (start > 0) before = gd_caffe_between(c, part);
    part.at[axis] = after;
    if (after > 0) rest = gd_caffe_between(c, part);
    gd_caffe_out(c, "Slice", from, before);
    gd_caffe_put_top(c->saver, to);
    gd_caffe_put_top(c->saver, rest);
    gd_caffe_put_int(c, "axis", axis);
    if (start > 0) gd_caffe_put_int(c, "slice_point", start);
    if (after > 0) gd_caffe_put_int(c, "slice_point", start + size);
}

gd_status gd_caffe_save_narrow(gd_caffe_call *c) {
    const int axis = axis_of(c);
    const int64_t size = c->in[0].dims[axis], length = c->out[0].dims[axis],
                  given = (int64_t)gd_caffe_option(c, "start"),
                  start = given < 0 ? given + size : given;
    if (length == size) return gd_caffe_save_same(c);
    if (length < 1)
        return gd_caffe_cannot(c, "its result has no elements, and no Slice has such a top");
    gd_caffe_cut(c, gd_caffe_bottom(c, 0), axis, start, length, gd_caffe_top(c, 0));
    return c->saver->status;
}
