/* copy.h - elements from one view to another: any strides, any pair of dtypes. */
#ifndef GRADUS_CORE_COPY_H
#define GRADUS_CORE_COPY_H

#include "core/device.h"

/* dst and src have the same dims. Values convert as gradus/dtype.h says. */
void gd_copy_elements(const gd_view *dst, const gd_view *src);

/* n elements in a row. */
void gd_convert(gd_dtype to, void *dst, gd_dtype from, const void *src, int64_t n);

/* n elements at byte steps. */
void gd_convert_row(gd_dtype to, void *dst, int64_t dst_step, gd_dtype from, const void *src,
                    int64_t src_step, int64_t n);

/* One element. */
double gd_load_f64(gd_dtype dtype, const void *p);
int64_t gd_load_i64(gd_dtype dtype, const void *p);
void gd_store_f64(gd_dtype dtype, void *p, double value);
void gd_store_i64(gd_dtype dtype, void *p, int64_t value);

/* f16 and bf16 by bits; rounding to nearest even, NaN stays NaN, denormals are kept. */
float gd_f16_to_f32(uint16_t h);
uint16_t gd_f32_to_f16(float f);
static inline float gd_bf16_to_f32(uint16_t h) {
    union {
        uint32_t u;
        float f;
    } bits = {(uint32_t)h << 16};
    return bits.f;
}
static inline uint16_t gd_f32_to_bf16(float f) {
    union {
        float f;
        uint32_t u;
    } bits = {f};
    if ((bits.u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits.u >> 16) | 0x40u);
    return (uint16_t)((bits.u + 0x7fffu + ((bits.u >> 16) & 1u)) >> 16);
}

#endif
