/* device.h - the device vtable: all that the rest of the library knows of a device.
 *
 * Buffers are handles: only the device's own kernels and copies look behind them. Kernels run in
 * the order they were queued; `free` is ordered with them, so that a buffer may be given up while
 * a kernel that reads it is still waiting. Errors in the data (an index out of range) are noted by
 * the kernel in the device's error word, and reported by the next synchronize or download.
 */
#ifndef GRADUS_CORE_DEVICE_H
#define GRADUS_CORE_DEVICE_H

#include "gradus/device.h"
#include "gradus/random.h"
#include "gradus/extend.h"
#include "gradus/tensor.h"

typedef struct gd_event gd_event;

typedef struct gd_device_api {
    const char *kind; /* whose kernels it runs: "cpu", "cuda", ... */
    uint32_t dtypes;  /* bit 1 << dtype for each element type the device knows */
    bool host_reads;  /* the host may read buffers directly (the CPU) */

    gd_status (*alloc)(gd_device *d, size_t bytes, void **handle); /* 64-byte aligned */
    void (*free)(gd_device *d, void *handle, size_t bytes);
    gd_status (*upload)(gd_device *d, void *to, const void *from, size_t bytes);
    gd_status (*download)(gd_device *d, void *to, const void *from, size_t bytes); /* waits */
    gd_status (*copy)(gd_device *d, void *to, const void *from, size_t bytes);

    /* The address a kernel of this device uses for a handle; NULL: the handle itself. */
    void *(*kernel_address)(gd_device *d, void *handle);

    /* Queues a kernel. The call struct is copied; what it points to is copied too. */
    gd_status (*run)(gd_device *d, const gd_kernel_call *call);
    /* Runs a kernel that allocates its own outputs (size depends on data) and waits for it. */
    gd_status (*run_now)(gd_device *d, gd_kernel_call *call);

    gd_status (*synchronize)(gd_device *d); /* waits, reports and clears the error word */
    gd_status (*event_record)(gd_device *d, gd_event **event);
    gd_status (*event_wait)(gd_device *d, gd_event *event); /* host waits; frees the event */
    void (*trim)(gd_device *d);
    /* From here on no kernel that is given its workspace fails for want of memory. NULL: none does. */
    gd_status (*reserve)(gd_device *d);
    /* What plans may fuse for this device (codegen/fusion_rules.h); NULL: nothing. */
    const struct gd_fusion_rules *fusion;
} gd_device_api;

/* The CPU's `reserve`; set by its kernels, so that the device need not know them. */
extern gd_status (*gd_cpu_reserve_hook)(void);
/* Sets the CPU's `fusion`; called by the CPU backend when the library is loaded. */
void gd_cpu_set_fusion(const struct gd_fusion_rules *rules);

struct gd_device {
    const gd_device_api *api;
    char name[32];
    _Atomic int64_t live_bytes, peak_bytes, cached_bytes, allocations;
    void *state; /* the backend's own */
};

/* Makes a device known to gd_device_get. It must stay valid for the rest of the program. */
gd_status gd_device_register(gd_device *device);

extern gd_device gd_cpu_device;
static inline gd_device *gd_cpu(void) { return &gd_cpu_device; }

/* Runs a kernel on host memory now, giving it the simple case its flags ask for. For the CPU, and
 * for devices that borrow its kernels. */
gd_status gd_kernel_run_host(const gd_kernel_call *call);

/* The same in parts, so that everything is there before it runs. */
typedef struct gd_staging {
    gd_view *views; /* what the kernel sees instead; NULL: its operands are simple */
    size_t *bytes;  /* of each of them; 0: it is the operand itself */
} gd_staging;
gd_status gd_kernel_stage(const gd_kernel_call *call, gd_staging *staging);
gd_status gd_kernel_run_staged(const gd_kernel_call *call, const gd_staging *staging);
void gd_kernel_unstage(const gd_kernel_call *call, gd_staging *staging);

/* The dtype in which a kernel with these flags wants an operand. */
gd_dtype gd_staged_dtype(gd_dtype dtype, unsigned flags);

/* Counts a small storage on the CPU, which does not come through gd_device_alloc. */
void gd_device_take_small(size_t bytes);
void gd_device_give_small(size_t bytes);

/* Bytes in use now. */
int64_t gd_device_live(gd_device *d);

/* Memory of a device, counted; every buffer goes through these. */
gd_status gd_device_alloc(gd_device *d, size_t bytes, void **handle);
void gd_device_free(gd_device *d, void *handle, size_t bytes);

#endif
