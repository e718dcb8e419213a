/* consumer.c - a program that uses only the installed library. */
#include <gradus/gradus.h>

#include <math.h>
#include <stdio.h>

typedef struct {
    gd_module *body, *head;
} two_parts;

static gd_tensors forward(gd_tensors in, void *self) {
    two_parts *m = self;
    return gd_listed(gd_module_forward(m->head, gd_module_forward(m->body, in.at[0])));
}

/* A user-defined module, with layers and options by name. */
static int modules(void) {
    GD_SCOPE;
    gd_module *net = gd_module_new(forward, sizeof(two_parts), .type = "two_parts");
    two_parts *m = gd_module_self(net);
    GD_CHILD(net, m->body,
             gd_nn_sequential(gd_nn_conv2d(1, 4, 3, .padding = 1), gd_nn_relu(),
                              gd_nn_max_pool2d(2), gd_nn_flatten(), gd_nn_dropout(.p = 0.1)));
    GD_CHILD(net, m->head, gd_nn_linear(GD_ANY, 10, .bias = false));
    gd_tensor *y = gd_module_forward(net, gd_randn(gd_dims(2, 1, 8, 8)));
    gd_tensor *loss =
        gd_module_forward(gd_nn_mse_loss(.reduction = GD_SUM), y, gd_zeros(gd_dims(2, 10)));
    gd_backward(loss);
    return !gd_failed() && gd_tensor_dim(y, 1) == 10 &&
           gd_module_parameters(net, .match = "*.weight").count == 2 &&
           gd_module_grad(net, "head.weight") && gd_init_orthogonal(gd_dims(3, 3), .gain = 2);
}

int main(void) {
    GD_SCOPE;
    const float values[] = {-2, -1, 0, 1, 2, 3};
    gd_tensor *x = gd_requires_grad(gd_from_array(gd_dims(2, 3), GD_F32, values));
    gd_tensor *y = gd_sum(gd_leaky_relu(x, .slope = 0.5), .axis = 1);
    {
        GD_SCOPE; /* scopes nest without a warning */
        gd_backward(gd_sum(y));
    }
    if (gd_failed()) {
        fprintf(stderr, "%s\n", gd_error_message());
        return 1;
    }
    if (!modules()) {
        fprintf(stderr, "modules: %s\n", gd_error_message());
        return 1;
    }
    float sums[2], slopes[6];
    if (gd_copy_to(y, sums, sizeof sums) != GD_OK) return 1;
    if (gd_copy_to(gd_tensor_grad(x), slopes, sizeof slopes) != GD_OK) return 1;
    printf("%g %g, %g %g\n", sums[0], sums[1], slopes[0], slopes[5]);
    return sums[0] == -1.5f && sums[1] == 6 && slopes[0] == 0.5f && slopes[5] == 1 ? 0 : 1;
}
