/* file_claim.c - see file_claim.h. */
#define _GNU_SOURCE 1
#include "format/file_claim.h"

#include "core/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    NAMES = 16,  /* of one stem */
    DIGITS = 16, /* of gd_file_sweep_folder() */
    DAY = 24 * 60 * 60,
    NUMBER = 40, /* bytes of the longest suffix */
};

/* Whether `name` is still the name of the open file. */
static bool is_open_file(const char *name, int fd) {
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && lstat(name, &named) == 0 && S_ISREG(named.st_mode) &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

static bool has_owner(int fd) {
    struct stat info;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return false;
    if (errno == EWOULDBLOCK || errno == EINTR) return true;
    return fstat(fd, &info) != 0 || time(NULL) - info.st_mtime < DAY; /* without locks */
}

/* No other process removes the file or reuses its name while it is locked, so the check stays valid
 * until the removal. */
void gd_file_sweep(const char *name, const gd_file_keep *keep) {
    const int fd = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    if (is_open_file(name, fd) && !has_owner(fd) && is_open_file(name, fd) &&
        !(keep && keep->needs(keep->user, name)))
        unlink(name);
    close(fd);
}

void gd_file_sweep_folder(const char *stem, const gd_file_keep *keep) {
    const char *base = gd_file_name(stem);
    const size_t before = (size_t)(base - stem), length = strlen(base);
    char *name = gd_malloc(strlen(stem) + DIGITS + 2);
    if (!name) return;
    memcpy(name, stem, before);
    name[before] = '\0';
    DIR *folder = opendir(before ? name : ".");
    for (struct dirent *e; folder && (e = readdir(folder)) != NULL;) {
        if (strncmp(e->d_name, base, length) != 0 || strlen(e->d_name) != length + DIGITS ||
            strspn(e->d_name + length, "0123456789abcdef") != DIGITS)
            continue;
        memcpy(name + before, e->d_name, length + DIGITS + 1);
        gd_file_sweep(name, keep);
    }
    if (folder) closedir(folder);
    gd_free(name);
}

void gd_file_sweep_claims(const char *stem) {
    const size_t bytes = strlen(stem) + NUMBER;
    char *name = gd_malloc(bytes);
    for (int k = 1; k <= NAMES && name; k++) {
        snprintf(name, bytes, "%s%d", stem, k);
        gd_file_sweep(name, NULL);
    }
    gd_free(name);
}

/* Creates and locks a file; -1: it exists. Between the creation and the lock another process may
 * see a file without an owner and remove it. Then this fails, too, and the caller tries another
 * name. */
static int create_locked(const char *name) {
    /* 0666 minus the umask, as fopen does (mkstemp uses 0600) */
    const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return -1;
    const bool lost = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!lost && is_open_file(name, fd)) return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

int gd_file_claim(const char *stem, char **name) {
    static _Atomic unsigned counter;
    const size_t bytes = strlen(stem) + NUMBER;
    int fd = -1;
    *name = gd_malloc(bytes);
    errno = ENOMEM;
    if (!*name) return -1;
    gd_file_sweep_claims(stem);
    errno = EEXIST;
    for (int k = 1; k <= NAMES && fd < 0 && errno == EEXIST; k++) {
        snprintf(*name, bytes, "%s%d", stem, k);
        fd = create_locked(*name);
    }
    for (int attempt = 0; attempt < 1000 && fd < 0 && errno == EEXIST; attempt++) {
        /* more writers than names: such a file stays if its owner dies */
        snprintf(*name, bytes, "%s%ld-%u", stem, (long)getpid(), atomic_fetch_add(&counter, 1) + 1);
        fd = create_locked(*name);
    }
    if (fd >= 0) return fd;
    const int error = errno;
    gd_free(*name);
    *name = NULL;
    errno = error;
    return -1;
}

const char *gd_file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *gd_file_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    const size_t length = slash && slash != path ? (size_t)(slash - path) : 1;
    char *folder = gd_malloc(length + 1);
    if (!folder) return NULL;
    memcpy(folder, slash ? path : ".", length);
    folder[length] = '\0';
    return folder;
}

int gd_file_open_folder(const char *path) {
    char *folder = gd_file_folder(path);
    if (!folder) return -1;
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    gd_free(folder);
    return fd;
}

int gd_file_lock_folder(const char *path, bool writes) {
    const int fd = gd_file_open_folder(path);
    while (fd >= 0 && flock(fd, writes ? LOCK_EX : LOCK_SH) != 0)
        if (errno != EINTR) break;
    return fd;
}
