/* shim.h - CUDA C++ as C++ for the host, so that kernels run without a GPU.
 *
 * The emulator (execute.cpp) runs the threads of a grid one after the other, block by block. Kernels
 * with barriers or shuffles run their block's threads as coroutines, which switch at each barrier.
 * The blocks of a cooperative launch switch when all their threads wait.
 */
#ifndef GRADUS_TESTS_CUDA_SHIM_H
#define GRADUS_TESTS_CUDA_SHIM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict

/* Variables in shared memory are in a section of their own, so that the emulator can fill them: one
 * for each file. (GCC ignores this in templates.) */
#ifndef EMULATED_STATICS
#define EMULATED_STATICS emulated_statics
#endif
#define EMULATED_TEXT_(x)      #x
#define EMULATED_TEXT(x)       EMULATED_TEXT_(x)
#define EMULATED_JOIN_(a, b)   a##b
#define EMULATED_JOIN(a, b)    EMULATED_JOIN_(a, b)
#define __shared__             static __attribute__((section(EMULATED_TEXT(EMULATED_STATICS))))
#define EMULATED_STATICS_BEGIN EMULATED_JOIN(__start_, EMULATED_STATICS)
#define EMULATED_STATICS_END   EMULATED_JOIN(__stop_, EMULATED_STATICS)
extern "C" __attribute__((weak, visibility("hidden"))) unsigned char EMULATED_STATICS_BEGIN[],
    EMULATED_STATICS_END[]; /* NULL: there are none */

struct emulated_index {
    unsigned x, y, z;
};
/* Of the thread that runs; set by the emulator. */
extern emulated_index threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};
struct alignas(16) double2 {
    double x, y;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};

static inline float __int_as_float(int bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline int __float_as_int(float x) {
    int bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline double __longlong_as_double(long long bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline long long __double_as_longlong(double x) {
    long long bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
template <typename T> static inline T __ldg(const T *p) { return *p; }
template <typename T> static inline T __ldcg(const T *p) { return *p; }

/* --- order of memory -------------------------------------------------------------------------- */

/* What races.cpp must know. */
extern "C" void emulated_fence(void);
extern "C" void emulated_atomic(const void *address);
extern "C" void emulated_previous_kernel(void); /* the thread has waited for its end */
static inline void __threadfence(void) { emulated_fence(); }

/* For functions whose accesses are atomic or relaxed: they are no race. Threads run one at a time, so
 * a plain update is atomic. */
#define EMULATED_ATOMIC static inline __attribute__((no_sanitize("thread")))

template <typename T> EMULATED_ATOMIC T atomicCAS(T *p, T expected, T value) {
    emulated_atomic(p);
    const T before = *p;
    if (before == expected) *p = value;
    return before;
}
template <typename T, typename U> EMULATED_ATOMIC T atomicAdd(T *p, U value) {
    emulated_atomic(p);
    const T before = *p;
    *p += value;
    return before;
}
template <typename T, typename U> EMULATED_ATOMIC T atomicMax(T *p, U value) {
    emulated_atomic(p);
    const T before = *p;
    if (value > *p) *p = value;
    return before;
}
template <typename T, typename U> EMULATED_ATOMIC T atomicMin(T *p, U value) {
    emulated_atomic(p);
    const T before = *p;
    if (value < *p) *p = value;
    return before;
}

template <typename T, typename U> EMULATED_ATOMIC T atomicOr(T *p, U value) {
    emulated_atomic(p);
    const T before = *p;
    *p |= value;
    return before;
}

/* The dynamic shared memory of the block that runs. */
enum { EMULATED_SHARED_BYTES = 227 << 10, EMULATED_SHARED_PAGES = 228 << 10 };
extern "C" unsigned char emulated_shared[EMULATED_SHARED_PAGES];

/* --- barriers and shuffles -------------------------------------------------------------------- */

extern "C" void emulated_barrier(void);      /* all threads of the block */
extern "C" void emulated_sync_warp(void);    /* all threads of the warp */
extern "C" void emulated_warp_barrier(void); /* the same, but it orders no memory */
extern "C" void emulated_wait(void);         /* lets others run; in loops that wait for a block */
extern "C" void *emulated_lane(int lane);    /* 16 bytes of another thread of the warp */

static inline void __syncthreads(void) { emulated_barrier(); }
extern "C" int emulated_any(int predicate); /* whether it is true in any thread of the block */
static inline int __syncthreads_or(int predicate) { return emulated_any(predicate); }
static inline void __syncwarp(unsigned mask = ~0u) {
    (void)mask;
    emulated_sync_warp();
}

/* The value of another lane, or the own one if there is none. */
template <typename T> static inline T emulated_exchange(T value, int from) {
    static_assert(sizeof(T) <= 16, "a shuffled value has at most 16 bytes");
    const int own = (int)(threadIdx.x % 32);
    memcpy(emulated_lane(own), &value, sizeof value);
    emulated_warp_barrier();
    T result = value;
    const void *other = from >= 0 && from < 32 ? emulated_lane(from) : nullptr;
    if (other) memcpy(&result, other, sizeof result);
    emulated_warp_barrier();
    return result;
}
template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
    (void)mask;
    const int own = (int)(threadIdx.x % 32);
    return emulated_exchange(value, own / width * width + lane % width);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    (void)mask;
    const int own = (int)(threadIdx.x % 32), from = own + (int)delta;
    return emulated_exchange(value, from / width == own / width ? from : own);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    (void)mask;
    const int own = (int)(threadIdx.x % 32), from = own - (int)delta;
    return emulated_exchange(value, from >= 0 && from / width == own / width ? from : own);
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    (void)mask, (void)width;
    return emulated_exchange(value, (int)(threadIdx.x % 32) ^ bits);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    unsigned result = 0;
    for (int lane = 0; lane < 32; lane++)
        result |= (unsigned)(__shfl_sync(mask, predicate != 0, lane) ? 1 : 0) << lane;
    return result;
}

/* --- asynchronous copies to shared memory ----------------------------------------------------- */

/* Copies `bytes` bytes and then zeros, `size` in all, at once or when the thread waits for them. */
extern "C" void emulated_copy_async(void *to, const void *from, int bytes, int size);
extern "C" void emulated_commit_copies(void);
/* Waits until only this many of the latest committed groups are not done. */
extern "C" void emulated_wait_copies(int groups);

/* --- tensor cores: the fragments of PTX ------------------------------------------------------- */

/* ldmatrix.x4 of 16-bit elements: lane i has the address of row i % 8 of matrix i / 8. Register m is
 * the pair (row lane / 4, columns 2 (lane % 4) and the next) of matrix m, or of its transpose. */
static inline void emulated_load_matrices(uint32_t *registers, const void *row, bool transposed) {
    const int lane = (int)(threadIdx.x % 32);
    memcpy(emulated_lane(lane), &row, sizeof row);
    emulated_warp_barrier();
    for (int m = 0; m < 4; m++) {
        uint16_t pair[2];
        for (int e = 0; e < 2; e++) {
            const int i = lane / 4, j = lane % 4 * 2 + e;
            const uint16_t *from;
            memcpy(&from, emulated_lane(8 * m + (transposed ? j : i)), sizeof from);
            pair[e] = from[transposed ? i : j];
        }
        memcpy(&registers[m], pair, sizeof pair);
    }
    emulated_warp_barrier();
}

/* mma.m16n8k16: c (16, 8) += a (16, 16) b (16, 8). `widen` converts an element to float. */
template <typename W>
static inline void emulated_mma(float *c, const uint32_t *a, const uint32_t *b, W widen) {
    const int lane = (int)(threadIdx.x % 32), group = lane / 4;
    float rows[2][16], columns[16][2];
    memcpy(emulated_lane(lane), a, 16);
    emulated_warp_barrier();
    for (int t = 0; t < 4; t++) {
        uint16_t other[8];
        memcpy(other, emulated_lane(4 * group + t), sizeof other);
        for (int e = 0; e < 8; e++) /* registers: (row, k half) = (0,0), (8,0), (0,8), (8,8) */
            rows[e / 2 % 2][e / 4 * 8 + 2 * t + e % 2] = widen(other[e]);
    }
    emulated_warp_barrier();
    memcpy(emulated_lane(lane), b, 8);
    emulated_warp_barrier();
    for (int j = 0; j < 2; j++)
        for (int t = 0; t < 4; t++) {
            uint16_t other[4];
            memcpy(other, emulated_lane(4 * (lane % 4 * 2 + j) + t), sizeof other);
            for (int e = 0; e < 4; e++) columns[e / 2 * 8 + 2 * t + e % 2][j] = widen(other[e]);
        }
    emulated_warp_barrier();
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            for (int k = 0; k < 16; k++) c[2 * i + j] += rows[i][k] * columns[k][j];
}
/* mma.m16n8k8 of tf32: c (16, 8) += a (16, 8) b (8, 8). */
static inline void emulated_mma_tf32(float *c, const uint32_t *a, const uint32_t *b) {
    const int lane = (int)(threadIdx.x % 32), group = lane / 4;
    float rows[2][8], columns[8][2], other[4];
    memcpy(emulated_lane(lane), a, 16);
    emulated_warp_barrier();
    for (int t = 0; t < 4; t++) {
        memcpy(other, emulated_lane(4 * group + t), sizeof other);
        for (int e = 0; e < 4; e++) /* registers: (row, k) = (0,t), (8,t), (0,t+4), (8,t+4) */
            rows[e % 2][e / 2 * 4 + t] = other[e];
    }
    emulated_warp_barrier();
    memcpy(emulated_lane(lane), b, 8);
    emulated_warp_barrier();
    for (int j = 0; j < 2; j++)
        for (int t = 0; t < 4; t++) {
            memcpy(other, emulated_lane(4 * (lane % 4 * 2 + j) + t), 8);
            for (int e = 0; e < 2; e++) columns[e * 4 + t][j] = other[e];
        }
    emulated_warp_barrier();
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            for (int k = 0; k < 8; k++) c[2 * i + j] += rows[i][k] * columns[k][j];
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((unsigned long long)a * b >> 32);
}
static inline int __ffs(int x) { return __builtin_ffs(x); }

/* A kernel: its name, a function that calls it with the parameters of a launch, and the sizes of the
 * parameters. EMULATED_KERNEL(copy, true) describes the function `copy`, which has barriers. */
struct emulated_kernel {
    const char *name;
    void (*call)(void **parameters);
    bool has_barriers;
    size_t parameter_bytes[4]; /* ends with 0 */
    unsigned char *statics[2]; /* begin and end of the variables in shared memory */
};

template <typename... P, size_t... I>
static inline void emulated_call_with(void (*kernel)(P...), void **parameters,
                                      std::index_sequence<I...>) {
    kernel(*(std::remove_cv_t<std::remove_reference_t<P>> *)parameters[I]...);
}
template <typename... P> static inline void emulated_call(void (*kernel)(P...), void **parameters) {
    emulated_call_with(kernel, parameters, std::index_sequence_for<P...>());
}
template <typename... P>
static emulated_kernel emulated_describe(const char *name, void (*)(P...), void (*call)(void **),
                                         bool barriers) {
    return {
        name, call, barriers, {sizeof(P)..., 0}, {EMULATED_STATICS_BEGIN, EMULATED_STATICS_END}};
}
#define EMULATED_KERNEL(name, barriers) \
    emulated_describe(                  \
        #name, name, [](void **p) { emulated_call(name, p); }, barriers)

/* min and max of CUDA. */
template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> static inline T max(T a, T b) { return a < b ? b : a; }

#endif
