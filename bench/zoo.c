/* zoo.c - training steps of networks of the zoo (zoo.h). */
#include "zoo.h"

#include <math.h>
#include <string.h>

#include "gradus/gradus.h"

typedef struct kind {
    const char *name, *options;
    const char *optimizer, *optimizer_options;
} kind;

/* versus_pytorch.py has the same networks and optimizers, and the batches. */
static const kind kinds[] = {
    {"lenet", "", "sgd", "lr=0.01"},
    {"resnet20", "", "sgd", "lr=0.01 momentum=0.9"},
    {"resnet18", "", "sgd", "lr=0.01 momentum=0.9"},
    {"char_lstm", "vocabulary=65", "adam", "lr=0.001"},
    {"gpt", "vocabulary=65", "adamw", "lr=0.001 weight_decay=0.01"},
};

struct zoo_train {
    gd_module *net;
    gd_optimizer *optimizer;
    gd_tensor *x, *y; /* a batch: images or tokens, and class indices */
    gd_jit *jit;      /* NULL: eager */
};

static const kind *find_kind(const char *net) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, net) == 0) return &kinds[i];
    return NULL;
}
bool zoo_has(const char *net) { return find_kind(net) != NULL; }

/* Gradients are zeroed at the end, not at the start, so that a plan need not keep them. */
static gd_tensors train_batch(gd_tensors in, void *user) {
    zoo_train *t = user;
    gd_tensor *y = gd_module_forward(t->net, in.at[0]);
    gd_tensor *loss = gd_cross_entropy(gd_reshape(y, gd_dims(-1, gd_tensor_dim(y, -1))),
                                       gd_reshape(in.at[1], gd_dims(-1)));
    gd_backward(loss);
    gd_optimizer_step(t->optimizer);
    gd_optimizer_zero_grad(t->optimizer);
    return gd_listed(loss);
}

zoo_train *zoo_new(const char *net, const char *mode, const char *file) {
    static zoo_train train;
    const kind *k = find_kind(net);
    const bool jit = strcmp(mode, "jit") == 0;
    if (!k || (!jit && strcmp(mode, "eager") != 0)) return NULL;
    gd_state *state = gd_read_state(file);
    train = (zoo_train){.net = gd_net_new(k->name, k->options),
                        .x = gd_state_find(state, "x"),
                        .y = gd_state_find(state, "y")};
    gd_load_state(file, gd_part("net", train.net));
    train.optimizer =
        gd_optimizer_new(k->optimizer, gd_module_parameters(train.net), k->optimizer_options);
    if (jit) train.jit = gd_jit_new(train_batch, &train);
    return gd_failed() ? NULL : &train;
}

double zoo_loss(zoo_train *t) {
    GD_SCOPE;
    const gd_tensors in = gd_list(t->x, t->y);
    return gd_item(t->jit ? gd_jit_call(t->jit, in).at[0] : train_batch(in, t).at[0]);
}

void zoo_step(void *train) { zoo_loss(train); }
