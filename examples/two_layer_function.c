/* two_layer_function.c - a two-layer net with a user-defined autograd function.
 *
 * The net of two_layer_autograd.c, with its own forward and backward of relu. Both consist of
 * ordinary ops, so the backward can be differentiated again.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { N = 64, D_IN = 1000, H = 100, D_OUT = 10, STEPS = 500 };

static void relu_forward(gd_context *c) {
    gd_save(c, c->x[0]);
    c->y[0] = gd_clamp(c->x[0], .min = 0);
}

static void relu_backward(gd_context *c) {
    gd_tensor *x = gd_saved(c, 0);
    c->gx[0] = gd_mul(c->gy[0], gd_gt(x, 0));
}

static const gd_function relu = {
    .name = "relu", .forward = relu_forward, .backward = relu_backward};

static gd_tensor *my_relu(gd_tensor *x) {
    gd_tensors y = gd_apply(&relu, gd_list(x), NULL);
    return y.count ? y.at[0] : NULL;
}

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE; /* tensors created in this block are freed at its end */
    gd_seed(0);
    gd_tensor *x = gd_randn(gd_dims(N, D_IN)), *y = gd_randn(gd_dims(N, D_OUT));
    gd_tensor *w1 = gd_requires_grad(gd_randn(gd_dims(D_IN, H)));
    gd_tensor *w2 = gd_requires_grad(gd_randn(gd_dims(H, D_OUT)));
    const double lr = 1e-6;

    for (int step = 1; step <= STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_tensor *prediction = gd_matmul(my_relu(gd_matmul(x, w1)), w2);
        gd_tensor *loss = gd_sum(gd_square(gd_sub(prediction, y)));
        gd_backward(loss);

        GD_NO_GRAD;
        gd_sub_(w1, gd_mul(lr, gd_tensor_grad(w1)));
        gd_sub_(w2, gd_mul(lr, gd_tensor_grad(w2)));
        gd_zero_grad(gd_list(w1, w2));

        if (step == 1 || step % 50 == 0) show_loss(step, gd_item(loss));
    }
    return show_failure();
}
