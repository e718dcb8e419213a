/* pack.cuh - vectors of 16 bytes, conversions of floats by the hardware, and sums over the threads
 * of a block, for kernels that are bound by the memory's bandwidth. */
#ifndef GRADUS_BACKEND_CUDA_PACK_CUH
#define GRADUS_BACKEND_CUDA_PACK_CUH

#include "backend/cuda/typed.cuh"

/* --- conversions ------------------------------------------------------------------------------ */

static __device__ __forceinline__ float widen_bits(f16_element, unsigned bits) {
#ifdef __CUDA_ARCH__
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
    return x;
#else
    return gd_f16_to_f32((uint16_t)bits);
#endif
}
static __device__ __forceinline__ float widen_bits(bf16_element, unsigned bits) {
    return __int_as_float((int)(bits << 16));
}

/* Two floats as two 16-bit elements: the first in the low half. */
static __device__ __forceinline__ unsigned narrow_two(f16_element, float low, float high) {
#ifdef __CUDA_ARCH__
    unsigned bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
#else
    return gd_f32_to_f16(low) | (unsigned)gd_f32_to_f16(high) << 16;
#endif
}
static __device__ __forceinline__ unsigned narrow_two(bf16_element, float low, float high) {
#ifdef __CUDA_ARCH__
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
#else
    return gd_f32_to_bf16(low) | (unsigned)gd_f32_to_bf16(high) << 16;
#endif
}

static __device__ __forceinline__ void narrow(float &to, float x) { to = x; }
static __device__ __forceinline__ void narrow(double &to, double x) { to = x; }
static __device__ __forceinline__ void narrow(f16_element &to, float x) {
    to.bits = (uint16_t)narrow_two(f16_element{}, x, 0);
}
static __device__ __forceinline__ void narrow(bf16_element &to, float x) {
    to.bits = (uint16_t)narrow_two(bf16_element{}, x, 0);
}

/* --- vectors ---------------------------------------------------------------------------------- */

/* The elements of type T in 16 bytes. */
template <typename T> struct pack_size {
    enum { value = 16 / sizeof(T) };
};

static __device__ __forceinline__ void unpack(const uint4 &v, float *to, float) {
    to[0] = __int_as_float((int)v.x), to[1] = __int_as_float((int)v.y);
    to[2] = __int_as_float((int)v.z), to[3] = __int_as_float((int)v.w);
}
static __device__ __forceinline__ void unpack(const uint4 &v, double *to, double) {
    to[0] = __longlong_as_double((long long)((unsigned long long)v.y << 32 | v.x));
    to[1] = __longlong_as_double((long long)((unsigned long long)v.w << 32 | v.z));
}
template <typename T> static __device__ __forceinline__ void unpack(const uint4 &v, float *to, T) {
    const unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = widen_bits(T{}, words[i] & 0xffffu);
        to[2 * i + 1] = widen_bits(T{}, words[i] >> 16);
    }
}

static __device__ __forceinline__ uint4 pack(const float *x, float) {
    return uint4{(unsigned)__float_as_int(x[0]), (unsigned)__float_as_int(x[1]),
                 (unsigned)__float_as_int(x[2]), (unsigned)__float_as_int(x[3])};
}
static __device__ __forceinline__ uint4 pack(const double *x, double) {
    const unsigned long long a = (unsigned long long)__double_as_longlong(x[0]),
                             b = (unsigned long long)__double_as_longlong(x[1]);
    return uint4{(unsigned)a, (unsigned)(a >> 32), (unsigned)b, (unsigned)(b >> 32)};
}
template <typename T> static __device__ __forceinline__ uint4 pack(const float *x, T) {
    return uint4{narrow_two(T{}, x[0], x[1]), narrow_two(T{}, x[2], x[3]),
                 narrow_two(T{}, x[4], x[5]), narrow_two(T{}, x[6], x[7])};
}

/* N neighbouring elements, as they lie in memory: one, or those of 16 aligned bytes. A kernel
 * loads several vectors before it converts them, so that the loads overlap. */
template <typename T, int N> struct raw_vector {
    typedef typename wide_type<T>::type W;
    uint4 bits;
    __device__ __forceinline__ void load(const T *p) { bits = *(const uint4 *)p; }
    __device__ __forceinline__ void widen_to(W *to) const { unpack(bits, to, T{}); }
    static __device__ __forceinline__ void store(T *p, const W *x) { *(uint4 *)p = pack(x, T{}); }
};
template <typename T> struct raw_vector<T, 1> {
    typedef typename wide_type<T>::type W;
    T element;
    __device__ __forceinline__ void load(const T *p) { element = *p; }
    __device__ __forceinline__ void widen_to(W *to) const { to[0] = widen(element); }
    static __device__ __forceinline__ void store(T *p, const W *x) { narrow(*p, x[0]); }
};

/* WITH_FLOAT_TYPE(dtype, f<T>(x)): the statement, with T the type of a float dtype's elements. */
#define WITH_FLOAT_TYPE(dtype, ...)                          \
    switch (dtype) {                                         \
    case GD_F64: ELEMENT_TYPE_CASE(double, __VA_ARGS__)      \
    case GD_F32: ELEMENT_TYPE_CASE(float, __VA_ARGS__)       \
    case GD_F16: ELEMENT_TYPE_CASE(f16_element, __VA_ARGS__) \
    default: ELEMENT_TYPE_CASE(bf16_element, __VA_ARGS__)    \
    }

/* --- arithmetic of both wide types ------------------------------------------------------------ */

static __device__ __forceinline__ float multiply_add(float a, float b, float c) {
    return fmaf(a, b, c);
}
static __device__ __forceinline__ double multiply_add(double a, double b, double c) {
    return fma(a, b, c);
}
static __device__ __forceinline__ float exp_of(float x) { return expf(x); }
static __device__ __forceinline__ double exp_of(double x) { return exp(x); }
static __device__ __forceinline__ float log_of(float x) { return logf(x); }
static __device__ __forceinline__ double log_of(double x) { return log(x); }

/* The sum over `lanes` neighbouring threads, a power of two up to 32, in all of them. */
template <typename W> static __device__ __forceinline__ W sum_of_lanes(W x, int lanes) {
    for (int d = lanes / 2; d > 0; d /= 2) x += __shfl_xor_sync(~0u, x, d);
    return x;
}

/* The sums over a block of `threads` threads, a multiple of 32 up to 1024, in all of them.
 * `shared` has 32 elements. */
template <typename W>
static __device__ __forceinline__ W sum_of_block(W x, W *shared, int threads) {
    x = sum_of_lanes(x, 32);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < threads / 32; i++) x += shared[i];
    return x;
}

#endif
