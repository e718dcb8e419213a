/* two_layer_module.c - a user-defined module: a struct with two layers, and a forward function. */
#include <gradus/gradus.h>

#include "show.h"

enum { N = 64, D_IN = 1000, H = 100, D_OUT = 10, STEPS = 500 };

typedef struct {
    gd_module *linear1, *linear2;
} two_layer_net;

static gd_tensors forward(gd_tensors in, void *self) {
    two_layer_net *m = self;
    gd_tensor *h = gd_clamp(gd_module_forward(m->linear1, in.at[0]), .min = 0);
    return gd_listed(gd_module_forward(m->linear2, h));
}

static gd_module *two_layer_net_new(int64_t d_in, int64_t h, int64_t d_out) {
    gd_module *net = gd_module_new(forward, sizeof(two_layer_net));
    two_layer_net *m = gd_module_self(net);
    GD_CHILD(net, m->linear1, gd_nn_linear(d_in, h)); /* named "linear1" */
    GD_CHILD(net, m->linear2, gd_nn_linear(h, d_out));
    return net;
}

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(0);
    gd_tensor *x = gd_randn(gd_dims(N, D_IN)), *y = gd_randn(gd_dims(N, D_OUT));
    gd_module *net = two_layer_net_new(D_IN, H, D_OUT);
    gd_optimizer *sgd = gd_optim_sgd(gd_module_parameters(net), .lr = 1e-4);

    for (int step = 1; step <= STEPS && !gd_failed(); step++) {
        GD_SCOPE;
        gd_tensor *loss = gd_mse_loss(gd_module_forward(net, x), y, .reduction = GD_SUM);
        gd_optimizer_zero_grad(sgd);
        gd_backward(loss);
        gd_optimizer_step(sgd);

        if (step == 1 || step % 50 == 0) show_loss(step, gd_item(loss));
    }
    return show_failure();
}
