/* kernels_create.c - constants, random numbers, and assignments to variables. */
#include "backend/test/kernels.h"
#include "core/integer.h"
#include "ops/random/random_dist.h"

static void store_number(gd_dtype dtype, void *p, gd_number value) {
    if (element_is_float(dtype) || dtype == GD_BOOL) store_real(dtype, p, value.value);
    else store_integer(dtype, p, gd_number_i64(value));
}

/* --- constants -------------------------------------------------------------------------------- */

void test_full(gd_kernel_call *call) {
    const gd_full_options *o = call->attrs;
    const gd_view *y = &call->out[0];
    const int64_t count = count_elements(y);
    for (int64_t e = 0; e < count; e++)
        store_number(y->dtype, element_at(y, y->rank, y->dims, e), o->value);
}

void test_arange(gd_kernel_call *call) {
    const gd_arange_options *o = call->attrs;
    const gd_view *y = &call->out[0];
    const uint64_t first = (uint64_t)gd_number_i64(o->start),
                   step = (uint64_t)gd_number_i64(o->step);
    for (int64_t i = 0; i < y->dims[0]; i++) {
        char *p = element_at(y, 1, y->dims, i);
        if (element_is_float(y->dtype))
            store_real(y->dtype, p, o->start.value + o->step.value * (double)i);
        else store_integer(y->dtype, p, (int64_t)(first + (uint64_t)i * step));
    }
}

void test_group(gd_kernel_call *call) { *(uint8_t *)call->out[0].data = 1; }

/* Inputs: x and the value. Outputs: the new value (optional), and x, which is mutated. The value
 * may be a view of x: where there is an output for the new value, it is copied there first. */
void test_assign(gd_kernel_call *call) {
    gd_kernel_call copy = *call;
    copy.in = &call->in[1];
    if (call->out[0].data) {
        test_copy(&copy);
        copy.in = &call->out[0];
    }
    copy.out = &call->out[1];
    test_copy(&copy);
}

/* --- random numbers --------------------------------------------------------------------------- */

void test_random_key(gd_kernel_call *call) {
    int64_t *key = call->out[0].data;
    key[0] = (int64_t)call->rng.seed;
    key[1] = (int64_t)call->rng.call;
}

static gd_rng rng_of_key(const gd_view *key) {
    return (gd_rng){(uint64_t)integer_at(key, 0), (uint64_t)integer_at(key, 1)};
}

void test_key_words(gd_kernel_call *call) {
    const gd_rng rng = rng_of_key(&call->in[0]);
    const int64_t count = count_elements(&call->out[0]);
    for (int64_t i = 0; i < count; i++)
        ((int64_t *)call->out[0].data)[i] = gd_word_at(rng, (uint64_t)i);
}

void test_key_normals(gd_kernel_call *call) {
    const gd_key_normals_options *o = call->attrs;
    const gd_rng rng = rng_of_key(&call->in[0]);
    const int64_t count = count_elements(&call->out[0]);
    for (int64_t i = 0; i < count; i++) {
        uint32_t words[4];
        double wide[2];
        float narrow[2];
        const int pair = i % 4 & 2;
        gd_philox(rng, (uint64_t)i / (o->dtype == GD_F64 ? 2 : 4), words);
        gd_normals_f64(words, &wide[0], &wide[1]);
        gd_normals_f32(words[pair], words[pair + 1], &narrow[0], &narrow[1]);
        ((double *)call->out[0].data)[i] = o->dtype == GD_F64 ? wide[i % 2] : narrow[i % 2];
    }
}

/* --- multinomial ------------------------------------------------------------------------------ */

/* Reports weights that are negative, not finite, all 0, or too few to draw without replacement. */
static bool check_weights(const gd_kernel_call *call, int64_t row, int64_t classes) {
    const gd_key_multinomial_options *o = call->attrs;
    const double *weights = (const double *)call->in[0].data + row * classes;
    double sum = 0;
    int64_t positive = 0;
    for (int64_t c = 0; c < classes; c++) {
        if (!(weights[c] >= 0) || isinf(weights[c])) {
            test_report(call, GD_DATA_WEIGHTS, row * classes + c, -1, 0, 0, weights[c]);
            return false;
        }
        positive += weights[c] > 0;
        sum += weights[c];
    }
    if (!(sum > 0) || isinf(sum)) test_report(call, GD_DATA_WEIGHTS, row * classes, 0, 0, 0, sum);
    else if (!o->replacement && positive < o->n)
        test_report(call, GD_DATA_WEIGHTS, row * classes, positive, o->n, 0, 0);
    else return true;
    return false;
}

/* Draws a class with a probability proportional to its weight: the first class whose cumulative
 * weight exceeds a random fraction of the total. */
static int64_t draw_class(gd_rng rng, const double *weights, int64_t classes, int64_t number) {
    const uint64_t bits = gd_long_at(rng, (uint64_t)number);
    double total = 0, sum = 0;
    for (int64_t c = 0; c < classes; c++) total += weights[c];
    const double limit = gd_unit_f64((uint32_t)(bits >> 32), (uint32_t)bits) * total;
    for (int64_t c = 0; c < classes - 1; c++)
        if ((sum += weights[c]) > limit) return c;
    return classes - 1;
}

/* The arrival time of a class, exponentially distributed with rate `weight`. Sampling without
 * replacement draws classes in the order of their arrival times. */
static double arrival_of(gd_rng rng, double weight, int64_t number) {
    const uint64_t bits = gd_long_at(rng, (uint64_t)number);
    const double u = gd_unit_f64((uint32_t)(bits >> 32), (uint32_t)bits) + 0x1p-54;
    return -gd_log_unit_f64(u) / weight;
}

/* The number of classes that arrive before class c. */
static int64_t position_of_class(gd_rng rng, const double *weights, int64_t classes, int64_t first,
                                 int64_t c) {
    const double own = arrival_of(rng, weights[c], first + c);
    int64_t position = 0;
    for (int64_t k = 0; k < classes; k++) {
        if (!(weights[k] > 0) || k == c) continue;
        const double other = arrival_of(rng, weights[k], first + k);
        position += other < own || (other == own && k < c);
    }
    return position;
}

void test_key_multinomial(gd_kernel_call *call) {
    const gd_key_multinomial_options *o = call->attrs;
    const gd_view *w = &call->in[0];
    const gd_rng rng = rng_of_key(&call->in[1]);
    const int64_t classes = w->dims[w->rank - 1], rows = w->rank == 2 ? w->dims[0] : 1;
    for (int64_t row = 0; row < rows; row++) {
        const double *weights = (const double *)w->data + row * classes;
        int64_t *y = (int64_t *)call->out[0].data + row * o->n;
        if (!check_weights(call, row, classes)) return;
        for (int64_t i = 0; i < o->n && o->replacement; i++)
            y[i] = draw_class(rng, weights, classes, row * o->n + i);
        for (int64_t c = 0; c < classes && !o->replacement; c++) {
            if (!(weights[c] > 0)) continue;
            const int64_t position = position_of_class(rng, weights, classes, row * classes, c);
            if (position < o->n) y[position] = c;
        }
    }
}
