/* test_cuda_variants.c - texts of plans and profiles name the kernel that ran on CUDA, and what it has
 * chosen for the call; a library without an algorithm for a problem leaves it to the next kernel. */
#include <string.h>

#include "compare.h"
#include "cuda_child.h"
#include "gradus/ops.h"

static gd_tensor *make_operand(gd_shape dims, gd_dtype dtype) {
    return gd_to_device(gd_cast(gd_randn(dims), dtype), gd_device_get("cuda"));
}

/* --- texts of plans --------------------------------------------------------------------------- */

/* x w, or their convolution; for depthwise ones w is (C, 1, ...). */
static gd_tensors compute(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *x = in.at[0], *w = in.at[1];
    if (gd_tensor_rank(x) == 2) return gd_listed(gd_matmul(x, w));
    const int64_t groups = gd_tensor_dim(x, 1) / gd_tensor_dim(w, 1);
    return gd_listed(gd_tensor_rank(x) == 5 ? gd_conv3d(x, w, NULL, .groups = groups)
                                            : gd_conv2d(x, w, NULL, .groups = groups));
}

/* The first step of the plan that does not run by a compiled expression; NULL: none. */
static const char *first_kernel(const char *text) {
    const char *by = text ? strstr(text, "  by ") : NULL;
    while (by && strncmp(by + 5, "built", 5) == 0) by = strstr(by + 5, "  by ");
    return by;
}

static void check_first_kernel(gd_body function, gd_tensors in, const char *kernel) {
    char *text = gd_jit_plan_text(gd_jit_new(function, NULL), in);
    const char *by = first_kernel(text);
    CHECK_SAYING(by && strncmp(by + 5, kernel, strlen(kernel)) == 0, "not by %s: %s", kernel,
                 text ? text : gd_error_message());
    free(text);
}

/* The only step of the plan runs by this kernel. */
static void check_plan(gd_dtype dtype, gd_shape x, gd_shape w, const char *kernel) {
    GD_SCOPE;
    gd_seed(3);
    const gd_tensors in = gd_list(make_operand(x, dtype), make_operand(w, dtype));
    char *text = gd_jit_plan_text(gd_jit_new(compute, NULL), in);
    const char *by = text ? strstr(text, "  by ") : NULL;
    CHECK_SAYING(by && strncmp(by + 5, kernel, strlen(kernel)) == 0, "not by %s: %s", kernel,
                 text ? text : gd_error_message());
    CHECK_SAYING(by && !strstr(by + 5, "  by "), "%s", text);
    free(text);
}

TEST(plan_texts_name_each_kernel_and_what_it_has_chosen) {
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    check_plan(GD_F32, gd_dims(2, 8, 8, 8), gd_dims(16, 8, 3, 3), "tiled: tiles ");
    check_plan(GD_F32, gd_dims(2, 20, 8, 8), gd_dims(20, 1, 3, 3),
               "direct: a thread for each element");
    check_plan(GD_F32, gd_dims(2, 8, 4, 4, 4), gd_dims(16, 8, 3, 3, 3), "gemm: tiles ");
    check_plan(GD_F32, gd_dims(8, 16), gd_dims(16, 8), "small: tiles ");
    /* the emulated libraries have one engine and one algorithm */
    check_plan(GD_BF16, gd_dims(2, 8, 8, 8), gd_dims(16, 8, 3, 3),
               !cuda_has_kernel("conv2d", "cudnn") ? "gemm: tiles "
               : cuda_on_gpu()                     ? "cudnn: engine "
                                                   : "cudnn: engine 2, ");
    check_plan(GD_F64, gd_dims(80, 160), gd_dims(160, 80),
               !cuda_has_kernel("matmul", "cublaslt") ? "tiled: tiles "
               : cuda_on_gpu()                        ? "cublaslt: algorithm "
                                                      : "cublaslt: algorithm 7, tile ");
}

TEST(plan_texts_without_libraries_name_the_kernels_of_our_own) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED_ONLY "cudnn", "");
    if (!cuda_open_device()) return;
    check_plan(GD_BF16, gd_dims(2, 8, 8, 8), gd_dims(16, 8, 3, 3), "gemm: tiles ");
}

static gd_tensors attend(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_scaled_dot_product_attention(in.at[0], in.at[0], in.at[0],
                                                     .mask = in.count > 1 ? in.at[1] : NULL));
}

static gd_tensors sum_rows(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_sum(in.at[0], .axis = gd_dims(-1)));
}
static gd_tensors sum_columns(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_sum(in.at[0], .axis = gd_dims(0)));
}
static gd_tensors normalize(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_softmax(in.at[0], .axis = -1));
}
static gd_tensors normalize_columns(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_softmax(in.at[0], .axis = 0));
}
static gd_tensors normalize_layer(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_layer_norm(in.at[0], NULL, NULL));
}
static gd_tensors pool_windows(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_max_pool2d(in.at[0], .kernel = {2, 2}));
}
static gd_tensors pool_images(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_max_pool2d(in.at[0], .kernel = {8, 8}));
}
static gd_tensors accumulate(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_cumsum(in.at[0], -1));
}

TEST(attention_on_tensor_cores_is_a_kernel_of_its_own) {
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    GD_SCOPE;
    const gd_shape heads = gd_dims(1, 2, 20, 40), mask = gd_dims(20, 20);
    check_first_kernel(attend, gd_list(make_operand(heads, GD_F32)),
                       "tiles: tiles of 64 rows, heads up to 64");
    check_first_kernel(attend, gd_list(make_operand(heads, GD_F64)),
                       "tiles: tiles of 32 rows, heads up to 64");
    check_first_kernel(attend, gd_list(make_operand(heads, GD_BF16)),
                       "tensor_cores: tiles of 128 rows, heads up to 64\n");
    check_first_kernel(attend, gd_list(make_operand(heads, GD_F16), make_operand(mask, GD_F16)),
                       "tensor_cores: tiles of 128 rows, heads up to 64, mask or dropout");
}

TEST(sums_of_neighbouring_floats_are_a_kernel_of_their_own) {
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    GD_SCOPE;
    gd_tensor *x = make_operand(gd_dims(40, 64), GD_F32),
              *wide = make_operand(gd_dims(2, 5000), GD_F32);
    check_first_kernel(sum_rows, gd_list(x), "dense: a warp for each result, 1 part");
    check_first_kernel(sum_rows, gd_list(wide), "dense: a block for each result, 1 part");
    check_first_kernel(sum_columns, gd_list(x), "dense: columns, 1 part");
    check_first_kernel(sum_rows, gd_list(gd_cast(x, GD_I64)),
                       "blocks: 64 threads for each result, 1 part");
}

TEST(kernels_say_what_computes_a_row_a_line_or_a_window) {
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    GD_SCOPE;
    gd_tensor *x = make_operand(gd_dims(8, 64), GD_F32),
              *wide = make_operand(gd_dims(2, 5000), GD_F32),
              *images = make_operand(gd_dims(2, 3, 8, 8), GD_F32);
    check_first_kernel(normalize, gd_list(x), "rows: a warp for each row");
    check_first_kernel(normalize, gd_list(wide), "rows: a block for each row");
    check_first_kernel(normalize_columns, gd_list(x), "rows: a thread for each line");
    check_first_kernel(normalize_layer, gd_list(x), "rows: a warp for each row");
    check_first_kernel(normalize_layer, gd_list(wide), "rows: a block for each row");
    check_first_kernel(pool_windows, gd_list(images), "windows: a thread for each window");
    check_first_kernel(pool_images, gd_list(images), "windows: a warp for each window");
    check_first_kernel(accumulate, gd_list(x), "chunks: a thread for each line");
    check_first_kernel(accumulate, gd_list(wide), "chunks: chunks of 128");
}

/* --- kernels that decline --------------------------------------------------------------------- */

/* The calls of an op by a kernel whose text begins so. */
static int64_t count_calls(const char *op, const char *kernel) {
    gd_profile_row row;
    int64_t calls = 0;
    for (int64_t i = 0; gd_profiler_row(i, &row); i++)
        if (strcmp(row.op, op) == 0 && strncmp(row.kernel, kernel, strlen(kernel)) == 0)
            calls += row.calls;
    return calls;
}

/* cuDNN's engines need operands at multiples of 16 bytes; the second image is at 150. */
TEST(a_convolution_without_an_engine_runs_with_the_next_kernel) {
    IN_CHILD(EMULATED, "");
    if (!cuda_open_device()) return;
    GD_SCOPE;
    gd_seed(3);
    gd_tensor *x = make_operand(gd_dims(3, 3, 5, 5), GD_BF16),
              *w = make_operand(gd_dims(8, 3, 3, 3), GD_BF16);
    gd_profiler_start();
    gd_tensor *all = gd_conv2d(x, w, NULL),
              *rest = gd_conv2d(gd_slice(x, .axis = 0, .start = 1), w, NULL),
              *again = gd_conv2d(gd_slice(x, .axis = 0, .start = 1), w, NULL);
    gd_synchronize(gd_device_get("cuda"));
    gd_profiler_stop();
    CHECK(cuda_on_gpu() ||
          count_calls("conv2d", "cudnn: engine ") == cuda_has_kernel("conv2d", "cudnn"));
    CHECK(count_calls("conv2d", "gemm: tiles ") >= 2);
    CHECK(count_calls("conv2d", "") == 3);
    gd_tensor *want = gd_to_device(gd_slice(all, .axis = 0, .start = 1), gd_device_get("cpu"));
    gd_tensor *const got[] = {rest, again};
    for (int i = 0; i < 2; i++) {
        gd_tensor *y = gd_to_device(got[i], gd_device_get("cpu"));
        const double distance =
            tensors_relative_distance(gd_cast(y, GD_F64), gd_cast(want, GD_F64));
        CHECK_SAYING(distance < 0.01, "%g", distance);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* --- lists ------------------------------------------------------------------------------------ */

static void check_list(void) {
    const gd_op *op = gd_op_find("conv2d");
    const char *const names[] = {"cudnn", "tiled", "direct", "gemm"};
    const int missing = !cuda_has_kernel("conv2d", "cudnn");
    for (int i = missing; i < 4; i++) {
        const gd_kernel *k = gd_op_kernel_at(op, "cuda", i - missing);
        CHECK_SAYING(k && strcmp(k->variant, names[i]) == 0 && k->doc, "%d: %s", i,
                     k ? k->variant : "none");
    }
    CHECK(!gd_op_kernel_at(op, "cuda", 4 - missing));
}

TEST(kernels_are_listed_without_a_device) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "none");
    CHECK(!gd_op_kernel_at(gd_op_find("conv2d"), "cuda", 0));
    gd_backends_load();
    check_list();
    gd_backends_load(); /* registers nothing twice */
    check_list();
    CHECK(!gd_device_get("cuda"));
    CHECK(cuda_failed_with(GD_E_DEVICE, "cuda"));
}

TEST(kernels_are_listed_with_a_device) {
    IN_CHILD(EMULATED, "");
    gd_backends_load();
    check_list();
    CHECK(cuda_open_device() != NULL);
    check_list();
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
