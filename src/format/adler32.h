/* adler32.h - Adler-32, the checksum of zlib streams. */
#ifndef GRADUS_FORMAT_ADLER32_H
#define GRADUS_FORMAT_ADLER32_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t gd_adler32(const void *data, size_t bytes) {
    enum { PRIME = 65521, SAFE = 5552 /* so many bytes cannot overflow the sums */ };
    const uint8_t *p = data;
    uint32_t a = 1, b = 0;
    while (bytes > 0) {
        const size_t n = bytes < SAFE ? bytes : SAFE;
        for (size_t i = 0; i < n; i++) b += a += p[i];
        a %= PRIME;
        b %= PRIME;
        p += n;
        bytes -= n;
    }
    return b << 16 | a;
}

#endif
