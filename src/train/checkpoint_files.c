/* checkpoint_files.c - names, lists, moves and removes the files in a folder of checkpoints; see
 * checkpoint_files.h. */
#include "train/checkpoint_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "format/file.h"

#define SYSTEM_TEXT strerror_r(errno, (char[128]){0}, 128)
#define SUFFIX      ".safetensors"
static const char best_name[] = "best" SUFFIX, previous_name[] = "previous";
enum { DIGITS = 8, MAX_DIGITS = 18 }; /* of a step in a name */

/* --- names ------------------------------------------------------------------------------------ */

/* A `folder` of "" is the current one. */
static char *path_in(const char *folder, const char *name) {
    const size_t length = strlen(folder);
    const bool slash = length > 0 && folder[length - 1] != '/';
    const size_t bytes = length + slash + strlen(name) + 1;
    char *path = gd_malloc(bytes);
    if (path) snprintf(path, bytes, "%s%s%s", folder, slash ? "/" : "", name);
    return path;
}

char *gd_checkpoint_path(const char *folder, int64_t step) {
    char name[64];
    snprintf(name, sizeof name, "step-%0*lld" SUFFIX, DIGITS, (long long)step);
    return path_in(folder, name);
}

char *gd_checkpoint_best_path(const char *folder) { return path_in(folder, best_name); }

/* The length of the prefix "step-00001234.safetensors" of a name; 0: it has another prefix. */
static size_t step_length(const char *name, int64_t *step) {
    if (strncmp(name, "step-", 5) != 0) return 0;
    const size_t digits = strspn(name + 5, "0123456789"), end = sizeof SUFFIX - 1;
    if (digits < DIGITS || digits > MAX_DIGITS || (digits > DIGITS && name[5] == '0')) return 0;
    if (strncmp(name + 5 + digits, SUFFIX, end) != 0) return 0;
    *step = strtoll(name + 5, NULL, 10);
    return 5 + digits + end;
}

static bool is_step(const char *name, int64_t *step) {
    const size_t length = step_length(name, step);
    return length && !name[length];
}

/* "step-00001234.safetensors.tmp-1" */
static bool is_temporary(const char *name) {
    int64_t step;
    size_t length = step_length(name, &step);
    if (!length && strncmp(name, best_name, sizeof best_name - 1) == 0)
        length = sizeof best_name - 1;
    return length && strncmp(name + length, ".tmp-", 5) == 0;
}

/* --- the folder ------------------------------------------------------------------------------- */

static int newest_first(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static gd_status read_steps(DIR *d, const char *folder, int64_t **steps, int *count) {
    int room = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        int64_t step;
        if (!is_step(e->d_name, &step)) continue;
        if (*count == room) {
            room = room ? 2 * room : 16;
            int64_t *more = gd_realloc(*steps, (size_t)room * sizeof *more);
            if (!more) return gd_no_memory(folder, "for the names of its checkpoints");
            *steps = more;
        }
        (*steps)[(*count)++] = step;
    }
    if (*count) qsort(*steps, (size_t)*count, sizeof **steps, newest_first);
    return GD_OK;
}

gd_status gd_checkpoint_steps(const char *folder, int64_t **steps, int *count) {
    *steps = NULL;
    *count = 0;
    DIR *d = opendir(*folder ? folder : ".");
    if (!d && errno == ENOENT) return GD_OK;
    if (!d)
        return gd_fail(GD_E_IO, "%s: cannot be read as a folder of checkpoints: %s", folder,
                       SYSTEM_TEXT);
    const gd_status status = read_steps(d, folder, steps, count);
    closedir(d);
    if (status == GD_OK) return GD_OK;
    gd_free(*steps);
    *steps = NULL;
    *count = 0;
    return status;
}

/* Makes a new folder durable: syncs the folder above it. */
static void sync_parent(const char *folder) {
    const int fd = gd_file_open_folder(folder);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static gd_status make_folder(const char *path) {
    if (mkdir(path, 0777) == 0) {
        sync_parent(path);
        return GD_OK;
    }
    const int error = errno;
    if (error == EEXIST && is_folder(path)) return GD_OK;
    errno = error;
    return gd_fail(GD_E_IO, "%s: cannot create the folder: %s", path, SYSTEM_TEXT);
}

gd_status gd_checkpoint_make_folder(const char *folder) {
    if (!*folder || is_folder(folder)) return GD_OK;
    char *path = path_in("", folder);
    if (!path) return gd_no_memory(folder, "for the names of its checkpoints");
    gd_status status = GD_OK;
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/';) path[--length] = 0;
    for (char *at = path + 1; *at && status == GD_OK; at++) {
        if (*at != '/' || at[-1] == '/') continue;
        *at = 0;
        if (!is_folder(path)) status = make_folder(path);
        *at = '/';
    }
    if (status == GD_OK) status = make_folder(path);
    gd_free(path);
    return status;
}

/* --- removing --------------------------------------------------------------------------------- */

void gd_checkpoint_sweep(const char *folder) {
    DIR *d = opendir(*folder ? folder : ".");
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (!is_temporary(e->d_name)) continue;
        char *path = path_in(folder, e->d_name);
        if (path) gd_file_sweep(path, NULL);
        gd_free(path);
    }
    if (d) closedir(d);
}

static void remove_step(const char *folder, int64_t step) {
    char *path = gd_checkpoint_path(folder, step);
    if (path) unlink(path);
    gd_free(path);
}

/* Ignores failures: the call after the next save tries again. */
void gd_checkpoint_prune(const char *folder, int64_t step, int64_t keep) {
    int64_t *steps, kept = 0;
    int count;
    if (keep < 1 || gd_checkpoint_steps(folder, &steps, &count) != GD_OK) return;
    for (int i = 0; i < count; i++)
        if (steps[i] <= step && ++kept > keep) remove_step(folder, steps[i]);
    gd_free(steps);
}

void gd_checkpoint_remove_later(const char *folder, int64_t step, int64_t saved) {
    int64_t *steps;
    int count;
    if (gd_checkpoint_steps(folder, &steps, &count) != GD_OK) return;
    for (int i = 0; i < count && steps[i] > step; i++)
        if (steps[i] != saved) remove_step(folder, steps[i]);
    gd_free(steps);
}

bool gd_checkpoint_same_folder(const char *a, const char *b) {
    struct stat of_a, of_b;
    return stat(*a ? a : ".", &of_a) == 0 && stat(*b ? b : ".", &of_b) == 0 &&
           of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* --- an earlier run --------------------------------------------------------------------------- */

static gd_status move_file(const char *folder, const char *to, const char *name) {
    char *from_path = path_in(folder, name), *to_path = path_in(to, name);
    gd_status status =
        from_path && to_path ? GD_OK : gd_no_memory(folder, "for the names of its checkpoints");
    if (status == GD_OK && rename(from_path, to_path) != 0)
        status = gd_fail(GD_E_IO, "%s: cannot move it to %s: %s", from_path, to, SYSTEM_TEXT);
    gd_free(from_path);
    gd_free(to_path);
    return status;
}

static gd_status move_files(const char *folder, const char *to, int *moved) {
    int64_t *steps;
    int count;
    GD_TRY(gd_checkpoint_steps(folder, &steps, &count));
    gd_status status = GD_OK;
    for (int i = count - 1; i >= 0 && status == GD_OK; i--) { /* the oldest first */
        char *path = gd_checkpoint_path("", steps[i]);
        status = path ? move_file(folder, to, path)
                      : gd_no_memory(folder, "for the names of its checkpoints");
        gd_free(path);
        *moved += status == GD_OK;
    }
    gd_free(steps);
    char *best = gd_checkpoint_best_path(folder);
    if (status == GD_OK && best && access(best, F_OK) == 0)
        status = move_file(folder, to, best_name);
    gd_free(best);
    return status;
}

gd_status gd_checkpoint_count(const char *folder, int *steps, bool *best) {
    int64_t *list;
    GD_TRY(gd_checkpoint_steps(folder, &list, steps));
    gd_free(list);
    char *path = gd_checkpoint_best_path(folder);
    if (!path) return gd_no_memory(folder, "for the names of its checkpoints");
    *best = access(path, F_OK) == 0;
    gd_free(path);
    return GD_OK;
}

static gd_status has_checkpoints(const char *folder, bool *has) {
    int steps;
    GD_TRY(gd_checkpoint_count(folder, &steps, has));
    *has |= steps > 0;
    return GD_OK;
}

static void remove_all(const char *folder) {
    gd_checkpoint_remove_later(folder, -1, -1);
    char *best = gd_checkpoint_best_path(folder);
    if (best) unlink(best);
    gd_free(best);
}

gd_status gd_checkpoint_set_aside(const char *folder, bool replaces, int *moved, char name[32]) {
    char *to = NULL;
    bool taken = true;
    *moved = 0;
    for (int number = 1; taken; number++) {
        gd_free(to);
        snprintf(name, 32, number > 1 ? "%s-%d" : "%s", previous_name, number);
        to = path_in(folder, name);
        if (!to) return gd_no_memory(folder, "for the names of its checkpoints");
        gd_status status = GD_OK;
        if (replaces) remove_all(to), taken = false;
        else status = has_checkpoints(to, &taken);
        if (status == GD_OK && !taken) status = gd_checkpoint_make_folder(to);
        if (status == GD_OK && !taken) status = move_files(folder, to, moved);
        if (status != GD_OK) {
            gd_free(to);
            return status;
        }
    }
    gd_free(to);
    return GD_OK;
}
