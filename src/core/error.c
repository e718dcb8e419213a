/* error.c - the thread's latest and its recorded failure, and the log. */
#include "core/error.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/number.h"
#include "core/thread.h"

const char *gd_status_name(gd_status status) {
    switch (status) {
    case GD_OK: return "GD_OK";
    case GD_E_ARGUMENT: return "GD_E_ARGUMENT";
    case GD_E_SHAPE: return "GD_E_SHAPE";
    case GD_E_DTYPE: return "GD_E_DTYPE";
    case GD_E_DEVICE: return "GD_E_DEVICE";
    case GD_E_INDEX: return "GD_E_INDEX";
    case GD_E_OVERFLOW: return "GD_E_OVERFLOW";
    case GD_E_MEMORY: return "GD_E_MEMORY";
    case GD_E_UNSUPPORTED: return "GD_E_UNSUPPORTED";
    case GD_E_STATE: return "GD_E_STATE";
    case GD_E_IO: return "GD_E_IO";
    case GD_E_FORMAT: return "GD_E_FORMAT";
    }
    return "unknown status";
}

gd_status gd_fail(gd_status status, const char *format, ...) {
    gd_thread *thread = &gd_this_thread;
    char text[GD_MESSAGE_MAX]; /* the arguments may point into the old message */
    va_list args;
    va_start(args, format);
    gd_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(thread->latest_text, text, sizeof text);
    thread->latest = status;
    thread->latest_placed = thread->latest_within = thread->raised = false;
    return status;
}

gd_status gd_raise_at(const char *site, gd_status status, const char *format, ...) {
    char text[GD_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    gd_vsnprintf(text, sizeof text, format ? format : "a function of the program has failed", args);
    va_end(args);
    gd_thread *thread = &gd_this_thread;
    const bool first = thread->recorded == GD_OK;
    status = gd_report(site, gd_fail(status == GD_OK ? GD_E_STATE : status, "%s", text));
    thread->raised = first;
    return status;
}

void gd_unrecord_raised(void) {
    gd_thread *thread = &gd_this_thread;
    if (thread->raised) thread->recorded = GD_OK;
    thread->raised = false;
}

gd_status gd_no_memory(const char *place, const char *purpose) {
    return place ? gd_fail(GD_E_MEMORY, "%s: no memory %s", place, purpose)
                 : gd_fail(GD_E_MEMORY, "no memory %s", purpose);
}

gd_status gd_check_list_option(const void *at, int64_t count, const char *option,
                               const char *fits) {
    if (at && count < 0)
        return gd_fail(GD_E_ARGUMENT, "%s is an array without a count; write %s", option, fits);
    if (!at && count > 0)
        return gd_fail(GD_E_ARGUMENT, "%s is NULL with a count of %lld; write %s", option,
                       (long long)count, fits);
    return GD_OK;
}

void gd_error_prefix(const char *format, ...) {
    gd_thread *thread = &gd_this_thread;
    char text[GD_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    int n = gd_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || n >= GD_MESSAGE_MAX) return;
    size_t rest = strnlen(thread->latest_text, sizeof text - 1 - (size_t)n);
    memcpy(text + n, thread->latest_text, rest);
    text[(size_t)n + rest] = 0;
    memcpy(thread->latest_text, text, sizeof text);
}

void gd_error_suffix(const char *format, ...) {
    gd_thread *thread = &gd_this_thread;
    size_t used = strlen(thread->latest_text);
    char text[GD_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    gd_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(thread->latest_text + used, GD_MESSAGE_MAX - used, "%s", text);
}

void gd_error_location(const char *site) {
    gd_thread *thread = &gd_this_thread;
    if (!site || thread->latest_placed) return;
    gd_error_suffix(" (%s)", site);
    thread->latest_placed = true;
}

void gd_error_record(gd_status status) {
    gd_thread *thread = &gd_this_thread;
    if (thread->recorded != GD_OK) return;
    gd_error_location(thread->site);
    thread->recorded = status;
    thread->recorded_placed = thread->latest_placed;
    thread->recorded_within = thread->latest_within;
    memcpy(thread->recorded_text, thread->latest_text, GD_MESSAGE_MAX);
}

void gd_error_within(const char *path) {
    gd_thread *thread = &gd_this_thread;
    if (thread->recorded == GD_OK || thread->recorded_within) return;
    char text[GD_MESSAGE_MAX];
    snprintf(text, sizeof text, "%.500s: ", path);
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s", thread->recorded_text);
    memcpy(thread->recorded_text, text, sizeof text);
    thread->recorded_within = true;
}

gd_status gd_report(const char *site, gd_status status) {
    if (status == GD_OK) return GD_OK;
    gd_error_location(site);
    gd_error_record(status);
    return status;
}

gd_status gd_failure(void) {
    gd_thread *thread = &gd_this_thread;
    if (thread->recorded != GD_OK) {
        thread->latest = thread->recorded;
        thread->latest_placed = thread->recorded_placed;
        thread->latest_within = thread->recorded_within;
        memcpy(thread->latest_text, thread->recorded_text, GD_MESSAGE_MAX);
    }
    return thread->latest != GD_OK
               ? thread->latest
               : gd_fail(GD_E_STATE, "the result of a call that failed earlier");
}

gd_status gd_returned(const char *what, gd_status status) {
    if (gd_failed()) return gd_failure();
    return status == GD_OK ? GD_OK
                           : gd_fail(status, "%s returned %s", what, gd_status_name(status));
}

void gd_attempt_begin(gd_attempt *attempt) {
    gd_thread *thread = &gd_this_thread;
    attempt->before = thread->recorded;
    attempt->before_placed = thread->recorded_placed;
    attempt->before_within = thread->recorded_within;
    attempt->before_text = thread->recorded != GD_OK ? strdup(thread->recorded_text) : NULL;
    thread->recorded = GD_OK;
    thread->attempts++;
}

gd_status gd_attempt_end(gd_attempt *attempt, gd_status status) {
    gd_thread *thread = &gd_this_thread;
    if (status == GD_OK && thread->recorded != GD_OK) status = gd_failure();
    thread->recorded = attempt->before;
    thread->recorded_placed = attempt->before_placed;
    thread->recorded_within = attempt->before_within;
    if (attempt->before != GD_OK)
        snprintf(thread->recorded_text, GD_MESSAGE_MAX, "%s",
                 attempt->before_text ? attempt->before_text : gd_status_name(attempt->before));
    free(attempt->before_text);
    thread->raised = false;
    thread->attempts--;
    return status;
}

bool gd_failed(void) { return gd_this_thread.recorded != GD_OK; }

gd_status gd_error_status(void) { return gd_this_thread.recorded; }

const char *gd_error_message(void) {
    gd_thread *thread = &gd_this_thread;
    return thread->recorded != GD_OK ? thread->recorded_text : "";
}

const char *gd_latest_failure(void) { return gd_this_thread.latest_text; }

void gd_clear_error(void) {
    gd_thread *thread = &gd_this_thread;
    thread->recorded = thread->latest = GD_OK;
    thread->recorded_text[0] = thread->latest_text[0] = 0;
    thread->latest_placed = thread->raised = false;
}

/* --- log -------------------------------------------------------------------------------------- */

static _Atomic(gd_log_fn) log_fn;
static _Atomic(void *) log_user;

void gd_set_log(gd_log_fn fn, void *user) {
    atomic_store(&log_user, user);
    atomic_store(&log_fn, fn);
}

void gd_notice(gd_log_level level, const char *format, ...) {
    gd_log_fn fn = atomic_load(&log_fn);
    if (!fn) return;
    char text[GD_MESSAGE_MAX], *whole = NULL;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int length = gd_vsnprintf(text, sizeof text, format, args);
    if (length >= GD_MESSAGE_MAX && (whole = malloc((size_t)length + 1)))
        gd_vsnprintf(whole, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
    fn(level, whole ? whole : text, atomic_load(&log_user));
    free(whole);
}
