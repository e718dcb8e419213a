/* elementwise.c - elementwise and fused ops.
 *
 * The build has compiled kernels for all ops of the library and their gradients. Fused ops, and ops
 * that the program defines, have kernels that are compiled for the dtypes of a call.
 */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/expression.h"
#include "backend/cuda/fusion.h"

/* --- kernels of the build --------------------------------------------------------------------- */

static bool match_built(const gd_kernel_call *call) {
    const gd_cuda_op *x = gd_cuda_op_of(call->op);
    return x && gd_cuda_is_built(x, call);
}

static gd_status run_built(gd_kernel_call *call) {
    gd_cuda_op *x = gd_cuda_op_of(call->op);
    gd_cuda_arguments a;
    gd_cuda_fill_arguments(call, x, true, &a);
    return a.variant == GD_CUDA_VECTORS
               ? gd_cuda_launch(call->device, &x->vectors, a.blocks, GD_CUDA_EXPRESSION_THREADS,
                                &a.vectors)
               : gd_cuda_launch(call->device, &x->elements[gd_cuda_type_index(a.type)], a.blocks,
                                GD_CUDA_EXPRESSION_THREADS, &a.elements);
}

/* Vectors need contiguous, aligned operands. */
static void describe_variant(const gd_kernel_call *call, bool any_dtypes, char *text, size_t size) {
    gd_cuda_arguments a;
    gd_cuda_fill_arguments(call, gd_cuda_op_of(call->op), any_dtypes, &a);
    snprintf(text, size, "%s", a.variant == GD_CUDA_VECTORS ? "vectors" : "single elements");
}
static void describe_built(const gd_kernel_call *call, char *text, size_t size) {
    describe_variant(call, true, text, size);
}

/*kernel elementwise.built  rank 30  checked  mixed  run run_built  match match_built
 *        describe describe_built
 * The kernels of the op that the build has compiled.
 */

/* --- kernels that are compiled for a call ----------------------------------------------------- */

/* The functions for vectors and elements; NULL: not compiled yet. */
typedef struct compiled_functions {
    CUfunction functions[2];
} compiled_functions;

static bool match_compiled(const gd_kernel_call *call) {
    gd_kernel_source source;
    return call->n_in + call->n_out <= GD_SOURCE_INPUTS + GD_SOURCE_OUTPUTS &&
           gd_cuda_host->codegen->source_of_call(call, &source) && !source.rows &&
           !source.reduces && gd_cuda_op_of(call->op);
}

static gd_status compile_variant(const gd_kernel_call *call, gd_cuda_variant variant,
                                 compiled_functions *f) {
    gd_kernel_source source;
    if (f->functions[variant]) return GD_OK;
    if (!gd_cuda_host->codegen->source_of_call(call, &source))
        return gd_cuda_host->fail(GD_E_UNSUPPORTED, "%s has too many operands for %s",
                                  gd_cuda_host->op_name(call->op), call->device->name);
    return gd_cuda_compile_variant(call->device, &source, variant, &f->functions[variant]);
}

/* The variant for a call whose operands are aligned. The addresses of a plan's operands are not
 * known when it is prepared, but most are aligned. */
static gd_cuda_variant usual_variant(const gd_kernel_call *call) {
    gd_view views[GD_SOURCE_INPUTS + GD_SOURCE_OUTPUTS];
    gd_kernel_call aligned = *call;
    gd_cuda_arguments a;
    memcpy(views, call->in, (size_t)call->n_in * sizeof *views);
    memcpy(views + call->n_in, call->out, (size_t)call->n_out * sizeof *views);
    for (int i = 0; i < call->n_in + call->n_out; i++)
        if (views[i].data) views[i].data = (void *)(uintptr_t)256;
    aligned.in = views;
    aligned.out = views + call->n_in;
    gd_cuda_fill_arguments(&aligned, gd_cuda_op_of(call->op), false, &a);
    return a.variant;
}

static gd_status prepare_compiled(const gd_kernel_call *call, void **prepared, size_t *workspace) {
    compiled_functions *f = gd_cuda_host->allocate(sizeof *f);
    *workspace = 0;
    if (!f) return gd_cuda_host->fail(GD_E_MEMORY, "no memory for the kernel of a call");
    memset(f, 0, sizeof *f);
    gd_status status = compile_variant(call, usual_variant(call), f);
    if (status == GD_OK) *prepared = f;
    else gd_cuda_host->release(f);
    return status;
}

static gd_status run_compiled(gd_kernel_call *call) {
    compiled_functions *f = call->prepared;
    gd_cuda_arguments a;
    gd_cuda_fill_arguments(call, gd_cuda_op_of(call->op), false, &a);
    gd_status status = compile_variant(call, a.variant, f);
    if (status != GD_OK) return status;
    const void *arguments =
        a.variant == GD_CUDA_VECTORS ? (const void *)&a.vectors : (const void *)&a.elements;
    return gd_cuda_launch_function(call->device, f->functions[a.variant], a.blocks, arguments);
}

static void release_compiled(gd_device *d, void *prepared) {
    (void)d;
    gd_cuda_host->release(prepared);
}

static void describe_compiled(const gd_kernel_call *call, char *text, size_t size) {
    describe_variant(call, false, text, size);
}

/*kernel elementwise.compiled  rank 20  checked  mixed  run run_compiled  match match_compiled
 *        prepare prepare_compiled  release release_compiled  describe describe_compiled
 * Fused ops, and those that a program defines, compiled by NVRTC for the dtypes of a call.
 */

#include "backend/cuda/elementwise.gen.h"
