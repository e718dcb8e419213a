/* gan.c - a generative adversarial network that learns points on a circle; a step of both nets is
 * one plan.
 *
 * A step runs the batch norm of the discriminator three times: on real points, on generated points,
 * and on the generated points again after its own update.
 */
#include <gradus/gradus.h>

#include "show.h"

#define RADIUS 0.7
enum { BATCH = 128, NOISE = 4, WIDTH = 64, STEPS = 3000 };

typedef struct {
    gd_module *generator, *discriminator;
    gd_optimizer *adam_g, *adam_d;
} gan;

/* The loss of the discriminator if all points are real (1) or generated (0). */
static gd_tensor *discriminator_loss(gan *g, gd_tensor *points, double label) {
    gd_tensor *scores = gd_module_forward(g->discriminator, points);
    return gd_bce_with_logits(scores, gd_full_like(scores, label));
}

static gd_tensors train_step(gd_tensors in, void *user) {
    gan *g = user;
    gd_tensor *points = gd_module_forward(g->generator, gd_randn(gd_dims(BATCH, NOISE)));

    gd_optimizer_zero_grad(g->adam_d);
    gd_tensor *loss_d =
        gd_add(discriminator_loss(g, in.at[0], 1), discriminator_loss(g, gd_detach(points), 0));
    gd_backward(loss_d);
    gd_optimizer_step(g->adam_d);

    gd_optimizer_zero_grad(g->adam_g);
    gd_tensor *loss_g = discriminator_loss(g, points, 1);
    gd_backward(loss_g);
    gd_optimizer_step(g->adam_g);
    return gd_listed(loss_d, loss_g);
}

/* Points at distance RADIUS from the origin. */
static gd_tensor *circle_points(void) {
    gd_tensor *angle = gd_uniform(gd_dims(BATCH), .high = 6.2831853);
    return gd_mul(gd_stack(gd_list(gd_cos(angle), gd_sin(angle)), .axis = 1), RADIUS);
}

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(1);
    gan g = {.generator = gd_nn_sequential(gd_nn_linear(NOISE, WIDTH), gd_nn_relu(),
                                           gd_nn_linear(WIDTH, WIDTH), gd_nn_relu(),
                                           gd_nn_linear(WIDTH, 2), gd_nn_tanh()),
             .discriminator =
                 gd_nn_sequential(gd_nn_linear(2, WIDTH), gd_nn_relu(), gd_nn_linear(WIDTH, WIDTH),
                                  gd_nn_batch_norm1d(WIDTH), gd_nn_relu(), gd_nn_linear(WIDTH, 1))};
    g.adam_g = gd_optim_adam(gd_module_parameters(g.generator), .lr = 3e-4, .beta1 = 0.5);
    g.adam_d = gd_optim_adam(gd_module_parameters(g.discriminator), .lr = 3e-4, .beta1 = 0.5);
    gd_jit *train = gd_jit_new(train_step, &g);
    for (int i = 1; i <= STEPS && !gd_failed(); i++) {
        GD_SCOPE;
        gd_jit_call(train, gd_list(circle_points()));
        if (i % 300 != 0) continue;
        gd_tensor *generated = gd_module_forward(g.generator, gd_randn(gd_dims(1024, NOISE)));
        const double error =
            gd_item(gd_mean(gd_abs(gd_sub(gd_norm(generated, .axis = 1), RADIUS))));
        printf("step %4d   mean distance from the circle %.3f\n", i, error);
    }
    printf("%d steps, traced %s\n", STEPS, gd_jit_traces(train) == 1 ? "once" : "several times");
    return show_failure();
}
