/* test_cuda_conv.c - f32 convolutions on CUDA have the results of the CPU for shapes that
 * choose each kernel, and plans join the gradients of a convolution. */
#include <string.h>

#include "compare.h"
#include "cuda_child.h"
#include "gradus/ops.h"

/* x (n, c, height, width), w (o, c, kernel, kernel); strides and dilations of both axes. */
typedef struct conv_case {
    int n, c, height, width, o, kernel, padding, stride[2], dilation[2];
} conv_case;

enum { LARGEST_SHARED = 0 }; /* the case whose tile has the most shared memory, on large devices */
static const conv_case cases[] = {
    {1, 64, 20, 20, 70, 3, 1, {1, 1}, {1, 1}},
    {64, 1, 12, 12, 20, 5, 0, {1, 1}, {1, 1}},   /* the weight's long sums have many parts */
    {3, 20, 12, 12, 50, 5, 0, {1, 1}, {1, 1}},   /* the gradient of x of a small image */
    {2, 6, 13, 9, 33, 3, 1, {2, 2}, {1, 1}},     /* phases of the gradient of x */
    {2, 5, 8, 8, 9, 1, 0, {2, 2}, {1, 1}},       /* phases without taps */
    {2, 6, 11, 12, 9, 3, 1, {1, 2}, {2, 1}},     /* a dilated axis beside one with phases */
    {2, 40, 20, 20, 70, 3, 1, {1, 1}, {1, 1}},   /* larger tiles */
    {1, 130, 10, 10, 130, 3, 1, {1, 1}, {1, 1}}, /* long sums */
    {2, 9, 15, 7, 40, 3, 0, {2, 2}, {1, 1}},
};

static int result_size(const conv_case *c, int axis) {
    const int size = axis ? c->width : c->height, reach = (c->kernel - 1) * c->dilation[axis];
    return (size + 2 * c->padding - reach - 1) / c->stride[axis] + 1;
}

/* The result, and the gradients of its product with gy. */
static gd_tensors run_case(const conv_case *c, gd_tensor *x, gd_tensor *w, gd_tensor *b,
                           gd_tensor *gy) {
    gd_tensor *y = gd_conv2d(x, w, b, .stride = {{c->stride[0], c->stride[1]}},
                             .padding = {{c->padding, c->padding}},
                             .dilation = {{c->dilation[0], c->dilation[1]}});
    gd_tensors g = gd_grad(gd_list(gd_sum(gd_mul(y, gy))), gd_list(x, w, b));
    return gd_listed(y, g.at[0], g.at[1], g.at[2]);
}

static gd_tensor *make_leaf(gd_tensor *t, gd_device *device) {
    return gd_requires_grad(
        gd_to_device(gd_cast(t, device ? GD_F32 : GD_F64), device ? device : gd_device_get("cpu")));
}

static void check_case(const conv_case *c, gd_device *device) {
    static const char *const names[] = {"y", "gx", "gw", "gb"};
    GD_SCOPE;
    const int height = result_size(c, 0), width = result_size(c, 1), number = (int)(c - cases);
    gd_seed(5);
    gd_tensor *x = gd_randn(gd_dims(c->n, c->c, c->height, c->width)),
              *w = gd_randn(gd_dims(c->o, c->c, c->kernel, c->kernel)),
              *b = gd_randn(gd_dims(c->o)), *gy = gd_randn(gd_dims(c->n, c->o, height, width));
    gd_tensors expected = run_case(c, make_leaf(x, NULL), make_leaf(w, NULL), make_leaf(b, NULL),
                                   gd_cast(gy, GD_F64)),
               got = run_case(c, make_leaf(x, device), make_leaf(w, device), make_leaf(b, device),
                              gd_to_device(gy, device)),
               again = run_case(c, make_leaf(x, device), make_leaf(w, device), make_leaf(b, device),
                                gd_to_device(gy, device));
    for (int i = 0; i < 4 && !gd_failed(); i++) {
        gd_tensor *result = gd_to_device(got.at[i], gd_device_get("cpu")),
                  *second = gd_to_device(again.at[i], gd_device_get("cpu"));
        const double distance = tensors_relative_distance(gd_cast(result, GD_F64), expected.at[i]);
        CHECK_SAYING(distance < 1e-5, "case %d, %s: %g", number, names[i], distance);
        CHECK_SAYING(
            memcmp(gd_data(result), gd_data(second), (size_t)gd_tensor_numel(result) * 4) == 0,
            "case %d, %s: other bits in the second run", number, names[i]);
    }
    CHECK_SAYING(!gd_failed(), "case %d: %s", number, gd_error_message());
    gd_clear_error();
}

TEST(f32_convolutions_have_the_results_of_the_cpu) {
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    for (size_t k = 0; k < sizeof cases / sizeof *cases && device; k++)
        check_case(&cases[k], device);
}

TEST(f32_convolutions_run_with_less_shared_memory) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "shared=101376");
    gd_device *device = cuda_open_device();
    if (device) check_case(&cases[LARGEST_SHARED], device);
}

/* --- joined gradients ------------------------------------------------------------------------- */

typedef struct small_net {
    gd_tensor *w, *b;
} small_net;

static gd_tensors net_gradients(gd_tensors in, void *user) {
    const small_net *net = user;
    gd_tensor *y = gd_max_pool2d(gd_relu(gd_conv2d(in.at[0], net->w, net->b)), .kernel = 2);
    gd_tensors g = gd_grad(gd_list(gd_sum(gd_square(y))), gd_list(net->w, net->b));
    return gd_listed(g.at[0], g.at[1]);
}

static bool ran_op(const char *name) {
    gd_profile_row row;
    for (int64_t i = 0; gd_profiler_row(i, &row); i++)
        if (strcmp(row.op, name) == 0) return true;
    return false;
}

TEST(plans_join_the_gradients_of_a_convolution) {
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    if (!device) return;
    gd_tensor *x = gd_randn(gd_dims(3, 2, 9, 9)), *w = gd_randn(gd_dims(7, 2, 4, 4)),
              *b = gd_randn(gd_dims(7));
    small_net cpu = {gd_requires_grad(w), gd_requires_grad(b)},
              cuda = {make_leaf(gd_detach(w), device), make_leaf(gd_detach(b), device)};
    gd_tensors expected = net_gradients(gd_list(x), &cpu);
    gd_jit *jit = gd_jit_new(net_gradients, &cuda);
    gd_profiler_start();
    gd_tensors got = gd_jit_call(jit, gd_list(gd_to_device(x, device)));
    gd_profiler_stop();
    CHECK(ran_op("conv_grad_weight_bias") && ran_op("pool_scatter_relu"));
    CHECK(!ran_op("conv_grad_weight") && !ran_op("sum") && !ran_op("relu.gx"));
    for (int i = 0; i < 2 && !gd_failed(); i++) {
        const double distance = tensors_relative_distance(
            gd_to_device(got.at[i], gd_device_get("cpu")), expected.at[i]);
        CHECK_SAYING(distance < 1e-5, "gradient %d: %g", i, distance);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
