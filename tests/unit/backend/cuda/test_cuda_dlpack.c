/* test_cuda_dlpack.c - memory and streams that CUDA devices share with other libraries. */
#include <cuda.h>
#include <stdatomic.h>

#include "cuda_child.h"

#define STRING_(name) #name
#define STRING(name)  STRING_(name) /* of the name that a macro of <cuda.h> expands to */

/* A function of the driver, with its type. */
#define DRIVER(name) ((__typeof__(&name))dlsym(dlopen("libcuda.so.1", RTLD_NOW), STRING(name)))

/* Enough elements that work takes a while; the emulated driver runs it as late as possible. */
#define COUNT (cuda_on_gpu() ? 4 << 20 : 1 << 10)
#define BYTES ((size_t)COUNT * 4)

static CUstream other_stream(void) {
    CUstream stream = NULL;
    CHECK(DRIVER(cuStreamCreateWithPriority)(&stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS);
    return stream;
}

/* A tensor of another library. */
typedef struct foreign {
    gd_dl_managed m;
    int64_t dims[1];
    _Atomic int deleted;
} foreign;
static void delete_foreign(gd_dl_managed *m) { ((foreign *)m->context)->deleted++; }

static struct DLManagedTensorVersioned *fill(foreign *f, CUdeviceptr data) {
    *f = (foreign){.dims = {COUNT}};
    f->m = (gd_dl_managed){.major = 1, .minor = 3, .context = f, .deleter = delete_foreign};
    f->m.tensor = (gd_dl_tensor){.data = (void *)(uintptr_t)data,
                                 .device = {GD_DL_CUDA, 0},
                                 .rank = 1,
                                 .dtype = {GD_DL_FLOAT, 32, 1},
                                 .dims = f->dims};
    return (struct DLManagedTensorVersioned *)&f->m;
}

/* Zeros, written on the default stream. */
static CUdeviceptr allocate(void) {
    CUdeviceptr data = 0;
    CHECK(DRIVER(cuMemAlloc)(&data, BYTES) == CUDA_SUCCESS);
    CHECK(DRIVER(cuMemsetD8Async)(data, 0, BYTES, NULL) == CUDA_SUCCESS);
    return data;
}

static float *pinned(void) {
    void *memory = NULL;
    CHECK(DRIVER(cuMemHostAlloc)(&memory, BYTES, 0) == CUDA_SUCCESS);
    return memory;
}

/* Work that takes a while. */
static gd_tensor *compute(gd_device *device) {
    gd_tensor *x = gd_to_device(gd_zeros(gd_dims(COUNT)), device);
    gd_synchronize(device);
    for (int i = 0; i < 200; i++) gd_add_(x, 1);
    return x;
}

TEST(an_exported_tensor_has_the_address_and_the_number_of_the_device) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    gd_tensor *x = cuda_tensor(device, gd_dims(3), (const float[]){1, 2, 3});
    gd_dl_managed *m = (gd_dl_managed *)gd_to_dlpack(x, .stream = GD_NO_STREAM);
    CHECK(m->tensor.device.type == GD_DL_CUDA && m->tensor.device.number == 0);
    float read[3] = {0};
    gd_synchronize(device);
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)m->tensor.data;
    CHECK(DRIVER(cuMemcpyDtoHAsync)(read, at, sizeof read, NULL) == CUDA_SUCCESS);
    CHECK(DRIVER(cuStreamSynchronize)(NULL) == CUDA_SUCCESS);
    CHECK(read[0] == 1 && read[2] == 3);
    gd_tensor *y = gd_from_dlpack((struct DLManagedTensorVersioned *)m, .stream = GD_NO_STREAM);
    CHECK(gd_tensor_device(y) == device && cuda_has_values(y, 3, (const float[]){1, 2, 3}));
}

TEST(the_stream_of_the_receiver_waits_for_gradus) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    float *read = pinned();
    const int64_t streams[] = {0, 1, (int64_t)(intptr_t)other_stream()};
    for (int i = 0; i < 3; i++) {
        GD_SCOPE;
        gd_dl_managed *m = (gd_dl_managed *)gd_to_dlpack(compute(device), .stream = streams[i]);
        const CUstream stream = (CUstream)(intptr_t)streams[i];
        read[COUNT - 1] = 0;
        CUdeviceptr at = (CUdeviceptr)(uintptr_t)m->tensor.data;
        CHECK(DRIVER(cuMemcpyDtoHAsync)(read, at, BYTES, stream) == CUDA_SUCCESS);
        CHECK(DRIVER(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
        CHECK(read[0] == 200 && read[COUNT - 1] == 200);
        m->deleter(m);
    }
}

TEST(gradus_waits_for_the_stream_of_the_producer) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    CHECK(cuda_open_device());
    const CUdeviceptr data = allocate();
    float *values = pinned();
    const CUstream stream = other_stream();
    foreign f;
    for (int i = 0; i < COUNT; i++) values[i] = 7;
    CHECK(DRIVER(cuStreamSynchronize)(NULL) == CUDA_SUCCESS);
    CHECK(DRIVER(cuMemcpyHtoDAsync)(data, values, BYTES, stream) == CUDA_SUCCESS);
    gd_tensor *x = gd_from_dlpack(fill(&f, data), .stream = (int64_t)(intptr_t)stream);
    CHECK(gd_item(gd_neg(gd_at(x, COUNT - 1))) == -7);
}

TEST(foreign_memory_is_deleted_after_the_kernels_that_use_it) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    static foreign f, g;
    const CUdeviceptr data = allocate();
    gd_tensor *y;
    {
        GD_SCOPE;
        gd_tensor *x = gd_from_dlpack(fill(&f, data));
        y = compute(device);
        for (int i = 0; i < 50; i++) gd_add_(y, x);
        gd_keep(y);
    }
    if (!cuda_on_gpu()) CHECK(f.deleted == 0);
    CHECK(gd_item(gd_at(y, 5)) == 200);
    gd_synchronize(device);
    CHECK(f.deleted == 1);
    {
        GD_SCOPE;
        gd_neg(gd_from_dlpack(fill(&g, data)));
    }
    for (int i = 0; i < 100000 && !g.deleted; i++) {
        GD_SCOPE;
        gd_neg(y); /* allocates */
    }
    CHECK(g.deleted == 1);
}

TEST(memory_is_not_reused_before_the_default_stream_of_the_receiver_is_done) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    gd_tensor *other = gd_to_device(gd_zeros(gd_dims(COUNT)), device);
    float *read = pinned();
    void *address;
    {
        GD_SCOPE;
        gd_dl_managed *m = (gd_dl_managed *)gd_to_dlpack(gd_neg(compute(device)));
        address = m->tensor.data;
        gd_synchronize(device);
        CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
        for (int i = 0; i < 20; i++)
            CHECK(DRIVER(cuMemcpyDtoHAsync)(read, at, BYTES, NULL) == CUDA_SUCCESS);
        m->deleter(m); /* the copies may not have begun */
    }
    gd_dl_tensor d = {0};
    for (int i = 0; i < 1000 && d.data != address; i++) gd_dl_describe(gd_neg(other), &d);
    CHECK(d.data == address); /* it is used again */
    gd_synchronize(device);
    CHECK(DRIVER(cuStreamSynchronize)(NULL) == CUDA_SUCCESS);
    CHECK(read[0] == -200 && read[COUNT - 1] == -200);
}

TEST(a_captured_plan_takes_foreign_memory) {
    IN_CHILD(EMULATED, "");
    GD_SCOPE;
    gd_device *device = cuda_open_device();
    static foreign f[6];
    const CUdeviceptr data = allocate();
    gd_graph *graph = gd_graph_new();
    gd_tensor *in, *out;
    {
        GD_GRAPH(graph);
        in = gd_placeholder(gd_dims(COUNT), .name = "x");
        out = gd_sum(gd_exp(in));
    }
    gd_session *session = gd_session_new(graph);
    for (int run = 1; run < 6; run++) {
        GD_SCOPE;
        gd_tensor *x = gd_from_dlpack(fill(&f[run], data));
        const gd_tensors y = gd_session_run(session, gd_feed(in, x), gd_list(out));
        CHECK(gd_item(y.at[0]) == COUNT);
    }
    gd_synchronize(device);
    for (int run = 1; run < 6; run++) CHECK(f[run].deleted == 1);
    CHECK(!gd_failed());
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
