/* two_layer_autograd.c - a two-layer net; autograd computes the gradients.
 *
 * The net of two_layer_tensors.c. gd_backward computes the gradients of weights that require one.
 * Gradients accumulate, so they are zeroed after each step.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { N = 64, D_IN = 1000, H = 100, D_OUT = 10, STEPS = 500 };

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE; /* tensors created in this block are freed at its end */
    gd_seed(0);
    gd_tensor *x = gd_randn(gd_dims(N, D_IN)), *y = gd_randn(gd_dims(N, D_OUT));
    gd_tensor *w1 = gd_requires_grad(gd_randn(gd_dims(D_IN, H)));
    gd_tensor *w2 = gd_requires_grad(gd_randn(gd_dims(H, D_OUT)));
    const double lr = 1e-6;

    printf("A two-layer net, %d -> %d -> %d, memorizes %d random samples.\n", D_IN, H, D_OUT, N);
    for (int step = 1; step <= STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_tensor *prediction = gd_matmul(gd_clamp(gd_matmul(x, w1), .min = 0), w2);
        gd_tensor *loss = gd_sum(gd_square(gd_sub(prediction, y)));
        gd_backward(loss);

        GD_NO_GRAD; /* the update itself needs no gradient */
        gd_sub_(w1, gd_mul(lr, gd_tensor_grad(w1)));
        gd_sub_(w2, gd_mul(lr, gd_tensor_grad(w2)));
        gd_zero_grad(gd_list(w1, w2));

        if (step == 1 || step % 50 == 0) show_loss(step, gd_item(loss));
    }
    return show_failure();
}
