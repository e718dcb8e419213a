/* device.c - the test device.
 *
 * It borrows the CPU's kernels but behaves like a GPU: handles are addresses that the processor
 * refuses to follow (the top bit is turned over), kernels, copies and frees wait in a queue that one
 * worker thread serves in order, and what goes wrong in a kernel is reported by the next
 * synchronize or download. A host read of device memory, or a kernel that runs before its data are
 * there, fails here as it would on CUDA.
 */
#include "backend/test/device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/error.h"
#include "core/thread.h"
#include "ops/op.h"

#define TOP_BIT ((uintptr_t)1 << 63)

static void *handle_of(void *address) { return (void *)((uintptr_t)address ^ TOP_BIT); }
static void *address_of(const void *handle) {
    return handle ? (void *)((uintptr_t)handle ^ TOP_BIT) : NULL;
}

typedef struct job {
    struct job *next;
    enum { KERNEL, COPY, FREE, NOTHING } kind;
    gd_kernel_call call; /* KERNEL: its views and attributes stand behind the job */
    void *to;
    const void *from;
    size_t bytes;
    bool owned; /* COPY: `from` is a host buffer to be freed */
} job;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    job *first, **last;
    bool running, busy, stop;
    pthread_t worker;
    gd_status error; /* the error word */
    char message[GD_MESSAGE_MAX];
    int64_t kernels;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .wake = PTHREAD_COND_INITIALIZER,
           .idle = PTHREAD_COND_INITIALIZER,
           .last = &queue.first};

/* --- the worker ------------------------------------------------------------------------------- */

static gd_status run_kernel(gd_kernel_call *call) {
    gd_view *in = (gd_view *)(uintptr_t)call->in;
    for (int i = 0; i < call->n_in; i++) in[i].data = address_of(in[i].data);
    for (int i = 0; i < call->n_out; i++) call->out[i].data = address_of(call->out[i].data);
    call->workspace = address_of(call->workspace);
    return call->made ? call->kernel->run(call) : gd_kernel_run_host(call);
}

static void serve(job *j) {
    gd_status status = GD_OK;
    if (j->kind == KERNEL) status = run_kernel(&j->call);
    else if (j->kind == COPY) {
        memcpy(j->to, j->from, j->bytes);
        if (j->owned) gd_free((void *)(uintptr_t)j->from);
    } else if (j->kind == FREE) gd_free(j->to);
    gd_free(j);
    if (status == GD_OK) return;
    pthread_mutex_lock(&queue.lock);
    if (queue.error == GD_OK) {
        queue.error = status;
        snprintf(queue.message, sizeof queue.message, "%s", gd_this_thread.noted_text);
    }
    pthread_mutex_unlock(&queue.lock);
}

static void *work(void *unused) {
    (void)unused;
    pthread_mutex_lock(&queue.lock);
    while (true) {
        while (!queue.first && !queue.stop) {
            queue.busy = false;
            pthread_cond_broadcast(&queue.idle);
            pthread_cond_wait(&queue.wake, &queue.lock);
        }
        if (!queue.first) break;
        job *j = queue.first;
        queue.first = j->next;
        if (!queue.first) queue.last = &queue.first;
        queue.busy = true;
        pthread_mutex_unlock(&queue.lock);
        serve(j);
        pthread_mutex_lock(&queue.lock);
    }
    queue.busy = false;
    pthread_cond_broadcast(&queue.idle);
    pthread_mutex_unlock(&queue.lock);
    return NULL;
}

static void enqueue(job *j) {
    j->next = NULL;
    pthread_mutex_lock(&queue.lock);
    if (!queue.running) queue.running = pthread_create(&queue.worker, NULL, work, NULL) == 0;
    bool here = !queue.running; /* no thread to be had: do it now, in order */
    if (!here) {
        *queue.last = j;
        queue.last = &j->next;
        pthread_cond_signal(&queue.wake);
    }
    pthread_mutex_unlock(&queue.lock);
    if (here) serve(j);
}

static void drain(void) {
    pthread_mutex_lock(&queue.lock);
    while (queue.running && (queue.first || queue.busy))
        pthread_cond_wait(&queue.idle, &queue.lock);
    pthread_mutex_unlock(&queue.lock);
}

static gd_status take_error(void) {
    pthread_mutex_lock(&queue.lock);
    gd_status status = queue.error;
    char message[GD_MESSAGE_MAX];
    memcpy(message, queue.message, sizeof message);
    queue.error = GD_OK;
    pthread_mutex_unlock(&queue.lock);
    return status == GD_OK ? GD_OK : gd_fail(status, "in a kernel on test:0: %s", message);
}

/* --- the vtable ------------------------------------------------------------------------------- */

static job *new_job(int kind, size_t extra) {
    job *j = gd_malloc(sizeof *j + extra);
    if (!j) {
        gd_fail(GD_E_MEMORY, "no memory to queue work");
        return NULL;
    }
    memset(j, 0, sizeof *j);
    j->kind = kind;
    return j;
}

static gd_status test_alloc(gd_device *d, size_t bytes, void **handle) {
    (void)d;
    void *p = gd_aligned_alloc(64, bytes);
    *handle = p ? handle_of(p) : NULL;
    return p ? GD_OK : GD_E_MEMORY;
}

static void test_free(gd_device *d, void *handle, size_t bytes) {
    (void)d;
    (void)bytes;
    job *j = new_job(FREE, 0);
    if (j) {
        j->to = address_of(handle);
        enqueue(j);
    } else { /* not even memory for the note: wait, then free */
        drain();
        gd_free(address_of(handle));
    }
}

static gd_status test_upload(gd_device *d, void *to, const void *from, size_t bytes) {
    (void)d;
    job *j = new_job(COPY, 0);
    void *copy = gd_malloc(bytes);
    if (!j || !copy) {
        gd_free(j);
        gd_free(copy);
        return gd_fail(GD_E_MEMORY, "no memory to upload %zu bytes", bytes);
    }
    memcpy(copy, from, bytes);
    j->to = address_of(to);
    j->from = copy;
    j->bytes = bytes;
    j->owned = true;
    enqueue(j);
    return GD_OK;
}

static gd_status test_download(gd_device *d, void *to, const void *from, size_t bytes) {
    (void)d;
    drain();
    GD_TRY(take_error());
    memcpy(to, address_of(from), bytes);
    return GD_OK;
}

static gd_status test_copy(gd_device *d, void *to, const void *from, size_t bytes) {
    (void)d;
    job *j = new_job(COPY, 0);
    if (!j) return GD_E_MEMORY;
    j->to = address_of(to);
    j->from = address_of(from);
    j->bytes = bytes;
    enqueue(j);
    return GD_OK;
}

static gd_status test_run(gd_device *d, const gd_kernel_call *call) {
    (void)d;
    size_t views = (size_t)(call->n_in + call->n_out) * sizeof(gd_view);
    size_t attrs = call->attrs ? call->op->attrs_size : 0;
    job *j = new_job(KERNEL, views + attrs);
    if (!j) return GD_E_MEMORY;
    gd_view *copies = (gd_view *)(j + 1);
    if (call->n_in) memcpy(copies, call->in, (size_t)call->n_in * sizeof *copies);
    if (call->n_out) memcpy(copies + call->n_in, call->out, (size_t)call->n_out * sizeof *copies);
    j->call = *call;
    j->call.in = copies;
    j->call.out = copies + call->n_in;
    if (attrs) j->call.attrs = memcpy((char *)copies + views, call->attrs, attrs);
    __atomic_fetch_add(&queue.kernels, 1, __ATOMIC_RELAXED);
    enqueue(j);
    return GD_OK;
}

static gd_status test_run_now(gd_device *d, gd_kernel_call *call) {
    (void)d;
    drain();
    GD_TRY(take_error());
    return run_kernel(call);
}

static gd_status test_synchronize(gd_device *d) {
    (void)d;
    drain();
    return take_error();
}

static gd_status test_event_record(gd_device *d, gd_event **event) {
    (void)d;
    *event = NULL;
    return GD_OK;
}

static gd_status test_event_wait(gd_device *d, gd_event *event) {
    (void)event;
    return test_synchronize(d);
}

static void *test_kernel_address(gd_device *d, void *handle) {
    (void)d;
    return address_of(handle);
}

static const gd_device_api api = {
    .kind = "cpu",
    .dtypes = (1u << GD_DTYPE_COUNT) - 2u,
    .host_reads = false,
    .alloc = test_alloc,
    .free = test_free,
    .upload = test_upload,
    .download = test_download,
    .copy = test_copy,
    .kernel_address = test_kernel_address,
    .run = test_run,
    .run_now = test_run_now,
    .synchronize = test_synchronize,
    .event_record = test_event_record,
    .event_wait = test_event_wait,
};

static gd_device device = {.api = &api, .name = "test:0"};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void make(void) { gd_device_register(&device); }

gd_device *gd_test_device(void) {
    pthread_once(&once, make);
    return &device;
}

void gd_test_device_stop(void) {
    drain();
    pthread_mutex_lock(&queue.lock);
    bool running = queue.running;
    queue.stop = true;
    pthread_cond_signal(&queue.wake);
    pthread_mutex_unlock(&queue.lock);
    if (running) pthread_join(queue.worker, NULL);
    queue.running = queue.stop = false;
}

int64_t gd_test_device_kernels(void) { return __atomic_load_n(&queue.kernels, __ATOMIC_RELAXED); }
