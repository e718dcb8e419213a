/* profiler.h - where time and memory go, and where the first NaN comes from.
 *
 *     gd_profiler_start();
 *     train_one_epoch();
 *     gd_profiler_stop();
 *     gd_profiler_table(stdout);               // one line for each op and kernel, slowest first
 *     gd_profiler_save_trace("trace.json");    // for chrome://tracing or ui.perfetto.dev
 *
 * Every kernel run between start and stop is measured, on all threads, those of backward included.
 * On a device that runs asynchronously each kernel is waited for, so a profiled program is slower
 * there. While nothing is profiled an op pays one read of a flag.
 *
 * All calls may be made from any thread.
 */
#ifndef GRADUS_PROFILER_H
#define GRADUS_PROFILER_H

#include <stdio.h>

#include "gradus/scope.h"
#include "gradus/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Forgets what was measured before and begins. */
GD_API gd_status gd_profiler_start(void);
GD_API void gd_profiler_stop(void);
GD_API bool gd_profiler_is_on(void);
/* Gives the memory of the measurements back. */
GD_API void gd_profiler_clear(void);

/* What one kernel of one op took in all. */
typedef struct gd_profile_row {
    const char *op, *kernel, *device;
    int64_t calls;
    double total_ms;
    int64_t bytes;      /* read and written by all calls */
    int64_t live_bytes; /* of the device's tensors after a call, at most */
} gd_profile_row;

/* The rows, slowest first. False for an i beyond the last. */
GD_API bool gd_profiler_row(int64_t i, gd_profile_row *row);

/* Writes the rows as a table. */
GD_API gd_status gd_profiler_table(FILE *stream);

/* Writes every call with its time, thread, bytes and live memory as a trace file of Chrome's
 * format. The first million calls are kept; the table counts all. */
GD_API gd_status gd_profiler_save_trace(const char *path);

/* For the rest of the block: a named span in the trace, around what is called in it.
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

/* While on, every op looks through its floating-point results and fails when there is a NaN in
 * one: the message names the op, its inputs' shapes, the place of the call, and whether an input
 * had one already. Slow: for finding out where a NaN comes from. Whole process. */
GD_API void gd_set_anomaly_mode(bool on);
GD_API bool gd_anomaly_mode(void);

#ifdef __cplusplus
}
#endif
#endif
