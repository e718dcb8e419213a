/* state_loading.h - the data structures of a load: the requests of the objects, matched with the
 * source. */
#ifndef GRADUS_CORE_STATE_LOADING_H
#define GRADUS_CORE_STATE_LOADING_H

#include "core/state_path.h"

typedef enum gd_request_fit {
    GD_FITS,
    GD_MISSING,
    GD_OTHER_SHAPE,
    GD_OTHER_DTYPE, /* cannot be converted, or is not supported */
    GD_OTHER_VALUE, /* the text is not a number of the expected kind */
} gd_request_fit;

typedef enum gd_value_kind {
    GD_FLOAT_VALUE,
    GD_INTEGER_VALUE,
    GD_UNSIGNED_VALUE,
    GD_TEXT_VALUE
} gd_value_kind;

/* A tensor or a value that an object loads. */
typedef struct gd_request {
    char *name;
    gd_request_fit fit;
    bool again;        /* the same tensor or value was already found under another name */
    gd_tensor *tensor; /* with a reference; NULL: a value */
    gd_source_tensor *from;
    void *staged; /* host memory for a conversion or an upload of all elements */
    int same;     /* the previous request with the same storage; -1: none */
    /* for values: */
    gd_value_kind kind;
    void *to;
    const gd_source_value *value;
    union {
        double number;
        int64_t integer;
        uint64_t unsigned_integer;
        char *text; /* owned */
    };
} gd_request;

struct gd_loading {
    const gd_source *source;
    gd_state_parts parts;
    gd_state *naming;
    gd_name_map tensors, values; /* of the source: numbers from 1 */
    gd_name_map requested;       /* names of requests: numbers from 1 */
    gd_map
        by_target; /* the latest request of a place (gd_state_place), or of the address of a value */
    gd_request *requests;
    int n_requests, requests_room;
    void *pieces; /* memory for conversions and uploads in pieces; NULL: there are none */
    gd_state_path path;
    bool no_memory; /* a query ran out of memory: the load fails at the end */
};

/* Fills the report: counts, and a text about tensors and values that do not fit. */
void gd_loading_report(gd_loading *in, gd_load_report *report);

/* gd_request_stage allocates the memory that the write needs, and checks that the file still has
 * all of the tensor. After that gd_request_write fails only if the file becomes shorter or cannot
 * be read, or if an upload fails. */
gd_status gd_request_stage(gd_loading *in, gd_request *request);
gd_status gd_request_write(const gd_loading *in, gd_request *request);

#endif
