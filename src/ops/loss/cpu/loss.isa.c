/* loss.isa.c - softmax statistics of rows and columns of logits (loss.h). */
#include "ops/loss/cpu/loss.h"

#include <math.h>

#include "backend/cpu/vmath.h"

V_FN vf32 load_lanes(const float *p, int lanes) {
    return lanes == VF32_LANES ? v_load_f32(p) : v_load_part_f32(p, lanes);
}
V_FN void store_lanes(float *p, vf32 v, int lanes) {
    if (lanes == VF32_LANES) v_store_f32(p, v);
    else v_store_part_f32(p, v, lanes);
}

/* The last n logits of a row, n less than a vector, padded with -inf, whose exponential is 0. */
V_FN vf32 load_tail(const float *x, int64_t n) {
    float tail[VF32_LANES];
    for (int i = 0; i < VF32_LANES; i++) tail[i] = i < n ? x[i] : -(float)INFINITY;
    return v_load_f32(tail);
}

V_FN float max_lane(vf32 v) {
    float max = v[0];
    for (int i = 1; i < VF32_LANES; i++) max = v[i] > max ? v[i] : max;
    return max;
}

static float row_max(int64_t n, const float *x) {
    vf32 max[4];
    int64_t i = 0;
    for (int k = 0; k < 4; k++) max[k] = v_splat_f32(-(float)INFINITY);
    for (; i + 4 * VF32_LANES <= n; i += 4 * VF32_LANES)
        for (int k = 0; k < 4; k++)
            max[k] = v_pick_max_f32(v_load_f32(x + i + k * VF32_LANES), max[k]);
    for (; i + VF32_LANES <= n; i += VF32_LANES) max[0] = v_pick_max_f32(v_load_f32(x + i), max[0]);
    if (i < n) max[1] = v_pick_max_f32(load_tail(x + i, n - i), max[1]);
    return max_lane(v_pick_max_f32(v_pick_max_f32(max[0], max[1]), v_pick_max_f32(max[2], max[3])));
}

static float row_sum(int64_t n, const float *x, float shift) {
    vf32 sum[4] = {{0}};
    int64_t i = 0;
    for (; i + 4 * VF32_LANES <= n; i += 4 * VF32_LANES)
        for (int k = 0; k < 4; k++) sum[k] += v_exp_f32(v_load_f32(x + i + k * VF32_LANES) - shift);
    for (; i + VF32_LANES <= n; i += VF32_LANES) sum[0] += v_exp_f32(v_load_f32(x + i) - shift);
    if (i < n) sum[1] += v_exp_f32(load_tail(x + i, n - i) - shift);
    return v_hsum_f32((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static float row_weighted_sum(int64_t n, const float *x, const float *weight) {
    vf32 sum[2] = {{0}};
    int64_t i = 0;
    for (; i + VF32_LANES <= n; i += VF32_LANES) {
        vf32 v = v_load_f32(x + i);
        sum[i / VF32_LANES & 1] += weight ? v * v_load_f32(weight + i) : v;
    }
    float weighted_sum = v_hsum_f32(sum[0] + sum[1]);
    for (; i < n; i++) weighted_sum += weight ? x[i] * weight[i] : x[i];
    return weighted_sum;
}

void GD_ISA_FN(gd_logits_row_f32)(int64_t classes, const float *x, const float *weight,
                                  gd_logit_stats stats) {
    float shift = row_max(classes, x), sum = row_sum(classes, x, shift);
    *stats.shift = shift;
    *stats.scale = 1.0f / sum;
    *stats.logsum = v_log_f32(v_splat_f32(sum))[0];
    if (stats.weighted_sum) *stats.weighted_sum = row_weighted_sum(classes, x, weight);
}

/* The loop over classes is the outer one, so that memory is read in runs of n; the statistics stay
 * in cache. */
void GD_ISA_FN(gd_logits_columns_f32)(int64_t classes, int64_t step, int64_t n, const float *x,
                                      const float *weight, gd_logit_stats stats) {
    float *max = stats.shift, *sum = stats.logsum;
    for (int64_t i = 0; i < n; i++) max[i] = -(float)INFINITY, sum[i] = 0;
    for (int64_t i = 0; i < n && stats.weighted_sum; i++) stats.weighted_sum[i] = 0;
    for (int64_t c = 0; c < classes; c++)
        for (int64_t i = 0; i < n; i += VF32_LANES) {
            int lanes = n - i < VF32_LANES ? (int)(n - i) : VF32_LANES;
            vf32 v = load_lanes(x + c * step + i, lanes);
            store_lanes(max + i, v_pick_max_f32(v, load_lanes(max + i, lanes)), lanes);
            if (stats.weighted_sum)
                store_lanes(stats.weighted_sum + i,
                            load_lanes(stats.weighted_sum + i, lanes) +
                                (weight ? v * weight[c] : v),
                            lanes);
        }
    for (int64_t c = 0; c < classes; c++)
        for (int64_t i = 0; i < n; i += VF32_LANES) {
            int lanes = n - i < VF32_LANES ? (int)(n - i) : VF32_LANES;
            vf32 v = load_lanes(x + c * step + i, lanes);
            store_lanes(sum + i,
                        load_lanes(sum + i, lanes) + v_exp_f32(v - load_lanes(max + i, lanes)),
                        lanes);
        }
    for (int64_t i = 0; i < n; i += VF32_LANES) {
        int lanes = n - i < VF32_LANES ? (int)(n - i) : VF32_LANES;
        vf32 all = load_lanes(sum + i, lanes);
        store_lanes(stats.scale + i, 1.0f / all, lanes);
        store_lanes(stats.logsum + i, v_log_f32(all), lanes);
    }
}

void GD_ISA_FN(gd_logits_row_grad_f32)(int64_t classes, const float *x, const float *weight,
                                       float shift, float softmax_scale, float class_scale,
                                       float *gx) {
    for (int64_t i = 0; i < classes; i += VF32_LANES) {
        int lanes = classes - i < VF32_LANES ? (int)(classes - i) : VF32_LANES;
        vf32 g = v_exp_f32(load_lanes(x + i, lanes) - shift) * softmax_scale;
        if (class_scale != 0)
            g -= weight ? class_scale * load_lanes(weight + i, lanes) : v_splat_f32(class_scale);
        store_lanes(gx + i, g, lanes);
    }
}

void GD_ISA_FN(gd_logits_columns_grad_f32)(int64_t classes, int64_t step, int64_t n, const float *x,
                                           const float *weight, const float *shift,
                                           const float *softmax_scale, const float *class_scale,
                                           float *gx) {
    for (int64_t c = 0; c < classes; c++)
        for (int64_t i = 0; i < n; i += VF32_LANES) {
            int lanes = n - i < VF32_LANES ? (int)(n - i) : VF32_LANES;
            vf32 e = load_lanes(class_scale + i, lanes);
            vf32 g = v_exp_f32(load_lanes(x + c * step + i, lanes) - load_lanes(shift + i, lanes)) *
                     load_lanes(softmax_scale + i, lanes);
            store_lanes(gx + c * step + i, g - (weight ? e * weight[c] : e), lanes);
        }
}
