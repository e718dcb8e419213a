/* library_folders.c - folders in which backends look for libraries of their vendor. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "dispatch/library_folders.h"

/* Folders are added and never removed, so that readers need no lock. The first empty place ends the
 * list. */
enum { MAX_FOLDERS = 64 };
static _Atomic(char *) folders[MAX_FOLDERS];

static gd_status add_folder(const char *folder) {
    const size_t bytes = folder ? strlen(folder) + 1 : 0;
    if (bytes <= 1) return gd_fail(GD_E_ARGUMENT, "gd_add_library_folder: no folder is given");
    char *copy = gd_malloc(bytes);
    if (!copy) return gd_fail(GD_E_MEMORY, "gd_add_library_folder: no memory");
    memcpy(copy, folder, bytes);
    for (int i = 0; i < MAX_FOLDERS; i++) {
        char *there = NULL;
        if (atomic_compare_exchange_strong(&folders[i], &there, copy)) return GD_OK;
        if (strcmp(there, folder) == 0) {
            gd_free(copy);
            return GD_OK;
        }
    }
    gd_free(copy);
    return gd_fail(GD_E_STATE, "gd_add_library_folder: more than %d folders", MAX_FOLDERS);
}

gd_status gd_add_library_folder(const char *folder) {
    const gd_status status = add_folder(folder);
    return status == GD_OK ? GD_OK : gd_report(NULL, status);
}

void gd_each_library_folder(gd_visit_folder *visit, void *arg) {
    const char *path = secure_getenv("GRADUS_LIBRARY_PATH"); /* not in a set-user-ID program */
    while (path && *path) {
        const size_t length = strcspn(path, ":");
        if (length && visit(path, length, arg)) return;
        path += length + (path[length] == ':');
    }
    for (int i = 0; i < MAX_FOLDERS; i++) {
        const char *folder = folders[i];
        if (!folder || visit(folder, strlen(folder), arg)) return;
    }
}
