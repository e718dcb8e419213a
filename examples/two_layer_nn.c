/* two_layer_nn.c - a two-layer net of layers, with a hand-written update.
 *
 * Layers hold their weights; the net lists all of them. two_layer_optim.c uses an optimizer
 * instead.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { N = 64, D_IN = 1000, H = 100, D_OUT = 10, STEPS = 500 };

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(0);
    gd_tensor *x = gd_randn(gd_dims(N, D_IN)), *y = gd_randn(gd_dims(N, D_OUT));
    gd_module *net = gd_nn_sequential(gd_nn_linear(D_IN, H), gd_nn_relu(), gd_nn_linear(H, D_OUT));
    gd_tensors parameters = gd_module_parameters(net);
    const double lr = 1e-4;

    for (int step = 1; step <= STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_tensor *loss = gd_mse_loss(gd_module_forward(net, x), y, .reduction = GD_SUM);
        gd_module_zero_grad(net);
        gd_backward(loss);

        GD_NO_GRAD;
        for (int i = 0; i < parameters.count; i++)
            gd_sub_(parameters.at[i], gd_mul(lr, gd_tensor_grad(parameters.at[i])));

        if (step == 1 || step % 50 == 0) show_loss(step, gd_item(loss));
    }
    return show_failure();
}
