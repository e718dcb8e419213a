/* test_variance.c - variances keep their precision at any mean. */
#include <math.h>

#include "backend/cpu/isa.h"
#include "gradus/gradus.h"
#include "test.h"

/* Shapes for each code path of the reduction: rows, runs, columns, few and narrow ones. */
static const struct {
    int64_t rows, cols;
    int axis;
} shapes[] = {{1, 300000, 1}, {300, 1000, 1}, {1000, 300, 0}, {20000, 16, 0}, {5000, 3, 0},
              {5000, 16, 1},  {40, 7, 0},     {7, 40, 1},     {3, 5, 1}};

static double largest_error(gd_tensor *got, gd_tensor *expected) {
    gd_tensor *e = gd_div(gd_sub(gd_cast(got, GD_F64), expected), expected);
    return gd_item(gd_max(gd_abs(e)));
}

TEST(a_large_mean_loses_no_precision) {
    static const double means[] = {0, 3, 1e3, 1e5, -1e6};
    const gd_isa before = gd_cpu_isa();
    for (gd_isa isa = GD_ISA_BASE; isa < GD_ISA_COUNT; isa++) {
        if (gd_cpu_set_isa(isa) != isa) continue;
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int m = 0; m < 5; m++) {
                GD_SCOPE;
                const int axis = shapes[s].axis;
                gd_tensor *x =
                    gd_add(gd_randn(gd_dims(shapes[s].rows, shapes[s].cols)), gd_scalar(means[m]));
                gd_tensor *wide = gd_cast(x, GD_F64),
                          *strided = gd_permute(gd_contiguous(gd_permute(x, gd_dims(1, 0))),
                                                gd_dims(1, 0));
                double var = largest_error(gd_var(x, .axis = axis), gd_var(wide, .axis = axis));
                double std = largest_error(gd_std(x, .axis = axis), gd_std(wide, .axis = axis));
                double other =
                    largest_error(gd_var(strided, .axis = axis), gd_var(wide, .axis = axis));
                CHECK_SAYING(var < 1e-6 && std < 1e-6 && other < 1e-6,
                             "%s %lldx%lld axis %d mean %g: %.2g %.2g %.2g", gd_isa_name(isa),
                             (long long)shapes[s].rows, (long long)shapes[s].cols, axis, means[m],
                             var, std, other);
            }
    }
    gd_cpu_set_isa(before);
}

TEST(equal_elements_have_zero_variance) {
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        GD_SCOPE;
        gd_tensor *x = gd_full(gd_dims(shapes[s].rows, shapes[s].cols), 0.1);
        gd_tensor *y = gd_var(x, .axis = shapes[s].axis);
        CHECK_SAYING(gd_item(gd_max(y)) == 0, "%lldx%lld: %g", (long long)shapes[s].rows,
                     (long long)shapes[s].cols, gd_item(gd_max(y)));
    }
}

TEST(non_finite_elements_give_nan) {
    GD_SCOPE;
    const float values[] = {1, 2, INFINITY, 4, NAN, 6, 7, 8, 9};
    gd_tensor *x = gd_from_array(gd_dims(3, 3), GD_F32, values), *rows = gd_var(x, .axis = 1),
              *cols = gd_var(x, .axis = 0);
    const float *r = gd_data(rows), *c = gd_data(cols);
    CHECK(isnan(r[0]) && isnan(r[1]) && r[2] == 1);
    CHECK(c[0] == 9 && isnan(c[1]) && isnan(c[2]));
}

/* batch_norm computes its statistics with the same reduction. */
TEST(batch_norm_keeps_its_precision_at_a_large_mean) {
    GD_SCOPE;
    gd_tensor *x = gd_add(gd_randn(gd_dims(64, 5, 7, 7)), gd_scalar(1e5)),
              *wide = gd_cast(x, GD_F64);
    gd_tensor *mean = gd_zeros(gd_dims(5)), *var = gd_ones(gd_dims(5));
    gd_batch_norm(x, NULL, NULL, mean, var, .training = true, .momentum = 1);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(largest_error(var, gd_var(wide, .axis = gd_dims(0, 2, 3))) < 1e-6);
    CHECK(largest_error(mean, gd_mean(wide, .axis = gd_dims(0, 2, 3))) < 1e-7);
    gd_clear_error();
}

TEST_MAIN
