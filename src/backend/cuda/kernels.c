/* kernels.c - the kernels of all files, and launches of loops. */
#include "backend/cuda/kernels.h"

extern const gd_kernel *const __start_gd_cuda_entries[], *const __stop_gd_cuda_entries[];

gd_status gd_cuda_collect_kernels(const gd_kernel **kernels, int *count) {
    *count = (int)(__stop_gd_cuda_entries - __start_gd_cuda_entries);
    gd_kernel *all = gd_cuda_host->allocate((size_t)*count * sizeof *all);
    if (!all) return gd_cuda_host->fail(GD_E_MEMORY, "no memory for the table of CUDA kernels");
    for (int i = 0; i < *count; i++) all[i] = *__start_gd_cuda_entries[i];
    *kernels = all;
    return GD_OK;
}

enum { THREADS = 256, BLOCKS_PER_PROCESSOR = 8 };

gd_status gd_cuda_launch_each(gd_device *d, gd_cuda_kernel *kernel, long long count,
                              const void *arguments) {
    const long long blocks = (count + THREADS - 1) / THREADS,
                    most = (long long)BLOCKS_PER_PROCESSOR * gd_cuda_state_of(d)->processors;
    return gd_cuda_launch(d, kernel, blocks < most ? blocks : most, THREADS, arguments);
}
