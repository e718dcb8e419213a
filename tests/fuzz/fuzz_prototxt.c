/* fuzz_prototxt.c - reads any bytes as the text of a net and of a solver of Caffe and upgrades them: an
 * error with a message, or a message without old fields that survives writing and reading. */
#include <stdlib.h>
#include <string.h>

#include "caffe/read.h"
#include "core/alloc.h"
#include "core/error.h"

typedef gd_status (*upgrade_fn)(gd_pb *message, const char *file);

static bool read_text(gd_pb_doc **doc, const gd_pb_schema *schema, upgrade_fn upgrade,
                      const char *text, size_t size) {
    gd_status status = gd_pb_read_text(doc, schema, "fuzz", text, size);
    if (status == GD_OK && upgrade(gd_pb_root(*doc), "fuzz") == GD_OK) return true;
    if (gd_latest_failure()[0] == '\0') abort();
    gd_pb_free(*doc);
    return false;
}

/* The text of an upgraded message is read as the same message. */
static void read_schema(const gd_pb_schema *schema, upgrade_fn upgrade, const char *text,
                        size_t size) {
    gd_pb_doc *doc, *again;
    char *first, *second;
    size_t first_bytes, second_bytes;
    if (!read_text(&doc, schema, upgrade, text, size)) return;
    if (gd_pb_has(gd_pb_root(doc), "layers") || gd_pb_has(gd_pb_root(doc), "solver_type")) abort();
    if (gd_pb_print_text(doc, &first, &first_bytes) != GD_OK) abort();
    if (!read_text(&again, schema, upgrade, first, first_bytes)) abort();
    if (gd_pb_print_text(again, &second, &second_bytes) != GD_OK) abort();
    if (first_bytes != second_bytes || memcmp(first, second, first_bytes) != 0) abort();
    gd_free(first);
    gd_free(second);
    gd_pb_free(again);
    gd_pb_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_schema(&gd_caffe_net_schema, gd_caffe_upgrade_net, (const char *)data, size);
    read_schema(&gd_caffe_solver_schema, gd_caffe_upgrade_solver, (const char *)data, size);
    return 0;
}
