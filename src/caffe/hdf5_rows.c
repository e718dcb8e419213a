/* hdf5_rows.c - see hdf5_rows.h. */
#include "caffe/hdf5_rows.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "caffe/read.h"
#include "core/alloc.h"
#include "core/copy.h"
#include "core/error.h"
#include "core/tensor.h"
#include "format/hdf5.h"
#include "format/stream.h"

enum { MAX_LIST = 1 << 26 };

static char *copy_text(const char *text) {
    char *copy = gd_malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

/* --- the list of files ------------------------------------------------------------------------ */

static gd_status add_path(gd_caffe_rows *r, const char *path) {
    if (r->n_files % 64 == 0) {
        char **paths = gd_realloc(r->paths, (size_t)(r->n_files + 64) * sizeof *paths);
        if (!paths) return gd_no_memory(path, "for a list of files");
        r->paths = paths;
    }
    if (!(r->paths[r->n_files] = copy_text(path))) return gd_no_memory(path, "for a list of files");
    r->n_files++;
    return GD_OK;
}

/* `text` has a zero byte at its end. */
static gd_status add_words(gd_caffe_rows *r, char *text, size_t bytes, const char *list) {
    static const char spaces[] = " \t\r\n\v\f";
    char found[PATH_MAX];
    if (strlen(text) != bytes) return gd_fail(GD_E_FORMAT, "%s: a zero byte in a text", list);
    for (char *at = text + strspn(text, spaces); *at; at += strspn(at, spaces)) {
        const size_t length = strcspn(at, spaces);
        const char end = at[length];
        at[length] = 0;
        const gd_status status = gd_caffe_find_file(at, list, found, sizeof found);
        if (status != GD_OK) gd_error_prefix("%s: ", list);
        GD_TRY(status);
        GD_TRY(add_path(r, found));
        at[length] = end;
        at += length;
    }
    return r->n_files ? GD_OK : gd_fail(GD_E_FORMAT, "%s: lists no files", list);
}

static gd_status read_list(gd_caffe_rows *r, const char *list) {
    gd_stream *stream;
    char *text;
    size_t bytes;
    GD_TRY(gd_stream_open(&stream, list));
    gd_status status = gd_stream_read_all(stream, MAX_LIST, &text, &bytes);
    gd_stream_close(stream);
    GD_TRY(status);
    status = add_words(r, text, bytes, list);
    gd_free(text);
    return status;
}

static gd_status find_files(gd_caffe_rows *r, const char *path) {
    gd_file_reader *file;
    GD_TRY(gd_file_reader_open(&file, path));
    const bool single = gd_hdf5_is(file);
    gd_file_reader_close(file);
    return single ? add_path(r, path) : read_list(r, path);
}

/* --- a file ----------------------------------------------------------------------------------- */

typedef struct open_file {
    gd_file_reader *reader;
    gd_hdf5 *file;
    gd_hdf5_object *dataset; /* that is open */
} open_file;

static void close_file(open_file *f) {
    gd_hdf5_object_close(f->dataset);
    gd_hdf5_close(f->file);
    gd_file_reader_close(f->reader);
}

static gd_status open_dataset(open_file *f, const char *path, const char *name) {
    gd_hdf5_object_close(f->dataset);
    f->dataset = NULL;
    if (!f->reader) GD_TRY(gd_file_reader_open(&f->reader, path));
    if (!f->file) GD_TRY(gd_hdf5_open(&f->file, f->reader));
    GD_TRY(gd_hdf5_object_open(&f->dataset, gd_hdf5_root(f->file), name));
    const gd_hdf5_object *d = f->dataset;
    if (d->is_group || (d->type.kind != GD_HDF5_INT && d->type.kind != GD_HDF5_FLOAT))
        return gd_fail(GD_E_UNSUPPORTED, "%s: '%s' is %s%s; numbers are expected", path, name,
                       d->is_group ? "a group" : "of type ", d->is_group ? "" : d->type.name);
    if (d->shape.rank < 1 || d->shape.rank > GD_MAX_RANK)
        return gd_fail(GD_E_SHAPE, "%s: '%s' has rank %d; samples need 1 to %d", path, name,
                       d->shape.rank, GD_MAX_RANK);
    return gd_hdf5_check_size(d);
}

/* Compares the dataset with what is known of the file and of the files before. */
static gd_status check_dataset(gd_caffe_rows *r, int file, int name, const gd_hdf5_shape *shape,
                               int64_t *rows) {
    const char *path = r->paths[file];
    gd_shape row = gd_shape_of(shape->rank - 1, shape->dims + 1);
    if (name > 0 && shape->dims[0] != *rows)
        return gd_fail(GD_E_SHAPE, "%s: '%s' has %lld rows, and '%s' %lld", path, r->names[0],
                       (long long)*rows, r->names[name], (long long)shape->dims[0]);
    *rows = shape->dims[0];
    if (file == 0) r->shapes[name] = row;
    if (row.rank != r->shapes[name].rank ||
        memcmp(row.at, r->shapes[name].at, sizeof *row.at * (size_t)row.rank) != 0)
        return gd_fail(GD_E_SHAPE, "%s: rows of '%s' have another shape than in %s", path,
                       r->names[name], r->paths[0]);
    if (gd_numel(row.rank, row.at) > 0) return GD_OK;
    return gd_fail(GD_E_SHAPE, "%s: '%s' has no elements", path, r->names[name]);
}

static gd_status measure_file(gd_caffe_rows *r, int file) {
    open_file f = {.file = NULL};
    int64_t rows = 0;
    gd_status status = GD_OK;
    for (int k = 0; k < r->n_names && status == GD_OK; k++) {
        status = open_dataset(&f, r->paths[file], r->names[k]);
        if (status == GD_OK) status = check_dataset(r, file, k, &f.dataset->shape, &rows);
    }
    close_file(&f);
    GD_TRY(status);
    r->ends[file] = (file ? r->ends[file - 1] : 0) + rows;
    return r->ends[file] <= INT64_MAX >> 16
               ? GD_OK
               : gd_fail(GD_E_OVERFLOW, "%s: there are too many rows", r->paths[file]);
}

static gd_status read_file(const gd_caffe_rows *r, int name, int file, int64_t first, int64_t count,
                           float *to) {
    open_file f = {.file = NULL};
    const int64_t begin = file ? r->ends[file - 1] : 0;
    gd_status status = open_dataset(&f, r->paths[file], r->names[name]);
    if (status == GD_OK && f.dataset->shape.dims[0] < first - begin + count)
        status = gd_fail(GD_E_IO, "%s: was changed while it was open", r->paths[file]);
    if (status == GD_OK) status = gd_hdf5_read(f.dataset, first - begin, count, GD_F32, to);
    close_file(&f);
    return status;
}

/* --- all files -------------------------------------------------------------------------------- */

int64_t gd_caffe_rows_count(const gd_caffe_rows *r) {
    return r->n_files ? r->ends[r->n_files - 1] : 0;
}

/* Reads all rows, unless they are too large. */
static gd_status hold_rows(gd_caffe_rows *r) {
    const int64_t rows = gd_caffe_rows_count(r);
    int64_t values = 0;
    for (int k = 0; k < r->n_names; k++) {
        values += gd_numel(r->shapes[k].rank, r->shapes[k].at);
        if (values > GD_CAFFE_ROWS_HELD / 4 / (rows ? rows : 1)) return GD_OK;
    }
    float **held = gd_calloc((size_t)r->n_names, sizeof *held);
    if (!held) return gd_no_memory(NULL, "for rows");
    r->held = held;
    for (int k = 0; k < r->n_names; k++) {
        const int64_t size = gd_numel(r->shapes[k].rank, r->shapes[k].at);
        held[k] = gd_malloc((size_t)(rows * size) * sizeof *held[k] + 1);
        if (!held[k]) return gd_no_memory(NULL, "for rows");
        for (int i = 0; i < r->n_files; i++) {
            const int64_t first = i ? r->ends[i - 1] : 0;
            GD_TRY(read_file(r, k, i, first, r->ends[i] - first, held[k] + first * size));
        }
    }
    return GD_OK;
}

static gd_status open_rows(gd_caffe_rows *r, const char *path, const char *const *names,
                           int count) {
    r->names = gd_calloc((size_t)count + 1, sizeof *r->names);
    r->shapes = gd_calloc((size_t)count + 1, sizeof *r->shapes);
    if (!r->names || !r->shapes) return gd_no_memory(path, "for rows");
    for (; r->n_names < count; r->n_names++)
        if (!(r->names[r->n_names] = copy_text(names[r->n_names])))
            return gd_no_memory(path, "for rows");
    GD_TRY(find_files(r, path));
    r->ends = gd_calloc((size_t)r->n_files, sizeof *r->ends);
    if (!r->ends) return gd_no_memory(path, "for rows");
    for (int i = 0; i < r->n_files; i++) GD_TRY(measure_file(r, i));
    if (gd_caffe_rows_count(r) == 0) return gd_fail(GD_E_FORMAT, "%s: has no rows", path);
    return hold_rows(r);
}

gd_status gd_caffe_rows_open(gd_caffe_rows *r, const char *path, const char *const *names,
                             int count) {
    *r = (gd_caffe_rows){.n_files = 0};
    const gd_status status = open_rows(r, path, names, count);
    if (status != GD_OK) gd_caffe_rows_close(r);
    return status;
}

void gd_caffe_rows_close(gd_caffe_rows *r) {
    for (int k = 0; r->held && k < r->n_names; k++) gd_free(r->held[k]);
    for (int k = 0; k < r->n_names; k++) gd_free(r->names[k]);
    for (int i = 0; i < r->n_files; i++) gd_free(r->paths[i]);
    gd_free(r->held);
    gd_free(r->names);
    gd_free(r->paths);
    gd_free(r->ends);
    gd_free(r->shapes);
    *r = (gd_caffe_rows){.n_files = 0};
}

gd_status gd_caffe_rows_read(const gd_caffe_rows *r, int name, int file, int64_t first,
                             int64_t count, float *to) {
    if (!r->held) return read_file(r, name, file, first, count, to);
    const int64_t size = gd_numel(r->shapes[name].rank, r->shapes[name].at);
    memcpy(to, r->held[name] + first * size, (size_t)(count * size) * sizeof *to);
    return GD_OK;
}
