/* strided.h - copies between strided views of one dtype. */
#ifndef GRADUS_BACKEND_CUDA_STRIDED_H
#define GRADUS_BACKEND_CUDA_STRIDED_H

#include "backend/cuda/kernels.h"

/* Queues a copy of `from` to `to`, which has the same dtype; `from` is broadcast to the shape of
 * `to`, or, with `reshapes`, has the same elements in row-major order. False: the call is not
 * supported, and nothing was queued. */
bool gd_cuda_queue_strided(const gd_kernel_call *call, const gd_view *to, const gd_view *from,
                           bool reshapes, gd_status *status);

#endif
