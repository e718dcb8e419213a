/* memory.c - memory of a CUDA device, pinned host memory, and queued copies between them. */
#include "backend/cuda/state.h"

static CUdeviceptr address_of(const void *handle) { return (CUdeviceptr)(uintptr_t)handle; }

gd_status gd_cuda_alloc(gd_device *d, size_t bytes, void **handle) {
    CUdeviceptr address = 0;
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    GD_CUDA_TRY(d, cuMemAlloc(&address, bytes));
    *handle = (void *)(uintptr_t)address;
    return GD_OK;
}

void gd_cuda_free(gd_device *d, void *handle, size_t bytes) {
    (void)bytes;
    if (gd_cuda_enter_context(d) == GD_OK) gd_cuda.cuMemFree(address_of(handle));
}

gd_status gd_cuda_memory_info(gd_device *d, size_t *free_bytes, size_t *total_bytes) {
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    GD_CUDA_TRY(d, cuMemGetInfo(free_bytes, total_bytes));
    return GD_OK;
}

gd_status gd_cuda_pinned_alloc(gd_device *d, size_t bytes, void **address) {
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK) return status;
    GD_CUDA_TRY(d, cuMemHostAlloc(address, bytes, CU_MEMHOSTALLOC_PORTABLE));
    return GD_OK;
}

void gd_cuda_pinned_free(gd_device *d, void *address, size_t bytes) {
    (void)bytes;
    if (gd_cuda_enter_context(d) == GD_OK) gd_cuda.cuMemFreeHost(address);
}

gd_status gd_cuda_upload(gd_device *d, gd_queue queue, void *to, const void *from, size_t bytes) {
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK || bytes == 0) return status;
    const CUstream stream = gd_cuda_state_of(d)->streams[queue];
    GD_CUDA_TRY(d, cuMemcpyHtoDAsync(address_of(to), from, bytes, stream));
    return GD_OK;
}

gd_status gd_cuda_download(gd_device *d, gd_queue queue, void *to, const void *from, size_t bytes) {
    gd_status status = gd_cuda_enter_context(d);
    if (status != GD_OK || bytes == 0) return status;
    const CUstream stream = gd_cuda_state_of(d)->streams[queue];
    GD_CUDA_TRY(d, cuMemcpyDtoHAsync(to, address_of(from), bytes, stream));
    return GD_OK;
}
