/* gemm_block.h - what gemm.c, which cuts products into blocks, and gemm_f32.isa.c and
 * gemm_f64.isa.c, which compute a block on one thread, know of each other.
 */
#ifndef GRADUS_CPU_GEMM_BLOCK_H
#define GRADUS_CPU_GEMM_BLOCK_H

#include "backend/cpu/gemm.h"
#include "backend/cpu/isa.h"

/* The largest block: so much of A and C is at hand in the second-level cache, or nearly. */
enum { GD_GEMM_BLOCK_M = 512, GD_GEMM_BLOCK_N = 512 };

/* Where rows are contiguous in A and k is longer than this, A is packed: reading it where it lies
 * would touch more cache lines than the first level has. */
enum { GD_GEMM_LONG_K = 512 };

/* B is read where it lies, if columns are contiguous in it, for this many rows of A or fewer. */
enum { GD_GEMM_PACK_B_ROWS = 56 };

/* Panels of B have no more columns than this on any instruction set: what a fill function (gemm.h)
 * can rely on. */
enum { GD_GEMM_PANEL_MAX = 64 };

/* A product of this many rows or fewer, k contiguous in A and in B, is computed without tiles
 * (gemm_thin.h). It pays for more rows where there are more registers. */
enum { GD_GEMM_THIN_ROWS_MAX = 4 };
static inline int gd_gemm_thin_rows(gd_isa isa) {
    return isa == GD_ISA_AVX512 ? GD_GEMM_THIN_ROWS_MAX : 2;
}

/* Computes one block on this thread. */
GD_ISA_DECLARE(gd_status, gd_gemm_block_f32, (const gd_gemm *g));
GD_ISA_DECLARE(gd_status, gd_gemm_block_f64, (const gd_gemm *g));

/* Writes C from `count` partial products, each a row-major (m, n) matrix of f32 or f64, adding
 * them in order. Changes the first of them. `g` says all but A and B. */
GD_ISA_DECLARE(void, gd_gemm_sum_f32,
               (const gd_gemm *g, float *parts, int64_t count, int64_t step));
GD_ISA_DECLARE(void, gd_gemm_sum_f64,
               (const gd_gemm *g, double *parts, int64_t count, int64_t step));

/* Working memory of this thread, aligned to a page; NULL when there is none. It is valid until the
 * thread asks for the same kind again; a block's is handed back with gd_gemm_scratch_done, because it
 * may be what is kept in reserve for all. */
typedef enum gd_gemm_scratch_kind {
    GD_GEMM_SCRATCH_BLOCK,
    GD_GEMM_SCRATCH_PARTS
} gd_gemm_scratch_kind;
void *gd_gemm_scratch(gd_gemm_scratch_kind kind, size_t bytes);
void gd_gemm_scratch_done(void *memory);

/* The address of element `index` of an array of this type. */
static inline const void *gd_gemm_at(const void *data, gd_dtype dtype, int64_t index) {
    int64_t size = dtype == GD_F64 ? 8 : dtype == GD_F32 ? 4 : 2;
    return (const char *)data + index * size;
}

/* The matrices that begin at element (i, j) of others. */
static inline gd_gemm_in gd_gemm_in_from(gd_gemm_in x, int64_t i, int64_t j) {
    if (x.data) x.data = gd_gemm_at(x.data, x.dtype, i * x.row + j * x.col);
    return x;
}

static inline gd_gemm_out gd_gemm_out_from(gd_gemm_out x, int64_t i, int64_t j) {
    x.data = (void *)gd_gemm_at(x.data, x.dtype, i * x.row + j * x.col);
    return x;
}

#endif
