/* kernels.h - how kernels of the CUDA backend are written.
 *
 * A kernel has two parts. NAME.cu has the code for the device, whose functions take one
 * struct by value (NAME_args.h). NAME.c has the host's functions, which fill the struct and
 * launch, below the blocks that register the kernels (CONTRIBUTING.md). Our own kernels check the error
 * word first, so all have the word `checked`.
 */
#ifndef GRADUS_BACKEND_CUDA_KERNELS_H
#define GRADUS_BACKEND_CUDA_KERNELS_H

#include "backend/cuda/view.h"
#include "backend/cuda/state.h"
#include "codegen/dialect_cuda.h"
#include "dispatch/kernel_files.h"

/* All kernels, in an array that stays valid (kernels.c). */
gd_status gd_cuda_collect_kernels(const gd_kernel **kernels, int *count);

static inline gd_cuda_view gd_cuda_view_of(const gd_view *v) {
    gd_cuda_view view = {.data = v->data, .dtype = (int)v->dtype, .rank = v->rank, .count = 1};
    for (int i = 0; i < v->rank; i++) {
        view.dims[i] = v->dims[i];
        view.strides[i] = v->strides[i];
        view.count *= v->dims[i];
    }
    return view;
}

static inline gd_cuda_call gd_cuda_call_of(const gd_kernel_call *call) {
    return (gd_cuda_call){gd_cuda_state_of(call->device)->word, call->number};
}

/* Whether f32 products of this call may compute in tf32: the program allows it, and the device's
 * tensor cores support it. `prepare` may depend on it. */
static inline bool gd_cuda_tf32(const gd_kernel_call *call) {
    return call->tf32 && gd_cuda_state_of(call->device)->capability >= 80;
}

/* Kernels check data while they write. That is right for new outputs: those of a failed call are never
 * read. Outputs that existed before the call must not change if it fails, so a kernel that only checks
 * runs first. */
static inline bool gd_cuda_checks_first(const gd_kernel_call *call) { return call->overwrites; }

static inline long long gd_cuda_count(const gd_view *v) {
    long long count = 1;
    for (int i = 0; i < v->rank; i++) count *= v->dims[i];
    return count;
}

static inline size_t gd_cuda_element_size(gd_dtype dtype) {
    switch (dtype) {
    case GD_F64:
    case GD_I64: return 8;
    case GD_F32:
    case GD_I32: return 4;
    case GD_F16:
    case GD_BF16: return 2;
    default: return 1;
    }
}

static inline bool gd_cuda_is_float(gd_dtype dtype) {
    return dtype == GD_F16 || dtype == GD_BF16 || dtype == GD_F32 || dtype == GD_F64;
}

/* f16 or bf16. */
static inline bool gd_cuda_is_narrow(gd_dtype dtype) { return dtype == GD_F16 || dtype == GD_BF16; }

/* The dtype in which kernels add floats of this one. */
static inline gd_dtype gd_cuda_wide_dtype(gd_dtype dtype) {
    return dtype == GD_F64 ? GD_F64 : GD_F32;
}

/* A kernel for each float dtype: its number in an array, and such an array of functions
 * BEFORE_f64AFTER, BEFORE_f32AFTER and so on. */
enum { GD_CUDA_IN_F64, GD_CUDA_IN_F32, GD_CUDA_IN_F16, GD_CUDA_IN_BF16, GD_CUDA_FLOATS };
static inline int gd_cuda_float_number(gd_dtype dtype) {
    return dtype == GD_F64   ? GD_CUDA_IN_F64
           : dtype == GD_F32 ? GD_CUDA_IN_F32
           : dtype == GD_F16 ? GD_CUDA_IN_F16
                             : GD_CUDA_IN_BF16;
}
#define GD_CUDA_FLOAT_KERNELS(image, before, after, shared_bytes)                             \
    {                                                                                         \
        [GD_CUDA_IN_F64] = GD_CUDA_KERNEL_SHARED(image, before "_f64" after, shared_bytes),   \
        [GD_CUDA_IN_F32] = GD_CUDA_KERNEL_SHARED(image, before "_f32" after, shared_bytes),   \
        [GD_CUDA_IN_F16] = GD_CUDA_KERNEL_SHARED(image, before "_f16" after, shared_bytes),   \
        [GD_CUDA_IN_BF16] = GD_CUDA_KERNEL_SHARED(image, before "_bf16" after, shared_bytes), \
    }

/* The largest power of two up to 16 that divides the number: the bytes that can be copied at once. */
static inline int gd_cuda_copy_unit(long long number) {
    int unit = 16;
    while (number % unit != 0) unit /= 2;
    return unit;
}

/* Whether 16 bytes can be read at once. */
static inline bool gd_cuda_is_aligned(const void *address) {
    return ((uintptr_t)address & 15) == 0;
}

/* For descriptions of calls: ", 1.2 MB workspace"; nothing if there is none. Returns `text`. */
const char *gd_cuda_workspace_text(size_t bytes, char *text, size_t size);

static inline bool gd_cuda_is_contiguous(const gd_view *v) {
    int64_t stride = 1;
    for (int i = v->rank; i-- > 0; stride *= v->dims[i])
        if (v->dims[i] > 1 && v->strides[i] != stride) return false;
    return true;
}

/* Launches a kernel whose threads loop over `count` items (EACH in element.cuh); nothing if
 * count is 0. */
gd_status gd_cuda_launch_each(gd_device *d, gd_cuda_kernel *kernel, long long count,
                              const void *arguments);

/* Queues a copy, with conversion, of `from`, which is broadcast to the shape of `to` (copy.c). */
gd_status gd_cuda_queue_copy(const gd_kernel_call *call, const gd_view *to, const gd_view *from);
/* The same for views of different shapes: the elements keep their row-major order. */
gd_status gd_cuda_queue_reshape(const gd_kernel_call *call, const gd_view *to, const gd_view *from);

#endif
