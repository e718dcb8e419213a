/* attention.c - attention and its gradient, without the matrix of weights in memory: f32 and f64 by
 * attention.cu, f16 and bf16 on tensor cores by attention_mma.cuh. */
#include "ops/attention/cuda/attention_args.h"

#include <math.h>
#include <stdio.h>

#include "ops/attention/cuda/attention.h"
#include "gradus/ops.h"
#include "ops/attention/attention.h"

/* --- kernels by dtype and head size ----------------------------------------------------------- */

/* The kernels for head sizes up to `head`. */
typedef struct attention_kernels {
    int head, threads;
    int forward_rows, keys_rows, queries_rows; /* of y, of gk and gv, of gq: the rows of a block */
    gd_cuda_kernel forward, keys, queries;
    gd_cuda_kernel *second_keys; /* computes gv, and `keys` only gk; NULL: `keys` computes both */
} attention_kernels;

#define TILED(dtype, element, tile, head)                                                          \
    {                                                                                              \
        head, GD_CUDA_ATTENTION_THREADS, tile, tile, tile,                                         \
            GD_CUDA_KERNEL_SHARED("attention/attention", "gd_attention_forward_" #dtype "_" #head, \
                                  GD_CUDA_ATTENTION_BYTES(element, tile, head, 3, 1)),             \
            GD_CUDA_KERNEL_SHARED("attention/attention", "gd_attention_keys_" #dtype "_" #head,    \
                                  GD_CUDA_ATTENTION_BYTES(element, tile, head, 4, 2)),             \
            GD_CUDA_KERNEL_SHARED("attention/attention", "gd_attention_queries_" #dtype "_" #head, \
                                  GD_CUDA_ATTENTION_BYTES(element, tile, head, 4, 1)),             \
            NULL                                                                                   \
    }
static attention_kernels in_f32[] = {TILED(f32, 4, 64, 64), TILED(f32, 4, 32, 128),
                                     TILED(f32, 4, 32, 256)},
                         in_f64[] = {TILED(f64, 8, 32, 64), TILED(f64, 8, 32, 128),
                                     TILED(f64, 8, 16, 256)};

/* `name` is the dtype; general kernels have masks and dropout. */
#define TENSOR_CORES(image, name, head, second)                                             \
    {                                                                                       \
        head, GD_CUDA_ATTENTION_MMA_THREADS, GD_CUDA_MMA_ROWS *GD_CUDA_MMA_ROW_TILES(head), \
            GD_CUDA_MMA_ROWS, GD_CUDA_MMA_ROWS,                                             \
            GD_CUDA_KERNEL_SHARED(image, "gd_attention_forward_" name "_" #head,            \
                                  GD_CUDA_MMA_FORWARD_BYTES(head)),                         \
            GD_CUDA_KERNEL_SHARED(image, "gd_attention_keys_" name "_" #head,               \
                                  GD_CUDA_MMA_BACKWARD_BYTES(GD_CUDA_MMA_KEYS_STEP, head)), \
            GD_CUDA_KERNEL_SHARED(                                                          \
                image, "gd_attention_queries_" name "_" #head,                              \
                GD_CUDA_MMA_BACKWARD_BYTES(GD_CUDA_MMA_QUERIES_STEP(head), head)),          \
            second                                                                          \
    }
#define VALUES_KERNEL(image, name)                                   \
    GD_CUDA_KERNEL_SHARED(image, "gd_attention_values_" name "_256", \
                          GD_CUDA_MMA_BACKWARD_BYTES(GD_CUDA_MMA_KEYS_STEP, 256))
static gd_cuda_kernel values_f16 = VALUES_KERNEL("attention/attention_f16", "f16_general"),
                      values_bf16 = VALUES_KERNEL("attention/attention_bf16", "bf16_general");
#define TENSOR_CORE_SIZES(type)                                                                \
    {                                                                                          \
        TENSOR_CORES("attention/attention_" #type, #type, 64, NULL),                           \
            TENSOR_CORES("attention/attention_" #type, #type, 128, NULL),                      \
            TENSOR_CORES("attention/attention_" #type, #type "_general", 256, &values_##type), \
    }
#define GENERAL_TENSOR_CORE_SIZES(type)                                                        \
    {                                                                                          \
        TENSOR_CORES("attention/attention_" #type, #type "_general", 64, NULL),                \
            TENSOR_CORES("attention/attention_" #type, #type "_general", 128, NULL),           \
            TENSOR_CORES("attention/attention_" #type, #type "_general", 256, &values_##type), \
    }
static attention_kernels in_f16[] = TENSOR_CORE_SIZES(f16), in_bf16[] = TENSOR_CORE_SIZES(bf16),
                         general_f16[] = GENERAL_TENSOR_CORE_SIZES(f16),
                         general_bf16[] = GENERAL_TENSOR_CORE_SIZES(bf16);
enum { HEAD_SIZES = sizeof in_f32 / sizeof *in_f32 };

static gd_cuda_kernel inner_kernels[] =
    GD_CUDA_FLOAT_KERNELS("attention/attention", "gd_attention_inner", "", 0);

/* Whether a call has a mask or dropout. Input `mask_at` is the mask, the next one the key of
 * dropout. */
static bool is_general(const gd_kernel_call *call, int mask_at) {
    bool general = false;
    for (int i = mask_at; i < call->n_in; i++) general = general || call->in[i].data;
    return general;
}

/* The kernels of a call; NULL: its heads are too large. */
static attention_kernels *kernels_for(const gd_kernel_call *call, int mask_at) {
    const gd_view *q = &call->in[0], *v = &call->in[2];
    const int64_t width = q->dims[q->rank - 1], value_width = v->dims[v->rank - 1],
                  head = width > value_width ? width : value_width;
    const bool general = is_general(call, mask_at);
    attention_kernels *sizes = q->dtype == GD_F64   ? in_f64
                               : q->dtype == GD_F32 ? in_f32
                               : q->dtype == GD_F16 ? (general ? general_f16 : in_f16)
                               : general            ? general_bf16
                                                    : in_bf16;
    for (int i = 0; i < HEAD_SIZES; i++)
        if (head <= sizes[i].head) return &sizes[i];
    return NULL;
}

/* Whether a block may have the kernel's shared memory. */
static bool has_shared(const gd_device *d, const gd_cuda_kernel *kernel) {
    return kernel->shared_bytes <= gd_cuda_state_of(d)->shared_bytes;
}

/* The leading dimensions of y. */
static int64_t count_matrices(const gd_view *y) {
    int64_t count = 1;
    for (int d = 0; d < y->rank - 2; d++) count *= y->dims[d];
    return count;
}

/* --- operands --------------------------------------------------------------------------------- */

/* A view whose last dimensions are rows and columns; lse has only rows. The other dimensions are
 * aligned with the last ones of the batch. */
static gd_cuda_heads heads_of(const gd_view *v, int matrix_dims, int batch_rank) {
    gd_cuda_heads h = {.data = v->data};
    const int rank = v->rank - matrix_dims;
    const int64_t unit = 16 / (int64_t)gd_cuda_element_size(v->dtype); /* elements of 16 bytes */
    if (!v->data) return h;
    bool aligned = (uintptr_t)v->data % 16 == 0;
    for (int k = 0; k < rank; k++) {
        if (v->dims[k] > 1) h.batch[batch_rank - rank + k] = v->strides[k];
        aligned = aligned && (v->dims[k] <= 1 || v->strides[k] % unit == 0);
    }
    /* A mask may lack dimensions or broadcast them. */
    const int row = v->rank - matrix_dims, column = row + 1;
    if (row >= 0 && v->dims[row] > 1) h.row = v->strides[row];
    if (matrix_dims == 2 && column >= 0 && v->dims[column] > 1) h.column = v->strides[column];
    h.vectors =
        aligned && matrix_dims == 2 && h.row % unit == 0 && h.column == 1 &&
        v->dims[v->rank - 1] % (unit > 4 ? unit : 4) == 0; /* kernels load 4 or 8 elements */
    return h;
}

/* The problem of a call. Input `mask_at` is the mask, the next one the key of dropout; `y` is the
 * output, or its gradient, whose leading dimensions are those of the batch. */
static gd_cuda_attention describe_attention(const gd_kernel_call *call, const gd_view *y,
                                            int mask_at, bool causal, bool grouped, double scale,
                                            double dropout) {
    const gd_view *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
    const gd_view *mask = call->n_in > mask_at ? &call->in[mask_at] : NULL,
                  *key = call->n_in > mask_at + 1 ? &call->in[mask_at + 1] : NULL;
    gd_cuda_attention p = {.batch_rank = y->rank - 2,
                           .matrices = 1,
                           .rows = q->dims[q->rank - 2],
                           .columns = k->dims[k->rank - 2],
                           .width = (int)q->dims[q->rank - 1],
                           .value_width = (int)v->dims[v->rank - 1],
                           .groups = 1,
                           .causal = causal};
    for (int d = 0; d < p.batch_rank; d++) p.matrices *= p.batch_dims[d] = y->dims[d];
    p.q = heads_of(q, 2, p.batch_rank);
    p.k = heads_of(k, 2, p.batch_rank);
    p.v = heads_of(v, 2, p.batch_rank);
    if (grouped && p.batch_rank > 0) {
        const int64_t q_heads = q->rank > 2 ? q->dims[q->rank - 3] : 1,
                      k_heads = k->rank > 2 ? k->dims[k->rank - 3] : 1;
        if (k_heads > 0) p.groups = (int)(q_heads / k_heads);
    }
    if (p.groups < 1) p.groups = 1;
    p.scale = isnan(scale) ? 1 / sqrt((double)(p.width > 0 ? p.width : 1)) : scale;
    if (mask && mask->data) {
        p.mask = heads_of(mask, 2, p.batch_rank);
        p.mask_is_bool = mask->dtype == GD_BOOL;
    }
    if (key && key->data) {
        p.key = key->data;
        p.key_stride = key->strides[0];
        p.limit = gd_chance_limit(1 - dropout);
        p.kept_scale = gd_kept_scale(dropout);
    }
    return p;
}

enum { MAX_BLOCKS = 1 << 20 }; /* blocks loop over the rest */

/* Queues a kernel with a block for every `tile` of the rows of each matrix. */
static gd_status queue_tiles(const gd_kernel_call *call, gd_cuda_kernel *kernel, int threads,
                             long long matrices, long long rows, int tile,
                             const gd_cuda_attention *p) {
    const long long blocks = (rows + tile - 1) / tile * matrices;
    return gd_cuda_launch(call->device, kernel, blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS, threads,
                          p);
}

/* --- forward ---------------------------------------------------------------------------------- */

bool gd_cuda_match_attention(const gd_kernel_call *call) {
    attention_kernels *kernels = kernels_for(call, 3);
    return kernels && has_shared(call->device, &kernels->forward) &&
           count_matrices(&call->out[0]) <= INT32_MAX;
}

static gd_status run_forward(gd_kernel_call *call) {
    const gd_attention_forward_options *o = call->attrs;
    const gd_view *y = &call->out[0], *lse = &call->out[1];
    attention_kernels *kernels = kernels_for(call, 3);
    gd_cuda_attention p =
        describe_attention(call, y, 3, o->causal, o->grouped, o->scale, o->dropout);
    p.call = gd_cuda_call_of(call);
    p.y = heads_of(y, 2, p.batch_rank);
    p.lse = heads_of(lse, 1, p.batch_rank);
    return queue_tiles(call, &kernels->forward, kernels->threads, p.matrices, p.rows,
                       kernels->forward_rows, &p);
}

/* --- backward --------------------------------------------------------------------------------- */

/* Each matrix of k and v has one block for each tile, so they must not be broadcast; the gradient
 * rule of attention_forward expands them. */
bool gd_cuda_match_attention_grad(const gd_kernel_call *call) {
    const gd_attention_grad_options *o = call->attrs;
    const gd_view *q = &call->in[0], *k = &call->in[1], *v = &call->in[2], *gy = &call->in[5];
    attention_kernels *kernels = kernels_for(call, 6);
    if (!kernels || !has_shared(call->device, &kernels->keys) ||
        !has_shared(call->device, &kernels->queries) || count_matrices(gy) > INT32_MAX ||
        q->rank != gy->rank || k->rank != q->rank || v->rank != q->rank)
        return false;
    for (int d = 0; d < q->rank - 2; d++) {
        const bool shared = o->grouped && d == q->rank - 3;
        if (q->dims[d] != gy->dims[d] || k->dims[d] != v->dims[d] ||
            (k->dims[d] != q->dims[d] && !shared))
            return false;
    }
    return true;
}

static size_t grad_workspace(const gd_kernel_call *call) {
    const gd_view *lse = &call->in[4]; /* one inner product for each element */
    return (size_t)gd_cuda_count(lse) * gd_cuda_element_size(lse->dtype);
}

static gd_status run_grad(gd_kernel_call *call) {
    const gd_attention_grad_options *o = call->attrs;
    const gd_view *y = &call->in[3], *gy = &call->in[5];
    attention_kernels *kernels = kernels_for(call, 6);
    gd_cuda_attention p =
        describe_attention(call, gy, 6, o->causal, o->grouped, o->scale, o->dropout);
    p.call = gd_cuda_call_of(call);
    p.y = heads_of(y, 2, p.batch_rank);
    p.lse = heads_of(&call->in[4], 1, p.batch_rank);
    p.gy = heads_of(gy, 2, p.batch_rank);
    p.gq = heads_of(&call->out[0], 2, p.batch_rank);
    p.gk = heads_of(&call->out[1], 2, p.batch_rank);
    p.gv = heads_of(&call->out[2], 2, p.batch_rank);
    p.inner = call->workspace;
    gd_status status =
        queue_tiles(call, &inner_kernels[gd_cuda_float_number(y->dtype)], GD_CUDA_ATTENTION_THREADS,
                    p.matrices, p.rows, GD_CUDA_ATTENTION_INNER_ROWS, &p);
    if (status == GD_OK && (p.gk.data || p.gv.data))
        status = queue_tiles(call, &kernels->keys, kernels->threads, p.matrices / p.groups,
                             p.columns, kernels->keys_rows, &p);
    if (status == GD_OK && p.gv.data && kernels->second_keys)
        status = queue_tiles(call, kernels->second_keys, kernels->threads, p.matrices / p.groups,
                             p.columns, kernels->keys_rows, &p);
    if (status == GD_OK && p.gq.data)
        status = queue_tiles(call, &kernels->queries, kernels->threads, p.matrices, p.rows,
                             kernels->queries_rows, &p);
    return status;
}

/* --- kernels ---------------------------------------------------------------------------------- */

static void describe_forward(const gd_kernel_call *call, char *text, size_t size) {
    const attention_kernels *kernels = kernels_for(call, 3);
    snprintf(text, size, "tiles of %d rows, heads up to %d%s", kernels->forward_rows, kernels->head,
             is_general(call, 3) ? ", mask or dropout" : "");
}
static void describe_grad(const gd_kernel_call *call, char *text, size_t size) {
    const attention_kernels *kernels = kernels_for(call, 6);
    snprintf(text, size, "tiles of %d rows, heads up to %d%s", kernels->keys_rows, kernels->head,
             is_general(call, 6) ? ", mask or dropout" : "");
}

/*kernel attention_forward.tensor_cores  rank 10  dtypes f16 bf16  checked  strided  run run_forward
 *        match gd_cuda_match_attention  describe describe_forward
 * Tiles of q, k and v on tensor cores, without the matrix of weights in memory.
 */
/*kernel attention_forward.tiles  rank 10  dtypes f32 f64  checked  strided  run run_forward
 *        match gd_cuda_match_attention  describe describe_forward
 * Tiles of q, k and v without the matrix of weights in memory.
 */
/*kernel attention_grad.tensor_cores  rank 10  dtypes f16 bf16  checked  strided  run run_grad
 *        match gd_cuda_match_attention_grad  workspace grad_workspace  describe describe_grad
 * The gradients in tiles on tensor cores, with weights that are computed again.
 */
/*kernel attention_grad.tiles  rank 10  dtypes f32 f64  checked  strided  run run_grad
 *        match gd_cuda_match_attention_grad  workspace grad_workspace  describe describe_grad
 * The gradients in tiles, with weights that are computed again.
 */

#include "ops/attention/cuda/attention.gen.h"
