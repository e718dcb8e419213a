/* test_cuda_faults.c - the CUDA backend without a driver, a device, a library or memory, and with a
 * device that is lost. Each test is a process with an emulated driver. */
#include <dlfcn.h>

#include "cuda_child.h"
#include "temp.h"

/* --- opening ---------------------------------------------------------------------------------- */

/* gd_device_get fails with these words, and the CPU works. */
static void check_no_device(const char *words) {
    GD_SCOPE;
    CHECK(gd_device_get("cuda") == NULL);
    CHECK(cuda_failed_with(GD_E_DEVICE, words));
    CHECK(gd_device_get("cuda:0") == NULL); /* a second attempt fails the same way */
    CHECK(cuda_failed_with(GD_E_DEVICE, words));
    CHECK(gd_item(gd_sum(gd_ones(gd_dims(3)))) == 3);
    CHECK(!gd_failed());
}

TEST(without_a_driver) {
    NEEDS_EMULATOR;
    IN_CHILD("", "");
    if (dlopen("libcuda.so.1", RTLD_NOW)) SKIP("this machine has a CUDA driver");
    check_no_device("there is no CUDA driver (libcuda.so.1 was not found)");
}

TEST(driver_that_lacks_a_function) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED_EMPTY, "");
    check_no_device("the CUDA driver has no function cu");
}

TEST(driver_that_is_too_old) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "old");
    check_no_device("the CUDA driver supports CUDA 11.8; ");
}

TEST(driver_that_finds_no_device) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "none");
    check_no_device("the CUDA driver finds no device");
}

TEST(device_that_is_too_old) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "weak");
    check_no_device(
        "device 0, emulated device, has compute capability 7.5; 8.0 or newer is needed");
}

TEST(wrong_device_name) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    if (!cuda_open_device()) return;
    CHECK(gd_device_get("cuda:77") == NULL);
    CHECK(cuda_failed_with(GD_E_DEVICE, "there is no device 'cuda:77'; there is cpu, cuda:0"));
    CHECK(gd_device_get("cudo") == NULL);
    CHECK(cuda_failed_with(GD_E_DEVICE, "there is no device 'cudo'"));
}

TEST(tensors_on_two_devices) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    gd_matmul(cuda_tensor(device, gd_dims(2, 2), (float[]){1, 2, 3, 4}), gd_ones(gd_dims(2, 2)));
    CHECK(cuda_failed_with(GD_E_DEVICE, "'a' is on cuda:0 and 'b' is on cpu; move one with"));
}

/* --- libraries -------------------------------------------------------------------------------- */

static gd_tensors chain_ops(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_sum(gd_mul(gd_add(in.at[0], in.at[1]), in.at[0])));
}

/* Products, convolutions, elementwise ops and fused plans. A failure must name the library. */
static void check_ops(const char *missing) {
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    if (!device) return;
    gd_tensor *x = cuda_tensor(device, gd_dims(2, 2), (float[]){1, 2, 3, 4});
    CHECK_SAYING(cuda_has_values(gd_matmul(x, x), 4, (float[]){7, 10, 15, 22}), "%s",
                 gd_error_message());
    gd_tensor *image = cuda_tensor(device, gd_dims(1, 1, 2, 2), (float[]){1, 2, 3, 4}),
              *filter = cuda_tensor(device, gd_dims(1, 1, 1, 2), (float[]){10, 1});
    gd_tensor *y = gd_conv2d(image, filter, NULL);
    const bool convolved = cuda_has_values(y, 2, (float[]){12, 34});
    CHECK_SAYING(convolved || (gd_failed() && strstr(gd_error_message(), missing)), "%s",
                 gd_error_message());
    gd_clear_error();
    gd_jit *jit = gd_jit_new(chain_ops, NULL);
    for (int i = 0; i < 4; i++) {
        const double sum = gd_item(gd_jit_call(jit, gd_list(x, x)).at[0]);
        CHECK_SAYING(sum == 60 || (gd_failed() && strstr(gd_error_message(), missing)), "%g, %s",
                     sum, gd_error_message());
        gd_clear_error();
    }
}

TEST(with_all_libraries) {
    IN_CHILD(EMULATED, "");
    check_ops("nothing");
}
TEST(without_nvrtc) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED_ONLY "nvrtc", "");
    check_ops("NVRTC (libnvrtc.so) was not found");
}
TEST(without_cublaslt) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED_ONLY "cublasLt", "");
    check_ops("nothing");
}
TEST(without_cudnn) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED_ONLY "cudnn", "");
    check_ops("nothing");
}

/* The system has an empty library of that name. */
static void check_given_folder(const char *library) {
    setenv("GRADUS_CACHE", temp_new_folder("given"), 1); /* NVRTC has to compile */
    CHECK(gd_add_library_folder("/does/not/exist") == GD_OK);
    CHECK(gd_add_library_folder(EMULATED) == GD_OK);
    check_ops("nothing");
    GD_SCOPE;
    gd_tensor *x = gd_to_device(gd_full(gd_dims(2, 2), 3, .dtype = GD_F64), cuda_open_device());
    CHECK(gd_item(gd_sum(gd_matmul(x, x))) == 72); /* by cuBLASLt: our own fast kernel is for f32 */
    void *loaded = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    CHECK_SAYING(loaded, "%s is not loaded", library);
    if (loaded) dlclose(loaded);
}
TEST(folders_of_the_program_come_before_those_of_the_system) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED_ONLY "nvrtc", "");
    check_given_folder(EMULATED "/libnvrtc.so.13");
}
TEST(cublaslt_may_be_in_a_folder_of_the_program) {
    NEEDS_EMULATOR;
    NEEDS_KERNEL("matmul", "cublaslt");
    IN_CHILD(EMULATED_ONLY "cublasLt", "");
    check_given_folder(EMULATED "/libcublasLt.so.13");
}

TEST(failures_of_cublaslt) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    gd_tensor *x = cuda_tensor(device, gd_dims(2, 2), (float[]){1, 2, 3, 4});
    emulated_controls *cuda = emulated_cuda();
    const int64_t before = cuda->counts.library_calls;
    CHECK(cuda_has_values(gd_matmul(x, x), 4, (float[]){7, 10, 15, 22}));
    if (cuda->counts.library_calls == before) SKIP("the backend was built without cuBLASLt");
    cuda->no_algorithm = 1; /* the backend's own kernel runs, or the message has the sizes */
    gd_tensor *wide = cuda_tensor(device, gd_dims(2, 1), (float[]){1, 1}), *y = gd_matmul(x, wide);
    CHECK_SAYING(gd_failed() ? gd_error_status() == GD_E_UNSUPPORTED &&
                                   strstr(gd_error_message(), "(2, 2) (2, 1)")
                             : cuda_has_values(y, 2, (float[]){3, 7}),
                 "%s", gd_error_message());
    gd_clear_error();
    cuda->no_algorithm = 0;
    cuda->failing_library = 1;
    y = gd_matmul(x, x);
    CHECK(cuda_failed_with(GD_E_DEVICE, "cuBLASLt failed with status"));
    cuda->failing_library = 0;
    CHECK(cuda_has_values(gd_matmul(x, x), 4, (float[]){7, 10, 15, 22}));
    CHECK(!gd_failed());
}

/* A convolution whose shape no earlier call had, so that it is planned again: image (1, 1, 2, n). */
static gd_tensor *convolve(gd_device *device, int n) {
    float image[2 * 8];
    for (int i = 0; i < 2 * n; i++) image[i] = (float)i;
    return gd_conv2d(cuda_tensor(device, gd_dims(1, 1, 2, n), image),
                     cuda_tensor(device, gd_dims(1, 1, 2, 1), (float[]){10, 1}), NULL);
}

TEST(failures_of_cudnn) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    emulated_controls *cuda = emulated_cuda();
    const int64_t before = cuda->counts.library_calls;
    CHECK(cuda_has_values(convolve(device, 2), 2, (float[]){2, 13}));
    if (cuda->counts.library_calls == before) SKIP("the backend was built without cuDNN");
    cuda->no_algorithm = 1; /* the backend's own kernel runs */
    CHECK_SAYING(cuda_has_values(convolve(device, 3), 3, (float[]){3, 14, 25}), "%s",
                 gd_error_message());
    cuda->no_algorithm = 0;
    cuda->failing_library = 1;
    gd_tensor *y = convolve(device, 4);
    (void)y;
    CHECK(cuda_failed_with(GD_E_DEVICE, "cudnnBackendExecute failed with"));
    cuda->failing_library = 0;
    CHECK(cuda_has_values(convolve(device, 4), 4, (float[]){4, 15, 26, 37}));
    CHECK(!gd_failed());
}

TEST(with_an_unwritable_kernel_cache) {
    static const char folder[] = "/proc/self/no_such_folder"; /* not writable for root either */
    char before[1000];
    if (!cuda_in_child()) {
        const char *own = getenv("GRADUS_CACHE");
        snprintf(before, sizeof before, "%s", own ? own : "");
        setenv("GRADUS_CACHE", folder, 1);
        CHECK(cuda_run_child(__func__, EMULATED, "") == 0);
        if (own) setenv("GRADUS_CACHE", before, 1);
        else unsetenv("GRADUS_CACHE");
        return;
    }
    check_ops("nothing");
    CHECK(access(folder, F_OK) != 0);
}

TEST(two_processes_that_fill_the_kernel_cache) {
    if (cuda_in_child()) {
        check_ops("nothing");
        return;
    }
    const char *own = getenv("GRADUS_CACHE");
    char before[1000];
    snprintf(before, sizeof before, "%s", own ? own : "");
    const char *folder = temp_new_folder("cuda_cache");
    setenv("GRADUS_CACHE", folder, 1);
    setenv("GRADUS_EMULATED_CACHE", folder, 1);
    cuda_child child = {__func__, EMULATED, ""};
    for (int round = 0; round < 2; round++) { /* an empty cache, then a full one */
        const pid_t first = child_start(cuda_exec_child, &child),
                    second = child_start(cuda_exec_child, &child);
        CHECK(child_wait(first) == 0);
        CHECK(child_wait(second) == 0);
    }
    unsetenv("GRADUS_EMULATED_CACHE");
    if (own) setenv("GRADUS_CACHE", before, 1);
    else unsetenv("GRADUS_CACHE");
}

/* --- memory ----------------------------------------------------------------------------------- */

/* The losses of some steps, as bytes in the file that GRADUS_TEST_FILE names. */
static void train_with_batch(gd_device *device, int batch, bool writes) {
    GD_SCOPE;
    cuda_training t = cuda_start_training(device, batch);
    gd_jit *jit = gd_jit_new(cuda_train_step, &t);
    float losses[5] = {0};
    for (int i = 0; i < 5 && !gd_failed(); i++) {
        GD_SCOPE;
        losses[i] = (float)gd_item(gd_jit_call(jit, gd_list(t.x, t.y)).at[0]);
    }
    if (!writes) return;
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    FILE *f = fopen(getenv("GRADUS_TEST_FILE"), "wb");
    CHECK(f && fwrite(losses, sizeof losses, 1, f) == 1);
    if (f) fclose(f);
}

/* Leaves a GPU between 64 and 128 MiB of memory until the caller's scope ends; the emulated device has
 * little anyway. */
static void fill_gpu(void) {
    enum { SMALLEST = 64 << 20 };
    if (!cuda_on_gpu()) return;
    gd_set_default_device("cuda");
    {
        GD_SCOPE;
        gd_empty(gd_dims(SMALLEST), GD_U8); /* free again at the end of this block */
        for (int64_t bytes = (int64_t)1 << 36; bytes >= SMALLEST;) {
            gd_tensor *t = gd_empty(gd_dims(bytes), GD_U8);
            if (!gd_failed()) {
                gd_keep(t);
                continue;
            }
            CHECK(cuda_failed_with(GD_E_MEMORY, "no memory for "));
            bytes /= 2;
        }
    }
    gd_set_default_device("cpu");
}

TEST(run_in_little_memory) {
    if (!cuda_in_child()) return; /* a part of the next test */
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    const bool fails_first = getenv("GRADUS_TEST_LARGE") != NULL;
    if (fails_first) {
        fill_gpu();
        train_with_batch(device, 4 << 20, false);
        CHECK(strstr(gd_error_message(), "no memory for "));
        CHECK(cuda_on_gpu() || strstr(gd_error_message(), "of 50331648 bytes are free"));
        CHECK(strstr(gd_error_message(), "are held by this program, of which tensors use"));
        CHECK(cuda_failed_with(GD_E_MEMORY, "on cuda:0"));
    }
    train_with_batch(device, 16, true);
}

static void read_losses(const char *file, float *losses) {
    FILE *f = fopen(file, "rb");
    CHECK(f && fread(losses, 5 * sizeof *losses, 1, f) == 1);
    if (f) fclose(f);
}

TEST(smaller_batch_after_out_of_memory) {
    float fresh[5] = {0}, retried[5] = {1};
    const char *file = temp_path("losses");
    setenv("GRADUS_TEST_FILE", file, 1);
    CHECK(cuda_run_child("run_in_little_memory", EMULATED, "") == 0);
    read_losses(file, fresh);
    setenv("GRADUS_TEST_LARGE", "1", 1);
    CHECK(cuda_run_child("run_in_little_memory", EMULATED, "memory=50331648") == 0);
    unsetenv("GRADUS_TEST_LARGE");
    read_losses(file, retried);
    CHECK(memcmp(fresh, retried, sizeof fresh) == 0);
    CHECK(fresh[4] < fresh[0]);
}

/* --- a lost device ---------------------------------------------------------------------------- */

/* Trains, with both eager and compiled steps, and saves the losses. Exit status 42: the device was
 * not lost. */
TEST(training_until_the_device_is_lost) {
    if (!cuda_in_child()) return; /* a part of the next test */
    const int64_t objects = gd_live_objects();
    gd_device *device = gd_device_get("cuda");
    if (!device) { /* lost while it was opened */
        CHECK(gd_error_status() == GD_E_DEVICE);
        return;
    }
    {
        GD_SCOPE;
        gd_tensor *host = gd_ones(gd_dims(2));
        cuda_training t = cuda_start_training(device, 8);
        gd_jit *jit = gd_jit_new(cuda_train_step, &t);
        for (int i = 0; i < 4; i++) {
            GD_SCOPE;
            gd_item(cuda_train_step(gd_list(t.x, t.y), &t).at[0]);
            gd_item(gd_jit_call(jit, gd_list(t.x, t.y)).at[0]);
        }
        if (!gd_failed()) _exit(42);
        CHECK_SAYING(gd_error_status() == GD_E_DEVICE, "%s", gd_error_message());
        gd_clear_error();
        gd_add(t.x, t.x); /* every later call fails */
        CHECK(cuda_failed_with(GD_E_DEVICE, "cuda:0 is lost"));
        float read[12];
        CHECK(gd_copy_to(t.w1, read, sizeof read) == GD_E_DEVICE);
        gd_clear_error();
        CHECK(gd_synchronize(device) == GD_E_DEVICE);
        gd_clear_error();
        gd_jit_call(jit, gd_list(t.x, t.y));
        CHECK(gd_error_status() == GD_E_DEVICE);
        gd_clear_error();
        gd_to_device(host, device);
        CHECK(gd_error_status() == GD_E_DEVICE);
        gd_clear_error();
        CHECK(gd_item(gd_sum(host)) == 2);
    }
    CHECK_SAYING(gd_live_objects() == objects, "%lld objects are alive",
                 (long long)(gd_live_objects() - objects));
    CHECK(gd_memory_stats(device).live_bytes == 0);
    CHECK(!gd_failed());
}

TEST(device_lost_at_any_kernel) {
    NEEDS_EMULATOR;
    int status = 0, runs = 0;
    for (int n = 1; n < 5000 && status == 0;
         n = getenv("GRADUS_TEST_FULL") ? n + 1 : n + n / 4 + 1) {
        char settings[40];
        snprintf(settings, sizeof settings, "lost=%d", n);
        status = cuda_run_child("training_until_the_device_is_lost", EMULATED, settings);
        CHECK_SAYING(status == 0 || status == 42, "%s: status %d", settings, status);
        runs++;
    }
    CHECK(status == 42 && runs > 10);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
