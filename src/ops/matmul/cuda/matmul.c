/* matmul.c - matrix products for all dtypes and strides: matmul and linear. They run where no kernel of
 * a library of NVIDIA does. */
#include "ops/matmul/cuda/matmul_args.h"

#include <stdio.h>

#include "backend/cuda/kernels.h"
#include "gradus/ops.h"

static gd_cuda_kernel matmul_f32 = GD_CUDA_KERNEL("matmul/matmul", "gd_matmul_f32"),
                      matmul_f16 = GD_CUDA_KERNEL("matmul/matmul", "gd_matmul_f16"),
                      matmul_bf16 = GD_CUDA_KERNEL("matmul/matmul", "gd_matmul_bf16"),
                      matmul_mixed = GD_CUDA_KERNEL("matmul/matmul", "gd_matmul_mixed"),
                      matmul_f64 = GD_CUDA_KERNEL("matmul/matmul", "gd_matmul_f64"),
                      matmul_i64 = GD_CUDA_KERNEL("matmul/matmul", "gd_matmul_i64"),
                      parts_f32 = GD_CUDA_KERNEL("matmul/matmul", "gd_matmul_parts_f32"),
                      parts_f64 = GD_CUDA_KERNEL("matmul/matmul", "gd_matmul_parts_f64"),
                      parts_i64 = GD_CUDA_KERNEL("matmul/matmul", "gd_matmul_parts_i64");

/* --- shapes ----------------------------------------------------------------------------------- */

/* An operand whose last dimensions are those of a matrix: a vector has only columns or only rows.
 * The others are aligned with the last dimensions of the batch. */
static gd_cuda_matrix matrix_of(const gd_view *v, bool has_rows, bool has_columns, int batch_rank) {
    gd_cuda_matrix matrix = {.data = v->data, .dtype = (int)v->dtype};
    int rank = v->rank;
    if (has_columns) matrix.column = v->strides[--rank];
    if (has_rows) matrix.row = v->strides[--rank];
    for (int k = 0; k < rank; k++)
        if (v->dims[k] > 1) matrix.batch[batch_rank - rank + k] = v->strides[k];
    return matrix;
}

enum {
    TILE = GD_CUDA_MATMUL_TILE,
    DEPTH = GD_CUDA_MATMUL_DEPTH,
    THREADS = GD_CUDA_MATMUL_THREADS,
    ENOUGH_TILES = 256, /* to keep a device busy */
    LEAST_CHUNK = 512,  /* of k, in one part */
};

static long long count_tiles(const gd_cuda_matmul *p) {
    return (p->m + TILE - 1) / TILE * ((p->n + TILE - 1) / TILE) * p->batches;
}

/* The number of parts depends on the shape alone, so that all devices add in the same order. */
static void divide_depth(gd_cuda_matmul *p) {
    const long long tiles = count_tiles(p);
    p->parts = 1;
    if (tiles > 0 && tiles < ENOUGH_TILES) {
        const long long most = p->k / LEAST_CHUNK;
        p->parts = ENOUGH_TILES / tiles;
        if (p->parts > most) p->parts = most > 1 ? most : 1;
    }
    p->chunk = ((p->k + p->parts - 1) / p->parts + DEPTH - 1) / DEPTH * DEPTH;
    if (p->chunk > 0) p->parts = (p->k + p->chunk - 1) / p->chunk; /* none is empty */
}

static gd_cuda_matmul plan_matmul(const gd_kernel_call *call) {
    const gd_view *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    const bool rows = a->rank > 1, columns = b->rank > 1;
    gd_cuda_matmul p = {.m = rows ? a->dims[a->rank - 2] : 1,
                        .n = columns ? b->dims[b->rank - 1] : 1,
                        .k = a->dims[a->rank - 1],
                        .batches = 1,
                        .batch_rank = y->rank - rows - columns};
    for (int d = 0; d < p.batch_rank; d++) p.batches *= p.batch_dims[d] = y->dims[d];
    p.a = matrix_of(a, rows, true, p.batch_rank);
    p.b = matrix_of(b, true, columns, p.batch_rank);
    p.y = matrix_of(y, rows, columns, p.batch_rank);
    divide_depth(&p);
    return p;
}

/* x (..., m, k), the transpose of w (n, k), and a bias (n) or none. */
static gd_cuda_matmul plan_linear(const gd_kernel_call *call) {
    const gd_view *x = &call->in[0], *w = &call->in[1], *y = &call->out[0],
                  *bias = call->n_in > 2 && call->in[2].data ? &call->in[2] : NULL;
    const bool rows = x->rank > 1;
    gd_cuda_matmul p = {.m = rows ? x->dims[x->rank - 2] : 1,
                        .n = w->dims[0],
                        .k = w->dims[1],
                        .batches = 1,
                        .batch_rank = rows ? x->rank - 2 : 0};
    for (int d = 0; d < p.batch_rank; d++) p.batches *= p.batch_dims[d] = y->dims[d];
    p.a = matrix_of(x, rows, true, p.batch_rank);
    p.b = (gd_cuda_matrix){
        .data = w->data, .dtype = (int)w->dtype, .row = w->strides[1], .column = w->strides[0]};
    p.y = matrix_of(y, rows, true, p.batch_rank);
    if (bias) {
        p.bias = bias->data;
        p.bias_dtype = (int)bias->dtype;
        p.bias_stride = bias->strides[0];
    }
    divide_depth(&p);
    return p;
}

/* --- the kernels ------------------------------------------------------------------------------ */

static size_t partial_bytes(const gd_kernel_call *call, const gd_cuda_matmul *p) {
    const gd_dtype dtype = call->out[0].dtype;
    const size_t element = gd_cuda_is_float(dtype) && dtype != GD_F64 ? 4 : 8;
    return p->parts > 1 ? (size_t)(p->parts * p->batches * p->m * p->n) * element : 0;
}

static gd_cuda_kernel *product_kernel(gd_dtype a, gd_dtype b, gd_dtype y) {
    if (y == GD_F64) return &matmul_f64;
    if (!gd_cuda_is_float(y)) return &matmul_i64;
    if (a != b) return &matmul_mixed;
    return a == GD_F32 ? &matmul_f32 : a == GD_F16 ? &matmul_f16 : &matmul_bf16;
}

static gd_status queue_product(gd_kernel_call *call, gd_cuda_matmul *p) {
    enum { MAX_BLOCKS = 1 << 20 }; /* blocks loop over the rest */
    const gd_dtype dtype = call->out[0].dtype;
    p->call = gd_cuda_call_of(call);
    p->partials = call->workspace;
    const long long blocks = count_tiles(p) * p->parts;
    gd_status status =
        gd_cuda_launch(call->device, product_kernel(call->in[0].dtype, call->in[1].dtype, dtype),
                       blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS, THREADS, p);
    if (status == GD_OK && p->parts > 1)
        status = gd_cuda_launch_each(call->device,
                                     dtype == GD_F64           ? &parts_f64
                                     : gd_cuda_is_float(dtype) ? &parts_f32
                                                               : &parts_i64,
                                     p->batches * p->m * p->n, p);
    return status;
}

static void describe_tiles(const gd_cuda_matmul *p, char *text, size_t size) {
    snprintf(text, size, "tiles %dx%d, %lld part%s", TILE, TILE, p->parts,
             p->parts == 1 ? "" : "s");
}

#define TILED_PRODUCT(name)                                                            \
    static size_t name##_workspace(const gd_kernel_call *call) {                       \
        const gd_cuda_matmul p = plan_##name(call);                                    \
        return partial_bytes(call, &p);                                                \
    }                                                                                  \
    static gd_status run_##name(gd_kernel_call *call) {                                \
        gd_cuda_matmul p = plan_##name(call);                                          \
        return queue_product(call, &p);                                                \
    }                                                                                  \
    static void describe_##name(const gd_kernel_call *call, char *text, size_t size) { \
        const gd_cuda_matmul p = plan_##name(call);                                    \
        describe_tiles(&p, text, size);                                                \
    }
TILED_PRODUCT(matmul)
TILED_PRODUCT(linear)

/*kernel matmul.tiled, linear.tiled  rank 10  checked  run run_OP  workspace OP_workspace
 *        describe describe_OP
 * All dtypes and strides.
 */

#include "ops/matmul/cuda/matmul.gen.h"
