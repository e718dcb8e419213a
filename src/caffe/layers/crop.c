/* crop.c - Crop: a part of the first bottom with the sizes of the second, from an axis on. */
#include "caffe/layer.h"

typedef struct crop_module {
    int axis;
    gd_shape offset; /* one for each axis from there on */
} crop_module;

static gd_tensors crop_forward(gd_tensors in, void *self) {
    const crop_module *m = self;
    gd_tensor *x = in.at[0];
    for (int i = 0; i < m->offset.rank; i++) {
        const int64_t size = gd_tensor_dim(in.at[1], m->axis + i);
        if (gd_tensor_dim(x, m->axis + i) != size)
            x = gd_narrow(x, m->axis + i, m->offset.at[i], size);
    }
    return gd_listed(x);
}

static gd_status read_offsets(const gd_caffe_layer *l, int axis, gd_shape *offset) {
    const gd_pb_list *given = gd_pb_list_of(l->message, "crop_param.offset");
    const gd_shape *x = &l->bottoms[0], *like = &l->bottoms[1];
    *offset = (gd_shape){.rank = x->rank - axis, .form = 1};
    if (given && given->count > 1 && given->count != (size_t)offset->rank)
        return gd_caffe_fail(l, "it has %zu offsets; it takes one, or one for each of %d axes",
                             given->count, offset->rank);
    if (like->rank != x->rank)
        return gd_caffe_fail(l, "its bottoms have %d and %d axes; they must have as many", x->rank,
                             like->rank);
    for (int i = 0; i < offset->rank; i++) {
        if (given && given->count > 0) offset->at[i] = given->ints[given->count > 1 ? i : 0];
        if (x->at[axis + i] - offset->at[i] < like->at[axis + i])
            return gd_caffe_fail(l,
                                 "axis %d of its first bottom has size %lld: %lld from offset %lld "
                                 "on are not there",
                                 axis + i, (long long)x->at[axis + i],
                                 (long long)like->at[axis + i], (long long)offset->at[i]);
    }
    return GD_OK;
}

gd_status gd_caffe_make_Crop(gd_caffe_layer *l) {
    int axis;
    gd_shape offset;
    GD_TRY(gd_caffe_axis(l, "crop_param.axis", &axis));
    GD_TRY(read_offsets(l, axis, &offset));
    crop_module *m = gd_caffe_module(l, crop_forward, sizeof *m);
    if (!m) return gd_failure();
    m->axis = axis;
    m->offset = offset;
    return GD_OK;
}
