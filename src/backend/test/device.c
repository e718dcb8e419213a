/* device.c - the test device as a backend (device.h): copies, the error word, and the table of
 * device functions. */
#include "backend/test/device.h"

#include <string.h>

#include "backend/test/kernels.h"
#include "dispatch/codegen_api.h"

const gd_host *test_host;

/* --- copies ----------------------------------------------------------------------------------- */

typedef struct copy_task {
    test_task task;
    void *to; /* a handle if to_device, else a host address */
    const void *from;
    size_t bytes;
    bool to_device, from_device;
} copy_task;

static void run_copy(test_task *task) {
    const copy_task *t = (const copy_task *)task;
    void *to = t->to_device ? test_resolve(t->to, t->bytes) : t->to;
    const void *from = t->from_device ? test_resolve(t->from, t->bytes) : t->from;
    if (to && from) memmove(to, from, t->bytes);
}

static gd_status queue_copy(gd_queue queue, copy_task copy) {
    copy_task *t = test_task_new(sizeof *t, run_copy, NULL);
    if (!t) return GD_E_MEMORY;
    copy.task = t->task;
    *t = copy;
    return test_enqueue(queue, &t->task);
}

static gd_status upload_bytes(gd_device *d, gd_queue queue, void *to, const void *from,
                              size_t bytes) {
    gd_test_device_controls(d)->counts.uploads++;
    return queue_copy(queue,
                      (copy_task){.to = to, .from = from, .bytes = bytes, .to_device = true});
}

static gd_status download_bytes(gd_device *d, gd_queue queue, void *to, const void *from,
                                size_t bytes) {
    gd_test_device_controls(d)->counts.downloads++;
    return queue_copy(queue,
                      (copy_task){.to = to, .from = from, .bytes = bytes, .from_device = true});
}

/* --- the error word --------------------------------------------------------------------------- */

void test_report(const gd_kernel_call *call, gd_data_problem problem, int64_t element, int64_t a,
                 int64_t b, int64_t c, double real) {
    if (test_error.number) return;
    test_error = (gd_data_error){.number = call->number ? call->number : UINT64_MAX,
                                 .run = test_run,
                                 .problem = (int32_t)problem,
                                 .element = element,
                                 .values = {a, b, c},
                                 .real = real};
}

/* Reads and clears the error word. This is a task of the compute queue, because kernels that were
 * queued before it may still report errors. */
typedef struct error_task {
    test_task task;
    gd_data_error *to;
} error_task;

static void run_error_read(test_task *task) { *((error_task *)task)->to = test_error; }
static void run_error_clear(test_task *task) {
    (void)task;
    test_error = (gd_data_error){0};
}

static gd_status queue_error_task(void (*run)(test_task *), void *to) {
    error_task *t = test_task_new(sizeof *t, run, NULL);
    if (!t) return GD_E_MEMORY;
    t->to = to;
    return test_enqueue(GD_QUEUE_COMPUTE, &t->task);
}

static gd_status error_read(gd_device *d, void *to) {
    (void)d;
    return queue_error_task(run_error_read, to);
}
static gd_status error_clear(gd_device *d) {
    (void)d;
    return queue_error_task(run_error_clear, NULL);
}
static void error_parse(gd_device *d, const void *read, gd_data_error *error) {
    (void)d;
    *error = *(const gd_data_error *)read;
}

/* --- the backend ------------------------------------------------------------------------------ */

static gd_status memory_info(gd_device *d, size_t *free_bytes, size_t *total_bytes) {
    (void)d;
    *free_bytes = 0;
    *total_bytes = (size_t)1 << 30;
    return GD_OK;
}

static gd_fusion_rules fusion_rules; /* test_fusion_rules with the scalar dialect of the host */

static const gd_device_api device_api = {
    .kind = "test",
    .dtypes = (1u << GD_DTYPE_COUNT) - 2u,
    .alignment = 256,
    .alloc = test_alloc,
    .free = test_free,
    .memory_info = memory_info,
    .upload = upload_bytes,
    .download = download_bytes,
    .event_record = test_event_record,
    .event_join = test_event_join,
    .event_wait = test_event_wait,
    .event_done = test_event_done,
    .event_free = test_event_free,
    .time_record = test_time_record,
    .time_between = test_time_between,
    .error_read = error_read,
    .error_parse = error_parse,
    .error_clear = error_clear,
    .enter = test_enter,
    .leave = test_leave,
    .capture_begin = test_capture_begin,
    .capture_end = test_capture_end,
    .capture_launch = test_capture_launch,
    .capture_free = test_capture_free,
    .fusion = &fusion_rules,
    .dlpack_type = 12, /* kDLExtDev */
    .dlpack_number = test_dlpack_number,
    .native_stream = test_native_stream,
    .stream_record = test_stream_record,
    .stream_join = test_stream_join,
};

static gd_test_controls device_controls = {.fail_alloc_after = -1};
gd_device test_device = {.api = &device_api, .name = "test:0", .state = &device_controls};

GD_API const gd_backend_info gradus_backend_info = GD_BACKEND_INFO("test");

GD_API gd_status gradus_backend_open(const gd_host *host, gd_backend *backend) {
    static gd_device *devices[] = {&test_device};
    test_host = host;
    fusion_rules = test_fusion_rules;
    fusion_rules.dialect = host->codegen->scalar;
    *backend = (gd_backend){devices, 1, test_kernels, test_kernel_count};
    return GD_OK;
}
