/* test_cuda_order.c - what the emulated CUDA driver finds in kernels: missing barriers, results that
 * depend on the order of threads, accesses outside of memory, reads of memory that was not written,
 * and races. Here small kernels have these mistakes. */
#include <cuda.h>
#include <math.h>

#include "capture.h"
#include "cuda_child.h"

/* --- kernels ---------------------------------------------------------------------------------- */

#define STRING_(name) #name
#define STRING(name)  STRING_(name) /* of the name that a macro of <cuda.h> expands to */

/* A function of the emulated driver, with its type. */
#define DRIVER(name) \
    ((__typeof__(&name))dlsym(dlopen(EMULATED "/libcuda.so.1", RTLD_NOW), STRING(name)))

typedef int nvrtc_function();
static nvrtc_function *nvrtc(const char *folder, const char *name) {
    char path[1000];
    snprintf(path, sizeof path, "%s/libnvrtc.so.13", folder);
    void *library = dlopen(path, RTLD_NOW);
    if (!library) fprintf(stderr, "%s\n", dlerror()), exit(1);
    return (nvrtc_function *)dlsym(library, name);
}

/* The kernel k(float *x, float *y, unsigned *count) with this body, compiled by the emulated NVRTC of
 * a folder. */
static CUfunction compile(const char *folder, const char *body) {
    char source[4000], code[2000];
    void *program = NULL;
    CUmodule module;
    CUfunction function;
    snprintf(source, sizeof source,
             "extern \"C\" __global__ void k(float *x, float *y, unsigned *count) {\n%s\n}\n",
             body);
    unsetenv("GRADUS_NVRTC_CHECK"); /* some bodies call the emulator, which a real NVRTC lacks */
    nvrtc(folder, "nvrtcCreateProgram")(&program, source, "k", 0, NULL, NULL);
    CHECK(nvrtc(folder, "nvrtcCompileProgram")(program, 0, NULL) == 0);
    nvrtc(folder, "nvrtcGetCUBIN")(program, code);
    CHECK(DRIVER(cuModuleLoadData)(&module, code) == CUDA_SUCCESS);
    CHECK(DRIVER(cuModuleGetFunction)(&function, module, "k") == CUDA_SUCCESS);
    return function;
}

enum { ELEMENTS = 256 };
typedef struct kernel_run {
    const char *folder, *body;
    int blocks, threads, shared;
    bool together;
    float y[ELEMENTS];
} kernel_run;

/* Runs a kernel in an order: x has 1, 1/3, 1/9, ..., y has zeros, and *count is 0. */
static void run_kernel(kernel_run *r, uint64_t order) {
    float values[ELEMENTS];
    CUdeviceptr x, y, count;
    for (int i = 0; i < ELEMENTS; i++) values[i] = powf(3, -(float)(i % 20));
    const CUfunction k = compile(r->folder, r->body);
    DRIVER(cuMemAlloc)(&x, sizeof values);
    DRIVER(cuMemAlloc)(&y, sizeof values);
    DRIVER(cuMemAlloc)(&count, sizeof(unsigned));
    DRIVER(cuMemcpyHtoDAsync)(x, values, sizeof values, NULL);
    DRIVER(cuMemsetD8Async)(y, 0, sizeof values, NULL);
    DRIVER(cuMemsetD8Async)(count, 0, sizeof(unsigned), NULL);
    emulated_cuda()->order = order;
    void *parameters[] = {&x, &y, &count};
    const CUresult status =
        r->together
            ? DRIVER(cuLaunchCooperativeKernel)(k, (unsigned)r->blocks, 1, 1, (unsigned)r->threads,
                                                1, 1, (unsigned)r->shared, NULL, parameters)
            : DRIVER(cuLaunchKernel)(k, (unsigned)r->blocks, 1, 1, (unsigned)r->threads, 1, 1,
                                     (unsigned)r->shared, NULL, parameters, NULL);
    CHECK(status == CUDA_SUCCESS);
    DRIVER(cuMemcpyDtoHAsync)(r->y, y, sizeof values, NULL);
    DRIVER(cuStreamSynchronize)(NULL);
    DRIVER(cuMemFree)(x);
    DRIVER(cuMemFree)(y);
    DRIVER(cuMemFree)(count);
}

/* Whether y has the same bits in several orders. */
static bool has_same_bits(kernel_run r) {
    bool same = true;
    run_kernel(&r, 0);
    for (uint64_t order = 1; order < 6; order++) {
        kernel_run other = r;
        run_kernel(&other, order);
        same = same && memcmp(r.y, other.y, sizeof r.y) == 0;
    }
    return same;
}

/* --- orders ----------------------------------------------------------------------------------- */

/* Whether y is 0 .. ELEMENTS - 1 in ascending or descending order. */
static bool is_ascending(const float *y) {
    bool ascends = true;
    for (int i = 0; i < ELEMENTS; i++) ascends = ascends && y[i] == (float)i;
    return ascends;
}
static bool is_descending(const float *y) {
    bool descends = true;
    for (int i = 0; i < ELEMENTS; i++) descends = descends && y[i] == (float)(ELEMENTS - 1 - i);
    return descends;
}
/* Whether y has these numbers, and few of them at their own place. */
static bool is_mixed(const float *y) {
    bool seen[ELEMENTS] = {false};
    int count = 0, in_place = 0;
    for (int i = 0; i < ELEMENTS; i++) seen[(int)y[i]] = true, in_place += y[i] == (float)i;
    for (int i = 0; i < ELEMENTS; i++) count += seen[i];
    return count == ELEMENTS && in_place < ELEMENTS / 4;
}

TEST(threads_and_blocks_run_in_the_order_of_the_setting) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "");
#define NUMBERS "y[atomicAdd(count, 1u)] = blockIdx.x * blockDim.x + threadIdx.x;\n"
    for (int barrier = 0; barrier < 2; barrier++) {
        const char *body = barrier ? NUMBERS "__syncthreads();" : NUMBERS;
        kernel_run r = {EMULATED, body, 4, 64, 0, false, {0}}, again = r;
        run_kernel(&r, 0);
        CHECK(is_ascending(r.y));
        run_kernel(&r, 1);
        CHECK(is_descending(r.y));
        run_kernel(&r, 2);
        CHECK(is_mixed(r.y));
        run_kernel(&again, 2);
        CHECK(memcmp(r.y, again.y, sizeof r.y) == 0);
    }
}

TEST(a_missing_barrier_gives_other_bits) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "");
#define REVERSE(barrier)                               \
    "__shared__ float s[64];\n"                        \
    "s[threadIdx.x] = x[threadIdx.x];\n" barrier ";\n" \
    "y[threadIdx.x] = s[63 - threadIdx.x];\n"          \
    "__syncthreads();"
    CHECK(has_same_bits((kernel_run){EMULATED, REVERSE("__syncthreads()"), 1, 64, 0, false, {0}}));
    CHECK(!has_same_bits((kernel_run){EMULATED, REVERSE(""), 1, 64, 0, false, {0}}));
    CHECK(!has_same_bits((kernel_run){EMULATED, REVERSE("__syncwarp()"), 1, 64, 0, false, {0}}));
}

/* Shuffles let the warps run alike if all threads run between two of them. */
TEST(warps_do_not_run_alike) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "");
    static const char body[] = "__shared__ float s[64];\n"
                               "float sum = 0;\n"
                               "s[threadIdx.x] = x[threadIdx.x];\n"
                               "for (int i = 0; i < 20; i++) sum += __shfl_sync(~0u, sum, 0);\n"
                               "y[threadIdx.x] = s[63 - threadIdx.x] + sum;\n";
    CHECK(!has_same_bits((kernel_run){EMULATED, body, 1, 64, 0, false, {0}}));
}

TEST(a_sum_in_the_order_of_the_threads_gives_other_bits) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "");
    CHECK(!has_same_bits(
        (kernel_run){EMULATED, "atomicAdd(y, x[threadIdx.x]);", 1, 64, 0, false, {0}}));
    CHECK(!has_same_bits((kernel_run){
        EMULATED, "if (threadIdx.x == 0) atomicAdd(y, x[blockIdx.x]);", 20, 32, 0, false, {0}}));
}

TEST(shuffles_mean_the_same_in_every_order) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "");
    static const char body[] =
        "float sum = x[threadIdx.x];\n"
        "for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);\n"
        "const unsigned odd = __ballot_sync(~0u, threadIdx.x % 2);\n"
        "y[threadIdx.x] = sum + __shfl_up_sync(~0u, sum, 1) + odd + "
        "__syncthreads_or(threadIdx.x == 77);\n";
    CHECK(has_same_bits((kernel_run){EMULATED, body, 1, 128, 0, false, {0}}));
}

/* A block waits for the next one. */
TEST(blocks_of_a_cooperative_launch_run_in_every_order) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "processors=8");
    static const char body[] =
        "__syncthreads();\n"
        "if (threadIdx.x == 0) {\n"
        "    while (*(volatile unsigned *)count < gridDim.x - 1 - blockIdx.x) emulated_wait();\n"
        "    atomicAdd(count, 1u);\n"
        "    y[blockIdx.x] = *count;\n"
        "}\n";
    CHECK(has_same_bits((kernel_run){EMULATED, body, 8, 32, 0, true, {0}}));
}

/* --- memory ----------------------------------------------------------------------------------- */

static int run_in_child(void *user) {
    run_kernel(user, 0);
    return 0;
}

/* Whether a kernel prints a message that has these words. NULL: it prints none. */
static bool prints(kernel_run r, const char *words) {
    capture_stderr();
    const int status = child_run(run_in_child, &r);
    char *text = end_stderr_capture();
    const bool as_expected = words ? strstr(text, words) != NULL : status == 0 && text[0] == 0;
    if (!as_expected) fprintf(stderr, "  status %d: %s\n", status, text);
    free(text);
    return as_expected;
}

TEST(a_kernel_that_leaves_its_memory_is_named) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "guard");
#define GUARDED(body, shared) ((kernel_run){EMULATED, body, 1, 32, shared, false, {0}})
    const char outside[] = "k, block (0, 0, 0), thread ", written[] = "k has written";
    CHECK(prints(GUARDED("y[threadIdx.x] = x[threadIdx.x + 224];", 0), NULL));
    CHECK(prints(GUARDED("y[threadIdx.x] = x[threadIdx.x + 225];", 0), outside));
    CHECK(prints(GUARDED("y[(int)threadIdx.x - 1] = 0;", 0), outside));
    CHECK(prints(GUARDED("x[(int)threadIdx.x - 1] = 0;", 0), written));
    CHECK(prints(GUARDED("if (threadIdx.x == 0) count[1] = 0;", 0), written));
    CHECK(prints(GUARDED("((float *)emulated_shared)[threadIdx.x] = 0;", 128), NULL));
    CHECK(prints(GUARDED("((float *)emulated_shared)[threadIdx.x] = 0;", 124), written));
    CHECK(prints(GUARDED("((float *)emulated_shared)[threadIdx.x + 1000] = 0;", 128), outside));
}

TEST(memory_that_was_not_written_is_nan) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "guard");
    static const char body[] = "__shared__ float s[64];\n"
                               "__syncthreads();\n"
                               "y[2 * blockIdx.x] = s[0];\n"
                               "y[2 * blockIdx.x + 1] = ((float *)emulated_shared)[0];\n"
                               "__syncthreads();\n"
                               "s[0] = ((float *)emulated_shared)[0] = 1;\n";
    kernel_run r = {EMULATED, body, 3, 32, 64, false, {0}};
    run_kernel(&r, 0);
    for (int i = 0; i < 6; i++) CHECK(isnan(r.y[i]));
}

/* --- asynchronous copies ---------------------------------------------------------------------- */

#define COPY_ASYNC(wait)                                                  \
    "float *s = (float *)emulated_shared;\n"                              \
    "emulated_copy_async(s + threadIdx.x, x + threadIdx.x, 4, 4);\n"      \
    "emulated_commit_copies();\n"                                         \
    "emulated_copy_async(s + 32 + threadIdx.x, x + threadIdx.x, 4, 4);\n" \
    "emulated_commit_copies();\n"                                         \
    "emulated_wait_copies(" wait ");\n"                                   \
    "__syncthreads();\n"                                                  \
    "y[threadIdx.x] = s[31 - threadIdx.x] + s[63 - threadIdx.x];\n"

TEST(a_missing_wait_for_copies_gives_other_bits) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "");
    CHECK(has_same_bits((kernel_run){EMULATED, COPY_ASYNC("0"), 1, 32, 256, false, {0}}));
    CHECK(!has_same_bits((kernel_run){EMULATED, COPY_ASYNC("1"), 1, 32, 256, false, {0}}));
}

/* --- races ------------------------------------------------------------------------------------ */

#define CHECKED EMULATED "/checked"
#define RACES(body, blocks) \
    prints((kernel_run){CHECKED, body, blocks, 64, 0, false, {0}}, "a race in k")
#define FITS(body, blocks) prints((kernel_run){CHECKED, body, blocks, 64, 0, false, {0}}, NULL)

TEST(races_in_a_block_are_found) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "");
    if (access(CHECKED "/libnvrtc.so.13", R_OK) != 0) SKIP("the compiler is not GCC");
    CHECK(FITS(REVERSE("__syncthreads()"), 1));
    CHECK(RACES(REVERSE(""), 1));
    CHECK(RACES(REVERSE("__syncwarp()"), 1));
#define IN_WARP(barrier)                               \
    "__shared__ float s[64];\n"                        \
    "s[threadIdx.x] = x[threadIdx.x];\n" barrier ";\n" \
    "y[threadIdx.x] = s[threadIdx.x ^ 1];\n"           \
    "__syncthreads();"
    CHECK(FITS(IN_WARP("__syncwarp()"), 1));
    CHECK(RACES(IN_WARP("__shfl_sync(~0u, 0, 0)"), 1)); /* orders no memory */
    CHECK(RACES("y[0] = threadIdx.x;", 1));
}

/* The parts of y from 64 on are stored by blocks; the last block adds them. */
#define LAST_BLOCK(fence_by_all, fence_before, fence_after)                 \
    "__shared__ int last;\n"                                                \
    "y[64 + 64 * blockIdx.x + threadIdx.x] = 1;\n" fence_by_all ";\n"       \
    "__syncthreads();\n"                                                    \
    "if (threadIdx.x == 0) {\n" fence_before ";\n"                          \
    "    last = atomicAdd(count, 1u) == gridDim.x - 1;\n" fence_after ";\n" \
    "}\n"                                                                   \
    "__syncthreads();\n"                                                    \
    "if (last) y[threadIdx.x] = y[64 + threadIdx.x] + y[128 + threadIdx.x];\n"

TEST(races_between_blocks_are_found) {
    NEEDS_EMULATOR;
    IN_CHILD(EMULATED, "");
    if (access(CHECKED "/libnvrtc.so.13", R_OK) != 0) SKIP("the compiler is not GCC");
    CHECK(FITS("y[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x];", 2));
    CHECK(RACES("y[threadIdx.x] = blockIdx.x;", 2));
    CHECK(FITS(LAST_BLOCK("", "__threadfence()", "__threadfence()"), 2));
    CHECK(RACES(LAST_BLOCK("", "", "__threadfence()"), 2));
    CHECK(RACES(LAST_BLOCK("", "__threadfence()", ""), 2));
    CHECK(RACES(LAST_BLOCK("__threadfence()", "", "__threadfence()"), 2));
}

int main(int argc, char **argv) { return cuda_test_main(argc, argv); }
