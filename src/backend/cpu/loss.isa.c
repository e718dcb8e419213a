/* loss.isa.c - softmax statistics of rows and columns of logits, in vectors. */
#include "backend/cpu/loss.h"

#include <math.h>

#include "backend/cpu/vmath.h"

V_FN vf32 load(const float *p, int lanes) {
    return lanes == VF32_LANES ? v_load_f32(p) : v_load_part_f32(p, lanes);
}
V_FN void store(float *p, vf32 v, int lanes) {
    if (lanes == VF32_LANES) v_store_f32(p, v);
    else v_store_part_f32(p, v, lanes);
}

/* The last n logits of a row, n less than a vector; -inf fills up, which counts for nothing. */
V_FN vf32 load_rest(const float *x, int64_t n) {
    float rest[VF32_LANES];
    for (int i = 0; i < VF32_LANES; i++) rest[i] = i < n ? x[i] : -(float)INFINITY;
    return v_load_f32(rest);
}

V_FN float largest_lane(vf32 v) {
    float most = v[0];
    for (int i = 1; i < VF32_LANES; i++) most = v[i] > most ? v[i] : most;
    return most;
}

static float row_max(int64_t n, const float *x) {
    vf32 most[4];
    int64_t i = 0;
    for (int k = 0; k < 4; k++) most[k] = v_splat_f32(-(float)INFINITY);
    for (; i + 4 * VF32_LANES <= n; i += 4 * VF32_LANES)
        for (int k = 0; k < 4; k++)
            most[k] = v_pick_max_f32(v_load_f32(x + i + k * VF32_LANES), most[k]);
    for (; i + VF32_LANES <= n; i += VF32_LANES)
        most[0] = v_pick_max_f32(v_load_f32(x + i), most[0]);
    if (i < n) most[1] = v_pick_max_f32(load_rest(x + i, n - i), most[1]);
    return largest_lane(
        v_pick_max_f32(v_pick_max_f32(most[0], most[1]), v_pick_max_f32(most[2], most[3])));
}

static float row_sum(int64_t n, const float *x, float shift) {
    vf32 sum[4] = {{0}};
    int64_t i = 0;
    for (; i + 4 * VF32_LANES <= n; i += 4 * VF32_LANES)
        for (int k = 0; k < 4; k++) sum[k] += v_exp_f32(v_load_f32(x + i + k * VF32_LANES) - shift);
    for (; i + VF32_LANES <= n; i += VF32_LANES) sum[0] += v_exp_f32(v_load_f32(x + i) - shift);
    if (i < n) sum[1] += v_exp_f32(load_rest(x + i, n - i) - shift);
    return v_hsum_f32((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static float row_even(int64_t n, const float *x, const float *weight) {
    vf32 sum[2] = {{0}};
    int64_t i = 0;
    for (; i + VF32_LANES <= n; i += VF32_LANES) {
        vf32 v = v_load_f32(x + i);
        sum[i / VF32_LANES & 1] += weight ? v * v_load_f32(weight + i) : v;
    }
    float even = v_hsum_f32(sum[0] + sum[1]);
    for (; i < n; i++) even += weight ? x[i] * weight[i] : x[i];
    return even;
}

void GD_ISA_FN(gd_logits_row_f32)(int64_t classes, const float *x, const float *weight,
                                  gd_logit_stats stats) {
    float shift = row_max(classes, x), sum = row_sum(classes, x, shift);
    *stats.shift = shift;
    *stats.scale = 1.0f / sum;
    *stats.logsum = v_log_f32(v_splat_f32(sum))[0];
    if (stats.even) *stats.even = row_even(classes, x, weight);
}

/* Class by class, so that memory is read in runs of n; what is gathered stays in the cache. */
void GD_ISA_FN(gd_logits_columns_f32)(int64_t classes, int64_t step, int64_t n, const float *x,
                                      const float *weight, gd_logit_stats stats) {
    float *most = stats.shift, *sum = stats.logsum;
    for (int64_t i = 0; i < n; i++) most[i] = -(float)INFINITY, sum[i] = 0;
    for (int64_t i = 0; i < n && stats.even; i++) stats.even[i] = 0;
    for (int64_t c = 0; c < classes; c++)
        for (int64_t i = 0; i < n; i += VF32_LANES) {
            int lanes = n - i < VF32_LANES ? (int)(n - i) : VF32_LANES;
            vf32 v = load(x + c * step + i, lanes);
            store(most + i, v_pick_max_f32(v, load(most + i, lanes)), lanes);
            if (stats.even)
                store(stats.even + i, load(stats.even + i, lanes) + (weight ? v * weight[c] : v),
                      lanes);
        }
    for (int64_t c = 0; c < classes; c++)
        for (int64_t i = 0; i < n; i += VF32_LANES) {
            int lanes = n - i < VF32_LANES ? (int)(n - i) : VF32_LANES;
            vf32 v = load(x + c * step + i, lanes);
            store(sum + i, load(sum + i, lanes) + v_exp_f32(v - load(most + i, lanes)), lanes);
        }
    for (int64_t i = 0; i < n; i += VF32_LANES) {
        int lanes = n - i < VF32_LANES ? (int)(n - i) : VF32_LANES;
        vf32 all = load(sum + i, lanes);
        store(stats.scale + i, 1.0f / all, lanes);
        store(stats.logsum + i, v_log_f32(all), lanes);
    }
}

void GD_ISA_FN(gd_logits_row_grad_f32)(int64_t classes, const float *x, const float *weight,
                                       float shift, float mass, float even, float *gx) {
    for (int64_t i = 0; i < classes; i += VF32_LANES) {
        int lanes = classes - i < VF32_LANES ? (int)(classes - i) : VF32_LANES;
        vf32 g = v_exp_f32(load(x + i, lanes) - shift) * mass;
        if (even != 0) g -= weight ? even * load(weight + i, lanes) : v_splat_f32(even);
        store(gx + i, g, lanes);
    }
}

void GD_ISA_FN(gd_logits_columns_grad_f32)(int64_t classes, int64_t step, int64_t n, const float *x,
                                           const float *weight, const float *shift,
                                           const float *mass, const float *even, float *gx) {
    for (int64_t c = 0; c < classes; c++)
        for (int64_t i = 0; i < n; i += VF32_LANES) {
            int lanes = n - i < VF32_LANES ? (int)(n - i) : VF32_LANES;
            vf32 e = load(even + i, lanes);
            vf32 g = v_exp_f32(load(x + c * step + i, lanes) - load(shift + i, lanes)) *
                     load(mass + i, lanes);
            store(gx + c * step + i, g - (weight ? e * weight[c] : e), lanes);
        }
}
