/* dlpack.h - tensors that share memory with other libraries, by DLPack 1.3.
 *
 *     struct DLManagedTensorVersioned *m = gd_to_dlpack(x); // for PyTorch, NumPy, JAX, TVM, ...
 *     gd_tensor *y = gd_from_dlpack(theirs);                // from them
 *
 * Nothing is copied. Both sides hold references to the memory, so either may be freed first, and on
 * any thread. Writes are seen by both sides. A program that writes memory of the other side needs
 * what any two threads need.
 *
 * The structs of DLPack are only declared here; a program includes <dlpack/dlpack.h> for them. For
 * bindings that come without that file, the types gd_dl_... below have the same layout.
 *
 * Streams: work on a GPU is queued, so the memory may be written or read after the call that shares
 * it. The option .stream is the stream of the other library (a cudaStream_t as an integer; 0 and 1:
 * the legacy default stream, 2: that of the thread, GD_NO_STREAM: the program orders the work
 * itself). gd_to_dlpack makes the stream wait for the work that computes x; gd_from_dlpack makes
 * Gradus wait for the stream. On the CPU it has no meaning.
 *
 * A tensor of another library that is freed stays alive until the kernels that use it are done. The
 * other direction is up to the other library: before it frees a tensor of Gradus, its work on it
 * must be done, or ordered before that of Gradus by the default stream.
 */
#ifndef GRADUS_DLPACK_H
#define GRADUS_DLPACK_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/options.h"
#include "gradus/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

struct DLManagedTensorVersioned; /* of DLPack 1.0 and later */
struct DLManagedTensor;          /* before */

#define GD_NO_STREAM (-1)

/* --- to other libraries ----------------------------------------------------------------------- */

typedef struct gd_to_dlpack_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t stream GD_DEFAULT_(0);
    bool copy GD_DEFAULT_(false);           /* of the elements, which then belong to the receiver */
    gd_device *device GD_DEFAULT_(nullptr); /* a copy if the tensor is on another one */
} GD_GIVEN_BY_NAME_ gd_to_dlpack_options;
#define GD_TO_DLPACK_OPTIONS_(...) \
    GD_OPTIONS_(gd_to_dlpack_options, (.stream = 0, .copy = false, .device = NULL), __VA_ARGS__)

/* The receiver calls the deleter of the result once, or the program does. NULL if it fails: the
 * tensor requires a gradient (gd_detach it), has no data, or is on a device that cannot share. */
#define gd_to_dlpack(t, ...) \
    GD_WITH_OPTIONS_(gd_to_dlpack_at(GD_HERE, t, GD_TO_DLPACK_OPTIONS_(__VA_ARGS__)))
GD_API struct DLManagedTensorVersioned *gd_to_dlpack_at(const char *site, gd_tensor *t,
                                                        const gd_to_dlpack_options *options);

/* The same for receivers older than DLPack 1.0. That form cannot say that memory is read-only, so
 * such tensors fail. */
#define gd_to_dlpack_unversioned(t, ...) \
    GD_WITH_OPTIONS_(gd_to_dlpack_unversioned_at(GD_HERE, t, GD_TO_DLPACK_OPTIONS_(__VA_ARGS__)))
GD_API struct DLManagedTensor *gd_to_dlpack_unversioned_at(const char *site, gd_tensor *t,
                                                           const gd_to_dlpack_options *options);

/* --- from other libraries --------------------------------------------------------------------- */

/* Memory on the CPU with negative strides, or at an address that is not a multiple of the element
 * size, can only be copied. */
typedef enum gd_copy_mode {
    GD_COPY_NEVER,     /* fails where the memory cannot be shared */
    GD_COPY_IF_NEEDED, /* copies there */
    GD_COPY_ALWAYS,
} gd_copy_mode;

typedef struct gd_from_dlpack_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t stream GD_DEFAULT_(0);
    gd_copy_mode copy GD_DEFAULT_(GD_COPY_NEVER);
} GD_GIVEN_BY_NAME_ gd_from_dlpack_options;
#define GD_FROM_DLPACK_OPTIONS_(...) \
    GD_OPTIONS_(gd_from_dlpack_options, (.stream = 0, .copy = GD_COPY_NEVER), __VA_ARGS__)

/* Takes over `m`: its deleter is called when the last reference to the memory is released, or at
 * once after a copy. If the call fails, the caller still owns it. Tensors of read-only memory
 * (gd_tensor_is_read_only) fail where they would be written. */
#define gd_from_dlpack(m, ...) \
    GD_WITH_OPTIONS_(gd_from_dlpack_at(GD_HERE, m, GD_FROM_DLPACK_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_from_dlpack_at(const char *site, struct DLManagedTensorVersioned *m,
                                    const gd_from_dlpack_options *options);
#define gd_from_dlpack_unversioned(m, ...) \
    GD_WITH_OPTIONS_(                      \
        gd_from_dlpack_unversioned_at(GD_HERE, m, GD_FROM_DLPACK_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_from_dlpack_unversioned_at(const char *site, struct DLManagedTensor *m,
                                                const gd_from_dlpack_options *options);

/* --- for bindings ----------------------------------------------------------------------------- */

enum { GD_DL_MAJOR = 1, GD_DL_MINOR = 3 };
enum { GD_DL_CPU = 1, GD_DL_CUDA = 2, GD_DL_CUDA_HOST = 3, GD_DL_CUDA_MANAGED = 13 };
enum { GD_DL_INT = 0, GD_DL_UINT = 1, GD_DL_FLOAT = 2, GD_DL_BFLOAT = 4, GD_DL_COMPLEX = 5 };
enum { GD_DL_BOOL = 6, GD_DL_READ_ONLY = 1, GD_DL_IS_COPIED = 2 };

typedef struct gd_dl_device {
    int32_t type, number;
} gd_dl_device;

typedef struct gd_dl_tensor { /* DLTensor */
    void *data;
    gd_dl_device device;
    int32_t rank;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *dims, *strides; /* strides in elements; NULL: row-major */
    uint64_t byte_offset;
} gd_dl_tensor;

typedef struct gd_dl_managed { /* DLManagedTensorVersioned */
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct gd_dl_managed *self);
    uint64_t flags;
    gd_dl_tensor tensor;
} gd_dl_managed;

typedef struct gd_dl_unversioned { /* DLManagedTensor */
    gd_dl_tensor tensor;
    void *context;
    void (*deleter)(struct gd_dl_unversioned *self);
} gd_dl_unversioned;

/* Describes a tensor without taking a reference: everything is valid as long as the tensor is, and
 * no stream waits. */
#define gd_dl_describe(...) gd_dl_describe_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_dl_describe_at(const char *site, gd_tensor *t, gd_dl_tensor *to);

/* The dtype of the elements of a foreign tensor; GD_DTYPE_NONE, a failure, if there is none here. */
#define gd_dl_dtype_of(...) gd_dl_dtype_of_at(GD_HERE, __VA_ARGS__)
GD_API gd_dtype gd_dl_dtype_of_at(const char *site, const gd_dl_tensor *t);

/* DLPack's numbers of a device, and the device that has them; the first CUDA device loads the
 * backend. A failure returns {0, 0} or NULL. */
#define gd_dl_device_of(...) gd_dl_device_of_at(GD_HERE, __VA_ARGS__)
GD_API gd_dl_device gd_dl_device_of_at(const char *site, const gd_device *device);
#define gd_dl_find_device(...) gd_dl_find_device_at(GD_HERE, __VA_ARGS__)
GD_API gd_device *gd_dl_find_device_at(const char *site, gd_dl_device device);

/* The stream on which Gradus computes on a device, for the other library; 0 on the CPU. */
GD_API int64_t gd_device_stream(const gd_device *device);

#ifdef __cplusplus
}
#endif
#endif
