/* scalar_args.h - how kernels of the scalar dialect are called.
 *
 * This file is part of the text that precedes every kernel, so it includes nothing but C's headers
 * and core/whole.h. The host fills the arguments (ops/scalar_call.h).
 *
 * A kernel has two groups of dims: the outer ones are what calls are counted over, the inner ones
 * are what one call loops over: the reduced dims, or those of a row. An elementwise kernel has no
 * inner dims.
 */
#ifndef GRADUS_CODEGEN_SCALAR_ARGS_H
#define GRADUS_CODEGEN_SCALAR_ARGS_H

#include <stdint.h>

#include "core/whole.h"

enum {
    GD_SCALAR_RANK = 8,
    GD_SCALAR_OPERANDS = 24,
    GD_SCALAR_PARAMS = 32,
    GD_SCALAR_COLUMNS = 8,
};

/* A tensor that is read or written element by element. */
typedef struct gd_scalar_operand {
    void *data;
    int64_t strides[GD_SCALAR_RANK]; /* in elements: of the outer dims, then of the inner ones */
} gd_scalar_operand;

typedef struct gd_scalar_args {
    int64_t count;                /* calls: elements, outputs of a reduction, or rows */
    int64_t inner_count;          /* elements of one call's loop; 1 where there is none */
    int32_t rank, inner_rank;     /* both 0 where all operands are contiguous */
    int64_t dims[GD_SCALAR_RANK]; /* outer, then inner */
    uint32_t contiguous; /* bit k: element (i, j) of operand k is number i * inner_count + j */
    gd_scalar_operand operand[GD_SCALAR_OPERANDS]; /* the tensors read, then those written */
    const void *scalars[GD_SCALAR_PARAMS];         /* of one element each: parameters 0, 1, ... */
    const void *columns[GD_SCALAR_COLUMNS];        /* of one number for each row, contiguous */
    gd_param params[GD_SCALAR_PARAMS];             /* by number; those of `scalars` are not read */
    /* Rows kept between passes. Call i uses part i % kept_rows, of inner_count elements for each
     * row that is kept, in the type computed in. kept_rows is how many calls may run at once. */
    void *kept;
    int64_t kept_rows;
} gd_scalar_args;

/* Computes element i, output i of a reduction, or row i. */
typedef void (*gd_scalar_fn)(int64_t i, const gd_scalar_args *a);

#endif
