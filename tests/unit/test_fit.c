/* test_fit.c - gd_compile, gd_fit, gd_evaluate and gd_predict. */
#include <math.h>

#include "clean_test.h"
#include "gradus/gradus.h"

enum { SAMPLES = 60, FEATURES = 5, CLASSES = 3 };

/* Classes that a linear net can tell apart, with some noise. */
static void make_data(gd_tensor **x, gd_tensor **y) {
    float features[SAMPLES * FEATURES];
    int64_t classes[SAMPLES];
    gd_random r = gd_random_of(7, 0);
    for (int i = 0; i < SAMPLES; i++) {
        classes[i] = gd_random_below(&r, CLASSES);
        for (int k = 0; k < FEATURES; k++)
            features[i * FEATURES + k] = (float)(gd_random_normal(&r) + (k == classes[i] ? 2 : 0));
    }
    *x = gd_from_array(gd_dims(SAMPLES, FEATURES), GD_F32, features);
    *y = gd_from_array(gd_dims(SAMPLES), GD_I64, classes);
}

static gd_module *make_net(void) {
    gd_seed(3);
    return gd_nn_sequential(gd_nn_linear(FEATURES, 8), gd_nn_relu(), gd_nn_linear(8, CLASSES));
}

CLEAN_TEST(fit_trains_on_tensors) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    CHECK(gd_compile(net, .optimizer = "adam lr=0.05", .loss = "cross_entropy", .metrics = "accuracy") == GD_OK);
    gd_history *h = gd_fit(net, gd_list(x, y), .epochs = 10, .batch = 16, .progress = GD_PROGRESS_NONE);
    CHECK_SAYING(h, "%s", gd_error_message());
    CHECK(gd_history_rows(h) == 10);
    CHECK_SAYING(gd_history_last(h, "loss") < gd_history_value(h, "loss", 0), "%g", gd_history_last(h, "loss"));
    CHECK_SAYING(gd_history_last(h, "accuracy") > 0.8, "%g", gd_history_last(h, "accuracy"));
    gd_history *e = gd_evaluate(net, gd_list(x, y));
    CHECK_SAYING(e, "%s", gd_error_message());
    CHECK_SAYING(gd_history_last(e, "accuracy") > 0.8, "%g", gd_history_last(e, "accuracy"));
    gd_tensor *out = gd_predict(net, gd_list(x), .batch = 7);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(gd_tensor_dim(out, 0) == SAMPLES && gd_tensor_dim(out, 1) == CLASSES);
}

TEST_MAIN
