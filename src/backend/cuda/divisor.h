/* divisor.h - division by a number that is known at launch, as a multiplication. Host and kernels
 * include it. */
#ifndef GRADUS_BACKEND_CUDA_DIVISOR_H
#define GRADUS_BACKEND_CUDA_DIVISOR_H

/* n / by for n < 2^31 is (high half of n * magic + n) >> shift. */
typedef struct gd_cuda_divisor {
    unsigned by, magic, shift;
} gd_cuda_divisor;

#ifdef __cplusplus
static __device__ __forceinline__ int divide_by(const gd_cuda_divisor &d, int n) {
    return (int)((__umulhi((unsigned)n, d.magic) + (unsigned)n) >> d.shift);
}
/* Takes the remainder of *n and divides it. */
static __device__ __forceinline__ int split_off(const gd_cuda_divisor &d, int *n) {
    const int rest = divide_by(d, *n), last = *n - rest * (int)d.by;
    *n = rest;
    return last;
}
#else
/* by: 1 to 2^31. */
static inline gd_cuda_divisor gd_cuda_divisor_of(long long by) {
    gd_cuda_divisor d = {(unsigned)by, 0, 0};
    while ((1ull << d.shift) < (unsigned long long)by) d.shift++;
    d.magic = (unsigned)(((1ull << 32) * ((1ull << d.shift) - (unsigned long long)by)) / d.by + 1);
    return d;
}
#endif

#endif
