#include "caffe_data.h"

#include <stdio.h>

#include "caffe/schema.h"
#include "core/alloc.h"
#include "core/error.h"
#include "format/lmdb.h"
#include "gradus/gradus.h"

enum { SIZE = 3 * 6 * 5, CLASSES = 4 };

static gd_status put_sample(gd_lmdb_writer *db, int number, gd_random *r) {
    const int64_t label = gd_random_below(r, CLASSES);
    gd_pb_doc *doc = gd_pb_new(&gd_caffe_datum_schema);
    if (!doc) return gd_failure();
    gd_pb *datum = gd_pb_root(doc);
    gd_pb_put_int(datum, "channels", 3);
    gd_pb_put_int(datum, "height", 6);
    gd_pb_put_int(datum, "width", 5);
    gd_pb_put_int(datum, "label", label);
    for (int i = 0; i < SIZE; i++)
        gd_pb_put_float(datum, "float_data", gd_random_normal(r) + (i == label ? 1.5 : 0));
    char key[16], *data = NULL;
    size_t bytes = 0;
    snprintf(key, sizeof key, "%08d", number);
    gd_status status = gd_pb_print(doc, &data, &bytes);
    if (status == GD_OK) status = gd_lmdb_put(db, key, 8, data, bytes);
    gd_free(data);
    gd_pb_free(doc);
    return status;
}

gd_status caffe_write_database(const char *folder, int count, int seed) {
    gd_lmdb_writer *db;
    gd_random r = gd_random_of((uint64_t)seed, 0);
    GD_TRY(gd_lmdb_create(&db, folder));
    gd_status status = GD_OK;
    for (int i = 0; i < count && status == GD_OK; i++) status = put_sample(db, i, &r);
    if (status == GD_OK) return gd_lmdb_finish(db);
    gd_lmdb_cancel(db);
    return status;
}

bool caffe_has_databases(void) { return gd_lmdb_is_built(); }
