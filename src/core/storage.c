/* storage.c */
#include "core/storage.h"

#include "core/alloc.h"
#include "core/error.h"

gd_storage *gd_storage_wrap(gd_device *device, void *data, size_t bytes,
                            void (*deleter)(void *, void *), void *user) {
    gd_storage *s = gd_malloc(sizeof *s);
    if (!s) {
        gd_fail(GD_E_MEMORY, "no memory for a storage");
        return NULL;
    }
    *s = (gd_storage){.device = device, .data = data, .bytes = bytes, .deleter = deleter, .user = user};
    atomic_init(&s->refs, 1);
    atomic_init(&s->version, 0);
    return s;
}

gd_storage *gd_storage_new(gd_device *device, size_t bytes) {
    gd_storage *s = gd_storage_wrap(device, NULL, bytes, NULL, NULL);
    if (s && gd_device_alloc(device, bytes, &s->data) != GD_OK) {
        gd_free(s);
        return NULL;
    }
    return s;
}

static void keep_foreign(void *data, void *user) {
    (void)data;
    (void)user;
}

void gd_storage_release(gd_storage *s) {
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
    if (s->deleter) s->deleter(s->data, s->user);
    else gd_device_free(s->device, s->data, s->bytes);
    gd_free(s);
}

void (*const gd_storage_keep_foreign)(void *, void *) = keep_foreign;
