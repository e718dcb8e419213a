/* kernels_reduce.c - products of matrices and reductions. All operands are row-major f64 or i64. */
#include "backend/test/kernels.h"

static double real_at(const gd_view *v, int64_t at) {
    return v->dtype == GD_F64 ? ((const double *)v->data)[at]
                              : (double)((const int64_t *)v->data)[at];
}

static int64_t integer_at(const gd_view *v, int64_t at) {
    return v->dtype == GD_I64 ? ((const int64_t *)v->data)[at]
                              : gd_f64_to_i64(((const double *)v->data)[at]);
}

/* --- matmul ----------------------------------------------------------------------------------- */

/* A matrix, or a batch of them, as rank-GD_MAX_RANK strides of rows, columns and the batch. */
typedef struct matrix {
    const gd_view *view;
    int64_t rows, columns;
} matrix;

static matrix matrix_of(const gd_view *v, bool left) {
    if (v->rank == 1) return left ? (matrix){v, 1, v->dims[0]} : (matrix){v, v->dims[0], 1};
    return (matrix){v, v->dims[v->rank - 2], v->dims[v->rank - 1]};
}

/* The first element of the matrix that belongs to batch number `number` over `dims`. */
static int64_t matrix_start(const matrix *m, int rank, const int64_t *dims, int64_t number) {
    int64_t at = 0, stride = m->rows * m->columns;
    for (int d = rank, k = m->view->rank - 2; d-- > 0 && k-- > 0; number /= dims[d]) {
        if (m->view->dims[k] > 1) at += number % dims[d] * stride;
        stride *= m->view->dims[k];
    }
    return at;
}

void test_matmul(gd_kernel_call *call) {
    const gd_view *y = &call->out[0];
    const matrix a = matrix_of(&call->in[0], true), b = matrix_of(&call->in[1], false);
    const int batch_rank = y->rank - (call->in[0].rank > 1) - (call->in[1].rank > 1);
    int64_t batches = 1;
    for (int i = 0; i < batch_rank; i++) batches *= y->dims[i];
    const bool integers = y->dtype == GD_I64;
    for (int64_t n = 0; n < batches; n++) {
        const int64_t from_a = matrix_start(&a, batch_rank, y->dims, n),
                      from_b = matrix_start(&b, batch_rank, y->dims, n);
        for (int64_t r = 0; r < a.rows; r++)
            for (int64_t c = 0; c < b.columns; c++) {
                const int64_t at = (n * a.rows + r) * b.columns + c;
                double sum = 0;
                uint64_t total = 0;
                for (int64_t k = 0; k < a.columns; k++) {
                    const int64_t i = from_a + r * a.columns + k, j = from_b + k * b.columns + c;
                    if (integers)
                        total += (uint64_t)((int64_t *)a.view->data)[i] *
                                 (uint64_t)((int64_t *)b.view->data)[j];
                    else sum += real_at(a.view, i) * real_at(b.view, j);
                }
                if (integers) ((int64_t *)y->data)[at] = (int64_t)total;
                else ((double *)y->data)[at] = sum;
            }
    }
}

/* --- reductions ------------------------------------------------------------------------------- */

/* Bit k: axis k is reduced. */
static uint32_t reduced_axes(const gd_view *x, const gd_shape *axis) {
    uint32_t mask = 0;
    if (axis->form == -1) return ~0u;
    for (int i = 0; i < axis->rank; i++)
        mask |= 1u << (axis->at[i] < 0 ? axis->at[i] + x->rank : axis->at[i]);
    return mask;
}

/* The output element that input element `number` is reduced into. */
static int64_t output_of(const gd_view *x, uint32_t mask, int64_t number) {
    int64_t at = 0, stride = 1;
    for (int d = x->rank; d-- > 0; number /= x->dims[d]) {
        if (mask >> d & 1) continue;
        at += number % x->dims[d] * stride;
        stride *= x->dims[d];
    }
    return at;
}

void test_sum(gd_kernel_call *call) {
    const gd_view *x = &call->in[0], *y = &call->out[0];
    const gd_sum_options *o = call->attrs;
    const uint32_t mask = reduced_axes(x, &o->axis);
    const int64_t count = count_elements(x);
    memset(y->data, 0, (size_t)count_elements(y) * 8);
    for (int64_t e = 0; e < count; e++) {
        const int64_t at = output_of(x, mask, e);
        if (y->dtype == GD_F64) ((double *)y->data)[at] += real_at(x, e);
        else ((uint64_t *)y->data)[at] += (uint64_t)integer_at(x, e);
    }
}
