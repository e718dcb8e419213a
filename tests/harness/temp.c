/* temp.c - see temp.h. */
#define _GNU_SOURCE 1
#include "temp.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[300];
static pid_t root_owner;

/* All paths returned so far, without duplicates. */
static char **paths;
static size_t path_count;

static void remove_root(void) {
    if (getpid() == root_owner) folder_remove(root);
}

static void make_root(void) {
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/gradus-%s-XXXXXX", base && *base ? base : "/tmp",
             program_invocation_short_name);
    if (!mkdtemp(root)) perror(root), abort();
    root_owner = getpid();
    atexit(remove_root);
}

static const char *intern_path(const char *path) {
    for (size_t i = 0; i < path_count; i++)
        if (strcmp(paths[i], path) == 0) return paths[i];
    paths = realloc(paths, (path_count + 1) * sizeof *paths);
    char *copy = paths ? strdup(path) : NULL;
    if (!copy) perror(path), abort();
    return paths[path_count++] = copy;
}

const char *temp_folder(void) {
    pthread_mutex_lock(&lock);
    if (!root[0]) make_root();
    pthread_mutex_unlock(&lock);
    return root;
}

const char *temp_path(const char *name, ...) {
    char path[1000];
    int length = snprintf(path, sizeof path, "%s/", temp_folder());
    va_list list;
    va_start(list, name);
    vsnprintf(path + length, sizeof path - (size_t)length, name, list);
    va_end(list);
    pthread_mutex_lock(&lock);
    const char *kept = intern_path(path);
    pthread_mutex_unlock(&lock);
    return kept;
}

const char *temp_new_folder(const char *name) {
    const char *path = temp_path("%s", name);
    if (unlink(path) != 0) folder_remove(path);
    if (mkdir(path, 0700) != 0) perror(path), abort();
    return path;
}

const char *temp_write(const char *name, const void *data, size_t bytes) {
    const char *path = temp_path("%s", name);
    file_write(path, data, bytes);
    return path;
}

const char *temp_write_text(const char *name, const char *text) {
    return temp_write(name, text, strlen(text));
}
