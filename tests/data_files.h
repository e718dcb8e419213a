/* data_files.h - files for tests of datasets: a folder of their own, and real data where it is. */
#ifndef GRADUS_TESTS_DATA_FILES_H
#define GRADUS_TESTS_DATA_FILES_H

#include <errno.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/bytes.h"
#include "format/crc32.h"
#include "test.h"

/* A folder for this process, removed when it ends. */
static inline const char *test_folder(void);
static inline void remove_test_folder(void) {
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", test_folder());
    if (system(command) != 0) fprintf(stderr, "%s is left behind\n", test_folder());
}
static inline const char *test_folder(void) {
    static char folder[300];
    if (!*folder) {
        snprintf(folder, sizeof folder, "%s/gradus-data-%ld",
                 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (long)getpid());
        if (mkdir(folder, 0777) != 0 && errno != EEXIST) perror(folder), abort();
        atexit(remove_test_folder);
    }
    return folder;
}

/* The path of a file in it; sixteen live at a time. */
static inline const char *test_path(const char *name) {
    static char paths[16][400];
    static int next;
    char *path = paths[next++ & 15];
    snprintf(path, sizeof paths[0], "%s/%s", test_folder(), name);
    return path;
}

static inline const char *test_write(const char *name, const void *data, size_t bytes) {
    const char *path = test_path(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) perror(path), abort();
    return path;
}
static inline const char *test_write_text(const char *name, const char *text) {
    return test_write(name, text, strlen(text));
}

static inline uint8_t *test_read(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*bytes + 1);
    if (fread(data, 1, *bytes, f) != *bytes) abort();
    fclose(f);
    return data;
}

/* A gzip file of stored blocks, of one member; free() it. */
static inline uint8_t *test_gzip(const void *data, size_t bytes, size_t *size) {
    uint8_t *out = malloc(bytes + 5 * (bytes / 65535 + 1) + 18), *p = out;
    const uint8_t *from = data;
    memcpy(p, "\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
    p += 10;
    for (size_t left = bytes;;) {
        const size_t n = left < 65535 ? left : 65535;
        *p++ = left == n;
        p = gd_put_u16(p, (uint16_t)n);
        p = gd_put_u16(p, (uint16_t)~n);
        memcpy(p, from, n);
        p += n;
        from += n;
        left -= n;
        if (left == 0) break;
    }
    p = gd_put_u32(p, gd_crc32(0, data, bytes));
    p = gd_put_u32(p, (uint32_t)bytes);
    *size = (size_t)(p - out);
    return out;
}

/* A folder of the real data: $GRADUS_DATA/NAME, or shared/data/NAME beside the sources; NULL: not here. */
static inline const char *real_data(const char *name) {
    static char path[600];
    const char *from = getenv("GRADUS_DATA");
    if (from) snprintf(path, sizeof path, "%s/%s", from, name);
    else snprintf(path, sizeof path, "%s/../shared/data/%s", GRADUS_SOURCE, name);
    return access(path, R_OK) == 0 ? path : NULL;
}

#endif
