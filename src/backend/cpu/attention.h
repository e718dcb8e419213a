/* attention.h - vector parts of the attention kernels: passes over a row of n scores or weights. */
#ifndef GRADUS_CPU_ATTENTION_H
#define GRADUS_CPU_ATTENTION_H

#include <stdint.h>

#include "backend/cpu/isa.h"

/* row += mask; row += 0 where the mask is set and -inf elsewhere. */
GD_ISA_DECLARE(void, gd_attention_add, (float *row, int64_t n, const float *mask));
GD_ISA_DECLARE(void, gd_attention_hide, (float *row, int64_t n, const uint8_t *mask));

/* The largest of the row and `most`; NaN where there is one. */
GD_ISA_DECLARE(float, gd_attention_most, (const float *row, int64_t n, float most));

/* row[j] = exp(row[j] - most); returns their sum, added in one order whatever the length. */
GD_ISA_DECLARE(float, gd_attention_exp, (float *row, int64_t n, float most));

GD_ISA_DECLARE(void, gd_attention_scale, (float *row, int64_t n, float factor));
GD_ISA_DECLARE(float, gd_attention_dot, (const float *a, const float *b, int64_t n));

/* Gradients of weights become those of scores: g = w (g - inner), and 0 where w is. */
GD_ISA_DECLARE(void, gd_attention_slopes, (float *g, const float *w, int64_t n, float inner));

#endif
