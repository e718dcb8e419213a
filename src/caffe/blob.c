/* blob.c - see blob.h. */
#include "caffe/blob.h"

#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "dispatch/body.h"
#include "format/protobuf_tree.h"
#include "gradus/autograd.h"
#include "gradus/caffe.h"
#include "gradus/ops.h"
#include "gradus/scope.h"

/* --- reading ---------------------------------------------------------------------------------- */

gd_status gd_caffe_blob_shape(const gd_pb *blob, gd_shape *shape) {
    static const char *const old[] = {"num", "channels", "height", "width"};
    const gd_pb_list *dims = gd_pb_list_of(blob, "shape.dim");
    bool has_old = false;
    for (int i = 0; i < 4; i++) has_old |= gd_pb_has(blob, old[i]);
    const size_t rank = has_old ? 4 : dims ? dims->count : 0;
    if (rank > GD_MAX_RANK)
        return gd_pb_fail(blob, "a blob has %zu dimensions; at most %d are supported", rank,
                          GD_MAX_RANK);
    *shape = gd_dims();
    for (size_t i = 0; i < rank; i++) {
        const int64_t size = has_old ? gd_pb_int_of(blob, old[i]) : dims->ints[i];
        if (size < 0) return gd_pb_fail(blob, "a blob has the negative size %lld", (long long)size);
        shape->at[shape->rank++] = size;
    }
    return GD_OK;
}

/* Where the values of a blob are in the file. */
typedef struct contents {
    gd_dtype dtype;
    const void *data;
    size_t bytes;
} contents;

/* raw_data, whose type is a number of NVIDIA's: doubles, floats, f16; others are integers. */
static gd_status find_raw(const gd_pb *blob, const gd_pb_list *raw, contents *c) {
    static const gd_dtype dtypes[] = {GD_F64, GD_F32, GD_F16};
    const int64_t type = gd_pb_int_of(blob, "raw_data_type");
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)type);
    const char *word = gd_pb_word_of(blob, "raw_data_type");
    if (type < 0 || type > 2)
        return gd_pb_fail(blob,
                          "a blob has raw data of type %s; known are DOUBLE, FLOAT and FLOAT16",
                          *word ? word : number);
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        return gd_pb_fail(blob, "raw data are little-endian, which this machine cannot read");
    *c = (contents){dtypes[type], raw->bytes[0].data, raw->bytes[0].length};
    return GD_OK;
}

static gd_status find_contents(const gd_pb *blob, contents *c) {
    const gd_pb_list *floats = gd_pb_get(blob, "data"), *doubles = gd_pb_get(blob, "double_data"),
                     *raw = gd_pb_get(blob, "raw_data");
    *c = (contents){.dtype = GD_F32};
    if (doubles) *c = (contents){GD_F64, doubles->items, doubles->count * sizeof(double)};
    else if (floats) *c = (contents){GD_F32, floats->items, floats->count * sizeof(float)};
    else if (raw) return find_raw(blob, raw, c);
    return GD_OK;
}

gd_status gd_caffe_blob_tensor(const gd_pb *blob, gd_tensor **out) {
    gd_shape shape;
    contents c;
    size_t bytes;
    char text[100];
    GD_TRY(gd_caffe_blob_shape(blob, &shape));
    GD_TRY(find_contents(blob, &c));
    /* before memory is allocated */
    if (gd_dims_bytes(shape.rank, shape.at, c.dtype, &bytes) != GD_OK || bytes != c.bytes)
        return gd_pb_fail(blob, "a blob of shape %s has %zu bytes of %s",
                          gd_shape_text(shape.rank, shape.at, text, sizeof text), c.bytes,
                          gd_dtype_name(c.dtype));
    GD_ON_CPU;
    *out = gd_empty(shape, c.dtype);
    if ((*out)->kind != GD_VALUE) return gd_failure();
    if (bytes > 0) memcpy(gd_data(*out), c.data, bytes);
    return GD_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

gd_status gd_caffe_put_blob(gd_pb *blob, gd_tensor *t) {
    GD_SCOPE;
    const gd_dtype dtype = t->dtype == GD_F64 ? GD_F64 : GD_F32;
    const bool same = t->dtype == (unsigned)dtype;
    if (t->kind != GD_VALUE) return gd_fail(GD_E_STATE, "the tensor of a blob has no values");
    for (int i = 0; i < t->rank; i++) /* a scalar has no shape */
        gd_pb_put_int(gd_pb_put_message(blob, "shape"), "dim", t->dims[i]);
    const size_t count = (size_t)gd_numel(t->rank, t->dims), bytes = count * gd_dtype_bytes(dtype);
    const void *data = same && gd_tensor_is_contiguous(t) ? gd_data(t) : NULL;
    if (data == NULL) {
        void *copy = gd_pb_alloc(blob->doc, bytes);
        if (copy == NULL) return gd_no_memory(NULL, "for a blob");
        GD_TRY(gd_copy_out(same ? t : gd_cast(gd_detach(t), dtype), copy, bytes));
        data = copy;
    }
    gd_pb_put_numbers(blob, dtype == GD_F64 ? "double_data" : "data", data, count);
    return gd_pb_check(blob->doc);
}

/* --- files ------------------------------------------------------------------------------------ */

static gd_status read_file(const char *path, gd_tensor **out) {
    gd_pb_doc *doc;
    if (!path) return gd_fail(GD_E_ARGUMENT, "gd_caffe_read_blob: the path is NULL");
    GD_TRY(gd_pb_load(&doc, &gd_caffe_blob_schema, path));
    const gd_status status = gd_caffe_blob_tensor(gd_pb_root(doc), out);
    gd_pb_free(doc);
    return status;
}

gd_tensor *gd_caffe_read_blob_at(const char *site, const char *path) {
    GD_CALLED_FROM(site);
    gd_tensor *t;
    const gd_status status = read_file(path, &t);
    if (status != GD_OK) return gd_tensor_fail(status);
    return gd_to_device(gd_as_dtype(t, GD_F32), gd_default_device());
}

static gd_status write_file(const char *path, gd_tensor *t) {
    if (!path || !t)
        return gd_fail(GD_E_ARGUMENT, "gd_caffe_write_blob: the %s is NULL",
                       path ? "tensor" : "path");
    gd_pb_doc *doc = gd_pb_new(&gd_caffe_blob_schema);
    if (!doc) return GD_E_MEMORY;
    gd_status status = gd_caffe_put_blob(gd_pb_root(doc), t);
    if (status == GD_OK) status = gd_pb_save(doc, path);
    gd_pb_free(doc);
    return status;
}

gd_status gd_caffe_write_blob_at(const char *site, const char *path, gd_tensor *t) {
    GD_CALLED_FROM(site);
    if (gd_failed()) return gd_error_status(); /* results after a failure are not saved */
    return gd_report(site, write_file(path, t));
}
