/* queue.c - the three queues of the test device, events between them, and captures. */
#include "backend/test/queue.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- queues ----------------------------------------------------------------------------------- */

typedef struct queue {
    test_task *first, **last;
    bool busy;
    pthread_t worker;
} queue;

/* Protects all queues and events, and the capture. */
static pthread_mutex_t queues_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queues_changed = PTHREAD_COND_INITIALIZER;
static queue queues[GD_QUEUE_COUNT];
static bool workers_started, workers_stopping;

struct gd_capture {
    test_task *first, **last;
    test_task *enter, *leave; /* the boundary tasks among them, or NULL */
    int count;
};
static gd_capture *capturing;

static void free_task(test_task *task) {
    if (task->drop) task->drop(task);
    free(task);
}

/* The worker of a queue. */
static void *serve_queue(void *arg) {
    queue *q = arg;
    pthread_mutex_lock(&queues_lock);
    while (true) {
        while (!q->first && !workers_stopping) pthread_cond_wait(&queues_changed, &queues_lock);
        if (!q->first) break;
        test_task *task = q->first;
        q->first = task->next;
        if (!q->first) q->last = &q->first;
        q->busy = true;
        pthread_mutex_unlock(&queues_lock);
        task->run(task);
        free_task(task);
        pthread_mutex_lock(&queues_lock);
        q->busy = false;
        pthread_cond_broadcast(&queues_changed);
    }
    pthread_mutex_unlock(&queues_lock);
    return NULL;
}

/* At exit: the workers finish all queued tasks and end. */
static void stop_workers(void) {
    pthread_mutex_lock(&queues_lock);
    const bool running = workers_started;
    workers_stopping = true;
    pthread_cond_broadcast(&queues_changed);
    pthread_mutex_unlock(&queues_lock);
    for (int i = 0; i < GD_QUEUE_COUNT && running; i++) pthread_join(queues[i].worker, NULL);
}

/* Starts the workers at the first call. The lock is held. */
static bool start_workers(void) {
    if (workers_started) return true;
    for (int i = 0; i < GD_QUEUE_COUNT; i++) {
        queues[i].last = &queues[i].first;
        if (pthread_create(&queues[i].worker, NULL, serve_queue, &queues[i]) != 0) return false;
    }
    atexit(stop_workers);
    return workers_started = true;
}

void *test_task_new(size_t bytes, void (*run)(test_task *), void (*drop)(test_task *)) {
    test_task *task = calloc(1, bytes);
    if (!task) {
        test_host->fail(GD_E_MEMORY, "test:0: out of memory for a task");
        return NULL;
    }
    task->run = run;
    task->drop = drop;
    return task;
}

gd_status test_enqueue(gd_queue number, test_task *task) {
    gd_status status = GD_OK;
    if (gd_test_device_controls(&test_device)->lose) test_device.lost = true;
    pthread_mutex_lock(&queues_lock);
    if (test_device.lost) status = test_host->fail(GD_E_DEVICE, "test:0 is lost");
    else if (!start_workers())
        status = test_host->fail(GD_E_DEVICE, "test:0 cannot start its worker threads");
    else if (capturing && number == GD_QUEUE_COMPUTE) {
        *capturing->last = task;
        capturing->last = &task->next;
        capturing->count++;
    } else {
        *queues[number].last = task;
        queues[number].last = &task->next;
        pthread_cond_broadcast(&queues_changed);
    }
    pthread_mutex_unlock(&queues_lock);
    if (status != GD_OK) free_task(task);
    return status;
}

void test_drain(void) {
    pthread_mutex_lock(&queues_lock);
    while (workers_started && (queues[GD_QUEUE_COMPUTE].first || queues[GD_QUEUE_COMPUTE].busy))
        pthread_cond_wait(&queues_changed, &queues_lock);
    pthread_mutex_unlock(&queues_lock);
}

/* --- events ----------------------------------------------------------------------------------- */

struct gd_queue_event {
    int refs; /* one for the host, and one for each task */
    bool done;
    struct timespec time; /* when it was done */
};

typedef struct event_task {
    test_task task;
    gd_queue_event *event;
} event_task;

/* The lock is held. */
static void release_event(gd_queue_event *event) {
    if (--event->refs == 0) free(event);
}

static void drop_event(test_task *task) {
    pthread_mutex_lock(&queues_lock);
    release_event(((event_task *)task)->event);
    pthread_mutex_unlock(&queues_lock);
}

static void set_event(test_task *task) {
    pthread_mutex_lock(&queues_lock);
    gd_queue_event *event = ((event_task *)task)->event;
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    event->done = true;
    pthread_cond_broadcast(&queues_changed);
    pthread_mutex_unlock(&queues_lock);
}

static void await_event(test_task *task) {
    pthread_mutex_lock(&queues_lock);
    while (!((event_task *)task)->event->done) pthread_cond_wait(&queues_changed, &queues_lock);
    pthread_mutex_unlock(&queues_lock);
}

static gd_status queue_event(gd_queue number, gd_queue_event *event, void (*run)(test_task *)) {
    event_task *t = test_task_new(sizeof *t, run, drop_event);
    if (!t) return GD_E_MEMORY;
    t->event = event;
    pthread_mutex_lock(&queues_lock);
    event->refs++;
    pthread_mutex_unlock(&queues_lock);
    return test_enqueue(number, &t->task);
}

gd_status test_event_record(gd_device *d, gd_queue number, gd_queue_event **event) {
    (void)d;
    *event = calloc(1, sizeof **event);
    if (!*event) return test_host->fail(GD_E_MEMORY, "test:0: out of memory for an event");
    (*event)->refs = 1;
    gd_status status = queue_event(number, *event, set_event);
    if (status != GD_OK) free(*event), *event = NULL;
    return status;
}

gd_status test_event_join(gd_device *d, gd_queue number, gd_queue_event *event) {
    (void)d;
    return queue_event(number, event, await_event);
}

gd_status test_event_wait(gd_device *d, gd_queue_event *event) {
    gd_test_device_controls(d)->counts.waits++;
    pthread_mutex_lock(&queues_lock);
    while (!event->done && !test_device.lost) pthread_cond_wait(&queues_changed, &queues_lock);
    pthread_mutex_unlock(&queues_lock);
    return test_device.lost ? test_host->fail(GD_E_DEVICE, "test:0 is lost") : GD_OK;
}

gd_status test_event_done(gd_device *d, gd_queue_event *event, bool *done) {
    (void)d;
    pthread_mutex_lock(&queues_lock);
    *done = event->done;
    pthread_mutex_unlock(&queues_lock);
    return GD_OK;
}

/* Streams of other libraries: number 1 + q is queue q. */
static gd_queue queue_of_stream(void *stream) { return (gd_queue)((uintptr_t)stream - 1); }

int32_t test_dlpack_number(const gd_device *d) {
    (void)d;
    return 0;
}

void *test_native_stream(const gd_device *d) {
    (void)d;
    return (void *)(uintptr_t)(1 + GD_QUEUE_COMPUTE);
}

gd_status test_stream_record(gd_device *d, void *stream, gd_queue_event **event) {
    return test_event_record(d, queue_of_stream(stream), event);
}

gd_status test_stream_join(gd_device *d, void *stream, gd_queue_event *event) {
    return test_event_join(d, queue_of_stream(stream), event);
}

gd_status test_time_record(gd_device *d, gd_queue_event **event) {
    return test_event_record(d, GD_QUEUE_COMPUTE, event);
}

gd_status test_time_between(gd_device *d, gd_queue_event *first, gd_queue_event *second,
                            double *ns) {
    (void)d;
    *ns = 1e9 * (double)(second->time.tv_sec - first->time.tv_sec) +
          (double)(second->time.tv_nsec - first->time.tv_nsec);
    return GD_OK;
}

void test_event_free(gd_device *d, gd_queue_event *event) {
    (void)d;
    pthread_mutex_lock(&queues_lock);
    release_event(event);
    pthread_mutex_unlock(&queues_lock);
}

/* --- boundaries ------------------------------------------------------------------------------- */

gd_data_error test_error;
uint64_t test_run;

typedef struct boundary_task {
    test_task task;
    gd_boundary boundary;
    bool enters;
    /* the copies and scalars follow it in memory */
} boundary_task;

static void run_boundary(test_task *task) {
    const boundary_task *t = (const boundary_task *)task;
    const gd_boundary *b = &t->boundary;
    if (t->enters) test_run = b->run;
    if (test_error.number) return;
    for (int i = 0; i < b->n_copies; i++) {
        const gd_boundary_copy *c = &b->copies[i];
        void *to = test_resolve(c->to, c->bytes), *from = test_resolve(c->from, c->bytes);
        if (to && from) memmove(to, from, c->bytes);
    }
    for (int i = 0; i < b->n_scalars; i++) {
        const gd_boundary_scalar *n = &b->scalars[i];
        void *to = test_resolve(n->to, n->bytes);
        if (to) memcpy(to, &n->bits, n->bytes);
    }
}

static boundary_task *new_boundary(const gd_boundary *b, bool enters) {
    const size_t copies = (size_t)b->n_copies * sizeof *b->copies,
                 scalars = (size_t)b->n_scalars * sizeof *b->scalars;
    boundary_task *t = test_task_new(sizeof *t + copies + scalars, run_boundary, NULL);
    if (!t) return NULL;
    t->boundary = *b;
    t->enters = enters;
    t->boundary.copies = (gd_boundary_copy *)(t + 1);
    t->boundary.scalars = (gd_boundary_scalar *)((char *)(t + 1) + copies);
    if (copies) memcpy(t + 1, b->copies, copies);
    if (scalars) memcpy((char *)(t + 1) + copies, b->scalars, scalars);
    return t;
}

static gd_status queue_boundary(gd_device *d, const gd_boundary *b, bool enters) {
    boundary_task *t = new_boundary(b, enters);
    if (!t) return GD_E_MEMORY;
    if (capturing && enters) capturing->enter = &t->task;
    else if (capturing) capturing->leave = &t->task;
    else gd_test_device_controls(d)->counts.boundaries++;
    return test_enqueue(GD_QUEUE_COMPUTE, &t->task);
}

gd_status test_enter(gd_device *d, const gd_boundary *b) { return queue_boundary(d, b, true); }
gd_status test_leave(gd_device *d, const gd_boundary *b) { return queue_boundary(d, b, false); }

/* --- captures --------------------------------------------------------------------------------- */

gd_status test_capture_begin(gd_device *d) {
    (void)d;
    gd_capture *capture = calloc(1, sizeof *capture);
    if (!capture) return test_host->fail(GD_E_MEMORY, "test:0: out of memory for a capture");
    capture->last = &capture->first;
    capturing = capture;
    return GD_OK;
}

gd_status test_capture_end(gd_device *d, gd_capture **capture) {
    *capture = capturing;
    capturing = NULL;
    gd_test_device_controls(d)->counts.captured += (*capture)->count;
    return GD_OK;
}

/* Runs the tasks of a capture with other boundary tasks. */
typedef struct launch_task {
    test_task task;
    const gd_capture *capture;
    boundary_task *enter, *leave;
} launch_task;

static void run_launch(test_task *task) {
    const launch_task *t = (const launch_task *)task;
    for (test_task *k = t->capture->first; k; k = k->next) {
        test_task *now = k == t->capture->enter   ? &t->enter->task
                         : k == t->capture->leave ? &t->leave->task
                                                  : k;
        now->run(now);
    }
    gd_test_device_controls(&test_device)->counts.replayed += t->capture->count;
}

static void drop_launch(test_task *task) {
    launch_task *t = (launch_task *)task;
    free(t->enter);
    free(t->leave);
}

gd_status test_capture_launch(gd_device *d, gd_capture *capture, const gd_boundary *enter,
                              const gd_boundary *leave) {
    launch_task *t = test_task_new(sizeof *t, run_launch, drop_launch);
    if (!t) return GD_E_MEMORY;
    t->capture = capture;
    t->enter = enter ? new_boundary(enter, true) : NULL;
    t->leave = leave ? new_boundary(leave, false) : NULL;
    if ((enter && !t->enter) || (leave && !t->leave)) {
        free_task(&t->task);
        return GD_E_MEMORY;
    }
    gd_test_device_controls(d)->counts.launches++;
    return test_enqueue(GD_QUEUE_COMPUTE, &t->task);
}

void test_capture_free(gd_device *d, gd_capture *capture) {
    (void)d;
    test_drain(); /* a launch may still be queued */
    while (capture->first) {
        test_task *task = capture->first;
        capture->first = task->next;
        free_task(task);
    }
    free(capture);
}
