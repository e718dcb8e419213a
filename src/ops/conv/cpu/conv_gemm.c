/* conv_gemm.c - convolution as implicit GEMM: y = w * columns, where the panels of the im2col
 * matrix `columns` are packed on the fly (conv_im2col.h).
 */
#include "ops/conv/cpu/conv_gemm.h"

#include <string.h>

#include "core/error.h"

enum {
    TILE_COLUMNS = 192,    /* columns of a task */
    MIN_TILE_COLUMNS = 48, /* of a task, if there would be too few tasks */
    MIN_TASK_CHANNELS = 64,
};

/* The multiply-adds that make another task worthwhile. */
static const double TASK_MACS = 1 << 20;

int64_t gd_conv_gemm_min_tasks(const gd_conv *c) {
    const double macs = (double)c->batch * (double)gd_conv_positions(c->out) *
                        (double)gd_conv_positions(c->kernel) * (double)c->groups * (double)c->ci *
                        (double)c->co;
    const double min_tasks = 1 + macs / TASK_MACS;
    return min_tasks < GD_CONV_ENOUGH_TASKS ? (int64_t)min_tasks : GD_CONV_ENOUGH_TASKS;
}

/* --- y = w * columns -------------------------------------------------------------------------- */

gd_conv_output_plan gd_conv_plan_output(const gd_conv *c, gd_dtype dtype, bool direct) {
    gd_conv_output_plan p = {
        .c = *c, .dtype = dtype, .columns = c->batch * gd_conv_positions(c->out), .direct = direct};
    const int64_t min_tasks = gd_conv_gemm_min_tasks(c);
    p.tile = TILE_COLUMNS;
    p.channel_blocks = gd_divide_up(c->co > 0 ? c->co : 1, GD_CONV_GEMM_ROWS);
    while (gd_divide_up(p.columns, p.tile) * c->groups * p.channel_blocks < min_tasks &&
           p.tile > MIN_TILE_COLUMNS)
        p.tile /= 2;
    p.tiles = gd_divide_up(p.columns, p.tile);
    while (p.tiles * c->groups * p.channel_blocks < min_tasks &&
           c->co >= 2 * MIN_TASK_CHANNELS * p.channel_blocks)
        p.channel_blocks *= 2;
    p.tasks = p.tiles * c->groups * p.channel_blocks;
    p.slot = (size_t)(gd_divide_up(c->co, p.channel_blocks) * p.tile) * gd_conv_dtype_size(dtype);
    return p;
}

/* Copies count elements to positions that are `step` apart. */
static void copy_strided(char *to, const char *from, int64_t count, int64_t step, gd_dtype dtype) {
    if (step == 1) memcpy(to, from, (size_t)count * gd_conv_dtype_size(dtype));
    else if (dtype == GD_F64)
        for (int64_t i = 0; i < count; i++)
            ((double *)(void *)to)[i * step] = ((const double *)(const void *)from)[i];
    else
        for (int64_t i = 0; i < count; i++)
            ((float *)(void *)to)[i * step] = ((const float *)(const void *)from)[i];
}

/* Copies a matrix (channels, columns from `begin` to `end`) to its positions in y. */
static void scatter_columns(const gd_conv_output_plan *p, int64_t channel, int64_t channels,
                            int64_t begin, int64_t end, const char *matrix) {
    const gd_conv *c = &p->c;
    const gd_conv_target *y = &p->y;
    const int64_t plane = gd_conv_positions(y->size), all = c->groups * c->co;
    for (int64_t j = begin; j < end;) {
        const int64_t w = j % c->out[2], h = j / c->out[2] % c->out[1],
                      d = j / (c->out[2] * c->out[1]) % c->out[0];
        const int64_t image = j / gd_conv_positions(c->out),
                      count = gd_min64(c->out[2] - w, end - j);
        const int64_t offset =
            ((y->first[0] + d * y->step[0]) * y->size[1] + y->first[1] + h * y->step[1]) *
                y->size[2] +
            y->first[2] + w * y->step[2];
        for (int64_t o = 0; o < channels; o++)
            copy_strided(
                gd_conv_element(y->data, p->dtype, (image * all + channel + o) * plane + offset),
                matrix + (size_t)(o * (end - begin) + j - begin) * gd_conv_dtype_size(p->dtype),
                count, y->step[2], p->dtype);
        j += count;
    }
}

gd_status gd_conv_output_task(void *plan, int64_t i, char *memory) {
    const gd_conv_output_plan *p = plan;
    const gd_conv *c = &p->c;
    const int64_t positions = gd_conv_positions(c->out),
                  rows = c->ci * gd_conv_positions(c->kernel);
    const int64_t block = i % p->channel_blocks, group = i / p->channel_blocks % c->groups,
                  tile = i / (p->channel_blocks * c->groups);
    const int64_t begin = tile * p->tile, end = gd_min64(begin + p->tile, p->columns);
    const int64_t first = gd_split_point(c->co, block, p->channel_blocks),
                  channel = group * c->co + first;
    const gd_conv_columns columns = {
        c, gd_conv_element(p->x, p->dtype, group * c->ci * gd_conv_positions(c->in)), 0, begin};
    gd_gemm g = {.m = gd_split_point(c->co, block + 1, p->channel_blocks) - first,
                 .n = end - begin,
                 .k = rows,
                 .a = {gd_conv_element(p->w, p->dtype, channel * rows), p->dtype, rows, 1},
                 .b = {NULL, p->dtype, 0, 1},
                 .c = {memory, p->dtype, end - begin, 1},
                 .fill_b = p->dtype == GD_F64 ? GD_ISA_CALL(gd_conv_im2col_f64)
                                              : GD_ISA_CALL(gd_conv_im2col_f32),
                 .fill_context = &columns};
    const bool direct = p->direct && begin / positions == (end - 1) / positions;
    if (direct)
        g.c = (gd_gemm_out){
            gd_conv_element(p->y.data, p->dtype,
                            (begin / positions * c->groups * c->co + channel) * positions +
                                begin % positions),
            p->dtype, positions, 1};
    if (p->bias) g.bias = (gd_gemm_in){gd_conv_element(p->bias, p->dtype, channel), p->dtype, 1, 0};
    if (p->relu) g.act = GD_GEMM_RELU;
    if (g.m == 0) return GD_OK;
    GD_TRY(gd_conv_gemm_block(&g));
    if (!direct) scatter_columns(p, channel, g.m, begin, end, memory);
    return GD_OK;
}

/* --- 1x1 kernels ------------------------------------------------------------------------------ */

static bool is_pointwise(const gd_conv *c) {
    bool same = gd_conv_positions(c->kernel) == 1 && gd_conv_has_stride_1(c);
    for (int a = 0; a < GD_CONV_AXES; a++)
        same = same && c->before[a] == 0 && c->in[a] == c->out[a];
    return same;
}

enum { WIDE_IMAGE = 192 }; /* positions in an image that fill the GEMM's panels */
bool gd_conv_is_matmul(const gd_conv *c) {
    return is_pointwise(c) && (gd_conv_positions(c->out) >= WIDE_IMAGE || c->batch == 1);
}

gd_status gd_conv_run_matmul(const gd_conv_call *call, bool to_x) {
    const gd_conv *c = &call->c;
    const int64_t positions = gd_conv_positions(c->out);
    const int64_t x_image = c->groups * c->ci * positions, y_image = c->groups * c->co * positions;
    gd_gemm g = {.m = c->co,
                 .n = positions,
                 .k = c->ci,
                 .a = {call->w, call->dtype, c->ci, 1},
                 .b = {call->x, call->dtype, positions, 1},
                 .c = {call->y, call->dtype, positions, 1}};
    gd_gemm_batch b = {.rank = 2,
                       .size = {c->batch, c->groups},
                       .a_step = {0, c->co * c->ci},
                       .b_step = {x_image, c->ci * positions},
                       .c_step = {y_image, c->co * positions},
                       .bias_step = {0, c->co}};
    if (to_x) {
        g.m = c->ci;
        g.k = c->co;
        g.a = (gd_gemm_in){call->w, call->dtype, 1, c->ci};
        g.b.data = call->y;
        g.c.data = call->x;
        memcpy(b.c_step, (int64_t[]){x_image, c->ci * positions}, 2 * sizeof(int64_t));
        memcpy(b.b_step, (int64_t[]){y_image, c->co * positions}, 2 * sizeof(int64_t));
        b.bias_step[1] = c->ci;
    }
    if (call->bias) g.bias = (gd_gemm_in){call->bias, call->dtype, 1, 0};
    if (call->relu) g.act = GD_GEMM_RELU;
    return gd_gemm_run_batch(&g, &b);
}

/* --- entry points ----------------------------------------------------------------------------- */

size_t gd_conv_gemm_output_bytes(const gd_conv *c, gd_dtype dtype) {
    if (gd_conv_is_matmul(c)) return 0;
    const gd_conv_output_plan p = gd_conv_plan_output(c, dtype, true);
    return gd_conv_slots_bytes(0, p.slot, p.tasks);
}

gd_status gd_conv_gemm_output(const gd_conv_call *call) {
    if (gd_conv_is_matmul(&call->c)) return gd_conv_run_matmul(call, false);
    gd_conv_output_plan p = gd_conv_plan_output(&call->c, call->dtype, true);
    p.x = call->x;
    p.w = call->w;
    p.bias = call->bias;
    p.relu = call->relu;
    p.y = (gd_conv_target){
        call->y, {call->c.out[0], call->c.out[1], call->c.out[2]}, {0, 0, 0}, {1, 1, 1}};
    return gd_conv_run_tasks(call, 0, p.slot, p.tasks, gd_conv_output_task, &p);
}
