/* state.h - the inside of a CUDA device: context, streams, events, modules, the error word. */
#ifndef GRADUS_BACKEND_CUDA_STATE_H
#define GRADUS_BACKEND_CUDA_STATE_H

#include <pthread.h>

#include "backend/cuda/driver.h"
#include "backend/cuda/error_word.h"

struct gd_queue_event {
    CUevent event;
    gd_queue_event *next; /* in the list of free events */
    bool timed;           /* of gd_cuda_time_record */
};

typedef struct gd_cuda_state {
    CUdevice number;
    int index;         /* among the devices of the backend: 0 for "cuda:0" */
    CUcontext context; /* the primary one, which libraries of NVIDIA use, too */
    CUstream streams[GD_QUEUE_COUNT];
    int capability;     /* 90: compute capability 9.0 */
    int processors;     /* multiprocessors */
    int shared_bytes;   /* shared memory that a block may have */
    gd_cuda_word *word; /* device address of the error word */

    pthread_mutex_t lock;           /* of events and modules */
    gd_queue_event *free_events[2]; /* without and with times */

    CUmodule *modules;     /* by number of the image; NULL: not loaded yet */
    gd_capture *capturing; /* the capture that records calls now, or NULL */
} gd_cuda_state;

static inline gd_cuda_state *gd_cuda_state_of(const gd_device *d) {
    return (gd_cuda_state *)d->state;
}

/* Makes the device's context current in this thread. Every function of the device calls it. */
gd_status gd_cuda_enter_context(gd_device *d);

/* --- memory (memory.c) ------------------------------------------------------------------------ */

gd_status gd_cuda_alloc(gd_device *d, size_t bytes, void **handle);
void gd_cuda_free(gd_device *d, void *handle, size_t bytes);
gd_status gd_cuda_memory_info(gd_device *d, size_t *free_bytes, size_t *total_bytes);
gd_status gd_cuda_pinned_alloc(gd_device *d, size_t bytes, void **address);
void gd_cuda_pinned_free(gd_device *d, void *address, size_t bytes);
gd_status gd_cuda_upload(gd_device *d, gd_queue queue, void *to, const void *from, size_t bytes);
gd_status gd_cuda_download(gd_device *d, gd_queue queue, void *to, const void *from, size_t bytes);

/* --- events and the error word (queue.c) ------------------------------------------------------ */

gd_status gd_cuda_event_record(gd_device *d, gd_queue queue, gd_queue_event **event);
gd_status gd_cuda_event_join(gd_device *d, gd_queue queue, gd_queue_event *event);
gd_status gd_cuda_event_wait(gd_device *d, gd_queue_event *event);
gd_status gd_cuda_event_done(gd_device *d, gd_queue_event *event, bool *done);
void gd_cuda_event_free(gd_device *d, gd_queue_event *event);
int32_t gd_cuda_dlpack_number(const gd_device *d);
void *gd_cuda_native_stream(const gd_device *d);
gd_status gd_cuda_stream_record(gd_device *d, void *stream, gd_queue_event **event);
gd_status gd_cuda_stream_join(gd_device *d, void *stream, gd_queue_event *event);
gd_status gd_cuda_time_record(gd_device *d, gd_queue_event **event);
gd_status gd_cuda_time_between(gd_device *d, gd_queue_event *first, gd_queue_event *second,
                               double *ns);
gd_status gd_cuda_error_read(gd_device *d, void *to);
void gd_cuda_error_parse(gd_device *d, const void *read, gd_data_error *error);
gd_status gd_cuda_error_clear(gd_device *d);

/* --- plans (capture.c) ------------------------------------------------------------------------ */

gd_status gd_cuda_enter(gd_device *d, const gd_boundary *boundary);
gd_status gd_cuda_leave(gd_device *d, const gd_boundary *boundary);
gd_status gd_cuda_capture_begin(gd_device *d);
gd_status gd_cuda_capture_end(gd_device *d, gd_capture **capture);
gd_status gd_cuda_capture_launch(gd_device *d, gd_capture *capture, const gd_boundary *enter,
                                 const gd_boundary *leave);
void gd_cuda_capture_free(gd_device *d, gd_capture *capture);

/* --- kernels (module.c) ----------------------------------------------------------------------- */

enum {
    GD_CUDA_DEVICES = 16,
    GD_CUDA_ALL_SHARED = -1, /* shared memory of a kernel: as much as a block may have */
};

/* A kernel that the build compiled: a function of the image FAMILY/FILE, or of FILE for a file of
 * this folder. It is loaded when a device first uses it.
 *
 *     static gd_cuda_kernel fill_views = GD_CUDA_KERNEL("creation/creation", "gd_fill_views");
 */
typedef struct gd_cuda_kernel {
    const char *image, *name;
    _Atomic(CUfunction) functions[GD_CUDA_DEVICES]; /* by device */
    int shared_bytes; /* dynamic shared memory of a block, or GD_CUDA_ALL_SHARED */
    /* It begins with wait_for_previous_kernel (previous_kernel.cuh), so the device may
     * prepare its launch while the kernel before it still runs. */
    bool waits;
    _Atomic(bool) compiled_to_wait[GD_CUDA_DEVICES]; /* by device: its code has this instruction */
} gd_cuda_kernel;
#define GD_CUDA_KERNEL(image, name) GD_CUDA_KERNEL_SHARED(image, name, 0)
#define GD_CUDA_KERNEL_SHARED(image, name, shared_bytes)    \
    {                                                       \
        image, name, {NULL}, shared_bytes, false, { false } \
    }
#define GD_CUDA_KERNEL_WAITING(image, name, shared_bytes)  \
    {                                                      \
        image, name, {NULL}, shared_bytes, true, { false } \
    }

gd_status gd_cuda_function(gd_device *d, gd_cuda_kernel *kernel, CUfunction *function);

/* Queues a kernel on the compute stream: `blocks` blocks of `threads` threads. `arguments` points
 * to its only parameter, a struct that is copied. */
gd_status gd_cuda_launch(gd_device *d, gd_cuda_kernel *kernel, int64_t blocks, int threads,
                         const void *arguments);
/* The same for a loaded function. `waits`: it calls wait_for_previous_kernel (previous_kernel.cuh), and
 * was compiled for compute capability 9.0 or later. */
gd_status gd_cuda_launch_loaded(gd_device *d, CUfunction function, int64_t blocks, int threads,
                                int shared_bytes, bool waits, const void *arguments);
/* The same for blocks that wait for each other: all run at the same time, or the launch fails. */
gd_status gd_cuda_launch_together(gd_device *d, gd_cuda_kernel *kernel, int64_t blocks, int threads,
                                  const void *arguments);

#endif
