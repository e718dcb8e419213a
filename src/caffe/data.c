/* data.c - the tops of Input layers. */
#include "caffe/data.h"

#include <string.h>

#include "core/alloc.h"
#include "core/error.h"

struct gd_caffe_data {
    const char *names[64];
    gd_shape shapes[64];
    int count;
};

bool gd_caffe_is_data(const char *type) {
    static const char *const types[] = {"Data",       "ImageData",     "HDF5Data",
                                        "MemoryData", "DummyData",     "WindowData",
                                        "Input",      "AnnotatedData", "VideoData"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i]) == 0) return true;
    return false;
}

gd_status gd_caffe_data_open(gd_caffe_data **out, const gd_pb *const *layers, int count,
                             gd_caffe_phase phase, const char *of_file,
                             const gd_caffe_data_options *options) {
    (void)phase, (void)of_file, (void)options;
    gd_caffe_data *d = *out = gd_calloc(1, sizeof *d);
    for (int i = 0; i < count; i++)
        for (size_t k = 0; k < gd_pb_count(layers[i], "top") && d->count < 64; k++) {
            const gd_pb_list *shapes = gd_pb_list_of(layers[i], "input_param.shape");
            if (!shapes) return gd_pb_fail(layers[i], "only Input layers are read");
            const gd_pb_list *dims = gd_pb_get(shapes->messages[k < shapes->count ? k : 0], "dim");
            d->names[d->count] = gd_pb_string_at(layers[i], "top", k);
            d->shapes[d->count++] =
                gd_shape_of(dims ? (int)dims->count : 0, dims ? dims->ints : NULL);
        }
    return GD_OK;
}
int gd_caffe_data_tops(const gd_caffe_data *d) { return d->count; }
const char *gd_caffe_data_top(const gd_caffe_data *d, int top) { return d->names[top]; }
gd_shape gd_caffe_data_shape(const gd_caffe_data *d, int top) { return d->shapes[top]; }
gd_loader *gd_caffe_data_loader(const gd_caffe_data *d) {
    (void)d;
    return NULL;
}
