/* json_write.c - the JSON writer. See json.h. */
#include "format/json.h"

#include "core/alloc.h"
#include "core/checked.h"
#include "core/error.h"
#include "core/number.h"
#include "format/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void gd_json_writer_begin(gd_json_writer *w, int indent) {
    *w = (gd_json_writer){.indent = indent < 0 ? 0 : indent};
}

void gd_json_writer_cancel(gd_json_writer *w) {
    gd_free(w->text);
    *w = (gd_json_writer){.status = GD_E_STATE};
}

static void append_bytes(gd_json_writer *w, const char *text, size_t bytes) {
    if (w->status != GD_OK) return;
    size_t needed, capacity = w->capacity;
    if (!gd_add_size(w->length, bytes, &needed) || !gd_add_size(needed, 1, &needed)) {
        w->status = gd_fail(GD_E_MEMORY, "JSON: the text is too long");
        return;
    }
    if (needed > capacity) {
        if (!gd_mul_size(capacity, 2, &capacity) || capacity < needed) capacity = needed;
        if (capacity < 256) capacity = 256;
        char *larger = gd_realloc(w->text, capacity);
        if (larger == NULL) {
            w->status = gd_fail(GD_E_MEMORY, "JSON: no memory left for %zu bytes", capacity);
            return;
        }
        w->text = larger;
        w->capacity = capacity;
    }
    memcpy(w->text + w->length, text, bytes);
    w->length += bytes;
}

static void append_text(gd_json_writer *w, const char *text) {
    append_bytes(w, text, strlen(text));
}

static void fail_misuse(gd_json_writer *w, const char *what) {
    if (w->status == GD_OK) w->status = gd_fail(GD_E_STATE, "JSON: %s", what);
}

static bool inside_object(const gd_json_writer *w) {
    return w->depth > 0 && w->in_object[w->depth - 1];
}

static void append_new_line(gd_json_writer *w) {
    if (w->indent == 0) return;
    append_text(w, "\n");
    for (int i = 0; i < w->indent * w->depth; i++) append_text(w, " ");
}

/* Writes the comma and the line break before an item of the innermost list. */
static void begin_item(gd_json_writer *w) {
    if (w->has_items[w->depth]) append_text(w, ",");
    w->has_items[w->depth] = true;
    if (w->depth > 0) append_new_line(w);
}

/* Writes the separators before a value, and checks that one is allowed. */
static void begin_value(gd_json_writer *w) {
    if (w->after_key) {
        w->after_key = false;
    } else if (inside_object(w)) {
        fail_misuse(w, "a value without a key inside an object");
    } else if (w->depth == 0 && w->has_items[0]) {
        fail_misuse(w, "a second value after that of the document");
    } else {
        begin_item(w);
    }
}

/* A run of bytes that need no escape is appended at once. */
static void append_string(gd_json_writer *w, const char *text, size_t length) {
    static const char hex[] = "0123456789abcdef";
    const char *end = text + length, *run = text;
    append_text(w, "\"");
    for (const char *p = text; p < end && w->status == GD_OK;) {
        unsigned char c = (unsigned char)*p;
        if (c >= 0x20 && c != '"' && c != '\\') {
            size_t bytes = gd_utf8_length(p, end);
            if (bytes == 0) {
                w->status =
                    gd_fail(GD_E_ARGUMENT, "JSON: a string is not UTF-8 at its byte %td", p - text);
                return;
            }
            p += bytes;
            continue;
        }
        append_bytes(w, run, (size_t)(p - run));
        char escape[7] = {'\\', (char)c};
        switch (c) {
        case '"':
        case '\\': break;
        case '\n': escape[1] = 'n'; break;
        case '\t': escape[1] = 't'; break;
        case '\r': escape[1] = 'r'; break;
        default: memcpy(escape, (char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15], 0}, 7);
        }
        append_text(w, escape);
        run = ++p;
    }
    append_bytes(w, run, (size_t)(end - run));
    append_text(w, "\"");
}

static void begin_list(gd_json_writer *w, bool object) {
    begin_value(w);
    if (w->status != GD_OK) return;
    if (w->depth == GD_JSON_MAX_DEPTH) {
        fail_misuse(w, "nested more than 256 levels deep");
        return;
    }
    append_text(w, object ? "{" : "[");
    w->in_object[w->depth++] = object;
    w->has_items[w->depth] = false;
}

static void end_list(gd_json_writer *w, bool object) {
    if (w->depth == 0 || inside_object(w) != object || w->after_key) {
        fail_misuse(w, object ? "the end of an object that is not open"
                              : "the end of an array that is not open");
        return;
    }
    bool empty = !w->has_items[w->depth];
    w->depth--;
    if (!empty) append_new_line(w);
    append_text(w, object ? "}" : "]");
}

void gd_json_put_begin_object(gd_json_writer *w) { begin_list(w, true); }
void gd_json_put_end_object(gd_json_writer *w) { end_list(w, true); }
void gd_json_put_begin_array(gd_json_writer *w) { begin_list(w, false); }
void gd_json_put_end_array(gd_json_writer *w) { end_list(w, false); }

void gd_json_put_key(gd_json_writer *w, const char *key) {
    if (!inside_object(w) || w->after_key) {
        fail_misuse(w, "a key outside of an object, or after another key");
        return;
    }
    begin_item(w);
    append_string(w, key, strlen(key));
    append_text(w, w->indent ? ": " : ":");
    w->after_key = true;
}

void gd_json_put_string_n(gd_json_writer *w, const char *text, size_t length) {
    begin_value(w);
    append_string(w, text, length);
}

void gd_json_put_string(gd_json_writer *w, const char *text) {
    gd_json_put_string_n(w, text, strlen(text));
}

void gd_json_put_int(gd_json_writer *w, int64_t value) {
    char text[24];
    begin_value(w);
    append_bytes(w, text, (size_t)snprintf(text, sizeof text, "%" PRId64, value));
}

void gd_json_put_double(gd_json_writer *w, double value) {
    begin_value(w);
    if (!isfinite(value)) {
        if (w->status == GD_OK)
            w->status = gd_fail(GD_E_ARGUMENT, "JSON: %s cannot be written as a number",
                                isnan(value) ? "NaN" : "infinity");
        return;
    }
    char text[GD_DOUBLE_TEXT];
    append_bytes(w, text, (size_t)gd_double_print(text, value));
}

void gd_json_put_bool(gd_json_writer *w, bool value) {
    begin_value(w);
    append_text(w, value ? "true" : "false");
}

void gd_json_put_null(gd_json_writer *w) {
    begin_value(w);
    append_text(w, "null");
}

gd_status gd_json_writer_end(gd_json_writer *w, char **text, size_t *bytes) {
    *text = NULL;
    *bytes = 0;
    if (w->depth > 0) fail_misuse(w, "the document ends inside a list");
    if (w->depth == 0 && !w->has_items[0]) fail_misuse(w, "the document has no value");
    if (w->indent) append_text(w, "\n");
    gd_status status = w->status;
    if (status == GD_OK) {
        w->text[w->length] = '\0'; /* append_bytes() reserves room for it */
        *text = w->text;
        *bytes = w->length;
        w->text = NULL;
    }
    gd_json_writer_cancel(w);
    return status;
}
