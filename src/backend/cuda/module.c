/* module.c - the kernels that the build compiled, and their launches. */
#include <stdatomic.h>
#include <string.h>

#include "backend/cuda/images.h"
#include "backend/cuda/state.h"

static int find_image(const char *name) {
    for (int i = 0; i < gd_cuda_image_count; i++)
        if (strcmp(gd_cuda_images[i].name, name) == 0) return i;
    return -1;
}

/* The module of an image, loaded at first use. The lock of the state is held. */
static gd_status load_module(gd_device *d, const char *image, CUmodule *module) {
    gd_cuda_state *s = gd_cuda_state_of(d);
    const int number = find_image(image);
    if (number < 0)
        return gd_cuda_host->fail(GD_E_DEVICE, "the CUDA backend has no kernels '%s'", image);
    if (!s->modules) {
        const size_t bytes = (size_t)gd_cuda_image_count * sizeof *s->modules;
        s->modules = gd_cuda_host->allocate(bytes);
        if (!s->modules) return gd_cuda_host->fail(GD_E_MEMORY, "no memory for CUDA modules");
        memset(s->modules, 0, bytes);
    }
    if (!s->modules[number])
        GD_CUDA_TRY(d, cuModuleLoadData(&s->modules[number], gd_cuda_images[number].code));
    *module = s->modules[number];
    return GD_OK;
}

/* Code for compute capability 9.0 and later can wait for the kernel before it. Code for older ones,
 * which a newer device may run, too, cannot. */
static gd_status find_wait(gd_device *d, gd_cuda_kernel *kernel, CUfunction function) {
    int version = 0;
    GD_CUDA_TRY(d, cuFuncGetAttribute(&version, CU_FUNC_ATTRIBUTE_PTX_VERSION, function));
    atomic_store(&kernel->compiled_to_wait[gd_cuda_state_of(d)->index], version >= 90);
    return GD_OK;
}

static int shared_bytes_of(const gd_device *d, const gd_cuda_kernel *kernel) {
    return kernel->shared_bytes == GD_CUDA_ALL_SHARED ? gd_cuda_state_of(d)->shared_bytes
                                                      : kernel->shared_bytes;
}

static gd_status load_function(gd_device *d, gd_cuda_kernel *kernel, CUfunction *function) {
    CUmodule module = NULL;
    gd_status status = load_module(d, kernel->image, &module);
    if (status == GD_OK)
        status = GD_CUDA_CALL(d, cuModuleGetFunction(function, module, kernel->name));
    if (status == GD_OK && kernel->shared_bytes)
        status = GD_CUDA_CALL(d, cuFuncSetAttribute(*function,
                                                    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                    shared_bytes_of(d, kernel)));
    if (status == GD_OK && kernel->waits) status = find_wait(d, kernel, *function);
    return status;
}

/* Not inlined: launches of functions that are loaded stay short. */
__attribute__((noinline)) static gd_status find_function(gd_device *d, gd_cuda_kernel *kernel,
                                                         CUfunction *function) {
    gd_cuda_state *s = gd_cuda_state_of(d);
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    pthread_mutex_lock(&s->lock);
    status = load_function(d, kernel, function);
    pthread_mutex_unlock(&s->lock);
    if (status == GD_OK)
        atomic_store_explicit(&kernel->functions[s->index], *function, memory_order_release);
    return status;
}

gd_status gd_cuda_function(gd_device *d, gd_cuda_kernel *kernel, CUfunction *function) {
    *function =
        atomic_load_explicit(&kernel->functions[gd_cuda_state_of(d)->index], memory_order_acquire);
    return __builtin_expect(*function != NULL, 1) ? GD_OK : find_function(d, kernel, function);
}

gd_status gd_cuda_launch_loaded(gd_device *d, CUfunction function, int64_t blocks, int threads,
                                int shared_bytes, bool waits, const void *arguments) {
    const gd_cuda_state *s = gd_cuda_state_of(d);
    void *parameters[] = {(void *)(uintptr_t)arguments};
    if (waits) {
        CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
        early.value.programmaticStreamSerializationAllowed = 1;
        const CUlaunchConfig config = {.gridDimX = (unsigned)blocks,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = (unsigned)threads,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .sharedMemBytes = (unsigned)shared_bytes,
                                       .hStream = s->streams[GD_QUEUE_COMPUTE],
                                       .attrs = &early,
                                       .numAttrs = 1};
        GD_CUDA_TRY(d, cuLaunchKernelEx(&config, function, parameters, NULL));
        return GD_OK;
    }
    GD_CUDA_TRY(d, cuLaunchKernel(function, (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1,
                                  (unsigned)shared_bytes, s->streams[GD_QUEUE_COMPUTE], parameters,
                                  NULL));
    return GD_OK;
}

gd_status gd_cuda_launch(gd_device *d, gd_cuda_kernel *kernel, int64_t blocks, int threads,
                         const void *arguments) {
    CUfunction function;
    gd_status status = gd_cuda_enter_context(d);
    if (status == GD_OK) status = gd_cuda_function(d, kernel, &function);
    if (status != GD_OK || blocks == 0) return status;
    return gd_cuda_launch_loaded(
        d, function, blocks, threads, shared_bytes_of(d, kernel),
        atomic_load_explicit(&kernel->compiled_to_wait[gd_cuda_state_of(d)->index],
                             memory_order_relaxed),
        arguments);
}

gd_status gd_cuda_launch_together(gd_device *d, gd_cuda_kernel *kernel, int64_t blocks, int threads,
                                  const void *arguments) {
    gd_cuda_state *s = gd_cuda_state_of(d);
    void *parameters[] = {(void *)(uintptr_t)arguments};
    CUfunction function;
    gd_status status = gd_cuda_enter_context(d);
    if (status == GD_OK) status = gd_cuda_function(d, kernel, &function);
    if (status != GD_OK) return status;
    GD_CUDA_TRY(d, cuLaunchCooperativeKernel(function, (unsigned)blocks, 1, 1, (unsigned)threads, 1,
                                             1, (unsigned)shared_bytes_of(d, kernel),
                                             s->streams[GD_QUEUE_COMPUTE], parameters));
    return GD_OK;
}
