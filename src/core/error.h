/* error.h - how the library's own code reports failure.
 *
 * gd_fail() keeps status and message as the thread's latest failure and returns the status, so that a
 * function can say `return gd_fail(GD_E_SHAPE, "...")`. It becomes the recorded failure (gd_failed())
 * at the public boundary, by gd_report() or gd_error_stick(). A public function that library code
 * needs as well has an inner one that does not record, since its caller may recover.
 */
#ifndef GRADUS_CORE_ERROR_H
#define GRADUS_CORE_ERROR_H

#include "gradus/status.h"

#define GD_TRY(call)                                  \
    do {                                              \
        gd_status try_status_ = (call);               \
        if (try_status_ != GD_OK) return try_status_; \
    } while (0)

/* Records a failure. The first GD_MESSAGE_MAX bytes of the message are kept. Returns `status`. */
enum { GD_MESSAGE_MAX = 1024 };
gd_status gd_fail(gd_status status, const char *format, ...) GD_PRINTF(2, 3);

/* gd_fail(GD_E_MEMORY, "PLACE: no memory PURPOSE"). `place` is a file or folder, or NULL. */
gd_status gd_no_memory(const char *place, const char *purpose);

/* The latest message, recorded or not. */
const char *gd_latest_failure(void);

/* Prefixes the latest message, e.g. with the op's name and the caller's place. */
void gd_error_prefix(const char *format, ...) GD_PRINTF(1, 2);

/* Appends to the latest message. */
void gd_error_suffix(const char *format, ...) GD_PRINTF(1, 2);

/* Appends " (train.c:42)", unless the latest message has such a place already. site may be NULL. */
void gd_error_place(const char *site);

/* Makes the latest failure the recorded one of this thread, unless one is recorded already. Without a
 * place it gets that of the public call that is running (gd_site_begin). */
void gd_error_stick(gd_status status);

/* Puts the path of a module before the recorded message, unless one is there. */
void gd_error_within(const char *path);

/* The end of a public function that returns a status: a failure gets its place and is recorded. */
gd_status gd_report(const char *site, gd_status status);

/* The failure behind an error tensor that a call has just returned: the recorded one, which becomes
 * the noted one again, or else the noted one. Never GD_OK. */
gd_status gd_failure(void);

/* A stretch of calls whose failures are one status: the rule of an op, a walk back. Inside, the
 * first failure of a call that returns an object is recorded as it is everywhere, and from then on
 * ops do not run: they return error tensors. What was recorded before is put aside. At the end
 * nothing of it has stuck, and a failure that the stretch did not notice itself (`status` is GD_OK)
 * is its own.
 *
 *     gd_attempt attempt;
 *     gd_attempt_begin(&attempt);
 *     gd_status status = ...;
 *     status = gd_attempt_end(&attempt, status);
 */
typedef struct gd_attempt {
    gd_status before;
    bool before_placed, before_within;
    char *
        before_text; /* on the heap, since attempts nest; NULL: nothing was recorded, or no memory */
} gd_attempt;
void gd_attempt_begin(gd_attempt *attempt);
gd_status gd_attempt_end(gd_attempt *attempt, gd_status status);

void gd_notice(gd_log_level level, const char *format, ...) GD_PRINTF(2, 3);

#endif
