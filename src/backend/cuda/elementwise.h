/* elementwise.h - what plans may fuse for CUDA devices. */
#ifndef GRADUS_CUDA_ELEMENTWISE_H
#define GRADUS_CUDA_ELEMENTWISE_H

#include "codegen/fusion_rules.h"

/* The rules, filled when the backend is opened. */
const gd_fusion_rules *gd_cuda_fusion_rules(void);

#endif
