/* cuda_child.h - tests of the CUDA backend in processes of their own, with an emulated driver
 * (tests/cuda) and faults of its environment.
 *
 *     TEST(a_driver_that_is_too_old) {
 *         IN_CHILD(EMULATED, "old");
 *         ...
 *     }
 *
 * The process that starts the tests runs the program again for such a test, with LD_LIBRARY_PATH and
 * GRADUS_EMULATED_CUDA set. With GRADUS_TEST_GPU=1 the driver is the machine's own, and tests that
 * need faults are skipped.
 *
 * GRADUS_TEST_EMULATED has more words for GRADUS_EMULATED_CUDA: "order=3" or "guard", for example.
 * With GRADUS_TEST_CHECKED=1 the driver finds races (tests/cuda/races.h).
 */
#ifndef GRADUS_TESTS_CUDA_CHILD_H
#define GRADUS_TESTS_CUDA_CHILD_H

#include <stdlib.h>
#include <unistd.h>

#include "cuda/emulated.h"
#include "child.h"
#include "gradus/gradus.h"
#include "test.h"

#define EMULATED       GRADUS_EMULATED_FOLDER            /* driver, NVRTC, cuBLASLt, cuDNN */
#define EMULATED_ONLY  GRADUS_EMULATED_FOLDER "/no_"     /* EMULATED_ONLY "nvrtc": all but NVRTC */
#define EMULATED_EMPTY GRADUS_EMULATED_FOLDER "/no_cuda" /* a driver without functions */

typedef struct cuda_child {
    const char *test, *folder, *settings;
} cuda_child;

static inline bool cuda_on_gpu(void) { return getenv("GRADUS_TEST_GPU") != NULL; }

/* The emulated driver, with the settings of the test and those of the environment. */
static inline void cuda_set_emulator(const cuda_child *c) {
    const char *more = getenv("GRADUS_TEST_EMULATED");
    char settings[200];
    snprintf(settings, sizeof settings, "%s%s%s", c->settings, more ? "," : "", more ? more : "");
    const bool checked = getenv("GRADUS_TEST_CHECKED") && strcmp(c->folder, EMULATED) == 0;
    unsetenv("CUDA_HOME");
    setenv("GRADUS_EMULATED_CUDA", settings, 1);
    setenv("LD_LIBRARY_PATH", checked ? EMULATED "/checked" : c->folder, 1);
}

static inline int cuda_exec_child(void *user) {
    const cuda_child *c = user;
    setenv("GRADUS_TEST_CHILD", "1", 1);
    setenv("GRADUS_BACKEND_PATH", GRADUS_TEST_BACKENDS, 1);
    if (!cuda_on_gpu()) cuda_set_emulator(c);
    if (!freopen("/dev/null", "w", stdout)) return 98; /* failures are on stderr */
    execl("/proc/self/exe", "test", c->test, (char *)NULL);
    return 99;
}

static inline bool cuda_in_child(void) { return getenv("GRADUS_TEST_CHILD") != NULL; }

static inline int cuda_run_child(const char *test, const char *folder, const char *settings) {
    return child_run(cuda_exec_child, &(cuda_child){test, folder, settings});
}

/* The rest of the test runs in a child. */
#define IN_CHILD(folder, settings)                                  \
    do {                                                            \
        if (!cuda_in_child()) {                                     \
            CHECK(cuda_run_child(__func__, folder, settings) == 0); \
            return;                                                 \
        }                                                           \
    } while (0)

#define NEEDS_EMULATOR \
    if (cuda_on_gpu()) SKIP("it needs the emulated driver")

/* The main function. Exit status 77: the tests should use a GPU, and there is none. */
static inline int cuda_test_main(int argc, char **argv) {
    setenv("GRADUS_BACKEND_PATH", GRADUS_TEST_BACKENDS, 0);
    if (cuda_on_gpu() && !gd_device_get("cuda")) {
        printf("skipped: %s\n", gd_error_message());
        return 77;
    }
    return test_run_all(argc, argv);
}

/* Whether a recorded failure has this status and these words; clears it. */
static inline bool cuda_failed_with(gd_status status, const char *words) {
    const bool same = gd_error_status() == status && strstr(gd_error_message(), words);
    if (!same)
        fprintf(stderr, "  %s: %s\n  instead of: %s\n", gd_status_name(gd_error_status()),
                gd_error_message(), words);
    gd_clear_error();
    return same;
}

/* The device; NULL, with a failed check, if it cannot be opened. */
static inline gd_device *cuda_open_device(void) {
    gd_device *device = gd_device_get("cuda");
    CHECK_SAYING(device, "%s", gd_error_message());
    return device;
}

static inline gd_tensor *cuda_tensor(gd_device *device, gd_shape shape, const float *data) {
    return gd_to_device(gd_from_array(shape, GD_F32, data), device);
}

/* Whether the tensor, read back, has these values. */
static inline bool cuda_has_values(gd_tensor *t, int n, const float *values) {
    float got[64];
    if (gd_copy_to(t, got, (size_t)n * sizeof *got) != GD_OK) return false;
    return memcmp(got, values, (size_t)n * sizeof *got) == 0;
}

/* --- a small training run ------------------------------------------------------------------------ */

typedef struct cuda_training {
    gd_tensor *w1, *w2, *x, *y;
    gd_optimizer *adam;
} cuda_training;

static inline gd_tensors cuda_train_step(gd_tensors in, void *user) {
    cuda_training *t = user;
    gd_tensor *h = gd_relu(gd_matmul(in.at[0], t->w1));
    gd_tensor *loss = gd_mse_loss(gd_matmul(h, t->w2), in.at[1]);
    gd_optimizer_zero_grad(t->adam);
    gd_backward(loss);
    gd_optimizer_step(t->adam);
    return gd_listed(loss);
}

/* A net of two layers on the device, with a batch of random inputs and targets. */
static inline cuda_training cuda_start_training(gd_device *device, int batch) {
    gd_seed(1);
    cuda_training t = {.w1 = gd_requires_grad(gd_to_device(gd_randn(gd_dims(3, 4)), device)),
                       .w2 = gd_requires_grad(gd_to_device(gd_randn(gd_dims(4, 2)), device))};
    t.adam = gd_optim_adam(gd_list(t.w1, t.w2), .lr = 0.05);
    t.x = gd_to_device(gd_randn(gd_dims(batch, 3)), device);
    t.y = gd_to_device(gd_randn(gd_dims(batch, 2)), device);
    return t;
}

#endif
