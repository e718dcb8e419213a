/* conv_gemm.c - convolution as matrix products (conv_panel.h), in any direction.
 *
 *     y = w * columns        w = y * columns^T
 *
 * The gradient by x is a convolution of y again. With stride 1 it is one with the taps turned. With
 * a larger stride, places of x fall into phases: those in one phase meet the same taps, and each
 * phase is a convolution of stride 1 with those taps alone.
 */
#include <string.h>

#include "backend/cpu/conv.h"
#include "backend/cpu/conv_panel.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/gemm_block.h"
#include "core/error.h"
#include "core/pool.h"

enum {
    AXES = GD_CONV_AXES,
    TILE_COLUMNS = 192, /* of a piece, where there are enough ... */
    TILE_FEWEST = 48,   /* ... and where there are not */
    TILE_ROWS = 512,    /* output channels of a piece, ... */
    TILE_ROWS_FEWEST = 64,
    MANY_PIECES = 16, /* enough for the threads */
};

/* Multiply-adds that are worth a piece. */
static const double PIECE_WORK = 1 << 20;

static size_t size_of(gd_dtype dtype) { return dtype == GD_F64 ? 8 : 4; }

static char *at(const void *data, gd_dtype dtype, int64_t index) {
    return (char *)(uintptr_t)data + index * (int64_t)size_of(dtype);
}

static gd_status multiply_block(const gd_gemm *g) {
    return g->c.dtype == GD_F64 ? GD_ISA_CALL(gd_gemm_block_f64)(g)
                                : GD_ISA_CALL(gd_gemm_block_f32)(g);
}

static int64_t wanted_pieces(const gd_conv *c) {
    const double work = (double)c->batch * (double)gd_conv_places(c->out) *
                        (double)gd_conv_places(c->kernel) * (double)c->groups * (double)c->ci *
                        (double)c->co;
    const double wanted = 1 + work / PIECE_WORK;
    return wanted < MANY_PIECES ? (int64_t)wanted : MANY_PIECES;
}

/* --- y = w * columns -------------------------------------------------------------------------- */

/* Where results go: window i along an axis to place first + i * step of `size` places. */
typedef struct {
    void *data;
    int64_t size[AXES], first[AXES], step[AXES];
} target;

/* Pieces: (tile of columns, group, cut of the output channels). */
typedef struct {
    gd_conv c;
    gd_dtype dtype;
    const void *x, *w, *bias;
    bool relu;
    target y;
    bool direct; /* y is what the product writes: else it goes to memory of its own first */
    int64_t columns, tiles, tile; /* all, how many tiles, columns of one */
    int64_t cuts;
    int64_t pieces;
    size_t slot;
} output_plan;

static output_plan plan_output(const gd_conv *c, gd_dtype dtype, bool direct) {
    output_plan p = {
        .c = *c, .dtype = dtype, .columns = c->batch * gd_conv_places(c->out), .direct = direct};
    const int64_t wanted = wanted_pieces(c);
    p.tile = TILE_COLUMNS;
    p.cuts = gd_divide_up(c->co > 0 ? c->co : 1, TILE_ROWS);
    while (gd_divide_up(p.columns, p.tile) * c->groups * p.cuts < wanted && p.tile > TILE_FEWEST)
        p.tile /= 2;
    p.tiles = gd_divide_up(p.columns, p.tile);
    while (p.tiles * c->groups * p.cuts < wanted && c->co >= 2 * TILE_ROWS_FEWEST * p.cuts)
        p.cuts *= 2;
    p.pieces = p.tiles * c->groups * p.cuts;
    p.slot = (size_t)(gd_divide_up(c->co, p.cuts) * p.tile) * size_of(dtype);
    return p;
}

/* Copies count numbers to every step-th place. */
static void copy_spaced(char *to, const char *from, int64_t count, int64_t step, gd_dtype dtype) {
    if (step == 1) memcpy(to, from, (size_t)count * size_of(dtype));
    else if (dtype == GD_F64)
        for (int64_t i = 0; i < count; i++)
            ((double *)(void *)to)[i * step] = ((const double *)(const void *)from)[i];
    else
        for (int64_t i = 0; i < count; i++)
            ((float *)(void *)to)[i * step] = ((const float *)(const void *)from)[i];
}

/* A matrix (channels, columns from `begin` to `end`) to its places in y. */
static void spread(const output_plan *p, int64_t channel, int64_t channels, int64_t begin,
                   int64_t end, const char *matrix) {
    const gd_conv *c = &p->c;
    const target *y = &p->y;
    const int64_t plane = gd_conv_places(y->size), all = c->groups * c->co;
    for (int64_t j = begin; j < end;) {
        const int64_t w = j % c->out[2], h = j / c->out[2] % c->out[1],
                      d = j / (c->out[2] * c->out[1]) % c->out[0];
        const int64_t image = j / gd_conv_places(c->out), count = gd_least(c->out[2] - w, end - j);
        const int64_t place =
            ((y->first[0] + d * y->step[0]) * y->size[1] + y->first[1] + h * y->step[1]) *
                y->size[2] +
            y->first[2] + w * y->step[2];
        for (int64_t o = 0; o < channels; o++)
            copy_spaced(at(y->data, p->dtype, (image * all + channel + o) * plane + place),
                        matrix + (size_t)(o * (end - begin) + j - begin) * size_of(p->dtype), count,
                        y->step[2], p->dtype);
        j += count;
    }
}

static gd_status output_piece(void *arg, int64_t i, char *memory) {
    const output_plan *p = arg;
    const gd_conv *c = &p->c;
    const int64_t places = gd_conv_places(c->out), rows = c->ci * gd_conv_places(c->kernel);
    const int64_t cut = i % p->cuts, group = i / p->cuts % c->groups,
                  tile = i / (p->cuts * c->groups);
    const int64_t begin = tile * p->tile, end = gd_least(begin + p->tile, p->columns);
    const int64_t first = gd_cut(c->co, cut, p->cuts), channel = group * c->co + first;
    const gd_conv_columns columns = {c, at(p->x, p->dtype, group * c->ci * gd_conv_places(c->in)),
                                     0, begin};
    gd_gemm g = {.m = gd_cut(c->co, cut + 1, p->cuts) - first,
                 .n = end - begin,
                 .k = rows,
                 .a = {at(p->w, p->dtype, channel * rows), p->dtype, rows, 1},
                 .b = {NULL, p->dtype, 0, 1},
                 .c = {memory, p->dtype, end - begin, 1},
                 .fill_b = p->dtype == GD_F64 ? GD_ISA_CALL(gd_conv_fill_f64)
                                              : GD_ISA_CALL(gd_conv_fill_f32),
                 .fill_context = &columns};
    const bool direct = p->direct && begin / places == (end - 1) / places;
    if (direct)
        g.c = (gd_gemm_out){
            at(p->y.data, p->dtype,
               (begin / places * c->groups * c->co + channel) * places + begin % places),
            p->dtype, places, 1};
    if (p->bias) g.bias = (gd_gemm_in){at(p->bias, p->dtype, channel), p->dtype, 1, 0};
    if (p->relu) g.act = GD_GEMM_RELU;
    if (g.m == 0) return GD_OK;
    GD_TRY(multiply_block(&g));
    if (!direct) spread(p, channel, g.m, begin, end, memory);
    return GD_OK;
}

/* --- one tap: plain products ------------------------------------------------------------------ */

static bool is_pointwise(const gd_conv *c) {
    bool same = gd_conv_places(c->kernel) == 1 && gd_conv_has_stride_1(c);
    for (int a = 0; a < AXES; a++) same = same && c->before[a] == 0 && c->in[a] == c->out[a];
    return same;
}

/* A kernel of one tap is one product for each image and group, where an image has enough places to
 * fill whole panels. */
enum { WIDE_IMAGE = 192 };
static bool is_plain_product(const gd_conv *c) {
    return is_pointwise(c) && (gd_conv_places(c->out) >= WIDE_IMAGE || c->batch == 1);
}

static gd_status multiply_images(const gd_conv_call *call, bool to_x) {
    const gd_conv *c = &call->c;
    const int64_t places = gd_conv_places(c->out);
    const int64_t x_image = c->groups * c->ci * places, y_image = c->groups * c->co * places;
    gd_gemm g = {.m = c->co,
                 .n = places,
                 .k = c->ci,
                 .a = {call->w, call->dtype, c->ci, 1},
                 .b = {call->x, call->dtype, places, 1},
                 .c = {call->y, call->dtype, places, 1}};
    gd_gemm_batch b = {.rank = 2,
                       .size = {c->batch, c->groups},
                       .a_step = {0, c->co * c->ci},
                       .b_step = {x_image, c->ci * places},
                       .c_step = {y_image, c->co * places},
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
    if (call->relu) g.act = GD_GEMM_RELU;
    return gd_gemm_run_batch(&g, &b);
}

size_t gd_conv_gemm_output_bytes(const gd_conv *c, gd_dtype dtype) {
    if (is_plain_product(c)) return 0;
    const output_plan p = plan_output(c, dtype, true);
    return gd_conv_slots_bytes(0, p.slot, p.pieces);
}

gd_status gd_conv_gemm_output(const gd_conv_call *call) {
    if (is_plain_product(&call->c)) return multiply_images(call, false);
    output_plan p = plan_output(&call->c, call->dtype, true);
    p.x = call->x;
    p.w = call->w;
    p.bias = call->bias;
    p.relu = call->relu;
    p.y = (target){call->y, {call->c.out[0], call->c.out[1], call->c.out[2]}, {0, 0, 0}, {1, 1, 1}};
    return gd_conv_run_pieces(call, 0, p.slot, p.pieces, output_piece, &p);
}

/* --- to x, phase by phase --------------------------------------------------------------------- */

/* One phase along one axis: elements i of x with i + before = number + stride * q, for q from
 * `from` on, and the taps tap, tap + tap_step, ... that they meet. */
typedef struct {
    int64_t count, from, place; /* elements, the first one's q and its place in x */
    int64_t taps, tap, tap_step;
    int64_t dilation, before; /* of the convolution with those taps, turned */
} axis_phase;

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static axis_phase phase_of(const gd_conv *c, int a, int64_t number) {
    const int64_t stride = c->stride[a], dilation = c->dilation[a],
                  divisor = common_divisor(stride, dilation);
    axis_phase p = {.tap_step = stride / divisor, .dilation = dilation / divisor};
    /* q must give 0 <= number - before + stride q < in */
    const int64_t short_by = c->before[a] - number;
    p.from = short_by > 0 ? gd_divide_up(short_by, stride) : -(-short_by / stride);
    p.place = number - c->before[a] + stride * p.from;
    p.count = p.place < c->in[a] ? (c->in[a] - 1 - p.place) / stride + 1 : 0;
    if (number % divisor == 0)
        for (p.tap = 0; p.tap < p.tap_step && p.tap < c->kernel[a]; p.tap++)
            if (p.tap * dilation % stride == number) {
                p.taps = (c->kernel[a] - 1 - p.tap) / p.tap_step + 1;
                p.before =
                    (p.tap * dilation - number) / stride + (p.taps - 1) * p.dilation - p.from;
                break;
            }
    return p;
}

/* The convolution of y that makes one phase of x, phases being numbered through all axes; false
 * where no tap reaches it. `axes` gets the phases. */
static bool form_of_phase(const gd_conv *c, int64_t number, gd_conv *form, axis_phase axes[AXES]) {
    *form = *c;
    form->ci = c->co;
    form->co = c->ci;
    bool reached = true;
    for (int a = AXES - 1; a >= 0; a--) {
        axes[a] = phase_of(c, a, number % c->stride[a]);
        number /= c->stride[a];
        form->in[a] = c->out[a];
        form->out[a] = axes[a].count;
        form->kernel[a] = axes[a].taps;
        form->stride[a] = 1;
        form->dilation[a] = axes[a].dilation;
        form->before[a] = axes[a].before;
        reached = reached && axes[a].taps > 0 && axes[a].count > 0;
    }
    return reached;
}

typedef struct {
    const gd_conv *c;
    const axis_phase *axes;
    gd_dtype dtype;
    const void *w;
    void *phase_w;
} turning;

/* The taps of one phase, last ones first: w (groups, co, ci, taps) to (groups, ci, co, taps of the
 * phase), for one input channel of one group. */
static void turn_channel(void *arg, int64_t i) {
    const turning *t = arg;
    const gd_conv *c = t->c;
    const axis_phase *p = t->axes;
    const int64_t taps = gd_conv_places(c->kernel), group = i / c->ci, channel = i % c->ci;
    int64_t to = i * c->co * p[0].taps * p[1].taps * p[2].taps;
    for (int64_t o = 0; o < c->co; o++) {
        const int64_t from = ((group * c->co + o) * c->ci + channel) * taps;
        for (int64_t d = p[0].taps; d-- > 0;)
            for (int64_t h = p[1].taps; h-- > 0;)
                for (int64_t w = p[2].taps; w-- > 0; to++) {
                    const int64_t tap = ((p[0].tap + d * p[0].tap_step) * c->kernel[1] + p[1].tap +
                                         h * p[1].tap_step) *
                                            c->kernel[2] +
                                        p[2].tap + w * p[2].tap_step;
                    if (t->dtype == GD_F64)
                        ((double *)t->phase_w)[to] = ((const double *)t->w)[from + tap];
                    else ((float *)t->phase_w)[to] = ((const float *)t->w)[from + tap];
                }
    }
}

static int64_t phases_of(const gd_conv *c) {
    int64_t phases = 1; /* no more than there are places */
    for (int a = 0; a < AXES; a++) phases *= c->stride[a];
    return phases;
}

/* Strides so large that most phases are empty are left to others. */
enum { MOST_PHASES = 64 };
bool gd_conv_gemm_input_fits(const gd_conv *c) {
    return c->stride[0] <= MOST_PHASES && c->stride[1] <= MOST_PHASES &&
           c->stride[2] <= MOST_PHASES && phases_of(c) <= MOST_PHASES;
}

static size_t weight_bytes(const gd_conv *c, gd_dtype dtype) {
    return (size_t)(c->groups * c->co * c->ci * gd_conv_places(c->kernel)) * size_of(dtype);
}

size_t gd_conv_gemm_input_bytes(const gd_conv *c, gd_dtype dtype) {
    if (is_plain_product(c)) return 0;
    size_t most = 0;
    for (int64_t i = 0; i < phases_of(c); i++) {
        gd_conv form;
        axis_phase axes[AXES];
        if (!form_of_phase(c, i, &form, axes)) continue;
        const output_plan p = plan_output(&form, dtype, gd_conv_has_stride_1(c));
        const size_t bytes = gd_conv_slots_bytes(0, p.slot, p.pieces);
        if (bytes > most) most = bytes;
    }
    return gd_whole_lines(weight_bytes(c, dtype)) + most;
}

typedef struct {
    const gd_conv_call *call;
    int64_t plane;
} beginning;

/* A plane of x that not every phase writes: the bias or zero. */
static void begin_plane(void *arg, int64_t i) {
    const beginning *b = arg;
    const gd_conv_call *call = b->call;
    const int64_t channel = i % (call->c.groups * call->c.ci);
    if (call->dtype == GD_F64) {
        double *x = (double *)call->x + i * b->plane;
        const double bias = call->bias ? ((const double *)call->bias)[channel] : 0;
        for (int64_t p = 0; p < b->plane; p++) x[p] = bias;
    } else {
        float *x = (float *)call->x + i * b->plane;
        const float bias = call->bias ? ((const float *)call->bias)[channel] : 0;
        for (int64_t p = 0; p < b->plane; p++) x[p] = bias;
    }
}

gd_status gd_conv_gemm_input(const gd_conv_call *call) {
    const gd_conv *c = &call->c;
    if (is_plain_product(c)) return multiply_images(call, true);
    const bool direct = gd_conv_has_stride_1(c);
    const size_t shared = weight_bytes(c, call->dtype);
    bool begun = false;
    for (int64_t i = 0; i < phases_of(c); i++) {
        gd_conv form;
        axis_phase axes[AXES];
        if (form_of_phase(c, i, &form, axes) || begun) continue;
        gd_parallel_for(c->batch * c->groups * c->ci, begin_plane,
                        &(beginning){call, gd_conv_places(c->in)});
        begun = true;
    }
    for (int64_t i = 0; i < phases_of(c); i++) {
        gd_conv form;
        axis_phase axes[AXES];
        if (!form_of_phase(c, i, &form, axes)) continue;
        gd_parallel_for(c->groups * c->ci, turn_channel,
                        &(turning){c, axes, call->dtype, call->w, call->workspace});
        output_plan p = plan_output(&form, call->dtype, direct);
        p.x = call->y;
        p.w = call->workspace;
        p.bias = call->bias;
        p.y.data = call->x;
        for (int a = 0; a < AXES; a++) {
            p.y.size[a] = c->in[a];
            p.y.first[a] = axes[a].place;
            p.y.step[a] = c->stride[a];
        }
        GD_TRY(gd_conv_run_pieces(call, shared, p.slot, p.pieces, output_piece, &p));
    }
    return GD_OK;
}

/* --- w = y * columns^T ------------------------------------------------------------------------ */

/* Pieces: (part of the columns, group, cut of the rows). Each sums its columns in order; where
 * there are several parts they have sums of their own, added up in order at the end. */
typedef struct {
    const gd_conv_call *call;
    int64_t rows, columns;
    int64_t cuts, parts;
    int64_t pieces;
    int64_t tile; /* columns summed at once */
    size_t sums, y_bytes;
} weight_plan;

enum {
    SUMMED_ROWS = 480, /* of a piece at most, ... */
    SUMMED_ROWS_FEWEST = 96,
    SUMMED_COLUMNS = 1024,  /* at once: as many as the product sums without touching C */
    SUMMED_PARTS = 16,      /* at most, ... */
    SUMS_NUMBERS = 1 << 20, /* ... with so many sums in all, ... */
    PART_COLUMNS = 512      /* ... and no fewer columns in each */
};

static weight_plan plan_weight(const gd_conv *c, gd_dtype dtype) {
    weight_plan p = {.rows = c->ci * gd_conv_places(c->kernel),
                     .columns = c->batch * gd_conv_places(c->out),
                     .parts = 1};
    const int64_t wanted = wanted_pieces(c), numbers = c->groups * c->co * p.rows;
    p.cuts = gd_divide_up(p.rows > 0 ? p.rows : 1, SUMMED_ROWS);
    while (c->groups * p.cuts * p.parts < wanted) {
        if (2 * p.parts * numbers <= SUMS_NUMBERS && p.columns >= 2 * PART_COLUMNS * p.parts &&
            p.parts < SUMMED_PARTS)
            p.parts *= 2;
        else if (p.rows >= 2 * SUMMED_ROWS_FEWEST * p.cuts) p.cuts *= 2;
        else break;
    }
    p.pieces = p.parts * c->groups * p.cuts;
    p.tile = gd_least(SUMMED_COLUMNS, p.columns);
    p.sums = p.parts > 1 ? (size_t)(p.parts * numbers) * size_of(dtype) : 0;
    p.y_bytes = (size_t)(c->co * p.tile) * size_of(dtype);
    return p;
}

/* y at the columns [begin, end) as a matrix (co, columns): where it lies, or copied. */
static gd_gemm_in matrix_of_y(const gd_conv_call *call, int64_t group, int64_t begin, int64_t end,
                              char *memory) {
    const gd_conv *c = &call->c;
    const int64_t places = gd_conv_places(c->out);
    for (int64_t j = begin; j < end;) {
        const int64_t image = j / places, count = gd_least((image + 1) * places, end) - j;
        const char *from =
            at(call->y, call->dtype, (image * c->groups + group) * c->co * places + j % places);
        if (count == end - begin) return (gd_gemm_in){from, call->dtype, places, 1};
        for (int64_t o = 0; o < c->co; o++)
            memcpy(at(memory, call->dtype, o * (end - begin) + j - begin),
                   from + (size_t)(o * places) * size_of(call->dtype),
                   (size_t)count * size_of(call->dtype));
        j += count;
    }
    return (gd_gemm_in){memory, call->dtype, end - begin, 1};
}

static gd_status weight_piece(void *arg, int64_t i, char *memory) {
    const weight_plan *p = arg;
    const gd_conv_call *call = p->call;
    const gd_conv *c = &call->c;
    const gd_dtype dtype = call->dtype;
    const int64_t cut = i % p->cuts, group = i / p->cuts % c->groups,
                  part = i / (p->cuts * c->groups);
    const int64_t first = gd_cut(p->rows, cut, p->cuts), last = gd_cut(p->rows, cut + 1, p->cuts);
    const int64_t end = gd_cut(p->columns, part + 1, p->parts);
    char *sums =
        p->parts > 1 ? at(call->workspace, dtype, part * c->groups * c->co * p->rows) : call->w;
    gd_conv_columns columns = {c, at(call->x, dtype, group * c->ci * gd_conv_places(c->in)), first,
                               0};
    gd_gemm g = {.n = last - first,
                 .b = {NULL, dtype, 0, 1},
                 .fill_b = dtype == GD_F64 ? GD_ISA_CALL(gd_conv_fill_turned_f64)
                                           : GD_ISA_CALL(gd_conv_fill_turned_f32),
                 .fill_context = &columns};
    for (int64_t j = gd_cut(p->columns, part, p->parts); j < end; j += p->tile) {
        const int64_t tile_end = gd_least(j + p->tile, end);
        const gd_gemm_in y = matrix_of_y(call, group, j, tile_end, memory);
        columns.column = j;
        g.k = tile_end - j;
        for (int64_t o = 0; o < c->co; o += TILE_ROWS) {
            g.m = gd_least(TILE_ROWS, c->co - o);
            g.a = gd_gemm_in_at(y, o, 0);
            g.c = (gd_gemm_out){at(sums, dtype, (group * c->co + o) * p->rows + first), dtype,
                                p->rows, 1};
            GD_TRY(multiply_block(&g));
        }
        g.accumulate = true;
    }
    return GD_OK;
}

enum { SUM_CHUNK = 4096 };

/* Adds up the parts' sums, a stretch of w at a time. */
static void sum_parts(void *arg, int64_t i) {
    const weight_plan *p = arg;
    const gd_conv_call *call = p->call;
    const int64_t numbers = call->c.groups * call->c.co * p->rows;
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
    return gd_conv_slots_bytes(p.sums, p.y_bytes, p.pieces);
}

gd_status gd_conv_gemm_weight(const gd_conv_call *call) {
    weight_plan p = plan_weight(&call->c, call->dtype);
    p.call = call;
    const int64_t numbers = call->c.groups * call->c.co * p.rows;
    if (numbers == 0) return GD_OK;
    if (p.columns == 0) {
        memset(call->w, 0, (size_t)numbers * size_of(call->dtype));
        return GD_OK;
    }
    GD_TRY(gd_conv_run_pieces(call, p.sums, p.y_bytes, p.pieces, weight_piece, &p));
    if (p.parts > 1) gd_parallel_for(gd_divide_up(numbers, SUM_CHUNK), sum_parts, &p);
    return GD_OK;
}
