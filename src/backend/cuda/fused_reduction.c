/* fused_reduction.c - elementwise ops and a reduction of their last result in one kernel.
 *
 * An output is reduced over `inner_count` elements. Two ways to divide the work, which the
 * parameter `mode` selects:
 *
 *   ROWS     `width` threads (a warp or a block) for each output: the elements of an output are
 *            next to each other in memory
 *   COLUMNS  a block has 32 outputs and 8 lanes of elements: adjacent outputs are next to each other
 *
 * Where there are few outputs, the elements are divided into `parts`, whose partial results are in
 * the workspace. The block that arrives last combines them, with a warp for each output. All sums
 * have a fixed order. Sums of floats are computed in f64.
 */
#include "backend/cuda/fused_reduction.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/fusion.h"
#include "backend/cuda/kernels.h"

enum { ROWS, COLUMNS };
enum { THREADS = 256, WARP = 32, LANES = THREADS / WARP, MAX_GROUPS = 4096 };

/* --- the text --------------------------------------------------------------------------------- */

typedef struct reduction_printer {
    FILE *out;
    const gd_dialect *dialect;
    const gd_kernel_source *source;
    const char *type; /* of the computation */
    int n_tensors, n_operands, last;
} reduction_printer;

static const char *dtype_of_input(const reduction_printer *p, int i) {
    return p->source->in[i] ? p->source->in[i] : p->type;
}
static const char *dtype_of_output(const reduction_printer *p, int i) {
    return p->source->out[i] ? p->source->out[i] : p->type;
}

static bool is_sum(const gd_kernel_source *s) {
    return s->reduces != GD_REDUCES_MAX && s->reduces != GD_REDUCES_MIN;
}

/* The arguments, with as many operands and parameters as the kernel has. pack_arguments writes the
 * same layout. */
static void print_arguments(const reduction_printer *p) {
    const int n_params = p->source->ir->n_params, n_scalars = p->source->n_scalars;
    fprintf(p->out,
            "struct gd_reduction_args {\n"
            "    const gd_cuda_word *word;\n"
            "    void *partial;\n"
            "    int64_t count, inner_count, part;\n"
            "    int32_t mode, width, parts, rank, inner_rank, unused;\n"
            "    int64_t dims[8];\n"
            "    gd_scalar_operand operand[%d];\n",
            p->n_operands);
    if (n_scalars) fprintf(p->out, "    const void *scalars[%d];\n", n_scalars);
    if (n_params) fprintf(p->out, "    gd_param params[%d];\n", n_params);
    fputs("};\n", p->out);
}

/* fold combines two values of the accumulator's type `s_acc`. */
static void print_fold(const reduction_printer *p) {
    const gd_kernel_source *s = p->source;
    const bool real = p->type[0] == 'f';
    fprintf(p->out, "typedef s_%s s_acc;\n", is_sum(s) && real ? "f64" : p->type);
    fputs("static __device__ __forceinline__ s_acc fold(s_acc x, s_acc y) { return ", p->out);
    if (is_sum(s) && real) fputs("x + y", p->out);
    else {
        const char *name = is_sum(s) ? "add" : s->reduces == GD_REDUCES_MAX ? "max" : "min";
        fprintf(p->out, p->dialect->primitive, name, p->type);
        fputs("(x, y)", p->out);
    }
    fputs("; }\n#define EMPTY ", p->out);
    if (is_sum(s)) fputs("0\n", p->out);
    else if (!real)
        fprintf(p->out, "%s_%s\n", s->reduces == GD_REDUCES_MAX ? "S_MIN" : "S_MAX", p->type);
    else
        fprintf(p->out, "(%s%s)\n", s->reduces == GD_REDUCES_MAX ? "-" : "",
                p->dialect->infinity[strcmp(p->type, "f64") == 0]);
}

static void print_params(const reduction_printer *p) {
    const char *type = p->type, *kind = type[0] == 'i' ? "integer" : "real";
    for (int i = 0; i < p->source->ir->n_params; i++) {
        fprintf(p->out, "    const s_%s p%d = ", type, i);
        if (i < p->source->n_scalars)
            fprintf(p->out, "s_load_%s_%s(a.scalars[%d], 0);\n",
                    dtype_of_input(p, p->n_tensors + i), type, i);
        else fprintf(p->out, "(s_%s)a.params[%d].%s;\n", type, i, kind);
    }
}

/* `element(j)` computes element j of the output whose offsets are in `base`. */
static void print_element(const reduction_printer *p) {
    fprintf(p->out,
            "    int64_t base[%d], at[%d];\n"
            "    auto begin_output = [&](int64_t i) {\n"
            "        #pragma unroll\n"
            "        for (int k = 0; k < %d; k++) base[k] = 0;\n"
            "        for (int d = a.rank; d-- > 0;) {\n"
            "            const int64_t x = d > 0 ? divide(&i, a.dims[d]) : i;\n"
            "            #pragma unroll\n"
            "            for (int k = 0; k < %d; k++) base[k] += x * a.operand[k].strides[d];\n"
            "        }\n"
            "    };\n"
            "    auto element = [&](int64_t j) -> s_acc {\n"
            "        #pragma unroll\n"
            "        for (int k = 0; k < %d; k++) at[k] = base[k];\n"
            "        for (int d = a.rank + a.inner_rank; d-- > a.rank;) {\n"
            "            const int64_t x = d > a.rank ? divide(&j, a.dims[d]) : j;\n"
            "            #pragma unroll\n"
            "            for (int k = 0; k < %d; k++) at[k] += x * a.operand[k].strides[d];\n"
            "        }\n",
            p->n_operands, p->n_operands, p->n_operands, p->n_operands, p->n_operands,
            p->n_operands);
    for (int i = 0; i < p->n_tensors; i++)
        fprintf(p->out, "        const s_%s v%d = s_load_%s_%s(a.operand[%d].data, at[%d]);\n",
                p->type, i, dtype_of_input(p, i), p->type, i, i);
    gd_cuda_host->codegen->print_statements(p->out, p->dialect, p->source->ir, p->type);
    for (int i = 0; i < p->last; i++)
        fprintf(p->out, "        if (!failed) s_store_%s_%s(a.operand[%d].data, at[%d], o%d);\n",
                p->type, dtype_of_output(p, i), p->n_tensors + i, p->n_tensors + i, i);
    fprintf(p->out, "        return (s_acc)o%d;\n    };\n", p->last);
}

/* `finish(i, x)` stores the result of output i. */
static void print_finish(const reduction_printer *p) {
    const int operand = p->n_tensors + p->last;
    fputs("    auto finish = [&](int64_t i, s_acc x) {\n        begin_output(i);\n", p->out);
    if (p->source->reduces == GD_REDUCES_MEAN)
        fputs("        x = x / (s_acc)a.inner_count;\n", p->out);
    fprintf(p->out,
            "        if (!failed) s_store_%s_%s(a.operand[%d].data, base[%d], (s_%s)x);\n    };\n",
            p->type, dtype_of_output(p, p->last), operand, operand, p->type);
}

static const char helpers[] =
    /* *i becomes the quotient; returns the remainder */
    "static __device__ __forceinline__ int64_t divide(int64_t *i, int64_t n) {\n"
    "    int64_t q;\n"
    "    if (((*i | n) >> 32) == 0) q = (uint32_t)*i / (uint32_t)n;\n"
    "    else q = *i / n;\n"
    "    const int64_t rest = *i - q * n;\n"
    "    *i = q;\n"
    "    return rest;\n"
    "}\n"
    /* how many blocks of a group have arrived; the last one sets it back to 0 */
    "static __device__ unsigned int arrivals[4096];\n"
    "static __device__ __forceinline__ s_acc fold_warp(s_acc x) {\n"
    "    for (int m = 16; m > 0; m >>= 1) x = fold(x, __shfl_xor_sync(0xffffffffu, x, m));\n"
    "    return x;\n"
    "}\n";

static const char body[] =
    "    __shared__ s_acc lanes[8][33];\n"
    "    __shared__ int last;\n"
    "    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;\n"
    "    const int64_t group = (int64_t)blockIdx.x / a.parts;\n"
    "    const int64_t k = (int64_t)blockIdx.x %(int64_t)a.parts, first = k * a.part;\n"
    "    const int64_t end = first + a.part < a.inner_count ? first + a.part : a.inner_count;\n"
    "    s_acc *partial = (s_acc *)a.partial;\n"
    "    s_acc x = EMPTY;\n"
    "    int64_t i;\n"
    "    bool stores;\n"
    "    if (a.mode == 0) {\n"
    "        const bool narrow = a.width == 32;\n"
    "        i = narrow ? group * 8 + warp : group;\n"
    "        if (i < a.count) {\n"
    "            begin_output(i);\n"
    "            #pragma unroll 4\n"
    "            for (int64_t j = first + (narrow ? lane : threadIdx.x); j < end; j += a.width)\n"
    "                x = fold(x, element(j));\n"
    "        }\n"
    "        x = fold_warp(x);\n"
    "        if (!narrow) {\n"
    "            if (lane == 0) lanes[0][warp] = x;\n"
    "            __syncthreads();\n"
    "            x = EMPTY;\n"
    "            for (int n = 0; n < 8; n++) x = fold(x, lanes[0][n]);\n"
    "        }\n"
    "        stores = i < a.count && (narrow ? lane : threadIdx.x) == 0;\n"
    "    } else {\n"
    "        i = group * 32 + lane;\n"
    "        if (i < a.count) {\n"
    "            begin_output(i);\n"
    "            #pragma unroll 4\n"
    "            for (int64_t j = first + warp; j < end; j += 8) x = fold(x, element(j));\n"
    "        }\n"
    "        lanes[warp][lane] = x;\n"
    "        __syncthreads();\n"
    "        stores = warp == 0 && i < a.count;\n"
    "        if (stores)\n"
    "            for (int n = 1; n < 8; n++) x = fold(x, lanes[n][lane]);\n"
    "    }\n"
    "    if (a.parts == 1) {\n"
    "        if (stores) finish(i, x);\n"
    "        return;\n"
    "    }\n"
    "    if (stores) partial[i * a.parts + k] = x;\n"
    "    __syncthreads();\n"
    "    if (threadIdx.x == 0) {\n" /* as in last_block.cuh */
    "        __threadfence();\n"
    "        last = atomicAdd(&arrivals[group], 1u) == (unsigned)a.parts - 1;\n"
    "        if (last) arrivals[group] = 0;\n"
    "        __threadfence();\n"
    "    }\n"
    "    __syncthreads();\n"
    "    if (!last) return;\n"
    "    const int outputs = a.mode == 0 ? 1 : 32;\n"
    "    for (int n = warp; n < outputs && group * outputs + n < a.count; n += 8) {\n"
    "        i = group * outputs + n;\n"
    "        x = EMPTY;\n"
    "        for (int m = lane; m < a.parts; m += 32)\n"
    "            x = fold(x, __ldcg(partial + i * a.parts + m));\n"
    "        x = fold_warp(x);\n"
    "        if (lane == 0) finish(i, x);\n"
    "    }\n"
    "}\n";

void gd_cuda_print_reduction(FILE *out, const gd_dialect *dialect, const gd_kernel_source *source,
                             const char *name) {
    const reduction_printer p = {.out = out,
                                 .dialect = dialect,
                                 .source = source,
                                 .type = source->type,
                                 .n_tensors = source->ir->n_vars,
                                 .n_operands = source->ir->n_vars + source->ir->n_outputs,
                                 .last = source->ir->n_outputs - 1};
    print_arguments(&p);
    print_fold(&p);
    fputs(helpers, out);
    fprintf(out,
            "extern \"C\" __global__ void __launch_bounds__(%d) %s(\n"
            "        const __grid_constant__ gd_reduction_args a) {\n"
            "    wait_for_previous_kernel();\n"
            "    const bool failed = a.word->number != 0;\n", /* loads need not wait for it */
            THREADS, name);
    print_params(&p);
    print_element(&p);
    print_finish(&p);
    fputs(body, out);
}

/* --- the call --------------------------------------------------------------------------------- */

typedef struct reduction_head {
    const void *word;
    void *partial;
    int64_t count, inner_count, part;
    int32_t mode, width, parts, rank, inner_rank, unused;
    int64_t dims[GD_SCALAR_RANK];
} reduction_head;

enum {
    MAX_ARGUMENTS = sizeof(reduction_head) + GD_SCALAR_OPERANDS * sizeof(gd_scalar_operand) +
                    GD_SCALAR_PARAMS * (sizeof(void *) + sizeof(gd_param)),
};

/* Whether adjacent outputs read adjacent elements, and those of one output are apart. */
static bool reads_columns(const gd_scalar_args *s, int n_tensors) {
    if (s->rank == 0 || s->inner_rank == 0) return false;
    int columns = 0, rows = 0;
    for (int k = 0; k < n_tensors; k++) {
        columns += s->operand[k].strides[s->rank - 1] == 1;
        rows += s->operand[k].strides[s->rank + s->inner_rank - 1] == 1;
    }
    return columns > rows;
}

/* Divides the work: a pure function of sizes and device. */
static void divide_work(const gd_cuda_state *device, const gd_scalar_args *s, int n_tensors,
                        reduction_head *h) {
    const int64_t processors =
        device->processors < MAX_GROUPS / 2 ? device->processors : MAX_GROUPS / 2;
    const int64_t wanted = 2 * processors; /* blocks; fewer groups are divided into parts */
    int64_t blocks, least;                 /* elements of a part */
    h->count = s->count;
    h->inner_count = s->inner_count;
    h->mode = reads_columns(s, n_tensors) ? COLUMNS : ROWS;
    h->width = WARP;
    if (h->mode == COLUMNS) {
        blocks = (s->count + WARP - 1) / WARP;
        least = 8 * LANES;
    } else {
        if (s->inner_count > 512 || s->count < LANES) h->width = THREADS;
        blocks = h->width == WARP ? wanted : s->count; /* a warp has all elements of its output */
        least = THREADS; /* an element for each thread: loads do not pass the stores of others */
    }
    int64_t parts = blocks > 0 ? (wanted + blocks - 1) / blocks : 1;
    if (parts > s->inner_count / least) parts = s->inner_count / least;
    if (parts < 1) parts = 1;
    h->part = (s->inner_count + parts - 1) / parts;
    h->parts = h->part > 0 ? (int32_t)((s->inner_count + h->part - 1) / h->part) : 1;
    if (h->parts < 1) h->parts = 1;
}

/* If all operands are contiguous, gd_scalar_args has no dims: gives it one outer and one inner dim. */
static void restore_dims(gd_scalar_args *s, int n_operands) {
    if (s->rank > 0 || s->inner_rank > 0) return;
    s->rank = s->inner_rank = 1;
    s->dims[0] = s->count;
    s->dims[1] = s->inner_count;
    for (int k = 0; k < n_operands; k++) {
        const bool reduced = k == n_operands - 1;
        s->operand[k].strides[0] = reduced ? 1 : s->inner_count;
        s->operand[k].strides[1] = reduced ? 0 : 1;
    }
}

static gd_status describe_call(const gd_kernel_call *call, gd_kernel_source *source,
                               gd_scalar_args *args, reduction_head *head) {
    if (!gd_cuda_host->codegen->source_of_call(call, source) || !source->ir)
        return gd_cuda_host->fail(GD_E_UNSUPPORTED, "%s has too many operands for %s",
                                  gd_cuda_host->op_name(call->op), call->device->name);
    const int n_tensors = source->ir->n_vars;
    gd_cuda_host->codegen->args_of_call(call, args);
    restore_dims(args, n_tensors + source->ir->n_outputs);
    memset(head, 0, sizeof *head);
    divide_work(gd_cuda_state_of(call->device), args, n_tensors, head);
    return GD_OK;
}

static bool match_reduction(const gd_kernel_call *call) {
    gd_kernel_source source;
    return gd_cuda_host->codegen->source_of_call(call, &source) && source.ir &&
           source.reduces != GD_REDUCES_NOTHING;
}

static gd_status prepare_reduction(const gd_kernel_call *call, void **prepared, size_t *workspace) {
    gd_kernel_source source;
    gd_scalar_args args;
    reduction_head head;
    gd_status status = describe_call(call, &source, &args, &head);
    if (status != GD_OK) return status;
    *prepared = gd_cuda_compile_source(call->device, &source);
    if (!*prepared) return GD_E_DEVICE;
    *workspace = head.parts > 1 ? (size_t)(head.count * head.parts) * 8 : 0;
    return GD_OK;
}

/* Writes the struct gd_reduction_args of the text. */
static void pack_arguments(const gd_kernel_source *source, const gd_scalar_args *s,
                           const reduction_head *head, char *at) {
    const size_t operands =
        (size_t)(source->ir->n_vars + source->ir->n_outputs) * sizeof *s->operand;
    memcpy(at, head, sizeof *head);
    memcpy(at += sizeof *head, s->operand, operands);
    const size_t scalars = (size_t)source->n_scalars * sizeof *s->scalars;
    memcpy(at += operands, s->scalars, scalars);
    memcpy(at + scalars, s->params, (size_t)source->ir->n_params * sizeof *s->params);
}

static gd_status run_reduction(gd_kernel_call *call) {
    gd_kernel_source source;
    gd_scalar_args args;
    reduction_head head;
    _Alignas(16) char arguments[MAX_ARGUMENTS];
    gd_status status = gd_cuda_enter_context(call->device);
    if (status == GD_OK) status = describe_call(call, &source, &args, &head);
    if (status != GD_OK || args.count == 0) return status;
    head.word = gd_cuda_state_of(call->device)->word;
    head.partial = call->workspace;
    head.rank = args.rank;
    head.inner_rank = args.inner_rank;
    memcpy(head.dims, args.dims, sizeof head.dims);
    pack_arguments(&source, &args, &head, arguments);
    const int64_t groups = head.mode == COLUMNS ? (head.count + WARP - 1) / WARP
                           : head.width == WARP ? (head.count + LANES - 1) / LANES
                                                : head.count;
    return gd_cuda_launch_loaded(call->device, (CUfunction)call->prepared, groups * head.parts,
                                 THREADS, 0, gd_cuda_state_of(call->device)->capability >= 90,
                                 arguments);
}

static void describe_reduction(const gd_kernel_call *call, char *text, size_t size) {
    gd_kernel_source source;
    gd_scalar_args args;
    reduction_head h;
    if (describe_call(call, &source, &args, &h) != GD_OK) return;
    snprintf(text, size, "%s, %d part%s",
             h.mode == COLUMNS ? "a thread for each column"
             : h.width == WARP ? "a warp for each row"
                               : "a block for each row",
             (int)h.parts, h.parts == 1 ? "" : "s");
}

/*kernel fused_reduction.blocks  rank 20  checked  run run_reduction  match match_reduction
 *        prepare prepare_reduction  describe describe_reduction
 * A sum, mean, max or min of an expression, compiled by NVRTC.
 */

#include "backend/cuda/fused_reduction.gen.h"
