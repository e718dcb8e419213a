/* loss.h - vectorized softmax statistics of logits and the gradient of cross-entropy, in f32.
 *
 * A row is `classes` contiguous logits. Columns are n positions whose logits of one class are
 * contiguous, and whose next class is `step` further.
 */
#ifndef GRADUS_OPS_LOSS_CPU_LOSS_H
#define GRADUS_OPS_LOSS_CPU_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/isa.h"

/* For each position: the largest logit (shift), 1 / sum of exp(x - shift) (scale), the logarithm of
 * that sum, and the sum of weight * x over all classes. */
typedef struct gd_logit_stats {
    float *shift, *scale, *logsum;
    float *weighted_sum; /* NULL: not computed */
} gd_logit_stats;

/* weight NULL: all 1. */
GD_ISA_DECLARE(void, gd_logits_row_f32,
               (int64_t classes, const float *x, const float *weight, gd_logit_stats stats));
GD_ISA_DECLARE(void, gd_logits_columns_f32,
               (int64_t classes, int64_t step, int64_t n, const float *x, const float *weight,
                gd_logit_stats stats));

/* gx = softmax_scale * exp(x - shift) - class_scale * weight. */
GD_ISA_DECLARE(void, gd_logits_row_grad_f32,
               (int64_t classes, const float *x, const float *weight, float shift,
                float softmax_scale, float class_scale, float *gx));
GD_ISA_DECLARE(void, gd_logits_columns_grad_f32,
               (int64_t classes, int64_t step, int64_t n, const float *x, const float *weight,
                const float *shift, const float *softmax_scale, const float *class_scale,
                float *gx));

#endif
