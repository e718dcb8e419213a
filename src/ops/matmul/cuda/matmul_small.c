/* matmul_small.c - f32 products of small matrices: matmul, linear and the fused ops of both.
 *
 * Library kernels for such products take several times as long as their arithmetic, and divide the
 * depth with a second kernel. These are one launch, with bias, ReLU, the gradient of ReLU or a step
 * of gradient descent as the epilogue.
 */
#include "ops/matmul/cuda/matmul_small.h"

#include <stdio.h>
#include <string.h>

#include "gradus/ops.h"

/* --- tiles ------------------------------------------------------------------------------------ */

typedef struct tile_size {
    int rows, columns, depth, threads;
} tile_size;

static const tile_size tiles[] = {
#define TILE_SIZE(i, rows, columns, depth, threads) {rows, columns, depth, threads},
    GD_SMALL_PRODUCT_TILES(TILE_SIZE)
#undef TILE_SIZE
};

/* Times in ns, measured on an H200: of a block without its arithmetic, of 64 columns of a, and of
 * adding a part. */
static const struct {
    int block, columns, part;
} costs[GD_SMALL_PRODUCT_TILE_COUNT] = {
    {2600, 2240, 250}, {1900, 1280, 180}, {1300, 680, 110}, {1000, 420, 80}};

enum {
    MAX_WORK = 1 << 27,    /* multiply-adds of a product */
    MAX_RESULTS = 1 << 20, /* elements of y */
    MAX_PLAIN_RESULTS = 1 << 19,
    MAX_PARTS = 32,
    DIVIDED_TIME = 1000, /* more if the depth is divided into parts */
    OVERLAP = 87,        /* percent: blocks that share a multiprocessor take less than in turn */
};

static int divide_up(int a, int b) { return (a + b - 1) / b; }

static int count_tiles(const gd_small_product *p, const tile_size *t) {
    return divide_up(p->m, t->rows) * divide_up(p->n, t->columns);
}

/* The depth of each of `parts` parts, a multiple of that of a stage. */
static int chunk_of(const gd_small_product *p, const tile_size *t, int parts) {
    return divide_up(divide_up(p->k, parts), t->depth) * t->depth;
}

/* An estimate for all products of a launch, in ns, if each has `parts` parts. */
static int64_t estimate_time(const gd_small_launch *l, int tile, int parts) {
    const tile_size *t = &tiles[tile];
    int64_t blocks = 0, depth = 0;
    int most = 1;
    for (int i = 0; i < l->parameters.count; i++) {
        const gd_small_product *p = &l->parameters.at[i];
        const int chunk = chunk_of(p, t, parts), divided = divide_up(p->k, chunk);
        blocks += (int64_t)count_tiles(p, t) * divided;
        if (chunk > depth) depth = chunk;
        if (divided > most) most = divided;
    }
    /* registers leave room for one or two blocks on a multiprocessor, so the last round counts in full */
    const int64_t block = costs[tile].block + depth * costs[tile].columns / 64,
                  rounds = (blocks + GD_CUDA_PROCESSORS - 1) / GD_CUDA_PROCESSORS,
                  shared = rounds * block * OVERLAP / 100;
    return (shared > block ? shared : block) +
           (most > 1 ? DIVIDED_TIME + most * costs[tile].part : 0);
}

/* Depends on the shapes alone, so that all devices add in the same order. */
gd_small_division gd_small_launch_choose(const gd_small_launch *l) {
    int64_t best = INT64_MAX;
    gd_small_division chosen = {0, 1};
    for (int i = 0; i < GD_SMALL_PRODUCT_TILE_COUNT; i++) {
        int64_t count = 0;
        for (int k = 0; k < l->parameters.count; k++)
            count += count_tiles(&l->parameters.at[k], &tiles[i]);
        const int most = count <= GD_SMALL_PRODUCT_COUNTERS ? MAX_PARTS : 1;
        for (int parts = 1; parts <= most; parts *= 2) {
            const int64_t time = estimate_time(l, i, parts);
            if (time >= best) continue;
            best = time;
            chosen = (gd_small_division){i, parts};
        }
    }
    return chosen;
}

void gd_small_launch_divide(gd_small_launch *l, gd_small_division division) {
    const tile_size *t = &tiles[division.tile];
    l->tile = division.tile;
    l->blocks = 0;
    l->workspace = 0;
    int counters = 0;
    for (int i = 0; i < l->parameters.count; i++) {
        gd_small_product *p = &l->parameters.at[i];
        const int count = count_tiles(p, t);
        p->chunk = chunk_of(p, t, division.parts);
        p->parts = divide_up(p->k, p->chunk);
        p->columns = divide_up(p->n, t->columns);
        p->first_block = l->blocks;
        p->first_counter = counters;
        l->blocks += count * p->parts;
        counters += p->parts > 1 ? count : 0;
    }
    if (counters)
        l->workspace = (size_t)l->blocks * (size_t)(t->rows * t->columns + t->rows) * sizeof(float);
}

/* --- launches --------------------------------------------------------------------------------- */

#define TILE_KERNEL(layout, i, ...)                                              \
    GD_CUDA_KERNEL_WAITING("matmul/matmul_small", "gd_small_product_" layout #i, \
                           GD_SMALL_PRODUCT_SHARED(__VA_ARGS__))
#define TILE_KERNELS(i, ...)                                               \
    {TILE_KERNEL("nn", i, __VA_ARGS__), TILE_KERNEL("nt", i, __VA_ARGS__), \
     TILE_KERNEL("tn", i, __VA_ARGS__), TILE_KERNEL("tt", i, __VA_ARGS__)},
/* Of each tile, by layout: 2 if a has contiguous depth, and 1 if b has. */
static gd_cuda_kernel kernels[][4] = {GD_SMALL_PRODUCT_TILES(TILE_KERNELS)};

static bool is_int(int64_t x) { return x > INT32_MIN && x < INT32_MAX; }

gd_small_product *gd_small_launch_add(gd_small_launch *l, const gd_product_problem *q,
                                      const gd_view *a, const gd_view *b, const gd_view *y) {
    const bool deep_a = q->a.column == 1, deep_b = q->b.row == 1;
    const int64_t a_stride = deep_a ? q->a.row : q->a.column,
                  b_stride = deep_b ? q->b.column : q->b.row;
    if (q->dtype != GD_F32 || q->batches != 1 || q->outer_count != 1 || q->y.column != 1 ||
        !(deep_a || q->a.row == 1) || !(deep_b || q->b.column == 1))
        return NULL;
    if (!is_int(a_stride) || !is_int(b_stride) || !is_int(q->y.row) || q->m > MAX_WORK ||
        q->n > MAX_WORK || q->k > MAX_WORK || q->m * q->n > MAX_RESULTS ||
        q->m * q->n * q->k > MAX_WORK)
        return NULL;
    if (l->parameters.count == GD_SMALL_PRODUCT_ENTRIES ||
        (l->parameters.count > 0 && (deep_a != l->deep_a || deep_b != l->deep_b)))
        return NULL;
    l->deep_a = deep_a, l->deep_b = deep_b;
    gd_small_product *p = &l->parameters.at[l->parameters.count++];
    *p = (gd_small_product){.a = a->data,
                            .b = b->data,
                            .y = y->data,
                            .m = (int)q->m,
                            .n = (int)q->n,
                            .k = (int)q->k,
                            .a_stride = (int)a_stride,
                            .b_stride = (int)b_stride,
                            .y_stride = (int)q->y.row,
                            .vector_a = gd_cuda_is_aligned(a->data) && a_stride % 4 == 0,
                            .vector_b = gd_cuda_is_aligned(b->data) && b_stride % 4 == 0};
    return p;
}

gd_status gd_small_launch_queue(const gd_kernel_call *call, gd_small_launch *l) {
    l->parameters.call = gd_cuda_call_of(call);
    l->parameters.partials = call->workspace;
    return gd_cuda_launch(call->device, &kernels[l->tile][2 * l->deep_a + l->deep_b], l->blocks,
                          tiles[l->tile].threads, &l->parameters);
}

/* --- ops -------------------------------------------------------------------------------------- */

/* Without a fused epilogue, a library is faster for more results. */
static bool is_small_enough(const gd_product_problem *q) {
    return q->m <= MAX_PLAIN_RESULTS && q->n <= MAX_PLAIN_RESULTS &&
           q->m * q->n <= MAX_PLAIN_RESULTS;
}

static bool describe_matmul(const gd_kernel_call *call, gd_small_launch *l) {
    gd_product_problem q;
    l->parameters.count = 0;
    return gd_cuda_matmul_problem(call, &q) && is_small_enough(&q) &&
           gd_small_launch_add(l, &q, &call->in[0], &call->in[1], &call->out[0]);
}

static bool describe_linear(const gd_kernel_call *call, gd_small_launch *l) {
    const gd_view *bias = call->n_in > 2 && call->in[2].data ? &call->in[2] : NULL;
    gd_product_problem q;
    l->parameters.count = 0;
    gd_small_product *p =
        gd_cuda_linear_problem(call, &q) && is_small_enough(&q)
            ? gd_small_launch_add(l, &q, &call->in[0], &call->in[1], &call->out[0])
            : NULL;
    if (!p || (bias && !is_int(bias->strides[0]))) return false;
    if (bias) p->bias = bias->data, p->bias_stride = (int)bias->strides[0];
    return true;
}

static bool describe_linear_relu(const gd_kernel_call *call, gd_small_launch *l) {
    if (!describe_linear(call, l)) return false;
    l->parameters.at[0].relu = 1;
    return true;
}

/* matmul_relu_grad(a, b, y): y, the mask, has contiguous rows. */
static bool describe_matmul_relu_grad(const gd_kernel_call *call, gd_small_launch *l) {
    const gd_view *mask = &call->in[2];
    const int64_t row = mask->dims[0] > 1 ? mask->strides[0] : mask->dims[1];
    if (!describe_matmul(call, l) || mask->dtype != GD_F32 || !is_int(row) ||
        (mask->dims[1] > 1 && mask->strides[1] != 1))
        return false;
    l->parameters.at[0].mask = mask->data;
    l->parameters.at[0].mask_stride = (int)row;
    return true;
}

/* Adds the gradients gw (out, in) and gb (out) of a linear layer from gy (rows, out) and
 * x (rows, in). NULL: they do not match. */
static gd_small_product *add_gradients(gd_small_launch *l, const gd_view *gy, const gd_view *x,
                                       const gd_view *gw, const gd_view *gb) {
    const gd_view transposed = {.data = gy->data,
                                .dtype = gy->dtype,
                                .rank = 2,
                                .dims = {gy->dims[1], gy->dims[0]},
                                .strides = {gy->strides[1], gy->strides[0]}};
    gd_product_problem q;
    if (!gd_cuda_product_problem(&transposed, x, gw, &q) || gb->dtype != GD_F32 ||
        !is_int(gb->strides[0]))
        return NULL;
    gd_small_product *p = gd_small_launch_add(l, &q, &transposed, x, gw);
    if (p) p->sums = gb->data, p->sums_stride = (int)gb->strides[0];
    return p;
}

static bool describe_linear_grad(const gd_kernel_call *call, gd_small_launch *l) {
    l->parameters.count = 0;
    return add_gradients(l, &call->in[0], &call->in[1], &call->out[0], &call->out[1]);
}

/* --- steps of gradient descent ---------------------------------------------------------------- */

static bool set_rate(gd_small_product *p, const gd_view *rate) {
    if (!p || !gd_cuda_is_float(rate->dtype)) return false;
    p->rate = rate->data;
    p->rate_dtype = (int)rate->dtype;
    return true;
}

/* linear_step(w!, b!, gy, x, lr): w and b are the last outputs. */
static bool describe_linear_step(const gd_kernel_call *call, gd_small_launch *l) {
    const gd_view *out = call->out + call->n_out - 2;
    l->parameters.count = 0;
    return set_rate(add_gradients(l, &call->in[2], &call->in[3], &out[0], &out[1]), &call->in[4]);
}

/* A list of linear_step: w, b, gy and x of each entry, then the rate; the outputs are w and b of
 * each entry (dispatch/call.h). */
enum { STEP_INPUTS = 4, STEP_OUTPUTS = 2 };

/* A launch for the entries from `first` on. Returns the entry after them; -1: no match. */
static int describe_steps(const gd_kernel_call *call, int first, gd_small_launch *l) {
    const gd_view *rate = &call->in[call->each * STEP_INPUTS];
    l->parameters.count = 0;
    int i = first;
    for (; i < call->each && i - first < GD_SMALL_PRODUCT_ENTRIES; i++) {
        const gd_view *in = call->in + i * STEP_INPUTS, *out = call->out + i * STEP_OUTPUTS;
        if (!set_rate(add_gradients(l, &in[2], &in[3], &out[0], &out[1]), rate)) return -1;
    }
    gd_small_launch_divide(l, gd_small_launch_choose(l));
    return i;
}

static bool match_steps(const gd_kernel_call *call) {
    if (strcmp(gd_cuda_host->op_name(call->op), "linear_step") != 0 ||
        call->in[call->each * STEP_INPUTS].rank != 0)
        return false;
    gd_small_launch l;
    int i = 0;
    while (i >= 0 && i < call->each) i = describe_steps(call, i, &l);
    return i > 0;
}

static size_t steps_workspace(const gd_kernel_call *call) {
    gd_small_launch l;
    size_t most = 0;
    for (int i = 0; i >= 0 && i < call->each;) {
        i = describe_steps(call, i, &l);
        if (i > 0 && l.workspace > most) most = l.workspace;
    }
    return most;
}

static gd_status run_steps(gd_kernel_call *call) {
    gd_status status = GD_OK;
    for (int i = 0; i < call->each && status == GD_OK;) {
        gd_small_launch l;
        i = describe_steps(call, i, &l);
        status = gd_small_launch_queue(call, &l);
    }
    return status;
}

/*kernel elementwise_list.matmul_small  rank 20  checked  run run_steps  match match_steps
 *        workspace steps_workspace
 * The steps of gradient descent of several linear layers in one launch.
 */

/* --- kernels ---------------------------------------------------------------------------------- */

/* The division is chosen once for each problem. */
static gd_status prepare_division(const gd_small_launch *described, void **prepared,
                                  size_t *workspace) {
    gd_small_launch l = *described;
    gd_small_division *division = gd_cuda_host->allocate(sizeof *division);
    if (!division) return gd_cuda_host->fail(GD_E_MEMORY, "no memory to prepare a product");
    *division = gd_small_launch_choose(&l);
    gd_small_launch_divide(&l, *division);
    *prepared = division;
    *workspace = l.workspace;
    return GD_OK;
}

static void release_division(gd_device *d, void *prepared) {
    (void)d;
    gd_cuda_host->release(prepared);
}

static void describe_division(const gd_kernel_call *call, char *text, size_t size) {
    const gd_small_division *division = call->prepared;
    const tile_size *t = &tiles[division->tile];
    snprintf(text, size, "tiles %dx%d, %d part%s", t->rows, t->columns, division->parts,
             division->parts == 1 ? "" : "s");
}

#define SMALL_PRODUCT(name)                                                                       \
    static bool match_##name(const gd_kernel_call *call) {                                        \
        gd_small_launch l;                                                                        \
        return describe_##name(call, &l);                                                         \
    }                                                                                             \
    static gd_status prepare_##name(const gd_kernel_call *call, void **prepared, size_t *bytes) { \
        gd_small_launch l;                                                                        \
        describe_##name(call, &l);                                                                \
        return prepare_division(&l, prepared, bytes);                                             \
    }                                                                                             \
    static gd_status run_##name(gd_kernel_call *call) {                                           \
        gd_small_launch l;                                                                        \
        describe_##name(call, &l);                                                                \
        gd_small_launch_divide(&l, *(const gd_small_division *)call->prepared);                   \
        return gd_small_launch_queue(call, &l);                                                   \
    }
SMALL_PRODUCT(matmul)
SMALL_PRODUCT(linear)
SMALL_PRODUCT(linear_relu)
SMALL_PRODUCT(matmul_relu_grad)
SMALL_PRODUCT(linear_grad)
SMALL_PRODUCT(linear_step)

/*kernel matmul.small, linear.small, linear_relu.small, matmul_relu_grad.small, linear_grad.small,
 *        linear_step.small  rank 30  dtypes f32  checked  run run_OP  match match_OP
 *        prepare prepare_OP  release release_division  describe describe_division
 * f32 products of at most 2^27 multiply-adds in one launch, with bias, ReLU or a step as the
 * epilogue.
 */

#include "ops/matmul/cuda/matmul_small.gen.h"
