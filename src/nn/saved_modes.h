/* saved_modes.h - runs a net in one mode for a while: train or eval. Each module may have had a mode
 * of its own before; it gets that mode back afterwards. */
#ifndef GRADUS_NN_SAVED_MODES_H
#define GRADUS_NN_SAVED_MODES_H

#include "nn/module.h"

typedef struct gd_saved_mode {
    gd_module *module; /* retained */
    int training;
} gd_saved_mode;

typedef struct gd_saved_modes {
    gd_saved_mode *modes;
    int count, room;
} gd_saved_modes;

/* Saves the modes of all modules of a tree. `saved` must be zero. */
gd_status gd_saved_modes_save(gd_saved_modes *saved, gd_module *net);
/* Sets all these modules to train mode (1) or eval mode (0). */
void gd_saved_modes_set(const gd_saved_modes *saved, int training);
/* Restores the modes and frees the list. Does nothing the second time, or without a save. */
void gd_saved_modes_restore(gd_saved_modes *saved);

#endif
