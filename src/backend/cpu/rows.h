/* rows.h - row programs (codegen/row_program.h) on the CPU: the signature of compiled kernels, and
 * the reductions of the evaluator. */
#ifndef GRADUS_BACKEND_CPU_ROWS_H
#define GRADUS_BACKEND_CPU_ROWS_H

#include <stdint.h>

#include "backend/cpu/isa.h"
#include "core/float_to_int.h"
#include "codegen/row_program.h"

/* A compiled kernel. It runs all passes over `rows` rows of n contiguous elements of the type that
 * the program computes in. in[i] and out[i] point to the first row of an operand, and the steps are
 * the bytes from one row to the next. `in` holds the tensors, then the columns. kept[i] has room
 * for n elements. A result may alias an input element by element. */
typedef void (*gd_row_fn)(int64_t rows, int64_t n, char *const *in, const int64_t *in_step,
                          char *const *out, const int64_t *out_step, char *const *kept,
                          const gd_param *params);

/* For the evaluator: reduces a chunk of n <= GD_ROW_CHUNK elements in the order of a compiled
 * kernel. */
GD_ISA_DECLARE(double, gd_row_fold_f32, (gd_row_use use, int ways, int64_t n, const void *x));
GD_ISA_DECLARE(double, gd_row_fold_f64, (gd_row_use use, int ways, int64_t n, const void *x));

#endif
