/* data_layers.h - opens data layers from text, and writes databases for them. */
#ifndef GRADUS_TESTS_UNIT_CAFFE_DATA_LAYERS_H
#define GRADUS_TESTS_UNIT_CAFFE_DATA_LAYERS_H

#include "caffe/convert.h"
#include "caffe/data.h"
#include "caffe/schema.h"
#include "clean_test.h"
#include "core/error.h"
#include "files.h"
#include "gradus/gradus.h"
#include "temp.h"

enum { MAX_LAYERS = 8 };

/* The folder of the test is the one of the net's file, from which paths are looked for. */
static inline const char *net_path(void) { return temp_path("net.prototxt"); }

static inline gd_status open_text(gd_caffe_data **data, const char *text, gd_caffe_phase phase,
                                  const gd_caffe_data_options *options) {
    gd_pb_doc *doc;
    const gd_pb *layers[MAX_LAYERS];
    file_write_text(net_path(), text);
    GD_TRY(gd_pb_load_text(&doc, &gd_caffe_net_schema, net_path()));
    const gd_pb_list *list = gd_pb_get(gd_pb_root(doc), "layer");
    for (size_t i = 0; i < list->count; i++) layers[i] = list->messages[i];
    const gd_status status =
        gd_caffe_data_open(data, layers, (int)list->count, phase, net_path(), options);
    gd_pb_free(doc);
    return status;
}

/* Opens the layers of a text; NULL: it fails. */
static inline gd_caffe_data *open_layers(const char *text, gd_caffe_phase phase,
                                         const gd_caffe_data_options *options) {
    gd_caffe_data *data = NULL;
    const gd_status status = open_text(&data, text, phase, options);
    CHECK_SAYING(status == GD_OK, "%s", gd_latest_failure());
    return data;
}

/* Whether opening the layers fails with a message that has this part. */
static inline bool fails_saying(const char *text, const gd_caffe_data_options *options,
                                const char *part) {
    gd_caffe_data *data;
    GD_SCOPE;
    const gd_status status = open_text(&data, text, GD_CAFFE_TRAIN, options);
    const bool is = status != GD_OK && strstr(gd_latest_failure(), part);
    if (!is) fprintf(stderr, "status %d: %s\n", (int)status, gd_latest_failure());
    return is && !gd_failed();
}

static inline gd_tensors next_batch(const gd_caffe_data *data) {
    gd_tensors batch = {NULL, 0};
    while (!gd_loader_next(gd_caffe_data_loader(data), &batch) && !gd_failed()) {
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    return batch;
}

static inline float value_at(gd_tensor *t, int64_t i) { return ((const float *)gd_data(t))[i]; }

static inline bool same_bits(gd_tensor *a, gd_tensor *b) {
    const size_t bytes = (size_t)gd_tensor_numel(a) * sizeof(float);
    return gd_tensor_numel(a) == gd_tensor_numel(b) && memcmp(gd_data(a), gd_data(b), bytes) == 0;
}

/* Pixel (c, y, x) of image i. */
static inline uint8_t pixel(int64_t i, int c, int y, int x) {
    return (uint8_t)(i * 37 + c * 101 + y * 11 + x * 3);
}

/* An LMDB in the folder of the test with `count` images of 2 x 5 x 6; the label is 10 i. */
static inline void write_images(const char *name, int64_t count) {
    gd_lmdb_writer *w;
    uint8_t bytes[60];
    CHECK(gd_lmdb_create(&w, temp_new_folder(name)) == GD_OK);
    for (int64_t i = 0; i < count; i++) {
        char key[24];
        for (int k = 0; k < 60; k++) bytes[k] = pixel(i, k / 30, k / 6 % 5, k % 6);
        const gd_caffe_item item = {2, 5, 6, bytes, 60, 10 * i, false, false};
        snprintf(key, sizeof key, "%08lld", (long long)i);
        CHECK(gd_caffe_put_item(w, key, &item) == GD_OK);
    }
    CHECK(gd_lmdb_finish(w) == GD_OK);
}

#endif
