/* conv_net.c - a convolutional net learns the direction of stripes; a training step is one plan.
 *
 * Images (1, 16, 16) have stripes in one of four directions, with random width, phase and noise.
 * The step is written with eager ops; gd_jit traces it once and then runs it as a plan, including
 * the optimizer.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { SIZE = 16, CLASSES = 4, BATCH = 32, STEPS = 150 };
static const double pi = 3.14159265358979;

typedef struct {
    gd_tensor *conv1, *conv2, *w, *b;
    gd_optimizer *optimizer;
} net;

/* x (n, 1, 16, 16) -> logits (n, 4) */
static gd_tensor *forward(const net *n, gd_tensor *x) {
    gd_tensor *h = gd_max_pool2d(gd_relu(gd_conv2d(x, n->conv1, NULL, .padding = 1)),
                                 .kernel = 2);                            /* (n, 8, 8, 8) */
    h = gd_relu(gd_conv2d(h, n->conv2, NULL, .stride = 2, .padding = 1)); /* (n, 16, 4, 4) */
    return gd_linear(gd_mean(h, .axis = gd_dims(2, 3)), n->w, n->b);
}

/* in: images, labels; returns the loss */
static gd_tensors train_step(gd_tensors in, void *user) {
    net *n = user;
    gd_tensor *loss = gd_cross_entropy(forward(n, in.at[0]), in.at[1]);
    gd_backward(loss);
    gd_optimizer_step(n->optimizer);
    gd_optimizer_zero_grad(n->optimizer);
    return gd_listed(loss);
}

/* sin(frequency (x cos a + y sin a) + phase) + noise, where a is the direction. */
static void make_batch(gd_tensor **images, gd_tensor **labels) {
    const gd_shape each = gd_dims(BATCH, 1, 1, 1);
    *labels = gd_randint(gd_dims(BATCH), 0, CLASSES);
    gd_tensor *a = gd_mul(gd_reshape(*labels, each), pi / CLASSES);
    gd_tensor *frequency = gd_uniform(each, .low = 0.8, .high = 1.8),
              *phase = gd_uniform(each, .high = 2 * pi);
    gd_tensor *x = gd_arange(0, SIZE), *y = gd_reshape(x, gd_dims(SIZE, 1));
    gd_tensor *along = gd_add(gd_mul(x, gd_cos(a)), gd_mul(y, gd_sin(a)));
    gd_tensor *noise = gd_mul(gd_randn(gd_dims(BATCH, 1, SIZE, SIZE)), 0.3);
    *images = gd_add(gd_sin(gd_add(gd_mul(frequency, along), phase)), noise);
}

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(2);
    net n = {.conv1 = gd_requires_grad(gd_init_kaiming_normal(gd_dims(8, 1, 3, 3))),
             .conv2 = gd_requires_grad(gd_init_kaiming_normal(gd_dims(16, 8, 3, 3))),
             .w = gd_requires_grad(gd_init_xavier_uniform(gd_dims(CLASSES, 16))),
             .b = gd_requires_grad(gd_zeros(gd_dims(CLASSES)))};
    n.optimizer = gd_optim_adam(gd_list(n.conv1, n.conv2, n.w, n.b), .lr = 0.01);
    gd_jit *train = gd_jit_new(train_step, &n);
    for (int i = 1; i <= STEPS && !gd_failed(); i++) {
        GD_SCOPE;
        gd_tensor *images, *labels;
        make_batch(&images, &labels);
        gd_tensor *loss = gd_jit_call(train, gd_list(images, labels)).at[0];
        if (i == 1 || i % 25 == 0) show_loss(i, gd_item(loss));
    }
    GD_NO_GRAD;
    double right = 0;
    for (int i = 0; i < 8; i++) {
        GD_SCOPE;
        gd_tensor *images, *labels;
        make_batch(&images, &labels);
        right += gd_item(gd_mean(
                     gd_cast(gd_eq(gd_argmax(forward(&n, images), .axis = 1), labels), GD_F32))) /
                 8;
    }
    printf("%.1f %% of new images are classified correctly.\n", 100 * right);
    return show_failure();
}
