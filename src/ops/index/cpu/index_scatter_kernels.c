/* index_scatter_kernels.c - the scatter family and index_add on all threads.
 *
 * Work is partitioned along the dimensions that are not indexed, so that no two tasks write the
 * same element. Within a task the indices are processed in row-major order. Sums, and which of
 * several writes to an element wins, are therefore those of the reference kernels for any number of
 * threads.
 */
#include <math.h>
#include <string.h>

#include "ops/index/cpu/index_shared.h"
#include "core/copy.h"
#include "core/pool.h"
#include "gradus/ops.h"

enum { STRIP_COLUMNS = 128 }; /* columns of a sum in index_add that one task computes */

/* --- scatter ---------------------------------------------------------------------------------- */

typedef enum {
    SCATTER_SET,
    SCATTER_ADD,
    SCATTER_MULTIPLY,
    SCATTER_MAX,
    SCATTER_MIN,
    SCATTER_FILL,           /* y[offset] = src[0] */
    SCATTER_PREFIX_PRODUCT, /* products[i] = y[offset], then as MULTIPLY */
    SCATTER_SUFFIX_PRODUCT, /* products[i] *= y[offset], then as MULTIPLY; in reverse order */
} scatter_mode;

/* Index and src are read row by row. If the axis is the last dimension, a unit is a row; otherwise
 * it is up to BLOCK columns of all rows along the axis, in order. */
typedef struct {
    scatter_mode mode;
    gd_dtype dtype;
    index_list index;
    const char *src;
    char *y, *products; /* products: row-major, as index */
    int rank;           /* of the dims that are neither the axis nor the last */
    int64_t dims[GD_MAX_RANK], index_steps[GD_MAX_RANK], src_steps[GD_MAX_RANK],
        y_steps[GD_MAX_RANK];
    int64_t rows, index_row, src_row; /* rows of a unit, and their strides in index and src */
    int64_t row, blocks_per_row;
    int column_step; /* stride of columns in y: 0 if the axis is the last dimension, else 1 */
    int64_t units, units_per_task;
    bool has_bad_index;
} scatter_job;

/* Combines src[i] into y[offsets[i] + i * step]. Small integers wrap when they are stored, large
 * ones are computed as unsigned. */
#define SCATTER_EACH(T, value)                                              \
    for (int64_t i = 0; i < n; i++) {                                       \
        T *to = (T *)y + offsets[i] + i * step, from = ((const T *)src)[i]; \
        *to = (T)(value);                                                   \
    }                                                                       \
    break

static void set_row(size_t size, char *y, int step, const int64_t *offsets, const char *src,
                    int64_t n) {
    switch (size) {
    case 1: SCATTER_EACH(uint8_t, from);
    case 2: SCATTER_EACH(uint16_t, from);
    case 4: SCATTER_EACH(uint32_t, from);
    default: SCATTER_EACH(uint64_t, from);
    }
}

static void add_row(gd_dtype dtype, char *y, int step, const int64_t *offsets, const char *src,
                    int64_t n) {
    switch (dtype) {
    case GD_BOOL: SCATTER_EACH(uint8_t, *to || from);
    case GD_U8:
    case GD_I8: SCATTER_EACH(uint8_t, *to + from);
    case GD_I32: SCATTER_EACH(uint32_t, *to + from);
    case GD_I64: SCATTER_EACH(uint64_t, *to + from);
    case GD_F32: SCATTER_EACH(float, *to + from);
    default: SCATTER_EACH(double, *to + from);
    }
}

static void multiply_row(gd_dtype dtype, char *y, int step, const int64_t *offsets, const char *src,
                         int64_t n) {
    switch (dtype) {
    case GD_BOOL: SCATTER_EACH(uint8_t, *to && from);
    case GD_U8:
    case GD_I8: SCATTER_EACH(uint8_t, *to * from);
    case GD_I32: SCATTER_EACH(uint32_t, *to * from);
    case GD_I64: SCATTER_EACH(uint64_t, *to * from);
    case GD_F32: SCATTER_EACH(float, *to *from);
    default: SCATTER_EACH(double, *to *from);
    }
}

/* NaN propagates: comparisons with it are false. */
#define SCATTER_LARGER(T)  SCATTER_EACH(T, *to >= from || *to != *to ? *to : from)
#define SCATTER_SMALLER(T) SCATTER_EACH(T, *to <= from || *to != *to ? *to : from)
static void max_row(gd_dtype dtype, char *y, int step, const int64_t *offsets, const char *src,
                    int64_t n) {
    switch (dtype) {
    case GD_BOOL:
    case GD_U8: SCATTER_LARGER(uint8_t);
    case GD_I8: SCATTER_LARGER(int8_t);
    case GD_I32: SCATTER_LARGER(int32_t);
    case GD_I64: SCATTER_LARGER(int64_t);
    case GD_F32: SCATTER_LARGER(float);
    default: SCATTER_LARGER(double);
    }
}
static void min_row(gd_dtype dtype, char *y, int step, const int64_t *offsets, const char *src,
                    int64_t n) {
    switch (dtype) {
    case GD_BOOL:
    case GD_U8: SCATTER_SMALLER(uint8_t);
    case GD_I8: SCATTER_SMALLER(int8_t);
    case GD_I32: SCATTER_SMALLER(int32_t);
    case GD_I64: SCATTER_SMALLER(int64_t);
    case GD_F32: SCATTER_SMALLER(float);
    default: SCATTER_SMALLER(double);
    }
}
#undef SCATTER_LARGER
#undef SCATTER_SMALLER
#undef SCATTER_EACH

/* y[offsets[i] + i * step] = *value */
static void fill_row(size_t size, char *y, int step, const int64_t *offsets, const char *value,
                     int64_t n) {
    for (int64_t i = 0; i < n; i++)
        memcpy(y + (offsets[i] + i * step) * (int64_t)size, value, size);
}

/* For scatter_others: stores the running product in, or multiplies it into, the result of each
 * factor.
 */
#define MULTIPLY_OTHERS(T)                                                    \
    for (int64_t k = 0; k < n; k++) {                                         \
        int64_t i = mode == SCATTER_PREFIX_PRODUCT ? k : n - 1 - k;           \
        T *to = (T *)y + offsets[i] + i * step, *product = (T *)products + i; \
        *product = mode == SCATTER_PREFIX_PRODUCT ? *to : *product * *to;     \
        *to *= ((const T *)src)[i];                                           \
    }
static void products_row(scatter_mode mode, gd_dtype dtype, char *y, char *products, int step,
                         const int64_t *offsets, const char *src, int64_t n) {
    if (dtype == GD_F32) MULTIPLY_OTHERS(float)
    else MULTIPLY_OTHERS(double)
}
#undef MULTIPLY_OTHERS

/* Scatters n elements of one row; false if an index is out of range. */
static bool scatter_row(const scatter_job *j, int64_t index_at, int64_t src_at, int64_t y_at,
                        int64_t n) {
    int64_t offsets[BLOCK], size = (int64_t)gd_dtype_size(j->dtype);
    if (!load_offsets(&j->index, index_at, n, offsets)) return false;
    char *y = j->y + y_at * size;
    const char *src = j->src + src_at * size;
    switch (j->mode) {
    case SCATTER_SET: set_row((size_t)size, y, j->column_step, offsets, src, n); break;
    case SCATTER_ADD: add_row(j->dtype, y, j->column_step, offsets, src, n); break;
    case SCATTER_MULTIPLY: multiply_row(j->dtype, y, j->column_step, offsets, src, n); break;
    case SCATTER_MAX: max_row(j->dtype, y, j->column_step, offsets, src, n); break;
    case SCATTER_MIN: min_row(j->dtype, y, j->column_step, offsets, src, n); break;
    case SCATTER_FILL: fill_row((size_t)size, y, j->column_step, offsets, j->src, n); break;
    case SCATTER_PREFIX_PRODUCT:
    case SCATTER_SUFFIX_PRODUCT:
        products_row(j->mode, j->dtype, y, j->products + index_at * size, j->column_step, offsets,
                     src, n);
        break;
    }
    return true;
}

static void scatter_task(void *arg, int64_t task) {
    scatter_job *j = arg;
    int64_t from = task * j->units_per_task, to = from + j->units_per_task;
    if (to > j->units) to = j->units;
    for (int64_t u = from; u < to; u++) {
        int64_t first = 0, last = j->row, rest = u, index_at = 0, src_at = 0, y_at = 0;
        if (j->column_step) { /* a unit is a block of columns */
            first = u % j->blocks_per_row * BLOCK;
            last = j->row - first < BLOCK ? j->row : first + BLOCK;
            rest = u / j->blocks_per_row;
        }
        for (int d = j->rank; d-- > 0;) {
            int64_t i = rest % j->dims[d];
            rest /= j->dims[d];
            index_at += i * j->index_steps[d];
            src_at += i * j->src_steps[d];
            y_at += i * j->y_steps[d];
        }
        bool all_valid = true;
        int64_t blocks = (last - first + BLOCK - 1) / BLOCK, count = j->rows * blocks;
        for (int64_t b = 0; b < count && all_valid; b++) {
            int64_t block = j->mode == SCATTER_SUFFIX_PRODUCT ? count - 1 - b : b,
                    r = block / blocks, c = first + block % blocks * BLOCK;
            all_valid = scatter_row(j, index_at + r * j->index_row + c, src_at + r * j->src_row + c,
                                    y_at + c * j->column_step, last - c < BLOCK ? last - c : BLOCK);
        }
        if (!all_valid) {
            __atomic_store_n(&j->has_bad_index, true, __ATOMIC_RELAXED);
            return;
        }
    }
}

/* Sets up a scatter. index, src and y are row-major, and index is not empty. */
static scatter_job init_scatter(const gd_kernel_call *k, int64_t given_axis) {
    gd_view index = gd_at_least_1d(k->in[1]), src = gd_at_least_1d(k->in[2]),
            y = gd_at_least_1d(k->out[0]);
    int last = y.rank - 1, axis = resolve_axis(given_axis, y.rank);
    scatter_job j = {.dtype = y.dtype,
                     .index = {index.data, index.dtype == GD_I32, y.dims[axis], y.strides[axis]},
                     .src = src.data,
                     .y = y.data,
                     .rows = 1,
                     .row = index.dims[last],
                     .column_step = axis != last};
    for (int d = 0; d < last; d++) {
        if (d == axis) {
            j.rows = index.dims[d];
            j.index_row = index.strides[d];
            j.src_row = src.strides[d];
            continue;
        }
        j.dims[j.rank] = index.dims[d];
        j.index_steps[j.rank] = index.strides[d];
        j.src_steps[j.rank] = src.strides[d];
        j.y_steps[j.rank++] = y.strides[d];
    }
    j.blocks_per_row = j.column_step ? (j.row + BLOCK - 1) / BLOCK : 1;
    j.units = gd_numel(j.rank, j.dims) * j.blocks_per_row;
    return j;
}

static gd_status run_scatter(const gd_kernel_call *k, scatter_job *j, scatter_mode mode,
                             int64_t given_axis) {
    int axis = resolve_axis(given_axis, gd_at_least_1d(k->out[0]).rank);
    int64_t columns = j->column_step && j->row > BLOCK ? BLOCK : j->row;
    j->mode = mode;
    gd_parallel_for(task_count(j->units, j->rows * columns, &j->units_per_task), scatter_task, j);
    return j->has_bad_index ? fail_out_of_range(&k->in[1], j->index.size, axis) : GD_OK;
}

static bool is_index_empty(const gd_kernel_call *k) {
    return gd_numel(k->in[1].rank, k->in[1].dims) == 0;
}

static gd_status copy_and_scatter(gd_kernel_call *k, int64_t axis, scatter_mode mode) {
    gd_copy_elements(&k->out[0], &k->in[0]);
    if (is_index_empty(k)) return GD_OK;
    scatter_job j = init_scatter(k, axis);
    return run_scatter(k, &j, mode, axis);
}

static bool has_fast_index(const gd_kernel_call *k) { return is_fast_index(&k->in[1]); }
static bool is_scatter_contiguous(const gd_kernel_call *k) { /* no operand has to be copied first */
    return is_fast_index(&k->in[1]) && is_row_major_view(&k->in[1]) &&
           is_row_major_view(&k->in[2]) && is_row_major_view(&k->out[0]);
}

/*kernel scatter.direct  rank 20  match is_scatter_contiguous
 * Writes into the copy of x, which may have any strides: row-major indices and values.
 */
static gd_status scatter_direct_run(gd_kernel_call *k) {
    return copy_and_scatter(k, ((const gd_scatter_options *)k->attrs)->axis, SCATTER_SET);
}
/*kernel scatter.staged  rank 10  contiguous  match has_fast_index  run scatter_direct_run
 * The same, with copies of operands that are not row-major.
 */

/*kernel scatter_add.direct  rank 20  dtypes bool u8 i8 i32 i64 f32 f64
 *        match is_scatter_contiguous
 * Writes into the copy of x: row-major indices and values, and no conversion.
 */
static gd_status scatter_add_direct_run(gd_kernel_call *k) {
    return copy_and_scatter(k, ((const gd_scatter_add_options *)k->attrs)->axis, SCATTER_ADD);
}
/*kernel scatter_add.staged  rank 10  wide  match has_fast_index  run scatter_add_direct_run
 * The same, with copies of operands that are not row-major or f16 or bf16.
 */

/*kernel scatter_mul.direct  rank 20  dtypes bool u8 i8 i32 i64 f32 f64
 *        match is_scatter_contiguous
 * Writes into the copy of x: row-major indices and values, and no conversion.
 */
static gd_status scatter_mul_direct_run(gd_kernel_call *k) {
    return copy_and_scatter(k, ((const gd_scatter_mul_options *)k->attrs)->axis, SCATTER_MULTIPLY);
}
/*kernel scatter_mul.staged  rank 10  wide  match has_fast_index  run scatter_mul_direct_run
 * The same, with copies of operands that are not row-major or f16 or bf16.
 */

/*kernel scatter_extreme.direct  rank 20  dtypes bool u8 i8 i32 i64 f32 f64
 *        match is_scatter_contiguous
 * Writes into the copy of x: row-major indices and values, and no conversion.
 */
static gd_status scatter_extreme_direct_run(gd_kernel_call *k) {
    const gd_scatter_extreme_options *o = k->attrs;
    union {
        uint8_t u8;
        int8_t i8;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
    } identity = {0}; /* the identity of the maximum or minimum */
    if (o->include_self || is_index_empty(k))
        return copy_and_scatter(k, o->axis, o->largest ? SCATTER_MAX : SCATTER_MIN);
    switch (k->out[0].dtype) {
    case GD_BOOL: identity.u8 = !o->largest; break;
    case GD_U8: identity.u8 = o->largest ? 0 : UINT8_MAX; break;
    case GD_I8: identity.i8 = o->largest ? INT8_MIN : INT8_MAX; break;
    case GD_I32: identity.i32 = o->largest ? INT32_MIN : INT32_MAX; break;
    case GD_I64: identity.i64 = o->largest ? INT64_MIN : INT64_MAX; break;
    case GD_F32: identity.f32 = o->largest ? -INFINITY : INFINITY; break;
    default: identity.f64 = o->largest ? -INFINITY : INFINITY; break;
    }
    gd_copy_elements(&k->out[0], &k->in[0]);
    scatter_job j = init_scatter(k, o->axis);
    const char *src = j.src;
    j.src = (const char *)&identity;
    GD_TRY(run_scatter(k, &j, SCATTER_FILL, o->axis));
    j.src = src;
    return run_scatter(k, &j, o->largest ? SCATTER_MAX : SCATTER_MIN, o->axis);
}
/*kernel scatter_extreme.staged  rank 10  wide  match has_fast_index  run scatter_extreme_direct_run
 * The same, with copies of operands that are not row-major or f16 or bf16.
 */

/*kernel scatter_others.products  rank 10  wide  match has_fast_index
 * The products of all other values at an index, from running products in both orders.
 */
static size_t scatter_others_products_workspace(const gd_kernel_call *k) {
    return 2 * (size_t)gd_numel(k->in[0].rank, k->in[0].dims) * sizeof(double);
}
static gd_status scatter_others_products_run(gd_kernel_call *k) {
    const gd_scatter_others_options *o = k->attrs;
    int64_t n = gd_numel(k->in[0].rank, k->in[0].dims);
    gd_view before = k->out[0], after = before; /* the running product of each element of y */
    before.data = k->workspace;
    if (!after.data) after.data = (double *)k->workspace + n; /* not requested as an output */
    for (int64_t i = 0; i < n; i++)
        if (after.dtype == GD_F32) ((float *)after.data)[i] = 1;
        else ((double *)after.data)[i] = 1;
    if (is_index_empty(k)) return GD_OK;
    scatter_job j = init_scatter(k, o->axis);
    j.products = k->out[1].data;
    if (j.products) {
        gd_copy_elements(&before, &k->in[0]);
        j.y = before.data;
        GD_TRY(run_scatter(k, &j, SCATTER_PREFIX_PRODUCT, o->axis));
    }
    j.y = after.data;
    return run_scatter(k, &j, j.products ? SCATTER_SUFFIX_PRODUCT : SCATTER_MULTIPLY, o->axis);
}

/* --- index_add -------------------------------------------------------------------------------- */

/* y (outer, size, inner) += alpha * src (outer, count, inner) at the indices. A unit is up to
 * STRIP_COLUMNS elements of inner, for all indices in order. */
typedef struct {
    const int64_t *offsets; /* of the slices in y, in elements */
    gd_dtype dtype;
    double alpha;
    const char *src;
    char *y;
    int64_t size, count, inner; /* in elements */
    int64_t blocks, units, units_per_task;
} index_add_job;

static void add_scaled_slice(gd_dtype dtype, char *y, const char *src, int64_t n, double alpha) {
#define SUM(T, value)                                   \
    for (int64_t i = 0; i < n; i++) {                   \
        T *to = (T *)y + i, from = ((const T *)src)[i]; \
        *to = (T)(value);                               \
    }                                                   \
    break
    if (dtype == GD_F32 && alpha == 1) {
        if (n == 1) *(float *)y += *(const float *)src;
        else GD_ISA_CALL(gd_add_row_f32)((float *)y, (const float *)src, n);
        return;
    }
    if (dtype == GD_F64 && alpha == 1) {
        GD_ISA_CALL(gd_add_row_f64)((double *)y, (const double *)src, n);
        return;
    }
    uint64_t times = (uint64_t)(int64_t)alpha;
    switch (dtype) {
    case GD_BOOL: SUM(uint8_t, *to || (from && times));
    case GD_U8:
    case GD_I8: SUM(uint8_t, *to + from * times);
    case GD_I32: SUM(uint32_t, *to + from * times);
    case GD_I64: SUM(uint64_t, *to + from * times);
    case GD_F32: SUM(float, *to + (float)alpha * from);
    default: SUM(double, *to + alpha * from);
    }
#undef SUM
}

static void index_add_task(void *arg, int64_t task) {
    const index_add_job *j = arg;
    int64_t from = task * j->units_per_task, to = from + j->units_per_task;
    int64_t width = (int64_t)gd_dtype_size(j->dtype);
    if (to > j->units) to = j->units;
    for (int64_t u = from; u < to; u++) {
        int64_t outer = u / j->blocks, at = u % j->blocks * STRIP_COLUMNS,
                n = j->inner - at < STRIP_COLUMNS ? j->inner - at : STRIP_COLUMNS;
        char *y = j->y + (outer * j->size * j->inner + at) * width;
        const char *src = j->src + (outer * j->count * j->inner + at) * width;
        for (int64_t i = 0; i < j->count; i++)
            add_scaled_slice(j->dtype, y + j->offsets[i] * width, src + i * j->inner * width, n,
                             j->alpha);
    }
}

/*kernel index_add.direct  rank 20  dtypes bool u8 i8 i32 i64 f32 f64  match is_scatter_contiguous
 * Adds to the copy of x, which may have any strides: row-major values, and no conversion.
 */
static size_t index_add_direct_workspace(const gd_kernel_call *k) {
    return offsets_bytes(&k->in[1]);
}
static gd_status index_add_direct_run(gd_kernel_call *k) {
    const gd_index_add_options *o = k->attrs;
    gd_view index = gd_at_least_1d(k->in[1]), src = gd_at_least_1d(k->in[2]),
            y = gd_at_least_1d(k->out[0]);
    int axis = resolve_axis(o->axis, y.rank);
    index_add_job j = {.offsets = k->workspace,
                       .dtype = y.dtype,
                       .alpha = o->alpha,
                       .src = src.data,
                       .y = y.data,
                       .size = y.dims[axis],
                       .count = src.dims[axis],
                       .inner = gd_numel(y.rank - axis - 1, y.dims + axis + 1)};
    if (!load_all_offsets(&index, j.size, j.inner, k->workspace))
        return fail_out_of_range(&k->in[1], j.size, axis);
    gd_copy_elements(&k->out[0], &k->in[0]);
    j.blocks = (j.inner + STRIP_COLUMNS - 1) / STRIP_COLUMNS;
    j.units = gd_numel(axis, y.dims) * j.blocks;
    int64_t columns = j.inner < STRIP_COLUMNS ? j.inner : STRIP_COLUMNS;
    gd_parallel_for(task_count(j.units, j.count * columns, &j.units_per_task), index_add_task, &j);
    return GD_OK;
}
/*kernel index_add.staged  rank 10  wide  match has_fast_index  run index_add_direct_run
 *        workspace index_add_direct_workspace
 * The same, with copies of operands that are not row-major or f16 or bf16.
 */

#include "ops/index/cpu/index_scatter_kernels.gen.h"
