/* copy.c - copies and conversions between views.
 *
 * Conversions go element by element through one widening load and one narrowing store, written
 * once as a macro over the pairs of types; equal types are moved as bytes, transposed ones in
 * tiles. Long copies are cut into pieces for the thread pool.
 */
#include "core/copy.h"

#include <math.h>
#include <string.h>

#include "core/whole.h"
#include "core/pool.h"
#include "core/tensor.h"
#include "core/transpose.h"

/* --- one element ------------------------------------------------------------------------------ */

double gd_load_f64(gd_dtype dtype, const void *p) {
    switch (dtype) {
    case GD_BOOL: return *(const uint8_t *)p != 0;
    case GD_U8: return *(const uint8_t *)p;
    case GD_I8: return *(const int8_t *)p;
    case GD_I32: return *(const int32_t *)p;
    case GD_I64: return (double)*(const int64_t *)p;
    case GD_F16: return gd_f16_to_f32(*(const uint16_t *)p);
    case GD_BF16: return gd_bf16_to_f32(*(const uint16_t *)p);
    case GD_F32: return *(const float *)p;
    case GD_F64: return *(const double *)p;
    default: return 0;
    }
}

int64_t gd_load_i64(gd_dtype dtype, const void *p) {
    switch (dtype) {
    case GD_BOOL: return *(const uint8_t *)p != 0;
    case GD_U8: return *(const uint8_t *)p;
    case GD_I8: return *(const int8_t *)p;
    case GD_I32: return *(const int32_t *)p;
    case GD_I64: return *(const int64_t *)p;
    default: return gd_whole_i64(gd_load_f64(dtype, p));
    }
}

void gd_store_f64(gd_dtype dtype, void *p, double value) {
    switch (dtype) {
    case GD_BOOL: *(uint8_t *)p = value != 0; break;
    case GD_F16: *(uint16_t *)p = gd_f32_to_f16((float)value); break;
    case GD_BF16: *(uint16_t *)p = gd_f32_to_bf16((float)value); break;
    case GD_F32: *(float *)p = (float)value; break;
    case GD_F64: *(double *)p = value; break;
    case GD_U8: *(uint8_t *)p = gd_whole_u8(value); break;
    case GD_I8: *(int8_t *)p = gd_whole_i8(value); break;
    case GD_I32: *(int32_t *)p = gd_whole_i32(value); break;
    case GD_I64: *(int64_t *)p = gd_whole_i64(value); break;
    default: break;
    }
}

void gd_store_i64(gd_dtype dtype, void *p, int64_t value) {
    switch (dtype) {
    case GD_BOOL: *(uint8_t *)p = value != 0; break;
    case GD_U8: *(uint8_t *)p = (uint8_t)value; break;
    case GD_I8: *(int8_t *)p = (int8_t)value; break;
    case GD_I32: *(int32_t *)p = (int32_t)value; break;
    case GD_I64: *(int64_t *)p = value; break;
    default: /* not for an unknown type, which would come straight back here */
        if (gd_dtype_is_float(dtype)) gd_store_f64(dtype, p, (double)value);
        break;
    }
}

/* --- rows of elements ------------------------------------------------------------------------- */

/* How each type is read, and into which type. */
#define LOAD_BOOL(p) ((int32_t)(*(const uint8_t *)(p) != 0))
#define LOAD_U8(p)   ((int32_t) * (const uint8_t *)(p))
#define LOAD_I8(p)   ((int32_t) * (const int8_t *)(p))
#define LOAD_I32(p)  (*(const int32_t *)(p))
#define LOAD_I64(p)  (*(const int64_t *)(p))
#define LOAD_F16(p)  (gd_f16_to_f32(*(const uint16_t *)(p)))
#define LOAD_BF16(p) (gd_bf16_to_f32(*(const uint16_t *)(p)))
#define LOAD_F32(p)  (*(const float *)(p))
#define LOAD_F64(p)  (*(const double *)(p))

/* Integers wrap, floats follow the rule of core/whole.h. */
static inline uint8_t wrap_u8(int64_t v) { return (uint8_t)v; }
static inline int8_t wrap_i8(int64_t v) { return (int8_t)v; }
static inline int32_t wrap_i32(int64_t v) { return (int32_t)v; }
static inline int64_t wrap_i64(int64_t v) { return v; }
#define INT_OF(T, F, v)  _Generic((v), float : F, double : gd_whole_##T, default : wrap_##T)(v)
#define STORE_BOOL(p, v) (*(uint8_t *)(p) = (v) != 0)
#define STORE_U8(p, v)   (*(uint8_t *)(p) = INT_OF(u8, gd_whole_u8_f32, v))
#define STORE_I8(p, v)   (*(int8_t *)(p) = INT_OF(i8, gd_whole_i8_f32, v))
#define STORE_I32(p, v)  (*(int32_t *)(p) = INT_OF(i32, gd_whole_i32_f32, v))
#define STORE_I64(p, v)  (*(int64_t *)(p) = INT_OF(i64, gd_whole_i64, v))
#define STORE_F16(p, v)  (*(uint16_t *)(p) = gd_f32_to_f16((float)(v)))
#define STORE_BF16(p, v) (*(uint16_t *)(p) = gd_f32_to_bf16((float)(v)))
#define STORE_F32(p, v)  (*(float *)(p) = (float)(v))
#define STORE_F64(p, v)  (*(double *)(p) = (double)(v))

/* clang-format off */
#define EACH_TYPE(X, ...) \
    X(BOOL, __VA_ARGS__) X(U8, __VA_ARGS__) X(I8, __VA_ARGS__) X(I32, __VA_ARGS__) \
    X(I64, __VA_ARGS__) X(F16, __VA_ARGS__) X(BF16, __VA_ARGS__) X(F32, __VA_ARGS__) \
    X(F64, __VA_ARGS__)
/* clang-format on */

#define SIZE_BOOL 1
#define SIZE_U8   1
#define SIZE_I8   1
#define SIZE_I32  4
#define SIZE_I64  8
#define SIZE_F16  2
#define SIZE_BF16 2
#define SIZE_F32  4
#define SIZE_F64  8

/* Rows without gaps have a loop of their own: with constant steps it becomes vector code. */
#define TO_CASE(TO, FROM)                                                                    \
    case GD_##TO:                                                                            \
        if (ds == SIZE_##TO && ss == SIZE_##FROM)                                            \
            for (int64_t i = 0; i < n; i++)                                                  \
                STORE_##TO(d + i * SIZE_##TO, LOAD_##FROM(s + i * SIZE_##FROM));             \
        else                                                                                 \
            for (int64_t i = 0; i < n; i++) STORE_##TO(d + i * ds, LOAD_##FROM(s + i * ss)); \
        break;
/* The inner EACH_TYPE must not be the outer one: a macro does not expand inside itself. */
/* clang-format off */
#define EACH_TO(FROM) \
    TO_CASE(BOOL, FROM) TO_CASE(U8, FROM) TO_CASE(I8, FROM) TO_CASE(I32, FROM) TO_CASE(I64, FROM) \
    TO_CASE(F16, FROM) TO_CASE(BF16, FROM) TO_CASE(F32, FROM) TO_CASE(F64, FROM)
/* clang-format on */
#define FROM_CASE(FROM, unused) \
    case GD_##FROM:             \
        switch (to) {           \
            EACH_TO(FROM)       \
        default: break;         \
        }                       \
        break;

/* Byte strides ds, ss. */
static void convert_row(gd_dtype to, char *d, int64_t ds, gd_dtype from, const char *s, int64_t ss,
                        int64_t n) {
    switch (from) {
        EACH_TYPE(FROM_CASE, )
    default: break;
    }
}

static void move_row(size_t size, char *d, int64_t ds, const char *s, int64_t ss, int64_t n) {
    if (ds == (int64_t)size && ss == (int64_t)size) {
        memcpy(d, s, size * (size_t)n);
        return;
    }
    switch (size) {
    case 1:
        for (int64_t i = 0; i < n; i++) d[i * ds] = s[i * ss];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++) memcpy(d + i * ds, s + i * ss, 2);
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) memcpy(d + i * ds, s + i * ss, 4);
        break;
    default:
        for (int64_t i = 0; i < n; i++) memcpy(d + i * ds, s + i * ss, 8);
        break;
    }
}

void gd_convert(gd_dtype to, void *dst, gd_dtype from, const void *src, int64_t n) {
    int64_t ds = (int64_t)gd_dtype_size(to), ss = (int64_t)gd_dtype_size(from);
    if (to == from) memcpy(dst, src, (size_t)(n * ds));
    else convert_row(to, dst, ds, from, src, ss, n);
}

void gd_convert_row(gd_dtype to, void *dst, int64_t dst_step, gd_dtype from, const void *src,
                    int64_t src_step, int64_t n) {
    if (to == from) move_row(gd_dtype_size(to), dst, dst_step, src, src_step, n);
    else convert_row(to, dst, dst_step, from, src, src_step, n);
}

/* --- views ------------------------------------------------------------------------------------ */

enum { PIECE = 32768 }; /* elements of a piece of work for one thread */

/* A copy of up to 8 dims, seen as planes of rows: the last dim is the row, the one before it steps
 * from row to row, those before count the planes. */
typedef struct {
    gd_dtype to, from;
    size_t size; /* of an element where nothing is converted, else 0 */
    char *d;
    const char *s;
    int rank; /* merged dims, at least 2 */
    int64_t dims[GD_MAX_RANK + 2], ds[GD_MAX_RANK + 2], ss[GD_MAX_RANK + 2]; /* byte strides */
    bool transposed; /* the target's fast dim is the row, the source's steps from row to row */
    /* Planes are cut into blocks of row_step rows by col_step columns; or, where planes are small,
     * a piece holds several. */
    int64_t row_step, row_blocks, col_step, col_blocks, blocks, blocks_per_piece;
} job;

/* Every element of a row the same. */
static void fill_row(size_t size, char *d, const char *s, int64_t n) {
    char pattern[512];
    bool zero = true;
    for (size_t i = 0; i < size; i++) zero &= s[i] == 0;
    if (zero || size == 1) {
        memset(d, s[0], size * (size_t)n);
        return;
    }
    size_t total = size * (size_t)n, filled = size;
    memcpy(pattern, s, size);
    for (; filled < sizeof pattern && filled < total; filled *= 2)
        memcpy(pattern + filled, pattern, filled);
    for (size_t at = 0; at < total; at += filled)
        memcpy(d + at, pattern, total - at < filled ? total - at : filled);
}

static void copy_block(const job *j, char *d, const char *s, int64_t rows, int64_t cols) {
    int row = j->rank - 1, plane = j->rank - 2;
    int64_t ds = j->ds[row], ss = j->ss[row], size = (int64_t)j->size;
    if (j->transposed) {
        gd_transpose_block(j->size, d, j->ds[plane], s, ss, cols, rows);
        return;
    }
    for (int64_t r = 0; r < rows; r++, d += j->ds[plane], s += j->ss[plane]) {
        if (!size) convert_row(j->to, d, ds, j->from, s, ss, cols);
        else if (ss == 0 && ds == size) fill_row(j->size, d, s, cols);
        else move_row(j->size, d, ds, s, ss, cols);
    }
}

static void copy_piece(void *arg, int64_t piece) {
    const job *j = arg;
    int row = j->rank - 1, plane = j->rank - 2;
    int64_t first = piece * j->blocks_per_piece, last = first + j->blocks_per_piece;
    if (last > j->blocks) last = j->blocks;
    for (int64_t b = first; b < last; b++) {
        int64_t col = b % j->col_blocks * j->col_step, rest = b / j->col_blocks;
        int64_t r = rest % j->row_blocks * j->row_step;
        rest /= j->row_blocks;
        char *d = j->d + col * j->ds[row] + r * j->ds[plane];
        const char *s = j->s + col * j->ss[row] + r * j->ss[plane];
        for (int k = plane; k-- > 0;) {
            int64_t i = rest % j->dims[k];
            rest /= j->dims[k];
            d += i * j->ds[k];
            s += i * j->ss[k];
        }
        int64_t rows = j->dims[plane] - r, cols = j->dims[row] - col;
        copy_block(j, d, s, rows < j->row_step ? rows : j->row_step,
                   cols < j->col_step ? cols : j->col_step);
    }
}

static int64_t magnitude(int64_t step) { return step < 0 ? -step : step; }

static void swap_dims(job *j, int a, int b) {
    int64_t n = j->dims[a], ds = j->ds[a], ss = j->ss[a];
    j->dims[a] = j->dims[b], j->ds[a] = j->ds[b], j->ss[a] = j->ss[b];
    j->dims[b] = n, j->ds[b] = ds, j->ss[b] = ss;
}

/* The dims that matter, in the order in which the target lies in memory, neighbours that step
 * evenly in both views made one. False: there is nothing to copy. */
static bool merge_dims(job *j, const gd_view *dst, const gd_view *src) {
    int64_t d_size = (int64_t)gd_dtype_size(j->to), s_size = (int64_t)gd_dtype_size(j->from);
    int n = 0;
    for (int k = 0; k < dst->rank; k++) {
        if (dst->dims[k] == 0) return false;
        if (dst->dims[k] == 1) continue;
        j->dims[n] = dst->dims[k];
        j->ds[n] = dst->strides[k] * d_size;
        j->ss[n] = src->strides[k] * s_size;
        for (int i = n++; i > 0 && magnitude(j->ds[i - 1]) < magnitude(j->ds[i]); i--)
            swap_dims(j, i - 1, i);
    }
    for (int k = 0; k < n; k++) {
        int last = j->rank - 1;
        if (last >= 0 && j->ds[last] == j->ds[k] * j->dims[k] &&
            j->ss[last] == j->ss[k] * j->dims[k]) {
            j->dims[last] *= j->dims[k];
            j->ds[last] = j->ds[k];
            j->ss[last] = j->ss[k];
        } else {
            j->dims[j->rank] = j->dims[k];
            j->ds[j->rank] = j->ds[k];
            j->ss[j->rank++] = j->ss[k];
        }
    }
    while (j->rank < 2) { /* a plane needs two */
        for (int k = j->rank; k > 0; k--) swap_dims(j, k - 1, k);
        j->dims[0] = 1;
        j->ds[0] = d_size;
        j->ss[0] = s_size;
        j->rank++;
    }
    return true;
}

/* Which of the dims makes the rows. */
static void choose_plane(job *j) {
    int row = j->rank - 1, plane = j->rank - 2;
    int64_t size = (int64_t)j->size;
    if (!size) return;
    if (j->ds[row] == size && j->ss[row] != size && j->ss[row] != 0 && j->dims[row] >= 4)
        for (int k = 0; k < row; k++)
            if (j->ss[k] == size && j->dims[k] >= 4) {
                swap_dims(j, k, plane);
                j->transposed = true;
                return;
            }
    /* short rows cost a call each: the other way they are long */
    if (j->dims[row] < 8 && j->dims[plane] > j->dims[row]) swap_dims(j, plane, row);
}

void gd_copy_elements(const gd_view *dst, const gd_view *src) {
    job j = {.to = dst->dtype, .from = src->dtype, .d = dst->data, .s = src->data};
    j.size = j.to == j.from ? gd_dtype_size(j.to) : 0;
    if (!merge_dims(&j, dst, src)) return;
    choose_plane(&j);
    int64_t rows = j.dims[j.rank - 2], cols = j.dims[j.rank - 1];
    j.col_step = cols < PIECE ? cols : PIECE;
    if (j.transposed && cols > 256) j.col_step = 256; /* wide tiles: both sides have long runs */
    j.row_step = PIECE / j.col_step < rows ? PIECE / j.col_step : rows;
    j.row_blocks = (rows + j.row_step - 1) / j.row_step;
    j.col_blocks = (cols + j.col_step - 1) / j.col_step;
    j.blocks = j.row_blocks * j.col_blocks * gd_numel(j.rank - 2, j.dims);
    j.blocks_per_piece = (PIECE + j.row_step * j.col_step - 1) / (j.row_step * j.col_step);
    gd_parallel_for((j.blocks + j.blocks_per_piece - 1) / j.blocks_per_piece, copy_piece, &j);
}
