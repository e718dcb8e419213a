/* conv.c - see conv.h. Kernels for all dtypes, strides and options: direct and gemm. */
#include <stdio.h>

#include "ops/conv/cuda/conv.h"

/* --- kernels of conv.cu ----------------------------------------------------------------------- */

#define KERNELS(name) GD_CUDA_FLOAT_KERNELS("conv/conv", "gd_convolve_" name, "", 0)
#define F32_KERNEL(name) \
    { [GD_CUDA_IN_F32] = GD_CUDA_KERNEL("conv/conv", "gd_convolve_" name "_f32") }
/* By tile, divisors other than 1, and dtype. Wide and large tiles are for f32 only. */
static gd_cuda_kernel kernels[][2][GD_CUDA_FLOATS] = {
    {KERNELS("few"), KERNELS("few_divided")},
    {KERNELS("middle"), KERNELS("middle_divided")},
    {F32_KERNEL("wide"), F32_KERNEL("wide_divided")},
    {F32_KERNEL("large"), F32_KERNEL("large_divided")}};
static gd_cuda_kernel direct[2][GD_CUDA_FLOATS] = {KERNELS("direct"), KERNELS("direct_divided")},
                      direct_sums[] = KERNELS("direct_sum"), epilogues[] = KERNELS("epilogue"),
                      parts_kernels[] = KERNELS("parts");
#undef KERNELS
#undef F32_KERNEL
/* For integers, and positions of 64 bits: the product, and the sum of its parts. */
static gd_cuda_kernel any_kernels[] = {GD_CUDA_KERNEL("conv/conv", "gd_convolve_any_integer"),
                                       GD_CUDA_KERNEL("conv/conv", "gd_convolve_any_real")},
                      any_parts_kernels[] = {
                          GD_CUDA_KERNEL("conv/conv", "gd_convolve_parts_any_integer"),
                          GD_CUDA_KERNEL("conv/conv", "gd_convolve_parts_any_real")};

enum { MAX_BLOCKS = 1 << 20 }; /* blocks loop over the rest */

/* --- elements without tiles ------------------------------------------------------------------- */

/* Tiles would be almost empty for few rows. */
typedef enum {
    DIRECT_NOT,
    DIRECT_ELEMENTS, /* a thread for each element */
    DIRECT_SUMS,     /* a block for each element */
} direct_way;

static direct_way choose_direct_way(const gd_cuda_conv_problem *q, const gd_cuda_conv_sizes *s) {
    enum { FEW_ROWS = 4, FEW_PRODUCTS = 512, FEW_COLUMNS = 64, FEW_ELEMENTS = 65536 };
    if (s->m > FEW_ROWS) return DIRECT_NOT;
    if (s->k <= FEW_PRODUCTS) return DIRECT_ELEMENTS;
    return s->n <= FEW_COLUMNS && q->groups * s->m * s->n <= FEW_ELEMENTS && q->groups > 1 &&
                   !s->divides
               ? DIRECT_SUMS
               : DIRECT_NOT;
}

bool gd_cuda_conv_is_direct(const gd_cuda_conv_problem *q, const gd_cuda_conv_sizes *s) {
    return choose_direct_way(q, s) != DIRECT_NOT;
}

static direct_way direct_way_of(const gd_kernel_call *call) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    const gd_cuda_conv_sizes s = gd_cuda_conv_sizes_of(&q);
    const direct_way way = choose_direct_way(&q, &s);
    return way != DIRECT_NOT && gd_cuda_conv_is_common(&q) ? way : DIRECT_NOT;
}

/*kernel conv{1,2,3}d.direct, conv_transpose{1,2,3}d.direct, conv_forward.direct, conv_relu.direct,
 *        conv_grad_input.direct, conv_grad_weight.direct  rank 12  dtypes f16 bf16 f32 f64  checked
 *        run run_direct  match match_direct  describe describe_direct
 * Few channels of a group, as in depthwise convolutions: a thread or a block computes an element.
 */
static bool match_direct(const gd_kernel_call *call) { return direct_way_of(call) != DIRECT_NOT; }

static gd_status run_direct(gd_kernel_call *call) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    const gd_cuda_conv_sizes s = gd_cuda_conv_sizes_of(&q);
    gd_cuda_conv p = gd_cuda_conv_product_of(&q);
    p.call = gd_cuda_call_of(call);
    const long long elements = p.groups * p.m * p.n;
    const int number = gd_cuda_float_number(q.dtype);
    if (elements == 0) return GD_OK;
    return choose_direct_way(&q, &s) == DIRECT_SUMS
               ? gd_cuda_launch(call->device, &direct_sums[number],
                                elements < MAX_BLOCKS ? elements : MAX_BLOCKS,
                                GD_CUDA_CONV_ELEMENT_THREADS, &p)
               : gd_cuda_launch_each(call->device, &direct[s.divides][number], elements, &p);
}

static void describe_direct(const gd_kernel_call *call, char *text, size_t size) {
    snprintf(text, size, "a %s for each element",
             direct_way_of(call) == DIRECT_SUMS ? "block" : "thread");
}

/* --- implicit GEMM ---------------------------------------------------------------------------- */

enum {
    DEPTH = GD_CUDA_CONV_DEPTH,
    LEAST_CHUNK = 128, /* of k, in one part */
};

typedef enum { TILE_FEW, TILE_MIDDLE, TILE_WIDE, TILE_LARGE } tile_number;
static const struct {
    int rows, columns, threads;
} tiles[] = {
#define TILE(name, rows, columns, threads, blocks) {rows, columns, threads},
    GD_CUDA_CONV_TILES(TILE)
#undef TILE
};

/* How a product is divided into blocks. */
typedef struct division {
    bool any; /* integers, or positions of 64 bits: a kernel for any dtype runs */
    tile_number tile;
    long long parts, chunk; /* of k */
} division;

static long long count_tiles(const gd_cuda_conv_problem *q, const gd_cuda_conv_sizes *s,
                             tile_number tile) {
    return (s->m + tiles[tile].rows - 1) / tiles[tile].rows *
           ((s->n + tiles[tile].columns - 1) / tiles[tile].columns) * q->groups;
}

/* The part of a tile's rows that are rows of the product. */
static double used_rows(const gd_cuda_conv_sizes *s, tile_number tile) {
    const int rows = tiles[tile].rows;
    return (double)s->m / (double)((s->m + rows - 1) / rows * rows);
}

/* The largest tile whose blocks keep a device busy, and that wastes little. */
static tile_number choose_tile(const gd_cuda_conv_problem *q, const gd_cuda_conv_sizes *s) {
    const double wasteful = 0.8;
    if (used_rows(s, TILE_MIDDLE) < wasteful * used_rows(s, TILE_FEW)) return TILE_FEW;
    if (q->dtype != GD_F32) return TILE_MIDDLE;
    const long long parts = s->k / 1024 > 1 ? s->k / 1024 : 1;
    if (used_rows(s, TILE_LARGE) >= wasteful &&
        count_tiles(q, s, TILE_LARGE) * parts >= GD_CUDA_PROCESSORS)
        return TILE_LARGE;
    return count_tiles(q, s, TILE_WIDE) * parts >= 2 * GD_CUDA_PROCESSORS ? TILE_WIDE : TILE_MIDDLE;
}

/* The number of parts depends on the shape alone, so that all devices add in the same order. */
static division divide_product(const gd_cuda_conv_problem *q, const gd_cuda_conv_sizes *s) {
    division d = {.any = !gd_cuda_conv_is_common(q), .tile = TILE_MIDDLE, .parts = 1};
    if (!d.any) d.tile = choose_tile(q, s);
    const long long count = count_tiles(q, s, d.tile),
                    enough = GD_CUDA_ENOUGH_THREADS / tiles[d.tile].threads;
    if (count > 0 && count < enough) {
        const long long most = s->k / LEAST_CHUNK;
        d.parts = enough / count;
        if (d.parts > most) d.parts = most > 1 ? most : 1;
    }
    d.chunk = ((s->k + d.parts - 1) / d.parts + DEPTH - 1) / DEPTH * DEPTH;
    if (d.chunk > 0) d.parts = (s->k + d.chunk - 1) / d.chunk; /* none is empty */
    return d;
}

/*kernel conv{1,2,3}d.gemm, conv_transpose{1,2,3}d.gemm, conv_forward.gemm, conv_relu.gemm,
 *        conv_grad_input.gemm, conv_grad_weight.gemm  rank 10  checked  run run_gemm
 *        workspace gemm_workspace  describe describe_gemm
 * Any problem, as a product of matrices whose second one is gathered from the images.
 */
static size_t gemm_workspace(const gd_kernel_call *call) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    const gd_cuda_conv_sizes s = gd_cuda_conv_sizes_of(&q);
    const division d = divide_product(&q, &s);
    const size_t sum_bytes = d.any || q.dtype == GD_F64 ? 8 : 4;
    return d.parts > 1 ? (size_t)(d.parts * q.groups * s.m * s.n) * sum_bytes : 0;
}

static gd_status run_gemm(gd_kernel_call *call) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    const gd_cuda_conv_sizes s = gd_cuda_conv_sizes_of(&q);
    const division d = divide_product(&q, &s);
    const long long blocks = count_tiles(&q, &s, d.tile) * d.parts;
    if (blocks == 0) return GD_OK;
    gd_cuda_conv p = gd_cuda_conv_product_of(&q);
    p.call = gd_cuda_call_of(call);
    p.any = d.any;
    p.parts = d.parts;
    p.chunk = d.chunk;
    p.partials = call->workspace;
    const int number = gd_cuda_float_number(q.dtype), real = gd_cuda_is_float(q.dtype);
    gd_cuda_kernel *kernel = d.any ? &any_kernels[real] : &kernels[d.tile][s.divides][number],
                   *parts = d.any ? &any_parts_kernels[real] : &parts_kernels[number];
    gd_status status = gd_cuda_launch(
        call->device, kernel, blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS, tiles[d.tile].threads, &p);
    if (status == GD_OK && p.parts > 1) {
        const long long sums =
            (p.groups * p.m * p.n + GD_CUDA_CONV_PART_ELEMENTS - 1) / GD_CUDA_CONV_PART_ELEMENTS;
        status = gd_cuda_launch(call->device, parts, sums < MAX_BLOCKS ? sums : MAX_BLOCKS,
                                GD_CUDA_CONV_PART_ELEMENTS * GD_CUDA_CONV_PART_THREADS, &p);
    }
    return status;
}

static void describe_gemm(const gd_kernel_call *call, char *text, size_t size) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    const gd_cuda_conv_sizes s = gd_cuda_conv_sizes_of(&q);
    const division d = divide_product(&q, &s);
    snprintf(text, size, "tiles %dx%d, %lld part%s%s", tiles[d.tile].rows, tiles[d.tile].columns,
             d.parts, d.parts == 1 ? "" : "s", d.any ? ", any dtype" : "");
}

/* --- bias and relu ---------------------------------------------------------------------------- */

gd_status gd_cuda_conv_epilogue(const gd_kernel_call *call, const gd_cuda_conv_problem *q,
                                const gd_cuda_conv_operand *result) {
    const long long positions = gd_cuda_conv_positions(result);
    const bool channels_last = positions > 1 && result->strides[1] == 1 && result->dims[1] > 1;
    const gd_cuda_conv_epilogue_args p = {
        .call = gd_cuda_call_of(call),
        .y = result->data,
        .count = result->dims[0] * result->dims[1] * positions,
        .inner = channels_last ? 1 : positions,
        .channels = result->dims[1],
        .bias = q->bias ? q->bias->data : NULL,
        .bias_stride = q->bias ? q->bias->strides[0] : 0,
        .relu = q->relu,
    };
    const long long together = 16 / (long long)gd_cuda_element_size(q->dtype);
    return gd_cuda_launch_each(call->device, &epilogues[gd_cuda_float_number(q->dtype)],
                               (p.count + together - 1) / together, &p);
}

#include "ops/conv/cuda/conv.gen.h"
