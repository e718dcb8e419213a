/* cpu_device.c - the CPU as a device: a caching allocator, and kernels that run at once.
 *
 * Buffers are cached by size class (four to a power of two) on free lists, because a fresh page
 * costs more than the arithmetic on it. A buffer's first bytes hold the link while it is free.
 * Large ones come from an arena (arena.h), which uses them again in any size.
 */
#include <pthread.h>
#include <string.h>

#include "core/alloc.h"
#include "core/arena.h"
#include "core/copy.h"
#include "core/device.h"
#include "core/error.h"
#include "core/fork.h"
#include "core/tensor.h"
#include "gradus/testing.h"

enum { ALIGNMENT = 64, CLASSES = 4 * 48 };

typedef struct free_buffer {
    struct free_buffer *next;
} free_buffer;

static free_buffer *free_lists[CLASSES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(lock)

/* Class of a size, and the bytes all buffers of that class have: 64, 80, 96, 112, 128, 160, ... */
static int size_class(size_t bytes, size_t *rounded) {
    if (bytes < ALIGNMENT) bytes = ALIGNMENT;
    int log = 63 - __builtin_clzll((unsigned long long)bytes);
    size_t step = (size_t)1 << (log - 2);
    size_t quarter = (bytes - ((size_t)1 << log) + step - 1) / step;
    *rounded = ((size_t)1 << log) + quarter * step;
    return 4 * (log - 6) + (int)quarter;
}

/* Sanitizers watch malloc, and see every use after free where nothing is used again. */
static bool is_large(size_t bytes) {
#ifdef GD_SANITIZED
    (void)bytes;
    return false;
#else
    return bytes >= GD_ARENA_LEAST;
#endif
}

static void *large_alloc(gd_device *d, size_t bytes) {
    if (gd_faults_armed()) { /* a test may want this one to fail */
        void *tried = gd_malloc(1);
        if (!tried) return NULL;
        gd_free(tried);
    }
    pthread_mutex_lock(&lock);
    const int64_t before = gd_arena_cached();
    void *buffer = gd_arena_alloc(bytes);
    d->cached_bytes += gd_arena_cached() - before;
    pthread_mutex_unlock(&lock);
    return buffer;
}

static void large_free(gd_device *d, void *buffer) {
    pthread_mutex_lock(&lock);
    const int64_t before = gd_arena_cached();
    gd_arena_free(buffer);
    d->cached_bytes += gd_arena_cached() - before;
    pthread_mutex_unlock(&lock);
}

static gd_status cpu_alloc(gd_device *d, size_t bytes, void **handle) {
    size_t rounded;
    if (bytes > (size_t)1 << 52) return GD_E_MEMORY;
    if (is_large(bytes)) {
        *handle = large_alloc(d, bytes);
        return *handle ? GD_OK : GD_E_MEMORY;
    }
    int class = size_class(bytes, &rounded);
    pthread_mutex_lock(&lock);
    free_buffer *buffer = gd_faults_armed() ? NULL : free_lists[class];
    if (buffer) {
        free_lists[class] = buffer->next;
        d->cached_bytes -= (int64_t)rounded;
    }
    pthread_mutex_unlock(&lock);
    if (!buffer) buffer = gd_aligned_alloc(ALIGNMENT, rounded);
    if (!buffer) { /* perhaps what is held for reuse helps */
        gd_memory_trim(d);
        buffer = gd_aligned_alloc(ALIGNMENT, rounded);
    }
    *handle = buffer;
    return buffer ? GD_OK : GD_E_MEMORY;
}

static void cpu_free(gd_device *d, void *handle, size_t bytes) {
    size_t rounded;
    if (is_large(bytes)) {
        large_free(d, handle);
        return;
    }
    int class = size_class(bytes, &rounded);
#ifdef GD_SANITIZED
    (void)class; /* no reuse: the sanitizer shall see every use after free */
    (void)d;
    gd_free(handle);
#else
    free_buffer *buffer = handle;
    pthread_mutex_lock(&lock);
    buffer->next = free_lists[class];
    free_lists[class] = buffer;
    d->cached_bytes += (int64_t)rounded;
    pthread_mutex_unlock(&lock);
#endif
}

static void cpu_trim(gd_device *d) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < CLASSES; i++)
        while (free_lists[i]) {
            free_buffer *buffer = free_lists[i];
            free_lists[i] = buffer->next;
            gd_free(buffer);
        }
    gd_arena_trim();
    atomic_store(&d->cached_bytes, 0);
    pthread_mutex_unlock(&lock);
}

static void __attribute__((destructor)) at_exit(void) { cpu_trim(&gd_cpu_device); }

static gd_status cpu_copy(gd_device *d, void *to, const void *from, size_t bytes) {
    (void)d;
    memmove(to, from, bytes);
    return GD_OK;
}

static gd_status cpu_run(gd_device *d, const gd_kernel_call *call) {
    (void)d;
    return gd_kernel_run_host(call);
}

static gd_status cpu_run_now(gd_device *d, gd_kernel_call *call) {
    (void)d;
    return call->kernel->run(call);
}

static gd_status cpu_synchronize(gd_device *d) {
    (void)d;
    return GD_OK;
}

static gd_status cpu_event_record(gd_device *d, gd_event **event) {
    (void)d;
    *event = NULL; /* all is done already */
    return GD_OK;
}

static gd_status cpu_event_wait(gd_device *d, gd_event *event) {
    (void)d;
    (void)event;
    return GD_OK;
}

gd_status (*gd_cpu_reserve_hook)(void);

static gd_status cpu_reserve(gd_device *d) {
    (void)d;
    return gd_cpu_reserve_hook ? gd_cpu_reserve_hook() : GD_OK;
}

static gd_device_api cpu_api = {
    .kind = "cpu",
    .dtypes = (1u << GD_DTYPE_COUNT) - 2u,
    .host_reads = true,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy,
    .run = cpu_run,
    .run_now = cpu_run_now,
    .synchronize = cpu_synchronize,
    .event_record = cpu_event_record,
    .event_wait = cpu_event_wait,
    .trim = cpu_trim,
    .reserve = cpu_reserve,
};

void gd_cpu_set_fusion(const struct gd_fusion_rules *rules) { cpu_api.fusion = rules; }

gd_device gd_cpu_device = {.api = &cpu_api, .name = "cpu"};

/* --- kernels that want the simple case -------------------------------------------------------- */

gd_dtype gd_staged_dtype(gd_dtype dtype, unsigned flags) {
    if (flags & GD_KERNEL_DOUBLE) return gd_dtype_is_float(dtype) ? GD_F64 : GD_I64;
    if ((flags & GD_KERNEL_WIDE) && (dtype == GD_F16 || dtype == GD_BF16)) return GD_F32;
    return dtype;
}

static bool is_simple(const gd_view *v, unsigned flags) {
    return !v->data || (gd_staged_dtype(v->dtype, flags) == v->dtype &&
                        gd_is_row_major(v->rank, v->dims, v->strides));
}

/* A row-major view of the staged type in fresh memory. */
static gd_status stage(gd_view *v, unsigned flags, size_t *bytes) {
    v->dtype = gd_staged_dtype(v->dtype, flags);
    gd_row_major(v->rank, v->dims, v->strides);
    *bytes = (size_t)gd_numel(v->rank, v->dims) * gd_dtype_size(v->dtype);
    if (*bytes == 0) *bytes = 1; /* 0 says "not staged"; an empty tensor has a buffer too */
    gd_status status = gd_device_alloc(gd_cpu(), *bytes, &v->data);
    if (status != GD_OK) *bytes = 0;
    return status;
}

/* Whether the kernel can have the call as it is. */
static inline bool is_ready(const gd_kernel_call *call) {
    const unsigned flags = call->kernel->flags;
    bool simple = true;
    for (int i = 0; flags && i < call->n_in; i++) simple &= is_simple(&call->in[i], flags);
    for (int i = 0; flags && i < call->n_out; i++) simple &= is_simple(&call->out[i], flags);
    return simple;
}

gd_status gd_kernel_stage(const gd_kernel_call *call, gd_staging *s) {
    const unsigned flags = call->kernel->flags;
    s->views = NULL;
    if (is_ready(call)) return GD_OK;
    const int n = call->n_in + call->n_out;
    s->views = gd_malloc((size_t)n * (sizeof *s->views + sizeof(size_t)));
    if (!s->views) return gd_fail(GD_E_MEMORY, "no memory to stage %d tensors", n);
    s->bytes = (size_t *)(s->views + n);
    memcpy(s->views, call->in, (size_t)call->n_in * sizeof *s->views);
    memcpy(s->views + call->n_in, call->out, (size_t)call->n_out * sizeof *s->views);
    memset(s->bytes, 0, (size_t)n * sizeof *s->bytes);
    gd_status status = GD_OK;
    for (int i = 0; i < n && status == GD_OK; i++)
        if (!is_simple(&s->views[i], flags)) status = stage(&s->views[i], flags, &s->bytes[i]);
    if (status != GD_OK) gd_kernel_unstage(call, s);
    return status;
}

void gd_kernel_unstage(const gd_kernel_call *call, gd_staging *s) {
    for (int i = 0; s->views && i < call->n_in + call->n_out; i++)
        if (s->bytes[i]) gd_device_free(gd_cpu(), s->views[i].data, s->bytes[i]);
    gd_free(s->views);
    s->views = NULL;
}

static bool mutates(const gd_op *op) {
    for (int i = 0; i < gd_op_input_count(op); i++)
        if (gd_op_input(op, i)->mutated) return true;
    return false;
}

gd_status gd_kernel_run_staged(const gd_kernel_call *call, const gd_staging *s) {
    gd_kernel_call copy = *call;
    if (!s->views) return call->kernel->run(&copy);
    const int n = call->n_in + call->n_out;
    copy.in = s->views;
    copy.out = s->views + call->n_in;
    for (int i = 0; i < call->n_in; i++)
        if (s->bytes[i]) gd_copy_elements(&s->views[i], &call->in[i]);
    /* An op that mutates inputs reads them through its outputs; other outputs hold nothing yet. */
    for (int i = call->n_in; i < n && mutates(call->op); i++)
        if (s->bytes[i]) gd_copy_elements(&s->views[i], &call->out[i - call->n_in]);
    GD_TRY(call->kernel->run(&copy));
    for (int i = call->n_in; i < n; i++)
        if (s->bytes[i]) gd_copy_elements(&call->out[i - call->n_in], &s->views[i]);
    return GD_OK;
}

gd_status gd_kernel_run_host(const gd_kernel_call *call) {
    gd_staging staging;
    gd_kernel_call copy;
    if (is_ready(call)) { /* most are */
        copy = *call;
        return call->kernel->run(&copy);
    }
    GD_TRY(gd_kernel_stage(call, &staging));
    gd_status status = gd_kernel_run_staged(call, &staging);
    gd_kernel_unstage(call, &staging);
    return status;
}
