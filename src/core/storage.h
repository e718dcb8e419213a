/* storage.h - a counted buffer of a device; tensors are views into it. */
#ifndef GRADUS_CORE_STORAGE_H
#define GRADUS_CORE_STORAGE_H

#include <stdatomic.h>

#include "core/device.h"

struct gd_thread;

typedef struct gd_storage {
    _Atomic int32_t refs;
    _Atomic uint32_t version; /* counts writes after creation; the tape compares */
    _Atomic bool taped_view;  /* a view of it is on the tape; in-place ops then stand back */
    gd_device *device;
    void *data; /* a handle of the device: on the CPU and on CUDA an address */
    size_t bytes;
    void (*deleter)(void *data, void *user); /* foreign memory; NULL: the device's own */
    void *user;
    bool small; /* part of a gd_small_storage */
} gd_storage;

/* Returns NULL, with the failure noted, when there is no memory. Uninitialized. */
gd_storage *gd_storage_new(gd_device *device, size_t bytes);
/* The same, to be written first by work of that queue. */
gd_storage *gd_storage_new_for(gd_device *device, size_t bytes, gd_queue queue);
gd_storage *gd_storage_wrap(gd_device *device, void *data, size_t bytes,
                            void (*deleter)(void *, void *), void *user);

void gd_storage_free_cached(struct gd_thread *thread);

static inline void gd_storage_retain(gd_storage *s) {
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}
void gd_storage_release(gd_storage *s); /* NULL is fine */

/* The deleter of foreign memory that nobody wants freed. */
extern void (*const gd_storage_keep_foreign)(void *data, void *user);

#endif
