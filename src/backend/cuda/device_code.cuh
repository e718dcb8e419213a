/* device_code.cuh - makes the library's C headers usable in kernels.
 *
 * Their functions are `static inline`; here they become device functions. CUDA's own headers, and
 * those of C, must come first.
 */
#ifndef GRADUS_BACKEND_CUDA_DEVICE_CODE_CUH
#define GRADUS_BACKEND_CUDA_DEVICE_CODE_CUH

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define inline __device__ __forceinline__
#include "codegen/scalar_args.h"
#include "codegen/scalar_math.h"
#include "core/float_to_int.h"
#include "core/half.h"
#undef inline

#endif
