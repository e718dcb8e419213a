/* driver.cpp - an emulated CUDA driver, libcuda.so.1, for tests on machines without a GPU.
 *
 * It runs kernels on the CPU (execute.cpp, shim.h), enforces the rules of captures, counts calls, and
 * simulates a missing device, an old driver, a lack of memory and a lost device (emulated.h).
 *
 * Streams are asynchronous: work is queued and runs as late as possible, when the host waits for it.
 * Missing waits between host and device or between streams therefore give wrong results.
 *
 * GRADUS_EMULATED_CUDA is a list of words: none (no device), old (driver), weak (compute capability
 * 7.5), memory=BYTES (of the device), lost=N (the N-th kernel loses the device), immediate (work runs
 * when it is queued), processors=N (multiprocessors), shared=BYTES (of a block), order=N (in which
 * threads and blocks run: execute.cpp), guard (accesses outside of an allocation, and reads of memory
 * that was not written, show: guard.h; with GRADUS_DEBUG=memory each tensor is an allocation).
 */
#include <cuda.h>
#include <dlfcn.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "execute.h"
#include "guard.h"
#include "submit.h"

extern const emulated_kernel *const emulated_kernel_lists[]; /* of the build; ends with NULL */

namespace {

std::recursive_mutex big_lock; /* of everything here: a call is alone */
#define LOCKED std::lock_guard<std::recursive_mutex> guard(big_lock)

/* --- settings --------------------------------------------------------------------------------- */

emulated_controls read_settings() {
    emulated_controls c = {};
    const char *memory = emulated_setting("memory="), *loss = emulated_setting("lost=");
    c.memory = memory ? (size_t)strtoull(memory, nullptr, 10) : (size_t)8 << 30;
    c.lose_after = loss ? atoll(loss) - 1 : -1;
    const char *order = emulated_setting("order=");
    c.order = order ? strtoull(order, nullptr, 10) : 0;
    return c;
}
emulated_controls controls = read_settings();
emulated_counts &counts = controls.counts;

/* The shared memory that a block may have. */
int shared_bytes() {
    const char *bytes = emulated_setting("shared=");
    return bytes ? atoi(bytes) : EMULATED_SHARED_BYTES;
}
/* Multiprocessors of the device, each of which runs one block of a cooperative launch. */
int processors() {
    const char *count = emulated_setting("processors=");
    return count ? atoi(count) : 2;
}

bool lost;

CUresult check_lost() { return lost ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS; }
#define ALIVE \
    LOCKED;   \
    if (CUresult state = check_lost()) return state

/* --- streams, events, graphs ------------------------------------------------------------------- */

struct module {
    void *library; /* of a kernel that the emulated NVRTC compiled; NULL: the build's kernels */
};
struct function {
    const emulated_kernel *kernel;
    unsigned most_shared; /* bytes of dynamic shared memory that a launch may have */
};

/* A kernel with copies of its parameters, a copy, a memset, or the call of a library. */
struct node {
    const emulated_kernel *kernel;
    unsigned grid[3], block[3];
    std::vector<std::vector<char>> parameters;
    std::function<void()> call;
    void *to; /* a copy or memset */
    const void *from;
    std::vector<char> staged; /* the bytes of `from` if it is not pinned */
    size_t bytes;
    int value;
    bool to_host;
    unsigned shared; /* bytes of dynamic shared memory */
    bool together;   /* a cooperative launch */
    bool early;      /* it may start before the previous kernel has ended */
};
typedef std::shared_ptr<const node> work;

struct graph {
    std::vector<work> nodes; /* in the order in which they run */
    std::vector<work> keys;  /* executable graphs: the recorded node of each */
    CUstreamCaptureMode mode;
    struct stream *origin;
    std::vector<struct stream *> joined; /* streams that wait for an event of the capture */
    bool invalid;
};

struct event {
    uint64_t recorded, done; /* numbers of the latest record queued and executed */
    struct stream *stream;   /* of the latest record */
    graph *capture;          /* that contains the latest record, or NULL */
    double ms;               /* the time when it was executed */
};

struct task {
    enum { RUN, RECORD, WAIT } kind;
    std::vector<work> nodes;
    event *at;
    uint64_t number; /* of the record */
    struct stream *recorder;
};

struct stream {
    graph *capture;
    std::deque<task> queue;
};
stream legacy; /* CUstream 0 */
std::vector<stream *> streams = {&legacy};

std::map<CUdeviceptr, size_t> buffers;
std::map<char *, size_t> pinned;

/* Captures that are open, by their thread and in total. */
thread_local std::vector<graph *> own_captures;
std::vector<graph *> all_captures;

stream *stream_of(CUstream s) {
    return s == nullptr || s == CU_STREAM_LEGACY ? &legacy : (stream *)s;
}

template <typename Map, typename Key> bool contains(const Map &map, Key address, size_t bytes) {
    auto at = map.upper_bound(address);
    if (at == map.begin()) return false;
    --at;
    return address + bytes <= at->first + at->second;
}

void run_node(const node *n) {
    if (lost) return;
    if (n->kernel || n->call) {
        if (controls.lose_after == 0) {
            lost = true;
            return;
        }
        if (controls.lose_after > 0) controls.lose_after--;
    }
    if (n->kernel) {
        std::vector<void *> pointers;
        for (const std::vector<char> &p : n->parameters) pointers.push_back((void *)p.data());
        emulated_execute({n->kernel,
                          {n->grid[0], n->grid[1], n->grid[2]},
                          {n->block[0], n->block[1], n->block[2]},
                          n->shared,
                          n->together,
                          n->early,
                          pointers.data()},
                         controls.order);
    } else if (n->call) {
        n->call();
        if (emulated_guards()) emulated_check_guards("a library");
    } else if (n->from) memmove(n->to, n->staged.empty() ? n->from : n->staged.data(), n->bytes);
    else memset(n->to, n->value, n->bytes);
}

double milliseconds() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

void run_until(const stream *s, const event *e, uint64_t number);

void run_front(stream *s) {
    task t = std::move(s->queue.front());
    s->queue.pop_front();
    if (t.kind == task::WAIT) run_until(t.recorder, t.at, t.number);
    else if (t.kind == task::RECORD) t.at->done = t.number, t.at->ms = milliseconds();
    else
        for (const work &n : t.nodes) run_node(n.get());
}
void drain(stream *s) {
    while (!s->queue.empty()) run_front(s);
}
/* Runs a stream until it has executed a record of the event. */
void run_until(const stream *s, const event *e, uint64_t number) {
    while (e->done < number && !s->queue.empty()) run_front((stream *)s);
}
void drain_all() {
    for (stream *s : streams) drain(s);
}

enum { LONGEST_QUEUE = 2000 };

void push(stream *s, task t) {
    static const bool immediate = emulated_setting("immediate");
    s->queue.push_back(std::move(t));
    if (immediate || s->queue.size() > LONGEST_QUEUE) drain(s);
}

/* Rules of captures: a call that synchronizes or allocates is forbidden in a thread that captures,
 * and in all threads if a capture is global. It invalidates the capture. */
CUresult forbid_in_captures() {
    bool any = false;
    for (graph *g : all_captures) {
        bool own = false;
        for (graph *mine : own_captures) own = own || mine == g;
        if (g->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        if (own || g->mode == CU_STREAM_CAPTURE_MODE_GLOBAL) any = g->invalid = true;
    }
    if (any) counts.violations++;
    return any ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
CUresult violate(graph *g, CUresult result) {
    if (g) g->invalid = true;
    counts.violations++;
    return result;
}
#define SAFE \
    if (CUresult state = forbid_in_captures()) return state

/* Work on the legacy stream depends on every stream, also on captured ones. */
CUresult check_stream(stream *s) {
    if (s != &legacy || all_captures.empty()) return CUDA_SUCCESS;
    return violate(all_captures.back(), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

CUresult submit(CUstream handle, node n) {
    stream *s = stream_of(handle);
    if (CUresult state = check_stream(s)) return state;
    if (s->capture) {
        if (s->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        counts.captured++;
        if (n.to_host) counts.captured_to_host++;
        s->capture->nodes.push_back(std::make_shared<const node>(std::move(n)));
        return CUDA_SUCCESS;
    }
    if (n.call) counts.library_calls++;
    if (n.kernel || n.call) counts.launches++;
    else counts.copies++;
    push(s, task{task::RUN, {std::make_shared<const node>(std::move(n))}, nullptr, 0, nullptr});
    return CUDA_SUCCESS;
}

} // namespace

extern "C" emulated_controls *gradus_emulated_controls(void) { return &controls; }

CUresult emulated_submit(CUstream s, std::function<void()> call) {
    ALIVE;
    node n = {};
    n.call = std::move(call);
    return submit(s, std::move(n));
}

bool emulated_is_device_memory(const void *address, size_t bytes) {
    LOCKED;
    return contains(buffers, (CUdeviceptr)address, bytes);
}

/* --- the driver's functions ------------------------------------------------------------------- */

extern "C" {

CUresult cuInit(unsigned) { return emulated_setting("none") ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) {
    *version = emulated_setting("old") ? 11080 : 13000;
    return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult result, const char **text) {
#define NAME(error) \
    case error: *text = #error; break
    switch (result) {
        NAME(CUDA_ERROR_OUT_OF_MEMORY);
        NAME(CUDA_ERROR_LAUNCH_FAILED);
        NAME(CUDA_ERROR_INVALID_VALUE);
        NAME(CUDA_ERROR_INVALID_IMAGE);
        NAME(CUDA_ERROR_NOT_FOUND);
        NAME(CUDA_ERROR_CAPTURED_EVENT);
        NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        NAME(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        NAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        NAME(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    default: *text = "CUDA_ERROR"; break;
    }
#undef NAME
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
    const bool weak = emulated_setting("weak");
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = weak ? 7 : 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = weak ? 5 : 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = processors(); break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = shared_bytes(); break;
    default: *value = 0; break;
    }
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
    *total = controls.memory;
    *free_bytes = controls.used < *total ? *total - controls.used : 0;
    return CUDA_SUCCESS;
}
static void *aligned_memory(size_t bytes) {
    void *memory = nullptr;
    if (posix_memalign(&memory, 256, bytes) != 0) return nullptr;
    return memset(memory, 0x7f, bytes);
}
CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    ALIVE;
    SAFE;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (controls.used + bytes > controls.memory) return CUDA_ERROR_OUT_OF_MEMORY;
    void *memory = emulated_guards() ? emulated_guard_alloc(bytes) : aligned_memory(bytes);
    if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = (CUdeviceptr)memory;
    buffers[*address] = bytes;
    controls.used += bytes;
    counts.allocations++;
    return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) {
    LOCKED;
    SAFE;
    auto at = buffers.find(address);
    if (at == buffers.end()) return CUDA_ERROR_INVALID_VALUE;
    drain_all();
    controls.used -= at->second;
    buffers.erase(at);
    if (emulated_guards()) emulated_guard_free((void *)address);
    else free((void *)address);
    counts.frees++;
    return check_lost();
}
CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned) {
    ALIVE;
    SAFE;
    *address = malloc(bytes ? bytes : 1);
    if (!*address) return CUDA_ERROR_OUT_OF_MEMORY;
    pinned[(char *)*address] = bytes;
    counts.pinned_allocations++;
    return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void *address) {
    LOCKED;
    SAFE;
    if (pinned.erase((char *)address) == 0) return CUDA_ERROR_INVALID_VALUE;
    drain_all();
    free(address);
    return check_lost();
}

static node copy_node(void *to, const void *from, size_t bytes) {
    node n = {};
    n.to = to;
    n.from = from;
    n.bytes = bytes;
    return n;
}
static bool on_device(CUdeviceptr address, size_t bytes) {
    return contains(buffers, address, bytes);
}
/* From memory that is not pinned, the driver copies before it returns. */
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream s) {
    ALIVE;
    if (!on_device(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    node n = copy_node((void *)to, from, bytes);
    if (!contains(pinned, (char *)from, bytes) && !stream_of(s)->capture)
        n.staged.assign((const char *)from, (const char *)from + bytes);
    return submit(s, std::move(n));
}
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
    ALIVE;
    if (!on_device(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    node n = copy_node(to, (const void *)from, bytes);
    n.to_host = true;
    CUresult result = submit(s, std::move(n));
    if (!contains(pinned, (char *)to, bytes)) drain(stream_of(s));
    return result;
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
    ALIVE;
    if (!on_device(to, bytes) || !on_device(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return submit(s, copy_node((void *)to, (const void *)from, bytes));
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream s) {
    ALIVE;
    if (!on_device(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    node n = copy_node((void *)to, nullptr, bytes);
    n.value = value;
    return submit(s, std::move(n));
}

CUresult cuStreamCreateWithPriority(CUstream *s, unsigned, int) {
    ALIVE;
    stream *created = new stream{};
    streams.push_back(created);
    *s = (CUstream)created;
    return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream handle) {
    ALIVE;
    stream *s = stream_of(handle);
    if (s->capture) return violate(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SAFE;
    counts.waits++;
    drain(s);
    return check_lost();
}
/* A stream that waits for an event of a capture joins the capture. */
CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
    ALIVE;
    stream *s = stream_of(handle);
    event *e = (event *)event_handle;
    if (CUresult state = check_stream(s)) return state;
    if (e->capture != s->capture) {
        if (!e->capture) return violate(s->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        if (s->capture) return violate(s->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        s->capture = e->capture;
        s->capture->joined.push_back(s);
        return CUDA_SUCCESS;
    }
    if (s->capture) { /* the stream waits for all work of the joined one */
        auto &joined = s->capture->joined;
        for (size_t i = 0; i < joined.size(); i++)
            if (joined[i] == e->stream && s != e->stream) joined.erase(joined.begin() + (long)i);
        return CUDA_SUCCESS;
    }
    counts.events++;
    push(s, task{task::WAIT, {}, e, e->recorded, e->stream});
    return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent *result, unsigned) {
    ALIVE;
    *result = (CUevent) new event{};
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent handle, CUstream s) {
    ALIVE;
    event *e = (event *)handle;
    if (CUresult state = check_stream(stream_of(s))) return state;
    e->stream = stream_of(s);
    e->capture = e->stream->capture;
    if (e->capture) return CUDA_SUCCESS;
    counts.events++;
    push(e->stream, task{task::RECORD, {}, e, ++e->recorded, nullptr});
    return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent handle) {
    ALIVE;
    event *e = (event *)handle;
    if (e->capture) return violate(e->capture, CUDA_ERROR_CAPTURED_EVENT);
    SAFE;
    counts.waits++;
    if (e->stream) run_until(e->stream, e, e->recorded);
    return check_lost();
}
CUresult cuEventQuery(CUevent handle) {
    ALIVE;
    event *e = (event *)handle;
    if (e->capture) return violate(e->capture, CUDA_ERROR_CAPTURED_EVENT);
    SAFE;
    if (e->done >= e->recorded) return CUDA_SUCCESS;
    run_front(e->stream); /* a program that polls sees progress */
    return e->done >= e->recorded ? check_lost() : CUDA_ERROR_NOT_READY;
}
CUresult cuEventElapsedTime(float *ms, CUevent first, CUevent second) {
    ALIVE;
    const event *from = (event *)first, *to = (event *)second;
    if (!from->recorded || !to->recorded) return CUDA_ERROR_INVALID_HANDLE;
    if (from->done < from->recorded || to->done < to->recorded) return CUDA_ERROR_NOT_READY;
    *ms = (float)(to->ms - from->ms);
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent handle) {
    LOCKED;
    drain_all(); /* no queued task refers to the event any more */
    delete (event *)handle;
    return CUDA_SUCCESS;
}

/* --- kernels --- */

CUresult cuModuleLoadData(CUmodule *result, const void *image) {
    ALIVE;
    SAFE;
    counts.modules++;
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
        found =
            find_kernel((const emulated_kernel *)dlsym(library, "emulated_kernels_compiled"), name);
    else
        for (int i = 0; emulated_kernel_lists[i] && !found; i++)
            found = find_kernel(emulated_kernel_lists[i], name);
    if (!found) return CUDA_ERROR_NOT_FOUND;
    *result = (CUfunction) new function{found, 48 << 10};
    return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value) {
    ALIVE;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
    if (value < 0 || value > shared_bytes()) return CUDA_ERROR_INVALID_VALUE;
    ((function *)f)->most_shared = (unsigned)value;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction) {
    ALIVE;
    if (attribute != CU_FUNC_ATTRIBUTE_PTX_VERSION) return CUDA_ERROR_INVALID_VALUE;
    *value = 90;
    return CUDA_SUCCESS;
}

static std::vector<std::vector<char>> copy_parameters(const emulated_kernel *k, void **parameters);

static CUresult launch(CUfunction f, const unsigned grid[3], const unsigned block[3],
                       unsigned shared, bool early, CUstream s, void **parameters) {
    const emulated_kernel *k = ((function *)f)->kernel;
    const unsigned threads = block[0] * block[1] * block[2];
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > 0x7fffffffu || grid[1] > 65535 ||
        grid[2] > 65535 || threads == 0 || threads > 1024 || shared > ((function *)f)->most_shared)
        return CUDA_ERROR_INVALID_VALUE;
    node n{k,
           {grid[0], grid[1], grid[2]},
           {block[0], block[1], block[2]},
           copy_parameters(k, parameters)};
    n.shared = shared;
    n.early = early;
    return submit(s, std::move(n));
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream s, void **parameters,
                        void **) {
    ALIVE;
    const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    return launch(f, grid, block, shared, false, s, parameters);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                   unsigned by, unsigned bz, unsigned shared, CUstream s,
                                   void **parameters) {
    ALIVE;
    const emulated_kernel *k = ((function *)f)->kernel;
    if (gx == 0 || gy != 1 || gz != 1 || bx * by * bz == 0 || bx * by * bz > 1024 ||
        shared > ((function *)f)->most_shared)
        return CUDA_ERROR_INVALID_VALUE;
    if (gx > (unsigned)processors()) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    node n{k, {gx, gy, gz}, {bx, by, bz}, copy_parameters(k, parameters)};
    n.together = true;
    n.shared = shared;
    return submit(s, std::move(n));
}

/* Kernels run one after the other, but races.cpp checks what one does that may overlap. */
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **parameters, void **) {
    ALIVE;
    bool early = false;
    for (unsigned i = 0; i < c->numAttrs; i++) {
        if (c->attrs[i].id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return CUDA_ERROR_INVALID_VALUE;
        early = c->attrs[i].value.programmaticStreamSerializationAllowed;
    }
    const unsigned grid[3] = {c->gridDimX, c->gridDimY, c->gridDimZ},
                   block[3] = {c->blockDimX, c->blockDimY, c->blockDimZ};
    return launch(f, grid, block, c->sharedMemBytes, early, c->hStream, parameters);
}

/* --- captures --- */

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
    ALIVE;
    stream *s = stream_of(handle);
    if (s == &legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture) return CUDA_ERROR_ILLEGAL_STATE;
    s->capture = new graph{};
    s->capture->mode = mode;
    s->capture->origin = s;
    own_captures.push_back(s->capture);
    all_captures.push_back(s->capture);
    counts.captures++;
    return CUDA_SUCCESS;
}
static void remove_capture(std::vector<graph *> &list, graph *g) {
    for (size_t i = 0; i < list.size(); i++)
        if (list[i] == g) {
            list.erase(list.begin() + (long)i);
            return;
        }
}
CUresult cuStreamEndCapture(CUstream handle, CUgraph *result) {
    LOCKED;
    stream *s = stream_of(handle);
    graph *g = s->capture;
    *result = nullptr;
    if (!g) return CUDA_ERROR_ILLEGAL_STATE;
    if (s != g->origin) return violate(g, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    bool own = g->mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    for (graph *mine : own_captures) own = own || mine == g;
    if (!own) return violate(g, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    remove_capture(own_captures, g);
    remove_capture(all_captures, g);
    const CUresult state = lost                 ? CUDA_ERROR_LAUNCH_FAILED
                           : g->invalid         ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                           : !g->joined.empty() ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                                : CUDA_SUCCESS;
    for (stream *each : streams)
        if (each->capture == g) each->capture = nullptr;
    if (state == CUDA_SUCCESS) *result = (CUgraph)g;
    else delete g;
    return state;
}
CUresult cuStreamGetCaptureInfo(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id,
                                CUgraph *result, const CUgraphNode **nodes,
                                const CUgraphEdgeData **edges, size_t *count) {
    ALIVE;
    static CUgraphNode latest;
    graph *g = stream_of(s)->capture;
    *status = !g           ? CU_STREAM_CAPTURE_STATUS_NONE
              : g->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                           : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (count) *count = g && !g->nodes.empty();
    if (g && !g->nodes.empty()) latest = (CUgraphNode)g->nodes.back().get();
    if (nodes) *nodes = &latest;
    if (result) *result = (CUgraph)g;
    if (id) *id = 1;
    if (edges) *edges = nullptr;
    return CUDA_SUCCESS;
}
CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph g, unsigned long long) {
    ALIVE;
    SAFE;
    graph *created = new graph(*(graph *)g);
    created->keys = created->nodes;
    *exec = (CUgraphExec)created;
    counts.instantiations++;
    return CUDA_SUCCESS;
}
CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *count) {
    ALIVE;
    const graph *from = (graph *)g;
    for (size_t i = 0; nodes && i < *count && i < from->nodes.size(); i++)
        nodes[i] = (CUgraphNode)from->nodes[i].get();
    *count = from->nodes.size();
    return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph g) {
    LOCKED;
    delete (graph *)g;
    return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec exec) {
    LOCKED;
    delete (graph *)exec;
    return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
    ALIVE;
    stream *s = stream_of(handle);
    const graph *g = (graph *)exec;
    if (CUresult state = check_stream(s)) return state;
    if (s->capture) {
        s->capture->nodes.insert(s->capture->nodes.end(), g->nodes.begin(), g->nodes.end());
        return CUDA_SUCCESS;
    }
    counts.graph_launches++;
    push(s, task{task::RUN, g->nodes, nullptr, 0, nullptr});
    return CUDA_SUCCESS;
}
/* Launches that are queued keep their parameters. */
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode at,
                                        const CUDA_KERNEL_NODE_PARAMS *p) {
    ALIVE;
    graph *g = (graph *)exec;
    const emulated_kernel *k = ((function *)p->func)->kernel;
    for (size_t i = 0; i < g->keys.size(); i++)
        if ((CUgraphNode)g->keys[i].get() == at) {
            if (!g->keys[i]->kernel) return CUDA_ERROR_INVALID_VALUE;
            node n{k,
                   {p->gridDimX, p->gridDimY, p->gridDimZ},
                   {p->blockDimX, p->blockDimY, p->blockDimZ},
                   copy_parameters(k, p->kernelParams)};
            n.shared = p->sharedMemBytes;
            g->nodes[i] = std::make_shared<const node>(std::move(n));
            counts.parameter_changes++;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

} // extern "C"

static std::vector<std::vector<char>> copy_parameters(const emulated_kernel *k, void **parameters) {
    std::vector<std::vector<char>> copies;
    for (int i = 0; k->parameter_bytes[i]; i++)
        copies.emplace_back((char *)parameters[i], (char *)parameters[i] + k->parameter_bytes[i]);
    return copies;
}
