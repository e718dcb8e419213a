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
#ifndef GRADUS_TESTS_UNIT_BACKEND_CUDA_CUDA_CHILD_H
#define GRADUS_TESTS_UNIT_BACKEND_CUDA_CUDA_CHILD_H

#include <stdlib.h>
#include <unistd.h>

#include "child.h"
#include "cuda/emulated.h"
#include "gradus/extend.h"
#include "gradus/gradus.h"
#include "test.h"

#define EMULATED       GRADUS_EMULATED_FOLDER            /* driver, NVRTC, cuBLASLt, cuDNN */
#define EMULATED_ONLY  GRADUS_EMULATED_FOLDER "/no_"     /* EMULATED_ONLY "nvrtc": all but NVRTC */
#define EMULATED_EMPTY GRADUS_EMULATED_FOLDER "/no_cuda" /* a driver without functions */

typedef struct cuda_child {
    const char *test, *folder, *settings;
} cuda_child;

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

/* Builds that did not find the header of a library lack its kernels. */
#define NEEDS_KERNEL(op, kernel) \
    if (!cuda_has_kernel(op, kernel)) SKIP("it needs " op "." kernel)

typedef struct cuda_training {
    gd_tensor *w1, *w2, *x, *y;
    gd_optimizer *adam;
} cuda_training;

bool cuda_on_gpu(void);
/* Whether the build has the kernel; it needs no device. */
bool cuda_has_kernel(const char *op, const char *kernel);
bool cuda_in_child(void);
int cuda_run_child(const char *test, const char *folder, const char *settings);
int cuda_exec_child(void *user);
/* The main function. Exit status 77: the tests should use a GPU, and there is none. */
int cuda_test_main(int argc, char **argv);
/* Whether a recorded failure has this status and these words; clears it. */
bool cuda_failed_with(gd_status status, const char *words);
/* The device; NULL, with a failed check, if it cannot be opened. */
gd_device *cuda_open_device(void);
gd_tensor *cuda_tensor(gd_device *device, gd_shape shape, const float *data);
/* Whether the tensor, read back, has these values. */
bool cuda_has_values(gd_tensor *t, int n, const float *values);
gd_tensors cuda_train_step(gd_tensors in, void *user);
/* A net of two layers on the device, with a batch of random inputs and targets. */
cuda_training cuda_start_training(gd_device *device, int batch);

#endif
