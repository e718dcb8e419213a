/* typed.cuh - elements as C++ types, for kernels with code for each dtype. */
#ifndef GRADUS_BACKEND_CUDA_TYPED_CUH
#define GRADUS_BACKEND_CUDA_TYPED_CUH

#include "backend/cuda/element.cuh"

struct f16_element {
    uint16_t bits;
};
struct bf16_element {
    uint16_t bits;
};

/* The value of an element in the type that computes it: float, double or long long. */
static __device__ __forceinline__ float widen(f16_element x) { return gd_f16_to_f32(x.bits); }
static __device__ __forceinline__ float widen(bf16_element x) { return gd_bf16_to_f32(x.bits); }
static __device__ __forceinline__ float widen(float x) { return x; }
static __device__ __forceinline__ double widen(double x) { return x; }
static __device__ __forceinline__ long long widen(int64_t x) { return x; }
static __device__ __forceinline__ long long widen(int32_t x) { return x; }
static __device__ __forceinline__ long long widen(int8_t x) { return x; }
static __device__ __forceinline__ long long widen(uint8_t x) { return x; }

template <typename T> struct wide_type { typedef long long type; };
template <> struct wide_type<f16_element> { typedef float type; };
template <> struct wide_type<bf16_element> { typedef float type; };
template <> struct wide_type<float> { typedef float type; };
template <> struct wide_type<double> { typedef double type; };

/* Stores a wide value; the dtype is of the same kind (integer or float). */
static __device__ __forceinline__ void store_wide(int dtype, void *p, long long i, double x) {
    store_real(dtype, p, i, x);
}
static __device__ __forceinline__ void store_wide(int dtype, void *p, long long i, float x) {
    store_real(dtype, p, i, x);
}
static __device__ __forceinline__ void store_wide(int dtype, void *p, long long i, long long x) {
    store_integer(dtype, p, i, x);
}

/* WITH_ELEMENT_TYPE(dtype, f<T>(x)): the statement, with T the type of the dtype's elements. */
#define WITH_ELEMENT_TYPE(dtype, ...)                                  \
    switch (dtype) {                                                   \
    case GD_F64: ELEMENT_TYPE_CASE(double, __VA_ARGS__)                \
    case GD_F32: ELEMENT_TYPE_CASE(float, __VA_ARGS__)                 \
    case GD_F16: ELEMENT_TYPE_CASE(f16_element, __VA_ARGS__)           \
    case GD_BF16: ELEMENT_TYPE_CASE(bf16_element, __VA_ARGS__)         \
    case GD_I64: ELEMENT_TYPE_CASE(int64_t, __VA_ARGS__)               \
    case GD_I32: ELEMENT_TYPE_CASE(int32_t, __VA_ARGS__)               \
    case GD_I8: ELEMENT_TYPE_CASE(int8_t, __VA_ARGS__)                 \
    default: ELEMENT_TYPE_CASE(uint8_t, __VA_ARGS__) /* u8 and bool */ \
    }
#define ELEMENT_TYPE_CASE(type, ...) \
    {                                \
        typedef type T;              \
        __VA_ARGS__;                 \
        break;                       \
    }

#endif
