/* state_write.c - writes one tensor or value of a load. */
#include <string.h>

#include "core/copy.h"
#include "core/state_loading.h"

/* Bools of a file may be any byte; read as u8 they are converted to 0 and 1. */
static gd_dtype source_dtype(const gd_request *w) {
    return w->from->data && w->from->dtype == GD_BOOL ? GD_U8 : w->from->dtype;
}

/* Whether the bytes can be copied without conversion. */
static bool is_byte_copy(const gd_request *w) {
    const gd_tensor *t = w->tensor;
    return w->from->data && source_dtype(w) == (gd_dtype)t->dtype &&
           gd_is_row_major(t->rank, t->dims, t->strides);
}

static size_t bytes_of(const gd_tensor *t, gd_dtype dtype) {
    return (size_t)gd_numel(t->rank, t->dims) * gd_dtype_bytes(dtype);
}

/* The source's elements in host memory. */
static gd_view source_view(const gd_request *w) {
    gd_view v = gd_view_of(w->tensor);
    if (!w->staged && !w->from->data) return gd_view_of(w->from->tensor);
    v.dtype = source_dtype(w);
    v.data = (void *)(uintptr_t)(w->staged ? w->staged : w->from->data);
    gd_row_major(v.rank, v.dims, v.strides);
    return v;
}

/* Copies the source to aligned host memory if it is unaligned or on another device. */
static gd_status stage_source(gd_request *w) {
    const gd_source_tensor *from = w->from;
    const size_t bytes = bytes_of(w->tensor, source_dtype(w));
    const bool there = from->data ? (uintptr_t)from->data % gd_dtype_bytes(source_dtype(w)) == 0
                                  : from->tensor->device->api->host_reads;
    if (there || bytes == 0) return GD_OK;
    w->staged = gd_malloc(bytes);
    if (!w->staged) return gd_fail(GD_E_MEMORY, "no memory to convert '%s'", w->name);
    if (!from->data) return gd_copy_out(from->tensor, w->staged, bytes);
    memcpy(w->staged, from->data, bytes);
    return GD_OK;
}

/* Converts the source to row-major elements of the tensor's dtype, for the upload. */
static gd_status stage_upload(gd_request *w) {
    const size_t bytes = bytes_of(w->tensor, (gd_dtype)w->tensor->dtype);
    if (bytes == 0) return GD_OK;
    gd_view from = source_view(w), to = from;
    to.dtype = (gd_dtype)w->tensor->dtype;
    to.data = gd_malloc(bytes);
    if (!to.data) return gd_fail(GD_E_MEMORY, "no memory to convert '%s'", w->name);
    gd_row_major(to.rank, to.dims, to.strides);
    gd_copy_elements(&to, &from);
    gd_free(w->staged);
    w->staged = to.data;
    return GD_OK;
}

gd_status gd_request_stage(gd_request *w) {
    if (!w->tensor || is_byte_copy(w)) return GD_OK;
    GD_TRY(stage_source(w));
    return w->tensor->device->api->host_reads ? GD_OK : stage_upload(w);
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

gd_status gd_request_write(gd_request *w) {
    gd_tensor *t = w->tensor;
    if (!t) {
        write_value(w);
        return GD_OK;
    }
    const size_t bytes = bytes_of(t, (gd_dtype)t->dtype);
    if (bytes == 0) return GD_OK;
    if (!t->device->api->host_reads)
        return gd_copy_in(t, w->staged ? w->staged : w->from->data, bytes);
    gd_view to = gd_view_of(t);
    if (is_byte_copy(w)) {
        memcpy(to.data, w->from->data, bytes);
    } else {
        const gd_view from = source_view(w);
        if (from.data != to.data) gd_copy_elements(&to, &from);
    }
    atomic_fetch_add(&t->storage->version, 1);
    return GD_OK;
}
