/* tensorboard_histogram.c - histograms of tensors with TensorFlow's buckets; see tensorboard.h. */
#include <float.h>
#include <math.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/tensor.h"
#include "gradus/ops.h"
#include "train/tensorboard.h"

enum { MAX_LIMITS = 1600, PIECE = 1 << 13, LEAST_EXPONENT = -40, EXPONENTS = 110 };

typedef struct tally {
    /* Bucket i counts values in [limits[i - 1], limits[i]). With n = side, the limits are
     * -above[n - 1] ... -above[0], 0, above[0] ... above[n - 1], DBL_MAX, where
     * above[i] = 1e-12 * 1.1^i. */
    double limits[MAX_LIMITS], counts[MAX_LIMITS];
    int buckets, side;    /* all limits; positive limits */
    int first[EXPONENTS]; /* the number of positive limits below 2^(LEAST_EXPONENT + i) */
    double min, max, num, sum, squares;
    double piece[PIECE];
} tally;

static void init_tally(tally *t) {
    for (double v = 1e-12; v < 1e20; v *= 1.1) t->side++;
    const int n = t->side;
    double *above = t->limits + n + 1;
    above[0] = 1e-12;
    for (int i = 1; i < n; i++) above[i] = above[i - 1] * 1.1;
    for (int i = 0; i < n; i++) t->limits[n - 1 - i] = -above[i];
    t->limits[2 * n + 1] = DBL_MAX;
    t->buckets = 2 * n + 2;
    for (int e = 0, i = 0; e < EXPONENTS; e++) {
        while (i < n && above[i] < ldexp(1, LEAST_EXPONENT + e)) i++;
        t->first[e] = i;
    }
    t->min = INFINITY;
    t->max = -INFINITY;
}

/* The number of positive limits less than a, or with `equal` at most a. The search starts at the
 * power of 2 below a and takes at most 8 steps. */
static int limits_below(const tally *t, double a, bool equal) {
    const double *above = t->limits + t->side + 1;
    const int exponent = a > 0 ? ilogb(a) - LEAST_EXPONENT : 0;
    int m = exponent < 0 ? 0 : t->first[exponent < EXPONENTS ? exponent : EXPONENTS - 1];
    while (m < t->side && (above[m] < a || (equal && above[m] == a))) m++;
    return m;
}

static void count_value(tally *t, double x) {
    if (!isfinite(x)) return;
    t->counts[x < 0 ? t->side - limits_below(t, -x, false)
                    : t->side + 1 + limits_below(t, x, true)]++;
    if (x < t->min) t->min = x;
    if (x > t->max) t->max = x;
    t->num++;
    t->sum += x;
    t->squares += x * x;
}

/* Casts a piece at a time: a copy of an entire weight may be large. */
static gd_status count_elements(tally *t, gd_tensor *x) {
    const int64_t all = gd_numel(x->rank, x->dims);
    gd_tensor *flat = gd_reshape(x, gd_dims(-1));
    for (int64_t at = 0; at < all; at += PIECE) {
        GD_SCOPE;
        const int64_t n = all - at < PIECE ? all - at : PIECE;
        gd_tensor *piece = gd_cast(gd_narrow(flat, 0, at, n), GD_F64);
        if (piece->kind == GD_FAILED) return gd_failure();
        GD_TRY(gd_copy_out(piece, t->piece, (size_t)n * sizeof *t->piece));
        for (int64_t i = 0; i < n; i++) count_value(t, t->piece[i]);
    }
    return flat->kind == GD_FAILED ? gd_failure() : GD_OK;
}

/* Writes the buckets from the one before the first nonempty bucket to the last nonempty one. */
static void put_tally(const tally *t, gd_pb *histogram) {
    int first = 0, last = t->buckets - 1;
    while (first < last && t->counts[first] == 0) first++;
    while (last > first && t->counts[last] == 0) last--;
    gd_pb_put_float(histogram, "min", t->min);
    gd_pb_put_float(histogram, "max", t->max);
    gd_pb_put_float(histogram, "num", t->num);
    gd_pb_put_float(histogram, "sum", t->sum);
    gd_pb_put_float(histogram, "sum_squares", t->squares);
    for (int i = first > 0 ? first - 1 : 0; i <= last; i++) {
        gd_pb_put_float(histogram, "bucket_limit", t->limits[i]);
        gd_pb_put_float(histogram, "bucket", t->counts[i]);
    }
}

gd_status gd_tensorboard_histogram(gd_pb_doc *event, const char *tag, gd_tensor *x) {
    tally *t = gd_calloc(1, sizeof *t);
    if (!t) return gd_no_memory(tag, "for a histogram");
    init_tally(t);
    const gd_status status = count_elements(t, x);
    if (status == GD_OK && t->num > 0)
        put_tally(t, gd_pb_put_message(gd_event_add_value(event, tag), "histo"));
    gd_free(t);
    return status;
}
