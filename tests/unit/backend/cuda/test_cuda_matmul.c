/* test_cuda_matmul.c - small f32 products on CUDA: all layouts, epilogues, parts of the depth, and
 * the launches of a training step. */
#include <math.h>

#include "cuda_child.h"

static float value_at(int64_t i, double start) { return (float)sin(start + 1.7 * (double)i); }

static gd_tensor *make_matrix(int64_t rows, int64_t columns, double start, gd_device *device) {
    float *values = malloc((size_t)(rows * columns) * sizeof *values);
    for (int64_t i = 0; i < rows * columns; i++) values[i] = value_at(i, start);
    gd_tensor *t = gd_from_array(gd_dims(rows, columns), GD_F32, values);
    free(values);
    return gd_to_device(t, device);
}

/* (rows, columns), stored by columns if `transposed`. */
static gd_tensor *make_operand(int64_t rows, int64_t columns, bool transposed, double start,
                               gd_device *device) {
    return transposed ? gd_transpose(make_matrix(columns, rows, start, device), 0, 1)
                      : make_matrix(rows, columns, start, device);
}

static gd_tensor *to_cpu(gd_tensor *t) { return gd_to_device(gd_detach(t), gd_device_get("cpu")); }

/* The largest difference, and infinity if one of two numbers is NaN. */
static double largest_difference(gd_tensor *a, gd_tensor *b) {
    gd_tensor *x = gd_contiguous(to_cpu(a)), *y = gd_contiguous(to_cpu(b));
    const float *p = gd_data(x), *q = gd_data(y);
    double most = 0;
    for (int64_t i = 0; p && q && i < gd_tensor_numel(x); i++) {
        if (isnan(p[i]) && isnan(q[i])) continue;
        const double d = fabs((double)p[i] - (double)q[i]);
        if (!(d <= most)) most = isnan(d) ? INFINITY : d;
    }
    return p && q ? most : INFINITY;
}

/* m, n, k: below and above the sizes of tiles and stages, and deep ones that are divided. */
static const int64_t shapes[][3] = {{1, 1, 1},      {3, 5, 7},      {1, 40, 300},
                                    {33, 65, 129},  {64, 64, 64},   {64, 100, 600},
                                    {128, 10, 512}, {20, 36, 3000}, {100, 200, 64}};

TEST(small_products_have_the_results_of_the_cpu) {
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device(), *cpu = gd_device_get("cpu");
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes) && device; i++)
        for (int layout = 0; layout < 4; layout++) {
            GD_SCOPE;
            const int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
            gd_tensor *y[2], *z[2];
            for (int d = 0; d < 2; d++) {
                gd_device *on = d ? device : cpu;
                gd_tensor *a = make_operand(m, k, layout & 1, 1, on),
                          *b = make_operand(k, n, layout & 2, 2, on);
                y[d] = gd_matmul(a, b);
                z[d] = gd_linear(a, gd_transpose(b, 0, 1),
                                 gd_reshape(make_matrix(1, n, 3, on), gd_dims(n)));
            }
            const double off = largest_difference(y[0], y[1]),
                         off_linear = largest_difference(z[0], z[1]);
            CHECK_SAYING(off < 2e-5 * sqrt((double)k) && off_linear < 2e-5 * sqrt((double)k),
                         "(%d, %d, %d), layout %d: %g %g", (int)m, (int)n, (int)k, layout, off,
                         off_linear);
            CHECK(!gd_failed());
        }
}

/* The same product twice has the same bits: arrival counters are reset, and the order of sums does
 * not depend on which block is last. */
TEST(small_products_have_the_same_bits_each_time) {
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    if (!device) return;
    GD_SCOPE;
    gd_tensor *a = make_matrix(20, 3000, 1, device), *b = make_matrix(3000, 36, 2, device);
    gd_tensor *first = gd_matmul(a, b);
    for (int i = 0; i < 3; i++) CHECK(largest_difference(first, gd_matmul(a, b)) == 0);
}

/* --- training --------------------------------------------------------------------------------- */

typedef struct trainer {
    gd_module *net;
    gd_optimizer *optimizer;
} trainer;

static gd_tensors train_step(gd_tensors in, void *user) {
    trainer *t = user;
    gd_tensor *loss = gd_cross_entropy(gd_module_forward(t->net, in.at[0]), in.at[1]);
    gd_backward(loss);
    gd_optimizer_step(t->optimizer);
    gd_optimizer_zero_grad(t->optimizer);
    return gd_listed(loss);
}

/* `layers` linear layers with relu between them. */
static gd_module *make_net(int layers) {
    enum { MAX_PARTS = 64 };
    gd_module *parts[MAX_PARTS];
    int n = 0;
    for (int i = 0; i < layers; i++) {
        if (i > 0) parts[n++] = gd_nn_relu();
        parts[n++] = gd_nn_linear(i == 0 ? 50 : 24, i == layers - 1 ? 10 : 24);
    }
    return gd_nn_sequential_at(GD_HERE, (gd_modules){parts, n});
}

/* The loss of the last step; *nodes is the size of the captured plan. */
static double train_net(int layers, const char *optimizer, gd_device *device, gd_tensor **weight,
                        int64_t *nodes) {
    gd_seed(7);
    trainer t = {make_net(layers), NULL};
    gd_tensor *x = make_matrix(24, 50, 1, device);
    int64_t classes[24];
    for (int i = 0; i < 24; i++) classes[i] = i * 7 % 10;
    gd_tensor *y = gd_to_device(gd_from_array(gd_dims(24), GD_I64, classes), device);
    gd_module_to(t.net, gd_device_name(device), GD_DTYPE_NONE);
    t.optimizer = gd_optimizer_new(optimizer, gd_module_parameters(t.net), "lr=0.05");
    gd_jit *jit = gd_jit_new(train_step, &t);
    emulated_controls *cuda = emulated_cuda();
    const int64_t before = cuda ? cuda->counts.captured : 0;
    double loss = 0;
    for (int i = 0; i < 6; i++) loss = gd_item(gd_jit_call(jit, gd_list(x, y)).at[0]);
    if (cuda) *nodes = cuda->counts.captured - before;
    *weight = to_cpu(gd_module_parameters(t.net).at[0]);
    return loss;
}

/* The nodes of a step with L layers: L products forward, L - 1 backward, the loss with its gradient,
 * the updates, the group of fetches, and both boundaries. */
static void check_training(int layers, const char *optimizer, int most_nodes) {
    gd_device *device = cuda_open_device();
    if (!device) return;
    GD_SCOPE;
    int64_t nodes = 0, none = 0;
    gd_tensor *here, *there;
    const double a = train_net(layers, optimizer, gd_device_get("cpu"), &here, &none),
                 b = train_net(layers, optimizer, device, &there, &nodes);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    const double off = largest_difference(here, there);
    CHECK_SAYING(fabs(a - b) < 1e-3 && off < 1e-3, "%s: losses %g and %g, weights differ by %g",
                 optimizer, a, b, off);
    if (emulated_cuda())
        CHECK_SAYING(nodes > 0 && nodes <= most_nodes, "%s: %d nodes", optimizer, (int)nodes);
}

TEST(a_step_of_gradient_descent_updates_all_layers_in_one_launch) {
    IN_CHILD(EMULATED, "");
    check_training(3, "sgd", 3 + 1 + 2 + 1 + 1 + 2);
    /* 20 layers are more than one launch has */
    check_training(20, "sgd", 20 + 19 + 1 + 2 + 1 + 2);
}

TEST(other_optimizers_have_one_launch_for_the_gradients_of_a_layer) {
    IN_CHILD(EMULATED, "");
    /* two launches for the updates: the numbers of Adam, then all parameters */
    check_training(3, "adam", 3 + 2 + 3 + 1 + 2 + 1 + 2);
}

/* --- a transposed weight ---------------------------------------------------------------------- */

typedef struct square_layer {
    gd_tensor *w, *b;
    gd_optimizer *optimizer;
} square_layer;

/* The gradient of w is the transpose of the one that the layer computes. */
static gd_tensors train_transposed(gd_tensors in, void *user) {
    square_layer *n = user;
    gd_tensor *loss = gd_mean(gd_square(gd_linear(in.at[0], gd_transpose(n->w, 0, 1), n->b)));
    gd_backward(loss);
    gd_optimizer_step(n->optimizer);
    gd_optimizer_zero_grad(n->optimizer);
    return gd_listed(loss);
}

TEST(a_transposed_weight_is_updated_by_the_transposed_gradient) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    gd_tensor *weights[2];
    for (int level = 0; level <= 2; level += 2) {
        square_layer n = {gd_requires_grad(make_matrix(8, 8, 1, device)),
                          gd_requires_grad(gd_reshape(make_matrix(1, 8, 2, device), gd_dims(8))),
                          NULL};
        n.optimizer = gd_optim_sgd(gd_list(n.w, n.b), .lr = 0.5);
        gd_jit *jit = gd_jit_new(train_transposed, &n, .level = level);
        gd_tensor *x = make_matrix(16, 8, 3, device);
        for (int i = 0; i < 3; i++) gd_jit_call(jit, gd_list(x));
        weights[level / 2] = n.w;
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    const double off = largest_difference(weights[0], weights[1]);
    CHECK_SAYING(off < 1e-5, "%g", off);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
