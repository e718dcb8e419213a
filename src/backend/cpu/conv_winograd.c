/* conv_winograd.c - Winograd's convolution (conv_winograd.h): when, and in which pieces. */
#include "backend/cpu/conv_winograd.h"

#include <string.h>

#include "backend/cpu/conv.h"
#include "backend/cpu/gemm.h"
#include "core/error.h"
#include "core/pool.h"

/* --- whether ---------------------------------------------------------------------------------- */

static int64_t whole_lanes(int64_t channels) {
    return gd_divide_up(channels, GD_WINO_LANES) * GD_WINO_LANES;
}

static double tiles_of(const gd_conv *c, int m) {
    return (double)c->batch * (double)gd_divide_up(c->out[1], m) *
           (double)gd_divide_up(c->out[2], m);
}

/* What it takes, in units of 16 multiply-adds on channels: products, transforms of tiles on both
 * sides, transforms of kernels. Measured, roughly, with AVX-512; the proportions hold elsewhere. */
static double cost_of(const gd_conv *c, int m) {
    const double planes = (m + 2) * (m + 2), ci = (double)whole_lanes(c->ci) / 16,
                 co = (double)whole_lanes(c->co) / 16;
    const double tiles = tiles_of(c, m);
    return tiles * planes * ci * co * 16 * 1.15 + tiles * (ci + co) * planes * 9 +
           ci * 16 * co * planes * 5;
}

static double cost_of_direct(const gd_conv *c) {
    const double ci = (double)c->ci / 16, co = (double)whole_lanes(c->co) / 16;
    return (double)c->batch * (double)gd_conv_places(c->out) * 9 * ci * co * 16 * 1.4;
}

/* The side of y's tiles, 4 or 2; 0 where another way is better. */
static int best_side(const gd_conv *c) {
    const double direct = cost_of_direct(c), four = cost_of(c, 4), two = cost_of(c, 2);
    if (direct <= four && direct <= two) return 0;
    return four <= two ? 4 : 2;
}

bool gd_conv_winograd_pays(const gd_conv *c, gd_conv_direction to) {
    if (c->groups != 1 || c->in[0] != 1 || c->out[0] != 1 || c->kernel[0] != 1 ||
        c->kernel[1] != 3 || c->kernel[2] != 3 || !gd_conv_has_stride_1(c) || c->dilation[1] != 1 ||
        c->dilation[2] != 1 || c->before[0] != 0)
        return false;
    if (c->ci < 4 || c->co < 4 || c->batch == 0 || gd_conv_places(c->in) == 0 ||
        gd_conv_places(c->out) == 0)
        return false;
    const gd_conv form = to == GD_CONV_TO_INPUT ? gd_conv_turned(c) : *c;
    return best_side(&form) != 0;
}

/* --- plans ------------------------------------------------------------------------------------ */

/* Channels of matrices whose rows lie a multiple of a page apart fight for the same cache lines. */
static int64_t row_step(int64_t channels) {
    const int64_t lanes = whole_lanes(channels);
    return lanes >= 128 ? lanes + 16 : lanes;
}

static void set_planes(gd_wino *g, int64_t tiles) {
    g->x_plane = tiles * g->x_row + 16;
    g->y_plane = tiles * g->y_row + 16;
}

static gd_wino form_of(const gd_conv *c, bool turned) {
    const int m = best_side(c) == 2 ? 2 : 4;
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
                     .turned = turned,
                     .x_row = row_step(c->ci),
                     .y_row = row_step(c->co)};
}

static int64_t planes_of(const gd_wino *g) { return (int64_t)g->a * g->a; }

static int64_t vectors_of(int64_t channels) {
    return gd_divide_up(channels, GD_ISA_CALL(gd_wino_vector)());
}

enum {
    BLOCK_BYTES = 1280 * 1024, /* of the matrices of a block of tiles: they stay in the cache */
    BLOCK_TILES = 64,          /* a block has about so many tiles at most, ... */
    BLOCK_TILES_LEAST = 32,    /* ... and at least, ... */
    ENOUGH_BLOCKS = 8,         /* ... but for this many blocks' sake ... */
    BLOCK_TILES_FEWEST = 16,   /* ... even fewer */
    FEW_TILES = 256,           /* the threads share one block of no more tiles than this ... */
    MANY_KERNELS = 1 << 20,    /* ... with so many numbers of transformed kernels */
};

/* Convolution itself. Kernels are transformed, then blocks of rows of tiles are transformed,
 * multiplied and transformed back by one thread each. Or, where there are few tiles, all of them
 * are transformed together, and the threads divide the output channels among them. */
typedef struct {
    gd_wino g;
    const gd_conv_call *call;
    const float *x;
    float *y, *kernels, *tiles, *products;
    int64_t rows;   /* of tiles */
    int64_t blocks; /* that they are cut into */
    bool together;
    int64_t kernel_pieces, x_pieces, y_pieces, panel_pieces;
    size_t kernel_bytes, tile_bytes, product_bytes, scratch_bytes;
} plan;

static size_t bytes_of(int64_t numbers) { return gd_whole_lines((size_t)numbers * sizeof(float)); }

static plan plan_of(const gd_conv *c, bool turned) {
    plan p = {.g = form_of(c, turned)};
    gd_wino *g = &p.g;
    p.rows = g->batch * g->tiles_h;
    int64_t tiles = BLOCK_BYTES / (planes_of(g) * (g->x_row + g->y_row) * (int64_t)sizeof(float));
    if (tiles > BLOCK_TILES) tiles = BLOCK_TILES;
    if (tiles < BLOCK_TILES_LEAST) tiles = BLOCK_TILES_LEAST;
    int64_t rows = tiles > g->tiles_w ? tiles / g->tiles_w : 1;
    while (p.rows < ENOUGH_BLOCKS * rows && rows * g->tiles_w > BLOCK_TILES_FEWEST && rows > 1)
        rows--;
    p.blocks = gd_divide_up(p.rows, rows);
    p.together = gd_wino_kernel_numbers(g) > MANY_KERNELS && p.rows * g->tiles_w <= FEW_TILES;
    const int64_t block_rows = p.together ? p.rows : gd_divide_up(p.rows, p.blocks);
    set_planes(g, block_rows * g->tiles_w);
    p.kernel_bytes = p.together ? 0 : bytes_of(gd_wino_kernel_numbers(g));
    p.tile_bytes = bytes_of(planes_of(g) * g->x_plane);
    p.product_bytes = bytes_of(planes_of(g) * g->y_plane);
    const int64_t scratch = gd_wino_scratch(g, block_rows);
    const int64_t kernel_scratch =
        p.together ? gd_wino_panel_scratch(g) : gd_wino_kernel_scratch(g);
    p.scratch_bytes = bytes_of(scratch > kernel_scratch ? scratch : kernel_scratch);
    p.kernel_pieces = vectors_of(g->co);
    p.x_pieces = vectors_of(g->ci);
    p.y_pieces = vectors_of(g->co);
    p.panel_pieces = gd_divide_up(p.y_pieces, GD_WINO_PANEL);
    return p;
}

static size_t shared_bytes(const plan *p) {
    return p->kernel_bytes + (p->together ? p->tile_bytes + p->product_bytes : 0);
}
static size_t slot_bytes(const plan *p) {
    return p->scratch_bytes + (p->together ? 0 : p->tile_bytes + p->product_bytes);
}

static gd_status kernel_piece(void *arg, int64_t i, char *memory) {
    const plan *p = arg;
    GD_ISA_CALL(gd_wino_kernels)(&p->g, p->call->w, i, i + 1, p->kernels, (float *)(void *)memory);
    return GD_OK;
}

static gd_status block_piece(void *arg, int64_t i, char *memory) {
    const plan *p = arg;
    const gd_wino *g = &p->g;
    const int64_t row = gd_cut(p->rows, i, p->blocks), row_end = gd_cut(p->rows, i + 1, p->blocks);
    float *tiles = (float *)(void *)memory, *products = (float *)(void *)(memory + p->tile_bytes);
    float *scratch = (float *)(void *)(memory + p->tile_bytes + p->product_bytes);
    GD_ISA_CALL(gd_wino_input)(g, p->x, row, row_end, 0, p->x_pieces, tiles, scratch);
    GD_ISA_CALL(gd_wino_multiply)(g, (row_end - row) * g->tiles_w, tiles, p->kernels, products);
    GD_ISA_CALL(gd_wino_output)
    (g, products, row, row_end, 0, p->y_pieces, p->call->bias, p->y, scratch);
    return GD_OK;
}

static gd_status x_piece(void *arg, int64_t i, char *memory) {
    const plan *p = arg;
    GD_ISA_CALL(gd_wino_input)
    (&p->g, p->x, 0, p->rows, i, i + 1, p->tiles, (float *)(void *)memory);
    return GD_OK;
}

static gd_status panel_piece(void *arg, int64_t i, char *memory) {
    const plan *p = arg;
    const int64_t first = i * GD_WINO_PANEL, end = gd_least(first + GD_WINO_PANEL, p->y_pieces);
    GD_ISA_CALL(gd_wino_panel)
    (&p->g, p->call->w, first, end, p->rows * p->g.tiles_w, p->tiles, p->products,
     (float *)(void *)memory);
    return GD_OK;
}

static gd_status y_piece(void *arg, int64_t i, char *memory) {
    const plan *p = arg;
    GD_ISA_CALL(gd_wino_output)
    (&p->g, p->products, 0, p->rows, i, i + 1, p->call->bias, p->y, (float *)(void *)memory);
    return GD_OK;
}

static gd_status run_convolution(const gd_conv_call *call, bool turned) {
    const gd_conv c = turned ? gd_conv_turned(&call->c) : call->c;
    plan p = plan_of(&c, turned);
    p.call = call;
    p.g.relu = call->relu;
    p.x = turned ? call->y : call->x;
    p.y = turned ? call->x : call->y;
    char *memory = call->workspace;
    p.kernels = (float *)(void *)memory;
    const size_t shared = shared_bytes(&p), slot = slot_bytes(&p);
    if (!p.together) {
        GD_TRY(gd_conv_run_pieces(call, shared, slot, p.kernel_pieces, kernel_piece, &p));
        return gd_conv_run_pieces(call, shared, slot, p.blocks, block_piece, &p);
    }
    p.tiles = (float *)(void *)(memory + p.kernel_bytes);
    p.products = (float *)(void *)(memory + p.kernel_bytes + p.tile_bytes);
    GD_TRY(gd_conv_run_pieces(call, shared, slot, p.x_pieces, x_piece, &p));
    GD_TRY(gd_conv_run_pieces(call, shared, slot, p.panel_pieces, panel_piece, &p));
    return gd_conv_run_pieces(call, shared, slot, p.y_pieces, y_piece, &p);
}

/* --- the gradient of w ------------------------------------------------------------------------ */

/* Chunks of tiles of x and y are transformed, and their products added to sums for each plane.
 * With few channels the chunks are divided into parts, each with sums of its own, which are added
 * up in order at the end; else all threads share the work on one chunk after the other. */
enum {
    CHUNK_TILES = 128,     /* about */
    WEIGHT_PARTS = 8,      /* at most, ... */
    SUMS_NUMBERS = 5 << 18 /* ... with so many sums in all */
};

typedef struct {
    gd_wino g;
    const gd_conv_call *call;
    float *sums, *x_tiles, *y_tiles;
    int64_t numbers;      /* in the sums of one part */
    int64_t rows, chunks; /* rows of tiles, and how many chunks they are cut into */
    int64_t parts;
    int64_t chunk; /* the one that all threads work on */
    int64_t x_pieces, y_pieces;
    size_t sums_bytes, x_bytes, y_bytes, scratch_bytes;
} weight_plan;

static weight_plan plan_weight(const gd_conv *c) {
    weight_plan p = {.g = form_of(c, false)};
    gd_wino *g = &p.g;
    p.rows = g->batch * g->tiles_h;
    p.chunks = gd_divide_up(p.rows, CHUNK_TILES > g->tiles_w ? CHUNK_TILES / g->tiles_w : 1);
    const int64_t chunk_rows = gd_divide_up(p.rows, p.chunks);
    set_planes(g, chunk_rows * g->tiles_w);
    p.numbers = planes_of(g) * g->co * g->ci;
    p.parts = gd_least(gd_least(WEIGHT_PARTS, SUMS_NUMBERS / p.numbers), p.chunks);
    if (p.parts < 1) p.parts = 1;
    p.sums_bytes = bytes_of(p.parts * p.numbers);
    p.x_bytes = bytes_of(planes_of(g) * g->x_plane);
    p.y_bytes = bytes_of(planes_of(g) * g->y_plane);
    p.scratch_bytes = bytes_of(gd_wino_scratch(g, chunk_rows));
    p.x_pieces = vectors_of(g->ci);
    p.y_pieces = vectors_of(g->co);
    return p;
}

static size_t weight_shared_bytes(const weight_plan *p) {
    return p->sums_bytes + (p->parts == 1 ? p->x_bytes + p->y_bytes : 0);
}
static size_t weight_slot_bytes(const weight_plan *p) {
    return p->scratch_bytes + (p->parts == 1 ? 0 : p->x_bytes + p->y_bytes);
}

static int64_t first_row(const weight_plan *p, int64_t chunk) {
    return gd_cut(p->rows, chunk, p->chunks);
}

/* Adds the products of a chunk in one plane to the sums, or begins with them. */
static gd_status add_products(const weight_plan *p, int64_t chunk, int64_t plane, bool begin,
                              const float *x_tiles, const float *y_tiles, float *sums) {
    const gd_wino *g = &p->g;
    const gd_gemm product = {.m = g->co,
                             .n = g->ci,
                             .k = (first_row(p, chunk + 1) - first_row(p, chunk)) * g->tiles_w,
                             .a = {y_tiles + plane * g->y_plane, GD_F32, 1, g->y_row},
                             .b = {x_tiles + plane * g->x_plane, GD_F32, g->x_row, 1},
                             .c = {sums + plane * g->co * g->ci, GD_F32, g->ci, 1},
                             .accumulate = !begin};
    return gd_gemm_run(&product);
}

/* One part: all on one thread. */
static gd_status part_piece(void *arg, int64_t i, char *memory) {
    const weight_plan *p = arg;
    const gd_wino *g = &p->g;
    float *x_tiles = (float *)(void *)memory, *y_tiles = (float *)(void *)(memory + p->x_bytes);
    float *scratch = (float *)(void *)(memory + p->x_bytes + p->y_bytes);
    const int64_t begin = gd_cut(p->chunks, i, p->parts), end = gd_cut(p->chunks, i + 1, p->parts);
    for (int64_t chunk = begin; chunk < end; chunk++) {
        const int64_t row = first_row(p, chunk), row_end = first_row(p, chunk + 1);
        GD_ISA_CALL(gd_wino_input)(g, p->call->x, row, row_end, 0, p->x_pieces, x_tiles, scratch);
        GD_ISA_CALL(gd_wino_gradient)
        (g, p->call->y, row, row_end, 0, p->y_pieces, y_tiles, scratch);
        for (int64_t plane = 0; plane < planes_of(g); plane++)
            GD_TRY(add_products(p, chunk, plane, chunk == begin, x_tiles, y_tiles,
                                p->sums + i * p->numbers));
    }
    return GD_OK;
}

/* Of the chunk that all threads work on: one channel vector of x or of y, one plane. */
static gd_status transform_piece(void *arg, int64_t i, char *memory) {
    const weight_plan *p = arg;
    const int64_t row = first_row(p, p->chunk), row_end = first_row(p, p->chunk + 1),
                  y = i - p->x_pieces;
    float *scratch = (float *)(void *)memory;
    if (y < 0)
        GD_ISA_CALL(gd_wino_input)(&p->g, p->call->x, row, row_end, i, i + 1, p->x_tiles, scratch);
    else GD_ISA_CALL(gd_wino_gradient)
    (&p->g, p->call->y, row, row_end, y, y + 1, p->y_tiles, scratch);
    return GD_OK;
}
static gd_status plane_piece(void *arg, int64_t i, char *memory) {
    const weight_plan *p = arg;
    (void)memory;
    return add_products(p, p->chunk, i, p->chunk == 0, p->x_tiles, p->y_tiles, p->sums);
}

/* The gradient of one output channel's kernels from the sums. */
static void finish_channel(void *arg, int64_t o) {
    const weight_plan *p = arg;
    const gd_wino *g = &p->g;
    for (int64_t part = 1; part < p->parts; part++)
        for (int64_t plane = 0; plane < planes_of(g); plane++) {
            float *sums = p->sums + (plane * g->co + o) * g->ci;
            for (int64_t c = 0; c < g->ci; c++) sums[c] += sums[part * p->numbers + c];
        }
    GD_ISA_CALL(gd_wino_weight)(g, p->sums, o, o + 1, p->call->w);
}

static gd_status run_weight(const gd_conv_call *call) {
    weight_plan p = plan_weight(&call->c);
    char *memory = call->workspace;
    p.call = call;
    p.sums = (float *)(void *)memory;
    const size_t shared = weight_shared_bytes(&p), slot = weight_slot_bytes(&p);
    if (p.parts > 1) {
        GD_TRY(gd_conv_run_pieces(call, shared, slot, p.parts, part_piece, &p));
    } else {
        p.x_tiles = (float *)(void *)(memory + p.sums_bytes);
        p.y_tiles = (float *)(void *)(memory + p.sums_bytes + p.x_bytes);
        for (p.chunk = 0; p.chunk < p.chunks; p.chunk++) {
            GD_TRY(gd_conv_run_pieces(call, shared, slot, p.x_pieces + p.y_pieces, transform_piece,
                                      &p));
            GD_TRY(gd_conv_run_pieces(call, shared, 0, planes_of(&p.g), plane_piece, &p));
        }
    }
    gd_parallel_for(p.g.co, finish_channel, &p);
    return GD_OK;
}

/* --- the calls -------------------------------------------------------------------------------- */

size_t gd_conv_winograd_bytes(const gd_conv *c, gd_conv_direction to) {
    if (to == GD_CONV_TO_WEIGHT) {
        const weight_plan p = plan_weight(c);
        return gd_conv_slots_bytes(weight_shared_bytes(&p), weight_slot_bytes(&p),
                                   p.parts > 1 ? p.parts : p.x_pieces + p.y_pieces);
    }
    const gd_conv form = to == GD_CONV_TO_INPUT ? gd_conv_turned(c) : *c;
    const plan p = plan_of(&form, to == GD_CONV_TO_INPUT);
    int64_t pieces =
        p.together ? p.kernel_pieces + p.x_pieces + p.y_pieces : p.blocks + p.kernel_pieces;
    return gd_conv_slots_bytes(shared_bytes(&p), slot_bytes(&p), pieces);
}

gd_status gd_conv_winograd(const gd_conv_call *call, gd_conv_direction to) {
    return to == GD_CONV_TO_WEIGHT ? run_weight(call)
                                   : run_convolution(call, to == GD_CONV_TO_INPUT);
}
