/* numbers.h - elements of float tensors in memory, read and written as double. */
#ifndef GRADUS_TESTS_CUDA_NUMBERS_H
#define GRADUS_TESTS_CUDA_NUMBERS_H

#include <stdint.h>
#include <string.h>

#include "core/half.h"

enum number_type { NUMBER_F64, NUMBER_F32, NUMBER_F16, NUMBER_BF16, NUMBER_I32, NUMBER_NONE };

static inline size_t number_bytes(number_type type) {
    return type == NUMBER_F64 ? 8 : type == NUMBER_F32 || type == NUMBER_I32 ? 4 : 2;
}

template <typename T> static inline T load_bits(const void *p) {
    T x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline double load_number(number_type type, const void *p) {
    switch (type) {
    case NUMBER_F64: return load_bits<double>(p);
    case NUMBER_F32: return load_bits<float>(p);
    case NUMBER_F16: return gd_f16_to_f32(load_bits<uint16_t>(p));
    case NUMBER_BF16: return gd_bf16_to_f32(load_bits<uint16_t>(p));
    case NUMBER_I32: return load_bits<int32_t>(p);
    default: return 0;
    }
}

/* Rounds to the type. */
static inline void store_number(number_type type, void *p, double value) {
    const float narrow = (float)value;
    const int32_t integer = type == NUMBER_I32 ? (int32_t)value : 0;
    uint16_t bits;
    switch (type) {
    case NUMBER_F64: memcpy(p, &value, 8); break;
    case NUMBER_F32: memcpy(p, &narrow, 4); break;
    case NUMBER_F16: bits = gd_f32_to_f16(narrow), memcpy(p, &bits, 2); break;
    case NUMBER_BF16: bits = gd_f32_to_bf16(narrow), memcpy(p, &bits, 2); break;
    case NUMBER_I32: memcpy(p, &integer, 4); break;
    default: break;
    }
}

#endif
