/* conv_gemm.c - convolution as matrix products over columns (conv_columns.h).
 *
 *     y = w * columns        x = add up (w^T * y), column by column        w = y * columns^T
 *
 * The columns are never there as a whole: each piece of work lays out a tile of them, a stretch of
 * columns by a stretch of rows that stays in the second-level cache, and multiplies it.
 */
#include <string.h>

#include "backend/cpu/conv.h"
#include "backend/cpu/conv_columns.h"
#include "backend/cpu/gemm.h"
#include "core/error.h"
#include "core/pool.h"

enum {
    TILE_NUMBERS = 128 * 1024, /* of a tile of columns, about */
    TILE_ROWS = 1024,          /* the most; as deep as the matrix product sums at once */
    TILE_COLUMNS = 1536,       /* the most */
    FEW_COLUMNS = 96,          /* tiles are not made narrower than this for the threads' sake */
    FEW_CHANNELS = 64,         /* nor cut to fewer output channels */
    MANY_PIECES = 32,          /* enough for any number of threads */
};

/* Multiply-adds that are worth a piece. */
static const double PIECE_WORK = 1 << 21;

int64_t gd_column_runs(const gd_conv *c, int64_t begin, int64_t end, gd_column_run *runs) {
    const int64_t places = gd_conv_places(c->out);
    int64_t count = 0;
    for (int64_t j = begin; j < end;) {
        const int64_t place = j % c->out[2], row = j / c->out[2] % c->out[1];
        const int64_t depth = j % places / (c->out[1] * c->out[2]), left = c->out[2] - place;
        gd_column_run *run = &runs[count++];
        *run = (gd_column_run){.image = j / places, .depth = depth * c->stride[0] - c->before[0],
                               .row = row * c->stride[1] - c->before[1], .place = place,
                               .count = gd_least(left, end - j), .at = j - begin};
        j += run->count;
    }
    return count;
}

/* --- tiles ------------------------------------------------------------------------------------- */

/* How the columns of a batch are cut: an image into `cuts` tiles, or `images` of them to a tile. */
typedef struct {
    int64_t places, batch;
    int64_t cuts, images;
    int64_t count; /* tiles of the batch */
    int64_t most;  /* columns in the largest */
} tiling;

static tiling tile_columns(const gd_conv *c, int64_t columns) {
    tiling t = {.places = gd_conv_places(c->out), .batch = c->batch, .cuts = 1, .images = 1};
    if (t.places > columns) t.cuts = gd_divide_up(t.places, columns);
    else if (t.places > 0) t.images = gd_least(columns / t.places, t.batch > 0 ? t.batch : 1);
    t.most = gd_divide_up(t.places, t.cuts) * t.images;
    t.count = t.cuts > 1 ? t.cuts * t.batch : gd_divide_up(t.batch, t.images);
    return t;
}

/* Columns [*begin, *end) of tile i. */
static void tile_at(const tiling *t, int64_t i, int64_t *begin, int64_t *end) {
    if (t->cuts > 1) {
        const int64_t image = i / t->cuts, cut = i % t->cuts;
        *begin = image * t->places + gd_cut(t->places, cut, t->cuts);
        *end = image * t->places + gd_cut(t->places, cut + 1, t->cuts);
    } else {
        *begin = gd_cut(t->batch, i, t->count) * t->places;
        *end = gd_cut(t->batch, i + 1, t->count) * t->places;
    }
}

static int64_t wanted_pieces(const gd_conv *c) {
    const double work = (double)c->batch * (double)gd_conv_places(c->out) * (double)gd_conv_places(c->kernel) *
                        (double)c->groups * (double)c->ci * (double)c->co;
    const double wanted = 1 + work / PIECE_WORK;
    return wanted < MANY_PIECES ? (int64_t)wanted : MANY_PIECES;
}

static size_t size_of(gd_dtype dtype) { return dtype == GD_F64 ? 8 : 4; }

/* The columns are x itself. */
static bool is_pointwise(const gd_conv *c) {
    return gd_conv_places(c->kernel) == 1 && gd_conv_has_stride_1(c) && c->before[0] == 0 && c->before[1] == 0 &&
           c->before[2] == 0 && c->in[0] == c->out[0] && c->in[1] == c->out[1] && c->in[2] == c->out[2];
}

/* Memory of a piece, handed out from its front. */
static void *take(char **memory, size_t bytes) {
    void *taken = *memory;
    *memory += gd_whole_lines(bytes);
    return taken;
}

/* A stretch of columns, and where it comes from. */
typedef struct {
    const gd_conv *c;
    gd_dtype dtype;
    int64_t begin, end; /* columns */
    gd_column_run *runs;
    int64_t run_count;
} stretch;

static stretch stretch_of(const gd_conv_call *call, int64_t begin, int64_t end, gd_column_run *runs) {
    return (stretch){&call->c, call->dtype, begin, end, runs, gd_column_runs(&call->c, begin, end, runs)};
}

/* Rows [row, row_end) of the columns, in the order (row, column), from x or copied to `memory`. */
static gd_gemm_in columns_of(const gd_conv_call *call, const stretch *s, int64_t group, int64_t row, int64_t row_end,
                             void *memory) {
    const gd_conv *c = s->c;
    const int64_t in = gd_conv_places(c->in), width = s->end - s->begin;
    const char *x = (const char *)call->x + (size_t)(group * c->ci * in) * size_of(s->dtype);
    if (is_pointwise(c) && (s->end - 1) / in == s->begin / in) {
        const int64_t image = s->begin / in;
        return (gd_gemm_in){x + (size_t)((image * c->groups * c->ci + row) * in + s->begin % in) * size_of(s->dtype),
                            s->dtype, in, 1};
    }
    const gd_columns m = {c, s->runs, s->run_count, row, row_end, memory, width};
    if (s->dtype == GD_F64) GD_ISA_CALL(gd_columns_fill_f64)(&m, (const double *)(const void *)x);
    else GD_ISA_CALL(gd_columns_fill_f32)(&m, (const float *)(const void *)x);
    return (gd_gemm_in){memory, s->dtype, width, 1};
}

/* Copies between y, the channels of one group from `channel` on, and a matrix (channels, columns). */
static void copy_y(const gd_conv_call *call, const stretch *s, int64_t group, int64_t channel, int64_t channels,
                   char *matrix, bool to_y) {
    const gd_conv *c = s->c;
    const size_t size = size_of(s->dtype);
    const int64_t places = gd_conv_places(c->out), width = s->end - s->begin;
    for (int64_t o = 0; o < channels; o++)
        for (int64_t j = s->begin; j < s->end;) {
            const int64_t image = j / places, count = gd_least((image + 1) * places, s->end) - j;
            char *y = (char *)call->y +
                      (size_t)(((image * c->groups + group) * c->co + channel + o) * places + j % places) * size;
            char *m = matrix + (size_t)(o * width + j - s->begin) * size;
            memcpy(to_y ? y : m, to_y ? m : y, (size_t)count * size);
            j += count;
        }
}

static bool is_in_one_image(const stretch *s) {
    const int64_t places = gd_conv_places(s->c->out);
    return (s->end - 1) / places == s->begin / places;
}

/* The part of y at these columns: (channels of the group, columns). */
static gd_gemm_out part_of_y(const gd_conv_call *call, const stretch *s, int64_t group, int64_t channel) {
    const gd_conv *c = s->c;
    const int64_t places = gd_conv_places(c->out), image = s->begin / places;
    char *y = call->y;
    return (gd_gemm_out){y + (size_t)(((image * c->groups + group) * c->co + channel) * places + s->begin % places) *
                                 size_of(s->dtype),
                         s->dtype, places, 1};
}

/* The same to read; copied to `memory` where it is not one matrix. */
static gd_gemm_in matrix_of_y(const gd_conv_call *call, const stretch *s, int64_t group, char *memory) {
    if (is_in_one_image(s)) {
        const gd_gemm_out y = part_of_y(call, s, group, 0);
        return (gd_gemm_in){y.data, y.dtype, y.row, y.col};
    }
    copy_y(call, s, group, 0, s->c->co, memory, false);
    return (gd_gemm_in){memory, s->dtype, s->end - s->begin, 1};
}

/* --- to y -------------------------------------------------------------------------------------- */

/* Pieces: (tile, group, cut of the output channels). */
typedef struct {
    const gd_conv_call *call;
    tiling tiles;
    int64_t rows, depth; /* of the columns: all, and of one tile */
    int64_t cuts;        /* of the output channels */
    int64_t pieces;
    size_t runs_bytes, columns_bytes, y_bytes;
} output_plan;

static output_plan plan_output(const gd_conv *c, gd_dtype dtype) {
    output_plan p = {.rows = c->ci * gd_conv_places(c->kernel), .cuts = 1};
    const int64_t wanted = wanted_pieces(c);
    const int64_t runs_of_k = gd_divide_up(p.rows > 0 ? p.rows : 1, TILE_ROWS);
    p.depth = gd_divide_up(p.rows, runs_of_k);
    int64_t columns = gd_least(TILE_NUMBERS / (p.depth > 0 ? p.depth : 1), TILE_COLUMNS);
    for (p.tiles = tile_columns(c, columns); p.tiles.count * c->groups < wanted && columns >= 2 * FEW_COLUMNS;) {
        columns /= 2;
        p.tiles = tile_columns(c, columns);
    }
    while (p.tiles.count * c->groups * p.cuts < wanted && c->co >= 2 * FEW_CHANNELS * p.cuts) p.cuts *= 2;
    p.pieces = p.tiles.count * c->groups * p.cuts;
    p.runs_bytes = gd_whole_lines((size_t)gd_column_runs_most(c, p.tiles.most) * sizeof(gd_column_run));
    p.columns_bytes = gd_whole_lines((size_t)(p.depth * p.tiles.most) * size_of(dtype));
    p.y_bytes = p.tiles.images > 1 ? gd_whole_lines((size_t)(gd_divide_up(c->co, p.cuts) * p.tiles.most) * size_of(dtype)) : 0;
    return p;
}

static gd_status output_piece(void *arg, int64_t i, char *memory) {
    const output_plan *p = arg;
    const gd_conv_call *call = p->call;
    const gd_conv *c = &call->c;
    const size_t size = size_of(call->dtype);
    const int64_t cut = i % p->cuts, group = i / p->cuts % c->groups;
    const int64_t o = gd_cut(c->co, cut, p->cuts), channels = gd_cut(c->co, cut + 1, p->cuts) - o;
    int64_t begin, end;
    tile_at(&p->tiles, i / (p->cuts * c->groups), &begin, &end);
    if (begin == end || channels == 0) return GD_OK;
    gd_column_run *runs = take(&memory, p->runs_bytes);
    void *columns = take(&memory, p->columns_bytes);
    char *apart = take(&memory, p->y_bytes);
    const stretch s = stretch_of(call, begin, end, runs);
    const bool direct = is_in_one_image(&s);
    gd_gemm g = {.m = channels, .n = end - begin, .c = part_of_y(call, &s, group, o)};
    if (!direct) g.c = (gd_gemm_out){apart, call->dtype, end - begin, 1};
    if (call->bias) g.bias = (gd_gemm_in){(const char *)call->bias + (size_t)(group * c->co + o) * size, call->dtype, 1, 0};
    const int64_t runs_of_k = p->depth > 0 ? gd_divide_up(p->rows, p->depth) : 1;
    for (int64_t k = 0; k < runs_of_k; k++) {
        const int64_t row = gd_cut(p->rows, k, runs_of_k), row_end = gd_cut(p->rows, k + 1, runs_of_k);
        g.k = row_end - row;
        g.a = (gd_gemm_in){(const char *)call->w + (size_t)((group * c->co + o) * p->rows + row) * size, call->dtype,
                           p->rows, 1};
        g.b = columns_of(call, &s, group, row, row_end, columns);
        GD_TRY(gd_gemm_run(&g));
        g.accumulate = true;
        g.bias.data = NULL;
    }
    if (!direct) copy_y(call, &s, group, o, channels, apart, true);
    return GD_OK;
}

/* A kernel of one tap is one product for each image and group, without any columns: where an image
 * is wide enough to keep whole tiles busy. */
enum { WIDE_IMAGE = 128 };
static bool is_plain_product(const gd_conv *c) {
    const int64_t places = gd_conv_places(c->out);
    return is_pointwise(c) && (places >= WIDE_IMAGE || places % 16 == 0);
}

static gd_status multiply_images(const gd_conv_call *call, bool to_x) {
    const gd_conv *c = &call->c;
    const int64_t places = gd_conv_places(c->out);
    const int64_t x_image = c->groups * c->ci * places, y_image = c->groups * c->co * places;
    gd_gemm g = {.m = c->co, .n = places, .k = c->ci, .a = {call->w, call->dtype, c->ci, 1},
                 .b = {call->x, call->dtype, places, 1}, .c = {call->y, call->dtype, places, 1}};
    gd_gemm_batch b = {.rank = 2, .size = {c->batch, c->groups}, .a_step = {0, c->co * c->ci},
                       .b_step = {x_image, c->ci * places}, .c_step = {y_image, c->co * places},
                       .bias_step = {0, c->co}};
    if (to_x) {
        g.m = c->ci;
        g.k = c->co;
        g.a = (gd_gemm_in){call->w, call->dtype, 1, c->ci};
        g.b.data = call->y;
        g.c.data = call->x;
        memcpy(b.c_step, (int64_t[]){x_image, c->ci * places}, 2 * sizeof(int64_t));
        memcpy(b.b_step, (int64_t[]){y_image, c->co * places}, 2 * sizeof(int64_t));
        b.bias_step[1] = c->ci;
    }
    if (call->bias) g.bias = (gd_gemm_in){call->bias, call->dtype, 1, 0};
    return gd_gemm_run_batch(&g, &b);
}

size_t gd_conv_gemm_output_bytes(const gd_conv *c, gd_dtype dtype) {
    if (is_plain_product(c)) return 0;
    const output_plan p = plan_output(c, dtype);
    return gd_conv_slots_bytes(0, p.runs_bytes + p.columns_bytes + p.y_bytes, p.pieces);
}

gd_status gd_conv_gemm_output(const gd_conv_call *call) {
    if (is_plain_product(&call->c)) return multiply_images(call, false);
    output_plan p = plan_output(&call->c, call->dtype);
    p.call = call;
    return gd_conv_run_pieces(call, 0, p.runs_bytes + p.columns_bytes + p.y_bytes, p.pieces, output_piece, &p);
}

/* --- to x -------------------------------------------------------------------------------------- */

/* Pieces: (block of images, group, cut of the input channels). A piece owns its part of x and adds
 * the tiles of its images to it one after the other. */
typedef struct {
    const gd_conv_call *call;
    tiling tiles;
    int64_t taps;
    int64_t cuts; /* of the input channels */
    int64_t blocks, tiles_in_block;
    int64_t pieces;
    size_t runs_bytes, columns_bytes, y_bytes;
} input_plan;

static input_plan plan_input(const gd_conv *c, gd_dtype dtype) {
    input_plan p = {.taps = gd_conv_places(c->kernel)};
    const int64_t wanted = wanted_pieces(c), rows = c->ci * p.taps;
    /* enough channels to a piece for a tall product, and not more than a tile has rows */
    p.cuts = gd_divide_up(rows > 0 ? rows : 1, TILE_ROWS);
    while (c->batch * c->groups * p.cuts < wanted && rows >= 2 * FEW_CHANNELS * p.cuts && c->ci >= 2 * p.cuts) p.cuts *= 2;
    if (p.cuts > c->ci) p.cuts = c->ci > 0 ? c->ci : 1;
    const int64_t depth = gd_divide_up(c->ci, p.cuts) * p.taps;
    int64_t columns = gd_least(TILE_NUMBERS / (depth > 0 ? depth : 1), TILE_COLUMNS);
    if (columns < FEW_COLUMNS) columns = FEW_COLUMNS;
    p.tiles = tile_columns(c, columns);
    p.tiles_in_block = p.tiles.cuts;
    p.blocks = p.tiles.count / p.tiles_in_block;
    p.pieces = p.blocks * c->groups * p.cuts;
    p.runs_bytes = gd_whole_lines((size_t)gd_column_runs_most(c, p.tiles.most) * sizeof(gd_column_run));
    p.columns_bytes = gd_whole_lines((size_t)(depth * p.tiles.most) * size_of(dtype));
    p.y_bytes = p.tiles.images > 1 ? gd_whole_lines((size_t)(c->co * p.tiles.most) * size_of(dtype)) : 0;
    return p;
}

/* Sets a part of x, channels [first, end) of a group, to the bias or zero. */
static void begin_x(const gd_conv_call *call, int64_t image, int64_t group, int64_t first, int64_t end) {
    const gd_conv *c = &call->c;
    const int64_t in = gd_conv_places(c->in);
    for (int64_t ci = first; ci < end; ci++) {
        const int64_t channel = group * c->ci + ci, at = (image * c->groups * c->ci + channel) * in;
        if (call->dtype == GD_F64) {
            const double bias = call->bias ? ((const double *)call->bias)[channel] : 0;
            for (int64_t p = 0; p < in; p++) ((double *)call->x)[at + p] = bias;
        } else {
            const float bias = call->bias ? ((const float *)call->bias)[channel] : 0;
            for (int64_t p = 0; p < in; p++) ((float *)call->x)[at + p] = bias;
        }
    }
}

static gd_status input_piece(void *arg, int64_t i, char *memory) {
    const input_plan *p = arg;
    const gd_conv_call *call = p->call;
    const gd_conv *c = &call->c;
    const size_t size = size_of(call->dtype);
    const int64_t cut = i % p->cuts, group = i / p->cuts % c->groups, block = i / (p->cuts * c->groups);
    const int64_t first = gd_cut(c->ci, cut, p->cuts), last = gd_cut(c->ci, cut + 1, p->cuts);
    gd_column_run *runs = take(&memory, p->runs_bytes);
    void *columns = take(&memory, p->columns_bytes);
    char *apart = take(&memory, p->y_bytes);
    for (int64_t t = 0; t < p->tiles_in_block; t++) {
        int64_t begin, end;
        tile_at(&p->tiles, block * p->tiles_in_block + t, &begin, &end);
        if (t == 0)
            for (int64_t image = begin / p->tiles.places; image * p->tiles.places < end; image++)
                begin_x(call, image, group, first, last);
        const stretch s = stretch_of(call, begin, end, runs);
        gd_gemm g = {.m = (last - first) * p->taps, .n = end - begin, .k = c->co};
        g.a = (gd_gemm_in){(const char *)call->w + (size_t)((group * c->co * c->ci + first) * p->taps) * size,
                           call->dtype, 1, c->ci * p->taps};
        g.b = matrix_of_y(call, &s, group, apart);
        g.c = (gd_gemm_out){columns, call->dtype, end - begin, 1};
        GD_TRY(gd_gemm_run(&g));
        const gd_columns m = {c, runs, s.run_count, first * p->taps, last * p->taps, columns, end - begin};
        char *x = (char *)call->x + (size_t)(group * c->ci * gd_conv_places(c->in)) * size;
        if (call->dtype == GD_F64) GD_ISA_CALL(gd_columns_add_f64)(&m, (double *)(void *)x);
        else GD_ISA_CALL(gd_columns_add_f32)(&m, (float *)(void *)x);
    }
    return GD_OK;
}

static size_t weight_bytes(const gd_conv *c, gd_dtype dtype) {
    return (size_t)(c->groups * c->co * c->ci * gd_conv_places(c->kernel)) * size_of(dtype);
}

size_t gd_conv_gemm_input_bytes(const gd_conv *c, gd_dtype dtype) {
    if (is_plain_product(c)) return 0;
    if (gd_conv_has_stride_1(c)) {
        const gd_conv turned = gd_conv_turned(c);
        const output_plan p = plan_output(&turned, dtype);
        return gd_conv_slots_bytes(weight_bytes(c, dtype), p.runs_bytes + p.columns_bytes + p.y_bytes, p.pieces);
    }
    const input_plan p = plan_input(c, dtype);
    return gd_conv_slots_bytes(0, p.runs_bytes + p.columns_bytes + p.y_bytes, p.pieces);
}

gd_status gd_conv_gemm_input(const gd_conv_call *call) {
    if (is_plain_product(&call->c)) return multiply_images(call, true);
    if (gd_conv_has_stride_1(&call->c)) {
        gd_conv_call turned = *call;
        turned.c = gd_conv_turned(&call->c);
        turned.x = call->y;
        turned.y = call->x;
        turned.w = call->workspace;
        gd_conv_turn_weight(&call->c, call->dtype, call->w, turned.w);
        output_plan p = plan_output(&turned.c, call->dtype);
        p.call = &turned;
        return gd_conv_run_pieces(call, weight_bytes(&call->c, call->dtype), p.runs_bytes + p.columns_bytes + p.y_bytes,
                                  p.pieces, output_piece, &p);
    }
    input_plan p = plan_input(&call->c, call->dtype);
    p.call = call;
    if (p.tiles.places == 0) { /* no windows: nothing but the bias */
        for (int64_t i = 0; i < call->c.batch * call->c.groups; i++)
            begin_x(call, i / call->c.groups, i % call->c.groups, 0, call->c.ci);
        return GD_OK;
    }
    return gd_conv_run_pieces(call, 0, p.runs_bytes + p.columns_bytes + p.y_bytes, p.pieces, input_piece, &p);
}

/* --- to w -------------------------------------------------------------------------------------- */

/* Pieces: (part of the tiles, group, cut of the input channels). Each sums its tiles in order;
 * where there are several parts they have sums of their own, added up in order at the end. */
typedef struct {
    const gd_conv_call *call;
    tiling tiles;
    int64_t taps;
    int64_t cuts;  /* of the input channels */
    int64_t parts; /* of the tiles */
    int64_t pieces;
    size_t sums_bytes; /* of all parts, where there are several */
    size_t runs_bytes, columns_bytes, y_bytes;
} weight_plan;

enum {
    SUMMED_COLUMNS = 1024, /* of a tile: as many as the matrix product sums at once */
    SUMMED_ROWS = 144,     /* of a tile, about */
    SUMMED_PARTS = 16,     /* at most, ... */
    SUMS_NUMBERS = 1 << 20 /* ... and so many sums in all */
};

static weight_plan plan_weight(const gd_conv *c, gd_dtype dtype) {
    weight_plan p = {.taps = gd_conv_places(c->kernel), .parts = 1};
    const int64_t wanted = wanted_pieces(c), rows = c->ci * p.taps, numbers = c->groups * c->co * rows;
    p.cuts = gd_divide_up(rows > 0 ? rows : 1, SUMMED_ROWS);
    if (p.cuts > c->ci) p.cuts = c->ci > 0 ? c->ci : 1;
    const int64_t depth = gd_divide_up(c->ci, p.cuts) * p.taps;
    int64_t columns = gd_least(TILE_NUMBERS / (depth > 0 ? depth : 1), SUMMED_COLUMNS);
    if (columns < FEW_COLUMNS) columns = FEW_COLUMNS;
    p.tiles = tile_columns(c, columns);
    while (c->groups * p.cuts * p.parts < wanted && 2 * p.parts <= p.tiles.count && p.parts < SUMMED_PARTS &&
           2 * p.parts * numbers <= SUMS_NUMBERS)
        p.parts *= 2;
    p.pieces = p.parts * c->groups * p.cuts;
    p.sums_bytes = p.parts > 1 ? gd_whole_lines((size_t)(p.parts * numbers) * size_of(dtype)) : 0;
    p.runs_bytes = gd_whole_lines((size_t)gd_column_runs_most(c, p.tiles.most) * sizeof(gd_column_run));
    p.columns_bytes = gd_whole_lines((size_t)(depth * p.tiles.most) * size_of(dtype));
    p.y_bytes = p.tiles.images > 1 ? gd_whole_lines((size_t)(c->co * p.tiles.most) * size_of(dtype)) : 0;
    return p;
}

static gd_status weight_piece(void *arg, int64_t i, char *memory) {
    const weight_plan *p = arg;
    const gd_conv_call *call = p->call;
    const gd_conv *c = &call->c;
    const size_t size = size_of(call->dtype);
    const int64_t rows = c->ci * p->taps, cut = i % p->cuts, group = i / p->cuts % c->groups;
    const int64_t part = i / (p->cuts * c->groups);
    const int64_t first = gd_cut(c->ci, cut, p->cuts) * p->taps, last = gd_cut(c->ci, cut + 1, p->cuts) * p->taps;
    gd_column_run *runs = take(&memory, p->runs_bytes);
    void *columns = take(&memory, p->columns_bytes);
    char *apart = take(&memory, p->y_bytes);
    char *sums = p->parts > 1 ? (char *)call->workspace + (size_t)(part * c->groups * c->co * rows) * size : call->w;
    gd_gemm g = {.m = c->co, .n = last - first};
    g.c = (gd_gemm_out){sums + (size_t)(group * c->co * rows + first) * size, call->dtype, rows, 1};
    const int64_t t_end = gd_cut(p->tiles.count, part + 1, p->parts);
    for (int64_t t = gd_cut(p->tiles.count, part, p->parts); t < t_end; t++) {
        int64_t begin, end;
        tile_at(&p->tiles, t, &begin, &end);
        const stretch s = stretch_of(call, begin, end, runs);
        const gd_gemm_in m = columns_of(call, &s, group, first, last, columns);
        g.k = end - begin;
        g.a = matrix_of_y(call, &s, group, apart);
        g.b = (gd_gemm_in){m.data, m.dtype, m.col, m.row};
        GD_TRY(gd_gemm_run(&g));
        g.accumulate = true;
    }
    return GD_OK;
}

enum { SUM_CHUNK = 4096 };

/* Adds up the parts' sums, a stretch of w at a time. */
static void sum_parts(void *arg, int64_t i) {
    const weight_plan *p = arg;
    const gd_conv_call *call = p->call;
    const int64_t numbers = call->c.groups * call->c.co * call->c.ci * p->taps;
    const int64_t begin = i * SUM_CHUNK, end = gd_least(begin + SUM_CHUNK, numbers);
    for (int64_t part = 0; part < p->parts; part++)
        if (call->dtype == GD_F64) {
            const double *from = (const double *)call->workspace + part * numbers;
            double *w = call->w;
            for (int64_t k = begin; k < end; k++) w[k] = part ? w[k] + from[k] : from[k];
        } else {
            const float *from = (const float *)call->workspace + part * numbers;
            float *w = call->w;
            for (int64_t k = begin; k < end; k++) w[k] = part ? w[k] + from[k] : from[k];
        }
}

size_t gd_conv_gemm_weight_bytes(const gd_conv *c, gd_dtype dtype) {
    const weight_plan p = plan_weight(c, dtype);
    return gd_conv_slots_bytes(p.sums_bytes, p.runs_bytes + p.columns_bytes + p.y_bytes, p.pieces);
}

gd_status gd_conv_gemm_weight(const gd_conv_call *call) {
    weight_plan p = plan_weight(&call->c, call->dtype);
    p.call = call;
    const int64_t numbers = call->c.groups * call->c.co * call->c.ci * p.taps;
    if (p.tiles.count == 0 || p.tiles.places == 0) {
        memset(call->w, 0, (size_t)numbers * size_of(call->dtype));
        return GD_OK;
    }
    GD_TRY(gd_conv_run_pieces(call, p.sums_bytes, p.runs_bytes + p.columns_bytes + p.y_bytes, p.pieces,
                                     weight_piece, &p));
    if (p.parts > 1) gd_parallel_for(gd_divide_up(numbers, SUM_CHUNK), sum_parts, &p);
    return GD_OK;
}
