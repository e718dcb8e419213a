/* native_cache.c - the files of the folder of compiled kernels (native_folder.c): checksums, names,
 * and how many are kept. Files are only reached through the descriptor of the folder. */
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

/* --- files ------------------------------------------------------------------------------------ */

/* The checksum at the end of a file. */
typedef struct seal {
    char magic[16];
    uint64_t bytes, a, b; /* size and hash of everything before the seal */
} seal;

static const char magic[16] = "gradus kernel 1";

/* The contents of an open file, or NULL: it is not a regular file that only this user can write.
 * Free them with gd_free. */
static char *read_file(int fd, size_t *bytes) {
    struct stat s;
    *bytes = 0;
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid() ||
        (s.st_mode & (S_IWGRP | S_IWOTH)) || s.st_size <= 0 || s.st_size >= 1 << 28)
        return NULL;
    char *text = gd_malloc((size_t)s.st_size);
    while (text && *bytes < (size_t)s.st_size) {
        const ssize_t got = pread(fd, text + *bytes, (size_t)s.st_size - *bytes, (off_t)*bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        *bytes += (size_t)got;
    }
    if (text && *bytes == (size_t)s.st_size) return text;
    gd_free(text);
    return NULL;
}

static bool write_bytes(int fd, const void *bytes, size_t count) {
    for (const char *at = bytes; count;) {
        const ssize_t put = write(fd, at, count);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        at += put;
        count -= (size_t)put;
    }
    return true;
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

/* The bytes before the seal; 0: the seal is missing or wrong. */
static size_t sealed_bytes(const char *text, size_t bytes) {
    const size_t before = bytes > sizeof(seal) ? bytes - sizeof(seal) : 0;
    const seal s = seal_of(text, before);
    return before && memcmp(&s, text + before, sizeof s) == 0 ? before : 0;
}

bool gd_native_seal(int folder, const char *name) {
    const int fd = openat(folder, name, O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    size_t bytes;
    char *text = fchmod(fd, 0700) == 0 ? read_file(fd, &bytes) : NULL;
    bool done = text != NULL;
    if (done) {
        const seal s = seal_of(text, bytes);
        done = write_bytes(fd, &s, sizeof s);
    }
    gd_free(text);
    return close(fd) == 0 && done;
}

/* Opens a file and reads what is before its seal. -1: there is none, or its seal is wrong. */
static int open_and_read(int folder, const char *name, char **text, size_t *bytes) {
    *text = NULL;
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return -1;
    *text = read_file(fd, bytes);
    if (*text && (*bytes = sealed_bytes(*text, *bytes)) > 0) return fd;
    gd_free(*text);
    *text = NULL;
    close(fd);
    return -1;
}

int gd_native_open_sealed(int folder, const char *name) {
    char *text;
    size_t bytes;
    const int fd = open_and_read(folder, name, &text, &bytes);
    gd_free(text);
    return fd;
}

void gd_native_touch(int fd) {
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    futimens(fd, times);
}

/* --- names ------------------------------------------------------------------------------------ */

/* Kernels have the names KEY.so and KEY.bin; files on the way there new-ID.c, new-ID.so and
 * new-ID.bin. KEY and ID are hexadecimal. No other file in the folder is ever removed. */
static const char fresh_start[] = "new-";
static const char *const kernel_ends[] = {".so", ".bin", NULL}, *const fresh_ends[] = {
                                                                    ".c", ".so", ".bin", NULL};
enum { FRESH_DIGITS = 16 };

static bool is_name(const char *name, size_t digits, const char *const *ends) {
    if (strspn(name, "0123456789abcdef") != digits) return false;
    while (*ends && strcmp(name + digits, *ends) != 0) ends++;
    return *ends != NULL;
}
static bool is_kernel_name(const char *name) {
    return is_name(name, GD_NATIVE_KEY - 1, kernel_ends);
}
static bool is_fresh_name(const char *name) {
    const size_t start = sizeof fresh_start - 1;
    return strncmp(name, fresh_start, start) == 0 &&
           is_name(name + start, FRESH_DIGITS, fresh_ends);
}

/* A name that no other call gives, in any process. */
static void make_fresh_name(const char *end, char name[GD_NATIVE_NAME]) {
    static _Atomic int64_t calls;
    struct timespec now;
    gd_native_hash h;
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t numbers[4] = {now.tv_sec, now.tv_nsec, getpid(), calls++};
    gd_native_hash_start(&h);
    gd_native_hash_add(&h, numbers, sizeof numbers);
    snprintf(name, GD_NATIVE_NAME, "%s%0*llx%s", fresh_start, FRESH_DIGITS, (unsigned long long)h.a,
             end);
}

int gd_native_create(int folder, const char *end, char name[GD_NATIVE_NAME]) {
    make_fresh_name(end, name);
    return openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static bool copy_file(int folder, const char *from, const char *to) {
    size_t bytes;
    const int source = openat(folder, from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char *text = source >= 0 ? read_file(source, &bytes) : NULL;
    const int fd = text ? openat(folder, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700) : -1;
    bool done = fd >= 0 && write_bytes(fd, text, bytes);
    if (fd >= 0) done = close(fd) == 0 && done;
    if (source >= 0) close(source);
    gd_free(text);
    return done;
}

/* First links to a temporary name, because renameat() replaces the old file atomically. */
bool gd_native_name(int folder, const char *file, const char *name) {
    char fresh[GD_NATIVE_NAME];
    make_fresh_name(".so", fresh);
    const bool done =
        (linkat(folder, file, folder, fresh, 0) == 0 || copy_file(folder, file, fresh)) &&
        renameat(folder, fresh, folder, name) == 0;
    if (!done) unlinkat(folder, fresh, 0);
    return done;
}

/* --- code of other compilers ------------------------------------------------------------------ */

/* Opens the folder and makes the name of the file. -1: there is no cache. */
static int open_for_code(const char *key, char name[GD_NATIVE_NAME]) {
    char why[GD_NATIVE_WHY];
    snprintf(name, GD_NATIVE_NAME, "%s.bin", key);
    return is_kernel_name(name) ? gd_native_open_folder(why) : -1;
}

void *gd_native_load_code(const char *key, size_t *bytes) {
    char name[GD_NATIVE_NAME], *code = NULL;
    const int folder = open_for_code(key, name);
    const int fd = folder < 0 ? -1 : open_and_read(folder, name, &code, bytes);
    if (fd >= 0) {
        gd_native_touch(fd);
        close(fd);
    }
    if (folder >= 0) close(folder);
    return code;
}

/* Writes a temporary file, which then gets its name: readers see a complete file or none. */
static bool store_code(int folder, const char *name, const void *code, size_t bytes) {
    char fresh[GD_NATIVE_NAME];
    const int fd = gd_native_create(folder, ".bin", fresh);
    if (fd < 0) return false;
    const seal s = seal_of(code, bytes);
    bool done = write_bytes(fd, code, bytes) && write_bytes(fd, &s, sizeof s);
    done = close(fd) == 0 && done && renameat(folder, fresh, folder, name) == 0;
    if (!done) unlinkat(folder, fresh, 0);
    if (done) gd_native_trim(folder);
    return done;
}

bool gd_native_store_code(const char *key, const void *code, size_t bytes) {
    char name[GD_NATIVE_NAME];
    const int folder = open_for_code(key, name);
    const bool done = folder >= 0 && store_code(folder, name, code, bytes);
    if (folder >= 0) close(folder);
    return done;
}

/* --- the size of the cache -------------------------------------------------------------------- */

enum {
    DEFAULT_MEGABYTES = 256,
    MAX_FILES = 8192,
    ABANDONED = 3600, /* seconds after which an unfinished file is removed */
};

typedef struct cached_file {
    char name[GD_NATIVE_NAME];
    struct timespec used;
    double bytes; /* the size of the file divided by the number of its names */
} cached_file;

static int by_use(const void *a, const void *b) {
    const struct timespec *x = &((const cached_file *)a)->used,
                          *y = &((const cached_file *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static double cache_limit(void) {
    const char *text = secure_getenv("GRADUS_CACHE_MB");
    char *end;
    const double megabytes = text ? gd_double_parse(text, &end) : 0;
    return (text && end != text && megabytes >= 0 ? megabytes : DEFAULT_MEGABYTES) * 1e6;
}

/* Lists the kernels in the folder, and removes abandoned temporary files. NULL: none, or no
 * memory. */
static cached_file *list_kernels(DIR *d, int *count, double *bytes) {
    cached_file *list = NULL;
    int room = 0;
    const time_t now = time(NULL);
    *count = 0;
    *bytes = 0;
    for (struct dirent *e; (e = readdir(d));) {
        struct stat s;
        const bool unfinished = is_fresh_name(e->d_name);
        if ((!unfinished && !is_kernel_name(e->d_name)) ||
            fstatat(dirfd(d), e->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode) ||
            s.st_uid != geteuid())
            continue;
        if (unfinished) {
            if (now - s.st_mtim.tv_sec > ABANDONED) unlinkat(dirfd(d), e->d_name, 0);
            continue;
        }
        if (!gd_grow(list, *count, room)) break;
        cached_file *k = &list[(*count)++];
        snprintf(k->name, sizeof k->name, "%.*s", GD_NATIVE_NAME - 1, e->d_name);
        k->used = s.st_atim;
        k->bytes = (double)s.st_size / (double)(s.st_nlink ? s.st_nlink : 1);
        *bytes += k->bytes;
    }
    return list;
}

/* Removes files down to three quarters of the limit, so that the next kernel does not exceed it
 * again. Other processes may do the same at the same time: they remove the same files. Open files
 * stay readable. */
void gd_native_trim(int folder) {
    const double most = cache_limit();
    double bytes;
    int count;
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0) close(fd);
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
