/* gemm_pack.h - copies of a strip of A or a panel of B in the order in which tiles read them, as
 * `real` whatever the type of the matrix.
 *
 * A packed strip is `depth` groups of `count` numbers: packed[k * step + j]. Strips of A have
 * step == count (rows side by side); panels of B have step == a whole number of vectors, and
 * anything in the columns beyond count.
 */

/* What to pack: element (j, k) is data[j * j_step + k * k_step]. */
typedef struct source {
    const void *data;
    gd_dtype dtype;
    int64_t j_step, k_step;
} source;

/* A strip of A: j is the row. */
INLINE source strip_of(gd_gemm_in a, int64_t i, int64_t k) {
    a = gd_gemm_in_from(a, i, k);
    return (source){a.data, a.dtype, a.row, a.col};
}

/* A panel of B: j is the column. */
INLINE source panel_of(gd_gemm_in b, int64_t k, int64_t j) {
    b = gd_gemm_in_from(b, k, j);
    return (source){b.data, b.dtype, b.col, b.row};
}

/* A packed strip may be followed by this many numbers of rubbish: the last vector is stored whole,
 * and overwritten by the next group, but for the last one. */
enum { PACK_SLACK = VL };

/* Where j is contiguous: copies. */
static void pack_copied(real *packed, int64_t step, source s, int64_t count, int64_t depth) {
    const real *from = s.data;
    const int64_t whole = count / VL * VL, rest = count - whole;
    if (whole == 0 && rest <= VL / 2) { /* a strip of A */
        for (int64_t k = 0; k < depth; k++)
            store_at_least(packed + k * step, load_first(from + k * s.k_step, rest), VL / 2);
        return;
    }
    for (int64_t k = 0; k < depth; k++, from += s.k_step, packed += step) {
        for (int64_t j = 0; j < whole; j += VL) store(packed + j, load(from + j));
        if (rest > 0) store(packed + whole, load_first(from + whole, rest));
    }
}

/* Any type and any strides: vectors along j. */
static void pack_any(real *packed, int64_t step, source s, int64_t count, int64_t depth) {
    for (int64_t k = 0; k < depth; k++)
        for (int64_t j = 0; j < count; j += VL)
            store(packed + k * step + j,
                  read_vec(gd_gemm_at(s.data, s.dtype, k * s.k_step + j * s.j_step), s.dtype,
                           s.j_step, count - j));
}

/* Vectors TURN deep are turned at a time: 16 bytes of each of VL rows become TURN vectors. */
enum { TURN = 16 / sizeof(real) };

#if defined(__AVX512F__)

/* 16 bytes from each place, side by side. */
INLINE vec gather_quarters(const real *a, const real *b, const real *c, const real *d) {
    __m512 x = _mm512_castps128_ps512(_mm_loadu_ps((const float *)a));
    x = _mm512_mask_broadcast_f32x4(x, 0x00f0, _mm_loadu_ps((const float *)b));
    x = _mm512_mask_broadcast_f32x4(x, 0x0f00, _mm_loadu_ps((const float *)c));
    x = _mm512_mask_broadcast_f32x4(x, 0xf000, _mm_loadu_ps((const float *)d));
    return (vec)x;
}
#define QUARTERS(ROW, r) \
    gather_quarters(ROW(r), ROW((r) + TURN), ROW((r) + 2 * TURN), ROW((r) + 3 * TURN))
#define TURN_OP(name) OP(_mm512_##name)

#elif defined(__AVX2__)

INLINE vec gather_quarters(const real *a, const real *b) {
    __m256 low = _mm256_castps128_ps256(_mm_loadu_ps((const float *)a));
    return (vec)_mm256_insertf128_ps(low, _mm_loadu_ps((const float *)b), 1);
}
#define QUARTERS(ROW, r) gather_quarters(ROW(r), ROW((r) + TURN))
#define TURN_OP(name)    OP(_mm256_##name)

#endif

/* turned[d] gets element d of each of the VL rows; ROW(r) is where row r is. */
#if !defined(TURN_OP)
#define TURN_ROWS(ROW, turned)                              \
    for (int d = 0; d < TURN; d++) {                        \
        real column[VL];                                    \
        for (int j = 0; j < VL; j++) column[j] = ROW(j)[d]; \
        turned[d] = load(column);                           \
    }
#elif defined(GEMM_F64)
#define TURN_ROWS(ROW, turned)                                     \
    {                                                              \
        const vec even = QUARTERS(ROW, 0), odd = QUARTERS(ROW, 1); \
        turned[0] = TURN_OP(unpacklo)(even, odd);                  \
        turned[1] = TURN_OP(unpackhi)(even, odd);                  \
    }
#else
#define TURN_ROWS(ROW, turned)                                                           \
    {                                                                                    \
        const vec x0 = QUARTERS(ROW, 0), x1 = QUARTERS(ROW, 1);                          \
        const vec x2 = QUARTERS(ROW, 2), x3 = QUARTERS(ROW, 3);                          \
        const vec low01 = TURN_OP(unpacklo)(x0, x1), high01 = TURN_OP(unpackhi)(x0, x1); \
        const vec low23 = TURN_OP(unpacklo)(x2, x3), high23 = TURN_OP(unpackhi)(x2, x3); \
        turned[0] = TURN_OP(shuffle)(low01, low23, 0x44);                                \
        turned[1] = TURN_OP(shuffle)(low01, low23, 0xee);                                \
        turned[2] = TURN_OP(shuffle)(high01, high23, 0x44);                              \
        turned[3] = TURN_OP(shuffle)(high01, high23, 0xee);                              \
    }
#endif

/* Of VL rows anywhere, at depth k. */
INLINE void turn(const real *const row[VL], int64_t k, vec turned[TURN]){
#define ROW(r) (row[r] + k)
    TURN_ROWS(ROW, turned)
#undef ROW
}

/* Of VL rows `step` apart. A pointer for each TURN rows: registers are few. */
INLINE void turn_even(const real *data, int64_t step, vec turned[TURN]) {
    const real *group[VL / TURN];
    UNROLL for (int g = 0; g < VL / TURN; g++) group[g] = data + g * TURN * step;
#define ROW(r) (group[(r) / TURN] + (r) % TURN * step)
    TURN_ROWS(ROW, turned)
#undef ROW
}

/* Packs up to VL rows, k contiguous in them and `row_step` apart. `room` is what a group has room
 * for from here on; with `spill` what follows may be overwritten, because it is written later. */
static void turn_rows(real *packed, int64_t step, const real *data, int64_t row_step, int64_t rows,
                      int64_t depth, int64_t room, bool spill) {
    /* Rows beyond the last are the last again: nobody looks at what becomes of them. */
    const real *row[VL];
    for (int r = 0; r < VL; r++) row[r] = data + min64(r, rows - 1) * row_step;
    int64_t k = 0;
    for (; k + TURN <= depth; k += TURN, packed += TURN * step) {
        vec turned[TURN];
        turn(row, k, turned);
        if (spill || room >= VL) {
            UNROLL for (int d = 0; d < TURN; d++)
                store_at_least(packed + d * step, turned[d], room);
        } else {
            UNROLL for (int d = 0; d < TURN; d++) store_first(packed + d * step, turned[d], room);
        }
    }
    for (; k < depth; k++, packed += step)
        for (int64_t r = 0; r < min64(room, VL); r++) packed[r] = row[r][k];
}

/* Where k is contiguous: blocks of VL rows are turned in registers. Those of as many rows as a packed
 * group has vectors come together, a cache line of each: then each line is read, and written, once. */
static void pack_turned(real *packed, int64_t step, source s, int64_t count, int64_t depth) {
    const real *data = s.data;
    const int64_t whole = count / VL * VL;
    int64_t k = 0;
    for (; k + VL <= depth && whole > 0; k += VL)
        for (int64_t j = 0; j < whole; j += VL) {
            const real *from = data + j * s.j_step + k;
            for (int d = 0; d < VL; d += TURN) {
                vec turned[TURN];
                turn_even(from + d, s.j_step, turned);
                UNROLL for (int i = 0; i < TURN; i++)
                    store(packed + (k + d + i) * step + j, turned[i]);
            }
        }
    for (int64_t j = 0; j < count; j += VL) {
        const int64_t done = j < whole ? k : 0;
        if (done < depth)
            turn_rows(packed + done * step + j, step, data + j * s.j_step + done, s.j_step,
                      min64(count - j, VL), depth - done, step - j, j == 0);
    }
}

/* The same for f16 and bf16: widened onto a small stage first, and turned from there. */
static void pack_turned_halves(real *packed, int64_t step, source s, int64_t count, int64_t depth) {
    enum { STAGE_K = 64 };
    typedef real staged_row[STAGE_K];
    GD_TILE(staged_row, stage, VL);
    for (int64_t j = 0; j < count; j += VL) {
        const int64_t rows = min64(count - j, VL);
        for (int64_t k = 0; k < depth; k += STAGE_K) {
            const int64_t run = min64(depth - k, STAGE_K);
            for (int64_t r = 0; r < rows; r++) {
                const void *from = gd_gemm_at(s.data, s.dtype, (j + r) * s.j_step + k);
                for (int64_t d = 0; d < run; d += VL)
                    store(&stage[r][d],
                          read_vec(gd_gemm_at(from, s.dtype, d), s.dtype, 1, run - d));
            }
            turn_rows(packed + k * step + j, step, stage[0], STAGE_K, rows, run, step - j, j == 0);
        }
    }
}

static void pack(real *packed, int64_t step, source s, int64_t count, int64_t depth) {
    if (s.j_step == 1 && s.dtype == REAL_DTYPE) pack_copied(packed, step, s, count, depth);
    else if (s.k_step != 1 || s.j_step == 1) pack_any(packed, step, s, count, depth);
    else if (s.dtype == REAL_DTYPE) pack_turned(packed, step, s, count, depth);
    else pack_turned_halves(packed, step, s, count, depth);
}
