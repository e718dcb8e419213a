/* test_cuda_nan.c - NaN, infinities and ties on CUDA have the results of the CPU: in max pooling and
 * ReLU of all forms, which compare elements, and in their gradients. */
#include <math.h>

#include "compare.h"
#include "cuda_child.h"
#include "gradus/ops.h"

/* Many elements are equal, and with `specials` one in 7 is NaN, infinite or 0. */
static gd_tensor *make_values(gd_shape shape, gd_dtype dtype, bool specials, int seed) {
    static const float special[] = {NAN, -INFINITY, INFINITY, -0.0f, NAN, 0};
    int64_t n = 1;
    for (int i = 0; i < shape.rank; i++) n *= shape.at[i];
    float *values = malloc((size_t)n * sizeof *values);
    uint32_t state = (uint32_t)seed * 2654435761u + 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        const uint32_t draw = state >> 8;
        values[i] = specials && draw % 7 == 0 ? special[draw / 7 % 6] : (float)(draw / 7 % 5) - 2;
    }
    gd_tensor *t = gd_cast(gd_from_array(shape, GD_F32, values), dtype);
    free(values);
    return t;
}

/* --- functions: some results, and the gradients of all inputs but the last ---------------------- */

static gd_tensors with_gradients(gd_tensors in, gd_tensor *y) {
    gd_tensors g = gd_grad(gd_list(y), ((gd_tensors){in.at, in.count - 1}),
                           .gradients = gd_list(in.at[in.count - 1]));
    return in.count == 2 ? gd_listed(y, g.at[0]) : gd_listed(y, g.at[0], g.at[1]);
}

/* x (n, c, height, width), or (n, height, width, c) with channels last. */
typedef struct pool_case {
    int64_t n, c, height, width, kernel, stride, padding, dilation;
    bool channels_last;
} pool_case;

static gd_tensors pool(gd_tensors in, void *user) {
    const pool_case *p = user;
    gd_tensor *x = p->channels_last ? gd_permute(in.at[0], gd_dims(0, 3, 1, 2)) : in.at[0];
    gd_max_pool2d_with_indices_outputs r = gd_max_pool2d_with_indices(
        x, .kernel = {{p->kernel, p->kernel}}, .stride = {{p->stride, p->stride}},
        .padding = {{p->padding, p->padding}}, .dilation = {{p->dilation, p->dilation}});
    gd_tensors all = with_gradients(in, r.y);
    return gd_listed(all.at[0], all.at[1], gd_cast(r.indices, GD_F32));
}

static gd_tensors linear_relu(gd_tensors in, void *user) {
    (void)user;
    return with_gradients(in, gd_relu(gd_linear(in.at[0], in.at[1], NULL)));
}

/* x (n, c, h, w), w (o, c, 3, 3), gradient (n, o, h, w); channels are last in memory. */
static gd_tensors conv_relu(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *x =
        gd_permute(gd_contiguous(gd_permute(in.at[0], gd_dims(0, 2, 3, 1))), gd_dims(0, 3, 1, 2));
    return with_gradients(in, gd_relu(gd_conv2d(x, in.at[1], NULL, .padding = {{1, 1}})));
}

/* ReLU before and after max pooling. */
static gd_tensors conv_relu_pool(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *y = gd_relu(gd_conv2d(in.at[0], in.at[1], NULL, .padding = {{1, 1}}));
    return with_gradients(in, gd_max_pool2d(y, .kernel = {{2, 2}}));
}

static gd_tensors entropy(gd_tensors in, void *user) {
    gd_tensor *y = gd_cross_entropy(in.at[0], user, .reduction = GD_NONE);
    return with_gradients(in, y);
}

/* --- comparison ------------------------------------------------------------------------------- */

typedef struct nan_case {
    const char *name;
    gd_tensors (*function)(gd_tensors in, void *user);
    const pool_case *pool;
    gd_shape shapes[3]; /* of the inputs; the last is the gradient of y */
    int n_in;
} nan_case;

static gd_tensors run_on(const nan_case *c, gd_device *device, gd_dtype dtype, bool jit) {
    gd_tensor *in[3];
    void *user = (void *)(uintptr_t)c->pool;
    for (int i = 0; i < c->n_in; i++) {
        in[i] = gd_to_device(make_values(c->shapes[i], dtype, i == 0, i + 1), device);
        if (i == c->n_in - 1) in[i] = gd_ones_like(in[i]);
        else in[i] = gd_requires_grad(gd_detach(in[i]));
    }
    if (c->function == entropy) {
        int64_t classes[64];
        for (int64_t i = 0; i < c->shapes[0].at[0]; i++) classes[i] = 5 * i % c->shapes[0].at[1];
        user = gd_to_device(gd_from_array(gd_dims(c->shapes[0].at[0]), GD_I64, classes), device);
    }
    const gd_tensors inputs = {in, c->n_in};
    gd_tensors y;
    if (jit) y = gd_jit_call(gd_jit_new(c->function, user), inputs);
    else y = c->function(inputs, user);
    gd_tensor *host[3];
    for (int i = 0; i < y.count; i++)
        host[i] = gd_to_device(gd_detach(y.at[i]), gd_device_get("cpu"));
    return y.count == 2 ? gd_listed(host[0], host[1]) : gd_listed(host[0], host[1], host[2]);
}

static void check_nan_case(const nan_case *c, gd_dtype dtype) {
    GD_SCOPE;
    char why[512] = "";
    const gd_tensors expected = run_on(c, gd_device_get("cpu"), dtype, false);
    for (int jit = 0; jit < 2 && !gd_failed(); jit++) {
        const gd_tensors got = run_on(c, gd_device_get("cuda"), dtype, jit);
        for (int i = 0; i < got.count && !gd_failed(); i++)
            CHECK_SAYING(tensors_agree(got.at[i], expected.at[i], 2e-2, why),
                         "%s of %s, %s, result %d: %s", c->name, gd_dtype_name(dtype),
                         jit ? "plan" : "eager", i, why);
    }
    CHECK_SAYING(!gd_failed(), "%s: %s", c->name, gd_error_message());
    gd_clear_error();
}

static const gd_dtype dtypes[] = {GD_F32, GD_F64, GD_F16, GD_BF16};

TEST(max_pooling_of_nan_is_that_of_the_cpu) {
    static const pool_case cases[] = {
        {2, 3, 9, 11, 2, 2, 0, 1, false},  {2, 8, 9, 11, 2, 2, 0, 1, true},
        {2, 3, 9, 11, 3, 2, 1, 1, false},  {2, 16, 9, 11, 3, 2, 1, 1, true},
        {2, 3, 9, 11, 3, 1, 1, 2, false},  {2, 8, 9, 11, 4, 3, 2, 2, true},
        {1, 2, 20, 21, 9, 3, 4, 1, false}, /* a warp for each window */
        {1, 3, 9, 11, 3, 2, 1, 1, true},   {1, 8, 20, 21, 20, 20, 0, 1, true},
    };
    IN_CHILD(EMULATED, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pool_case *p = &cases[i];
        const int64_t reach = (p->kernel - 1) * p->dilation + 1,
                      height = (p->height + 2 * p->padding - reach) / p->stride + 1,
                      width = (p->width + 2 * p->padding - reach) / p->stride + 1;
        const nan_case c = {"pool",
                            pool,
                            p,
                            {p->channels_last ? gd_dims(p->n, p->height, p->width, p->c)
                                              : gd_dims(p->n, p->c, p->height, p->width),
                             gd_dims(p->n, p->c, height, width)},
                            2};
        for (int d = 0; d < 4; d++) check_nan_case(&c, dtypes[d]);
    }
}

TEST(relu_of_nan_is_that_of_the_cpu) {
    const nan_case cases[] = {
        {"linear_relu", linear_relu, NULL, {gd_dims(5, 3), gd_dims(9, 3), gd_dims(5, 9)}, 3},
        {"linear_relu", linear_relu, NULL, {gd_dims(40, 5), gd_dims(33, 5), gd_dims(40, 33)}, 3},
        {"conv_relu",
         conv_relu,
         NULL,
         {gd_dims(2, 16, 8, 8), gd_dims(32, 16, 3, 3), gd_dims(2, 32, 8, 8)},
         3},
        {"conv_relu_pool",
         conv_relu_pool,
         NULL,
         {gd_dims(2, 3, 8, 8), gd_dims(4, 3, 3, 3), gd_dims(2, 4, 4, 4)},
         3},
    };
    IN_CHILD(EMULATED, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int d = 0; d < 4; d++) check_nan_case(&cases[i], dtypes[d]);
}

TEST(losses_of_nan_are_those_of_the_cpu) {
    const nan_case cases[] = {
        {"entropy", entropy, NULL, {gd_dims(30, 5), gd_dims(30)}, 2},
        {"entropy", entropy, NULL, {gd_dims(20, 70), gd_dims(20)}, 2},
        {"entropy", entropy, NULL, {gd_dims(12, 1500), gd_dims(12)}, 2},
    };
    IN_CHILD(EMULATED, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int d = 0; d < 4; d++) check_nan_case(&cases[i], dtypes[d]);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
