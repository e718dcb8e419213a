/* matmul_problem.c - see matmul_problem.h. */
#include "ops/matmul/cuda/matmul_problem.h"

/* The stride of an operand along dim d of the batch; 0 where it is broadcast. `rank` is that of the
 * operand without its matrix dims; its dims are aligned with the last dims of the batch. */
static int64_t stride_along(const gd_view *v, int rank, int batch_rank, int d) {
    const int k = d - batch_rank + rank;
    return k >= 0 && v->dims[k] > 1 ? v->strides[k] : 0;
}

typedef struct batch_operand {
    const gd_view *view;
    int rank; /* of its batch dims */
    gd_product_matrix *matrix;
} batch_operand;

/* Whether dim d continues the evenly spaced batch of `span` matrices. */
static bool continues_batch(const batch_operand *operands, int batch_rank, int d, int64_t span) {
    for (int i = 0; i < 3; i++)
        if (stride_along(operands[i].view, operands[i].rank, batch_rank, d) !=
            operands[i].matrix->batch * span)
            return false;
    return true;
}

/* Divides the batch dims into the inner batch and the outer dims. */
static void divide_batch(gd_product_problem *p, const batch_operand *operands, int batch_rank,
                         const int64_t *dims) {
    int d = batch_rank;
    while (d-- > 0) {
        if (dims[d] == 1) continue;
        if (p->batches == 1)
            for (int i = 0; i < 3; i++)
                operands[i].matrix->batch =
                    stride_along(operands[i].view, operands[i].rank, batch_rank, d);
        else if (!continues_batch(operands, batch_rank, d, p->batches)) break;
        p->batches *= dims[d];
    }
    for (; d >= 0; d--) {
        if (dims[d] == 1) continue;
        for (int i = 0; i < 3; i++)
            operands[i].matrix->outer[p->n_outer] =
                stride_along(operands[i].view, operands[i].rank, batch_rank, d);
        p->outer_dims[p->n_outer++] = dims[d];
        p->outer_count *= dims[d];
    }
}

/* If one b serves all matrices of the batch, and the rows of all a are evenly spaced, the batch is one
 * product with more rows. */
static void join_rows(gd_product_problem *p) {
    if (p->batches == 1 || p->b.batch != 0) return;
    if (p->m == 1) p->a.row = p->a.batch, p->y.row = p->y.batch;
    else if (p->a.batch != p->m * p->a.row || p->y.batch != p->m * p->y.row) return;
    p->m *= p->batches;
    p->batches = 1;
    p->a.batch = p->y.batch = 0;
}

/* Strides along dims of size 1 are arbitrary; sets those that a contiguous matrix would have. */
static bool finish_problem(gd_product_problem *p) {
    join_rows(p);
    if (p->m == 1) p->a.row = p->k, p->y.row = p->n;
    if (p->n == 1) p->b.column = 1, p->y.column = 1;
    if (p->k == 1) p->a.column = 1, p->b.row = p->n;
    return p->m > 0 && p->n > 0 && p->k > 0 && p->batches > 0 && p->outer_count > 0;
}

static gd_product_problem new_problem(gd_dtype dtype) {
    return (gd_product_problem){.dtype = dtype, .batches = 1, .outer_count = 1};
}

bool gd_cuda_product_problem(const gd_view *a, const gd_view *b, const gd_view *y,
                             gd_product_problem *p) {
    const int rows = a->rank > 1, columns = b->rank > 1, batch_rank = y->rank - rows - columns;
    *p = new_problem(y->dtype);
    if (a->dtype != y->dtype || b->dtype != y->dtype) return false;
    p->k = a->dims[a->rank - 1];
    p->m = rows ? a->dims[a->rank - 2] : 1;
    p->n = columns ? b->dims[b->rank - 1] : 1;
    p->a.column = a->strides[a->rank - 1];
    p->b.row = b->strides[b->rank - 1 - columns];
    if (rows) p->a.row = a->strides[a->rank - 2], p->y.row = y->strides[batch_rank];
    if (columns) p->b.column = b->strides[b->rank - 1], p->y.column = y->strides[y->rank - 1];
    const batch_operand operands[] = {
        {a, a->rank - 1 - rows, &p->a}, {b, b->rank - 1 - columns, &p->b}, {y, batch_rank, &p->y}};
    divide_batch(p, operands, batch_rank, y->dims);
    return finish_problem(p);
}

bool gd_cuda_matmul_problem(const gd_kernel_call *call, gd_product_problem *p) {
    return gd_cuda_product_problem(&call->in[0], &call->in[1], &call->out[0], p);
}

bool gd_cuda_linear_problem(const gd_kernel_call *call, gd_product_problem *p) {
    const gd_view *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    const gd_view none = {.rank = 0};
    const int batch_rank = y->rank > 1 ? y->rank - 2 : 0;
    *p = new_problem(y->dtype);
    if (x->dtype != y->dtype || w->dtype != y->dtype) return false;
    p->k = w->dims[1];
    p->n = w->dims[0];
    p->m = x->rank > 1 ? x->dims[x->rank - 2] : 1;
    p->a.column = x->strides[x->rank - 1];
    p->b.row = w->strides[1];
    p->b.column = w->strides[0];
    p->y.column = y->strides[y->rank - 1];
    if (x->rank > 1) p->a.row = x->strides[x->rank - 2], p->y.row = y->strides[y->rank - 2];
    const batch_operand operands[] = {
        {x, batch_rank, &p->a}, {&none, 0, &p->b}, {y, batch_rank, &p->y}};
    divide_batch(p, operands, batch_rank, y->dims);
    return finish_problem(p);
}
