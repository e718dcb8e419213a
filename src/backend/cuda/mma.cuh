/* mma.cuh - products of 16-bit matrices on tensor cores, and asynchronous copies to shared memory.
 *
 * A warp multiplies a (16, 16) and b (16, 8) into c (16, 8). Lane i holds, with g = i / 4 and
 * t = i % 4:
 *
 *     a   4 pairs: (row g, columns 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), and the next
 *         columns
 *     b   2 pairs: (rows 2t and 2t + 1, column g), (rows 2t + 8 and 2t + 9, column g)
 *     c   4 floats: (row g, columns 2t and 2t + 1), (row g + 8, columns 2t and 2t + 1)
 *
 * So two neighbouring c, rounded to pairs, are an a.
 */
#ifndef GRADUS_BACKEND_CUDA_MMA_CUH
#define GRADUS_BACKEND_CUDA_MMA_CUH

#include "backend/cuda/typed.cuh"

#ifdef __CUDACC__

static __device__ __forceinline__ unsigned shared_address(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

/* Loads four 8 x 8 matrices: lane i has the address of row i % 8 of matrix i / 8. */
static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void load_transposed_matrices(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

template <typename T>
static __device__ __forceinline__ void multiply_fragments(float (&c)[4], const uint32_t (&a)[4],
                                                          uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void
multiply_fragments<bf16_element>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void
multiply_fragments<f16_element>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* The same in tf32: a (16, 8) and b (8, 8) have 4 and 2 elements (row g or g + 8, column t or
 * t + 4), in the order of the pairs above. */
template <>
__device__ __forceinline__ void multiply_fragments<float>(float (&c)[4], const uint32_t (&a)[4],
                                                          uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* A float, rounded to tf32. */
static __device__ __forceinline__ uint32_t round_tf32(float x) {
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return rounded;
}
/* Two floats, rounded; the first is in the lower half. */
template <typename T> static __device__ __forceinline__ uint32_t round_pair(float x, float y);
template <> __device__ __forceinline__ uint32_t round_pair<bf16_element>(float x, float y) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
}
template <> __device__ __forceinline__ uint32_t round_pair<f16_element>(float x, float y) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
}

/* Copies 16 bytes to shared memory, or zeros. */
static __device__ __forceinline__ void copy_async(void *to, const void *from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
}
/* Waits for all copies of this thread. */
static __device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}

#else /* the emulator of tests/cuda */

static inline void load_matrices(uint32_t (&r)[4], const void *row) {
    emulated_load_matrices(r, row, false);
}
static inline void load_transposed_matrices(uint32_t (&r)[4], const void *row) {
    emulated_load_matrices(r, row, true);
}
template <typename T>
static inline void multiply_fragments(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                      uint32_t b1) {
    const uint32_t b[2] = {b0, b1};
    emulated_mma(c, a, b, [](uint16_t bits) { return widen(T{bits}); });
}
template <>
inline void multiply_fragments<float>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                      uint32_t b1) {
    const uint32_t b[2] = {b0, b1};
    emulated_mma_tf32(c, a, b);
}
static inline uint32_t round_tf32(float x) {
    const uint32_t bits = (uint32_t)__float_as_int(x);
    return x != x ? bits : (bits + 0x1000) & ~0x1fffu;
}
static inline uint16_t round_element(float x, f16_element) { return gd_f32_to_f16(x); }
static inline uint16_t round_element(float x, bf16_element) { return gd_f32_to_bf16(x); }
template <typename T> static inline uint32_t round_pair(float x, float y) {
    return round_element(x, T{}) | (uint32_t)round_element(y, T{}) << 16;
}
static inline void copy_async(void *to, const void *from, bool inside) {
    emulated_copy_async(to, from, inside ? 16 : 0, 16);
}
static inline void wait_copies() {
    emulated_commit_copies();
    emulated_wait_copies(0);
}

#endif

/* --- fragments of row-major matrices in shared memory, whose rows are `stride` apart ---------- */

/* a: rows [row, row + 16), columns [column, column + 16). */
template <typename T>
static __device__ __forceinline__ void load_left(uint32_t (&a)[4], const T *from, int stride,
                                                 int row, int column) {
    const int lane = (int)threadIdx.x % 32;
    load_matrices(a, from + (row + lane % 16) * stride + column + lane / 16 * 8);
}
/* Two b, of the transpose of a matrix: its rows [row, row + 16) are columns of b, its columns
 * [column, column + 16) are rows. The first b is pairs 0 and 1, the second 2 and 3. */
template <typename T>
static __device__ __forceinline__ void load_right_transposed(uint32_t (&b)[4], const T *from,
                                                             int stride, int row, int column) {
    const int lane = (int)threadIdx.x % 32;
    load_matrices(b, from + (row + lane / 16 * 8 + lane % 8) * stride + column + lane / 8 % 2 * 8);
}
/* Two b: rows [row, row + 16), columns [column, column + 8) and the next 8. */
template <typename T>
static __device__ __forceinline__ void load_right(uint32_t (&b)[4], const T *from, int stride,
                                                  int row, int column) {
    const int lane = (int)threadIdx.x % 32;
    load_transposed_matrices(b, from + (row + lane % 16) * stride + column + lane / 16 * 8);
}

#endif
