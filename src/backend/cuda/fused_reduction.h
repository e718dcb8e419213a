/* fused_reduction.h - fused ops whose last result is reduced, on CUDA devices. */
#ifndef GRADUS_BACKEND_CUDA_FUSED_REDUCTION_H
#define GRADUS_BACKEND_CUDA_FUSED_REDUCTION_H

#include "codegen/dialect.h"

/* The skeleton of such a kernel, for gd_dialect.reduction. */
void gd_cuda_print_reduction(FILE *out, const gd_dialect *dialect, const gd_kernel_source *source,
                             const char *name);

#endif
