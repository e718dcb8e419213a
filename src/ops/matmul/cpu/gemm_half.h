/* gemm_half.h - loads and stores elements of any dtype as vectors of `real`. f16 and bf16 are
 * widened to f32 when they are loaded and rounded to nearest even when they are stored.
 */
#if !defined(FOR_F64)

/* --- scalar conversions ----------------------------------------------------------------------- */

INLINE float float_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE uint32_t bits_from_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE float float_of_bf16(uint16_t h) { return float_from_bits((uint32_t)h << 16); }

INLINE uint16_t bf16_of_float(float x) {
    uint32_t bits = bits_from_float(x);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40); /* a quiet NaN: rounding could make it Inf */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

INLINE float float_of_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    if (magnitude >= 0x7c00) /* Inf; NaN, made quiet */
        return float_from_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13 |
                               (magnitude > 0x7c00 ? 0x400000 : 0));
    if (magnitude < 0x400) { /* zero and subnormals are multiples of 2^-24 */
        float x = (float)magnitude * 0x1p-24f;
        return sign ? -x : x;
    }
    return float_from_bits(sign | ((magnitude << 13) + ((127 - 15) << 23)));
}

INLINE uint16_t f16_of_float(float x) {
    uint32_t bits = bits_from_float(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to 65536 or more */
    if (magnitude < 0x38800000) { /* subnormal: adding 1/2 rounds to a multiple of 2^-24 */
        uint32_t mantissa = bits_from_float(float_from_bits(magnitude) + 0.5f) - 0x3f000000;
        return (uint16_t)(sign | mantissa);
    }
    magnitude += 0xfff + (magnitude >> 13 & 1) - ((127 - 15) << 23);
    return (uint16_t)(sign | magnitude >> 13);
}

/* --- vector conversions ----------------------------------------------------------------------- */

#if defined(__AVX512F__)

typedef __m256i half_vec; /* VL lanes of 16 bits */
INLINE half_vec load_half_vec(const void *p) { return _mm256_loadu_si256(p); }
INLINE void store_half_vec(void *p, half_vec h) { _mm256_storeu_si256(p, h); }
INLINE vec vec_of_f16(half_vec h) { return _mm512_cvtph_ps(h); }
INLINE half_vec f16_of_vec(vec x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
INLINE vec vec_of_bf16(half_vec h) { return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16); }
INLINE half_vec bf16_of_vec(vec x) {
    __m512i bits = (__m512i)x, high = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet));
}

#elif defined(__AVX2__)

typedef __m128i half_vec;
INLINE half_vec load_half_vec(const void *p) { return _mm_loadu_si128(p); }
INLINE void store_half_vec(void *p, half_vec h) { _mm_storeu_si128(p, h); }
INLINE vec vec_of_f16(half_vec h) { return _mm256_cvtph_ps(h); }
INLINE half_vec f16_of_vec(vec x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
INLINE vec vec_of_bf16(half_vec h) { return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16); }
INLINE half_vec bf16_of_vec(vec x) {
    __m256i bits = (__m256i)x, high = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i nan = (__m256i)_mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    __m256i wide = _mm256_blendv_epi8(rounded, quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
}

#else

typedef struct half_vec {
    uint16_t at[VL];
} half_vec;
INLINE half_vec load_half_vec(const void *p) {
    half_vec h;
    memcpy(&h, p, sizeof h);
    return h;
}
INLINE void store_half_vec(void *p, half_vec h) { memcpy(p, &h, sizeof h); }

#define EACH_HALF(result_type, result, from, expression) \
    INLINE result_type result(from) {                    \
        result_type y;                                   \
        for (int i = 0; i < VL; i++) expression;         \
        return y;                                        \
    }
EACH_HALF(vec, vec_of_f16, half_vec h, y[i] = float_of_f16(h.at[i]))
EACH_HALF(vec, vec_of_bf16, half_vec h, y[i] = float_of_bf16(h.at[i]))
EACH_HALF(half_vec, f16_of_vec, vec x, y.at[i] = f16_of_float(x[i]))
EACH_HALF(half_vec, bf16_of_vec, vec x, y.at[i] = bf16_of_float(x[i]))
#undef EACH_HALF

#endif
#endif /* !FOR_F64 */

/* --- any dtype, any stride -------------------------------------------------------------------- */

INLINE real read_one(const void *p, gd_dtype dtype, int64_t index) {
#if !defined(FOR_F64)
    if (dtype == GD_F16) return float_of_f16(((const uint16_t *)p)[index]);
    if (dtype == GD_BF16) return float_of_bf16(((const uint16_t *)p)[index]);
#endif
    (void)dtype;
    return ((const real *)p)[index];
}

INLINE void write_one(void *p, gd_dtype dtype, int64_t index, real x) {
#if !defined(FOR_F64)
    if (dtype == GD_F16) {
        ((uint16_t *)p)[index] = f16_of_float(x);
        return;
    }
    if (dtype == GD_BF16) {
        ((uint16_t *)p)[index] = bf16_of_float(x);
        return;
    }
#endif
    (void)dtype;
    ((real *)p)[index] = x;
}

/* Loads min(n, VL) elements of p, `stride` apart; the other lanes are 0. */
INLINE vec read_vec(const void *p, gd_dtype dtype, int64_t stride, int64_t n) {
    if (stride == 1) {
        if (dtype == REAL_DTYPE) return load_first(p, n);
#if !defined(FOR_F64)
        if (n >= VL) {
            half_vec h = load_half_vec(p);
            return dtype == GD_F16 ? vec_of_f16(h) : vec_of_bf16(h);
        }
#endif
    }
    if (stride == 0) return broadcast(read_one(p, dtype, 0));
    real x[VL] = {0};
    for (int64_t i = 0; i < min64(n, VL); i++) x[i] = read_one(p, dtype, i * stride);
    return load(x);
}

INLINE void write_vec(void *p, gd_dtype dtype, int64_t stride, vec x, int64_t n) {
    if (stride == 1) {
        if (dtype == REAL_DTYPE) {
            store_first(p, x, n);
            return;
        }
#if !defined(FOR_F64)
        if (n >= VL) {
            store_half_vec(p, dtype == GD_F16 ? f16_of_vec(x) : bf16_of_vec(x));
            return;
        }
#endif
    }
    real each[VL];
    store(each, x);
    for (int64_t i = 0; i < min64(n, VL); i++) write_one(p, dtype, i * stride, each[i]);
}
