/* creation.c - ops that create tensors: constants and sequences. */
#include <math.h>
#include <string.h>

#include "core/copy.h"
#include "core/integer.h"
#include "core/pool.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"

enum {
    PIECE = 32768, /* bytes of a fill that one task of the pool writes */
    TILE = 1024,   /* bytes of the fill pattern; elements of a sequence that one task computes */
};

/* --- constants -------------------------------------------------------------------------------- */

/* A parallel fill of row-major memory. The pattern is the element, repeated. */
typedef struct {
    char *data;
    int64_t bytes;
    char pattern[TILE];
} fill_job;

static void fill_piece(void *arg, int64_t piece) {
    const fill_job *j = arg;
    int64_t from = piece * PIECE, to = from + PIECE < j->bytes ? from + PIECE : j->bytes;
    for (; from < to; from += TILE)
        memcpy(j->data + from, j->pattern, (size_t)(to - from < TILE ? to - from : TILE));
}

/* Stores a number that gd_need_fits has accepted. */
static void store_number(gd_dtype dtype, void *to, gd_number value) {
    if (gd_dtype_is_int(dtype)) gd_store_i64(dtype, to, gd_number_i64(value));
    else gd_store_f64(dtype, to, value.value);
}

static void fill_view(const gd_view *y, gd_number value) {
    fill_job j;
    const size_t size = gd_dtype_size(y->dtype);
    j.data = y->data;
    store_number(y->dtype, j.pattern, value);
    if (gd_is_row_major(y->rank, y->dims, y->strides)) {
        j.bytes = gd_numel(y->rank, y->dims) * (int64_t)size;
        const size_t needed = j.bytes < TILE ? (size_t)j.bytes : TILE;
        /* doubling never exceeds TILE: both it and the element size are powers of two */
        for (size_t have = size; have < needed; have *= 2)
            memcpy(j.pattern + have, j.pattern, have);
        gd_parallel_for((j.bytes + PIECE - 1) / PIECE, fill_piece, &j);
        return;
    }
    gd_view one = *y; /* strides of 0: the same element everywhere */
    one.data = j.pattern;
    memset(one.strides, 0, sizeof one.strides);
    gd_copy_elements(y, &one);
}

static gd_status set_shape(gd_meta *y, gd_shape dims, gd_dtype dtype) {
    size_t bytes;
    if (gd_dtype_size(dtype) == 0) return gd_op_fail(GD_E_DTYPE, "there is no such dtype");
    GD_TRY(gd_shape_bytes(dims, dtype, &bytes));
    y->dtype = dtype;
    y->rank = dims.rank;
    memcpy(y->dims, dims.at, sizeof y->dims);
    return GD_OK;
}

/*op full(dims:int[], value:number) -> y  nograd
 * A tensor filled with one value, on the default device. An integer dtype drops the fraction of the
 * value; a value out of its range is an error.
 *   dtype dtype = f32
 *   fills value
 *   onnx ConstantOfShape
 *   python (shape=dims, fill_value=value, dtype)
 */
static gd_status full_infer(gd_infer *i) {
    const gd_full_options *o = i->attrs;
    GD_TRY(gd_need_fits(o->value, o->dtype));
    return set_shape(&i->out[0], o->dims, o->dtype);
}
static gd_status full_raw(gd_kernel_call *k) {
    const gd_full_options *o = k->attrs;
    fill_view(&k->out[0], o->value);
    return GD_OK;
}

/*op zeros(dims:int[]) -> y  nograd
 * A tensor of zeros, on the default device.
 *   dtype dtype = f32
 *   python (*shape=dims, dtype)
 */
static gd_status zeros_infer(gd_infer *i) {
    const gd_zeros_options *o = i->attrs;
    return set_shape(&i->out[0], o->dims, o->dtype);
}
static void zeros_expand(gd_expansion *e) {
    const gd_zeros_options *o = e->attrs;
    e->y[0] = gd_full(o->dims, 0, .dtype = o->dtype);
}

/*op ones(dims:int[]) -> y  nograd
 * A tensor of ones, on the default device.
 *   dtype dtype = f32
 *   python (*shape=dims, dtype)
 */
static gd_status ones_infer(gd_infer *i) {
    const gd_ones_options *o = i->attrs;
    return set_shape(&i->out[0], o->dims, o->dtype);
}
static void ones_expand(gd_expansion *e) {
    const gd_ones_options *o = e->attrs;
    e->y[0] = gd_full(o->dims, 1, .dtype = o->dtype);
}

/*op full_like(x, value:number) -> y  nograd shapeonly
 * A tensor with the shape and device of x, filled with one value as by full.
 *   dtype dtype = none  none: that of x
 *   saves nothing
 *   fills value
 *   python (x, fill_value=value, dtype)
 */
static gd_status full_like_infer(gd_infer *i) {
    const gd_full_like_options *o = i->attrs;
    gd_meta_like(&i->out[0], i->in[0]);
    if (o->dtype) i->out[0].dtype = o->dtype;
    if (gd_dtype_size(i->out[0].dtype) == 0)
        return gd_op_fail(GD_E_DTYPE, "there is no such dtype");
    return gd_need_fits(o->value, i->out[0].dtype);
}
static void full_like_expand(gd_expansion *e) {
    const gd_full_like_options *o = e->attrs;
    e->y[0] = gd_constant_for(e->x[0], gd_tensor_shape(e->x[0]), o->value,
                              o->dtype ? o->dtype : (gd_dtype)e->x[0]->dtype);
}
static gd_status full_like_raw(gd_kernel_call *k) {
    const gd_full_like_options *o = k->attrs;
    fill_view(&k->out[0], o->value);
    return GD_OK;
}

/*op zeros_like(x) -> y  nograd
 * Zeros with the shape and device of x.
 *   dtype dtype = none  none: that of x
 *   saves nothing
 *   python (x)
 */
static void zeros_like_expand(gd_expansion *e) {
    const gd_zeros_like_options *o = e->attrs;
    e->y[0] = gd_full_like(e->x[0], 0, .dtype = o->dtype);
}

/*op ones_like(x) -> y  nograd
 * Ones with the shape and device of x.
 *   dtype dtype = none  none: that of x
 *   saves nothing
 *   python (x)
 */
static void ones_like_expand(gd_expansion *e) {
    const gd_ones_like_options *o = e->attrs;
    e->y[0] = gd_full_like(e->x[0], 1, .dtype = o->dtype);
}

/*op eye(n:int) -> y  nograd
 * A matrix of n rows with ones on the diagonal and zeros elsewhere.
 *   m int = none       columns; none: n
 *   dtype dtype = f32
 *   python (n, m)
 */
static gd_status eye_infer(gd_infer *i) {
    const gd_eye_options *o = i->attrs;
    int64_t m = o->m == GD_UNSET ? o->n : o->m;
    if (o->n < 0 || m < 0)
        return gd_op_fail(GD_E_ARGUMENT, "%lld rows and %lld columns; neither may be negative",
                          (long long)o->n, (long long)m);
    return set_shape(&i->out[0], gd_dims(o->n, m), o->dtype);
}
static void eye_expand(gd_expansion *e) {
    const gd_eye_options *o = e->attrs;
    const int64_t m = o->m == GD_UNSET ? o->n : o->m;
    e->y[0] =
        gd_as_dtype(gd_eq(gd_positions(2, 0, 0, o->n, 1), gd_positions(2, 1, 0, m, 1)), o->dtype);
}
static gd_status eye_raw(gd_kernel_call *k) {
    const gd_view *y = &k->out[0];
    int64_t size = (int64_t)gd_dtype_size(y->dtype), step = (y->strides[0] + y->strides[1]) * size;
    int64_t n = y->dims[0] < y->dims[1] ? y->dims[0] : y->dims[1];
    fill_view(y, gd_number_of(0));
    for (int64_t i = 0; i < n; i++) gd_store_f64(y->dtype, (char *)y->data + i * step, 1);
    return GD_OK;
}

/* --- sequences -------------------------------------------------------------------------------- */

/* Element i is start + i*step or, from `middle` on, end - (n-1-i)*step, so that both ends of a
 * linspace are exact. An arange of integers is computed in i64: first + i*stride. */
typedef struct {
    const gd_view *y;
    double start, end, step;
    int64_t first, stride;
    int64_t n, middle;
    bool integer;
} sequence;

static void sequence_piece(void *arg, int64_t piece) {
    const sequence *s = arg;
    union {
        double real[TILE];
        int64_t integer[TILE];
    } tile;
    int64_t size = (int64_t)gd_dtype_size(s->y->dtype), step = s->y->strides[0] * size;
    int64_t from = piece * TILE, count = s->n - from < TILE ? s->n - from : TILE;
    for (int64_t k = 0; k < count; k++) {
        int64_t i = from + k;
        if (s->integer)
            tile.integer[k] = (int64_t)((uint64_t)s->first + (uint64_t)i * (uint64_t)s->stride);
        else if (i < s->middle) tile.real[k] = s->start + s->step * (double)i;
        else tile.real[k] = s->end - s->step * (double)(s->n - 1 - i);
    }
    gd_convert_row(s->y->dtype, (char *)s->y->data + from * step, step,
                   s->integer ? GD_I64 : GD_F64, &tile, 8, count);
}

static gd_status run_sequence(sequence *s) {
    s->n = s->y->dims[0];
    gd_parallel_for((s->n + TILE - 1) / TILE, sequence_piece, s);
    return GD_OK;
}

static gd_status check_sequence_dtype(gd_dtype dtype) {
    if (gd_dtype_is_float(dtype) || gd_dtype_is_int(dtype)) return GD_OK;
    return gd_op_fail(GD_E_DTYPE, "the dtype must be an integer or float dtype, not %s",
                      gd_dtype_name(dtype));
}

/* Whether the integer part of v is in the range of i64. */
static bool fits_i64(double v) { return v >= -0x1p63 && v < 0x1p63; }
static bool number_fits_i64(gd_number n) {
    return fits_i64(n.value) || (double)n.integer == n.value;
}

/* The number of integers start, start + step, ... before end, computed without rounding. */
static gd_status count_integers(gd_number start, gd_number end, gd_number step, int64_t *count) {
    const int64_t from = gd_number_i64(start), to = gd_number_i64(end), by = gd_number_i64(step);
    const uint64_t distance =
        to > from ? (uint64_t)to - (uint64_t)from : (uint64_t)from - (uint64_t)to;
    const uint64_t each = by > 0 ? (uint64_t)by : 0 - (uint64_t)by;
    const uint64_t n = distance / each + (distance % each != 0);
    *count = (int64_t)n;
    return n < (uint64_t)1 << 62
               ? GD_OK
               : gd_op_fail(GD_E_OVERFLOW, "%llu elements are too many", (unsigned long long)n);
}

/*op arange(start:number, end:number) -> y  nograd
 * start, start + step, ... up to end, which is excluded.
 *   step number = 1
 *   dtype dtype = f32  integer dtypes drop the fractions of start and step, as in PyTorch
 *   onnx Range
 *   python (start, end, step)
 */
static gd_status arange_infer(gd_infer *i) {
    const gd_arange_options *o = i->attrs;
    double start = o->start.value, end = o->end.value, step = o->step.value;
    GD_TRY(check_sequence_dtype(o->dtype));
    if (!isfinite(start) || !isfinite(end) || !isfinite(step))
        return gd_op_fail(GD_E_ARGUMENT, "start %g, end %g and step %g must be finite", start, end,
                          step);
    if (gd_dtype_is_int(o->dtype) &&
        (!number_fits_i64(o->start) || !number_fits_i64(o->end) || !number_fits_i64(o->step)))
        return gd_op_fail(GD_E_OVERFLOW, "start %g or end %g is out of the range of %s", start, end,
                          gd_dtype_name(o->dtype));
    if (o->dtype == GD_I64) start = trunc(start), end = trunc(end), step = trunc(step);
    if (step == 0)
        return gd_op_fail(GD_E_ARGUMENT, "step is %g%s; it must not be 0", o->step.value,
                          o->step.value ? ", which is 0 as an integer" : "");
    if ((step > 0) != (end >= start) && end != start)
        return gd_op_fail(GD_E_ARGUMENT, "step %g does not lead from %g to %g", step, start, end);
    bool integer = gd_number_is_integer(o->start) && gd_number_is_integer(o->end) &&
                   gd_number_is_integer(o->step);
    if (gd_dtype_is_int(o->dtype) && (integer || o->dtype == GD_I64)) {
        int64_t n;
        GD_TRY(count_integers(o->start, o->end, o->step, &n));
        return set_shape(&i->out[0], gd_dims(n), o->dtype);
    }
    double count = ceil((end - start) / step);
    if (!(count < 0x1p62)) return gd_op_fail(GD_E_OVERFLOW, "%g elements are too many", count);
    return set_shape(&i->out[0], gd_dims((int64_t)count), o->dtype);
}
static gd_status arange_raw(gd_kernel_call *k) {
    const gd_arange_options *o = k->attrs;
    sequence s = {
        .y = &k->out[0], .start = o->start.value, .step = o->step.value, .middle = INT64_MAX};
    s.integer = gd_dtype_is_int(o->dtype);
    if (s.integer) s.first = gd_number_i64(o->start), s.stride = gd_number_i64(o->step);
    return run_sequence(&s);
}

/*op linspace(start:float, end:float, steps:int) -> y  nograd
 * Evenly spaced numbers from start to end, both included.
 *   dtype dtype = f32
 *   python (start, stop=end, num=steps)
 */
static gd_status linspace_infer(gd_infer *i) {
    const gd_linspace_options *o = i->attrs;
    GD_TRY(check_sequence_dtype(o->dtype));
    if (o->steps < 0)
        return gd_op_fail(GD_E_ARGUMENT, "steps is %lld; it must not be negative",
                          (long long)o->steps);
    if (gd_dtype_is_int(o->dtype) && (!fits_i64(o->start) || !fits_i64(o->end)))
        return gd_op_fail(GD_E_OVERFLOW, "start %g or end %g is out of the range of %s", o->start,
                          o->end, gd_dtype_name(o->dtype));
    return set_shape(&i->out[0], gd_dims(o->steps), o->dtype);
}
/*op spaced(x, start:float, end:float, step:float, last:float, middle:float) -> y  elementwise internal
 * Element x of a linspace whose last index is `last`. From `middle` on it is computed from the end,
 * so that both ends are exact.
 *   y = x < middle ? start + step * x : end - step * (last - x)
 */
static void linspace_expand(gd_expansion *e) {
    const gd_linspace_options *o = e->attrs;
    const bool integers = gd_dtype_is_int(o->dtype);
    const double start = integers ? trunc(o->start) : o->start,
                 end = integers ? trunc(o->end) : o->end, last = (double)(o->steps - 1);
    gd_tensor *numbers = gd_arange(0, o->steps, .dtype = GD_F64);
    gd_tensor *y = gd_spaced(numbers, start, end, last > 0 ? (end - start) / last : 0, last,
                             o->steps == 1 ? 1 : (double)(o->steps / 2));
    e->y[0] = gd_as_dtype(y, o->dtype);
}
static gd_status linspace_raw(gd_kernel_call *k) {
    const gd_linspace_options *o = k->attrs;
    sequence s = {.y = &k->out[0],
                  .start = o->start,
                  .end = o->end,
                  .middle = o->steps == 1 ? 1 : o->steps / 2};
    if (gd_dtype_is_int(o->dtype)) s.start = trunc(s.start), s.end = trunc(s.end);
    s.step = o->steps > 1 ? (s.end - s.start) / (double)(o->steps - 1) : 0;
    return run_sequence(&s);
}

#include "ops/creation/creation.gen.h"
