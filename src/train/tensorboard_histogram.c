/* tensorboard_histogram.c - see tensorboard.h. */
#include <float.h>
#include <math.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/tensor.h"
#include "gradus/ops.h"
#include "train/tensorboard.h"

enum { MOST_LIMITS = 1600, PIECE = 1 << 13 };

typedef struct tally {
    double limits
        [MOST_LIMITS]; /* of buckets, above them: a bucket has what is less than its limit, and not
                                   less than the one before */
    double counts[MOST_LIMITS];
    int buckets;
    double min, max, num, sum, squares;
    double piece[PIECE];
} tally;

static void start(tally *t) {
    int n = 0;
    for (double v = 1e-12; v < 1e20; v *= 1.1) n++;
    t->buckets = 2 * n + 2;
    t->limits[n] = 0;
    int i = 0;
    for (double v = 1e-12; v < 1e20; v *= 1.1, i++) {
        t->limits[n + 1 + i] = v;
        t->limits[n - 1 - i] = -v;
    }
    t->limits[2 * n + 1] = DBL_MAX;
    t->min = INFINITY;
    t->max = -INFINITY;
}

static void count(tally *t, double x) {
    if (!isfinite(x)) return;
    int low = 0, high = t->buckets - 1; /* the first limit above x */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (t->limits[middle] > x)
            high = middle;
        else
            low = middle + 1;
    }
    t->counts[low]++;
    t->min = fmin(t->min, x);
    t->max = fmax(t->max, x);
    t->num++;
    t->sum += x;
    t->squares += x * x;
}

/* Element by element, a piece at a time: a weight may be large. */
static gd_status count_all(tally *t, gd_tensor *x) {
    const int64_t all = gd_numel(x->rank, x->dims);
    gd_tensor *flat = gd_reshape(x, gd_dims(-1));
    for (int64_t at = 0; at < all; at += PIECE) {
        GD_SCOPE;
        const int64_t n = all - at < PIECE ? all - at : PIECE;
        gd_tensor *piece = gd_cast(gd_narrow(flat, 0, at, n), GD_F64);
        if (piece->kind == GD_FAILED) return gd_failure();
        GD_TRY(gd_copy_out(piece, t->piece, (size_t)n * sizeof *t->piece));
        for (int64_t i = 0; i < n; i++) count(t, t->piece[i]);
    }
    return flat->kind == GD_FAILED ? gd_failure() : GD_OK;
}

/* From the bucket before the first that is not empty to the last. */
static void put(const tally *t, gd_pb *histogram) {
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
    if (!t) return gd_fail(GD_E_MEMORY, "no memory for a histogram");
    start(t);
    const gd_status status = count_all(t, x);
    if (status == GD_OK && t->num > 0)
        put(t, gd_pb_put_message(gd_event_add_value(event, tag), "histo"));
    gd_free(t);
    return status;
}
