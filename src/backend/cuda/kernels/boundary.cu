/* boundary.cu - the entry and exit kernels of plans: copies of feeds and fetches, and numbers from
 * the host. While the error word is set they copy nothing. */
#include "error_word.h"

template <typename T>
static __device__ void copy_units(char *to, const char *from, unsigned long long count) {
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += step)
        ((T *)to)[i] = ((const T *)from)[i];
}

/* In units of 16 bytes if both addresses allow it; the rest byte by byte. */
static __device__ void copy_bytes(char *to, const char *from, unsigned long long bytes) {
    unsigned long long done = 0;
    if ((((unsigned long long)to | (unsigned long long)from) & 15) == 0) {
        copy_units<uint4>(to, from, bytes / 16);
        done = bytes / 16 * 16;
    }
    copy_units<char>(to + done, from + done, bytes - done);
}

extern "C" __global__ void gd_boundary_copy(const __grid_constant__ gd_cuda_boundary b) {
    const bool first = blockIdx.x == 0 && threadIdx.x == 0;
    if (first && b.run != ~0ull) b.word->current_run = b.run;
    if (b.word->number) return;
    for (int i = 0; i < b.n_copies; i++)
        copy_bytes((char *)b.copies[i].to, (const char *)b.copies[i].from, b.copies[i].bytes);
    if (blockIdx.x == 0)
        for (int i = threadIdx.x; i < b.n_numbers; i += blockDim.x)
            for (unsigned k = 0; k < b.numbers[i].bytes; k++)
                ((char *)b.numbers[i].to)[k] = (char)(b.numbers[i].bits >> 8 * k);
}
