/* fusion_rules.h - what may be fused for a device.
 *
 * gd_device_api.fusion points to the rules; NULL: plans for the device fuse nothing. The fusion
 * pass (graph/passes/fuse*.c) reads these rules and nothing else of a device.
 *
 * A fused op (dispatch/fused.h) runs as a compiled kernel or, if the device has an evaluator, primitive
 * by primitive. The device registers kernels for "elementwise" and "fused_reduction", which run
 * fused ops without and with a reduction.
 */
#ifndef GRADUS_CODEGEN_FUSION_RULES_H
#define GRADUS_CODEGEN_FUSION_RULES_H

#include "codegen/dialect.h"
#include "gradus/extend.h"

/* A fused op that a plan needs a kernel for. */
typedef struct gd_fusion_request {
    const gd_op *op;
    int64_t elements;         /* number of elements that the kernel computes */
    const gd_dtype *in, *out; /* dtypes of the op's inputs and outputs */
    /* The call. Its operands have the shapes and strides of the plan's values; their addresses mean
     * nothing, but have the alignment of the final ones. */
    const gd_kernel_call *call;
} gd_fusion_request;

/* The costs of a fused op that runs without a compiled kernel, primitive by primitive on tiles in a
 * cache. The unit is a pass over the elements; a kernel of a single op costs one pass. */
typedef struct gd_evaluator_costs {
    int conversion; /* passes to convert a value from one dtype to another */
    int64_t small;  /* tensors of at most this many elements stay in the cache between kernels */
    int64_t worthwhile_row; /* rows of at least this many elements pay for the cost of each row */
} gd_evaluator_costs;

typedef struct gd_fusion_rules {
    const gd_dialect *dialect;

    /* Limits of one kernel; at most GD_FUSED_TENSORS, GD_FUSED_PARAMS, GD_FUSED_OUTPUTS,
     * GD_FUSED_NODES and GD_FUSED_OPS (dispatch/fused.h). */
    int max_tensors, max_params, max_outputs, max_nodes, max_ops;

    bool reductions; /* a reduction may follow the elementwise ops of a kernel */
    /* Reductions of at most this many elements for each result are not fused: the reduction's own
     * kernel is faster, because it can compute many short rows at once. */
    int64_t short_row;
    bool rows;           /* kernels may make several passes over rows */
    int64_t max_row;     /* elements of the longest row of such a kernel */
    int64_t enough_rows; /* for this many rows, or more, rows may be longer; 0: for none */

    /* NULL: fused ops run only as compiled kernels. */
    const gd_evaluator_costs *evaluator;

    /* Whether the device has a kernel for the op without compiling one. An elementwise op without a
     * kernel becomes a fused op by itself. */
    bool (*has_own_kernel)(gd_device *device, const gd_op *op);

    /* Whether kernels can be compiled: there is a compiler and a cache for its output. */
    bool (*is_compiler_ready)(gd_device *device);
    /* Whether a kernel over this many elements is worth compiling. */
    bool (*is_worth_compiling)(gd_device *device, int64_t elements);
    /* Compiles all requests that have no kernel yet, together, before the first run. It never
     * fails: a request that could not be compiled has no kernel afterwards. */
    void (*compile)(gd_device *device, const gd_fusion_request *requests, int n);
    /* Whether a fused op has a compiled kernel now. */
    bool (*has_kernel)(gd_device *device, const gd_fusion_request *request);
} gd_fusion_rules;

#endif
