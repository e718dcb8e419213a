/* modes.c - the modes of a tree of modules, to be put back. */
#include "core/alloc.h"
#include "train/training.h"

static gd_status add(gd_walk *w, gd_module *m) {
    gd_modes *modes = w->user;
    if (modes->count == modes->room) {
        const int room = modes->room ? 2 * modes->room : 32;
        gd_module **at = gd_realloc(modes->at, (size_t)room * sizeof *at);
        if (at) modes->at = at;
        int *training = at ? gd_realloc(modes->training, (size_t)room * sizeof *training) : NULL;
        if (!training) return gd_fail(GD_E_MEMORY, "no memory for the modes of a net");
        modes->training = training;
        modes->room = room;
    }
    modes->at[modes->count] = gd_retain(m);
    modes->training[modes->count++] = m->training;
    return GD_OK;
}

gd_status gd_modes_save(gd_module *net, gd_modes *modes) {
    const gd_status status = gd_module_walk(net, &(gd_walk){.module = add, .user = modes});
    if (status != GD_OK) gd_modes_put_back(modes);
    return status;
}

void gd_modes_set(const gd_modes *modes, int training) {
    for (int i = 0; i < modes->count; i++) modes->at[i]->training = training;
}

void gd_modes_put_back(gd_modes *modes) {
    for (int i = 0; i < modes->count; i++) {
        modes->at[i]->training = modes->training[i];
        gd_release(modes->at[i]);
    }
    gd_free(modes->at);
    gd_free(modes->training);
    *modes = (gd_modes){.count = 0};
}
