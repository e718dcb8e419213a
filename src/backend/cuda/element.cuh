/* element.cuh - elements of views, loops over them, and reports of bad data, for kernels. */
#ifndef GRADUS_BACKEND_CUDA_ELEMENT_CUH
#define GRADUS_BACKEND_CUDA_ELEMENT_CUH

#include "backend/cuda/device_code.cuh"
#include "backend/cuda/view.h"
#include "gradus/dtype.h"

/* for (EACH(i, count)): the indices of this thread, of all threads of the grid together 0 .. count-1. */
#define EACH(i, count)                                              \
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; \
    i < (long long)(count);                                         \
    i += (long long)gridDim.x * blockDim.x

/* Every kernel begins with this: it writes nothing while the error word is set. */
#define RETURN_IF_FAILED(call) \
    if ((call).word->number) return

/* Reports bad data, unless an earlier report is still unread. */
static __device__ __forceinline__ void report_problem(const gd_cuda_call &call, int problem,
                                                      long long element, long long a, long long b,
                                                      long long c, double real) {
    gd_cuda_word *w = call.word;
    if (atomicCAS(&w->number, 0ull, call.number ? call.number : ~0ull) != 0) return;
    w->run = w->current_run;
    w->problem = problem;
    w->element = element;
    w->values[0] = a;
    w->values[1] = b;
    w->values[2] = c;
    w->real = real;
}

static __device__ __forceinline__ bool is_float(int dtype) {
    return dtype == GD_F16 || dtype == GD_BF16 || dtype == GD_F32 || dtype == GD_F64;
}

/* The offset of element `number`, row-major over `dims`, in a view that is broadcast to them. */
static __device__ __forceinline__ long long offset_of(const gd_cuda_view &v, int rank,
                                                      const long long *dims, long long number) {
    long long at = 0;
    for (int d = rank - 1; d >= 0; d--) {
        const long long rest = number / dims[d], index = number - rest * dims[d];
        const int k = d - (rank - v.rank);
        if (k >= 0 && v.dims[k] > 1) at += index * v.strides[k];
        number = rest;
    }
    return at;
}
static __device__ __forceinline__ long long offset_of(const gd_cuda_view &v, long long number) {
    return offset_of(v, v.rank, v.dims, number);
}

/* Elements of any dtype. */
static __device__ __forceinline__ double load_real(int dtype, const void *p, long long i) {
    switch (dtype) {
    case GD_F64: return ((const double *)p)[i];
    case GD_F32: return ((const float *)p)[i];
    case GD_F16: return gd_f16_to_f32(((const uint16_t *)p)[i]);
    case GD_BF16: return gd_bf16_to_f32(((const uint16_t *)p)[i]);
    case GD_I64: return (double)((const int64_t *)p)[i];
    case GD_I32: return ((const int32_t *)p)[i];
    case GD_I8: return ((const int8_t *)p)[i];
    default: return ((const uint8_t *)p)[i];
    }
}
static __device__ __forceinline__ int64_t load_integer(int dtype, const void *p, long long i) {
    switch (dtype) {
    case GD_I64: return ((const int64_t *)p)[i];
    case GD_I32: return ((const int32_t *)p)[i];
    case GD_I8: return ((const int8_t *)p)[i];
    case GD_U8:
    case GD_BOOL: return ((const uint8_t *)p)[i];
    default: return gd_f64_to_i64(load_real(dtype, p, i));
    }
}
/* Integers wrap. */
static __device__ __forceinline__ void store_integer(int dtype, void *p, long long i, int64_t x) {
    switch (dtype) {
    case GD_F64: ((double *)p)[i] = (double)x; break;
    case GD_F32: ((float *)p)[i] = (float)x; break;
    case GD_F16: ((uint16_t *)p)[i] = gd_f32_to_f16((float)x); break;
    case GD_BF16: ((uint16_t *)p)[i] = gd_f32_to_bf16((float)x); break;
    case GD_I64: ((int64_t *)p)[i] = x; break;
    case GD_I32: ((int32_t *)p)[i] = (int32_t)x; break;
    case GD_I8: ((int8_t *)p)[i] = (int8_t)x; break;
    case GD_U8: ((uint8_t *)p)[i] = (uint8_t)x; break;
    default: ((uint8_t *)p)[i] = x != 0; break;
    }
}
static __device__ __forceinline__ void store_real(int dtype, void *p, long long i, double x) {
    switch (dtype) {
    case GD_F64: ((double *)p)[i] = x; break;
    case GD_F32: ((float *)p)[i] = (float)x; break;
    case GD_F16: ((uint16_t *)p)[i] = gd_f32_to_f16((float)x); break;
    case GD_BF16: ((uint16_t *)p)[i] = gd_f32_to_bf16((float)x); break;
    case GD_I64: ((int64_t *)p)[i] = gd_f64_to_i64(x); break;
    case GD_I32: ((int32_t *)p)[i] = gd_f64_to_i32(x); break;
    case GD_I8: ((int8_t *)p)[i] = gd_f64_to_i8(x); break;
    case GD_U8: ((uint8_t *)p)[i] = gd_f64_to_u8(x); break;
    default: ((uint8_t *)p)[i] = x != 0; break;
    }
}
/* Converts an element as the library's copies do. */
static __device__ __forceinline__ void convert_element(int to_dtype, void *to, long long i,
                                                       int from_dtype, const void *from,
                                                       long long k) {
    if (is_float(from_dtype)) store_real(to_dtype, to, i, load_real(from_dtype, from, k));
    else store_integer(to_dtype, to, i, load_integer(from_dtype, from, k));
}

#endif
