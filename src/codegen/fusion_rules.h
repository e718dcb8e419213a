/* fusion_rules.h - what the fusion pass knows of a device.
 *
 * gd_device_api.fusion points to the rules; NULL: plans for the device fuse nothing. The pass
 * (graph/passes/fuse*.c) reads these rules and no device's kind.
 *
 * A fused op (ops/fused.h) runs as a kernel that was compiled for it, or, where the device has an
 * evaluator, primitive by primitive. The device registers kernels for "elementwise" and
 * "fused_reduction", which run both kinds of fused ops.
 */
#ifndef GRADUS_CODEGEN_FUSION_RULES_H
#define GRADUS_CODEGEN_FUSION_RULES_H

#include "codegen/dialect.h"
#include "gradus/extend.h"

/* A fused op that a plan needs a kernel for. */
typedef struct gd_fusion_request {
    const gd_op *op;
    int64_t elements;         /* that the kernel runs over */
    const gd_dtype *in, *out; /* of its inputs and outputs, as many as the op has */
} gd_fusion_request;

/* What a fused op costs that runs without a compiled kernel, primitive by primitive on tiles in a
 * cache. Costs are passes over the elements; a kernel of one op is one pass. */
typedef struct gd_evaluator_costs {
    int conversion;         /* passes to convert a value from one dtype to another */
    int64_t small;          /* up to so many elements stay in the cache between kernels anyway */
    int64_t worthwhile_row; /* elements of a row that pay for what is done once a row */
} gd_evaluator_costs;

typedef struct gd_fusion_rules {
    const gd_dialect *dialect;

    /* The largest kernel. At most GD_FUSED_TENSORS, GD_FUSED_PARAMS, GD_FUSED_OUTPUTS,
     * GD_FUSED_NODES and GD_FUSED_OPS (ops/fused.h). */
    int max_tensors, max_params, max_outputs, max_nodes, max_ops;

    bool reductions; /* a reduction may follow the elementwise ops of a kernel */
    /* Up to so many elements for each result, a reduction's own kernel is faster than a fused one:
     * it may take many short rows side by side. */
    int64_t short_row;
    bool rows;       /* kernels may make several passes over rows */
    int64_t max_row; /* elements of the longest row of such a kernel */

    /* NULL: fused ops run only where they were compiled. */
    const gd_evaluator_costs *evaluator;

    /* Whether the device has a kernel for the op as it is, without a run of the compiler. An
     * elementwise op for which it has none becomes a fused op by itself. */
    bool (*has_own_kernel)(gd_device *device, const gd_op *op);

    /* Whether kernels can be compiled: there is a compiler and a place to keep its output. */
    bool (*is_compiler_ready)(gd_device *device);
    /* Whether a kernel over this many elements is worth the time of the compiler. */
    bool (*is_worth_compiling)(gd_device *device, int64_t elements);
    /* Compiles what has no kernel yet, together and ahead of the first run. Never fails: what could
     * not be compiled has no kernel afterwards. */
    void (*compile)(gd_device *device, const gd_fusion_request *requests, int n);
    /* Whether a fused op has a compiled kernel now. */
    bool (*has_kernel)(gd_device *device, const gd_fusion_request *request);
} gd_fusion_rules;

#endif
