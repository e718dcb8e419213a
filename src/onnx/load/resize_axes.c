/* resize_axes.c - a Resize of an ONNX file that our op does not know: cubic, antialiased,
 * of any axes, with any way to find the elements.
 *
 * It goes axis by axis. Along an axis of n elements that become m, each new element is a weighted
 * sum of old ones: a product with a matrix (m, n) that is worked out when the file is read. So
 * sizes must be known. The nearest elements are picked by their indices.
 */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "gradus/ops.h"
#include "onnx/load/load.h"

enum { MOST_WEIGHTS = 1 << 22 };

typedef enum placing { HALF, HALF_SYMMETRIC, HALF_OR_FIRST, CORNERS, ASYMMETRIC } placing;
typedef enum filter { NEAREST, LINEAR, CUBIC } filter;
typedef enum rounding { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL } rounding;

typedef struct way {
    placing where;
    filter by;
    rounding round;
    bool antialias, inside; /* what lies outside counts for nothing */
    double a;               /* of cubic */
} way;

/* Which of the words an attribute is. */
static gd_status read_word(const gd_pb *node, const char *name, const char *const *words, int count,
                           int *which) {
    const gd_pb_list *s = gd_pb_get(gd_onnx_attribute_of(node, name), "s");
    *which = 0;
    for (; s && *which < count; (*which)++)
        if (s->bytes[0].length == strlen(words[*which]) &&
            memcmp(s->bytes[0].data, words[*which], s->bytes[0].length) == 0)
            return GD_OK;
    if (!s) return GD_OK;
    return gd_fail(GD_E_UNSUPPORTED, "its %s is not one that is possible here (%s, %s, ...)", name,
                   words[0], words[1]);
}

static gd_status read_way(const gd_pb *node, way *w) {
    static const char *const wheres[] = {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
                                         "align_corners", "asymmetric"};
    static const char *const filters[] = {"nearest", "linear", "cubic"};
    static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                            "ceil"};
    int where, by, round;
    int64_t antialias, outside;
    GD_TRY(read_word(node, "coordinate_transformation_mode", wheres, 5, &where));
    GD_TRY(read_word(node, "mode", filters, 3, &by));
    GD_TRY(read_word(node, "nearest_mode", roundings, 4, &round));
    GD_TRY(gd_onnx_int_attribute(node, "antialias", 0, &antialias));
    GD_TRY(gd_onnx_int_attribute(node, "exclude_outside", 0, &outside));
    GD_TRY(gd_onnx_float_attribute(node, "cubic_coeff_a", -0.75, &w->a));
    w->where = (placing)where;
    w->by = (filter)by;
    w->round = (rounding)round;
    w->antialias = antialias != 0;
    w->inside = outside != 0;
    return GD_OK;
}

/* Where element i of m lies among n, `scale` times as many. */
static double place_of(const way *w, int64_t i, int64_t n, int64_t m, double scale) {
    const double half = ((double)i + 0.5) / scale - 0.5;
    switch (w->where) {
    case HALF_SYMMETRIC: return (double)n / 2 * (1 - (double)m / (scale * (double)n)) + half;
    case HALF_OR_FIRST: return m > 1 ? half : 0;
    case CORNERS: return m > 1 ? (double)i * (double)(n - 1) / (double)(m - 1) : 0;
    case ASYMMETRIC: return (double)i / scale;
    default: return half;
    }
}

static int64_t within(double x, int64_t n) {
    return x < 0 ? 0 : x > (double)(n - 1) ? n - 1 : (int64_t)x;
}

static int64_t nearest(const way *w, double x, int64_t n) {
    switch (w->round) {
    case PREFER_CEIL: return within(floor(x + 0.5), n);
    case FLOOR: return within(floor(x), n);
    case CEIL: return within(ceil(x), n);
    default: return within(ceil(x - 0.5), n);
    }
}

/* How much an element counts that is d away. */
static double weight_of(const way *w, double d) {
    const double a = w->a;
    d = fabs(d);
    if (w->by == LINEAR) return d < 1 ? 1 - d : 0;
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/* One row of the matrix: the weights of n elements for a new one at x. */
static void fill_row(const way *w, double x, double scale, int64_t n, double *row) {
    const double shrink = w->antialias && scale < 1 ? scale : 1;
    const double reach = (w->by == LINEAR ? 1 : 2) / shrink;
    double sum = 0;
    memset(row, 0, (size_t)n * sizeof *row);
    for (double at = floor(x - reach) + 1; at <= ceil(x + reach) - 1; at++) {
        const double weight = weight_of(w, (at - x) * shrink);
        if (w->inside && (at < 0 || at > (double)(n - 1))) continue;
        row[within(at, n)] += weight;
        sum += weight;
    }
    for (int64_t k = 0; k < n && sum != 0; k++) row[k] /= sum;
}

static gd_tensor *picked(const way *w, gd_tensor *x, int axis, int64_t m, double scale) {
    const int64_t n = x->dims[axis];
    int64_t *index = gd_calloc((size_t)m + 1, sizeof *index);
    if (!index) return gd_tensor_fail(gd_fail(GD_E_MEMORY, "no memory to load a graph"));
    for (int64_t i = 0; i < m; i++) index[i] = nearest(w, place_of(w, i, n, m, scale), n);
    gd_tensor *y = gd_index_select(x, axis, gd_from_array(gd_dims(m), GD_I64, index));
    gd_free(index);
    return y;
}

static gd_tensor *weighted(const way *w, gd_tensor *x, int axis, int64_t m, double scale) {
    const int64_t n = x->dims[axis];
    const gd_dtype wide = x->dtype == GD_F64 ? GD_F64 : GD_F32;
    double *rows = gd_calloc((size_t)(n * m) + 1, sizeof *rows);
    if (!rows) return gd_tensor_fail(gd_fail(GD_E_MEMORY, "no memory to load a graph"));
    for (int64_t i = 0; i < m; i++)
        fill_row(w, place_of(w, i, n, m, scale), scale, n, rows + i * n);
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
    way w;
    GD_TRY(read_way(node, &w));
    if (w.by != NEAREST && !gd_dtype_is_float((gd_dtype)x->dtype))
        return gd_fail(GD_E_DTYPE, "elements that are %s can be resized in mode nearest alone",
                       gd_dtype_name((gd_dtype)x->dtype));
    *y = x;
    for (int axis = 0; axis < x->rank; axis++) {
        const int64_t n = x->dims[axis];
        if (isnan(numbers[axis]) || (scaled && numbers[axis] == 1)) continue;
        if (n == GD_UNKNOWN)
            return gd_fail(
                GD_E_UNSUPPORTED,
                "size %d of its input must be known for this kind of Resize; without it "
                "possible are mode nearest (asymmetric, floor) and mode linear "
                "(half_pixel or align_corners), without antialias, by one factor for the "
                "axes behind the first two",
                axis);
        const double size = scaled ? floor((double)n * numbers[axis]) : numbers[axis];
        if (!(size >= 1 && size * (double)n <= MOST_WEIGHTS) || n < 1)
            return gd_fail(GD_E_UNSUPPORTED, "axis %d of %lld elements cannot get %g", axis,
                           (long long)n, size);
        const double scale = scaled ? numbers[axis] : size / (double)n;
        if (!scaled && size == (double)n) continue; /* all are where they were */
        *y = (w.by == NEAREST ? picked : weighted)(&w, *y, axis, (int64_t)size, scale);
        if ((*y)->kind == GD_FAILED) return gd_failure();
    }
    if (*y == x) *y = gd_clone(x);
    return GD_OK;
}
