/* test_scatter.c - scatter ops with zeros and repeated indices. */
#include "gradus/gradus.h"
#include "test.h"

static gd_tensor *scatter_product(gd_tensors in, void *index) {
    return gd_scatter_mul(in.at[0], 0, index, in.at[1]);
}

TEST(second_order_gradient_of_scatter_mul_is_right_where_factors_are_zero) {
    GD_SCOPE;
    /* element 0 gets two zero factors, element 1 one; element 2 is zero before; element 3 gets
     * none */
    gd_tensor *x = gd_requires_grad(gd_from_array(gd_dims(4), GD_F64, (double[]){2, 3, 0, 4}));
    gd_tensor *src = gd_requires_grad(
        gd_from_array(gd_dims(8), GD_F64, (double[]){0, 0, 5, 0, 1.5, 0.5, -2, 3}));
    gd_tensor *index = gd_from_array(gd_dims(8), GD_I64, (int64_t[]){0, 0, 0, 1, 1, 2, 3, 3});
    gd_status status = gd_gradcheck(scatter_product, gd_list(x, src), index, .second_order = true);
    CHECK_SAYING(status == GD_OK, "%s", gd_error_message());
    gd_clear_error();
}

TEST_MAIN
