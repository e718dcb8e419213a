/* attention.isa.c - passes over rows of attention scores (attention.h). */
#include "ops/attention/cpu/attention.h"
#include "backend/cpu/vmath.h"

enum { LANES = VF32_LANES };

static float sum_lanes(vf32 v) {
    float lanes[LANES], sum = 0;
    v_store_f32(lanes, v);
    for (int i = 0; i < LANES; i++) sum += lanes[i];
    return sum;
}

void GD_ISA_FN(gd_attention_mask_float)(float *row, int64_t n, const float *mask) {
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES)
        v_store_f32(row + j, v_load_f32(row + j) + v_load_f32(mask + j));
    for (; j < n; j++) row[j] += mask[j];
}

void GD_ISA_FN(gd_attention_mask_bool)(float *row, int64_t n, const uint8_t *mask) {
    for (int64_t j = 0; j < n; j++)
        row[j] += mask[j] ? 0.0f : -__builtin_inff(); /* the compiler vectorizes this loop */
}

float GD_ISA_FN(gd_attention_max)(const float *row, int64_t n, float max) {
    vf32 m = v_splat_f32(max);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) m = v_max_f32(m, v_load_f32(row + j));
    float lanes[LANES];
    v_store_f32(lanes, m);
    for (int i = 0; i < LANES; i++)
        if (lanes[i] > max || lanes[i] != lanes[i]) max = lanes[i];
    for (; j < n; j++)
        if (row[j] > max || row[j] != row[j]) max = row[j];
    return max;
}

/* exp(x), or 0 if that is subnormal: subnormal numbers are slow, and negligible beside the largest
 * weight, which is 1. Masked scores are -inf. */
V_FN vf32 exp_or_zero(vf32 x) {
    const vf32 least = v_splat_f32(-87.0f);
    return v_select_f32(x < least, v_splat_f32(0), v_exp_f32(v_pick_max_f32(least, x)));
}

float GD_ISA_FN(gd_attention_exp)(float *row, int64_t n, float max) {
    vf32 total = v_splat_f32(0), shift = v_splat_f32(max);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        vf32 e = exp_or_zero(v_load_f32(row + j) - shift);
        v_store_f32(row + j, e);
        total += e;
    }
    float sum = sum_lanes(total);
    if (j < n) {
        vf32 e = exp_or_zero(v_load_part_f32(row + j, (int)(n - j)) - shift);
        v_store_part_f32(row + j, e, (int)(n - j));
        for (; j < n; j++) sum += row[j];
    }
    return sum;
}

void GD_ISA_FN(gd_attention_scale)(float *row, int64_t n, float factor) {
    vf32 by = v_splat_f32(factor);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) v_store_f32(row + j, v_load_f32(row + j) * by);
    for (; j < n; j++) row[j] *= factor;
}

float GD_ISA_FN(gd_attention_dot)(const float *a, const float *b, int64_t n) {
    vf32 total = v_splat_f32(0);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) total += v_load_f32(a + j) * v_load_f32(b + j);
    float sum = sum_lanes(total);
    for (; j < n; j++) sum += a[j] * b[j];
    return sum;
}

void GD_ISA_FN(gd_attention_score_grad)(float *g, const float *w, int64_t n, float inner) {
    vf32 subtract = v_splat_f32(inner), zero = v_splat_f32(0);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        vf32 weight = v_load_f32(w + j);
        v_store_f32(g + j,
                    v_select_f32(weight == 0, zero, weight * (v_load_f32(g + j) - subtract)));
    }
    for (; j < n; j++) g[j] = w[j] == 0 ? 0 : w[j] * (g[j] - inner);
}
