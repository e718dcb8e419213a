/* mnist.c - a convolutional net that reads handwritten digits.
 *
 *     mnist DIR [EPOCHS] [--device NAME]    the files of MNIST in DIR; five epochs give more than
 *                                           99.2 %
 *     mnist [--device NAME]                 a short run on digits that the library draws
 */
#include <gradus/gradus.h>
#include <stdio.h>
#include <stdlib.h>

#include "show.h"

static gd_module *make_net(void) {
    return gd_nn_sequential(gd_nn_conv2d(1, 32, 3, .padding = 1, .bias = false),
                            gd_nn_batch_norm2d(32), gd_nn_relu(), gd_nn_max_pool2d(2),
                            gd_nn_conv2d(32, 64, 3, .padding = 1, .bias = false),
                            gd_nn_batch_norm2d(64), gd_nn_relu(), gd_nn_max_pool2d(2),
                            gd_nn_flatten(), gd_nn_linear(64 * 7 * 7, 128), gd_nn_relu(),
                            gd_nn_dropout(.p = 0.3), gd_nn_linear(128, 10));
}

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(0);
    const bool real = argc > 1;
    const int epochs = argc > 2 ? atoi(argv[2]) : real ? 5 : 2;
    gd_dataset *digits =
        real ? gd_dataset_mnist(argv[1], GD_TRAIN) : gd_dataset_digits(.count = 4000, .seed = 1);
    gd_dataset *unseen =
        real ? gd_dataset_mnist(argv[1], GD_TEST) : gd_dataset_digits(.count = 1000, .seed = 2);
    /* shifts each digit at random by up to two pixels */
    digits = gd_dataset_transform(digits, gd_transform_crop(28, .padding = 2));

    gd_loader *train = gd_loader_new(digits, .batch = 64, .shuffle = true, .workers = 4);
    gd_loader *test = gd_loader_new(unseen, .batch = 200);
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "adamw lr=0.002", .schedule = "cosine", .loss = "cross_entropy",
               .metrics = "accuracy");
    gd_history *h = gd_fit(net, train, .epochs = epochs, .validation = test);
    if (!h) return show_failure();
    printf("%.2f %% of %lld unseen digits are classified correctly\n",
           100 * gd_history_last(h, "val_accuracy"), (long long)gd_dataset_count(unseen));
    gd_onnx_save_module("mnist.onnx", net, gd_list(gd_zeros(gd_dims(1, 1, 28, 28))));
    return show_failure();
}
