/* data_files.h - writes gzip files for tests of datasets, and finds real datasets. */
#ifndef GRADUS_TESTS_UNIT_DATA_DATA_FILES_H
#define GRADUS_TESTS_UNIT_DATA_DATA_FILES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/bytes.h"
#include "format/crc32.h"

/* A gzip file with one member of stored (uncompressed) blocks. free() it. */
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

/* The folder of a real dataset: $GRADUS_DATA/NAME, or ../shared/data/NAME relative to the sources.
 * NULL: it does not exist. */
static inline const char *real_data(const char *name) {
    static char path[600];
    const char *from = getenv("GRADUS_DATA");
    if (from) snprintf(path, sizeof path, "%s/%s", from, name);
    else snprintf(path, sizeof path, "%s/../shared/data/%s", GRADUS_SOURCE, name);
    return access(path, R_OK) == 0 ? path : NULL;
}

#endif
