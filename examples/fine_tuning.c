/* fine_tuning.c - a net that was trained on one task learns another one by training only a new
 * head.
 *
 * Task one: in which of four rings around the origin does a point of the plane lie? Task two, with
 * a tenth of the points: does it lie inside another circle? The body is frozen.
 */
#include <gradus/gradus.h>

#include "show.h"

enum { WIDTH = 64, RINGS = 4, MANY = 512, FEW = 48 };

static gd_module *new_net(void) {
    gd_module *body = gd_nn_sequential(gd_nn_linear(2, WIDTH), gd_nn_tanh(),
                                       gd_nn_linear(WIDTH, WIDTH), gd_nn_tanh());
    return gd_nn_sequential(body, gd_nn_linear(WIDTH, RINGS));
}

/* Trains a net to distinguish rings of this width. Returns its accuracy. */
static double train(gd_module *net, gd_tensor *x, double ring, int64_t rings, int steps) {
    gd_tensor *number = gd_floor(gd_div(gd_norm(x, .axis = 1), ring));
    gd_tensor *labels = gd_minimum(gd_cast(number, GD_I64), gd_scalar_int(rings - 1));
    gd_optimizer *adam =
        gd_optim_adam(gd_module_parameters(net), .lr = 1e-2); /* skips frozen parameters */
    for (int step = 1; step <= steps && !gd_failed(); step++) {
        GD_SCOPE;
        gd_tensor *loss = gd_cross_entropy(gd_module_forward(net, x), labels);
        gd_optimizer_zero_grad(adam);
        gd_backward(loss);
        gd_optimizer_step(adam);
        if (step % 100 == 0) show_loss(step, gd_item(loss));
    }
    gd_tensor *right = gd_eq(gd_argmax(gd_module_forward(net, x), .axis = 1), labels);
    return gd_item(gd_mean(gd_cast(right, GD_F32)));
}

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(1);
    gd_module *first = new_net(), *net = new_net();
    gd_tensor *points = gd_uniform(gd_dims(MANY, 2), .low = -1);
    const double learned = train(first, points, 0.3, RINGS, 300);
    gd_save_state("rings.safetensors", gd_part("net", first));

    gd_load_state("rings.safetensors", gd_part("net", net));
    gd_module_freeze(net);
    gd_module_replace(net, "1", gd_nn_linear(WIDTH, 2));
    const double tuned = train(net, gd_uniform(gd_dims(FEW, 2), .low = -1), 0.75, 2, 200);

    const gd_tensors before = gd_module_parameters(first), after = gd_module_parameters(net);
    bool same = true; /* the body has the first four */
    for (int i = 0; i < 4; i++) same &= gd_item(gd_any(gd_ne(before.at[i], after.at[i]))) == 0;
    printf("accuracy of task one %.3f, of task two %.3f; %s\n", learned, tuned,
           same ? "the body is unchanged" : "the body has changed");
    return show_failure();
}
