/* test_device_lists.c - updates of many parameters in one kernel call on an asynchronous device,
 * eagerly and in plans (graph/passes/list_updates.c). */
#include <string.h>

#include "backend/test/device.h"
#include "gradus/gradus.h"
#include "test.h"

enum { LAYERS = 3, STEPS = 4 };

typedef struct training {
    gd_module *net;
    gd_optimizer *optimizer;
    gd_tensor *x, *y;
} training;

static gd_tensors train_step(gd_tensors in, void *user) {
    training *t = user;
    gd_optimizer_zero_grad(t->optimizer);
    gd_tensor *loss = gd_mse_loss(gd_module_forward(t->net, in.at[0]), in.at[1]);
    gd_backward(loss);
    gd_optimizer_step(t->optimizer);
    return gd_listed(loss);
}

static gd_optimizer *make_optimizer(gd_module *net, const char *name) {
    if (strcmp(name, "sgd") == 0) return gd_optim_sgd(gd_module_parameters(net), .lr = 0.1);
    if (strcmp(name, "momentum") == 0)
        return gd_optim_sgd(gd_module_parameters(net), .lr = 0.1, .momentum = 0.9);
    return gd_optim_adam(gd_module_parameters(net), .lr = 0.01);
}

/* All parameters after some steps on a device, as one list on the CPU. */
static gd_tensor *train_on(gd_device *device, const char *optimizer, bool jit) {
    gd_set_default_device(device);
    gd_seed(3);
    training t = {.net = gd_nn_sequential(gd_nn_linear(7, 5), gd_nn_relu(), gd_nn_linear(5, 6),
                                          gd_nn_tanh(), gd_nn_linear(6, 2)),
                  .x = gd_randn(gd_dims(4, 7)),
                  .y = gd_randn(gd_dims(4, 2))};
    t.optimizer = make_optimizer(t.net, optimizer);
    gd_jit *fast = jit ? gd_jit_new(train_step, &t) : NULL;
    for (int i = 0; i < STEPS; i++) {
        if (fast) gd_jit_call(fast, gd_list(t.x, t.y));
        else train_step(gd_list(t.x, t.y), &t);
    }
    gd_tensors parameters = gd_module_parameters(t.net);
    gd_tensor *flat[2 * LAYERS];
    CHECK(parameters.count == 2 * LAYERS);
    for (int i = 0; i < 2 * LAYERS; i++)
        flat[i] = gd_reshape(gd_to_device(gd_detach(parameters.at[i]), gd_device_get("cpu")),
                             gd_dims(-1));
    gd_tensor *all = gd_cat(((gd_tensors){flat, 2 * LAYERS}), .axis = 0);
    gd_set_default_device(NULL);
    return all;
}

static void check_optimizer(const char *optimizer) {
    GD_SCOPE;
    gd_tensor *expected = train_on(gd_device_get("cpu"), optimizer, false);
    for (int jit = 0; jit < 2; jit++) {
        gd_tensor *got = train_on(gd_test_device(), optimizer, jit);
        const double worst = gd_item(gd_max(gd_abs(gd_sub(got, expected))));
        CHECK_SAYING(worst < 1e-5, "%s, %s: %g", optimizer, jit ? "jit" : "eager", worst);
    }
}

/* Kernels of one eager step of the optimizer. */
static int64_t count_step_kernels(int layers) {
    GD_SCOPE;
    gd_device *device = gd_test_device();
    gd_module *layer[6];
    for (int i = 0; i < 6; i++) layer[i] = gd_nn_linear(4, 4);
    gd_module *net =
        layers == 2 ? gd_nn_sequential(layer[0], layer[1])
                    : gd_nn_sequential(layer[0], layer[1], layer[2], layer[3], layer[4], layer[5]);
    gd_optimizer *sgd = gd_optim_sgd(gd_module_parameters(net), .lr = 0.1);
    gd_backward(gd_sum(gd_module_forward(net, gd_ones(gd_dims(2, 4)))));
    gd_optimizer_step(sgd);
    const int64_t before = gd_test_device_controls(device)->counts.kernels;
    gd_optimizer_step(sgd);
    return gd_test_device_controls(device)->counts.kernels - before;
}

TEST(updates_in_lists_equal_single_updates) {
    check_optimizer("sgd");
    check_optimizer("momentum");
    check_optimizer("adam");
}

TEST(a_step_of_the_optimizer_is_one_call_for_all_parameters) {
    gd_set_default_device(gd_test_device());
    const int64_t few = count_step_kernels(2), many = count_step_kernels(6);
    gd_set_default_device(NULL);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK_SAYING(few == many, "%d and %d", (int)few, (int)many);
}

TEST_MAIN
