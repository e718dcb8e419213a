/* bottoms.c - checks of the shapes of bottoms, and of labels. */
#include "caffe/layers/bottoms.h"

#include <stdio.h>

#include "core/tensor.h"
#include "nn/module.h"

static const char *name_of(const gd_caffe_layer *l, int i) {
    return gd_pb_string_at(l->message, "bottom", (size_t)i);
}

const char *gd_caffe_bottom_text(const gd_caffe_layer *l, int i, char text[128]) {
    return gd_shape_text(l->bottoms[i].rank, l->bottoms[i].at, text, 128);
}

static gd_status fail_shape(const gd_caffe_layer *l, int i, const char *needs) {
    char own[128], first[128];
    return gd_caffe_fail(l, "bottom '%s' is %s, but '%s' is %s; %s", name_of(l, i),
                         gd_caffe_bottom_text(l, i, own), name_of(l, 0),
                         gd_caffe_bottom_text(l, 0, first), needs);
}

gd_status gd_caffe_need_shape_of_first(const gd_caffe_layer *l, int i) {
    const gd_shape *a = &l->bottoms[0], *b = &l->bottoms[i];
    bool same = a->rank == b->rank;
    for (int k = 0; k < a->rank && same; k++)
        same = a->at[k] == b->at[k] || a->at[k] < 0 || b->at[k] < 0;
    return same ? GD_OK : fail_shape(l, i, "their shapes must be equal");
}

gd_status gd_caffe_need_count_of_first(const gd_caffe_layer *l, int i) {
    const gd_shape *a = &l->bottoms[0], *b = &l->bottoms[i];
    const int64_t ours = gd_caffe_count(a, 0, a->rank), theirs = gd_caffe_count(b, 0, b->rank);
    if (ours < 0 || theirs < 0) return GD_OK;
    const int64_t n = a->rank ? a->at[0] : 1, m = b->rank ? b->at[0] : 1;
    if (ours == theirs && n == m) return GD_OK;
    return fail_shape(l, i, "they must have as many elements, and the same first size");
}

gd_status gd_caffe_need_labels(const gd_caffe_layer *l, int i, int axis) {
    const gd_shape *x = &l->bottoms[0];
    const int64_t outer = gd_caffe_count(x, 0, axis), inner = gd_caffe_count(x, axis + 1, x->rank),
                  labels = gd_caffe_count(&l->bottoms[i], 0, l->bottoms[i].rank);
    char needs[120];
    if (outer < 0 || inner < 0 || labels < 0 || labels == outer * inner) return GD_OK;
    snprintf(needs, sizeof needs, "with the classes on axis %d it takes %lld label%s", axis,
             (long long)(outer * inner), outer * inner == 1 ? "" : "s");
    return fail_shape(l, i, needs);
}

gd_block gd_caffe_name_layer(void) {
    char path[GD_MAX_PATH];
    return gd_name_scope_begin(gd_module_call_path(path, sizeof path));
}

gd_tensor *gd_caffe_known(gd_tensor *x, int first) {
    const gd_shape s = gd_tensor_shape(x);
    char text[128];
    for (int i = first; i < s.rank; i++)
        if (s.at[i] < 0)
            return gd_tensor_fail(gd_fail(GD_E_SHAPE, "x is %s; the size of axis %d must be known",
                                          gd_describe(x, text, sizeof text), i));
    return x;
}

gd_tensor *gd_caffe_by_class(gd_tensor *x, int axis) {
    const gd_shape s = gd_tensor_shape(x);
    return gd_caffe_shaped(
        x, gd_dims(gd_caffe_count(&s, 0, axis), s.at[axis], gd_caffe_count(&s, axis + 1, s.rank)));
}

gd_tensor *gd_caffe_class_numbers(gd_tensor *labels, gd_tensor *by_class, int64_t ignored) {
    GD_CAFFE_NAME_LAYER;
    by_class = gd_caffe_known(by_class, 1);
    const gd_shape shape = gd_dims(gd_tensor_dim(by_class, 0), gd_tensor_dim(by_class, 2));
    return gd_check_range(gd_caffe_shaped(gd_caffe_labels(labels), shape), 0,
                          gd_tensor_dim(by_class, 1) - 1, .but = ignored, .what = "target");
}
