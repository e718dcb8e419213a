/* test_nn.c - initial weights, and layers that create their own variables. */
#include <math.h>

#include "compare.h"
#include "fault_walk.h"
#include "gradus/gradus.h"
#include "test.h"

/* --- initial weights -------------------------------------------------------------------------- */

static double deviation(gd_tensor *x) { return sqrt(gd_item(gd_mean(gd_mul(x, x)))); }

static void check_spread(const char *what, gd_tensor *x, double expected, bool normal) {
    const double most = gd_item(gd_max(gd_abs(x))), got = deviation(x);
    CHECK_SAYING(!gd_failed() && fabs(got / expected - 1) < 0.02, "%s: deviation %g, not %g", what,
                 got, expected);
    CHECK_SAYING(fabs(gd_item(gd_mean(x))) < 0.05 * expected, "%s: mean %g", what,
                 gd_item(gd_mean(x)));
    /* uniform numbers end at sqrt(3) deviations, normal ones exceed it */
    CHECK_SAYING(normal ? most > 2.5 * expected
                        : most > 1.7 * expected && most <= 1.7321 * expected,
                 "%s: up to %g", what, most);
}

TEST(initial_weights_scale_with_their_fans) {
    GD_SCOPE;
    gd_seed(3);
    check_spread("xavier_uniform", gd_init_xavier_uniform(gd_dims(300, 100)), sqrt(2.0 / 400),
                 false);
    check_spread("xavier_normal", gd_init_xavier_normal(gd_dims(300, 100)), sqrt(2.0 / 400), true);
    check_spread("kaiming_uniform", gd_init_kaiming_uniform(gd_dims(300, 100)), sqrt(2.0 / 100),
                 false);
    check_spread("kaiming_normal", gd_init_kaiming_normal(gd_dims(300, 100)), sqrt(2.0 / 100),
                 true);
    check_spread("a convolution's", gd_init_xavier_uniform(gd_dims(64, 32, 3, 3)),
                 sqrt(2.0 / (9 * 96)), false);
    check_spread("a convolution's", gd_init_kaiming_normal(gd_dims(64, 32, 3, 3)),
                 sqrt(2.0 / (9 * 32)), true);
    check_spread("gain", gd_init_xavier_normal(gd_dims(300, 100), .gain = 5.0 / 3),
                 5.0 / 3 * sqrt(2.0 / 400), true);
    check_spread("LeCun's", gd_init_kaiming_normal(gd_dims(300, 100), .gain = 1, .dtype = GD_F64),
                 0.1, true);
    CHECK(gd_tensor_dtype(gd_init_xavier_normal(gd_dims(3, 2), .dtype = GD_BF16)) == GD_BF16);
    CHECK(gd_tensor_numel(gd_init_kaiming_uniform(gd_dims(3, 0))) == 0 && !gd_failed());
    CHECK(gd_tensor_is_error(gd_init_xavier_uniform(gd_dims(3))));
    CHECK(strstr(gd_error_message(), "at least two, not 1") &&
          strstr(gd_error_message(), "test_nn.c"));
    gd_clear_error();
}

/* --- dense ------------------------------------------------------------------------------------ */

TEST(a_dense_layer_is_linear_with_its_own_variables) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(GD_ANY, 5, 7));
        y = gd_dense(gd_dense(x, 40, .activation = "gelu", .name = "hidden"), 3, .name = "output",
                     .bias = false);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_session *session = gd_session_new(graph);
    gd_tensor *w = gd_session_get(session, gd_graph_find(graph, "hidden/weight")),
              *b = gd_session_get(session, gd_graph_find(graph, "hidden/bias"));
    gd_tensor *w2 = gd_session_get(session, gd_graph_find(graph, "output/weight"));
    CHECK(gd_graph_variables(graph).count == 3 && gd_graph_find(graph, "output/bias") == NULL);
    CHECK(gd_tensor_dim(w, 0) == 40 && gd_tensor_dim(w, 1) == 7 && gd_item(gd_sum(gd_abs(b))) == 0);
    CHECK(gd_item(gd_max(gd_abs(w))) <= sqrt(6.0 / 47) && deviation(w) > 0.8 * sqrt(2.0 / 47));
    for (int64_t batch = 1; batch < 4; batch++) {
        gd_tensor *value = gd_randn(gd_dims(batch, 5, 7));
        gd_tensor *got = gd_session_run(session, gd_feed(x, value), gd_list(y)).at[0];
        CHECK(tensors_distance(got, gd_linear(gd_gelu(gd_linear(value, w, b)), w2, NULL)) < 1e-5);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST(a_dense_layer_uses_the_given_initializers) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(2, 4), .dtype = GD_F64);
        y = gd_dense(x, 3, .weight = gd_full(gd_dims(3, 4), 0.5, .dtype = GD_F64),
                     .trainable = false);
    }
    CHECK(gd_graph_variables(graph).count == 0);
    gd_tensor *got = gd_session_run(gd_session_new(graph),
                                    gd_feed(x, gd_ones(gd_dims(2, 4), .dtype = GD_F64)), gd_list(y))
                         .at[0];
    CHECK_SAYING(!gd_failed() && gd_tensor_dtype(got) == GD_F64 && gd_item(gd_sum(got)) == 12, "%s",
                 gd_error_message());
}

#define CHECK_FAILS(call, ...)                                                             \
    do {                                                                                   \
        CHECK(gd_tensor_is_error(call));                                                   \
        const char *const words[] = {__VA_ARGS__, "test_nn.c"};                            \
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)                          \
            CHECK_SAYING(strstr(gd_error_message(), words[i]), "no '%s' in: %s", words[i], \
                         gd_error_message());                                              \
        gd_clear_error();                                                                  \
    } while (0)

TEST(misuse_of_a_dense_layer_fails_with_a_message) {
    GD_SCOPE;
    CHECK_FAILS(gd_dense(gd_ones(gd_dims(2, 3)), 4), "GD_GRAPH");
    gd_graph *graph = gd_graph_new();
    {
        GD_GRAPH(graph);
        gd_tensor *x = gd_placeholder(gd_dims(2, 3));
        CHECK_FAILS(gd_dense(x, 0), "units is 0");
        CHECK_FAILS(gd_dense(NULL, 3), "x is NULL");
        CHECK_FAILS(gd_dense(gd_placeholder(gd_dims()), 3), "scalar");
        CHECK_FAILS(gd_dense(gd_placeholder(gd_dims(2, GD_ANY)), 3), "not known");
        CHECK_FAILS(gd_dense(gd_placeholder(gd_dims(2, 3), .dtype = GD_I64), 3), "i64");
        CHECK_FAILS(gd_dense(x, 4, .activation = "rellu"), "no op 'rellu'");
        CHECK_FAILS(gd_dense(x, 4, .activation = "add"), "add is not an activation");
        CHECK_FAILS(gd_dense(x, 4, .activation = "reshape"), "reshape is not an activation");
        CHECK_FAILS(gd_dense(x, 4, .weight = gd_zeros(gd_dims(3, 4))), "(units, n), here (4, 3)");
        CHECK_FAILS(gd_dense(x, 4, .weight = gd_zeros(gd_dims(4, 3), .dtype = GD_F64)),
                    "weight is f64, x f32");
        CHECK(gd_graph_variables(graph).count == 0); /* no variables remain after a failure */
        gd_dense(x, 4, .name = "layer");
        CHECK_FAILS(gd_dense(x, 4, .name = "layer"), "layer/weight");
    }
}

TEST(failed_allocations_of_a_layer_return_a_status) {
    GD_SCOPE;
    for (fault_walk w = {.what = "gd_dense", .lasting = true}; fault_next(&w);) {
        GD_SCOPE;
        gd_graph *graph = gd_graph_new();
        GD_GRAPH(graph);
        gd_tensor *x = gd_placeholder(gd_dims(2, 3));
        fault_begin(&w);
        gd_tensor *y = gd_dense(x, 4, .activation = "relu", .name = "layer");
        fault_end(&w);
        CHECK_ROUND(&w, gd_failed() == gd_tensor_is_error(y));
        CHECK_FAULT(&w, gd_error_status());
    }
}

TEST_MAIN
