/* gemm.h - matrix products on the CPU: C = act(A * B * scale + C + bias), masked.
 *
 * Plain C: strides and pointers, no tensors. Any of the matrices may have any strides, so that all
 * transpositions and views are the same call. Every element of C is summed in one order however the
 * work is cut, so the result has the same bits for any number of threads. Nothing is skipped:
 * 0 * NaN is NaN.
 */
#ifndef GRADUS_CPU_GEMM_H
#define GRADUS_CPU_GEMM_H

#include "gradus/dtype.h"
#include "gradus/status.h"

/* A matrix to read: element (i, j) is data[i * row + j * col]. Strides count elements; 0 repeats
 * a row or a column, and negative ones are fine. */
typedef struct gd_gemm_in {
    const void *data;
    gd_dtype dtype;
    int64_t row, col;
} gd_gemm_in;

/* A matrix to write. No two elements of it may share memory, nor may it overlap an input. */
typedef struct gd_gemm_out {
    void *data;
    gd_dtype dtype;
    int64_t row, col;
} gd_gemm_out;

/* Makes a panel of B where B is not in memory as a matrix (the patches of a convolution): element
 * (k + i, j + e) goes to panel[i * step + e], for i < depth and e < n; up to panel[i * step + step]
 * anything may be written. The panel has the type that sums are kept in. */
typedef void (*gd_gemm_fill)(const void *filler, int64_t k, int64_t depth, int64_t j, int64_t n,
                             void *panel, int64_t step);

typedef enum gd_gemm_act { GD_GEMM_IDENTITY, GD_GEMM_RELU } gd_gemm_act;

/* One product. What is left out of the initializer is left out of the product.
 *
 * Types: all f64, or any mix of f32, f16 and bf16. Sums are kept in f64 or f32; an f16 or bf16
 * result is rounded once, at the end. The bias has the type of C. */
typedef struct gd_gemm {
    int64_t m, n, k;
    gd_gemm_in a;    /* (m, k) */
    gd_gemm_in b;    /* (k, n) */
    gd_gemm_out c;   /* (m, n) */
    gd_gemm_in bias; /* (m, n), data NULL for none: row = 0 is one value a column, col = 0 a row */
    bool accumulate; /* adds to what C holds, instead of replacing it */
    bool scaled;     /* multiplies A * B by `scale` */
    double scale;
    gd_gemm_act act; /* applied last: the RELU of x is x < 0 ? 0 : x */
    gd_gemm_in mask; /* (m, n), of the type of C, data NULL for none: where it is <= 0, C becomes 0.
                      * Not in batches. */
    gd_gemm_fill fill_b; /* in place of b, for the blocks of gemm_block.h; NULL for none */
    const void *filler;
} gd_gemm;

/* k == 0 makes A * B zero; m == 0 or n == 0 does nothing. GD_E_MEMORY when there is no memory to
 * work in (C is then undefined), GD_E_DTYPE for a mix of types that is not known. */
gd_status gd_gemm_run(const gd_gemm *g);

/* Many products of one form. Product (x0, x1, ...) has each matrix moved by x0 * step[0] +
 * x1 * step[1] + ... elements; a step of 0 uses the same matrix again (broadcasting), except in C,
 * where all products must be apart. */
enum { GD_GEMM_BATCH_RANK = 6 };
typedef struct gd_gemm_batch {
    int rank;
    int64_t size[GD_GEMM_BATCH_RANK];
    int64_t a_step[GD_GEMM_BATCH_RANK], b_step[GD_GEMM_BATCH_RANK];
    int64_t c_step[GD_GEMM_BATCH_RANK], bias_step[GD_GEMM_BATCH_RANK];
} gd_gemm_batch;

gd_status gd_gemm_run_batch(const gd_gemm *g, const gd_gemm_batch *batch);

/* Each thread that computes keeps its working memory (a few MB at most) for the next product, and
 * frees it when it ends. This frees that of the calling thread now. */
void gd_gemm_free_scratch(void);

/* At most so many bytes of working memory a thread keeps for an (m, k) by (k, n) product; for kernels'
 * `scratch`. A size that is not known: GD_GEMM_ANY. */
enum { GD_GEMM_ANY = 1 << 20 };
size_t gd_gemm_most_scratch(int64_t m, int64_t n, int64_t k, gd_dtype dtype);

/* Has so much memory kept in reserve that from here on no product fails for want of it: without memory
 * products wait for each other. For those who must not fail half way. */
gd_status gd_gemm_reserve(void);

#endif
