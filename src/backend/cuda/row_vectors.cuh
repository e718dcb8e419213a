/* row_vectors.cuh - vectors of any dtype whose layout is a constant, for rows.cuh. */
#ifndef GRADUS_BACKEND_CUDA_ROW_VECTORS_CUH
#define GRADUS_BACKEND_CUDA_ROW_VECTORS_CUH

#include "backend/cuda/expression.cuh"

/* A constant as an argument: the number of a pass, an operand or an output. Dtypes and layouts are
 * then known before loops are unrolled, which makes compiling several times faster. */
template <int I> struct constant { static constexpr int value = I; };
#define VALUE(x) decltype(x)::value

/* f(constant<0>()), f(constant<1>()), ..., N times. */
template <int N, int I = 0, class F> E_FN void for_each(F &&f) {
    if constexpr (I < N) {
        f(constant<I>());
        for_each<N, I + 1>(f);
    }
}

/* --- vectors ---------------------------------------------------------------------------------- */

/* The elements of a vector as they lie in memory: up to 16 bytes, zero-extended to words. */
template <int BYTES> struct row_bits { unsigned w[(BYTES + 3) / 4]; };

/* CONSTANT: no thread writes them, so the compiler may move the load before stores. */
template <typename V, bool CONSTANT> E_FN V load_value(const char *from) {
    return CONSTANT ? __ldg((const V *)from) : *(const V *)from;
}
template <int BYTES, bool CONSTANT> E_FN row_bits<BYTES> load_bits(const char *from) {
    if constexpr (BYTES == 16) {
        const uint4 x = load_value<uint4, CONSTANT>(from);
        return {x.x, x.y, x.z, x.w};
    } else if constexpr (BYTES == 8) {
        const uint2 x = load_value<uint2, CONSTANT>(from);
        return {x.x, x.y};
    } else if constexpr (BYTES == 4) return {load_value<unsigned, CONSTANT>(from)};
    else if constexpr (BYTES == 2) return {load_value<unsigned short, CONSTANT>(from)};
    else return {load_value<unsigned char, CONSTANT>(from)};
}
template <int BYTES> E_FN void store_bits(char *to, const row_bits<BYTES> &r) {
    if constexpr (BYTES == 16) *(uint4 *)to = uint4{r.w[0], r.w[1], r.w[2], r.w[3]};
    else if constexpr (BYTES == 8) *(uint2 *)to = uint2{r.w[0], r.w[1]};
    else if constexpr (BYTES == 4) *(unsigned *)to = r.w[0];
    else if constexpr (BYTES == 2) *(unsigned short *)to = (unsigned short)r.w[0];
    else *(unsigned char *)to = (unsigned char)r.w[0];
}

/* Element e of a vector, and the vector with that element; its bits were 0. */
template <int SIZE, int BYTES> E_FN row_bits<SIZE> element_of(const row_bits<BYTES> &r, int e) {
    if constexpr (SIZE == 8) return {r.w[2 * e], r.w[2 * e + 1]};
    else if constexpr (SIZE == 4) return {r.w[e]};
    else if constexpr (SIZE == 2) return {r.w[e / 2] >> 16 * (e % 2) & 0xffffu};
    else return {r.w[e / 4] >> 8 * (e % 4) & 0xffu};
}
template <int SIZE, int BYTES>
E_FN void put_element(row_bits<BYTES> &r, int e, const row_bits<SIZE> &x) {
    if constexpr (SIZE == 8) r.w[2 * e] = x.w[0], r.w[2 * e + 1] = x.w[1];
    else if constexpr (SIZE == 4) r.w[e] = x.w[0];
    else if constexpr (SIZE == 2) r.w[e / 2] |= x.w[0] << 16 * (e % 2);
    else r.w[e / 4] |= x.w[0] << 8 * (e % 4);
}

/* An element as a value of the compute type, and a value as an element. Results are floats or
 * bools. */
template <typename T, int DTYPE> E_FN T widen_element(const row_bits<dtype_bytes(DTYPE)> &x) {
    if constexpr (DTYPE == E_F32) return (T)float_of_bits(x.w[0]);
    else if constexpr (DTYPE == E_F16) return (T)float_of_f16(x.w[0]);
    else if constexpr (DTYPE == E_BF16) return (T)float_of_bits(x.w[0] << 16);
    else if constexpr (DTYPE == E_BOOL) return (T)(x.w[0] != 0);
    else if constexpr (DTYPE == E_U8) return (T)x.w[0];
    else if constexpr (DTYPE == E_I8) return (T)(int8_t)x.w[0];
    else if constexpr (DTYPE == E_I32) return (T)(int32_t)x.w[0];
    else {
        const long long wide = (long long)((unsigned long long)x.w[1] << 32 | x.w[0]);
        if constexpr (DTYPE == E_I64) return (T)wide;
        else return (T)__longlong_as_double(wide);
    }
}
template <typename T, int DTYPE> E_FN row_bits<dtype_bytes(DTYPE)> narrow_element(T x) {
    if constexpr (DTYPE == E_F64) {
        const unsigned long long wide = (unsigned long long)__double_as_longlong((double)x);
        return {(unsigned)wide, (unsigned)(wide >> 32)};
    } else if constexpr (DTYPE == E_F32) return {bits_of_float((float)x)};
    else if constexpr (DTYPE == E_F16) return {f16_pair((float)x, 0)};
    else if constexpr (DTYPE == E_BF16) return {bf16_pair((float)x, 0)};
    else return {x != 0 ? 1u : 0u};
}
template <typename T, int DTYPE, int N>
E_FN row_bits<N * dtype_bytes(DTYPE)> narrow_vector(const T *x) {
    row_bits<N * dtype_bytes(DTYPE)> r = {};
    if constexpr (N > 1 && dtype_bytes(DTYPE) == 2) {
#pragma unroll
        for (int e = 0; e < N; e += 2)
            r.w[e / 2] = DTYPE == E_F16 ? f16_pair((float)x[e], (float)x[e + 1])
                                        : bf16_pair((float)x[e], (float)x[e + 1]);
    } else {
#pragma unroll
        for (int e = 0; e < N; e++)
            put_element<dtype_bytes(DTYPE)>(r, e, narrow_element<T, DTYPE>(x[e]));
    }
    return r;
}

#endif
