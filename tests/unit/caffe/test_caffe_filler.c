/* test_caffe_filler.c - fillers: bounds, moments and patterns as Caffe has them, the bits of the library's
 * initializers, and what is refused.
 */
#include "caffe/filler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "caffe/schema.h"
#include "clean_test.h"
#include "compare.h"
#include "core/error.h"
#include "gradus/gradus.h"

/* A tensor as a FillerParameter in text describes it; NULL: it is refused. */
static gd_tensor *filled(const char *text, gd_shape shape) {
    gd_pb_doc *doc;
    gd_tensor *t = NULL;
    gd_status status =
        gd_pb_read_text(&doc, &gd_caffe_filler_schema, "net.prototxt", text, strlen(text));
    CHECK_SAYING(status == GD_OK, "%s", gd_latest_failure());
    status = gd_caffe_filled(gd_pb_root(doc), shape, &t);
    gd_pb_free(doc);
    return status == GD_OK ? t : NULL;
}

typedef struct moments {
    double mean, std, low, high, nonzero, first;
} moments;

static moments moments_of(gd_tensor *t) {
    const int64_t n = gd_tensor_numel(t);
    double *x = malloc((size_t)n * sizeof *x + 1);
    gd_copy_to(gd_cast(t, GD_F64), x, (size_t)n * sizeof *x);
    moments m = {.low = INFINITY, .high = -INFINITY, .first = x[0]};
    double square = 0;
    for (int64_t i = 0; i < n; i++) {
        m.mean += x[i] / (double)n;
        square += x[i] * x[i] / (double)n;
        m.nonzero += (x[i] != 0) / (double)n;
        m.low = fmin(m.low, x[i]), m.high = fmax(m.high, x[i]);
    }
    m.std = sqrt(fmax(0, square - m.mean * m.mean));
    free(x);
    return m;
}

static bool near(double a, double b, double tolerance) { return fabs(a - b) <= tolerance; }

/* (60, 40, 3, 3): 360 numbers for an output, 540 for a channel. */
static gd_shape weight_shape(void) { return gd_dims(60, 40, 3, 3); }

CLEAN_TEST(a_filler_without_a_type_is_a_constant) {
    GD_SCOPE;
    gd_tensor *t;
    CHECK(gd_caffe_filled(NULL, gd_dims(3, 2), &t) == GD_OK && moments_of(t).nonzero == 0);
    CHECK(gd_tensor_dtype(t) == GD_F32 && gd_tensor_rank(t) == 2);
    const moments m = moments_of(filled("value: 0.25", gd_dims(3)));
    CHECK(m.low == 0.25 && m.high == 0.25);
    CHECK(moments_of(filled("", gd_dims(3))).nonzero == 0);
    CHECK(moments_of(filled("type: 'constant' value: -2", gd_dims())).first == -2);
}

CLEAN_TEST(uniform_numbers_are_between_min_and_max) {
    GD_SCOPE;
    gd_seed(1);
    moments m = moments_of(filled("type: 'uniform' min: -3 max: 1", gd_dims(1000, 10)));
    CHECK(m.low >= -3 && m.high < 1 && near(m.mean, -1, 0.05) && near(m.std, 4 / sqrt(12), 0.02));
    m = moments_of(filled("type: 'uniform'", gd_dims(1000, 10)));
    CHECK(m.low >= 0 && m.high < 1 && near(m.mean, 0.5, 0.02));
}

CLEAN_TEST(gaussian_numbers_have_mean_and_std) {
    GD_SCOPE;
    gd_seed(2);
    const moments m = moments_of(filled("type: 'gaussian' mean: 2 std: 0.5", gd_dims(100, 100)));
    CHECK(near(m.mean, 2, 0.025) && near(m.std, 0.5, 0.015) && m.nonzero > 0.9999);
    CHECK(near(moments_of(filled("type: 'gaussian'", gd_dims(100, 100))).std, 1, 0.03));
}

CLEAN_TEST(sparse_numbers_are_zero_but_for_as_many_outputs) {
    GD_SCOPE;
    gd_seed(3);
    const char *text = "type: 'gaussian' mean: 2 std: 0.5 sparse: 3";
    moments m = moments_of(filled(text, gd_dims(30, 20, 5, 5)));
    CHECK_SAYING(near(m.nonzero, 0.1, 0.015) && near(m.mean, 0.2, 0.03), "%g", m.nonzero);
    CHECK(moments_of(filled("type: 'gaussian' sparse: 0", gd_dims(30, 20))).nonzero == 0);
    CHECK(moments_of(filled("type: 'gaussian' sparse: 30", gd_dims(30, 20))).nonzero > 0.9999);
    CHECK(moments_of(filled("type: 'gaussian' sparse: 1", gd_dims())).nonzero > 0.9999);
}

CLEAN_TEST(a_positive_unitball_has_the_sum_1_for_each_output) {
    GD_SCOPE;
    gd_seed(4);
    gd_tensor *t = filled("type: 'positive_unitball'", gd_dims(10, 20, 5));
    const moments sums = moments_of(gd_sum(t, .axis = gd_dims(1, 2))), m = moments_of(t);
    CHECK(near(sums.low, 1, 1e-6) && near(sums.high, 1, 1e-6) && m.low >= 0);
    CHECK(near(m.std, 0.01 / sqrt(3), 0.001));
    CHECK(moments_of(filled("type: 'positive_unitball'", gd_dims(7))).low == 1);
}

static void check_spread(const char *text, gd_shape shape, double std, double bound) {
    const moments m = moments_of(filled(text, shape));
    CHECK_SAYING(near(m.std, std, 0.03 * std) && near(m.mean, 0, 0.05 * std), "%s: std %g", text,
                 m.std);
    if (bound) CHECK_SAYING(m.high < bound && m.high > 0.99 * bound && m.low >= -bound, "%s", text);
}

CLEAN_TEST(xavier_and_msra_follow_the_shape) {
    GD_SCOPE;
    gd_seed(5);
    const gd_shape w = weight_shape(), line = gd_dims(5000);
    check_spread("type: 'xavier'", w, sqrt(1. / 360), sqrt(3. / 360));
    check_spread("type: 'xavier' variance_norm: FAN_OUT", w, sqrt(1. / 540), sqrt(3. / 540));
    check_spread("type: 'xavier' variance_norm: AVERAGE", w, sqrt(1. / 450), sqrt(3. / 450));
    check_spread("type: 'msra'", w, sqrt(2. / 360), 0);
    check_spread("type: 'msra' variance_norm: FAN_OUT", w, sqrt(2. / 540), 0);
    check_spread("type: 'msra' variance_norm: AVERAGE", w, sqrt(2. / 450), 0);
    check_spread("type: 'xavier'", line, 1, sqrt(3));
    check_spread("type: 'xavier' variance_norm: FAN_OUT", line, sqrt(1. / 5000), sqrt(3. / 5000));
    check_spread("type: 'xavier'", gd_dims(1, 1, 100, 90), sqrt(1. / 9000), sqrt(3. / 9000));
    CHECK(filled("type: 'xavier'", gd_dims(0, 4)) && filled("type: 'msra'", gd_dims(4, 0)));
}

/* Every filler that is an initializer has its bits. */
static void check_bits(const char *text, gd_tensor *(*make)(gd_shape)) {
    gd_seed(6);
    gd_tensor *ours = filled(text, weight_shape());
    gd_seed(6);
    CHECK_SAYING(tensors_same_bits(ours, make(weight_shape())), "%s", text);
}
static gd_tensor *lecun(gd_shape s) { return gd_init_lecun_uniform(s); }
static gd_tensor *xavier(gd_shape s) { return gd_init_xavier_uniform(s); }
static gd_tensor *kaiming(gd_shape s) { return gd_init_kaiming_normal(s); }
static gd_tensor *xavier_normal(gd_shape s) { return gd_init_xavier_normal(s, .gain = sqrt(2)); }
static gd_tensor *uniform(gd_shape s) { return gd_init_uniform(s, .low = -0.1, .high = 0.2); }
static gd_tensor *normal(gd_shape s) { return gd_init_normal(s, .mean = 0.5, .std = 0.01); }

CLEAN_TEST(fillers_have_the_bits_of_initializers) {
    GD_SCOPE;
    check_bits("type: 'xavier'", lecun);
    check_bits("type: 'xavier' variance_norm: AVERAGE", xavier);
    check_bits("type: 'msra'", kaiming);
    check_bits("type: 'msra' variance_norm: AVERAGE", xavier_normal);
    check_bits("type: 'uniform' min: -0.1 max: 0.2", uniform);
    check_bits("type: 'gaussian' mean: 0.5 std: 0.01", normal);
}

CLEAN_TEST(a_bilinear_kernel_is_a_tent) {
    GD_SCOPE;
    static const float four[] = {0.0625f, 0.1875f, 0.1875f, 0.0625f, 0.1875f, 0.5625f,
                                 0.5625f, 0.1875f, 0.1875f, 0.5625f, 0.5625f, 0.1875f,
                                 0.0625f, 0.1875f, 0.1875f, 0.0625f};
    static const float three[] = {0.25f, 0.5f, 0.25f, 0.5f, 1, 0.5f, 0.25f, 0.5f, 0.25f};
    gd_tensor *t = filled("type: 'bilinear'", gd_dims(2, 3, 4, 4));
    gd_tensor *expected = gd_from_array(gd_dims(4, 4), GD_F32, four);
    CHECK(tensors_same_bits(t, gd_expand(expected, gd_dims(2, 3, 4, 4))));
    t = filled("type: 'bilinear'", gd_dims(1, 1, 3, 3));
    CHECK(tensors_same_bits(t, gd_from_array(gd_dims(1, 1, 3, 3), GD_F32, three)));
    CHECK(moments_of(filled("type: 'bilinear'", gd_dims(2, 1, 1, 1))).low == 1);
}

static void check_refused(const char *text, gd_shape shape, const char *message) {
    gd_clear_error();
    CHECK(!filled(text, shape));
    CHECK_SAYING(strstr(gd_latest_failure(), message), "%s", gd_latest_failure());
    gd_clear_error();
}

CLEAN_TEST(what_a_filler_cannot_do_is_said) {
    GD_SCOPE;
    check_refused("type: 'xaver'", gd_dims(2),
                  "net.prototxt:1:1: there is no filler of type 'xaver'; the types are constant, "
                  "uniform, gaussian, positive_unitball, xavier, msra and bilinear");
    check_refused("type: 'uniform' min: 2", gd_dims(2), "min 2 and max 1");
    check_refused("type: 'gaussian' std: -1", gd_dims(2), "std -1");
    check_refused("type: 'gaussian' sparse: 3", gd_dims(2, 9), "sparse 3");
    check_refused("type: 'gaussian' sparse: -2", gd_dims(2, 9),
                  "sparse -2; it must be at least 0, or -1");
    check_refused("type: 'xavier' sparse: 3", gd_dims(9, 9), "xavier cannot be sparse");
    check_refused("type: 'bilinear'", gd_dims(1, 1, 3, 4), "as wide as high");
    check_refused("type: 'bilinear'", gd_dims(3, 3), "as wide as high");
}

TEST_MAIN
