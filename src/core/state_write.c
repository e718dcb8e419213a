/* state_write.c - writes one tensor or value of a load.
 *
 * The elements of a file are read where they belong if they need no conversion. Otherwise, and for
 * devices whose memory the host cannot write, they are read in pieces that fit a cache. Tensors
 * with other strides than row-major ones are rare: all of their elements are staged.
 */
#include <string.h>

#include "core/copy.h"
#include "core/state_loading.h"

enum { PIECE_BYTES = 1 << 18 };

/* Bools of a file may be any byte; read as u8 they are converted to 0 and 1. */
static gd_dtype source_dtype(const gd_request *w) {
    return w->from->file && w->from->dtype == GD_BOOL ? GD_U8 : w->from->dtype;
}

static size_t bytes_of(const gd_tensor *t, gd_dtype dtype) {
    return (size_t)gd_numel(t->rank, t->dims) * gd_dtype_bytes(dtype);
}

static bool is_row_major(const gd_tensor *t) {
    return gd_is_row_major(t->rank, t->dims, t->strides);
}

static gd_status allocate_stage(gd_request *w, gd_dtype dtype) {
    w->staged = gd_malloc(bytes_of(w->tensor, dtype));
    return w->staged ? GD_OK : gd_fail(GD_E_MEMORY, "no memory to convert '%s'", w->name);
}

/* --- elements of a file ----------------------------------------------------------------------- */

/* The number of elements in a piece. */
static int64_t piece_of(const gd_request *w) {
    const size_t from = gd_dtype_bytes(source_dtype(w)),
                 to = gd_dtype_bytes((gd_dtype)w->tensor->dtype);
    return PIECE_BYTES / (int64_t)(from > to ? from : to);
}

/* Reads `count` elements from number `first` on, in the tensor's dtype. */
static gd_status read_elements(const gd_loading *in, const gd_request *w, int64_t first,
                               int64_t count, void *to) {
    const gd_source_tensor *from = w->from;
    const gd_dtype source = source_dtype(w), target = (gd_dtype)w->tensor->dtype;
    const size_t size = gd_dtype_bytes(source);
    const uint64_t begin = from->begin + (uint64_t)first * size;
    if (source == target) return in->source->read(from->file, begin, to, (size_t)count * size);
    for (int64_t i = 0, most = piece_of(w); i < count; i += most) {
        const int64_t n = count - i < most ? count - i : most;
        GD_TRY(
            in->source->read(from->file, begin + (uint64_t)i * size, in->pieces, (size_t)n * size));
        gd_convert(target, (char *)to + (size_t)i * gd_dtype_bytes(target), source, in->pieces, n);
    }
    return GD_OK;
}

/* Uploads the elements of a row-major tensor in pieces. */
static gd_status upload_elements(const gd_loading *in, const gd_request *w) {
    const int64_t count = gd_numel(w->tensor->rank, w->tensor->dims), most = piece_of(w);
    void *elements = (char *)in->pieces + PIECE_BYTES;
    for (int64_t i = 0; i < count; i += most) {
        gd_tensor piece = *w->tensor; /* elements i to i + n, of rank 1 */
        const int64_t n = count - i < most ? count - i : most;
        piece.rank = 1;
        piece.dims[0] = n;
        piece.strides[0] = 1;
        piece.offset += i;
        GD_TRY(read_elements(in, w, i, n, elements));
        GD_TRY(gd_copy_in(&piece, elements, bytes_of(&piece, (gd_dtype)piece.dtype)));
    }
    return GD_OK;
}

/* Checks that the file has not become shorter, while nothing is written yet. */
static gd_status check_end(const gd_loading *in, const gd_request *w) {
    char last[16];
    const size_t bytes = bytes_of(w->tensor, source_dtype(w)),
                 size = gd_dtype_bytes(source_dtype(w));
    return in->source->read(w->from->file, w->from->begin + bytes - size, last, size);
}

static gd_status stage_file(gd_loading *in, gd_request *w) {
    const gd_tensor *t = w->tensor;
    const bool direct = source_dtype(w) == (gd_dtype)t->dtype && t->device->api->host_reads;
    if (!direct && !in->pieces && !(in->pieces = gd_malloc(2 * PIECE_BYTES)))
        return gd_fail(GD_E_MEMORY, "no memory to convert '%s'", w->name);
    GD_TRY(check_end(in, w));
    if (is_row_major(t)) return GD_OK;
    GD_TRY(allocate_stage(w, (gd_dtype)t->dtype));
    return read_elements(in, w, 0, gd_numel(t->rank, t->dims), w->staged);
}

static gd_status write_from_file(const gd_loading *in, gd_request *w) {
    gd_tensor *t = w->tensor;
    if (w->staged) return gd_copy_in(t, w->staged, bytes_of(t, (gd_dtype)t->dtype));
    if (!t->device->api->host_reads) return upload_elements(in, w);
    atomic_fetch_add(&t->storage->version, 1);
    return read_elements(in, w, 0, gd_numel(t->rank, t->dims), gd_view_of(t).data);
}

/* --- elements of a tensor --------------------------------------------------------------------- */

/* The source's elements in host memory. */
static gd_view source_view(const gd_request *w) {
    gd_view v = gd_view_of(w->from->tensor);
    if (!w->staged) return v;
    v.data = w->staged;
    gd_row_major(v.rank, v.dims, v.strides);
    return v;
}

/* Converts the source to row-major elements of the tensor's dtype, for the upload. */
static gd_status stage_upload(gd_request *w) {
    const gd_view from = source_view(w);
    gd_view to = from;
    void *source = w->staged;
    const gd_status status = allocate_stage(w, (gd_dtype)w->tensor->dtype);
    if (status == GD_OK) {
        to.dtype = (gd_dtype)w->tensor->dtype;
        to.data = w->staged;
        gd_row_major(to.rank, to.dims, to.strides);
        gd_copy_elements(&to, &from);
    }
    gd_free(source);
    return status;
}

static gd_status stage_tensor(gd_request *w) {
    gd_tensor *from = w->from->tensor;
    if (!from->device->api->host_reads) {
        GD_TRY(allocate_stage(w, w->from->dtype));
        GD_TRY(gd_copy_out(from, w->staged, bytes_of(from, w->from->dtype)));
    }
    return w->tensor->device->api->host_reads ? GD_OK : stage_upload(w);
}

static gd_status write_from_tensor(gd_request *w) {
    gd_tensor *t = w->tensor;
    if (!t->device->api->host_reads)
        return gd_copy_in(t, w->staged, bytes_of(t, (gd_dtype)t->dtype));
    const gd_view from = source_view(w), to = gd_view_of(t);
    if (from.data != to.data) gd_copy_elements(&to, &from);
    atomic_fetch_add(&t->storage->version, 1);
    return GD_OK;
}

/* --- requests --------------------------------------------------------------------------------- */

gd_status gd_request_stage(gd_loading *in, gd_request *w) {
    if (!w->tensor || gd_numel(w->tensor->rank, w->tensor->dims) == 0) return GD_OK;
    return w->from->file ? stage_file(in, w) : stage_tensor(w);
}

static void write_value(gd_request *w) {
    char *old;
    switch (w->kind) {
    case GD_FLOAT_VALUE: *(double *)w->to = w->number; break;
    case GD_INTEGER_VALUE: *(int64_t *)w->to = w->integer; break;
    case GD_UNSIGNED_VALUE: *(uint64_t *)w->to = w->unsigned_integer; break;
    case GD_TEXT_VALUE:
        old = *(char **)w->to;
        *(char **)w->to = w->text;
        w->text = old; /* freed with the request */
        break;
    }
}

gd_status gd_request_write(const gd_loading *in, gd_request *w) {
    if (!w->tensor) {
        write_value(w);
        return GD_OK;
    }
    if (gd_numel(w->tensor->rank, w->tensor->dims) == 0) return GD_OK;
    return w->from->file ? write_from_file(in, w) : write_from_tensor(w);
}
