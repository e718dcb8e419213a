/* dialect_cuda.h - kernels of elementwise and fused ops in CUDA C++.
 *
 * The build's generator prints the kernels of all ops, the CUDA backend those of fused ops and of
 * ops that a program defines. The text follows kernels/expression.cuh of the backend, whose loops
 * it instantiates: an expression becomes a struct, and each kernel is one call.
 */
#ifndef GRADUS_CODEGEN_DIALECT_CUDA_H
#define GRADUS_CODEGEN_DIALECT_CUDA_H

#include "codegen/dialect.h"

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

#endif
