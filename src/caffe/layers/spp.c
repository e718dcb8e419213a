/* spp.c - SPP, a pyramid of poolings: level i pools each plane into 2^i by 2^i windows. */
#include "caffe/layers/pooling.h"

enum { LEVELS = 16 };

typedef struct spp_module {
    gd_caffe_pool_kind kind;
    int height; /* levels */
} spp_module;

static gd_caffe_pool level_windows(gd_caffe_pool_kind kind, int level, const int64_t size[2]) {
    gd_caffe_pool p = {.kind = kind};
    const int64_t bins = (int64_t)1 << level;
    for (int i = 0; i < 2; i++) {
        p.kernel[i] = p.stride[i] = (size[i] + bins - 1) / bins;
        p.pad[i] = (p.kernel[i] * bins - size[i] + 1) / 2;
    }
    return p;
}

/* One level is a pooling; of several, each is a vector for each image. */
static gd_tensors spp_forward(gd_tensors in, void *self) {
    const spp_module *m = self;
    gd_tensor *x = in.at[0], *levels[LEVELS];
    const int64_t size[] = {gd_tensor_dim(x, 2), gd_tensor_dim(x, 3)};
    for (int i = 0; i < m->height; i++) {
        const gd_caffe_pool p = level_windows(m->kind, i, size);
        levels[i] = gd_caffe_pooled(&p, x, NULL);
        if (m->height > 1) levels[i] = gd_flatten(levels[i], .start_axis = 1);
    }
    return gd_listed(m->height > 1 ? gd_cat(((gd_tensors){levels, m->height}), .axis = 1)
                                   : levels[0]);
}

gd_status gd_caffe_make_SPP(gd_caffe_layer *l) {
    const gd_shape *x = &l->bottoms[0];
    const int64_t height = gd_pb_int_of(l->message, "spp_param.pyramid_height");
    const gd_caffe_pool_kind kind = (gd_caffe_pool_kind)gd_pb_int_of(l->message, "spp_param.pool");
    if (x->rank != 4) return gd_caffe_fail(l, "its bottom has %d axes; it must have 4", x->rank);
    if (height < 1 || height > LEVELS)
        return gd_caffe_fail(l, "pyramid_height is %lld; it must be 1 to %d", (long long)height,
                             LEVELS);
    if (x->at[2] < 1 || x->at[3] < 1) return gd_caffe_fail(l, "its bottom has empty planes");
    for (int i = 0; i < (int)height; i++) {
        const gd_caffe_pool p = level_windows(kind, i, x->at + 2);
        for (int k = 0; k < 2; k++)
            if (p.pad[k] > 0 && (p.pad[k] >= p.kernel[k] || kind == GD_CAFFE_POOL_STOCHASTIC))
                return gd_caffe_fail(
                    l,
                    "level %d of the pyramid would pool an axis of size %lld into %d "
                    "windows, which Caffe cannot pad; pyramid_height must be less, or "
                    "the bottom larger",
                    i, (long long)x->at[2 + k], 1 << i);
    }
    spp_module *m = gd_caffe_module(l, spp_forward, sizeof *m);
    if (!m) return gd_failure();
    m->kind = kind;
    m->height = (int)height;
    return GD_OK;
}
