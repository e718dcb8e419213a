/* driver.c - see driver.h. */
#include "backend/cuda/driver.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

gd_cuda_functions gd_cuda;
const gd_host *gd_cuda_host;

_Atomic(int64_t) gd_cuda_launches;

static __typeof__(&cuLaunchKernel) launch_kernel;

static CUresult CUDAAPI count_launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                     unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                     CUstream stream, void **parameters, void **extra) {
    atomic_fetch_add_explicit(&gd_cuda_launches, 1, memory_order_relaxed);
    return launch_kernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

static __typeof__(&cuLaunchCooperativeKernel) launch_cooperative_kernel;

static CUresult CUDAAPI count_cooperative_launch(CUfunction f, unsigned gx, unsigned gy,
                                                 unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                                 unsigned shared, CUstream stream,
                                                 void **parameters) {
    atomic_fetch_add_explicit(&gd_cuda_launches, 1, memory_order_relaxed);
    return launch_cooperative_kernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters);
}

static __typeof__(&cuLaunchKernelEx) launch_kernel_ex;

static CUresult CUDAAPI count_launch_ex(const CUlaunchConfig *config, CUfunction f,
                                        void **parameters, void **extra) {
    atomic_fetch_add_explicit(&gd_cuda_launches, 1, memory_order_relaxed);
    return launch_kernel_ex(config, f, parameters, extra);
}

_Atomic(int64_t) *gradus_cuda_count_launches(void) {
    if (launch_kernel) return &gd_cuda_launches;
    launch_kernel = gd_cuda.cuLaunchKernel;
    gd_cuda.cuLaunchKernel = count_launch;
    launch_cooperative_kernel = gd_cuda.cuLaunchCooperativeKernel;
    gd_cuda.cuLaunchCooperativeKernel = count_cooperative_launch;
    launch_kernel_ex = gd_cuda.cuLaunchKernelEx;
    gd_cuda.cuLaunchKernelEx = count_launch_ex;
    return &gd_cuda_launches;
}

enum { OLDEST_DRIVER = 12040 }; /* 12.4: graphs with kernel parameters of more than 4 KB */

#define STRING_(name) #name
#define STRING(name)  STRING_(name) /* of the name that a macro of <cuda.h> expands to */

static gd_status load_functions(void *library) {
#define LOAD(name)                                                                 \
    *(void **)&gd_cuda.name = dlsym(library, STRING(name));                        \
    if (!gd_cuda.name)                                                             \
        return gd_cuda_host->fail(GD_E_DEVICE,                                     \
                                  "the CUDA driver has no function %s; install a " \
                                  "newer one",                                     \
                                  STRING(name));
    GD_CUDA_FUNCTIONS(LOAD)
#undef LOAD
    return GD_OK;
}

gd_status gd_cuda_load_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return gd_cuda_host->fail(GD_E_DEVICE,
                                  "there is no CUDA driver (libcuda.so.1 was not found)");
    gd_status status = load_functions(library);
    if (status != GD_OK) return status;
    int version = 0, count = 0;
    CUresult result = gd_cuda.cuInit(0);
    if (result == CUDA_ERROR_NO_DEVICE)
        return gd_cuda_host->fail(GD_E_DEVICE, "the CUDA driver finds no device");
    if (result != CUDA_SUCCESS) return gd_cuda_check(NULL, result, "cuInit");
    result = gd_cuda.cuDriverGetVersion(&version);
    if (result != CUDA_SUCCESS) return gd_cuda_check(NULL, result, "cuDriverGetVersion");
    if (version < OLDEST_DRIVER)
        return gd_cuda_host->fail(
            GD_E_DEVICE, "the CUDA driver supports CUDA %d.%d; %d.%d or newer is needed",
            version / 1000, version % 1000 / 10, OLDEST_DRIVER / 1000, OLDEST_DRIVER % 1000 / 10);
    result = gd_cuda.cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS) return gd_cuda_check(NULL, result, "cuDeviceGetCount");
    return count > 0 ? GD_OK : gd_cuda_host->fail(GD_E_DEVICE, "the CUDA driver finds no device");
}

/* Errors after which the context is unusable. */
static bool is_fatal(CUresult result) {
    switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_UNKNOWN: return true;
    default: return false;
    }
}

gd_status gd_cuda_check(gd_device *d, CUresult result, const char *call) {
    if (result == CUDA_SUCCESS) return GD_OK;
    const char *name = NULL, *text = NULL;
    if (gd_cuda.cuGetErrorName) gd_cuda.cuGetErrorName(result, &name);
    if (gd_cuda.cuGetErrorString) gd_cuda.cuGetErrorString(result, &text);
    const int length = (int)strcspn(call, "(");
    if (d && is_fatal(result)) atomic_store(&d->lost, true);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return gd_cuda_host->fail(GD_E_MEMORY, "%s: out of memory in %.*s", d ? d->name : "cuda",
                                  length, call);
    return gd_cuda_host->fail(GD_E_DEVICE, "%s: %.*s failed: %s (%s)", d ? d->name : "cuda", length,
                              call, text ? text : "unknown error", name ? name : "?");
}
