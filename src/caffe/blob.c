/* blob.c - the tensors of Caffe's files. */
#include "caffe/blob.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/tensor.h"

gd_status gd_caffe_blob_shape(const gd_pb *blob, gd_shape *shape) {
    static const char *const old[] = {"num", "channels", "height", "width"};
    int64_t sizes[GD_MAX_RANK];
    const gd_pb_list *dims = gd_pb_list_of(blob, "shape.dim");
    const size_t rank = gd_pb_has(blob, "shape") ? (dims ? dims->count : 0) : 4;
    double count = 1;
    if (rank > GD_MAX_RANK)
        return gd_pb_fail(blob, "a blob has %zu axes; there can be %d", rank, GD_MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        sizes[i] = gd_pb_has(blob, "shape") ? dims->ints[i] : gd_pb_int_of(blob, old[i]);
        if (sizes[i] < 0) return gd_pb_fail(blob, "size %zu of a blob is negative", i);
        count *= (double)sizes[i];
    }
    const gd_pb_list *data = gd_pb_get(blob, "data"), *doubles = gd_pb_get(blob, "double_data");
    const size_t given = data ? data->count : doubles ? doubles->count : 0;
    if ((double)given != count)
        return gd_pb_fail(blob, "a blob has %zu values, but its shape needs %.0f", given, count);
    *shape = gd_shape_of((int)rank, sizes);
    return GD_OK;
}

gd_status gd_caffe_blob_tensor(const gd_pb *blob, gd_tensor **out) {
    gd_shape shape;
    GD_TRY(gd_caffe_blob_shape(blob, &shape));
    const gd_pb_list *data = gd_pb_get(blob, "data"), *doubles = gd_pb_get(blob, "double_data");
    const gd_dtype dtype = data || !doubles ? GD_F32 : GD_F64;
    const void *values = data ? (void *)data->floats : doubles ? (void *)doubles->doubles : "";
    *out = gd_from_array(shape, dtype, values);
    return *out && (*out)->kind != GD_FAILED ? GD_OK : gd_failure();
}

gd_status gd_caffe_put_blob(gd_pb *blob, gd_tensor *t) {
    gd_pb *shape = gd_pb_put_message(blob, "shape");
    for (int i = 0; i < t->rank; i++) gd_pb_put_int(shape, "dim", t->dims[i]);
    const int64_t count = gd_numel(t->rank, t->dims);
    float *values = gd_malloc((size_t)count * sizeof *values + 1);
    if (!values) return gd_no_memory(NULL, "for a blob");
    const gd_status status = gd_copy_out(t, values, (size_t)count * sizeof *values);
    for (int64_t i = 0; i < count && status == GD_OK; i++) gd_pb_put_float(blob, "data", values[i]);
    gd_free(values);
    return status;
}
