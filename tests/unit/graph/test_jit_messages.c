/* test_jit_messages.c - messages of jits speak of the program's calls, not of the graph behind them. */
#include <string.h>

#include "clean_test.h"
#include "gradus/gradus.h"

static gd_tensors read_item(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_item(gd_sum(in.at[0])) > 0 ? in.at[0] : gd_neg(in.at[0]));
}
static gd_tensors logarithm(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_cross_entropy(in.at[0], gd_full(gd_dims(2), 9, .dtype = GD_I64)));
}

CLEAN_TEST(messages_of_jits_speak_of_their_calls) {
    GD_SCOPE;
    gd_jit_call(gd_jit_new(read_item, NULL), gd_list(gd_ones(gd_dims(2))));
    CHECK_SAYING(says("gd_item: 'sum_") && says("while the function of a jit is traced") &&
                     says("gd_where or gd_cond") && !says("fetches"),
                 "%s", gd_error_message());
    gd_clear_error();
    gd_jit_call(gd_jit_new(logarithm, NULL), gd_list(gd_ones(gd_dims(2, 3))));
    CHECK_SAYING(
        strncmp(gd_error_message(), "gd_jit_call: cross_entropy: target 0 is class 9", 47) == 0,
        "%s", gd_error_message());
}

static gd_tensors keep_symbol(gd_tensors in, void *user) {
    gd_tensor *y = gd_relu_at("net.py:7", in.at[0]);
    *(gd_tensor **)user = gd_retain(y);
    return gd_listed(gd_neg(y));
}

CLEAN_TEST(a_symbol_that_outlives_its_trace_says_where_it_was_made) {
    GD_SCOPE;
    gd_tensor *left = NULL, *x = gd_ones(gd_dims(2));
    gd_jit *jit = gd_jit_new(keep_symbol, &left);
    gd_jit_call(jit, gd_list(x));
    CHECK(!gd_failed());
    CHECK(gd_tensor_is_error(gd_add(left, x)));
    CHECK_SAYING(says("'relu_1' of net.py:7, is a symbol of a jit's function that has returned"),
                 "%s", gd_error_message());
    gd_clear_error();
    gd_item(gd_sum(x));
    gd_item(left);
    CHECK_SAYING(says("'relu_1' of net.py:7 is a symbol of a jit's function that has returned"),
                 "%s", gd_error_message());
    gd_clear_error();
    gd_release(left);
}

TEST_MAIN
