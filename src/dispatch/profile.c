/* profile.c - the profiler: measures kernels. See gradus/profiler.h. */
#include "gradus/profiler.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/fork.h"
#include "core/number.h"
#include "core/tensor.h"
#include "format/file.h"
#include "format/json.h"
#include "dispatch/intern.h"
#include "dispatch/op.h"
#include "dispatch/profile.h"

_Atomic unsigned gd_watch;

int64_t gd_profile_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + 1;
}

/* --- recording -------------------------------------------------------------------------------- */

/* One kernel run, or a span that the program defines (op is NULL). */
typedef struct profile_event {
    const char *name;
    const gd_op *op;
    const char *kernel; /* with its description; equal texts have equal addresses */
    gd_device *device;
    int64_t started, nanoseconds, bytes, live_bytes;
    int thread;
} profile_event;

/* All events of one kernel of one op on one device, with one description. */
typedef struct kernel_row {
    const gd_op *op;
    const char *kernel;
    gd_device *device;
    int64_t calls, nanoseconds, bytes, live_bytes;
} kernel_row;

/* A call on a device that has times. Its time is read later, so that the host need not wait. */
typedef struct queued_call {
    profile_event call;
    gd_queue_event *first, *second; /* before and after its kernels */
} queued_call;

enum { MAX_EVENTS = 1 << 20, MAX_QUEUED = 4096 };

static pthread_mutex_t profile_lock = PTHREAD_MUTEX_INITIALIZER;
GD_MUTEX_AT_FORK(profile_lock)
static struct {
    profile_event *events;
    int64_t n_events, event_capacity, dropped;
    kernel_row *rows;
    int64_t n_rows, row_capacity;
    int64_t started, ended;
    queued_call *queued;
    int64_t n_queued, queued_capacity;
    bool out_of_memory; /* the table lacks events and must not be shown */
} profile;

static int thread_number(void) {
    static _Atomic int threads;
    static _Thread_local int number;
    if (number == 0) number = atomic_fetch_add(&threads, 1) + 1;
    return number;
}

static void *grow_list(void *list, int64_t count, int64_t *capacity, size_t size) {
    if (count < *capacity) return list;
    int64_t more = *capacity ? 2 * *capacity : 256;
    void *grown = gd_realloc(list, (size_t)more * size);
    if (grown) *capacity = more;
    return grown;
}

static void add_to_row(const profile_event *e) {
    int64_t i = 0;
    while (i < profile.n_rows &&
           !(profile.rows[i].op == e->op && profile.rows[i].kernel == e->kernel &&
             profile.rows[i].device == e->device))
        i++;
    if (i == profile.n_rows) {
        kernel_row *rows =
            grow_list(profile.rows, profile.n_rows, &profile.row_capacity, sizeof *rows);
        if (!rows) {
            profile.out_of_memory = true;
            return;
        }
        profile.rows = rows;
        rows[profile.n_rows++] =
            (kernel_row){.op = e->op, .kernel = e->kernel, .device = e->device};
    }
    kernel_row *r = &profile.rows[i];
    r->calls++;
    r->nanoseconds += e->nanoseconds;
    r->bytes += e->bytes;
    if (e->live_bytes > r->live_bytes) r->live_bytes = e->live_bytes;
}

/* The lock is held. */
static void add_event(const profile_event *e) {
    if (e->started < profile.started) return; /* it began before this profile */
    if (e->op) add_to_row(e);
    profile_event *events =
        profile.n_events == MAX_EVENTS
            ? NULL
            : grow_list(profile.events, profile.n_events, &profile.event_capacity, sizeof *events);
    if (events) {
        profile.events = events;
        events[profile.n_events++] = *e;
    } else {
        profile.dropped++;
    }
}

static void record_event(const profile_event *e) {
    pthread_mutex_lock(&profile_lock);
    add_event(e);
    pthread_mutex_unlock(&profile_lock);
}

/* Adds the queued calls to the profile; waits for the devices. A call begins when the host has
 * queued it, or when the previous one ends. The lock is held. */
static void settle_queued(void) {
    const gd_device *last = NULL;
    int64_t end = 0;
    for (int64_t i = 0; i < profile.n_queued; i++) {
        queued_call *q = &profile.queued[i];
        gd_device *d = q->call.device;
        double ns = 0;
        if (!gd_device_is_usable(d)) continue; /* its events are gone */
        const bool timed = d->api->event_wait(d, q->second) == GD_OK &&
                           d->api->time_between(d, q->first, q->second, &ns) == GD_OK;
        d->api->event_free(d, q->first);
        d->api->event_free(d, q->second);
        if (!timed) continue;
        q->call.nanoseconds = (int64_t)ns;
        if (d == last && q->call.started < end) q->call.started = end;
        last = d;
        end = q->call.started + q->call.nanoseconds;
        add_event(&q->call);
    }
    profile.n_queued = 0;
}

static void record_queued(const queued_call *q) {
    pthread_mutex_lock(&profile_lock);
    if (profile.n_queued == MAX_QUEUED) settle_queued();
    queued_call *list =
        grow_list(profile.queued, profile.n_queued, &profile.queued_capacity, sizeof *list);
    if (list) {
        profile.queued = list;
        list[profile.n_queued++] = *q;
    } else {
        profile.out_of_memory = true;
    }
    pthread_mutex_unlock(&profile_lock);
}

/* The bytes of a view's elements; elements repeated by a stride of 0 count once. */
static int64_t view_bytes(const gd_view *v) {
    if (!v->data) return 0;
    int64_t count = 1;
    for (int k = 0; k < v->rank; k++)
        if (v->strides[k] != 0 || v->dims[k] == 0) count *= v->dims[k];
    return count * (int64_t)gd_dtype_size(v->dtype);
}

static gd_status record_time(gd_device *d, gd_queue_event **event) {
    gd_device_lock(d);
    const gd_status status = d->api->time_record(d, event);
    gd_device_unlock(d);
    return status;
}

gd_profile_mark gd_profile_begin(gd_device *d) {
    gd_profile_mark mark = {gd_profile_now(), NULL};
    const bool timed = !d->api->host_reads && d->api->time_record && d->queue;
    if (timed && (atomic_load(&gd_watch) & GD_WATCH_TIME) && gd_device_is_usable(d) &&
        record_time(d, &mark.event) != GD_OK)
        mark.event = NULL; /* the kernel fails, too */
    return mark;
}

/* The call's kernel as text. */
static const char *kernel_text(const gd_kernel_call *call) {
    char text[160];
    const char *known = gd_intern(gd_kernel_text(call, text, sizeof text));
    return known ? known : call->kernel->variant;
}

static void record_kernel(const gd_kernel_call *call, gd_profile_mark mark) {
    profile_event e = {.name = call->op->name,
                       .op = call->op,
                       .device = call->device,
                       .started = mark.started,
                       .thread = thread_number()};
    for (int i = 0; i < call->n_in; i++) e.bytes += view_bytes(&call->in[i]);
    for (int i = 0; i < call->n_out; i++) e.bytes += view_bytes(&call->out[i]);
    e.live_bytes = gd_device_live(call->device);
    gd_queue_event *second;
    if (mark.event && record_time(call->device, &second) == GD_OK) {
        e.kernel = kernel_text(call);
        record_queued(&(queued_call){e, mark.event, second});
        return;
    }
    gd_device_wait(call->device);
    e.nanoseconds = gd_profile_now() - mark.started;
    e.kernel = kernel_text(call);
    record_event(&e);
}

gd_status gd_profile_end(const gd_kernel_call *call, gd_profile_mark mark, gd_status status) {
    unsigned watch = atomic_load_explicit(&gd_watch, memory_order_relaxed);
    if (watch & GD_WATCH_TIME) record_kernel(call, mark);
    else if (mark.event) gd_device_drop_mark(call->device, mark.event);
    if ((watch & GD_WATCH_NAN) && status == GD_OK) status = gd_check_for_nan(call);
    return status;
}

gd_kernel_call gd_profile_plan_call(gd_device *device) {
    static const gd_op plan = {.name = "plan"};
    static const gd_kernel captured = {.variant = "captured"};
    return (gd_kernel_call){.op = &plan, .kernel = &captured, .device = device};
}

/* --- on and off ------------------------------------------------------------------------------- */

/* Frees the events of calls whose times nobody needs. */
static void drop_queued(void) {
    for (int64_t i = 0; i < profile.n_queued; i++) {
        gd_device_drop_mark(profile.queued[i].call.device, profile.queued[i].first);
        gd_device_drop_mark(profile.queued[i].call.device, profile.queued[i].second);
    }
    gd_free(profile.queued);
    profile.queued = NULL;
    profile.n_queued = profile.queued_capacity = 0;
}

static void clear_profile(void) {
    drop_queued();
    gd_free(profile.events);
    gd_free(profile.rows);
    profile.events = NULL;
    profile.rows = NULL;
    profile.n_events = profile.event_capacity = profile.dropped = 0;
    profile.n_rows = profile.row_capacity = 0;
    profile.started = profile.ended = 0;
    profile.out_of_memory = false;
}

static gd_status start_profiler(unsigned flags) {
    pthread_mutex_lock(&profile_lock);
    clear_profile();
    profile.started = gd_profile_now();
    pthread_mutex_unlock(&profile_lock);
    atomic_fetch_and(&gd_watch, ~(unsigned)GD_WATCH_PLANS);
    atomic_fetch_or(&gd_watch, flags);
    return GD_OK;
}

gd_status gd_profiler_start(void) { return start_profiler(GD_WATCH_TIME); }

gd_status gd_profiler_start_plans(void) { return start_profiler(GD_WATCH_TIME | GD_WATCH_PLANS); }

void gd_profiler_stop(void) {
    unsigned before = atomic_fetch_and(&gd_watch, ~(unsigned)(GD_WATCH_TIME | GD_WATCH_PLANS));
    pthread_mutex_lock(&profile_lock);
    settle_queued();
    if (before & GD_WATCH_TIME) profile.ended = gd_profile_now();
    pthread_mutex_unlock(&profile_lock);
}

bool gd_profiler_is_on(void) { return atomic_load(&gd_watch) & GD_WATCH_TIME; }

void gd_profiler_clear(void) {
    pthread_mutex_lock(&profile_lock);
    bool on = atomic_load(&gd_watch) & GD_WATCH_TIME;
    clear_profile();
    if (on) profile.started = gd_profile_now();
    pthread_mutex_unlock(&profile_lock);
}

static void __attribute__((destructor)) free_profile_at_exit(void) { clear_profile(); }

gd_profile_span gd_profile_span_begin(const char *name) {
    bool on = atomic_load_explicit(&gd_watch, memory_order_relaxed) & GD_WATCH_TIME;
    return (gd_profile_span){name, on ? gd_profile_now() : 0};
}

void gd_profile_span_end(gd_profile_span *span) {
    if (!span || !span->started || !gd_profiler_is_on()) return;
    profile_event e = {.name = span->name ? span->name : "",
                       .started = span->started,
                       .thread = thread_number(),
                       .nanoseconds = gd_profile_now() - span->started};
    record_event(&e);
}

/* --- reports ---------------------------------------------------------------------------------- */

static int slower_first(const void *a, const void *b) {
    const kernel_row *x = a, *y = b;
    if (x->nanoseconds != y->nanoseconds) return x->nanoseconds > y->nanoseconds ? -1 : 1;
    return strcmp(x->op->name, y->op->name);
}

/* A sorted copy of the rows, so that the lock is not held while the table is written. */
static gd_status sorted_rows(kernel_row **out, int64_t *count) {
    pthread_mutex_lock(&profile_lock);
    settle_queued();
    *count = profile.n_rows;
    *out = gd_malloc((size_t)(*count + 1) * sizeof **out);
    if (*out && *count) memcpy(*out, profile.rows, (size_t)*count * sizeof **out);
    bool complete = !profile.out_of_memory;
    pthread_mutex_unlock(&profile_lock);
    if (!*out || !complete) {
        gd_free(*out);
        return gd_fail(GD_E_MEMORY, "no memory for the profile");
    }
    qsort(*out, (size_t)*count, sizeof **out, slower_first);
    return GD_OK;
}

bool gd_profiler_row(int64_t i, gd_profile_row *result) {
    kernel_row *rows;
    int64_t count;
    if (sorted_rows(&rows, &count) != GD_OK) return false;
    bool there = i >= 0 && i < count && result;
    if (there)
        *result = (gd_profile_row){.op = rows[i].op->name,
                                   .kernel = rows[i].kernel,
                                   .device = rows[i].device->name,
                                   .calls = rows[i].calls,
                                   .total_ms = (double)rows[i].nanoseconds / 1e6,
                                   .bytes = rows[i].bytes,
                                   .live_bytes = rows[i].live_bytes};
    gd_free(rows);
    return there;
}

/* Nanoseconds between start and stop, or until now. */
static int64_t profile_duration(void) {
    pthread_mutex_lock(&profile_lock);
    int64_t end = profile.ended ? profile.ended : gd_profile_now();
    int64_t duration = profile.started ? end - profile.started : 0;
    pthread_mutex_unlock(&profile_lock);
    return duration;
}

/* "1.5 GB" */
static const char *bytes_text(int64_t bytes, char text[16]) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 999.5 && unit < 6; unit++) value /= 1000;
    gd_snprintf(text, 16, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

gd_status gd_profiler_table(FILE *stream) {
    kernel_row *rows;
    int64_t count, total = 0, calls = 0;
    char moved[16], live[16];
    if (!stream)
        return gd_report(NULL, gd_fail(GD_E_ARGUMENT, "gd_profiler_table: the stream is NULL"));
    GD_TRY(gd_report(NULL, sorted_rows(&rows, &count)));
    int op_width = 5, kernel_width = 6;
    for (int64_t i = 0; i < count; i++) {
        int op = (int)strlen(rows[i].op->name), kernel = (int)strlen(rows[i].kernel);
        if (op > op_width) op_width = op;
        if (kernel > kernel_width) kernel_width = kernel;
        total += rows[i].nanoseconds;
        calls += rows[i].calls;
    }
    bool fine = fprintf(stream, "%-*s  %-*s  %-8s %8s %11s %11s %6s %8s %8s\n", op_width, "op",
                        kernel_width, "kernel", "device", "calls", "total ms", "mean us", "%",
                        "moved", "live") > 0;
    for (int64_t i = 0; i < count && fine; i++) {
        const kernel_row *r = &rows[i];
        fine = gd_fprintf(stream, "%-*s  %-*s  %-8s %8" PRId64 " %11.3f %11.2f %6.1f %8s %8s\n",
                          op_width, r->op->name, kernel_width, r->kernel, r->device->name, r->calls,
                          (double)r->nanoseconds / 1e6,
                          (double)r->nanoseconds / 1e3 / (double)r->calls,
                          total ? 100.0 * (double)r->nanoseconds / (double)total : 0.0,
                          bytes_text(r->bytes, moved), bytes_text(r->live_bytes, live)) > 0;
    }
    if (fine)
        fine = gd_fprintf(stream, "%-*s  %-*s  %-8s %8" PRId64 " %11.3f of %.3f ms\n", op_width,
                          "total", kernel_width, "", "", calls, (double)total / 1e6,
                          (double)profile_duration() / 1e6) > 0;
    gd_free(rows);
    return fine ? GD_OK
                : gd_report(NULL,
                            gd_fail(GD_E_IO, "gd_profiler_table: the stream could not be written"));
}

static void put_number(gd_json_writer *w, const char *key, int64_t value) {
    gd_json_put_key(w, key);
    gd_json_put_int(w, value);
}
static void put_text(gd_json_writer *w, const char *key, const char *value) {
    gd_json_put_key(w, key);
    gd_json_put_string(w, value);
}
/* The fields of Chrome's trace format that all entries have: phase, time, process and thread. */
static void put_entry_fields(gd_json_writer *w, const profile_event *e, const char *kind,
                             int64_t at) {
    put_text(w, "ph", kind);
    gd_json_put_key(w, "ts");
    gd_json_put_double(w, (double)(at - profile.started) / 1e3); /* microseconds */
    put_number(w, "pid", 1);
    put_number(w, "tid", e->thread);
}

static void put_event(gd_json_writer *w, const profile_event *e) {
    gd_json_put_begin_object(w);
    put_text(w, "name", e->name);
    put_text(w, "cat", e->op ? "op" : "span");
    put_entry_fields(w, e, "X", e->started);
    gd_json_put_key(w, "dur");
    gd_json_put_double(w, (double)e->nanoseconds / 1e3);
    if (e->op) {
        gd_json_put_key(w, "args");
        gd_json_put_begin_object(w);
        put_text(w, "kernel", e->kernel);
        put_text(w, "device", e->device->name);
        put_number(w, "bytes", e->bytes);
        put_number(w, "live_bytes", e->live_bytes);
        gd_json_put_end_object(w);
    }
    gd_json_put_end_object(w);
    if (!e->op) return;
    gd_json_put_begin_object(w); /* a counter track of the memory in use */
    char name[64];
    snprintf(name, sizeof name, "memory of %s", e->device->name);
    put_text(w, "name", name);
    put_entry_fields(w, e, "C", e->started + e->nanoseconds);
    gd_json_put_key(w, "args");
    gd_json_put_begin_object(w);
    put_number(w, "live_bytes", e->live_bytes);
    gd_json_put_end_object(w);
    gd_json_put_end_object(w);
}

static gd_status trace_text(char **text, size_t *bytes) {
    gd_json_writer w;
    gd_json_writer_begin(&w, 0);
    gd_json_put_begin_object(&w);
    put_text(&w, "displayTimeUnit", "ms");
    pthread_mutex_lock(&profile_lock);
    settle_queued();
    put_number(&w, "droppedCalls", profile.dropped);
    gd_json_put_key(&w, "traceEvents");
    gd_json_put_begin_array(&w);
    for (int64_t i = 0; i < profile.n_events; i++) put_event(&w, &profile.events[i]);
    pthread_mutex_unlock(&profile_lock);
    gd_json_put_end_array(&w);
    gd_json_put_end_object(&w);
    return gd_json_writer_end(&w, text, bytes);
}

gd_status gd_profiler_save_trace(const char *path) {
    if (!path)
        return gd_report(NULL, gd_fail(GD_E_ARGUMENT, "gd_profiler_save_trace: path is NULL"));
    char *text;
    size_t bytes;
    GD_TRY(gd_report(NULL, trace_text(&text, &bytes)));
    gd_file_writer *file;
    gd_status status = gd_file_writer_begin(&file, path);
    if (status == GD_OK) {
        status = gd_file_writer_write(file, text, bytes);
        if (status == GD_OK) status = gd_file_writer_commit(file);
        else gd_file_writer_cancel(file);
    }
    gd_free(text);
    return gd_report(NULL, status);
}
