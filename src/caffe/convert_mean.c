/* convert_mean.c - the mean image of a database. */
#include <stdio.h>
#include <string.h>

#include "caffe/picture.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "format/lmdb.h"
#include "gradus/caffe.h"

/* The sum of the pictures so far. */
typedef struct mean_sum {
    int sizes[3];
    double *sum; /* (channels, height, width) */
} mean_sum;

static gd_status add_picture(mean_sum *m, const gd_caffe_picture *p) {
    const int sizes[3] = {p->channels, p->height, p->width};
    if (!m->sum) {
        memcpy(m->sizes, sizes, sizeof sizes);
        m->sum =
            gd_calloc((size_t)p->channels * (size_t)p->height * (size_t)p->width, sizeof *m->sum);
        if (!m->sum) return gd_no_memory(NULL, "for the mean");
    }
    if (memcmp(m->sizes, sizes, sizeof sizes) != 0)
        return gd_fail(GD_E_SHAPE, "is %d x %d x %d, and the first image %d x %d x %d", sizes[0],
                       sizes[1], sizes[2], m->sizes[0], m->sizes[1], m->sizes[2]);
    double *to = m->sum;
    for (int c = 0; c < p->channels; c++)
        for (int y = 0; y < p->height; y++)
            for (int x = 0; x < p->width; x++) {
                const int64_t at = p->first + c * p->step[0] + y * p->step[1] + x * p->step[2];
                *to++ += p->bytes ? (double)p->bytes[at] : (double)p->floats[at];
            }
    return GD_OK;
}

static gd_status add_record(mean_sum *m, gd_lmdb *db, int64_t i) {
    gd_lmdb_record r;
    gd_caffe_picture picture;
    char name[400];
    GD_TRY(gd_lmdb_read(db, i, 1, &r));
    snprintf(name, sizeof name, "%.250s: record '%.*s'", gd_lmdb_folder(db),
             r.key_bytes < 80 ? (int)r.key_bytes : 80, r.key);
    GD_TRY(gd_caffe_datum_read(&picture, name, r.value, r.value_bytes, GD_CAFFE_AS_STORED));
    const gd_status status = add_picture(m, &picture);
    if (status != GD_OK) gd_error_prefix("%s: ", name);
    gd_caffe_picture_free(&picture);
    return status;
}

static gd_status compute_mean(mean_sum *m, const char *database, gd_tensor **made) {
    gd_lmdb *db;
    if (!database) return gd_fail(GD_E_ARGUMENT, "the path is NULL");
    GD_TRY(gd_lmdb_open(&db, database));
    const int64_t count = gd_lmdb_count(db);
    gd_status status = count ? GD_OK : gd_fail(GD_E_FORMAT, "%s: has no records", database);
    for (int64_t i = 0; i < count && status == GD_OK; i++) status = add_record(m, db, i);
    gd_lmdb_close(db);
    GD_TRY(status);
    const int64_t dims[4] = {1, m->sizes[0], m->sizes[1], m->sizes[2]};
    gd_tensor *t = gd_tensor_new(gd_cpu(), GD_F32, 4, dims);
    if (!t) return gd_this_thread.latest;
    float *to = t->storage->data;
    for (int64_t i = 0; i < dims[1] * dims[2] * dims[3]; i++)
        to[i] = (float)m->sum[i] / (float)count; /* in f32, as Caffe divides */
    *made = t;
    return GD_OK;
}

gd_tensor *gd_caffe_mean_at(const char *site, const char *database) {
    mean_sum m = {.sum = NULL};
    gd_tensor *mean = NULL;
    GD_CALLED_FROM(site);
    const gd_status status = compute_mean(&m, database, &mean);
    gd_free(m.sum);
    if (status == GD_OK) return mean;
    gd_error_prefix("gd_caffe_mean: ");
    return gd_tensor_fail(status);
}
