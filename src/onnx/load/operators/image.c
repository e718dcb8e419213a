/* image.c - GridSample, AffineGrid and Col2Im. */
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"

/* --- GridSample ------------------------------------------------------------------------------- */

typedef enum padding_mode { ZEROS, BORDER, REFLECTION } padding_mode;

typedef struct sampling {
    gd_tensor *x;               /* (N, C, H W) */
    gd_tensor *size[2];         /* H and W, rank 0, in the grid's dtype */
    gd_tensor *integer_size[2]; /* the same as i64 */
    bool corners;               /* align_corners */
    padding_mode padding;
} sampling;

/* Reflects positions at `low` and `high` until they are between them. */
static gd_tensor *reflect_position(gd_tensor *at, gd_tensor *low, gd_tensor *high) {
    gd_tensor *one = gd_onnx_scalar_like(at, 1), *span = gd_maximum(gd_sub(high, low), one);
    gd_tensor *distance = gd_abs(gd_sub(at, low)), *count = gd_floor(gd_div(distance, span));
    gd_tensor *rest = gd_sub(distance, gd_mul(count, span));
    gd_tensor *odd = gd_eq(gd_fmod(count, gd_onnx_scalar_like(at, 2)), one);
    return gd_where(odd, gd_sub(high, rest), gd_add(low, rest));
}

/* Converts grid coordinates, -1 to 1, to positions along axis d. */
static gd_tensor *grid_position(const sampling *s, gd_tensor *grid, int d) {
    gd_tensor *one = gd_onnx_scalar_like(grid, 1), *half = gd_onnx_scalar_like(grid, 0.5),
              *zero = gd_onnx_scalar_like(grid, 0), *last = gd_sub(s->size[d], one);
    gd_tensor *at = gd_mul(gd_add(grid, one), half);
    at = s->corners ? gd_mul(at, last) : gd_sub(gd_mul(at, s->size[d]), half);
    if (s->padding == REFLECTION)
        at = s->corners ? reflect_position(at, zero, last)
                        : reflect_position(at, gd_neg(half), gd_sub(s->size[d], half));
    if (s->padding != ZEROS) at = gd_minimum(gd_maximum(at, zero), last);
    return at;
}

/* The elements (N, C, M) at integer positions (N, 1, M); 0 outside of the image. */
static gd_tensor *gather_elements(const sampling *s, gd_tensor *row, gd_tensor *column) {
    gd_tensor *zero = gd_scalar_of(0, GD_I64), *one = gd_scalar_of(1, GD_I64), *inside = NULL;
    gd_tensor *at[2] = {gd_cast(row, GD_I64), gd_cast(column, GD_I64)};
    for (int d = 0; d < 2; d++) {
        gd_tensor *in = gd_logical_and(gd_ge(at[d], zero), gd_lt(at[d], s->integer_size[d]));
        inside = inside ? gd_logical_and(inside, in) : in;
        at[d] = gd_minimum(gd_maximum(at[d], zero), gd_sub(s->integer_size[d], one));
    }
    gd_tensor *index = gd_add(gd_mul(at[0], s->integer_size[1]), at[1]);
    gd_tensor *channels = gd_zeros_like(gd_narrow(s->x, 2, 0, 1), .dtype = GD_I64); /* (N, C, 1) */
    gd_tensor *found = gd_gather(s->x, 2, gd_add(index, channels));
    return gd_where(inside, found, gd_onnx_scalar_like(s->x, 0));
}

/* Bilinear interpolation between four elements. */
static gd_tensor *interpolate(const sampling *s, gd_tensor *row, gd_tensor *column) {
    gd_tensor *first[2] = {gd_floor(row), gd_floor(column)}, *one = gd_onnx_scalar_like(row, 1),
              *y = NULL;
    gd_tensor *fraction[2] = {gd_sub(row, first[0]), gd_sub(column, first[1])};
    for (int k = 0; k < 4; k++) {
        gd_tensor *r = k & 2 ? gd_add(first[0], one) : first[0],
                  *c = k & 1 ? gd_add(first[1], one) : first[1];
        gd_tensor *weight = gd_mul(k & 2 ? fraction[0] : gd_sub(one, fraction[0]),
                                   k & 1 ? fraction[1] : gd_sub(one, fraction[1]));
        gd_tensor *part = gd_mul(gather_elements(s, r, c), gd_cast(weight, (gd_dtype)s->x->dtype));
        y = y ? gd_add(y, part) : part;
    }
    return y;
}

/* Samples x (N, C, H, W) at the positions of a grid (N, H', W', 2), which has the column first. */
gd_status gd_onnx_load_grid_sample(gd_onnx_loader *l, const gd_pb *node) {
    int64_t corners;
    gd_onnx_size s[4], g[3], planes[3], positions[3];
    gd_tensor *y, *flat;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_ONNX_REQUIRE_INPUT(grid, 1);
    GD_TRY(gd_onnx_int_attribute(node, "align_corners", 0, &corners));
    const bool nearest = gd_onnx_attribute_is(node, "mode", "linear", "nearest");
    if (x->rank != 4 || grid->rank != 4 || grid->dims[3] != 2 ||
        (!nearest && !gd_onnx_attribute_is(node, "mode", "linear", "linear") &&
         !gd_onnx_attribute_is(node, "mode", "linear", "bilinear")))
        return gd_fail(
            GD_E_UNSUPPORTED,
            "modes linear and nearest are supported, for images of 4 dimensions and a grid "
            "(N, H, W, 2)");
    for (int i = 0; i < 4; i++) GD_TRY(gd_onnx_size_of(x, i, &s[i]));
    for (int i = 0; i < 3; i++) GD_TRY(gd_onnx_size_of(grid, i, &g[i]));
    planes[0] = s[0], planes[1] = s[1];
    GD_TRY(gd_onnx_size_multiply(s[2], s[3], &planes[2]));
    positions[0] = g[0], positions[1] = gd_onnx_known_size(1);
    GD_TRY(gd_onnx_size_multiply(g[1], g[2], &positions[2]));
    sampling from = {
        .corners = corners != 0,
        .padding = gd_onnx_attribute_is(node, "padding_mode", "zeros", "border")       ? BORDER
                   : gd_onnx_attribute_is(node, "padding_mode", "zeros", "reflection") ? REFLECTION
                                                                                       : ZEROS};
    GD_TRY(gd_onnx_reshape_to(l, x, 3, planes, &from.x));
    for (int d = 0; d < 2; d++) {
        from.integer_size[d] = gd_onnx_size_tensor(s[2 + d]);
        from.size[d] = gd_cast(from.integer_size[d], (gd_dtype)grid->dtype);
    }
    gd_tensor *at[2];
    for (int d = 0; d < 2; d++) {
        GD_TRY(gd_onnx_reshape_to(l, gd_select(grid, 3, 1 - d), 3, positions, &flat));
        at[d] = grid_position(&from, flat, d);
    }
    y = nearest ? gather_elements(&from, gd_round(at[0]), gd_round(at[1]))
                : interpolate(&from, at[0], at[1]);
    const gd_onnx_size result[] = {s[0], s[1], g[1], g[2]};
    GD_TRY(gd_onnx_reshape_to(l, y, 4, result, &y));
    return gd_onnx_set_output(l, node, 0, y);
}

/* --- AffineGrid ------------------------------------------------------------------------------- */

enum { MAX_POSITIONS = 1 << 22 };

/* The homogeneous coordinates of element p of an image: each axis from -1 to 1, the last axis
 * first, then 1. */
static void base_coordinates(int64_t p, int n, const int64_t *sizes, bool corners, double *row) {
    for (int d = n - 1; d >= 0; d--) {
        const int64_t at = p % sizes[d], size = sizes[d];
        p /= size;
        row[n - 1 - d] = corners ? (size > 1 ? 2.0 * (double)at / (double)(size - 1) - 1 : 0)
                                 : (2.0 * (double)at + 1) / (double)size - 1;
    }
    row[n] = 1;
}

/* theta (N, 2, 3) or (N, 3, 4) times the coordinates of an image: (N, H, W, 2) or (N, D, H, W,
 * 3). */
gd_status gd_onnx_load_affine_grid(gd_onnx_loader *l, const gd_pb *node) {
    int64_t corners, size[GD_ONNX_MAX_NUMBERS], count = 1;
    int rank;
    gd_onnx_size result[5];
    gd_tensor *y;
    GD_ONNX_REQUIRE_INPUT(theta, 0);
    GD_TRY(gd_onnx_int_attribute(node, "align_corners", 0, &corners));
    GD_TRY(gd_onnx_get_numbers(l, node, 1, "", &rank, size));
    const int n = rank - 2;
    if ((n != 2 && n != 3) || theta->rank != 3 || theta->dims[1] != n || theta->dims[2] != n + 1)
        return gd_fail(GD_E_SHAPE, "it needs a size of 4 or 5 numbers, and (N, 2, 3) or (N, 3, 4)");
    for (int d = 0; d < n; d++) {
        if (size[2 + d] < 1 || size[2 + d] > MAX_POSITIONS / count)
            return gd_fail(GD_E_UNSUPPORTED, "its size %d is %lld, which is out of range", 2 + d,
                           (long long)size[2 + d]);
        count *= size[2 + d];
    }
    double *rows = gd_calloc((size_t)(count * (n + 1)), sizeof *rows);
    if (!rows) return gd_no_memory(NULL, "to load a graph");
    for (int64_t p = 0; p < count; p++)
        base_coordinates(p, n, size + 2, corners != 0, rows + p * (n + 1));
    const gd_tracing tracing = gd_tracing_off();
    gd_tensor *base =
        gd_cast(gd_from_array(gd_dims(count, n + 1), GD_F64, rows), (gd_dtype)theta->dtype);
    gd_tracing_on(tracing);
    gd_free(rows);
    y = gd_matmul(base, gd_transpose(theta, 1, 2)); /* (N, count, n) */
    GD_TRY(gd_onnx_size_of(theta, 0, &result[0]));
    for (int d = 0; d < n; d++) result[1 + d] = gd_onnx_known_size(size[2 + d]);
    result[1 + n] = gd_onnx_known_size(n);
    GD_TRY(gd_onnx_reshape_to(l, y, n + 2, result, &y));
    return gd_onnx_set_output(l, node, 0, y);
}

/* --- Col2Im ----------------------------------------------------------------------------------- */

enum { AXES = 2 };

typedef struct blocks {
    int64_t image[AXES], block[AXES], stride[AXES], dilation[AXES], before[AXES], after[AXES];
    int64_t padded[AXES], steps[AXES]; /* sizes of the padded image; blocks along each axis */
} blocks;

static gd_status read_blocks(gd_onnx_loader *l, const gd_pb *node, blocks *b) {
    int64_t numbers[2][GD_ONNX_MAX_NUMBERS], pads[2 * AXES];
    int count[2];
    for (size_t k = 0; k < 2; k++) {
        GD_TRY(gd_onnx_get_numbers(l, node, 1 + k, "", &count[k], numbers[k]));
        if (count[k] != AXES)
            return gd_fail(GD_E_UNSUPPORTED, "its images have %d axes; %d are supported", count[k],
                           AXES);
    }
    GD_TRY(gd_onnx_ints_attribute(node, "strides", AXES, 1, b->stride));
    GD_TRY(gd_onnx_ints_attribute(node, "dilations", AXES, 1, b->dilation));
    GD_TRY(gd_onnx_ints_attribute(node, "pads", 2 * AXES, 0, pads));
    for (int d = 0; d < AXES; d++) {
        const int64_t all[] = {numbers[0][d],  numbers[1][d], b->stride[d],
                               b->dilation[d], pads[d] + 1,   pads[AXES + d] + 1};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (all[i] < 1 || all[i] > INT16_MAX)
                return gd_fail(GD_E_UNSUPPORTED, "its sizes, strides or pads are out of range");
        b->image[d] = numbers[0][d], b->block[d] = numbers[1][d];
        b->before[d] = pads[d], b->after[d] = pads[AXES + d];
        b->padded[d] = b->image[d] + b->before[d] + b->after[d];
        const int64_t room = b->padded[d] - b->dilation[d] * (b->block[d] - 1) - 1;
        if (room < 0) return gd_fail(GD_E_SHAPE, "its block is larger than its image");
        b->steps[d] = room / b->stride[d] + 1;
    }
    if (b->steps[0] * b->steps[1] > MAX_POSITIONS / (b->block[0] * b->block[1]))
        return gd_fail(GD_E_UNSUPPORTED, "it has too many blocks");
    return GD_OK;
}

/* The flat index of each element of each block in the padded image. */
static gd_tensor *block_indices(const blocks *b) {
    const int64_t each = b->block[0] * b->block[1], n = b->steps[0] * b->steps[1];
    int64_t *indices = gd_calloc((size_t)(each * n), sizeof *indices);
    if (!indices) return gd_tensor_fail(gd_no_memory(NULL, "to load a graph"));
    for (int64_t k = 0; k < each; k++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t row = i / b->steps[1] * b->stride[0] + k / b->block[1] * b->dilation[0],
                          column =
                              i % b->steps[1] * b->stride[1] + k % b->block[1] * b->dilation[1];
            indices[k * n + i] = row * b->padded[1] + column;
        }
    gd_tensor *t = gd_from_array(gd_dims(each * n), GD_I64, indices);
    gd_free(indices);
    return t;
}

/* Sums the L blocks of K elements each in x (N, C K, L) into an image (N, C, H, W). */
gd_status gd_onnx_load_col2im(gd_onnx_loader *l, const gd_pb *node) {
    blocks b;
    gd_onnx_size columns[3], result[4], channels;
    gd_tensor *flat, *y;
    GD_ONNX_REQUIRE_INPUT(x, 0);
    GD_TRY(read_blocks(l, node, &b));
    const int64_t each = b.block[0] * b.block[1], n = b.steps[0] * b.steps[1];
    if (x->rank != 3 || (x->dims[2] != GD_UNKNOWN && x->dims[2] != n))
        return gd_fail(GD_E_SHAPE, "its input must be (N, C * %lld, %lld)", (long long)each,
                       (long long)n);
    GD_TRY(gd_onnx_size_of(x, 0, &columns[0]));
    GD_TRY(gd_onnx_size_of(x, 1, &channels));
    GD_TRY(gd_onnx_size_divide(channels, each, &columns[1]));
    columns[2] = gd_onnx_known_size(each * n);
    GD_TRY(gd_onnx_reshape_to(l, x, 3, columns, &flat));
    const int64_t elements = b.padded[0] * b.padded[1];
    gd_tensor *zeros =
        gd_zeros_like(gd_expand(gd_narrow(flat, 2, 0, 1), gd_dims(-1, -1, elements)));
    y = gd_index_add(zeros, 2, block_indices(&b), flat);
    result[0] = columns[0], result[1] = columns[1];
    for (int d = 0; d < AXES; d++) result[2 + d] = gd_onnx_known_size(b.padded[d]);
    GD_TRY(gd_onnx_reshape_to(l, y, 4, result, &y));
    for (int d = 0; d < AXES; d++)
        if (b.padded[d] != b.image[d]) y = gd_narrow(y, 2 + d, b.before[d], b.image[d]);
    return gd_onnx_set_output(l, node, 0, y);
}
