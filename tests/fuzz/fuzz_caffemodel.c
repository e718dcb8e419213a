/* fuzz_caffemodel.c - reads any bytes as a .caffemodel, upgrades it and makes tensors of its blobs: an
 * error with a message, or blobs that are written and read again with the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "caffe/blob.h"
#include "caffe/read.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/tensor.h"
#include "gradus/gradus.h"

static void check_blob(const gd_pb *blob) {
    GD_SCOPE;
    gd_tensor *t, *again;
    gd_pb_doc *doc;
    if (gd_caffe_blob_tensor(blob, &t) != GD_OK) return;
    if (gd_tensor_dtype(t) == GD_F16) t = gd_cast(t, GD_F32);
    doc = gd_pb_new(&gd_caffe_blob_schema);
    if (!doc || gd_caffe_put_blob(gd_pb_root(doc), t) != GD_OK) abort();
    if (gd_caffe_blob_tensor(gd_pb_root(doc), &again) != GD_OK) abort();
    const size_t bytes = (size_t)gd_tensor_numel(t) * gd_dtype_bytes(gd_tensor_dtype(t));
    if (bytes && memcmp(gd_data(t), gd_data(again), bytes) != 0) abort();
    gd_pb_free(doc);
}

static void check_net(gd_pb_doc *doc) {
    const gd_pb_list *layers = gd_pb_get(gd_pb_root(doc), "layer");
    char *data;
    size_t bytes;
    for (size_t i = 0; layers && i < layers->count; i++)
        for (size_t k = 0; k < gd_pb_count(layers->messages[i], "blobs"); k++)
            check_blob(gd_pb_message_at(layers->messages[i], "blobs", k));
    if (gd_pb_print(doc, &data, &bytes) != GD_OK) abort();
    gd_free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gd_pb_doc *doc;
    if (gd_pb_read(&doc, &gd_caffe_net_schema, "fuzz", data, size) != GD_OK) return 0;
    if (gd_caffe_upgrade_net(gd_pb_root(doc), "fuzz") == GD_OK) check_net(doc);
    else if (gd_latest_failure()[0] == '\0') abort();
    gd_pb_free(doc);
    if (gd_failed()) abort(); /* only public calls record failures */
    return 0;
}
