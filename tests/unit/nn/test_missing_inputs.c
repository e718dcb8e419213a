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

TEST_MAIN
