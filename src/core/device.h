/* device.h - functions on devices for library code; gradus/backend.h has the vtable of a device.
 *
 * On the CPU a kernel runs when it is called, and the host reads buffers directly
 * (`api->host_reads`). Every other device is asynchronous: kernels are queued, and the host waits
 * only when it reads data. A kernel that finds bad data sets the device's error word, which the
 * host reads then (device_queue.c). While the error word is set, no state changes: kernels that
 * write tensors which outlive a call check the word, or their results go through a copy that checks
 * it.
 */
#ifndef GRADUS_CORE_DEVICE_H
#define GRADUS_CORE_DEVICE_H

#include "gradus/backend.h"
#include "gradus/random.h"
#include "gradus/tensor.h"

/* The `reserve` function of the CPU, which its backend sets: core does not depend on kernels. */
extern gd_status (*gd_cpu_reserve_hook)(void);
/* Sets the `fusion` rules of the CPU; its backend calls this when the library is loaded. */
void gd_cpu_set_fusion(const struct gd_fusion_rules *rules);

/* Registers a device for gd_device_get. It must stay valid for the rest of the program. */
gd_status gd_device_register(gd_device *device);

/* The registered device of that name ("cuda" is "cuda:0"); NULL: none. `known` gets the names of all.
 * gd_device_get, in src/dispatch/backend.c, also loads the backend of the device. */
gd_device *gd_device_find(const char *name, char *known, size_t size);
/* Whether a device of this kind is registered. */
bool gd_device_kind_exists(const char *kind);

extern gd_device gd_cpu_device;
static inline gd_device *gd_cpu(void) { return &gd_cpu_device; }

/* Count a small storage on the CPU, which is not allocated by gd_device_alloc. */
void gd_device_take_small(size_t bytes);
void gd_device_give_small(size_t bytes);

/* Bytes in use by tensors. */
int64_t gd_device_live(gd_device *d);

/* Memory of a device. These functions also maintain its statistics. A buffer for
 * gd_device_upload_new is allocated by gd_device_alloc_for with GD_QUEUE_UPLOAD. */
gd_status gd_device_alloc(gd_device *d, size_t bytes, void **handle);
gd_status gd_device_alloc_for(gd_device *d, size_t bytes, gd_queue queue, void **handle);
void gd_device_free(gd_device *d, void *handle, size_t bytes);

/* Copies between host and device. An upload writes a new buffer of gd_device_alloc_for and runs
 * concurrently with kernels; the host memory may change after the call. A download waits for the
 * device and reports its error word. */
gd_status gd_device_upload_new(gd_device *d, void *to, const void *from, size_t bytes);
gd_status gd_device_download(gd_device *d, void *to, const void *from, size_t bytes);

/* Uploads in advance: gd_device_upload_ahead also copies to a new buffer, but kernels do not wait
 * for it. gd_device_mark_uploads marks the end of all uploads so far, and gd_device_join_uploads
 * lets later kernels wait for them; it frees the mark, also after a failure. */
gd_status gd_device_upload_ahead(gd_device *d, void *to, const void *from, size_t bytes);
gd_status gd_device_mark_uploads(gd_device *d, gd_queue_event **mark);
gd_status gd_device_join_uploads(gd_device *d, gd_queue_event *mark);
void gd_device_drop_mark(gd_device *d, gd_queue_event *mark);

/* --- memory and streams of other libraries ---------------------------------------------------- */

/* The registered device with these numbers of DLPack; NULL: none. */
gd_device *gd_device_find_dlpack(int32_t type, int32_t number);

/* Order the compute queue and a stream of another library (gd_device_api.native_stream): later work of
 * the queue waits for the present work of the stream, or the other way round. */
gd_status gd_device_join_stream(gd_device *d, void *stream);
gd_status gd_device_lead_stream(gd_device *d, void *stream);

/* Foreign memory is released when the kernels that were queued before are done: `run` is called then,
 * by this call or by a later one of any thread, which holds no lock. In the child of a fork it is
 * never called. */
typedef struct gd_device_release {
    struct gd_device_release *next; /* for the queue, with the event */
    gd_queue_event *event;
    void (*run)(struct gd_device_release *release);
} gd_device_release;
void gd_device_release_later(gd_device *d, gd_device_release *release);

/* How many times the host has waited for the compute queue or a download, for tests. */
int64_t gd_device_waits(gd_device *d);

/* Waits for all queued work, then reports and clears the error word. */
gd_status gd_device_synchronize(gd_device *d);
/* Only waits. */
gd_status gd_device_wait(gd_device *d);

/* --- asynchronous devices (device_queue.c) ---------------------------------------------------- */

/* Whether this process is the child of a fork, and the parent has opened the device. */
bool gd_device_is_inherited(const gd_device *device);

/* Fails with GD_E_DEVICE if the device is lost or inherited. */
gd_status gd_device_check(const gd_device *d);

bool gd_device_is_usable(const gd_device *d); /* the same without a message */

/* Hold this lock while queuing work. */
void gd_device_lock(gd_device *d);
void gd_device_unlock(gd_device *d);

/* GRADUS_DEBUG=device: the host waits after every kernel call, so that a failure of the device is
 * reported by the call that caused it. Plans are not captured. */
extern bool gd_device_debug;
/* GRADUS_DEBUG=memory: the same, and each block of memory is an allocation of its own, so that tools
 * find accesses outside of it. */
extern bool gd_device_debug_memory;

/* Around a call that queues kernels: checks and locks the device, and records the call for the message
 * if the device fails later. gd_device_end_call unlocks it, waits in debug mode, and returns `status`
 * or that of the wait. `site` may be NULL. */
gd_status gd_device_begin_call(gd_device *d, const char *name, const char *site);
gd_status gd_device_end_call(gd_device *d, gd_status status);
/* For a call that waits for results of its own kernels; the lock is released meanwhile. */
gd_status gd_device_wait_in_call(gd_device *d);

/* Memory from the caching allocator of an asynchronous device, for gd_device_alloc. They count the
 * bytes. */
gd_status gd_queue_alloc(gd_device *d, size_t bytes, gd_queue queue, void **handle);
void gd_queue_free(gd_device *d, void *handle, size_t bytes);
void gd_queue_trim(gd_device *d);

/* The next number for a call that may fail, or for a run. Numbers increase. */
uint64_t gd_device_number(gd_device *d);

/* Copies elements between views of the same dims on an asynchronous device by its checked copy
 * kernel; set by src/dispatch. */
extern gd_status (*gd_copy_view_hook)(gd_device *d, const gd_view *to, const gd_view *from);

/* Fails with the status and the message that the CPU kernel would give; set by src/dispatch. */
extern gd_status (*gd_data_error_hook)(gd_device *d, const gd_data_error *error);

/* Logs a host counter that a run has advanced (the number of runs of a session). If the error word
 * shows that this run or an earlier one has failed, the counter is reset to `before`. If there is
 * no memory for the log entry, the counter keeps its value. */
void gd_device_log_counter(gd_device *d, uint64_t run, _Atomic uint64_t *counter, uint64_t before);
/* Removes a counter from the log before it is freed. */
void gd_device_forget_counter(gd_device *d, const _Atomic uint64_t *counter);

#endif
