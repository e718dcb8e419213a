/* module_state.c - the state of a module: its parameters and buffers, by their paths. */
#include "core/state.h"
#include "nn/module.h"

static gd_status check_built(gd_tree_walk *w, gd_module *m) {
    if (m->built) return GD_OK;
    return gd_fail(GD_E_STATE,
                   "%s%s%s: its sizes are GD_ANY and not inferred yet; call gd_module_build or "
                   "the module first",
                   w->path, *w->path ? " " : "", m->type);
}

static gd_status put_tensor(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    (void)holder;
    return gd_state_put_tensor(w->user, w->path, (gd_tensor *)e->object);
}

static gd_status take_tensor(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    (void)holder;
    return gd_loading_tensor(w->user, w->path, (gd_tensor *)e->object);
}

/* A tensor with several names is saved and loaded under each of them. */
static gd_status give_state(gd_object *object, gd_state *state) {
    return gd_module_walk(
        (gd_module *)object,
        &(gd_tree_walk){.module = check_built, .tensor = put_tensor, .again = true, .user = state});
}

static gd_status take_state(gd_object *object, gd_loading *in) {
    return gd_module_walk(
        (gd_module *)object,
        &(gd_tree_walk){.module = check_built, .tensor = take_tensor, .again = true, .user = in});
}

const gd_state_rules gd_module_state = {give_state, take_state};
