/* queue.h - the inside of the test device: tasks, queues, memory. */
#ifndef GRADUS_TEST_QUEUE_H
#define GRADUS_TEST_QUEUE_H

#include <pthread.h>

#include "backend/test/device.h"

extern const gd_host *test_host;
extern gd_device test_device;

/* --- memory (memory.c) ------------------------------------------------------------------------ */

gd_status test_alloc(gd_device *d, size_t bytes, void **handle);
void test_free(gd_device *d, void *handle, size_t bytes);
/* The address behind a handle, for workers. NULL where [handle, handle + bytes) is not in one
 * buffer: the device is lost then. */
void *test_resolve(const void *handle, size_t bytes);

/* --- tasks (queue.c) -------------------------------------------------------------------------- */

typedef struct test_task {
    struct test_task *next;
    void (*run)(struct test_task *task);  /* on a worker */
    void (*drop)(struct test_task *task); /* frees what it holds; NULL: nothing */
} test_task;

/* A task with room for its own fields behind the head; NULL, with the failure set: no memory. */
void *test_task_new(size_t bytes, void (*run)(test_task *), void (*drop)(test_task *));
/* Appends a task to a queue, which frees it; to the capture, where one is being made. */
gd_status test_enqueue(gd_queue queue, test_task *task);
/* Waits until the compute queue is empty. */
void test_drain(void);

gd_status test_event_record(gd_device *d, gd_queue queue, gd_event **event);
gd_status test_event_join(gd_device *d, gd_queue queue, gd_event *event);
gd_status test_event_wait(gd_device *d, gd_event *event);
void test_event_free(gd_device *d, gd_event *event);

gd_status test_capture_begin(gd_device *d);
gd_status test_capture_end(gd_device *d, gd_capture **capture);
gd_status test_capture_launch(gd_device *d, gd_capture *capture, const gd_boundary *enter,
                              const gd_boundary *leave);
void test_capture_free(gd_device *d, gd_capture *capture);
gd_status test_enter(gd_device *d, const gd_boundary *boundary);
gd_status test_leave(gd_device *d, const gd_boundary *boundary);

/* --- the error word --------------------------------------------------------------------------- */

extern gd_data_error test_error; /* of workers of the compute queue */
extern uint64_t test_run;        /* of the plan that runs */
/* Reports a problem in the data of a call, if it is the first. */
void test_report(const gd_kernel_call *call, gd_data_problem problem, int64_t element, int64_t a,
                 int64_t b, int64_t c, double real);

/* --- kernels (kernels.c) ---------------------------------------------------------------------- */

extern const gd_kernel test_kernels[];
extern const int test_kernel_count;

/* Fused ops (kernels_fused.c); the dialect is filled in when the backend is opened. */
struct gd_fusion_rules;
extern const struct gd_fusion_rules test_fusion_rules;
bool test_fused_match(const gd_kernel_call *call);
gd_status test_fused_prepare(const gd_kernel_call *call, void **prepared, size_t *workspace);
void test_fused_release(gd_device *d, void *prepared);
void test_fused(gd_kernel_call *call);

#endif
