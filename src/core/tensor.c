/* tensor.c - tensor handles: creation, properties, data in and out. */
#include "core/tensor.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "core/copy.h"
#include "core/freed.h"
#include "core/integer.h"
#include "gradus/testing.h"

enum { CACHED_HANDLES = 256 };

void (*gd_node_release_hook)(gd_node *node);
void (*gd_hooks_release_hook)(gd_hook *hooks);
gd_status (*gd_symbol_unread_hook)(const gd_tensor *symbol, const char *what);
const char *(*gd_symbol_text_hook)(const gd_tensor *symbol, char *text, size_t size);
gd_status (*gd_traced_access_hook)(const gd_tensor *t, const char *what, bool writes);

static void tensor_destroy(gd_object *object);
extern const struct gd_state_rules gd_tensor_state_rules; /* state.c */
const gd_class gd_tensor_class = {
    .name = "tensor", .destroy = tensor_destroy, .state = &gd_tensor_state_rules};
GD_KNOWN_CLASS(gd_tensor_class)

gd_tensor gd_error_tensor = {.object = {.refs = GD_IMMORTAL, .class = &gd_tensor_class},
                             .kind = GD_FAILED,
                             .device = &gd_cpu_device};

gd_tensor *gd_tensor_fail(gd_status status) {
    gd_error_record(status);
    return &gd_error_tensor;
}

static void tensor_destroy(gd_object *object) {
    gd_tensor *t = (gd_tensor *)object;
    gd_storage_release(t->storage);
    if (t->grad) gd_object_release(&t->grad->object);
    if (t->hooks) gd_hooks_release_hook(t->hooks);
    if (t->node) gd_node_release_hook(t->node);
    gd_object_count(-1);
    gd_thread *thread = &gd_this_thread;
    if (gd_keeps_freed(thread)) {
        gd_freed_keep(t, t);
        return;
    }
#ifndef GD_SANITIZED
    if (thread->alive && thread->free_tensor_count < CACHED_HANDLES) {
        t->next_free = thread->free_tensors;
        thread->free_tensors = t;
        thread->free_tensor_count++;
        return;
    }
#else
    (void)thread;
#endif
    gd_free(t);
}

void gd_tensor_free_cached(gd_thread *thread) {
    while (thread->free_tensors) {
        gd_tensor *t = thread->free_tensors;
        thread->free_tensors = t->next_free;
        gd_free(t);
    }
    thread->free_tensor_count = 0;
}

/* A handle without storage and history, in the current scope. */
gd_tensor *gd_tensor_bare(gd_tensor_kind kind, gd_device *device, gd_dtype dtype, int rank,
                          const int64_t *dims) {
    gd_thread *thread = &gd_this_thread;
    if (gd_scope_reserve(1) != GD_OK) return NULL;
    gd_tensor *t = thread->free_tensors;
    if (t && !gd_faults_armed()) {
        thread->free_tensors = t->next_free;
        thread->free_tensor_count--;
    } else {
        t = gd_malloc(sizeof *t);
    }
    if (!t) {
        gd_no_memory(NULL, "for a tensor handle");
        return NULL;
    }
    gd_object_init(&t->object, &gd_tensor_class);
    t->kind = (uint8_t)kind;
    t->dtype = (uint8_t)dtype;
    t->rank = (uint8_t)rank;
    t->requires_grad = t->is_view = false;
    t->device = device;
    t->storage = NULL;
    t->offset = 0;
    for (int i = 0; i < rank; i++) t->dims[i] = dims[i];
    gd_row_major(rank, dims, t->strides);
    t->node = NULL;
    t->node_index = 0;
    t->grad = NULL;
    t->hooks = NULL;
    t->made_op = NULL;
    t->made_site = thread->site;
    t->block = NULL;
    gd_object_count(1);
    gd_scope_adopt(&t->object);
    return t;
}

gd_tensor *gd_tensor_new(gd_device *device, gd_dtype dtype, int rank, const int64_t *dims) {
    size_t bytes = (size_t)gd_numel(rank, dims) * gd_dtype_bytes(dtype);
    gd_storage *storage = gd_storage_new(device, bytes);
    if (!storage) return NULL;
    gd_tensor *t = gd_tensor_bare(GD_VALUE, device, dtype, rank, dims);
    if (t) t->storage = storage;
    else gd_storage_release(storage);
    return t;
}

typedef gd_status upload_fn(gd_device *device, void *to, const void *from, size_t bytes);

static gd_tensor *upload_tensor(gd_device *device, gd_dtype dtype, int rank, const int64_t *dims,
                                const void *data, upload_fn *upload) {
    const size_t bytes = (size_t)gd_numel(rank, dims) * gd_dtype_bytes(dtype);
    gd_storage *storage = gd_storage_new_for(device, bytes, GD_QUEUE_UPLOAD);
    if (!storage) return NULL;
    gd_tensor *t = gd_tensor_bare(GD_VALUE, device, dtype, rank, dims);
    if (!t || (bytes > 0 && upload(device, storage->data, data, bytes) != GD_OK)) {
        gd_storage_release(storage);
        if (t && gd_this_thread.depth == 0) gd_release(t);
        return NULL;
    }
    t->storage = storage;
    return t;
}

gd_tensor *gd_tensor_from_host(gd_device *device, gd_dtype dtype, int rank, const int64_t *dims,
                               const void *data) {
    return upload_tensor(device, dtype, rank, dims, data, gd_device_upload_new);
}

gd_tensor *gd_tensor_upload_ahead(gd_device *device, const gd_tensor *t) {
    return upload_tensor(device, (gd_dtype)t->dtype, t->rank, t->dims, gd_view_of(t).data,
                         gd_device_upload_ahead);
}

gd_tensor *gd_tensor_view(gd_tensor *base, int rank, const int64_t *dims, const int64_t *strides,
                          int64_t offset) {
    gd_tensor *t =
        gd_tensor_bare((gd_tensor_kind)base->kind, base->device, (gd_dtype)base->dtype, rank, dims);
    if (!t) return NULL;
    for (int i = 0; i < rank; i++) t->strides[i] = strides[i];
    t->offset = offset;
    t->is_view = true;
    t->storage = base->storage;
    if (t->storage) gd_storage_retain(t->storage);
    return t;
}

gd_tensor *gd_tensor_alias(gd_tensor *t) {
    return gd_tensor_view(t, t->rank, t->dims, t->strides, t->offset);
}

static _Atomic uint64_t became;
uint64_t gd_tensors_became(void) { return atomic_load_explicit(&became, memory_order_acquire); }

static gd_status check_become(const gd_tensor *leaf, const gd_tensor *value) {
    char text[160];
    if (!leaf || !value || leaf->kind != GD_VALUE || value->kind != GD_VALUE)
        return gd_fail(GD_E_ARGUMENT, "a tensor can only become another if both have data");
    if (leaf->node)
        return gd_fail(
            GD_E_STATE,
            "%s is a result on the tape and cannot move to other memory; only leaves can",
            gd_describe(leaf, text, sizeof text));
    if (leaf->storage == value->storage)
        return gd_fail(GD_E_ARGUMENT, "%s would become a view of itself",
                       gd_describe(leaf, text, sizeof text));
    if (leaf->requires_grad && !gd_is_float(value->dtype))
        return gd_fail(GD_E_DTYPE, "%s requires a gradient and cannot become %s",
                       gd_describe(leaf, text, sizeof text), gd_dtype_name((gd_dtype)value->dtype));
    return gd_check_traced_access(leaf, "to move a tensor to another device or dtype", true);
}

gd_status gd_tensor_become(gd_tensor *leaf, gd_tensor *value) {
    GD_TRY(check_become(leaf, value));
    gd_tensor *g = leaf->grad;
    const bool same_shape = leaf->rank == value->rank &&
                            memcmp(leaf->dims, value->dims, sizeof(int64_t) * leaf->rank) == 0;
    if (g && (!same_shape || leaf->dtype != value->dtype || leaf->device != value->device)) {
        leaf->grad = NULL;
        gd_object_release(&g->object);
    }
    gd_storage *old = leaf->storage, *now = value->storage;
    /* Increases the versions of both storages, so that saved slots of either count as overwritten.
     * */
    const uint32_t a = atomic_fetch_add(&old->version, 1) + 1, b = atomic_load(&now->version);
    atomic_store(&now->version, (a > b ? a : b) + 1);
    gd_storage_retain(now);
    leaf->storage = now;
    leaf->dtype = value->dtype;
    leaf->rank = value->rank;
    leaf->device = value->device;
    leaf->offset = value->offset;
    leaf->is_view = value->is_view;
    for (int i = 0; i < value->rank; i++)
        leaf->dims[i] = value->dims[i], leaf->strides[i] = value->strides[i];
    gd_storage_release(old);
    atomic_fetch_add_explicit(&became, 1, memory_order_release);
    return GD_OK;
}

/* --- properties ------------------------------------------------------------------------------- */

/* False for NULL and error tensors; records a failure for a freed handle. */
static bool has_properties(const gd_tensor *t) {
    if (t && t->kind != GD_FAILED) return true;
    if (gd_is_freed(t) || gd_is_missing(t))
        gd_report(NULL, gd_check_freed(t, "a question about a tensor"));
    return false;
}

gd_dtype gd_tensor_dtype(const gd_tensor *t) {
    return has_properties(t) ? (gd_dtype)t->dtype : GD_DTYPE_NONE;
}
gd_device *gd_tensor_device(const gd_tensor *t) { return has_properties(t) ? t->device : NULL; }
int gd_tensor_rank(const gd_tensor *t) { return has_properties(t) ? t->rank : 0; }
gd_shape gd_tensor_shape(const gd_tensor *t) {
    return has_properties(t) ? gd_shape_of(t->rank, t->dims) : gd_shape_of(0, NULL);
}
static int64_t at_axis(const gd_tensor *t, const int64_t *list, int axis) {
    if (axis < 0) axis += t->rank;
    return axis >= 0 && axis < t->rank ? list[axis] : 0;
}
int64_t gd_tensor_dim(const gd_tensor *t, int axis) {
    return has_properties(t) ? at_axis(t, t->dims, axis) : 0;
}
int64_t gd_tensor_stride(const gd_tensor *t, int axis) {
    return has_properties(t) ? at_axis(t, t->strides, axis) : 0;
}
int64_t gd_tensor_numel(const gd_tensor *t) {
    return has_properties(t) ? gd_numel(t->rank, t->dims) : 0;
}
bool gd_tensor_is_contiguous(const gd_tensor *t) {
    return has_properties(t) && gd_is_row_major(t->rank, t->dims, t->strides);
}
bool gd_tensor_is_error(const gd_tensor *t) { return t && t->kind == GD_FAILED; }
bool gd_tensor_is_symbol(const gd_tensor *t) { return t && t->kind == GD_SYMBOL; }
bool gd_tensor_is_read_only(const gd_tensor *t) { return t && t->storage && t->storage->read_only; }

gd_status gd_fail_read_only(const gd_tensor *t, const char *name) {
    char text[160];
    return gd_fail(
        GD_E_STATE, "%s%s%s is read-only: its memory belongs to another library; clone it first",
        name ? "'" : "", name ? name : gd_describe(t, text, sizeof text), name ? "'" : "");
}

/* --- data in ---------------------------------------------------------------------------------- */

gd_tensor *gd_empty_at(const char *site, gd_shape shape, gd_dtype dtype) {
    GD_CALLED_FROM(site);
    size_t bytes;
    gd_status status = gd_shape_bytes(shape, dtype, &bytes);
    if (status != GD_OK) return gd_tensor_fail(status);
    gd_tensor *t = gd_tensor_new(gd_default_device(), dtype, shape.rank, shape.at);
    return t ? t : gd_tensor_fail(gd_this_thread.latest);
}

/* Drops a new tensor that is not returned: the scope frees it, or, without a scope, this function.
 * */
static gd_tensor *drop_tensor(gd_tensor *t, gd_status status) {
    if (gd_this_thread.depth == 0) gd_release(t);
    return gd_tensor_fail(status);
}

gd_tensor *gd_from_array_at(const char *site, gd_shape shape, gd_dtype dtype, const void *data) {
    GD_CALLED_FROM(site);
    size_t bytes;
    gd_status status = gd_shape_bytes(shape, dtype, &bytes);
    if (status == GD_OK && !data && bytes > 0)
        status = gd_fail(GD_E_ARGUMENT, "gd_from_array: data is NULL");
    if (status != GD_OK) return gd_tensor_fail(status);
    gd_tensor *t = gd_tensor_from_host(gd_default_device(), dtype, shape.rank, shape.at, data);
    return t ? t : gd_tensor_fail(gd_this_thread.latest);
}

gd_tensor *gd_scalar_of_at(const char *site, gd_number value, gd_dtype dtype) {
    char bytes[8];
    if (gd_dtype_is_int(dtype) && gd_number_is_integer(value))
        gd_store_i64(dtype, bytes, gd_number_i64(value));
    else gd_store_f64(dtype, bytes, value.value);
    return gd_from_array_at(site, gd_shape_of(0, NULL), dtype, bytes);
}
gd_tensor *gd_scalar_at(const char *site, double value) {
    return gd_scalar_of_at(site, gd_number_of(value), GD_F32);
}
gd_tensor *gd_scalar_int_at(const char *site, int64_t value) {
    return gd_from_array_at(site, gd_shape_of(0, NULL), GD_I64, &value);
}

/* Checks the strides of foreign memory: none is negative, and the offsets of all elements fit.
 * `bytes` gets the size up to the last element. */
static gd_status check_strides(gd_shape shape, const int64_t *strides, gd_dtype dtype,
                               size_t *bytes) {
    int64_t last = 0, reach;
    for (int i = 0; i < shape.rank; i++) {
        if (shape.at[i] == 1) continue;
        if (strides[i] < 0)
            return gd_fail(GD_E_ARGUMENT, "gd_from_memory: stride %d is negative", i);
        if (!gd_mul_i64(shape.at[i] - 1, strides[i], &reach) || !gd_add_i64(last, reach, &last) ||
            last >= INT64_MAX / 8)
            return gd_fail(GD_E_OVERFLOW, "gd_from_memory: stride %d is too large", i);
    }
    *bytes = (size_t)(last + 1) * gd_dtype_size(dtype);
    return GD_OK;
}

gd_tensor *gd_from_memory_at(const char *site, gd_shape shape, const int64_t *strides,
                             gd_dtype dtype, void *data, void (*deleter)(void *, void *),
                             void *user) {
    GD_CALLED_FROM(site);
    size_t bytes;
    gd_status status = gd_shape_bytes(shape, dtype, &bytes);
    if (status == GD_OK && !data && bytes > 0)
        status = gd_fail(GD_E_ARGUMENT, "gd_from_memory: data is NULL");
    if (status == GD_OK && (uintptr_t)data % gd_dtype_size(dtype) != 0)
        status =
            gd_fail(GD_E_ARGUMENT,
                    "gd_from_memory: the address of the data is not a multiple of %zu, as %s needs",
                    gd_dtype_size(dtype), gd_dtype_name(dtype));
    if (status == GD_OK && bytes > 0 && strides)
        status = check_strides(shape, strides, dtype, &bytes);
    if (status != GD_OK) return gd_tensor_fail(status);
    gd_tensor *t = gd_tensor_bare(GD_VALUE, gd_cpu(), dtype, shape.rank, shape.at);
    if (!t) return gd_tensor_fail(GD_E_MEMORY);
    t->storage =
        gd_storage_wrap(gd_cpu(), data, bytes, deleter ? deleter : gd_storage_keep_foreign, user);
    if (!t->storage) return drop_tensor(t, GD_E_MEMORY);
    for (int i = 0; strides && i < shape.rank; i++) t->strides[i] = strides[i];
    return t;
}

/* --- data out --------------------------------------------------------------------------------- */

static gd_status check_readable(const gd_tensor *t, const char *what) {
    if (!t) return gd_fail(GD_E_ARGUMENT, "%s: the tensor is NULL", what);
    switch ((gd_tensor_kind)t->kind) {
    case GD_VALUE: return gd_check_traced_access(t, what, false);
    case GD_FAILED:
        GD_TRY(gd_check_freed(t, what));
        if (gd_this_thread.recorded != GD_OK)
            return gd_fail(gd_this_thread.recorded, "%s: %s", what, gd_this_thread.recorded_text);
        return gd_fail(GD_E_STATE, "%s: the tensor is the result of a call that failed", what);
    case GD_SYMBOL: return gd_symbol_unread_hook(t, what);
    case GD_META:
        return gd_fail(GD_E_STATE,
                       "%s: only the shape of this tensor was saved for the gradient "
                       "(name it in the op's `saves` line)",
                       what);
    }
    return GD_OK;
}

static size_t bytes_of(const gd_tensor *t) {
    return (size_t)gd_numel(t->rank, t->dims) * gd_dtype_size((gd_dtype)t->dtype);
}

gd_status (*gd_copy_view_hook)(gd_device *device, const gd_view *to, const gd_view *from);

/* Allocates a row-major buffer for the tensor's elements on its device; gd_device_free it. */
static gd_status alloc_row_major(const gd_tensor *t, gd_queue queue, gd_view *buffer) {
    *buffer = gd_view_of(t);
    gd_row_major(buffer->rank, buffer->dims, buffer->strides);
    return gd_device_alloc_for(t->device, bytes_of(t), queue, &buffer->data);
}

/* Downloads a strided tensor through a row-major copy on its device. */
static gd_status download_strided(const gd_tensor *t, void *data, size_t bytes) {
    gd_view buffer, from = gd_view_of(t);
    GD_TRY(alloc_row_major(t, GD_QUEUE_COMPUTE, &buffer));
    gd_status status = gd_copy_view_hook(t->device, &buffer, &from);
    if (status == GD_OK) status = gd_device_download(t->device, data, buffer.data, bytes);
    gd_device_free(t->device, buffer.data, bytes);
    return status;
}

/* Uploads elements to a buffer, from which the checked copy kernel writes the tensor: queued
 * kernels may still use the tensor, and it must not change while the error word is set. */
static gd_status upload_checked(const gd_tensor *t, const void *data, size_t bytes) {
    gd_view buffer, to = gd_view_of(t);
    GD_TRY(alloc_row_major(t, GD_QUEUE_UPLOAD, &buffer));
    gd_status status = gd_device_upload_new(t->device, buffer.data, data, bytes);
    if (status == GD_OK) status = gd_copy_view_hook(t->device, &to, &buffer);
    gd_device_free(t->device, buffer.data, bytes);
    return status;
}

gd_status gd_copy_out(const gd_tensor *t, void *data, size_t bytes) {
    GD_TRY(check_readable(t, "gd_copy_to"));
    char text[160];
    if (bytes != bytes_of(t))
        return gd_fail(GD_E_SHAPE, "gd_copy_to: %s has %zu bytes, not %zu",
                       gd_describe(t, text, sizeof text), bytes_of(t), bytes);
    if (bytes == 0) return gd_device_synchronize(t->device);
    if (!data) return gd_fail(GD_E_ARGUMENT, "gd_copy_to: data is NULL");
    gd_view from = gd_view_of(t), to = from;
    to.data = data;
    gd_row_major(to.rank, to.dims, to.strides);
    if (t->device->api->host_reads) {
        gd_copy_elements(&to, &from);
        return GD_OK;
    }
    if (gd_is_row_major(t->rank, t->dims, t->strides))
        return gd_device_download(t->device, data, from.data, bytes);
    return download_strided(t, data, bytes);
}

gd_status gd_copy_in(gd_tensor *t, const void *data, size_t bytes) {
    GD_TRY(check_readable(t, "gd_copy_from"));
    char text[160];
    if (bytes != bytes_of(t))
        return gd_fail(GD_E_SHAPE, "gd_copy_from: %s has %zu bytes, not %zu",
                       gd_describe(t, text, sizeof text), bytes_of(t), bytes);
    if (bytes == 0) return GD_OK;
    if (!data) return gd_fail(GD_E_ARGUMENT, "gd_copy_from: data is NULL");
    GD_TRY(gd_check_writable(t, NULL));
    atomic_fetch_add(&t->storage->version, 1);
    gd_view to = gd_view_of(t), from = to;
    from.data = (void *)(uintptr_t)data;
    gd_row_major(from.rank, from.dims, from.strides);
    if (t->device->api->host_reads) {
        gd_copy_elements(&to, &from);
        return GD_OK;
    }
    return upload_checked(t, data, bytes);
}

gd_tensor *gd_tensor_copy_on(gd_tensor *t, gd_device *device) {
    const size_t bytes = bytes_of(t);
    const bool direct = t->device->api->host_reads && gd_is_row_major(t->rank, t->dims, t->strides);
    void *host = direct ? NULL : gd_malloc(bytes);
    gd_status status = direct || host
                           ? GD_OK
                           : gd_fail(GD_E_MEMORY, "gd_to_device: no memory for %zu bytes", bytes);
    if (status == GD_OK && !direct) status = gd_copy_out(t, host, bytes);
    gd_tensor *copy = NULL;
    if (status == GD_OK)
        copy = gd_tensor_from_host(device, (gd_dtype)t->dtype, t->rank, t->dims,
                                   direct ? gd_view_of(t).data : host);
    gd_free(host);
    if (copy) return copy;
    return gd_tensor_fail(status == GD_OK ? gd_this_thread.latest : status);
}

gd_status gd_copy_to_at(const char *site, const gd_tensor *t, void *data, size_t bytes) {
    return gd_report(site, gd_copy_out(t, data, bytes));
}

gd_status gd_copy_from_at(const char *site, gd_tensor *t, const void *data, size_t bytes) {
    gd_status status = gd_check_traced_access(t, "gd_copy_from", true);
    if (status == GD_OK) status = gd_copy_in(t, data, bytes);
    return gd_report(site, status);
}

/* Reads the one element into `bytes`. */
static gd_status read_item(const gd_tensor *t, char bytes[8]) {
    GD_TRY(check_readable(t, "gd_item"));
    char text[160];
    if (gd_numel(t->rank, t->dims) != 1)
        return gd_fail(GD_E_SHAPE, "gd_item: %s has %lld elements, not 1",
                       gd_describe(t, text, sizeof text), (long long)gd_numel(t->rank, t->dims));
    return gd_copy_out(t, bytes, gd_dtype_size((gd_dtype)t->dtype));
}

double gd_item_at(const char *site, const gd_tensor *t) {
    char bytes[8];
    gd_status status = read_item(t, bytes);
    if (status == GD_OK) return gd_load_f64((gd_dtype)t->dtype, bytes);
    gd_report(site, status);
    return NAN;
}

int64_t gd_item_int_at(const char *site, const gd_tensor *t) {
    char bytes[8];
    gd_status status = read_item(t, bytes);
    if (status == GD_OK) return gd_load_i64((gd_dtype)t->dtype, bytes);
    gd_report(site, status);
    return 0;
}

void *gd_data(const gd_tensor *t) {
    if (t && t->kind == GD_FAILED) gd_report(NULL, gd_check_freed(t, "gd_data"));
    if (!t || t->kind != GD_VALUE || !t->device->api->host_reads) return NULL;
    if (gd_check_traced_access(t, "gd_data", false) != GD_OK) {
        gd_error_record(gd_this_thread.latest);
        return NULL;
    }
    return gd_view_of(t).data;
}
