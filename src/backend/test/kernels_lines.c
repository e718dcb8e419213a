/* kernels_lines.c - ops along one axis: cumulative sums and products, linear recurrences, sort. All
 * operands are row-major f64 or i64. */
#include "backend/test/kernels.h"

/* A row-major view seen as (outer, n, inner) around the axis. */
typedef struct lines {
    int64_t outer, n, inner;
} lines;

static lines lines_along(const gd_view *x, int64_t axis) {
    lines l = {1, 1, 1};
    const int at = axis_of(axis, x->rank);
    for (int d = 0; d < x->rank; d++)
        *(d < at ? &l.outer : d == at ? &l.n : &l.inner) *= x->dims[d];
    return l;
}

/* The offset of element t of a line; lines are counted over (outer, inner). */
static int64_t line_element(const lines *l, int64_t line, int64_t t) {
    return (line / l->inner * l->n + t) * l->inner + line % l->inner;
}

/* --- cumulative sums and products ------------------------------------------------------------- */

typedef struct cumulative_options {
    int64_t axis;
    bool product, exclusive, reverse;
    gd_dtype dtype;
} cumulative_options;

static void accumulate_lines(gd_kernel_call *call, const cumulative_options *c) {
    const gd_view *x = &call->in[0], *y = &call->out[0];
    const lines l = lines_along(x, c->axis);
    for (int64_t line = 0; line < l.outer * l.inner; line++) {
        double real = c->product;
        uint64_t integer = c->product;
        for (int64_t t = 0; t < l.n; t++) {
            const int64_t at = line_element(&l, line, c->reverse ? l.n - 1 - t : t);
            const bool as_bool = c->dtype == GD_BOOL;
            const double value = real_at(x, at);
            const uint64_t number = as_bool ? value != 0 : (uint64_t)integer_at(x, at);
            const double real_before = real;
            const uint64_t integer_before = integer;
            real = c->product ? real * value : real + value;
            if (c->product) integer *= number;
            else if (as_bool) integer |= number;
            else integer += number;
            if (y->dtype == GD_F64) ((double *)y->data)[at] = c->exclusive ? real_before : real;
            else ((uint64_t *)y->data)[at] = c->exclusive ? integer_before : integer;
        }
    }
}

void test_cumsum(gd_kernel_call *call) {
    const gd_cumsum_options *o = call->attrs;
    accumulate_lines(call,
                     &(cumulative_options){o->axis, false, o->exclusive, o->reverse, o->dtype});
}

void test_cumprod(gd_kernel_call *call) {
    const gd_cumprod_options *o = call->attrs;
    accumulate_lines(call,
                     &(cumulative_options){o->axis, true, o->exclusive, o->reverse, o->dtype});
}

/* y[k] = a[k] * y[k - 1] + b[k] along each line. With `neighbour`, the factor is a[k - 1]. */
void test_linear_recurrence(gd_kernel_call *call) {
    const gd_linear_recurrence_options *o = call->attrs;
    const double *a = call->in[0].data, *b = call->in[1].data;
    double *y = call->out[0].data;
    const lines l = lines_along(&call->in[0], o->axis);
    for (int64_t line = 0; line < l.outer * l.inner; line++) {
        double last = 0;
        int64_t before = 0;
        for (int64_t t = 0; t < l.n; t++) {
            const int64_t at = line_element(&l, line, o->reverse ? l.n - 1 - t : t);
            if (t > 0) last = a[o->neighbour ? before : at] * last;
            y[at] = last += b[at];
            before = at;
        }
    }
}

/* --- sort ------------------------------------------------------------------------------------- */

/* Whether element a is smaller than element b. NaN is larger than all numbers. */
static bool is_smaller(const gd_view *x, int64_t a, int64_t b) {
    if (x->dtype == GD_I64) return integer_at(x, a) < integer_at(x, b);
    const double p = real_at(x, a), q = real_at(x, b);
    return p < q || (!isnan(p) && isnan(q));
}

/* The position of an element is the number of elements that come before it. The sort is stable. */
void test_sort(gd_kernel_call *call) {
    const gd_sort_options *o = call->attrs;
    const gd_view *x = &call->in[0], *values = &call->out[0], *indices = &call->out[1];
    const lines l = lines_along(x, o->axis);
    for (int64_t line = 0; line < l.outer * l.inner; line++)
        for (int64_t t = 0; t < l.n; t++) {
            const int64_t own = line_element(&l, line, t);
            int64_t position = 0;
            for (int64_t u = 0; u < l.n; u++) {
                const int64_t other = line_element(&l, line, u);
                const bool less = is_smaller(x, other, own), more = is_smaller(x, own, other);
                position += (o->descending ? more : less) || (!less && !more && u < t);
            }
            const int64_t to = line_element(&l, line, position);
            if (values->data) copy_element(values, to, x, own);
            if (indices->data) ((int64_t *)indices->data)[to] = t;
        }
}
