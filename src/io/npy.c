/* npy.c - loads and saves .npy files; see gradus/npy.h.
 *
 * Order: dtypes; loading; saving. npz.c has the archives.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "format/npy.h"
#include "io/numpy.h"

/* --- element types ---------------------------------------------------------------------------- */

gd_dtype gd_npy_dtype(const gd_npy_header *h) {
    switch (h->kind) {
    case GD_NPY_FLOAT: return h->itemsize == 2 ? GD_F16 : h->itemsize == 4 ? GD_F32 : GD_F64;
    case GD_NPY_INT: return h->itemsize == 1 ? GD_I8 : h->itemsize == 8 ? GD_I64 : GD_I32;
    case GD_NPY_UINT: return h->itemsize == 1 ? GD_U8 : h->itemsize == 2 ? GD_I32 : GD_I64;
    case GD_NPY_BOOL: return GD_BOOL;
    case GD_NPY_BFLOAT: return GD_BF16;
    }
    return GD_DTYPE_NONE;
}

static void describe_dtype(gd_dtype dtype, gd_npy_header *h) {
    h->itemsize = (int)gd_dtype_size(dtype);
    h->kind = dtype == GD_BOOL           ? GD_NPY_BOOL
              : dtype == GD_BF16         ? GD_NPY_BFLOAT
              : dtype == GD_U8           ? GD_NPY_UINT
              : gd_dtype_is_float(dtype) ? GD_NPY_FLOAT
                                         : GD_NPY_INT;
}

/* Converts items of the file to elements of `dtype` in place. Elements are at least as wide as
 * items, so it converts from the last to the first. */
static gd_status convert_items(const char *name, const gd_npy_header *h, gd_dtype dtype,
                               void *items, int64_t count) {
    if (h->swapped) gd_npy_swap(items, (size_t)count, h->itemsize);
    uint8_t *bytes = items;
    if (h->kind == GD_NPY_BOOL) /* any nonzero byte is true */
        for (int64_t i = 0; i < count; i++) bytes[i] = bytes[i] != 0;
    if (h->kind == GD_NPY_INT && h->itemsize == 2)
        for (int64_t i = count; i-- > 0;) {
            int16_t v;
            memcpy(&v, bytes + 2 * i, sizeof v);
            gd_store_i64(dtype, bytes + 4 * i, v);
        }
    if (h->kind != GD_NPY_UINT || h->itemsize == 1) return GD_OK;
    int width = (int)gd_dtype_size(dtype);
    for (int64_t i = count; i-- > 0;) {
        const uint8_t *from = bytes + h->itemsize * i;
        uint16_t v2;
        uint32_t v4;
        uint64_t v = 0;
        if (h->itemsize == 2) memcpy(&v2, from, sizeof v2), v = v2;
        else if (h->itemsize == 4) memcpy(&v4, from, sizeof v4), v = v4;
        else memcpy(&v, from, sizeof v);
        if (v > INT64_MAX)
            return gd_fail(GD_E_UNSUPPORTED,
                           "%s: item %" PRId64 " is %" PRIu64 ", a uint64 that no dtype can hold",
                           name, i, v);
        gd_store_i64(dtype, bytes + width * i, (int64_t)v);
    }
    return GD_OK;
}

/* --- loading ---------------------------------------------------------------------------------- */

typedef gd_npy_source source;

static gd_status source_read(void *user, void *buffer, size_t bytes) {
    source *s = user;
    if (s->entry) return gd_zip_stream_read(s->entry, buffer, bytes);
    return gd_stream_take(s->file, buffer, bytes, "a .npy file");
}

/* Reads the bytes after the items, so that the checksum of the entry or gzip file is verified. */
static gd_status source_finish(source *s, const gd_npy_header *h) {
    char rest[4096];
    for (uint64_t left = s->entry ? s->bytes - h->data_offset - h->data_bytes : 0; left > 0;) {
        size_t part = left < sizeof rest ? (size_t)left : sizeof rest;
        GD_TRY(gd_zip_stream_read(s->entry, rest, part));
        left -= part;
    }
    for (size_t got = s->file && gd_stream_is_gzip(s->file); got > 0;)
        GD_TRY(gd_stream_read(s->file, rest, sizeof rest, &got));
    return GD_OK;
}

/* Reads the items into `elements`, row-major; column-major items go through `scratch`. */
static gd_status read_elements(source *s, const gd_npy_header *h, void *elements, void *scratch) {
    const int64_t count = gd_numel(h->rank, h->dims);
    const gd_dtype dtype = gd_npy_dtype(h);
    void *to = scratch ? scratch : elements;
    if (h->data_bytes > 0) GD_TRY(source_read(s, to, (size_t)h->data_bytes));
    GD_TRY(source_finish(s, h));
    if (count == 0) return GD_OK;
    GD_TRY(convert_items(s->name, h, dtype, to, count));
    if (!scratch) return GD_OK;
    gd_view row_major = {.dtype = dtype, .rank = h->rank, .data = elements};
    memcpy(row_major.dims, h->dims, sizeof *h->dims * (size_t)h->rank);
    gd_row_major(row_major.rank, row_major.dims, row_major.strides);
    gd_view column_major = row_major;
    column_major.data = scratch;
    for (int64_t k = 0, step = 1; k < h->rank; step *= h->dims[k++]) column_major.strides[k] = step;
    gd_copy_elements(&row_major, &column_major);
    return GD_OK;
}

gd_status gd_npy_read_elements(source *s, const gd_npy_header *h, void *elements) {
    const size_t bytes = (size_t)gd_numel(h->rank, h->dims) * gd_dtype_bytes(gd_npy_dtype(h));
    void *scratch = NULL;
    if (bytes > 0 && h->fortran && h->rank > 1 && !(scratch = gd_malloc(bytes)))
        return gd_fail(GD_E_MEMORY, "%s: no memory for its %zu bytes", s->name, bytes);
    const gd_status status = read_elements(s, h, elements, scratch);
    gd_free(scratch);
    return status;
}

gd_status gd_npy_open(source *s, gd_npy_header *h) {
    return gd_npy_read_header(h, s->name, s->bytes, source_read, s);
}

static gd_status load_into(source *s, const gd_npy_header *h, gd_tensor *t) {
    size_t bytes = (size_t)gd_numel(t->rank, t->dims) * gd_dtype_bytes(t->dtype);
    void *elements = gd_data(t), *staged = NULL;
    if (bytes > 0 && !elements) elements = staged = gd_malloc(bytes); /* device memory */
    gd_status status =
        bytes == 0 || elements
            ? GD_OK
            : gd_fail(GD_E_MEMORY, "%s: no memory for its %zu bytes", s->name, bytes);
    if (status == GD_OK) status = gd_npy_read_elements(s, h, elements);
    if (status == GD_OK && staged) status = gd_copy_in(t, staged, bytes);
    gd_free(staged);
    return status;
}

static gd_status load_array(source *s, gd_tensor **out) {
    gd_npy_header h;
    GD_TRY(gd_npy_open(s, &h));
    if (h.rank > GD_MAX_RANK)
        return gd_fail(GD_E_UNSUPPORTED, "%s: has %d dimensions; at most %d are supported", s->name,
                       h.rank, GD_MAX_RANK);
    gd_tensor *t = gd_empty(gd_shape_of(h.rank, h.dims), gd_npy_dtype(&h));
    if (gd_tensor_is_error(t)) return gd_this_thread.latest;
    *out = t;
    return load_into(s, &h, t);
}

gd_tensor *gd_npy_load_source(source *s) {
    gd_tensor *t = NULL;
    gd_scope *scope = gd_scope_open(); /* owns the tensor until it is complete */
    gd_status status = load_array(s, &t);
    if (status == GD_OK) gd_keep(t);
    gd_scope_close(&scope);
    return status == GD_OK ? t : gd_tensor_fail(status);
}

gd_tensor *gd_load_npy_at(const char *site, const char *path) {
    GD_CALLED_FROM(site);
    if (!path) return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_load_npy: path is NULL"));
    gd_stream *file;
    gd_status status = gd_stream_open(&file, path);
    if (status != GD_OK) return gd_tensor_fail(status);
    source s = {.name = path, .bytes = gd_stream_most(file), .file = file};
    gd_tensor *t = gd_npy_load_source(&s);
    gd_stream_close(file);
    return t;
}

/* --- saving ----------------------------------------------------------------------------------- */

gd_status gd_npy_check_savable(const gd_tensor *t, const char *what) {
    if (!t) return gd_fail(GD_E_ARGUMENT, "%s: the tensor is NULL", what);
    if (t->kind == GD_VALUE) return GD_OK;
    return gd_fail(GD_E_STATE, "%s: the tensor has no value to save", what);
}

gd_status gd_npy_save_to(const gd_tensor *t,
                         gd_status (*write)(void *target, const void *data, size_t bytes),
                         void *target) {
    gd_npy_header h = {.rank = t->rank};
    uint8_t head[GD_NPY_MAX_HEADER];
    size_t head_bytes;
    memcpy(h.dims, t->dims, sizeof *h.dims * t->rank);
    describe_dtype((gd_dtype)t->dtype, &h);
    GD_TRY(gd_npy_make_header(&h, head, &head_bytes));
    GD_TRY(write(target, head, head_bytes));
    size_t bytes = (size_t)h.data_bytes;
    if (bytes == 0) return GD_OK;
    if (gd_data(t) && gd_is_row_major(t->rank, t->dims, t->strides))
        return write(target, gd_data(t), bytes);
    void *copy = gd_malloc(bytes);
    if (!copy) return gd_fail(GD_E_MEMORY, "no memory to gather %zu bytes of a tensor", bytes);
    gd_status status = gd_copy_out(t, copy, bytes);
    if (status == GD_OK) status = write(target, copy, bytes);
    gd_free(copy);
    return status;
}

static gd_status write_file(void *target, const void *data, size_t bytes) {
    return gd_file_writer_write(target, data, bytes);
}

static gd_status save_npy(const char *path, const gd_tensor *t) {
    if (!path) return gd_fail(GD_E_ARGUMENT, "gd_save_npy: path is NULL");
    GD_TRY(gd_npy_check_savable(t, path));
    gd_file_writer *file;
    GD_TRY(gd_file_writer_begin(&file, path));
    gd_status status = gd_npy_save_to(t, write_file, file);
    if (status == GD_OK) return gd_file_writer_commit(file);
    gd_file_writer_cancel(file);
    return status;
}

gd_status gd_save_npy_at(const char *site, const char *path, const gd_tensor *t) {
    if (gd_failed()) return gd_error_status(); /* results after a failure are not saved */
    return gd_report(site, save_npy(path, t));
}
