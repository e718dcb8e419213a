/* last_block.cuh - blocks that store parts of a result, and the last of them, which adds the parts. */
#ifndef GRADUS_BACKEND_CUDA_LAST_BLOCK_CUH
#define GRADUS_BACKEND_CUDA_LAST_BLOCK_CUH

/* Whether this block is the last of `count` blocks that arrive at a counter, which it sets back to 0.
 * All threads call it. What the blocks have stored before is then visible to all threads of the last
 * one, which reads it with __ldcg.
 *
 * A kernel's counters are variables: kernels of a device run one after the other, so all launches
 * share them. The fences are between a barrier and the atomic, so that they also order what the
 * other threads store and read. */
static __device__ __forceinline__ bool arrives_last(unsigned *counter, int count) {
    __shared__ int last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(counter, 1u) == (unsigned)count - 1;
        if (last) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return last != 0;
}

#endif
