/* dataset_lmdb.c - images in an LMDB of Caffe. */
#include <stdio.h>
#include <string.h>

#include "caffe/picture.h"
#include "core/alloc.h"
#include "data/samples.h"
#include "format/lmdb.h"
#include "gradus/datasets.h"

typedef struct lmdb_images {
    gd_lmdb *db;
    bool bytes;
} lmdb_images;

/*dataset lmdb(path:string)
 * Images in an LMDB of Caffe (a folder with data.mdb), in the order of their keys: records of
 * Caffe's type Datum, with pixels or an encoded JPEG or PNG. Samples: the image, f32 (C,H,W) in
 * [0,1] with the channels as stored, usually BGR, and its label, i64. A Datum with floats keeps its
 * values. This needs liblmdb when the library is built.
 *   classes int = 0      number of classes; 0: one more than the largest label, for which all records are read
 *   bytes bool = false   images as u8, 0 to 255
 */
static gd_status lmdb_check(const void *options) {
    const gd_dataset_lmdb_options *o = options;
    GD_TRY(gd_check_path(o->path, "path"));
    if (o->classes >= 0 && o->classes <= 1 << 20) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "classes is %lld; it must be from 0 to 2^20",
                   (long long)o->classes);
}

/* "record '00000012_cat.jpg'" for messages. */
static void name_record(const gd_lmdb_record *r, char *text, size_t size) {
    snprintf(text, size, "record '%.*s'", r->key_bytes < 200 ? (int)r->key_bytes : 200, r->key);
}

/* The class numbers, unless labels are no classes. */
static gd_status count_classes(gd_dataset *d, int64_t classes) {
    const lmdb_images *l = d->self;
    for (int64_t i = 0; classes == 0 && i < d->count; i++) {
        gd_lmdb_record r;
        int64_t label;
        char name[300];
        GD_TRY(gd_lmdb_read(l->db, i, 1, &r));
        name_record(&r, name, sizeof name);
        GD_TRY(gd_caffe_datum_label(&label, name, r.value, r.value_bytes));
        if (label < 0 || label >= 1 << 16) return GD_OK;
        if (label >= d->n_classes) d->n_classes = label + 1;
    }
    if (classes == 0) classes = d->n_classes;
    d->n_classes = 0; /* until the names are there */
    return gd_dataset_set_classes(d, NULL, classes);
}

static gd_status lmdb_open(gd_dataset *d) {
    const gd_dataset_lmdb_options *o = d->options;
    lmdb_images *l = d->self = gd_calloc(1, sizeof *l);
    if (!l) return gd_no_memory(o->path, "for a dataset");
    GD_TRY(gd_lmdb_open(&l->db, o->path));
    d->count = gd_lmdb_count(l->db);
    l->bytes = o->bytes;
    return count_classes(d, o->classes);
}

static gd_status add_image(const lmdb_images *l, const gd_caffe_picture *p, gd_sample *sample) {
    const int64_t dims[3] = {p->channels, p->height, p->width};
    const size_t count = (size_t)(dims[0] * dims[1] * dims[2]);
    void *to = NULL;
    GD_TRY(gd_sample_add(sample, p->bytes && l->bytes ? GD_U8 : GD_F32, 3, dims, &to));
    if (p->floats) {
        memcpy(to, p->floats, count * sizeof(float));
        return GD_OK;
    }
    if (l->bytes) {
        gd_caffe_picture_planes(p, to);
        return GD_OK;
    }
    uint8_t *planes = gd_malloc(count);
    if (!planes) return gd_no_memory(NULL, "for an image");
    gd_caffe_picture_planes(p, planes);
    gd_bytes_to_unit(to, planes, count);
    gd_free(planes);
    return GD_OK;
}

static gd_status lmdb_get(const gd_dataset *d, int64_t index, gd_random *random,
                          gd_sample *sample) {
    const lmdb_images *l = d->self;
    gd_lmdb_record r;
    gd_caffe_picture picture;
    (void)random;
    GD_TRY(gd_lmdb_read(l->db, index, 1, &r));
    GD_TRY(gd_caffe_datum_read(&picture, gd_lmdb_folder(l->db), r.value, r.value_bytes,
                               GD_CAFFE_AS_STORED));
    const int64_t label = picture.label;
    const gd_status status = add_image(l, &picture, sample);
    gd_caffe_picture_free(&picture);
    return status == GD_OK ? gd_sample_add_classes(sample, &label, NULL, 1) : status;
}

static void lmdb_name(const gd_dataset *d, int64_t index, char *text, size_t size) {
    gd_lmdb_record r;
    if (gd_lmdb_read(((const lmdb_images *)d->self)->db, index, 1, &r) == GD_OK)
        name_record(&r, text, size);
    else snprintf(text, size, "record %lld", (long long)index);
}

static void lmdb_close(gd_dataset *d) {
    lmdb_images *l = d->self;
    if (!l) return;
    gd_lmdb_close(l->db);
    gd_free(l);
}

#include "caffe/dataset_lmdb.gen.h"
