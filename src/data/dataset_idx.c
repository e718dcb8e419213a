/* dataset_idx.c - images and classes in IDX files: MNIST and datasets of its form, and any pair of
 * IDX files. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "data/samples.h"
#include "format/idx.h"
#include "gradus/datasets.h"

typedef struct idx_pair {
    gd_idx images;
    gd_sample_array samples;
    int64_t *classes; /* NULL: no labels */
    int64_t count;
} idx_pair;

static gd_status read_idx(const char *path, gd_idx *idx) {
    gd_stream *stream;
    GD_TRY(gd_stream_open(&stream, path));
    const gd_status status = gd_idx_read(idx, stream);
    gd_stream_close(stream);
    return status;
}

/* --- shared by mnist and idx ------------------------------------------------------------------ */

static gd_dtype idx_dtype(gd_idx_type type) {
    switch (type) {
    case GD_IDX_U8: return GD_U8;
    case GD_IDX_I8: return GD_I8;
    case GD_IDX_I16:
    case GD_IDX_I32: return GD_I32;
    case GD_IDX_F32: return GD_F32;
    case GD_IDX_F64: return GD_F64;
    }
    return GD_DTYPE_NONE;
}

/* The library has no i16: such items become i32. */
static gd_status widen_i16(gd_idx *idx, const char *path) {
    if (idx->type != GD_IDX_I16) return GD_OK;
    if (idx->count > SIZE_MAX / 4) return gd_no_memory(path, "for its items");
    int32_t *wide = gd_malloc(idx->count ? 4 * idx->count : 1);
    if (!wide) return gd_no_memory(path, "for its items");
    const int16_t *narrow = idx->items;
    for (size_t i = 0; i < idx->count; i++) wide[i] = narrow[i];
    gd_free(idx->items);
    idx->items = wide;
    idx->type = GD_IDX_I32;
    idx->itemsize = 4;
    return GD_OK;
}

static gd_status read_images(idx_pair *p, const char *path, bool bytes) {
    GD_TRY(read_idx(path, &p->images));
    GD_TRY(widen_i16(&p->images, path));
    const gd_idx *x = &p->images;
    if (x->rank < 1 || x->rank > GD_MAX_RANK - 1)
        return gd_fail(GD_E_SHAPE, "%s: its array has rank %d; samples need 1 to %d", path, x->rank,
                       GD_MAX_RANK - 1);
    p->count = x->dims[0];
    gd_sample_array *r = &p->samples;
    *r = (gd_sample_array){
        .data = x->items, .dtype = idx_dtype(x->type), .unit = x->type == GD_IDX_U8 && !bytes};
    r->bytes = (size_t)x->itemsize;
    if (x->rank == 3) r->dims[r->rank++] = 1; /* images without channels: one channel */
    for (int k = 1; k < x->rank; k++) {
        r->dims[r->rank++] = x->dims[k];
        r->bytes *= (size_t)x->dims[k]; /* the product of all sizes fits */
    }
    return GD_OK;
}

static int64_t integer_at(const gd_idx *x, size_t i) {
    return x->type == GD_IDX_U8   ? ((const uint8_t *)x->items)[i]
           : x->type == GD_IDX_I8 ? ((const int8_t *)x->items)[i]
                                  : ((const int32_t *)x->items)[i];
}

static gd_status take_labels(idx_pair *p, gd_idx *labels, const char *path, const char *images) {
    GD_TRY(widen_i16(labels, path));
    if (labels->rank != 1 || labels->type == GD_IDX_F32 || labels->type == GD_IDX_F64)
        return gd_fail(GD_E_SHAPE, "%s: labels are integers of rank 1; these are %s of rank %d",
                       path, labels->type >= GD_IDX_F32 ? "floats" : "integers", labels->rank);
    if (labels->dims[0] != p->count)
        return gd_fail(GD_E_SHAPE, "%s: has %lld labels, but %s has %lld samples", path,
                       (long long)labels->dims[0], images, (long long)p->count);
    p->classes = gd_calloc(labels->count + 1, sizeof *p->classes);
    if (!p->classes) return gd_no_memory(path, "for its labels");
    for (size_t i = 0; i < labels->count; i++) p->classes[i] = integer_at(labels, i);
    return GD_OK;
}

static gd_status open_pair(gd_dataset *d, const char *images, const char *labels, bool bytes) {
    idx_pair *p = d->self = gd_calloc(1, sizeof *p);
    if (!p) return gd_no_memory(NULL, "for a dataset");
    GD_TRY(read_images(p, images, bytes));
    d->count = p->count;
    if (!labels) return GD_OK;
    gd_idx read = {.rank = 0};
    gd_status status = read_idx(labels, &read);
    if (status == GD_OK) status = take_labels(p, &read, labels, images);
    gd_idx_free(&read);
    return status;
}

static gd_status get_pair(const gd_dataset *d, int64_t index, gd_sample *sample) {
    const idx_pair *p = d->self;
    GD_TRY(gd_sample_array_get(&p->samples, index, sample));
    return p->classes ? gd_sample_add_classes(sample, p->classes + index, NULL, 1) : GD_OK;
}

static gd_status gather_pair(const gd_dataset *d, const int64_t *indices, int64_t count,
                             gd_sample *batch) {
    const idx_pair *p = d->self;
    GD_TRY(gd_sample_array_gather(&p->samples, indices, count, batch));
    return p->classes ? gd_sample_add_classes(batch, p->classes, indices, count) : GD_OK;
}

static void close_pair(gd_dataset *d) {
    idx_pair *p = d->self;
    if (!p) return;
    gd_idx_free(&p->images);
    gd_free(p->classes);
    gd_free(p);
}

/* Names classes "0" to the largest label, unless a label is too large or negative. */
static gd_status number_classes(gd_dataset *d, int64_t least) {
    const idx_pair *p = d->self;
    int64_t classes = least;
    for (int64_t i = 0; p->classes && i < p->count; i++) {
        if (p->classes[i] < 0 || p->classes[i] >= 1 << 16) return GD_OK;
        if (p->classes[i] >= classes) classes = p->classes[i] + 1;
    }
    return classes ? gd_dataset_set_classes(d, NULL, classes) : GD_OK;
}

/*dataset mnist(path:string, part:{train, test})
 * Handwritten digits, or any data in the same files (Fashion-MNIST, KMNIST): `path` is a folder
 * with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
 * t10k-labels-idx1-ubyte, gzipped or not. Samples: the image, f32 (1,28,28) in [0,1], and its
 * class, i64.
 *   bytes bool = false   images as u8, 0 to 255
 *   python MNIST(path, part)
 */
static gd_status mnist_check(const void *options) {
    return gd_check_path(((const gd_dataset_mnist_options *)options)->path, "path");
}

/* Finds a file of MNIST under one of its usual names. The path is from gd_malloc. */
static gd_status find_file(const char *folder, const char *part, const char *what, char **path) {
    char name[64];
    /* "-idx3-ubyte" or ".idx3-ubyte", with or without ".gz" */
    for (int form = 0; form < 4; form++) {
        snprintf(name, sizeof name, "%s-%s%cidx%d-ubyte%s", part, what, form & 1 ? '.' : '-',
                 strcmp(what, "images") == 0 ? 3 : 1, form & 2 ? ".gz" : "");
        *path = gd_folder_join(folder, name);
        if (!*path) return gd_no_memory(NULL, "for a path");
        if (access(*path, F_OK) == 0) return GD_OK;
        gd_free(*path);
        *path = NULL;
    }
    return gd_fail(GD_E_IO, "%s: has no file %s-%s-idx%d-ubyte or %s-%s-idx%d-ubyte.gz", folder,
                   part, what, strcmp(what, "images") == 0 ? 3 : 1, part, what,
                   strcmp(what, "images") == 0 ? 3 : 1);
}

static gd_status check_classes(const idx_pair *p, const char *path) {
    for (int64_t i = 0; i < p->count; i++)
        if (p->classes[i] < 0 || p->classes[i] > 9)
            return gd_fail(GD_E_FORMAT,
                           "%s: label %" PRId64 " (byte %" PRId64 ") is %" PRId64
                           "; classes are 0 to 9",
                           path, i, i + 8, p->classes[i]);
    return GD_OK;
}

static gd_status mnist_open(gd_dataset *d) {
    const gd_dataset_mnist_options *o = d->options;
    const char *part = o->part == GD_TRAIN ? "train" : "t10k";
    char *images = NULL, *labels = NULL;
    gd_status status = find_file(o->path, part, "images", &images);
    if (status == GD_OK) status = find_file(o->path, part, "labels", &labels);
    if (status == GD_OK) status = open_pair(d, images, labels, o->bytes);
    const idx_pair *p = d->self;
    if (status == GD_OK && (p->samples.rank != 3 || p->samples.dtype != GD_U8))
        status = gd_fail(GD_E_FORMAT, "%s: its array has rank %d; images are bytes of rank 3",
                         images, p->images.rank);
    if (status == GD_OK) status = check_classes(p, labels);
    if (status == GD_OK) status = gd_dataset_set_classes(d, NULL, 10);
    gd_free(images);
    gd_free(labels);
    return status;
}

static gd_status mnist_get(const gd_dataset *d, int64_t index, gd_random *random,
                           gd_sample *sample) {
    (void)random;
    return get_pair(d, index, sample);
}
static gd_status mnist_gather(const gd_dataset *d, const int64_t *indices, int64_t count,
                              gd_sample *batch) {
    return gather_pair(d, indices, count, batch);
}
static void mnist_close(gd_dataset *d) { close_pair(d); }

/*dataset idx(images:string)
 * An IDX file of any rank and type: its first axis is the samples. Samples: the rest of the array
 * (bytes as f32 in [0,1]; rank 3 as images with one channel), and the label, i64. The files may be
 * gzipped.
 *   labels string = none   an IDX file with as many integers; none: samples have one tensor
 *   bytes bool = false     bytes as u8, 0 to 255
 *   python IDX(images, labels)
 */
static gd_status idx_check(const void *options) {
    return gd_check_path(((const gd_dataset_idx_options *)options)->images, "images");
}

static gd_status idx_open(gd_dataset *d) {
    const gd_dataset_idx_options *o = d->options;
    GD_TRY(open_pair(d, o->images, o->labels, o->bytes));
    return number_classes(d, 0);
}

static gd_status idx_get(const gd_dataset *d, int64_t index, gd_random *random, gd_sample *sample) {
    (void)random;
    return get_pair(d, index, sample);
}
static gd_status idx_gather(const gd_dataset *d, const int64_t *indices, int64_t count,
                            gd_sample *batch) {
    return gather_pair(d, indices, count, batch);
}
static void idx_close(gd_dataset *d) { close_pair(d); }

#include "data/dataset_idx.gen.h"
