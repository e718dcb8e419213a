/* library_cudnn.h - cuDNN: its functions, loaded at run time, and a handle for each device.
 *
 * The files dnn_*.c use it; the build leaves them out where cudnn.h is missing. A kernel's `match`
 * asks gd_cuda_has_dnn. Handles are used under the device's lock, on the compute stream.
 */
#ifndef GRADUS_BACKEND_CUDA_LIBRARY_CUDNN_H
#define GRADUS_BACKEND_CUDA_LIBRARY_CUDNN_H

#include <cudnn.h>

#include "backend/cuda/kernels.h"

/* clang-format off */
#define GD_DNN_FUNCTIONS(X)                                                                      \
    X(cudnnGetVersion) X(cudnnGetErrorString) X(cudnnCreate) X(cudnnSetStream)                   \
    X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor)                             \
    X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) X(cudnnBackendFinalize)              \
    X(cudnnBackendExecute)
/* clang-format on */

#define GD_DNN_POINTER(name) __typeof__(&name) name;
typedef struct gd_dnn_functions {
    GD_DNN_FUNCTIONS(GD_DNN_POINTER)
} gd_dnn_functions;
#undef GD_DNN_POINTER

extern gd_dnn_functions gd_dnn;

/* Whether cuDNN 9 can be loaded. It is looked for at the first call. */
bool gd_cuda_has_dnn(void);

/* The handle of a device, created at first use. Its stream is the compute stream. */
gd_status gd_cuda_dnn_handle(gd_device *d, cudnnHandle_t *handle);

/* GD_OK, or a failure with the call and cuDNN's name of the error. */
gd_status gd_cuda_dnn_check(gd_device *d, cudnnStatus_t status, const char *call);

/* GD_DNN_TRY(d, cudnnRNNForward(...)); returns from the function if the call fails. */
#define GD_DNN_TRY(d, call)                                           \
    do {                                                              \
        const cudnnStatus_t dnn_status_ = gd_dnn.call;                \
        if (__builtin_expect(dnn_status_ != CUDNN_STATUS_SUCCESS, 0)) \
            return gd_cuda_dnn_check(d, dnn_status_, #call);          \
    } while (0)

#endif
