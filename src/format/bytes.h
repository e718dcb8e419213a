/* bytes.h - little-endian numbers in byte streams, on any machine and at any alignment. */
#ifndef GRADUS_FORMAT_BYTES_H
#define GRADUS_FORMAT_BYTES_H

#include <stdint.h>

static inline uint16_t gd_get_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static inline uint32_t gd_get_u32(const uint8_t *p) {
    return (uint32_t)gd_get_u16(p) | (uint32_t)gd_get_u16(p + 2) << 16;
}

static inline uint64_t gd_get_u64(const uint8_t *p) {
    return (uint64_t)gd_get_u32(p) | (uint64_t)gd_get_u32(p + 4) << 32;
}

/* Each returns the position after the bytes that it wrote. */
static inline uint8_t *gd_put_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    return p + 2;
}

static inline uint8_t *gd_put_u32(uint8_t *p, uint32_t v) {
    return gd_put_u16(gd_put_u16(p, (uint16_t)v), (uint16_t)(v >> 16));
}

static inline uint8_t *gd_put_u64(uint8_t *p, uint64_t v) {
    return gd_put_u32(gd_put_u32(p, (uint32_t)v), (uint32_t)(v >> 32));
}

#endif
