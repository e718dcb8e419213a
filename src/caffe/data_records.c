/* data_records.c - the layer Data: an LMDB of Datums. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "caffe/data_feed.h"
#include "caffe/read.h"
#include "core/alloc.h"
#include "core/error.h"
#include "format/lmdb.h"

typedef struct records {
    gd_caffe_pictures pictures;
    gd_lmdb *db;
} records;

/* Whether a folder is a LevelDB. */
static bool is_leveldb(const char *folder) {
    DIR *dir = opendir(folder);
    bool is = false;
    for (const struct dirent *e; dir && !is && (e = readdir(dir));)
        is = strncmp(e->d_name, "MANIFEST-", 9) == 0;
    if (dir) closedir(dir);
    return is;
}

/* `folder` is a path that exists. */
static gd_status open_database(records *r, const char *folder) {
    if (gd_lmdb_is_folder(folder)) return gd_lmdb_open(&r->db, folder);
    if (is_leveldb(folder))
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: is a LevelDB, which is not read; make an LMDB of the same data with "
                       "'gradus convert-images' or 'gradus convert-mnist', or with Caffe's tools "
                       "and their option -backend lmdb",
                       folder);
    return gd_fail(GD_E_FORMAT, "%s: is no LMDB: there is no file data.mdb", folder);
}

/* "FOLDER: record 'KEY'" for messages. */
static void name_record(const records *r, const gd_lmdb_record *record, char text[400]) {
    int length = record->key_bytes < 80 ? (int)record->key_bytes : 80;
    snprintf(text, 400, "%.250s: record '%.*s'", gd_lmdb_folder(r->db), length, record->key);
}

/* The record of this number as a picture. */
static gd_status read_record(const records *r, const gd_lmdb_record *record,
                             gd_caffe_picture *picture) {
    char name[400];
    name_record(r, record, name);
    return gd_caffe_datum_read(picture, name, record->value, record->value_bytes,
                               r->pictures.transform.colours);
}

static gd_status begin_records(gd_caffe_feed *feed, records *r) {
    gd_lmdb_record record;
    gd_caffe_picture picture;
    const char *folder = gd_lmdb_folder(r->db);
    r->pictures.count = gd_lmdb_count(r->db);
    if (r->pictures.count == 0) return gd_fail(GD_E_FORMAT, "%s: has no records", folder);
    GD_TRY(gd_lmdb_read(r->db, 0, 1, &record));
    GD_TRY(read_record(r, &record, &picture));
    const gd_status status = gd_caffe_pictures_shape(&r->pictures, feed, &picture);
    if (status != GD_OK) gd_error_prefix("%s: ", folder);
    gd_caffe_picture_free(&picture);
    return status;
}

static gd_status open_records(gd_caffe_feed *feed, const gd_pb *layer) {
    char folder[PATH_MAX];
    records *r = feed->self = gd_calloc(1, sizeof *r);
    if (!r) return gd_no_memory(NULL, "for a data layer");
    GD_TRY(gd_caffe_feed_batch(feed, layer, "data_param.batch_size"));
    if (gd_pb_int_of(layer, "data_param.rand_skip"))
        gd_notice(GD_LOG_INFO, "layer '%s' (Data): rand_skip is ignored, as by Caffe 1.0",
                  feed->name);
    GD_TRY(gd_caffe_transform_open(&r->pictures.transform, layer, feed->phase, feed->of_file));
    const char *source = gd_pb_string_of(layer, "data_param.source");
    GD_TRY(gd_caffe_find_file(source, feed->of_file, folder, sizeof folder));
    GD_TRY(open_database(r, folder));
    return begin_records(feed, r);
}

/* Reads the records of a run of consecutive numbers at once. */
static gd_status fetch_records(const records *r, const int64_t *indices, int64_t count,
                               gd_lmdb_record *to) {
    for (int64_t i = 0, n; i < count; i += n) {
        for (n = 1; i + n < count && indices[i + n] == indices[i] + n;) n++;
        GD_TRY(gd_lmdb_read(r->db, indices[i], n, to + i));
    }
    return GD_OK;
}

static gd_status fill_records(const records *r, gd_caffe_filling *filling,
                              const gd_lmdb_record *list, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        gd_caffe_picture picture;
        GD_TRY(read_record(r, &list[i], &picture));
        const gd_status status = gd_caffe_filling_add(filling, &picture);
        gd_caffe_picture_free(&picture);
        if (status == GD_OK) continue;
        char name[400];
        name_record(r, &list[i], name);
        gd_error_prefix("%s: ", name);
        return status;
    }
    return GD_OK;
}

static gd_status read_records(const gd_caffe_feed *feed, const gd_caffe_draw *draw,
                              gd_sample *sample) {
    const records *r = feed->self;
    const size_t count = (size_t)feed->batch;
    gd_caffe_filling filling = {
        .pictures = &r->pictures, .feed = feed, .key = draw->key, .sample = sample};
    int64_t *indices = gd_malloc(count * sizeof *indices);
    gd_lmdb_record *list = gd_malloc(count * sizeof *list);
    gd_status status = indices && list ? GD_OK : gd_no_memory(NULL, "for a batch");
    if (status == GD_OK) {
        gd_caffe_pictures_at(&r->pictures, feed, draw, indices);
        status = fetch_records(r, indices, feed->batch, list);
    }
    if (status == GD_OK) status = fill_records(r, &filling, list, feed->batch);
    gd_free(indices);
    gd_free(list);
    return status;
}

static void close_records(gd_caffe_feed *feed) {
    records *r = feed->self;
    if (!r) return;
    gd_lmdb_close(r->db);
    gd_caffe_transform_close(&r->pictures.transform);
    gd_free(r);
}

const gd_caffe_feed_rules gd_caffe_records_feed = {.type = "Data",
                                                   .least_tops = 1,
                                                   .most_tops = 2,
                                                   .open = open_records,
                                                   .read = read_records,
                                                   .close = close_records};
