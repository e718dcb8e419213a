/* fused_rules.c - the limits and costs of fusion on the CPU. */
#include "backend/cpu/elementwise_job.h"
#include "codegen/native.h"

static bool has_own_kernel(gd_device *device, const gd_op *op) {
    (void)device;
    return gd_ew_is_compiled(op);
}

static bool is_compiler_ready(gd_device *device) {
    (void)device;
    return gd_native_is_ready();
}

static bool is_worth_compiling(gd_device *device, int64_t elements) {
    (void)device;
    return gd_ew_is_worth_compiling(elements);
}

static void compile_fused(gd_device *device, const gd_fusion_request *requests, int n) {
    (void)device;
    gd_fused_compile(requests, n);
}

static bool has_fused_kernel(gd_device *device, const gd_fusion_request *request) {
    (void)device;
    return gd_fused_has_kernel(request->op);
}

/* Measured with bench/fusion.c. */
static const gd_evaluator_costs evaluator = {
    .conversion = 4, .small = 1024, .worthwhile_row = 2048};

/* With these limits the evaluator's tiles fit on the stack. */
const gd_fusion_rules gd_cpu_fusion_rules = {
    .dialect = &gd_dialect_vector,
    .max_tensors = GD_FUSED_TENSORS,
    .max_params = GD_FUSED_PARAMS,
    .max_outputs = GD_FUSED_OUTPUTS,
    .max_nodes = GD_FUSED_NODES,
    .max_ops = GD_FUSED_OPS,
    .reductions = true,
    .short_row = 16,
    .rows = true,
    .max_row = 1 << 16, /* longer rows are worth several threads each */
    .evaluator = &evaluator,
    .has_own_kernel = has_own_kernel,
    .is_compiler_ready = is_compiler_ready,
    .is_worth_compiling = is_worth_compiling,
    .compile = compile_fused,
    .has_kernel = has_fused_kernel,
};
