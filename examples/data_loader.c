/* data_loader.c - a two-layer net, trained on minibatches that a worker thread prepares.
 *
 * The dataset is two tensors. The loader shuffles it in each epoch and stacks eight samples to a
 * batch. The order depends only on the seed: the losses are the same for any number of workers.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { N = 64, D = 1000, H = 100, OUT = 10, EPOCHS = 10 };

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(0);
    gd_tensor *x = gd_randn(gd_dims(N, D));
    gd_tensor *y = gd_randn(gd_dims(N, OUT));
    gd_module *net = gd_nn_sequential(gd_nn_linear(D, H), gd_nn_relu(), gd_nn_linear(H, OUT));
    gd_optimizer *sgd = gd_optim_sgd(gd_module_parameters(net), .lr = 1e-4);
    gd_loader *loader =
        gd_loader_new(gd_dataset_tensors(x, y), .batch = 8, .shuffle = true, .workers = 1,
                      .device = gd_default_device()); /* batches are on the device of the net */

    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        double total = 0;
        for (gd_tensors batch; gd_loader_next(loader, &batch);) {
            GD_SCOPE;
            gd_tensor *loss =
                gd_mse_loss(gd_module_forward(net, batch.at[0]), batch.at[1], .reduction = GD_SUM);
            gd_optimizer_zero_grad(sgd);
            gd_backward(loss);
            gd_optimizer_step(sgd);
            total += gd_item(loss);
        }
        show_loss(epoch, total);
    }
    return show_failure();
}
