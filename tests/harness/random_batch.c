/* random_batch.c - random ops on values (N, COLUMNS) of f64, for any N. */
#include "random_batch.h"

#include "values.h"

static gd_tensor *transposed(gd_tensor *x) { return gd_permute(x, gd_dims(1, 0)); }
static gd_tensor *flattened(gd_tensor *x) { return gd_reshape(x, gd_dims(-1, COLUMNS)); }
gd_tensor *bounded(gd_tensor *x) { return gd_tanh(gd_mul(x, scalar_f64(0.5))); }

/* Sums of x may consist only of rounding error, for example after the mean was subtracted. A
 * decision based on such a sum would be arbitrary; sums of this function are not. */
static gd_tensor *without_cancellation(gd_tensor *x) {
    return gd_sin(gd_add(gd_mul(x, scalar_f64(3)), scalar_f64(1)));
}

static gd_tensors fold_step(gd_tensors in, void *user) {
    gd_tensor *next = gd_tanh(gd_add(gd_mul(in.at[0], user), in.at[1]));
    return gd_listed(next, gd_sin(next));
}
static gd_tensor *fold(gd_tensors in, void *user) { return fold_step(in, user).at[1]; }
static gd_tensors sine_branch(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_sin(in.at[0]));
}
static gd_tensors multiply_branch(gd_tensors in, void *user) {
    return gd_listed(gd_mul(in.at[0], user));
}

gd_tensor *batch_norm_of(gd_tensor *x, gd_tensor *const *p, bool keeps) {
    gd_tensor *all = gd_cat(gd_list(x, p[1])); /* more than one row, even if x is empty */
    all =
        gd_batch_norm(all, p[0], NULL, keeps ? p[3] : NULL, keeps ? p[4] : NULL, .training = true);
    return gd_slice(all, .axis = 0, .stop = -COLUMNS);
}

gd_tensor *random_op(draws *d, bool by_data, int *kept, gd_tensor *a, gd_tensor *b,
                     gd_tensor *const *p) {
    const int axis = draw_below(d, 2);
    switch (draw_below(d, by_data ? 43 : 42)) {
    case 0: return gd_add(a, b);
    case 1: return gd_sub(a, b);
    case 2: return gd_mul(a, gd_tanh(b));
    case 3: return gd_div(a, gd_add(gd_abs(b), scalar_f64(1)));
    case 4: return gd_where(gd_gt(a, b), b, gd_mul(a, scalar_f64(0.5)));
    case 5: return gd_gelu(b);
    case 6: return gd_add(gd_mul(b, scalar_f64(1)), scalar_f64(0)); /* equals b */
    case 7: return gd_sub(b, gd_mean(b, .axis = gd_dims(1), .keepdim = true));
    case 8: return gd_mul(b, gd_sigmoid(gd_sum(a, .axis = gd_dims(axis), .keepdim = true)));
    case 9: return gd_sub(b, gd_max(b, .axis = gd_dims(1), .keepdim = true));
    case 10: return gd_softmax(b, .axis = axis);
    case 11: return bounded(gd_log_softmax(b, .axis = 1));
    case 12: return gd_layer_norm(b, p[0], NULL);
    case 13: return bounded(gd_matmul(b, p[1]));
    case 14: return gd_relu(gd_linear(bounded(b), p[1], p[0]));
    case 15: return bounded(transposed(gd_matmul(transposed(p[1]), transposed(b))));
    case 16: return bounded(gd_matmul(gd_matmul(a, transposed(b)), a)); /* through (N, N) */
    case 17: return transposed(gd_add(transposed(a), transposed(b)));
    case 18: return flattened(gd_sin(gd_reshape(b, gd_dims(-1))));
    case 19: return flattened(transposed(gd_reshape(b, gd_dims(COLUMNS, -1))));
    case 20:
        return gd_cat(
            gd_list(gd_slice(a, .axis = 1, .stop = 2), gd_slice(b, .axis = 1, .start = 2)),
            .axis = 1);
    case 21: return gd_slice(gd_cat(gd_list(b, a)), .axis = 0, .step = 2); /* through (2 N) */
    case 22: return gd_slice(b, .axis = axis, .step = -1);
    case 23: return gd_flip(b, gd_dims(0, 1));
    case 24: return bounded(gd_cumsum(b, axis));
    case 25: return gd_clamp(b, .min = -0.5, .max = 0.7);
    case 26:
        return flattened(
            bounded(gd_conv1d(gd_reshape(b, gd_dims(-1, 2, 3)), p[2], NULL, .padding = {1})));
    case 27:
        return flattened(gd_max_pool1d(gd_reshape(b, gd_dims(-1, 2, 3)), .kernel = {3},
                                       .stride = {1}, .padding = {1}));
    case 28:
        return gd_slice(gd_slice(gd_pad(b, gd_dims(1, 2, 2, 1)), .axis = 0, .start = 2, .stop = -1),
                        .axis = 1, .start = 1, .stop = -2);
    case 29: return gd_cast(gd_cast(b, GD_F32), GD_F64);
    case 30:
        return gd_index_select(b, 0,
                               gd_argsort(gd_sum(without_cancellation(a), .axis = gd_dims(1))));
    case 31: return gd_gather(b, 1, gd_argsort(a, .axis = 1));
    case 32: return gd_scan(fold_step, gd_list(p[0]), gd_list(b), p[0]).ys.at[0];
    case 33: return gd_mul(b, gd_foldl(fold, p[0], gd_list(a), p[0]));
    case 34:
        return gd_cond(gd_gt(gd_sum(without_cancellation(a)), scalar_f64(0)), sine_branch,
                       multiply_branch, gd_list(b), p[0])
            .at[0];
    case 35:
        if (kept) ++*kept;
        return batch_norm_of(b, p, kept != NULL);
    case 36: return gd_mul(b, gd_var(a, .axis = gd_dims(1), .keepdim = true));
    case 37: return gd_sub(b, bounded(gd_logsumexp(a, .axis = gd_dims(1), .keepdim = true)));
    case 38:
        return gd_cat(gd_split(gd_flip(b, gd_dims(1)), gd_dims(2, 1, 3), .axis = 1), .axis = 1);
    case 39: return gd_add(gd_zeros_like(b), gd_sigmoid(gd_norm(a)));
    case 40: return gd_einsum("ni,ij->nj", gd_list(bounded(b), p[1]));
    case 41: return gd_roll(b, gd_dims(1), .axis = gd_dims(axis));
    default:
        /* data-dependent sizes */
        return gd_mul(b, gd_tanh(gd_sum(gd_masked_select(a, gd_gt(a, b)))));
    }
}

gd_shape parameter_shape(int i) {
    switch (i) {
    case 0: return gd_dims(COLUMNS);
    case 1: return gd_dims(COLUMNS, COLUMNS);
    case 2: return gd_dims(2, 2, 3);
    default: return gd_dims(COLUMNS);
    }
}
