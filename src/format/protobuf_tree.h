/* protobuf_tree.h - the inside of a document: its memory, and how readers put values into it. */
#ifndef GRADUS_FORMAT_PROTOBUF_TREE_H
#define GRADUS_FORMAT_PROTOBUF_TREE_H

#include "format/protobuf.h"

struct gd_pb_doc {
    gd_status status; /* of the first failure while it was filled */
    char failure[200];
    struct gd_pb_block *blocks; /* of memory */
    char *free_at;
    size_t free_bytes;
    char *data; /* the file's, if the document owns it */
    gd_pb root;
    gd_pb spare; /* what is put into it is dropped */
};

/* Memory that lives as long as the document; NULL when there is none. */
void *gd_pb_alloc(gd_pb_doc *doc, size_t bytes);

/* The field of this name or number, or NULL. */
const gd_pb_field *gd_pb_field_named(const gd_pb_schema *schema, const char *name, size_t length);
const gd_pb_field *gd_pb_field_numbered(const gd_pb_schema *schema, uint32_t number);

/* The values of a field, made if it is not there; NULL: no memory. */
gd_pb_list *gd_pb_list_for(gd_pb *message, const gd_pb_field *field);

/* Room for `more` further values of the field; NULL: no memory. The place of the first of them. For
 * a field that is not repeated it is the place of its one value. `count` covers them already. */
void *gd_pb_room(gd_pb_doc *doc, gd_pb_list *list, size_t more);

/* A message in the field: a new one, or, where it is not repeated, the one that is there. */
gd_pb *gd_pb_child(gd_pb *message, gd_pb_list *list);

/* Bytes of one value in a list. */
size_t gd_pb_item_size(gd_pb_type type);

/* --- where a reader is ------------------------------------------------------------------------ */

typedef struct gd_pb_path {
    struct {
        const gd_pb_field *field;
        size_t index;
    } at[GD_PB_MAX_DEPTH + 1];
    int depth;
} gd_pb_path;

/* "graph.node[2].name: ", or "" at the outside; the middle of a long one is left out. */
const char *gd_pb_path_text(const gd_pb_path *path, char *text, size_t size);

#endif
