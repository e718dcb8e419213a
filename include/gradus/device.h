/* device.h - where tensors live and ops run.
 *
 * A device is named "cpu", "cuda:0" or "opencl:1". Kernels on other devices than the CPU run
 * asynchronously; reading data (gd_copy_to, gd_item) or gd_synchronize waits for them and reports
 * what went wrong in them (an index out of range, a lost device).
 */
#ifndef GRADUS_DEVICE_H
#define GRADUS_DEVICE_H

#include "gradus/dtype.h"
#include "gradus/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_device gd_device;

/* The device of that name, or NULL with the reason in gd_error_message(). Devices live as long as
 * the program. */
GD_API gd_device *gd_device_get(const char *name);
GD_API const char *gd_device_name(const gd_device *device);

/* Ops for which a device has neither a kernel nor a body in other ops are refused there. With
 * fallback on they run on the host instead: each such call waits for the device and copies its
 * operands both ways. Off at first. The second function counts those calls. */
GD_API void gd_set_host_fallback(bool on);
GD_API int64_t gd_host_fallbacks(void);

/* Where the creation ops of this thread put their results; "cpu" at first. NULL means "cpu". */
GD_API void gd_set_default_device(gd_device *device);
GD_API gd_device *gd_default_device(void);

/* The instruction set of the CPU's kernels: "base", "avx2" or "avx512" (GRADUS_ISA sets a lesser one). */
GD_API const char *gd_cpu_instruction_set(void);

/* The version of the library: "0.1.0". */
GD_API const char *gd_version(void);

/* Waits until all that was queued on the device is done. */
GD_API gd_status gd_synchronize(gd_device *device);

/* Bytes in use by tensors now, the most there ever were, and bytes held for reuse. NULL: "cpu".
 * (Of tensors of up to 64 bytes, the most counts those of the thread that made the latest.) */
typedef struct gd_memory {
    int64_t live_bytes, peak_bytes, cached_bytes;
    int64_t allocations; /* how many buffers were ever asked for */
} gd_memory;
GD_API gd_memory gd_memory_stats(gd_device *device);
GD_API void gd_memory_reset_peak(gd_device *device);

/* Gives memory that is held for reuse back to the system. */
GD_API void gd_memory_trim(gd_device *device);

#ifdef __cplusplus
}
#endif
#endif
