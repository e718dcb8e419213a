/* expression_table.h - the expressions whose kernels the build compiled; the generator writes the
 * table (codegen/opgen/cuda.c). */
#ifndef GRADUS_BACKEND_CUDA_EXPRESSION_TABLE_H
#define GRADUS_BACKEND_CUDA_EXPRESSION_TABLE_H

#include <stdint.h>

/* The kernels of an expression are functions of the image expression_SHARD: gd_V_HASH_TYPE, where V
 * is v (vectors, f32), e (elements, all types) or l (lists, f32), and HASH has 16 digits. */
typedef struct gd_cuda_expression {
    uint64_t hash; /* gd_ir_hash; the table is sorted by it */
    short shard;
    unsigned char types; /* bits 0 .. 3: f32, f64, i32, i64 */
    unsigned char has_list;
    unsigned char n_vars, n_params; /* those of the kernels' arguments */
    unsigned char unroll;           /* vectors of a thread */
} gd_cuda_expression;

extern const gd_cuda_expression gd_cuda_expressions[];
extern const int gd_cuda_expression_count;

#endif
