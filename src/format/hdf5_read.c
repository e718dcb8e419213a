/* hdf5_read.c - reads rows of a dataset. See hdf5_parts.h. */
#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "format/hdf5_parts.h"

#include <inttypes.h>
#include <string.h>

enum {
    PIECE_BYTES = 1 << 18, /* that are read at a time, where they are converted */
    DEFLATE_RATIO = 1032,  /* the best possible: 258 bytes from two bits */
    SLACK = 1 << 20,       /* bytes that a dataset may have without any of them in the file */
};

/* --- elements as in the file ------------------------------------------------------------------ */

static void put_fill(const gd_hdf5_full_object *d, uint8_t *out, uint64_t n) {
    const size_t size = d->object.type.bytes;
    if (!d->storage.fill) memset(out, 0, (size_t)n * size);
    else
        for (uint64_t i = 0; i < n; i++) memcpy(out + i * size, d->storage.fill, size);
}

gd_status gd_hdf5_read_raw(const gd_hdf5_full_object *d, uint64_t first, uint64_t n, uint8_t *out) {
    const gd_hdf5_storage *s = &d->storage;
    const gd_hdf5 *file = d->object.file;
    const size_t size = d->object.type.bytes;
    if (s->place == GD_HDF5_COMPACT) memcpy(out, s->compact + first * size, (size_t)n * size);
    else if (s->address == GD_HDF5_NOWHERE) put_fill(d, out, n);
    else
        return gd_file_reader_read_at(file->file, file->base + s->address + first * size, out,
                                      (size_t)n * size);
    return GD_OK;
}

/* Copies what a chunk and the rows [first, first + rows) have in common. `cell`: of the chunk. */
static void copy_common(const gd_hdf5_full_object *d, const uint8_t *chunk, const uint64_t *cell,
                        uint64_t first, uint64_t rows, uint8_t *out) {
    const gd_hdf5_object *o = &d->object;
    const int rank = o->shape.rank;
    const size_t size = o->type.bytes;
    uint64_t begin[GD_HDF5_MAX_RANK], end[GD_HDF5_MAX_RANK], at[GD_HDF5_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        const uint64_t dim = i ? (uint64_t)o->shape.dims[i] : first + rows;
        begin[i] = cell[i] * d->storage.chunk[i];
        end[i] = dim - begin[i] < d->storage.chunk[i] ? dim : begin[i] + d->storage.chunk[i];
        at[i] = i == 0 && begin[0] < first ? first : begin[i];
    }
    const uint64_t from0 = at[0], run = end[rank - 1] - at[rank - 1];
    for (bool more = true; more;) { /* a run along the last axis */
        uint64_t in_chunk = 0, in_out = 0;
        for (int i = 0; i < rank; i++) {
            in_chunk = in_chunk * d->storage.chunk[i] + (at[i] - begin[i]);
            in_out = i ? in_out * (uint64_t)o->shape.dims[i] + at[i] : at[0] - first;
        }
        memcpy(out + in_out * size, chunk + in_chunk * size, (size_t)run * size);
        int axis = rank - 2;
        for (; axis >= 0; axis--) {
            if (++at[axis] < end[axis]) break;
            at[axis] = axis ? begin[axis] : from0;
        }
        more = axis >= 0;
    }
}

static gd_status read_chunk(const gd_hdf5_full_object *d, const gd_hdf5_chunk *c, uint64_t first,
                            uint64_t rows, uint8_t *out) {
    const gd_hdf5_storage *s = &d->storage;
    uint64_t cell[GD_HDF5_MAX_RANK], index = c->index;
    bool edge = false;
    for (int i = d->object.shape.rank - 1; i >= 0; i--) {
        cell[i] = index % s->grid[i];
        index /= s->grid[i];
        edge = edge || (uint64_t)d->object.shape.dims[i] - cell[i] * s->chunk[i] < s->chunk[i];
    }
    uint8_t *data;
    GD_TRY(gd_hdf5_chunk_load(d, c, edge, &data));
    copy_common(d, data, cell, first, rows, out);
    gd_free(data);
    return GD_OK;
}

/* Chunks are sorted, so those of the rows follow each other. */
static gd_status read_chunks(const gd_hdf5_full_object *d, uint64_t first, uint64_t rows,
                             uint64_t row_elements, uint8_t *out) {
    const gd_hdf5_storage *s = &d->storage;
    uint64_t in_row = 1; /* cells for each step along axis 0 */
    for (int i = 1; i < d->object.shape.rank; i++) in_row *= s->grid[i];
    const uint64_t begin = first / s->chunk[0] * in_row;
    const uint64_t end = ((first + rows - 1) / s->chunk[0] + 1) * in_row;
    int low = 0, high = s->n_chunks;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (s->chunks[middle].index < begin) low = middle + 1;
        else high = middle;
    }
    const bool all = end - begin <= (uint64_t)(s->n_chunks - low) &&
                     s->chunks[low + (int)(end - begin) - 1].index == end - 1;
    if (!all) put_fill(d, out, rows * row_elements);
    for (int i = low; i < s->n_chunks && s->chunks[i].index < end; i++)
        GD_TRY(read_chunk(d, &s->chunks[i], first, rows, out));
    return GD_OK;
}

gd_status gd_hdf5_read_rows(const gd_hdf5_full_object *d, int64_t first, int64_t rows,
                            uint8_t *out) {
    const gd_hdf5_shape *shape = &d->object.shape;
    if (rows == 0 || shape->count == 0) return GD_OK;
    const uint64_t row = (uint64_t)(shape->rank ? shape->count / shape->dims[0] : 1);
    if (d->storage.place == GD_HDF5_CHUNKED && shape->rank > 0)
        return read_chunks(d, (uint64_t)first, (uint64_t)rows, row, out);
    return gd_hdf5_read_raw(d, (uint64_t)first * row, (uint64_t)rows * row, out);
}

/* --- for users -------------------------------------------------------------------------------- */

gd_status gd_hdf5_check_type(const gd_hdf5_object *o, const char *attribute,
                             const gd_hdf5_type *type, bool numbers) {
    const char *path = gd_file_reader_path(o->file->file);
    const char *of = attribute ? "' of '" : "";
    const char *name = attribute ? attribute : "";
    const char *what = attribute ? "the attribute" : "the dataset";
    if (!attribute && o->is_group)
        return gd_fail(GD_E_ARGUMENT, "%s: '%s' is a group; expected a dataset", path, o->path);
    const char *unsupported =
        attribute ? "" : ((const gd_hdf5_full_object *)o)->storage.unsupported;
    if (unsupported[0])
        return gd_fail(GD_E_UNSUPPORTED, "%s: the dataset '%s' has %s, which is not supported",
                       path, o->path, unsupported);
    if (type->kind == GD_HDF5_OTHER)
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: %s '%s%s%s' has elements of the type %s, which is not supported", path,
                       what, name, of, o->path, type->name);
    if (numbers != (type->kind != GD_HDF5_STRING))
        return gd_fail(GD_E_DTYPE, "%s: %s '%s%s%s' has elements of the type %s; expected %s", path,
                       what, name, of, o->path, type->name, numbers ? "numbers" : "strings");
    return GD_OK;
}

gd_status gd_hdf5_check_size(const gd_hdf5_object *o) {
    const uint64_t most = o->file->size > (UINT64_MAX - SLACK) / DEFLATE_RATIO
                              ? UINT64_MAX
                              : o->file->size * DEFLATE_RATIO + SLACK;
    const uint64_t bytes = (uint64_t)o->shape.count * o->type.bytes;
    return bytes <= most ? GD_OK
                         : gd_fail(GD_E_FORMAT,
                                   "%s: the dataset '%s' claims %" PRIu64
                                   " bytes, more than the file can hold",
                                   gd_file_reader_path(o->file->file), o->path, bytes);
}

/* Reads and converts piece by piece, unless the elements are in chunks. */
static gd_status read_converted(const gd_hdf5_full_object *d, int64_t first, int64_t rows,
                                gd_dtype dtype, uint8_t *out) {
    const gd_hdf5_object *o = &d->object;
    const int64_t row = o->shape.rank ? o->shape.count / o->shape.dims[0] : 1;
    const uint32_t size = o->type.bytes;
    const bool chunked = d->storage.place == GD_HDF5_CHUNKED && o->shape.rank > 0;
    int64_t n = rows * row, most = chunked ? n : PIECE_BYTES / size + 1, at = first * row;
    if (most > n) most = n;
    uint8_t *piece = gd_malloc((size_t)most * size + 1);
    if (!piece) return gd_hdf5_no_memory(o->file);
    gd_status status = GD_OK;
    for (; n > 0 && status == GD_OK; n -= most, at += most) {
        if (most > n) most = n;
        if (chunked) status = gd_hdf5_read_rows(d, first, rows, piece);
        else status = gd_hdf5_read_raw(d, (uint64_t)at, (uint64_t)most, piece);
        if (status == GD_OK) gd_hdf5_convert(&o->type, piece, most, dtype, out);
        out += (size_t)most * gd_dtype_size(dtype);
    }
    gd_free(piece);
    return status;
}

gd_status gd_hdf5_read(const gd_hdf5_object *dataset, int64_t first, int64_t rows, gd_dtype dtype,
                       void *out) {
    const gd_hdf5_full_object *d = (const gd_hdf5_full_object *)dataset;
    const gd_hdf5_shape *shape = &dataset->shape;
    GD_TRY(gd_hdf5_check_type(dataset, NULL, &dataset->type, true));
    const int64_t all = shape->empty ? 0 : shape->rank ? shape->dims[0] : 1;
    if (first < 0 || rows < 0 || first > all || rows > all - first)
        return gd_fail(
            GD_E_INDEX,
            "%s: rows %" PRId64 " to %" PRId64 " of the dataset '%s', which has %" PRId64,
            gd_file_reader_path(dataset->file->file), first, first + rows - 1, dataset->path, all);
    if (rows == 0 || shape->count == 0) return GD_OK;
    if (gd_hdf5_is_native(&dataset->type, dtype)) return gd_hdf5_read_rows(d, first, rows, out);
    return read_converted(d, first, rows, dtype, out);
}
