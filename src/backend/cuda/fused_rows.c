/* fused_rows.c - row programs (codegen/row_program.h): several passes over each row of a tensor,
 * with reductions between them, in one kernel.
 *
 * The library divides the work and prints the kernel (codegen/dialect_cuda_rows.c); its loops are
 * in rows.cuh. A kernel is compiled for the dtypes and layouts of its operands; layouts do
 * not change the bits of a result.
 */
#include "backend/cuda/fused_rows.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/rows_args.h"

_Static_assert((int)GD_CUDA_ROWS_RANK == (int)GD_SCALAR_RANK &&
                   sizeof(gd_scalar_operand) == GD_CUDA_ROWS_OPERAND * sizeof(uint64_t),
               "an operand of gd_scalar_args has the layout of the kernel's words");

/* --- layouts ---------------------------------------------------------------------------------- */

/* If all operands are contiguous, gd_scalar_args has no dims: gives it one outer and one inner
 * dim. */
static void restore_dims(gd_scalar_args *s, const gd_row_program *rows) {
    if (s->rank > 0 || s->inner_rank > 0) return;
    s->rank = s->inner_rank = 1;
    s->dims[0] = s->count;
    s->dims[1] = s->inner_count;
    for (int k = 0; k < rows->n_tensors + rows->n_results; k++) {
        const bool is_value = k >= rows->n_tensors && rows->value_of[k - rows->n_tensors] >= 0;
        s->operand[k].strides[0] = is_value ? 1 : s->inner_count;
        s->operand[k].strides[1] = is_value ? 0 : 1;
    }
}

/* Whether the elements of a row are next to each other. */
static bool has_contiguous_rows(const gd_scalar_args *s, const gd_scalar_operand *o) {
    int64_t stride = 1;
    for (int d = s->rank + s->inner_rank; d-- > s->rank; stride *= s->dims[d])
        if (o->strides[d] != stride) return false;
    return true;
}

static bool has_value_per_row(const gd_scalar_args *s, const gd_scalar_operand *o) {
    for (int d = s->rank; d < s->rank + s->inner_rank; d++)
        if (o->strides[d] != 0) return false;
    return true;
}

static bool is_aligned(const void *address, int bytes) {
    return ((uintptr_t)address & (uintptr_t)(bytes - 1)) == 0;
}

static gd_cuda_row_layout layout_of(const gd_scalar_args *s, const gd_scalar_operand *o, int size,
                                    int bytes) {
    bool fits = has_contiguous_rows(s, o) && is_aligned(o->data, size * bytes),
         shared = s->count > 1;
    for (int d = 0; d < s->rank; d++) {
        fits = fits && o->strides[d] % size == 0;
        shared = shared && o->strides[d] == 0;
    }
    if (fits) return shared ? GD_CUDA_ROW_SHARED : GD_CUDA_ROW_VECTORS;
    return has_value_per_row(s, o) ? GD_CUDA_ROW_SCALAR : GD_CUDA_ROW_ELEMENTS;
}

/* Operand k of the kernel: the tensors, then the results. */
static const gd_view *operand_at(const gd_kernel_call *call, const gd_row_program *rows, int k) {
    return k < rows->n_tensors ? &call->in[k] : &call->out[k - rows->n_tensors];
}

void gd_cuda_rows_of_call(const gd_kernel_call *call, const gd_kernel_source *source,
                          gd_scalar_args *args, gd_cuda_row_kernel *kernel) {
    const gd_row_program *rows = source->rows;
    gd_cuda_host->codegen->args_of_call(call, args);
    restore_dims(args, rows);
    gd_cuda_host->codegen->divide_cuda_rows(source, args->count, args->inner_count, kernel);
    for (int k = 0; k < rows->n_tensors + rows->n_results; k++)
        kernel->layout[k] =
            (unsigned char)layout_of(args, &args->operand[k], kernel->size,
                                     (int)gd_cuda_element_size(operand_at(call, rows, k)->dtype));
}

/* --- kernels ---------------------------------------------------------------------------------- */

/* The result of `prepare`. */
typedef struct prepared_rows {
    gd_cuda_row_kernel kernel;
    CUfunction function;
} prepared_rows;

/* Columns, and results with one value for each row, are contiguous. */
static bool match_rows(const gd_kernel_call *call) {
    gd_kernel_source source;
    if (!gd_cuda_host->codegen->source_of_call(call, &source) || !source.rows) return false;
    const gd_row_program *rows = source.rows;
    for (int i = 0; i < rows->n_columns; i++)
        if (!gd_cuda_is_contiguous(&call->in[rows->n_tensors + source.n_scalars + i])) return false;
    for (int i = 0; i < rows->n_results; i++)
        if (rows->value_of[i] >= 0 && !gd_cuda_is_contiguous(&call->out[i])) return false;
    return true;
}

static gd_status prepare_rows(const gd_kernel_call *call, void **prepared, size_t *workspace) {
    gd_kernel_source source;
    gd_scalar_args args;
    gd_cuda_host->codegen->source_of_call(call, &source); /* match_rows has checked it */
    prepared_rows *p = gd_cuda_host->allocate(sizeof *p);
    *workspace = 0;
    if (!p) return gd_cuda_host->fail(GD_E_MEMORY, "no memory for the kernel of a call");
    memset(p, 0, sizeof *p);
    gd_cuda_rows_of_call(call, &source, &args, &p->kernel);
    gd_status status = gd_cuda_compile_rows(call->device, &source, &p->kernel, &p->function);
    if (status == GD_OK) *prepared = p;
    else gd_cuda_host->release(p);
    return status;
}

static void release_rows(gd_device *d, void *prepared) {
    (void)d;
    gd_cuda_host->release(prepared);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* The parameter of the kernel: row_arguments in rows.cuh. */
typedef struct row_arguments {
    gd_cuda_row_head head;
    uint64_t
        words[GD_SCALAR_OPERANDS * GD_CUDA_ROWS_OPERAND + GD_SCALAR_COLUMNS + GD_SCALAR_PARAMS];
} row_arguments;

static void fill_arguments(const gd_kernel_call *call, const gd_kernel_source *source,
                           const gd_scalar_args *s, row_arguments *a) {
    const gd_row_program *rows = source->rows;
    const int operands = rows->n_tensors + rows->n_results;
    uint64_t *at = a->words + operands * GD_CUDA_ROWS_OPERAND;
    a->head = (gd_cuda_row_head){.word = gd_cuda_state_of(call->device)->word,
                                 .rows = s->count,
                                 .length = s->inner_count,
                                 .rank = s->rank,
                                 .inner_rank = s->inner_rank};
    for (int d = 0; d < GD_CUDA_ROWS_RANK; d++) a->head.dims[d] = s->dims[d];
    memcpy(a->words, s->operand, (size_t)operands * sizeof *s->operand);
    for (int i = 0; i < rows->n_columns; i++) *at++ = (uint64_t)(uintptr_t)s->columns[i];
    for (int i = 0; i < rows->n_params; i++, at++)
        if (i < source->n_scalars) *at = (uint64_t)(uintptr_t)s->scalars[i];
        else memcpy(at, &s->params[i], sizeof *at);
}

static gd_status run_rows(gd_kernel_call *call) {
    const prepared_rows *p = call->prepared;
    gd_kernel_source source;
    gd_scalar_args args;
    row_arguments arguments;
    gd_cuda_host->codegen->source_of_call(call, &source);
    gd_cuda_host->codegen->args_of_call(call, &args);
    if (args.count == 0 || args.inner_count == 0) return GD_OK;
    restore_dims(&args, source.rows);
    gd_status status = gd_cuda_enter_context(call->device);
    if (status != GD_OK) return status;
    fill_arguments(call, &source, &args, &arguments);
    const int64_t each = p->kernel.block / p->kernel.threads;
    void *parameters[] = {&arguments};
    GD_CUDA_TRY(call->device,
                cuLaunchKernel(p->function, (unsigned)((args.count + each - 1) / each), 1, 1,
                               (unsigned)p->kernel.block, 1, 1, 0,
                               gd_cuda_state_of(call->device)->streams[GD_QUEUE_COMPUTE],
                               parameters, NULL));
    return GD_OK;
}

static void describe_rows(const gd_kernel_call *call, char *text, size_t size) {
    const gd_cuda_row_kernel *k = &((const prepared_rows *)call->prepared)->kernel;
    snprintf(text, size, "%d thread%s for each row%s", k->threads, k->threads == 1 ? "" : "s",
             k->vectors ? "" : ", read in each pass");
}

/*kernel fused_reduction.rows  rank 20  checked  run run_rows  match match_rows
 *        prepare prepare_rows  release release_rows  describe describe_rows
 * Reductions of rows whose results are used element by element, compiled by NVRTC.
 */

#include "backend/cuda/fused_rows.gen.h"
