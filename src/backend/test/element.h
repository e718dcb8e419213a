/* element.h - loads and stores of single elements of any dtype, for kernels whose operands are not
 * converted to f64 and i64. */
#ifndef GRADUS_BACKEND_TEST_ELEMENT_H
#define GRADUS_BACKEND_TEST_ELEMENT_H

#include <math.h>
#include <string.h>

#include "core/half.h"
#include "core/float_to_int.h"
#include "gradus/extend.h"

static inline bool element_is_float(gd_dtype dtype) {
    return dtype == GD_F16 || dtype == GD_BF16 || dtype == GD_F32 || dtype == GD_F64;
}

static inline int64_t element_size(gd_dtype dtype) {
    switch (dtype) {
    case GD_F64:
    case GD_I64: return 8;
    case GD_F32:
    case GD_I32: return 4;
    case GD_F16:
    case GD_BF16: return 2;
    default: return 1;
    }
}

static inline double load_real(gd_dtype dtype, const void *p) {
    switch (dtype) {
    case GD_F64: return *(const double *)p;
    case GD_F32: return *(const float *)p;
    case GD_F16: return gd_f16_to_f32(*(const uint16_t *)p);
    case GD_BF16: return gd_bf16_to_f32(*(const uint16_t *)p);
    case GD_I64: return (double)*(const int64_t *)p;
    case GD_I32: return *(const int32_t *)p;
    case GD_I8: return *(const int8_t *)p;
    default: return *(const uint8_t *)p;
    }
}

static inline int64_t load_integer(gd_dtype dtype, const void *p) {
    switch (dtype) {
    case GD_I64: return *(const int64_t *)p;
    case GD_I32: return *(const int32_t *)p;
    case GD_I8: return *(const int8_t *)p;
    default: return *(const uint8_t *)p;
    }
}

/* Integers that do not fit wrap around. */
static inline void store_integer(gd_dtype dtype, void *p, int64_t v) {
    switch (dtype) {
    case GD_I64: *(int64_t *)p = v; break;
    case GD_I32: *(int32_t *)p = (int32_t)v; break;
    case GD_I8: *(int8_t *)p = (int8_t)v; break;
    case GD_U8: *(uint8_t *)p = (uint8_t)v; break;
    default: *(uint8_t *)p = v != 0; break;
    }
}

static inline void store_real(gd_dtype dtype, void *p, double v) {
    switch (dtype) {
    case GD_F64: *(double *)p = v; break;
    case GD_F32: *(float *)p = (float)v; break;
    case GD_F16: *(uint16_t *)p = gd_f32_to_f16((float)v); break;
    case GD_BF16: *(uint16_t *)p = gd_f32_to_bf16((float)v); break;
    case GD_I64: *(int64_t *)p = gd_f64_to_i64(v); break;
    case GD_I32: *(int32_t *)p = gd_f64_to_i32(v); break;
    case GD_I8: *(int8_t *)p = gd_f64_to_i8(v); break;
    case GD_U8: *(uint8_t *)p = gd_f64_to_u8(v); break;
    default: *(uint8_t *)p = v != 0; break;
    }
}

static inline int64_t count_elements(const gd_view *v) {
    int64_t count = 1;
    for (int i = 0; i < v->rank; i++) count *= v->dims[i];
    return count;
}

/* The address of element `number`, counted row-major over `dims`, in a view that is broadcast to
 * these dims. */
static inline char *element_at(const gd_view *v, int rank, const int64_t *dims, int64_t number) {
    int64_t at = 0;
    for (int d = rank; d-- > 0; number /= dims[d]) {
        const int k = d - (rank - v->rank);
        if (k >= 0 && v->dims[k] > 1) at += number % dims[d] * v->strides[k];
    }
    return (char *)v->data + at * element_size(v->dtype);
}

#endif
