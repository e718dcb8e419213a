/* matmul_kernels.c - matmul, linear and their fused forms, as calls of the packed GEMM (gemm.h). */
#include <string.h>

#include "ops/matmul/cpu/gemm.h"
#include "core/copy.h"
#include "core/tensor.h"
#include "dispatch/op.h"

/* The GEMM takes all f64, or any mix of f32, f16 and bf16. */
static bool has_gemm_dtypes(const gd_kernel_call *k) {
    bool doubles = k->in[0].dtype == GD_F64;
    for (int i = 0; i < k->n_in; i++)
        if (k->in[i].rank > 0 &&
            (!gd_dtype_is_float(k->in[i].dtype) || (k->in[i].dtype == GD_F64) != doubles))
            return false;
    return (k->out[0].dtype == GD_F64) == doubles;
}

/* The scratch bound of a product with result y that sums over k. */
static size_t gemm_scratch_bound(const gd_view *y, int64_t k) {
    const int64_t n = y->rank > 0 ? y->dims[y->rank - 1] : 1;
    return gd_gemm_max_scratch(n > 0 ? gd_numel(y->rank, y->dims) / n : 0, n, k, y->dtype);
}

/*kernel matmul.packed  rank 10  dtypes f16 bf16 f32 f64
 * Packs blocks of both matrices for the cache and multiplies them in tiles of registers; any
 * strides.
 */
static bool matmul_packed_match(const gd_kernel_call *k) {
    return has_gemm_dtypes(k) && k->out[0].rank <= GD_GEMM_BATCH_RANK + 2;
}
static gd_status matmul_packed_run(gd_kernel_call *k) {
    const gd_view *a = &k->in[0], *b = &k->in[1];
    gd_view *y = &k->out[0];
    int ra = a->rank, rb = b->rank;
    /* (m, k) by (k, n); a vector has k only */
    int64_t m = ra > 1 ? a->dims[ra - 2] : 1, inner = a->dims[ra - 1],
            n = rb > 1 ? b->dims[rb - 1] : 1;
    int y_cols = rb > 1, y_rows = ra > 1, batch_rank = y->rank - y_rows - y_cols;
    gd_gemm g = {.m = m,
                 .n = n,
                 .k = inner,
                 .a = {a->data, a->dtype, ra > 1 ? a->strides[ra - 2] : 0, a->strides[ra - 1]},
                 .b = {b->data, b->dtype, rb > 1 ? b->strides[rb - 2] : b->strides[0],
                       rb > 1 ? b->strides[rb - 1] : 0},
                 .c = {y->data, y->dtype, y_rows ? y->strides[batch_rank] : 0,
                       y_cols ? y->strides[y->rank - 1] : 0}};
    if (!y_rows) g.c.row = 1;
    if (!y_cols) g.c.col = 1;
    gd_gemm_batch batch = {.rank = batch_rank};
    bool single = true;
    for (int d = 0; d < batch_rank; d++) {
        int ka = d - (batch_rank - (ra > 2 ? ra - 2 : 0)),
            kb = d - (batch_rank - (rb > 2 ? rb - 2 : 0));
        batch.size[d] = y->dims[d];
        batch.a_step[d] = ka >= 0 && a->dims[ka] > 1 ? a->strides[ka] : 0;
        batch.b_step[d] = kb >= 0 && b->dims[kb] > 1 ? b->strides[kb] : 0;
        batch.c_step[d] = y->strides[d];
        if (batch.size[d] != 1) single = false;
    }
    if (single) return gd_gemm_run(&g);
    /* (batch, m, k) by one matrix is a single product if the rows of a are evenly spaced over the
     * batch */
    if (batch_rank == 1 && batch.b_step[0] == 0 && y_rows && batch.a_step[0] == m * g.a.row &&
        batch.c_step[0] == m * g.c.row) {
        g.m = m * batch.size[0];
        return gd_gemm_run(&g);
    }
    return gd_gemm_run_batch(&g, &batch);
}

static size_t matmul_packed_scratch(const gd_kernel_call *k) {
    const gd_view *a = &k->in[0];
    return gemm_scratch_bound(&k->out[0], a->rank > 0 ? a->dims[a->rank - 1] : 1);
}

/*kernel linear.packed  rank 10  dtypes f16 bf16 f32 f64  contiguous
 * The product of matmul.packed; the epilogue adds the bias.
 */
static bool linear_packed_match(const gd_kernel_call *k) {
    for (int i = 1; i < k->n_in; i++)
        if (k->in[i].data && k->in[i].dtype != k->in[0].dtype) return false;
    return true;
}
static gd_status run_linear(gd_kernel_call *k, gd_gemm_act act) {
    const gd_view *x = &k->in[0], *w = &k->in[1],
                  *b = k->n_in > 2 && k->in[2].data ? &k->in[2] : NULL;
    int64_t in = w->dims[1], out = w->dims[0], rows = gd_numel(x->rank - 1, x->dims);
    gd_gemm g = {.m = rows,
                 .n = out,
                 .k = in,
                 .a = {x->data, x->dtype, in, 1},
                 .b = {w->data, w->dtype, 1, in},
                 .c = {k->out[0].data, k->out[0].dtype, out, 1}};
    if (b) g.bias = (gd_gemm_in){b->data, b->dtype, 0, 1};
    g.act = act;
    return gd_gemm_run(&g);
}
static gd_status linear_packed_run(gd_kernel_call *k) { return run_linear(k, GD_GEMM_IDENTITY); }

static size_t linear_packed_scratch(const gd_kernel_call *k) {
    return gemm_scratch_bound(&k->out[0], k->in[1].dims[1]);
}

/*kernel linear_relu.packed  rank 10  dtypes f16 bf16 f32 f64  contiguous
 *        scratch linear_packed_scratch
 * As linear.packed; the epilogue also applies relu.
 */
static bool linear_relu_packed_match(const gd_kernel_call *k) { return linear_packed_match(k); }
static gd_status linear_relu_packed_run(gd_kernel_call *k) { return run_linear(k, GD_GEMM_RELU); }

/*kernel matmul_relu_grad.packed  rank 10  dtypes f32 f64  scratch matmul_packed_scratch
 * Any strides; the epilogue applies the mask.
 */
static gd_status matmul_relu_grad_packed_run(gd_kernel_call *k) {
    const gd_view *a = &k->in[0], *b = &k->in[1], *y = &k->in[2], *g = &k->out[0];
    const gd_gemm product = {.m = g->dims[0],
                             .n = g->dims[1],
                             .k = a->dims[1],
                             .a = {a->data, a->dtype, a->strides[0], a->strides[1]},
                             .b = {b->data, b->dtype, b->strides[0], b->strides[1]},
                             .c = {g->data, g->dtype, g->strides[0], g->strides[1]},
                             .mask = {y->data, y->dtype, y->strides[0], y->strides[1]}};
    return gd_gemm_run(&product);
}

static size_t matmul_step_packed_scratch(const gd_kernel_call *k) {
    return gemm_scratch_bound(&k->in[0], k->in[1].dims[1]);
}

/*kernel matmul_step.packed  rank 10  dtypes f32 f64
 * Any strides; the epilogue adds the product to the parameter.
 */
static gd_status matmul_step_packed_run(gd_kernel_call *k) {
    const gd_view *a = &k->in[1], *b = &k->in[2], *p = &k->out[1];
    const gd_gemm g = {.m = p->dims[0],
                       .n = p->dims[1],
                       .k = a->dims[1],
                       .a = {a->data, a->dtype, a->strides[0], a->strides[1]},
                       .b = {b->data, b->dtype, b->strides[0], b->strides[1]},
                       .c = {p->data, p->dtype, p->strides[0], p->strides[1]},
                       .accumulate = true,
                       .scaled = true,
                       .scale = -gd_load_f64(k->in[3].dtype, k->in[3].data)};
    return gd_gemm_run(&g);
}

#include "ops/matmul/cpu/matmul_kernels.gen.h"
