/* conv.c - see conv.h. Kernels for all floats, strides and options. */
#include "ops/conv/cuda/conv.h"

#include <stdlib.h>
#include <string.h>

#include "ops/conv/cuda/conv_image.h"
#include "ops/conv/cuda/conv_tiled.h"
#include "ops/conv/cuda/conv_args.h"
#include "gradus/ops.h"

enum { AXES = GD_CUDA_AXES };

/* --- problems --------------------------------------------------------------------------------- */

gd_cuda_conv_direction gd_cuda_conv_direction_of(const gd_op *op) {
    const char *name = gd_cuda_host->op_name(op);
    if (strncmp(name, "conv_grad_weight", 16) == 0) return GD_CUDA_CONV_WEIGHT;
    return strcmp(name, "conv_grad_input") == 0 || strncmp(name, "conv_transpose", 14) == 0
               ? GD_CUDA_CONV_INPUT
               : GD_CUDA_CONV_OUTPUT;
}

/* A view as an operand. `without_batch`: its first dim is missing. */
static gd_cuda_conv_operand operand_of(const gd_view *v, bool without_batch, int axes) {
    gd_cuda_conv_operand o = {.data = v->data, .dims = {1, 1, 1, 1, 1}};
    for (int d = 0; d < v->rank; d++) {
        const int leading = v->rank - axes, /* dims before the spatial axes */
            to = d < leading ? d + without_batch : 2 + AXES - v->rank + d;
        o.dims[to] = v->dims[d];
        o.strides[to] = v->strides[d];
    }
    return o;
}

/* Reads the options by the names in the op's record. Lists begin with their numbers. */
static void read_options(const gd_kernel_call *call, gd_cuda_conv_problem *p) {
    gd_word pad_mode = GD_EXPLICIT;
    const gd_op_attr *a;
    for (int i = 0; (a = gd_cuda_host->op_attr_at(call->op, i)); i++) {
        const void *field = (const char *)call->attrs + a->offset;
        int64_t *to = NULL;
        if (strcmp(a->name, "groups") == 0) p->groups = *(const int64_t *)field;
        else if (strcmp(a->name, "pad_mode") == 0) pad_mode = *(const gd_word *)field;
        else if (strcmp(a->name, "stride") == 0) to = p->stride;
        else if (strcmp(a->name, "padding") == 0) to = p->before;
        else if (strcmp(a->name, "dilation") == 0) to = p->dilation;
        if (to) memcpy(to + AXES - p->axes, field, (size_t)p->axes * sizeof *to);
    }
    for (int i = 0; pad_mode == GD_SAME && i < AXES; i++)
        p->before[i] = p->dilation[i] * (p->w.dims[2 + i] - 1) / 2;
}

gd_cuda_conv_problem gd_cuda_conv_problem_of(const gd_kernel_call *call) {
    gd_cuda_conv_problem p = {.direction = gd_cuda_conv_direction_of(call->op),
                              .dtype = call->out[0].dtype,
                              .stride = {1, 1, 1},
                              .dilation = {1, 1, 1}};
    const gd_view *result = &call->out[0];
    const gd_view *x = p.direction == GD_CUDA_CONV_INPUT ? result : &call->in[0],
                  *w = p.direction == GD_CUDA_CONV_WEIGHT ? result : &call->in[1],
                  *y = p.direction == GD_CUDA_CONV_OUTPUT  ? result
                       : p.direction == GD_CUDA_CONV_INPUT ? &call->in[0]
                                                           : &call->in[1];
    p.axes = w->rank - 2;
    p.x = operand_of(x, x->rank == p.axes + 1, p.axes);
    p.w = operand_of(w, false, p.axes);
    p.y = operand_of(y, y->rank == p.axes + 1, p.axes);
    read_options(call, &p);
    p.ci = p.w.dims[1];
    p.co = p.w.dims[0] / p.groups;
    for (int a = 0; a < AXES; a++) { /* steps do not matter if there is only one window or tap */
        if (p.y.dims[2 + a] == 1) p.stride[a] = 1;
        if (p.w.dims[2 + a] == 1) p.dilation[a] = 1;
    }
    if (call->n_in > 2 && call->in[2].data) p.bias = &call->in[2];
    p.relu = strcmp(gd_cuda_host->op_name(call->op), "conv_relu") == 0;
    return p;
}

/* --- the product ------------------------------------------------------------------------------ */

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

/* The index over images or channels and the positions of an operand, or its taps. */
static gd_cuda_conv_index index_of(const gd_cuda_conv_operand *o) {
    gd_cuda_conv_index index = {.step = {1, 1, 1}};
    for (int a = 0; a < AXES; a++) index.size[a] = o->dims[2 + a];
    return index;
}

static int64_t count_positions(const gd_cuda_conv_operand *o) {
    return o->dims[2] * o->dims[3] * o->dims[4];
}

static void copy_axes(long long *to, const int64_t *from) {
    for (int a = 0; a < AXES; a++) to[a] = from[a];
}

static void set_gathered(gd_cuda_conv *p, const gd_cuda_conv_operand *o, int64_t group_channels) {
    p->b = o->data;
    p->b_group = group_channels * o->strides[1];
    copy_axes(p->b_axis, o->strides + 2);
    for (int a = 0; a < AXES; a++) p->b_size[a] = o->dims[2 + a], p->divisor[a] = 1;
}

/* y: the columns are the positions of y, the sums run over channels of x and taps. */
static void set_output_product(const gd_cuda_conv_problem *q, gd_cuda_conv *p) {
    p->m = q->co;
    p->n = q->y.dims[0] * count_positions(&q->y);
    p->k = q->ci * count_positions(&q->w);
    p->column = index_of(&q->y);
    p->column.stride = q->x.strides[0];
    p->depth = index_of(&q->w);
    p->depth.stride = q->x.strides[1];
    for (int a = 0; a < AXES; a++) {
        p->column.step[a] = q->stride[a];
        p->column.first[a] = -q->before[a];
        p->depth.step[a] = q->dilation[a];
    }
    p->a = q->w.data;
    p->a_group = q->co * q->w.strides[0];
    p->a_row = q->w.strides[0];
    p->a_major = q->w.strides[1];
    copy_axes(p->a_axis, q->w.strides + 2);
    set_gathered(p, &q->x, q->ci);
    p->out = q->y.data;
    p->out_group = q->co * q->y.strides[1];
    p->out_row = q->y.strides[1];
    p->out_major = q->y.strides[0];
    copy_axes(p->out_axis, q->y.strides + 2);
}

/* x: the columns are the positions of x, the sums run over channels of y and taps. */
static void set_input_product(const gd_cuda_conv_problem *q, gd_cuda_conv *p) {
    p->m = q->ci;
    p->n = q->x.dims[0] * count_positions(&q->x);
    p->k = q->co * count_positions(&q->w);
    p->column = index_of(&q->x);
    p->column.stride = q->y.strides[0];
    p->depth = index_of(&q->w);
    p->depth.stride = q->y.strides[1];
    set_gathered(p, &q->y, q->co);
    for (int a = 0; a < AXES; a++) {
        p->column.first[a] = q->before[a];
        p->depth.step[a] = -q->dilation[a];
        p->divisor[a] = q->stride[a];
    }
    p->a = q->w.data;
    p->a_group = q->co * q->w.strides[0];
    p->a_row = q->w.strides[1];
    p->a_major = q->w.strides[0];
    copy_axes(p->a_axis, q->w.strides + 2);
    p->out = q->x.data;
    p->out_group = q->ci * q->x.strides[1];
    p->out_row = q->x.strides[1];
    p->out_major = q->x.strides[0];
    copy_axes(p->out_axis, q->x.strides + 2);
}

/* w: the columns are channels of x and taps, the sums run over the positions of y. */
static void set_weight_product(const gd_cuda_conv_problem *q, gd_cuda_conv *p) {
    p->m = q->co;
    p->n = q->ci * count_positions(&q->w);
    p->k = q->y.dims[0] * count_positions(&q->y);
    p->column = index_of(&q->w);
    p->column.stride = q->x.strides[1];
    p->depth = index_of(&q->y);
    p->depth.stride = q->x.strides[0];
    for (int a = 0; a < AXES; a++) {
        p->column.step[a] = q->dilation[a];
        p->depth.step[a] = q->stride[a];
        p->depth.first[a] = -q->before[a];
    }
    p->a = q->y.data;
    p->a_group = q->co * q->y.strides[1];
    p->a_row = q->y.strides[1];
    p->a_major = q->y.strides[0];
    copy_axes(p->a_axis, q->y.strides + 2);
    set_gathered(p, &q->x, q->ci);
    p->out = q->w.data;
    p->out_group = q->co * q->w.strides[0];
    p->out_row = q->w.strides[0];
    p->out_major = q->w.strides[1];
    copy_axes(p->out_axis, q->w.strides + 2);
}

static long long count_tiles(const gd_cuda_conv *p, tile_number tile) {
    return (p->m + tiles[tile].rows - 1) / tiles[tile].rows *
           ((p->n + tiles[tile].columns - 1) / tiles[tile].columns) * p->groups;
}

/* The part of a tile's rows that are rows of the product. */
static double used_rows(const gd_cuda_conv *p, tile_number tile) {
    const int rows = tiles[tile].rows;
    return (double)p->m / (double)((p->m + rows - 1) / rows * rows);
}

/* The largest tile whose blocks keep a device busy, and that wastes little. */
static tile_number choose_tile(const gd_cuda_conv *p) {
    const double wasteful = 0.8;
    if (p->any) return TILE_MIDDLE;
    if (used_rows(p, TILE_MIDDLE) < wasteful * used_rows(p, TILE_FEW)) return TILE_FEW;
    if (p->dtype != GD_F32) return TILE_MIDDLE;
    const long long parts = p->k / 1024 > 1 ? p->k / 1024 : 1;
    if (used_rows(p, TILE_LARGE) >= wasteful &&
        count_tiles(p, TILE_LARGE) * parts >= GD_CUDA_PROCESSORS)
        return TILE_LARGE;
    return count_tiles(p, TILE_WIDE) * parts >= 2 * GD_CUDA_PROCESSORS ? TILE_WIDE : TILE_MIDDLE;
}

/* How a product is computed without tiles, which few rows would leave almost empty. */
typedef enum {
    DIRECT_NOT,      /* by tiles */
    DIRECT_ELEMENTS, /* a thread for each element */
    DIRECT_SUMS,     /* a block for each element */
} direct_way;
static direct_way choose_direct_way(const gd_cuda_conv *p) {
    enum { FEW_ROWS = 4, FEW_PRODUCTS = 512, FEW_COLUMNS = 64, FEW_ELEMENTS = 65536 };
    if (p->any || p->m > FEW_ROWS) return DIRECT_NOT;
    if (p->k <= FEW_PRODUCTS) return DIRECT_ELEMENTS;
    const bool divides = p->divisor[0] > 1 || p->divisor[1] > 1 || p->divisor[2] > 1;
    return p->n <= FEW_COLUMNS && p->groups * p->m * p->n <= FEW_ELEMENTS && p->groups > 1 &&
                   !divides
               ? DIRECT_SUMS
               : DIRECT_NOT;
}

/* The number of parts depends on the shape alone, so that all devices add in the same order. */
static void divide_depth(gd_cuda_conv *p, tile_number tile) {
    const long long count = count_tiles(p, tile),
                    enough = GD_CUDA_ENOUGH_THREADS / tiles[tile].threads;
    p->parts = 1;
    if (count > 0 && count < enough && choose_direct_way(p) == DIRECT_NOT) {
        const long long most = p->k / LEAST_CHUNK;
        p->parts = enough / count;
        if (p->parts > most) p->parts = most > 1 ? most : 1;
    }
    p->chunk = ((p->k + p->parts - 1) / p->parts + DEPTH - 1) / DEPTH * DEPTH;
    if (p->chunk > 0) p->parts = (p->k + p->chunk - 1) / p->chunk; /* none is empty */
}

/* Whether the offsets of all elements of an operand fit into 32 bits. */
static bool offsets_fit(const gd_cuda_conv_operand *o) {
    const int64_t limit = INT32_MAX / 2;
    int64_t most = 0;
    for (int d = 0; d < 2 + AXES; d++) {
        const int64_t stride = llabs(o->strides[d]);
        if (o->dims[d] > limit) return false;
        if (o->dims[d] < 2) continue;
        if (stride > limit) return false;
        most += (o->dims[d] - 1) * stride;
        if (most > limit) return false;
    }
    return true;
}

/* Whether all sizes, positions in x and beyond its borders, and offsets fit into 32 bits. */
static bool positions_fit(const gd_cuda_conv_problem *q) {
    const int64_t limit = 1 << 29;
    if (!offsets_fit(&q->x) || !offsets_fit(&q->w) || !offsets_fit(&q->y)) return false;
    for (int a = 0; a < AXES; a++)
        if (q->x.dims[2 + a] > limit || q->y.dims[2 + a] > limit || q->before[a] > limit ||
            q->w.dims[2 + a] > limit || q->stride[a] > limit || q->dilation[a] > limit ||
            q->y.dims[2 + a] * q->stride[a] > limit || q->w.dims[2 + a] * q->dilation[a] > limit)
            return false;
    return true;
}

/* The exponent if n is a power of two, otherwise -1. */
static int exponent_of(long long n) {
    int exponent = 0;
    while (1ll << exponent < n) exponent++;
    return 1ll << exponent == n ? exponent : -1;
}

static gd_cuda_conv product_of(const gd_cuda_conv_problem *q) {
    gd_cuda_conv p = {.dtype = (int)q->dtype,
                      .any = !gd_cuda_is_float(q->dtype) || !positions_fit(q),
                      .groups = q->groups,
                      .relu = q->relu};
    if (q->bias) {
        p.bias = q->bias->data;
        p.bias_stride = q->bias->strides[0];
    }
    if (q->direction == GD_CUDA_CONV_OUTPUT) set_output_product(q, &p);
    else if (q->direction == GD_CUDA_CONV_INPUT) set_input_product(q, &p);
    else set_weight_product(q, &p);
    const int last = p.depth.size[2] > 1 ? 2 : p.depth.size[1] > 1 ? 1 : 0; /* varies fastest */
    const long long step = p.depth.size[last] > 1 ? p.a_axis[last] : p.a_major;
    p.a_by_depth = llabs(step) < llabs(p.a_row);
    p.has_depth_axis = q->axes == AXES;
    for (int a = 0; a < AXES; a++) p.shifts[a] = exponent_of(p.divisor[a]);
    divide_depth(&p, choose_tile(&p));
    return p;
}

/* --- the kernels ------------------------------------------------------------------------------ */

bool gd_cuda_conv_is_common(const gd_kernel_call *call) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    return gd_cuda_is_float(q.dtype) && positions_fit(&q);
}

#define DTYPE_KERNELS(prefix)                                          \
    {                                                                  \
        GD_CUDA_KERNEL("conv/conv", "gd_convolve_" prefix "f32"),      \
            GD_CUDA_KERNEL("conv/conv", "gd_convolve_" prefix "f16"),  \
            GD_CUDA_KERNEL("conv/conv", "gd_convolve_" prefix "bf16"), \
            GD_CUDA_KERNEL("conv/conv", "gd_convolve_" prefix "f64"),  \
    }
/* By tile, divisors other than 1, and dtype. Large tiles are for f32 only. */
static gd_cuda_kernel
    kernels[][2][4] = {{DTYPE_KERNELS("few_"), DTYPE_KERNELS("few_divided_")},
                       {DTYPE_KERNELS("middle_"), DTYPE_KERNELS("middle_divided_")},
                       {{GD_CUDA_KERNEL("conv/conv", "gd_convolve_wide_f32")},
                        {GD_CUDA_KERNEL("conv/conv", "gd_convolve_wide_divided_f32")}},
                       {{GD_CUDA_KERNEL("conv/conv", "gd_convolve_large_f32")},
                        {GD_CUDA_KERNEL("conv/conv", "gd_convolve_large_divided_f32")}}},
    any_real = GD_CUDA_KERNEL("conv/conv", "gd_convolve_any_real"),
    any_integer = GD_CUDA_KERNEL("conv/conv", "gd_convolve_any_integer"),
    direct[2][4] = {DTYPE_KERNELS("direct_"), DTYPE_KERNELS("direct_divided_")},
    direct_sums[] = DTYPE_KERNELS("direct_sum_"), epilogues[] = DTYPE_KERNELS("epilogue_"),
    parts_kernels[] = {GD_CUDA_KERNEL("conv/conv", "gd_convolve_parts_f32"),
                       GD_CUDA_KERNEL("conv/conv", "gd_convolve_parts_f16"),
                       GD_CUDA_KERNEL("conv/conv", "gd_convolve_parts_bf16"),
                       GD_CUDA_KERNEL("conv/conv", "gd_convolve_parts_f64"),
                       GD_CUDA_KERNEL("conv/conv", "gd_convolve_parts_any_real"),
                       GD_CUDA_KERNEL("conv/conv", "gd_convolve_parts_any_integer")};
#undef DTYPE_KERNELS
enum { KERNEL_F32, KERNEL_F16, KERNEL_BF16, KERNEL_F64, KERNEL_ANY_REAL, KERNEL_ANY_INTEGER };

/* The number of a dtype's kernel in the arrays of this file. */
static int dtype_kernel(gd_dtype dtype) {
    return dtype == GD_F32    ? KERNEL_F32
           : dtype == GD_F16  ? KERNEL_F16
           : dtype == GD_BF16 ? KERNEL_BF16
                              : KERNEL_F64;
}
static int product_kernel(const gd_cuda_conv *p) {
    return !p->any                                ? dtype_kernel((gd_dtype)p->dtype)
           : gd_cuda_is_float((gd_dtype)p->dtype) ? KERNEL_ANY_REAL
                                                  : KERNEL_ANY_INTEGER;
}

int64_t gd_cuda_conv_products(const gd_kernel_call *call) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    return q.y.dims[0] * q.y.dims[1] * count_positions(&q.y) * q.ci * count_positions(&q.w);
}

/* Tiles are faster than the computation of single elements even if they use few of their rows. */
static bool is_tiled(const gd_cuda_conv_problem *q, const gd_cuda_conv *p) {
    return gd_cuda_conv_is_tiled(q, p) &&
           (choose_direct_way(p) == DIRECT_NOT || (p->groups == 1 && p->m > 1));
}

/* The gradient of the bias, which is the sum of each row of gy. */
static const gd_view *row_sums_of(const gd_kernel_call *call) {
    return call->n_out > 1 ? &call->out[1] : NULL;
}

/* Where cuDNN computes the gradient of the weight faster, the two gradients stay apart. */
static bool match_weight_bias(const gd_kernel_call *call) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    const gd_cuda_conv p = product_of(&q);
    return is_tiled(&q, &p) && gd_cuda_count(&call->out[1]) > 0 &&
           (!gd_cuda_tf32(call) || gd_cuda_conv_products(call) < GD_CUDA_CONV_MANY_PRODUCTS) &&
           gd_cuda_conv_joins_sums(call->device, &q, &p, row_sums_of(call));
}

size_t gd_cuda_conv_workspace(const gd_kernel_call *call) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    const gd_cuda_conv p = product_of(&q);
    if (is_tiled(&q, &p))
        return gd_cuda_conv_tiled_workspace(call->device, &q, &p, row_sums_of(call));
    return p.parts > 1 ? (size_t)(p.parts * p.groups * p.m * p.n) *
                             (product_kernel(&p) < KERNEL_F64 ? 4 : 8)
                       : 0;
}

enum { MAX_BLOCKS = 1 << 20 }; /* blocks loop over the rest */

static gd_status run_direct(const gd_kernel_call *call, const gd_cuda_conv *p, direct_way way,
                            bool divides) {
    const long long elements = p->groups * p->m * p->n;
    const int number = product_kernel(p);
    return way == DIRECT_SUMS
               ? gd_cuda_launch(call->device, &direct_sums[number],
                                elements < MAX_BLOCKS ? elements : MAX_BLOCKS,
                                GD_CUDA_CONV_ELEMENT_THREADS, p)
               : gd_cuda_launch_each(call->device, &direct[divides][number], elements, p);
}

gd_status gd_cuda_conv_run(gd_kernel_call *call) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    gd_cuda_conv p = product_of(&q);
    p.call = gd_cuda_call_of(call);
    p.partials = call->workspace;
    const bool divides = p.divisor[0] > 1 || p.divisor[1] > 1 || p.divisor[2] > 1;
    const int number = product_kernel(&p);
    const tile_number tile = choose_tile(&p);
    const long long blocks = count_tiles(&p, tile) * p.parts;
    if (blocks == 0) return GD_OK;
    if (!p.any && gd_cuda_conv_is_of_images(&q)) return gd_cuda_conv_run_images(call, &q);
    if (is_tiled(&q, &p)) return gd_cuda_conv_run_tiled(call, &q, &p, row_sums_of(call));
    const direct_way way = choose_direct_way(&p);
    if (way != DIRECT_NOT) return run_direct(call, &p, way, divides);
    gd_cuda_kernel *kernel = number == KERNEL_ANY_REAL      ? &any_real
                             : number == KERNEL_ANY_INTEGER ? &any_integer
                                                            : &kernels[tile][divides][number];
    gd_status status = gd_cuda_launch(
        call->device, kernel, blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS, tiles[tile].threads, &p);
    if (status == GD_OK && p.parts > 1) {
        const long long sums =
            (p.groups * p.m * p.n + GD_CUDA_CONV_PART_ELEMENTS - 1) / GD_CUDA_CONV_PART_ELEMENTS;
        status = gd_cuda_launch(call->device, &parts_kernels[number],
                                sums < MAX_BLOCKS ? sums : MAX_BLOCKS,
                                GD_CUDA_CONV_PART_ELEMENTS * GD_CUDA_CONV_PART_THREADS, &p);
    }
    return status;
}

gd_status gd_cuda_conv_epilogue(const gd_kernel_call *call, const gd_cuda_conv_problem *q,
                                const gd_cuda_conv_operand *result) {
    const long long positions = count_positions(result);
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
    return gd_cuda_launch_each(call->device, &epilogues[dtype_kernel(q->dtype)],
                               (p.count + together - 1) / together, &p);
}

/*kernel conv_grad_weight_bias.gemm  rank 10  checked  run gd_cuda_conv_run  match match_weight_bias  workspace gd_cuda_conv_workspace
 */
/*kernel conv{1,2,3}d.gemm, conv_transpose{1,2,3}d.gemm, conv_forward.gemm, conv_relu.gemm, conv_grad_input.gemm,
 *        conv_grad_weight.gemm  rank 10  checked  run gd_cuda_conv_run  workspace gd_cuda_conv_workspace
 */

#include "ops/conv/cuda/conv.gen.h"
