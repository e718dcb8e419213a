/* test_loss.c - classification losses beyond tests/cases: messages for wrong targets, all targets
 * ignored, bodies against kernels, and extreme values.
 */
#include <math.h>
#include <string.h>

#include "capture.h"
#include "compare.h"
#include "fault_walk.h"
#include "gradus/gradus.h"
#include "dispatch/call.h"
#include "test.h"

static gd_tensor *index_tensor(int64_t n, const int64_t *values) {
    return gd_from_array(gd_dims(n), GD_I64, values);
}

static bool close_to(double a, double b, double tolerance) {
    return (isnan(a) && isnan(b)) || a == b || fabs(a - b) <= tolerance * fmax(1, fabs(b));
}

/* --- wrong targets ---------------------------------------------------------------------------- */

TEST(a_class_out_of_range_is_reported_with_its_index) {
    static const gd_dtype dtypes[] = {GD_F32, GD_F64, GD_F16};
    for (int d = 0; d < 3; d++)
        for (int high = 0; high < 2; high++) {
            GD_SCOPE;
            enum { N = 5000, C = 10 };
            gd_tensor *x = gd_randn(gd_dims(N, C), .dtype = dtypes[d]),
                      *target = gd_randint(gd_dims(N), 0, C);
            int64_t *t = gd_data(target);
            /* the first bad target is reported, whichever thread finds it */
            t[4321] = 99;
            t[1234] = high ? C : -1;
            char expected[80];
            snprintf(expected, sizeof expected, "target 1234 is class %d, but classes are 0 to 9",
                     high ? C : -1);
            gd_tensor *y[2] = {gd_cross_entropy(x, target), NULL};
            CHECK(gd_tensor_is_error(y[0]) && gd_error_status() == GD_E_INDEX);
            CHECK_SAYING(strstr(gd_error_message(), expected), "%s", gd_error_message());
            gd_clear_error();
            y[1] = gd_nll_loss(x, target);
            CHECK(gd_tensor_is_error(y[1]) && gd_error_status() == GD_E_INDEX);
            CHECK_SAYING(strstr(gd_error_message(), expected), "%s", gd_error_message());
            gd_clear_error();
        }
}

TEST(a_target_that_broadcasts_gives_a_warning) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(8, 1))), *target = gd_rand(gd_dims(8));
    char line[40];
#define WARNS(name, call)                                                                       \
    do {                                                                                        \
        capture_log(GD_LOG_WARNING);                                                            \
        snprintf(line, sizeof line, "test_loss.c:%d)", __LINE__);                               \
        gd_tensor *loss = call;                                                                 \
        CHECK(gd_backward(gd_sum(loss)) == GD_OK && captured.warnings == 1);                    \
        CHECK_SAYING(strstr(captured.text, name ": x [8,1] and target [8] broadcast to [8,8]"), \
                     "%s", captured.text);                                                      \
        CHECK_SAYING(strstr(captured.text, line), "%s", captured.text);                         \
    } while (0)
    WARNS("mse_loss", gd_mse_loss(x, target));
    WARNS("l1_loss", gd_l1_loss(x, target));
    WARNS("smooth_l1_loss", gd_smooth_l1_loss(x, target));
    WARNS("huber_loss", gd_huber_loss(x, target));
    WARNS("kl_div", gd_kl_div(x, target));
    WARNS("hinge_loss", gd_hinge_loss(x, target));
    WARNS("hinge_embedding_loss", gd_hinge_embedding_loss(x, target));
#undef WARNS
    capture_log(GD_LOG_WARNING);
    gd_mse_loss(x, gd_reshape(target, gd_dims(8, 1)));
    gd_mse_loss(x, gd_scalar(1));
    CHECK(captured.warnings == 0);
    gd_graph *graph = gd_graph_new(); /* a graph warns once, when it is built */
    {
        GD_GRAPH(graph);
        gd_tensor *a = gd_placeholder(gd_dims(8, 1)), *loss = gd_mse_loss(a, target);
        gd_session *session = gd_session_new(graph);
        for (int i = 0; i < 3; i++) gd_session_run(session, gd_list(a, x), gd_list(loss));
    }
    CHECK_SAYING(captured.warnings == 1 && strstr(captured.text, "test_loss.c"), "%d %s",
                 captured.warnings, captured.text);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_clear_error();
    end_log_capture();
}

TEST(shapes_that_do_not_match_fail) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(4, 3)), *integer = gd_zeros(gd_dims(4), .dtype = GD_I64);
#define CHECK_FAILS(status, expression)                                                        \
    do {                                                                                       \
        CHECK(gd_tensor_is_error(expression));                                                 \
        CHECK_SAYING(gd_error_status() == status, "%s: %s", gd_status_name(gd_error_status()), \
                     gd_error_message());                                                      \
        CHECK_SAYING(strstr(gd_error_message(), "test_loss.c"), "%s", gd_error_message());     \
        gd_clear_error();                                                                      \
    } while (0)
    CHECK_FAILS(GD_E_SHAPE, gd_cross_entropy(x, gd_zeros(gd_dims(3), .dtype = GD_I64)));
    CHECK_FAILS(GD_E_SHAPE, gd_cross_entropy(x, gd_zeros(gd_dims(4, 1), .dtype = GD_I64)));
    CHECK_FAILS(GD_E_SHAPE, gd_cross_entropy(x, gd_zeros(gd_dims(4, 4))));
    CHECK_FAILS(GD_E_DTYPE, gd_cross_entropy(x, gd_zeros(gd_dims(4), .dtype = GD_BOOL)));
    CHECK_FAILS(GD_E_DTYPE, gd_cross_entropy(gd_zeros(gd_dims(4, 3), .dtype = GD_I32), integer));
    CHECK_FAILS(GD_E_SHAPE, gd_cross_entropy(gd_scalar(1), gd_scalar_int(0)));
    CHECK_FAILS(GD_E_SHAPE, gd_cross_entropy(x, integer, .weight = gd_ones(gd_dims(4))));
    CHECK_FAILS(GD_E_DTYPE,
                gd_cross_entropy(x, integer, .weight = gd_ones(gd_dims(3), .dtype = GD_F64)));
    CHECK_FAILS(GD_E_ARGUMENT, gd_cross_entropy(x, integer, .label_smoothing = 1.5));
    CHECK_FAILS(GD_E_DTYPE, gd_nll_loss(x, gd_zeros(gd_dims(4))));
    CHECK_FAILS(GD_E_SHAPE, gd_mse_loss(x, gd_zeros(gd_dims(4))));
    CHECK_FAILS(GD_E_DTYPE, gd_mse_loss(integer, integer));
    CHECK_FAILS(GD_E_SHAPE, gd_bce_loss(x, gd_zeros(gd_dims(3))));
    CHECK_FAILS(GD_E_SHAPE, gd_bce_with_logits(x, gd_zeros(gd_dims(3))));
    CHECK_FAILS(GD_E_ARGUMENT, gd_huber_loss(x, x, .delta = 0));
    CHECK_FAILS(GD_E_ARGUMENT, gd_smooth_l1_loss(x, x, .beta = -1));
    CHECK_FAILS(GD_E_SHAPE, gd_kl_div(gd_scalar(1), gd_scalar(1), .reduction = GD_BATCHMEAN));
    CHECK_FAILS(GD_E_SHAPE, gd_cosine_embedding_loss(x, x, gd_scalar(1)));
}

/* --- ignored targets -------------------------------------------------------------------------- */

TEST(ignoring_all_targets_gives_nan_as_mean_and_0_as_sum) {
    static const int64_t ignored[3] = {-100, -100, -100};
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(3, 4))), *target = index_tensor(3, ignored);
    CHECK(isnan(gd_item(gd_cross_entropy(x, target))));
    CHECK(isnan(gd_item(gd_nll_loss(x, target))));
    CHECK(gd_item(gd_cross_entropy(x, target, .reduction = GD_SUM)) == 0);
    CHECK(gd_item(gd_nll_loss(x, target, .reduction = GD_SUM)) == 0);
    CHECK(gd_backward(gd_cross_entropy(x, target, .reduction = GD_SUM)) == GD_OK);
    const float *g = gd_data(gd_tensor_grad(x));
    for (int i = 0; i < 12; i++) CHECK(g[i] == 0);
}

TEST(logits_of_an_ignored_target_have_no_effect) {
    static const int64_t values[3] = {1, -100, 0};
    for (int inner = 1; inner <= 2; inner++) {
        GD_SCOPE;
        float data[3][4] = {{1, 2, 3, 4}, {NAN, INFINITY, -INFINITY, NAN}, {4, 3, 2, 1}};
        gd_tensor *x = gd_from_array(gd_dims(3, 4), GD_F32, data),
                  *target = index_tensor(3, values);
        if (inner == 2) { /* classes along axis 1: (1,4,3) */
            x = gd_clone(gd_reshape(gd_permute(x, gd_dims(1, 0)), gd_dims(1, 4, 3)));
            target = gd_reshape(target, gd_dims(1, 3));
        }
        gd_requires_grad(x);
        gd_tensor *y = gd_cross_entropy(x, target);
        double first = log(exp(-1) + 1 + exp(1) + exp(2)),
               second = log(1 + exp(-1) + exp(-2) + exp(-3));
        CHECK_SAYING(close_to(gd_item(y), (first + second) / 2, 1e-6), "%g", gd_item(y));
        CHECK(gd_backward(y) == GD_OK);
        const float *g = gd_data(gd_tensor_grad(x));
        for (int i = 0; i < 12; i++) CHECK(isfinite(g[i]));
        for (int c = 0; c < 4; c++) CHECK(g[inner == 2 ? 3 * c + 1 : 4 + c] == 0);
    }
}

/* --- extreme values --------------------------------------------------------------------------- */

TEST(large_logits_keep_their_precision) {
    static const int64_t values[2] = {0, 1};
    GD_SCOPE;
    float data[2][3] = {{1000, 998, 990}, {-2000, -2003, -2001}};
    gd_tensor *x = gd_requires_grad(gd_from_array(gd_dims(2, 3), GD_F32, data));
    gd_tensor *y = gd_cross_entropy(x, index_tensor(2, values), .reduction = GD_NONE);
    const float *v = gd_data(y);
    CHECK(close_to(v[0], log1p(exp(-2) + exp(-10)), 1e-6));
    CHECK(close_to(v[1], 3 + log(1 + exp(-3) + exp(-1)), 1e-6));
    CHECK(gd_backward(gd_sum(y)) == GD_OK);
    const float *g = gd_data(gd_tensor_grad(x));
    double sum = 1 + exp(-2) + exp(-10);
    CHECK(close_to(g[0], 1 / sum - 1, 1e-6) && close_to(g[1], exp(-2) / sum, 1e-6));
}

TEST(bce_with_logits_and_its_gradient_are_finite_for_large_logits) {
    GD_SCOPE;
    float data[4] = {-500, -90, 90, 500}, targets[4] = {0, 1, 0, 1};
    gd_tensor *target = gd_from_array(gd_dims(4), GD_F32, targets);
    for (int weighted = 0; weighted < 2; weighted++) {
        gd_tensor *x = gd_requires_grad(gd_from_array(gd_dims(4), GD_F32, data));
        gd_tensor *y = gd_bce_with_logits(x, target, .reduction = GD_SUM,
                                          .pos_weight = weighted ? gd_full(gd_dims(1), 2) : NULL);
        CHECK(close_to(gd_item(y), weighted ? 270 : 180, 1e-6));
        gd_tensors g = gd_grad(gd_list(y), gd_list(x), .create_graph = true);
        gd_tensors h = gd_grad(gd_list(gd_sum(g.at[0])), gd_list(x));
        const float *first = gd_data(g.at[0]), *second = gd_data(h.at[0]);
        for (int i = 0; i < 4; i++) CHECK(isfinite(first[i]) && isfinite(second[i]));
        CHECK(first[1] == (weighted ? -2 : -1) && first[2] == 1);
    }
}

/* --- kernels and bodies ----------------------------------------------------------------------- */

/* Compares the op's body with its kernel. */
static void check_body(const char *name, gd_tensors inputs, const char *options, double tolerance) {
    const gd_op *op = gd_op_find(name);
    gd_tensor *from_kernel = gd_call(name, inputs, options), *y[4] = {NULL};
    gd_attrs *attrs = gd_attrs_new(op);
    CHECK(gd_attrs_parse(attrs, options) == GD_OK);
    gd_expansion body = {
        op, gd_attrs_data(attrs), (int)inputs.count, op->n_outputs, (gd_tensor **)inputs.at, y};
    op->expand(&body);
    char why[256];
    CHECK_SAYING(tensors_agree(y[0], from_kernel, tolerance, why), "%s %s: %s", name, options, why);
    gd_clear_error();
}

TEST(bodies_agree_with_kernels) {
    static const char *const options[] = {"", "reduction=sum", "reduction=none", "ignore_index=1",
                                          "ignore_index=1 reduction=none"};
    static const gd_shape shapes[] = {
        {{5}, 1, 1}, {{7, 5}, 2, 1}, {{3, 5, 4}, 3, 1}, {{2, 5, 3, 4}, 4, 1}};
    for (int s = 0; s < 4; s++)
        for (int weighted = 0; weighted < 2; weighted++)
            for (int o = 0; o < 5; o++) {
                GD_SCOPE;
                gd_seed(7);
                gd_shape places = {.form = 1};
                for (int k = 0; k < shapes[s].rank; k++)
                    if (k != (shapes[s].rank > 1)) places.at[places.rank++] = shapes[s].at[k];
                gd_tensor *x = gd_randn(shapes[s], .dtype = GD_F64),
                          *target = gd_randint(places, 0, 5);
                gd_tensor *weight =
                    weighted ? gd_uniform(gd_dims(5), .low = 0.5, .high = 2, .dtype = GD_F64)
                             : NULL;
                gd_tensors in = gd_list(x, target, weight);
                char smooth[80];
                snprintf(smooth, sizeof smooth, "%s label_smoothing=0.3", options[o]);
                check_body("nll_loss", in, options[o], 1e-12);
                check_body("index_cross_entropy", in, options[o], 1e-12);
                check_body("index_cross_entropy", in, smooth, 1e-12);
            }
}

/* --- the axis of the classes ------------------------------------------------------------------ */

/* The loss of x with its classes moved from `axis` to axis 1, where they are by default. */
static void check_axis(gd_shape shape, int axis, gd_shape targets, double smoothing, bool numbers) {
    static const gd_word reductions[] = {GD_NONE, GD_MEAN, GD_SUM};
    GD_SCOPE;
    const int classes = (int)shape.at[axis];
    gd_tensor *x = gd_randn(shape), *first = gd_clone(gd_movedim(x, gd_dims(axis), gd_dims(1)));
    gd_tensor *target =
        numbers ? gd_randint(targets, 0, classes) : gd_softmax(gd_randn(shape), .axis = axis);
    gd_tensor *moved = numbers ? target : gd_movedim(target, gd_dims(axis), gd_dims(1));
    gd_tensor *weight = gd_add(gd_rand(gd_dims(classes)), gd_scalar(0.5));
    gd_requires_grad(x), gd_requires_grad(first);
    for (int weighted = 0; weighted < 2; weighted++)
        for (int k = 0; k < 3; k++) {
            const int given = weighted ? axis - shape.rank : axis; /* negative: from the end */
            gd_cross_entropy_options o = gd_cross_entropy_defaults();
            o.label_smoothing = smoothing;
            o.reduction = reductions[k];
            o.weight = weighted ? weight : NULL;
            gd_tensor *expected = gd_cross_entropy_at(NULL, first, moved, &o);
            o.axis = given;
            gd_tensor *y = gd_cross_entropy_at(NULL, x, target, &o);
            CHECK_SAYING(gd_item(gd_max(gd_abs(gd_sub(y, expected)))) < 1e-6 && !gd_failed(),
                         "axis=%d: %s", given, gd_error_message());
            gd_zero_grad(x), gd_zero_grad(first);
            gd_backward(gd_sum(y));
            gd_backward(gd_sum(expected));
            gd_tensor *gx = gd_movedim(gd_tensor_grad(x), gd_dims(axis), gd_dims(1));
            CHECK_SAYING(gd_item(gd_max(gd_abs(gd_sub(gx, gd_tensor_grad(first))))) < 1e-6,
                         "axis=%d", given);
        }
}

TEST(classes_on_another_axis_give_the_loss_of_axis_1) {
    gd_seed(2);
    for (int numbers = 0; numbers < 2; numbers++)
        for (double smoothing = 0; smoothing < 0.3; smoothing += 0.2) {
            check_axis(gd_dims(3, 4, 5), 2, gd_dims(3, 4), smoothing, numbers);
            check_axis(gd_dims(3, 4, 4), 2, gd_dims(3, 4), smoothing, numbers);
            check_axis(gd_dims(2, 3, 4, 5), 3, gd_dims(2, 3, 4), smoothing, numbers);
            check_axis(gd_dims(2, 3, 4, 5), 2, gd_dims(2, 3, 5), smoothing, numbers);
            check_axis(gd_dims(6, 5), 1, gd_dims(6), smoothing, numbers);
        }
}

TEST(a_wrong_axis_says_which_one_fits) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(2, 4, 3)), *target = gd_randint(gd_dims(2, 4), 0, 3);
    CHECK(gd_tensor_is_error(gd_cross_entropy(x, target)));
    CHECK_SAYING(strstr(gd_error_message(),
                        "without its dimension 1, the classes; with axis=-1 they would fit"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_cross_entropy(x, target, .axis = 0)));
    CHECK_SAYING(strstr(gd_error_message(), "axis is 0, the axis of the samples"), "%s",
                 gd_error_message());
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_cross_entropy(x, target, .axis = 3)));
    gd_clear_error();
}

TEST(failed_allocations_return_a_status) {
    for (fault_walk w = {.what = "cross entropy", .lasting = true}; fault_next(&w);) {
        GD_SCOPE;
        gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(40, 7))),
                  *target = gd_randint(gd_dims(40), 0, 7);
        fault_begin(&w);
        gd_tensor *y = gd_cross_entropy(x, target, .label_smoothing = 0.1);
        gd_status status = gd_tensor_is_error(y) ? gd_error_status() : gd_backward(y);
        fault_end(&w);
        CHECK_FAULT(&w, status);
    }
}

TEST_MAIN
