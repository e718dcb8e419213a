/* saved_modes.c - saves the modes of all modules of a tree and restores them; see saved_modes.h. */
#include "nn/saved_modes.h"

#include "core/alloc.h"
#include "core/grow.h"

static gd_status save_mode(gd_tree_walk *w, gd_module *m) {
    gd_saved_modes *saved = w->user;
    if (!gd_grow(saved->modes, saved->count, saved->room))
        return gd_no_memory(NULL, "for the modes of a net");
    saved->modes[saved->count++] = (gd_saved_mode){gd_retain(m), m->training};
    return GD_OK;
}

gd_status gd_saved_modes_save(gd_saved_modes *saved, gd_module *net) {
    const gd_status status =
        gd_module_walk(net, &(gd_tree_walk){.module = save_mode, .user = saved});
    if (status != GD_OK) gd_saved_modes_restore(saved);
    return status;
}

void gd_saved_modes_set(const gd_saved_modes *saved, int training) {
    for (int i = 0; i < saved->count; i++) saved->modes[i].module->training = training;
}

void gd_saved_modes_restore(gd_saved_modes *saved) {
    for (int i = 0; i < saved->count; i++) {
        saved->modes[i].module->training = saved->modes[i].training;
        gd_release(saved->modes[i].module);
    }
    gd_free(saved->modes);
    *saved = (gd_saved_modes){.count = 0};
}
