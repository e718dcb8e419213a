/* fusion.h - what plans may fuse for CUDA devices, and the kernels of fused ops. */
#ifndef GRADUS_CUDA_FUSION_H
#define GRADUS_CUDA_FUSION_H

#include "backend/cuda/state.h"
#include "codegen/fusion_rules.h"
#include "ops/codegen_api.h"

/* The rules, filled when the backend is opened. */
const gd_fusion_rules *gd_cuda_fusion_rules(void);

/* The kernel of a source, printed and compiled at first use; NULL, with the failure set, if it
 * cannot be compiled. */
CUfunction gd_cuda_compile_source(gd_device *d, const gd_kernel_source *source);

#endif
