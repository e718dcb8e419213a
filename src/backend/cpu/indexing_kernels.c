/* indexing_kernels.c - picking and placing by indices on all threads.
 *
 * Work is cut so that no two pieces write the same place: along the dimensions that are not indexed.
 * Inside a piece indices are taken in row-major order, so that sums, and which of several writes
 * stays, are those of the reference kernels whatever the threads.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/indexing_rows.h"
#include "core/copy.h"
#include "core/pool.h"
#include "gradus/ops.h"
#include "ops/indexing.h"

enum {
    PIECE = 16384, /* elements of a piece of work for one thread */
    BLOCK = 512,   /* indices that are looked at together */
    STRIP = 128,   /* columns of a sum that one thread forms */
};

/* --- shared ----------------------------------------------------------------------------------- */

static bool row_major(const gd_view *v) { return gd_is_row_major(v->rank, v->dims, v->strides); }

/* Other integer types are left to the reference kernels. */
static bool plain_index(const gd_view *index) {
    return index->dtype == GD_I64 || index->dtype == GD_I32;
}

static int axis_of(int64_t axis, int rank) { return (int)(axis < 0 ? axis + rank : axis); }

typedef struct {
    const void *data;
    bool narrow; /* i32 */
    int64_t size, step;
} index_list;

/* Indices [first, first + n) times the step of their axis; false: one is not in [0, size). */
static bool load_places(const index_list *l, int64_t first, int64_t n, int64_t *places) {
    if (l->narrow)
        return GD_ISA_CALL(gd_places_i32)((const int32_t *)l->data + first, n, l->size, l->step,
                                          places);
    return GD_ISA_CALL(gd_places_i64)((const int64_t *)l->data + first, n, l->size, l->step,
                                      places);
}

static gd_status out_of_range(const gd_view *index, int64_t size, int axis) {
    char text[16];
    snprintf(text, sizeof text, "axis %d", axis);
    return gd_check_indices(index, size, text);
}

/* How many pieces of so many units, of so many elements each. */
static int64_t pieces_of(int64_t units, int64_t elements, int64_t *units_per_piece) {
    *units_per_piece = elements < 1 ? PIECE : elements < PIECE ? PIECE / elements : 1;
    return (units + *units_per_piece - 1) / *units_per_piece;
}

/* --- gather ----------------------------------------------------------------------------------- */

typedef struct {
    index_list index;
    const char *x;
    char *y;
    size_t size;                                   /* of an element */
    int rank;                                      /* of the dims before the last */
    int64_t dims[GD_MAX_RANK], steps[GD_MAX_RANK]; /* of index; of x, without the axis */
    int64_t row, step; /* y[j] = x[base + j*step + place of index[j]] for the j of a row */
    int64_t blocks_per_row, blocks, blocks_per_piece;
    bool bad;
} gather_job;

static void gather_piece(void *arg, int64_t piece) {
    gather_job *j = arg;
    int64_t places[BLOCK], from = piece * j->blocks_per_piece, to = from + j->blocks_per_piece;
    if (to > j->blocks) to = j->blocks;
    for (int64_t b = from; b < to; b++) {
        int64_t row = b / j->blocks_per_row, column = b % j->blocks_per_row * BLOCK,
                base = column * j->step;
        int64_t n = j->row - column < BLOCK ? j->row - column : BLOCK,
                first = row * j->row + column;
        for (int d = j->rank; d-- > 0;) {
            base += row % j->dims[d] * j->steps[d];
            row /= j->dims[d];
        }
        if (!load_places(&j->index, first, n, places)) {
            __atomic_store_n(&j->bad, true, __ATOMIC_RELAXED);
            return;
        }
        int64_t size = (int64_t)j->size;
        GD_ISA_CALL(gd_take_row)
        (j->size, j->y + first * size, j->x + base * size, j->step, places, n);
    }
}

/*kernel gather.rows  rank 10
 * x with any strides; index (i64 or i32) and y row-major.
 */
static bool gather_rows_match(const gd_kernel_call *k) {
    return plain_index(&k->in[1]) && row_major(&k->in[1]) && row_major(&k->out[0]);
}
static gd_status gather_rows_run(gd_kernel_call *k) {
    const gd_gather_options *o = k->attrs;
    gd_view x = gd_at_least_1d(k->in[0]), index = gd_at_least_1d(k->in[1]);
    int last = x.rank - 1, axis = axis_of(o->axis, x.rank);
    gather_job j = {.index = {index.data, index.dtype == GD_I32, x.dims[axis], x.strides[axis]},
                    .x = x.data,
                    .y = k->out[0].data,
                    .size = gd_dtype_size(x.dtype),
                    .rank = last,
                    .row = index.dims[last],
                    .step = axis == last ? 0 : x.strides[last]};
    for (int d = 0; d < last; d++) {
        j.dims[d] = index.dims[d];
        j.steps[d] = d == axis ? 0 : x.strides[d];
    }
    j.blocks_per_row = (j.row + BLOCK - 1) / BLOCK;
    j.blocks = gd_numel(last, j.dims) * j.blocks_per_row;
    gd_parallel_for(pieces_of(j.blocks, j.row < BLOCK ? j.row : BLOCK, &j.blocks_per_piece),
                    gather_piece, &j);
    return j.bad ? out_of_range(&k->in[1], x.dims[axis], axis) : GD_OK;
}

/* --- scatter ---------------------------------------------------------------------------------- */

typedef enum {
    SET,
    ADD,
    MULTIPLY,
    LARGEST,
    SMALLEST,
    FILL,   /* y[place] = src[0] */
    BEFORE, /* also[i] = y[place], then as MULTIPLY */
    AFTER,  /* also[i] *= y[place], then as MULTIPLY; from the last index to the first */
} scatter_how;

/* Index and src are read in rows. Where the axis is the last dimension, a unit is a row; else it is
 * up to BLOCK columns of all the rows along the axis, one after the other. */
typedef struct {
    scatter_how how;
    gd_dtype dtype;
    index_list index;
    const char *src;
    char *y, *also; /* also: row-major, as index */
    int rank;       /* of the dims that are neither the axis nor the last */
    int64_t dims[GD_MAX_RANK], index_steps[GD_MAX_RANK], src_steps[GD_MAX_RANK],
        y_steps[GD_MAX_RANK];
    int64_t rows, index_row, src_row; /* rows of a unit, and the steps from one to the next */
    int64_t row, blocks_per_row;
    int column_step; /* of y: 0 where the axis is the last dimension, else 1 */
    int64_t units, units_per_piece;
    bool bad;
} scatter_job;

/* y[places[i] + i*step] gets src[i]. Small integers wrap as they are stored, large ones as unsigned. */
#define PUT(T, value)                                                      \
    for (int64_t i = 0; i < n; i++) {                                      \
        T *to = (T *)y + places[i] + i * step, from = ((const T *)src)[i]; \
        *to = (T)(value);                                                  \
    }                                                                      \
    break

static void set_row(size_t size, char *y, int step, const int64_t *places, const char *src,
                    int64_t n) {
    switch (size) {
    case 1: PUT(uint8_t, from);
    case 2: PUT(uint16_t, from);
    case 4: PUT(uint32_t, from);
    default: PUT(uint64_t, from);
    }
}

static void add_row(gd_dtype dtype, char *y, int step, const int64_t *places, const char *src,
                    int64_t n) {
    switch (dtype) {
    case GD_BOOL: PUT(uint8_t, *to || from);
    case GD_U8:
    case GD_I8: PUT(uint8_t, *to + from);
    case GD_I32: PUT(uint32_t, *to + from);
    case GD_I64: PUT(uint64_t, *to + from);
    case GD_F32: PUT(float, *to + from);
    default: PUT(double, *to + from);
    }
}

static void multiply_row(gd_dtype dtype, char *y, int step, const int64_t *places, const char *src,
                         int64_t n) {
    switch (dtype) {
    case GD_BOOL: PUT(uint8_t, *to && from);
    case GD_U8:
    case GD_I8: PUT(uint8_t, *to * from);
    case GD_I32: PUT(uint32_t, *to * from);
    case GD_I64: PUT(uint64_t, *to * from);
    case GD_F32: PUT(float, *to *from);
    default: PUT(double, *to *from);
    }
}

/* NaN wins: a comparison with it is false either way. */
#define LARGER(T)  PUT(T, *to >= from || *to != *to ? *to : from)
#define SMALLER(T) PUT(T, *to <= from || *to != *to ? *to : from)
static void largest_row(gd_dtype dtype, char *y, int step, const int64_t *places, const char *src,
                        int64_t n) {
    switch (dtype) {
    case GD_BOOL:
    case GD_U8: LARGER(uint8_t);
    case GD_I8: LARGER(int8_t);
    case GD_I32: LARGER(int32_t);
    case GD_I64: LARGER(int64_t);
    case GD_F32: LARGER(float);
    default: LARGER(double);
    }
}
static void smallest_row(gd_dtype dtype, char *y, int step, const int64_t *places, const char *src,
                         int64_t n) {
    switch (dtype) {
    case GD_BOOL:
    case GD_U8: SMALLER(uint8_t);
    case GD_I8: SMALLER(int8_t);
    case GD_I32: SMALLER(int32_t);
    case GD_I64: SMALLER(int64_t);
    case GD_F32: SMALLER(float);
    default: SMALLER(double);
    }
}
#undef LARGER
#undef SMALLER
#undef PUT

/* y[places[i] + i*step] = *value */
static void fill_row(size_t size, char *y, int step, const int64_t *places, const char *value,
                     int64_t n) {
    for (int64_t i = 0; i < n; i++) memcpy(y + (places[i] + i * step) * (int64_t)size, value, size);
}

/* For scatter_others: the product so far is multiplied into, or kept in, the result of each factor.
 */
#define OTHERS(T)                                                      \
    for (int64_t k = 0; k < n; k++) {                                  \
        int64_t i = how == BEFORE ? k : n - 1 - k;                     \
        T *to = (T *)y + places[i] + i * step, *other = (T *)also + i; \
        *other = how == BEFORE ? *to : *other * *to;                   \
        *to *= ((const T *)src)[i];                                    \
    }
static void others_row(scatter_how how, gd_dtype dtype, char *y, char *also, int step,
                       const int64_t *places, const char *src, int64_t n) {
    if (dtype == GD_F32) OTHERS(float)
    else OTHERS(double)
}
#undef OTHERS

/* n elements of one row. */
static bool scatter_row(const scatter_job *j, int64_t index_at, int64_t src_at, int64_t y_at,
                        int64_t n) {
    int64_t places[BLOCK], size = (int64_t)gd_dtype_size(j->dtype);
    if (!load_places(&j->index, index_at, n, places)) return false;
    char *y = j->y + y_at * size;
    const char *src = j->src + src_at * size;
    switch (j->how) {
    case SET: set_row((size_t)size, y, j->column_step, places, src, n); break;
    case ADD: add_row(j->dtype, y, j->column_step, places, src, n); break;
    case MULTIPLY: multiply_row(j->dtype, y, j->column_step, places, src, n); break;
    case LARGEST: largest_row(j->dtype, y, j->column_step, places, src, n); break;
    case SMALLEST: smallest_row(j->dtype, y, j->column_step, places, src, n); break;
    case FILL: fill_row((size_t)size, y, j->column_step, places, j->src, n); break;
    case BEFORE:
    case AFTER:
        others_row(j->how, j->dtype, y, j->also + index_at * size, j->column_step, places, src, n);
        break;
    }
    return true;
}

static void scatter_piece(void *arg, int64_t piece) {
    scatter_job *j = arg;
    int64_t from = piece * j->units_per_piece, to = from + j->units_per_piece;
    if (to > j->units) to = j->units;
    for (int64_t u = from; u < to; u++) {
        int64_t first = 0, last = j->row, rest = u, index_at = 0, src_at = 0, y_at = 0;
        if (j->column_step) { /* columns are cut into units too */
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
        bool inside = true;
        int64_t blocks = (last - first + BLOCK - 1) / BLOCK, count = j->rows * blocks;
        for (int64_t b = 0; b < count && inside; b++) {
            int64_t block = j->how == AFTER ? count - 1 - b : b, r = block / blocks,
                    c = first + block % blocks * BLOCK;
            inside = scatter_row(j, index_at + r * j->index_row + c, src_at + r * j->src_row + c,
                                 y_at + c * j->column_step, last - c < BLOCK ? last - c : BLOCK);
        }
        if (!inside) {
            __atomic_store_n(&j->bad, true, __ATOMIC_RELAXED);
            return;
        }
    }
}

/* What is put where: index, src and y are row-major, and index is not empty. */
static scatter_job scatter_of(const gd_kernel_call *k, int64_t given_axis) {
    gd_view index = gd_at_least_1d(k->in[1]), src = gd_at_least_1d(k->in[2]),
            y = gd_at_least_1d(k->out[0]);
    int last = y.rank - 1, axis = axis_of(given_axis, y.rank);
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

static gd_status scatter_go(const gd_kernel_call *k, scatter_job *j, scatter_how how,
                            int64_t given_axis) {
    int axis = axis_of(given_axis, gd_at_least_1d(k->out[0]).rank);
    int64_t columns = j->column_step && j->row > BLOCK ? BLOCK : j->row;
    j->how = how;
    gd_parallel_for(pieces_of(j->units, j->rows * columns, &j->units_per_piece), scatter_piece, j);
    return j->bad ? out_of_range(&k->in[1], j->index.size, axis) : GD_OK;
}

static bool no_index(const gd_kernel_call *k) {
    return gd_numel(k->in[1].rank, k->in[1].dims) == 0;
}

static gd_status scatter_with(gd_kernel_call *k, int64_t axis, scatter_how how) {
    gd_copy_elements(&k->out[0], &k->in[0]);
    if (no_index(k)) return GD_OK;
    scatter_job j = scatter_of(k, axis);
    return scatter_go(k, &j, how, axis);
}

static bool plain_scatter(const gd_kernel_call *k) { return plain_index(&k->in[1]); }
static bool direct_scatter(const gd_kernel_call *k) { /* no operand needs to be copied first */
    return plain_index(&k->in[1]) && row_major(&k->in[1]) && row_major(&k->in[2]) &&
           row_major(&k->out[0]);
}
static bool direct_sum(const gd_kernel_call *k) {
    return direct_scatter(k) && k->out[0].dtype != GD_F16 && k->out[0].dtype != GD_BF16;
}

/*kernel scatter.direct  rank 20  match direct_scatter
 * x with any strides.
 */
static gd_status scatter_direct_run(gd_kernel_call *k) {
    return scatter_with(k, ((const gd_scatter_options *)k->attrs)->axis, SET);
}
/*kernel scatter.staged  rank 10  contiguous  match plain_scatter  run scatter_direct_run
 */

/*kernel scatter_add.direct  rank 20  match direct_sum
 */
static gd_status scatter_add_direct_run(gd_kernel_call *k) {
    return scatter_with(k, ((const gd_scatter_add_options *)k->attrs)->axis, ADD);
}
/*kernel scatter_add.staged  rank 10  wide  match plain_scatter  run scatter_add_direct_run
 */

/*kernel scatter_mul.direct  rank 20  match direct_sum
 */
static gd_status scatter_mul_direct_run(gd_kernel_call *k) {
    return scatter_with(k, ((const gd_scatter_mul_options *)k->attrs)->axis, MULTIPLY);
}
/*kernel scatter_mul.staged  rank 10  wide  match plain_scatter  run scatter_mul_direct_run
 */

/*kernel scatter_extreme.direct  rank 20  match direct_sum
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
    } least = {0}; /* no larger, or no smaller, than any element */
    if (o->include_self || no_index(k))
        return scatter_with(k, o->axis, o->largest ? LARGEST : SMALLEST);
    switch (k->out[0].dtype) {
    case GD_BOOL: least.u8 = !o->largest; break;
    case GD_U8: least.u8 = o->largest ? 0 : UINT8_MAX; break;
    case GD_I8: least.i8 = o->largest ? INT8_MIN : INT8_MAX; break;
    case GD_I32: least.i32 = o->largest ? INT32_MIN : INT32_MAX; break;
    case GD_I64: least.i64 = o->largest ? INT64_MIN : INT64_MAX; break;
    case GD_F32: least.f32 = o->largest ? -INFINITY : INFINITY; break;
    default: least.f64 = o->largest ? -INFINITY : INFINITY; break;
    }
    gd_copy_elements(&k->out[0], &k->in[0]);
    scatter_job j = scatter_of(k, o->axis);
    const char *src = j.src;
    j.src = (const char *)&least;
    GD_TRY(scatter_go(k, &j, FILL, o->axis));
    j.src = src;
    return scatter_go(k, &j, o->largest ? LARGEST : SMALLEST, o->axis);
}
/*kernel scatter_extreme.staged  rank 10  wide  match plain_scatter  run scatter_extreme_direct_run
 */

/*kernel scatter_others.products  rank 10  wide  match plain_scatter
 */
static size_t scatter_others_products_workspace(const gd_kernel_call *k) {
    return 2 * (size_t)gd_numel(k->in[0].rank, k->in[0].dims) * sizeof(double);
}
static gd_status scatter_others_products_run(gd_kernel_call *k) {
    const gd_scatter_others_options *o = k->attrs;
    int64_t n = gd_numel(k->in[0].rank, k->in[0].dims);
    gd_view before = k->out[0], after = before; /* the product so far of each place */
    before.data = k->workspace;
    if (!after.data) after.data = (double *)k->workspace + n; /* nobody wants it */
    for (int64_t i = 0; i < n; i++)
        if (after.dtype == GD_F32) ((float *)after.data)[i] = 1;
        else ((double *)after.data)[i] = 1;
    if (no_index(k)) return GD_OK;
    scatter_job j = scatter_of(k, o->axis);
    j.also = k->out[1].data;
    if (j.also) {
        gd_copy_elements(&before, &k->in[0]);
        j.y = before.data;
        GD_TRY(scatter_go(k, &j, BEFORE, o->axis));
    }
    j.y = after.data;
    return scatter_go(k, &j, j.also ? AFTER : MULTIPLY, o->axis);
}

/* --- whole slices ----------------------------------------------------------------------------- */

/* y (outer, count, inner) takes slices of x (outer, size, inner); inner is a run in both. */
typedef struct {
    const int64_t *places; /* of the slices in x, in elements */
    const char *x;
    char *y;
    int64_t size; /* of an element */
    int rank;     /* of outer */
    int64_t dims[GD_MAX_RANK], x_steps[GD_MAX_RANK];
    int64_t count, inner;
    int64_t part, parts; /* long runs are cut, so that threads can share them */
    int64_t units, units_per_piece;
} select_job;

static void select_piece(void *arg, int64_t piece) {
    const select_job *j = arg;
    int64_t size = j->size, from = piece * j->units_per_piece, to = from + j->units_per_piece;
    if (to > j->units) to = j->units;
    for (int64_t u = from; u < to;) {
        /* as many slices as there are in one outer place and in this piece */
        int64_t slice = u / j->parts, first = slice % j->count, rest = slice / j->count, base = 0,
                n = 1;
        for (int d = j->rank; d-- > 0;) {
            base += rest % j->dims[d] * j->x_steps[d];
            rest /= j->dims[d];
        }
        if (j->parts == 1) n = to - u < j->count - first ? to - u : j->count - first;
        const int64_t *places = j->places + first;
        const char *x = j->x + base * size;
        char *y = j->y + slice * j->inner * size;
        u += n;
        if (j->inner == 1) {
            GD_ISA_CALL(gd_take_row)((size_t)size, y, x, 0, places, n);
            continue;
        }
        int64_t at = (u - n) % j->parts * j->part,
                length = j->inner - at < j->part ? j->inner - at : j->part;
        for (int64_t i = 0; i < n; i++)
            memcpy(y + (i * j->inner + at) * size, x + (places[i] + at) * size,
                   (size_t)(length * size));
    }
}

static void select_slices(const gd_view *x, const int64_t *places, int64_t count, const gd_view *y,
                          int axis) {
    select_job j = {.places = places,
                    .x = x->data,
                    .y = y->data,
                    .size = (int64_t)gd_dtype_size(x->dtype),
                    .rank = axis,
                    .count = count};
    for (int d = 0; d < axis; d++) {
        j.dims[d] = x->dims[d];
        j.x_steps[d] = x->strides[d];
    }
    j.inner = gd_numel(x->rank - axis - 1, x->dims + axis + 1);
    j.part = j.inner < PIECE ? j.inner : PIECE;
    j.parts = (j.inner + j.part - 1) / j.part;
    j.units = gd_numel(axis, j.dims) * j.count * j.parts;
    gd_parallel_for(pieces_of(j.units, j.part, &j.units_per_piece), select_piece, &j);
}

/* The places of a whole list; false: an index is out of range. */
static bool all_places(const gd_view *index, int64_t size, int64_t step, int64_t *places) {
    return load_places(&(index_list){index->data, index->dtype == GD_I32, size, step}, 0,
                       gd_numel(index->rank, index->dims), places);
}

static size_t places_bytes(const gd_view *index) {
    return (size_t)gd_numel(index->rank, index->dims) * sizeof(int64_t);
}

/* The dims behind the axis are one run in memory. */
static bool run_behind(const gd_view *x, int axis) {
    return gd_is_row_major(x->rank - axis - 1, x->dims + axis + 1, x->strides + axis + 1);
}

/*kernel index_select.runs  rank 10
 * What lies behind the axis is one run in memory; index (i64 or i32) and y row-major.
 */
static bool index_select_runs_match(const gd_kernel_call *k) {
    const gd_view *x = &k->in[0];
    return x->rank > 0 && plain_index(&k->in[1]) && row_major(&k->in[1]) && row_major(&k->out[0]) &&
           run_behind(x, axis_of(((const gd_index_select_options *)k->attrs)->axis, x->rank));
}
static size_t index_select_runs_workspace(const gd_kernel_call *k) {
    return places_bytes(&k->in[1]);
}
static gd_status index_select_runs_run(gd_kernel_call *k) {
    const gd_view *x = &k->in[0], *index = &k->in[1];
    int axis = axis_of(((const gd_index_select_options *)k->attrs)->axis, x->rank);
    if (!all_places(index, x->dims[axis], x->strides[axis], k->workspace))
        return out_of_range(index, x->dims[axis], axis);
    select_slices(x, k->workspace, gd_numel(index->rank, index->dims), &k->out[0], axis);
    return GD_OK;
}

/*kernel embedding.runs  rank 10
 * Rows of the table are runs in memory; indices (i64 or i32) and y row-major.
 */
static bool embedding_runs_match(const gd_kernel_call *k) {
    return plain_index(&k->in[0]) && row_major(&k->in[0]) && row_major(&k->out[0]) &&
           run_behind(&k->in[1], 0);
}
static size_t embedding_runs_workspace(const gd_kernel_call *k) { return places_bytes(&k->in[0]); }
static gd_status embedding_runs_run(gd_kernel_call *k) {
    const gd_view *index = &k->in[0], *table = &k->in[1];
    if (!all_places(index, table->dims[0], table->strides[0], k->workspace))
        return gd_check_indices(index, table->dims[0], "a table");
    select_slices(table, k->workspace, gd_numel(index->rank, index->dims), &k->out[0], 0);
    return GD_OK;
}

/* --- index_add -------------------------------------------------------------------------------- */

/* y (outer, size, inner) += alpha * src (outer, count, inner) at the indices. A unit is up to STRIP
 * places of inner, for all indices in their order. */
typedef struct {
    const int64_t *places; /* of the slices in y, in elements */
    gd_dtype dtype;
    double alpha;
    const char *src;
    char *y;
    int64_t size, count, inner; /* in elements */
    int64_t blocks, units, units_per_piece;
} sum_job;

static void add_slice(gd_dtype dtype, char *y, const char *src, int64_t n, double alpha) {
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

static void sum_piece(void *arg, int64_t piece) {
    const sum_job *j = arg;
    int64_t from = piece * j->units_per_piece, to = from + j->units_per_piece;
    int64_t width = (int64_t)gd_dtype_size(j->dtype);
    if (to > j->units) to = j->units;
    for (int64_t u = from; u < to; u++) {
        int64_t outer = u / j->blocks, at = u % j->blocks * STRIP,
                n = j->inner - at < STRIP ? j->inner - at : STRIP;
        char *y = j->y + (outer * j->size * j->inner + at) * width;
        const char *src = j->src + (outer * j->count * j->inner + at) * width;
        for (int64_t i = 0; i < j->count; i++)
            add_slice(j->dtype, y + j->places[i] * width, src + i * j->inner * width, n, j->alpha);
    }
}

/*kernel index_add.direct  rank 20  match direct_sum
 * x with any strides.
 */
static size_t index_add_direct_workspace(const gd_kernel_call *k) {
    return places_bytes(&k->in[1]);
}
static gd_status index_add_direct_run(gd_kernel_call *k) {
    const gd_index_add_options *o = k->attrs;
    gd_view index = gd_at_least_1d(k->in[1]), src = gd_at_least_1d(k->in[2]),
            y = gd_at_least_1d(k->out[0]);
    int axis = axis_of(o->axis, y.rank);
    sum_job j = {.places = k->workspace,
                 .dtype = y.dtype,
                 .alpha = o->alpha,
                 .src = src.data,
                 .y = y.data,
                 .size = y.dims[axis],
                 .count = src.dims[axis],
                 .inner = gd_numel(y.rank - axis - 1, y.dims + axis + 1)};
    if (!all_places(&index, j.size, j.inner, k->workspace))
        return out_of_range(&k->in[1], j.size, axis);
    gd_copy_elements(&k->out[0], &k->in[0]);
    j.blocks = (j.inner + STRIP - 1) / STRIP;
    j.units = gd_numel(axis, y.dims) * j.blocks;
    int64_t columns = j.inner < STRIP ? j.inner : STRIP;
    gd_parallel_for(pieces_of(j.units, j.count * columns, &j.units_per_piece), sum_piece, &j);
    return GD_OK;
}
/*kernel index_add.staged  rank 10  wide  match plain_scatter  run index_add_direct_run  workspace index_add_direct_workspace
 */

#include "indexing_kernels.gen.h"
