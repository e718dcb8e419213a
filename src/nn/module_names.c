/* module_names.c - the names of tensors in a tree of modules.
 *
 * The first question about a tree lists the names of all its tensors; later ones look into this
 * list, until any module of the process gets or loses a part.
 */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/fork.h"
#include "core/freed.h"
#include "core/grow.h"
#include "nn/module.h"

struct gd_module_names {
    gd_map numbers; /* from tensors to their names */
    char **names;
    int count, room;
    unsigned changes; /* gd_module_changes() when they were listed */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* several threads may ask */
GD_MUTEX_AT_FORK(lock)

void gd_module_names_free(gd_module_names *n) {
    if (!n) return;
    for (int i = 0; i < n->count; i++) gd_free(n->names[i]);
    gd_free(n->names);
    gd_map_free(&n->numbers);
    gd_free(n);
}

static gd_status list_name(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    gd_module_names *n = w->user;
    (void)holder;
    char *name = gd_grow(n->names, n->count, n->room) ? gd_malloc(strlen(w->path) + 1) : NULL;
    if (!name) return GD_E_MEMORY;
    n->names[n->count] = strcpy(name, w->path);
    return gd_map_put(&n->numbers, e->object, n->count++) ? GD_OK : GD_E_MEMORY;
}

static gd_module_names *list_names(gd_module *m) {
    gd_module_names *n = gd_calloc(1, sizeof *n);
    if (!n) return NULL;
    n->changes = gd_module_changes();
    if (gd_module_walk(m, &(gd_tree_walk){.tensor = list_name, .user = n}) == GD_OK) return n;
    gd_module_names_free(n);
    return NULL;
}

/* Without memory for a list, a walk compares all tensors. */
typedef struct name_search {
    const gd_tensor *tensor;
    char *text;
    size_t size;
    bool found;
} name_search;

static gd_status compare_tensor(gd_tree_walk *w, gd_module *holder, gd_entry *e) {
    name_search *n = w->user;
    (void)holder;
    if ((const gd_tensor *)e->object != n->tensor || n->found) return GD_OK;
    n->found = true;
    snprintf(n->text, n->size, "%s", w->path);
    return GD_OK;
}

static bool find_name(gd_module *m, const gd_tensor *t, char *text, size_t size) {
    if (m->names && m->names->changes != gd_module_changes()) {
        gd_module_names_free(m->names);
        m->names = NULL;
    }
    if (!m->names) m->names = list_names(m);
    if (m->names) {
        const int i = gd_map_find(&m->names->numbers, t);
        if (i >= 0) snprintf(text, size, "%s", m->names->names[i]);
        return i >= 0;
    }
    name_search n = {t, text, size, false};
    gd_module_walk(m, &(gd_tree_walk){.tensor = compare_tensor, .user = &n});
    return n.found;
}

const char *gd_module_name_of(gd_module *m, const gd_tensor *t, char *text, size_t size) {
    GD_LIVE(m);
    if (!text || size == 0 || !t || !m) return NULL;
    pthread_mutex_lock(&lock);
    const bool found = find_name(m, t, text, size);
    pthread_mutex_unlock(&lock);
    return found ? text : NULL;
}
