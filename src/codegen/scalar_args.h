/* scalar_args.h - the arguments of kernels in the scalar dialect.
 *
 * This file is part of the text that precedes every kernel, so it includes only C's headers and
 * core/float_to_int.h. The host fills the arguments (dispatch/scalar_call.h).
 *
 * A kernel has outer dims, with one call for each index, and inner dims, over which one call loops:
 * the reduced dims or those of a row. An elementwise kernel has no inner dims.
 */
#ifndef GRADUS_CODEGEN_SCALAR_ARGS_H
#define GRADUS_CODEGEN_SCALAR_ARGS_H

#include <stdint.h>

#include "core/float_to_int.h"

enum {
    GD_SCALAR_RANK = 8,
    GD_SCALAR_OPERANDS = 24,
    GD_SCALAR_PARAMS = 32,
    GD_SCALAR_COLUMNS = 8,
};

/* A tensor that is read or written element by element. */
typedef struct gd_scalar_operand {
    void *data;
    int64_t strides[GD_SCALAR_RANK]; /* in elements: outer dims, then inner dims */
} gd_scalar_operand;

typedef struct gd_scalar_args {
    int64_t count;                /* calls: elements, outputs of a reduction, or rows */
    int64_t inner_count;          /* elements of the loop in one call; 1 if there is no loop */
    int32_t rank, inner_rank;     /* both 0 if all operands are contiguous */
    int64_t dims[GD_SCALAR_RANK]; /* outer, then inner */
    uint32_t contiguous; /* bit k: element (i, j) of operand k is at offset i * inner_count + j */
    gd_scalar_operand operand[GD_SCALAR_OPERANDS]; /* the tensors read, then those written */
    const void *scalars[GD_SCALAR_PARAMS];  /* tensors of one element: parameters 0, 1, ... */
    const void *columns[GD_SCALAR_COLUMNS]; /* one value for each row, contiguous */
    gd_param params[GD_SCALAR_PARAMS];      /* parameters that are not in `scalars` */
    /* Memory for rows that are kept between passes. Call i uses part i % kept_rows of it; a part
     * has inner_count elements of the compute type for each kept row. kept_rows is the number of
     * calls that may run at the same time. */
    void *kept;
    int64_t kept_rows;
} gd_scalar_args;

/* Computes element i, output i of a reduction, or row i. */
typedef void (*gd_scalar_fn)(int64_t i, const gd_scalar_args *a);

#endif
