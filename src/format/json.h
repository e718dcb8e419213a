/* json.h - reads and writes JSON (RFC 8259).
 *
 * Reading returns a tree that lives until gd_json_free(). Strings are checked UTF-8, with a zero
 * byte after them; since "\u0000" is allowed inside, they have a length too. Reading fails where
 * readers disagree on the meaning: two members of an object with the same key, numbers beyond the
 * range of a double, halves of surrogate pairs, a byte order mark. Nesting is limited to 256
 * levels. Errors are GD_E_FORMAT and read "config.json:12:7: expected ',' or '}', found 'x'"; lines
 * and columns count from 1, columns in bytes.
 *
 *     gd_json_doc *doc;
 *     GD_TRY(gd_json_load(&doc, "config.json"));
 *     const gd_json *lr = gd_json_get(gd_json_root(doc), "lr");
 *     if (lr != NULL && lr->type == GD_JSON_NUMBER) use(lr->number);
 *     gd_json_free(doc);
 *
 * Writing appends to a growing text. The first failure is kept and returned by
 * gd_json_writer_end(), so only this call needs a check:
 *
 *     gd_json_writer w;
 *     gd_json_writer_begin(&w, 0);
 *     gd_json_put_begin_object(&w);
 *     gd_json_put_key(&w, "lr");
 *     gd_json_put_double(&w, 1e-3);
 *     gd_json_put_end_object(&w);
 *     GD_TRY(gd_json_writer_end(&w, &text, &bytes));
 */
#ifndef GRADUS_FORMAT_JSON_H
#define GRADUS_FORMAT_JSON_H

#include "gradus/status.h"

enum { GD_JSON_MAX_DEPTH = 256 };

/* --- reading ---------------------------------------------------------------------------------- */

typedef enum gd_json_type {
    GD_JSON_NULL,
    GD_JSON_BOOL,
    GD_JSON_NUMBER,
    GD_JSON_STRING,
    GD_JSON_ARRAY,
    GD_JSON_OBJECT,
} gd_json_type;

typedef struct gd_json gd_json;
struct gd_json {
    gd_json_type type;
    int line, column; /* where it starts, for messages about its meaning */
    const char *key;  /* of a member of an object; else NULL */
    size_t key_length;
    union {
        bool boolean;
        struct {
            double number;
            int64_t integer;
            bool is_integer; /* the number is exactly `integer`: 3, -0, 1e3 or 2.0, but not 2^63 */
        };
        struct {
            const char *text;
            size_t length;
        };
        struct { /* elements of an array, or members of an object in the order of the text */
            const gd_json *items;
            size_t count;
            const gd_json *const *by_key; /* members sorted by key; NULL if there are few */
        };
    };
};

typedef struct gd_json_doc gd_json_doc;

/* Messages call the text `name`. */
gd_status gd_json_parse(gd_json_doc **out, const char *name, const char *text, size_t bytes);
gd_status gd_json_load(gd_json_doc **out, const char *path);
void gd_json_free(gd_json_doc *doc); /* NULL is fine */

const gd_json *gd_json_root(const gd_json_doc *doc);

/* The member with this key, or NULL: no such member, not an object, or NULL itself. */
const gd_json *gd_json_get(const gd_json *object, const char *key);

/* Element i of an array or member i of an object; NULL beyond the last, or for anything else. */
const gd_json *gd_json_at(const gd_json *list, size_t i);

/* "null", "a boolean", "a number" ... for messages. */
const char *gd_json_type_name(gd_json_type type);

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct gd_json_writer {
    gd_status status; /* of the first failure */
    int indent;       /* spaces a level; 0: all on one line */
    char *text;
    size_t length, capacity;
    int depth;
    bool in_object[GD_JSON_MAX_DEPTH];
    bool has_items[GD_JSON_MAX_DEPTH + 1]; /* [0]: the document has its value */
    bool after_key;
} gd_json_writer;

void gd_json_writer_begin(gd_json_writer *w, int indent);

/* Returns the text (from gd_malloc, with a zero byte after it) or the first failure:
 * GD_E_ARGUMENT: NaN, infinity or a string that is not UTF-8; GD_E_STATE: calls in an order that
 * is not JSON; GD_E_MEMORY. The writer is finished in any case. */
gd_status gd_json_writer_end(gd_json_writer *w, char **text, size_t *bytes);

/* Frees the writer without a result. Not needed after gd_json_writer_end. */
void gd_json_writer_cancel(gd_json_writer *w);

void gd_json_put_begin_object(gd_json_writer *w);
void gd_json_put_end_object(gd_json_writer *w);
void gd_json_put_begin_array(gd_json_writer *w);
void gd_json_put_end_array(gd_json_writer *w);
void gd_json_put_key(gd_json_writer *w, const char *key);
void gd_json_put_string(gd_json_writer *w, const char *text);
void gd_json_put_string_n(gd_json_writer *w, const char *text, size_t length);
void gd_json_put_int(gd_json_writer *w, int64_t value);
/* Writes the fewest digits that read back as the same double. */
void gd_json_put_double(gd_json_writer *w, double value);
void gd_json_put_bool(gd_json_writer *w, bool value);
void gd_json_put_null(gd_json_writer *w);

#endif
