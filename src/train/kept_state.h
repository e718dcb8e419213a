/* kept_state.h - a copy of the tensors of an object's state, in memory. */
#ifndef GRADUS_TRAIN_KEPT_STATE_H
#define GRADUS_TRAIN_KEPT_STATE_H

#include "core/state.h"

typedef struct gd_kept_state {
    gd_tensor **at; /* retained, in the order of gd_state_of; NULL: empty */
    int64_t count;
} gd_kept_state;

void gd_kept_state_drop(gd_kept_state *kept);
/* Copies the tensors of an object, into existing copies if they fit. */
gd_status gd_kept_state_copy(gd_kept_state *kept, void *object);
/* Exchanges the values of the copies and of the object; its tensors keep their memory. */
gd_status gd_kept_state_exchange(gd_kept_state *kept, void *object);

/* Saves and loads them as part of another state: NAME.0, NAME.1 ..., and NAME_count. A successful
 * load replaces the copies. */
gd_status gd_kept_state_save(const gd_kept_state *kept, const char *name, gd_state *state);
gd_status gd_kept_state_load(gd_kept_state *kept, const char *name, gd_loading *in);

#endif
