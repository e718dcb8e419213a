/* test_cuda_lists.c - elementwise ops for lists of tensors on CUDA: updates of optimizers and
 * clipped gradients have the bits of the CPU, and take one launch for many parameters. */
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

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
