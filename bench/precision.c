/* precision.c - training steps in bf16 and f16 (GD_AUTOCAST) compared with f32. */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "gradus/gradus.h"

typedef struct rival {
    gd_module *net;
    gd_optimizer *optimizer;
    gd_tensor *x, *y;
    gd_jit *jit;
    gd_dtype dtype; /* GD_DTYPE_NONE: f32 throughout */
} rival;

/* As a user would write it; one plan at level 2. */
static gd_tensors train_batch(gd_tensors in, void *user) {
    rival *r = user;
    gd_tensor *loss;
    {
        GD_AUTOCAST(r->dtype);
        gd_tensor *y = gd_module_forward(r->net, in.at[0]);
        loss = gd_cross_entropy(gd_reshape(y, gd_dims(-1, gd_tensor_dim(y, -1))),
                                gd_reshape(in.at[1], gd_dims(-1)));
    }
    gd_backward(loss);
    gd_optimizer_step(r->optimizer);
    gd_optimizer_zero_grad(r->optimizer);
    return gd_listed(loss);
}

static void run_train_step(void *arg) {
    GD_SCOPE;
    rival *r = arg;
    gd_item(gd_jit_call(r->jit, gd_list(r->x, r->y)).at[0]);
}

/* `net` is a network of the zoo, or "mlp". */
static void measure_network(const char *net, gd_tensor *x, gd_tensor *y) {
    static const gd_dtype dtypes[] = {GD_DTYPE_NONE, GD_BF16, GD_F16};
    rival rivals[3];
    void *args[3];
    for (int i = 0; i < 3; i++) {
        rival *r = &rivals[i];
        *r = (rival){.x = x, .y = y, .dtype = dtypes[i]};
        r->net = strcmp(net, "mlp") == 0
                     ? gd_nn_sequential(gd_nn_linear(784, 512), gd_nn_relu(),
                                        gd_nn_linear(512, 512), gd_nn_relu(), gd_nn_linear(512, 10))
                     : gd_net_new(net, strcmp(net, "gpt") == 0 ? "vocabulary=65" : "");
        r->optimizer = gd_optim_adamw(gd_module_parameters(r->net), .lr = 1e-4);
        r->jit = gd_jit_new(train_batch, r);
        args[i] = r;
    }
    bench_rival result[3];
    bench_in_turn(run_train_step, args, 3, result);
    for (int i = 1; i < 3; i++) {
        char name[64], note[120];
        snprintf(name, sizeof name, "precision_%s_%s", net, gd_dtype_name(dtypes[i]));
        snprintf(note, sizeof note, "times as fast as f32: %.4g ms per step, f32 %.4g ms",
                 result[i].ns / 1e6, result[0].ns / 1e6);
        bench_report(name, result[i].speedup, 0, "", note);
    }
}

static gd_tensor *random_classes(gd_shape dims, int64_t n) { return gd_randint(dims, 0, n); }

static void mlp(void) {
    GD_SCOPE;
    measure_network("mlp", gd_randn(gd_dims(128, 784)), random_classes(gd_dims(128), 10));
}
static void lenet(void) {
    GD_SCOPE;
    measure_network("lenet", gd_randn(gd_dims(64, 1, 28, 28)), random_classes(gd_dims(64), 10));
}
static void resnet20(void) {
    GD_SCOPE;
    measure_network("resnet20", gd_randn(gd_dims(64, 3, 32, 32)), random_classes(gd_dims(64), 10));
}
static void gpt(void) {
    GD_SCOPE;
    measure_network("gpt", random_classes(gd_dims(16, 128), 65),
                    random_classes(gd_dims(16, 128), 65));
}

const bench_entry bench_precision[] = {{"precision_mlp", mlp},
                                       {"precision_lenet", lenet},
                                       {"precision_resnet20", resnet20},
                                       {"precision_gpt", gpt},
                                       {NULL, NULL}};
