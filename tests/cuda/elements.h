/* elements.h - elements of float tensors in memory, read and written as double. */
#ifndef GRADUS_TESTS_CUDA_ELEMENTS_H
#define GRADUS_TESTS_CUDA_ELEMENTS_H

#include <stdint.h>
#include <string.h>

#include "core/half.h"

enum element_type {
    ELEMENT_F64,
    ELEMENT_F32,
    ELEMENT_F16,
    ELEMENT_BF16,
    ELEMENT_I32,
    ELEMENT_NONE
};

static inline size_t element_bytes(element_type type) {
    return type == ELEMENT_F64 ? 8 : type == ELEMENT_F32 || type == ELEMENT_I32 ? 4 : 2;
}

template <typename T> static inline T load_bits(const void *p) {
    T x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline double load_element(element_type type, const void *p) {
    switch (type) {
    case ELEMENT_F64: return load_bits<double>(p);
    case ELEMENT_F32: return load_bits<float>(p);
    case ELEMENT_F16: return gd_f16_to_f32(load_bits<uint16_t>(p));
    case ELEMENT_BF16: return gd_bf16_to_f32(load_bits<uint16_t>(p));
    case ELEMENT_I32: return load_bits<int32_t>(p);
    default: return 0;
    }
}

/* Rounds to the type. */
static inline void store_element(element_type type, void *p, double value) {
    const float narrow = (float)value;
    const int32_t integer = type == ELEMENT_I32 ? (int32_t)value : 0;
    uint16_t bits;
    switch (type) {
    case ELEMENT_F64: memcpy(p, &value, 8); break;
    case ELEMENT_F32: memcpy(p, &narrow, 4); break;
    case ELEMENT_F16: bits = gd_f32_to_f16(narrow), memcpy(p, &bits, 2); break;
    case ELEMENT_BF16: bits = gd_f32_to_bf16(narrow), memcpy(p, &bits, 2); break;
    case ELEMENT_I32: memcpy(p, &integer, 4); break;
    default: break;
    }
}

#endif
