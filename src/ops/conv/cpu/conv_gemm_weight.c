/* conv_gemm_weight.c - the gradient of w as implicit GEMM: grad w = grad y * columns^T, where the
 * panels of the transposed im2col matrix are packed on the fly (conv_im2col.h).
 */
#include "ops/conv/cpu/conv_gemm.h"

#include <string.h>

#include "core/error.h"
#include "core/pool.h"

/* Tasks: (split of the columns, group, block of the rows of `columns`). Each task sums its columns
 * in order. With several splits (split-K), each has partial sums, which are added in order at the
 * end. */
typedef struct {
    const gd_conv_call *call;
    int64_t rows, columns;
    int64_t row_blocks, splits;
    int64_t tasks;
    int64_t tile; /* columns per GEMM call */
    size_t sums, y_bytes;
} weight_plan;

enum {
    TASK_ROWS = 480, /* rows of a task, at most */
    MIN_TASK_ROWS = 96,
    TILE_COLUMNS = 1024, /* the depth that the GEMM sums before it updates C */
    MAX_SPLITS = 16,
    MAX_SUMS = 1 << 20, /* elements in the partial sums of all splits */
    MIN_SPLIT_COLUMNS = 512
};

static weight_plan plan_weight(const gd_conv *c, gd_dtype dtype) {
    weight_plan p = {.rows = c->ci * gd_conv_positions(c->kernel),
                     .columns = c->batch * gd_conv_positions(c->out),
                     .splits = 1};
    const int64_t min_tasks = gd_conv_gemm_min_tasks(c), elements = c->groups * c->co * p.rows;
    p.row_blocks = gd_divide_up(p.rows > 0 ? p.rows : 1, TASK_ROWS);
    while (c->groups * p.row_blocks * p.splits < min_tasks) {
        if (2 * p.splits * elements <= MAX_SUMS && p.columns >= 2 * MIN_SPLIT_COLUMNS * p.splits &&
            p.splits < MAX_SPLITS)
            p.splits *= 2;
        else if (p.rows >= 2 * MIN_TASK_ROWS * p.row_blocks) p.row_blocks *= 2;
        else break;
    }
    p.tasks = p.splits * c->groups * p.row_blocks;
    p.tile = gd_min64(TILE_COLUMNS, p.columns);
    p.sums = p.splits > 1 ? (size_t)(p.splits * elements) * gd_conv_dtype_size(dtype) : 0;
    p.y_bytes = (size_t)(c->co * p.tile) * gd_conv_dtype_size(dtype);
    return p;
}

/* Columns [begin, end) of the gradient of y as a matrix (co, columns): in place if they are in one
 * image, else copied to `memory`. */
static gd_gemm_in y_as_matrix(const gd_conv_call *call, int64_t group, int64_t begin, int64_t end,
                              char *memory) {
    const gd_conv *c = &call->c;
    const int64_t positions = gd_conv_positions(c->out);
    for (int64_t j = begin; j < end;) {
        const int64_t image = j / positions, count = gd_min64((image + 1) * positions, end) - j;
        const char *from = gd_conv_element(
            call->y, call->dtype, (image * c->groups + group) * c->co * positions + j % positions);
        if (count == end - begin) return (gd_gemm_in){from, call->dtype, positions, 1};
        for (int64_t o = 0; o < c->co; o++)
            memcpy(gd_conv_element(memory, call->dtype, o * (end - begin) + j - begin),
                   from + (size_t)(o * positions) * gd_conv_dtype_size(call->dtype),
                   (size_t)count * gd_conv_dtype_size(call->dtype));
        j += count;
    }
    return (gd_gemm_in){memory, call->dtype, end - begin, 1};
}

static gd_status weight_task(void *arg, int64_t i, char *memory) {
    const weight_plan *p = arg;
    const gd_conv_call *call = p->call;
    const gd_conv *c = &call->c;
    const gd_dtype dtype = call->dtype;
    const int64_t block = i % p->row_blocks, group = i / p->row_blocks % c->groups,
                  split = i / (p->row_blocks * c->groups);
    const int64_t first = gd_split_point(p->rows, block, p->row_blocks),
                  last = gd_split_point(p->rows, block + 1, p->row_blocks);
    const int64_t end = gd_split_point(p->columns, split + 1, p->splits);
    char *sums = p->splits > 1
                     ? gd_conv_element(call->workspace, dtype, split * c->groups * c->co * p->rows)
                     : call->w;
    gd_conv_columns columns = {
        c, gd_conv_element(call->x, dtype, group * c->ci * gd_conv_positions(c->in)), first, 0};
    gd_gemm g = {.n = last - first,
                 .b = {NULL, dtype, 0, 1},
                 .fill_b = dtype == GD_F64 ? GD_ISA_CALL(gd_conv_im2col_transposed_f64)
                                           : GD_ISA_CALL(gd_conv_im2col_transposed_f32),
                 .fill_context = &columns};
    for (int64_t j = gd_split_point(p->columns, split, p->splits); j < end; j += p->tile) {
        const int64_t tile_end = gd_min64(j + p->tile, end);
        const gd_gemm_in y = y_as_matrix(call, group, j, tile_end, memory);
        columns.column = j;
        g.k = tile_end - j;
        for (int64_t o = 0; o < c->co; o += GD_CONV_GEMM_ROWS) {
            g.m = gd_min64(GD_CONV_GEMM_ROWS, c->co - o);
            g.a = gd_gemm_in_at(y, o, 0);
            g.c = (gd_gemm_out){gd_conv_element(sums, dtype, (group * c->co + o) * p->rows + first),
                                dtype, p->rows, 1};
            GD_TRY(gd_conv_gemm_block(&g));
        }
        g.accumulate = true;
    }
    return GD_OK;
}

enum { REDUCE_CHUNK = 4096 };

/* Adds the partial sums of one chunk of w, in the order of the splits. */
static void reduce_splits(void *arg, int64_t i) {
    const weight_plan *p = arg;
    const gd_conv_call *call = p->call;
    const int64_t elements = call->c.groups * call->c.co * p->rows;
    const int64_t begin = i * REDUCE_CHUNK, end = gd_min64(begin + REDUCE_CHUNK, elements);
    for (int64_t split = 0; split < p->splits; split++)
        if (call->dtype == GD_F64) {
            const double *from = (const double *)call->workspace + split * elements;
            double *w = call->w;
            for (int64_t k = begin; k < end; k++) w[k] = split ? w[k] + from[k] : from[k];
        } else {
            const float *from = (const float *)call->workspace + split * elements;
            float *w = call->w;
            for (int64_t k = begin; k < end; k++) w[k] = split ? w[k] + from[k] : from[k];
        }
}

size_t gd_conv_gemm_weight_bytes(const gd_conv *c, gd_dtype dtype) {
    const weight_plan p = plan_weight(c, dtype);
    return gd_conv_slots_bytes(p.sums, p.y_bytes, p.tasks);
}

gd_status gd_conv_gemm_weight(const gd_conv_call *call) {
    weight_plan p = plan_weight(&call->c, call->dtype);
    p.call = call;
    const int64_t elements = call->c.groups * call->c.co * p.rows;
    if (elements == 0) return GD_OK;
    if (p.columns == 0) {
        memset(call->w, 0, (size_t)elements * gd_conv_dtype_size(call->dtype));
        return GD_OK;
    }
    GD_TRY(gd_conv_run_tasks(call, p.sums, p.y_bytes, p.tasks, weight_task, &p));
    if (p.splits > 1) gd_parallel_for(gd_divide_up(elements, REDUCE_CHUNK), reduce_splits, &p);
    return GD_OK;
}
