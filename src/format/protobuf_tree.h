/* protobuf_tree.h - the internals of a document: its memory, and the functions by which readers add
 * values. */
#ifndef GRADUS_FORMAT_PROTOBUF_TREE_H
#define GRADUS_FORMAT_PROTOBUF_TREE_H

#include "format/protobuf.h"

struct gd_pb_doc {
    gd_status status; /* of the first gd_pb_put_... that failed */
    char failure[200];
    struct gd_pb_block *blocks; /* of memory */
    char *free_at;
    size_t free_bytes;
    char *data;       /* the bytes of the file, if the document owns them */
    const char *name; /* of the data, for error messages; NULL: a program has made the document */
    gd_pb root;
    gd_pb spare; /* receives values after a failure */
};

/* An empty document that is read from data of this name. NULL: no memory; the failure is recorded. */
gd_pb_doc *gd_pb_new_named(const gd_pb_schema *schema, const char *name);

/* Memory that lives as long as the document; NULL: no memory. */
void *gd_pb_alloc(gd_pb_doc *doc, size_t bytes);

/* The field of this name or number, or NULL. */
const gd_pb_field *gd_pb_field_named(const gd_pb_schema *schema, const char *name, size_t length);
const gd_pb_field *gd_pb_field_numbered(const gd_pb_schema *schema, uint32_t number);

/* The values of a field, which is added if necessary; NULL: no memory. */
gd_pb_list *gd_pb_list_for(gd_pb *message, const gd_pb_field *field);

/* Makes room for `more` values of the field and returns the address of the first; NULL: no memory.
 * A field that is not repeated has one value, and its address is returned. list->count includes the
 * new values. */
void *gd_pb_room(gd_pb_doc *doc, gd_pb_list *list, size_t more);

/* A message of the field: a new one, or the existing one if the field is not repeated. */
gd_pb *gd_pb_child(gd_pb *message, gd_pb_list *list);

/* Keeps the first failure of a document. */
void gd_pb_fail_document(gd_pb_doc *doc, gd_status status, const char *format, ...) GD_PRINTF(3, 4);

/* Bytes of one value in a list. */
size_t gd_pb_item_size(gd_pb_type type);

/* --- the position of a reader ----------------------------------------------------------------- */

typedef struct gd_pb_path {
    struct {
        const gd_pb_field *field;
        size_t index;
        const gd_pb *message; /* of a MESSAGE; NULL: it is not there yet */
    } at[GD_PB_MAX_DEPTH + 1];
    int depth;
} gd_pb_path;

/* "graph.node[2].name" or "layer 'conv2' (Convolution): convolution_param", or "" for the root; a
 * long one is printed without its middle. */
const char *gd_pb_path_text(const gd_pb_path *path, char *text, size_t size);

#endif
