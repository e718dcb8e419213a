/* fusion.h - what plans may fuse for CUDA devices, and kernels that are compiled at run time. */
#ifndef GRADUS_BACKEND_CUDA_FUSION_H
#define GRADUS_BACKEND_CUDA_FUSION_H

#include "backend/cuda/state.h"
#include "codegen/fusion_rules.h"
#include "dispatch/codegen_api.h"

/* The rules, filled when the backend is opened. */
const gd_fusion_rules *gd_cuda_fusion_rules(void);

/* The kernel of a source, printed and compiled at first use; NULL, with the failure set, if it
 * cannot be compiled. An elementwise op has several variants, of which it is GD_CUDA_VECTORS. */
CUfunction gd_cuda_compile_source(gd_device *d, const gd_kernel_source *source);
gd_status gd_cuda_compile_variant(gd_device *d, const gd_kernel_source *source,
                                  gd_cuda_variant variant, CUfunction *function);
/* The same for a row program. */
gd_status gd_cuda_compile_rows(gd_device *d, const gd_kernel_source *source,
                               const gd_cuda_row_kernel *kernel, CUfunction *function);

#endif
