/* gemm.h - matrix multiplication on the CPU: C = mask(act(scale * A * B + C + bias)).
 *
 * The interface takes pointers and strides, not tensors. Every matrix may have any strides, so
 * transposed operands and views need no copies and no flags. Each element of C is summed in the
 * same order however the work is partitioned, so the result has the same bits for any number of
 * threads. No product is skipped: 0 * NaN is NaN.
 *
 *   gemm.c             chooses between C and its transpose, partitions the work, split-K
 *   gemm_scratch.c     each thread's scratch memory
 *   gemm.typed.isa.c   one block of C on one thread: packing and the loops around the micro-kernel
 *   gemm_microkernel.h the register-blocked inner loop
 *   gemm_pack.h        packs strips of A and panels of B
 *   gemm_epilogue.h    writes C where the micro-kernel cannot: other dtypes, other strides
 *   gemm_thin.h        GEMV and products of very few rows, which read B once without packing it
 */
#ifndef GRADUS_OPS_MATMUL_CPU_GEMM_H
#define GRADUS_OPS_MATMUL_CPU_GEMM_H

#include "gradus/dtype.h"
#include "gradus/status.h"

/* An input matrix: element (i, j) is data[i * row + j * col]. Strides are in elements. They may be
 * negative; a stride of 0 broadcasts a row or a column. */
typedef struct gd_gemm_in {
    const void *data;
    gd_dtype dtype;
    int64_t row, col;
} gd_gemm_in;

/* The output matrix. Its elements must not overlap each other or any input. */
typedef struct gd_gemm_out {
    void *data;
    gd_dtype dtype;
    int64_t row, col;
} gd_gemm_out;

/* Packs a panel of B where B does not exist in memory as a matrix (the patches of a convolution).
 * Element (k + i, j + e) of B goes to panel[i * step + e], for i < depth and e < n. The padding
 * from panel[i * step + n] to panel[i * step + step - 1] may be overwritten. The panel has the
 * dtype of the accumulators. */
typedef void (*gd_gemm_fill)(const void *context, int64_t k, int64_t depth, int64_t j, int64_t n,
                             void *panel, int64_t step);

typedef enum gd_gemm_act { GD_GEMM_IDENTITY, GD_GEMM_RELU } gd_gemm_act;

/* One product. Fields that an initializer omits are 0, which disables them.
 *
 * Dtypes: all f64, or any mix of f32, f16 and bf16. Accumulators are f64 or f32; an f16 or bf16
 * result is rounded once, at the end. The bias and the mask have the dtype of C. */
typedef struct gd_gemm {
    int64_t m, n, k;
    gd_gemm_in a;    /* (m, k) */
    gd_gemm_in b;    /* (k, n) */
    gd_gemm_out c;   /* (m, n) */
    gd_gemm_in bias; /* (m, n) or data NULL; row = 0: one value per column, col = 0: one per row */
    bool accumulate; /* adds to C instead of overwriting it */
    bool scaled;     /* multiplies A * B by `scale` */
    double scale;
    gd_gemm_act act; /* applied after the bias; RELU of x is x < 0 ? 0 : x */
    gd_gemm_in mask; /* (m, n) or data NULL; where it is <= 0, C becomes 0. Not for batches. */
    /* Packs B instead of reading `b`, if not NULL; only for gd_gemm_block_* (gemm_block.h). */
    gd_gemm_fill fill_b;
    const void *fill_context;
} gd_gemm;

/* With k == 0, A * B is zero; with m == 0 or n == 0, the call does nothing. Fails with GD_E_MEMORY
 * if scratch memory cannot be allocated (C is undefined then), with GD_E_DTYPE for an unsupported
 * combination of dtypes. */
gd_status gd_gemm_run(const gd_gemm *g);

/* A batch of products of the same shape. The matrices of product (x0, x1, ...) start at offset x0 *
 * step[0] + x1 * step[1] + ... elements. A step of 0 broadcasts a matrix; the results in C must not
 * overlap. */
enum { GD_GEMM_BATCH_RANK = 6 };
typedef struct gd_gemm_batch {
    int rank;
    int64_t size[GD_GEMM_BATCH_RANK];
    int64_t a_step[GD_GEMM_BATCH_RANK], b_step[GD_GEMM_BATCH_RANK];
    int64_t c_step[GD_GEMM_BATCH_RANK], bias_step[GD_GEMM_BATCH_RANK];
} gd_gemm_batch;

gd_status gd_gemm_run_batch(const gd_gemm *g, const gd_gemm_batch *batch);

/* Each thread caches its scratch memory (a few MB at most) for later products and frees it when the
 * thread exits. This call frees the calling thread's scratch memory now. */
void gd_gemm_free_scratch(void);

/* An upper bound in bytes of the scratch memory that a thread caches for an (m, k) by (k, n)
 * product; for the `scratch` functions of kernels. GD_GEMM_ANY stands for a size that is not
 * known. */
enum { GD_GEMM_ANY = 1 << 20 };
size_t gd_gemm_max_scratch(int64_t m, int64_t n, int64_t k, gd_dtype dtype);

/* Allocates a shared reserve of scratch memory, so that no later product fails for lack of memory:
 * products that cannot allocate use the reserve one after the other. For callers that must not fail
 * halfway. */
gd_status gd_gemm_reserve(void);

#endif
