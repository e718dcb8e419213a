/* library_cublaslt.h - cuBLASLt, loaded at run time. */
#ifndef GRADUS_BACKEND_CUDA_LIBRARY_CUBLASLT_H
#define GRADUS_BACKEND_CUDA_LIBRARY_CUBLASLT_H

#include <cublasLt.h>

#include "backend/cuda/state.h"

/* clang-format off */
#define CUBLASLT_FUNCTIONS(X) \
    X(cublasLtCreate) X(cublasLtMatmul) \
    X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) \
    X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) \
    X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute) \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) \
    X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic) \
    X(cublasLtMatmulAlgoConfigGetAttribute)
/* clang-format on */

#define GD_POINTER(name) __typeof__(&name) name;
typedef struct gd_cublaslt {
    CUBLASLT_FUNCTIONS(GD_POINTER)
} gd_cublaslt;
#undef GD_POINTER

/* The functions of the library, loaded by the first call; NULL: it was not found. */
const gd_cublaslt *gd_cuda_cublaslt(void);

/* The handle of a device; NULL, with the failure set, if it cannot be created. */
cublasLtHandle_t gd_cuda_cublaslt_handle(gd_device *d);

static inline cudaDataType gd_cuda_cublaslt_type(gd_dtype dtype) {
    return dtype == GD_F64    ? CUDA_R_64F
           : dtype == GD_F32  ? CUDA_R_32F
           : dtype == GD_BF16 ? CUDA_R_16BF
                              : CUDA_R_16F;
}

#endif
