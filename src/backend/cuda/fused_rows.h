/* fused_rows.h - fused ops with a row program, on CUDA devices. */
#ifndef GRADUS_BACKEND_CUDA_FUSED_ROWS_H
#define GRADUS_BACKEND_CUDA_FUSED_ROWS_H

#include "backend/cuda/fusion.h"

/* The kernel for a call, whose operands have addresses with the alignment of the final ones. */
void gd_cuda_rows_of_call(const gd_kernel_call *call, const gd_kernel_source *source,
                          gd_scalar_args *args, gd_cuda_row_kernel *kernel);

#endif
