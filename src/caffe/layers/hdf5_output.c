/* hdf5_output.c - HDF5Output: writes its bottoms as the datasets "data" and "label" of a file.
 *
 * Each call replaces the file by one with its batch, while Caffe's fails at the second call. Files are written
 * on the host, so the layer cannot be traced. It has no tops, and no gradient goes through it.
 */
#include "caffe/layer.h"
#include "core/alloc.h"
#include "core/tensor.h"
#include "dispatch/intern.h"
#include "format/hdf5.h"
#include "graph/build/shapes_only.h"
#include "nn/layer.h"

typedef struct hdf5_output {
    const char *path; /* interned */
} hdf5_output;

/* Adds a blob as a dataset, with the four axes that all blobs of Caffe once had: (N) becomes (N, 1, 1, 1). */
static gd_status write_blob(gd_hdf5_writer *w, const char *name, gd_tensor *blob) {
    gd_shape shape = gd_tensor_shape(blob);
    while (shape.rank < 4) shape.at[shape.rank++] = 1;
    const gd_dtype dtype = gd_tensor_dtype(blob) == GD_F64 ? GD_F64 : GD_F32;
    const size_t bytes = (size_t)gd_tensor_numel(blob) * (dtype == GD_F64 ? 8 : 4);
    gd_tensor *cast = gd_tensor_dtype(blob) == dtype ? blob : gd_cast(blob, dtype);
    void *values = gd_malloc(bytes + 1);
    if (!values) return gd_no_memory(NULL, "for the values of a blob");
    gd_status status = cast->kind == GD_FAILED ? gd_failure() : gd_copy_out(cast, values, bytes);
    if (status == GD_OK) status = gd_hdf5_writer_dataset(w, name, dtype, shape.rank, shape.at);
    if (status == GD_OK) status = gd_hdf5_writer_write(w, values, bytes);
    gd_free(values);
    return status;
}

static gd_status write_file(const char *path, gd_tensors in) {
    gd_hdf5_writer *w;
    GD_NO_GRAD;
    if (gd_tensor_dim(in.at[0], 0) != gd_tensor_dim(in.at[1], 0))
        return gd_fail(GD_E_SHAPE, "its bottoms have %lld and %lld rows; they must have as many",
                       (long long)gd_tensor_dim(in.at[0], 0),
                       (long long)gd_tensor_dim(in.at[1], 0));
    GD_TRY(gd_hdf5_writer_begin(&w, path));
    gd_status status = write_blob(w, "/data", in.at[0]);
    if (status == GD_OK) status = write_blob(w, "/label", in.at[1]);
    if (status == GD_OK) return gd_hdf5_writer_commit(w);
    gd_hdf5_writer_cancel(w);
    return status;
}

static gd_tensors output_forward(gd_tensors in, void *self) {
    const hdf5_output *m = self;
    if (gd_is_shapes_only) return gd_listed(in.at[0]);
    for (int i = 0; i < 2; i++) {
        if (in.at[i]->kind == GD_FAILED) return gd_layer_fail(gd_failure());
        if (in.at[i]->kind == GD_SYMBOL)
            return gd_layer_fail(gd_fail(
                GD_E_UNSUPPORTED, "HDF5Output cannot be traced, because it writes a file; run the "
                                  "net eagerly, or name "
                                  "the outputs that you need: the net then has only their layers"));
    }
    const gd_status status = write_file(m->path, in);
    return status == GD_OK ? gd_listed(in.at[0]) : gd_layer_fail(status);
}

gd_status gd_caffe_make_HDF5Output(gd_caffe_layer *l) {
    const char *path = gd_pb_string_of(l->message, "hdf5_output_param.file_name");
    const gd_shape *data = &l->bottoms[0], *label = &l->bottoms[1];
    if (!*path) return gd_caffe_fail(l, "hdf5_output_param has no file_name");
    if (data->rank < 1 || label->rank < 1 || data->at[0] != label->at[0])
        return gd_caffe_fail(l, "its bottoms must have the same number of rows");
    hdf5_output *m = gd_caffe_module(l, output_forward, sizeof *m);
    if (!m) return gd_failure();
    m->path = gd_intern(path);
    return m->path ? GD_OK : gd_no_memory(l->file, "for a layer");
}
