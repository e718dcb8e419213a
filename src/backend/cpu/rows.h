/* rows.h - kernels that go over rows in several passes (codegen/row_program.h), on the CPU. */
#ifndef GRADUS_CPU_ROWS_H
#define GRADUS_CPU_ROWS_H

#include <stdint.h>

#include "backend/cpu/isa.h"
#include "core/float_to_int.h"
#include "codegen/row_program.h"

/* `rows` rows of n elements, all of the type computed in: in[i] and out[i] are where operand i has
 * its first row, the steps bytes to the next one. `in` are the tensors, then the columns. kept[i]
 * has room for n elements. An element of a result may lie where the same element of an operand
 * lies. */
typedef void (*gd_row_fn)(int64_t rows, int64_t n, char *const *in, const int64_t *in_step,
                          char *const *out, const int64_t *out_step, char *const *kept,
                          const gd_param *params);

/* For the evaluator: a chunk of at most GD_ROW_CHUNK elements put together, as a kernel does it. */
GD_ISA_DECLARE(double, gd_row_fold_f32, (gd_row_use use, int ways, int64_t n, const void *x));
GD_ISA_DECLARE(double, gd_row_fold_f64, (gd_row_use use, int ways, int64_t n, const void *x));

#endif
