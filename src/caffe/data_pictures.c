/* data_pictures.c - what the layers Data and ImageData have in common; see data_feed.h. */
#include <string.h>

#include "caffe/data_feed.h"
#include "core/error.h"
#include "data/permute.h"

/* The stream of random numbers from which the first sample is drawn. */
#define SKIP_STREAM UINT64_MAX

void gd_caffe_pictures_at(const gd_caffe_pictures *p, const gd_caffe_feed *feed,
                          const gd_caffe_draw *draw, int64_t *indices) {
    gd_random random = gd_random_of(draw->seed, SKIP_STREAM);
    const int64_t first = gd_random_below(&random, p->rand_skip) + draw->batch * feed->batch;
    for (int64_t i = 0; i < feed->batch; i++) {
        const int64_t pass = (first + i) / p->count, at = (first + i) % p->count;
        const gd_rng key = gd_draw_key(GD_DRAW_ORDER, draw->seed, (uint64_t)pass);
        indices[i] = p->shuffle ? gd_shuffled(key, at, p->count) : at;
    }
}

gd_status gd_caffe_pictures_shape(const gd_caffe_pictures *p, gd_caffe_feed *feed,
                                  const gd_caffe_picture *first) {
    int sizes[2];
    GD_TRY(gd_caffe_transform_sizes(&p->transform, first, sizes));
    feed->shapes[0] = gd_dims(feed->batch, first->channels, sizes[0], sizes[1]);
    if (feed->n_tops > 1) feed->shapes[1] = gd_dims(feed->batch);
    return GD_OK;
}

/* Allocates the tops for pictures like the first one. */
static gd_status begin_filling(gd_caffe_filling *f, const gd_caffe_picture *p, const int sizes[2]) {
    const gd_shape data = gd_dims(f->feed->batch, p->channels, sizes[0], sizes[1]),
                   labels = gd_dims(f->feed->batch);
    f->channels = p->channels;
    memcpy(f->sizes, sizes, sizeof f->sizes);
    GD_TRY(gd_caffe_add_top(f->sample, &data, &f->data));
    return f->feed->n_tops > 1 ? gd_caffe_add_top(f->sample, &labels, &f->labels) : GD_OK;
}

gd_status gd_caffe_filling_add(gd_caffe_filling *f, const gd_caffe_picture *p) {
    int sizes[2];
    GD_TRY(gd_caffe_transform_sizes(&f->pictures->transform, p, sizes));
    if (f->filled == 0) GD_TRY(begin_filling(f, p, sizes));
    if (p->channels != f->channels || sizes[0] != f->sizes[0] || sizes[1] != f->sizes[1])
        return gd_fail(GD_E_SHAPE,
                       "is %d x %d x %d, and the first image of the batch %d x %d x %d; resize "
                       "the images, set crop_size, or set batch_size to 1",
                       p->channels, sizes[0], sizes[1], f->channels, f->sizes[0], f->sizes[1]);
    gd_random random = gd_random_of(f->key, (uint64_t)f->filled);
    const int64_t values = (int64_t)f->channels * sizes[0] * sizes[1];
    GD_TRY(gd_caffe_transform_apply(&f->pictures->transform, p, &random,
                                    f->data + f->filled * values));
    if (f->labels) f->labels[f->filled] = (float)p->label;
    f->filled++;
    return GD_OK;
}
