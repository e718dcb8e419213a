/* convert.h - writing databases of Datums. */
#ifndef GRADUS_CAFFE_CONVERT_H
#define GRADUS_CAFFE_CONVERT_H

#include "format/lmdb.h"

/* A Datum to be written. */
typedef struct gd_caffe_item {
    int channels, height, width;
    const uint8_t *bytes; /* planes, or the file of an encoded image */
    size_t n_bytes;
    int64_t label;
    bool is_image; /* its field `encoded` is set, to the next one */
    bool encoded;
} gd_caffe_item;

gd_status gd_caffe_put_item(gd_lmdb_writer *writer, const char *key, const gd_caffe_item *item);

/* Finishes a database, which after a failure keeps what was committed. */
gd_status gd_caffe_finish_writing(gd_lmdb_writer *writer, gd_status status);

/* For the end of a public function: the number of records, or -1 after a failure, which is
 * recorded. */
int64_t gd_caffe_report_count(const char *site, const char *function, gd_status status,
                              int64_t count);

#endif
