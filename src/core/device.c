/* device.c - the list of devices, and the memory statistics of each. */
#include "core/device.h"

#include <pthread.h>
#include <string.h>

#include "core/error.h"
#include "core/fork.h"
#include "core/thread.h"

enum { MAX_DEVICES = 64 };
static gd_device *devices[MAX_DEVICES] = {&gd_cpu_device};
static int device_count = 1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
GD_INNER_MUTEX_AT_FORK(lock)

/* In the child of a fork: the number of devices that the parent has opened. */
static int inherited;
static void count_inherited(void) { inherited = device_count; }
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, count_inherited);
}

bool gd_device_is_inherited(const gd_device *device) {
    for (int i = 0; i < inherited; i++)
        if (devices[i] == device) return true;
    return false;
}

gd_status gd_device_register(gd_device *device) {
    gd_status status = GD_OK;
    pthread_mutex_lock(&lock);
    if (device_count == MAX_DEVICES) status = GD_E_ARGUMENT;
    else devices[device_count++] = device;
    pthread_mutex_unlock(&lock);
    return status == GD_OK ? GD_OK : gd_fail(status, "more than %d devices", MAX_DEVICES);
}

gd_device *gd_device_find(const char *name, char *known, size_t size) {
    gd_device *found = NULL;
    known[0] = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < device_count; i++) {
        const char *full = devices[i]->name;
        size_t kind = strcspn(full, ":");
        bool first = strcmp(full + kind, ":0") == 0; /* "cuda" means "cuda:0" */
        if (strcmp(name, full) == 0 ||
            (first && strlen(name) == kind && strncmp(name, full, kind) == 0))
            found = devices[i];
        size_t used = strlen(known);
        if (used + strlen(full) + 3 < size) {
            if (used) strcat(known, ", ");
            strcat(known, full);
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

gd_device *gd_device_find_dlpack(int32_t type, int32_t number) {
    gd_device *found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < device_count && !found; i++) {
        const gd_device_api *api = devices[i]->api;
        if (type != 0 && api->dlpack_type == type && api->dlpack_number(devices[i]) == number)
            found = devices[i];
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool gd_device_kind_exists(const char *kind) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < device_count; i++) found |= strcmp(devices[i]->api->kind, kind) == 0;
    pthread_mutex_unlock(&lock);
    return found;
}

const char *gd_device_name(const gd_device *device) { return device ? device->name : ""; }

gd_status(gd_set_default_device)(gd_device *device) { /* not the macro of this name */
    gd_this_thread.device = device;
    return GD_OK;
}

gd_device *gd_default_device(void) {
    gd_device *device = gd_this_thread.device;
    return device ? device : gd_cpu();
}

gd_status gd_synchronize(gd_device *device) {
    if (!device) device = gd_cpu();
    return gd_report(NULL, gd_device_synchronize(device));
}

/* `live` does not include the small tensors of other threads: adding up the counts of all threads
 * would take longer than an op. */
static void raise_peak(gd_device *d, int64_t live) {
    int64_t peak = atomic_load_explicit(&d->peak_bytes, memory_order_relaxed);
    while (live > peak && !atomic_compare_exchange_weak(&d->peak_bytes, &peak, live)) {
    }
}

static void count_bytes(gd_device *d, int64_t bytes) {
    int64_t live = atomic_fetch_add_explicit(&d->live_bytes, bytes, memory_order_relaxed) + bytes;
    if (bytes < 0) return;
    atomic_fetch_add_explicit(&d->allocations, 1, memory_order_relaxed);
    if (d == gd_cpu())
        live += atomic_load_explicit(&gd_this_thread.counts.small_bytes, memory_order_relaxed);
    raise_peak(d, live);
}

void gd_device_take_small(size_t bytes) {
    int64_t own = gd_small_count(1, (int64_t)bytes);
    raise_peak(gd_cpu(), atomic_load_explicit(&gd_cpu()->live_bytes, memory_order_relaxed) + own);
}

void gd_device_give_small(size_t bytes) { gd_small_count(0, -(int64_t)bytes); }

int64_t gd_device_live(gd_device *d) {
    int64_t live = atomic_load(&d->live_bytes);
    if (d != gd_cpu()) return live;
    gd_counts sum;
    gd_counts_sum(&sum);
    return live + sum.small_bytes;
}

gd_status gd_device_alloc(gd_device *d, size_t bytes, void **handle) {
    if (!d->api->host_reads) return gd_device_alloc_for(d, bytes, GD_QUEUE_COMPUTE, handle);
    gd_status status = d->api->alloc(d, bytes, handle);
    if (status != GD_OK)
        return gd_fail(status, "no memory for %zu bytes on %s (%lld in use)", bytes, d->name,
                       (long long)gd_device_live(d));
    count_bytes(d, (int64_t)bytes);
    return GD_OK;
}

gd_status gd_device_alloc_for(gd_device *d, size_t bytes, gd_queue queue, void **handle) {
    if (d->api->host_reads) return gd_device_alloc(d, bytes, handle);
    return gd_queue_alloc(d, bytes, queue, handle);
}

void gd_device_free(gd_device *d, void *handle, size_t bytes) {
    if (!d->api->host_reads) {
        gd_queue_free(d, handle, bytes);
        return;
    }
    count_bytes(d, -(int64_t)bytes);
    d->api->free(d, handle, bytes);
}

gd_memory gd_memory_stats(gd_device *device) {
    gd_device *d = device ? device : gd_cpu();
    gd_counts sum = {0, 0, 0};
    if (d == gd_cpu()) gd_counts_sum(&sum);
    int64_t live = atomic_load(&d->live_bytes) + sum.small_bytes,
            peak = atomic_load(&d->peak_bytes);
    return (gd_memory){live, live > peak ? live : peak, atomic_load(&d->cached_bytes),
                       atomic_load(&d->allocations) + sum.small_taken};
}

void gd_memory_reset_peak(gd_device *device) {
    gd_device *d = device ? device : gd_cpu();
    atomic_store(&d->peak_bytes, gd_device_live(d));
}

void gd_memory_trim(gd_device *device) {
    gd_device *d = device ? device : gd_cpu();
    if (d->api->host_reads) d->api->trim(d);
    else gd_queue_trim(d);
}
