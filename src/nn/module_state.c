/* module_state.c - what a module saves and loads: its parameters and buffers, by their paths. */
#include "core/state.h"
#include "nn/module.h"

static gd_status check_built(gd_walk *w, gd_module *m) {
    if (m->built) return GD_OK;
    return gd_fail(GD_E_STATE,
                   "%s%s%s: its sizes were left out and are not known yet; call gd_module_build, "
                   "or the module, first",
                   w->path, *w->path ? " " : "", m->type);
}

static gd_status put(gd_walk *w, gd_module *holder, gd_entry *e) {
    (void)holder;
    return gd_state_put_tensor(w->user, w->path, (gd_tensor *)e->object);
}

static gd_status take_one(gd_walk *w, gd_module *holder, gd_entry *e) {
    (void)holder;
    return gd_taking_tensor(w->user, w->path, (gd_tensor *)e->object);
}

/* A tensor that has several names is put and taken under all of them. */
static gd_status give(gd_object *object, gd_state *state) {
    return gd_module_walk(
        (gd_module *)object,
        &(gd_walk){.module = check_built, .tensor = put, .again = true, .user = state});
}

static gd_status take(gd_object *object, gd_taking *in) {
    return gd_module_walk(
        (gd_module *)object,
        &(gd_walk){.module = check_built, .tensor = take_one, .again = true, .user = in});
}

const gd_state_rules gd_module_state = {give, take};
