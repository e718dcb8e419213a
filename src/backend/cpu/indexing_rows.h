/* indexing_rows.h - rows added to rows: what gradients of indexing and padding spend their time on. */
#ifndef GRADUS_CPU_INDEXING_ROWS_H
#define GRADUS_CPU_INDEXING_ROWS_H

#include <stdint.h>

#include "backend/cpu/isa.h"

/* y[i] += x[i] */
GD_ISA_DECLARE(void, gd_add_row_f32, (float *y, const float *x, int64_t n));
GD_ISA_DECLARE(void, gd_add_row_f64, (double *y, const double *x, int64_t n));

#endif
