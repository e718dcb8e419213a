/* backend.h - the interface for backends: memory and kernels of another kind of device.
 *
 * A backend is a shared library, libgradus_KIND.so. gd_device_get("KIND") loads it from a folder of
 * GRADUS_BACKEND_PATH or from the folder of the library; it stays loaded until the program ends. It
 * does not link Gradus: the struct gd_host has the functions that it may call. It exports two
 * symbols:
 *
 *     const gd_backend_info gradus_backend_info = GD_BACKEND_INFO("KIND");
 *     gd_status gradus_backend_open(const gd_host *host, gd_backend *backend);
 *
 * Library and backend must have the same version and the same layouts of all option structs
 * (GD_LAYOUT, from a hash of the records that the build computes). There is no compatibility across
 * versions.
 *
 * Threads: the library may call a device from several threads at once. It holds the device's lock
 * during calls that queue work on the compute queue, and while a kernel runs (gd_kernel.run).
 */
#ifndef GRADUS_BACKEND_H
#define GRADUS_BACKEND_H

#include "gradus/device.h"
#include "gradus/extend.h"
#include "gradus/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- errors in the data ----------------------------------------------------------------------- */

/* What a kernel may find wrong with the values of its inputs. The comments give the meaning of
 * gd_data_error.values or real; `element` is always the row-major number of the element. */
typedef enum gd_data_problem {
    GD_DATA_OK,
    GD_DATA_INDEX,       /* values: index, size of what is indexed */
    GD_DATA_AXIS_INDEX,  /* values: index, size of the axis, the axis */
    GD_DATA_CLASS,       /* values: class, number of classes, the ignored class */
    GD_DATA_PLANE_INDEX, /* values: index into the plane, elements of the plane */
    GD_DATA_PROBABILITY, /* real: the value, which is not in [0, 1] */
    GD_DATA_NOT_FINITE,  /* real: infinity or NaN */
    GD_DATA_TOO_FEW,     /* values: elements that the mask selects, elements of the source */
    /* Weights of multinomial. values -1, 0: the element (real) is negative or not finite. values
     * 0, 0: the sum (real) of the row that begins at the element is not positive and finite.
     * Otherwise values are the number of positive weights in the row and the number of draws. */
    GD_DATA_WEIGHTS,
} gd_data_problem;

/* The error word of a device. A kernel that finds a problem writes it if `number` is still 0; then
 * no kernel changes it until the host has read it. */
typedef struct gd_data_error {
    uint64_t number; /* of the kernel call (gd_kernel_call.number); 0: no problem */
    uint64_t run;    /* number of the plan's run, which the entry kernel sets; 0: no plan */
    int32_t problem; /* gd_data_problem */
    int64_t element;
    int64_t values[3];
    double real;
} gd_data_error;

enum { GD_ERROR_BYTES = 128 };

/* --- devices ---------------------------------------------------------------------------------- */

typedef struct gd_queue_event gd_queue_event; /* defined by the backend */
typedef struct gd_capture gd_capture;         /* defined by the backend */

/* The work of one queue runs in order. Only events order the work of different queues. */
typedef enum gd_queue {
    GD_QUEUE_COMPUTE,  /* kernels and copies on the device; shared by all threads */
    GD_QUEUE_UPLOAD,   /* from pinned host memory */
    GD_QUEUE_DOWNLOAD, /* to pinned host memory */
    GD_QUEUE_COUNT,
} gd_queue;

/* The inputs or outputs of a plan's run: buffers that are copied on the device, and scalars of up
 * to 8 bytes from the host. The plan's own addresses never change, so a captured plan can be
 * launched with other feeds and fetches. */
typedef struct gd_boundary_copy {
    void *to;
    const void *from;
    size_t bytes;
} gd_boundary_copy;
typedef struct gd_boundary_scalar {
    void *to;
    size_t bytes;
    uint64_t bits;
} gd_boundary_scalar;
typedef struct gd_boundary {
    const gd_boundary_copy *copies;
    int n_copies;
    const gd_boundary_scalar *scalars;
    int n_scalars;
    uint64_t run; /* entry: gd_data_error.run of later failures */
} gd_boundary;

struct gd_fusion_rules; /* codegen/fusion_rules.h */

/* The functions of a device. Handles are device addresses: the host may add an offset but not
 * dereference them. A device without addresses reserves a range of numbers for each buffer, and
 * looks up buffer and offset when a kernel is launched. A function that fails sets the message with
 * gd_host.fail. All functions of a lost device return GD_E_DEVICE. */
typedef struct gd_device_api {
    const char *kind; /* selects the kernels: "cpu", "cuda", ... */
    uint32_t dtypes;  /* bit 1 << dtype for each element type that the device supports */
    size_t alignment; /* of buffers, a power of two */
    bool host_reads;  /* the CPU: kernels run synchronously, and the host reads buffers directly */

    /* Memory. The library caches and splits blocks (core/blocks.c), so it rarely calls alloc and
     * free. */
    gd_status (*alloc)(gd_device *d, size_t bytes, void **handle);
    void (*free)(gd_device *d, void *handle, size_t bytes);
    gd_status (*memory_info)(gd_device *d, size_t *free_bytes, size_t *total_bytes); /* or NULL */
    gd_status (*pinned_alloc)(gd_device *d, size_t bytes, void **address); /* NULL: malloc */
    void (*pinned_free)(gd_device *d, void *address, size_t bytes);

    /* Queued copies. The host memory is pinned and stays valid until a later event is done. */
    gd_status (*upload)(gd_device *d, gd_queue queue, void *to, const void *from, size_t bytes);
    gd_status (*download)(gd_device *d, gd_queue queue, void *to, const void *from, size_t bytes);

    gd_status (*event_record)(gd_device *d, gd_queue queue, gd_queue_event **event);
    gd_status (*event_join)(gd_device *d, gd_queue queue,
                            gd_queue_event *event);               /* the queue waits */
    gd_status (*event_wait)(gd_device *d, gd_queue_event *event); /* the host waits */
    /* Whether event_wait would return at once. NULL: the library waits where it would ask. */
    gd_status (*event_done)(gd_device *d, gd_queue_event *event, bool *done);
    void (*event_free)(gd_device *d, gd_queue_event *event);
    /* For the profiler: records an event with a time on the compute queue, and computes the time
     * between two of them after the host has waited for the second. NULL: the profiler waits for
     * each kernel instead. */
    gd_status (*time_record)(gd_device *d, gd_queue_event **event);
    gd_status (*time_between)(gd_device *d, gd_queue_event *first, gd_queue_event *second,
                              double *nanoseconds);

    /* The error word. error_read queues a copy of it on the compute queue, to at most GD_ERROR_BYTES of
     * pinned memory. error_parse converts such a copy, when the queue is done. error_clear queues a
     * kernel or copy that clears the word. */
    gd_status (*error_read)(gd_device *d, void *to);
    void (*error_parse)(gd_device *d, const void *read, gd_data_error *error);
    gd_status (*error_clear)(gd_device *d);

    /* Plans. `enter` and `leave` each queue one kernel on the compute queue. It copies nothing
     * while the error word is set, but `enter` still sets the number of the run. Between
     * capture_begin and capture_end calls are recorded instead of queued. capture_launch queues
     * them with new boundaries (NULL if the capture has none). NULL: the device cannot capture. */
    gd_status (*enter)(gd_device *d, const gd_boundary *boundary);
    gd_status (*leave)(gd_device *d, const gd_boundary *boundary);
    gd_status (*capture_begin)(gd_device *d);
    gd_status (*capture_end)(gd_device *d, gd_capture **capture);
    gd_status (*capture_launch)(gd_device *d, gd_capture *capture, const gd_boundary *enter,
                                const gd_boundary *leave);
    void (*capture_free)(gd_device *d, gd_capture *capture);

    const struct gd_fusion_rules *fusion; /* what can be fused; NULL: nothing */

    /* Memory that is shared with other libraries (gradus/dlpack.h); handles are what they call the
     * address. `dlpack_type` is DLPack's number for this kind of device, 0 if its memory cannot be
     * shared; then the functions are NULL. Streams are the queues of the other libraries:
     * `native_stream` is the compute queue as such a stream, stream_record records an event on one,
     * and stream_join lets one wait for an event. */
    int32_t dlpack_type;
    int32_t (*dlpack_number)(const gd_device *d); /* of the device among those of its kind */
    void *(*native_stream)(const gd_device *d);
    gd_status (*stream_record)(gd_device *d, void *stream, gd_queue_event **event);
    gd_status (*stream_join)(gd_device *d, void *stream, gd_queue_event *event);

    /* CPU only. */
    void (*trim)(gd_device *d);
    gd_status (*reserve)(gd_device *d);
} gd_device_api;

#ifdef __cplusplus
#define GD_ATOMIC(type) type
#else
#define GD_ATOMIC(type) _Atomic(type)
#endif

struct gd_device {
    const gd_device_api *api;
    char name[32]; /* "cuda:0" */
    void *state;   /* for the backend */
    /* For the library; zero at first. */
    GD_ATOMIC(int64_t) live_bytes, peak_bytes, cached_bytes, allocations;
    GD_ATOMIC(bool) lost;
    GD_ATOMIC(struct gd_device_queue *) queue; /* core/device_queue.c */
};

/* --- the library and a backend ---------------------------------------------------------------- */

enum { GD_BACKEND_MAGIC = 0x47424431 }; /* "GBD1" */

/* A hash of the layouts on which library and backend must agree: the options of all ops and the
 * structs of this header. */
#define GD_LAYOUT                                                                      \
    (GD_OPTIONS_HASH + sizeof(gd_kernel_call) * 1000003u + sizeof(gd_kernel) * 1009u + \
     offsetof(gd_kernel_call, tf32) * 13u + sizeof(gd_view) * 10007u +                 \
     sizeof(gd_device_api) * 100003u + sizeof(gd_device) * 7u + sizeof(gd_host) * 31u)

typedef struct gd_backend_info {
    uint32_t magic;
    const char *version; /* of the library with which the backend was built */
    uint64_t layout;     /* GD_LAYOUT */
    const char *kind;
} gd_backend_info;
#define GD_BACKEND_INFO(kind) \
    { GD_BACKEND_MAGIC, GD_VERSION_TEXT, GD_LAYOUT, kind }

struct gd_ir;
struct gd_codegen_api;

/* Visits a folder, whose name need not end with a zero byte. Returns true to stop. */
typedef bool gd_visit_folder(const char *folder, size_t length, void *arg);

/* The functions of the library for backends. */
typedef struct gd_host {
    size_t bytes; /* of this struct */
    const char *version;
    uint64_t layout;

    /* Records the text of a failure for this thread and returns the status. */
    gd_status (*fail)(gd_status status, const char *format, ...) GD_PRINTF(2, 3);
    void (*log)(const char *text); /* a warning for the program's log */
    /* Host memory; tests can make these allocations fail. */
    void *(*allocate)(size_t bytes);
    void (*release)(void *memory);

    /* For kernels of dynamic ops: waits for the compute queue, while other threads may queue work,
     * and creates output i (gd_kernel_output). */
    gd_status (*wait)(gd_device *d);
    gd_status (*kernel_output)(gd_kernel_call *call, int i, int rank, const int64_t *dims);

    /* Ops as data: gd_op_name and so on, and the expression of an elementwise or fused op. */
    const char *(*op_name)(const gd_op *op);
    const gd_op_attr *(*op_attr_at)(const gd_op *op, int i);
    unsigned (*op_flags)(const gd_op *op);
    bool (*op_is_fused)(const gd_op *op);     /* fused from several ops for a plan */
    size_t (*op_attrs_size)(const gd_op *op); /* of its options struct */
    const struct gd_ir *(*op_expression)(const gd_op *op);
    /* The options of a call as parameters of its expression, as reals and as integers. */
    void (*op_params)(const gd_op *op, const void *attrs, double *reals, int64_t *integers);

    /* Expressions (codegen/ir.h): the compute types that an expression supports, and its value for
     * one element. */
    unsigned (*expression_types)(const struct gd_ir *ir);
    void (*evaluate_f64)(const struct gd_ir *ir, const double *vars, const double *params,
                         double *out);
    void (*evaluate_f32)(const struct gd_ir *ir, const double *vars, const double *params,
                         double *out); /* rounds the value of each node */
    bool (*evaluate_integer)(const struct gd_ir *ir, const int64_t *vars, const int64_t *params,
                             int64_t *out);

    /* Dialects, the printer, the system's C compiler and the cache (dispatch/codegen_api.h). */
    const struct gd_codegen_api *codegen;

    /* Visits the folders in which the program wants libraries of the vendor to be searched first
     * (gd_add_library_folder). */
    void (*each_library_folder)(gd_visit_folder *visit, void *arg);
} gd_host;

typedef struct gd_backend {
    gd_device **devices; /* at least one; they stay valid for the rest of the program */
    int n_devices;
    const gd_kernel
        *kernels; /* published before the devices; also if gradus_backend_open fails, for
                               * lists of kernels on machines without such a device */
    int n_kernels;
} gd_backend;

#ifdef __cplusplus
}
#endif
#endif
