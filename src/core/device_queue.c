/* device_queue.c - what all asynchronous devices share: the order of their queues, transfers, the
 * error word, and lost devices.
 *
 * One lock orders the compute queue for all threads. It is held while work is queued, never while
 * the host waits.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/blocks.h"
#include "core/device.h"
#include "core/error.h"
#include "core/thread.h"

/* A bounce buffer: pinned host memory for one transfer. */
typedef struct bounce {
    struct bounce *next;
    void *address;
    size_t bytes;
    gd_queue_event *event; /* of an upload that may still read it; NULL: free */
} bounce;

/* A counter that a run has advanced. The list has the newest first. */
typedef struct logged_counter {
    struct logged_counter *next;
    uint64_t serial; /* of this entry */
    uint64_t run;
    _Atomic uint64_t *counter;
    uint64_t before;
} logged_counter;

/* The calls since the host has last waited for the compute queue: one of them is the cause if the
 * device fails. */
typedef struct queued_calls {
    int64_t count;
    char first[64]; /* the name of the first */
    const char *site;
} queued_calls;

typedef struct gd_device_queue gd_device_queue;
struct gd_device_queue {
    pthread_mutex_t lock;
    gd_blocks *blocks;
    uint64_t numbers;
    bounce *bounces; /* free, or still read by an upload */
    logged_counter *counters;
    int n_counters;
    uint64_t counter_serial;          /* of the newest counter */
    uint64_t taken_number, taken_run; /* of the latest error that was taken */
    queued_calls calls;
    int64_t waits;                       /* gd_device_waits */
    int depth;                           /* how often the lock is held */
    gd_device_release *releases, **last; /* of foreign memory, in the order of their events */
};

static void hold(gd_device_queue *q) {
    pthread_mutex_lock(&q->lock);
    q->depth++;
}
static void let_go(gd_device_queue *q) {
    q->depth--;
    pthread_mutex_unlock(&q->lock);
}

/* --- creation and loss ------------------------------------------------------------------------ */

bool gd_device_debug, gd_device_debug_memory;

__attribute__((constructor)) static void read_debug_mode(void) {
    const char *mode = getenv("GRADUS_DEBUG");
    gd_device_debug_memory = mode && strstr(mode, "memory");
    gd_device_debug = gd_device_debug_memory || (mode && strstr(mode, "device"));
}

/* This process is the child of a fork. It cannot use the devices that its parent has opened, but the
 * CPU and those that it opens itself. */
static bool forked;

static void mark_forked(void) { forked = true; }

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, mark_forked);
}

static pthread_mutex_t creation_lock = PTHREAD_MUTEX_INITIALIZER;

static gd_device_queue *make_queue(gd_device *d) {
    pthread_mutex_lock(&creation_lock);
    gd_device_queue *q = d->queue;
    if (!q && (q = gd_calloc(1, sizeof *q))) {
        pthread_mutexattr_t recursive; /* a plan holds the lock while it captures calls */
        pthread_mutexattr_init(&recursive);
        pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
        pthread_mutex_init(&q->lock, &recursive);
        pthread_mutexattr_destroy(&recursive);
        q->last = &q->releases;
        q->blocks = gd_blocks_new(d);
        if (q->blocks) atomic_store_explicit(&d->queue, q, memory_order_release);
        else gd_free(q), q = NULL;
    }
    pthread_mutex_unlock(&creation_lock);
    return q;
}

/* The queues of a device, created at first use. NULL if out of memory. */
static inline gd_device_queue *queue_of(gd_device *d) {
    gd_device_queue *q = atomic_load_explicit(&d->queue, memory_order_acquire);
    return __builtin_expect(q != NULL, 1) ? q : make_queue(d);
}

/* Whether the device, its memory and its locks belong to the parent of this process. */
static inline bool is_of_parent(const gd_device *d) {
    return __builtin_expect(forked, 0) && gd_device_is_inherited(d);
}

bool gd_device_is_usable(const gd_device *d) { return !d->lost && !is_of_parent(d); }

gd_status gd_device_check(const gd_device *d) {
    if (gd_device_is_usable(d)) return GD_OK;
    if (is_of_parent(d))
        return gd_fail(
            GD_E_DEVICE,
            "%s was opened before the fork, and cannot be used in the child; start a new "
            "process, or open it in the child only",
            d->name);
    return gd_fail(GD_E_DEVICE,
                   "%s is lost: it failed earlier, and what was on it is gone; tensors on the CPU "
                   "are intact",
                   d->name);
}

void gd_device_lock(gd_device *d) { hold(d->queue); }
void gd_device_unlock(gd_device *d) { let_go(d->queue); }

static void add_suspects(const queued_calls *calls) {
    char others[80] = "";
    if (calls->count > 1)
        snprintf(others, sizeof others, " or one of the %lld calls after it",
                 (long long)calls->count - 1);
    gd_error_suffix("; the cause is %s%s%s%s%s; GRADUS_DEBUG=device finds it", calls->first,
                    calls->site ? " (" : "", calls->site ? calls->site : "", calls->site ? ")" : "",
                    others);
}

/* Adds the calls that may have caused the loss of the device to the message of a failure, and returns
 * the status. In debug mode the failed call itself is the cause. The lock is held. */
static inline gd_status explain_loss(const gd_device *d, const gd_device_queue *q,
                                     gd_status status) {
    if (status != GD_OK && d->lost && !gd_device_debug && q->calls.count > 0)
        add_suspects(&q->calls);
    return status;
}

/* Checks the device and locks its queue. */
static inline gd_status lock_queue(gd_device *d, gd_device_queue **q) {
    if (!gd_device_is_usable(d)) return gd_device_check(d);
    *q = queue_of(d);
    if (!*q) return gd_fail(GD_E_MEMORY, "no memory for the queues of %s", d->name);
    hold(*q);
    return GD_OK;
}

/* --- foreign memory --------------------------------------------------------------------------- */

/* Takes the releases whose kernels are done from the list. The lock is held. */
static gd_device_release *take_releases(gd_device *d, gd_device_queue *q) {
    gd_device_release *first = q->releases, **end = &q->releases;
    for (bool done = true; *end; end = &(*end)->next) {
        if (!d->lost && d->api->event_done(d, (*end)->event, &done) != GD_OK) done = d->lost;
        if (!done) break;
        if (!d->lost) d->api->event_free(d, (*end)->event);
    }
    if (end == &q->releases) return NULL;
    q->releases = *end;
    if (!q->releases) q->last = &q->releases;
    *end = NULL;
    return first;
}

/* Runs them. They may run any code of the program, so no lock is held. */
static void run_releases(gd_device_release *r) {
    while (r) {
        gd_device_release *next = r->next;
        r->run(r);
        r = next;
    }
}

/* Unlocks the queue and releases foreign memory that no kernel uses any more, unless a caller still
 * holds the lock. */
static void unlock_and_release(gd_device *d, gd_device_queue *q) {
    gd_device_release *done = q->releases && q->depth == 1 ? take_releases(d, q) : NULL;
    let_go(q);
    run_releases(done);
}

void gd_device_release_later(gd_device *d, gd_device_release *release) {
    if (is_of_parent(d)) return;
    gd_device_queue *q = d->lost ? NULL : queue_of(d);
    release->next = NULL;
    if (!q) {
        release->run(release);
        return;
    }
    hold(q);
    gd_status status = d->api->event_record(d, GD_QUEUE_COMPUTE, &release->event);
    if (status == GD_OK && d->api->event_done) {
        *q->last = release;
        q->last = &release->next;
        release = NULL;
    } else if (status == GD_OK) {
        d->api->event_wait(d, release->event);
        if (!d->lost) d->api->event_free(d, release->event);
    }
    unlock_and_release(d, q);
    run_releases(release);
}

gd_status gd_device_join_stream(gd_device *d, void *stream) {
    gd_device_queue *q;
    gd_queue_event *event;
    GD_TRY(lock_queue(d, &q));
    gd_status status = d->api->stream_record(d, stream, &event);
    if (status == GD_OK) {
        status = d->api->event_join(d, GD_QUEUE_COMPUTE, event);
        d->api->event_free(d, event);
    }
    unlock_and_release(d, q);
    return status;
}

gd_status gd_device_lead_stream(gd_device *d, void *stream) {
    gd_device_queue *q;
    gd_queue_event *event;
    GD_TRY(lock_queue(d, &q));
    gd_status status = d->api->event_record(d, GD_QUEUE_COMPUTE, &event);
    if (status == GD_OK) {
        status = d->api->stream_join(d, stream, event);
        d->api->event_free(d, event);
    }
    unlock_and_release(d, q);
    return status;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Waits for uploads and frees all bounce buffers. The lock is held. */
static void trim_bounces(gd_device *d, gd_device_queue *q) {
    for (bounce **at = &q->bounces, *b; (b = *at);) {
        *at = b->next;
        if (b->event) {
            d->api->event_wait(d, b->event);
            d->api->event_free(d, b->event);
        }
        if (d->api->pinned_free) d->api->pinned_free(d, b->address, b->bytes);
        else gd_free(b->address);
        gd_free(b);
    }
}

/* Waits for the compute queue and frees cached memory. The lock is held. */
static void trim_memory(gd_device *d, gd_device_queue *q) {
    gd_queue_event *event;
    if (d->api->event_record(d, GD_QUEUE_COMPUTE, &event) != GD_OK) return;
    const bool idle = d->api->event_wait(d, event) == GD_OK;
    d->api->event_free(d, event);
    trim_bounces(d, q);
    if (idle) gd_blocks_trim(q->blocks);
}

static gd_status describe_shortage(gd_device *d, const gd_device_queue *q, size_t bytes) {
    size_t left = 0, total = 0;
    const long long held = (long long)gd_blocks_held(q->blocks),
                    live = (long long)atomic_load(&d->live_bytes);
    if (d->api->memory_info && d->api->memory_info(d, &left, &total) == GD_OK)
        return gd_fail(
            GD_E_MEMORY,
            "no memory for %zu bytes on %s: %zu of %zu bytes are free, and %lld are held "
            "by this program, of which tensors use %lld",
            bytes, d->name, left, total, held, live);
    return gd_fail(GD_E_MEMORY,
                   "no memory for %zu bytes on %s: %lld are held by this program, of which tensors "
                   "use %lld",
                   bytes, d->name, held, live);
}

/* Counts memory that tensors take or give back (negative). The lock is held, so no other thread
 * changes the counts. */
static void count_memory(gd_device *d, const gd_device_queue *q, int64_t bytes) {
    gd_count(&d->live_bytes, bytes);
    const int64_t live = atomic_load_explicit(&d->live_bytes, memory_order_relaxed);
    if (live > atomic_load_explicit(&d->peak_bytes, memory_order_relaxed))
        atomic_store_explicit(&d->peak_bytes, live, memory_order_relaxed);
    atomic_store_explicit(&d->cached_bytes, (int64_t)gd_blocks_unused(q->blocks),
                          memory_order_relaxed);
}

gd_status gd_queue_alloc(gd_device *d, size_t bytes, gd_queue queue, void **handle) {
    gd_device_queue *q;
    GD_TRY(lock_queue(d, &q));
    gd_status status = gd_blocks_alloc(q->blocks, bytes, queue, handle);
    if (status == GD_E_MEMORY) { /* free segments may be of the wrong size */
        trim_memory(d, q);
        status = gd_blocks_alloc(q->blocks, bytes, queue, handle);
    }
    if (status == GD_E_MEMORY) status = describe_shortage(d, q, bytes);
    if (status == GD_OK) gd_count(&d->allocations, 1);
    count_memory(d, q, status == GD_OK ? (int64_t)bytes : 0);
    status = explain_loss(d, q, status);
    unlock_and_release(d, q);
    return status;
}

void gd_queue_free(gd_device *d, void *handle, size_t bytes) {
    if (is_of_parent(d)) { /* another of its threads may have held the lock */
        atomic_fetch_sub_explicit(&d->live_bytes, (int64_t)bytes, memory_order_relaxed);
        return;
    }
    gd_device_queue *q = d->queue;
    hold(q);
    if (!d->lost) gd_blocks_free(q->blocks, handle); /* else its memory is gone */
    count_memory(d, q, -(int64_t)bytes);
    let_go(q);
}

void gd_queue_trim(gd_device *d) {
    gd_device_queue *q;
    if (is_of_parent(d) || d->lost || !(q = d->queue)) return;
    hold(q);
    trim_memory(d, q);
    count_memory(d, q, 0);
    unlock_and_release(d, q);
}

/* --- transfers -------------------------------------------------------------------------------- */

/* The least size of a bounce buffer, and the uploads that may be queued before one waits for
 * another. */
enum { BOUNCE_BYTES = 64 << 10, MAX_UPLOADS = 8 };

/* Takes a bounce buffer from the list, or allocates one. Skips most of those whose upload may not be
 * done; the caller waits for the event of one that has one. The lock is held. */
static bounce *take_bounce(gd_device *d, gd_device_queue *q, size_t bytes) {
    int waiting = 0;
    for (bounce **at = &q->bounces, *b; (b = *at); at = &b->next) {
        if (b->bytes < bytes || (b->event && ++waiting < MAX_UPLOADS)) continue;
        *at = b->next;
        return b;
    }
    bounce *b = gd_calloc(1, sizeof *b);
    if (!b) return NULL;
    b->bytes = bytes < BOUNCE_BYTES ? BOUNCE_BYTES : bytes;
    if (d->api->pinned_alloc) {
        if (d->api->pinned_alloc(d, b->bytes, &b->address) != GD_OK) b->address = NULL;
    } else {
        b->address = gd_malloc(b->bytes);
    }
    if (b->address) return b;
    gd_free(b);
    return NULL;
}

static void give_bounce(gd_device_queue *q, bounce *b) {
    b->next = q->bounces;
    q->bounces = b;
}

/* Orders later work of queue `second` after the present work of queue `first`. The lock is held. */
static gd_status order_queues(gd_device *d, gd_queue first, gd_queue second) {
    gd_queue_event *event;
    GD_TRY(d->api->event_record(d, first, &event));
    gd_status status = d->api->event_join(d, second, event);
    d->api->event_free(d, event);
    return status;
}

/* Waits for the earlier upload from the buffer. */
static gd_status empty_bounce(gd_device *d, bounce *b) {
    if (!b->event) return GD_OK;
    GD_TRY(d->api->event_wait(d, b->event));
    d->api->event_free(d, b->event);
    b->event = NULL;
    return GD_OK;
}

/* Copies to a bounce buffer and queues the upload. The lock is not held during the copy and the wait
 * for the buffer, so that other threads can queue work. */
static gd_status upload_on(gd_device *d, gd_queue queue, void *to, const void *from, size_t bytes,
                           bool ahead) {
    gd_device_queue *q;
    GD_TRY(lock_queue(d, &q));
    bounce *b = take_bounce(d, q, bytes);
    let_go(q);
    if (!b) return gd_fail(GD_E_MEMORY, "no memory to upload %zu bytes to %s", bytes, d->name);
    gd_status status = empty_bounce(d, b);
    if (status == GD_OK) memcpy(b->address, from, bytes);
    hold(q);
    if (status == GD_OK) status = gd_device_check(d);
    if (status == GD_OK) status = d->api->upload(d, queue, to, b->address, bytes);
    if (status == GD_OK) status = d->api->event_record(d, queue, &b->event);
    if (status == GD_OK && queue != GD_QUEUE_COMPUTE && !ahead)
        status = d->api->event_join(d, GD_QUEUE_COMPUTE, b->event);
    give_bounce(q, b);
    status = explain_loss(d, q, status);
    let_go(q);
    return status;
}

gd_status gd_device_upload_new(gd_device *d, void *to, const void *from, size_t bytes) {
    if (!d->api->host_reads) return upload_on(d, GD_QUEUE_UPLOAD, to, from, bytes, false);
    memcpy(to, from, bytes);
    return GD_OK;
}

gd_status gd_device_upload_ahead(gd_device *d, void *to, const void *from, size_t bytes) {
    return upload_on(d, GD_QUEUE_UPLOAD, to, from, bytes, true);
}

gd_status gd_device_mark_uploads(gd_device *d, gd_queue_event **mark) {
    gd_device_queue *q;
    GD_TRY(lock_queue(d, &q));
    gd_status status = d->api->event_record(d, GD_QUEUE_UPLOAD, mark);
    let_go(q);
    return status;
}

gd_status gd_device_join_uploads(gd_device *d, gd_queue_event *mark) {
    gd_device_queue *q;
    GD_TRY(lock_queue(d, &q));
    gd_status status = d->api->event_join(d, GD_QUEUE_COMPUTE, mark);
    d->api->event_free(d, mark);
    let_go(q);
    return status;
}

void gd_device_drop_mark(gd_device *d, gd_queue_event *mark) {
    if (gd_device_is_usable(d)) d->api->event_free(d, mark); /* else its events are gone */
}

/* Drops the counters up to entry `serial` from the log: their runs have succeeded. The lock is held. */
static void drop_counters(gd_device_queue *q, uint64_t serial) {
    logged_counter **at = &q->counters;
    while (*at && (*at)->serial > serial) at = &(*at)->next;
    while (*at) {
        logged_counter *c = *at;
        *at = c->next;
        gd_free(c);
        q->n_counters--;
    }
}

/* Resets the counters of run `failed` and of later runs, and clears the log. The lock is held. */
static void reset_counters(gd_device_queue *q, uint64_t failed) {
    for (const logged_counter *c = q->counters; c; c = c->next)
        if (c->run >= failed) atomic_store(c->counter, c->before);
    drop_counters(q, UINT64_MAX);
}

/* The number of the first run that the error word has prevented; 0: none. The calls of a plan are
 * numbered before its runs, so a call number above `run` belongs to an eager call after that run.
 * */
static uint64_t first_failed_run(const gd_data_error *error) {
    const bool is_eager = error->number > error->run && error->number != UINT64_MAX;
    return is_eager || error->run == 0 ? error->number : error->run;
}

/* Reports the error word, of which `word` is a copy. Several threads may have read the same error: all
 * fail, but it is cleared once. `serial` is that of the newest counter when the copy was queued. The
 * lock is held. */
static gd_status take_error(gd_device *d, gd_device_queue *q, const void *word, uint64_t serial) {
    gd_data_error error = {0};
    d->api->error_parse(d, word, &error);
    if (!error.number) {
        drop_counters(q, serial);
        return GD_OK;
    }
    if (error.number != q->taken_number || error.run != q->taken_run) {
        GD_TRY(d->api->error_clear(d));
        reset_counters(q, first_failed_run(&error)); /* all later runs were prevented, too */
        q->taken_number = error.number;
        q->taken_run = error.run;
    }
    return gd_data_error_hook ? gd_data_error_hook(d, &error)
                              : gd_fail(GD_E_STATE, "a kernel on %s has found bad data", d->name);
}

/* Records an event and waits for it; the lock is released during the wait. The queue has waited for all
 * work of the compute queue. */
static gd_status wait_for_queue(gd_device *d, gd_device_queue *q, gd_queue queue) {
    gd_queue_event *event;
    const int64_t calls = q->calls.count;
    GD_TRY(d->api->event_record(d, queue, &event));
    q->waits++;
    let_go(q);
    gd_status status = d->api->event_wait(d, event);
    hold(q);
    d->api->event_free(d, event);
    if (status == GD_OK && q->calls.count == calls) q->calls.count = 0; /* none came meanwhile */
    return status;
}

/* Copies of the error word are behind the data in a bounce buffer. */
enum { DATA_ALIGNMENT = 64 };

static size_t download_bytes(size_t bytes) {
    return (bytes + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT + GD_ERROR_BYTES;
}
static void *error_copy(const bounce *b) {
    return (char *)b->address + b->bytes / DATA_ALIGNMENT * DATA_ALIGNMENT - GD_ERROR_BYTES;
}

/* Queues copies of the error word and of `bytes` of data to a bounce buffer. */
static gd_status queue_download(gd_device *d, bounce *b, const void *from, size_t bytes) {
    GD_TRY(d->api->error_read(d, error_copy(b)));
    if (bytes == 0) return GD_OK;
    GD_TRY(order_queues(d, GD_QUEUE_COMPUTE, GD_QUEUE_DOWNLOAD));
    return d->api->download(d, GD_QUEUE_DOWNLOAD, b->address, from, bytes);
}

/* Waits for all work, reports the error word, and copies `bytes` from the device. */
static gd_status wait_and_download(gd_device *d, void *to, const void *from, size_t bytes) {
    gd_device_queue *q;
    GD_TRY(lock_queue(d, &q));
    const uint64_t serial = q->counter_serial;
    bounce *b = take_bounce(d, q, download_bytes(bytes));
    gd_status status =
        b ? GD_OK : gd_fail(GD_E_MEMORY, "no memory to download %zu bytes from %s", bytes, d->name);
    if (status == GD_OK) status = empty_bounce(d, b);
    if (status == GD_OK && (status = queue_download(d, b, from, bytes)) != GD_OK)
        b = NULL; /* never reused: a copy may be queued */
    if (status == GD_OK)
        status = wait_for_queue(d, q, bytes ? GD_QUEUE_DOWNLOAD : GD_QUEUE_COMPUTE);
    if (status == GD_OK) status = take_error(d, q, error_copy(b), serial);
    if (status == GD_OK && bytes) memcpy(to, b->address, bytes);
    if (b) give_bounce(q, b);
    status = explain_loss(d, q, status);
    unlock_and_release(d, q);
    return status;
}

gd_status gd_device_download(gd_device *d, void *to, const void *from, size_t bytes) {
    if (!d->api->host_reads) return wait_and_download(d, to, from, bytes);
    memmove(to, from, bytes);
    return GD_OK;
}

int64_t gd_device_waits(gd_device *d) {
    gd_device_queue *q = d->queue;
    if (!q) return 0;
    hold(q);
    const int64_t waits = q->waits;
    let_go(q);
    return waits;
}

gd_status gd_device_wait(gd_device *d) {
    if (d->api->host_reads || !d->queue) return GD_OK;
    gd_device_queue *q;
    GD_TRY(lock_queue(d, &q));
    gd_status status = explain_loss(d, q, wait_for_queue(d, q, GD_QUEUE_COMPUTE));
    unlock_and_release(d, q);
    return status;
}

gd_status gd_device_synchronize(gd_device *d) {
    if (d->api->host_reads) return GD_OK;
    if (!d->queue) return gd_device_check(d); /* nothing has been queued yet */
    return wait_and_download(d, NULL, NULL, 0);
}

/* --- calls ------------------------------------------------------------------------------------ */

gd_status gd_device_begin_call(gd_device *d, const char *name, const char *site) {
    gd_device_queue *q;
    GD_TRY(lock_queue(d, &q));
    if (q->calls.count++ == 0) {
        snprintf(q->calls.first, sizeof q->calls.first, "%s", name);
        q->calls.site = site;
    }
    return GD_OK;
}

gd_status gd_device_wait_in_call(gd_device *d) {
    return wait_for_queue(d, d->queue, GD_QUEUE_COMPUTE);
}

gd_status gd_device_end_call(gd_device *d, gd_status status) {
    gd_device_queue *q = d->queue;
    if (gd_device_debug && status == GD_OK) status = wait_for_queue(d, q, GD_QUEUE_COMPUTE);
    status = explain_loss(d, q, status);
    let_go(q);
    return status;
}

/* --- numbers and counters --------------------------------------------------------------------- */

gd_status (*gd_data_error_hook)(gd_device *d, const gd_data_error *error);

uint64_t gd_device_number(gd_device *d) {
    return __atomic_add_fetch(&d->queue->numbers, 1, __ATOMIC_RELAXED);
}

/* Limits the log of a program that never reads from the device. */
enum { MAX_COUNTERS = 1 << 16 };

static void drop_old_counters(gd_device_queue *q) {
    logged_counter *c = q->counters;
    for (int i = 1; i < MAX_COUNTERS / 2; i++) c = c->next;
    while (c->next) {
        logged_counter *old = c->next;
        c->next = old->next;
        gd_free(old);
        q->n_counters--;
    }
}

void gd_device_log_counter(gd_device *d, uint64_t run, _Atomic uint64_t *counter, uint64_t before) {
    logged_counter *c = gd_malloc(sizeof *c);
    if (!c) return;
    gd_device_queue *q = d->queue;
    hold(q);
    *c = (logged_counter){q->counters, ++q->counter_serial, run, counter, before};
    q->counters = c;
    if (++q->n_counters == MAX_COUNTERS) drop_old_counters(q);
    let_go(q);
}

void gd_device_forget_counter(gd_device *d, const _Atomic uint64_t *counter) {
    gd_device_queue *q = d->api->host_reads ? NULL : d->queue;
    if (!q || is_of_parent(d)) return;
    hold(q);
    for (logged_counter **at = &q->counters, *c; (c = *at);) {
        if (c->counter == counter) {
            *at = c->next;
            gd_free(c);
            q->n_counters--;
        } else {
            at = &c->next;
        }
    }
    let_go(q);
}
