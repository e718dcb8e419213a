/* test_metrics.c - metrics: values, weights, resets, jits, state, messages. */
#include <math.h>

#include "clean_test.h"
#include "gradus/gradus.h"
#include "gradus/testing.h"

#define FLOATS(dims, ...) gd_from_array(dims, GD_F32, (float[]){__VA_ARGS__})
#define INTS(dims, ...)   gd_from_array(dims, GD_I64, (int64_t[]){__VA_ARGS__})

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * (1 + fabs(b)); }

#define CHECK_NUMBER(metric, expected)                                                             \
    do {                                                                                           \
        const double number_ = gd_metric_number(metric);                                           \
        CHECK_SAYING(near(number_, expected), "%.15g, not %.15g: %s", number_, (double)(expected), \
                     gd_error_message());                                                          \
    } while (0)

/* --- accuracy ---------------------------------------------------------------------------------- */

static gd_tensor *three_by_three(void) {
    return FLOATS(gd_dims(3, 3), 1, 2, 0, /* class 1 */ 5, 5, 1 /* class 0: the first of equals */,
                  0, -1, 3);
}

CLEAN_TEST(accuracy_counts_samples_whose_class_is_right) {
    GD_SCOPE;
    gd_metric *m = gd_metric_accuracy();
    CHECK(isnan(gd_metric_number(m)));
    gd_metric_update(m, three_by_three(), INTS(gd_dims(3), 1, 0, 0));
    CHECK_NUMBER(m, 2.0 / 3);
    gd_metric_update(m, three_by_three(), INTS(gd_dims(3), 1, 1, 2));
    CHECK_NUMBER(m, 4.0 / 6);
    gd_metric_reset(m);
    CHECK(isnan(gd_metric_number(m)));
    CHECK(strcmp(gd_metric_name(m), "accuracy") == 0);
    CHECK(gd_tensor_rank(gd_metric_value(m)) == 0 && gd_tensor_dtype(gd_metric_value(m)) == GD_F64);
}

typedef struct jitted {
    gd_metric *metric;
    bool reset;
} jitted;

static gd_tensors measure(gd_tensors in, void *user) {
    const jitted *j = user;
    if (j->reset) gd_metric_reset(j->metric);
    gd_metric_update(j->metric, in.at[0], in.at[1]);
    return gd_listed(gd_metric_value(j->metric));
}

CLEAN_TEST(a_jit_adds_to_the_same_sums_as_eager_updates) {
    GD_SCOPE;
    jitted j = {gd_metric_accuracy(), false};
    gd_jit *jit = gd_jit_new(measure, &j);
    gd_tensor *x = three_by_three(), *t = INTS(gd_dims(3), 1, 0, 0);
    CHECK(near(gd_item(gd_jit_call(jit, gd_list(x, t)).at[0]), 2.0 / 3));
    CHECK_NUMBER(j.metric, 2.0 / 3);
    gd_metric_update(j.metric, x, INTS(gd_dims(3), 1, 0, 2));
    CHECK_NUMBER(j.metric, 5.0 / 6);
    CHECK(near(gd_item(gd_jit_call(jit, gd_list(x, t)).at[0]), 7.0 / 9));
    gd_metric_reset(j.metric);
    CHECK(isnan(gd_metric_number(j.metric)));
    CHECK(near(gd_item(gd_jit_call(jit, gd_list(x, t)).at[0]), 2.0 / 3));
    CHECK_NUMBER(j.metric, 2.0 / 3);
    CHECK(gd_jit_traces(jit) == 1);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(a_jit_that_resets_begins_each_call_at_zero) {
    GD_SCOPE;
    for (int before = 0; before < 2; before++) { /* with sums from before, and without */
        jitted j = {gd_metric_accuracy(), true};
        gd_tensor *x = three_by_three(), *t = INTS(gd_dims(3), 1, 0, 0);
        if (before) gd_metric_update(j.metric, x, INTS(gd_dims(3), 1, 0, 2));
        gd_jit *jit = gd_jit_new(measure, &j);
        for (int i = 0; i < 3; i++) {
            gd_tensor *target = i == 1 ? INTS(gd_dims(3), 1, 0, 2) : t;
            const double right = i == 1 ? 1 : 2.0 / 3;
            CHECK(near(gd_item(gd_jit_call(jit, gd_list(x, target)).at[0]), right));
            CHECK_NUMBER(j.metric, right);
        }
        CHECK(gd_jit_traces(jit) == 1);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST_MAIN
