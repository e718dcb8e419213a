/* library.c - see library.h. */
#include "backend/cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *open_in(const char *folder, const char *name) {
    char path[1024];
    const int length = folder ? snprintf(path, sizeof path, "%s/%s", folder, name)
                              : snprintf(path, sizeof path, "%s", name);
    return length < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

void *gd_cuda_open_library(const char *const *names) {
    char home[512] = "";
    const char *set = secure_getenv("CUDA_HOME"); /* not in a set-user-ID program */
    if (set) snprintf(home, sizeof home, "%s/lib64", set);
    const char *const folders[] = {set ? home : NULL, NULL, "/usr/local/cuda/lib64"};
    for (int i = set ? 0 : 1; i < 3; i++)
        for (const char *const *name = names; *name; name++) {
            void *library = open_in(folders[i], *name);
            if (library) return library;
        }
    return NULL;
}
