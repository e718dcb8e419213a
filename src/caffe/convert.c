/* convert.c - databases of Datums from MNIST; what all conversions use (convert.h). */
#include "caffe/convert.h"

#include <stdio.h>
#include <string.h>

#include "caffe/schema.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "gradus/caffe.h"
#include "gradus/datasets.h"

gd_status gd_caffe_put_item(gd_lmdb_writer *writer, const char *key, const gd_caffe_item *item) {
    char *data;
    size_t bytes;
    gd_pb_doc *doc = gd_pb_new(&gd_caffe_datum_schema);
    if (!doc) return GD_E_MEMORY;
    gd_pb *datum = gd_pb_root(doc);
    gd_pb_put_int(datum, "channels", item->channels);
    gd_pb_put_int(datum, "height", item->height);
    gd_pb_put_int(datum, "width", item->width);
    gd_pb_put_bytes(datum, "data", item->bytes, item->n_bytes);
    gd_pb_put_int(datum, "label", item->label);
    if (item->is_image) gd_pb_put_int(datum, "encoded", item->encoded);
    gd_status status = gd_pb_print(doc, &data, &bytes);
    gd_pb_free(doc);
    GD_TRY(status);
    status = gd_lmdb_put(writer, key, strlen(key), data, bytes);
    gd_free(data);
    return status;
}

gd_status gd_caffe_finish_writing(gd_lmdb_writer *writer, gd_status status) {
    if (status == GD_OK) return gd_lmdb_finish(writer);
    gd_lmdb_cancel(writer);
    return status;
}

int64_t gd_caffe_report_count(const char *site, const char *function, gd_status status,
                              int64_t count) {
    if (status == GD_OK) return count;
    gd_error_prefix("%s: ", function);
    gd_report(site, status);
    return -1;
}

/* --- MNIST ------------------------------------------------------------------------------------ */

static gd_status put_digit(gd_lmdb_writer *writer, gd_dataset *digits, int64_t i) {
    char key[24];
    const gd_tensors sample = gd_dataset_get(digits, i);
    if (gd_failed() || sample.count != 2) return gd_failure();
    const gd_tensor *image = sample.at[0], *label = sample.at[1];
    const gd_caffe_item item = {.channels = 1,
                                .height = (int)image->dims[1],
                                .width = (int)image->dims[2],
                                .bytes = image->storage->data,
                                .n_bytes = (size_t)(image->dims[1] * image->dims[2]),
                                .label = *(const int64_t *)label->storage->data};
    snprintf(key, sizeof key, "%08lld", (long long)i);
    return gd_caffe_put_item(writer, key, &item);
}

static gd_status convert_mnist(const char *folder, const char *database, bool test,
                               int64_t *count) {
    gd_lmdb_writer *writer;
    if (!folder || !database) return gd_fail(GD_E_ARGUMENT, "a path is NULL");
    gd_dataset *digits = gd_dataset_mnist(folder, test ? GD_TEST : GD_TRAIN, .bytes = true);
    if (!digits) return gd_failure();
    GD_TRY(gd_lmdb_create(&writer, database));
    gd_status status = GD_OK;
    for (*count = 0; *count < gd_dataset_count(digits) && status == GD_OK; ++*count) {
        gd_scope *scope = gd_scope_open();
        status = put_digit(writer, digits, *count);
        gd_scope_close(&scope);
    }
    return gd_caffe_finish_writing(writer, status);
}

int64_t gd_caffe_convert_mnist_at(const char *site, const char *folder, const char *database,
                                  const gd_caffe_convert_mnist_options *o) {
    o = o ? o : GD_CAFFE_CONVERT_MNIST_OPTIONS_();
    GD_CALLED_FROM(site);
    GD_ON_CPU;
    int64_t count = 0;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_status status = convert_mnist(folder, database, o->test, &count);
    gd_scope_close(&scope);
    status = gd_attempt_end(&attempt, status);
    return gd_caffe_report_count(site, "gd_caffe_convert_mnist", status, count);
}
