/* device.h - devices as the library sees them; gradus/backend.h has the functions of a device.
 *
 * Two kinds of devices exist. On the CPU a kernel runs when it is called, and the host reads buffers
 * directly (`api->host_reads`). Every other device is asynchronous: kernels are queued, the host
 * waits only where it reads, and what a kernel finds wrong with its data is in the device's error
 * word until then (device_queue.c). While the error word is set nothing changes state: kernels that
 * write tensors which outlive a call check it, or write through a copy that does.
 */
#ifndef GRADUS_CORE_DEVICE_H
#define GRADUS_CORE_DEVICE_H

#include "gradus/backend.h"
#include "gradus/random.h"
#include "gradus/tensor.h"

/* The CPU's `reserve`; set by its kernels, so that the device need not know them. */
extern gd_status (*gd_cpu_reserve_hook)(void);
/* Sets the CPU's `fusion`; called by the CPU backend when the library is loaded. */
void gd_cpu_set_fusion(const struct gd_fusion_rules *rules);

/* Makes a device known to gd_device_get. It must stay valid for the rest of the program. */
gd_status gd_device_register(gd_device *device);

/* Loads the backend of a kind ("cuda") and registers its kernels and devices, once. It is in src/ops,
 * and no hook, so that programs which link the static library have it. */
gd_status gd_backend_load(const char *kind);

extern gd_device gd_cpu_device;
static inline gd_device *gd_cpu(void) { return &gd_cpu_device; }

/* Counts a small storage on the CPU, which does not come through gd_device_alloc. */
void gd_device_take_small(size_t bytes);
void gd_device_give_small(size_t bytes);

/* Bytes in use now. */
int64_t gd_device_live(gd_device *d);

/* Memory of a device, counted; every buffer goes through these. A buffer for gd_device_upload_new
 * comes from gd_device_alloc_for with GD_QUEUE_UPLOAD. */
gd_status gd_device_alloc(gd_device *d, size_t bytes, void **handle);
gd_status gd_device_alloc_for(gd_device *d, size_t bytes, gd_queue queue, void **handle);
void gd_device_free(gd_device *d, void *handle, size_t bytes);

/* Copies between host and device. An upload goes to a buffer of gd_device_alloc_for that nothing has
 * used yet and runs beside kernels; the host memory may be changed at once afterwards. A download
 * waits, and reports what the error word says. */
gd_status gd_device_upload_new(gd_device *d, void *to, const void *from, size_t bytes);
gd_status gd_device_download(gd_device *d, void *to, const void *from, size_t bytes);

/* Waits for all that was queued, and reports and clears the error word. */
gd_status gd_device_synchronize(gd_device *d);
/* Waits alone. */
gd_status gd_device_wait(gd_device *d);

/* --- asynchronous devices (device_queue.c) ---------------------------------------------------- */

/* GD_E_DEVICE where the device is lost, or the process is the child of a fork. */
gd_status gd_device_check(const gd_device *d);

bool gd_device_is_usable(const gd_device *d); /* the same as a question */

/* Calls that queue work are made under this lock. */
void gd_device_lock(gd_device *d);
void gd_device_unlock(gd_device *d);

/* Memory from the device's caching allocator; gd_device_alloc counts it. */
gd_status gd_queue_alloc(gd_device *d, size_t bytes, gd_queue queue, void **handle);
void gd_queue_free(gd_device *d, void *handle);
void gd_queue_trim(gd_device *d);

/* The next number for a call that may fail, or for a run. Numbers grow. */
uint64_t gd_device_number(gd_device *d);

/* Copies elements between views of the same dims on an asynchronous device by its checked copy
 * kernel; set by src/ops. */
extern gd_status (*gd_copy_view_hook)(gd_device *d, const gd_view *to, const gd_view *from);

/* Turns an error word into a status with the text of the CPU's own message; set by src/ops. */
extern gd_status (*gd_data_error_hook)(gd_device *d, const gd_data_error *error);

/* A counter of the host that a run has advanced (the runs of a session). If the run turns out to
 * have failed, or to have been queued behind one that has, the counter is set back to `before`.
 * Where there is no memory to remember it, it is not. */
void gd_device_log_counter(gd_device *d, uint64_t run, _Atomic uint64_t *counter, uint64_t before);
/* The counter is about to be freed. */
void gd_device_forget_counter(gd_device *d, const _Atomic uint64_t *counter);

#endif
