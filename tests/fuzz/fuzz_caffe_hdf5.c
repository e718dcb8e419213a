/* fuzz_caffe_hdf5.c - reads any bytes as weights and as the state of a solver in HDF5: an error with a message
 * that names the file, or blobs that are tensors. */
#include <stdlib.h>
#include <string.h>

#include "caffe/blob.h"
#include "caffe/hdf5_files.h"
#include "core/error.h"
#include "gradus/gradus.h"

static void check_blobs(const gd_pb *message, const char *field) {
    GD_SCOPE;
    gd_tensor *t;
    for (size_t i = 0; i < gd_pb_count(message, field); i++)
        if (gd_caffe_blob_tensor(gd_pb_message_at(message, field, i), &t) != GD_OK &&
            !*gd_latest_failure())
            abort();
}

static void check_message(gd_status status) {
    if (status != GD_OK && !strstr(gd_latest_failure(), "fuzz.h5")) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gd_file_reader *file;
    gd_pb_doc *net, *state;
    if (gd_file_reader_open_memory(&file, "fuzz.h5", data, size) != GD_OK) return 0;
    check_message(gd_caffe_net_read_hdf5(&net, file));
    check_message(gd_caffe_state_read_hdf5(&state, file));
    const gd_pb_list *layers = net ? gd_pb_get(gd_pb_root(net), "layer") : NULL;
    for (size_t i = 0; layers && i < layers->count; i++) check_blobs(layers->messages[i], "blobs");
    if (state) check_blobs(gd_pb_root(state), "history");
    gd_pb_free(net);
    gd_pb_free(state);
    gd_file_reader_close(file);
    if (gd_failed()) abort(); /* only public calls record failures */
    return 0;
}
