/* loss.h - softmax statistics of logits and what follows from them, in f32.
 *
 * A row is `classes` logits that lie side by side; columns are n positions whose logits of one class
 * lie side by side, and those of the next class `step` further.
 */
#ifndef GRADUS_CPU_LOSS_H
#define GRADUS_CPU_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/isa.h"

/* Of each position: the largest logit, 1 / and the logarithm of the sum of exp(x - largest), and the
 * sum of weight * x over all classes. */
typedef struct gd_logit_stats {
    float *shift, *scale, *logsum;
    float *even; /* NULL: not wanted */
} gd_logit_stats;

/* weight NULL: all 1. */
GD_ISA_DECLARE(void, gd_logits_row_f32,
               (int64_t classes, const float *x, const float *weight, gd_logit_stats stats));
GD_ISA_DECLARE(void, gd_logits_columns_f32,
               (int64_t classes, int64_t step, int64_t n, const float *x, const float *weight,
                gd_logit_stats stats));

/* gx = mass * exp(x - shift) - even * weight. */
GD_ISA_DECLARE(void, gd_logits_row_grad_f32,
               (int64_t classes, const float *x, const float *weight, float shift, float mass,
                float even, float *gx));
GD_ISA_DECLARE(void, gd_logits_columns_grad_f32,
               (int64_t classes, int64_t step, int64_t n, const float *x, const float *weight,
                const float *shift, const float *mass, const float *even, float *gx));

#endif
