/* dialect_cuda.h - kernels of elementwise and fused ops in CUDA C++.
 *
 * The build's generator prints the kernels of all ops, the CUDA backend those of fused ops and of
 * ops that a program defines. The text follows expression.cuh or rows.cuh of the
 * backend, whose loops it instantiates: an expression or a row program becomes a struct, and each
 * kernel is one call.
 */
#ifndef GRADUS_CODEGEN_DIALECT_CUDA_H
#define GRADUS_CODEGEN_DIALECT_CUDA_H

#include "codegen/dialect.h"

/* The multiprocessors of the GPU that tiles, parts of sums and threads are chosen for, those of an
 * H100. Not the number of the device that runs: how a sum is divided would then depend on the device,
 * and with it the bits of the result. */
enum { GD_CUDA_PROCESSORS = 132 };

/* Threads that keep such a GPU busy: 512 on each multiprocessor. */
enum { GD_CUDA_ENOUGH_THREADS = 512 * GD_CUDA_PROCESSORS };

typedef enum gd_cuda_variant {
    GD_CUDA_VECTORS,  /* operands that are contiguous in the innermost dimension, or broadcast */
    GD_CUDA_ELEMENTS, /* any strides */
    GD_CUDA_LIST,     /* the entries of a list of tensors */
} gd_cuda_variant;

/* A dialect whose loop is the variant GD_CUDA_VECTORS for the dtypes of the source. */
extern const gd_dialect gd_dialect_cuda;

/* Prints the struct `name` of an expression. `any_dtypes`: kernels of it take the dtypes as
 * arguments; otherwise they are those of the source. */
void gd_cuda_print_expression(FILE *out, const gd_kernel_source *source, const char *name,
                              bool any_dtypes);
/* Prints a kernel `name` for the expression that has been printed as `expression`. */
void gd_cuda_print_kernel(FILE *out, gd_cuda_variant variant, const char *expression,
                          const char *name);

/* The number of vectors that a thread of GD_CUDA_VECTORS computes. */
int gd_cuda_unroll(const gd_ir *ir);

/* --- row programs (dialect_cuda_rows.c) ------------------------------------------------------- */

/* How an operand lies in memory along a row. */
typedef enum gd_cuda_row_layout {
    GD_CUDA_ROW_VECTORS,  /* contiguous, and all vectors are aligned */
    GD_CUDA_ROW_SHARED,   /* the same, and all rows are one row: a weight. It is no result */
    GD_CUDA_ROW_ELEMENTS, /* any strides */
    GD_CUDA_ROW_SCALAR,   /* one value: all strides are 0 */
} gd_cuda_row_layout;

/* The kernel of a row program: how it divides its work, and what it is compiled for. */
typedef struct gd_cuda_row_kernel {
    int threads; /* of a row, a power of two: lanes of a warp, or a block */
    int block;   /* threads of a block */
    int size;    /* elements of a vector, a power of two that divides the length of a row */
    int vectors; /* that each thread keeps in registers; 0: each pass reads the row again */
    /* gd_cuda_row_layout of the tensors, then of the results */
    unsigned char layout[GD_SOURCE_INPUTS + GD_SOURCE_OUTPUTS];
} gd_cuda_row_kernel;

/* Divides the work of a row program over `rows` rows of `length` elements. It depends on nothing
 * else, and neither does the order of sums. All layouts are GD_CUDA_ROW_VECTORS. */
void gd_cuda_divide_rows(const gd_kernel_source *source, int64_t rows, int64_t length,
                         gd_cuda_row_kernel *kernel);
/* Prints the kernel `name` of a row program. The text follows rows.cuh of the backend. */
void gd_cuda_print_rows(FILE *out, const gd_kernel_source *source, const gd_cuda_row_kernel *kernel,
                        const char *name);

/* The number of a dtype's name (gd_dtype), and the bytes of an element. NULL: the compute type. */
int gd_cuda_dtype_code(const char *dtype, const char *type);
int gd_cuda_dtype_bytes(const char *dtype, const char *type);

#endif
