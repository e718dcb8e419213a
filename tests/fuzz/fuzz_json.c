/* fuzz_json.c - parses any bytes as JSON: an error, or a tree that is written as valid JSON. */
#include "core/alloc.h"
#include "format/json.h"

#include <stdlib.h>
#include <string.h>

static void write_value(gd_json_writer *w, const gd_json *v) {
    switch (v->type) {
    case GD_JSON_NULL: gd_json_put_null(w); break;
    case GD_JSON_BOOL: gd_json_put_bool(w, v->boolean); break;
    case GD_JSON_NUMBER: gd_json_put_double(w, v->number); break;
    case GD_JSON_STRING: gd_json_put_string_n(w, v->text, v->length); break;
    case GD_JSON_ARRAY:
        gd_json_put_begin_array(w);
        for (size_t i = 0; i < v->count; i++) write_value(w, gd_json_at(v, i));
        gd_json_put_end_array(w);
        break;
    case GD_JSON_OBJECT:
        gd_json_put_begin_object(w);
        for (size_t i = 0; i < v->count; i++) {
            const gd_json *member = gd_json_at(v, i);
            bool has_no_zero_byte = strlen(member->key) == member->key_length;
            if (has_no_zero_byte && gd_json_get(v, member->key) != member) abort();
            if (!has_no_zero_byte) continue;
            gd_json_put_key(w, member->key);
            write_value(w, member);
        }
        gd_json_put_end_object(w);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gd_json_doc *doc;
    if (gd_json_parse(&doc, "fuzz", (const char *)data, size) != GD_OK) return 0;
    gd_json_writer w;
    char *text;
    size_t bytes;
    gd_json_writer_begin(&w, size % 3);
    write_value(&w, gd_json_root(doc));
    gd_json_free(doc);
    if (gd_json_writer_end(&w, &text, &bytes) != GD_OK) abort();
    if (gd_json_parse(&doc, "again", text, bytes) != GD_OK) abort();
    gd_json_free(doc);
    gd_free(text);
    return 0;
}
