/* index_rows.h - vectorized inner loops of indexing, sorting and padding, for each instruction
 * set. */
#ifndef GRADUS_OPS_INDEX_CPU_INDEX_ROWS_H
#define GRADUS_OPS_INDEX_CPU_INDEX_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/isa.h"

/* y[i] += x[i] */
GD_ISA_DECLARE(void, gd_add_row_f32, (float *y, const float *x, int64_t n));
GD_ISA_DECLARE(void, gd_add_row_f64, (double *y, const double *x, int64_t n));

/* offsets[i] = index[i] * step; returns false if an index is not in [0, size). */
GD_ISA_DECLARE(bool, gd_index_offsets_i32,
               (const int32_t *index, int64_t n, int64_t size, int64_t step, int64_t *offsets));
GD_ISA_DECLARE(bool, gd_index_offsets_i64,
               (const int64_t *index, int64_t n, int64_t size, int64_t step, int64_t *offsets));

/* y[i] = x[i * step + offsets[i]], for elements of 1, 2, 4 or 8 bytes. */
GD_ISA_DECLARE(void, gd_gather_row,
               (size_t size, void *y, const void *x, int64_t step, const int64_t *offsets,
                int64_t n));

/* Sort keys of f32: unsigned integers in the order of the floats, with -0 equal to 0 and NaN above
 * all, XORed with the mask (all ones reverses the order). */
GD_ISA_DECLARE(void, gd_sort_keys_f32, (const float *x, int64_t n, uint32_t mask, uint32_t *keys));
/* Whether any key is below the limit. */
GD_ISA_DECLARE(bool, gd_any_key_below, (const uint32_t *keys, int64_t n, uint32_t limit));

#endif
