/* tensor.c - reads a TensorProto: its data are in one of several fields of the message, or in
 * another file of the same folder. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "format/npy.h"
#include "onnx/load/load.h"

static const char *tensor_name(const gd_pb *t) {
    return *gd_pb_string(t, "name") ? gd_pb_string(t, "name") : "(no name)";
}

/* --- data in another file --------------------------------------------------------------------- */

/* The location of external data. */
typedef struct external_data {
    const char *location; /* of the file, relative to the folder of the model */
    uint64_t offset, length;
    bool has_length;
} external_data;

static bool parse_u64(const char *text, uint64_t *value) {
    *value = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        if (__builtin_mul_overflow(*value, (uint64_t)10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(*text - '0'), value))
            return false;
    }
    return true;
}

static gd_status read_external_data(const gd_pb *t, external_data *p) {
    *p = (external_data){.location = ""};
    for (size_t i = 0; i < gd_pb_count(t, "external_data"); i++) {
        const gd_pb *pair = gd_pb_message_at(t, "external_data", i);
        const char *key = gd_pb_string(pair, "key"), *value = gd_pb_string(pair, "value");
        bool ok = true;
        if (strcmp(key, "location") == 0) p->location = value;
        else if (strcmp(key, "offset") == 0) ok = parse_u64(value, &p->offset);
        else if (strcmp(key, "length") == 0) ok = p->has_length = parse_u64(value, &p->length);
        if (!ok)
            return gd_fail(GD_E_FORMAT, "tensor '%s': the %s of its data is '%.40s'",
                           tensor_name(t), key, value);
    }
    return GD_OK;
}

/* Whether a location is relative and has no "..". */
static bool is_inside_folder(const char *location) {
    if (!*location || *location == '/' || strchr(location, '\\') || strchr(location, ':'))
        return false;
    for (const char *part = location; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) return false;
    }
    return true;
}

/* Whether a path is inside the folder once links are resolved. */
static bool resolves_inside_folder(const char *folder, const char *path) {
    char *real_folder = realpath(folder, NULL), *real_path = realpath(path, NULL);
    const size_t length = real_folder ? strlen(real_folder) : 0;
    /* the reader reports a file that does not exist */
    const bool inside = !real_folder || !real_path || strcmp(real_folder, "/") == 0 ||
                        (strncmp(real_path, real_folder, length) == 0 && real_path[length] == '/');
    free(real_folder);
    free(real_path);
    return inside;
}

static gd_status read_external_file(const gd_pb *t, const char *folder, void *data, size_t bytes) {
    external_data p;
    GD_TRY(read_external_data(t, &p));
    if (!folder || !is_inside_folder(p.location))
        return gd_fail(
            GD_E_FORMAT,
            "tensor '%s': its data are in '%.200s', which is not in the folder of the file",
            tensor_name(t), p.location);
    if (p.has_length && p.length != bytes)
        return gd_fail(GD_E_FORMAT,
                       "tensor '%s': its data have %" PRIu64
                       " bytes in '%.200s', and should have %zu",
                       tensor_name(t), p.length, p.location, bytes);
    const size_t size = strlen(folder) + strlen(p.location) + 2;
    char *path = gd_malloc(size);
    if (!path) return gd_no_memory(NULL, "to load a graph");
    snprintf(path, size, "%s/%s", folder, p.location);
    gd_file_reader *file = NULL;
    gd_status status = GD_OK;
    if (!resolves_inside_folder(folder, path))
        status = gd_fail(GD_E_FORMAT, "tensor '%s': '%.200s' leads out of the folder of the file",
                         tensor_name(t), p.location);
    if (status == GD_OK) status = gd_file_reader_open(&file, path);
    if (status == GD_OK) status = gd_file_reader_read_at(file, p.offset, data, bytes);
    if (status != GD_OK) gd_error_prefix("tensor '%s': ", tensor_name(t));
    gd_file_reader_close(file);
    gd_free(path);
    return status;
}

/* --- data in the message ---------------------------------------------------------------------- */

/* The field for elements of a dtype, if they are not in raw_data. */
static const char *data_field(gd_dtype dtype) {
    switch (dtype) {
    case GD_F32: return "float_data";
    case GD_F64: return "double_data";
    case GD_I64: return "int64_data";
    default: return "int32_data"; /* small integers, bools, and the bits of f16 and bf16 */
    }
}

static gd_status read_data_field(const gd_pb *t, gd_dtype dtype, char *data, int64_t count) {
    const gd_pb_list *list = gd_pb_get(t, data_field(dtype));
    const size_t have = list ? list->count : 0, item = gd_dtype_bytes(dtype);
    if (have != (size_t)count)
        return gd_fail(GD_E_FORMAT, "tensor '%s': has %zu elements in %s, and should have %" PRId64,
                       tensor_name(t), have, data_field(dtype), count);
    for (int64_t i = 0; i < count; i++, data += item) {
        if (dtype == GD_F32) memcpy(data, &list->floats[i], sizeof(float));
        else if (dtype == GD_F64) memcpy(data, &list->doubles[i], sizeof(double));
        else if (dtype == GD_F16 || dtype == GD_BF16)
            memcpy(data, &(uint16_t){(uint16_t)list->ints[i]}, sizeof(uint16_t));
        else gd_store_i64(dtype, data, list->ints[i]);
    }
    return GD_OK;
}

/* Converts raw bytes of a file: they are little-endian, and any nonzero byte is true. */
static void convert_raw_data(gd_dtype dtype, char *data, int64_t count) {
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
        gd_npy_swap(data, (size_t)count, (int)gd_dtype_bytes(dtype));
    for (int64_t i = 0; dtype == GD_BOOL && i < count; i++) data[i] = data[i] != 0;
}

static gd_status read_data(const gd_pb *t, const char *folder, gd_dtype dtype, char *data,
                           int64_t count, size_t bytes) {
    const gd_pb_list *raw = gd_pb_get(t, "raw_data");
    if (gd_pb_int(t, "data_location", 0) == 1) {
        GD_TRY(read_external_file(t, folder, data, bytes));
    } else if (raw) {
        if (raw->bytes[0].length != bytes)
            return gd_fail(GD_E_FORMAT, "tensor '%s': has %zu bytes of data, and should have %zu",
                           tensor_name(t), raw->bytes[0].length, bytes);
        if (bytes) memcpy(data, raw->bytes[0].data, bytes);
    } else {
        return read_data_field(t, dtype, data, count);
    }
    convert_raw_data(dtype, data, count);
    return GD_OK;
}

/* Compares the size of the data with that of the shape before memory is allocated. */
static gd_status check_size(const gd_pb *t, const char *folder, gd_dtype dtype, size_t bytes) {
    const gd_pb_list *raw = gd_pb_get(t, "raw_data");
    size_t have =
        raw ? raw->bytes[0].length : gd_pb_count(t, data_field(dtype)) * gd_dtype_bytes(dtype);
    if (gd_pb_int(t, "data_location", 0) == 1) {
        external_data p;
        GD_TRY(read_external_data(t, &p));
        if (!p.has_length || !folder) return GD_OK;
        have = (size_t)p.length;
    }
    if (have == bytes) return GD_OK;
    return gd_fail(GD_E_FORMAT, "tensor '%s': has %zu bytes of data, and should have %zu",
                   tensor_name(t), have, bytes);
}

gd_status gd_onnx_read_tensor(const gd_pb *t, const char *folder, gd_tensor **out) {
    const gd_pb_list *dims = gd_pb_get(t, "dims");
    const int64_t type = gd_pb_int(t, "data_type", 0);
    const gd_dtype dtype = gd_onnx_dtype(type);
    const int rank = dims ? (int)(dims->count < 1000 ? dims->count : 1000) : 0;
    size_t bytes;
    if (dtype == GD_DTYPE_NONE)
        return gd_fail(GD_E_UNSUPPORTED,
                       "tensor '%s': its elements are %s (%" PRId64 "), which no dtype can hold",
                       tensor_name(t), gd_onnx_type_name(type), type);
    if (gd_pb_message(t, "segment"))
        return gd_fail(GD_E_UNSUPPORTED,
                       "tensor '%s' is stored in segments, which is not supported", tensor_name(t));
    if (rank > GD_MAX_RANK)
        return gd_fail(GD_E_UNSUPPORTED, "tensor '%s' has %d dimensions; at most %d are supported",
                       tensor_name(t), rank, GD_MAX_RANK);
    const gd_status fits = gd_dims_bytes(rank, dims ? dims->ints : NULL, dtype, &bytes);
    if (fits != GD_OK) {
        gd_error_prefix("tensor '%s': ", tensor_name(t));
        return fits;
    }
    GD_TRY(check_size(t, folder, dtype, bytes));
    gd_block device = gd_device_begin(gd_device_get("cpu"));
    gd_tensor *value = gd_empty(gd_shape_of(rank, dims ? dims->ints : NULL), dtype);
    gd_device_end(&device);
    if (value->kind != GD_VALUE) return gd_failure();
    const int64_t count = gd_numel(rank, value->dims);
    if (bytes) GD_TRY(read_data(t, folder, dtype, gd_data(value), count, bytes));
    *out = gd_to_device(value, gd_default_device());
    return (*out)->kind == GD_VALUE ? GD_OK : gd_failure();
}
