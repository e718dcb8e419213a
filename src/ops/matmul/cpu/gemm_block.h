/* gemm_block.h - the interface between gemm.c, which partitions a product into blocks of C, and
 * gemm.typed.isa.c, which computes one block on one thread.
 */
#ifndef GRADUS_OPS_MATMUL_CPU_GEMM_BLOCK_H
#define GRADUS_OPS_MATMUL_CPU_GEMM_BLOCK_H

#include "ops/matmul/cpu/gemm.h"
#include "backend/cpu/isa.h"

/* The largest block of C (mc, nc): its part of A and C fits roughly into the L2 cache. */
enum { GD_GEMM_BLOCK_M = 512, GD_GEMM_BLOCK_N = 512 };

/* A is packed if its columns are contiguous (stride 1 along m) and k is larger than this: reading
 * it in place would touch more cache lines than L1 has. */
enum { GD_GEMM_LONG_K = 512 };

/* B with contiguous rows is read in place, not packed, for at most this many rows of A. */
enum { GD_GEMM_PACK_B_ROWS = 56 };

/* The largest width of a panel of B (nr) over all instruction sets, for fill functions (gemm.h). */
enum { GD_GEMM_PANEL_MAX = 64 };

/* A product with at most this many rows, whose A and B are contiguous along k, is computed as dot
 * products without packing (gemm_thin.h). The limit is higher where there are more registers. */
enum { GD_GEMM_THIN_ROWS_MAX = 4 };
static inline int gd_gemm_thin_rows(gd_isa isa) {
    return isa == GD_ISA_AVX512 ? GD_GEMM_THIN_ROWS_MAX : 2;
}

/* Computes one block on this thread. */
GD_ISA_DECLARE(gd_status, gd_gemm_block_f32, (const gd_gemm *g));
GD_ISA_DECLARE(gd_status, gd_gemm_block_f64, (const gd_gemm *g));

/* The reduction of split-K: adds `count` partial products, each a contiguous (m, n) matrix of f32
 * or f64 and `step` elements apart, in order into the first one, and writes C from it with the
 * epilogue of `g`. A and B are not read. */
GD_ISA_DECLARE(void, gd_gemm_sum_f32,
               (const gd_gemm *g, float *partials, int64_t count, int64_t step));
GD_ISA_DECLARE(void, gd_gemm_sum_f64,
               (const gd_gemm *g, double *partials, int64_t count, int64_t step));

/* Scratch memory of the calling thread, page-aligned (gemm_scratch.c); NULL if it cannot be
 * allocated. It is valid until the thread's next call for the same kind. Memory of kind BLOCK must
 * be released with gd_gemm_scratch_done, because it may be the reserve, which all threads share. */
typedef enum gd_gemm_scratch_kind {
    GD_GEMM_SCRATCH_BLOCK,  /* packed strips and panels of one block */
    GD_GEMM_SCRATCH_PARTIAL /* the partial products of split-K */
} gd_gemm_scratch_kind;
void *gd_gemm_scratch(gd_gemm_scratch_kind kind, size_t bytes);
void gd_gemm_scratch_done(void *memory);

/* Two buffers for partial products of one block, GD_GEMM_RESERVED_PARTIAL bytes each, from the
 * reserve; NULL if there is no reserve. The caller owns them until it unlocks them. */
enum { GD_GEMM_RESERVED_PARTIAL = GD_GEMM_BLOCK_M * GD_GEMM_BLOCK_N * sizeof(double) };
char *gd_gemm_reserved_partials_lock(void);
void gd_gemm_reserved_partials_unlock(void);

/* The bytes that gd_gemm_scratch allocates for a request: half as much again, so that slowly
 * growing products do not reallocate each time. */
static inline size_t gd_gemm_scratch_capacity(size_t bytes) { return bytes + bytes / 2; }

/* The address of element `index` of an array of this dtype. */
static inline const void *gd_gemm_at(const void *data, gd_dtype dtype, int64_t index) {
    int64_t size = dtype == GD_F64 ? 8 : dtype == GD_F32 ? 4 : 2;
    return (const char *)data + index * size;
}

/* The submatrix that starts at element (i, j). */
static inline gd_gemm_in gd_gemm_in_at(gd_gemm_in x, int64_t i, int64_t j) {
    if (x.data) x.data = gd_gemm_at(x.data, x.dtype, i * x.row + j * x.col);
    return x;
}

static inline gd_gemm_out gd_gemm_out_at(gd_gemm_out x, int64_t i, int64_t j) {
    x.data = (void *)gd_gemm_at(x.data, x.dtype, i * x.row + j * x.col);
    return x;
}

#endif
