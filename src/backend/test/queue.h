/* queue.h - internals of the test device: memory, tasks and queues, the error word. */
#ifndef GRADUS_BACKEND_TEST_QUEUE_H
#define GRADUS_BACKEND_TEST_QUEUE_H

#include <pthread.h>

#include "backend/test/device.h"

extern const gd_host *test_host;
extern gd_device test_device;

/* --- memory (memory.c) ------------------------------------------------------------------------ */

gd_status test_alloc(gd_device *d, size_t bytes, void **handle);
void test_free(gd_device *d, void *handle, size_t bytes);
/* The address of a handle, for workers. NULL if [handle, handle + bytes) is not inside one buffer;
 * the device is lost then. */
void *test_resolve(const void *handle, size_t bytes);

/* --- tasks (queue.c) -------------------------------------------------------------------------- */

typedef struct test_task {
    struct test_task *next;
    void (*run)(struct test_task *task);  /* on a worker */
    void (*drop)(struct test_task *task); /* frees resources of the task; may be NULL */
} test_task;

/* A zeroed task of `bytes` bytes, whose first field is a test_task. NULL if there is no memory,
 * with the failure set. */
void *test_task_new(size_t bytes, void (*run)(test_task *), void (*drop)(test_task *));
/* Appends a task to a queue or, during a capture, to the capture. Takes ownership of the task. */
gd_status test_enqueue(gd_queue queue, test_task *task);
/* Waits until the compute queue is empty. */
void test_drain(void);

gd_status test_event_record(gd_device *d, gd_queue queue, gd_queue_event **event);
gd_status test_event_join(gd_device *d, gd_queue queue, gd_queue_event *event);
gd_status test_event_wait(gd_device *d, gd_queue_event *event);
gd_status test_event_done(gd_device *d, gd_queue_event *event, bool *done);
void test_event_free(gd_device *d, gd_queue_event *event);
gd_status test_time_record(gd_device *d, gd_queue_event **event);
gd_status test_time_between(gd_device *d, gd_queue_event *first, gd_queue_event *second,
                            double *ns);

int32_t test_dlpack_number(const gd_device *d);
void *test_native_stream(const gd_device *d);
gd_status test_stream_record(gd_device *d, void *stream, gd_queue_event **event);
gd_status test_stream_join(gd_device *d, void *stream, gd_queue_event *event);

gd_status test_capture_begin(gd_device *d);
gd_status test_capture_end(gd_device *d, gd_capture **capture);
gd_status test_capture_launch(gd_device *d, gd_capture *capture, const gd_boundary *enter,
                              const gd_boundary *leave);
void test_capture_free(gd_device *d, gd_capture *capture);
gd_status test_enter(gd_device *d, const gd_boundary *boundary);
gd_status test_leave(gd_device *d, const gd_boundary *boundary);

/* --- the error word --------------------------------------------------------------------------- */

extern gd_data_error test_error; /* read and written by the worker of the compute queue */
extern uint64_t test_run;        /* gd_boundary.run of the current plan */
/* Sets the error word, unless it is set already. */
void test_report(const gd_kernel_call *call, gd_data_problem problem, int64_t element, int64_t a,
                 int64_t b, int64_t c, double real);

/* --- kernels (kernels.c) ---------------------------------------------------------------------- */

extern const gd_kernel test_kernels[];
extern const int test_kernel_count;

/* Fused ops (kernels_fused.c); gradus_backend_open sets the dialect. */
struct gd_fusion_rules;
extern const struct gd_fusion_rules test_fusion_rules;
bool test_fused_match(const gd_kernel_call *call);
gd_status test_fused_prepare(const gd_kernel_call *call, void **prepared, size_t *workspace);
void test_fused_release(gd_device *d, void *prepared);
void test_fused(gd_kernel_call *call);

#endif
