/* threads.h - how many threads the CPU kernels use.
 *
 * Results do not depend on the number of threads: every kernel splits its work by shapes alone. The
 * thread pool is created at first use. Several host threads may call the library at the same time:
 * one of them uses the pool, and the others compute on their own thread. Workers avoid the
 * processor on which the caller runs if their affinity mask has another. The caller's mask is never
 * changed.
 *
 * fork(): the library is usable in the child, whatever other threads of the parent were doing. The
 * child creates the pool again at first use, and again builds plans, kernels and gradients that
 * another thread had not finished. A fork waits up to 2 seconds for session and jit runs that
 * write, so that the child has complete variables. If a run takes longer, calls of that session or
 * jit fail in the child. Devices other than the CPU that the parent has opened (gd_device_get) fail
 * there; the child can open others.
 *
 * Stack: a thread that calls the library needs 64 KiB. Gradients of branches and loops that nest
 * more than eight levels deep may need more (20 levels: 128 KiB); if too little is left, the call
 * fails with GD_E_MEMORY. Kernels keep tiles in up to 1 MiB of memory for each thread, which is
 * mapped at first use.
 */
#ifndef GRADUS_THREADS_H
#define GRADUS_THREADS_H

#include "gradus/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the number of threads, including the caller, at most 256; n <= 0 means one for each core.
 * The default is the environment variable GRADUS_NUM_THREADS, or one thread for each core. */
GD_API gd_status gd_set_num_threads(int n);

GD_API int gd_num_threads(void);

#ifdef __cplusplus
}
#endif
#endif
