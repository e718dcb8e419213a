/* attention.cuh - batches, masks and dropout of attention, for kernels. */
#ifndef GRADUS_OPS_ATTENTION_CUDA_ATTENTION_CUH
#define GRADUS_OPS_ATTENTION_CUDA_ATTENTION_CUH

#include "ops/attention/cuda/attention_args.h"
#include "backend/cuda/typed.cuh"
#include "ops/random/cuda/random_dist.cuh"

/* The dynamic shared memory of a block. */
#ifdef __CUDACC__
extern __shared__ __align__(128) unsigned char dynamic_shared[];
#else
#define dynamic_shared emulated_shared
#endif

/* The offset of matrix `number` in an operand. Heads of k and v are shared by p.groups heads. */
static __device__ __noinline__ long long matrix_offset(const gd_cuda_attention &p,
                                                       const gd_cuda_heads &operand,
                                                       long long number, bool shared_heads) {
    long long at = 0;
    unsigned rest = (unsigned)number; /* there are fewer than 2^31 matrices */
#pragma unroll 1
    for (int d = p.batch_rank - 1; d >= 0; d--) {
        const unsigned size = (unsigned)p.batch_dims[d];
        unsigned i = rest % size;
        rest /= size;
        if (shared_heads && d == p.batch_rank - 1) i /= (unsigned)p.groups;
        at += i * operand.batch[d];
    }
    return at;
}

/* What the mask adds to the score at offset `at`. T is the type of q. */
template <typename T>
static __device__ __forceinline__ typename wide_type<T>::type mask_value(const gd_cuda_attention &p,
                                                                         long long at) {
    typedef typename wide_type<T>::type C;
    if (p.mask_is_bool) return ((const uint8_t *)p.mask.data)[at] ? C(0) : C(-INFINITY);
    return widen(((const T *)p.mask.data)[at]);
}

/* The factors of dropout. Philox yields the words of four weights at a time; those of the last call
 * are kept, because a thread often needs neighbouring weights. */
struct dropout_words {
    gd_rng rng;
    uint64_t block;
    uint32_t words[4];

    __device__ __forceinline__ explicit dropout_words(const gd_cuda_attention &p) {
        block = ~(uint64_t)0;
        if (!p.key) return;
        rng.seed = (uint64_t)p.key[0];
        rng.call = (uint64_t)p.key[p.key_stride];
    }
    /* Not inlined, because a thread has many weights. */
    __device__ __noinline__ void compute_words() { gd_philox(rng, block, words); }
    /* Whether weight `number` of (batch, L, S), row-major, is kept. */
    __device__ __forceinline__ bool keeps(const gd_cuda_attention &p, uint64_t number) {
        if (number / 4 != block) {
            block = number / 4;
            compute_words();
        }
        const int i = (int)(number % 4);
        return (i == 0 ? words[0] : i == 1 ? words[1] : i == 2 ? words[2] : words[3]) < p.limit;
    }
};

#endif
