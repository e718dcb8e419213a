/* fused.h - ops that replace several elementwise ops of a plan.
 *
 * A fused op has one expression, composed of those of its parts, and up to GD_FUSED_OUTPUTS
 * results. The last result may be reduced (for example summed) instead of stored. Its name lists
 * the parts: "fused{mul, add, gelu, mul}". Equal fused ops are one op, which lives until the
 * program ends, as derived ops do. Shapes and constants differ between plans, so they are options.
 *
 * The inputs are `n_tensors` tensors that are read element by element and broadcast (the variables
 * of the expression), then `n_scalars` tensors of one element (its first parameters). The constants
 * of the options are the remaining parameters.
 *
 * Instead of an expression it can have a row program (`rows`): passes over rows, with reductions of
 * a row between them. Then columns follow the scalars: contiguous tensors with one value for each
 * row.
 */
#ifndef GRADUS_DISPATCH_FUSED_H
#define GRADUS_DISPATCH_FUSED_H

#include "codegen/row_program.h"
#include "core/float_to_int.h"
#include "dispatch/op.h"

/* The largest fused op; the rules of a device (codegen/fusion_rules.h) may set lower limits. */
enum {
    GD_FUSED_TENSORS = 16,
    GD_FUSED_PARAMS = 32,
    GD_FUSED_OUTPUTS = 4,
    GD_FUSED_NODES = 96,
    GD_FUSED_OPS = 64, /* ops that one fused op replaces */
    GD_FUSED_NAME = 256,
    GD_FUSED_INPUTS = GD_FUSED_TENSORS + GD_FUSED_PARAMS + GD_ROW_COLUMNS,
};

struct gd_fusion {
    gd_ir ir;
    gd_dtype type; /* of the computation: f32, f64, i32 or i64 */
    int n_tensors, n_scalars, n_constants;
    const gd_op *reduction;     /* sum, mean, max or min of the last result; NULL: none */
    const gd_row_program *rows; /* NULL: none, `ir` is used; else `ir` is unused */
    gd_op op;
    gd_op_state state;
    gd_ir_node nodes[GD_IR_MAX_NODES];
    int16_t slot[GD_IR_MAX_NODES]; /* from gd_ir_slots */
    int n_slots;
    gd_op_param inputs[GD_FUSED_INPUTS], outputs[GD_IR_MAX_OUTPUTS];
    char name[GD_FUSED_NAME];
    struct gd_fusion *next;
};
typedef struct gd_fusion gd_fusion;

typedef struct gd_fused_options {
    int rank; /* of the shape that the kernel runs over */
    int64_t dims[GD_MAX_RANK];
    uint32_t axes; /* bits of the axes that are reduced, or that form a row */
    gd_param constants[GD_FUSED_PARAMS];
} gd_fused_options;

/* The fused op that equals `model`, found or created. model has ir or rows, type, the counts,
 * reduction and name. NULL: no memory. */
const gd_op *gd_op_fused(const gd_fusion *model);

/* The parameters of a call. `params` has room for GD_FUSED_PARAMS. */
void gd_fused_params(const gd_kernel_call *call, gd_param *params);

/* The dtype that an elementwise op computes in, before f16 and bf16 are widened: the promoted
 * dtype of its inputs, or a float dtype if the result is float. `in` has GD_DTYPE_NONE for
 * absent inputs. */
gd_dtype gd_elementwise_dtype(const gd_op *op, const gd_dtype *in, int n_in, gd_dtype out);

/* The dtype widened to one that kernels exist for: f32, f64, i32 or i64. */
gd_dtype gd_compute_dtype(gd_dtype dtype);

/* The type that a call of an elementwise or fused op computes in. `out` is the dtype of the first
 * output. */
gd_dtype gd_op_compute_dtype(const gd_op *op, const gd_dtype *in, int n_in, gd_dtype out);

#endif
