/* memory.c - buffers of the test device.
 *
 * A handle is a number that is not a valid address. Each buffer has a range of handles, followed by
 * a gap, so a handle past the end of a buffer belongs to no buffer.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/test/queue.h"

#define FIRST_HANDLE ((uintptr_t)0x5e57000000000000) /* not canonical: dereferencing it faults */
enum { GAP = 4096 };

typedef struct buffer {
    uintptr_t handle;
    size_t bytes;
    char *memory;
} buffer;

static pthread_mutex_t buffers_lock = PTHREAD_MUTEX_INITIALIZER;
static buffer *buffers; /* sorted by handle; a new buffer has the largest one */
static int n_buffers, buffers_capacity;
static uintptr_t next_handle = FIRST_HANDLE;

gd_status test_alloc(gd_device *d, size_t bytes, void **handle) {
    gd_test_controls *controls = gd_test_device_controls(d);
    *handle = NULL;
    if (controls->fail_alloc_after >= 0 && controls->fail_alloc_after-- <= 0) {
        controls->fail_alloc_after = 0;
        return test_host->fail(GD_E_MEMORY, "test:0 is out of memory");
    }
    char *memory = NULL;
    if (posix_memalign((void **)&memory, d->api->alignment, bytes) != 0)
        return test_host->fail(GD_E_MEMORY, "test:0 is out of memory");
    memset(memory, 0xA5, bytes); /* fresh memory has undefined contents */
    pthread_mutex_lock(&buffers_lock);
    if (n_buffers == buffers_capacity) {
        const int capacity = buffers_capacity ? 2 * buffers_capacity : 64;
        buffer *grown = realloc(buffers, (size_t)capacity * sizeof *buffers);
        if (grown) buffers = grown, buffers_capacity = capacity;
    }
    if (n_buffers < buffers_capacity) {
        buffers[n_buffers++] = (buffer){next_handle, bytes, memory};
        *handle = (void *)next_handle;
        next_handle += (bytes + GAP - 1) / GAP * GAP + GAP;
    }
    pthread_mutex_unlock(&buffers_lock);
    controls->counts.allocs++;
    if (*handle) return GD_OK;
    free(memory);
    return test_host->fail(GD_E_MEMORY, "test:0 is out of memory");
}

/* The last buffer that begins at or before a handle. The lock is held. */
static int find_buffer(uintptr_t handle) {
    int low = 0, high = n_buffers;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (buffers[middle].handle <= handle) low = middle + 1;
        else high = middle;
    }
    return low - 1;
}

void test_free(gd_device *d, void *handle, size_t bytes) {
    (void)d;
    (void)bytes;
    pthread_mutex_lock(&buffers_lock);
    const int i = find_buffer((uintptr_t)handle);
    if (i >= 0 && buffers[i].handle == (uintptr_t)handle) {
        free(buffers[i].memory);
        memmove(&buffers[i], &buffers[i + 1], (size_t)(--n_buffers - i) * sizeof *buffers);
    }
    pthread_mutex_unlock(&buffers_lock);
}

void *test_resolve(const void *handle, size_t bytes) {
    const uintptr_t at = (uintptr_t)handle;
    pthread_mutex_lock(&buffers_lock);
    const int i = find_buffer(at);
    char *address = NULL;
    if (i >= 0 && at + bytes <= buffers[i].handle + buffers[i].bytes)
        address = buffers[i].memory + (at - buffers[i].handle);
    pthread_mutex_unlock(&buffers_lock);
    if (!address) test_device.lost = true;
    return address;
}
