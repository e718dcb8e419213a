/* kernels_reduce.c - matrix products and reductions. All operands are row-major f64 or i64. */
#include "backend/test/kernels.h"

/* --- matmul ----------------------------------------------------------------------------------- */

/* An operand of matmul: a vector, a matrix (rows, columns), or a batch of matrices. */
typedef struct matrix {
    const gd_view *view;
    int64_t rows, columns;
} matrix;

static matrix matrix_of(const gd_view *v, bool left) {
    if (v->rank == 1) return left ? (matrix){v, 1, v->dims[0]} : (matrix){v, v->dims[0], 1};
    return (matrix){v, v->dims[v->rank - 2], v->dims[v->rank - 1]};
}

/* The offset of the matrix at position `number` of the batch, which is counted row-major over
 * `dims` and to which the operand is broadcast. */
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

/* Bit k is set if axis k is reduced. */
static uint32_t reduced_axes(const gd_view *x, const gd_shape *axis) {
    uint32_t mask = 0;
    if (axis->form == -1) return ~0u;
    for (int i = 0; i < axis->rank && x->rank > 0; i++)
        mask |= 1u << (axis->at[i] < 0 ? axis->at[i] + x->rank : axis->at[i]);
    return mask;
}

/* A group is the elements of x that are reduced to one result. */
typedef struct groups {
    const gd_view *x;
    uint32_t mask;
    int64_t count, size; /* groups, and elements of a group */
} groups;

static groups groups_of(const gd_view *x, uint32_t mask) {
    groups g = {x, mask, 1, 1};
    for (int d = 0; d < x->rank; d++) *(mask >> d & 1 ? &g.size : &g.count) *= x->dims[d];
    return g;
}

/* The offset in x of element n of a group; n counts row-major over the reduced axes. */
static int64_t group_element(const groups *g, int64_t group, int64_t n) {
    int64_t at = 0, stride = 1;
    for (int d = g->x->rank; d-- > 0; stride *= g->x->dims[d]) {
        int64_t *number = g->mask >> d & 1 ? &n : &group;
        at += *number % g->x->dims[d] * stride;
        *number /= g->x->dims[d];
    }
    return at;
}

/* Sums and products. For an integer result, each element is converted to `dtype` first; a sum of
 * bools is a logical or. */
static void reduce_groups(gd_kernel_call *call, const gd_shape *axis, gd_dtype dtype,
                          bool product) {
    const gd_view *x = &call->in[0], *y = &call->out[0];
    const groups g = groups_of(x, reduced_axes(x, axis));
    for (int64_t o = 0; o < g.count; o++) {
        double real = product;
        uint64_t integer = product; /* wraps around */
        for (int64_t n = 0; n < g.size; n++) {
            const int64_t at = group_element(&g, o, n);
            const uint64_t value = (uint64_t)integer_as(x, at, dtype);
            real = product ? real * real_at(x, at) : real + real_at(x, at);
            if (product) integer *= value;
            else if (dtype == GD_BOOL) integer |= value;
            else integer += value;
        }
        if (y->dtype == GD_F64) ((double *)y->data)[o] = real;
        else ((uint64_t *)y->data)[o] = integer;
    }
}

void test_sum(gd_kernel_call *call) {
    const gd_sum_options *o = call->attrs;
    reduce_groups(call, &o->axis, o->dtype, false);
}

void test_prod(gd_kernel_call *call) {
    const gd_prod_options *o = call->attrs;
    reduce_groups(call, &o->axis, o->dtype, true);
}

/* --- extremes --------------------------------------------------------------------------------- */

/* Whether element a is more extreme than element b. NaN is more extreme than any number. */
static bool is_more_extreme(const gd_view *x, int64_t a, int64_t b, bool largest) {
    if (x->dtype == GD_I64) {
        const int64_t p = integer_at(x, a), q = integer_at(x, b);
        return largest ? p > q : p < q;
    }
    const double p = real_at(x, a), q = real_at(x, b);
    if (isnan(p) || isnan(q)) return isnan(p) && !isnan(q);
    return largest ? p > q : p < q;
}

/* Computes the first extreme of each group, and its index in the group. */
static void find_extremes(gd_kernel_call *call, uint32_t mask, bool largest) {
    const gd_view *x = &call->in[0];
    const groups g = groups_of(x, mask);
    for (int64_t o = 0; o < g.count; o++) {
        int64_t best = group_element(&g, o, 0), number = 0;
        for (int64_t n = 1; n < g.size; n++) {
            const int64_t at = group_element(&g, o, n);
            if (is_more_extreme(x, at, best, largest)) best = at, number = n;
        }
        if (call->out[0].data) copy_element(&call->out[0], o, x, best);
        if (call->n_out > 1 && call->out[1].data) ((int64_t *)call->out[1].data)[o] = number;
    }
}

void test_max(gd_kernel_call *call) {
    const gd_max_options *o = call->attrs;
    find_extremes(call, reduced_axes(&call->in[0], &o->axis), true);
}

void test_min(gd_kernel_call *call) {
    const gd_min_options *o = call->attrs;
    find_extremes(call, reduced_axes(&call->in[0], &o->axis), false);
}

static uint32_t axis_bit(const gd_view *x, int64_t axis) {
    return x->rank > 0 ? 1u << axis_of(axis, x->rank) : 0;
}

void test_max_with_index(gd_kernel_call *call) {
    const gd_max_with_index_options *o = call->attrs;
    find_extremes(call, axis_bit(&call->in[0], o->axis), true);
}

void test_min_with_index(gd_kernel_call *call) {
    const gd_min_with_index_options *o = call->attrs;
    find_extremes(call, axis_bit(&call->in[0], o->axis), false);
}
