/* kernels.h - how kernels of the test device are written.
 *
 * A kernel is a body that runs on the worker of the compute queue, on a copy of the call in which
 * handles have become addresses. Most have the flag GD_KERNEL_DOUBLE: they see row-major f64 and i64
 * alone. The tables of all files are joined in kernels.c.
 */
#ifndef GRADUS_TEST_KERNELS_H
#define GRADUS_TEST_KERNELS_H

#include "backend/test/element.h"
#include "backend/test/queue.h"
#include "gradus/ops.h"

typedef void (*test_body)(gd_kernel_call *call);

/* Queues the body of the call's kernel. */
gd_status test_kernel_run(gd_kernel_call *call);

/* --- bodies ----------------------------------------------------------------------------------- */

void test_copy(gd_kernel_call *call);
void test_elementwise(gd_kernel_call *call);
void test_matmul(gd_kernel_call *call);
void test_sum(gd_kernel_call *call);

#endif
