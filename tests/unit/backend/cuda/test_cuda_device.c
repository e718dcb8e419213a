/* test_cuda_device.c - promises of CUDA devices: captured plans, order between streams, and the
 * rules of captures, which the emulated driver enforces. With GRADUS_TEST_GPU=1 it runs on the
 * machine's own device, without the counts. */
#include <cuda.h>
#include <math.h>

#include "cuda_child.h"

/* --- captured plans --------------------------------------------------------------------------- */

TEST(replayed_training_step_is_one_graph_launch) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    cuda_training t = cuda_start_training(device, 5);
    gd_jit *jit = gd_jit_new(cuda_train_step, &t);
    double first = 0, last = 0;
    for (int i = 0; i < 4; i++) {
        GD_SCOPE;
        last = gd_item(gd_jit_call(jit, gd_list(t.x, t.y)).at[0]);
        if (i == 0) first = last;
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(last < first);
    gd_synchronize(device);
    emulated_controls *cuda = emulated_cuda();
    if (!cuda && cuda_on_gpu()) SKIP("only the emulated driver counts calls");
    CHECK(cuda != NULL);
    if (!cuda) return;
    const emulated_counts before = cuda->counts;
    for (int i = 0; i < 5; i++) {
        GD_SCOPE;
        gd_jit_call(jit, gd_list(t.x, t.y));
    }
    emulated_counts after = cuda->counts;
    CHECK(!gd_failed());
    CHECK(after.graph_launches - before.graph_launches == 5);
    CHECK(after.parameter_changes - before.parameter_changes <= 2 * 5); /* entry and exit */
    after.graph_launches = before.graph_launches;
    after.parameter_changes = before.parameter_changes;
    CHECK(memcmp(&after, &before, sizeof after) == 0); /* no other call of the driver */
    CHECK(before.captures == 1 && before.captured > 3 && before.captured_to_host == 0);
    CHECK(before.violations == 0);
    CHECK(gd_item(gd_jit_call(jit, gd_list(t.x, t.y)).at[0]) < last);
    CHECK(gd_jit_traces(jit) == 1);
}

static gd_tensors scale_and_add(gd_tensors in, void *user) {
    return gd_listed(gd_add(gd_mul(in.at[0], user), in.at[0]));
}

TEST(launches_that_are_queued_keep_their_feeds) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    gd_tensor *factor = gd_scalar(3), *results[8];
    gd_jit *jit = gd_jit_new(scale_and_add, factor);
    for (int i = 0; i < 8; i++) { /* nothing waits until all are queued */
        gd_tensor *x = cuda_tensor(device, gd_dims(2), (float[]){(float)i, (float)(2 * i)});
        gd_copy_from(factor, &(float){(float)i}, sizeof(float));
        results[i] = gd_jit_call(jit, gd_list(x)).at[0];
    }
    for (int i = 0; i < 8; i++) {
        const float expected[] = {(float)(i * (i + 1)), (float)(2 * i * (i + 1))};
        CHECK_SAYING(cuda_has_values(results[i], 2, expected), "run %d: %s", i, gd_error_message());
    }
    CHECK(!gd_failed());
}

static gd_tensors gelu_chain(gd_tensors in, void *user) {
    gd_tensor *x = in.at[0];
    (void)user;
    gd_tensor *y = gd_add(gd_mul(x, gd_scalar(2)), gd_scalar(1));
    return gd_listed(gd_mul(gd_gelu(y), x));
}

/* Large feeds and fetches are used in place: the entry, and one fused kernel. */
TEST(large_feeds_and_fetches_are_not_copied) {
    IN_CHILD(EMULATED, "");
    enum { N = 2 << 20 };
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    gd_jit *jit = gd_jit_new(gelu_chain, NULL);
    gd_tensor *x = gd_to_device(gd_full(gd_dims(N), 1), device),
              *y = gd_narrow(gd_jit_call(jit, gd_list(x)).at[0], 0, N - 1, 1);
    CHECK_SAYING(fabs(gd_item(y) - 2.99595) < 1e-4, "%s", gd_error_message());
    for (int i = 0; i < 2; i++) {
        GD_SCOPE;
        gd_jit_call(jit, gd_list(x));
    }
    gd_synchronize(device);
    emulated_controls *cuda = emulated_cuda();
    if (!cuda && cuda_on_gpu()) SKIP("only the emulated driver counts calls");
    CHECK(cuda != NULL);
    if (!cuda) return;
    const emulated_counts before = cuda->counts;
    for (int i = 0; i < 3; i++) {
        GD_SCOPE;
        gd_jit_call(jit, gd_list(x));
    }
    emulated_counts after = cuda->counts;
    CHECK(after.launches - before.launches == 2 * 3);
    after.launches = before.launches;
    CHECK(memcmp(&after, &before, sizeof after) == 0); /* no other call of the driver */
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* --- copies ----------------------------------------------------------------------------------- */

TEST(uploads_do_not_wait_and_keep_their_data) {
    IN_CHILD(EMULATED, "");
    enum { N = 40, SIZE = 1000 };
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    gd_tensor *uploaded[N], *sum = gd_to_device(gd_zeros(gd_dims(SIZE)), device);
    float data[SIZE];
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < SIZE; k++) data[k] = (float)(i + k);
        uploaded[i] = cuda_tensor(device, gd_dims(SIZE), data);
        gd_add_(sum, uploaded[i]);
    }
    float got[SIZE];
    bool same = gd_copy_to(sum, got, sizeof got) == GD_OK;
    for (int k = 0; k < SIZE; k++) same = same && got[k] == (float)(N * (N - 1) / 2 + N * k);
    CHECK(same);
    CHECK(gd_copy_to(uploaded[0], got, sizeof got) == GD_OK && got[5] == 5);
    CHECK(!gd_failed());
}

TEST(bad_index_is_reported_with_its_op) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    gd_tensor *x = gd_to_device(gd_zeros(gd_dims(4, 2)), device),
              *index = gd_to_device(gd_from_array(gd_dims(2), GD_I64, ((int64_t[]){1, 9})), device);
    gd_tensor *y = gd_index_select(x, 0, index);
    CHECK(!gd_failed());
    gd_item(gd_sum(gd_exp(y)));
    CHECK(strstr(gd_error_message(), "test_cuda_device.c:"));
    CHECK(cuda_failed_with(GD_E_INDEX, "index_select(x f32[4,2], index i64[2]): "));
    CHECK(gd_synchronize(device) == GD_OK);
}

/* --- the rules of captures, and the emulated driver itself ------------------------------------ */

/* The functions of the loaded driver. */
#define STRING_(name) #name
#define STRING(name)  STRING_(name)
#define DRIVER(name)  ((__typeof__(&name))dlsym(driver, STRING(name)))

static void *driver;
static CUstream stream, other;
static CUdeviceptr memory;

static bool begin_capture(void) {
    return DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) ==
           CUDA_SUCCESS;
}
static CUresult end_capture(void) {
    CUgraph graph = NULL;
    const CUresult result = DRIVER(cuStreamEndCapture)(stream, &graph);
    if (graph) DRIVER(cuGraphDestroy)(graph);
    return result;
}

TEST(captures_forbid_waits_allocations_and_legacy_copies) {
    IN_CHILD(EMULATED, "");
    CUcontext context;
    CUevent event, inside;
    CUdeviceptr more;
    void *host = NULL;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver && DRIVER(cuInit)(0) == CUDA_SUCCESS);
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
    CHECK(DRIVER(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
    CHECK(DRIVER(cuStreamCreateWithPriority)(&stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS);
    CHECK(DRIVER(cuStreamCreateWithPriority)(&other, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS);
    CHECK(DRIVER(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    CHECK(DRIVER(cuEventCreate)(&inside, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    CHECK(DRIVER(cuMemAlloc)(&memory, 256) == CUDA_SUCCESS);
    CHECK(DRIVER(cuEventRecord)(event, other) == CUDA_SUCCESS);

    CHECK(begin_capture() && DRIVER(cuMemsetD8Async)(memory, 0, 256, stream) == CUDA_SUCCESS);
    CHECK(end_capture() == CUDA_SUCCESS);

    CHECK(begin_capture());
    CHECK(DRIVER(cuStreamSynchronize)(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(end_capture() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    CHECK(begin_capture());
    CHECK(DRIVER(cuMemAlloc)(&more, 256) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(end_capture() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    CHECK(begin_capture());
    CHECK(DRIVER(cuMemHostAlloc)(&host, 256, 0) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(end_capture() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    if (!cuda_on_gpu()) { /* the driver forbids this only if the captured stream is blocking */
        CHECK(begin_capture());
        CHECK(DRIVER(cuMemsetD8Async)(memory, 0, 256, NULL) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        CHECK(end_capture() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }

    CHECK(begin_capture() && DRIVER(cuEventRecord)(inside, stream) == CUDA_SUCCESS);
    CHECK(DRIVER(cuEventSynchronize)(inside) == CUDA_ERROR_CAPTURED_EVENT);
    CHECK(end_capture() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    CHECK(begin_capture()); /* an event that was recorded outside */
    CHECK(DRIVER(cuStreamWaitEvent)(stream, event, 0) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    CHECK(end_capture() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    CHECK(begin_capture() && DRIVER(cuEventRecord)(inside, stream) == CUDA_SUCCESS);
    CHECK(DRIVER(cuStreamWaitEvent)(other, inside, 0) == CUDA_SUCCESS); /* joins the capture */
    CHECK(DRIVER(cuMemsetD8Async)(memory, 0, 256, other) == CUDA_SUCCESS);
    CHECK(end_capture() == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    CHECK(end_capture() == CUDA_ERROR_ILLEGAL_STATE);
}

/* Work of two streams is ordered by events only, and runs when the host waits for it. */
TEST(emulated_streams_are_asynchronous) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "");
    unsigned char *host = NULL, *back = NULL;
    CUevent event;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver && DRIVER(cuInit)(0) == CUDA_SUCCESS);
    CHECK(DRIVER(cuStreamCreateWithPriority)(&stream, 1, 0) == CUDA_SUCCESS);
    CHECK(DRIVER(cuStreamCreateWithPriority)(&other, 1, 0) == CUDA_SUCCESS);
    CHECK(DRIVER(cuEventCreate)(&event, 0) == CUDA_SUCCESS);
    CHECK(DRIVER(cuMemAlloc)(&memory, 16) == CUDA_SUCCESS);
    CHECK(DRIVER(cuMemHostAlloc)((void **)&host, 16, 0) == CUDA_SUCCESS);
    CHECK(DRIVER(cuMemHostAlloc)((void **)&back, 16, 0) == CUDA_SUCCESS);
    memset(host, 1, 16), memset(back, 0, 16);
    DRIVER(cuMemcpyHtoDAsync)(memory, host, 16, stream);
    memset(host, 2, 16); /* too early: the copy has not read it yet */
    DRIVER(cuMemcpyDtoHAsync)(back, memory, 16, other);
    DRIVER(cuStreamSynchronize)(other); /* does not wait for `stream` */
    CHECK(back[0] != 1 && back[0] != 2);
    DRIVER(cuEventRecord)(event, stream);
    DRIVER(cuStreamWaitEvent)(other, event, 0);
    DRIVER(cuMemcpyDtoHAsync)(back, memory, 16, other);
    DRIVER(cuStreamSynchronize)(other);
    CHECK(back[0] == 2);
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
