/* listing.c - see listing.h. */
#include "caffe/listing.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/error.h"

static gd_status read_labels(gd_caffe_listing *l, const char *path) {
    l->labels = gd_malloc((size_t)l->list.count * sizeof *l->labels);
    if (!l->labels) return gd_no_memory(path, "for its labels");
    for (int64_t i = 0; i < l->list.count; i++) {
        char *end;
        const gd_image_line *line = &l->list.lines[i];
        const long long label = strtoll(line->label, &end, 10);
        if (*end || label < INT32_MIN || label > INT32_MAX)
            return gd_fail(GD_E_FORMAT, "%s: line %lld: the label '%.60s' is no integer", path,
                           (long long)line->line, line->label);
        l->labels[i] = (int32_t)label;
    }
    return GD_OK;
}

gd_status gd_caffe_listing_read(gd_caffe_listing *l, const char *path) {
    gd_stream *stream;
    *l = (gd_caffe_listing){.labels = NULL};
    GD_TRY(gd_stream_open(&stream, path));
    gd_status status = gd_image_list_read(&l->list, stream);
    gd_stream_close(stream);
    if (status == GD_OK && l->list.count == 0)
        status = gd_fail(GD_E_FORMAT, "%s: lists no images", path);
    if (status == GD_OK) status = read_labels(l, path);
    if (status != GD_OK) gd_caffe_listing_free(l);
    return status;
}

void gd_caffe_listing_free(gd_caffe_listing *l) {
    gd_image_list_free(&l->list);
    gd_free(l->labels);
    l->labels = NULL;
}
