/* random.h - vectorized random numbers (Philox 4x32-10), with the same bits on every instruction
 * set.
 *
 * Each function generates `n` elements of call `rng` from the start of Philox block `block`: from
 * element 4 * block on or, if an element takes 64 bits, from element 2 * block on.
 */
#ifndef GRADUS_OPS_RANDOM_CPU_RANDOM_H
#define GRADUS_OPS_RANDOM_CPU_RANDOM_H

#include "backend/cpu/isa.h"
#include "ops/random/random_dist.h"

GD_ISA_DECLARE(void, gd_random_words, (gd_rng rng, uint64_t block, int64_t n, uint32_t *out));
GD_ISA_DECLARE(void, gd_random_uniform_f32,
               (gd_rng rng, uint64_t block, int64_t n, const gd_uniform_params *p, float *out));
GD_ISA_DECLARE(void, gd_random_uniform_f64,
               (gd_rng rng, uint64_t block, int64_t n, const gd_uniform_params *p, double *out));
GD_ISA_DECLARE(void, gd_random_normal_f32,
               (gd_rng rng, uint64_t block, int64_t n, double mean, double std, float *out));
GD_ISA_DECLARE(void, gd_random_normal_f64,
               (gd_rng rng, uint64_t block, int64_t n, double mean, double std, double *out));

/* mask[i] = 1 with probability limit / 2^32. */
GD_ISA_DECLARE(void, gd_random_mask,
               (gd_rng rng, uint64_t block, int64_t n, uint64_t limit, uint8_t *mask));

/* y = x * (mask ? scale : 0). */
GD_ISA_DECLARE(void, gd_dropout_f32,
               (int64_t n, const float *x, const uint8_t *mask, float scale, float *y));
GD_ISA_DECLARE(void, gd_dropout_f64,
               (int64_t n, const double *x, const uint8_t *mask, double scale, double *y));

#endif
