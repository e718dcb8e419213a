/* fusion.c - what plans may fuse, and kernels that NVRTC compiles: those of fused ops and of ops
 * that a program defines.
 *
 * The library prints them (codegen/dialect_cuda.h). They use the loops of the build's kernels
 * (expression.cuh) or of row programs (rows.cuh), compiled for the dtypes of the
 * call. A plan's kernels are compiled together, for vectors; those for other strides when a call
 * needs them.
 */
#include "backend/cuda/fusion.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/compiler.h"
#include "backend/cuda/expression.h"
#include "backend/cuda/fused_reduction.h"
#include "backend/cuda/fused_rows.h"

/* --- kernels ---------------------------------------------------------------------------------- */

static gd_dialect dialect; /* the library's, with reductions */
static const char kernel_name[] = "gd_expression";
extern const char gd_cuda_expression_text[]; /* expression.cuh, from the build */
extern const char gd_cuda_rows_text[];       /* rows.cuh */
extern const char gd_cuda_previous_text[];   /* previous_kernel.cuh */

/* The source text of a kernel, to be freed by the caller; NULL: no memory, or there is no such
 * kernel. `variant` is of elementwise ops, `rows` of row programs. */
static char *print_source(const gd_kernel_source *source, gd_cuda_variant variant,
                          const gd_cuda_row_kernel *rows) {
    const gd_codegen_api *api = gd_cuda_host->codegen;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    fputs("#define inline __device__ __forceinline__\n", out);
    fputs(api->scalar_prelude, out);
    fputs("#undef inline\n", out);
    bool printed = true;
    if (source->rows) {
        fputs(gd_cuda_expression_text, out);
        fputs(gd_cuda_rows_text, out);
        api->print_cuda_rows(out, source, rows, kernel_name);
    } else if (source->reduces) {
        fputs(gd_cuda_previous_text, out);
        fputs("struct gd_cuda_word { unsigned long long number; };\n", out);
        printed = api->print_kernel(out, &dialect, source, kernel_name);
    } else {
        fputs(gd_cuda_expression_text, out);
        api->print_cuda_expression(out, source, "expression", variant == GD_CUDA_LIST);
        api->print_cuda_kernel(out, variant, "expression", kernel_name);
    }
    if (fclose(out) == 0 && printed) return text;
    free(text);
    return NULL;
}

/* Compiles a text, and frees it. */
static gd_status compile_text(gd_device *d, char *text, CUfunction *function) {
    gd_cuda_program program = {.source = text, .name = kernel_name};
    if (!program.source)
        return gd_cuda_host->fail(GD_E_MEMORY, "no memory for the source of a kernel");
    gd_status status = gd_cuda_compile(d, &program, 1);
    free(program.source);
    *function = program.function;
    return status;
}

gd_status gd_cuda_compile_variant(gd_device *d, const gd_kernel_source *source,
                                  gd_cuda_variant variant, CUfunction *function) {
    return compile_text(d, print_source(source, variant, NULL), function);
}
gd_status gd_cuda_compile_rows(gd_device *d, const gd_kernel_source *source,
                               const gd_cuda_row_kernel *kernel, CUfunction *function) {
    return compile_text(d, print_source(source, GD_CUDA_VECTORS, kernel), function);
}

CUfunction gd_cuda_compile_source(gd_device *d, const gd_kernel_source *source) {
    CUfunction function = NULL;
    return gd_cuda_compile_variant(d, source, GD_CUDA_VECTORS, &function) == GD_OK ? function
                                                                                   : NULL;
}

/* --- what plans may fuse ---------------------------------------------------------------------- */

/* A block computes a row, so few rows leave most of the device idle. As long as they are short, that
 * takes less time than the launches of several kernels, even if the expression is long. */
enum { MAX_OF_FEW_ROWS = 8192, ENOUGH_ROWS = 128 };

static bool has_own_kernel(gd_device *d, const gd_op *op) {
    (void)d;
    const gd_cuda_op *x = gd_cuda_op_of(op);
    return x && x->built;
}
static bool is_compiler_ready(gd_device *d) {
    (void)d;
    return gd_cuda_has_compiler();
}
static bool is_worth_compiling(gd_device *d, int64_t elements) {
    (void)d;
    return elements > 0;
}

/* The text of a request's kernel; NULL: it has none. */
static char *print_request(const gd_fusion_request *request) {
    gd_kernel_source source;
    gd_scalar_args args;
    gd_cuda_row_kernel rows;
    if (!gd_cuda_host->codegen->source_of_request(request, &source)) return NULL;
    if (source.rows) gd_cuda_rows_of_call(request->call, &source, &args, &rows);
    return print_source(&source, GD_CUDA_VECTORS, &rows);
}

static bool has_kernel(gd_device *d, const gd_fusion_request *request) {
    char *text = print_request(request);
    const bool found = text && gd_cuda_find_compiled(d, text);
    free(text);
    return found;
}

/* Failures are not reported: has_kernel is false for a request that could not be compiled. */
static void compile_requests(gd_device *d, const gd_fusion_request *requests, int n) {
    gd_cuda_program *programs = gd_cuda_host->allocate((size_t)(n + 1) * sizeof *programs);
    int count = 0;
    for (int i = 0; i < n && programs; i++) {
        char *text = print_request(&requests[i]);
        if (text) programs[count++] = (gd_cuda_program){.source = text, .name = kernel_name};
    }
    if (count) gd_cuda_compile(d, programs, count);
    for (int i = 0; i < count; i++) free(programs[i].source);
    gd_cuda_host->release(programs);
}

const gd_fusion_rules *gd_cuda_fusion_rules(void) {
    static gd_fusion_rules rules;
    dialect = *gd_cuda_host->codegen->cuda;
    dialect.reduction = gd_cuda_print_reduction;
    rules = (gd_fusion_rules){.dialect = &dialect,
                              .max_tensors = 12,
                              .max_params = 16,
                              .max_outputs = 4,
                              .max_nodes = 128,
                              .max_ops = 24,
                              .reductions = true,
                              .rows = true,
                              .max_row = MAX_OF_FEW_ROWS,
                              .enough_rows = ENOUGH_ROWS,
                              .has_own_kernel = has_own_kernel,
                              .is_compiler_ready = is_compiler_ready,
                              .is_worth_compiling = is_worth_compiling,
                              .compile = compile_requests,
                              .has_kernel = has_kernel};
    return &rules;
}
