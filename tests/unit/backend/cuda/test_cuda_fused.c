/* test_cuda_fused.c - kernels that plans print and NVRTC compiles: each kind of loop, in each float
 * dtype, gives the results of the CPU. If the build found a real NVRTC, the emulated one also compiles
 * every source with it, for all architectures (tests/cuda/nvrtc.cpp). */
#include <math.h>

#include "compare.h"
#include "cuda_child.h"

static gd_tensors fuse_chain(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *x = in.at[0];
    return gd_listed(gd_mul(gd_gelu(gd_add(gd_mul(x, gd_scalar(2)), gd_scalar(1))), x));
}
static gd_tensors fuse_broadcast(gd_tensors in, void *user) {
    (void)user; /* a row and a column */
    gd_tensor *row = gd_narrow(in.at[1], 0, 0, 1), *column = gd_narrow(in.at[1], 1, 0, 1);
    return gd_listed(gd_tanh(gd_sub(gd_add(in.at[0], row), gd_exp(column))));
}
static gd_tensors fuse_transposed(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *x = gd_transpose(in.at[0], 0, 1), *y = gd_transpose(in.at[1], 0, 1);
    return gd_listed(gd_relu(gd_add(gd_mul(x, y), x)));
}
static gd_tensors fuse_two_results(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *y = gd_sigmoid(gd_add(in.at[0], in.at[1]));
    return gd_listed(y, gd_mul(y, in.at[0]));
}
static gd_tensors fuse_selection(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_where(gd_gt(in.at[0], in.at[1]), gd_square(in.at[0]), gd_neg(in.at[1])));
}
static gd_tensors fuse_sum_of_rows(gd_tensors in, void *user) {
    (void)user; /* an eighth, because an f16 must hold exp(sum) */
    gd_tensor *x = gd_mul(in.at[0], gd_scalar(0.125));
    return gd_listed(gd_sum(gd_mul(x, in.at[1]), .axis = gd_dims(1)));
}
static gd_tensors fuse_sum_of_columns(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_sum(gd_mul(in.at[0], in.at[1]), .axis = gd_dims(0)));
}
static gd_tensors fuse_mean_of_all(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_mean(gd_square(gd_sub(in.at[0], in.at[1]))));
}
static gd_tensors fuse_largest(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_max(gd_abs(gd_sub(in.at[0], in.at[1])), .axis = gd_dims(1)));
}
static gd_tensors fuse_softmax(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_softmax(gd_mul(in.at[0], in.at[1])));
}
static gd_tensors fuse_normalized(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *x = gd_add(in.at[0], in.at[1]);
    gd_tensor *centred = gd_sub(x, gd_mean(x, .axis = gd_dims(1), .keepdim = true));
    return gd_listed(gd_div(
        centred, gd_sqrt(gd_add(gd_mean(gd_square(centred), .axis = gd_dims(1), .keepdim = true),
                                gd_scalar(1e-5)))));
}

static const struct {
    const char *name;
    gd_tensors (*function)(gd_tensors in, void *user);
} fused[] = {
    {"a chain", fuse_chain},
    {"broadcast operands", fuse_broadcast},
    {"transposed operands", fuse_transposed},
    {"two results", fuse_two_results},
    {"a selection", fuse_selection},
    {"sums of rows", fuse_sum_of_rows},
    {"sums of columns", fuse_sum_of_columns},
    {"the mean of all", fuse_mean_of_all},
    {"the largest of a row", fuse_largest},
    {"softmax", fuse_softmax},
    {"normalized rows", fuse_normalized},
};

/* A result, and the gradient of sum(y exp(y)) over all results y. */
typedef gd_tensors (*fused_function)(gd_tensors in, void *user);

static gd_tensors with_gradients(gd_tensors in, void *user) {
    gd_tensors y = ((fused_function)user)(in, NULL);
    gd_tensor *sum = gd_sum(gd_mul(y.at[0], gd_exp(y.at[0])));
    for (int64_t i = 1; i < y.count; i++)
        sum = gd_add(sum, gd_sum(gd_mul(y.at[i], gd_exp(y.at[i]))));
    gd_tensors g = gd_grad(gd_list(sum), gd_list(in.at[0]), .allow_unused = true);
    return gd_listed(y.at[0], g.at[0] ? g.at[0] : y.at[0]);
}

static void check_fused(gd_device *device, int k, gd_dtype dtype) {
    GD_SCOPE;
    enum { ROWS = 9, COLUMNS = 70, RUNS = 3 };
    gd_seed(3);
    gd_tensor *x = gd_cast(gd_randn(gd_dims(ROWS, COLUMNS)), dtype),
              *y = gd_cast(gd_randn(gd_dims(ROWS, COLUMNS)), dtype);
    gd_requires_grad(x);
    gd_tensors expected = with_gradients(gd_list(x, y), (void *)fused[k].function);
    gd_tensor *on_x = gd_requires_grad(gd_to_device(gd_detach(x), device)),
              *on_y = gd_to_device(gd_detach(y), device);
    gd_jit *jit = gd_jit_new(with_gradients, (void *)fused[k].function);
    for (int run = 0; run < RUNS; run++) {
        gd_tensors got = gd_jit_call(jit, gd_list(on_x, on_y));
        for (int i = 0; i < 2 && !gd_failed(); i++) {
            const double distance = tensors_relative_distance(
                gd_to_device(got.at[i], gd_device_get("cpu")), expected.at[i]);
            const double most = dtype == GD_F64 ? 1e-12 : dtype == GD_F32 ? 1e-5 : 8e-2;
            CHECK_SAYING(distance < most, "%s, %s, result %d, run %d: %g", fused[k].name,
                         gd_dtype_name(dtype), i, run, distance);
        }
    }
    CHECK_SAYING(!gd_failed(), "%s, %s: %s", fused[k].name, gd_dtype_name(dtype),
                 gd_error_message());
    gd_clear_error();
}

TEST(fused_kernels_give_the_results_of_the_cpu) {
    static const gd_dtype dtypes[] = {GD_F32, GD_F64, GD_BF16, GD_F16};
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    for (size_t k = 0; k < sizeof fused / sizeof *fused && device; k++)
        for (int d = 0; d < 4; d++) {
            /* a real NVRTC compiles all sources of f32, and of the others a sample */
            setenv("GRADUS_NVRTC_SAMPLE", dtypes[d] == GD_F32 ? "1" : "16", 1);
            check_fused(device, (int)k, dtypes[d]);
        }
}

/* Reductions whose elements several blocks share. A capture has one node for each: the block that
 * arrives last combines the parts, and resets its counter for the next run. */
TEST(reductions_of_many_elements_take_one_launch) {
    static const int64_t dims[][2] = {{1, 9000}, {3, 5000}, {3000, 40}};
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    for (int i = 0; i < 9 && device; i++) {
        GD_SCOPE;
        const int64_t rows = dims[i % 3][0], columns = dims[i % 3][1];
        static const fused_function functions[] = {fuse_sum_of_rows, fuse_sum_of_columns,
                                                   fuse_mean_of_all};
        gd_seed(5);
        gd_tensor *x = gd_randn(gd_dims(rows, columns)), *y = gd_randn(gd_dims(rows, columns));
        gd_tensor *expected = functions[i / 3](gd_list(x, y), NULL).at[0];
        gd_tensor *on_x = gd_to_device(x, device), *on_y = gd_to_device(y, device);
        gd_jit *jit = gd_jit_new(functions[i / 3], NULL);
        emulated_controls *cuda = emulated_cuda();
        const int64_t before = cuda ? cuda->counts.captured : 0;
        for (int run = 0; run < 4; run++) {
            gd_tensor *got = gd_jit_call(jit, gd_list(on_x, on_y)).at[0];
            const double distance =
                tensors_relative_distance(gd_to_device(got, gd_device_get("cpu")), expected);
            CHECK_SAYING(distance < 1e-5, "case %d, run %d: %g", i, run, distance);
        }
        if (cuda) /* with both boundaries */
            CHECK_SAYING(cuda->counts.captured - before <= 3, "case %d: %d nodes", i,
                         (int)(cuda->counts.captured - before));
        CHECK_SAYING(!gd_failed(), "case %d: %s", i, gd_error_message());
        gd_clear_error();
    }
}

/* Sums outside of plans: blocks share the elements of an output. */
TEST(sums_of_many_elements_take_one_launch) {
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    for (int i = 0; i < 3 && device; i++) {
        GD_SCOPE;
        gd_seed(6);
        gd_tensor *x = gd_randn(gd_dims(20, 3, 40, 41)), *on = gd_to_device(x, device);
        const gd_shape axes = i == 0   ? gd_dims(0, 1, 2, 3)
                              : i == 1 ? gd_dims(0, 2, 3)
                                       : gd_dims(1, 2, 3);
        gd_tensor *expected = gd_sum(x, .axis = axes);
        emulated_controls *cuda = emulated_cuda();
        gd_to_device(gd_sum(on, .axis = axes), gd_device_get("cpu")); /* loads the kernel */
        for (int run = 0; run < 3; run++) {
            const int64_t before = cuda ? cuda->counts.launches : 0;
            gd_tensor *got = gd_sum(on, .axis = axes);
            if (cuda) CHECK(cuda->counts.launches - before == 1);
            CHECK(tensors_relative_distance(gd_to_device(got, gd_device_get("cpu")), expected) <
                  1e-5);
        }
        CHECK(!gd_failed());
    }
}

static gd_tensors fuse_loss(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *loss = gd_mse_loss(in.at[0], in.at[1]);
    return gd_listed(loss, gd_grad(gd_list(loss), gd_list(in.at[0])).at[0]);
}

TEST(a_loss_and_its_gradient_take_one_launch) {
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    if (!device) return;
    GD_SCOPE;
    gd_seed(5);
    gd_tensor *x = gd_randn(gd_dims(30, 200)), *y = gd_randn(gd_dims(30, 200));
    gd_tensor *on_x = gd_requires_grad(gd_to_device(x, device)), *on_y = gd_to_device(y, device);
    gd_tensors expected = fuse_loss(gd_list(gd_requires_grad(x), y), NULL);
    gd_jit *jit = gd_jit_new(fuse_loss, NULL);
    emulated_controls *cuda = emulated_cuda();
    const int64_t before = cuda ? cuda->counts.captured : 0;
    for (int run = 0; run < 4; run++) {
        gd_tensors got = gd_jit_call(jit, gd_list(on_x, on_y));
        for (int i = 0; i < 2; i++)
            CHECK(tensors_relative_distance(gd_to_device(got.at[i], gd_device_get("cpu")),
                                            expected.at[i]) < 1e-5);
    }
    if (cuda) /* with both boundaries */
        CHECK_SAYING(cuda->counts.captured - before <= 3, "%d nodes",
                     (int)(cuda->counts.captured - before));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* --- optimizers ------------------------------------------------------------------------------- */

static const struct {
    const char *name, *options;
} optimizers[] = {{"sgd", "lr=0.1 momentum=0.9"},
                  {"adam", "lr=0.01"},
                  {"adamw", "lr=0.01 weight_decay=0.1"},
                  {"rmsprop", "lr=0.01"}};

typedef struct update_state {
    gd_tensor *w[3];
    gd_optimizer *optimizer;
} update_state;

static gd_tensors update_step(gd_tensors in, void *user) {
    update_state *s = user;
    gd_tensor *loss = gd_scalar(0);
    for (int i = 0; i < 3; i++) loss = gd_add(loss, gd_sum(gd_square(gd_mul(s->w[i], in.at[0]))));
    gd_optimizer_zero_grad(s->optimizer);
    gd_backward(loss);
    gd_optimizer_step(s->optimizer);
    return gd_listed(loss);
}

/* The loss after some steps on a device. */
static double train_weights(int k, gd_device *device) {
    GD_SCOPE;
    gd_seed(5);
    update_state s;
    for (int i = 0; i < 3; i++)
        s.w[i] = gd_requires_grad(gd_to_device(gd_randn(gd_dims(4 + i, 6)), device));
    s.optimizer = gd_optimizer_new(optimizers[k].name, gd_list(s.w[0], s.w[1], s.w[2]),
                                   optimizers[k].options);
    gd_tensor *x = gd_to_device(gd_rand(gd_dims(6)), device);
    gd_jit *jit = gd_jit_new(update_step, &s);
    double loss = 0;
    for (int i = 0; i < 5; i++) loss = gd_item(gd_jit_call(jit, gd_list(x)).at[0]);
    return loss;
}

TEST(fused_updates_give_the_results_of_the_cpu) {
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers && device; i++) {
        const double here = train_weights((int)i, gd_device_get("cpu")),
                     there = train_weights((int)i, device);
        CHECK_SAYING(!gd_failed() && fabs(here - there) < 1e-5 * fabs(here), "%s: %g, not %g; %s",
                     optimizers[i].name, there, here, gd_error_message());
        gd_clear_error();
    }
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
