/* multinomial.c - draws classes at random, with probabilities proportional to weights. */
#include <math.h>
#include <stddef.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"
#include "dispatch/problem.h"
#include "ops/random/random_ops.h"

/*op multinomial(weights, n:int) -> y  nograd random fallible
 * Draws n of K classes from each row of weights, with probabilities proportional to the weights:
 * weights (K) give (n), weights (R,K) give (R,n), as i64. Without replacement no class is drawn
 * twice from the same row.
 *   replacement bool = false
 *   key tensor?  draws from this key, two i64, and not from the generator: `gradus/random.h`
 *   saves nothing
 *   onnx Multinomial
 *   python (input=weights, num_samples=n, replacement)
 */
static gd_status multinomial_infer(gd_infer *i) {
    const gd_multinomial_options *o = i->attrs;
    const gd_tensor *w = i->in[0];
    gd_meta *y = &i->out[0];
    GD_TRY(gd_need_float(w, "weights"));
    GD_TRY(gd_need_key(i, 1));
    if (w->rank != 1 && w->rank != 2)
        return gd_op_fail(GD_E_SHAPE, "weights must have 1 or 2 dimensions, not %d", w->rank);
    int64_t classes = w->dims[w->rank - 1];
    if (o->n <= 0)
        return gd_op_fail(GD_E_ARGUMENT, "n is %lld; at least 1 must be drawn", (long long)o->n);
    if (classes == 0) return gd_op_fail(GD_E_SHAPE, "weights has no classes: its last size is 0");
    if (!o->replacement && o->n > classes)
        return gd_op_fail(GD_E_ARGUMENT, "%lld of %lld classes cannot be drawn without replacement",
                          (long long)o->n, (long long)classes);
    gd_meta_like(y, w);
    y->dims[y->rank - 1] = o->n;
    y->dtype = GD_I64;
    return GD_OK;
}

/* Fails for a bad weight, or for the row that begins with it: see GD_DATA_WEIGHTS. */
static gd_status fail_weights(const gd_view *w, int64_t element, int64_t positive, int64_t draws,
                              double real) {
    return gd_data_fail(&(gd_data_error){.problem = GD_DATA_WEIGHTS,
                                         .element = element,
                                         .values = {positive, draws},
                                         .real = real},
                        &(gd_data_operand){w->rank, w->dims, NULL});
}

/* Reads and checks a row of weights as f64. *positive is the number of weights above 0. */
static gd_status read_weights(const gd_view *w, int64_t row, double *weights, int64_t *positive) {
    int last = w->rank - 1;
    int64_t size = (int64_t)gd_dtype_size(w->dtype);
    const char *at = (const char *)w->data + (last ? row * w->strides[0] * size : 0);
    double total = 0;
    *positive = 0;
    for (int64_t c = 0; c < w->dims[last]; c++) {
        double weight = gd_load_f64(w->dtype, at + c * w->strides[last] * size);
        if (!(weight >= 0) || isinf(weight))
            return fail_weights(w, row * w->dims[last] + c, -1, 0, weight);
        *positive += weight > 0;
        total += weights[c] = weight;
    }
    if (total > 0 && isfinite(total)) return GD_OK;
    return fail_weights(w, row * w->dims[last], 0, 0, total);
}

/* The first class whose cumulative sum is above x. It never has weight 0. */
static int64_t first_above(const double *sums, int64_t n, double x) {
    int64_t low = 0, high = n - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (sums[middle] > x) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* A class and the time at which it arrives; see first_arrivals. */
typedef struct {
    double time;
    int64_t index;
} arrival;

static bool arrives_later(arrival a, arrival b) {
    return a.time > b.time || (a.time == b.time && a.index > b.index);
}

/* Restores the heap order below `at`. */
static void sift_down(arrival *heap, int64_t n, int64_t at) {
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && arrives_later(heap[child + 1], heap[child])) child++;
        if (!arrives_later(heap[child], heap[at])) return;
        arrival swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

/* Draws n classes without replacement. Class c arrives after an exponentially distributed time of
 * rate weights[c]; the draw is the first n to arrive, in that order. The heap holds the earliest n
 * so far with the latest of them on top. */
static void first_arrivals(gd_rng rng, int64_t row, int64_t classes, const double *weights,
                           arrival *heap, int64_t n) {
    int64_t held = 0;
    uint64_t block = UINT64_MAX;
    uint32_t w[4];
    for (int64_t c = 0; c < classes; c++) {
        if (!(weights[c] > 0)) continue;
        uint64_t at = (uint64_t)(row * classes + c);
        if (at / 2 != block) gd_philox(rng, block = at / 2, w); /* a block serves two classes */
        double u = gd_unit_f64(w[at % 2 * 2], w[at % 2 * 2 + 1]) + 0x1p-54;
        /* -log u >= 1 - u, so this test avoids most logarithms; the factor allows for rounding */
        if (held == n && (1 - u) * 0.999999 > heap[0].time * weights[c]) continue;
        arrival a = {-gd_log_unit_f64(u) / weights[c], c};
        if (held < n) {
            heap[held++] = a;
            for (int64_t i = held / 2; held == n && i-- > 0;) sift_down(heap, n, i);
        } else if (arrives_later(heap[0], a)) {
            heap[0] = a;
            sift_down(heap, n, 0);
        }
    }
    for (int64_t last = n - 1; last > 0; last--) {
        arrival swap = heap[0];
        heap[0] = heap[last];
        heap[last] = swap;
        sift_down(heap, last, 0);
    }
}

static gd_status multinomial_row(const gd_kernel_call *k, gd_rng rng, int64_t row, double *weights,
                                 arrival *heap) {
    const gd_multinomial_options *o = k->attrs;
    const gd_view *w = &k->in[0], *y = &k->out[0];
    int64_t classes = w->dims[w->rank - 1], positive;
    GD_TRY(read_weights(w, row, weights, &positive));
    if (!o->replacement && positive < o->n)
        return fail_weights(w, row * classes, positive, o->n, 0);
    if (!o->replacement) first_arrivals(rng, row, classes, weights, heap, o->n);
    for (int64_t c = 1; c < classes && o->replacement; c++)
        weights[c] += weights[c - 1]; /* cumulative sums */
    for (int64_t i = 0; i < o->n; i++) {
        int64_t at = row * o->n + i, drawn;
        if (o->replacement) {
            uint64_t bits = gd_long_at(rng, (uint64_t)at);
            double u = gd_unit_f64((uint32_t)(bits >> 32), (uint32_t)bits);
            drawn = first_above(weights, classes, u * weights[classes - 1]);
        } else drawn = heap[i].index;
        gd_store_i64(y->dtype, gd_view_element(y, at), drawn);
    }
    return GD_OK;
}

static size_t multinomial_workspace(const gd_kernel_call *k) {
    const gd_multinomial_options *o = k->attrs;
    const size_t classes = (size_t)k->in[0].dims[k->in[0].rank - 1];
    return classes * sizeof(double) + (o->replacement ? 0 : (size_t)o->n * sizeof(arrival));
}
static gd_status draw_rows(gd_kernel_call *k, gd_rng rng) {
    const gd_multinomial_options *o = k->attrs;
    const gd_view *w = &k->in[0];
    int64_t classes = w->dims[w->rank - 1], rows = w->rank == 2 ? w->dims[0] : 1;
    double *weights = k->workspace;
    arrival *heap = o->replacement ? NULL : (arrival *)(weights + classes);
    gd_status status = GD_OK;
    for (int64_t row = 0; row < rows && status == GD_OK; row++)
        status = multinomial_row(k, rng, row, weights, heap);
    return status;
}

static gd_status multinomial_raw(gd_kernel_call *k) { return draw_rows(k, k->rng); }

static void multinomial_expand(gd_expansion *e) {
    const gd_multinomial_options *o = e->attrs;
    gd_tensor *w = e->x[0];
    e->y[0] = gd_key_multinomial(w, gd_call_key(e, 1, w), o->n, .replacement = o->replacement);
}

/*op key_multinomial(weights, key, n:int) -> y  nograd internal fallible
 * The classes that multinomial draws with this key.
 *   replacement bool = false
 */
_Static_assert(offsetof(gd_key_multinomial_options, n) == offsetof(gd_multinomial_options, n) &&
                   offsetof(gd_key_multinomial_options, replacement) ==
                       offsetof(gd_multinomial_options, replacement),
               "the rules and kernels of multinomial read the options of key_multinomial");
static gd_status key_multinomial_infer(gd_infer *i) { return multinomial_infer(i); }
static size_t key_multinomial_workspace(const gd_kernel_call *k) {
    return multinomial_workspace(k);
}
static gd_status key_multinomial_raw(gd_kernel_call *k) {
    return draw_rows(k, gd_rng_of_key(&k->in[1]));
}

#include "ops/random/multinomial.gen.h"
