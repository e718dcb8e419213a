/* attention.h - vectorized parts of the attention kernels: passes over a row of n scores or
 * weights. */
#ifndef GRADUS_OPS_ATTENTION_CPU_ATTENTION_H
#define GRADUS_OPS_ATTENTION_CPU_ATTENTION_H

#include <stdint.h>

#include "backend/cpu/isa.h"

/* Adds a mask to the row: a float mask as it is; a bool mask as 0 where it is true and -inf where
 * it is false. */
GD_ISA_DECLARE(void, gd_attention_mask_float, (float *row, int64_t n, const float *mask));
GD_ISA_DECLARE(void, gd_attention_mask_bool, (float *row, int64_t n, const uint8_t *mask));

/* The maximum of the row and `max`; NaN if there is one. */
GD_ISA_DECLARE(float, gd_attention_max, (const float *row, int64_t n, float max));

/* row[j] = exp(row[j] - max); returns the sum of the row, added in a fixed order. */
GD_ISA_DECLARE(float, gd_attention_exp, (float *row, int64_t n, float max));

GD_ISA_DECLARE(void, gd_attention_scale, (float *row, int64_t n, float factor));
GD_ISA_DECLARE(float, gd_attention_dot, (const float *a, const float *b, int64_t n));

/* Softmax gradient: replaces g, the gradients of the weights w, by the gradients of the scores:
 * g = w * (g - inner), and 0 where w is 0. */
GD_ISA_DECLARE(void, gd_attention_score_grad, (float *g, const float *w, int64_t n, float inner));

#endif
