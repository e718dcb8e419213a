/* cpu_device.c - the CPU as a device: a caching allocator, and kernels that run synchronously.
 *
 * Free buffers are cached in lists by size class (four for each power of two), because a page fault
 * costs more than the arithmetic on the page. The first bytes of a free buffer are the link of the
 * list. Large buffers come from an arena (arena.h), which reuses memory for buffers of any size.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/alloc.h"
#include "core/arena.h"
#include "core/device.h"
#include "core/error.h"
#include "core/fork.h"
#include "gradus/testing.h"

enum { ALIGNMENT = 64, CLASSES = 4 * 48 };

typedef struct free_buffer {
    struct free_buffer *next;
} free_buffer;

static free_buffer *free_lists[CLASSES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(lock)

/* The class of a size, and the size of all buffers of that class: 64, 80, 96, 112, 128, 160, ... */
static int size_class(size_t bytes, size_t *rounded) {
    if (bytes < ALIGNMENT) bytes = ALIGNMENT;
    int log = 63 - __builtin_clzll((unsigned long long)bytes);
    size_t step = (size_t)1 << (log - 2);
    size_t quarter = (bytes - ((size_t)1 << log) + step - 1) / step;
    *rounded = ((size_t)1 << log) + quarter * step;
    return 4 * (log - 6) + (int)quarter;
}

/* Under sanitizers all buffers come from malloc and none is reused, so that every use after free is
 * found. */
static bool is_large(size_t bytes) {
#ifdef GD_SANITIZED
    (void)bytes;
    return false;
#else
    return bytes >= GD_ARENA_LEAST;
#endif
}

static void *large_alloc(gd_device *d, size_t bytes) {
    if (gd_faults_armed()) { /* the arena may reuse memory, but a test can make this call fail */
        void *probe = gd_malloc(1);
        if (!probe) return NULL;
        gd_free(probe);
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
    if (!buffer) { /* return cached memory to the system and try again */
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
    (void)class; /* see is_large */
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
    .alignment = ALIGNMENT,
    .trim = cpu_trim,
    .reserve = cpu_reserve,
};

void gd_cpu_set_fusion(const struct gd_fusion_rules *rules) { cpu_api.fusion = rules; }

gd_device gd_cpu_device = {.api = &cpu_api, .name = "cpu"};
