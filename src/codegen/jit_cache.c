/* jit_cache.c - where compiled kernels are kept, and how a whole file is told from a broken one. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/jit.h"
#include "core/alloc.h"

/* --- hashes ------------------------------------------------------------------------------------
 */

void gd_jit_hash_start(gd_jit_hash *h) {
    *h = (gd_jit_hash){1469598103934665603u, 0x6C62272E07BB0142u};
}

/* FNV-1a twice, from different starts and the second over bytes turned over. */
void gd_jit_hash_add(gd_jit_hash *h, const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const unsigned char byte = ((const unsigned char *)bytes)[i];
        h->a = (h->a ^ byte) * 1099511628211u;
        h->b = (h->b ^ (unsigned char)~byte) * 1099511628211u;
    }
}

void gd_jit_hash_text(const gd_jit_hash *h, char text[GD_JIT_KEY]) {
    snprintf(text, GD_JIT_KEY, "%016llx%016llx", (unsigned long long)h->a,
             (unsigned long long)h->b);
}

/* --- the directory -----------------------------------------------------------------------------
 */

/* Makes it and what is above it, closed to others. */
static bool make_directories(char *path) {
    for (char *at = path + 1; *at; at++) {
        if (*at != '/') continue;
        *at = 0;
        mkdir(path, 0700); /* fails where it exists already */
        *at = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static bool choose(char *path, size_t size) {
    const char *given = secure_getenv("GRADUS_CACHE"), *base = secure_getenv("XDG_CACHE_HOME"),
               *home = secure_getenv("HOME");
    int length = -1;
    if (given && *given)
        length = snprintf(path, size, "%s", given);
    else if (base && *base == '/')
        length = snprintf(path, size, "%s/gradus", base);
    else if (home && *home == '/')
        length = snprintf(path, size, "%s/.cache/gradus", home);
    return length > 0 && (size_t)length < size;
}

bool gd_jit_directory(char *path, size_t size, const char **why) {
    char chosen[GD_JIT_PATH];
    struct stat s;
    *why = "there is no home directory";
    if (!choose(chosen, sizeof chosen)) return false;
    *why = "the directory cannot be made";
    if (!make_directories(chosen)) return false;
    *why = "it is not a directory of the user's own with mode 0700";
    if (lstat(chosen, &s) != 0 || !S_ISDIR(s.st_mode) || s.st_uid != geteuid() ||
        (s.st_mode & 077) != 0)
        return false;
    *why = "its path is too long";
    char *real = realpath(chosen, NULL);
    const bool fits = real && strlen(real) + 64 < size; /* room for a file's name */
    if (fits) strcpy(path, real);
    free(real);
    return fits;
}

/* --- files -------------------------------------------------------------------------------------
 */

typedef struct seal {
    char magic[16];
    uint64_t bytes, a, b;
} seal;

static const char magic[16] = "gradus kernel 1";

/* All of a file, or NULL; gd_free it. */
static char *read_all(const char *path, size_t *bytes) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat s;
    char *text = NULL;
    *bytes = 0;
    if (fd < 0) return NULL;
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size > 0 && s.st_size < (1 << 28) &&
        (text = gd_malloc((size_t)s.st_size))) {
        while (*bytes < (size_t)s.st_size) {
            const ssize_t got = read(fd, text + *bytes, (size_t)s.st_size - *bytes);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) break;
            *bytes += (size_t)got;
        }
        if (*bytes != (size_t)s.st_size) {
            gd_free(text);
            text = NULL;
        }
    }
    close(fd);
    return text;
}

static seal seal_of(const char *text, size_t bytes) {
    seal s;
    gd_jit_hash h;
    gd_jit_hash_start(&h);
    gd_jit_hash_add(&h, text, bytes);
    memcpy(s.magic, magic, sizeof magic);
    s.bytes = bytes;
    s.a = h.a;
    s.b = h.b;
    return s;
}

bool gd_jit_seal(const char *path) {
    size_t bytes;
    char *text = read_all(path, &bytes);
    if (!text) return false;
    const seal s = seal_of(text, bytes);
    gd_free(text);
    const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) return false;
    const bool whole = write(fd, &s, sizeof s) == (ssize_t)sizeof s;
    return close(fd) == 0 && whole;
}

bool gd_jit_is_sealed(const char *path) {
    size_t bytes;
    char *text = read_all(path, &bytes);
    bool right = false;
    if (text && bytes > sizeof(seal)) {
        const seal s = seal_of(text, bytes - sizeof s);
        right = memcmp(&s, text + bytes - sizeof s, sizeof s) == 0;
    }
    gd_free(text);
    return right;
}
