/* files.c - see files.h. */
#include "files.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

void *file_read(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    size_t length = 0, capacity = 1 << 16;
    if (!f) return NULL;
    char *data = malloc(capacity);
    for (size_t got; data && (got = fread(data + length, 1, capacity - length - 1, f)) > 0;) {
        length += got;
        if (capacity - length < 2) data = realloc(data, capacity *= 2);
    }
    if (!data || ferror(f)) perror(path), abort();
    fclose(f);
    data[length] = 0;
    if (bytes) *bytes = length;
    return data;
}

void file_write(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) perror(path), abort();
}

void file_write_text(const char *path, const char *text) { file_write(path, text, strlen(text)); }

bool file_exists(const char *path) { return access(path, F_OK) == 0; }

bool file_has_text(const char *path, const char *text) {
    char *found = file_read(path, NULL);
    const bool same = found && strcmp(found, text) == 0;
    if (!same) fprintf(stderr, "%s: %s\n", path, found ? found : "no such file");
    free(found);
    return same;
}

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

int folder_count(const char *folder) {
    DIR *d = opendir(folder);
    int count = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) count += e->d_name[0] != '.';
    if (d) closedir(d);
    return count;
}

void folder_clear(const char *folder) {
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[4096];
        if (is_dots(e->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (unlink(path) != 0) folder_remove(path);
    }
    if (d) closedir(d);
}

void folder_remove(const char *folder) {
    folder_clear(folder);
    rmdir(folder);
}

void file_size_limit(long bytes) {
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes < 0 ? limit.rlim_max : (rlim_t)bytes;
    signal(SIGXFSZ, SIG_IGN); /* it would end the process */
    setrlimit(RLIMIT_FSIZE, &limit);
}
