/* test_passes.c - the effect of each pass on a program, checked in its text. */
#include <math.h>

#include "capture.h"
#include "dispatch/infer.h"
#include "program.h"

TEST(prune_removes_unused_nodes) {
    IN_GRAPH(g, 2, 3);
    y = gd_sin(x);
    gd_tensors parts = gd_split(gd_exp(x), gd_dims(1)); /* two views; one is used */
    y = gd_sum(parts.at[1]);
    FETCH(y);
    check_text(p, "%1 f32[2,3] = exp(%0 (feed 0) f32[2,3])\n"
                  "%2 f32[1,3], %3 f32[1,3] = split(%1) sizes=[1]\n"
                  "%4 f32[] = sum(%3)\n"
                  "fetch %4\n");
    CHECK(run_pass(p, "prune") ==
          0);                   /* sin was never in the program: lowering starts at the fetch */
    p->steps[2].removed = true; /* as if the sum had been fused into another step */
    p->fetches[0] = 0;
    CHECK(run_pass(p, "prune") == 2);
    check_text(p, "fetch %0\n");
    gd_program_free(p);
}

/* group awaits y, which is also read, and z, which is not. */
TEST(prune_drops_awaited_operands_that_are_computed_anyway) {
    GD_SCOPE;
    gd_graph *g = gd_graph_new();
    gd_tensor *x, *y, *done;
    {
        GD_GRAPH(g);
        x = gd_placeholder(gd_dims(2, 3));
        y = gd_exp(x);
        done = gd_group(gd_list(y, gd_reshape(gd_sin(x), gd_dims(6)), x));
        y = gd_sum(y);
    }
    gd_program *p = program_of(gd_list(x), gd_list(gd_full(gd_dims(2, 3), 1)), gd_list(done, y));
    CHECK(run_pass(p, "prune") > 0);
    check_text(p, "%1 f32[2,3] = exp(%0 (feed 0) f32[2,3])\n"
                  "%2 f32[2,3] = sin(%0 (feed 0) f32[2,3])\n"
                  "%4 bool[] = group(%3)\n"
                  "%5 f32[] = sum(%1)\n"
                  "fetch %4 %5\n");
    CHECK(run_pass(p, "prune") == 0);
    gd_program_free(p);
}

TEST(share_merges_equal_nodes) {
    IN_GRAPH(g, 2, 3);
    y = gd_add(gd_sin(gd_mul(x, x)), gd_sin(gd_mul(x, x)));
    FETCH(y);
    CHECK(run_pass(p, "cse") == 2);
    check_text(p, "%1 f32[2,3] = mul(%0 (feed 0) f32[2,3], %0 (feed 0) f32[2,3])\n"
                  "%2 f32[2,3] = sin(%1)\n"
                  "%5 f32[2,3] = add(%2, %2)\n"
                  "fetch %5\n");
    gd_program_free(p);
}

TEST(share_keeps_the_control_edges_of_merged_nodes) {
    IN_GRAPH(g, 2, 3);
    gd_tensor *plain = gd_layer_norm(x, NULL, NULL), *again = gd_layer_norm(x, NULL, NULL);
    gd_tensor *slope = gd_gradients(gd_list(gd_sum(gd_mul(again, again))), gd_list(x)).at[0];
    y = gd_add(plain, slope);
    FETCH(y);
    CHECK(run_pass(p, "prune") > 0); /* the first step no longer saves a value for a gradient */
    CHECK(p->steps[0].out[1] < 0 && p->steps[1].out[1] >= 0);
    const int mean = p->steps[1].out[1];
    CHECK(run_pass(p, "cse") == 1);
    CHECK(!p->steps[0].removed && p->steps[1].removed && p->steps[0].out[1] == mean);
    gd_program_free(p);
}

TEST(share_keeps_random_ops_and_different_options_apart) {
    IN_GRAPH(g, 2, 3);
    y = gd_add(gd_add(gd_dropout(x), gd_dropout(x)),
               gd_add(gd_leaky_relu(x, .slope = 0.1), gd_leaky_relu(x, .slope = 0.2)));
    FETCH(y);
    CHECK(run_pass(p, "cse") == 0);
    gd_program_free(p);
}

TEST(fold_evaluates_constant_nodes) {
    IN_GRAPH(g, 2, 3);
    y = gd_mul(x, gd_sqrt(gd_add(gd_full(gd_dims(3), 7), gd_ones(gd_dims(3)))));
    FETCH(y);
    CHECK(run_pass(p, "fold") == 4);
    check_text(p, "%5 f32[2,3] = mul(%0 (feed 0) f32[2,3], %4 (captured 4) f32[3])\n"
                  "fetch %5\n");
    CHECK(((float *)p->roots[4].storage->data)[0] > 2.82f &&
          ((float *)p->roots[4].storage->data)[2] < 2.83f);
    gd_program_free(p);
}

TEST(simplify_removes_neutral_ops) {
    IN_GRAPH(g, 2, 3);
    y = gd_div(gd_sub(gd_add(gd_mul(gd_ones(gd_dims(3)), x), gd_zeros(gd_dims(2, 3))),
                      gd_zeros(gd_dims(3))),
               gd_ones(gd_dims(1)));
    y = gd_sin(y);
    FETCH(y);
    CHECK(run_pass(p, "fold") == 4 && run_pass(p, "simplify") == 4);
    CHECK(run_pass(p, "prune") >= 0);
    check_text(p, "%9 f32[2,3] = sin(%0 (feed 0) f32[2,3])\n"
                  "fetch %9\n");
    gd_program_free(p);
}

TEST(simplify_removes_a_neutral_clamp_to_infinity) {
    IN_GRAPH(g, 2, 3);
    y = gd_sin(gd_logaddexp(x, gd_full(gd_dims(3), -INFINITY)));
    FETCH(y);
    CHECK(run_pass(p, "fold") == 1 && run_pass(p, "simplify") == 1);
    gd_program_free(p);
}

TEST(simplify_keeps_a_neutral_op_that_broadcasts) {
    IN_GRAPH(g, 2, 3);
    y = gd_mul(gd_sum(x, .axis = 1, .keepdim = true), gd_ones(gd_dims(2, 3)));
    FETCH(y);
    CHECK(run_pass(p, "fold") == 1 && run_pass(p, "simplify") == 0);
    gd_program_free(p);
}

TEST(simplify_merges_views_and_removes_inverse_pairs) {
    IN_GRAPH(g, 2, 3);
    gd_tensor *there_and_back = gd_permute(gd_permute(x, gd_dims(1, 0)), gd_dims(1, 0));
    gd_tensor *reshaped = gd_reshape(gd_reshape(there_and_back, gd_dims(6)), gd_dims(2, 3));
    y = gd_exp(gd_neg(gd_neg(gd_relu(gd_relu(gd_clone(reshaped))))));
    FETCH(y);
    while (run_pass(p, "simplify") > 0) {
    }
    CHECK(run_pass(p, "prune") >= 0);
    check_text(p, "%6 f32[2,3] = relu(%0 (feed 0) f32[2,3])\n"
                  "%10 f32[2,3] = exp(%6)\n"
                  "fetch %10\n");
    gd_program_free(p);
}

/* User-defined ops are simplified according to their records. */
TEST(simplify_uses_the_properties_of_user_defined_ops) {
    CHECK(gd_op_define("pass_blend(a, b) -> y  elementwise\nOf a and b.\n  y = max(a, b) - min(b, "
                       "3)\n  neutral b 3\n",
                       NULL) == GD_OK);
    CHECK(gd_op_define("pass_hold(x) -> y  elementwise idempotent\nAt most `most`.\n  most float = "
                       "1\n  y = min(x, most)\n",
                       NULL) == GD_OK);
    CHECK(gd_op_define("pass_turn(x) -> y  elementwise involution\n1 - x.\n  y = 1 - x\n", NULL) ==
          GD_OK);
    IN_GRAPH(g, 2, 3);
    y = gd_call("pass_blend", gd_list(x, gd_full(gd_dims(3), 3)), NULL); /* gives x */
    y = gd_call("pass_blend", gd_list(gd_full(gd_dims(3), 3), y), NULL); /* stays */
    y = gd_call("pass_hold", gd_list(gd_call("pass_hold", gd_list(y), "most=2")),
                "most=2");                          /* applied once */
    y = gd_call("pass_hold", gd_list(y), "most=3"); /* other options: stays */
    y = gd_call("pass_turn", gd_list(gd_call("pass_turn", gd_list(y), NULL)), NULL); /* cancels */
    y = gd_exp(y);
    FETCH(y);
    CHECK(run_pass(p, "fold") == 2);
    while (run_pass(p, "simplify") > 0) {
    }
    CHECK(run_pass(p, "prune") >= 0);
    char *text = gd_program_text(p);
    int steps = 0;
    for (const char *at = text; (at = strstr(at, " = ")); at++) steps++;
    CHECK_SAYING(steps == 4 && strstr(text, "pass_hold(%4) most=2") && strstr(text, "most=3") &&
                     !strstr(text, "pass_turn"),
                 "%s", text);
    free(text);
    gd_program_free(p);
}

TEST(invalid_properties_in_records_fail) {
    CHECK(gd_op_define("pass_bad(a, b, c) -> y  elementwise\nx.\n  y = a + b + c\n  neutral a 0\n",
                       NULL) == GD_E_ARGUMENT);
    CHECK_SAYING(strstr(gd_error_message(), "two inputs"), "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_op_define("pass_bad(a, b) -> y  elementwise\nx.\n  y = a + b\n  neutral c 0\n",
                       NULL) == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(gd_op_define("pass_bad(a, b) -> y  elementwise\nx.\n  y = a + b\n  neutral a none\n",
                       NULL) == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(gd_op_define("pass_bad(a, b) -> y  elementwise idempotent\nx.\n  y = a + b\n", NULL) ==
          GD_E_ARGUMENT);
    gd_clear_error();
    static const char *const lines[] = {"control branch",
                                        "control maybe",
                                        "reduces sum",
                                        "fills a",
                                        "fuses relu(a, b)",
                                        "fuses relu",
                                        "fuses relu(linear(a)",
                                        "fuses relu(linear(a, c))",
                                        "fuses relu(tanh(exp(a)))",
                                        "index c < a[0]",
                                        "index a b",
                                        "index a < c",
                                        "index a < b",
                                        "index a < b[x]",
                                        "index a < b[0] or none",
                                        "index a < b[-1]",
                                        "index a < b[0",
                                        "index a < b[0:1]",
                                        "index a < b[:]",
                                        "gives a < b[0]",
                                        "gives y b[0]",
                                        "gives y < y[0]",
                                        "gives y < b"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char record[160];
        snprintf(record, sizeof record, "pass_bad(a, b) -> y  elementwise\nx.\n  y = a + b\n  %s\n",
                 lines[i]);
        CHECK_SAYING(gd_op_define(record, NULL) == GD_E_ARGUMENT, "%s", lines[i]);
        gd_clear_error();
    }
}

/* A product with every element squared and divided by `by`, as linear_relu is for linear and
 * relu. */
static gd_status product_squared_infer(gd_infer *i) {
    const gd_tensor *a = i->in[0], *b = i->in[1];
    if (a->rank != 2 || b->rank != 2 || a->dims[1] != b->dims[0])
        return gd_op_fail(GD_E_SHAPE, "matrices only");
    gd_meta_like(&i->out[0], a);
    i->out[0].dims[1] = b->dims[1];
    return GD_OK;
}
static gd_status product_squared(gd_kernel_call *k) {
    const double *a = k->in[0].data, *b = k->in[1].data;
    const int64_t m = k->in[0].dims[0], n = k->in[1].dims[1], inner = k->in[1].dims[0];
    const double by = *(const double *)k->attrs;
    for (int64_t i = 0; i < m * n; i++) {
        double sum = 0;
        for (int64_t l = 0; l < inner; l++) sum += a[i / n * inner + l] * b[l * n + i % n];
        ((double *)k->out[0].data)[i] = sum * sum / by;
    }
    return GD_OK;
}

/* Two steps become one step of a user-defined op according to its record: with its options, and
 * only where it is valid. */
TEST(epilogue_uses_the_properties_of_user_defined_ops) {
    const gd_op_rules rules = {.infer = product_squared_infer,
                               .reference = product_squared,
                               .reference_flags = GD_KERNEL_DOUBLE};
    CHECK(gd_op_define("pass_scaled_square(x) -> y  elementwise\nx.\n  by float = 1\n  plus float "
                       "= 0\n  y = x * x / by + plus\n",
                       NULL) == GD_OK);
    CHECK(gd_op_define("pass_product_squared(a, b) -> y  nograd\nx.\n  by float = 1\n  fuses "
                       "pass_scaled_square(matmul(a, b))\n",
                       &rules) == GD_OK);
    struct {
        const char *options;
        bool batch, other, fused;
    } cases[] = {
        {"by=2", false, false, true},
        {"by=2 plus=1", false, false, false}, /* an option that the op does not have */
        {"by=2", true, false, false},         /* its infer rule does not accept three axes */
        {"by=2", false, true, false},         /* the product has two readers */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GD_SCOPE;
        gd_tensor *value =
                      cases[i].batch ? gd_full(gd_dims(2, 2, 3), 1) : gd_full(gd_dims(2, 3), 1),
                  *x, *y;
        gd_graph *g = gd_graph_new();
        {
            GD_GRAPH(g);
            x = gd_placeholder(gd_tensor_shape(value));
            gd_tensor *product = gd_matmul(x, gd_full(gd_dims(3, 2), 0.5));
            y = gd_call("pass_scaled_square", gd_list(product), cases[i].options);
            if (cases[i].other) y = gd_add(y, product);
        }
        gd_program *p = program_of(gd_list(x), gd_list(value), gd_list(y));
        CHECK(run_pass(p, "epilogue") == cases[i].fused);
        char *text = gd_program_text(p);
        CHECK_SAYING(!strstr(text, "pass_product_squared(%0 (feed 0) f32[2,3], %1) by=2") ==
                         !cases[i].fused,
                     "%s", text);
        free(text);
        gd_program_free(p);
        gd_session *session = gd_session_new(g, .level = 2);
        gd_tensors result = gd_session_run(session, gd_feed(x, value), gd_list(y));
        CHECK(gd_item(gd_max(result.at[0])) == (i == 1 ? 2.125 : i == 3 ? 2.625 : 1.125));
    }
}

TEST(epilogue_fuses_relu_and_gradient_descent_into_products) {
    GD_SCOPE;
    gd_graph *g = gd_graph_new();
    gd_tensor *x, *w, *loss, *train;
    {
        GD_GRAPH(g);
        x = gd_placeholder(gd_dims(2, 3));
        w = gd_variable(gd_randn(gd_dims(4, 3)));
        loss = gd_sum(gd_square(gd_relu(gd_linear(x, w, NULL))));
        train = gd_minimize(gd_optim_sgd(gd_list(w)), loss);
    }
    gd_program *p = program_of(gd_list(x), gd_list(gd_full(gd_dims(2, 3), 1)), gd_list(train));
    CHECK(run_pass(p, "prune") >= 0 && run_pass(p, "epilogue") == 2);
    char *text = gd_program_text(p);
    CHECK_SAYING(text && strstr(text, "linear_relu(") && strstr(text, "matmul_step(") &&
                     !strstr(text, "sgd_step"),
                 "%s", text);
    free(text);
    gd_program_free(p);
}

/* CPU kernels of the ops that batch norms are fused into. They match only in the test below, which
 * does not run them. */
static bool fuses_norms;
static bool fused_norm_match(const gd_kernel_call *call) {
    (void)call;
    return fuses_norms;
}
static gd_status fused_norm_run(gd_kernel_call *call) {
    (void)call;
    return GD_E_UNSUPPORTED;
}
#define FUSED_NORM(name)                                                                      \
    {                                                                                         \
        .op = name, .variant = "pass", .device = "cpu", .rank = 1, .match = fused_norm_match, \
        .run = fused_norm_run                                                                 \
    }
static const gd_kernel fused_norms[] = {
    FUSED_NORM("batch_norm_relu"),
    FUSED_NORM("batch_norm_add"),
    FUSED_NORM("batch_norm_add_relu"),
    FUSED_NORM("batch_norm_relu_grad"),
    FUSED_NORM("batch_norm_add_relu_grad"),
    FUSED_NORM("batch_norm_add_relu_sum_grad"),
    FUSED_NORM("batch_norm_relu_grad_from_x"),
    FUSED_NORM("batch_norm_add_relu_sum_grad"),
    FUSED_NORM("batch_norm_relu_grad_from_x"),
};

/* The training step of a residual block: x -> norm -> relu -> (norm + the same) -> relu. */
TEST(epilogue_fuses_batch_norm_addition_and_relu) {
    for (size_t i = 0; i < sizeof fused_norms / sizeof *fused_norms; i++)
        CHECK(gd_kernel_register(&fused_norms[i]) == GD_OK);
    for (int variant = 0; variant < 3; variant++) {
        GD_SCOPE;
        gd_graph *g = gd_graph_new();
        gd_tensor *x, *w, *w2, *mean, *var, *mean2, *var2, *y, *z;
        gd_tensors gradients;
        {
            GD_GRAPH(g);
            x = gd_placeholder(gd_dims(4, 3, 5));
            w = gd_variable(gd_full(gd_dims(3), 1));
            w2 = gd_variable(gd_full(gd_dims(3), 2));
            mean = gd_variable(gd_full(gd_dims(3), 0));
            var = gd_variable(gd_full(gd_dims(3), 1));
            mean2 = gd_variable(gd_full(gd_dims(3), 0));
            var2 = gd_variable(gd_full(gd_dims(3), 1));
            y = gd_relu(gd_batch_norm(x, w, NULL, mean, var, .training = true));
            z = gd_batch_norm(y, w2, NULL, mean2, var2, .training = true);
            gd_tensor *sum = variant == 0 ? gd_add(z, y) : gd_add(y, z);
            /* variant 2: the sum is read by another step, so relu cannot be part of it */
            gd_tensor *last = variant == 2 ? gd_mul(gd_relu(sum), sum) : gd_relu(sum);
            gradients = gd_gradients(gd_list(gd_sum(gd_square(last))), gd_list(w, w2));
        }
        gd_program *p = program_of(gd_list(x), gd_list(gd_full(gd_dims(4, 3, 5), 1)),
                                   gd_list(gradients.at[0], gradients.at[1]));
        fuses_norms = true;
        CHECK(run_pass(p, "prune") >= 0 && run_pass(p, "epilogue") == (variant == 2 ? 4 : 6));
        fuses_norms = false;
        char *text = gd_program_text(p);
        CHECK_SAYING(text && strstr(text, "= batch_norm_relu(") && !strstr(text, "= batch_norm(") &&
                         strstr(text, "= batch_norm_relu_grad_from_x(") &&
                         !strstr(text, "= batch_norm_add(") == (variant != 2) &&
                         !strstr(text, "= batch_norm_add_relu(") == (variant == 2) &&
                         !strstr(text, "= batch_norm_add_relu_grad(") == (variant == 2) &&
                         !strstr(text, "= relu(") == (variant != 2),
                     "%d: %s", variant, text);
        free(text);
        gd_program_free(p);
    }
}

TEST(epilogue_fuses_the_relu_mask_into_the_gradient_product) {
    GD_SCOPE;
    gd_graph *g = gd_graph_new();
    gd_tensor *x, *w, *v, *y, *gw;
    {
        GD_GRAPH(g);
        x = gd_placeholder(gd_dims(2, 3));
        w = gd_variable(gd_randn(gd_dims(4, 3)));
        v = gd_variable(gd_randn(gd_dims(5, 4)));
        y = gd_linear(gd_relu(gd_linear(x, w, NULL)), v, NULL);
        gw = gd_gradients(gd_list(y), gd_list(w)).at[0];
    }
    gd_program *p = program_of(gd_list(x), gd_list(gd_full(gd_dims(2, 3), 1)), gd_list(gw));
    CHECK(run_pass(p, "prune") >= 0 && run_pass(p, "epilogue") == 2);
    char *text = gd_program_text(p);
    CHECK_SAYING(text && strstr(text, "matmul_relu_grad(") && !strstr(text, "relu.gx"), "%s", text);
    free(text);
    gd_program_free(p);
    /* the same values; NaN propagates as in the gradient of relu */
    gd_session *plain = gd_session_new(g, .level = 0), *fast = gd_session_new(g, .level = 2);
    gd_tensor *data = gd_from_array(gd_dims(2, 3), GD_F32, (float[]){1, -2, 3, NAN, 0, 1});
    gd_session_set(fast, w, gd_session_get(plain, w));
    gd_session_set(fast, v, gd_session_get(plain, v));
    gd_tensor *a = gd_session_run(plain, gd_feed(x, data), gd_list(gw)).at[0];
    gd_tensor *b = gd_session_run(fast, gd_feed(x, data), gd_list(gw)).at[0];
    float one[12], other[12];
    CHECK(gd_copy_to(a, one, sizeof one) == GD_OK && gd_copy_to(b, other, sizeof other) == GD_OK);
    for (int i = 0; i < 12; i++)
        CHECK(fabsf(one[i] - other[i]) < 1e-4f || (isnan(one[i]) && isnan(other[i])));
}

/* Shapes for each convolution algorithm of the CPU: products, Winograd, and direct by groups. */
static const struct {
    int64_t x[4], w[4];
    const char *options;
} convolutions[] = {
    {{2, 3, 8, 9}, {4, 3, 1, 1}, ""},
    {{2, 3, 17, 16}, {4, 3, 5, 3}, "stride=2 padding=1"},
    {{2, 32, 14, 13}, {40, 32, 3, 3}, "padding=1"},
    {{2, 8, 9, 9}, {8, 1, 3, 3}, "pad_mode=same groups=8"},
};

TEST(epilogue_fuses_relu_into_convolutions) {
    for (int i = 0; i < 4; i++)
        for (int biased = 0; biased < 2; biased++) {
            GD_SCOPE;
            gd_graph *g = gd_graph_new();
            gd_tensor *x, *y;
            gd_tensor *w = gd_randn(gd_shape_of(4, convolutions[i].w)),
                      *b = biased ? gd_randn(gd_dims(convolutions[i].w[0])) : NULL;
            gd_tensor *value = gd_randn(gd_shape_of(4, convolutions[i].x));
            {
                GD_GRAPH(g);
                x = gd_placeholder(gd_shape_of(4, convolutions[i].x));
                y = gd_relu(gd_call("conv2d", gd_list(x, w, b), convolutions[i].options));
            }
            gd_program *p = program_of(gd_list(x), gd_list(value), gd_list(y));
            CHECK(run_pass(p, "prune") >= 0 && run_pass(p, "epilogue") == 1);
            char *text = gd_program_text(p);
            CHECK_SAYING(strstr(text, " = conv_relu(%0 (feed 0)") && !strstr(text, "= relu(") &&
                             !strstr(text, "conv2d("),
                         "%s", text);
            free(text);
            gd_program_free(p);
            gd_session *plain = gd_session_new(g, .level = 0),
                       *fast = gd_session_new(g, .level = 2);
            gd_tensor *a = gd_session_run(plain, gd_feed(x, value), gd_list(y)).at[0];
            gd_tensor *c = gd_session_run(fast, gd_feed(x, value), gd_list(y)).at[0];
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
            bool same = gd_tensor_numel(a) == gd_tensor_numel(c);
            for (int64_t e = 0; same && e < gd_tensor_numel(a); e++)
                same = ((const float *)gd_data(a))[e] == ((const float *)gd_data(c))[e];
            CHECK_SAYING(same, "%s", convolutions[i].options);
        }
}

typedef struct normed_net {
    gd_graph *graph;
    gd_tensor *x, *y, *value, *between;
} normed_net;

/* relu(batch_norm(inner(x, w, b))), with variables for all operands that can be one. */
static normed_net make_normed_net(const char *inner, gd_shape x, gd_shape w, const char *options,
                                  bool biased, bool training) {
    normed_net n = {.graph = gd_graph_new(), .value = gd_randn(x)};
    const gd_shape channels = gd_dims(w.at[0]);
    gd_tensor *b = biased ? gd_randn(channels) : NULL, *first = gd_randn(w),
              *mean = gd_randn(channels);
    gd_tensor *var = gd_uniform(channels, .low = 0.5, .high = 2), *gamma = gd_randn(channels),
              *beta = gd_randn(channels);
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(x);
    gd_tensor *weights = gd_variable(first), *m = gd_variable(mean), *v = gd_variable(var);
    gamma = gd_variable(gamma);
    n.between = gd_call(inner, gd_list(n.x, weights, b), options);
    n.y = gd_relu(gd_batch_norm(n.between, gamma, beta, m, v, .training = training, .eps = 1e-3));
    return n;
}

TEST(batch_norms_are_folded_into_the_preceding_weights) {
    GD_SCOPE;
    normed_net n = make_normed_net("conv2d", gd_dims(2, 3, 8, 8), gd_dims(4, 3, 3, 3), "padding=1",
                                   false, false);
    gd_program *p = program_of(gd_list(n.x), gd_list(n.value), gd_list(n.y));
    CHECK(run_pass(p, "prune") >= 0);
    check_text(p, "%5 f32[2,4,8,8] = conv2d(%0 (feed 0) f32[2,3,8,8], %1 (variable 0) "
                  "f32[4,3,3,3], -) padding=[1,1]\n"
                  "%7 f32[4] = clone(%2 (variable 1) f32[4])\n"
                  "%8 f32[4] = clone(%3 (variable 2) f32[4])\n"
                  "%9 f32[2,4,8,8], %7 f32[4], %8 f32[4] = batch_norm(%5, %4 (variable 3) f32[4], "
                  "%6 (captured 6) f32[4], %7, %8) eps=0.001\n"
                  "%12 f32[2,4,8,8] = relu(%9)\n"
                  "variable 1 <- %7\n"
                  "variable 2 <- %8\n"
                  "fetch %12\n");
    CHECK(run_pass(p, "fold_norm") == 1 && run_pass(p, "epilogue") == 1);
    check_text(p, "%13 f32[4,3,3,3], %14 f32[4] = norm_fold(%1 (variable 0) f32[4,3,3,3], -, %4 "
                  "(variable 3) f32[4], "
                  "%6 (captured 6) f32[4], %2 (variable 1) f32[4], %3 (variable 2) f32[4]) "
                  "momentum=0.1 eps=0.001\n"
                  "%12 f32[2,4,8,8] = conv_relu(%0 (feed 0) f32[2,3,8,8], %13, %14) stride=[1,1] "
                  "padding=[1,1] dilation=[1,1] groups=1\n"
                  "fetch %12\n"); /* the running statistics are not written */
    gd_program_free(p);
}

TEST(weights_with_folded_batch_norms_give_the_same_values) {
    static const struct {
        const char *inner;
        int64_t x[4], w[4];
        int rank;
        const char *options;
    } cases[] = {{"conv2d", {2, 3, 17, 16}, {4, 3, 5, 3}, 4, "stride=2 padding=1"},
                 {"conv2d", {2, 32, 14, 13}, {40, 32, 3, 3}, 4, "padding=1"},
                 {"conv2d", {2, 8, 9, 9}, {8, 1, 3, 3}, 4, "pad_mode=same groups=8"},
                 {"conv1d", {4, 3, 20}, {5, 3, 3}, 3, ""},
                 {"linear", {64, 7}, {6, 7}, 2, NULL}};
    for (int i = 0; i < 5; i++)
        for (int biased = 0; biased < 2; biased++) {
            GD_SCOPE;
            normed_net n = make_normed_net(cases[i].inner, gd_shape_of(cases[i].rank, cases[i].x),
                                           gd_shape_of(cases[i].rank, cases[i].w), cases[i].options,
                                           biased, false);
            gd_session *plain = gd_session_new(n.graph, .level = 0),
                       *fast = gd_session_new(n.graph);
            char *text = gd_session_plan_text(fast, gd_feed(n.x, n.value), gd_list(n.y));
            const bool gains = strcmp(cases[i].options ? cases[i].options : "", "padding=1") !=
                               0; /* 11520 weights, 14560 results */
            CHECK_SAYING(text && !strstr(text, "batch_norm(") == gains, "%s",
                         text ? text : gd_error_message());
            free(text);
            gd_tensor *a = gd_session_run(plain, gd_feed(n.x, n.value), gd_list(n.y)).at[0];
            gd_tensor *b = gd_session_run(fast, gd_feed(n.x, n.value), gd_list(n.y)).at[0];
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
            bool same = gd_tensor_numel(a) == gd_tensor_numel(b);
            for (int64_t e = 0; same && e < gd_tensor_numel(a); e++)
                same = fabsf(((const float *)gd_data(a))[e] - ((const float *)gd_data(b))[e]) <
                       1e-4f * (1 + fabsf(((const float *)gd_data(a))[e]));
            CHECK_SAYING(same, "%s %s", cases[i].inner, cases[i].options ? cases[i].options : "");
        }
}

/* Not folded: in training, where the convolution has other readers, and where it has no batch
 * axis. */
TEST(batch_norms_that_cannot_be_folded_are_kept) {
    for (int i = 0; i < 3; i++) {
        GD_SCOPE;
        normed_net n =
            make_normed_net("conv2d", i == 2 ? gd_dims(3, 8, 8) : gd_dims(2, 3, 8, 8),
                            i == 2 ? gd_dims(8, 3, 1, 1) : gd_dims(4, 3, 3, 3), "", true, i == 0);
        gd_program *p = program_of(gd_list(n.x), gd_list(n.value),
                                   i == 1 ? gd_list(n.y, n.between) : gd_list(n.y));
        CHECK(run_pass(p, "prune") >= 0 && run_pass(p, "fold_norm") == 0);
        gd_program_free(p);
    }
}

/* The result of the convolution itself is fetched, so it stays. */
TEST(epilogue_keeps_convolutions_with_other_readers) {
    IN_GRAPH(g, 2, 3);
    y = gd_conv1d(gd_reshape(x, gd_dims(1, 2, 3)), gd_ones(gd_dims(2, 2, 2)), NULL);
    y = gd_add(gd_relu(y), y);
    FETCH(y);
    CHECK(run_pass(p, "epilogue") == 0);
    gd_program_free(p);
}

/* --- layout ----------------------------------------------------------------------------------- */

TEST(layout_sinks_permutes_through_elementwise_ops_until_they_cancel) {
    IN_GRAPH(g, 2, 3);
    gd_tensor *t = gd_permute(x, gd_dims(1, 0));
    y = gd_mul(gd_tanh(gd_add(t, gd_full(gd_dims(2), 3))), t);
    y = gd_sum(gd_permute(y, gd_dims(1, 0)), .axis = 1);
    FETCH(y);
    check_text(p, "%1 (feed 0) f32[3,2] = permute(%0 (feed 0) f32[2,3]) axes=[1,0]\n"
                  "%2 f32[2] = full() dims=[2] value=3 dtype=f32\n"
                  "%3 f32[3,2] = add(%1 (feed 0) f32[3,2], %2)\n"
                  "%4 f32[3,2] = tanh(%3)\n"
                  "%5 f32[3,2] = mul(%4, %1 (feed 0) f32[3,2])\n"
                  "%6 f32[2,3] = permute(%5) axes=[1,0]\n"
                  "%7 f32[2] = sum(%6) axis=[1]\n"
                  "fetch %7\n");
    CHECK(run_pass(p, "layout") == 3);
    check_text(p, "%2 f32[2] = full() dims=[2] value=3 dtype=f32\n"
                  "%8 f32[2,1] = permute(%2) axes=[1,0]\n"
                  "%9 f32[2,3] = add(%0 (feed 0) f32[2,3], %8)\n"
                  "%10 f32[2,3] = tanh(%9)\n"
                  "%11 f32[2,3] = mul(%10, %0 (feed 0) f32[2,3])\n"
                  "%7 f32[2] = sum(%11) axis=[1]\n"
                  "fetch %7\n");
    gd_program_free(p);
}

TEST(layout_keeps_transposed_operands_of_products) {
    IN_GRAPH(g, 2, 3);
    gd_tensor *t = gd_contiguous(gd_permute(x, gd_dims(1, 0)));
    y = gd_matmul(gd_relu(t), gd_clone(gd_transpose(t, 0, 1)));
    FETCH(y);
    CHECK(run_pass(p, "layout") >= 1);
    while (run_pass(p, "simplify") > 0) run_pass(p, "layout");
    CHECK(run_pass(p, "prune") >= 0);
    char *text = gd_program_text(p);
    CHECK_SAYING(!strstr(text, "contiguous") && !strstr(text, "clone") &&
                     strstr(text, "f32[2,3] = relu(%0 (feed 0) f32[2,3])"),
                 "%s", text);
    free(text);
    gd_program_free(p);
}

/* Attention heads: (2, 3, 4), one matrix for each head, merged to (3, 2*4). */
TEST(layout_lets_a_product_write_in_permuted_order_instead_of_a_copy) {
    GD_SCOPE;
    gd_graph *g = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(g);
        x = gd_placeholder(gd_dims(2, 3, 4));
        y = gd_matmul(x, gd_transpose(x, 1, 2));
        y = gd_sin(gd_reshape(gd_permute(gd_matmul(y, x), gd_dims(1, 0, 2)), gd_dims(3, 8)));
    }
    gd_program *p = program_of(gd_list(x), gd_list(gd_full(gd_dims(2, 3, 4), 1)), gd_list(y));
    CHECK(run_pass(p, "layout") == 1);
    int made = -1, copied = -1;
    for (int i = 0; i < p->n_steps; i++) {
        if (strcmp(gd_op_name(p->steps[i].op), "matmul") == 0) made = p->steps[i].out[0];
        if (strcmp(gd_op_name(p->steps[i].op), "reshape") == 0 && p->steps[i].view)
            copied = p->steps[i].out[0];
    }
    CHECK(made >= 0 && copied >= 0 && p->values[made].root == p->values[copied].root);
    CHECK(p->values[made].strides[0] == 4 && p->values[made].strides[1] == 8 &&
          p->values[made].strides[2] == 1);
    gd_program_free(p);
}

/* A fetch stays row-major; linear would have to copy; a sum with a value in another memory order
 * would need two kernels. */
TEST(layout_adds_no_copies) {
    for (int i = 0; i < 3; i++) {
        IN_GRAPH(g, 2, 3);
        gd_tensor *t = gd_exp(gd_permute(x, gd_dims(1, 0)));
        y = i == 0   ? t
            : i == 1 ? gd_linear(t, gd_ones(gd_dims(4, 2)), NULL)
                     : gd_cumsum(gd_add(t, gd_ones(gd_dims(3, 2))), 0);
        FETCH(y);
        CHECK_SAYING(run_pass(p, "layout") == 0, "%d", i);
        gd_program_free(p);
    }
}

/* --- GRADUS_PASSES ---------------------------------------------------------------------------- */

/* Plans sin(x * 1) + sin(x) at level 1, with this setting of the variable. */
static gd_status plan_with_log_of(const char *passes) {
    GD_SCOPE;
    gd_graph *g = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(g);
        x = gd_placeholder(gd_dims(2));
        y = gd_sin(gd_mul(x, gd_full(gd_dims(2), 1)));
        y = gd_add(y, gd_sin(x));
    }
    gd_session *s = gd_session_new(g, .level = 1);
    gd_plan_memory memory;
    capture_log(GD_LOG_INFO);
    setenv("GRADUS_PASSES", passes, 1);
    const gd_status status =
        gd_session_plan(s, gd_list(x, gd_zeros(gd_dims(2))), gd_list(y), &memory);
    unsetenv("GRADUS_PASSES");
    end_log_capture();
    return status;
}

/* Simplifying makes the two sines equal, so cse runs again, and simplify after it. */
TEST(the_log_has_the_program_before_and_after_each_named_pass) {
    static const char lowered[] = "%1 f32[2] = full() dims=[2] value=1 dtype=f32\n"
                                  "%2 f32[2] = mul(%0 (feed 0) f32[2], %1)\n"
                                  "%3 f32[2] = sin(%2)\n"
                                  "%4 f32[2] = sin(%0 (feed 0) f32[2])\n"
                                  "%5 f32[2] = add(%3, %4)\n"
                                  "fetch %5\n";
    static const char folded[] = "%2 f32[2] = mul(%0 (feed 0) f32[2], %1 (captured 1) f32[2])\n"
                                 "%3 f32[2] = sin(%2)\n"
                                 "%4 f32[2] = sin(%0 (feed 0) f32[2])\n"
                                 "%5 f32[2] = add(%3, %4)\n"
                                 "fetch %5\n";
    static const char simple[] = "%3 f32[2] = sin(%0 (feed 0) f32[2])\n"
                                 "%4 f32[2] = sin(%0 (feed 0) f32[2])\n"
                                 "%5 f32[2] = add(%3, %4)\n"
                                 "fetch %5\n";
    static const char shared[] = "%3 f32[2] = sin(%0 (feed 0) f32[2])\n"
                                 "%5 f32[2] = add(%3, %3)\n"
                                 "fetch %5\n";
    char expected[4000];
    snprintf(expected, sizeof expected,
             "pass cse, before:\n%spass cse, after (changes: 0):\n%s"
             "pass simplify, before:\n%spass simplify, after (changes: 1):\n%s"
             "pass cse, before:\n%spass cse, after (changes: 1):\n%s"
             "pass simplify, before:\n%spass simplify, after (changes: 0):\n%s",
             lowered, lowered, folded, simple, simple, shared, shared, shared);
    CHECK_SAYING(plan_with_log_of("cse,simplify") == GD_OK, "%s", gd_latest_failure());
    CHECK_SAYING(strcmp(captured.text, expected) == 0, "the log is\n%s", captured.text);
}

TEST(all_names_every_pass) {
    CHECK(plan_with_log_of("all") == GD_OK);
    CHECK_SAYING(strstr(captured.text, "pass prune, before:") == captured.text &&
                     strstr(captured.text, "pass fold, after (changes: 1):") &&
                     strstr(captured.text, "pass early_updates, after (changes: 0):") &&
                     !strstr(captured.text, "pass fuse"), /* at level 2 alone */
                 "the log is\n%s", captured.text);
}

TEST(an_unknown_pass_is_an_error_that_lists_all) {
    CHECK(plan_with_log_of("cse,unroll") == GD_E_ARGUMENT && captured.infos == 0);
    const char *message = gd_latest_failure();
    CHECK_SAYING(strstr(message, "GRADUS_PASSES: there is no pass 'unroll'; there are prune, cse, "
                                 "fold, simplify, fold_norm, layout, ") &&
                     strstr(message, ", list_copies, remat, and all"),
                 "%s", message);
}

TEST_MAIN
