/* test_cuda_softmax.c - softmax along rows on CUDA: in the registers of a warp or a block, and rows
 * that are read twice, with and without vectors. */
#include "compare.h"
#include "cuda_child.h"

static gd_tensors compute_rows(gd_tensor *x) {
    gd_tensor *y = gd_softmax(x, .axis = 1), *log_y = gd_log_softmax(x, .axis = 1),
              *sum = gd_logsumexp(x, .axis = 1);
    gd_tensor *g = gd_cos(gd_mul(gd_detach(x), gd_scalar(3)));
    gd_tensor *total = gd_add(gd_sum(gd_mul(y, g)), gd_sum(gd_mul(log_y, g)));
    return gd_list_copy(gd_list(y, log_y, sum, gd_grad(gd_list(total), gd_list(x)).at[0]));
}

static void check_length(int64_t n, gd_dtype dtype, double tolerance, gd_device *device) {
    GD_SCOPE;
    gd_seed(5);
    gd_tensor *x = gd_cast(gd_mul(gd_randn(gd_dims(3, n)), gd_scalar(2)), dtype);
    const gd_tensors expected = compute_rows(gd_requires_grad(gd_detach(x))),
                     got = compute_rows(gd_requires_grad(gd_to_device(x, device)));
    for (int i = 0; i < 4 && !gd_failed(); i++) {
        const double distance = tensors_relative_distance(
            gd_cast(gd_to_device(got.at[i], "cpu"), GD_F32), gd_cast(expected.at[i], GD_F32));
        CHECK_SAYING(distance < tolerance, "%lld of dtype %d, result %d: %g", (long long)n,
                     (int)dtype, i, distance);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST(rows_of_any_length_have_the_softmax_of_the_cpu) {
    IN_CHILD(EMULATED, "");
    gd_device *device = cuda_open_device();
    static const int64_t lengths[] = {31, 256, 257, 1024, 1028, 4097, 9000, 16384, 16388, 20001};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && device; i++) {
        check_length(lengths[i], GD_F32, 1e-5, device);
        check_length(lengths[i], GD_BF16, 1e-2, device);
        check_length(lengths[i], GD_F64, 1e-6, device);
    }
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
