/* expression.cuh - loops of kernels that compute an expression for each element.
 *
 * The printer (codegen/dialect_cuda.c) writes an expression as a struct E with the members
 *
 *     typedef ... type;           the compute type: s_f32, s_f64, s_i32 or s_i64
 *     INPUTS, OUTPUTS, PARAMS     numbers of operands and parameters
 *     USED                        bit k: variable k is read
 *     UNROLL                      vectors of a thread
 *     dtype(k, dtypes)            the dtype of operand k; static if the kernel was compiled for it
 *     ANY                         the dtypes are static, so vectors can have any of them
 *     E(const unsigned long long *words), operator()(const type *v, type *o)
 *
 * and a kernel that calls run_vectors, run_elements or run_list with it. Loads of all vectors of a
 * thread precede their use, so that they are in flight together. This file is also part of the text
 * that precedes kernels compiled at run time.
 */
#ifndef GRADUS_BACKEND_CUDA_EXPRESSION_CUH
#define GRADUS_BACKEND_CUDA_EXPRESSION_CUH

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define inline __device__ __forceinline__
#include "core/float_to_int.h"
#include "core/half.h"
#include "codegen/scalar_args.h"
#include "codegen/scalar_math.h"
#undef inline
#include "backend/cuda/expression_args.h"

#define E_FN static __device__ __forceinline__

/* gd_dtype (gradus/dtype.h) */
enum { E_BOOL = 1, E_U8, E_I8, E_I32, E_I64, E_F16, E_BF16, E_F32, E_F64 };

/* --- halves ----------------------------------------------------------------------------------- */

/* The device converts with one instruction. It rounds as core/half.h does; only the bits of NaN
 * differ. */
E_FN float float_of_bits(unsigned bits) { return __int_as_float((int)bits); }
E_FN unsigned bits_of_float(float x) { return (unsigned)__float_as_int(x); }

#ifdef __CUDA_ARCH__
E_FN float float_of_f16(unsigned bits) {
    float x;
    asm("{.reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h;}" : "=f"(x) : "r"(bits & 0xffffu));
    return x;
}
/* Two halves, the first in the low bits. */
E_FN unsigned f16_pair(float low, float high) {
    unsigned bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
E_FN unsigned bf16_pair(float low, float high) {
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
#else
E_FN float float_of_f16(unsigned bits) { return gd_f16_to_f32((uint16_t)bits); }
E_FN unsigned f16_pair(float low, float high) {
    return gd_f32_to_f16(low) | (unsigned)gd_f32_to_f16(high) << 16;
}
E_FN unsigned bf16_pair(float low, float high) {
    return gd_f32_to_bf16(low) | (unsigned)gd_f32_to_bf16(high) << 16;
}
#endif

/* --- single elements -------------------------------------------------------------------------- */

/* load_element<T>(dtype, p, i) and store_element(dtype, p, i, x) for elements of any dtype; the
 * forms _call are functions that are not inlined, for dtypes that are not static. */
template <typename T> E_FN T load_element(int dtype, const void *p, long long i);

#define E_ELEMENTS(T)                                                                             \
    template <>                                                                                   \
    __device__ __forceinline__ s_##T load_element<s_##T>(int dtype, const void *p, long long i) { \
        switch (dtype) {                                                                          \
        case E_BOOL: return s_load_bool_##T(p, i);                                                \
        case E_U8: return s_load_u8_##T(p, i);                                                    \
        case E_I8: return s_load_i8_##T(p, i);                                                    \
        case E_I32: return s_load_i32_##T(p, i);                                                  \
        case E_I64: return s_load_i64_##T(p, i);                                                  \
        case E_F16: return s_from_f32_##T(float_of_f16(((const uint16_t *)p)[i]));                \
        case E_BF16: return s_load_bf16_##T(p, i);                                                \
        case E_F32: return s_load_f32_##T(p, i);                                                  \
        default: return s_load_f64_##T(p, i);                                                     \
        }                                                                                         \
    }                                                                                             \
    E_FN void store_element(int dtype, void *p, long long i, s_##T x) {                           \
        switch (dtype) {                                                                          \
        case E_BOOL: s_store_##T##_bool(p, i, x); break;                                          \
        case E_U8: s_store_##T##_u8(p, i, x); break;                                              \
        case E_I8: s_store_##T##_i8(p, i, x); break;                                              \
        case E_I32: s_store_##T##_i32(p, i, x); break;                                            \
        case E_I64: s_store_##T##_i64(p, i, x); break;                                            \
        case E_F16: ((uint16_t *)p)[i] = (uint16_t)f16_pair((float)x, 0); break;                  \
        case E_BF16: ((uint16_t *)p)[i] = (uint16_t)bf16_pair((float)x, 0); break;                \
        case E_F32: s_store_##T##_f32(p, i, x); break;                                            \
        default: s_store_##T##_f64(p, i, x); break;                                               \
        }                                                                                         \
    }
E_ELEMENTS(f32)
E_ELEMENTS(f64)
E_ELEMENTS(i32)
E_ELEMENTS(i64)
#undef E_ELEMENTS

template <typename T>
static __device__ __noinline__ T load_element_call(int dtype, const void *p, long long i) {
    return load_element<T>(dtype, p, i);
}
template <typename T>
static __device__ __noinline__ void store_element_call(int dtype, void *p, long long i, T x) {
    store_element(dtype, p, i, x);
}

template <typename T> struct own_dtype; /* of a compute type */
template <> struct own_dtype<s_f32> {
    enum { value = E_F32 };
};
template <> struct own_dtype<s_f64> {
    enum { value = E_F64 };
};
template <> struct own_dtype<s_i32> {
    enum { value = E_I32 };
};
template <> struct own_dtype<s_i64> {
    enum { value = E_I64 };
};

/* An element of a kernel whose dtypes are static (ANY) or not. */
template <typename T, bool ANY> E_FN T load_one(int dtype, const void *p, long long i) {
    if (ANY) return load_element<T>(dtype, p, i);
    if (dtype == own_dtype<T>::value) return ((const T *)p)[i];
    return load_element_call<T>(dtype, p, i);
}
template <typename T, bool ANY> E_FN void store_one(int dtype, void *p, long long i, T x) {
    if (ANY) store_element(dtype, p, i, x);
    else if (dtype == own_dtype<T>::value) ((T *)p)[i] = x;
    else store_element_call<T>(dtype, p, i, x);
}

/* --- vectors ---------------------------------------------------------------------------------- */

E_FN constexpr int dtype_bytes(int dtype) {
    return dtype == E_F32 || dtype == E_I32    ? 4
           : dtype == E_F16 || dtype == E_BF16 ? 2
           : dtype == E_F64 || dtype == E_I64  ? 8
                                               : 1;
}

/* The bits of four elements of up to 4 bytes, or of up to 8 (ANY). */
template <bool ANY> struct vector_bits { unsigned w[ANY ? 8 : 4]; };

/* Whether vectors of this dtype can be loaded if the dtypes are not static; then the compute type
 * is f32. The host checks it, too. */
E_FN bool is_vector_dtype(int dtype) {
    return dtype == E_F32 || dtype == E_F16 || dtype == E_BF16 || dtype == E_BOOL;
}

/* Vector number i. The address is computed once, so that each size is one predicated load. */
template <bool ANY> E_FN vector_bits<ANY> load_vector(int dtype, const void *p, long long i) {
    vector_bits<ANY> r;
    const int bytes = ANY               ? GD_CUDA_VECTOR * dtype_bytes(dtype)
                      : dtype == E_F32  ? 16
                      : dtype == E_BOOL ? 4
                                        : 8;
    const char *from = (const char *)p + i * bytes;
    if (bytes == 16) {
        const uint4 x = *(const uint4 *)from;
        r.w[0] = x.x, r.w[1] = x.y, r.w[2] = x.z, r.w[3] = x.w;
    } else if (bytes == 8) {
        const uint2 x = *(const uint2 *)from;
        r.w[0] = x.x, r.w[1] = x.y;
    } else if (!ANY || bytes == 4) {
        r.w[0] = *(const unsigned *)from;
    } else if constexpr (ANY) {
        const uint4 x = ((const uint4 *)from)[0], y = ((const uint4 *)from)[1];
        r.w[0] = x.x, r.w[1] = x.y, r.w[2] = x.z, r.w[3] = x.w;
        r.w[4] = y.x, r.w[5] = y.y, r.w[6] = y.z, r.w[7] = y.w;
    }
    return r;
}

/* A vector of equal elements. If the dtypes are not static, it is one of f32. */
template <typename T, bool ANY>
E_FN vector_bits<ANY> load_broadcast(int dtype, const void *p, long long i) {
    vector_bits<ANY> r;
    const int bytes = dtype_bytes(dtype);
    if constexpr (!ANY) {
        r.w[0] = r.w[1] = r.w[2] = r.w[3] = bits_of_float((float)load_one<T, ANY>(dtype, p, i));
    } else if (bytes == 4) {
        r.w[0] = r.w[1] = r.w[2] = r.w[3] = ((const unsigned *)p)[i];
    } else if (bytes == 2) {
        r.w[0] = r.w[1] = ((const uint16_t *)p)[i] * 0x10001u;
    } else if (bytes == 1) {
        r.w[0] = ((const uint8_t *)p)[i] * 0x1010101u;
    } else {
        const uint2 x = ((const uint2 *)p)[i];
        for (int k = 0; k < 4; k++) r.w[2 * k] = x.x, r.w[2 * k + 1] = x.y;
    }
    return r;
}

template <typename T> E_FN T from_float(float x) { return load_element<T>(E_F32, &x, 0); }

/* The elements of a vector as values of the compute type. */
template <typename T, bool ANY>
E_FN void unpack_vector(const vector_bits<ANY> &r, int dtype, T *x) {
    if (dtype == E_F16) {
        for (int k = 0; k < 4; k++)
            x[k] = from_float<T>(float_of_f16(r.w[k / 2] >> 16 * (k % 2) & 0xffffu));
    } else if (dtype == E_BF16) {
        for (int k = 0; k < 4; k++)
            x[k] =
                from_float<T>(float_of_bits(k % 2 ? r.w[k / 2] & 0xffff0000u : r.w[k / 2] << 16));
    } else if (dtype == E_BOOL) {
        for (int k = 0; k < 4; k++) x[k] = (T)((r.w[0] >> 8 * k & 0xffu) != 0);
    } else if (ANY && dtype == E_U8) {
        for (int k = 0; k < 4; k++) x[k] = (T)(uint8_t)(r.w[0] >> 8 * k);
    } else if (ANY && dtype == E_I8) {
        for (int k = 0; k < 4; k++) x[k] = (T)(int8_t)(r.w[0] >> 8 * k);
    } else if (ANY && dtype == E_I32) {
        for (int k = 0; k < 4; k++) x[k] = (T)(int32_t)r.w[k];
    } else if (ANY && (dtype == E_I64 || dtype == E_F64)) {
        if constexpr (ANY)
            for (int k = 0; k < 4; k++) {
                const uint64_t wide = r.w[2 * k] | (uint64_t)r.w[2 * k + 1] << 32;
                x[k] = load_element<T>(dtype == E_I64 ? E_I64 : E_F64, &wide, 0);
            }
    } else {
        for (int k = 0; k < 4; k++) x[k] = from_float<T>(float_of_bits(r.w[k]));
    }
}

template <typename T, bool ANY>
E_FN void store_vector(int dtype, void *p, long long i, const T *x) {
    if (dtype == E_F16) {
        ((uint2 *)p)[i] = {f16_pair((float)x[0], (float)x[1]), f16_pair((float)x[2], (float)x[3])};
    } else if (dtype == E_BF16) {
        ((uint2 *)p)[i] = {bf16_pair((float)x[0], (float)x[1]),
                           bf16_pair((float)x[2], (float)x[3])};
    } else if (dtype_bytes(dtype) == 1) {
        uint8_t b[4];
        for (int k = 0; k < 4; k++) store_element(ANY ? dtype : (int)E_BOOL, b, k, x[k]);
        ((unsigned *)p)[i] =
            b[0] | (unsigned)b[1] << 8 | (unsigned)b[2] << 16 | (unsigned)b[3] << 24;
    } else if (ANY && dtype_bytes(dtype) == 8) {
        long long b[4];
        for (int k = 0; k < 4; k++) store_element(dtype, b, k, x[k]);
        ((ulonglong2 *)p)[2 * i] = {(unsigned long long)b[0], (unsigned long long)b[1]};
        ((ulonglong2 *)p)[2 * i + 1] = {(unsigned long long)b[2], (unsigned long long)b[3]};
    } else {
        unsigned b[4];
        for (int k = 0; k < 4; k++) store_element(ANY ? dtype : (int)E_F32, b, k, x[k]);
        ((uint4 *)p)[i] = {b[0], b[1], b[2], b[3]};
    }
}

/* --- the loops -------------------------------------------------------------------------------- */

E_FN unsigned divide(unsigned n, const gd_cuda_divisor &d) {
    return ((unsigned)((unsigned long long)n * d.magic >> 32) + n) >> d.shift;
}

E_FN void *address_of(unsigned long long word) { return (void *)(uintptr_t)word; }

template <class E> struct vector_arguments {
    enum { N = E::INPUTS + E::OUTPUTS, P = E::PARAMS };
    gd_cuda_vector_head head;
    unsigned long long words[2 * N + P];
};
template <class E> struct general_arguments {
    enum { N = E::INPUTS + E::OUTPUTS, P = E::PARAMS };
    gd_cuda_general_head head;
    unsigned long long words[N + P + N * GD_CUDA_EXPRESSION_RANK];
};
struct list_arguments {
    gd_cuda_list_head head;
    unsigned long long words[GD_CUDA_LIST_WORDS];
};

/* The vectors of a thread: loads, then computes, then stores. `at(u, k)` is the number of vector u
 * in operand k, or of its element if the operand is broadcast; `data(k)` its address. */
template <class E, int U, class AT, class DATA>
E_FN void compute_vectors(const E &expression, unsigned long long dtypes, unsigned broadcast,
                          const bool *valid, AT at, DATA data) {
    typedef typename E::type T;
    constexpr bool ANY = E::ANY;
    vector_bits<ANY> in[U][E::INPUTS ? E::INPUTS : 1];
#pragma unroll
    for (int u = 0; u < U; u++) {
        if (!valid[u]) continue;
#pragma unroll
        for (int k = 0; k < E::INPUTS; k++) {
            if (!(E::USED >> k & 1)) continue;
            const int dtype = E::dtype(k, dtypes);
            in[u][k] = broadcast >> k & 1 ? load_broadcast<T, ANY>(dtype, data(k), at(u, k))
                                          : load_vector<ANY>(dtype, data(k), at(u, k));
        }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        if (!valid[u]) continue;
        T result[E::OUTPUTS][GD_CUDA_VECTOR];
        T x[GD_CUDA_VECTOR][E::INPUTS ? E::INPUTS : 1];
#pragma unroll
        for (int k = 0; k < E::INPUTS; k++) {
            if (!(E::USED >> k & 1)) continue;
            T unpacked[GD_CUDA_VECTOR];
            const bool is_f32 = !ANY && (broadcast >> k & 1);
            unpack_vector<T, ANY>(in[u][k], is_f32 ? (int)E_F32 : E::dtype(k, dtypes), unpacked);
#pragma unroll
            for (int e = 0; e < GD_CUDA_VECTOR; e++) x[e][k] = unpacked[e];
        }
#pragma unroll
        for (int e = 0; e < GD_CUDA_VECTOR; e++) {
            T o[E::OUTPUTS];
            expression(x[e], o);
#pragma unroll
            for (int k = 0; k < E::OUTPUTS; k++) result[k][e] = o[k];
        }
#pragma unroll
        for (int k = 0; k < E::OUTPUTS; k++) {
            const int n = E::INPUTS + k;
            if (!(broadcast >> n & 1))
                store_vector<T, ANY>(E::dtype(n, dtypes), data(n), at(u, n), result[k]);
        }
    }
}

/* One element, at offset at(k) of operand k. */
template <class E, class AT, class DATA>
E_FN void compute_element(const E &expression, unsigned long long dtypes, unsigned absent, AT at,
                          DATA data) {
    typedef typename E::type T;
    T x[E::INPUTS ? E::INPUTS : 1], o[E::OUTPUTS];
#pragma unroll
    for (int k = 0; k < E::INPUTS; k++)
        if (E::USED >> k & 1) x[k] = load_one<T, E::ANY>(E::dtype(k, dtypes), data(k), at(k));
    expression(x, o);
#pragma unroll
    for (int k = 0; k < E::OUTPUTS; k++)
        if (!(absent >> (E::INPUTS + k) & 1))
            store_one<T, E::ANY>(E::dtype(E::INPUTS + k, dtypes), data(E::INPUTS + k),
                                 at(E::INPUTS + k), o[k]);
}

template <class E> E_FN void run_vectors(const vector_arguments<E> &a) {
    enum { N = E::INPUTS + E::OUTPUTS, U = E::UNROLL, THREADS = GD_CUDA_EXPRESSION_THREADS };
    const gd_cuda_vector_head &h = a.head;
    if (h.word->number) return;
    const E expression(a.words + N);
    const long long vectors = h.count / GD_CUDA_VECTOR,
                    first = (long long)blockIdx.x * (U * THREADS) + threadIdx.x;
    const auto data = [&](int k) { return address_of(a.words[k]); };
    const bool has_rows = h.inner.by != 0;
    bool valid[U];
    long long column[U];
    unsigned middle[U], outer[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
        column[u] = first + u * THREADS;
        middle[u] = outer[u] = 0;
        valid[u] = column[u] < vectors;
        if (has_rows) {
            const unsigned v = (unsigned)column[u], row = divide(v, h.inner);
            outer[u] = divide(row, h.middle);
            middle[u] = row - outer[u] * h.middle.by;
            column[u] = v - row * h.inner.by;
        }
    }
    compute_vectors<E, U>(
        expression, h.dtypes, h.broadcast, valid,
        [&](int u, int k) {
            const unsigned long long strides = a.words[N + E::PARAMS + k];
            const int offset =
                has_rows
                    ? (int)((unsigned)strides * outer[u] + (unsigned)(strides >> 32) * middle[u])
                    : 0;
            return h.broadcast >> k & 1 ? (long long)offset : column[u] + offset;
        },
        data);
    const long long tail = vectors * GD_CUDA_VECTOR + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && tail < h.count) /* then there is one dimension */
        compute_element(
            expression, h.dtypes, h.broadcast,
            [&](int k) { return h.broadcast >> k & 1 ? 0 : tail; }, data);
}

template <typename T> __host__ __device__ constexpr int elements_unroll() {
    return sizeof(T) == 4 && (T)0.5f != 0 ? GD_CUDA_ELEMENTS_UNROLL : 1; /* f32 */
}

static __device__ __noinline__ long long divide_wide(long long n, long long d) { return n / d; }

/* The offsets of element i in N operands. Narrow: they and i have 31 bits. */
template <int N>
E_FN void offsets_narrow(const gd_cuda_general_head &h, const unsigned long long *strides,
                         unsigned i, long long *offset) {
    int at[N];
#pragma unroll
    for (int k = 0; k < N; k++) at[k] = 0;
#pragma unroll 1
    for (int d = h.rank; d-- > 0;) {
        const unsigned rest = d > 0 ? divide(i, h.divisors[d]) : 0;
        const int index = (int)(i - rest * h.divisors[d].by);
#pragma unroll
        for (int k = 0; k < N; k++) at[k] += index * (int)strides[k * GD_CUDA_EXPRESSION_RANK + d];
        i = rest;
    }
#pragma unroll
    for (int k = 0; k < N; k++) offset[k] = at[k];
}
template <int N>
E_FN void offsets_wide(const gd_cuda_general_head &h, const unsigned long long *strides,
                       long long i, long long *offset) {
#pragma unroll
    for (int k = 0; k < N; k++) offset[k] = 0;
#pragma unroll 1
    for (int d = h.rank; d-- > 0;) {
        const long long rest = d > 0 ? divide_wide(i, h.dims[d]) : 0, index = i - rest * h.dims[d];
#pragma unroll
        for (int k = 0; k < N; k++)
            offset[k] += index * (long long)strides[k * GD_CUDA_EXPRESSION_RANK + d];
        i = rest;
    }
}

template <class E> E_FN void run_elements(const general_arguments<E> &a) {
    typedef typename E::type T;
    enum { N = E::INPUTS + E::OUTPUTS, U = elements_unroll<T>() };
    const gd_cuda_general_head &h = a.head;
    if (h.word->number) return;
    const E expression(a.words + N);
    const unsigned long long *strides = a.words + N + E::PARAMS;
    T x[U][E::INPUTS ? E::INPUTS : 1];
    long long offset[U][N];
    bool valid[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
        const long long i =
            ((long long)blockIdx.x * U + u) * GD_CUDA_EXPRESSION_THREADS + threadIdx.x;
        valid[u] = i < h.count;
        if (!valid[u]) continue;
        if (h.wide) offsets_wide<N>(h, strides, i, offset[u]);
        else offsets_narrow<N>(h, strides, (unsigned)i, offset[u]);
#pragma unroll
        for (int k = 0; k < E::INPUTS; k++)
            if (E::USED >> k & 1)
                x[u][k] = load_one<T, E::ANY>(E::dtype(k, h.dtypes), address_of(a.words[k]),
                                              offset[u][k]);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        if (!valid[u]) continue;
        T o[E::OUTPUTS];
        expression(x[u], o);
#pragma unroll
        for (int k = 0; k < E::OUTPUTS; k++)
            if (!(h.absent >> k & 1))
                store_one<T, E::ANY>(E::dtype(E::INPUTS + k, h.dtypes),
                                     address_of(a.words[E::INPUTS + k]), offset[u][E::INPUTS + k],
                                     o[k]);
    }
}

template <class E> E_FN void run_list(const list_arguments &a) {
    enum { THREADS = GD_CUDA_EXPRESSION_THREADS, CHUNK = GD_CUDA_LIST_CHUNK / GD_CUDA_VECTOR };
    const gd_cuda_list_head &h = a.head;
    if (h.word->number) return;
    const E expression(a.words);
    const int entry_words = 2 + h.width + E::OUTPUTS;
    const unsigned long long *scalars = a.words + E::PARAMS,
                             *entries = scalars + 2 * (E::INPUTS - h.width);
    int low = 0, high = h.count - 1; /* the last entry whose first chunk is not behind the block */
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if ((unsigned)entries[middle * entry_words] <= blockIdx.x) low = middle;
        else high = middle - 1;
    }
    const unsigned long long *entry = entries + low * entry_words;
    const long long count = (long long)entry[1], vectors = count / GD_CUDA_VECTOR,
                    begin = (long long)(blockIdx.x - (unsigned)entry[0]) * CHUNK,
                    end = begin + CHUNK < vectors ? begin + CHUNK : vectors;
    const unsigned broadcast = ((1u << E::INPUTS) - 1) & ~((1u << h.width) - 1);
    const auto data = [&](int k) {
        return address_of(k < h.width      ? entry[2 + k]
                          : k >= E::INPUTS ? entry[2 + h.width + k - E::INPUTS]
                                           : scalars[2 * (k - h.width)]);
    };
    const auto number = [&](int k) { /* the index of the entry's element */
                                     return (long long)scalars[2 * (k - h.width) + 1] *
                                            (long long)(entry[0] >> 32);
    };
    for (long long i = begin + threadIdx.x; i < end; i += THREADS) {
        const bool valid[1] = {true};
        compute_vectors<E, 1>(
            expression, h.dtypes, broadcast, valid,
            [&](int, int k) { return broadcast >> k & 1 ? number(k) : i; }, data);
    }
    const long long tail = vectors * GD_CUDA_VECTOR + threadIdx.x;
    if (begin + CHUNK >= vectors && tail < count)
        compute_element(
            expression, h.dtypes, 0, [&](int k) { return broadcast >> k & 1 ? number(k) : tail; },
            data);
}

#endif
