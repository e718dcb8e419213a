/* fuzz_datum.c - reads any bytes as a record of a database of Caffe, and transforms it: an error, or all
 * values can be read. */
#include "caffe/picture.h"
#include "caffe/transform.h"
#include "core/alloc.h"

static void transform_picture(const gd_caffe_picture *picture, size_t size) {
    gd_random random = gd_random_of(size, 0);
    gd_caffe_transform t = {.phase = size % 2 ? GD_CAFFE_TRAIN : GD_CAFFE_TEST,
                            .scale = 0.5f,
                            .mirror = true,
                            .crop = (int)(size % 5)};
    int sizes[2];
    if (gd_caffe_transform_sizes(&t, picture, sizes) != GD_OK) return;
    const size_t values = (size_t)picture->channels * (size_t)sizes[0] * (size_t)sizes[1];
    float *to = gd_malloc(values * sizeof *to);
    volatile float sum = 0;
    if (to && gd_caffe_transform_apply(&t, picture, &random, to) == GD_OK)
        for (size_t i = 0; i < values; i++) sum = sum + to[i];
    gd_free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gd_caffe_picture picture;
    int64_t label;
    /* large images are valid but slow */
    if (size > 1 << 14) return 0;
    gd_caffe_datum_label(&label, "fuzz", data, size);
    if (gd_caffe_datum_read(&picture, "fuzz", data, size, (gd_caffe_colours)(size % 3)) != GD_OK)
        return 0;
    if ((int64_t)picture.height * picture.width < 1 << 22) transform_picture(&picture, size);
    gd_caffe_picture_free(&picture);
    return 0;
}
