/* kernels_fused.c - fused ops: kernels in the scalar dialect, one call for each element.
 *
 * The host's code generator prints and compiles a kernel (gd_host.codegen). A worker calls the
 * compiled function for one element after the other, as a GPU runs one thread for each element.
 */
#include <stdlib.h>

#include "backend/test/kernels.h"
#include "dispatch/codegen_api.h"

static gd_native_target native_target(void) {
    static const char *const flags[] = {NULL};
    const gd_codegen_api *codegen = test_host->codegen;
    return (gd_native_target){.name = "scalar",
                              .dialect = codegen->scalar,
                              .flags = flags,
                              .prelude = codegen->scalar_prelude,
                              .prelude_bytes = strlen(codegen->scalar_prelude)};
}

/* The compiled function, or NULL if compilation failed. */
static gd_scalar_fn compile_source(const gd_kernel_source *source) {
    const gd_native_target target = native_target();
    gd_compiled_fn fn = NULL;
    test_host->codegen->compile(source, 1, &target, &fn);
    return (gd_scalar_fn)fn;
}

/* --- rules ------------------------------------------------------------------------------------ */

static bool has_own_kernel(gd_device *d, const gd_op *op) {
    (void)d;
    return !test_host->op_is_fused(op);
}

static bool is_compiler_ready(gd_device *d) {
    (void)d;
    return test_host->codegen->is_compiler_ready();
}

static bool is_worth_compiling(gd_device *d, int64_t elements) {
    (void)d;
    return elements > 0;
}

static void compile_requests(gd_device *d, const gd_fusion_request *requests, int n) {
    gd_kernel_source *sources = malloc((size_t)n * sizeof *sources);
    gd_compiled_fn *fns = calloc((size_t)n, sizeof *fns);
    const gd_native_target target = native_target();
    int count = 0;
    (void)d;
    for (int i = 0; sources && fns && i < n; i++)
        count += test_host->codegen->source_of_request(&requests[i], &sources[count]);
    if (count) test_host->codegen->compile(sources, count, &target, fns);
    free(sources);
    free(fns);
}

static bool has_fused_kernel(gd_device *d, const gd_fusion_request *request) {
    gd_kernel_source source;
    (void)d;
    return test_host->codegen->source_of_request(request, &source) && compile_source(&source);
}

const gd_fusion_rules test_fusion_rules = {
    .max_tensors = 12,
    .max_params = 16,
    .max_outputs = 4,
    .max_nodes = 128,
    .max_ops = 24,
    .reductions = true,
    .short_row = 0,
    .rows = true,
    .max_row = 1 << 16,
    .has_own_kernel = has_own_kernel,
    .is_compiler_ready = is_compiler_ready,
    .is_worth_compiling = is_worth_compiling,
    .compile = compile_requests,
    .has_kernel = has_fused_kernel,
};

/* --- kernels ---------------------------------------------------------------------------------- */

bool test_fused_match(const gd_kernel_call *call) {
    gd_kernel_source source;
    return test_host->op_is_fused(call->op) && test_host->codegen->source_of_call(call, &source);
}

gd_status test_fused_prepare(const gd_kernel_call *call, void **prepared, size_t *workspace) {
    gd_kernel_source source;
    gd_scalar_args args;
    gd_scalar_fn fn =
        test_host->codegen->source_of_call(call, &source) ? compile_source(&source) : NULL;
    if (!fn)
        return test_host->fail(GD_E_UNSUPPORTED, "%s cannot be compiled for test:0",
                               test_host->op_name(call->op));
    test_host->codegen->args_of_call(call, &args);
    *(gd_scalar_fn *)prepared = fn;
    *workspace = test_host->codegen->kept_bytes(call, &args, 1);
    gd_test_device_controls(call->device)->counts.prepared++;
    return GD_OK;
}

void test_fused_release(gd_device *d, void *prepared) {
    (void)prepared; /* the host owns compiled kernels */
    gd_test_device_controls(d)->counts.released++;
}

void test_fused(gd_kernel_call *call) {
    gd_scalar_args args;
    gd_scalar_fn fn = NULL;
    memcpy(&fn, &call->prepared, sizeof fn);
    test_host->codegen->args_of_call(call, &args);
    args.kept = call->workspace;
    args.kept_rows = 1;
    for (int64_t i = 0; i < args.count; i++) fn(i, &args);
}
