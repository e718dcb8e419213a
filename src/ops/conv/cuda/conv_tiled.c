/* conv_tiled.c - convolutions of f32 images with one or two axes, by tiles that fit the problem
 * (conv_tiled.cu). */
#include "ops/conv/cuda/conv_tiled_args.h"

#include <stdio.h>

#include "ops/conv/cuda/conv.h"

enum {
    AXES = GD_CONV_AXES,
    PHASES = GD_CUDA_CONV_PHASES,
    LONG_SUM = 1024, /* products that a thread sums at most if its tile does not fold sums */
};

/* --- tiles ------------------------------------------------------------------------------------ */

#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define STAGE_FLOATS(rows, columns, depth) \
    (GD_CUDA_CONV_STAGES * (depth) * ((rows) + GD_CUDA_CONV_ROW_PAD + (columns)))
#define SHARED_BYTES(rows, columns, slices, depth) \
    (4 * (8 * (depth) + LARGER(STAGE_FLOATS(rows, columns, depth), (slices) * (rows) * (columns))))

typedef struct tile_record {
    const char *name;
    int rows, columns, threads, slices, depth, blocks, folds, speed, shared_bytes;
} tile_record;
#define TILE(name, rows, columns, rows_each, columns_each, slices, depth, blocks, folds, speed) \
    {#name,   rows,                                                                             \
     columns, (rows) / (rows_each) * ((columns) / (columns_each)) * (slices),                   \
     slices,  depth,                                                                            \
     blocks,  folds,                                                                            \
     speed,   SHARED_BYTES(rows, columns, slices, depth)},
static const tile_record tiles[] = {GD_CUDA_CONV_FAST_TILES(TILE)};
#undef TILE
enum { TILES = sizeof tiles / sizeof *tiles };

#define KERNEL(name, rows, columns, rows_each, columns_each, slices, depth, blocks, folds, speed) \
    GD_CUDA_KERNEL_SHARED("conv/conv_tiled", "gd_convolve_tiled_" #name,                          \
                          SHARED_BYTES(rows, columns, slices, depth)),
static gd_cuda_kernel kernels[] = {GD_CUDA_CONV_FAST_TILES(KERNEL)};
#undef KERNEL

/* --- products --------------------------------------------------------------------------------- */

static gd_cuda_conv_split split_of(const gd_cuda_conv_index *index) {
    gd_cuda_conv_split split = {.height = gd_cuda_divisor_of(index->size[1]),
                                .width = gd_cuda_divisor_of(index->size[2]),
                                .stride = (int)index->stride};
    for (int a = 0; a < 2; a++) {
        split.first[a] = (int)index->first[a + 1];
        split.step[a] = (int)index->step[a + 1];
    }
    return split;
}

/* The taps and positions of x along an axis in one phase of the gradient of x with stride s: tap
 * (first_tap + s t) contributes y[first_y + i - t] to x[first + s i]. An axis with dilation has
 * stride 1: tap t contributes y[first_y + i - t dilation]. */
typedef struct phase_axis {
    int64_t taps, first_tap, positions, first, first_y;
} phase_axis;

static phase_axis find_phase(const gd_cuda_conv_problem *q, int axis, int64_t phase) {
    const int64_t s = q->stride[axis], before = q->before[axis], taps = q->w.dims[2 + axis],
                  size = q->x.dims[2 + axis];
    /* positions x with (x + before) % s == phase */
    const int64_t first = ((phase - before) % s + s) % s;
    return (phase_axis){
        .taps = taps > phase ? (taps - phase + s - 1) / s : 0,
        .first_tap = phase,
        .positions = size > first ? (size - first + s - 1) / s : 0,
        .first = first,
        .first_y = (first + before - phase) / s,
    };
}

static void set_phases(const gd_cuda_conv_problem *q, const gd_cuda_conv *p,
                       gd_cuda_conv_tiled *t) {
    const int64_t rows = q->stride[1], columns = q->stride[2];
    for (int a = 0; a < 2; a++) {
        t->a_axis[a] = (int)(p->a_axis[a + 1] * q->stride[a + 1]);
        t->out_axis[a] = (int)(p->out_axis[a + 1] * q->stride[a + 1]);
    }
    t->phases = 0;
    for (int64_t i = 0; i < rows * columns; i++) {
        const phase_axis axes[] = {find_phase(q, 1, i / columns), find_phase(q, 2, i % columns)};
        gd_cuda_conv_phase phase = {
            .n = (int)(q->x.dims[0] * axes[0].positions * axes[1].positions),
            .k = (int)(q->co * axes[0].taps * axes[1].taps),
            .a_first = (int)(axes[0].first_tap * p->a_axis[1] + axes[1].first_tap * p->a_axis[2]),
            .out_first = (int)(axes[0].first * p->out_axis[1] + axes[1].first * p->out_axis[2]),
            .column = {.stride = (int)p->column.stride},
            .depth = {.stride = (int)p->depth.stride},
        };
        if (phase.n == 0) continue;
        phase.column.height = gd_cuda_divisor_of(axes[0].positions);
        phase.column.width = gd_cuda_divisor_of(axes[1].positions);
        phase.depth.height = gd_cuda_divisor_of(axes[0].taps ? axes[0].taps : 1);
        phase.depth.width = gd_cuda_divisor_of(axes[1].taps ? axes[1].taps : 1);
        for (int a = 0; a < 2; a++) {
            phase.column.first[a] = (int)axes[a].first_y;
            phase.column.step[a] = 1;
            phase.depth.step[a] = q->stride[1 + a] == 1 ? -(int)q->dilation[1 + a] : -1;
        }
        t->phase[t->phases++] = phase;
    }
}

/* Whether windows reach beyond the images. */
static bool reaches_outside(const gd_cuda_conv_problem *q) {
    bool outside = q->direction == GD_CONV_TO_INPUT;
    for (int a = 1; a < AXES; a++)
        outside = outside || q->before[a] != 0 ||
                  (q->y.dims[2 + a] - 1) * q->stride[a] + (q->w.dims[2 + a] - 1) * q->dilation[a] >=
                      q->x.dims[2 + a];
    return outside;
}

/* `sums` are the sums of the rows of the left operand, or NULL. */
static gd_cuda_conv_tiled product_of(const gd_cuda_conv_problem *q, const gd_cuda_conv *p,
                                     const gd_view *sums) {
    gd_cuda_conv_tiled t = {
        .groups = (int)p->groups,
        .m = (int)p->m,
        .a = p->a,
        .b = p->b,
        .a_group = (int)p->a_group,
        .a_row = (int)p->a_row,
        .a_major = (int)p->a_major,
        .a_by_depth = p->a_by_depth,
        .b_group = (int)p->b_group,
        .out = p->out,
        .out_group = (int)p->out_group,
        .out_row = (int)p->out_row,
        .out_major = (int)p->out_major,
        .bias = p->bias,
        .bias_stride = p->bias_stride,
        .relu = p->relu,
        .is_checked = reaches_outside(q),
        .has_row_sums = sums != NULL,
        .row_sums = sums ? sums->data : NULL,
        .row_sums_stride = sums ? sums->strides[0] : 0,
        .parts = 1,
        .phases = 1,
    };
    for (int a = 0; a < 2; a++) {
        t.a_axis[a] = (int)p->a_axis[a + 1];
        t.out_axis[a] = (int)p->out_axis[a + 1];
        t.b_axis[a] = (int)p->b_axis[a + 1];
        t.b_size[a] = (int)p->b_size[a + 1];
    }
    if (p->divisor[1] > 1 || p->divisor[2] > 1) set_phases(q, p, &t);
    else
        t.phase[0] = (gd_cuda_conv_phase){.n = (int)p->n,
                                          .k = (int)p->k,
                                          .column = split_of(&p->column),
                                          .depth = split_of(&p->depth)};
    return t;
}

/* Whether the kernels support an f32 problem. */
static bool is_supported(const gd_cuda_conv_problem *q, const gd_cuda_conv_sizes *s) {
    const int64_t most = INT32_MAX / 2, *stride = q->stride;
    if (s->m == 0 || s->n == 0 || s->k == 0) return false;
    if (q->x.dims[2] != 1 || q->w.dims[2] != 1 || q->y.dims[2] != 1 || q->before[0] != 0)
        return false;
    if (q->groups * s->m > most || s->n > most || s->k > most || !gd_cuda_conv_is_common(q))
        return false;
    if (!s->divides || (stride[1] == 1 && stride[2] == 1)) return true;
    return stride[1] * stride[2] <= PHASES && (stride[1] == 1 || q->dilation[1] == 1) &&
           (stride[2] == 1 || q->dilation[2] == 1);
}

/* Tiles are faster than the computation of single elements even if they use few of their rows. */
static bool is_tiled(const gd_cuda_conv_problem *q) {
    const gd_cuda_conv_sizes s = gd_cuda_conv_sizes_of(q);
    return ((q->groups == 1 && s.m > 1) || !gd_cuda_conv_is_direct(q, &s)) && is_supported(q, &s);
}

/* --- the choice of a tile --------------------------------------------------------------------- */

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static int64_t count_tiles(const gd_cuda_conv_tiled *t, const tile_record *tile, int phase) {
    const int64_t n = t->phase[phase].n + t->has_row_sums;
    return (n + tile->columns - 1) / tile->columns * t->groups *
           ((t->m + tile->rows - 1) / tile->rows);
}

/* The tiles of all phases. */
static int64_t count_blocks(const gd_cuda_conv_tiled *t, const tile_record *tile) {
    int64_t count = 0;
    for (int i = 0; i < t->phases; i++) count += count_tiles(t, tile, i);
    return count;
}

/* One block adds a few parts; many are added in groups first. */
static int count_part_groups(int parts) {
    enum { FEW_PARTS = 16 };
    return parts <= FEW_PARTS ? 1 : (parts + GD_CUDA_CONV_GROUP - 1) / GD_CUDA_CONV_GROUP;
}

static int64_t chunk_of(int64_t k, int parts, const tile_record *tile) {
    return round_up((k + parts - 1) / parts, tile->depth);
}

/* An estimate of the time in cycles. The choice of a tile depends on the shape alone, so that all
 * devices add in the same order; but small ones have too little shared memory for some tiles. `k` products are summed at most. */
static double estimate_time(const gd_cuda_conv_tiled *t, const tile_record *tile, int64_t k,
                            int parts) {
    enum { LANES = 128, BEGIN = 6000, ADD = 7500, ADD_GROUPS = 16000 };
    const double lone = 1.3; /* a block alone on a multiprocessor hides less of its latencies */
    const int64_t chunk = chunk_of(k, parts, tile), blocks = count_blocks(t, tile) * parts,
                  each = (blocks + GD_CUDA_PROCESSORS - 1) / GD_CUDA_PROCESSORS;
    const double products = (double)chunk * tile->rows * tile->columns,
                 rate = LANES * tile->speed / 100.0 / (each == 1 && tile->blocks > 1 ? lone : 1.0),
                 adding = parts == 1                      ? 0
                          : count_part_groups(parts) == 1 ? ADD
                                                          : ADD_GROUPS;
    return BEGIN + (double)each * products / rate + adding +
           (double)(parts - 1) * t->m * t->groups * t->phase[0].n * 8 / 1000;
}

/* Whether the sums can be divided into parts. */
static bool has_parts(const gd_cuda_conv_tiled *t, int64_t blocks, int64_t parts) {
    enum { MAX_PARTS = 256, LEAST_CHUNK = 64 };
    return parts > 1 && parts <= MAX_PARTS && t->phases == 1 &&
           t->phase[0].k / parts >= LEAST_CHUNK &&
           blocks * (1 + count_part_groups((int)parts)) <= GD_CUDA_CONV_COUNTERS;
}

typedef struct tile_choice {
    int tile, parts;
    double time;
} tile_choice;

/* Chooses between undivided sums, and parts that give each multiprocessor 1, 2 or 4 blocks. */
static tile_choice choose_tile(const gd_device *d, const gd_cuda_conv_tiled *t) {
    static const int blocks_each[] = {0, 1, 2, 4};
    tile_choice best = {0, 1, 0};
    int64_t k = 0;
    for (int i = 0; i < t->phases; i++) k = LARGER(k, t->phase[i].k);
    for (int i = 0; i < TILES; i++) {
        const int64_t blocks = count_blocks(t, &tiles[i]);
        if (tiles[i].shared_bytes > gd_cuda_state_of(d)->shared_bytes) continue;
        for (int b = 0; b < 4; b++) {
            const int64_t parts = b == 0 ? 1 : blocks_each[b] * GD_CUDA_PROCESSORS / blocks;
            if (b > 0 && !has_parts(t, blocks, parts)) continue;
            if (!tiles[i].folds && chunk_of(k, (int)parts, &tiles[i]) > LONG_SUM * tiles[i].slices)
                continue;
            const double time = estimate_time(t, &tiles[i], k, (int)parts);
            if (best.time == 0 || time < best.time) best = (tile_choice){i, (int)parts, time};
        }
    }
    return best;
}

/* --- kernels ---------------------------------------------------------------------------------- */

/* The gradient of the bias, which is the sum of each row of gy; NULL: none. */
static const gd_view *row_sums_of(const gd_kernel_call *call) {
    return call->n_out > 1 ? &call->out[1] : NULL;
}

/* Whether it is faster to compute the sums of rows as one more column than by a kernel of their own. */
static bool joins_sums(const gd_kernel_call *call, const gd_cuda_conv_problem *q) {
    enum { SUM_KERNEL = 6000 }; /* cycles that a kernel for the sums takes at least */
    const gd_cuda_conv p = gd_cuda_conv_product_of(q);
    const gd_cuda_conv_tiled joined = product_of(q, &p, row_sums_of(call)),
                             alone = product_of(q, &p, NULL);
    return choose_tile(call->device, &joined).time <=
           choose_tile(call->device, &alone).time + SUM_KERNEL;
}

/*kernel conv{1,2,3}d.tiled, conv_transpose{1,2,3}d.tiled, conv_forward.tiled, conv_relu.tiled,
 *        conv_grad_input.tiled, conv_grad_weight.tiled  rank 13  dtypes f32  checked  run run_tiled
 *        match match_tiled  prepare prepare_tiled  release release_tiled  describe describe_tiled
 * f32 with one or two axes, as a product whose tile and parts are estimated to be the fastest.
 */
static bool match_tiled(const gd_kernel_call *call) {
    const gd_view *y = &call->out[0];
    if (y->rank == 5 && y->dims[2] > 1) return false; /* three axes: no need to read the problem */
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    return is_tiled(&q);
}

/*kernel conv_grad_weight_bias.tiled  rank 13  dtypes f32  checked  run run_tiled
 *        match match_weight_bias  prepare prepare_tiled  release release_tiled
 *        describe describe_tiled
 * The gradients of weight and bias together, where cuDNN does not compute the first one faster.
 */
static bool match_weight_bias(const gd_kernel_call *call) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    return gd_cuda_count(&call->out[1]) > 0 &&
           (!gd_cuda_tf32(call) || gd_cuda_conv_products(&q) < GD_CUDA_CONV_MANY_PRODUCTS) &&
           is_tiled(&q) && joins_sums(call, &q);
}

/* The tile is chosen once for each problem. */
static gd_status prepare_tiled(const gd_kernel_call *call, void **prepared, size_t *workspace) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    const gd_cuda_conv p = gd_cuda_conv_product_of(&q);
    const gd_cuda_conv_tiled t = product_of(&q, &p, row_sums_of(call));
    tile_choice *choice = gd_cuda_host->allocate(sizeof *choice);
    if (!choice) return gd_cuda_host->fail(GD_E_MEMORY, "no memory to prepare a convolution");
    *choice = choose_tile(call->device, &t);
    const tile_record *tile = &tiles[choice->tile];
    *workspace =
        choice->parts == 1
            ? 0
            : (size_t)(count_blocks(&t, tile) * choice->parts * tile->rows * tile->columns) *
                  sizeof(float);
    *prepared = choice;
    return GD_OK;
}

static void release_tiled(gd_device *d, void *prepared) {
    (void)d;
    gd_cuda_host->release(prepared);
}

static void describe_tiled(const gd_kernel_call *call, char *text, size_t size) {
    const tile_choice *choice = call->prepared;
    snprintf(text, size, "tiles %s, %d part%s", tiles[choice->tile].name, choice->parts,
             choice->parts == 1 ? "" : "s");
}

static gd_status run_tiled(gd_kernel_call *call) {
    const gd_cuda_conv_problem q = gd_cuda_conv_problem_of(call);
    const gd_cuda_conv p = gd_cuda_conv_product_of(&q);
    const tile_choice choice = *(const tile_choice *)call->prepared;
    const tile_record *tile = &tiles[choice.tile];
    gd_cuda_conv_tiled t = product_of(&q, &p, row_sums_of(call));
    int64_t blocks = 0;
    t.call = gd_cuda_call_of(call);
    t.row_tiles = (t.m + tile->rows - 1) / tile->rows;
    t.chunk = t.phases == 1 ? (int)chunk_of(p.k, choice.parts, tile) : INT32_MAX / 2;
    t.parts = choice.parts == 1 ? 1 : (int)((p.k + t.chunk - 1) / t.chunk); /* none is empty */
    t.part_groups = count_part_groups(t.parts);
    t.partials = call->workspace;
    for (int i = 0; i < t.phases; i++) {
        t.phase[i].first_block = (int)blocks;
        blocks += count_tiles(&t, tile, i) * t.parts;
    }
    return gd_cuda_launch(call->device, &kernels[choice.tile], blocks, tile->threads, &t);
}

#include "ops/conv/cuda/conv_tiled.gen.h"
