/* memory.c - buffers of the test device.
 *
 * A handle is a number in a range that belongs to no memory of the process. Each buffer has a range
 * of handles with a gap behind it, so that a handle past the end of a buffer belongs to none.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/test/queue.h"

#define FIRST_HANDLE ((uintptr_t)0x5e57000000000000) /* not canonical: reading it faults */
enum { GAP = 4096, MOST_BUFFERS = 1 << 16 };

typedef struct buffer {
    uintptr_t handle;
    size_t bytes;
    char *memory;
} buffer;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static buffer *buffers; /* by handle: new ones have the largest */
static int n_buffers, room;
static uintptr_t next_handle = FIRST_HANDLE;

gd_status test_alloc(gd_device *d, size_t bytes, void **handle) {
    gd_test_controls *controls = gd_test_device_controls(d);
    *handle = NULL;
    if (controls->fail_alloc_after >= 0 && controls->fail_alloc_after-- <= 0) {
        controls->fail_alloc_after = 0;
        return test_host->fail(GD_E_MEMORY, "the test device has no memory");
    }
    char *memory = NULL;
    if (posix_memalign((void **)&memory, d->api->alignment, bytes) != 0)
        return test_host->fail(GD_E_MEMORY, "the test device has no memory");
    memset(memory, 0xA5, bytes); /* what was there before is not to be relied on */
    pthread_mutex_lock(&lock);
    if (n_buffers == room) {
        buffer *grown = realloc(buffers, (size_t)(room ? 2 * room : 64) * sizeof *buffers);
        if (grown) buffers = grown, room = room ? 2 * room : 64;
    }
    if (n_buffers < room) {
        buffers[n_buffers++] = (buffer){next_handle, bytes, memory};
        *handle = (void *)next_handle;
        next_handle += (bytes + GAP - 1) / GAP * GAP + GAP;
    }
    pthread_mutex_unlock(&lock);
    controls->counts.allocs++;
    if (*handle) return GD_OK;
    free(memory);
    return test_host->fail(GD_E_MEMORY, "the test device has no memory");
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
    pthread_mutex_lock(&lock);
    const int i = find_buffer((uintptr_t)handle);
    if (i >= 0 && buffers[i].handle == (uintptr_t)handle) {
        free(buffers[i].memory);
        memmove(&buffers[i], &buffers[i + 1], (size_t)(--n_buffers - i) * sizeof *buffers);
    }
    pthread_mutex_unlock(&lock);
}

void *test_resolve(const void *handle, size_t bytes) {
    const uintptr_t at = (uintptr_t)handle;
    pthread_mutex_lock(&lock);
    const int i = find_buffer(at);
    char *address = NULL;
    if (i >= 0 && at + bytes <= buffers[i].handle + buffers[i].bytes)
        address = buffers[i].memory + (at - buffers[i].handle);
    pthread_mutex_unlock(&lock);
    if (!address) test_device.lost = true;
    return address;
}
