/* minibatches.c - classifies points of two spirals: minibatches, dropout and an eager optimizer.
 *
 * The points of two classes lie on two intertwined spirals. Every epoch visits them in a new random
 * order, 32 at a time. Dropout is on in training and off in the test, which uses other points.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { POINTS = 512, BATCH = 32, WIDTH = 64, EPOCHS = 60 };
static const double pi = 3.14159265358979;

typedef struct {
    gd_tensor *w1, *b1, *w2, *b2, *w3, *b3;
} net;

static gd_tensor *forward(const net *n, gd_tensor *x, bool training) {
    gd_tensor *h = gd_relu(gd_linear(x, n->w1, n->b1));
    h = gd_dropout(gd_relu(gd_linear(h, n->w2, n->b2)), .p = 0.1, .training = training);
    return gd_linear(h, n->w3, n->b3);
}

/* Points x (count, 2) and their classes y (count). */
static void make_spirals(int count, gd_tensor **x, gd_tensor **y) {
    gd_tensor *t = gd_uniform(gd_dims(count), .low = 0.1, .high = 1);
    gd_tensor *class = gd_randint(gd_dims(count), 0, 2);
    gd_tensor *angle = gd_add(gd_mul(t, 3 * pi), gd_mul(class, pi));
    gd_tensor *noise = gd_mul(gd_randn(gd_dims(count, 2)), 0.02);
    *x = gd_add(gd_stack(gd_list(gd_mul(t, gd_cos(angle)), gd_mul(t, gd_sin(angle))), .axis = 1),
                noise);
    *y = class;
}

static double accuracy_of(const net *n, gd_tensor *x, gd_tensor *y) {
    GD_SCOPE;
    GD_NO_GRAD;
    gd_tensor *predicted = gd_argmax(forward(n, x, false), .axis = 1);
    return gd_item(gd_mean(gd_cast(gd_eq(predicted, y), GD_F32)));
}

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(1);
    gd_tensor *x, *y, *test_x, *test_y;
    make_spirals(POINTS, &x, &y);
    make_spirals(POINTS, &test_x, &test_y);
    net n = {gd_requires_grad(gd_init_kaiming_normal(gd_dims(WIDTH, 2))),
             gd_requires_grad(gd_zeros(gd_dims(WIDTH))),
             gd_requires_grad(gd_init_kaiming_normal(gd_dims(WIDTH, WIDTH))),
             gd_requires_grad(gd_zeros(gd_dims(WIDTH))),
             gd_requires_grad(gd_init_kaiming_normal(gd_dims(2, WIDTH))),
             gd_requires_grad(gd_zeros(gd_dims(2)))};
    gd_optimizer *adam = gd_optim_adam(gd_list(n.w1, n.b1, n.w2, n.b2, n.w3, n.b3), .lr = 0.01);

    for (int epoch = 1; epoch <= EPOCHS && !gd_failed(); epoch++) {
        GD_SCOPE;
        gd_tensor *order = gd_randperm(POINTS);
        double total = 0;
        for (int at = 0; at < POINTS; at += BATCH) {
            GD_SCOPE; /* tensors of a step are freed at its end */
            gd_tensor *batch = gd_narrow(order, 0, at, BATCH);
            gd_tensor *loss = gd_cross_entropy(forward(&n, gd_index_select(x, 0, batch), true),
                                               gd_index_select(y, 0, batch));
            gd_optimizer_zero_grad(adam);
            gd_backward(loss);
            gd_optimizer_step(adam);
            total += gd_item(loss) * BATCH / POINTS;
        }
        if (epoch == 1 || epoch % 10 == 0) show_loss(epoch, total);
    }
    const double right = accuracy_of(&n, test_x, test_y);
    printf("%.1f %% of the test points are classified correctly.\n", 100 * right);
    return show_failure();
}
