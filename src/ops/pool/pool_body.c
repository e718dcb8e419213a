/* pool_body.c - pooling expressed in other ops: windows and reductions.
 *
 * An average over windows of one size is the sum of a strided view of x padded with zeros. This
 * does not work for maxima, which have no neutral element to pad with (x may hold -inf, whose index
 * must be given), nor for adaptive windows, which differ in size. Both use a table of the indices
 * of each window's elements, (out, taps). A window with fewer elements than the largest repeats
 * some of them.
 */
#include <math.h>

#include "gradus/autograd.h"
#include "gradus/ops.h"
#include "ops/pool/pool.h"

enum { AXES = GD_POOL_AXES };

/* --- windows of one axis ---------------------------------------------------------------------- */

/* The windows of one spatial axis. */
typedef struct {
    int axis;              /* its number in x */
    int64_t in, out, taps; /* sizes of x, of the result and of the largest window */
    bool split;            /* adjacent windows of one size fill the axis: no table is needed */
    bool empty;            /* some windows have no elements */
} window_axis;

static window_axis window_axis_of(const gd_pool *p, int a, int axis) {
    window_axis w = {.axis = axis, .in = p->in[a], .out = p->out[a], .taps = p->kernel[a]};
    if (p->adaptive) w.taps = 1;
    for (int64_t o = 0; o < w.out; o++) {
        const int64_t count = gd_pool_window_at(p, a, o).count;
        if (count == 0) w.empty = true;
        if (p->adaptive && count > w.taps) w.taps = count;
    }
    w.split =
        w.out > 0 && w.out * w.taps == w.in &&
        (p->adaptive || (p->padding[a] == 0 && p->dilation[a] == 1 && p->stride[a] == w.taps));
    return w;
}

static gd_tensor *add_int(gd_tensor *x, int64_t n) { return gd_add(x, gd_scalar_int(n)); }
static gd_tensor *multiply_int(gd_tensor *x, int64_t n) { return gd_mul(x, gd_scalar_int(n)); }

/* The index of the first element of each window, as (out, 1); negative in the padding. */
static gd_tensor *window_begin(const gd_pool *p, int a) {
    gd_tensor *o = gd_positions(2, 0, 0, p->out[a], 1);
    if (!p->adaptive) return add_int(multiply_int(o, p->stride[a]), -p->padding[a]);
    return gd_floor_divide(multiply_int(o, p->in[a]), gd_scalar_int(p->out[a]));
}

/* The index after the last element of each adaptive window, as (out, 1). */
static gd_tensor *window_end(const gd_pool *p, int a) {
    gd_tensor *o =
        add_int(multiply_int(add_int(gd_positions(2, 0, 0, p->out[a], 1), 1), p->in[a]), -1);
    return add_int(gd_floor_divide(o, gd_scalar_int(p->out[a])), 1);
}

/* The table of indices, (out, taps). A tap outside x repeats the nearest element of its own window;
 * the entries of an empty window are arbitrary. */
static gd_tensor *window_table(const gd_pool *p, int a, const window_axis *w) {
    gd_tensor *taps = gd_positions(1, 0, 0, w->taps, 1), *begin = window_begin(p, a);
    if (p->adaptive) return gd_minimum(gd_add(begin, taps), add_int(window_end(p, a), -1));
    const int64_t last = w->in - 1;
    gd_tensor *step = gd_scalar_int(p->dilation[a]);
    gd_tensor *at = gd_add(begin, gd_mul(taps, step));
    gd_tensor *low = gd_remainder(at, step);
    gd_tensor *high = add_int(gd_neg(gd_remainder(add_int(gd_neg(at), last), step)), last);
    at = gd_where(gd_lt(at, gd_scalar_int(0)), low, at);
    at = gd_where(gd_gt(at, gd_scalar_int(last)), high, at);
    return gd_minimum(gd_maximum(at, gd_scalar_int(0)), gd_scalar_int(last));
}

/* Which entries of an adaptive table are not repetitions: (out, taps). */
static gd_tensor *distinct_entries(const gd_pool *p, int a, const window_axis *w) {
    gd_tensor *count = gd_sub(window_end(p, a), window_begin(p, a));
    return gd_lt(gd_positions(1, 0, 0, w->taps, 1), count);
}

static gd_tensor *flatten_table(gd_tensor *table, const window_axis *w) {
    return gd_reshape(table, gd_dims(w->out * w->taps));
}

/* Replaces the axis by two: (..., in, ...) gives (..., out, taps, ...). */
static gd_tensor *expand_windows(gd_tensor *x, const gd_pool *p, int a, const window_axis *w) {
    if (w->out == 0) return gd_unsqueeze(gd_narrow(x, w->axis, 0, 0), w->axis + 1);
    if (!w->split) x = gd_index_select(x, w->axis, flatten_table(window_table(p, a, w), w));
    return gd_split_axis(x, w->axis, w->out, w->taps);
}

/* Reshapes a table of axis d of n so that it broadcasts: (out, taps) against (..., out_1 .. out_n,
 * taps_1 .. taps_n), or (out, 1) against (..., out_1 .. out_n). */
static gd_tensor *broadcast_table(gd_tensor *table, int d, int n, bool taps) {
    if (gd_tensor_is_error(table)) return table;
    gd_shape dims = {.rank = taps ? 2 * n : n, .form = 1};
    for (int k = 0; k < dims.rank; k++) dims.at[k] = 1;
    dims.at[d] = table->dims[0];
    if (taps) dims.at[n + d] = table->dims[1];
    return gd_reshape(table, dims);
}

/* --- maxima ----------------------------------------------------------------------------------- */

/* (..., out_1, taps_1, .. out_n, taps_n) as (..., out_1 .. out_n, taps). */
static gd_tensor *taps_last(gd_tensor *x, int n) {
    if (gd_tensor_is_error(x)) return x;
    gd_shape order = {.rank = x->rank, .form = 1}, dims = {.form = 1};
    const int lead = x->rank - 2 * n;
    for (int k = 0; k < lead; k++) order.at[k] = k;
    for (int d = 0; d < n; d++) {
        order.at[lead + d] = lead + 2 * d;
        order.at[lead + n + d] = lead + 2 * d + 1;
    }
    int64_t taps = 1;
    for (int d = 0; d < n; d++) taps *= x->dims[lead + 2 * d + 1];
    for (int k = 0; k < lead + n; k++) dims.at[dims.rank++] = x->dims[order.at[k]];
    dims.at[dims.rank++] = taps;
    return gd_reshape(gd_permute(x, order), dims);
}

/* The tap of each maximum, (..., 1): the last NaN, or else the first of the largest elements. */
static gd_tensor *find_winning_tap(gd_tensor *windows) {
    gd_max_with_index_outputs most = gd_max_with_index(windows, -1, .keepdim = true);
    if (!gd_dtype_is_float(gd_tensor_dtype(windows))) return most.indices;
    gd_tensor *taps = gd_positions(1, 0, 0, gd_tensor_dim(windows, -1), 1);
    gd_tensor *nan = gd_max(gd_where(gd_isnan(windows), taps, gd_scalar_int(-1)),
                            .axis = gd_dims(-1), .keepdim = true);
    return gd_where(gd_isnan(most.values), nan, most.indices);
}

/* The same without recording it on the tape. */
static gd_tensor *winning_tap(gd_tensor *windows) {
    gd_this_thread.no_grad++;
    gd_tensor *tap = find_winning_tap(windows);
    gd_this_thread.no_grad--;
    return tap;
}

/* The index of each tap in its plane: (out_1 .. out_n, taps). */
static gd_tensor *tap_indices(const gd_pool *p, const window_axis *w, int n) {
    gd_tensor *indices = NULL;
    int64_t step = 1, taps = 1;
    gd_shape dims = {.rank = n + 1, .form = 1};
    for (int d = n; d-- > 0;) {
        gd_tensor *table =
            broadcast_table(multiply_int(window_table(p, AXES - n + d, &w[d]), step), d, n, true);
        indices = indices ? gd_add(indices, table) : table;
        step *= w[d].in;
        taps *= w[d].taps;
        dims.at[d] = w[d].out;
    }
    dims.at[n] = taps;
    return gd_reshape(indices, dims);
}

/* True for windows without elements: (out_1 .. out_n). */
static gd_tensor *empty_windows(const gd_pool *p, const window_axis *w, int n) {
    gd_tensor *empty = NULL;
    for (int d = 0; d < n; d++) {
        const int a = AXES - n + d;
        if (!w[d].empty) continue;
        gd_tensor *begin = window_begin(p, a), *step = gd_scalar_int(p->dilation[a]);
        gd_tensor *first =
            gd_where(gd_lt(begin, gd_scalar_int(0)), gd_remainder(begin, step), begin);
        gd_tensor *last = add_int(begin, (p->kernel[a] - 1) * p->dilation[a]);
        gd_tensor *none = gd_logical_or(gd_gt(first, last), gd_ge(first, gd_scalar_int(w[d].in)));
        none = broadcast_table(none, d, n, false);
        empty = empty ? gd_logical_or(empty, none) : none;
    }
    return empty;
}

/* The result of an empty window: the smallest number of the dtype. */
static gd_tensor *smallest_number(gd_dtype dtype) {
    return gd_dtype_is_float(dtype) ? gd_scalar_of(-INFINITY, dtype)
                                    : gd_as_dtype(gd_scalar_int(INT64_MIN), dtype);
}

gd_tensor *gd_max_pool_body(gd_tensor *x, const gd_pool *p, int n, gd_tensor **indices) {
    const int lead = x->rank - n;
    const gd_dtype dtype = (gd_dtype)x->dtype;
    window_axis w[AXES];
    bool no_windows = false;
    for (int d = n; d-- > 0;) {
        w[d] = window_axis_of(p, AXES - n + d, lead + d);
        x = expand_windows(x, p, AXES - n + d, &w[d]);
        no_windows |= w[d].out == 0;
    }
    x = taps_last(x, n);
    if (no_windows) { /* computing the tables would divide by 0 */
        gd_tensor *y = gd_select(x, -1, 0);
        if (indices) *indices = gd_cast(y, GD_I64);
        return y;
    }
    gd_tensor *tap = winning_tap(x), *empty = empty_windows(p, w, n);
    gd_tensor *y = gd_squeeze(gd_gather(x, -1, tap), .axis = gd_dims(-1));
    if (empty) y = gd_where(empty, smallest_number(dtype), y);
    if (!indices || gd_tensor_is_error(x)) return y;
    gd_tensor *at = gd_expand(tap_indices(p, w, n), gd_tensor_shape(x));
    at = gd_squeeze(gd_gather(at, -1, tap), .axis = gd_dims(-1));
    *indices = empty ? gd_where(empty, gd_scalar_int(-1), at) : at;
    return y;
}

/* --- averages --------------------------------------------------------------------------------- */

/* The divisor of an average along axis a, as (out, 1). */
static gd_tensor *window_sizes(const gd_pool *p, int a) {
    gd_tensor *begin = window_begin(p, a);
    if (p->adaptive) return gd_sub(window_end(p, a), begin);
    gd_tensor *end = add_int(begin, p->kernel[a]);
    if (p->count_padding)
        return gd_sub(gd_minimum(end, gd_scalar_int(p->in[a] + p->padding[a])), begin);
    return gd_sub(gd_minimum(end, gd_scalar_int(p->in[a])), gd_maximum(begin, gd_scalar_int(0)));
}

/* Whether all windows along the axis have the same divisor, which is *size then. */
static bool equal_sizes(const gd_pool *p, int a, int64_t *size) {
    for (int64_t o = 0; o < p->out[a]; o++) {
        const int64_t own = gd_pool_window_at(p, a, o).size;
        if (o > 0 && own != *size) return false;
        *size = own;
    }
    return true;
}

/* The divisors of sums: a scalar, or (out_1 .. out_n) if windows differ in size. */
static gd_tensor *window_divisors(const gd_pool *p, int n, gd_dtype dtype) {
    gd_tensor *all = NULL;
    int64_t number = p->divisor ? p->divisor : 1;
    for (int d = 0; d < n && !p->divisor; d++) {
        const int a = AXES - n + d;
        int64_t size = 1;
        if (equal_sizes(p, a, &size)) {
            number *= size;
            continue;
        }
        gd_tensor *sizes = broadcast_table(window_sizes(p, a), d, n, false);
        all = all ? gd_mul(all, sizes) : sizes;
    }
    gd_tensor *constant = gd_scalar_int(number);
    all = !all ? constant : number != 1 ? gd_mul(all, constant) : all;
    return gd_as_dtype(all, dtype);
}

static gd_window_form pool_windows(const gd_pool *p) {
    gd_window_form f;
    for (int a = 0; a < AXES; a++) {
        f.before[a] = p->padding[a];
        f.count[a] = p->out[a];
        f.size[a] = p->kernel[a];
        f.step[a] = p->stride[a];
        f.dilation[a] = 1;
    }
    return f;
}

gd_tensor *gd_avg_pool_body(gd_tensor *x, const gd_pool *p, int n) {
    const gd_dtype dtype = (gd_dtype)x->dtype;
    const bool real = gd_dtype_is_float(dtype);
    const int lead = x->rank - n;
    gd_tensor *sum = real ? gd_widen(x) : gd_as_dtype(x, GD_I64);
    const gd_dtype wide = gd_tensor_dtype(sum);
    if (p->adaptive) {
        for (int d = n; d-- > 0;) {
            const int a = AXES - n + d;
            const window_axis w = window_axis_of(p, a, lead + d);
            sum = expand_windows(sum, p, a, &w); /* (..., out, taps, ...) */
            if (!w.split && w.out > 0) {
                gd_shape dims = {.rank = n - d + 1, .form = 1, .at = {w.out, w.taps, 1, 1}};
                sum = gd_where(gd_reshape(distinct_entries(p, a, &w), dims), sum,
                               gd_scalar_of(0, wide));
            }
            sum = gd_sum(sum, .axis = gd_dims(lead + d + 1));
        }
    } else {
        const gd_window_form f = pool_windows(p);
        gd_shape taps = {.rank = n, .form = 1};
        for (int d = 0; d < n; d++) taps.at[d] = lead + n + d;
        sum = gd_sum(gd_window_views(sum, &f, n), .axis = taps);
    }
    gd_tensor *by = window_divisors(p, n, wide);
    return gd_as_dtype(real ? gd_div(sum, by) : gd_trunc_divide(sum, by), dtype);
}

gd_tensor *gd_avg_pool_grad_body(gd_tensor *gy, const gd_pool *p, int n) {
    const int lead = gy->rank - n;
    const gd_dtype dtype = (gd_dtype)gy->dtype;
    gd_shape dims = gd_tensor_shape(gy);
    gd_tensor *g = gd_widen(gy);
    for (int d = 0; d < n; d++)
        if (p->out[AXES - n + d] == 0) { /* gy is empty: its sum is 0 and depends on it */
            for (int k = 0; k < n; k++) dims.at[lead + k] = p->in[AXES - n + k];
            return gd_expand(gd_as_dtype(gd_sum(gy), dtype), dims);
        }
    g = gd_div(g, window_divisors(p, n, gd_tensor_dtype(g)));
    if (!p->adaptive) { /* repeat each element of gy over its window, then sum the overlaps */
        const gd_window_form f = pool_windows(p);
        for (int d = 0; d < n; d++) {
            g = gd_unsqueeze(g, -1);
            dims.at[dims.rank++] = f.size[AXES - n + d];
        }
        g = gd_window_sums(gd_expand(g, dims), &f, gd_spatial_list(p->in, n));
        return gd_as_dtype(g, dtype);
    }
    for (int d = 0; d < n; d++) {
        const int a = AXES - n + d;
        const window_axis w = window_axis_of(p, a, lead + d);
        gd_shape wide = gd_tensor_shape(g), line = {.rank = n - d + 1, .form = 1};
        for (int k = wide.rank++; k > w.axis; k--) wide.at[k] = wide.at[k - 1];
        wide.at[w.axis + 1] = w.taps;
        g = gd_expand(gd_unsqueeze(g, w.axis + 1), wide); /* (..., out, taps, ...) */
        for (int k = 0; k < line.rank; k++) line.at[k] = k == 0 ? w.out : k == 1 ? w.taps : 1;
        if (!w.split)
            g = gd_where(gd_reshape(distinct_entries(p, a, &w), line), g,
                         gd_scalar_of(0, gd_tensor_dtype(g)));
        g = gd_merge_axes(g, w.axis);
        if (!w.split)
            g = gd_scatter_sums(g, w.axis, flatten_table(window_table(p, a, &w), &w), w.in);
    }
    return gd_as_dtype(g, dtype);
}
