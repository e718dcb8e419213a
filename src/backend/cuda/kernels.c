/* kernels.c - the kernels of all files, launches of loops, and texts of descriptions. */
#include "backend/cuda/kernels.h"

#include <stdio.h>

GD_KERNEL_TABLE(cuda);

gd_status gd_cuda_collect_kernels(const gd_kernel **kernels, int *count) {
    static gd_kernel *all; /* stays when no device is found */
    int n = 0;
    for (int f = 0; f < gd_kernel_file_count_cuda; f++)
        if (gd_kernel_files_cuda[f]) n += gd_kernel_files_cuda[f]->count;
    gd_kernel *to = all ? all : gd_cuda_host->allocate((size_t)n * sizeof *all);
    if (!to) return gd_cuda_host->fail(GD_E_MEMORY, "no memory for the table of CUDA kernels");
    *kernels = all = to;
    *count = n;
    for (int f = 0; f < gd_kernel_file_count_cuda; f++) {
        const gd_kernel_file *file = gd_kernel_files_cuda[f];
        for (int i = 0; file && i < file->count; i++) *to++ = file->kernels[i];
    }
    return GD_OK;
}

enum { THREADS = 256, BLOCKS_PER_PROCESSOR = 8 };

gd_status gd_cuda_launch_each(gd_device *d, gd_cuda_kernel *kernel, long long count,
                              const void *arguments) {
    const long long blocks = (count + THREADS - 1) / THREADS,
                    most = (long long)BLOCKS_PER_PROCESSOR * gd_cuda_state_of(d)->processors;
    return gd_cuda_launch(d, kernel, blocks < most ? blocks : most, THREADS, arguments);
}

const char *gd_cuda_workspace_text(size_t bytes, char *text, size_t size) {
    const size_t tenths = (bytes + 50000) / 100000; /* of a megabyte, as integers in any locale */
    *text = 0;
    if (tenths >= 10) snprintf(text, size, ", %zu.%zu MB workspace", tenths / 10, tenths % 10);
    else if (bytes > 0) snprintf(text, size, ", %zu kB workspace", (bytes + 999) / 1000);
    return text;
}
