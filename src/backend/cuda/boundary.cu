/* boundary.cu - the entry and exit kernels of plans: copies of feeds and fetches, and scalars from
 * the host. While the error word is set they copy nothing. */
#include "error_word.h"

/* The share of a block, one of `blocks`. Several loads are in flight at a time. */
template <typename T>
static __device__ void copy_units(T *to, const T *from, unsigned long long count, int block,
                                  int blocks) {
    enum { UNROLL = 4 };
    const unsigned long long step = (unsigned long long)blocks * blockDim.x;
    unsigned long long i = (unsigned long long)block * blockDim.x + threadIdx.x;
    for (; i + (UNROLL - 1) * step < count; i += UNROLL * step) {
        T units[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) units[u] = from[i + u * step];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) to[i + u * step] = units[u];
    }
    for (; i < count; i += step) to[i] = from[i];
}

/* In units of 16 bytes if both addresses allow it; the rest byte by byte. */
static __device__ void copy_bytes(char *to, const char *from, unsigned long long bytes, int block,
                                  int blocks) {
    unsigned long long done = 0;
    if ((((unsigned long long)to | (unsigned long long)from) & 15) == 0) {
        copy_units((uint4 *)to, (const uint4 *)from, bytes / 16, block, blocks);
        done = bytes / 16 * 16;
    }
    copy_units(to + done, from + done, bytes - done, block, blocks);
}

extern "C" __global__ void gd_boundary_copy(const __grid_constant__ gd_cuda_boundary b) {
    const bool first = blockIdx.x == 0 && threadIdx.x == 0;
    if (first && b.run != ~0ull) b.word->current_run = b.run;
    if (b.word->number) return;
    const int copy = (int)blockIdx.x / b.blocks;
    if (copy < b.n_copies)
        copy_bytes((char *)b.copies[copy].to, (const char *)b.copies[copy].from,
                   b.copies[copy].bytes, (int)blockIdx.x % b.blocks, b.blocks);
    if (blockIdx.x == 0)
        for (int i = threadIdx.x; i < b.n_scalars; i += blockDim.x)
            for (unsigned k = 0; k < b.scalars[i].bytes; k++)
                ((char *)b.scalars[i].to)[k] = (char)(b.scalars[i].bits >> 8 * k);
}
