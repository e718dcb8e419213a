/* softmax.h - the kernels of softmax.c, for other ops of rows. */
#ifndef GRADUS_OPS_SOFTMAX_CUDA_SOFTMAX_H
#define GRADUS_OPS_SOFTMAX_CUDA_SOFTMAX_H

#include "backend/cuda/kernels.h"
#include "ops/softmax/cuda/softmax_args.h"

/* log(sum of exp(x)) of each line of x (outer, n, inner); the caller sets these fields of p, its dtype,
 * x and out. */
gd_status gd_cuda_queue_logsumexp(const gd_kernel_call *call, gd_cuda_softmax *p);
/* How the lines of p are computed, as text. */
void gd_cuda_describe_softmax(gd_cuda_softmax p, char *text, size_t size);

#endif
