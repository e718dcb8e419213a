/* simple.c - small networks: a multilayer perceptron and a convolutional network. */
#include <stdio.h>

#include "gradus/layers.h"
#include "gradus/nn.h"
#include "gradus/zoo.h"
#include "zoo/zoo.h"

/*net mlp
 * A multilayer perceptron: linear layers with relu between them. x (N, ...) is flattened; its size
 * is inferred from the first batch. Without hidden layers (hidden = 0) it is a linear classifier,
 * or linear regression.
 *   outputs int = 1        in [1, inf): classes, or numbers
 *   hidden int[] = 64   in [0, inf): sizes of the hidden layers
 *   dropout float = 0      in [0, 1): after each hidden layer
 */
static gd_module *mlp_make(const void *options) {
    const gd_zoo_mlp_options *o = options;
    gd_module *net = gd_nn_sequential(gd_nn_flatten());
    int64_t before = GD_ANY;
    for (int i = 0; i < o->hidden.rank; i++) {
        const int64_t size = o->hidden.at[i];
        if (size == 0) continue;
        gd_module_append(net, gd_nn_linear(before, size));
        gd_module_append(net, gd_nn_relu());
        if (o->dropout > 0) gd_module_append(net, gd_nn_dropout(.p = o->dropout));
        before = size;
    }
    gd_module_append(net, gd_nn_linear(before, o->outputs));
    return net;
}

/*net convnet
 * A small convolutional net for small images x (N, channels, H, W), H and W at least 12: two stages
 * of a convolution with batch norm, relu and pooling, then two linear layers.
 *   channels int = 1   in [1, inf)
 *   classes int = 10   in [1, inf)
 *   width int = 16     in [1, inf): channels of the first stage; the second has twice as many
 *   hidden int = 64    in [1, inf): size of the hidden linear layer
 *   dropout float = 0.2  in [0, 1): before the last linear layer
 *   python (channels, num_classes=classes, width, hidden, dropout)
 */
static gd_module *convnet_make(const void *options) {
    const gd_zoo_convnet_options *o = options;
    return gd_nn_sequential(gd_nn_conv2d(o->channels, o->width, 5, .padding = 2, .bias = false),
                            gd_nn_batch_norm2d(o->width), gd_nn_relu(), gd_nn_max_pool2d(2),
                            gd_nn_conv2d(o->width, 2 * o->width, 5, .padding = 2, .bias = false),
                            gd_nn_batch_norm2d(2 * o->width), gd_nn_relu(), gd_nn_max_pool2d(2),
                            gd_nn_flatten(), gd_nn_linear(GD_ANY, o->hidden), gd_nn_relu(),
                            gd_nn_dropout(.p = o->dropout), gd_nn_linear(o->hidden, o->classes));
}

#include "zoo/simple.gen.h"
