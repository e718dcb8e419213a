/* run_data.c - reads the data layers of a net, for data_against_caffe.py.
 *
 *     run_data NET train|test BATCHES WORKERS OUT.npz [BATCHES_OF_AN_EPOCH]
 *
 * OUT.npz gets an array for each top of each batch: "0:data", "0:label", "1:data", ... A failure is
 * printed, and the exit status is 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caffe/data.h"
#include "caffe/read.h"
#include "core/error.h"
#include "gradus/gradus.h"

enum { MAX_LAYERS = 64, MAX_ARRAYS = 4000 };

static const char *names[MAX_ARRAYS];
static gd_tensor *arrays[MAX_ARRAYS];
static int64_t n_arrays;

/* Keeps the tops of a batch. */
static void keep_batch(const gd_caffe_data *data, int number, gd_tensors batch) {
    for (int k = 0; k < batch.count && n_arrays < MAX_ARRAYS; k++) {
        char *name = malloc(100);
        snprintf(name, 100, "%d:%s", number, gd_caffe_data_top(data, k));
        names[n_arrays] = name;
        arrays[n_arrays++] = gd_clone(batch.at[k]);
    }
}

static gd_status read_batches(const char *net, gd_caffe_phase phase, int batches,
                              const gd_caffe_data_options *options) {
    const gd_pb *layers[MAX_LAYERS];
    gd_pb_doc *doc;
    gd_caffe_data *data;
    int count = 0;
    GD_TRY(gd_caffe_read_net(&doc, net));
    const gd_pb_list *list = gd_pb_get(gd_pb_root(doc), "layer");
    for (size_t i = 0; list && i < list->count && count < MAX_LAYERS; i++)
        if (gd_caffe_is_data(gd_pb_string(list->messages[i], "type")))
            layers[count++] = list->messages[i];
    const gd_status status = gd_caffe_data_open(&data, layers, count, phase, net, options);
    gd_pb_free(doc);
    GD_TRY(status);
    for (int n = 0; n < batches;) {
        gd_tensors batch;
        if (gd_loader_next(gd_caffe_data_loader(data), &batch)) keep_batch(data, n++, batch);
        else if (gd_failed()) return gd_failure();
    }
    return GD_OK;
}

int main(int argc, char **argv) {
    GD_SCOPE;
    if (argc < 6) return 2;
    const gd_caffe_data_options options = {.workers = atoi(argv[4]),
                                           .batches = argc > 6 ? atoi(argv[6]) : 0};
    gd_status status =
        read_batches(argv[1], strcmp(argv[2], "train") == 0 ? GD_CAFFE_TRAIN : GD_CAFFE_TEST,
                     atoi(argv[3]), &options);
    if (status == GD_OK) status = gd_save_npz(argv[5], names, ((gd_tensors){arrays, n_arrays}));
    if (status == GD_OK) return 0;
    puts(gd_latest_failure());
    return 1;
}
