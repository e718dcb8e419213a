/* native_folder.c - opens the folder of compiled kernels so that no other user can exchange it.
 *
 * The path is walked from the root, each folder through the descriptor of the one that holds it,
 * and each must be one in which only this user, root or the owner of the root folder can exchange
 * what follows. Links are resolved on the way, so those who could change a link are checked, too.
 * From then on the folder is known by its descriptor: whatever becomes of its path, files are those of
 * the folder that was checked.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/native.h"

static const char kernels[] = "kernels"; /* in the cache folder, which others use as well */

/* A walk along a path. */
typedef struct walk {
    char seen[PATH_MAX]; /* the part that is open, for messages */
    char rest[PATH_MAX]; /* what follows */
    int fd;              /* of the part that is open */
    uid_t root;          /* the owner of "/", who decides what every path means */
    int links;
    char *why;
} walk;

enum { MAX_LINKS = 40 }; /* as the kernel follows */

/* --- the path --------------------------------------------------------------------------------- */

static bool choose_path(char path[PATH_MAX]) {
    const char *given = secure_getenv("GRADUS_CACHE"), *base = secure_getenv("XDG_CACHE_HOME"),
               *home = secure_getenv("HOME");
    char here[PATH_MAX];
    int length = -1;
    if (given && *given == '/') length = snprintf(path, PATH_MAX, "%s", given);
    else if (given && *given && getcwd(here, sizeof here))
        length = snprintf(path, PATH_MAX, "%s/%s", here, given);
    else if (base && *base == '/') length = snprintf(path, PATH_MAX, "%s/gradus", base);
    else if (home && *home == '/') length = snprintf(path, PATH_MAX, "%s/.cache/gradus", home);
    return length > 0 && length < PATH_MAX;
}

/* --- who could exchange a folder -------------------------------------------------------------- */

static bool is_trusted(const walk *w, uid_t owner) {
    return owner == geteuid() || owner == 0 || owner == w->root;
}

/* Whether others can replace the folders in this one. A user's own group, whose number is that of
 * the user, has no other members. In a sticky folder only the owner of an entry can replace it. */
static bool others_can_exchange(const struct stat *s) {
    const bool own_group = s->st_gid == getegid() && s->st_gid == geteuid();
    const mode_t others = own_group ? S_IWOTH : S_IWOTH | S_IWGRP;
    return (s->st_mode & others) && !(s->st_mode & S_ISVTX);
}

static bool check_parent(walk *w, const struct stat *s) {
    const char *path = *w->seen ? w->seen : "/";
    if (!S_ISDIR(s->st_mode))
        snprintf(w->why, GD_NATIVE_WHY, "%.*s is not a folder; set GRADUS_CACHE to another",
                 GD_NATIVE_SHOWN, path);
    else if (!is_trusted(w, s->st_uid))
        snprintf(w->why, GD_NATIVE_WHY,
                 "the folder %.*s belongs to another user, who could exchange what is in it; set "
                 "GRADUS_CACHE to a folder of yours that is in no such folder",
                 GD_NATIVE_SHOWN, path);
    else if (others_can_exchange(s))
        snprintf(w->why, GD_NATIVE_WHY,
                 "others can write to the folder %.*s (mode %04o) and exchange what is in it; run "
                 "\"chmod go-w\" on it, or set GRADUS_CACHE to a folder elsewhere",
                 GD_NATIVE_SHOWN, path, (unsigned)(s->st_mode & 07777));
    else return true;
    return false;
}

/* Whether only this user can write to the folder of kernels, and see what is in it. */
static bool check_kernels(walk *w, const struct stat *s) {
    if (s->st_uid != geteuid())
        snprintf(w->why, GD_NATIVE_WHY,
                 "the folder %.*s/%s belongs to another user; set GRADUS_CACHE to one that you own",
                 GD_NATIVE_SHOWN, w->seen, kernels);
    else if (s->st_mode & 077)
        snprintf(w->why, GD_NATIVE_WHY,
                 "the folder %.*s/%s is open to others (mode %04o), who could put code there; run "
                 "\"chmod 700\" on it, or set GRADUS_CACHE to another",
                 GD_NATIVE_SHOWN, w->seen, kernels, (unsigned)(s->st_mode & 07777));
    else return true;
    return false;
}

/* --- the walk --------------------------------------------------------------------------------- */

static bool fail_at(walk *w, const char *name) {
    snprintf(w->why, GD_NATIVE_WHY,
             "the folder %.*s/%.*s cannot be created (%s); set GRADUS_CACHE to another",
             GD_NATIVE_SHOWN, w->seen, GD_NATIVE_SHOWN / 2, name, strerror(errno));
    return false;
}

static bool enter_folder(walk *w, int fd, const char *name) {
    struct stat s;
    const size_t length = strlen(w->seen);
    snprintf(w->seen + length, sizeof w->seen - length, "/%s", name);
    if (w->fd >= 0) close(w->fd);
    w->fd = fd;
    return fstat(fd, &s) == 0 && check_parent(w, &s);
}

static bool enter_root(walk *w) {
    struct stat s;
    const int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (w->fd >= 0) close(w->fd);
    w->fd = fd;
    w->seen[0] = 0;
    if (fd < 0 || fstat(fd, &s) != 0) return fail_at(w, "");
    w->root = s.st_uid;
    return check_parent(w, &s);
}

/* Puts the target of a link before the rest of the path. */
static bool follow_link(walk *w, int link, const char *name) {
    char target[PATH_MAX], rest[PATH_MAX];
    const ssize_t bytes = readlinkat(link, "", target, sizeof target);
    close(link);
    errno = ELOOP;
    if (bytes <= 0 || ++w->links > MAX_LINKS) return fail_at(w, name);
    strcpy(rest, w->rest);
    errno = ENAMETOOLONG;
    if (snprintf(w->rest, sizeof w->rest, "%.*s/%s", (int)bytes, target, rest) >= PATH_MAX)
        return fail_at(w, name);
    return *target == '/' ? enter_root(w) : true;
}

/* Takes the first name off the rest of the path. False: there is none. */
static bool next_name(walk *w, char name[NAME_MAX + 2]) {
    char *at = w->rest + strspn(w->rest, "/");
    const size_t length = strcspn(at, "/");
    snprintf(name, NAME_MAX + 2, "%.*s", (int)length, at); /* a cut name is still too long */
    memmove(w->rest, at + length, strlen(at + length) + 1);
    return length > 0;
}

/* Enters the folders of the path, and creates those that are missing. */
static bool walk_path(walk *w) {
    char name[NAME_MAX + 2];
    if (!enter_root(w)) return false;
    while (next_name(w, name)) {
        struct stat s;
        if (strcmp(name, ".") == 0) continue;
        int fd = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT && (mkdirat(w->fd, name, 0700) == 0 || errno == EEXIST))
            fd = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) return fail_at(w, name);
        const bool is_link = fstat(fd, &s) == 0 && S_ISLNK(s.st_mode);
        if (!(is_link ? follow_link(w, fd, name) : enter_folder(w, fd, name))) return false;
    }
    return true;
}

static int open_kernels(walk *w) {
    struct stat s;
    if (mkdirat(w->fd, kernels, 0700) != 0 && errno != EEXIST) return fail_at(w, kernels), -1;
    const int fd = openat(w->fd, kernels, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &s) != 0) {
        snprintf(w->why, GD_NATIVE_WHY,
                 "%.*s/%s cannot be opened as a folder (%s); set GRADUS_CACHE to another",
                 GD_NATIVE_SHOWN, w->seen, kernels, strerror(errno));
    } else if (check_kernels(w, &s)) {
        return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
}

int gd_native_open_folder(char why[GD_NATIVE_WHY]) {
    walk w = {.fd = -1, .why = why};
    snprintf(why, GD_NATIVE_WHY,
             "there is no home folder for the cache; set GRADUS_CACHE to a folder");
    if (!choose_path(w.rest)) return -1;
    const int fd = walk_path(&w) ? open_kernels(&w) : -1;
    if (w.fd >= 0) close(w.fd);
    return fd;
}
