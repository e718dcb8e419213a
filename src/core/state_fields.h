/* state_fields.h - members of a struct that are saved and loaded by one table.
 *
 *     static const gd_state_field fields[] = {
 *         {"steps", GD_FIELD_INTEGER, offsetof(thing, steps)},
 *         {"weight", GD_FIELD_TENSOR, offsetof(thing, weight)},
 *     };
 *     GD_TRY(gd_state_put_fields(state, t, fields, 2));     // in `save` (core/state.h)
 *     GD_TRY(gd_loading_fields(in, t, fields, 2));          // in `load`
 */
#ifndef GRADUS_CORE_STATE_FIELDS_H
#define GRADUS_CORE_STATE_FIELDS_H

#include <stddef.h>

#include "core/state.h"

typedef enum gd_field_kind {
    GD_FIELD_INTEGER,  /* int64_t */
    GD_FIELD_UNSIGNED, /* uint64_t */
    GD_FIELD_FLOAT,    /* double */
    GD_FIELD_TEXT,     /* char *, NULL or from gd_malloc */
    GD_FIELD_TENSOR,   /* gd_tensor *; loading writes its memory */
} gd_field_kind;

typedef struct gd_state_field {
    const char *name;
    gd_field_kind kind;
    size_t offset;
} gd_state_field;

gd_status gd_state_put_fields(gd_state *state, const void *of, const gd_state_field *fields,
                              int count);
gd_status gd_loading_fields(gd_loading *in, void *of, const gd_state_field *fields, int count);

#endif
