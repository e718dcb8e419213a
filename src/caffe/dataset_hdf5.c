/* dataset_hdf5.c - rows of HDF5 files. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "caffe/hdf5_rows.h"
#include "core/alloc.h"
#include "core/copy.h"
#include "data/samples.h"
#include "gradus/datasets.h"

enum { MAX_CLASSES = 1 << 16 };

typedef struct hdf5_samples {
    gd_caffe_rows rows;
    bool classes; /* the last dataset has the class of each sample */
} hdf5_samples;

/*dataset hdf5(path:string)
 * Rows of HDF5 files: `path` is a file, or a text that lists files, as Caffe's HDF5Data reads it.
 * Each file has datasets of the same names, with a row for each sample. Samples: a row of each
 * dataset, f32. If the last of several datasets has one whole number for each sample, from 0 on, it
 * is the class, i64.
 *   names string = none   of the datasets, with spaces between them; none: 'data label'
 */
static gd_status hdf5_check(const void *options) {
    const gd_dataset_hdf5_options *o = options;
    return gd_check_path(o->path, "path");
}

/* Splits the names at spaces; `text` is changed. */
static int split_names(char *text, const char *names[GD_SAMPLE_MAX]) {
    int count = 0;
    for (char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        if (count == GD_SAMPLE_MAX) return GD_SAMPLE_MAX + 1;
        names[count++] = at;
        at += strcspn(at, " ");
        if (*at) *at++ = 0;
    }
    return count;
}

static gd_status open_rows(hdf5_samples *s, const gd_dataset_hdf5_options *o) {
    const char *names[GD_SAMPLE_MAX], *given = o->names ? o->names : "data label";
    char *text = gd_malloc(strlen(given) + 1);
    if (!text) return gd_no_memory(o->path, "for a dataset");
    const int count = split_names(strcpy(text, given), names);
    gd_status status;
    if (count < 1 || count > GD_SAMPLE_MAX)
        status = gd_fail(GD_E_ARGUMENT, "names are '%.100s'; there can be 1 to %d", given,
                         GD_SAMPLE_MAX);
    else status = gd_caffe_rows_open(&s->rows, o->path, names, count);
    gd_free(text);
    return status;
}

/* The file of a row. */
static int find_file(const gd_caffe_rows *r, int64_t row) {
    int low = 0, high = r->n_files - 1;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (r->ends[middle] > row) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* Whether the last dataset has a class for each sample; *classes is their number. */
static gd_status look_for_classes(hdf5_samples *s, int64_t *classes) {
    const gd_caffe_rows *r = &s->rows;
    const int last = r->n_names - 1;
    const int64_t rows = gd_caffe_rows_count(r);
    *classes = 0;
    if (last < 1 || gd_numel(r->shapes[last].rank, r->shapes[last].at) != 1) return GD_OK;
    for (int64_t i = 0; i < rows; i++) {
        float value;
        GD_TRY(gd_caffe_rows_read(r, last, find_file(r, i), i, 1, &value));
        if (!(value >= 0 && value < MAX_CLASSES) || value != floorf(value)) return GD_OK;
        if ((int64_t)value >= *classes) *classes = (int64_t)value + 1;
    }
    s->classes = true;
    return GD_OK;
}

static gd_status hdf5_open(gd_dataset *d) {
    int64_t classes;
    hdf5_samples *s = d->self = gd_calloc(1, sizeof *s);
    if (!s) return gd_no_memory(NULL, "for a dataset");
    GD_TRY(open_rows(s, d->options));
    d->count = gd_caffe_rows_count(&s->rows);
    GD_TRY(look_for_classes(s, &classes));
    return s->classes ? gd_dataset_set_classes(d, NULL, classes) : GD_OK;
}

static gd_status hdf5_get(const gd_dataset *d, int64_t index, gd_random *random,
                          gd_sample *sample) {
    const hdf5_samples *s = d->self;
    const gd_caffe_rows *r = &s->rows;
    const int file = find_file(r, index);
    (void)random;
    for (int k = 0; k < r->n_names - s->classes; k++) {
        void *to = NULL;
        GD_TRY(gd_sample_add(sample, GD_F32, r->shapes[k].rank, r->shapes[k].at, &to));
        GD_TRY(gd_caffe_rows_read(r, k, file, index, 1, to));
    }
    if (!s->classes) return GD_OK;
    float value;
    GD_TRY(gd_caffe_rows_read(r, r->n_names - 1, file, index, 1, &value));
    const int64_t class = (int64_t)value;
    return gd_sample_add_classes(sample, &class, NULL, 1);
}

static void hdf5_name(const gd_dataset *d, int64_t index, char *text, size_t size) {
    const gd_caffe_rows *r = &((const hdf5_samples *)d->self)->rows;
    const int file = find_file(r, index);
    snprintf(text, size, "%.250s: row %lld", r->paths[file],
             (long long)(index - (file ? r->ends[file - 1] : 0)));
}

static void hdf5_close(gd_dataset *d) {
    hdf5_samples *s = d->self;
    if (!s) return;
    gd_caffe_rows_close(&s->rows);
    gd_free(s);
}

#include "caffe/dataset_hdf5.gen.h"
