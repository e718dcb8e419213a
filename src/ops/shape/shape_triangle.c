/* shape_triangle.c - tril, triu and diagonal: triangles and diagonals of matrices. */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"

static gd_status triangle_infer(gd_infer *i) {
    if (i->in[0]->rank < 2)
        return gd_op_fail(GD_E_SHAPE, "'x' must have at least 2 dimensions, not %d",
                          i->in[0]->rank);
    gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}

/* Copies columns [from, to) of each row; the others become zero. */
static gd_status triangle_copy(gd_kernel_call *k, int64_t diagonal, bool lower) {
    gd_view *y = &k->out[0];
    const gd_view *x = &k->in[0];
    int r = y->rank;
    int64_t rows = y->dims[r - 2], cols = y->dims[r - 1], size = (int64_t)gd_dtype_size(y->dtype);
    int64_t matrices = gd_numel(r - 2, y->dims);
    /* a diagonal outside the matrix keeps all elements or none */
    diagonal = diagonal < -rows ? -rows : diagonal > cols ? cols : diagonal;
    for (int64_t e = 0; e < matrices; e++) {
        int64_t at = 0, rest = e;
        for (int d = r - 2; d-- > 0;) {
            at += rest % x->dims[d] * x->strides[d];
            rest /= x->dims[d];
        }
        for (int64_t i = 0; i < rows; i++) {
            /* lower: columns before the edge are kept; upper: columns from it on */
            int64_t edge = i + diagonal + (lower ? 1 : 0);
            edge = edge < 0 ? 0 : edge > cols ? cols : edge;
            int64_t from = lower ? 0 : edge, to = lower ? edge : cols;
            char *row = (char *)y->data + (e * rows + i) * cols * size;
            memset(row, 0, (size_t)(cols * size));
            if (to > from)
                gd_convert_row(y->dtype, row + from * size, size, x->dtype,
                               (const char *)x->data +
                                   (at + i * x->strides[r - 2] + from * x->strides[r - 1]) * size,
                               x->strides[r - 1] * size, to - from);
        }
    }
    return GD_OK;
}

/* The lower or upper triangle of x. `edge` is the column of the diagonal in each row. */
static gd_tensor *triangle_of(gd_tensor *x, int64_t diagonal, bool lower) {
    const int r = x->rank;
    const int64_t rows = x->dims[r - 2], cols = x->dims[r - 1];
    diagonal = diagonal < -rows ? -rows : diagonal > cols ? cols : diagonal;
    gd_tensor *edge = gd_positions(2, 0, diagonal, rows, 1), *col = gd_positions(2, 1, 0, cols, 1);
    return gd_masked_fill(x, lower ? gd_gt(col, edge) : gd_lt(col, edge), 0);
}

/*op tril(x) -> y
 * The lower triangle of each matrix, zeros elsewhere.
 *   diagonal int = 0  the highest diagonal that is kept; 0: the main diagonal, 1: the one above
 *   saves nothing
 *   onnx Trilu(x, k=diagonal) upper!0~1
 *   python (x, k=diagonal)
 */
static gd_status tril_infer(gd_infer *i) { return triangle_infer(i); }
static void tril_vjp(gd_vjp *v) {
    v->gx[0] = gd_tril(v->gy[0], .diagonal = ((const gd_tril_options *)v->attrs)->diagonal);
}
static void tril_expand(gd_expansion *e) {
    e->y[0] = triangle_of(e->x[0], ((const gd_tril_options *)e->attrs)->diagonal, true);
}
static gd_status tril_raw(gd_kernel_call *k) {
    return triangle_copy(k, ((const gd_tril_options *)k->attrs)->diagonal, true);
}

/*op triu(x) -> y
 * The upper triangle of each matrix, zeros elsewhere.
 *   diagonal int = 0  the lowest diagonal that is kept
 *   saves nothing
 *   onnx Trilu(x, k=diagonal) upper!1~1
 *   python (x, k=diagonal)
 */
static gd_status triu_infer(gd_infer *i) { return triangle_infer(i); }
static void triu_vjp(gd_vjp *v) {
    v->gx[0] = gd_triu(v->gy[0], .diagonal = ((const gd_triu_options *)v->attrs)->diagonal);
}
static void triu_expand(gd_expansion *e) {
    e->y[0] = triangle_of(e->x[0], ((const gd_triu_options *)e->attrs)->diagonal, false);
}
static gd_status triu_raw(gd_kernel_call *k) {
    return triangle_copy(k, ((const gd_triu_options *)k->attrs)->diagonal, false);
}

/*op diagonal(x) -> y  view
 * A diagonal of two axes, as the last dimension of the result.
 *   offset int = 0  0: the main diagonal; positive: above it; negative: below it
 *   axis1 int = 0
 *   axis2 int = 1
 *   saves nothing
 */

/* The axes and the length of the diagonal. */
static gd_status diagonal_extent(const gd_diagonal_options *o, int rank, const int64_t *dims,
                                 int *a, int *b, int64_t *length) {
    if (rank < 2)
        return gd_op_fail(GD_E_SHAPE, "'x' must have at least 2 dimensions, not %d", rank);
    GD_TRY(gd_axis(o->axis1, rank, a));
    GD_TRY(gd_axis(o->axis2, rank, b));
    if (*a == *b)
        return gd_op_fail(GD_E_ARGUMENT, "axis1 and axis2 are both axis %d; they must differ", *a);
    int64_t n = o->offset >= 0 ? dims[*a] : dims[*a] + o->offset,
            m = o->offset >= 0 ? dims[*b] - o->offset : dims[*b];
    *length = n < m ? n : m;
    if (*length < 0) *length = 0;
    return GD_OK;
}
static gd_status diagonal_infer(gd_infer *i) {
    const gd_diagonal_options *o = i->attrs;
    const gd_tensor *x = i->in[0];
    gd_meta *y = &i->out[0];
    int a, b;
    int64_t length;
    GD_TRY(diagonal_extent(o, x->rank, x->dims, &a, &b, &length));
    gd_meta_view(y, x, 0);
    y->rank = 0;
    for (int k = 0; k < x->rank; k++) {
        if (k == a || k == b) continue;
        y->dims[y->rank] = x->dims[k];
        y->strides[y->rank++] = x->strides[k];
    }
    y->dims[y->rank] = length;
    y->strides[y->rank++] = x->strides[a] + x->strides[b];
    if (length > 0)
        y->offset += o->offset >= 0 ? o->offset * x->strides[b] : -o->offset * x->strides[a];
    return GD_OK;
}
static void diagonal_vjp(gd_vjp *v) {
    const gd_diagonal_options *o = v->attrs;
    v->gx[0] = gd_diagonal_grad(v->gy[0], gd_tensor_shape(v->x[0]), .offset = o->offset,
                                .axis1 = o->axis1, .axis2 = o->axis2);
}

/*op diagonal_grad(gy, dims:int[]) -> gx  internal
 * Zeros of shape dims with gy on a diagonal: the gradient of diagonal.
 *   offset int = 0
 *   axis1 int = 0
 *   axis2 int = 1
 *   saves nothing
 */
static gd_status diagonal_grad_infer(gd_infer *i) {
    const gd_diagonal_grad_options *o = i->attrs;
    const gd_tensor *gy = i->in[0];
    gd_diagonal_options form = {.offset = o->offset, .axis1 = o->axis1, .axis2 = o->axis2};
    int a, b, n = 0;
    int64_t length, want[GD_MAX_RANK];
    size_t bytes;
    char text[128];
    GD_TRY(gd_shape_bytes(o->dims, (gd_dtype)gy->dtype, &bytes));
    GD_TRY(diagonal_extent(&form, o->dims.rank, o->dims.at, &a, &b, &length));
    for (int d = 0; d < o->dims.rank; d++)
        if (d != a && d != b) want[n++] = o->dims.at[d];
    want[n++] = length;
    if (gy->rank != n || memcmp(gy->dims, want, sizeof *want * (size_t)n) != 0)
        return gd_op_fail(GD_E_SHAPE, "'gy' must have shape %s",
                          gd_shape_text(n, want, text, sizeof text));
    i->out[0].rank = o->dims.rank;
    memcpy(i->out[0].dims, o->dims.at, sizeof o->dims.at);
    return GD_OK;
}
static void diagonal_grad_vjp(gd_vjp *v) {
    const gd_diagonal_grad_options *o = v->attrs;
    v->gx[0] = gd_diagonal(v->gy[0], .offset = o->offset, .axis1 = o->axis1, .axis2 = o->axis2);
}
/* Moves gy's last dimension to the columns and repeats it over the rows, then clears all elements
 * that are not on the diagonal. */
static void diagonal_grad_expand(gd_expansion *e) {
    const gd_diagonal_grad_options *o = e->attrs;
    gd_diagonal_options form = {.offset = o->offset, .axis1 = o->axis1, .axis2 = o->axis2};
    gd_tensor *gy = e->x[0];
    int a, b, rank = o->dims.rank;
    int64_t length;
    if (diagonal_extent(&form, rank, o->dims.at, &a, &b, &length) != GD_OK) return;
    if (length == 0) {
        e->y[0] = gd_constant_for(gy, o->dims, gd_number_of(0), (gd_dtype)gy->dtype);
        return;
    }
    const int64_t row = o->offset < 0 ? -o->offset : 0, col = o->offset > 0 ? o->offset : 0;
    gd_tensor *line = gd_movedim(gy, gd_dims(-1), gd_dims(b < a ? b : b - 1));
    line = gd_take_window(gd_unsqueeze(line, a), b, -col, o->dims.at[b]);
    gd_tensor *rows = gd_positions(rank, a, col - row, o->dims.at[a], 1);
    gd_tensor *cols = gd_positions(rank, b, 0, o->dims.at[b], 1);
    gd_shape dims = o->dims;
    e->y[0] = gd_masked_fill(gd_expand(line, dims), gd_ne(rows, cols), 0);
}
static gd_status diagonal_grad_raw(gd_kernel_call *k) {
    const gd_diagonal_grad_options *o = k->attrs;
    gd_diagonal_options form = {.offset = o->offset, .axis1 = o->axis1, .axis2 = o->axis2};
    gd_view *y = &k->out[0], line = k->in[0];
    int a, b;
    int64_t length, size = (int64_t)gd_dtype_size(y->dtype);
    GD_TRY(diagonal_extent(&form, y->rank, y->dims, &a, &b, &length));
    memset(y->data, 0, (size_t)(gd_numel(y->rank, y->dims) * size));
    if (length == 0) return GD_OK; /* the offset may be out of range */
    line.data = (char *)y->data +
                (o->offset >= 0 ? o->offset * y->strides[b] : -o->offset * y->strides[a]) * size;
    int n = 0;
    for (int d = 0; d < y->rank; d++)
        if (d != a && d != b) line.strides[n++] = y->strides[d];
    line.strides[n] = y->strides[a] + y->strides[b];
    gd_copy_elements(&line, &k->in[0]);
    return GD_OK;
}

#include "ops/shape/shape_triangle.gen.h"
