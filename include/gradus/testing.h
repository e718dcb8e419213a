/* testing.h - switches for tests and benchmarks: failing allocations, reference kernels, op bodies and
 * kernels by name. They affect the process. */
#ifndef GRADUS_TESTING_H
#define GRADUS_TESTING_H

#include "gradus/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lets the next n allocations of the library succeed and the one after them fail; with `lasting`
 * all later ones fail as well. A negative n removes the fault. */
GD_API void gd_fault_after(int64_t n, bool lasting);

/* Whether a fault is set. Caches are bypassed then, so that every allocation reaches the system. */
GD_API bool gd_faults_armed(void);

/* Runs every op by its reference kernel, as GRADUS_KERNELS=reference does. */
GD_API void gd_set_reference_kernels(bool on);

/* Runs every op that has a body in other ops as its body, as GRADUS_KERNELS=bodies does and as a
 * device without a kernel for it would. */
GD_API void gd_set_op_bodies(bool on);

/* Runs calls of an op by its kernel of this name where that one matches, and otherwise by the next one,
 * as GRADUS_KERNELS=conv2d.gemm does. The texts must stay valid; NULL: no kernel is preferred. No other
 * thread may call ops meanwhile. */
GD_API void gd_set_kernel(const char *op, const char *kernel);

/* The number of allocations by the library while a fault was set. */
GD_API int64_t gd_fault_allocations(void);

#ifdef __cplusplus
}
#endif
#endif
