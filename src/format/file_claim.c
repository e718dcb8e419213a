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

enum { NAMES = 16, DIGITS = 16, DAY = 24 * 60 * 60, NUMBER = 40 };

/* Whether `name` still is the file that is open here. */
static bool is_at(const char *name, int fd) {
    struct stat open_one, there;
    return fstat(fd, &open_one) == 0 && lstat(name, &there) == 0 && S_ISREG(there.st_mode) &&
           open_one.st_dev == there.st_dev && open_one.st_ino == there.st_ino;
}

static bool has_owner(int fd) {
    struct stat info;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return false;
    if (errno == EWOULDBLOCK || errno == EINTR) return true;
    return fstat(fd, &info) != 0 || time(NULL) - info.st_mtime < DAY; /* no locks here */
}

/* While the lock is held nobody else removes the file or takes its name, so nothing can happen
 * between the check and the removal. */
void gd_file_sweep(const char *name, const gd_file_keep *keep) {
    const int fd = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    if (is_at(name, fd) && !has_owner(fd) && is_at(name, fd) &&
        !(keep && keep->needs(keep->user, name)))
        unlink(name);
    close(fd);
}

void gd_file_sweep_folder(const char *stem, const gd_file_keep *keep) {
    const char *slash = strrchr(stem, '/'), *base = slash ? slash + 1 : stem;
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

/* A new file, locked; -1 where there is one already. Between its creation and the lock another
 * process may take it for one without an owner: then it is lost, and another name has to do. */
static int create(const char *name) {
    /* 0666 less the umask, as fopen would: mkstemp's 0600 would surprise. */
    const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return -1;
    const bool lost = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!lost && is_at(name, fd)) return fd;
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
        fd = create(*name);
    }
    for (int attempt = 0; attempt < 1000 && fd < 0 && errno == EEXIST; attempt++) {
        /* more writers than names: nobody sweeps this one should its owner die */
        snprintf(*name, bytes, "%s%ld-%u", stem, (long)getpid(), atomic_fetch_add(&counter, 1) + 1);
        fd = create(*name);
    }
    if (fd >= 0) return fd;
    const int error = errno;
    gd_free(*name);
    *name = NULL;
    errno = error;
    return -1;
}

int gd_file_open_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    const size_t length = slash && slash != path ? (size_t)(slash - path) : 1;
    char *folder = gd_malloc(length + 1);
    if (!folder) return -1;
    memcpy(folder, slash ? path : ".", length);
    folder[length] = 0;
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
