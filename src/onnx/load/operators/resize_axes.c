/* resize_axes.c - a Resize that the op `resize` cannot compute: cubic, antialiased, over any axes,
 * with any coordinate transformation.
 *
 * It resizes one axis after the other. From n to m elements, each new element is a weighted sum of
 * old ones: a product with a matrix (m, n) that is computed while the file is loaded, so sizes must
 * be known. Mode nearest selects elements by index.
 */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "onnx/load/operators/operators.h"

enum { MAX_WEIGHTS = 1 << 22 };

typedef enum coordinates { HALF, HALF_SYMMETRIC, HALF_OR_FIRST, CORNERS, ASYMMETRIC } coordinates;
typedef enum filter { NEAREST, LINEAR, CUBIC } filter;
typedef enum rounding { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL } rounding;

typedef struct resize_mode {
    coordinates coordinates;
    filter filter;
    rounding rounding; /* of nearest */
    bool antialias;
    bool exclude_outside; /* elements outside have weight 0; else the border is repeated */
    double a;             /* the coefficient of cubic */
} resize_mode;

static gd_status read_mode(const gd_pb *node, resize_mode *w) {
    static const char *const transformations[] = {
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"};
    static const char *const filters[] = {"nearest", "linear", "cubic"};
    static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                            "ceil"};
    int transformation, mode, rounding_mode;
    int64_t antialias, outside;
    GD_TRY(gd_onnx_word_attribute(node, "coordinate_transformation_mode", transformations, 5,
                                  &transformation));
    GD_TRY(gd_onnx_word_attribute(node, "mode", filters, 3, &mode));
    GD_TRY(gd_onnx_word_attribute(node, "nearest_mode", roundings, 4, &rounding_mode));
    GD_TRY(gd_onnx_int_attribute(node, "antialias", 0, &antialias));
    GD_TRY(gd_onnx_int_attribute(node, "exclude_outside", 0, &outside));
    GD_TRY(gd_onnx_float_attribute(node, "cubic_coeff_a", -0.75, &w->a));
    w->coordinates = (coordinates)transformation;
    w->filter = (filter)mode;
    w->rounding = (rounding)rounding_mode;
    w->antialias = antialias != 0;
    w->exclude_outside = outside != 0;
    return GD_OK;
}

/* The position of new element i of m among the n old ones. */
static double source_position(const resize_mode *w, int64_t i, int64_t n, int64_t m, double scale) {
    const double half = ((double)i + 0.5) / scale - 0.5;
    switch (w->coordinates) {
    case HALF_SYMMETRIC: return (double)n / 2 * (1 - (double)m / (scale * (double)n)) + half;
    case HALF_OR_FIRST: return m > 1 ? half : 0;
    case CORNERS: return m > 1 ? (double)i * (double)(n - 1) / (double)(m - 1) : 0;
    case ASYMMETRIC: return (double)i / scale;
    default: return half;
    }
}

static int64_t clamp_index(double x, int64_t n) {
    return x < 0 ? 0 : x > (double)(n - 1) ? n - 1 : (int64_t)x;
}

static int64_t nearest_index(const resize_mode *w, double x, int64_t n) {
    switch (w->rounding) {
    case PREFER_CEIL: return clamp_index(floor(x + 0.5), n);
    case FLOOR: return clamp_index(floor(x), n);
    case CEIL: return clamp_index(ceil(x), n);
    default: return clamp_index(ceil(x - 0.5), n);
    }
}

/* The weight of an element at distance d. */
static double filter_weight(const resize_mode *w, double d) {
    const double a = w->a;
    d = fabs(d);
    if (w->filter == LINEAR) return d < 1 ? 1 - d : 0;
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/* One row of the matrix: the weights of the n elements for a new one at position x. */
static void fill_row(const resize_mode *w, double x, double scale, int64_t n, double *row) {
    const double shrink = w->antialias && scale < 1 ? scale : 1;
    const double radius = (w->filter == LINEAR ? 1 : 2) / shrink;
    double sum = 0;
    memset(row, 0, (size_t)n * sizeof *row);
    for (double at = floor(x - radius) + 1; at <= ceil(x + radius) - 1; at++) {
        const double weight = filter_weight(w, (at - x) * shrink);
        if (w->exclude_outside && (at < 0 || at > (double)(n - 1))) continue;
        row[clamp_index(at, n)] += weight;
        sum += weight;
    }
    for (int64_t k = 0; k < n && sum != 0; k++) row[k] /= sum;
}

/* Resizes along one axis in mode nearest. */
static gd_tensor *select_nearest(const resize_mode *w, gd_tensor *x, int axis, int64_t m,
                                 double scale) {
    const int64_t n = x->dims[axis];
    int64_t *index = gd_calloc((size_t)m + 1, sizeof *index);
    if (!index) return gd_tensor_fail(gd_no_memory(NULL, "to load a graph"));
    for (int64_t i = 0; i < m; i++)
        index[i] = nearest_index(w, source_position(w, i, n, m, scale), n);
    gd_tensor *y = gd_index_select(x, axis, gd_from_array(gd_dims(m), GD_I64, index));
    gd_free(index);
    return y;
}

/* Resizes along one axis in modes linear and cubic. */
static gd_tensor *multiply_weights(const resize_mode *w, gd_tensor *x, int axis, int64_t m,
                                   double scale) {
    const int64_t n = x->dims[axis];
    const gd_dtype wide = x->dtype == GD_F64 ? GD_F64 : GD_F32;
    double *rows = gd_calloc((size_t)(n * m) + 1, sizeof *rows);
    if (!rows) return gd_tensor_fail(gd_no_memory(NULL, "to load a graph"));
    for (int64_t i = 0; i < m; i++)
        fill_row(w, source_position(w, i, n, m, scale), scale, n, rows + i * n);
    const gd_tracing tracing = gd_tracing_off();
    gd_tensor *matrix = gd_cast(gd_from_array(gd_dims(m, n), GD_F64, rows), wide);
    gd_tracing_on(tracing);
    gd_free(rows);
    const bool last = axis == x->rank - 1;
    gd_tensor *y = gd_cast(x, wide); /* (..., n), then (..., m) */
    if (!last) y = gd_movedim(y, gd_dims(axis), gd_dims(-1));
    y = gd_matmul(y, gd_transpose(matrix, 0, 1));
    if (!last) y = gd_movedim(y, gd_dims(-1), gd_dims(axis));
    return gd_cast(y, (gd_dtype)x->dtype);
}

gd_status gd_onnx_resize_axes(const gd_pb *node, gd_tensor *x, bool scaled, const double *numbers,
                              gd_tensor **y) {
    resize_mode w;
    GD_TRY(read_mode(node, &w));
    if (w.filter != NEAREST && !gd_dtype_is_float((gd_dtype)x->dtype))
        return gd_fail(GD_E_DTYPE, "elements that are %s can be resized in mode nearest only",
                       gd_dtype_name((gd_dtype)x->dtype));
    *y = x;
    for (int axis = 0; axis < x->rank; axis++) {
        const int64_t n = x->dims[axis];
        if (isnan(numbers[axis]) || (scaled && numbers[axis] == 1)) continue;
        if (n == GD_UNKNOWN)
            return gd_fail(
                GD_E_UNSUPPORTED,
                "size %d of its input must be known for this kind of Resize; with an unknown "
                "size, supported are mode nearest (asymmetric, floor) and mode linear "
                "(half_pixel or align_corners), without antialias, by one factor for the "
                "axes behind the first two",
                axis);
        const double size = scaled ? floor((double)n * numbers[axis]) : numbers[axis];
        if (!(size >= 1 && size * (double)n <= MAX_WEIGHTS) || n < 1)
            return gd_fail(GD_E_UNSUPPORTED, "axis %d cannot be resized from %lld to %g elements",
                           axis, (long long)n, size);
        const double scale = scaled ? numbers[axis] : size / (double)n;
        if (!scaled && size == (double)n) continue; /* the identity */
        *y = (w.filter == NEAREST ? select_nearest : multiply_weights)(&w, *y, axis, (int64_t)size,
                                                                       scale);
        if ((*y)->kind == GD_FAILED) return gd_failure();
    }
    if (*y == x) *y = gd_clone(x);
    return GD_OK;
}
