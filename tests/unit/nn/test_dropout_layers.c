/* test_dropout_layers.c - layers that draw random numbers in train mode: dropout and rrelu. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clean_test.h"
#include "gradus/gradus.h"

static double number(gd_tensor *t) { return gd_item(t); }
static double mean(gd_tensor *t) { return number(gd_mean(t)); }
static double variance(gd_tensor *t) { return number(gd_var(t)); }
static bool number_near(double a, double b, double tolerance) {
    if (fabs(a - b) <= tolerance) return true;
    fprintf(stderr, "%g, expected %g\n", a, b);
    return false;
}
/* The fraction of elements that equal a number. */
static double fraction_equal_to(gd_tensor *t, double value) {
    return mean(gd_cast(gd_lt(gd_abs(gd_sub(t, gd_scalar(value))), gd_scalar(1e-6)), GD_F32));
}

CLEAN_TEST(dropout_zeroes_a_fraction_and_scales_the_others) {
    GD_SCOPE;
    gd_seed(1);
    gd_module *m = gd_nn_dropout(.p = 0.3);
    gd_tensor *y = gd_module_forward(m, gd_ones(gd_dims(200, 200)));
    CHECK(number_near(fraction_equal_to(y, 0), 0.3, 0.02) &&
          number_near(fraction_equal_to(y, 1 / 0.7), 0.7, 0.02));
    CHECK(fraction_equal_to(gd_module_forward(gd_nn_dropout(.p = 1), gd_ones(gd_dims(9))), 0) == 1);
    gd_module_eval(m);
    CHECK(fraction_equal_to(gd_module_forward(m, gd_ones(gd_dims(9))), 1) == 1);
    CHECK(!gd_failed());
}

/* Entire channels are dropped: all values of a channel are equal. */
static void check_channels(gd_module *m, gd_shape dims, int first, double p, double kept,
                           double dropped) {
    GD_SCOPE;
    gd_shape axes = {.form = 1};
    for (int i = first; i < dims.rank; i++) axes.at[axes.rank++] = i;
    gd_tensor *y = gd_module_forward(m, gd_ones(dims));
    gd_tensor *low = gd_min(y, .axis = axes), *high = gd_max(y, .axis = axes);
    CHECK(number(gd_max(gd_sub(high, low))) == 0);
    CHECK(number_near(fraction_equal_to(low, dropped), p, 0.03) &&
          number_near(fraction_equal_to(low, kept), 1 - p, 0.03));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(channel_dropouts_drop_entire_channels) {
    GD_SCOPE;
    gd_seed(2);
    check_channels(gd_nn_dropout1d(.p = 0.25), gd_dims(60, 80, 4), 2, 0.25, 1 / 0.75, 0);
    check_channels(gd_nn_dropout1d(.p = 0.25), gd_dims(5000, 4), 1, 0.25, 1 / 0.75, 0);
    check_channels(gd_nn_dropout2d(.p = 0.5), gd_dims(60, 80, 3, 2), 2, 0.5, 2, 0);
    check_channels(gd_nn_dropout2d(.p = 0.5), gd_dims(60, 80, 3), 2, 0.5, 2, 0);
    check_channels(gd_nn_dropout3d(.p = 0.5), gd_dims(60, 80, 2, 2, 2), 2, 0.5, 2, 0);
    check_channels(gd_nn_dropout3d(.p = 0.5), gd_dims(5000, 2, 2, 2), 1, 0.5, 2, 0);
    const double floor = -1.7580993408473766, p = 0.2,
                 scale = 1 / sqrt((1 - p) * (1 + p * floor * floor));
    const double shift = -scale * floor * p;
    check_channels(gd_nn_feature_alpha_dropout(.p = p), gd_dims(60, 80, 3, 2), 2, p, scale + shift,
                   scale * floor + shift);
}

CLEAN_TEST(alpha_dropout_keeps_mean_and_variance) {
    GD_SCOPE;
    gd_seed(3);
    gd_tensor *x = gd_randn(gd_dims(400, 300));
    for (int i = 0; i < 2; i++) {
        gd_module *m = i ? gd_nn_alpha_dropout(.p = 0.1) : gd_nn_alpha_dropout(.p = 0.6);
        gd_tensor *y = gd_module_forward(m, x);
        CHECK(number_near(mean(y), 0, 0.02) && number_near(variance(y), 1, 0.03));
        CHECK(number(gd_max(gd_abs(gd_sub(x, y)))) > 0.1);
    }
    CHECK(fraction_equal_to(gd_module_forward(gd_nn_alpha_dropout(.p = 1), x), 0) == 1);
    CHECK(!gd_failed());
}

CLEAN_TEST(rrelu_draws_slopes_between_its_bounds) {
    GD_SCOPE;
    gd_seed(4);
    gd_module *m = gd_nn_rrelu(.lower = 0.1, .upper = 0.5);
    gd_tensor *slopes = gd_neg(gd_module_forward(m, gd_neg(gd_ones(gd_dims(200, 200)))));
    CHECK(number(gd_min(slopes)) >= 0.1f && number(gd_max(slopes)) <= 0.5f);
    CHECK(number_near(mean(slopes), 0.3, 0.01) &&
          number_near(variance(slopes), 0.4 * 0.4 / 12, 0.001));
    CHECK(fraction_equal_to(gd_module_forward(m, gd_full(gd_dims(9), 2.0)), 2) == 1);
    /* the gradient is the slope that was drawn */
    gd_tensor *x = gd_requires_grad(gd_neg(gd_ones(gd_dims(5)))), *y = gd_module_forward(m, x);
    gd_backward(gd_sum(y));
    CHECK(number(gd_max(gd_abs(gd_add(gd_tensor_grad(x), gd_detach(y))))) < 1e-6);
    CHECK(!gd_failed());
}

TEST_MAIN
