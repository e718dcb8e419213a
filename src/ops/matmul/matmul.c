/* matmul.c - matrix products: matmul, linear and its fused forms, dot, outer. */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/infer.h"
#include "dispatch/macs.h"

static gd_tensor *transpose_last(gd_tensor *t) {
    if (t->rank < 2) return t; /* the result of a call that failed */
    gd_shape axes = {.rank = t->rank, .form = 1};
    for (int i = 0; i < t->rank; i++) axes.at[i] = i;
    axes.at[t->rank - 1] = t->rank - 2;
    axes.at[t->rank - 2] = t->rank - 1;
    return gd_permute(t, axes);
}

/* (..., m, n) as (rows, n). */
static gd_tensor *as_matrix(gd_tensor *t) {
    if (t->rank == 0) return t; /* the result of a call that failed */
    int64_t last = t->dims[t->rank - 1], rows = 1;
    if (t->rank == 2) return t;
    for (int i = 0; i < t->rank - 1; i++) rows *= t->dims[i];
    return gd_reshape(t, gd_dims(rows, last));
}

/* --- matmul ----------------------------------------------------------------------------------- */

/*op matmul(a, b) -> y  heavy strided_rows lowp
 * The matrix product a (..., m, k) times b (..., k, n); leading dimensions broadcast. A vector on
 * the left is a row, on the right a column; the result has no dimension for it.
 *   onnx MatMul  cast y
 */

/* The operands' shapes as matrices: a vector a becomes (1, k), a vector b becomes (k, 1). */
typedef struct {
    int rank_a, rank_b;
    int64_t a[GD_MAX_RANK], b[GD_MAX_RANK];
} matrix_shapes;

static matrix_shapes matrix_shapes_of(int rank_a, const int64_t *a, int rank_b, const int64_t *b) {
    matrix_shapes s = {.rank_a = rank_a, .rank_b = rank_b};
    memcpy(s.a, a, sizeof(int64_t) * (size_t)rank_a);
    memcpy(s.b, b, sizeof(int64_t) * (size_t)rank_b);
    if (rank_a == 1) s.a[1] = s.a[0], s.a[0] = 1, s.rank_a = 2;
    if (rank_b == 1) s.b[1] = 1, s.rank_b = 2;
    return s;
}

static gd_status matmul_infer(gd_infer *i) {
    const gd_tensor *a = i->in[0], *b = i->in[1];
    gd_meta *y = &i->out[0];
    if (a->rank == 0 || b->rank == 0)
        return gd_op_fail(GD_E_SHAPE, "an operand has rank 0; use gd_mul to multiply by a number");
    y->dtype = gd_promote((gd_dtype)a->dtype, (gd_dtype)b->dtype);
    matrix_shapes s = matrix_shapes_of(a->rank, a->dims, b->rank, b->dims);
    int64_t inner_a = s.a[s.rank_a - 1], inner_b = s.b[s.rank_b - 2];
    if (inner_a != inner_b)
        return gd_op_fail(
            GD_E_SHAPE,
            "the last dimension of 'a' is %lld, but the %s dimension of 'b' is %lld; they must be "
            "equal",
            (long long)inner_a, b->rank > 1 ? "second-to-last" : "only", (long long)inner_b);
    int rank = s.rank_a > s.rank_b ? s.rank_a : s.rank_b;
    for (int d = 0; d < rank - 2; d++) {
        int ka = d - (rank - s.rank_a), kb = d - (rank - s.rank_b);
        int64_t na = ka < 0 ? 1 : s.a[ka], nb = kb < 0 ? 1 : s.b[kb];
        if (na != nb && na != 1 && nb != 1)
            return gd_op_fail(GD_E_SHAPE, "leading dimensions %lld and %lld do not broadcast",
                              (long long)na, (long long)nb);
        y->dims[d] = na == 1 ? nb : na;
    }
    y->rank = rank - 2;
    if (a->rank > 1) y->dims[y->rank++] = s.a[s.rank_a - 2];
    if (b->rank > 1) y->dims[y->rank++] = s.b[s.rank_b - 1];
    return GD_OK;
}

static void matmul_vjp(gd_vjp *v) {
    gd_tensor *a = v->x[0], *b = v->x[1], *gy = v->gy[0];
    matrix_shapes s = matrix_shapes_of(a->rank, a->dims, b->rank, b->dims);
    if (a->rank == 1) a = gd_reshape(a, gd_shape_of(2, s.a));
    if (b->rank == 1) b = gd_reshape(b, gd_shape_of(2, s.b));
    if (v->x[0]->rank == 1 || v->x[1]->rank == 1) { /* restore gy's dimensions of size 1 */
        gd_shape dims = {.form = 1};
        int lead = gy->rank - (v->x[0]->rank > 1) - (v->x[1]->rank > 1);
        for (int i = 0; i < lead; i++) dims.at[dims.rank++] = gy->dims[i];
        dims.at[dims.rank++] = s.a[s.rank_a - 2];
        dims.at[dims.rank++] = s.b[s.rank_b - 1];
        gy = gd_reshape(gy, dims);
    }
    if (gd_tensor_is_error(gy) || gd_tensor_is_error(a) || gd_tensor_is_error(b)) {
        v->gx[0] = v->gx[1] = gy;
        return;
    }
    if (v->needs[0]) {
        gd_tensor *ga = gd_matmul(gy, transpose_last(b));
        if (ga->rank >= s.rank_a) ga = gd_sum_to(ga, gd_shape_of(s.rank_a, s.a));
        v->gx[0] = gd_reshape(ga, gd_tensor_shape(v->x[0]));
    }
    if (v->needs[1]) {
        /* b is one matrix for all leading dimensions of a, so one product over all rows gives gb */
        bool one = s.rank_b == 2;
        gd_tensor *gb = one ? gd_matmul(transpose_last(as_matrix(a)), as_matrix(gy))
                            : gd_matmul(transpose_last(a), gy);
        if (!one) gb = gd_sum_to(gb, gd_shape_of(s.rank_b, s.b));
        v->gx[1] = gd_reshape(gb, gd_tensor_shape(v->x[1]));
    }
}

/* The offset in an operand of the matrix that gives matrix number `index` of the result. */
static int64_t batch_offset(int64_t index, int batch_rank, const int64_t *batch, int rank,
                            const int64_t *dims, const int64_t *strides) {
    int64_t at = 0;
    for (int d = batch_rank; d-- > 0;) {
        int k = d - (batch_rank - (rank - 2));
        if (k >= 0 && dims[k] > 1) at += index % batch[d] * strides[k];
        index /= batch[d];
    }
    return at;
}

static gd_status matmul_reference(gd_kernel_call *c) {
    const gd_view *a = &c->in[0], *b = &c->in[1];
    gd_view *y = &c->out[0];
    matrix_shapes s = matrix_shapes_of(a->rank, a->dims, b->rank, b->dims);
    int rank = s.rank_a > s.rank_b ? s.rank_a : s.rank_b;
    int64_t m = s.a[s.rank_a - 2], k = s.a[s.rank_a - 1], n = s.b[s.rank_b - 1], sa[GD_MAX_RANK],
            sb[GD_MAX_RANK];
    gd_row_major(s.rank_a, s.a, sa);
    gd_row_major(s.rank_b, s.b, sb);
    int64_t count = gd_numel(rank - 2, y->dims);
    bool reals = y->dtype == GD_F64;
    for (int64_t e = 0; e < count; e++) {
        int64_t pa = batch_offset(e, rank - 2, y->dims, s.rank_a, s.a, sa);
        int64_t pb = batch_offset(e, rank - 2, y->dims, s.rank_b, s.b, sb);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double real = 0;
                uint64_t integer = 0;
                for (int64_t t = 0; t < k; t++) {
                    const char *x = (const char *)a->data + 8 * (pa + i * k + t);
                    const char *z = (const char *)b->data + 8 * (pb + t * n + j);
                    if (reals) real += gd_load_f64(a->dtype, x) * gd_load_f64(b->dtype, z);
                    else integer += *(const uint64_t *)x * *(const uint64_t *)z;
                }
                char *to = (char *)y->data + 8 * ((e * m + i) * n + j);
                if (reals) *(double *)to = real;
                else *(int64_t *)to = (int64_t)integer;
            }
    }
    return GD_OK;
}

static double matmul_macs(const gd_op_shapes *s) {
    return gd_shape_elements(&s->out[0]) * (double)s->in[0].dims[s->in[0].rank - 1];
}

/* --- linear ----------------------------------------------------------------------------------- */

/*op linear(x, w, b?) -> y  heavy lowp
 * x (..., in) times the transpose of w (out, in), plus b (out): a fully connected layer. Integers
 * wrap, as in matmul.
 *   saves x, w
 *   onnx Gemm
 *   python (x, weight=w, bias=b)
 */
static gd_status linear_infer(gd_infer *i) {
    const gd_tensor *x = i->in[0], *w = i->in[1], *b = i->n_in > 2 ? i->in[2] : NULL;
    gd_meta *y = &i->out[0];
    GD_TRY(gd_need_rank(w, "w", 2));
    if (x->rank == 0) return gd_op_fail(GD_E_SHAPE, "'x' must have at least one dimension");
    GD_TRY(gd_need_same_dtype(x, w, "x", "w"));
    if (x->dims[x->rank - 1] != w->dims[1])
        return gd_op_fail(GD_E_SHAPE, "'w' takes %lld inputs, the last dimension of 'x' is %lld",
                          (long long)w->dims[1], (long long)x->dims[x->rank - 1]);
    if (b) {
        GD_TRY(gd_need_same_dtype(x, b, "x", "b"));
        if (b->rank != 1 || b->dims[0] != w->dims[0])
            return gd_op_fail(GD_E_SHAPE, "'b' must have shape [%lld]", (long long)w->dims[0]);
    }
    gd_meta_like(y, x);
    y->dims[y->rank - 1] = w->dims[0];
    return GD_OK;
}
static void linear_vjp(gd_vjp *v) {
    gd_tensor *x = v->x[0], *w = v->x[1], *gy = v->gy[0];
    if (v->needs[0]) v->gx[0] = gd_matmul(gy, w);
    if (v->needs[1]) {
        gd_tensor *rows = x->rank == 1 ? gd_reshape(x, gd_dims(1, x->dims[0])) : as_matrix(x);
        gd_tensor *grows = gy->rank == 1 ? gd_reshape(gy, gd_dims(1, gy->dims[0])) : as_matrix(gy);
        v->gx[1] = gd_matmul(transpose_last(grows), rows);
    }
    if (v->n_in > 2 && v->needs[2]) v->gx[2] = gy; /* summed to b's shape */
}
/* x (rows, in), w (out, in), b (out) or nothing: y (rows, out). Floats are f64 here,
 * integers i64. */
static gd_status linear_reference(gd_kernel_call *k) {
    const gd_view *x = &k->in[0], *w = &k->in[1],
                  *b = k->n_in > 2 && k->in[2].data ? &k->in[2] : NULL;
    const int64_t in = w->dims[1], out = w->dims[0], rows = gd_numel(x->rank - 1, x->dims);
    const bool reals = k->out[0].dtype == GD_F64;
    for (int64_t i = 0; i < rows * out; i++) {
        const int64_t row = i / out * in, column = i % out * in, bias = i % out;
        double real = reals && b ? ((const double *)b->data)[bias] : 0;
        uint64_t integer = !reals && b ? ((const uint64_t *)b->data)[bias] : 0; /* wraps */
        for (int64_t t = 0; t < in; t++) {
            if (reals)
                real += ((const double *)x->data)[row + t] * ((const double *)w->data)[column + t];
            else
                integer +=
                    ((const uint64_t *)x->data)[row + t] * ((const uint64_t *)w->data)[column + t];
        }
        if (reals) ((double *)k->out[0].data)[i] = real;
        else ((uint64_t *)k->out[0].data)[i] = integer;
    }
    return GD_OK;
}
static double linear_macs(const gd_op_shapes *s) {
    return gd_shape_elements(&s->out[0]) * (double)s->in[1].dims[1];
}
static void linear_expand(gd_expansion *e) {
    gd_tensor *y = gd_matmul(e->x[0], transpose_last(e->x[1]));
    e->y[0] = e->n_in > 2 && e->x[2] ? gd_add(y, e->x[2]) : y;
}

/*op linear_relu(x, w, b?) -> y  internal heavy
 * relu(linear(x, w, b)): plans fuse the two ops into this one.
 *   fuses relu(linear(x, w, b))
 */
static gd_status linear_relu_infer(gd_infer *i) { return linear_infer(i); }
static double linear_relu_macs(const gd_op_shapes *s) { return linear_macs(s); }
static void linear_relu_expand(gd_expansion *e) {
    e->y[0] = gd_relu(gd_linear(e->x[0], e->x[1], e->n_in > 2 ? e->x[2] : NULL));
}

/*op matmul_relu_grad(a, b, y) -> g  nograd internal heavy
 * The product of two matrices where y is above 0, and 0 elsewhere: the gradient of a layer whose
 * result y = relu(...) is an operand of a product. Plans fuse matmul and the gradient of relu into
 * it.
 *   fuses relu.gx(matmul(a, b), y)
 */
static gd_status matmul_relu_grad_infer(gd_infer *i) {
    const gd_tensor *a = i->in[0], *b = i->in[1], *y = i->in[2];
    char text[160];
    GD_TRY(gd_need_rank(a, "a", 2));
    GD_TRY(gd_need_rank(b, "b", 2));
    GD_TRY(gd_need_float(y, "y"));
    GD_TRY(gd_need_same_dtype(y, a, "y", "a"));
    GD_TRY(gd_need_same_dtype(y, b, "y", "b"));
    if (a->dims[1] != b->dims[0] || y->rank != 2 || y->dims[0] != a->dims[0] ||
        y->dims[1] != b->dims[1])
        return gd_op_fail(GD_E_SHAPE,
                          "the matrix product of 'a' and 'b' must have the shape of 'y', %s",
                          gd_shape_text(y->rank, y->dims, text, sizeof text));
    gd_meta_like(&i->out[0], y);
    return GD_OK;
}
static double matmul_relu_grad_macs(const gd_op_shapes *s) { return matmul_macs(s); }
static void matmul_relu_grad_expand(gd_expansion *e) {
    gd_tensor *product = gd_matmul(e->x[0], e->x[1]);
    e->y[0] = gd_where(gd_le(e->x[2], gd_scalar(0)), gd_scalar(0), product);
}

/*op matmul_step(p!, a, b, lr) -> p  nograd internal heavy
 * p minus lr times the product of two matrices: a step of gradient descent that never stores the
 * gradient. Plans fuse matmul and sgd_step into it.
 *   fuses sgd_step(p, matmul(a, b), lr)
 */
static gd_status matmul_step_infer(gd_infer *i) {
    const gd_tensor *p = i->in[0], *a = i->in[1], *b = i->in[2], *lr = i->in[3];
    char text[160];
    GD_TRY(gd_need_rank(a, "a", 2));
    GD_TRY(gd_need_rank(b, "b", 2));
    GD_TRY(gd_need_rank(lr, "lr", 0));
    GD_TRY(gd_need_float(p, "p"));
    GD_TRY(gd_need_float(lr, "lr"));
    GD_TRY(gd_need_same_dtype(p, a, "p", "a"));
    GD_TRY(gd_need_same_dtype(p, b, "p", "b"));
    if (a->dims[1] != b->dims[0] || p->rank != 2 || p->dims[0] != a->dims[0] ||
        p->dims[1] != b->dims[1])
        return gd_op_fail(GD_E_SHAPE,
                          "the matrix product of 'a' and 'b' must have the shape of 'p', %s",
                          gd_shape_text(p->rank, p->dims, text, sizeof text));
    gd_meta_view(&i->out[0], p, 0);
    return GD_OK;
}
static double matmul_step_macs(const gd_op_shapes *s) {
    return gd_shape_elements(&s->in[0]) * (double)s->in[1].dims[1];
}
static void matmul_step_expand(gd_expansion *e) {
    e->y[0] = gd_sgd_step(e->x[0], gd_matmul(e->x[1], e->x[2]), e->x[3]);
}

/* gy (rows, out) and x (rows, in): gw (out, in) and gb (out). */
static gd_status check_layer_gradients(const gd_tensor *gy, const gd_tensor *x) {
    GD_TRY(gd_need_rank(gy, "gy", 2));
    GD_TRY(gd_need_rank(x, "x", 2));
    GD_TRY(gd_need_float(x, "x"));
    GD_TRY(gd_need_same_dtype(gy, x, "gy", "x"));
    if (gy->dims[0] != x->dims[0])
        return gd_op_fail(GD_E_SHAPE, "'gy' has %lld rows, 'x' has %lld; they must be equal",
                          (long long)gy->dims[0], (long long)x->dims[0]);
    return GD_OK;
}

/*op linear_grad(gy, x) -> gw, gb  nograd internal heavy
 * The gradients of linear by its weight and its bias: the transpose of gy (rows, out) times
 * x (rows, in), and the sum of the rows of gy. Plans replace a matmul and a sum by it.
 */
static gd_status linear_grad_infer(gd_infer *i) {
    const gd_tensor *gy = i->in[0], *x = i->in[1];
    GD_TRY(check_layer_gradients(gy, x));
    gd_meta_like(&i->out[0], x);
    i->out[0].dims[0] = gy->dims[1];
    gd_meta_like(&i->out[1], gy);
    i->out[1].rank = 1;
    i->out[1].dims[0] = gy->dims[1];
    return GD_OK;
}
static double linear_grad_macs(const gd_op_shapes *s) {
    return gd_shape_elements(&s->in[0]) * (double)s->in[1].dims[1];
}
static void linear_grad_expand(gd_expansion *e) {
    e->y[0] = gd_matmul(transpose_last(e->x[0]), e->x[1]);
    e->y[1] = gd_sum(e->x[0], .axis = gd_dims(0));
}

/*op linear_step(w!, b!, gy, x, lr) -> w  nograd internal heavy
 * A step of gradient descent for the weight w (out, in) and the bias b (out) of linear, from the
 * gradient gy (rows, out) of its result and its input x (rows, in). The gradients of w and b are
 * never stored. Plans replace linear_grad and two sgd_step by it.
 */
static gd_status linear_step_infer(gd_infer *i) {
    const gd_tensor *w = i->in[0], *b = i->in[1], *gy = i->in[2], *x = i->in[3], *lr = i->in[4];
    GD_TRY(check_layer_gradients(gy, x));
    GD_TRY(gd_need_rank(w, "w", 2));
    GD_TRY(gd_need_rank(b, "b", 1));
    GD_TRY(gd_need_rank(lr, "lr", 0));
    GD_TRY(gd_need_float(lr, "lr"));
    GD_TRY(gd_need_same_dtype(w, x, "w", "x"));
    GD_TRY(gd_need_same_dtype(b, x, "b", "x"));
    if (w->dims[0] != gy->dims[1] || w->dims[1] != x->dims[1] || b->dims[0] != gy->dims[1])
        return gd_op_fail(GD_E_SHAPE, "'w' must have shape [%lld, %lld], and 'b' shape [%lld]",
                          (long long)gy->dims[1], (long long)x->dims[1], (long long)gy->dims[1]);
    gd_meta_view(&i->out[0], w, 0);
    return GD_OK;
}
static double linear_step_macs(const gd_op_shapes *s) {
    return gd_shape_elements(&s->in[0]) * (double)s->in[2].dims[0];
}
static void linear_step_expand(gd_expansion *e) {
    e->y[0] = gd_sgd_step(e->x[0], gd_matmul(transpose_last(e->x[2]), e->x[3]), e->x[4]);
    gd_sgd_step(e->x[1], gd_sum(e->x[2], .axis = gd_dims(0)), e->x[4]);
}

/* --- dot and outer ---------------------------------------------------------------------------- */

/*op dot(a, b) -> y
 * The sum of the products of two vectors.
 */
static gd_status dot_infer(gd_infer *i) {
    GD_TRY(gd_need_rank(i->in[0], "a", 1));
    GD_TRY(gd_need_rank(i->in[1], "b", 1));
    GD_TRY(gd_need_same_dtype(i->in[0], i->in[1], "a", "b"));
    return matmul_infer(i);
}
static void dot_expand(gd_expansion *e) { e->y[0] = gd_matmul(e->x[0], e->x[1]); }

/*op outer(a, b) -> y
 * Every element of the vector a times every element of the vector b: (m) and (n) give (m, n).
 *   python (a, vec2=b)
 */
static gd_status outer_infer(gd_infer *i) {
    GD_TRY(gd_need_rank(i->in[0], "a", 1));
    GD_TRY(gd_need_rank(i->in[1], "b", 1));
    i->out[0].dtype = gd_promote((gd_dtype)i->in[0]->dtype, (gd_dtype)i->in[1]->dtype);
    i->out[0].rank = 2;
    i->out[0].dims[0] = i->in[0]->dims[0];
    i->out[0].dims[1] = i->in[1]->dims[0];
    return GD_OK;
}
static void outer_expand(gd_expansion *e) {
    e->y[0] = gd_mul(gd_reshape(e->x[0], gd_dims(-1, 1)), gd_reshape(e->x[1], gd_dims(1, -1)));
}

#include "ops/matmul/matmul.gen.h"
