/* compiler.h - kernels that are compiled at run time, by NVRTC. */
#ifndef GRADUS_CUDA_COMPILER_H
#define GRADUS_CUDA_COMPILER_H

#include "backend/cuda/state.h"

/* Whether NVRTC can be loaded. It is looked for at the first call. */
bool gd_cuda_has_compiler(void);

/* The function `name` of a source text, compiled for the device. Equal texts are compiled once;
 * functions stay loaded. NULL, with the failure set, if it cannot be compiled. */
CUfunction gd_cuda_compile(gd_device *d, const char *source, const char *name);

#endif
