/* protobuf.h - reads and writes protocol buffers, in the wire format and as text (prototxt).
 *
 * There is no generated code: a schema is a table of the fields of a message, and one reader and
 * one writer serve all schemas. A document is a tree of messages; fields are accessed by name.
 *
 *     static const gd_pb_field point_fields[] = {
 *         {1, "x", GD_PB_INT64, 0, NULL, NULL, NULL},
 *         {2, "label", GD_PB_STRING, GD_PB_REPEATED, NULL, NULL, NULL},
 *     };
 *     static const gd_pb_schema point = GD_PB_SCHEMA("Point", point_fields);
 *
 *     gd_pb_doc *doc;
 *     GD_TRY(gd_pb_read(&doc, &point, "points.pb", data, bytes));
 *     int64_t x = gd_pb_int(gd_pb_root(doc), "x", 0);
 *     gd_pb_free(doc);
 *
 * Reading the wire format: fields that the schema does not have are skipped, so that newer files
 * can be read. Strings are checked UTF-8 without zero bytes; they are copied, with a zero byte
 * after them. Values of type BYTES and of fields with GD_PB_VIEW are not copied: they point into the
 * data that were read. A group is an error. Reading text: a field that the schema does not have is an error. Messages
 * nest at most 100 levels deep and have at most 2^31 - 1 bytes, as in other implementations.
 *
 * Errors are GD_E_FORMAT and read "model.onnx: byte 1234: graph.node[2].name: ..." or
 * "net.prototxt:12:7: layer 'conv2' (Convolution): convolution_param.engine: ...".
 */
#ifndef GRADUS_FORMAT_PROTOBUF_H
#define GRADUS_FORMAT_PROTOBUF_H

#include "gradus/status.h"

enum { GD_PB_MAX_DEPTH = 100 };
#define GD_PB_MAX_BYTES ((size_t)INT32_MAX)

/* --- schemas ---------------------------------------------------------------------------------- */

typedef enum gd_pb_type {
    GD_PB_INT32,
    GD_PB_INT64,
    GD_PB_UINT32,
    GD_PB_UINT64,
    GD_PB_BOOL,
    GD_PB_ENUM,
    GD_PB_FLOAT,
    GD_PB_DOUBLE,
    GD_PB_STRING,
    GD_PB_BYTES,
    GD_PB_MESSAGE,
} gd_pb_type;

enum {
    GD_PB_REPEATED = 1,
    GD_PB_PACKED = 3, /* repeated, and written packed; both forms are read */
    GD_PB_VIEW = 7,   /* packed floats or doubles that are not copied: they point into the data that
                       * were read, at any alignment, and are accessed by gd_pb_float_at */
};

typedef struct gd_pb_schema gd_pb_schema;

typedef struct gd_pb_enum {
    const char *name; /* NULL after the last one */
    int32_t number;
} gd_pb_enum;

typedef struct gd_pb_field {
    uint32_t number;
    const char *name;
    gd_pb_type type;
    unsigned flags;
    const gd_pb_schema *message; /* of a MESSAGE */
    const gd_pb_enum *values;    /* of an ENUM: the names that text may use; NULL: numbers only */
    const char *by_default;      /* as text, for gd_pb_int_of and its siblings; NULL: 0, "", or the
                                  * first of `values` */
} gd_pb_field;

struct gd_pb_schema {
    const char *name;
    const gd_pb_field *fields;
    int count;
    const char
        *noun; /* "layer": errors call a message "layer 'NAME' (TYPE)", by its fields name and
                       * type; NULL: by the path to it */
    /* Fields of this name that are not in the table: in text only, without a number. NULL: none. */
    const gd_pb_field *(*more)(const char *name, size_t length);
};
#define GD_PB_COUNTED(fields) fields, (int)(sizeof(fields) / sizeof *(fields))
#define GD_PB_SCHEMA(name, fields) \
    { name, GD_PB_COUNTED(fields), NULL, NULL }

/* --- messages --------------------------------------------------------------------------------- */

typedef struct gd_pb_doc gd_pb_doc;

typedef struct gd_pb_bytes {
    const char *data;
    size_t length;
} gd_pb_bytes;

typedef struct gd_pb gd_pb;

/* The values of a field; exactly one if it is not repeated. */
typedef struct gd_pb_list {
    const gd_pb_field *field;
    size_t count, capacity; /* capacity 0: the values belong to the caller, or are a GD_PB_VIEW */
    union {
        int64_t *ints; /* all integers, bools and enums; a UINT64 by its bits */
        float *floats;
        double *doubles;
        gd_pb_bytes *bytes; /* strings too */
        gd_pb **messages;
        void *items;
    };
} gd_pb_list;

struct gd_pb {
    const gd_pb_schema *schema;
    gd_pb_doc *doc;
    gd_pb_list *lists; /* of the fields that are set */
    int count, capacity;
    size_t offset;    /* where it was read, for error messages: in the wire format, */
    int line, column; /* or in text */
    size_t size;      /* of its wire form; set by the writer */
};

/* An empty document. NULL: no memory; the failure is recorded. */
gd_pb_doc *gd_pb_new(const gd_pb_schema *schema);
void gd_pb_free(gd_pb_doc *doc); /* NULL is fine */
gd_pb *gd_pb_root(gd_pb_doc *doc);

/* --- reading ---------------------------------------------------------------------------------- */

/* Error messages call the data `name`. The data must outlive the document. */
gd_status gd_pb_read(gd_pb_doc **out, const gd_pb_schema *schema, const char *name,
                     const void *data, size_t bytes);
gd_status gd_pb_read_text(gd_pb_doc **out, const gd_pb_schema *schema, const char *name,
                          const char *text, size_t bytes);

/* Reads a file; the document keeps its bytes. */
gd_status gd_pb_load(gd_pb_doc **out, const gd_pb_schema *schema, const char *path);
gd_status gd_pb_load_text(gd_pb_doc **out, const gd_pb_schema *schema, const char *path);

/* Reads a file in the format that it has. */
gd_status gd_pb_load_either(gd_pb_doc **out, const gd_pb_schema *schema, const char *path);
/* Text begins with a letter or a comment, or has no control characters but space. */
bool gd_pb_is_text(const char *data, size_t bytes);

/* Access to fields. A NULL message has none. A field that is not set has the value `by_default`. */
const gd_pb_list *gd_pb_get(const gd_pb *message, const char *field); /* NULL: not set */
size_t gd_pb_count(const gd_pb *message, const char *field);
int64_t gd_pb_int(const gd_pb *message, const char *field, int64_t by_default);
double gd_pb_float(const gd_pb *message, const char *field, double by_default);
const char *gd_pb_string(const gd_pb *message, const char *field); /* "": not set */
const char *gd_pb_string_at(const gd_pb *message, const char *field, size_t i);
const gd_pb *gd_pb_message(const gd_pb *message, const char *field); /* NULL: not set */
const gd_pb *gd_pb_message_at(const gd_pb *message, const char *field, size_t i);

/* Element i of a list of floats or doubles. */
double gd_pb_float_at(const gd_pb_list *list, size_t i);

/* Access by a path through messages: "pooling_param.pad_h". Where a field on the way is not set, the
 * result is the default of the last field, from the schema. Of repeated fields the first value
 * counts. A path that the schemas do not have, or that ends at a field of another type, gives 0, "",
 * NULL.
 *
 * A float is the double with the fewest digits that rounds to it: 0.1, not 0.10000000149. */
bool gd_pb_has(const gd_pb *message, const char *path);       /* is it set? */
int64_t gd_pb_int_of(const gd_pb *message, const char *path); /* also a bool, an enum's number */
double gd_pb_float_of(const gd_pb *message, const char *path);
const char *gd_pb_string_of(const gd_pb *message, const char *path);
const char *gd_pb_word_of(const gd_pb *message, const char *path); /* the name of an enum's value */
const gd_pb_list *gd_pb_list_of(const gd_pb *message, const char *path); /* NULL: not set */
const gd_pb *gd_pb_message_of(const gd_pb *message, const char *path);   /* NULL: not set */

/* Fails with GD_E_FORMAT and a text that begins with the place where the message was read:
 * "net.prototxt:41:5: " or "a.caffemodel: byte 123: "; without one if a program made it. */
gd_status gd_pb_fail(const gd_pb *at, const char *format, ...) GD_PRINTF(2, 3);

/* --- filling ---------------------------------------------------------------------------------- */

/* Adds a value to a repeated field, or sets one that is not. A failure (no memory, no such field, a
 * value of another type) is kept in the document and returned when it is written. */
void gd_pb_put_int(gd_pb *message, const char *field, int64_t value); /* bools and enums too */
void gd_pb_put_float(gd_pb *message, const char *field, double value);
void gd_pb_put_string(gd_pb *message, const char *field, const char *text); /* copied; BYTES too */
/* Not copied: the bytes must outlive the document. */
void gd_pb_put_bytes(gd_pb *message, const char *field, const void *data, size_t bytes);
/* Sets a field of packed floats or doubles to an array, which is not copied either. */
void gd_pb_put_numbers(gd_pb *message, const char *field, const void *numbers, size_t count);
/* A new message; never NULL. */
gd_pb *gd_pb_put_message(gd_pb *message, const char *field);

/* --- changing --------------------------------------------------------------------------------- */

/* Failures are kept in the document, as above. */
void gd_pb_clear(gd_pb *message, const char *field); /* then it is not set */
/* Moves the values of a field to a field of the same type, in the same document; what that had is
 * lost. Does nothing if the field is not set. */
void gd_pb_move(gd_pb *to, const char *to_field, gd_pb *from, const char *field);
/* Makes it a message of another schema. Fields that it has with the same name and type keep their
 * values, all others are lost. */
void gd_pb_convert(gd_pb *message, const gd_pb_schema *to);
/* Adds the values of all fields of a message, of this or another document, to a message of the same schema:
 * all are copied but the numbers of a GD_PB_VIEW and the bytes of a gd_pb_put_bytes. */
void gd_pb_copy(gd_pb *to, const gd_pb *from);
/* The first failure of a document. */
gd_status gd_pb_check(const gd_pb_doc *doc);

/* --- writing ---------------------------------------------------------------------------------- */

typedef gd_status (*gd_pb_sink)(void *to, const void *data, size_t bytes);

/* Writes the fields in the order of the schema. The same tree gives the same bytes. */
gd_status gd_pb_write(gd_pb_doc *doc, gd_pb_sink sink, void *to);
gd_status gd_pb_write_text(gd_pb_doc *doc, gd_pb_sink sink, void *to);

/* Writes a file. One of this name is replaced when the new one is complete. */
gd_status gd_pb_save(gd_pb_doc *doc, const char *path);

/* The same into memory from gd_malloc, with a zero byte after it. */
gd_status gd_pb_print(gd_pb_doc *doc, char **data, size_t *bytes);
gd_status gd_pb_print_text(gd_pb_doc *doc, char **text, size_t *bytes);

#endif
