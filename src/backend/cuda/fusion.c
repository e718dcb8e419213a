/* fusion.c - the CUDA dialect, and what plans may fuse.
 *
 * The library prints a kernel in this backend's dialect, NVRTC compiles it for the dtypes of the
 * call, and each thread computes one element.
 */
#include "backend/cuda/fusion.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/compiler.h"
#include "backend/cuda/fused_reduction.h"
#include "backend/cuda/kernels.h"

/* --- the dialect ------------------------------------------------------------------------------ */

static gd_dialect dialect; /* the scalar one with another head */
static gd_fusion_rules rules;
static const char kernel_name[] = "gd_expression";

static const char head[] =
    "extern \"C\" __global__ void __launch_bounds__(256) %s(\n"
    "        const __grid_constant__ gd_scalar_args args, const gd_word *word) {\n"
    "    if (word->number) return;\n"
    "    const gd_scalar_args *a = &args;\n"
    "    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i >= a->count) return;\n";

static const char prelude_begin[] = "#define inline __device__ __forceinline__\n",
                  prelude_end[] = "#undef inline\nstruct gd_word { unsigned long long number; };\n";

/* The source text of a kernel, to be freed by the caller; NULL: no memory. */
static char *print_source(const gd_kernel_source *source) {
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    fputs(prelude_begin, out);
    fputs(gd_cuda_host->codegen->scalar_prelude, out);
    fputs(prelude_end, out);
    const bool printed = gd_cuda_host->codegen->print_kernel(out, &dialect, source, kernel_name);
    if (fclose(out) == 0 && printed) return text;
    free(text);
    return NULL;
}

CUfunction gd_cuda_compile_source(gd_device *d, const gd_kernel_source *source) {
    char *text = print_source(source);
    if (!text) {
        gd_cuda_host->fail(GD_E_MEMORY, "no memory for the source of a kernel");
        return NULL;
    }
    CUfunction function = gd_cuda_compile(d, text, kernel_name);
    free(text);
    return function;
}

/* --- what plans may fuse ---------------------------------------------------------------------- */

static bool has_own_kernel(gd_device *d, const gd_op *op) {
    (void)d, (void)op;
    return false;
}
static bool is_compiler_ready(gd_device *d) {
    (void)d;
    return gd_cuda_has_compiler();
}
static bool is_worth_compiling(gd_device *d, int64_t elements) {
    (void)d;
    return elements > 0;
}
static bool has_kernel(gd_device *d, const gd_fusion_request *request) {
    gd_kernel_source source;
    return gd_cuda_host->codegen->source_of_request(request, &source) &&
           gd_cuda_compile_source(d, &source);
}
static void compile_requests(gd_device *d, const gd_fusion_request *requests, int n) {
    for (int i = 0; i < n; i++) has_kernel(d, &requests[i]);
}

const gd_fusion_rules *gd_cuda_fusion_rules(void) {
    dialect = *gd_cuda_host->codegen->scalar;
    dialect.name = "cuda";
    dialect.head = head;
    dialect.reduction = gd_cuda_print_reduction;
    dialect.nan[0] = "__int_as_float(0x7fc00000)";
    dialect.nan[1] = "__longlong_as_double(0x7ff8000000000000ll)";
    dialect.infinity[0] = "__int_as_float(0x7f800000)";
    dialect.infinity[1] = "__longlong_as_double(0x7ff0000000000000ll)";
    rules = (gd_fusion_rules){.dialect = &dialect,
                              .max_tensors = 12,
                              .max_params = 16,
                              .max_outputs = 4,
                              .max_nodes = 128,
                              .max_ops = 24,
                              .reductions = true,
                              .has_own_kernel = has_own_kernel,
                              .is_compiler_ready = is_compiler_ready,
                              .is_worth_compiling = is_worth_compiling,
                              .compile = compile_requests,
                              .has_kernel = has_kernel};
    return &rules;
}
