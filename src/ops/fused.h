/* fused.h - ops that replace several elementwise ops of a plan.
 *
 * A fused op has one expression, composed from those of its parts, and up to GD_FUSED_OUTPUTS
 * results; the last one may be reduced (summed, say) instead of stored. Its name lists the parts:
 * "fused{mul, add, gelu, mul}". Equal fused ops are one op, which lives until the program ends,
 * like derived ops. Shapes and constants, which differ from plan to plan, are in the options.
 *
 * Inputs: first `n_tensors` that are read element by element and broadcast (the variables of the
 * expression), then `n_scalars` of one element, which are its parameters. The options' constants
 * are the parameters after them.
 *
 * Or it consists of passes over rows (`rows`), with reductions of the row between them; then
 * columns follow the scalars: contiguous tensors with one number for each row.
 */
#ifndef GRADUS_OPS_FUSED_H
#define GRADUS_OPS_FUSED_H

#include "codegen/row_program.h"
#include "core/float_to_int.h"
#include "ops/op.h"

/* The largest fused op; the rules of a device (codegen/fusion_rules.h) may set lower limits. */
enum {
    GD_FUSED_TENSORS = 16,
    GD_FUSED_PARAMS = 32,
    GD_FUSED_OUTPUTS = 4,
    GD_FUSED_NODES = 96,
    GD_FUSED_OPS = 64, /* ops that one stands for */
    GD_FUSED_NAME = 256,
    GD_FUSED_INPUTS = GD_FUSED_TENSORS + GD_FUSED_PARAMS + GD_ROW_COLUMNS,
};

struct gd_fusion {
    gd_ir ir;
    gd_dtype type; /* computed in: f32, f64, i32 or i64 */
    int n_tensors, n_scalars, n_constants;
    const gd_op *reduction;     /* sum, mean, max or min of the last result; NULL: none */
    const gd_row_program *rows; /* NULL: no passes over rows; else there is no `ir` */
    gd_op op;
    gd_op_state state;
    gd_ir_node nodes[GD_IR_MAX_NODES];
    int16_t slot[GD_IR_MAX_NODES]; /* of gd_ir_slots */
    int n_slots;
    gd_op_param inputs[GD_FUSED_INPUTS], outputs[GD_IR_MAX_OUTPUTS];
    char name[GD_FUSED_NAME];
    struct gd_fusion *next;
};
typedef struct gd_fusion gd_fusion;

typedef struct gd_fused_options {
    int rank; /* of the shape that the kernel runs over */
    int64_t dims[GD_MAX_RANK];
    uint32_t axes; /* a bit for each that is reduced, or part of a row */
    gd_param constants[GD_FUSED_PARAMS];
} gd_fused_options;

/* The op like `model`, of which ir or rows, type, the counts, reduction and name are set. NULL: no
 * memory.
 */
const gd_op *gd_op_fused(const gd_fusion *model);

/* The parameters of a call. `params` has room for GD_FUSED_PARAMS. */
void gd_fused_params(const gd_kernel_call *call, gd_param *params);

/* The dtype an elementwise op computes in, before halves are widened: that of what it reads, and
 * floats where the result is one. `in` has GD_DTYPE_NONE for what is absent. */
gd_dtype gd_elementwise_dtype(const gd_op *op, const gd_dtype *in, int n_in, gd_dtype out);

/* The same as one of the four types that there are kernels for. */
gd_dtype gd_compute_dtype(gd_dtype dtype);

/* The type that a call of an elementwise or fused op computes in. `out` is the dtype of the first
 * output. */
gd_dtype gd_op_compute_dtype(const gd_op *op, const gd_dtype *in, int n_in, gd_dtype out);

#endif
