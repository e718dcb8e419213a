/* recurrent_resident.cuh - recurrent layers in f16, bf16 and tf32 on tensor cores, with the weights
 * of the recurrence in registers for all steps: the exchange between blocks, and fragments.
 *
 * A block has the weights of some units, as fragments of its 8 warps, and some sequences of the
 * batch, which it computes in groups of 8, the width of a fragment. The operands of products are
 * rounded to 16 bits or to tf32; sums, states and gates stay in f32.
 *
 * Blocks with the same sequences exchange states, or gradients of gates, through a ring of slots in
 * global memory. No flag or counter tells that data have arrived: the data themselves do. A slot is
 * filled with EMPTY words, and a reader repeats its loads until no word is EMPTY. An exchange then
 * costs one store and one load. After half of the slots, c, a thread empties the next c that it will
 * write. In step s its block has read slot s, so all blocks have read slot s - 1 and those before,
 * and the slots of s + 3 to s + 2 + c are free. A fence follows, and after it the thread writes slot
 * s + 2, which all readers read before they read slot s + 3.
 */
#ifndef GRADUS_OPS_RECURRENT_CUDA_RECURRENT_RESIDENT_CUH
#define GRADUS_OPS_RECURRENT_CUDA_RECURRENT_RESIDENT_CUH

#include "backend/cuda/mma.cuh"
#include "ops/recurrent/cuda/recurrent.cuh"

enum {
    THREADS = GD_CUDA_RESIDENT_THREADS,
    WARPS = THREADS / 32,
    PAIR = GD_CUDA_RESIDENT_PAIR, /* bytes of a row that two k-tiles multiply: 16 of each lane */
};
static const uint32_t EMPTY = 0xffffffffu;

/* --- exchange --------------------------------------------------------------------------------- */

#ifdef __CUDACC__
static __device__ __forceinline__ void store_relaxed(void *to, uint32_t x) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
static __device__ __forceinline__ void store_relaxed(void *to, uint32_t x, uint32_t y) {
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(x), "r"(y)
                 : "memory");
}
static __device__ __forceinline__ uint4 load_relaxed(const void *from) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}
static __device__ __forceinline__ bool any_lane(bool x) { return __any_sync(~0u, x); }
static __device__ __forceinline__ void fence_stores() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
#else
EMULATED_ATOMIC void store_relaxed(void *to, uint32_t x) { *(uint32_t *)to = x; }
EMULATED_ATOMIC void store_relaxed(void *to, uint32_t x, uint32_t y) {
    ((uint32_t *)to)[0] = x, ((uint32_t *)to)[1] = y;
}
EMULATED_ATOMIC uint4 load_relaxed(const void *from) { return *(const uint4 *)from; }
static inline bool any_lane(bool own) { /* lanes may wait alone */
    if (own) emulated_wait();
    return own;
}
static inline void fence_stores() { emulated_fence(); }
#endif

static __device__ __forceinline__ bool has_empty(const uint4 &v) {
    return max(max(v.x, v.y), max(v.z, v.w)) == EMPTY;
}
/* A word that is not EMPTY: instead of two NaNs, or one, with all bits set it sends others. */
static __device__ __forceinline__ uint32_t sent_word(uint32_t x) {
    return x == EMPTY ? 0x7fff7fffu : x;
}

/* The ring of slots (slots, padded, row_bytes), which has less than 4 GiB. */
struct exchange_ring {
    char *base;
    uint32_t slot_bytes;
    int mask; /* slots - 1 */
};
static __device__ __forceinline__ exchange_ring exchange_ring_of(const gd_cuda_recurrent &p) {
    exchange_ring r;
    r.base = (char *)p.exchange;
    r.slot_bytes = (uint32_t)p.padded * (uint32_t)p.row_bytes;
    r.mask = p.slots - 1;
    return r;
}
static __device__ __forceinline__ char *slot_at(const exchange_ring &r, int slot, uint32_t offset) {
    return r.base + ((uint32_t)(slot & r.mask) * r.slot_bytes + offset);
}

/* Empties `words` words that this thread will write, after half of the slots at a time. */
static __device__ __forceinline__ void clear_slots(const exchange_ring &r, int s, uint32_t offset,
                                                   int words) {
    const int count = (r.mask + 1) / 2;
    if (s & (count - 1)) return;
    for (int i = 0; i < count; i++)
        for (int w = 0; w < words; w++) store_relaxed(slot_at(r, s + 3 + i, offset + w * 4), EMPTY);
    fence_stores();
}

/* Loads words of one row: word i is at from[i * PAIR] if i < count, else it is 0. */
template <int WORDS>
static __device__ __forceinline__ void receive_words(uint4 (&v)[WORDS], const char *from,
                                                     int count) {
#pragma unroll
    for (int i = 0; i < WORDS; i++) v[i].x = v[i].y = v[i].z = v[i].w = 0;
    bool empty;
    do {
        empty = false;
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            if (i < count) v[i] = load_relaxed(from + i * PAIR);
#pragma unroll
        for (int i = 0; i < WORDS; i++) empty |= has_empty(v[i]);
    } while (any_lane(empty));
}

/* --- fragments -------------------------------------------------------------------------------- */

/* Elements in the form in which tensor cores multiply them. In this file float is tf32. */
static __device__ __forceinline__ uint32_t element_bits(f16_element x) { return x.bits; }
static __device__ __forceinline__ uint32_t element_bits(bf16_element x) { return x.bits; }
static __device__ __forceinline__ uint32_t element_bits(float x) { return round_tf32(x); }

/* 16 bytes of aligned elements. */
template <typename T> static __device__ __forceinline__ uint4 rounded_word(const T *from) {
    return *(const uint4 *)from;
}
template <> __device__ __forceinline__ uint4 rounded_word(const float *from) {
    const float4 v = *(const float4 *)from;
    return uint4{round_tf32(v.x), round_tf32(v.y), round_tf32(v.z), round_tf32(v.w)};
}

/* The 16 bytes of elements k, k + 1, ... of a row, which element_at returns. */
template <typename T, typename F>
static __device__ __forceinline__ uint4 fragment_word(F element_at, long long k) {
    enum { EACH = 4 / sizeof(T) }; /* of a register */
    uint32_t r[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        r[i] = element_bits(element_at(k + i * EACH));
        if (EACH == 2) r[i] |= element_bits(element_at(k + i * EACH + 1)) << 16;
    }
    uint4 v;
    v.x = r[0], v.y = r[1], v.z = r[2], v.w = r[3];
    return v;
}

/* The fragments a of two k-tiles, from the words of rows g and g + 8. The order of the elements of
 * k in a fragment is free if a and b have the same: lane t has the elements of its own word. */
static __device__ __forceinline__ void set_fragments(uint32_t (&first)[4], uint32_t (&second)[4],
                                                     const uint4 &low, const uint4 &high) {
    first[0] = low.x, first[1] = high.x, first[2] = low.y, first[3] = high.y;
    second[0] = low.z, second[1] = high.z, second[2] = low.w, second[3] = high.w;
}

/* sums[c] += a times the words, for c in turn, so that successive products are independent. */
template <typename T, int FIRST, int M, int WORDS, int TILES, int COPIES>
static __device__ __forceinline__ void multiply_words(float (&sums)[COPIES][M][4],
                                                      const uint32_t (&a)[M][TILES][4],
                                                      const uint4 (&v)[WORDS], int count) {
#pragma unroll
    for (int i = 0; i < WORDS; i++)
        if (FIRST + i < count) {
            enum { LOW = 2 * FIRST };
#pragma unroll
            for (int m = 0; m < M; m++)
                multiply_fragments<T>(sums[2 * i % COPIES][m], a[m][LOW + 2 * i], v[i].x, v[i].y);
#pragma unroll
            for (int m = 0; m < M; m++)
                multiply_fragments<T>(sums[(2 * i + 1) % COPIES][m], a[m][LOW + 2 * i + 1], v[i].z,
                                      v[i].w);
        }
}
template <int M, int COPIES>
static __device__ __forceinline__ void add_copies(float (&sums)[COPIES][M][4]) {
#pragma unroll
    for (int c = COPIES / 2; c > 0; c /= 2)
#pragma unroll
        for (int k = 0; k < c; k++)
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int e = 0; e < 4; e++) sums[k][m][e] += sums[k + c][m][e];
}

/* The position of a thread in a block. */
struct resident_thread {
    int lane, g, t, warp;
    int group; /* of the rows of weights; the warps of a group divide the depth */
    int slice, slices;
    int pairs, first; /* of a row, that this warp multiplies */
    int words;        /* of these that the lane has */
};
static __device__ __forceinline__ resident_thread resident_thread_of(const gd_cuda_recurrent &p) {
    resident_thread r;
    r.lane = (int)threadIdx.x % 32;
    r.warp = (int)threadIdx.x / 32;
    r.g = r.lane / 4;
    r.t = r.lane % 4;
    r.slices = WARPS / p.groups;
    r.group = r.warp / r.slices;
    r.slice = r.warp % r.slices;
    const int pairs = (p.row_bytes + PAIR - 1) / PAIR, share = (pairs + r.slices - 1) / r.slices;
    r.first = r.slice * share;
    r.pairs = min(share, pairs - r.first);
    const int bytes = p.row_bytes - r.first * PAIR - r.t * 16;
    r.words = max(0, min(r.pairs, (bytes + PAIR - 16) / PAIR));
    return r;
}
/* The offset in a slot of the words of the thread for 8 sequences. */
static __device__ __forceinline__ uint32_t received_offset(const gd_cuda_recurrent &p,
                                                           long long sequence,
                                                           const resident_thread &own) {
    return (uint32_t)(sequence + own.g) * (uint32_t)p.row_bytes +
           (uint32_t)(own.first * PAIR + own.t * 16);
}

/* Keeps the compiler from moving loads of weights up, which needs more registers than there are. */
static __device__ __forceinline__ void stop_hoisting() {
#ifdef __CUDACC__
    asm volatile("" ::: "memory");
#endif
}

static __device__ __forceinline__ void prefetch_line(const void *p) {
#ifdef __CUDACC__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
    (void)p;
#endif
}

#endif
