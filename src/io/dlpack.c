/* dlpack.c - memory that is shared with other libraries (gradus/dlpack.h).
 *
 * Order: dtypes; devices; to other libraries; checks of what they give; from other libraries.
 */
#include "gradus/dlpack.h"

#include <string.h>

#include "core/alloc.h"
#include "core/checked.h"
#include "core/freed.h"
#include "core/tensor.h"
#include "dispatch/call.h"
#include "gradus/autograd.h"

/* The layouts of DLPack 1.3 on machines with 64 bits. */
_Static_assert(sizeof(gd_dl_tensor) == 48, "DLTensor");
_Static_assert(sizeof(gd_dl_unversioned) == 64, "DLManagedTensor");
_Static_assert(sizeof(gd_dl_managed) == 80, "DLManagedTensorVersioned");

/* --- dtypes ----------------------------------------------------------------------------------- */

static const struct {
    uint8_t code, bits;
} dtypes[GD_DTYPE_COUNT] = {
    [GD_BOOL] = {GD_DL_BOOL, 8},    [GD_U8] = {GD_DL_UINT, 8},    [GD_I8] = {GD_DL_INT, 8},
    [GD_I32] = {GD_DL_INT, 32},     [GD_I64] = {GD_DL_INT, 64},   [GD_F16] = {GD_DL_FLOAT, 16},
    [GD_BF16] = {GD_DL_BFLOAT, 16}, [GD_F32] = {GD_DL_FLOAT, 32}, [GD_F64] = {GD_DL_FLOAT, 64},
};

/* What a program can do about a dtype that does not exist here. */
static gd_status fail_dtype(const gd_dl_tensor *t) {
    static const char *const names[] = {
        [GD_DL_INT] = "int",  [GD_DL_UINT] = "uint",     [GD_DL_FLOAT] = "float",
        [3] = "opaque",       [GD_DL_BFLOAT] = "bfloat", [GD_DL_COMPLEX] = "complex",
        [GD_DL_BOOL] = "bool"};
    const int code = t->dtype.code, bits = t->dtype.bits;
    if (t->dtype.lanes != 1)
        return gd_fail(GD_E_UNSUPPORTED,
                       "DLPack: an element has %d lanes; give the lanes an axis of their own",
                       t->dtype.lanes);
    if (code > GD_DL_BOOL)
        return gd_fail(GD_E_DTYPE, "DLPack: dtype code %d with %d bits is not supported", code,
                       bits);
    const char *instead = code == GD_DL_COMPLEX ? "; share its real and imaginary parts"
                          : code > GD_DL_UINT   ? ""
                          : bits < 32           ? "; convert it to int32 first"
                                                : "; convert it to int64 first";
    return gd_fail(GD_E_DTYPE, "DLPack: Gradus has no dtype %s%d%s", names[code], bits, instead);
}

static gd_status read_dtype(const gd_dl_tensor *t, gd_dtype *dtype) {
    for (int i = GD_BOOL; i < GD_DTYPE_COUNT; i++)
        if (dtypes[i].code == t->dtype.code && dtypes[i].bits == t->dtype.bits &&
            t->dtype.lanes == 1) {
            *dtype = (gd_dtype)i;
            return GD_OK;
        }
    return fail_dtype(t);
}

gd_dtype gd_dl_dtype_of_at(const char *site, const gd_dl_tensor *t) {
    gd_dtype dtype = GD_DTYPE_NONE;
    gd_report(site, t ? read_dtype(t, &dtype)
                      : gd_fail(GD_E_ARGUMENT, "gd_dl_dtype_of: the tensor is NULL"));
    return dtype;
}

/* --- devices ---------------------------------------------------------------------------------- */

static gd_status numbers_of(const gd_device *d, gd_dl_device *numbers) {
    if (!d) return gd_fail(GD_E_ARGUMENT, "DLPack: the device is NULL");
    if (d->api->host_reads) *numbers = (gd_dl_device){GD_DL_CPU, 0};
    else if (d->api->dlpack_type)
        *numbers = (gd_dl_device){d->api->dlpack_type, d->api->dlpack_number(d)};
    else
        return gd_fail(GD_E_UNSUPPORTED,
                       "DLPack: %s cannot share its memory; copy the tensor to the CPU", d->name);
    return GD_OK;
}

static gd_status find_device(gd_dl_device numbers, gd_device **device) {
    const int type = numbers.type;
    *device = gd_cpu();
    if (type == GD_DL_CPU || type == GD_DL_CUDA_HOST) return GD_OK;
    if (type == GD_DL_CUDA_MANAGED) numbers.type = GD_DL_CUDA;
    *device = gd_device_find_dlpack(numbers.type, numbers.number);
    if (!*device && numbers.type == GD_DL_CUDA) { /* its backend may not be loaded yet */
        if (!gd_device_get("cuda")) return gd_failure();
        *device = gd_device_find_dlpack(numbers.type, numbers.number);
    }
    if (*device) return GD_OK;
    return gd_fail(GD_E_DEVICE, "DLPack: there is no device of type %d (%s) with number %d", type,
                   type == GD_DL_CUDA || type == GD_DL_CUDA_MANAGED ? "CUDA" : "see DLDeviceType",
                   numbers.number);
}

gd_dl_device gd_dl_device_of_at(const char *site, const gd_device *device) {
    gd_dl_device numbers = {0, 0};
    gd_report(site, numbers_of(device, &numbers));
    return numbers;
}

gd_device *gd_dl_find_device_at(const char *site, gd_dl_device numbers) {
    gd_device *device = NULL;
    return gd_report(site, find_device(numbers, &device)) == GD_OK ? device : NULL;
}

int64_t gd_device_stream(const gd_device *device) {
    if (!device || !device->api->native_stream) return 0;
    return (int64_t)(intptr_t)device->api->native_stream(device);
}

/* --- to other libraries ----------------------------------------------------------------------- */

/* One of the two structs, and what they point to. */
typedef struct exported {
    gd_dl_managed managed;
    gd_dl_unversioned old;
    gd_storage *storage;
    bool follows_default; /* the receiver's work is on the default stream */
    int64_t dims[GD_MAX_RANK], strides[GD_MAX_RANK];
} exported;

static gd_status check_exported(const gd_tensor *t, const char *what) {
    char text[160];
    if (!t) return gd_fail(GD_E_ARGUMENT, "%s: the tensor is NULL", what);
    if (t->kind == GD_FAILED) {
        GD_TRY(gd_check_freed(t, what));
        return gd_fail(GD_E_STATE, "%s: the tensor is the result of a call that failed", what);
    }
    if (t->kind == GD_SYMBOL) return gd_symbol_unread_hook(t, what);
    if (t->kind != GD_VALUE) return gd_fail(GD_E_STATE, "%s: the tensor has no data", what);
    if (t->requires_grad)
        return gd_fail(
            GD_E_STATE,
            "%s: %s requires a gradient, and other libraries do not know the tape; share "
            "gd_detach(x)",
            what, gd_describe(t, text, sizeof text));
    return gd_check_traced_access(t, what, false);
}

/* Fills everything but the pointers to sizes and strides. */
static gd_status describe(const gd_tensor *t, gd_dl_tensor *to) {
    gd_dl_device numbers;
    GD_TRY(numbers_of(t->device, &numbers));
    *to = (gd_dl_tensor){.data = gd_view_of(t).data,
                         .device = numbers,
                         .rank = t->rank,
                         .dtype = {dtypes[t->dtype].code, dtypes[t->dtype].bits, 1}};
    return GD_OK;
}

/* The receiver's kernels on the default stream may still use the memory, which Gradus reuses on its own
 * stream. Other streams may not exist any more. */
static void release_export(exported *e) {
    gd_device *d = e->storage->device;
    if (e->follows_default && gd_device_is_usable(d)) gd_device_join_stream(d, NULL);
    gd_storage_release(e->storage);
    gd_free(e);
}
static void delete_managed(gd_dl_managed *m) { release_export(m->context); }
static void delete_old(gd_dl_unversioned *m) { release_export(m->context); }

static gd_tensor *copy_tensor(gd_tensor *t, gd_device *device) {
    if (device != t->device && !device->api->host_reads) return gd_to_device_at(NULL, t, device);
    gd_tensor *y = gd_tensor_new(device, (gd_dtype)t->dtype, t->rank, t->dims);
    if (!y) return gd_tensor_fail(GD_E_MEMORY);
    const gd_status status = device == t->device
                                 ? gd_copy_tensor(y, t)
                                 : gd_copy_out(t, y->storage->data, y->storage->bytes);
    return status == GD_OK ? y : gd_tensor_fail(status);
}

static gd_status export_tensor(gd_tensor *t, const char *what, bool versioned,
                               const gd_to_dlpack_options *o, exported **to) {
    GD_TRY(check_exported(t, what));
    gd_device *device = o->device ? o->device : t->device;
    const bool copies = o->copy || device != t->device;
    GD_SCOPE; /* frees the copy's handle */
    if (copies && (t = copy_tensor(t, device))->kind == GD_FAILED) return gd_failure();
    if (!versioned && t->storage->read_only)
        return gd_fail(GD_E_STATE,
                       "%s: the memory is read-only, which DLPack before 1.0 cannot say; copy it",
                       what);
    gd_dl_tensor d;
    GD_TRY(describe(t, &d));
    if (!device->api->host_reads && o->stream != GD_NO_STREAM)
        GD_TRY(gd_device_lead_stream(device, (void *)(intptr_t)o->stream));
    exported *e = gd_malloc(sizeof *e);
    if (!e) return gd_no_memory(NULL, "for a DLPack tensor");
    for (int i = 0; i < t->rank; i++) e->dims[i] = t->dims[i], e->strides[i] = t->strides[i];
    d.dims = e->dims;
    d.strides = e->strides;
    e->follows_default = !device->api->host_reads && (o->stream == 0 || o->stream == 1);
    e->managed = (gd_dl_managed){.major = GD_DL_MAJOR,
                                 .minor = GD_DL_MINOR,
                                 .context = e,
                                 .deleter = delete_managed,
                                 .flags = (t->storage->read_only ? GD_DL_READ_ONLY : 0) |
                                          (copies ? GD_DL_IS_COPIED : 0),
                                 .tensor = d};
    e->old = (gd_dl_unversioned){.tensor = d, .context = e, .deleter = delete_old};
    e->storage = t->storage;
    gd_storage_retain(e->storage);
    *to = e;
    return GD_OK;
}

struct DLManagedTensorVersioned *gd_to_dlpack_at(const char *site, gd_tensor *t,
                                                 const gd_to_dlpack_options *options) {
    GD_CALLED_FROM(site);
    exported *e;
    options = options ? options : GD_TO_DLPACK_OPTIONS_();
    if (gd_report(site, export_tensor(t, "gd_to_dlpack", true, options, &e)) != GD_OK) return NULL;
    return (struct DLManagedTensorVersioned *)&e->managed;
}

struct DLManagedTensor *gd_to_dlpack_unversioned_at(const char *site, gd_tensor *t,
                                                    const gd_to_dlpack_options *options) {
    GD_CALLED_FROM(site);
    exported *e;
    options = options ? options : GD_TO_DLPACK_OPTIONS_();
    if (gd_report(site, export_tensor(t, "gd_to_dlpack_unversioned", false, options, &e)) != GD_OK)
        return NULL;
    return (struct DLManagedTensor *)&e->old;
}

gd_status gd_dl_describe_at(const char *site, gd_tensor *t, gd_dl_tensor *to) {
    gd_status status = check_exported(t, "gd_dl_describe");
    if (status == GD_OK && !to) status = gd_fail(GD_E_ARGUMENT, "gd_dl_describe: `to` is NULL");
    if (status == GD_OK && (status = describe(t, to)) == GD_OK)
        to->dims = t->dims, to->strides = t->strides;
    return gd_report(site, status);
}

/* --- what another library gives --------------------------------------------------------------- */

typedef struct foreign {
    const gd_dl_tensor *tensor;
    gd_dtype dtype;
    gd_device *device;
    char *data; /* of element [0, 0, ...] */
    int64_t strides[GD_MAX_RANK];
    size_t bytes;         /* up to the end of the last element; 0: no element */
    const char *obstacle; /* why the memory cannot be shared; NULL: it can */
} foreign;

static gd_status check_sizes(const gd_dl_tensor *t) {
    if (t->rank < 0 || t->rank > GD_MAX_RANK)
        return gd_fail(GD_E_SHAPE, "DLPack: the tensor has %d dimensions; Gradus has at most %d",
                       t->rank, GD_MAX_RANK);
    if (t->rank > 0 && !t->dims) return gd_fail(GD_E_ARGUMENT, "DLPack: the shape is NULL");
    return GD_OK;
}

/* Computes the size of the memory, from the first element to the last. */
static gd_status measure(foreign *f) {
    const gd_dl_tensor *t = f->tensor;
    const int64_t size = (int64_t)gd_dtype_size(f->dtype);
    int64_t last = 0, reach;
    for (int i = 0; i < t->rank; i++) {
        if (f->strides[i] < 0) f->obstacle = "a stride is negative";
        const int64_t least = -INT64_MAX, stride = f->strides[i] < least ? least : f->strides[i];
        if (!gd_mul_i64(t->dims[i] - 1, stride < 0 ? -stride : stride, &reach) ||
            !gd_add_i64(last, reach, &last) || last >= INT64_MAX / 8 - 1)
            return gd_fail(GD_E_OVERFLOW, "DLPack: stride %d is too large", i);
    }
    f->bytes = (size_t)((last + 1) * size);
    if ((uintptr_t)f->data % (size_t)size != 0)
        f->obstacle = "its address is not a multiple of the element size";
    return GD_OK;
}

static gd_status read_foreign(const gd_dl_tensor *t, foreign *f) {
    size_t bytes;
    *f = (foreign){.tensor = t};
    GD_TRY(check_sizes(t));
    GD_TRY(read_dtype(t, &f->dtype));
    GD_TRY(find_device(t->device, &f->device));
    GD_TRY(gd_dims_bytes(t->rank, t->dims, f->dtype, &bytes));
    gd_row_major(t->rank, t->dims, f->strides);
    if (bytes == 0) return GD_OK; /* address and strides mean nothing */
    for (int i = 0; t->strides && i < t->rank; i++)
        if (t->dims[i] != 1)
            f->strides[i] = t->strides[i]; /* that of a size of 1 may be anything */
    if (!t->data) return gd_fail(GD_E_ARGUMENT, "DLPack: the address of the data is NULL");
    f->data = (char *)t->data + t->byte_offset;
    return measure(f);
}

/* --- from other libraries --------------------------------------------------------------------- */

/* A foreign tensor that a storage holds. */
typedef struct imported {
    gd_device_release release; /* the first field */
    gd_dl_managed *managed;    /* one of these two */
    gd_dl_unversioned *old;
    gd_device *device;
} imported;

static void delete_foreign(gd_dl_managed *managed, gd_dl_unversioned *old) {
    if (managed && managed->deleter) managed->deleter(managed);
    if (old && old->deleter) old->deleter(old);
}

static void run_release(gd_device_release *release) {
    imported *in = (imported *)release;
    delete_foreign(in->managed, in->old);
    gd_free(in);
}

static void release_import(void *data, void *user) {
    (void)data;
    imported *in = user;
    if (in->device->api->host_reads) run_release(&in->release);
    else gd_device_release_later(in->device, &in->release);
}

/* Copies elements of any strides and alignment to row-major memory. */
static char *gather(const foreign *f, int axis, const char *from, char *to) {
    const size_t size = gd_dtype_size(f->dtype);
    const int rank = f->tensor->rank;
    if (axis == rank) {
        memcpy(to, from, size);
        return to + size;
    }
    const int64_t n = f->tensor->dims[axis], step = f->strides[axis] * (int64_t)size;
    if (axis == rank - 1 && f->strides[axis] == 1) {
        memcpy(to, from, (size_t)n * size);
        return to + (size_t)n * size;
    }
    for (int64_t i = 0; i < n; i++) to = gather(f, axis + 1, from + i * step, to);
    return to;
}

static gd_status share(const foreign *f, gd_dl_managed *managed, gd_dl_unversioned *old,
                       gd_tensor **result) {
    const gd_dl_tensor *t = f->tensor;
    imported *in = gd_malloc(sizeof *in);
    if (!in) return gd_no_memory(NULL, "for a DLPack tensor");
    *in = (imported){{.run = run_release}, managed, old, f->device};
    gd_tensor *y = gd_tensor_bare(GD_VALUE, f->device, f->dtype, t->rank, t->dims);
    if (y) y->storage = gd_storage_wrap(f->device, f->data, f->bytes, release_import, in);
    if (!y || !y->storage) {
        gd_free(in);
        if (y && gd_this_thread.depth == 0) gd_release(y);
        return GD_E_MEMORY;
    }
    y->storage->read_only = managed && managed->flags & GD_DL_READ_ONLY;
    for (int i = 0; i < t->rank; i++) y->strides[i] = f->strides[i];
    *result = y;
    return GD_OK;
}

/* Copies the elements; the caller then deletes the foreign tensor. */
static gd_status copy_foreign(const foreign *f, gd_tensor **result) {
    const gd_dl_tensor *t = f->tensor;
    gd_tensor *y = gd_tensor_new(f->device, f->dtype, t->rank, t->dims);
    if (!y) return GD_E_MEMORY;
    gd_status status = GD_OK;
    if (f->bytes > 0 && f->device->api->host_reads) gather(f, 0, f->data, y->storage->data);
    else if (f->bytes > 0) {
        gd_view from = {.dtype = f->dtype, .rank = t->rank, .data = f->data}, to = gd_view_of(y);
        for (int i = 0; i < t->rank; i++)
            from.dims[i] = t->dims[i], from.strides[i] = f->strides[i];
        status = gd_copy_view_hook(f->device, &to, &from);
        if (status == GD_OK) status = gd_device_wait(f->device); /* then it may be deleted */
    }
    if (status != GD_OK && gd_this_thread.depth == 0) gd_release(y);
    *result = y;
    return status;
}

static gd_status import_tensor(gd_dl_managed *managed, gd_dl_unversioned *old,
                               const gd_from_dlpack_options *o, gd_tensor **result) {
    foreign f;
    if (!managed && !old) return gd_fail(GD_E_ARGUMENT, "DLPack: the tensor is NULL");
    if (managed && managed->major != GD_DL_MAJOR) /* nothing behind the version can be read */
        return gd_fail(GD_E_UNSUPPORTED, "DLPack: the tensor is of version %u.%u; Gradus knows 1.x",
                       managed->major, managed->minor);
    GD_TRY(read_foreign(managed ? &managed->tensor : &old->tensor, &f));
    const bool on_host = f.device->api->host_reads;
    if (f.obstacle && (o->copy == GD_COPY_NEVER || !on_host))
        return gd_fail(GD_E_UNSUPPORTED, "DLPack: %s, so the memory cannot be shared; %s",
                       f.obstacle, on_host ? "allow a copy" : "copy it in the other library");
    if (!on_host && o->stream != GD_NO_STREAM)
        GD_TRY(gd_device_join_stream(f.device, (void *)(intptr_t)o->stream));
    if (!f.obstacle && o->copy != GD_COPY_ALWAYS) return share(&f, managed, old, result);
    GD_TRY(copy_foreign(&f, result));
    delete_foreign(managed, old);
    return GD_OK;
}

gd_tensor *gd_from_dlpack_at(const char *site, struct DLManagedTensorVersioned *m,
                             const gd_from_dlpack_options *options) {
    GD_CALLED_FROM(site);
    gd_tensor *y = NULL;
    options = options ? options : GD_FROM_DLPACK_OPTIONS_();
    const gd_status status = import_tensor((gd_dl_managed *)m, NULL, options, &y);
    return status == GD_OK ? y : gd_tensor_fail(status);
}

gd_tensor *gd_from_dlpack_unversioned_at(const char *site, struct DLManagedTensor *m,
                                         const gd_from_dlpack_options *options) {
    GD_CALLED_FROM(site);
    gd_tensor *y = NULL;
    options = options ? options : GD_FROM_DLPACK_OPTIONS_();
    const gd_status status = import_tensor(NULL, (gd_dl_unversioned *)m, options, &y);
    return status == GD_OK ? y : gd_tensor_fail(status);
}
