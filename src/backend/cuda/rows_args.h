/* rows_args.h - parameters of kernels that make several passes over rows.
 *
 * Host and kernels include it, and it is part of the text that precedes kernels compiled at run
 * time. The parameter struct is this head, followed by words of 8 bytes: n operands (the tensors
 * read, then the results), each an address and GD_CUDA_ROWS_RANK strides in elements; the addresses
 * of the columns; the parameters, each the address of a tensor of one element, or a scalar.
 */
#ifndef GRADUS_BACKEND_CUDA_ROWS_ARGS_H
#define GRADUS_BACKEND_CUDA_ROWS_ARGS_H

#include "backend/cuda/error_word.h"

enum {
    GD_CUDA_ROWS_RANK = 8,
    GD_CUDA_ROWS_OPERAND = 1 + GD_CUDA_ROWS_RANK, /* words of an operand */
};

typedef struct gd_cuda_row_head {
    const gd_cuda_word *word;
    long long rows, length;            /* length: elements of a row */
    int rank, inner_rank;              /* dims that count rows; dims within a row */
    long long dims[GD_CUDA_ROWS_RANK]; /* first those that count rows */
} gd_cuda_row_head;

#endif
