/* storage.c - reference-counted buffers of devices (storage.h). */
#include "core/storage.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/thread.h"
#include "gradus/testing.h"

/* Programs create and free tensors of a few elements very often. On the CPU the storage and the
 * buffer of such a tensor are one block, and each thread caches some blocks for reuse. */
enum { SMALL_BYTES = 64, CACHED_SMALL = 128, CACHED_STORAGES = 128 };

typedef struct gd_small_storage {
    gd_storage storage;
    struct gd_small_storage *next_free;
    _Alignas(64) char data[SMALL_BYTES];
} gd_small_storage;

static gd_storage *small_new(size_t bytes) {
    gd_thread *thread = &gd_this_thread;
    gd_small_storage *s = gd_faults_armed() ? NULL : thread->free_small;
    if (s) {
        thread->free_small = s->next_free;
        thread->free_small_count--;
    } else if (!(s = gd_aligned_alloc(64, sizeof *s))) {
        gd_no_memory(NULL, "for a storage");
        return NULL;
    }
    s->storage = (gd_storage){.device = gd_cpu(), .data = s->data, .bytes = bytes, .small = true};
    atomic_init(&s->storage.refs, 1);
    gd_device_take_small(bytes);
    return &s->storage;
}

static void small_free(gd_storage *storage) {
    gd_small_storage *s = (gd_small_storage *)storage;
    gd_thread *thread = &gd_this_thread;
    gd_device_give_small(storage->bytes);
#ifndef GD_SANITIZED
    if (thread->alive && thread->free_small_count < CACHED_SMALL) {
        s->next_free = thread->free_small;
        thread->free_small = s;
        thread->free_small_count++;
        return;
    }
#else
    (void)thread;
#endif
    gd_free(s);
}

void gd_storage_free_cached(gd_thread *thread) {
    while (thread->free_small) {
        gd_small_storage *s = thread->free_small;
        thread->free_small = s->next_free;
        gd_free(s);
    }
    thread->free_small_count = 0;
    while (thread->free_storages) {
        gd_storage *s = thread->free_storages;
        thread->free_storages = s->user;
        gd_free(s);
    }
    thread->free_storage_count = 0;
}

/* Each thread caches the structs of other storages, too. */
static gd_storage *take_struct(void) {
    gd_thread *thread = &gd_this_thread;
    gd_storage *s = thread->free_storages;
    if (!s || gd_faults_armed()) return gd_malloc(sizeof *s);
    thread->free_storages = s->user;
    thread->free_storage_count--;
    return s;
}

static void give_struct(gd_storage *s) {
#ifndef GD_SANITIZED
    gd_thread *thread = &gd_this_thread;
    if (thread->alive && thread->free_storage_count < CACHED_STORAGES) {
        s->user = thread->free_storages;
        thread->free_storages = s;
        thread->free_storage_count++;
        return;
    }
#endif
    gd_free(s);
}

gd_storage *gd_storage_wrap(gd_device *device, void *data, size_t bytes,
                            void (*deleter)(void *, void *), void *user) {
    gd_storage *s = take_struct();
    if (!s) {
        gd_no_memory(NULL, "for a storage");
        return NULL;
    }
    *s = (gd_storage){
        .device = device, .data = data, .bytes = bytes, .deleter = deleter, .user = user};
    atomic_init(&s->refs, 1);
    atomic_init(&s->version, 0);
    return s;
}

gd_storage *gd_storage_new(gd_device *device, size_t bytes) {
    if (bytes <= SMALL_BYTES && device == gd_cpu()) return small_new(bytes);
    return gd_storage_new_for(device, bytes, GD_QUEUE_COMPUTE);
}

gd_storage *gd_storage_new_for(gd_device *device, size_t bytes, gd_queue queue) {
    if (bytes <= SMALL_BYTES && device == gd_cpu()) return small_new(bytes);
    gd_storage *s = gd_storage_wrap(device, NULL, bytes, NULL, NULL);
    if (s && gd_device_alloc_for(device, bytes, queue, &s->data) != GD_OK) {
        give_struct(s);
        return NULL;
    }
    return s;
}

static void keep_foreign_memory(void *data, void *user) {
    (void)data;
    (void)user;
}

void gd_storage_release(gd_storage *s) {
    if (!s) return;
    if (atomic_load_explicit(&s->refs, memory_order_acquire) != 1 && /* see gd_object_release */
        atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (s->small) {
        small_free(s);
        return;
    }
    if (s->deleter) s->deleter(s->data, s->user);
    else gd_device_free(s->device, s->data, s->bytes);
    give_struct(s);
}

void (*const gd_storage_keep_foreign)(void *, void *) = keep_foreign_memory;
