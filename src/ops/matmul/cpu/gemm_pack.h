/* gemm_pack.h - packs a strip of A or a panel of B: copies it, converted to `real`, into the order
 * in which the micro-kernel reads it.
 *
 * A packed strip or panel is `depth` groups of `count` elements: element (j, k) is at packed[k *
 * step + j], where j is a row of A or a column of B. Strips of A have step == count. Panels of B
 * have a step of a multiple of VL, and undefined values in the padding columns.
 */

/* The matrix to pack: element (j, k) is data[j * j_stride + k * k_stride]. */
typedef struct pack_source {
    const void *data;
    gd_dtype dtype;
    int64_t j_stride, k_stride;
} pack_source;

/* A strip of A from element (i, k) on; j is the row. */
INLINE pack_source strip_source(gd_gemm_in a, int64_t i, int64_t k) {
    a = gd_gemm_in_at(a, i, k);
    return (pack_source){a.data, a.dtype, a.row, a.col};
}

/* A panel of B from element (k, j) on; j is the column. */
INLINE pack_source panel_source(gd_gemm_in b, int64_t k, int64_t j) {
    b = gd_gemm_in_at(b, k, j);
    return (pack_source){b.data, b.dtype, b.col, b.row};
}

/* Padding after a packed strip. Every group is stored in full vectors; the excess lanes are
 * overwritten by the next group, except for those of the last group. */
enum { PACK_SLACK = VL };

/* Packs a source that is contiguous along j: copies vectors. */
static void pack_contiguous(real *packed, int64_t step, pack_source s, int64_t count,
                            int64_t depth) {
    const real *from = s.data;
    const int64_t full = count / VL * VL, tail = count - full;
    if (full == 0 && tail <= VL / 2) { /* a strip of A */
        for (int64_t k = 0; k < depth; k++)
            store_at_least(packed + k * step, load_first(from + k * s.k_stride, tail), VL / 2);
        return;
    }
    for (int64_t k = 0; k < depth; k++, from += s.k_stride, packed += step) {
        for (int64_t j = 0; j < full; j += VL) store(packed + j, load(from + j));
        if (tail > 0) store(packed + full, load_first(from + full, tail));
    }
}

/* Packs any dtype and any strides, one vector along j at a time. */
static void pack_strided(real *packed, int64_t step, pack_source s, int64_t count, int64_t depth) {
    for (int64_t k = 0; k < depth; k++)
        for (int64_t j = 0; j < count; j += VL)
            store(packed + k * step + j,
                  read_vec(gd_gemm_at(s.data, s.dtype, k * s.k_stride + j * s.j_stride), s.dtype,
                           s.j_stride, count - j));
}

/* In-register transposition works on 16 bytes (TRANSPOSE_DEPTH elements) of each of VL rows, and
 * results in TRANSPOSE_DEPTH vectors. */
enum { TRANSPOSE_DEPTH = 16 / sizeof(real) };

#if defined(__AVX512F__)

/* Loads 16 bytes from each of four addresses into the 128-bit lanes of a vector. */
INLINE vec load_lanes(const real *a, const real *b, const real *c, const real *d) {
    __m512 x = _mm512_castps128_ps512(_mm_loadu_ps((const float *)a));
    x = _mm512_mask_broadcast_f32x4(x, 0x00f0, _mm_loadu_ps((const float *)b));
    x = _mm512_mask_broadcast_f32x4(x, 0x0f00, _mm_loadu_ps((const float *)c));
    x = _mm512_mask_broadcast_f32x4(x, 0xf000, _mm_loadu_ps((const float *)d));
    return (vec)x;
}
#define LOAD_LANES(ROW, r)                                                         \
    load_lanes(ROW(r), ROW((r) + TRANSPOSE_DEPTH), ROW((r) + 2 * TRANSPOSE_DEPTH), \
               ROW((r) + 3 * TRANSPOSE_DEPTH))
#define TRANSPOSE_OP(name) OP(_mm512_##name)

#elif defined(__AVX2__)

INLINE vec load_lanes(const real *a, const real *b) {
    __m256 low = _mm256_castps128_ps256(_mm_loadu_ps((const float *)a));
    return (vec)_mm256_insertf128_ps(low, _mm_loadu_ps((const float *)b), 1);
}
#define LOAD_LANES(ROW, r) load_lanes(ROW(r), ROW((r) + TRANSPOSE_DEPTH))
#define TRANSPOSE_OP(name) OP(_mm256_##name)

#endif

/* transposed[d] = element d of each of the VL rows; ROW(r) is the address of row r. */
#if !defined(TRANSPOSE_OP)
#define TRANSPOSE_ROWS(ROW, transposed)                     \
    for (int d = 0; d < TRANSPOSE_DEPTH; d++) {             \
        real column[VL];                                    \
        for (int j = 0; j < VL; j++) column[j] = ROW(j)[d]; \
        transposed[d] = load(column);                       \
    }
#elif defined(FOR_F64)
#define TRANSPOSE_ROWS(ROW, transposed)                                \
    {                                                                  \
        const vec even = LOAD_LANES(ROW, 0), odd = LOAD_LANES(ROW, 1); \
        transposed[0] = TRANSPOSE_OP(unpacklo)(even, odd);             \
        transposed[1] = TRANSPOSE_OP(unpackhi)(even, odd);             \
    }
#else
#define TRANSPOSE_ROWS(ROW, transposed)                                                            \
    {                                                                                              \
        const vec x0 = LOAD_LANES(ROW, 0), x1 = LOAD_LANES(ROW, 1);                                \
        const vec x2 = LOAD_LANES(ROW, 2), x3 = LOAD_LANES(ROW, 3);                                \
        const vec low01 = TRANSPOSE_OP(unpacklo)(x0, x1), high01 = TRANSPOSE_OP(unpackhi)(x0, x1); \
        const vec low23 = TRANSPOSE_OP(unpacklo)(x2, x3), high23 = TRANSPOSE_OP(unpackhi)(x2, x3); \
        transposed[0] = TRANSPOSE_OP(shuffle)(low01, low23, 0x44);                                 \
        transposed[1] = TRANSPOSE_OP(shuffle)(low01, low23, 0xee);                                 \
        transposed[2] = TRANSPOSE_OP(shuffle)(high01, high23, 0x44);                               \
        transposed[3] = TRANSPOSE_OP(shuffle)(high01, high23, 0xee);                               \
    }
#endif

/* Transposes VL rows at arbitrary addresses, from element k on. */
INLINE void transpose_scattered(const real *const row[VL], int64_t k,
                                vec transposed[TRANSPOSE_DEPTH]){
#define ROW(r) (row[r] + k)
    TRANSPOSE_ROWS(ROW, transposed)
#undef ROW
}

/* Transposes VL rows that are `step` apart. Uses one pointer per TRANSPOSE_DEPTH rows to save
 * registers. */
INLINE void transpose_strided(const real *data, int64_t step, vec transposed[TRANSPOSE_DEPTH]) {
    const real *group[VL / TRANSPOSE_DEPTH];
    UNROLL for (int g = 0; g < VL / TRANSPOSE_DEPTH; g++) group[g] =
        data + g * TRANSPOSE_DEPTH * step;
#define ROW(r) (group[(r) / TRANSPOSE_DEPTH] + (r) % TRANSPOSE_DEPTH * step)
    TRANSPOSE_ROWS(ROW, transposed)
#undef ROW
}

/* Packs up to VL rows that are contiguous along k and `row_step` apart. `room` is the space left in
 * a packed group. With `may_overflow`, stores may exceed it, because later stores overwrite the
 * excess. */
static void pack_transposed_rows(real *packed, int64_t step, const real *data, int64_t row_step,
                                 int64_t rows, int64_t depth, int64_t room, bool may_overflow) {
    /* Missing rows repeat the last one; nothing reads their lanes. */
    const real *row[VL];
    for (int r = 0; r < VL; r++) row[r] = data + min64(r, rows - 1) * row_step;
    int64_t k = 0;
    for (; k + TRANSPOSE_DEPTH <= depth; k += TRANSPOSE_DEPTH, packed += TRANSPOSE_DEPTH * step) {
        vec transposed[TRANSPOSE_DEPTH];
        transpose_scattered(row, k, transposed);
        if (may_overflow || room >= VL) {
            UNROLL for (int d = 0; d < TRANSPOSE_DEPTH; d++)
                store_at_least(packed + d * step, transposed[d], room);
        } else {
            UNROLL for (int d = 0; d < TRANSPOSE_DEPTH; d++)
                store_first(packed + d * step, transposed[d], room);
        }
    }
    for (; k < depth; k++, packed += step)
        for (int64_t r = 0; r < min64(room, VL); r++) packed[r] = row[r][k];
}

/* Packs a source that is contiguous along k: transposes VL x VL blocks in registers. The loop over
 * j is the inner one, so that a cache line of the source is read once and a cache line of the
 * packed group is written once. */
static void pack_transposed(real *packed, int64_t step, pack_source s, int64_t count,
                            int64_t depth) {
    const real *data = s.data;
    const int64_t full = count / VL * VL;
    int64_t k = 0;
    for (; k + VL <= depth && full > 0; k += VL)
        for (int64_t j = 0; j < full; j += VL) {
            const real *from = data + j * s.j_stride + k;
            for (int d = 0; d < VL; d += TRANSPOSE_DEPTH) {
                vec transposed[TRANSPOSE_DEPTH];
                transpose_strided(from + d, s.j_stride, transposed);
                UNROLL for (int i = 0; i < TRANSPOSE_DEPTH; i++)
                    store(packed + (k + d + i) * step + j, transposed[i]);
            }
        }
    for (int64_t j = 0; j < count; j += VL) {
        const int64_t done = j < full ? k : 0;
        if (done < depth)
            pack_transposed_rows(packed + done * step + j, step, data + j * s.j_stride + done,
                                 s.j_stride, min64(count - j, VL), depth - done, step - j, j == 0);
    }
}

/* Packs f16 or bf16 that is contiguous along k: widens VL rows into a small tile and transposes
 * it. */
static void pack_transposed_halves(real *packed, int64_t step, pack_source s, int64_t count,
                                   int64_t depth) {
    enum { STAGE_K = 64 };
    typedef real staged_row[STAGE_K];
    GD_TILE(staged_row, stage, VL);
    for (int64_t j = 0; j < count; j += VL) {
        const int64_t rows = min64(count - j, VL);
        for (int64_t k = 0; k < depth; k += STAGE_K) {
            const int64_t tile_depth = min64(depth - k, STAGE_K);
            for (int64_t r = 0; r < rows; r++) {
                const void *from = gd_gemm_at(s.data, s.dtype, (j + r) * s.j_stride + k);
                for (int64_t d = 0; d < tile_depth; d += VL)
                    store(&stage[r][d],
                          read_vec(gd_gemm_at(from, s.dtype, d), s.dtype, 1, tile_depth - d));
            }
            pack_transposed_rows(packed + k * step + j, step, stage[0], STAGE_K, rows, tile_depth,
                                 step - j, j == 0);
        }
    }
}

static void pack(real *packed, int64_t step, pack_source s, int64_t count, int64_t depth) {
    if (s.j_stride == 1 && s.dtype == REAL_DTYPE) pack_contiguous(packed, step, s, count, depth);
    else if (s.k_stride != 1 || s.j_stride == 1) pack_strided(packed, step, s, count, depth);
    else if (s.dtype == REAL_DTYPE) pack_transposed(packed, step, s, count, depth);
    else pack_transposed_halves(packed, step, s, count, depth);
}
