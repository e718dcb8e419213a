/* transform.c - see transform.h. */
#include "caffe/transform.h"

#include <limits.h>
#include <string.h>

#include "caffe/blob.h"
#include "caffe/read.h"
#include "caffe/schema.h"
#include "core/alloc.h"
#include "core/copy.h"
#include "core/error.h"
#include "core/tensor.h"
#include "gradus/ops.h"

/* --- options ---------------------------------------------------------------------------------- */

/* A blob (C, H, W) or (1, C, H, W). */
static gd_status copy_mean(gd_caffe_transform *t, const gd_pb *blob, const char *path) {
    gd_tensor *mean;
    char text[160];
    GD_TRY(gd_caffe_blob_tensor(blob, &mean));
    const gd_tensor *x = gd_contiguous(gd_cast(mean, GD_F32));
    if (x->kind == GD_FAILED) return gd_failure();
    const int64_t count = gd_numel(x->rank, x->dims);
    const bool single = x->rank == 3 || (x->rank == 4 && x->dims[0] == 1);
    if (!single || count < 1 || count > INT32_MAX)
        return gd_fail(GD_E_SHAPE, "%s: is %s; a mean is (1, channels, height, width)", path,
                       gd_describe(x, text, sizeof text));
    for (int i = 0; i < 3; i++) t->mean_sizes[i] = (int)x->dims[x->rank - 3 + i];
    t->mean = gd_malloc((size_t)count * sizeof *t->mean);
    if (!t->mean) return gd_no_memory(path, "for the mean");
    memcpy(t->mean, (const float *)x->storage->data + x->offset, (size_t)count * sizeof *t->mean);
    return GD_OK;
}

static gd_status read_mean_file(gd_caffe_transform *t, const char *name, const char *of_file) {
    char path[PATH_MAX];
    gd_pb_doc *doc;
    GD_TRY(gd_caffe_find_file(name, of_file, path, sizeof path));
    GD_TRY(gd_pb_load(&doc, &gd_caffe_blob_schema, path));
    gd_scope *scope = gd_scope_open();
    const gd_status status = copy_mean(t, gd_pb_root(doc), path);
    gd_scope_close(&scope);
    gd_pb_free(doc);
    return status;
}

static gd_status read_mean_values(gd_caffe_transform *t, const gd_pb_list *values) {
    t->n_mean_values = (int)values->count;
    t->mean_values = gd_malloc(values->count * sizeof *t->mean_values);
    if (!t->mean_values) return gd_no_memory(NULL, "for the means");
    memcpy(t->mean_values, values->floats, values->count * sizeof *t->mean_values);
    return GD_OK;
}

static gd_status read_options(gd_caffe_transform *t, const gd_pb *layer, const char *of_file) {
    const gd_pb *o = gd_pb_message_of(layer, "transform_param");
    const int64_t crop = gd_pb_int_of(layer, "transform_param.crop_size");
    const bool colour = gd_pb_int_of(o, "force_color"), grey = gd_pb_int_of(o, "force_gray");
    const gd_pb_list *values = gd_pb_list_of(o, "mean_value");
    const char *mean_file = gd_pb_string_of(o, "mean_file");
    t->scale = (float)gd_pb_float_of(layer, "transform_param.scale");
    t->mirror = gd_pb_int_of(o, "mirror");
    t->colours = colour ? GD_CAFFE_COLOUR : grey ? GD_CAFFE_GREY : GD_CAFFE_AS_STORED;
    if (crop > INT32_MAX) return gd_pb_fail(o, "crop_size is %lld", (long long)crop);
    t->crop = (int)crop;
    if (colour && grey) return gd_pb_fail(o, "force_color and force_gray are both set");
    if (values && *mean_file) return gd_pb_fail(o, "mean_file and mean_value are both set");
    if (*mean_file) return read_mean_file(t, mean_file, of_file);
    return values ? read_mean_values(t, values) : GD_OK;
}

gd_status gd_caffe_transform_open(gd_caffe_transform *t, const gd_pb *layer, gd_caffe_phase phase,
                                  const char *of_file) {
    *t = (gd_caffe_transform){.phase = phase};
    const gd_status status = read_options(t, layer, of_file);
    if (status != GD_OK) gd_caffe_transform_close(t);
    return status;
}

void gd_caffe_transform_close(gd_caffe_transform *t) {
    gd_free(t->mean);
    gd_free(t->mean_values);
    *t = (gd_caffe_transform){.crop = 0};
}

/* --- pictures --------------------------------------------------------------------------------- */

static gd_status check_picture(const gd_caffe_transform *t, const gd_caffe_picture *p) {
    const int sizes[3] = {p->channels, p->height, p->width};
    if (t->crop > p->height || t->crop > p->width)
        return gd_fail(GD_E_SHAPE, "crop_size is %d, and the image has %d x %d pixels", t->crop,
                       p->height, p->width);
    if (t->mean && memcmp(sizes, t->mean_sizes, sizeof sizes) != 0)
        return gd_fail(
            GD_E_SHAPE, "the mean_file has %d x %d x %d values, and the image %d x %d x %d",
            t->mean_sizes[0], t->mean_sizes[1], t->mean_sizes[2], p->channels, p->height, p->width);
    if (t->n_mean_values > 1 && t->n_mean_values != p->channels)
        return gd_fail(GD_E_SHAPE, "there are %d values mean_value, and the image has %d channels",
                       t->n_mean_values, p->channels);
    return GD_OK;
}

gd_status gd_caffe_transform_sizes(const gd_caffe_transform *t, const gd_caffe_picture *p,
                                   int sizes[2]) {
    GD_TRY(check_picture(t, p));
    sizes[0] = t->crop ? t->crop : p->height;
    sizes[1] = t->crop ? t->crop : p->width;
    return GD_OK;
}

/* A row of the result. Element x comes from from[x * step] and mean[x]; without a mean for each
 * position all elements have `value`. */
#define DEFINE_ROW(name, type)                                                             \
    static inline void name(float *to, const type *from, int64_t step, const float *mean,  \
                            float value, float scale, int n) {                             \
        if (mean)                                                                          \
            for (int x = 0; x < n; x++) to[x] = ((float)from[x * step] - mean[x]) * scale; \
        else if (step == 1)                                                                \
            for (int x = 0; x < n; x++) to[x] = ((float)from[x] - value) * scale;          \
        else                                                                               \
            for (int x = 0; x < n; x++) to[x] = ((float)from[x * step] - value) * scale;   \
    }
DEFINE_ROW(row_of_bytes, uint8_t)
DEFINE_ROW(row_of_floats, float)

static void reverse_row(float *row, int n) {
    for (int a = 0, b = n - 1; a < b; a++, b--) {
        const float left = row[a];
        row[a] = row[b];
        row[b] = left;
    }
}

gd_status gd_caffe_transform_apply(const gd_caffe_transform *t, const gd_caffe_picture *p,
                                   gd_random *random, float *to) {
    int sizes[2], top = 0, left = 0;
    GD_TRY(gd_caffe_transform_sizes(t, p, sizes));
    const bool mirror = t->mirror && gd_random_below(random, 2);
    if (t->crop && t->phase == GD_CAFFE_TRAIN) {
        top = (int)gd_random_below(random, p->height - t->crop + 1);
        left = (int)gd_random_below(random, p->width - t->crop + 1);
    } else if (t->crop) {
        top = (p->height - t->crop) / 2;
        left = (p->width - t->crop) / 2;
    }
    for (int c = 0; c < p->channels; c++) {
        const float value = t->mean_values ? t->mean_values[t->n_mean_values > 1 ? c : 0] : 0;
        for (int y = top; y < top + sizes[0]; y++) {
            const int64_t at = p->first + c * p->step[0] + y * p->step[1] + left * p->step[2];
            const float *mean =
                t->mean ? t->mean + ((int64_t)c * p->height + y) * p->width + left : NULL;
            if (p->bytes)
                row_of_bytes(to, p->bytes + at, p->step[2], mean, value, t->scale, sizes[1]);
            else row_of_floats(to, p->floats + at, p->step[2], mean, value, t->scale, sizes[1]);
            if (mirror) reverse_row(to, sizes[1]);
            to += sizes[1];
        }
    }
    return GD_OK;
}
