/* cuda_child.c - tests of the CUDA backend in processes of their own, with an emulated driver. */
#include "cuda_child.h"

bool cuda_on_gpu(void) { return getenv("GRADUS_TEST_GPU") != NULL; }

bool cuda_has_kernel(const char *op, const char *kernel) {
    const gd_kernel *k;
    gd_backends_load();
    for (int i = 0; (k = gd_op_kernel_at(gd_op_find(op), "cuda", i)); i++)
        if (strcmp(k->variant, kernel) == 0) return true;
    return false;
}

/* The emulated driver, with the settings of the test and those of the environment. */
static void cuda_set_emulator(const cuda_child *c) {
    const char *more = getenv("GRADUS_TEST_EMULATED");
    char settings[200];
    snprintf(settings, sizeof settings, "%s%s%s", c->settings, more ? "," : "", more ? more : "");
    const bool checked = getenv("GRADUS_TEST_CHECKED") && strcmp(c->folder, EMULATED) == 0;
    unsetenv("CUDA_HOME");
    setenv("GRADUS_EMULATED_CUDA", settings, 1);
    setenv("LD_LIBRARY_PATH", checked ? EMULATED "/checked" : c->folder, 1);
}

int cuda_exec_child(void *user) {
    const cuda_child *c = user;
    setenv("GRADUS_TEST_CHILD", "1", 1);
    setenv("GRADUS_BACKEND_PATH", GRADUS_TEST_BACKENDS, 1);
    if (!cuda_on_gpu()) cuda_set_emulator(c);
    if (!freopen("/dev/null", "w", stdout)) return 98; /* failures are on stderr */
    execl("/proc/self/exe", "test", c->test, (char *)NULL);
    return 99;
}

bool cuda_in_child(void) { return getenv("GRADUS_TEST_CHILD") != NULL; }

int cuda_run_child(const char *test, const char *folder, const char *settings) {
    return child_run(cuda_exec_child, &(cuda_child){test, folder, settings});
}

int cuda_test_main(int argc, char **argv) {
    setenv("GRADUS_BACKEND_PATH", GRADUS_TEST_BACKENDS, 0);
    if (cuda_on_gpu() && !gd_device_get("cuda")) {
        printf("skipped: %s\n", gd_error_message());
        return 77;
    }
    return test_run_all(argc, argv);
}

bool cuda_failed_with(gd_status status, const char *words) {
    const bool same = gd_error_status() == status && strstr(gd_error_message(), words);
    if (!same)
        fprintf(stderr, "  %s: %s\n  instead of: %s\n", gd_status_name(gd_error_status()),
                gd_error_message(), words);
    gd_clear_error();
    return same;
}

gd_device *cuda_open_device(void) {
    gd_device *device = gd_device_get("cuda");
    CHECK_SAYING(device, "%s", gd_error_message());
    return device;
}

gd_tensor *cuda_tensor(gd_device *device, gd_shape shape, const float *data) {
    return gd_to_device(gd_from_array(shape, GD_F32, data), device);
}

bool cuda_has_values(gd_tensor *t, int n, const float *values) {
    float got[64];
    if (gd_copy_to(t, got, (size_t)n * sizeof *got) != GD_OK) return false;
    return memcmp(got, values, (size_t)n * sizeof *got) == 0;
}

/* --- a small training run ------------------------------------------------------------------------ */

gd_tensors cuda_train_step(gd_tensors in, void *user) {
    cuda_training *t = user;
    gd_tensor *h = gd_relu(gd_matmul(in.at[0], t->w1));
    gd_tensor *loss = gd_mse_loss(gd_matmul(h, t->w2), in.at[1]);
    gd_optimizer_zero_grad(t->adam);
    gd_backward(loss);
    gd_optimizer_step(t->adam);
    return gd_listed(loss);
}

cuda_training cuda_start_training(gd_device *device, int batch) {
    gd_seed(1);
    cuda_training t = {.w1 = gd_requires_grad(gd_to_device(gd_randn(gd_dims(3, 4)), device)),
                       .w2 = gd_requires_grad(gd_to_device(gd_randn(gd_dims(4, 2)), device))};
    t.adam = gd_optim_adam(gd_list(t.w1, t.w2), .lr = 0.05);
    t.x = gd_to_device(gd_randn(gd_dims(batch, 3)), device);
    t.y = gd_to_device(gd_randn(gd_dims(batch, 2)), device);
    return t;
}
