/* error.h - how the library's own code reports failure.
 *
 * gd_fail() notes status and message for this thread and returns the status, so that a function
 * can say `return gd_fail(GD_E_SHAPE, "...")`. Whether the failure sticks is decided at the public
 * boundary: functions that return objects call gd_error_stick().
 */
#ifndef GRADUS_CORE_ERROR_H
#define GRADUS_CORE_ERROR_H

#include "gradus/status.h"

#define GD_TRY(call)                          \
    do {                                      \
        gd_status try_status_ = (call);       \
        if (try_status_ != GD_OK) return try_status_; \
    } while (0)

/* Notes a failure. The first GD_MESSAGE_MAX bytes of the message are kept. Returns `status`. */
enum { GD_MESSAGE_MAX = 1024 };
gd_status gd_fail(gd_status status, const char *format, ...) GD_PRINTF(2, 3);

/* Prefixes the noted message, e.g. with the op's name and the caller's place. */
void gd_error_prefix(const char *format, ...) GD_PRINTF(1, 2);

/* Appends to the noted message. */
void gd_error_suffix(const char *format, ...) GD_PRINTF(1, 2);

/* Makes the noted failure the recorded one of this thread, unless one is recorded already. */
void gd_error_stick(gd_status status);

void gd_notice(gd_log_level level, const char *format, ...) GD_PRINTF(2, 3);

#endif
