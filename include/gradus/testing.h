/* testing.h - switches for tests of programs that must survive bad days. */
#ifndef GRADUS_TESTING_H
#define GRADUS_TESTING_H

#include "gradus/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lets n more allocations of the library succeed and makes the next fail (n = 0: the very next),
 * and all after that if `lasting`. A negative n takes the fault away. Whole process. */
GD_API void gd_fault_after(int64_t n, bool lasting);

/* Whether a fault is set; caches stand aside then, so that every allocation is a real one. */
GD_API bool gd_faults_armed(void);

/* Runs every op by its plain reference kernel, as GRADUS_KERNELS=reference does. Whole process. */
GD_API void gd_set_reference_kernels(bool on);

/* Runs every op that has a body in other ops as its body, as GRADUS_KERNELS=bodies does and as a
 * device without a kernel for it would. Affects the process. */
GD_API void gd_set_op_bodies(bool on);

/* How many allocations the library has asked for while a fault was set. */
GD_API int64_t gd_fault_allocations(void);

#ifdef __cplusplus
}
#endif
#endif
