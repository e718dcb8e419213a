/* test_missing_inputs.c - a user-defined module that is called with fewer inputs than its function
 * reads fails with a message that names it. */
#include "clean_test.h"
#include "gradus/gradus.h"

static gd_tensors add_three(gd_tensors in, void *self) {
    (void)self;
    return gd_listed(gd_add(gd_add(in.at[0], in.at[1]), in.at[2]));
}
static gd_tensors read_shape(gd_tensors in, void *self) {
    (void)self;
    return gd_listed(gd_reshape(in.at[0], gd_dims(gd_tensor_dim(in.at[1], 0))));
}
static gd_tensors pass_on(gd_tensors in, void *self) {
    return gd_listed(gd_module_forward(*(gd_module **)self, in.at[1]));
}
static gd_tensors swap(gd_tensors in, void *self) {
    (void)self;
    return gd_listed(in.at[1], in.at[0]);
}
static gd_tensors same_list(gd_tensors in, void *self) {
    (void)self;
    return in;
}

CLEAN_TEST(a_function_that_reads_more_inputs_than_the_call_has_fails_with_the_module) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(3));
    gd_module *add = gd_module_new(add_three, 0, .type = "add_three"),
              *shape = gd_module_new(read_shape, 0, .type = "by_shape"),
              *pass = gd_module_new(pass_on, sizeof(gd_module *), .type = "passes"),
              *same = gd_module_new(same_list, 0);
    gd_module **inside = gd_module_self(pass);
    GD_CHILD(pass, *inside, gd_nn_linear(3, 1));
    gd_module_forward(add, x, x);
    CHECK_SAYING(says("add_three: add(") && says("'b' is input 2 (counted from 0) of the module "
                                                 "'add_three', which was called with 2 inputs"),
                 "%s", gd_error_message());
    gd_clear_error();
    gd_module_forward(gd_nn_sequential(gd_nn_relu(), add), x);
    CHECK_SAYING(says("1 (add_three): ") && says("input 1 (counted from 0)") && says("1 input"),
                 "%s", gd_error_message());
    gd_clear_error();
    gd_module_forward(shape, x);
    CHECK_SAYING(says("input 1 (counted from 0) of the module 'by_shape'"), "%s",
                 gd_error_message());
    gd_clear_error();
    gd_module_forward(pass, x);
    CHECK_SAYING(says("input 1 (counted from 0) of the module 'passes'"), "%s", gd_error_message());
    gd_clear_error();
    gd_module_call(gd_module_new(swap, 0, .type = "swap"), gd_list(x)); /* it only returns it */
    CHECK_SAYING(says("swap: its result: uses input 1 (counted from 0) of the module 'swap'"), "%s",
                 gd_error_message());
    gd_clear_error();
    CHECK(gd_item(gd_sum(gd_module_forward(add, x, x, x))) == 9);
    gd_tensors out = gd_module_call(same, gd_list(x, x));
    CHECK(out.count == 2 && out.at[1] == x && !gd_failed());
}

/* --- other functions of the program ----------------------------------------------------------- */

static gd_tensors read_data(gd_tensors in, void *self) {
    (void)self;
    const float *data = gd_data(in.at[1]);
    return gd_listed(data ? gd_mul(in.at[0], data[0]) : in.at[0]);
}
static gd_tensors add_hook(gd_module *m, gd_tensors in, gd_tensors out, void *user) {
    (void)m, (void)out, (void)user;
    return gd_listed(gd_add(in.at[0], in.at[1]));
}
static gd_tensors second_output(gd_module *m, gd_tensors in, gd_tensors out, void *user) {
    (void)m, (void)in, (void)user;
    return gd_listed(gd_add(out.at[0], out.at[1]));
}
static gd_tensors add_second(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_add(in.at[0], in.at[1]));
}
static gd_tensors scan_third(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *y = gd_add(in.at[0], in.at[2]);
    return gd_listed(y, y);
}
static gd_tensors is_small(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_lt(gd_sum(in.at[0]), 100));
}
static gd_tensor *product(gd_tensors in, void *user) {
    (void)user;
    return gd_sum(gd_mul(in.at[0], in.at[1]));
}
static gd_tensors call_product(gd_tensors in, void *user) {
    return gd_listed(gd_recompute(product, gd_list(in.at[0]), user));
}
static gd_tensor *third_of_batch(gd_module *net, gd_tensors batch, void *user) {
    (void)user;
    gd_tensor *loss = gd_mean(gd_sub(gd_module_forward(net, batch.at[0]), batch.at[2]));
    gd_backward(loss);
    return loss;
}
static gd_tensor *second_target(gd_tensors outputs, gd_tensors targets, void *user) {
    (void)user;
    return gd_mean(gd_sub(outputs.at[0], targets.at[1]));
}

static gd_tensors return_second(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(in.at[1]);
}
static gd_tensor *second_input(gd_tensors in, void *user) {
    (void)user;
    return in.at[1];
}
static gd_tensors first_output(gd_module *m, gd_tensors in, gd_tensors out, void *user) {
    (void)m, (void)in, (void)user;
    return out.count ? out : gd_listed(gd_neg(out.at[0]));
}

#define FAILS_SAYING(text, ...)                                         \
    do {                                                                \
        (void)(__VA_ARGS__);                                            \
        CHECK_SAYING(gd_failed() && says(text), "%s: %s", #__VA_ARGS__, \
                     gd_failed() ? gd_error_message() : "no failure");  \
        gd_clear_error();                                               \
    } while (0)

CLEAN_TEST(the_data_of_a_missing_input_are_a_failure) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(3));
    FAILS_SAYING("gd_data: uses input 1 (counted from 0) of the module 'reads'",
                 gd_module_forward(gd_module_new(read_data, 0, .type = "reads"), x));
    CHECK(!gd_data(NULL) && !gd_failed());
}

CLEAN_TEST(hooks_that_read_beyond_the_end_fail) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(3));
    for (int before = 0; before < 2; before++) {
        gd_module *relu = gd_nn_relu();
        gd_module_on_forward(relu, add_hook, NULL, .before = before);
        FAILS_SAYING("'b' is input 1 (counted from 0) of the module 'relu', which was called with "
                     "1 input",
                     gd_module_forward(relu, x));
    }
    gd_module *relu = gd_nn_relu();
    gd_module_on_forward(relu, first_output, NULL, .before = true);
    FAILS_SAYING("'x' is output 0 (counted from 0) of the module, which has fewer outputs",
                 gd_module_forward(relu, x));
    relu = gd_nn_relu();
    gd_module_on_forward(relu, second_output, NULL);
    FAILS_SAYING("'b' is output 1 (counted from 0) of the module, which has fewer outputs",
                 gd_module_forward(relu, x));
}

CLEAN_TEST(functions_of_jits_and_control_that_read_beyond_the_end_fail) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(3)), *yes = gd_scalar_of(1, GD_BOOL);
    FAILS_SAYING("'b' is input 1 (counted from 0) of this call of a jit, which has fewer inputs",
                 gd_jit_call(gd_jit_new(add_second, NULL), gd_list(x)));
    static const char body[] = "input 1 (counted from 0) of the branch or body, which has fewer";
    FAILS_SAYING(body, gd_cond(yes, add_second, add_second, gd_list(x), NULL));
    FAILS_SAYING(body, gd_while_loop(is_small, add_second, gd_list(x), NULL));
    FAILS_SAYING("input 2 (counted from 0) of the branch or body",
                 gd_scan(scan_third, gd_list(gd_scalar(0)), gd_list(x), NULL));
    FAILS_SAYING("gd_jit_call: its result: uses input 1 (counted from 0) of this call of a jit",
                 gd_jit_call(gd_jit_new(return_second, NULL), gd_list(x)));
    FAILS_SAYING("gd_cond: its result: uses input 1 (counted from 0) of the branch or body",
                 gd_cond(yes, return_second, return_second, gd_list(x), NULL));
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    gd_tensor *symbol = gd_placeholder(gd_dims(3)), *test = gd_gt(gd_sum(symbol), 0);
    FAILS_SAYING(body, gd_cond(test, add_second, add_second, gd_list(symbol), NULL));
    FAILS_SAYING("input 2 (counted from 0) of the branch or body",
                 gd_scan(scan_third, gd_list(gd_sum(symbol)), gd_list(symbol), NULL));
}

CLEAN_TEST(functions_of_transforms_that_read_beyond_the_end_fail) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(3)));
    static const char text[] = "'b' is input 1 (counted from 0) of the function, which has fewer";
    FAILS_SAYING(text, gd_recompute(product, gd_list(x), NULL));
    FAILS_SAYING("gd_recompute: its result: uses input 1 (counted from 0) of the function",
                 gd_recompute(second_input, gd_list(x), NULL));
    FAILS_SAYING(text, gd_jvp(product, gd_list(x), gd_list(x), NULL));
    FAILS_SAYING(text, gd_jit_call(gd_jit_new(call_product, NULL), gd_list(x)));
}

CLEAN_TEST(steps_and_losses_that_read_beyond_the_end_fail) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(4, 3)), *y = gd_ones(gd_dims(4, 1));
    for (int jit = 0; jit < 2; jit++) {
        gd_module *net = gd_nn_linear(3, 1);
        gd_compile(net, .loss = "mse");
        FAILS_SAYING("tensor 2 (counted from 0) of the batch, which has fewer tensors",
                     gd_fit(net, gd_list(x, y), .step = third_of_batch, .jit = jit,
                            .progress = GD_PROGRESS_NONE));
        gd_compile(net, .loss_function = second_target);
        FAILS_SAYING("target 1 (counted from 0) of the batch, which has fewer targets",
                     gd_fit(net, gd_list(x, y), .jit = jit, .progress = GD_PROGRESS_NONE));
    }
}

TEST_MAIN
