/* random_dtypes.c - random ops on values (rows, columns) of all dtypes. */
#include "random_dtypes.h"

enum { MAX_VALUES = 64 };

static int rows, columns; /* the shape of all values; columns is even */

bool without_half_precision;

static gd_dtype dtype_of_kind(draws *d, enum kind kind) {
    static const gd_dtype all[] = {GD_BOOL, GD_U8,  GD_I8,  GD_I32, GD_I64,
                                   GD_F64,  GD_F32, GD_F16, GD_BF16};
    switch (kind) {
    case INTEGERS: return all[draw_below(d, 5)];
    case FLOATS: return all[5 + draw_below(d, 2)];
    default: return all[draw_below(d, without_half_precision ? 7 : 9)];
    }
}

static gd_tensor *scalar_like(double x, gd_tensor *like) {
    return gd_full(gd_dims(), x, .dtype = gd_tensor_dtype(like));
}
static gd_tensor *transposed(gd_tensor *x) { return gd_permute(x, gd_dims(1, 0)); }
static bool is_float(const gd_tensor *x) { return gd_dtype_is_float(gd_tensor_dtype(x)); }
static bool is_bool(const gd_tensor *x) { return gd_tensor_dtype(x) == GD_BOOL; }

/* Casts to another dtype, after limiting the range so that any dtype can hold the values. */
static gd_tensor *cast_bounded(gd_tensor *x, gd_dtype dtype) {
    if (is_float(x) && !gd_dtype_is_float(dtype))
        x = gd_mul(gd_tanh(x), scalar_like(dtype == GD_BOOL ? 1 : 90, x));
    return gd_cast(x, dtype);
}
static gd_tensor *bounded(gd_tensor *x) { return is_float(x) ? gd_tanh(x) : x; }
static gd_tensor *as_integers(gd_tensor *x) { return is_float(x) ? cast_bounded(x, GD_I32) : x; }
static gd_tensor *as_number(gd_tensor *x) { return is_bool(x) ? gd_cast(x, GD_I32) : x; }

/* A view of a view of x with the size of x, or a concatenation of parts of x. */
static gd_tensor *random_view(draws *d, gd_tensor *x) {
    gd_tensor *t = gd_reshape(x, gd_dims(rows, 2, columns / 2));
    switch (draw_below(d, 6)) {
    case 0: return gd_reshape(gd_permute(t, gd_dims(1, 0, 2)), gd_dims(rows, columns));
    case 1:
        return gd_expand(
            gd_slice(gd_slice(x, .axis = 1, .start = 2), .axis = 1, .start = 1, .stop = 2),
            gd_dims(rows, columns));
    case 2: return gd_expand(gd_narrow(gd_narrow(x, 0, 1, 3), 0, 1, 1), gd_dims(rows, columns));
    case 3:
        return gd_reshape(gd_slice(gd_expand(gd_unsqueeze(x, 0), gd_dims(3, rows, columns)),
                                   .axis = 0, .start = 1, .stop = 2),
                          gd_dims(rows, columns));
    case 4: return transposed(gd_reshape(transposed(x), gd_dims(columns, rows)));
    default:
        return gd_reshape(
            gd_transpose(gd_expand(gd_select(t, 1, 1), gd_dims(2, rows, columns / 2)), 0, 1),
            gd_dims(rows, columns));
    }
}

/* Joins empty parts with others. */
static gd_tensor *join_empty_parts(draws *d, gd_tensor *a, gd_tensor *b) {
    gd_tensor *none = gd_narrow(b, 0, draw_below(d, rows), 0);
    switch (draw_below(d, 4)) {
    case 0: return gd_cat(gd_list(none, a));
    case 1:
        return gd_add(a,
                      gd_cast(gd_sum(gd_mul(none, none), .axis = gd_dims(0)), gd_tensor_dtype(a)));
    case 2:
        return gd_cat(gd_list(gd_slice(a, .axis = 1, .stop = 0), b,
                              gd_neg(as_number(gd_slice(b, .axis = 1, .start = columns)))),
                      .axis = 1);
    default:
        return gd_add(a, gd_cast(gd_matmul(gd_cast(gd_slice(a, .axis = 1, .stop = 0), GD_F32),
                                           gd_cast(gd_narrow(b, 0, 0, 0), GD_F32)),
                                 gd_tensor_dtype(a)));
    }
}

static gd_tensor *written_in_place(draws *d, gd_tensor *a, gd_tensor *b) {
    gd_tensor *t = gd_add(as_number(a), scalar_like(1, as_number(a))), *before = gd_neg(t);
    b = gd_cast(gd_clamp(as_number(b), .min = -3, .max = 3), gd_tensor_dtype(t));
    switch (draw_below(d, 5)) {
    case 0: gd_add_(t, b); break;
    case 1: gd_mul_(t, b); break;
    case 2: gd_abs_(gd_sub_(t, b)); break;
    case 3: gd_masked_fill_(t, gd_gt(b, scalar_like(0.37, b)), 2); break;
    default: gd_clamp_(t, .min = -1, .max = 2); break;
    }
    return draw_below(d, 2) ? t : gd_sub(before, t);
}

/* Ops without decisions: small differences of floats stay small. */
static gd_tensor *random_smooth_op(draws *d, gd_tensor *a, gd_tensor *b, enum kind kind) {
    const int axis = draw_below(d, 2);
    switch (draw_below(d, 22)) {
    case 0: return gd_add(a, b);
    case 1: return gd_mul(bounded(a), bounded(b));
    case 2: return gd_sub(as_number(a), as_number(b));
    case 3: return gd_maximum(a, b);
    case 4: return gd_minimum(a, gd_mul(b, b));
    case 5: return gd_where(gd_full(gd_dims(), draw_below(d, 2), .dtype = GD_BOOL), a, b);
    case 6: return gd_mul(bounded(b), bounded(gd_sum(a, .axis = gd_dims(axis), .keepdim = true)));
    case 7:
        return gd_sub(as_number(b), gd_max(as_number(a), .axis = gd_dims(axis), .keepdim = true));
    case 8: return gd_add(b, gd_sum(a, .axis = gd_dims(axis), .keepdim = true));
    case 9: return bounded(gd_cumsum(b, axis));
    case 10: return random_view(d, b);
    case 11: return random_view(d, random_view(d, b));
    case 12: return join_empty_parts(d, a, b);
    case 13: return written_in_place(d, a, b);
    case 14: return cast_bounded(b, dtype_of_kind(d, kind));
    case 15: return gd_flip(gd_slice(b, .axis = axis, .step = -1), gd_dims(0));
    case 16: return gd_cat(gd_list(gd_narrow(b, 0, 3, rows - 3), gd_narrow(a, 0, 0, 3)));
    case 17: return gd_clamp(as_number(b), .min = -5, .max = 7);
    case 18: return gd_abs(gd_neg(as_number(b)));
    case 19: return gd_square(bounded(b));
    case 20: return gd_roll(b, gd_dims(3), .axis = gd_dims(axis));
    default: return gd_pad(gd_slice(b, .axis = 1, .start = 2, .stop = -3), gd_dims(2, 3));
    }
}

static gd_tensor *random_float_op(draws *d, gd_tensor *a, gd_tensor *b) {
    const int axis = draw_below(d, 2);
    switch (draw_below(d, 8)) {
    case 0: return gd_exp(gd_neg(gd_abs(b)));
    case 1: return gd_softmax(b, .axis = axis);
    case 2: return gd_layer_norm(bounded(b), NULL, NULL);
    case 3:
        return bounded(
            gd_matmul(gd_matmul(bounded(a), gd_cast(transposed(bounded(b)), gd_tensor_dtype(a))),
                      bounded(a)));
    case 4: return gd_div(a, gd_add(gd_abs(b), scalar_like(1, b)));
    case 5: return gd_gelu(b);
    case 6: return gd_sub(b, gd_mean(b, .axis = gd_dims(axis), .keepdim = true));
    default: return gd_mul(b, gd_sigmoid(gd_sum(a, .axis = gd_dims(axis), .keepdim = true)));
    }
}

static gd_tensor *random_discrete_op(draws *d, gd_tensor *a, gd_tensor *b) {
    const int axis = draw_below(d, 2);
    gd_tensor *i = as_integers(a), *k = as_integers(b);
    switch (draw_below(d, 14)) {
    case 0: return gd_gt(a, b);
    case 1: return gd_eq(a, b);
    case 2: return gd_where(gd_le(a, b), a, b);
    case 3: return gd_bitwise_and(i, k);
    case 4: return gd_bitwise_or(i, k);
    case 5: return gd_bitwise_xor(i, gd_bitwise_not(k));
    case 6: return gd_logical_xor(a, b);
    case 7:
        return gd_floor_divide(as_number(i),
                               gd_bitwise_or(as_number(k), scalar_like(1, as_number(k))));
    case 8:
        return gd_remainder(as_number(i),
                            gd_bitwise_or(as_number(k), scalar_like(1, as_number(k))));
    case 9: return gd_gather(b, axis, gd_argsort(a, .axis = axis));
    case 10: return gd_add(b, gd_argmax(a, .axis = axis, .keepdim = true));
    case 11: return gd_sort(b, .axis = axis).values;
    case 12: return gd_masked_fill(b, gd_lt(a, scalar_like(0, a)), 1);
    default:
        return gd_index_select(b, 0, gd_argsort(gd_sum(gd_cast(a, GD_F64), .axis = gd_dims(1))));
    }
}

results dtype_graph(uint64_t seed, enum kind kind, gd_tensor *const *in) {
    draws d = {seed * 7919 + 6};
    gd_tensor *pool[MAX_VALUES] = {in[0], in[1], in[2], in[3]};
    results r = {.count = 0};
    int n = INPUTS;
    const int length = 3 + draw_below(&d, draw_below(&d, 4) ? 12 : MAX_VALUES - 10);
    for (int i = 0; i < length; i++) {
        gd_tensor *a = pool[draw_below(&d, n)], *b = pool[n - 1 - draw_below(&d, n < 5 ? n : 5)],
                  *y;
        const int op_group = draw_below(&d, 3);
        if (op_group == 0 && is_float(b) && is_float(a)) y = random_float_op(&d, a, b);
        else if (op_group == 1 && kind != FLOATS) y = random_discrete_op(&d, a, b);
        else y = random_smooth_op(&d, a, b, kind);
        pool[n++] = y;
        if (draw_below(&d, 5) == 0 && r.count < MAX_RESULTS - 1) r.at[r.count++] = y;
    }
    r.at[r.count++] = pool[n - 1];
    return r;
}

enum kind dtype_inputs(uint64_t seed, gd_tensor **x) {
    const enum kind kind = (enum kind)(seed % KINDS);
    draws d = {seed * 31 + 7};
    static const int row_counts[] = {5, 9, 70}, column_counts[] = {8, 18, 130, 1030};
    const bool large = draw_below(&d, 8) == 0;
    rows = row_counts[draw_below(&d, large ? 3 : 2)];
    columns = column_counts[draw_below(&d, large ? 4 : 2)];
    gd_seed(seed);
    for (int i = 0; i < INPUTS; i++)
        x[i] = cast_bounded(gd_randn(gd_dims(rows, columns)), dtype_of_kind(&d, kind));
    return kind;
}
