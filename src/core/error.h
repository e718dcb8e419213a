/* error.h - how library code reports failures.
 *
 * gd_fail() stores status and message as the thread's latest failure and returns the status:
 * `return gd_fail(GD_E_SHAPE, "...")`. Public functions make it the recorded failure (gd_failed())
 * with gd_report() or gd_error_record(). A public function that library code also needs has an
 * internal version that does not record, because its caller may recover.
 */
#ifndef GRADUS_CORE_ERROR_H
#define GRADUS_CORE_ERROR_H

#include "gradus/status.h"

/* The compiler moves paths that call such a function away from the others, so that small ops need
 * fewer cache lines of code. */
#define GD_COLD __attribute__((cold))

#define GD_TRY(call)                                                       \
    do {                                                                   \
        gd_status try_status_ = (call);                                    \
        if (__builtin_expect(try_status_ != GD_OK, 0)) return try_status_; \
    } while (0)

/* Sets the latest failure; its message is truncated to GD_MESSAGE_MAX bytes. Returns `status`. */
enum { GD_MESSAGE_MAX = 1024 };
GD_COLD gd_status gd_fail(gd_status status, const char *format, ...) GD_PRINTF(2, 3);

/* gd_fail(GD_E_MEMORY, "PLACE: no memory PURPOSE"). `place` is a file or folder, or NULL. */
GD_COLD gd_status gd_no_memory(const char *place, const char *purpose);

/* The latest message, recorded or not. */
const char *gd_latest_failure(void);

/* Fails if an option that is a list, at[count], is an array without a count, or a count without an
 * array. `fits` says how a list is written: "gd_callbacks(a, b)". Not given: NULL and -1. */
gd_status gd_check_list_option(const void *at, int64_t count, const char *option, const char *fits);

/* Prefixes the latest message, for example with the name of the op. */
void gd_error_prefix(const char *format, ...) GD_PRINTF(1, 2);

/* Appends to the latest message. */
void gd_error_suffix(const char *format, ...) GD_PRINTF(1, 2);

/* Appends the source location " (train.c:42)", unless the latest message has one. site may be NULL.
 * */
void gd_error_location(const char *site);

/* Records the latest failure, unless another one is recorded. If its message has no location, the
 * location of the running public call (gd_site_begin) is added. */
void gd_error_record(gd_status status);

/* Prefixes the recorded message with the path of a module, unless it has one. */
void gd_error_within(const char *path);

/* For the end of a public function that returns a status: adds the location to a failure and
 * records it. */
gd_status gd_report(const char *site, gd_status status);

/* The failure behind an error tensor that a call has just returned: the recorded failure, which
 * becomes the latest one again, or else the latest one. Never GD_OK. */
gd_status gd_failure(void);

/* The outcome of a function of the program that returned `status`: the failure that it recorded, or
 * else "WHAT returned GD_E_...", because it left no message. */
gd_status gd_returned(const char *what, gd_status status);

/* Before the latest failure gets a prefix and is recorded: if gd_raise has recorded it without that
 * prefix, it no longer counts as recorded. */
void gd_unrecord_raised(void);

/* Calls whose failures are combined into one status: the rule of an op, a backward pass. Inside an
 * attempt the first failure of a public call is recorded as usual, and from then on ops do not run
 * but return error tensors. gd_attempt_end restores the failure that was recorded before, if any,
 * and returns `status`, or the failure recorded inside if `status` is GD_OK.
 *
 *     gd_attempt attempt;
 *     gd_attempt_begin(&attempt);
 *     gd_status status = ...;
 *     status = gd_attempt_end(&attempt, status);
 */
typedef struct gd_attempt {
    gd_status before;
    bool before_placed, before_within;
    char *before_text; /* on the heap, because attempts nest; NULL: no failure, or no memory */
} gd_attempt;
void gd_attempt_begin(gd_attempt *attempt);
gd_status gd_attempt_end(gd_attempt *attempt, gd_status status);

/* Sends a message of any length to the log. */
void gd_notice(gd_log_level level, const char *format, ...) GD_PRINTF(2, 3);

#endif
