/* select.c - layers that select elements or items: ArgMax, BatchReindex, Filter. */
#include "caffe/layers/bottoms.h"
#include "core/tensor.h"
#include "core/tensor_list.h"
#include "gradus/autograd.h"

/* --- ArgMax ----------------------------------------------------------------------------------- */

typedef struct arg_max {
    bool has_axis; /* else over all axes but the first */
    int axis;
    int64_t k;
    bool gives_values; /* with an axis in place of the positions, else behind them */
} arg_max;

/* The k largest elements along an axis, and where they are. Of equal ones the last come first, so the search
 * runs backwards. */
static void find_largest(const arg_max *m, gd_tensor *x, int axis, gd_tensor **values,
                         gd_tensor **places) {
    x = gd_caffe_known(x, axis);
    gd_tensor *reversed = gd_flip(x, gd_dims(axis));
    const gd_topk_outputs found = gd_topk(reversed, m->k, .axis = axis);
    const gd_dtype dtype = gd_tensor_dtype(x) == GD_F64 ? GD_F64 : GD_F32;
    const double last = (double)gd_tensor_dim(x, axis) - 1;
    *values = found.values;
    *places = gd_affine(gd_cast(found.indices, dtype), -1, last);
}

static gd_tensors arg_max_forward(gd_tensors in, void *self) {
    const arg_max *m = self;
    gd_tensor *x = gd_detach(in.at[0]), *values, *places;
    const int rank = gd_tensor_rank(x);
    if (m->has_axis) {
        find_largest(m, x, m->axis, &values, &places);
        return gd_listed(m->gives_values ? values : places);
    }
    gd_tensor *rows = rank == 1 ? gd_unsqueeze(x, 1) : gd_flatten(x, .start_axis = 1);
    find_largest(m, rows, 1, &values, &places);
    gd_tensor *y = gd_unsqueeze(places, 1);
    if (m->gives_values) y = gd_cat(gd_list(y, gd_unsqueeze(values, 1)), .axis = 1);
    for (int i = 3; i < rank; i++) y = gd_unsqueeze(y, -1);
    return gd_listed(y);
}

gd_status gd_caffe_make_ArgMax(gd_caffe_layer *l) {
    const gd_shape *x = &l->bottoms[0];
    const bool has_axis = gd_pb_has(l->message, "argmax_param.axis");
    const int64_t k = gd_pb_int_of(l->message, "argmax_param.top_k");
    int axis = 0;
    if (has_axis) GD_TRY(gd_caffe_axis(l, "argmax_param.axis", &axis));
    if (x->rank == 0) return gd_caffe_fail(l, "its bottom has no axes");
    const int64_t size = has_axis ? x->at[axis] : gd_caffe_count(x, 1, x->rank);
    if (k < 1 || (size >= 0 && k > size))
        return gd_caffe_fail(l, "top_k is %lld, but there are %lld elements to choose from",
                             (long long)k, (long long)size);
    arg_max *m = gd_caffe_module(l, arg_max_forward, sizeof *m);
    if (!m) return gd_failure();
    m->has_axis = has_axis;
    m->axis = axis;
    m->k = k;
    m->gives_values = gd_pb_int_of(l->message, "argmax_param.out_max_val") != 0;
    return GD_OK;
}

/* --- BatchReindex ----------------------------------------------------------------------------- */

static gd_tensors reindex_forward(gd_tensors in, void *self) {
    GD_CAFFE_NAME_LAYER;
    gd_tensor *x = in.at[0], *index = gd_caffe_labels(in.at[1]);
    const int64_t count = gd_tensor_dim(x, 0);
    (void)self;
    if (count >= 0) index = gd_check_range(index, 0, count - 1, .what = "axis 0");
    return gd_listed(gd_index_select(x, 0, index));
}

gd_status gd_caffe_make_BatchReindex(gd_caffe_layer *l) {
    if (l->bottoms[0].rank == 0) return gd_caffe_fail(l, "its first bottom has no axes");
    if (l->bottoms[1].rank != 1)
        return gd_caffe_fail(l, "its second bottom, the positions, has %d axes; it must have 1",
                             l->bottoms[1].rank);
    return gd_caffe_module(l, reindex_forward, 0) ? GD_OK : gd_failure();
}

/* --- Filter ----------------------------------------------------------------------------------- */

typedef struct filter {
    int n_tops;
} filter;

/* The items whose number in the last bottom is not 0: how many is only known when it is computed. */
static gd_tensors filter_forward(gd_tensors in, void *self) {
    const filter *m = self;
    gd_tensor **tops = gd_list_new(m->n_tops);
    if (!tops) return gd_list_of_errors(m->n_tops);
    gd_tensor *selected =
        gd_reshape(gd_nonzero(gd_reshape(in.at[m->n_tops], gd_dims(-1))), gd_dims(-1));
    for (int i = 0; i < m->n_tops; i++) tops[i] = gd_index_select(in.at[i], 0, selected);
    return (gd_tensors){tops, m->n_tops};
}

gd_status gd_caffe_make_Filter(gd_caffe_layer *l) {
    const int n_tops = l->n_bottoms - 1;
    const gd_shape *selector = &l->bottoms[n_tops];
    char text[128];
    if (l->n_tops != n_tops)
        return gd_caffe_fail(l, "it has %d bottoms and %d tops; each bottom but the last has a top",
                             l->n_bottoms, l->n_tops);
    if (selector->rank == 0 || gd_caffe_count(selector, 1, selector->rank) > 1)
        return gd_caffe_fail(l, "its last bottom is %s; it must have one number for each item",
                             gd_shape_text(selector->rank, selector->at, text, sizeof text));
    for (int i = 0; i < n_tops; i++)
        if (l->bottoms[i].rank == 0 || (l->bottoms[i].at[0] != selector->at[0] &&
                                        l->bottoms[i].at[0] >= 0 && selector->at[0] >= 0))
            return gd_caffe_fail(
                l, "bottom '%s' is %s, but the last bottom has %lld numbers",
                gd_pb_string_at(l->message, "bottom", (size_t)i),
                gd_shape_text(l->bottoms[i].rank, l->bottoms[i].at, text, sizeof text),
                (long long)selector->at[0]);
    filter *m = gd_caffe_module(l, filter_forward, sizeof *m);
    if (!m) return gd_failure();
    m->n_tops = n_tops;
    return GD_OK;
}
