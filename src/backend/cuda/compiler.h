/* compiler.h - kernels that are compiled at run time, by NVRTC.
 *
 * Compiled code is kept in the library's cache on disk (codegen/native.h), by a hash of the source,
 * the options, the architecture and the NVRTC library. NVRTC is loaded only if a kernel is not in
 * the cache.
 */
#ifndef GRADUS_BACKEND_CUDA_COMPILER_H
#define GRADUS_BACKEND_CUDA_COMPILER_H

#include "backend/cuda/state.h"

/* Whether there is an NVRTC library. */
bool gd_cuda_has_compiler(void);

/* A source text with one kernel, and its function. */
typedef struct gd_cuda_program {
    char *source;
    const char *name;
    CUfunction function; /* NULL: it cannot be compiled */
} gd_cuda_program;

/* Sets the functions of all programs for the device. Those that are not in the cache are compiled
 * at the same time, by several threads. Equal texts are compiled once; functions stay loaded. If
 * any cannot be compiled, it returns the failure of the first one. */
gd_status gd_cuda_compile(gd_device *d, gd_cuda_program *programs, int n);

/* The function of a source text that was compiled before; NULL: none. */
CUfunction gd_cuda_find_compiled(gd_device *d, const char *source);

/* For tests: the number of texts that NVRTC has compiled. */
extern _Atomic(int64_t) gradus_cuda_compiles;

#endif
