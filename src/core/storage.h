/* storage.h - reference-counted buffers of devices; tensors are views into them. */
#ifndef GRADUS_CORE_STORAGE_H
#define GRADUS_CORE_STORAGE_H

#include <stdatomic.h>

#include "core/device.h"

struct gd_thread;

typedef struct gd_storage {
    _Atomic int32_t refs;
    _Atomic uint32_t version; /* counts writes after creation; the tape compares versions */
    _Atomic bool taped_view;  /* a view of it is on the tape: in-place ops on the tape fail */
    gd_device *device;
    void *data; /* a handle of the device: on the CPU and on CUDA an address */
    size_t bytes;
    void (*deleter)(void *data, void *user); /* of foreign memory; NULL: gd_device_free */
    void *user;     /* for the deleter; in the cache of a thread the next storage */
    bool small;     /* part of a gd_small_storage */
    bool read_only; /* foreign memory that nobody may write (gd_check_writable) */
} gd_storage;

/* An uninitialized buffer. Returns NULL and sets the latest failure if out of memory. */
gd_storage *gd_storage_new(gd_device *device, size_t bytes);
/* The same, for a buffer that work of this queue writes first. */
gd_storage *gd_storage_new_for(gd_device *device, size_t bytes, gd_queue queue);
gd_storage *gd_storage_wrap(gd_device *device, void *data, size_t bytes,
                            void (*deleter)(void *, void *), void *user);

void gd_storage_free_cached(struct gd_thread *thread);

static inline void gd_storage_retain(gd_storage *s) {
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}
void gd_storage_release(gd_storage *s); /* accepts NULL */

/* A deleter that does nothing, for foreign memory. */
extern void (*const gd_storage_keep_foreign)(void *data, void *user);

#endif
