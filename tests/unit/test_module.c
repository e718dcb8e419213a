/* test_module.c - modules: trees, names, calls, modes, messages. */
#include <string.h>

#include "gradus/gradus.h"
#include "test.h"

typedef struct { gd_module *fc1, *fc2; } two_layer;

static gd_tensors two_layer_forward(gd_tensors in, void *self) {
    two_layer *m = self;
    return gd_listed(gd_module_forward(m->fc2, gd_relu(gd_module_forward(m->fc1, in.at[0]))));
}

static gd_module *two_layer_new(int64_t in, int64_t hidden, int64_t out) {
    gd_module *net = gd_module_new(two_layer_forward, sizeof(two_layer), .type = "two_layer");
    two_layer *m = gd_module_self(net);
    GD_CHILD(net, m->fc1, gd_nn_linear(in, hidden));
    GD_CHILD(net, m->fc2, gd_nn_linear(hidden, out));
    return net;
}

TEST(a_module_of_ones_own_has_named_parameters_and_computes) {
    GD_SCOPE;
    gd_module *net = two_layer_new(4, 8, 3);
    gd_tensors p = gd_module_parameters(net);
    CHECK_INT(p.count, 4);
    char name[64];
    static const char *const names[] = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};
    for (int i = 0; i < 4; i++) CHECK_STR(gd_module_name_of(net, p.at[i], name, sizeof name), names[i]);
    CHECK_INT(gd_module_parameter_count(net), 4 * 8 + 8 + 8 * 3 + 3);
    gd_tensor *x = gd_randn(gd_dims(5, 4)), *y = gd_module_forward(net, x);
    gd_tensor *z = gd_linear(gd_relu(gd_linear(x, p.at[0], p.at[1])), p.at[2], p.at[3]);
    CHECK_FLOAT(gd_item(gd_max(gd_abs(gd_sub(y, z)))), 0);
    CHECK(!gd_failed());
}
