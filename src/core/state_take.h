/* state_take.h - the inside of a load: what is wanted, and how it fits what is there. */
#ifndef GRADUS_CORE_STATE_TAKE_H
#define GRADUS_CORE_STATE_TAKE_H

#include "core/state_path.h"

typedef enum gd_fit {
    GD_FITS,
    GD_MISSING,
    GD_OTHER_SHAPE,
    GD_OTHER_DTYPE, /* that cannot be converted, or is none of ours */
    GD_OTHER_VALUE, /* text that is not such a number */
} gd_fit;

typedef enum gd_value_kind {
    GD_NUMBER_VALUE,
    GD_INTEGER_VALUE,
    GD_UNSIGNED_VALUE,
    GD_TEXT_VALUE
} gd_value_kind;

/* A tensor or a value that an object wants. */
typedef struct gd_want {
    char *name;
    gd_fit fit;
    bool again;        /* the same tensor or value was wanted, and found, under another name */
    gd_tensor *tensor; /* held; NULL: a value */
    gd_source_tensor *from;
    void *staged; /* host memory that was needed to convert or move it */
    int same;     /* the want before with the same storage; -1: none */
    /* of a value: */
    gd_value_kind kind;
    void *to;
    const gd_source_value *value;
    union {
        double number;
        int64_t integer;
        uint64_t natural;
        char *text; /* owned */
    };
} gd_want;

struct gd_taking {
    const gd_source *source;
    gd_state_parts parts;
    gd_state *naming;
    gd_names tensors, values; /* of the source: numbers from 1 */
    gd_names wanted;          /* names that were taken: numbers from 1 */
    gd_map by_place;          /* the latest want of a storage, or of where a value goes */
    gd_want *wants;
    int n_wants, wants_room;
    gd_state_path path;
    bool no_memory; /* for a question: the load fails at the end */
};

/* Counts what does not fit, and says so in `text`. */
void gd_taking_report(gd_taking *in, gd_load_report *report);

/* Memory for what cannot be copied directly; and the copies, which cannot fail on a device whose
 * memory the host can write. */
gd_status gd_want_stage(gd_want *want);
gd_status gd_want_write(gd_want *want);

#endif
