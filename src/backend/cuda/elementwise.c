/* elementwise.c - elementwise and fused ops: kernels printed from their expressions (fusion.h). */
#include "backend/cuda/fusion.h"
#include "backend/cuda/kernels.h"

/* --- the kernel ------------------------------------------------------------------------------- */

static bool match_expression(const gd_kernel_call *call) {
    gd_kernel_source source;
    return gd_cuda_host->codegen->source_of_call(call, &source);
}

static gd_status prepare_expression(const gd_kernel_call *call, void **prepared,
                                    size_t *workspace) {
    gd_kernel_source source;
    gd_scalar_args args;
    if (!gd_cuda_host->codegen->source_of_call(call, &source))
        return gd_cuda_host->fail(GD_E_UNSUPPORTED, "%s has too many operands for %s",
                                  gd_cuda_host->op_name(call->op), call->device->name);
    CUfunction function = gd_cuda_compile_source(call->device, &source);
    if (!function) return GD_E_DEVICE;
    gd_cuda_host->codegen->args_of_call(call, &args);
    *prepared = function;
    *workspace = gd_cuda_host->codegen->kept_bytes(call, &args, args.count);
    return GD_OK;
}

static gd_status run_expression(gd_kernel_call *call) {
    enum { THREADS = 256 };
    gd_cuda_state *s = gd_cuda_state_of(call->device);
    gd_scalar_args args;
    gd_cuda_host->codegen->args_of_call(call, &args);
    args.kept = call->workspace;
    args.kept_rows = args.count;
    if (args.count == 0) return GD_OK;
    const void *word = s->word;
    void *parameters[] = {&args, &word};
    gd_status status = gd_cuda_enter_context(call->device);
    if (status != GD_OK) return status;
    GD_CUDA_TRY(call->device,
                cuLaunchKernel((CUfunction)call->prepared,
                               (unsigned)((args.count + THREADS - 1) / THREADS), 1, 1, THREADS, 1,
                               1, 0, s->streams[GD_QUEUE_COMPUTE], parameters, NULL));
    return GD_OK;
}

#define EXPRESSION_KERNEL(name)                                                       \
    {                                                                                 \
        .op = name, .variant = "expression", .device = "cuda", .rank = 20,            \
        .flags = GD_KERNEL_CHECKED, .match = match_expression, .run = run_expression, \
        .prepare = prepare_expression                                                 \
    }
GD_CUDA_ADD(elementwise_kernel, EXPRESSION_KERNEL("elementwise"))
