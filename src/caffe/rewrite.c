/* rewrite.c - gd_caffe_upgrade: a net or a solver of any version in a new file, with today's fields. */
#include <string.h>

#include "caffe/read.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/thread.h"
#include "format/file.h"
#include "gradus/caffe.h"

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static gd_status write_text(gd_pb_doc *doc, const char *path) {
    char *text;
    size_t bytes;
    gd_file_writer *writer = NULL;
    GD_TRY(gd_pb_print_text(doc, &text, &bytes));
    gd_status status = gd_file_writer_begin(&writer, path);
    if (status == GD_OK) status = gd_file_writer_write(writer, text, bytes);
    if (status == GD_OK) status = gd_file_writer_commit(writer);
    else gd_file_writer_cancel(writer);
    gd_free(text);
    return status;
}

static gd_status upgrade(const char *from, const char *to, bool solver) {
    gd_pb_doc *doc;
    if (!from || !to)
        return gd_fail(GD_E_ARGUMENT, "gd_caffe_upgrade: the path of the %s file is NULL",
                       from ? "new" : "old");
    const bool text = ends_with(to, ".prototxt");
    if (!text && !ends_with(to, solver ? ".binaryproto" : ".caffemodel"))
        return gd_fail(GD_E_ARGUMENT, "%s: the new file ends in .prototxt (text) or %s (binary)",
                       to, solver ? ".binaryproto" : ".caffemodel");
    GD_TRY(solver ? gd_caffe_read_solver(&doc, from) : gd_caffe_read_net(&doc, from));
    const gd_status status = text ? write_text(doc, to) : gd_pb_save(doc, to);
    gd_pb_free(doc);
    return status;
}

gd_status gd_caffe_upgrade_at(const char *site, const char *from, const char *to,
                              const gd_caffe_upgrade_options *o) {
    GD_CALLED_FROM(site);
    return gd_report(site, upgrade(from, to, o && o->solver));
}
