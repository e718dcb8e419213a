/* driver.cpp - an emulated CUDA driver, libcuda.so.1, for tests on machines without a GPU.
 *
 * It runs kernels on the CPU (shim.h), keeps the rules of captures, counts calls, and can simulate a
 * missing device, an old driver, a lack of memory and a lost device. Streams run at once: a copy or
 * kernel is complete when its call returns, except in a capture, which records it.
 *
 * GRADUS_EMULATED_CUDA is a list of words: none (no device), old (driver), weak (compute capability
 * 7.5), memory=BYTES (of the device), lost=N (the N-th launch fails and all later calls, too).
 */
#include <time.h>
#include <cuda.h>
#include <dlfcn.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "shim.h"

emulated_index threadIdx, blockIdx, blockDim, gridDim;
extern const emulated_kernel *const emulated_kernel_lists[]; /* of the build; ends with NULL */

namespace {

std::recursive_mutex big_lock; /* of everything here: a call is alone */
#define LOCKED std::lock_guard<std::recursive_mutex> guard(big_lock)

/* --- settings --------------------------------------------------------------------------------- */

const char *setting(const char *word) {
    const char *all = getenv("GRADUS_EMULATED_CUDA");
    const char *at = all ? strstr(all, word) : nullptr;
    return at ? at + strlen(word) : nullptr;
}

bool lost;
long long launches;

CUresult check_lost() { return lost ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS; }
#define ALIVE                                                                       \
    LOCKED;                                                                         \
    if (CUresult state = check_lost()) return state

/* --- running kernels -------------------------------------------------------------------------- */

/* A block's threads as coroutines. */
struct coroutine {
    ucontext_t context;
    std::vector<char> stack;
    bool done;
    unsigned waits; /* barriers that the thread has reached */
    unsigned warp_waits;
    alignas(16) char lane[16];
};
std::vector<coroutine> threads;
ucontext_t scheduler;
const emulated_kernel *running;
void **running_parameters;
unsigned current;

void set_index(unsigned thread) {
    current = thread;
    threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y,
                 thread / blockDim.x / blockDim.y};
}

void run_thread() {
    running->call(running_parameters);
    threads[current].done = true;
    swapcontext(&threads[current].context, &scheduler);
}

void run_block_of_coroutines(unsigned count) {
    enum { STACK = 64 << 10 };
    if (threads.size() < count) threads.resize(count);
    for (unsigned t = 0; t < count; t++) {
        coroutine &c = threads[t];
        c.stack.resize(STACK);
        c.done = false;
        c.waits = c.warp_waits = 0;
        getcontext(&c.context);
        c.context.uc_stack.ss_sp = c.stack.data();
        c.context.uc_stack.ss_size = STACK;
        c.context.uc_link = nullptr;
        makecontext(&c.context, run_thread, 0);
    }
    for (bool any = true; any;) {
        any = false;
        for (unsigned t = 0; t < count; t++) {
            if (threads[t].done) continue;
            any = true;
            set_index(t);
            swapcontext(&scheduler, &threads[t].context);
        }
    }
}

void run_kernel(const emulated_kernel *k, const unsigned grid[3], const unsigned block[3],
                void **parameters) {
    const unsigned count = block[0] * block[1] * block[2];
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    running = k;
    running_parameters = parameters;
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                if (k->has_barriers) run_block_of_coroutines(count);
                else
                    for (unsigned t = 0; t < count; t++) {
                        set_index(t);
                        k->call(parameters);
                    }
            }
}

/* --- objects ---------------------------------------------------------------------------------- */

struct module {
    void *library; /* of a kernel that the emulated NVRTC compiled; NULL: the build's kernels */
};
struct function {
    const emulated_kernel *kernel;
};

/* A recorded call of a capture, with copies of the parameters. */
struct node {
    const emulated_kernel *kernel;
    unsigned grid[3], block[3];
    std::vector<std::vector<char>> parameters;
    void *to; /* a copy or memset */
    const void *from;
    size_t bytes;
    int value;
};
struct graph {
    std::vector<node *> nodes;
};
struct stream {
    graph *capture;
};

std::map<CUdeviceptr, size_t> buffers;
size_t used;

size_t total_memory() {
    const char *text = setting("memory=");
    return text ? (size_t)strtoull(text, nullptr, 10) : (size_t)8 << 30;
}

void run_node(const node *n) {
    if (n->kernel) {
        std::vector<void *> pointers;
        for (const std::vector<char> &p : n->parameters) pointers.push_back((void *)p.data());
        run_kernel(n->kernel, n->grid, n->block, pointers.data());
    } else if (n->from) memmove(n->to, n->from, n->bytes);
    else memset(n->to, n->value, n->bytes);
}

/* Runs a call now, or records it. */
CUresult submit(CUstream s, node *n) {
    stream *at = (stream *)s;
    if (at->capture) at->capture->nodes.push_back(n);
    else {
        run_node(n);
        delete n;
    }
    return CUDA_SUCCESS;
}

} // namespace

/* --- barriers (shim.h) ------------------------------------------------------------------------ */

extern "C" void emulated_barrier(void) {
    coroutine &own = threads[current];
    const unsigned count = blockDim.x * blockDim.y * blockDim.z, thread = current;
    const unsigned phase = ++own.waits;
    for (bool all = false; !all;) {
        all = true;
        for (unsigned t = 0; t < count; t++) all = all && (threads[t].done || threads[t].waits >= phase);
        if (all) break;
        swapcontext(&threads[thread].context, &scheduler);
    }
    set_index(thread);
}

extern "C" void emulated_warp_barrier(void) {
    coroutine &own = threads[current];
    const unsigned count = blockDim.x * blockDim.y * blockDim.z, thread = current;
    const unsigned first = thread / 32 * 32, end = first + 32 < count ? first + 32 : count;
    const unsigned phase = ++own.warp_waits;
    for (bool all = false; !all;) {
        all = true;
        for (unsigned t = first; t < end; t++)
            all = all && (threads[t].done || threads[t].warp_waits >= phase);
        if (all) break;
        swapcontext(&threads[thread].context, &scheduler);
    }
    set_index(thread);
}

extern "C" int emulated_any(int predicate) {
    const unsigned count = blockDim.x * blockDim.y * blockDim.z;
    int any = 0;
    memcpy(threads[current].lane, &predicate, sizeof predicate);
    emulated_barrier();
    for (unsigned t = 0; t < count; t++) {
        int other;
        memcpy(&other, threads[t].lane, sizeof other);
        if (!threads[t].done) any |= other != 0;
    }
    emulated_barrier();
    return any;
}

extern "C" void *emulated_lane(int lane) {
    const unsigned thread = current / 32 * 32 + (unsigned)lane;
    const unsigned count = blockDim.x * blockDim.y * blockDim.z;
    return thread < count && !threads[thread].done ? threads[thread].lane : nullptr;
}

/* --- the driver's functions ------------------------------------------------------------------- */

extern "C" {

CUresult cuInit(unsigned) { return setting("none") ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) {
    *version = setting("old") ? 11080 : 13000;
    return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult result, const char **text) {
    *text = result == CUDA_ERROR_OUT_OF_MEMORY  ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == CUDA_ERROR_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
                                                 : "CUDA_ERROR";
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult result, const char **text) {
    *text = result == CUDA_ERROR_LAUNCH_FAILED ? "unspecified launch failure" : "emulated failure";
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    *count = 1;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int number) {
    *device = number;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int bytes, CUdevice) {
    snprintf(name, (size_t)bytes, "emulated device");
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice) {
    const bool weak = setting("weak");
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? (weak ? 7 : 9)
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? (weak ? 5 : 0)
             : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT     ? 2
                                                                         : 0;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice) {
    static int only;
    *context = (CUcontext)&only;
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext) {
    ALIVE;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total) {
    ALIVE;
    *total = total_memory();
    *free_bytes = *total - used;
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    ALIVE;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > total_memory() - used) return CUDA_ERROR_OUT_OF_MEMORY;
    void *memory = nullptr;
    if (posix_memalign(&memory, 256, bytes) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(memory, 0x7f, bytes);
    *address = (CUdeviceptr)memory;
    buffers[*address] = bytes;
    used += bytes;
    return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) {
    LOCKED;
    auto at = buffers.find(address);
    if (at == buffers.end()) return CUDA_ERROR_INVALID_VALUE;
    used -= at->second;
    buffers.erase(at);
    free((void *)address);
    return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned) {
    ALIVE;
    *address = malloc(bytes ? bytes : 1);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFreeHost(void *address) {
    free(address);
    return CUDA_SUCCESS;
}

static CUresult submit_copy(CUstream s, void *to, const void *from, size_t bytes) {
    return submit(s, new node{nullptr, {0, 0, 0}, {0, 0, 0}, {}, to, from, bytes, 0});
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream s) {
    ALIVE;
    return submit_copy(s, (void *)to, from, bytes);
}
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
    ALIVE;
    return submit_copy(s, to, (const void *)from, bytes);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
    ALIVE;
    return submit_copy(s, (void *)to, (const void *)from, bytes);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream s) {
    ALIVE;
    return submit(s, new node{nullptr, {0, 0, 0}, {0, 0, 0}, {}, (void *)to, nullptr, bytes, value});
}

CUresult cuStreamCreateWithPriority(CUstream *s, unsigned, int) {
    ALIVE;
    *s = (CUstream) new stream{nullptr};
    return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream s) {
    ALIVE;
    return ((stream *)s)->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned) {
    ALIVE;
    return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent *event, unsigned) {
    ALIVE;
    *event = (CUevent) new double(0);
    return CUDA_SUCCESS;
}
/* Kernels run when they are launched, so the time now is that of the stream. */
CUresult cuEventRecord(CUevent event, CUstream) {
    ALIVE;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *(double *)event = 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
    return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent) {
    ALIVE;
    return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime(float *ms, CUevent first, CUevent second) {
    ALIVE;
    *ms = (float)(*(double *)second - *(double *)first);
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
    delete (double *)event;
    return CUDA_SUCCESS;
}

/* --- kernels --- */

CUresult cuModuleLoadData(CUmodule *result, const void *image) {
    ALIVE;
    static const char magic[] = "emulated:"; /* then the path of a library */
    const char *text = (const char *)image;
    module *m = new module{nullptr};
    if (strncmp(text, magic, sizeof magic - 1) == 0) {
        m->library = dlopen(text + sizeof magic - 1, RTLD_NOW | RTLD_LOCAL);
        if (!m->library) return fprintf(stderr, "%s\n", dlerror()), CUDA_ERROR_INVALID_IMAGE;
    }
    *result = (CUmodule)m;
    return CUDA_SUCCESS;
}
static const emulated_kernel *find_kernel(const emulated_kernel *list, const char *name) {
    for (; list && list->name; list++)
        if (strcmp(list->name, name) == 0) return list;
    return nullptr;
}
CUresult cuModuleGetFunction(CUfunction *result, CUmodule m, const char *name) {
    ALIVE;
    const emulated_kernel *found = nullptr;
    if (void *library = ((module *)m)->library)
        found = find_kernel((const emulated_kernel *)dlsym(library, "emulated_kernels_compiled"),
                            name);
    else
        for (int i = 0; emulated_kernel_lists[i] && !found; i++)
            found = find_kernel(emulated_kernel_lists[i], name);
    if (!found) return CUDA_ERROR_NOT_FOUND;
    *result = (CUfunction) new function{found};
    return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }

static std::vector<std::vector<char>> copy_parameters(const emulated_kernel *k, void **parameters);

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned, CUstream s, void **parameters,
                        void **) {
    ALIVE;
    const char *limit = setting("lost=");
    if (limit && ++launches >= atoll(limit)) {
        lost = true;
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    const emulated_kernel *k = ((function *)f)->kernel;
    if (gx == 0 || gy == 0 || gz == 0 || bx * by * bz == 0 || bx * by * bz > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    if (!((stream *)s)->capture) {
        run_kernel(k, grid, block, parameters);
        return CUDA_SUCCESS;
    }
    node *n = new node{k, {gx, gy, gz}, {bx, by, bz}, copy_parameters(k, parameters), nullptr,
                       nullptr, 0, 0};
    return submit(s, n);
}

/* --- captures --- */

CUresult cuStreamBeginCapture(CUstream s, CUstreamCaptureMode) {
    ALIVE;
    ((stream *)s)->capture = new graph;
    return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream s, CUgraph *result) {
    ALIVE;
    *result = (CUgraph)((stream *)s)->capture;
    ((stream *)s)->capture = nullptr;
    return *result ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}
CUresult cuStreamGetCaptureInfo(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id,
                                CUgraph *result, const CUgraphNode **nodes,
                                const CUgraphEdgeData **edges, size_t *count) {
    ALIVE;
    static CUgraphNode latest;
    graph *g = ((stream *)s)->capture;
    *status = g ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    *count = g && !g->nodes.empty();
    if (*count) latest = (CUgraphNode)g->nodes.back();
    *nodes = &latest;
    *result = (CUgraph)g;
    if (id) *id = 1;
    if (edges) *edges = nullptr;
    return CUDA_SUCCESS;
}
/* The nodes go to the executable graph, which has the handles of the nodes. */
CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph g, unsigned long long) {
    ALIVE;
    *exec = (CUgraphExec) new graph(*(graph *)g);
    return CUDA_SUCCESS;
}
CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *count) {
    ALIVE;
    const graph *from = (graph *)g;
    for (size_t i = 0; nodes && i < *count && i < from->nodes.size(); i++)
        nodes[i] = (CUgraphNode)from->nodes[i];
    *count = from->nodes.size();
    return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph g) {
    delete (graph *)g;
    return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec exec) {
    for (node *n : ((graph *)exec)->nodes) delete n;
    delete (graph *)exec;
    return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream) {
    ALIVE;
    for (const node *n : ((graph *)exec)->nodes) run_node(n);
    return CUDA_SUCCESS;
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec, CUgraphNode at,
                                        const CUDA_KERNEL_NODE_PARAMS *p) {
    ALIVE;
    node *n = (node *)at;
    n->kernel = ((function *)p->func)->kernel;
    n->grid[0] = p->gridDimX, n->grid[1] = p->gridDimY, n->grid[2] = p->gridDimZ;
    n->block[0] = p->blockDimX, n->block[1] = p->blockDimY, n->block[2] = p->blockDimZ;
    n->parameters = copy_parameters(n->kernel, p->kernelParams);
    return CUDA_SUCCESS;
}

} // extern "C"

static std::vector<std::vector<char>> copy_parameters(const emulated_kernel *k, void **parameters) {
    std::vector<std::vector<char>> copies;
    for (int i = 0; k->parameter_bytes[i]; i++)
        copies.emplace_back((char *)parameters[i], (char *)parameters[i] + k->parameter_bytes[i]);
    return copies;
}
