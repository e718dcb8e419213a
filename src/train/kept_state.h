/* kept_state.h - a copy of the tensors of an object's state, in memory. */
#ifndef GRADUS_TRAIN_KEPT_STATE_H
#define GRADUS_TRAIN_KEPT_STATE_H

#include "core/state.h"

typedef struct gd_kept_state {
    gd_tensor **at; /* held, in the order of gd_state_of; NULL: nothing is kept */
    int64_t count;
} gd_kept_state;

void gd_kept_state_drop(gd_kept_state *kept);
/* Copies the object's tensors, into those that are kept already where they fit. */
gd_status gd_kept_state_copy(gd_kept_state *kept, void *object);
/* Exchanges them with the object's: into the memory of its own tensors, and new copies are kept. */
gd_status gd_kept_state_exchange(gd_kept_state *kept, void *object);

/* As part of another state: NAME.0, NAME.1 ..., and NAME_count. The kept tensors are replaced when the
 * load has succeeded. */
gd_status gd_kept_state_give(const gd_kept_state *kept, const char *name, gd_state *state);
gd_status gd_kept_state_take(gd_kept_state *kept, const char *name, gd_taking *in);

#endif
