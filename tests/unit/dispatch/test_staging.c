/* test_staging.c - the contents of buffers that the library stages for a kernel. */
#include "gradus/gradus.h"
#include "test.h"

enum { N = 1000 };

/* the kernel's output held the previous contents of the tensor's memory */
static bool saw_old_output;

static gd_status double_infer(gd_infer *i) {
    i->out[0].rank = 1;
    i->out[0].dims[0] = gd_tensor_dim(i->in[0], 0);
    return GD_OK;
}

static gd_status double_reference(gd_kernel_call *k) {
    const double *x = k->in[0].data;
    double *y = k->out[0].data;
    /* not element 0: the first bytes of a freed buffer hold a link */
    saw_old_output = y[N - 1] == 123;
    for (int64_t i = 0; i < k->in[0].dims[0]; i++) y[i] = 2 * x[i];
    return GD_OK;
}

static gd_status grow_infer(gd_infer *i) {
    i->out[0].rank = 1;
    i->out[0].dims[0] = 1;
    return GD_OK;
}

/* Reads x through the outputs after y, as ops that mutate inputs do. */
static gd_status grow_reference(gd_kernel_call *k) {
    double *x = k->out[1].data, *y = k->out[0].data;
    for (int64_t i = 0; i < N; i++) x[i] += 1;
    y[0] = x[N - 1];
    return GD_OK;
}

static void __attribute__((constructor)) define_ops(void) {
    gd_op_define("staged_twice(x) -> y\nTwice x.\n",
                 &(gd_op_rules){.infer = double_infer,
                                .reference = double_reference,
                                .reference_flags = GD_KERNEL_DOUBLE});
    gd_op_define("staged_grow(x!) -> y  nograd\nx grows by one.\n",
                 &(gd_op_rules){.infer = grow_infer,
                                .reference = grow_reference,
                                .reference_flags = GD_KERNEL_DOUBLE});
}

/* The next tensor of the same size reuses a freed buffer with its contents. To the op this is
 * uninitialized memory. */
TEST(outputs_are_not_read_before_the_kernel_writes_them) {
    static const gd_dtype dtypes[] = {GD_F16, GD_BF16, GD_F32};
    for (int d = 0; d < 3; d++) {
        GD_SCOPE;
        gd_tensor *x = gd_ones(gd_dims(N), .dtype = dtypes[d]);
        {
            GD_SCOPE;
            gd_full(gd_dims(N), 123, .dtype = dtypes[d]); /* the memory of y */
            gd_full(gd_dims(N), -1, .dtype = GD_F64);     /* the memory of the staged buffers */
            gd_full(gd_dims(N), -1, .dtype = GD_F64);
        }
        saw_old_output = false;
        gd_tensor *y = gd_call("staged_twice", gd_list(x), NULL);
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        CHECK_SAYING(!saw_old_output, "%s", gd_dtype_name(dtypes[d]));
        CHECK(gd_item(gd_sum(gd_cast(y, GD_F64))) == 2 * N);
        gd_clear_error();
    }
}

TEST(inputs_that_an_op_mutates_are_staged_with_their_values) {
    static const gd_dtype dtypes[] = {GD_F16, GD_BF16, GD_F32};
    for (int d = 0; d < 3; d++) {
        GD_SCOPE;
        gd_tensor *x = gd_full(gd_dims(N), 5, .dtype = dtypes[d]);
        gd_tensor *y = gd_call("staged_grow", gd_list(x), NULL);
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        CHECK(gd_item(y) == 6 && gd_item(gd_sum(gd_cast(x, GD_F64))) == 6 * N);
        gd_clear_error();
    }
}

TEST_MAIN
