/* profiler.h - time and memory of kernels, and anomaly mode, which finds the first NaN.
 *
 *     gd_profiler_start();
 *     train_one_epoch();
 *     gd_profiler_stop();
 *     gd_profiler_table(stdout);               // one line for each op and kernel, slowest first
 *     gd_profiler_save_trace("trace.json");    // for chrome://tracing or ui.perfetto.dev
 *
 * Every kernel between start and stop is measured, on all threads, including those of backward. On
 * an asynchronous device the times are those of the device, from events around each call; plans run
 * call by call instead of as one captured graph, so a program is slower while profiled. (A device
 * without such events is waited for after each kernel.) While the profiler is off, an op only reads
 * a flag.
 *
 * All functions may be called from any thread.
 */
#ifndef GRADUS_PROFILER_H
#define GRADUS_PROFILER_H

#include <stdio.h>

#include "gradus/scope.h"
#include "gradus/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Clears earlier measurements and starts. */
GD_API gd_status gd_profiler_start(void);
/* The same, except that a captured plan runs as usual and counts as one call, of the op "plan". The
 * program keeps its speed, so the table's total shows how long the device works. */
GD_API gd_status gd_profiler_start_plans(void);
GD_API void gd_profiler_stop(void);
GD_API bool gd_profiler_is_on(void);
/* Frees the measurements. */
GD_API void gd_profiler_clear(void);

/* The sums over all calls of one kernel of one op. `kernel` has what the kernel says about its calls,
 * such as the algorithm of a library, or a tile: "tiled: tiles 64x32, 4 parts". Calls for which it says
 * something else have a row of their own. */
typedef struct gd_profile_row {
    const char *op, *kernel, *device;
    int64_t calls;
    double total_ms;
    int64_t bytes;      /* read and written by all calls */
    int64_t live_bytes; /* the most bytes of live tensors on the device after a call */
} gd_profile_row;

/* Row i of the table, slowest first. Returns false beyond the last. */
GD_API bool gd_profiler_row(int64_t i, gd_profile_row *row);

/* Writes the rows as a table. */
GD_API gd_status gd_profiler_table(FILE *stream);

/* Writes every call with its time, thread, bytes and live memory as a trace file of Chrome's
 * format. The first million calls are kept; the table counts all. */
GD_API gd_status gd_profiler_save_trace(const char *path);

/* Adds a named span to the trace that covers the rest of the block:
 *     GD_PROFILE("forward");
 * The name must stay valid until the trace is saved. */
#define GD_PROFILE(name)                                                                  \
    __attribute__((cleanup(gd_profile_span_end), unused)) gd_profile_span GD_SCOPE_NAME_( \
        __COUNTER__) = gd_profile_span_begin(name)
typedef struct gd_profile_span {
    const char *name;
    int64_t started;
} gd_profile_span;
GD_API gd_profile_span gd_profile_span_begin(const char *name);
GD_API void gd_profile_span_end(gd_profile_span *span);

/* --- anomaly mode ----------------------------------------------------------------------------- */

/* In anomaly mode every op checks its floating-point results and fails if one has a NaN. The
 * message names the op, the shapes of its inputs, the location of the call, and whether an input
 * already had a NaN. Slow; affects the process. */
GD_API void gd_set_anomaly_mode(bool on);
GD_API bool gd_anomaly_mode(void);

#ifdef __cplusplus
}
#endif
#endif
