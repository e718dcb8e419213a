/* conv_winograd.c - Winograd convolution (conv_winograd.h): when it is used, and how it is
 * partitioned into tasks. */
#include "ops/conv/cpu/conv_winograd.h"

#include <string.h>

#include "ops/conv/cpu/conv_algorithms.h"
#include "ops/matmul/cpu/gemm.h"
#include "core/error.h"
#include "core/pool.h"

/* --- when to use it --------------------------------------------------------------------------- */

static int64_t round_to_lanes(int64_t channels) {
    return gd_divide_up(channels, GD_WINO_LANES) * GD_WINO_LANES;
}

static double tile_count(const gd_conv *c, int m) {
    return (double)c->batch * (double)gd_divide_up(c->out[1], m) *
           (double)gd_divide_up(c->out[2], m);
}

/* The cost of Winograd with tile side m, in units of 16 multiply-adds: products, input and output
 * transforms, kernel transforms. Roughly measured with AVX-512; the ratios hold elsewhere. */
static double winograd_cost(const gd_conv *c, int m) {
    const double planes = (m + 2) * (m + 2), ci = (double)round_to_lanes(c->ci) / 16,
                 co = (double)round_to_lanes(c->co) / 16;
    const double tiles = tile_count(c, m);
    return tiles * planes * ci * co * 16 * 1.15 + tiles * (ci + co) * planes * 9 +
           ci * 16 * co * planes * 5;
}

/* The cost of implicit GEMM in the same units. */
static double gemm_cost(const gd_conv *c) {
    const double ci = (double)c->ci / 16, co = (double)round_to_lanes(c->co) / 16;
    return (double)c->batch * (double)gd_conv_positions(c->out) * 9 * ci * co * 16 * 1.4;
}

/* The fastest side of y's tiles, 4 or 2; 0 if implicit GEMM is faster. */
static int best_tile_side(const gd_conv *c) {
    const double gemm = gemm_cost(c), four = winograd_cost(c, 4), two = winograd_cost(c, 2);
    if (gemm <= four && gemm <= two) return 0;
    return four <= two ? 4 : 2;
}

int gd_conv_winograd_tile(const gd_conv *c, gd_conv_direction direction) {
    const gd_conv form = direction == GD_CONV_TO_INPUT ? gd_conv_flipped(c) : *c;
    return best_tile_side(&form);
}

bool gd_conv_winograd_matches(const gd_conv *c, gd_conv_direction direction) {
    if (c->groups != 1 || c->in[0] != 1 || c->out[0] != 1 || c->kernel[0] != 1 ||
        c->kernel[1] != 3 || c->kernel[2] != 3 || !gd_conv_has_stride_1(c) || c->dilation[1] != 1 ||
        c->dilation[2] != 1 || c->before[0] != 0)
        return false;
    if (c->ci < 4 || c->co < 4 || c->batch == 0 || gd_conv_positions(c->in) == 0 ||
        gd_conv_positions(c->out) == 0)
        return false;
    return gd_conv_winograd_tile(c, direction) != 0;
}

/* --- plans ------------------------------------------------------------------------------------ */

/* The row stride of a matrix with this many channels. Rows that are a multiple of a page apart
 * would map to the same cache sets, so wide rows are padded. */
static int64_t padded_row_stride(int64_t channels) {
    const int64_t lanes = round_to_lanes(channels);
    return lanes >= 128 ? lanes + 16 : lanes;
}

static void set_plane_strides(gd_wino *g, int64_t tiles) {
    g->x_plane = tiles * g->x_row + 16;
    g->y_plane = tiles * g->y_row + 16;
}

static gd_wino winograd_form(const gd_conv *c, bool flipped) {
    const int m = best_tile_side(c) == 2 ? 2 : 4;
    return (gd_wino){.m = m,
                     .a = m + 2,
                     .batch = c->batch,
                     .ci = c->ci,
                     .co = c->co,
                     .in_h = c->in[1],
                     .in_w = c->in[2],
                     .out_h = c->out[1],
                     .out_w = c->out[2],
                     .before_h = c->before[1],
                     .before_w = c->before[2],
                     .tiles_h = gd_divide_up(c->out[1], m),
                     .tiles_w = gd_divide_up(c->out[2], m),
                     .flipped = flipped,
                     .x_row = padded_row_stride(c->ci),
                     .y_row = padded_row_stride(c->co)};
}

static int64_t plane_count(const gd_wino *g) { return (int64_t)g->a * g->a; }

static int64_t vector_count(int64_t channels) {
    return gd_divide_up(channels, GD_ISA_CALL(gd_wino_vector)());
}

enum {
    BLOCK_BYTES = 1280 * 1024,  /* tiles and products of a block stay in cache */
    MAX_BLOCK_TILES = 64,       /* in a block, approximately */
    MIN_BLOCK_TILES = 32,       /* in a block, approximately, if there are ENOUGH_BLOCKS */
    ENOUGH_BLOCKS = 8,          /* for the threads */
    MIN_SPLIT_BLOCK_TILES = 16, /* in a block if there would be fewer than ENOUGH_BLOCKS */
    FEW_TILES = 256,            /* all threads share one block with at most this many tiles ... */
    MANY_KERNELS = 1 << 20,     /* ... if the transformed kernels have more floats than this */
};

/* The plan for y and for the gradient of x. The kernels are transformed first. Then each block of
 * tile rows is transformed, multiplied and transformed back by one thread. If there are few tiles
 * (share_tiles), all tiles are transformed together, and the threads partition the output channels
 * instead. */
typedef struct {
    gd_wino g;
    const gd_conv_call *call;
    const float *x;
    float *y, *kernels, *tiles, *products;
    int64_t rows, blocks; /* tile rows of the batch, and the blocks they are partitioned into */
    bool share_tiles;
    int64_t kernel_tasks, x_vectors, y_vectors, panel_tasks;
    size_t kernel_bytes, tile_bytes, product_bytes, scratch_bytes;
} conv_plan;

static size_t padded_bytes(int64_t floats) {
    return gd_round_to_cache_line((size_t)floats * sizeof(float));
}

static conv_plan plan_convolution(const gd_conv *c, bool flipped) {
    conv_plan p = {.g = winograd_form(c, flipped)};
    gd_wino *g = &p.g;
    p.rows = g->batch * g->tiles_h;
    int64_t tiles = BLOCK_BYTES / (plane_count(g) * (g->x_row + g->y_row) * (int64_t)sizeof(float));
    if (tiles > MAX_BLOCK_TILES) tiles = MAX_BLOCK_TILES;
    if (tiles < MIN_BLOCK_TILES) tiles = MIN_BLOCK_TILES;
    int64_t rows = tiles > g->tiles_w ? tiles / g->tiles_w : 1;
    while (p.rows < ENOUGH_BLOCKS * rows && rows * g->tiles_w > MIN_SPLIT_BLOCK_TILES && rows > 1)
        rows--;
    p.blocks = gd_divide_up(p.rows, rows);
    p.share_tiles = gd_wino_kernel_floats(g) > MANY_KERNELS && p.rows * g->tiles_w <= FEW_TILES;
    const int64_t block_rows = p.share_tiles ? p.rows : gd_divide_up(p.rows, p.blocks);
    set_plane_strides(g, block_rows * g->tiles_w);
    p.kernel_bytes = p.share_tiles ? 0 : padded_bytes(gd_wino_kernel_floats(g));
    p.tile_bytes = padded_bytes(plane_count(g) * g->x_plane);
    p.product_bytes = padded_bytes(plane_count(g) * g->y_plane);
    const int64_t scratch = gd_wino_scratch(g, block_rows);
    const int64_t kernel_scratch =
        p.share_tiles ? gd_wino_panel_scratch(g) : gd_wino_kernel_scratch(g);
    p.scratch_bytes = padded_bytes(scratch > kernel_scratch ? scratch : kernel_scratch);
    p.kernel_tasks = vector_count(g->co);
    p.x_vectors = vector_count(g->ci);
    p.y_vectors = vector_count(g->co);
    p.panel_tasks = gd_divide_up(p.y_vectors, GD_WINO_PANEL);
    return p;
}

static size_t shared_bytes(const conv_plan *p) {
    return p->kernel_bytes + (p->share_tiles ? p->tile_bytes + p->product_bytes : 0);
}
static size_t slot_bytes(const conv_plan *p) {
    return p->scratch_bytes + (p->share_tiles ? 0 : p->tile_bytes + p->product_bytes);
}

static gd_status kernel_task(void *arg, int64_t i, char *memory) {
    const conv_plan *p = arg;
    GD_ISA_CALL(gd_wino_kernels)(&p->g, p->call->w, i, i + 1, p->kernels, (float *)(void *)memory);
    return GD_OK;
}

static gd_status block_task(void *arg, int64_t i, char *memory) {
    const conv_plan *p = arg;
    const gd_wino *g = &p->g;
    const int64_t row = gd_split_point(p->rows, i, p->blocks),
                  row_end = gd_split_point(p->rows, i + 1, p->blocks);
    float *tiles = (float *)(void *)memory, *products = (float *)(void *)(memory + p->tile_bytes);
    float *scratch = (float *)(void *)(memory + p->tile_bytes + p->product_bytes);
    GD_ISA_CALL(gd_wino_input)(g, p->x, row, row_end, 0, p->x_vectors, tiles, scratch);
    GD_ISA_CALL(gd_wino_multiply)(g, (row_end - row) * g->tiles_w, tiles, p->kernels, products);
    GD_ISA_CALL(gd_wino_output)
    (g, products, row, row_end, 0, p->y_vectors, p->call->bias, p->y, scratch);
    return GD_OK;
}

static gd_status input_task(void *arg, int64_t i, char *memory) {
    const conv_plan *p = arg;
    GD_ISA_CALL(gd_wino_input)
    (&p->g, p->x, 0, p->rows, i, i + 1, p->tiles, (float *)(void *)memory);
    return GD_OK;
}

static gd_status panel_task(void *arg, int64_t i, char *memory) {
    const conv_plan *p = arg;
    const int64_t first = i * GD_WINO_PANEL, end = gd_min64(first + GD_WINO_PANEL, p->y_vectors);
    GD_ISA_CALL(gd_wino_panel)
    (&p->g, p->call->w, first, end, p->rows * p->g.tiles_w, p->tiles, p->products,
     (float *)(void *)memory);
    return GD_OK;
}

static gd_status output_task(void *arg, int64_t i, char *memory) {
    const conv_plan *p = arg;
    GD_ISA_CALL(gd_wino_output)
    (&p->g, p->products, 0, p->rows, i, i + 1, p->call->bias, p->y, (float *)(void *)memory);
    return GD_OK;
}

static gd_status run_convolution(const gd_conv_call *call, bool flipped) {
    const gd_conv c = flipped ? gd_conv_flipped(&call->c) : call->c;
    conv_plan p = plan_convolution(&c, flipped);
    p.call = call;
    p.g.relu = call->relu;
    p.x = flipped ? call->y : call->x;
    p.y = flipped ? call->x : call->y;
    char *memory = call->workspace;
    p.kernels = (float *)(void *)memory;
    const size_t shared = shared_bytes(&p), slot = slot_bytes(&p);
    if (!p.share_tiles) {
        GD_TRY(gd_conv_run_tasks(call, shared, slot, p.kernel_tasks, kernel_task, &p));
        return gd_conv_run_tasks(call, shared, slot, p.blocks, block_task, &p);
    }
    p.tiles = (float *)(void *)(memory + p.kernel_bytes);
    p.products = (float *)(void *)(memory + p.kernel_bytes + p.tile_bytes);
    GD_TRY(gd_conv_run_tasks(call, shared, slot, p.x_vectors, input_task, &p));
    GD_TRY(gd_conv_run_tasks(call, shared, slot, p.panel_tasks, panel_task, &p));
    return gd_conv_run_tasks(call, shared, slot, p.y_vectors, output_task, &p);
}

/* --- the gradient of w ------------------------------------------------------------------------ */

/* Chunks of tiles of x and y are transformed, and their products are added to sums for each plane.
 * With few channels, the chunks are divided into splits (split-K): each has partial sums, which are
 * added in order at the end. Otherwise all threads share the work on one chunk after the other. */
enum {
    CHUNK_TILES = 128, /* tiles of a chunk, approximately */
    MAX_SPLITS = 8,
    MAX_SUMS = 5 << 18 /* floats in the partial sums of all splits */
};

typedef struct {
    gd_wino g;
    const gd_conv_call *call;
    float *sums, *x_tiles, *y_tiles;
    int64_t floats;       /* in the partial sums of one split */
    int64_t rows, chunks; /* tile rows of the batch, and the chunks they are divided into */
    int64_t splits;
    int64_t chunk; /* the current one, if all threads share it */
    int64_t x_vectors, y_vectors;
    size_t sums_bytes, x_bytes, y_bytes, scratch_bytes;
} weight_plan;

static weight_plan plan_weight(const gd_conv *c) {
    weight_plan p = {.g = winograd_form(c, false)};
    gd_wino *g = &p.g;
    p.rows = g->batch * g->tiles_h;
    p.chunks = gd_divide_up(p.rows, CHUNK_TILES > g->tiles_w ? CHUNK_TILES / g->tiles_w : 1);
    const int64_t chunk_rows = gd_divide_up(p.rows, p.chunks);
    set_plane_strides(g, chunk_rows * g->tiles_w);
    p.floats = plane_count(g) * g->co * g->ci;
    p.splits = gd_min64(gd_min64(MAX_SPLITS, MAX_SUMS / p.floats), p.chunks);
    if (p.splits < 1) p.splits = 1;
    p.sums_bytes = padded_bytes(p.splits * p.floats);
    p.x_bytes = padded_bytes(plane_count(g) * g->x_plane);
    p.y_bytes = padded_bytes(plane_count(g) * g->y_plane);
    p.scratch_bytes = padded_bytes(gd_wino_scratch(g, chunk_rows));
    p.x_vectors = vector_count(g->ci);
    p.y_vectors = vector_count(g->co);
    return p;
}

static size_t weight_shared_bytes(const weight_plan *p) {
    return p->sums_bytes + (p->splits == 1 ? p->x_bytes + p->y_bytes : 0);
}
static size_t weight_slot_bytes(const weight_plan *p) {
    return p->scratch_bytes + (p->splits == 1 ? 0 : p->x_bytes + p->y_bytes);
}

static int64_t chunk_first_row(const weight_plan *p, int64_t chunk) {
    return gd_split_point(p->rows, chunk, p->chunks);
}

/* Adds the products of a chunk in one plane to the sums; `begin` overwrites the sums. */
static gd_status accumulate_plane(const weight_plan *p, int64_t chunk, int64_t plane, bool begin,
                                  const float *x_tiles, const float *y_tiles, float *sums) {
    const gd_wino *g = &p->g;
    const gd_gemm product = {.m = g->co,
                             .n = g->ci,
                             .k = (chunk_first_row(p, chunk + 1) - chunk_first_row(p, chunk)) *
                                  g->tiles_w,
                             .a = {y_tiles + plane * g->y_plane, GD_F32, 1, g->y_row},
                             .b = {x_tiles + plane * g->x_plane, GD_F32, g->x_row, 1},
                             .c = {sums + plane * g->co * g->ci, GD_F32, g->ci, 1},
                             .accumulate = !begin};
    return gd_gemm_run(&product);
}

/* Computes one split on one thread. */
static gd_status split_task(void *arg, int64_t i, char *memory) {
    const weight_plan *p = arg;
    const gd_wino *g = &p->g;
    float *x_tiles = (float *)(void *)memory, *y_tiles = (float *)(void *)(memory + p->x_bytes);
    float *scratch = (float *)(void *)(memory + p->x_bytes + p->y_bytes);
    const int64_t begin = gd_split_point(p->chunks, i, p->splits),
                  end = gd_split_point(p->chunks, i + 1, p->splits);
    for (int64_t chunk = begin; chunk < end; chunk++) {
        const int64_t row = chunk_first_row(p, chunk), row_end = chunk_first_row(p, chunk + 1);
        GD_ISA_CALL(gd_wino_input)(g, p->call->x, row, row_end, 0, p->x_vectors, x_tiles, scratch);
        GD_ISA_CALL(gd_wino_gradient)
        (g, p->call->y, row, row_end, 0, p->y_vectors, y_tiles, scratch);
        for (int64_t plane = 0; plane < plane_count(g); plane++)
            GD_TRY(accumulate_plane(p, chunk, plane, chunk == begin, x_tiles, y_tiles,
                                    p->sums + i * p->floats));
    }
    return GD_OK;
}

/* For a shared chunk: transforms one vector of channels of x or of y. */
static gd_status transform_task(void *arg, int64_t i, char *memory) {
    const weight_plan *p = arg;
    const int64_t row = chunk_first_row(p, p->chunk), row_end = chunk_first_row(p, p->chunk + 1),
                  y = i - p->x_vectors;
    float *scratch = (float *)(void *)memory;
    if (y < 0)
        GD_ISA_CALL(gd_wino_input)(&p->g, p->call->x, row, row_end, i, i + 1, p->x_tiles, scratch);
    else GD_ISA_CALL(gd_wino_gradient)
    (&p->g, p->call->y, row, row_end, y, y + 1, p->y_tiles, scratch);
    return GD_OK;
}
/* For a shared chunk: the product of one plane. */
static gd_status plane_task(void *arg, int64_t i, char *memory) {
    const weight_plan *p = arg;
    (void)memory;
    return accumulate_plane(p, p->chunk, i, p->chunk == 0, p->x_tiles, p->y_tiles, p->sums);
}

/* Adds the partial sums of one output channel and transforms them to the gradient of its
 * kernels. */
static void write_weight_channel(void *arg, int64_t o) {
    const weight_plan *p = arg;
    const gd_wino *g = &p->g;
    for (int64_t split = 1; split < p->splits; split++)
        for (int64_t plane = 0; plane < plane_count(g); plane++) {
            float *sums = p->sums + (plane * g->co + o) * g->ci;
            for (int64_t c = 0; c < g->ci; c++) sums[c] += sums[split * p->floats + c];
        }
    GD_ISA_CALL(gd_wino_weight)(g, p->sums, o, o + 1, p->call->w);
}

static gd_status run_weight(const gd_conv_call *call) {
    weight_plan p = plan_weight(&call->c);
    char *memory = call->workspace;
    p.call = call;
    p.sums = (float *)(void *)memory;
    const size_t shared = weight_shared_bytes(&p), slot = weight_slot_bytes(&p);
    if (p.splits > 1) {
        GD_TRY(gd_conv_run_tasks(call, shared, slot, p.splits, split_task, &p));
    } else {
        p.x_tiles = (float *)(void *)(memory + p.sums_bytes);
        p.y_tiles = (float *)(void *)(memory + p.sums_bytes + p.x_bytes);
        for (p.chunk = 0; p.chunk < p.chunks; p.chunk++) {
            GD_TRY(gd_conv_run_tasks(call, shared, slot, p.x_vectors + p.y_vectors, transform_task,
                                     &p));
            GD_TRY(gd_conv_run_tasks(call, shared, 0, plane_count(&p.g), plane_task, &p));
        }
    }
    gd_parallel_for(p.g.co, write_weight_channel, &p);
    return GD_OK;
}

/* --- entry points ----------------------------------------------------------------------------- */

size_t gd_conv_winograd_bytes(const gd_conv *c, gd_conv_direction direction) {
    if (direction == GD_CONV_TO_WEIGHT) {
        const weight_plan p = plan_weight(c);
        return gd_conv_slots_bytes(weight_shared_bytes(&p), weight_slot_bytes(&p),
                                   p.splits > 1 ? p.splits : p.x_vectors + p.y_vectors);
    }
    const gd_conv form = direction == GD_CONV_TO_INPUT ? gd_conv_flipped(c) : *c;
    const conv_plan p = plan_convolution(&form, direction == GD_CONV_TO_INPUT);
    int64_t tasks =
        p.share_tiles ? p.kernel_tasks + p.x_vectors + p.y_vectors : p.blocks + p.kernel_tasks;
    return gd_conv_slots_bytes(shared_bytes(&p), slot_bytes(&p), tasks);
}

gd_status gd_conv_winograd(const gd_conv_call *call, gd_conv_direction direction) {
    return direction == GD_CONV_TO_WEIGHT ? run_weight(call)
                                          : run_convolution(call, direction == GD_CONV_TO_INPUT);
}
