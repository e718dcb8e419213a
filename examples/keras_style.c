/* keras_style.c - a two-layer net in the style of Keras: sequential, compile, fit. */
#include <gradus/gradus.h>

#include "show.h"

enum { N = 64, D = 1000, H = 100 };

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(0);
    gd_module *net = gd_nn_sequential(gd_nn_linear(D, H), gd_nn_relu(), gd_nn_linear(H, D));
    gd_module_init(net, "*.weight", "xavier_uniform");

    gd_tensor *x = gd_randn(gd_dims(N, D));
    gd_tensor *y = gd_randn(gd_dims(N, D));
    gd_compile(net, .optimizer = "sgd lr=1.0", .loss = "mse");
    gd_history *h =
        gd_fit(net, gd_list(x, y), .epochs = 50, .batch = N, .progress = GD_PROGRESS_NONE);

    for (int epoch = 0; epoch < 50; epoch += 7)
        show_loss(epoch, gd_history_value(h, "loss", epoch));
    return show_failure();
}
