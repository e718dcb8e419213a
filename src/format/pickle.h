/* pickle.h - reads pickles, the serialized objects of Python, as data. Nothing is executed.
 *
 * The binary opcodes of protocols 2 to 5 are read; any other opcode is GD_E_UNSUPPORTED with its
 * name and position. A pickle is a program for a stack machine that may call any function. Here a
 * call is only a value: its function's name, the arguments, and the state that Python would set.
 *
 * Values form a graph: they can be shared and contain themselves, so walks need their own bounds
 * (`mark` is for them). Texts and bytes are slices of the input, which must outlive the pickle.
 * Memory is at most a constant times the size of the input, and the depth of the stack of C does
 * not depend on it.
 */
#ifndef GRADUS_FORMAT_PICKLE_H
#define GRADUS_FORMAT_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradus/status.h"

typedef enum gd_pickle_type {
    GD_PICKLE_NONE,
    GD_PICKLE_BOOL,
    GD_PICKLE_INT,    /* of 64 bits */
    GD_PICKLE_BIGINT, /* larger; `text` has its little-endian bytes */
    GD_PICKLE_FLOAT,
    GD_PICKLE_TEXT,  /* UTF-8, not checked; also str of Python 2 */
    GD_PICKLE_BYTES, /* also a bytearray */
    GD_PICKLE_TUPLE,
    GD_PICKLE_LIST,
    GD_PICKLE_SET,  /* also a frozenset */
    GD_PICKLE_DICT, /* the items are key, value, key, value, ... */
    GD_PICKLE_GLOBAL,
    GD_PICKLE_OBJECT,
    GD_PICKLE_PERSISTENT /* what the program that wrote it stored elsewhere; `of` is its id */
} gd_pickle_type;

typedef struct gd_pickle_value gd_pickle_value;

typedef struct gd_pickle_text {
    const char *at;
    size_t length;
} gd_pickle_text;

struct gd_pickle_value {
    gd_pickle_type type;
    uint32_t mark; /* 0; free for the caller */
    union {
        int64_t integer; /* also of a bool */
        double number;
        gd_pickle_text text; /* TEXT, BYTES, BIGINT */
        struct {
            gd_pickle_value **items;
            size_t count, room;
        };
        struct {
            gd_pickle_text module, name;
        };
        struct {                          /* OBJECT */
            gd_pickle_value *of;          /* what is called: a GLOBAL, or any other value */
            gd_pickle_value *arguments;   /* a tuple, for PERSISTENT NULL */
            gd_pickle_value *state;       /* of BUILD; NULL: none */
            gd_pickle_value *list, *dict; /* what was added to it; NULL: nothing */
        };
    };
};

typedef struct gd_pickle {
    gd_pickle_value *root;
    gd_pickle_value **persistent; /* all values of this type, in the order of the input */
    size_t n_persistent;
    size_t bytes;  /* of the pickle; more may follow in the input */
    size_t memory; /* bytes of the values */
    struct gd_pickle_block *blocks;
} gd_pickle;

/* Reads the pickle at the beginning of `data`. Messages call the input `name` and count positions
 * from `begin`. *cut: the input ends before the pickle does, which is GD_E_FORMAT; may be NULL. */
gd_status gd_pickle_read(gd_pickle *out, const char *name, const void *data, size_t bytes,
                         uint64_t begin, bool *cut);
void gd_pickle_free(gd_pickle *pickle); /* {0} is fine */

/* Memory that lives as long as the pickle; NULL if there is none. */
void *gd_pickle_allocate(gd_pickle *pickle, size_t bytes);

/* "a dict" */
const char *gd_pickle_type_name(const gd_pickle_value *v);

/* Whether a value, which may be NULL, is this text, or this class or function. */
bool gd_pickle_is_text(const gd_pickle_value *v, const char *text);
bool gd_pickle_is_global(const gd_pickle_value *v, const char *module, const char *name);

/* The value of a key of a dict; NULL: there is none, or `dict` is no dict. */
gd_pickle_value *gd_pickle_get(const gd_pickle_value *dict, const char *key);

#endif
