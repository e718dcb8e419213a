/* native_cache.c - the cache directory of compiled kernels, and checksums of its files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "codegen/native.h"
#include "core/grow.h"
#include "core/number.h"

/* --- hashes ----------------------------------------------------------------------------------- */

void gd_native_hash_start(gd_native_hash *h) {
    *h = (gd_native_hash){1469598103934665603u, 0x6C62272E07BB0142u};
}

/* FNV-1a twice, with different initial values; the second over inverted bytes. */
void gd_native_hash_add(gd_native_hash *h, const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const unsigned char byte = ((const unsigned char *)bytes)[i];
        h->a = (h->a ^ byte) * 1099511628211u;
        h->b = (h->b ^ (unsigned char)~byte) * 1099511628211u;
    }
}

void gd_native_hash_text(const gd_native_hash *h, char text[GD_NATIVE_KEY]) {
    snprintf(text, GD_NATIVE_KEY, "%016llx%016llx", (unsigned long long)h->a,
             (unsigned long long)h->b);
}

/* --- the directory ---------------------------------------------------------------------------- */

/* Creates a directory and its parents, accessible to the user alone. */
static bool create_directories(char *path) {
    for (char *at = path + 1; *at; at++) {
        if (*at != '/') continue;
        *at = 0;
        mkdir(path, 0700); /* fails if it exists */
        *at = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static bool choose_directory(char *path, size_t size) {
    const char *given = secure_getenv("GRADUS_CACHE"), *base = secure_getenv("XDG_CACHE_HOME"),
               *home = secure_getenv("HOME");
    int length = -1;
    if (given && *given) length = snprintf(path, size, "%s", given);
    else if (base && *base == '/') length = snprintf(path, size, "%s/gradus", base);
    else if (home && *home == '/') length = snprintf(path, size, "%s/.cache/gradus", home);
    return length > 0 && (size_t)length < size;
}

/* Whether only this user can write to the folder; if not, `why` says what helps. */
static bool is_private(const char *path, char why[GD_NATIVE_WHY]) {
    struct stat s;
    if (lstat(path, &s) != 0 || !S_ISDIR(s.st_mode))
        snprintf(why, GD_NATIVE_WHY, "%.*s is not a folder; set GRADUS_CACHE to another",
                 GD_NATIVE_SHOWN, path);
    else if (s.st_uid != geteuid())
        snprintf(why, GD_NATIVE_WHY,
                 "the folder %.*s belongs to another user; set GRADUS_CACHE to one that you own",
                 GD_NATIVE_SHOWN, path);
    else if (s.st_mode & 077)
        snprintf(why, GD_NATIVE_WHY,
                 "the folder %.*s is open to others (mode %04o), who could put code there; run "
                 "\"chmod 700\" on it, or set "
                 "GRADUS_CACHE to another",
                 GD_NATIVE_SHOWN, path, (unsigned)(s.st_mode & 07777));
    else return true;
    return false;
}

bool gd_native_directory(char *path, size_t size, char why[GD_NATIVE_WHY]) {
    char chosen[GD_NATIVE_PATH];
    snprintf(why, GD_NATIVE_WHY,
             "there is no home folder for the cache; set GRADUS_CACHE to a folder");
    if (!choose_directory(chosen, sizeof chosen)) return false;
    if (!create_directories(chosen)) {
        snprintf(why, GD_NATIVE_WHY,
                 "the folder %.*s cannot be created (%s); set GRADUS_CACHE to another",
                 GD_NATIVE_SHOWN, chosen, strerror(errno));
        return false;
    }
    if (!is_private(chosen, why)) return false;
    snprintf(why, GD_NATIVE_WHY, "the path %.*s is too long; set GRADUS_CACHE to another",
             GD_NATIVE_SHOWN, chosen);
    char *real = realpath(chosen, NULL);
    const bool fits = real && strlen(real) + 64 < size; /* room for a file's name */
    if (fits) strcpy(path, real);
    free(real);
    return fits;
}

/* --- files ------------------------------------------------------------------------------------ */

/* The checksum at the end of a file. */
typedef struct seal {
    char magic[16];
    uint64_t bytes, a, b; /* size and hash of everything before the seal */
} seal;

static const char magic[16] = "gradus kernel 1";

/* The contents of a file, or NULL. Free it with gd_free. */
static char *read_file(const char *path, size_t *bytes) {
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
    gd_native_hash h;
    gd_native_hash_start(&h);
    gd_native_hash_add(&h, text, bytes);
    memcpy(s.magic, magic, sizeof magic);
    s.bytes = bytes;
    s.a = h.a;
    s.b = h.b;
    return s;
}

bool gd_native_seal(const char *path) {
    size_t bytes;
    char *text = read_file(path, &bytes);
    if (!text) return false;
    const seal s = seal_of(text, bytes);
    gd_free(text);
    const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) return false;
    const bool complete = write(fd, &s, sizeof s) == (ssize_t)sizeof s;
    return close(fd) == 0 && complete;
}

bool gd_native_is_sealed(const char *path) {
    size_t bytes;
    char *text = read_file(path, &bytes);
    bool right = false;
    if (text && bytes > sizeof(seal)) {
        const seal s = seal_of(text, bytes - sizeof s);
        right = memcmp(&s, text + bytes - sizeof s, sizeof s) == 0;
    }
    gd_free(text);
    return right;
}

/* --- names ------------------------------------------------------------------------------------ */

static bool copy_file(const char *from, const char *to) {
    size_t bytes;
    char *text = read_file(from, &bytes);
    const int fd = text ? open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700) : -1;
    bool done = fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes;
    if (fd >= 0) done = close(fd) == 0 && done;
    gd_free(text);
    return done;
}

/* First links to a temporary name, because rename() replaces the old file atomically. */
bool gd_native_name(const char *path, const char *name) {
    char fresh[GD_NATIVE_PATH + 96];
    snprintf(fresh, sizeof fresh, "%s-%d", path, (int)getpid());
    unlink(fresh);
    const bool done =
        (link(path, fresh) == 0 || copy_file(path, fresh)) && rename(fresh, name) == 0;
    if (!done) unlink(fresh);
    return done;
}

/* --- code of other compilers ------------------------------------------------------------------ */

static bool code_path(const char *key, char directory[GD_NATIVE_PATH],
                      char file[GD_NATIVE_PATH + 64]) {
    char why[GD_NATIVE_WHY];
    if (strlen(key) != GD_NATIVE_KEY - 1 || !gd_native_directory(directory, GD_NATIVE_PATH, why))
        return false;
    snprintf(file, GD_NATIVE_PATH + 64, "%s/%s.bin", directory, key);
    return true;
}

void *gd_native_load_code(const char *key, size_t *bytes) {
    char directory[GD_NATIVE_PATH], file[GD_NATIVE_PATH + 64];
    if (!code_path(key, directory, file)) return NULL;
    char *text = read_file(file, bytes);
    if (!text) return NULL;
    const size_t code = *bytes > sizeof(seal) ? *bytes - sizeof(seal) : 0;
    const seal s = seal_of(text, code);
    if (code == 0 || memcmp(&s, text + code, sizeof s) != 0) {
        gd_free(text);
        return NULL;
    }
    gd_native_touch(file);
    *bytes = code;
    return text;
}

static bool write_bytes(int fd, const char *text, size_t bytes) {
    while (bytes) {
        const ssize_t put = write(fd, text, bytes);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        text += put;
        bytes -= (size_t)put;
    }
    return true;
}

/* Writes a temporary file, which then gets its name: readers see a complete file or none. */
bool gd_native_store_code(const char *key, const void *code, size_t bytes) {
    char directory[GD_NATIVE_PATH], file[GD_NATIVE_PATH + 64], fresh[GD_NATIVE_PATH + 64];
    if (!code_path(key, directory, file)) return false;
    snprintf(fresh, sizeof fresh, "%s/new-XXXXXX", directory);
    const int fd = mkostemp(fresh, O_CLOEXEC);
    if (fd < 0) return false;
    const seal s = seal_of(code, bytes);
    bool done = write_bytes(fd, code, bytes) && write_bytes(fd, (const char *)&s, sizeof s);
    done = close(fd) == 0 && done && rename(fresh, file) == 0;
    if (!done) unlink(fresh);
    if (done) gd_native_trim(directory);
    return done;
}

/* --- the size of the cache -------------------------------------------------------------------- */

enum {
    DEFAULT_MEGABYTES = 256,
    MAX_FILES = 8192,
    ABANDONED = 3600, /* seconds after which an unfinished file is removed */
};

typedef struct cached_file {
    char name[GD_NATIVE_KEY + 8];
    struct timespec used;
    double bytes; /* the size of the file divided by the number of its names */
} cached_file;

static int by_use(const void *a, const void *b) {
    const struct timespec *x = &((const cached_file *)a)->used,
                          *y = &((const cached_file *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Whether it is the file name of a kernel: 32 digits, and ".so" or ".bin". */
static bool is_kernel_name(const char *name) {
    const size_t digits = strspn(name, "0123456789abcdef");
    return digits == GD_NATIVE_KEY - 1 &&
           (strcmp(name + digits, ".so") == 0 || strcmp(name + digits, ".bin") == 0);
}

static double cache_limit(void) {
    const char *text = secure_getenv("GRADUS_CACHE_MB");
    char *end;
    const double megabytes = text ? gd_double_parse(text, &end) : 0;
    return (text && end != text && megabytes >= 0 ? megabytes : DEFAULT_MEGABYTES) * 1e6;
}

void gd_native_touch(const char *path) {
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
}

/* Lists the kernels in a directory, and removes abandoned temporary files. NULL: none, or no
 * memory. */
static cached_file *list_kernels(DIR *d, int *count, double *bytes) {
    cached_file *list = NULL;
    int room = 0;
    const time_t now = time(NULL);
    *count = 0;
    *bytes = 0;
    for (struct dirent *e; (e = readdir(d));) {
        struct stat s;
        const bool unfinished = strncmp(e->d_name, "new-", 4) == 0;
        if ((!unfinished && !is_kernel_name(e->d_name)) ||
            fstatat(dirfd(d), e->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode))
            continue;
        if (unfinished) {
            if (now - s.st_mtim.tv_sec > ABANDONED) unlinkat(dirfd(d), e->d_name, 0);
            continue;
        }
        if (!gd_grow(list, *count, room)) break;
        cached_file *k = &list[(*count)++];
        snprintf(k->name, sizeof k->name, "%.*s", GD_NATIVE_KEY + 4, e->d_name);
        k->used = s.st_atim;
        k->bytes = (double)s.st_size / (double)(s.st_nlink ? s.st_nlink : 1);
        *bytes += k->bytes;
    }
    return list;
}

/* Removes files down to three quarters of the limit, so that the next kernel does not exceed it
 * again. Other processes may do the same at the same time: they remove the same files. Open files
 * stay readable. */
void gd_native_trim(const char *directory) {
    const double most = cache_limit();
    double bytes;
    int count;
    DIR *d = opendir(directory);
    if (!d) return;
    cached_file *list = list_kernels(d, &count, &bytes);
    if (list && (bytes > most || count > MAX_FILES)) {
        qsort(list, (size_t)count, sizeof *list, by_use);
        for (int i = 0, left = count; i < count; i++, left--) {
            if (bytes <= 0.75 * most && left <= MAX_FILES * 3 / 4) break;
            unlinkat(dirfd(d), list[i].name, 0);
            bytes -= list[i].bytes;
        }
    }
    gd_free(list);
    closedir(d);
}
