/* test_cuda_debug.c - failures of a CUDA device: what the message says, with and without
 * GRADUS_DEBUG=device. */
#include "cuda_child.h"

/* The emulated device fails in the third kernel, when the host waits. */
static void fail_in_the_third_kernel(void) {
    GD_SCOPE;
    GD_NO_GRAD;
    gd_device *device = cuda_open_device();
    if (!device) return;
    gd_tensor *x = cuda_tensor(device, gd_dims(2), (float[]){1, 2});
    gd_synchronize(device);
    emulated_cuda()->lose_after = 2;
    gd_tensor *y = gd_exp(x);
    y = gd_neg(y);
    y = gd_sqrt(gd_abs(y)); /* abs fails */
    gd_item(gd_sum(y));
}

TEST(a_failure_is_reported_with_the_calls_since_the_last_wait) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "");
    fail_in_the_third_kernel();
    CHECK(strstr(gd_error_message(), "the cause is exp (") &&
          strstr(gd_error_message(), "test_cuda_debug.c"));
    CHECK(cuda_failed_with(GD_E_DEVICE, "calls after it; GRADUS_DEBUG=device finds it"));
}

TEST(in_debug_mode_the_call_that_fails_reports_it) {
    NEEDS_EMULATOR;
    if (!cuda_in_child()) setenv("GRADUS_DEBUG", "device", 1);
    IN_CHILD(EMULATED, "");
    fail_in_the_third_kernel();
    CHECK(!strstr(gd_error_message(), "the cause is"));
    CHECK(cuda_failed_with(GD_E_DEVICE, "abs(x f32[2]): cuda:0: "));
}

TEST(in_debug_mode_results_of_plans_are_the_same) {
    NEEDS_EMULATOR;
    if (!cuda_in_child()) setenv("GRADUS_DEBUG", "device", 1);
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    cuda_training eager = cuda_start_training(device, 4), planned = cuda_start_training(device, 4);
    gd_jit *jit = gd_jit_new(cuda_train_step, &planned);
    for (int i = 0; i < 4; i++) {
        const double a = gd_item(cuda_train_step(gd_list(eager.x, eager.y), &eager).at[0]),
                     b = gd_item(gd_jit_call(jit, gd_list(planned.x, planned.y)).at[0]);
        CHECK(a - b < 1e-5 && b - a < 1e-5);
    }
    CHECK(emulated_cuda()->counts.graph_launches == 0); /* plans are not captured */
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* The word is read together with the data: one wait. */
TEST(reading_a_tensor_waits_once) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    gd_tensor *x = cuda_tensor(device, gd_dims(2), (float[]){1, 2});
    float got[2];
    gd_copy_to(x, got, sizeof got);
    const emulated_counts before = emulated_cuda()->counts;
    CHECK(gd_copy_to(x, got, sizeof got) == GD_OK && got[1] == 2);
    CHECK(emulated_cuda()->counts.waits == before.waits + 1);
    CHECK(emulated_cuda()->counts.copies == before.copies + 2);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
