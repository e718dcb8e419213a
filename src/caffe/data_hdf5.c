/* data_hdf5.c - the layer HDF5Data: rows of the HDF5 files that a text lists. */
#include <limits.h>
#include <string.h>

#include "caffe/data_feed.h"
#include "caffe/hdf5_rows.h"
#include "caffe/read.h"
#include "core/alloc.h"
#include "core/copy.h"
#include "core/error.h"
#include "data/permute.h"

typedef struct hdf5_data {
    gd_caffe_rows rows;
    bool shuffle; /* the files in each pass, and the rows of each file */
} hdf5_data;

static gd_status open_hdf5(gd_caffe_feed *feed, const gd_pb *layer) {
    char path[PATH_MAX];
    hdf5_data *h = feed->self = gd_calloc(1, sizeof *h);
    if (!h) return gd_no_memory(NULL, "for a data layer");
    if (gd_pb_has(layer, "transform_param"))
        return gd_fail(GD_E_FORMAT, "HDF5 data are not transformed; remove transform_param");
    GD_TRY(gd_caffe_feed_batch(feed, layer, "hdf5_data_param.batch_size"));
    h->shuffle = gd_pb_int_of(layer, "hdf5_data_param.shuffle");
    GD_TRY(gd_caffe_find_file(gd_pb_string_of(layer, "hdf5_data_param.source"), feed->of_file, path,
                              sizeof path));
    GD_TRY(gd_caffe_rows_open(&h->rows, path, (const char *const *)feed->top_names, feed->n_tops));
    for (int k = 0; k < feed->n_tops; k++) {
        const gd_shape *row = &h->rows.shapes[k];
        feed->shapes[k] = gd_dims(feed->batch);
        for (int i = 0; i < row->rank; i++) feed->shapes[k].at[feed->shapes[k].rank++] = row->at[i];
    }
    return GD_OK;
}

/* A row: its file, and its number through all files. */
typedef struct row_place {
    int file;
    int64_t row;
} row_place;

/* The row at a position of a pass. */
static row_place find_row(const hdf5_data *h, uint64_t seed, int64_t pass, int64_t at) {
    const gd_caffe_rows *r = &h->rows;
    const gd_rng files = gd_draw_key(GD_DRAW_ORDER, seed, (uint64_t)pass);
    for (int i = 0; i < r->n_files; i++) {
        const int file = h->shuffle ? (int)gd_shuffled(files, i, r->n_files) : i;
        const int64_t first = file ? r->ends[file - 1] : 0, rows = r->ends[file] - first;
        if (at >= rows) {
            at -= rows;
            continue;
        }
        const gd_rng key =
            gd_draw_key(GD_DRAW_MEMBER, seed ^ ((uint64_t)file << 40), (uint64_t)pass);
        return (row_place){file, first + (h->shuffle ? gd_shuffled(key, at, rows) : at)};
    }
    return (row_place){0, 0}; /* not reached: `at` is below the number of all rows */
}

/* Reads the rows of a batch into a top: consecutive rows of a file at once. */
static gd_status read_rows(const hdf5_data *h, int top, const row_place *places, int64_t count,
                           float *to) {
    const gd_shape *shape = &h->rows.shapes[top];
    const int64_t size = gd_numel(shape->rank, shape->at);
    for (int64_t i = 0, n; i < count; i += n) {
        for (n = 1; i + n < count && places[i + n].file == places[i].file &&
                    places[i + n].row == places[i].row + n;)
            n++;
        GD_TRY(gd_caffe_rows_read(&h->rows, top, places[i].file, places[i].row, n, to + i * size));
    }
    return GD_OK;
}

static gd_status read_hdf5(const gd_caffe_feed *feed, const gd_caffe_draw *draw,
                           gd_sample *sample) {
    const hdf5_data *h = feed->self;
    const int64_t rows = gd_caffe_rows_count(&h->rows), first = draw->batch * feed->batch;
    row_place *places = gd_malloc((size_t)feed->batch * sizeof *places);
    if (!places) return gd_no_memory(NULL, "for a batch");
    for (int64_t i = 0; i < feed->batch; i++)
        places[i] = find_row(h, draw->seed, (first + i) / rows, (first + i) % rows);
    gd_status status = GD_OK;
    for (int k = 0; k < feed->n_tops && status == GD_OK; k++) {
        float *to;
        status = gd_caffe_add_top(sample, &feed->shapes[k], &to);
        if (status == GD_OK) status = read_rows(h, k, places, feed->batch, to);
    }
    gd_free(places);
    return status;
}

static void close_hdf5(gd_caffe_feed *feed) {
    hdf5_data *h = feed->self;
    if (!h) return;
    gd_caffe_rows_close(&h->rows);
    gd_free(h);
}

const gd_caffe_feed_rules gd_caffe_hdf5_feed = {.type = "HDF5Data",
                                                .least_tops = 1,
                                                .most_tops = GD_SAMPLE_MAX,
                                                .open = open_hdf5,
                                                .read = read_hdf5,
                                                .close = close_hdf5};
