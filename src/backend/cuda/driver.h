/* driver.h - the functions of the CUDA driver, loaded at run time from libcuda.so.1.
 *
 * The backend links no library of NVIDIA, so one binary runs with and without them. A call is
 * gd_cuda.cuMemAlloc(...); the names are those of <cuda.h>, which selects the versions.
 */
#ifndef GRADUS_BACKEND_CUDA_DRIVER_H
#define GRADUS_BACKEND_CUDA_DRIVER_H

#include <cuda.h>

#include "gradus/backend.h"

/* clang-format off */
#define GD_CUDA_FUNCTIONS(X)                                                                     \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGetCount)    \
    X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain)        \
    X(cuCtxSetCurrent) X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemHostAlloc)              \
    X(cuMemFreeHost) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync)              \
    X(cuMemsetD8Async) X(cuStreamCreateWithPriority) X(cuStreamSynchronize) X(cuStreamWaitEvent) \
    X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuStreamGetCaptureInfo) X(cuEventCreate)     \
    X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) X(cuEventElapsedTime)                 \
    X(cuModuleLoadData) X(cuModuleGetFunction)           \
    X(cuFuncSetAttribute) X(cuFuncGetAttribute) X(cuLaunchKernel) X(cuLaunchKernelEx)            \
    X(cuLaunchCooperativeKernel) X(cuGraphInstantiate) X(cuGraphLaunch) X(cuGraphDestroy)        \
    X(cuGraphExecDestroy) X(cuGraphExecKernelNodeSetParams) X(cuGraphGetNodes)
/* clang-format on */

#define GD_CUDA_POINTER(name) __typeof__(&name) name;
typedef struct gd_cuda_functions {
    GD_CUDA_FUNCTIONS(GD_CUDA_POINTER)
} gd_cuda_functions;
#undef GD_CUDA_POINTER

extern gd_cuda_functions gd_cuda;

/* The number of kernels launched so far as nodes of captured graphs, and since the first call of
 * gradus_cuda_count_launches also one by one, except for those of libraries. */
extern _Atomic(int64_t) gd_cuda_launches;
/* For bench/cuda/steps.c, which finds it by dlsym. No other thread may launch kernels during the
 * first call. */
GD_API _Atomic(int64_t) *gradus_cuda_count_launches(void);

/* The functions of the library that opened the backend. */
extern const gd_host *gd_cuda_host;

/* Loads and initializes the driver. Fails with GD_E_DEVICE and the reason: there is no driver, it
 * lacks a function, it is too old, or there is no device. */
gd_status gd_cuda_load_driver(void);

/* GD_OK, or a failure with the names of the call and of the error. A device that has failed is
 * marked as lost. */
gd_status gd_cuda_check(gd_device *d, CUresult result, const char *call);

/* GD_CUDA_TRY(d, cuMemFree(p)); returns from the function if the call fails. */
#define GD_CUDA_CALL(d, call) gd_cuda_check(d, gd_cuda.call, #call)
#define GD_CUDA_TRY(d, call)                                   \
    do {                                                       \
        const CUresult cuda_result_ = gd_cuda.call;            \
        if (__builtin_expect(cuda_result_ != CUDA_SUCCESS, 0)) \
            return gd_cuda_check(d, cuda_result_, #call);      \
    } while (0)

#endif
