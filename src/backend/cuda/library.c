/* library.c - see library.h. */
#include "backend/cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/state.h"

static void *open_in(const char *folder, int folder_length, const char *name) {
    char path[1024];
    const int length = folder ? snprintf(path, sizeof path, "%.*s/%s", folder_length, folder, name)
                              : snprintf(path, sizeof path, "%s", name);
    return length < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

typedef struct search {
    const char *const *names;
    void *library;
} search;

static bool open_any_in(const char *folder, size_t length, void *arg) {
    search *s = arg;
    for (const char *const *name = s->names; *name && !s->library; name++)
        s->library = open_in(folder, (int)length, *name);
    return s->library != NULL;
}

void *gd_cuda_open_library(const char *const *names) {
    search s = {.names = names};
    gd_cuda_host->each_library_folder(open_any_in, &s);
    if (s.library) return s.library;
    char home[512] = "";
    const char *set = secure_getenv("CUDA_HOME"); /* not in a set-user-ID program */
    if (set) snprintf(home, sizeof home, "%s/lib64", set);
    const char *const folders[] = {set ? home : NULL, NULL, "/usr/local/cuda/lib64"};
    for (int i = set ? 0 : 1; i < 3; i++)
        if (open_any_in(folders[i], folders[i] ? strlen(folders[i]) : 0, &s)) return s.library;
    return NULL;
}
