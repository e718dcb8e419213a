/* folder.c - lists the contents of a folder; see folder.h. */
#include "data/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/grow.h"

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static gd_status add_name(gd_folder *f, const char *path, const char *name) {
    char *copy = gd_malloc(strlen(name) + 1);
    if (!copy || !gd_grow(f->names, f->count, f->room)) {
        gd_free(copy);
        return gd_no_memory(path, "for the names in it");
    }
    f->names[f->count++] = strcpy(copy, name);
    return GD_OK;
}

/* Finds which names are folders. A file that was removed meanwhile is none. */
static gd_status find_subfolders(gd_folder *f, const char *path, int fd) {
    f->is_folder = gd_calloc((size_t)f->count + 1, sizeof *f->is_folder);
    if (!f->is_folder) return gd_no_memory(path, "for the names in it");
    for (int i = 0; i < f->count; i++) {
        struct stat info;
        f->is_folder[i] = fstatat(fd, f->names[i], &info, 0) == 0 && S_ISDIR(info.st_mode);
    }
    return GD_OK;
}

gd_status gd_folder_read(gd_folder *f, const char *path) {
    *f = (gd_folder){.count = 0};
    DIR *d = opendir(path);
    if (!d)
        return gd_fail(GD_E_IO, "%s: cannot be opened as a folder: %s", path,
                       strerror_r(errno, (char[128]){0}, 128));
    gd_status status = GD_OK;
    for (struct dirent *e; status == GD_OK && (e = readdir(d));)
        if (e->d_name[0] != '.') status = add_name(f, path, e->d_name);
    if (status == GD_OK && f->count) qsort(f->names, (size_t)f->count, sizeof *f->names, by_name);
    if (status == GD_OK) status = find_subfolders(f, path, dirfd(d));
    closedir(d);
    if (status != GD_OK) gd_folder_free(f);
    return status;
}

void gd_folder_free(gd_folder *f) {
    for (int i = 0; i < f->count; i++) gd_free(f->names[i]);
    gd_free(f->names);
    gd_free(f->is_folder);
    *f = (gd_folder){.count = 0};
}
