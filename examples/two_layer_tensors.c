/* two_layer_tensors.c - a two-layer net on plain tensors, with hand-written gradients.
 *
 * prediction (N, D_OUT) = relu(x w1) w2, with x (N, D_IN), w1 (D_IN, H) and w2 (H, D_OUT). The loss
 * is the sum of squared errors. two_layer_autograd.c lets the library compute the gradients.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { N = 64, D_IN = 1000, H = 100, D_OUT = 10, STEPS = 500 };

static gd_tensor *transposed(gd_tensor *x) { return gd_permute(x, gd_dims(1, 0)); }

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE; /* tensors created in this block are freed at its end */
    gd_seed(0);
    gd_tensor *x = gd_randn(gd_dims(N, D_IN)), *y = gd_randn(gd_dims(N, D_OUT));
    gd_tensor *w1 = gd_randn(gd_dims(D_IN, H)), *w2 = gd_randn(gd_dims(H, D_OUT));
    const double lr = 1e-6;

    for (int step = 1; step <= STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        /* forward */
        gd_tensor *h = gd_matmul(x, w1);
        gd_tensor *h_relu = gd_clamp(h, .min = 0);
        gd_tensor *error = gd_sub(gd_matmul(h_relu, w2), y);
        gd_tensor *loss = gd_sum(gd_square(error));
        if (step == 1 || step % 50 == 0) show_loss(step, gd_item(loss));

        /* backward, from the loss to the weights */
        gd_tensor *g_prediction = gd_mul(2, error);
        gd_tensor *g_w2 = gd_matmul(transposed(h_relu), g_prediction);
        gd_tensor *g_h_relu = gd_matmul(g_prediction, transposed(w2));
        gd_tensor *g_h = gd_mul(g_h_relu, gd_gt(h, 0));
        gd_tensor *g_w1 = gd_matmul(transposed(x), g_h);

        /* one step of gradient descent */
        gd_sub_(w1, gd_mul(lr, g_w1));
        gd_sub_(w2, gd_mul(lr, g_w2));
    }
    return show_failure();
}
