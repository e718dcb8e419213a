/* softmax_online.cuh - the largest element of a row and the sum of exp(x - largest), in one pass. */
#ifndef GRADUS_OPS_SOFTMAX_CUDA_SOFTMAX_ONLINE_CUH
#define GRADUS_OPS_SOFTMAX_CUDA_SOFTMAX_ONLINE_CUH

#include "backend/cuda/pack.cuh"

static __device__ __forceinline__ float larger_of(float a, float b) { return fmaxf(a, b); }
static __device__ __forceinline__ double larger_of(double a, double b) { return fmax(a, b); }

/* exp(x - largest). If `largest` is -inf: exp(x), which is 0 or NaN. With CAPPED, exp(inf - inf) is
 * 1 and not NaN: the sum then counts the infinite elements. */
template <bool CAPPED, typename W> static __device__ __forceinline__ W exp_below(W x, W largest) {
    if (CAPPED && x == (W)INFINITY) return 1;
    return exp_of(x - (largest == -(W)INFINITY ? (W)0 : largest));
}

/* The elements so far: the largest, NaN ignored, and the sum of exp(x - largest). */
template <typename W, bool CAPPED> struct online_sum {
    W largest, sum;
    __device__ __forceinline__ void start() {
        largest = -(W)INFINITY;
        sum = 0;
    }
    template <int COUNT> __device__ __forceinline__ void add(const W *x) {
        W most = x[0];
#pragma unroll
        for (int i = 1; i < COUNT; i++) most = larger_of(most, x[i]);
        if (most > largest) {
            sum *= exp_of(largest - most);
            largest = most;
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) sum += exp_below<CAPPED>(x[i], largest);
    }
    /* Makes the sum one for a largest element that is not smaller. */
    __device__ __forceinline__ void raise_to(W most) {
        if (largest != most) sum *= exp_of(largest - most);
        largest = most;
    }
    /* The result of all threads of a warp, or of a block, in all of them. */
    __device__ __forceinline__ void join_warp() {
        W most = largest;
        for (int d = 16; d > 0; d /= 2) most = larger_of(most, __shfl_xor_sync(~0u, most, d));
        raise_to(most);
        sum = sum_of_lanes(sum, 32);
    }
    /* `shared` has 32 elements. */
    __device__ __forceinline__ void join_block(W *shared, int threads) {
        W most = largest;
        for (int d = 16; d > 0; d /= 2) most = larger_of(most, __shfl_xor_sync(~0u, most, d));
        __syncthreads();
        if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = most;
        __syncthreads();
        for (int i = 0; i < threads / 32; i++) most = larger_of(most, shared[i]);
        raise_to(most);
        sum = sum_of_block(sum, shared, threads);
    }
};

/* Visits the elements of a row that lies at any address: f(first, values, COUNT as a type) for
 * COUNT neighbouring elements: single ones up to the first multiple of 16 bytes and after the
 * last, vectors between them. `thread` of `threads` threads. */
template <int COUNT> struct count_of {
    enum { value = COUNT };
};
template <typename T, class F>
static __device__ __forceinline__ void visit_row(const T *row, long long n, int thread, int threads,
                                                 F &&f) {
    typedef typename wide_type<T>::type W;
    enum { N = pack_size<T>::value, UNROLL = 4 };
    const long long aligned = (long long)((16 - ((uintptr_t)row & 15)) & 15) / (long long)sizeof(T);
    const long long head = aligned < n ? aligned : n, vectors = (n - head) / N;
    if (thread < head) {
        const W x = widen(row[thread]);
        f((long long)thread, &x, count_of<1>());
    }
    const T *body = row + head;
    long long v = thread;
    for (; v + (UNROLL - 1) * threads < vectors; v += UNROLL * threads) {
        raw_vector<T, N> raw[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) raw[u].load(body + (v + u * threads) * N);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            W x[N];
            raw[u].widen_to(x);
            f(head + (v + u * threads) * N, (const W *)x, count_of<N>());
        }
    }
    for (; v < vectors; v += threads) {
        raw_vector<T, N> raw;
        W x[N];
        raw.load(body + v * N);
        raw.widen_to(x);
        f(head + v * N, (const W *)x, count_of<N>());
    }
    for (long long i = head + vectors * N + thread; i < n; i += threads) {
        const W x = widen(row[i]);
        f(i, &x, count_of<1>());
    }
}

#endif
