/* index_rows.isa.c - the loops of index_rows.h, which the compiler vectorizes. */
#include "ops/index/cpu/index_rows.h"

#include <string.h>

#define DEFINE_ADD_ROW(T, E)                                                        \
    void GD_ISA_FN(gd_add_row_##T)(E *restrict y, const E *restrict x, int64_t n) { \
        for (int64_t i = 0; i < n; i++) y[i] += x[i];                               \
    }
DEFINE_ADD_ROW(f32, float)
DEFINE_ADD_ROW(f64, double)

#define DEFINE_OFFSETS(T, I)                                                               \
    bool GD_ISA_FN(gd_index_offsets_##T)(const I *restrict index, int64_t n, int64_t size, \
                                         int64_t step, int64_t *restrict offsets) {        \
        uint64_t outside = 0;                                                              \
        if (step == 1)                                                                     \
            for (int64_t i = 0; i < n; i++) {                                              \
                int64_t at = index[i];                                                     \
                outside |= (uint64_t)at | ((uint64_t)(size - 1) - (uint64_t)at);           \
                offsets[i] = at;                                                           \
            }                                                                              \
        else                                                                               \
            for (int64_t i = 0; i < n; i++) {                                              \
                int64_t at = index[i];                                                     \
                outside |= (uint64_t)at | ((uint64_t)(size - 1) - (uint64_t)at);           \
                offsets[i] = (int64_t)((uint64_t)at * (uint64_t)step);                     \
            }                                                                              \
        return outside >> 63 == 0; /* the sign of at, or of size - 1 - at */               \
    }
DEFINE_OFFSETS(i32, int32_t)
DEFINE_OFFSETS(i64, int64_t)

void GD_ISA_FN(gd_gather_row)(size_t size, void *restrict y, const void *restrict x, int64_t step,
                              const int64_t *restrict offsets, int64_t n) {
#define GATHER(T)                                                                 \
    if (step == 0)                                                                \
        for (int64_t i = 0; i < n; i++) ((T *)y)[i] = ((const T *)x)[offsets[i]]; \
    else                                                                          \
        for (int64_t i = 0; i < n; i++) ((T *)y)[i] = ((const T *)x)[i * step + offsets[i]]
    switch (size) {
    case 1: GATHER(uint8_t); break;
    case 2: GATHER(uint16_t); break;
    case 4: GATHER(uint32_t); break;
    default: GATHER(uint64_t); break;
    }
#undef GATHER
}

void GD_ISA_FN(gd_sort_keys_f32)(const float *restrict x, int64_t n, uint32_t mask,
                                 uint32_t *restrict keys) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits, key;
        memcpy(&bits, x + i, 4);
        bits = bits == 0x80000000u ? 0 : bits;
        key = bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u);
        key = (bits & 0x7fffffffu) > 0x7f800000u ? UINT32_MAX : key;
        keys[i] = key ^ mask;
    }
}

bool GD_ISA_FN(gd_any_key_below)(const uint32_t *keys, int64_t n, uint32_t limit) {
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++) any |= keys[i] < limit;
    return any != 0;
}
