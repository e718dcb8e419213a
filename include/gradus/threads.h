/* threads.h - how many threads the CPU kernels use.
 *
 * The results do not depend on it: every kernel splits its work by shapes alone.
 * The pool is made at first use. Several host threads may call the library at once: one has the
 * pool, the others compute on their own thread. Workers keep off the processor on which the caller
 * runs, as far as their affinity mask leaves another; the caller's own mask is never touched.
 *
 * In the child of a fork() the library stays usable, whatever other threads were doing with it: the pool
 * is made anew at first use, and so are plans, kernels and gradients that another thread was making. A
 * fork waits up to 2 seconds for runs of sessions and jits that write to end, so that the child finds
 * complete variables; if one takes longer, calls of that session or jit fail in the child, and say so.
 *
 * Stack: 64 KiB are enough for a thread that calls the library, whatever it calls; only where branches and
 * loops nest more than eight levels deep may gradients need more (20 levels: 128 KiB), and then a call that
 * finds too little left fails with GD_E_MEMORY. Kernels keep their tiles in up to 1 MiB of memory for
 * each thread, mapped at first use and touched as far as needed.
 */
#ifndef GRADUS_THREADS_H
#define GRADUS_THREADS_H

#include "gradus/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the number of threads, the caller included; n <= 0 means one for each core (the default;
 * the environment variable GRADUS_NUM_THREADS sets another). At most 256. */
GD_API gd_status gd_set_num_threads(int n);

GD_API int gd_num_threads(void);

#ifdef __cplusplus
}
#endif
#endif
