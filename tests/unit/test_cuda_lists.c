/* test_cuda_lists.c - elementwise ops for lists of tensors on CUDA: updates of optimizers and
 * clipped gradients have the bits of the CPU, and take one launch for many parameters; a plan copies
 * running statistics in one call (graph/plan/lists.c). */
#include <math.h>

#include "cuda_child.h"

/* Sizes around the ends of a vector and of a chunk (kernels/expression.h). */
static const int64_t sizes[] = {1, 3, 4, 5, 17, 1024, 4095, 4096, 4097, 9000, 0, 8192};
enum { N_SIZES = sizeof sizes / sizeof *sizes, PARAMETERS = 6 * N_SIZES, STEPS = 3 };

static gd_tensor *make_values(int64_t n, double start, double step, gd_dtype dtype,
                              gd_device *device) {
    float *values = malloc((size_t)(n + 1) * sizeof *values);
    for (int64_t k = 0; k < n; k++) values[k] = (float)sin(start + step * (double)k);
    gd_tensor *t = gd_cast(gd_to_device(gd_from_array(gd_dims(n), GD_F32, values), device), dtype);
    free(values);
    return t;
}

/* The same values at an address that is not aligned for vectors. */
static gd_tensor *make_unaligned(int64_t n, double start, double step, gd_dtype dtype,
                                 gd_device *device) {
    return gd_narrow(make_values(n + 1, start - step, step, dtype, device), 0, 1, n);
}

typedef struct updated {
    gd_tensor *values[PARAMETERS];
    int64_t launches; /* of the last step; -1: unknown */
} updated;

static updated update_parameters(const char *optimizer, gd_dtype dtype, bool clips,
                                 gd_device *device) {
    updated u = {.launches = -1};
    for (int i = 0; i < PARAMETERS; i++) {
        const int64_t n = sizes[i % N_SIZES];
        u.values[i] = gd_requires_grad(make_values(n, i, 0.1, dtype, device));
        gd_set_grad(u.values[i], i % 13 == 5 ? make_unaligned(n, 3.0 * i, 0.7, dtype, device)
                                             : make_values(n, 3.0 * i, 0.7, dtype, device));
    }
    const gd_tensors all = {u.values, PARAMETERS};
    gd_optimizer *o = gd_optimizer_new(optimizer, all, "lr=0.01 weight_decay=0.1");
    for (int step = 0; step < STEPS; step++) {
        if (clips) gd_clip_grad_value(all, 0.4);
        emulated_controls *cuda = emulated_cuda();
        const int64_t before = cuda ? cuda->counts.launches : 0;
        gd_optimizer_step(o);
        if (cuda) u.launches = cuda->counts.launches - before;
    }
    for (int i = 0; i < PARAMETERS; i++)
        u.values[i] = gd_to_device(gd_detach(u.values[i]), gd_device_get("cpu"));
    return u;
}

static int64_t count_differences(const updated *a, const updated *b, gd_dtype dtype) {
    int64_t n = 0;
    for (int i = 0; i < PARAMETERS; i++)
        n += memcmp(gd_data(a->values[i]), gd_data(b->values[i]),
                    (size_t)sizes[i % N_SIZES] * gd_dtype_size(dtype)) != 0;
    return n;
}

TEST(updates_of_lists_have_the_bits_of_the_cpu) {
    static const char *const optimizers[] = {"sgd", "adam", "adamw", "rmsprop", "adagrad"};
    static const gd_dtype dtypes[] = {GD_F32, GD_BF16, GD_F16, GD_F64};
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    for (int o = 0; o < 5 && device; o++)
        for (int d = 0; d < 4; d++) {
            GD_SCOPE;
            const updated here =
                update_parameters(optimizers[o], dtypes[d], d % 2, gd_device_get("cpu"));
            const updated there = update_parameters(optimizers[o], dtypes[d], d % 2, device);
            if (gd_failed()) {
                CHECK_SAYING(false, "%s", gd_error_message());
                gd_clear_error();
                continue;
            }
            /* a GPU's square root and division have the same bits, too */
            const int64_t different = count_differences(&here, &there, dtypes[d]);
            CHECK_SAYING(different == 0, "%s %s: %d parameters differ", optimizers[o],
                         gd_dtype_name(dtypes[d]), (int)different);
            if (there.launches < 0 || dtypes[d] == GD_F64) continue;
            CHECK_SAYING(there.launches < PARAMETERS / 2, "%s %s: %d launches for %d parameters",
                         optimizers[o], gd_dtype_name(dtypes[d]), (int)there.launches, PARAMETERS);
        }
}

/* --- copies of variables ---------------------------------------------------------------------- */

enum { NORMS = 3 };

typedef struct classifier {
    gd_module *net;
    gd_optimizer *sgd;
} classifier;

static gd_tensors classify_step(gd_tensors in, void *user) {
    classifier *c = user;
    gd_optimizer_zero_grad(c->sgd);
    gd_tensor *loss = gd_cross_entropy(gd_module_forward(c->net, in.at[0]), in.at[1]);
    gd_backward(loss);
    gd_optimizer_step(c->sgd);
    return gd_listed(loss);
}

/* All running statistics, as one tensor on the CPU. */
static gd_tensor *statistics_of(gd_module *net) {
    gd_tensors buffers = gd_module_buffers(net);
    gd_tensor *flat[16];
    int64_t n = 0;
    for (int64_t i = 0; i < buffers.count && n < 16; i++)
        flat[n++] = gd_cast(
            gd_reshape(gd_to_device(buffers.at[i], gd_device_get("cpu")), gd_dims(-1)), GD_F32);
    return gd_cat(((gd_tensors){flat, n}), .axis = 0);
}

static gd_tensor *classes_of(const int64_t *classes) {
    return gd_to_device(gd_from_array(gd_dims(4), GD_I64, classes), gd_default_device());
}

/* The loss can fail, so a plan updates copies of the statistics and commits them at the end.
 * `*copies` is the number of calls for this. */
static gd_tensor *track_statistics(gd_device *device, bool jit, int64_t *copies) {
    gd_set_default_device(device);
    gd_seed(4);
    classifier c = {.net = gd_nn_sequential(gd_nn_linear(7, 5), gd_nn_batch_norm1d(5),
                                            gd_nn_linear(5, 6), gd_nn_batch_norm1d(6),
                                            gd_nn_linear(6, 3), gd_nn_batch_norm1d(3))};
    c.sgd = gd_optim_sgd(gd_module_parameters(c.net), .lr = 0.1);
    gd_tensor *x = gd_randn(gd_dims(4, 7)), *y = classes_of((int64_t[]){0, 2, 1, 2});
    gd_jit *fast = jit ? gd_jit_new(classify_step, &c) : NULL;
    for (int i = 0; i < STEPS + 2; i++) {
        if (i == STEPS + 1) gd_profiler_start();
        if (fast) gd_jit_call(fast, gd_list(x, y));
        else classify_step(gd_list(x, y), &c);
    }
    gd_profiler_stop();
    gd_profile_row row;
    *copies = 0;
    for (int64_t i = 0; gd_profiler_row(i, &row); i++)
        if (strcmp(row.op, "clone") == 0) *copies += row.calls;
    gd_tensor *before = statistics_of(c.net);
    if (fast) { /* a run that fails changes nothing */
        gd_jit_call(fast, gd_list(x, classes_of((int64_t[]){0, 3, 1, 2})));
        CHECK(gd_synchronize(device) == GD_E_INDEX);
        gd_clear_error();
        gd_tensor *after = statistics_of(c.net);
        CHECK(gd_item(gd_max(gd_abs(gd_sub(after, before)))) == 0);
    }
    gd_set_default_device(NULL);
    return before;
}

TEST(plans_copy_variables_in_lists) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    int64_t none, copies;
    gd_tensor *expected = track_statistics(gd_device_get("cpu"), false, &none),
              *got = track_statistics(cuda_open_device(), true, &copies);
    const double worst = gd_item(gd_max(gd_abs(gd_sub(got, expected))));
    CHECK_SAYING(worst < 1e-4, "%g", worst);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    /* one call at the start, one at the end, and for each norm that of its counter */
    CHECK_SAYING(copies <= 2 + NORMS, "%d copies", (int)copies);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
