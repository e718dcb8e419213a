/* expression.h - ops with an expression: their kernels, and the arguments of calls. */
#ifndef GRADUS_BACKEND_CUDA_EXPRESSION_H
#define GRADUS_BACKEND_CUDA_EXPRESSION_H

#include "backend/cuda/expression_table.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/expression_args.h"
#include "dispatch/codegen_api.h"

enum {
    GD_CUDA_OPERANDS = GD_SCALAR_OPERANDS,
    GD_CUDA_TYPES = 4, /* f32, f64, i32, i64 */
    GD_CUDA_NAME = 32,
};

/* An elementwise or fused op. */
typedef struct gd_cuda_op {
    struct gd_cuda_op *next;
    const gd_op *op;
    gd_op_expression expression;
    uint32_t used;                   /* bit k: variable k is read */
    int n_vars, n_params, n_outputs; /* of the arguments of its kernels */
    int unroll;                      /* vectors of a thread */
    const gd_cuda_expression *built; /* NULL: the build has compiled no kernels for it */
    gd_cuda_kernel vectors, list, elements[GD_CUDA_TYPES]; /* if `built` */
    char image[GD_CUDA_NAME], names[2 + GD_CUDA_TYPES][GD_CUDA_NAME];
} gd_cuda_op;

/* The op's record, created at first use; NULL: it has no expression, too many operands, or there is
 * no memory. */
gd_cuda_op *gd_cuda_op_of(const gd_op *op);

/* 0 .. 3 for f32, f64, i32 and i64. */
static inline int gd_cuda_type_index(gd_dtype type) {
    return type == GD_F32 ? 0 : type == GD_F64 ? 1 : type == GD_I32 ? 2 : 3;
}

/* Whether the build has compiled kernels for the op and the type in which the call computes. */
static inline bool gd_cuda_is_built(const gd_cuda_op *x, const gd_kernel_call *call) {
    enum { ALL_TYPES = (1 << GD_CUDA_TYPES) - 1 };
    return x->built &&
           (x->built->types == ALL_TYPES || /* most ops: the type need not be computed */
            (x->built->types >> gd_cuda_type_index(gd_cuda_host->codegen->compute_dtype(call)) &
             1));
}

/* The arguments of a call. */
typedef struct gd_cuda_arguments {
    gd_cuda_variant variant; /* GD_CUDA_VECTORS or GD_CUDA_ELEMENTS */
    gd_dtype type;
    int64_t blocks; /* 0: there is nothing to compute */
    union {
        struct {
            gd_cuda_vector_head head;
            uint64_t words[2 * GD_CUDA_OPERANDS + GD_SCALAR_PARAMS];
        } vectors;
        struct {
            gd_cuda_general_head head;
            uint64_t words[(1 + GD_CUDA_EXPRESSION_RANK) * GD_CUDA_OPERANDS + GD_SCALAR_PARAMS];
        } elements;
    };
} gd_cuda_arguments;

/* Chooses the variant for a call and fills its arguments. `any_dtypes`: the kernel takes the dtypes
 * as arguments, so vectors exist for the compute type f32 and few dtypes. */
void gd_cuda_fill_arguments(const gd_kernel_call *call, const gd_cuda_op *x, bool any_dtypes,
                            gd_cuda_arguments *a);

/* Whether vectors of this dtype are possible in kernels that take dtypes as arguments. */
static inline bool gd_cuda_is_vector_dtype(gd_dtype dtype) {
    return dtype == GD_F32 || dtype == GD_F16 || dtype == GD_BF16 || dtype == GD_BOOL;
}

/* Launches a function with its only parameter. */
gd_status gd_cuda_launch_function(gd_device *d, CUfunction function, int64_t blocks,
                                  const void *arguments);

#endif
