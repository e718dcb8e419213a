/* fuzz_protobuf.c - reads any bytes as a binary message and as its text format: an error, or a
 * document that survives writing and reading in both formats. */
#include "format/protobuf.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "thing_schema.h"

typedef gd_status (*print_fn)(gd_pb_doc *, char **, size_t *);

static gd_status read_as(gd_pb_doc **doc, bool text, const char *data, size_t size) {
    if (text) return gd_pb_read_text(doc, &thing_schema, "fuzz", data, size);
    return gd_pb_read(doc, &thing_schema, "fuzz", data, size);
}

/* Prints the document, reads the output and prints it again: the output must be the same. */
static void check_way_back(gd_pb_doc *doc, bool text) {
    print_fn print = text ? gd_pb_print_text : gd_pb_print;
    char *first, *second;
    size_t first_bytes, second_bytes;
    gd_pb_doc *again;
    if (print(doc, &first, &first_bytes) != GD_OK) abort();
    if (read_as(&again, text, first, first_bytes) != GD_OK) abort();
    if (print(again, &second, &second_bytes) != GD_OK) abort();
    if (first_bytes != second_bytes || memcmp(first, second, first_bytes) != 0) abort();
    gd_pb_free(again);
    gd_free(first);
    gd_free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int text = 0; text < 2; text++) {
        gd_pb_doc *doc;
        if (read_as(&doc, text, (const char *)data, size) != GD_OK) continue;
        check_way_back(doc, false);
        check_way_back(doc, true);
        gd_pb_free(doc);
    }
    return 0;
}
