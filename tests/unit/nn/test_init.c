/* test_init.c - initializers: moments, bounds, structure, creation from text, invalid options. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"
#include "dispatch/factory.h"

typedef struct moments {
    double mean, std, low, high, kurtosis;
    int64_t n;
} moments;

static double *values_of(gd_tensor *t) {
    const int64_t n = gd_tensor_numel(t);
    double *x = malloc((size_t)n * sizeof *x + 1);
    gd_copy_to(gd_cast(t, GD_F64), x, (size_t)n * sizeof *x);
    return x;
}

static moments moments_of(gd_tensor *t) {
    GD_SCOPE;
    double *x = values_of(t);
    moments m = {.n = gd_tensor_numel(t), .low = INFINITY, .high = -INFINITY};
    double second = 0, fourth = 0;
    for (int64_t i = 0; i < m.n; i++)
        m.mean += x[i] / (double)m.n, m.low = fmin(m.low, x[i]), m.high = fmax(m.high, x[i]);
    for (int64_t i = 0; i < m.n; i++) {
        const double d = (x[i] - m.mean) * (x[i] - m.mean);
        second += d / (double)m.n;
        fourth += d * d / (double)m.n;
    }
    m.std = sqrt(second);
    m.kurtosis = second > 0 ? fourth / (second * second) : 0;
    free(x);
    return m;
}

/* Checks that the mean is within five standard errors and the deviation within 3 %. */
static bool has_moments(gd_tensor *t, double mean, double std) {
    const moments m = moments_of(t);
    const bool right =
        fabs(m.mean - mean) < 5 * std / sqrt((double)m.n) && fabs(m.std - std) < 0.03 * std;
    if (!right) fprintf(stderr, "mean %g, std %g; expected %g and %g\n", m.mean, m.std, mean, std);
    return right;
}
static bool is_uniform(gd_tensor *t, double bound) {
    const moments m = moments_of(t);
    return m.low >= -bound && m.high <= bound && m.high > 0.99 * bound &&
           fabs(m.kurtosis - 1.8) < 0.1;
}
static bool is_normal(gd_tensor *t) { return fabs(moments_of(t).kurtosis - 3) < 0.25; }

/* (60, 40, 3, 3): fan in 360, fan out 540. */
static gd_shape weight_shape(void) { return gd_dims(60, 40, 3, 3); }

CLEAN_TEST(constant_initializers_fill_with_their_constant) {
    GD_SCOPE;
    CHECK(moments_of(gd_init_zeros(weight_shape())).high == 0 &&
          moments_of(gd_init_ones(weight_shape())).low == 1);
    const moments m = moments_of(gd_init_constant(gd_dims(7), .value = 2.5));
    CHECK(m.low == 2.5 && m.high == 2.5);
    CHECK(gd_tensor_dtype(gd_init_constant(gd_dims(7), .value = 0.1, .dtype = GD_F64)) == GD_F64);
    CHECK(moments_of(gd_init_constant(gd_dims(1), .value = 0.1, .dtype = GD_F64)).low == 0.1);
    CHECK(!gd_failed());
}

CLEAN_TEST(random_initializers_have_the_expected_moments_and_bounds) {
    GD_SCOPE;
    gd_seed(1);
    const moments u = moments_of(gd_init_uniform(weight_shape(), .low = 2, .high = 5));
    CHECK(u.low >= 2 && u.high < 5 && fabs(u.mean - 3.5) < 0.05 &&
          fabs(u.std - 3 / sqrt(12)) < 0.02);
    CHECK(has_moments(gd_init_normal(weight_shape(), .mean = 1, .std = 0.5), 1, 0.5));
    const double xavier = 0.5 * sqrt(2.0 / (360 + 540)), he = sqrt(2.0 / 360),
                 lecun = sqrt(1.0 / 360);
    gd_tensor *t = gd_init_xavier_uniform(weight_shape(), .gain = 0.5);
    CHECK(has_moments(t, 0, xavier) && is_uniform(t, sqrt(3) * xavier));
    t = gd_init_xavier_normal(weight_shape(), .gain = 0.5);
    CHECK(has_moments(t, 0, xavier) && is_normal(t));
    t = gd_init_kaiming_uniform(weight_shape());
    CHECK(has_moments(t, 0, he) && is_uniform(t, sqrt(3) * he));
    t = gd_init_kaiming_normal(weight_shape(), .dtype = GD_F64);
    CHECK(has_moments(t, 0, he) && is_normal(t) && gd_tensor_dtype(t) == GD_F64);
    t = gd_init_lecun_uniform(weight_shape());
    CHECK(has_moments(t, 0, lecun) && is_uniform(t, sqrt(3) * lecun));
    t = gd_init_lecun_normal(weight_shape());
    CHECK(has_moments(t, 0, lecun) && is_normal(t));
    CHECK(!gd_failed());
}

static double normal_density(double x) { return exp(-0.5 * x * x) / sqrt(2 * M_PI); }
static double normal_cdf(double x) { return 0.5 * erfc(-x / sqrt(2)); }

/* Mean and deviation of a standard normal variable truncated to [a, b]. */
static void truncated_moments(double a, double b, double *mean, double *std) {
    const double z = a > 0 ? normal_cdf(-a) - normal_cdf(-b) : normal_cdf(b) - normal_cdf(a);
    *mean = (normal_density(a) - normal_density(b)) / z;
    *std = sqrt(1 + (a * normal_density(a) - b * normal_density(b)) / z - *mean * *mean);
}

CLEAN_TEST(truncated_normal_has_the_expected_bounds_and_moments) {
    static const double cuts[][2] = {{-2, 2}, {-1, 3}, {0.5, 0.75}, {4, 6}, {-12, -9}, {9, 12}};
    gd_seed(2);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        GD_SCOPE;
        const double a = cuts[i][0], b = cuts[i][1];
        double mean, std;
        truncated_moments(a, b, &mean, &std);
        gd_tensor *t = gd_init_truncated_normal(gd_dims(150, 200), .mean = 10, .std = 0.5, .low = a,
                                                .high = b, .dtype = GD_F64);
        const moments m = moments_of(t);
        CHECK_SAYING(m.low >= 10 + 0.5 * a && m.high <= 10 + 0.5 * b, "[%g, %g]: from %g to %g", a,
                     b, m.low, m.high);
        CHECK_SAYING(has_moments(t, 10 + 0.5 * mean, 0.5 * std), "[%g, %g]", a, b);
    }
    CHECK(!gd_failed());
}

/* The largest element of |w w^T - gain^2 I| (or of w^T w for tall w), with w as a matrix (outputs,
 * all other axes). */
static double orthogonality_error(gd_shape dims, double gain, gd_dtype dtype) {
    GD_SCOPE;
    gd_tensor *w = gd_flatten(gd_init_orthogonal(dims, .gain = gain, .dtype = dtype),
                              .start_axis = 1),
              *wt = gd_transpose(w, 0, 1);
    const bool wide = gd_tensor_dim(w, 0) <= gd_tensor_dim(w, 1);
    gd_tensor *product = wide ? gd_matmul(w, wt) : gd_matmul(wt, w);
    gd_tensor *eye =
        gd_mul(gd_eye(gd_tensor_dim(product, 0), .dtype = dtype), gd_scalar_of(gain * gain, dtype));
    return tensors_distance(product, eye);
}

CLEAN_TEST(orthogonal_weights_have_orthogonal_rows_or_columns) {
    gd_seed(3);
    CHECK(orthogonality_error(gd_dims(40, 40), 1, GD_F64) < 1e-13);
    CHECK(orthogonality_error(gd_dims(20, 50), 3, GD_F64) < 1e-12);
    CHECK(orthogonality_error(gd_dims(50, 20), 0.5, GD_F64) < 1e-13);
    CHECK(orthogonality_error(gd_dims(16, 8, 3, 3), 1.5, GD_F32) < 1e-5);
    CHECK(orthogonality_error(gd_dims(1, 1), 1, GD_F32) < 1e-6);
    {
        GD_SCOPE; /* the distribution is isotropic: elements have mean 0 and variance 1 / columns */
        CHECK(has_moments(gd_init_orthogonal(gd_dims(100, 200)), 0, 1 / sqrt(200)));
    }
    CHECK(!gd_failed());
}

CLEAN_TEST(identity_weights_return_their_input) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(2, 4, 6, 5)), *w = gd_init_identity(gd_dims(4, 4, 3, 5));
    gd_tensor *y = gd_conv2d(x, w, NULL, .padding = {1, 2});
    CHECK(tensors_distance(x, y) == 0);
    gd_tensor *line = gd_randn(gd_dims(3, 4)),
              *z = gd_linear(line, gd_init_identity(gd_dims(4, 4), .gain = 2), NULL);
    CHECK(tensors_distance(z, gd_mul(line, gd_scalar(2))) == 0);
    CHECK(moments_of(gd_init_identity(gd_dims(2, 5))).mean ==
          0.2); /* a non-square matrix: two ones among ten elements */
    CHECK(!gd_failed());
}

/* --- by name ---------------------------------------------------------------------------------- */

CLEAN_TEST(every_initializer_can_be_created_from_text_and_keeps_the_dtype) {
    const gd_factory *m;
    int count = 0;
    for (int i = 0; (m = gd_factory_at("init", i)); i++, count++) {
        GD_SCOPE;
        gd_module *net = gd_nn_linear(6, 4);
        gd_module_to(net, NULL, GD_F64);
        gd_tensor *w = gd_module_tensor(net, "weight"), *before = gd_clone(gd_detach(w));
        CHECK_SAYING(gd_module_init(net, "weight", m->record.name) == GD_OK, "%s: %s",
                     m->record.name, gd_error_message());
        CHECK_SAYING(gd_tensor_dtype(w) == GD_F64 && gd_module_tensor(net, "weight") == w &&
                         gd_tensor_requires_grad(w),
                     "%s", m->record.name);
        CHECK_SAYING(tensors_distance(gd_detach(w), before) > 0, "%s has changed nothing",
                     m->record.name);
    }
    CHECK(count >= 14 && !gd_failed());
}

CLEAN_TEST(initializer_text_has_options_and_patterns_select_parameters) {
    GD_SCOPE;
    gd_module *net = gd_nn_sequential(gd_nn_linear(50, 40), gd_nn_linear(40, 30));
    CHECK(gd_module_init(net, "*.weight", "truncated_normal std=0.02") == GD_OK);
    const moments m = moments_of(gd_module_tensor(net, "0.weight"));
    CHECK(m.high <= 0.04 + 1e-9 && m.low >= -0.04 - 1e-9 && m.std > 0.015 && m.std < 0.02);
    CHECK(gd_module_init(net, "1.bias", "constant value=3") == GD_OK);
    CHECK(moments_of(gd_module_tensor(net, "1.bias")).low == 3 &&
          moments_of(gd_module_tensor(net, "0.bias")).high < 1);
    gd_seed(5);
    gd_tensor *typed = gd_init_xavier_normal(gd_dims(40, 50), .gain = 2);
    gd_seed(5);
    CHECK(gd_module_init(net, "0.weight", "xavier_normal gain=2") == GD_OK);
    CHECK(tensors_distance(typed, gd_module_tensor(net, "0.weight")) == 0);
    CHECK(!gd_failed());
}

/* Checks that the message contains both parts. */
static bool fails_with(gd_status status, const char *one, const char *other) {
    const bool right = status != GD_OK && gd_failed() && says(one) && says(other);
    if (!right) fprintf(stderr, "expected '%s' and '%s': %s\n", one, other, gd_error_message());
    gd_clear_error();
    return right;
}

CLEAN_TEST(wrong_initializers_and_options_fail_and_are_named) {
    GD_SCOPE;
    gd_module *net = gd_nn_linear(6, 4);
    CHECK(fails_with(gd_module_init(net, "*", "xavier"), "xavier", "xavier_uniform"));
    CHECK(fails_with(gd_module_init(net, "*", "normal deviation=1"), "normal", "deviation"));
    CHECK(fails_with(gd_module_init(net, "weight", "normal std=-1"), "weight", "std is -1"));
    CHECK(fails_with(gd_module_init(net, "weight", "uniform low=2 high=1"), "low is 2", "high 1"));
    CHECK(fails_with(gd_module_init(net, "weight", "truncated_normal low=1 high=1"),
                     "truncated_normal", "low"));
    CHECK(fails_with(gd_module_init(net, "weight", "truncated_normal std=nan"), "truncated_normal",
                     "std"));
    CHECK(fails_with(gd_module_init(net, "bias", "orthogonal"), "orthogonal", "at least two"));
    CHECK(fails_with(gd_module_init(net, "nothing", "zeros"), "nothing", "linear"));
    CHECK(gd_tensor_is_error(gd_init_normal(gd_dims(3), .std = -2)) &&
          fails_with(GD_E_ARGUMENT, "gd_init_normal", "std is -2"));
    CHECK(gd_tensor_is_error(gd_init_kaiming_normal(gd_dims(3))) &&
          fails_with(GD_E_SHAPE, "gd_init_kaiming_normal", "at least two"));
}

TEST_MAIN
