/* test_operands.c - numbers as operands of elementwise ops. */
#include <math.h>
#include <string.h>

#include "gradus/gradus.h"
#include "clean_test.h"
#include "compare.h"

static gd_dtype dtype_of(gd_tensor *t) { return gd_tensor_dtype(t); }

CLEAN_TEST(a_number_has_the_dtype_of_the_tensors_unless_its_kind_is_higher) {
    GD_SCOPE;
    const bool yes = true;
    for (gd_dtype d = GD_BOOL; d < GD_DTYPE_COUNT; d++)
        for (int rank = 0; rank < 2; rank++) {
            gd_tensor *x = gd_cast(rank ? gd_ones(gd_dims(3)) : gd_scalar(1), d);
            const gd_dtype with_int = d == GD_BOOL ? GD_I64 : d;
            const gd_dtype with_real = gd_dtype_is_float(d) ? d : GD_F32;
            CHECK(dtype_of(gd_mul(x, 2)) == with_int);
            CHECK(dtype_of(gd_mul(2, x)) == with_int);
            CHECK(dtype_of(gd_mul(x, 0.5)) == with_real);
            CHECK(dtype_of(gd_mul(0.5f, x)) == with_real);
            CHECK(dtype_of(gd_mul(x, yes)) == d);
            CHECK(dtype_of(gd_lt(x, 0.5)) == GD_BOOL);
            CHECK(dtype_of(gd_where(gd_gt(x, 0), x, 0)) == with_int);
        }
    CHECK(!gd_failed());
}

CLEAN_TEST(a_number_computes_like_a_tensor_of_that_number) {
    GD_SCOPE;
    gd_tensor *x = gd_from_array(gd_dims(4), GD_F32, (const float[]){-1.5f, 0, 2, 7});
    CHECK(tensors_same_bits(gd_add(x, 1), gd_add(x, gd_scalar(1))));
    CHECK(tensors_same_bits(gd_sub(1, x), gd_sub(gd_scalar(1), x)));
    CHECK(tensors_same_bits(gd_div(x, 3L), gd_div(x, gd_scalar(3))));
    CHECK(tensors_same_bits(gd_pow(x, 2u), gd_pow(x, gd_scalar(2))));
    CHECK(tensors_same_bits(gd_maximum(x, 0.25L), gd_maximum(x, gd_scalar(0.25))));
    CHECK(tensors_same_bits(gd_lerp(x, 1, 0.5), gd_lerp(x, gd_scalar(1), gd_scalar(0.5))));
    CHECK(tensors_same_bits(gd_where(gd_gt(x, 0), 1, x),
                            gd_where(gd_gt(x, gd_scalar(0)), gd_scalar(1), x)));
    gd_tensor *f64 = gd_cast(x, GD_F64);
    CHECK(tensors_same_bits(gd_mul(f64, 0.1), gd_mul(f64, gd_scalar_of(0.1, GD_F64))));
    CHECK(!gd_failed());
}

CLEAN_TEST(integers_keep_all_their_bits) {
    GD_SCOPE;
    const int64_t large = 9007199254740993; /* 2^53 + 1 */
    gd_tensor *zero = gd_zeros(gd_dims(1), .dtype = GD_I64);
    CHECK(((int64_t *)gd_data(gd_add(zero, large)))[0] == large);
    CHECK(((int64_t *)gd_data(gd_sub(zero, INT64_MAX)))[0] == -INT64_MAX);
    CHECK(((int64_t *)gd_data(gd_add(zero, (short)-3)))[0] == -3);
    CHECK(((int64_t *)gd_data(gd_add(zero, (unsigned char)200)))[0] == 200);
}

CLEAN_TEST(a_number_that_does_not_fit_the_dtype_is_named) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(2), .dtype = GD_U8);
    CHECK(gd_tensor_is_error(gd_add(x, 300)));
    CHECK_SAYING(says("add: operand 'b'") && says("300 does not fit u8") && says("test_operands.c"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_lt(x, -1)) &&
          says("lt: operand 'b': the value -1 does not fit u8"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_maximum(-5, x)) && says("operand 'a': the value -5"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_bitwise_and(x, 0.5)) && says("bitwise_and"));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_add(gd_reshape(x, gd_dims(7)), 1)) && says("reshape"));
}

CLEAN_TEST(the_condition_of_where_does_not_decide_the_dtype) {
    GD_SCOPE;
    gd_tensor *condition = gd_ones(gd_dims(2)); /* f32 */
    gd_tensor *x = gd_ones(gd_dims(2), .dtype = GD_I64);
    CHECK(dtype_of(gd_where(condition, x, 0)) == GD_I64);
    CHECK(dtype_of(gd_where(condition, 1, 0)) == GD_I64);
    CHECK(dtype_of(gd_where(condition, 1, 0.5)) == GD_F32);
    CHECK(!gd_failed());
}

CLEAN_TEST(numbers_alone_give_tensors_of_rank_0) {
    GD_SCOPE;
    gd_tensor *sum = gd_add(1, 2), *product = gd_mul(0.5, 3);
    CHECK(gd_tensor_rank(sum) == 0 && dtype_of(sum) == GD_I64 && gd_item(sum) == 3);
    CHECK(gd_tensor_rank(product) == 0 && dtype_of(product) == GD_F32 && gd_item(product) == 1.5);
}

CLEAN_TEST(ops_in_place_take_numbers) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(2), .dtype = GD_F16);
    CHECK(gd_add_(gd_mul_(x, 3), 0.5) == x && dtype_of(x) == GD_F16);
    CHECK(gd_item(gd_sum(gd_cast(x, GD_F32))) == 7);
}

CLEAN_TEST(each_operand_is_evaluated_once) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(1));
    int n = 0;
    gd_tensor *y = gd_add(gd_mul(x, n++), gd_add(n++, gd_add(n++, x)));
    CHECK(n == 3 && gd_item(y) >= 2);
}

CLEAN_TEST(gradients_flow_past_numbers) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_full(gd_dims(3), 2));
    gd_backward(gd_sum(gd_mul(gd_add(x, 1), 3)));
    CHECK(((float *)gd_data(gd_tensor_grad(x)))[1] == 3);
    gd_tensor *z = gd_where(gd_gt(x, 5), x, 0);
    CHECK(gd_tensor_requires_grad(z) && !gd_failed());
}

static gd_tensors with_numbers(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *x = in.at[0];
    return gd_listed(gd_where(gd_gt(x, 0), gd_add(gd_mul(x, 0.5), 1), gd_sub(0, x)));
}

CLEAN_TEST(a_graph_and_a_jit_compute_the_same_bits) {
    GD_SCOPE;
    for (gd_dtype d = GD_I64; d < GD_DTYPE_COUNT; d++) {
        gd_tensor *x = gd_cast(gd_arange(-3, 5), d), *eager = with_numbers(gd_list(x), NULL).at[0];
        gd_jit *jit = gd_jit_new(with_numbers, NULL);
        CHECK(tensors_same_bits(gd_jit_call(jit, gd_list(x)).at[0], eager));
        gd_graph *graph = gd_graph_new();
        gd_tensor *symbol, *y, *outside;
        {
            GD_GRAPH(graph);
            symbol = gd_placeholder(gd_dims(GD_ANY), .dtype = d);
            y = with_numbers(gd_list(symbol), NULL).at[0];
        }
        outside = gd_mul(y, 2); /* of a symbol, where no graph is open */
        gd_tensors r =
            gd_session_run(gd_session_new(graph), gd_feed(symbol, x), gd_list(y, outside));
        CHECK(tensors_same_bits(r.at[0], eager));
        CHECK(tensors_same_bits(r.at[1], gd_mul(eager, 2)));
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(devices_get_their_numbers) {
    GD_SCOPE;
    gd_device *device = gd_device_get("test");
    if (!device) SKIP("no test device");
    gd_tensor *host = gd_arange(-3, 5), *x = gd_to_device(host, device);
    gd_tensor *y = with_numbers(gd_list(x), NULL).at[0];
    CHECK(gd_tensor_device(y) == device);
    CHECK(tensors_same_bits(gd_to_device(y, gd_device_get("cpu")),
                            with_numbers(gd_list(host), NULL).at[0]));
    CHECK(!gd_failed());
}

CLEAN_TEST(without_a_scope_only_the_result_is_left) {
    gd_tensor *x = gd_ones(gd_dims(2)), *y = gd_mul(x, 0.5), *z = gd_add(1, y);
    CHECK(gd_add_(z, 2) == z);
    gd_release(z);
    gd_release(y);
    gd_release(x);
}

TEST_MAIN
