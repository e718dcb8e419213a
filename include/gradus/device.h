/* device.h - where tensors live and ops run.
 *
 * A device is named "cpu", "cuda:0" or "opencl:1". Kernels on devices other than the CPU run
 * asynchronously. Reading data (gd_copy_to, gd_item) and gd_synchronize wait for them and report
 * their failures (an index out of range, a lost device).
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

/* An op for which a device has neither a kernel nor a body in other ops fails there. With fallback
 * on it runs on the host instead: each such call waits for the device and copies its operands both
 * ways. Off by default. gd_host_fallbacks returns the number of such calls so far. */
GD_API void gd_set_host_fallback(bool on);
GD_API int64_t gd_host_fallbacks(void);

/* The device on which creation ops of this thread put their results: a gd_device or its name,
 * gd_set_default_device("cuda"); "cpu" by default and for NULL. An unknown name fails and changes
 * nothing. */
GD_API gd_status gd_set_default_device(gd_device *device);
GD_API gd_status gd_set_default_device_named(const char *name);
GD_API gd_device *gd_default_device(void);
#ifndef __cplusplus /* C++ overloads are below */
#define GD_BY_NAME_(device, named, other) \
    _Generic((device), char * : named, const char * : named, default : other)(device)
#define gd_set_default_device(device) \
    GD_BY_NAME_(device, gd_set_default_device_named, gd_set_default_device)

/* The device that an argument is or names. */
#define GD_DEVICE_(device) GD_BY_NAME_(device, gd_device_get, gd_device_itself_)
static inline gd_device *gd_device_itself_(gd_device *device) { return device; }
#endif

/* Adds a folder in which backends look for libraries of their vendor (cuBLASLt, cuDNN and NVRTC for
 * CUDA) before they look in CUDA_HOME and in the system's folders. A program calls it before it asks
 * for a device: libraries that are loaded stay. Folders are searched in the order of the calls,
 * after those of the environment variable GRADUS_LIBRARY_PATH. */
GD_API gd_status gd_add_library_folder(const char *folder);

/* The instruction set of the CPU kernels: "base", "avx2" or "avx512". The environment variable
 * GRADUS_ISA selects a smaller one than the processor has. */
GD_API const char *gd_cpu_instruction_set(void);

/* The version of the library: "0.1.0". */
GD_API const char *gd_version(void);

/* Waits until all work that was queued on the device is done. */
GD_API gd_status gd_synchronize(gd_device *device);

/* Memory of a device; NULL: "cpu". */
typedef struct gd_memory {
    int64_t live_bytes; /* in use by tensors */
    /* The largest live_bytes so far. Tensors of up to 64 bytes are counted for each thread; of them
     * the peak includes only those of the thread that allocated last. */
    int64_t peak_bytes;
    int64_t cached_bytes; /* held for reuse */
    int64_t allocations;  /* how many buffers have been allocated so far */
} gd_memory;
GD_API gd_memory gd_memory_stats(gd_device *device);
GD_API void gd_memory_reset_peak(gd_device *device);

/* Returns memory that is held for reuse to the system. */
GD_API void gd_memory_trim(gd_device *device);

#ifdef __cplusplus
}
static inline gd_status gd_set_default_device(const char *name) {
    return gd_set_default_device_named(name);
}
static inline gd_status gd_set_default_device(decltype(nullptr)) {
    return gd_set_default_device(static_cast<gd_device *>(nullptr));
}
static inline gd_device *GD_DEVICE_(gd_device *device) { return device; }
static inline gd_device *GD_DEVICE_(const char *name) { return gd_device_get(name); }
#endif
#endif
