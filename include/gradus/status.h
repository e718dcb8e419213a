/* status.h - what can go wrong, and how a program learns of it.
 *
 * The library never aborts, exits or prints. A call reports failure in one of two ways:
 *
 *   - A call that returns an object (a tensor, a list of tensors) returns an error object and
 *     records the failure for this thread. Error tensors pass through further ops untouched, so a
 *     chain of calls is checked once, at its end, with gd_failed(). The record stays until
 *     gd_clear_error(); while it is set, whatever changes state (gd_backward, ...) does nothing
 *     and returns the recorded status.
 *   - A call that returns a gd_status reports there, and nothing sticks.
 *
 * Either way gd_error_message() says what happened: the op, the arguments' shapes, what would
 * fit, and the file and line of the call.
 */
#ifndef GRADUS_STATUS_H
#define GRADUS_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define GD_API __attribute__((visibility("default")))
#define GD_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))
#else
#error "gradus needs gcc or clang"
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gd_status {
    GD_OK = 0,
    GD_E_ARGUMENT,    /* an argument or attribute is missing or has a value that makes no sense */
    GD_E_SHAPE,       /* ranks or sizes do not fit together */
    GD_E_DTYPE,       /* the op does not know this element type */
    GD_E_DEVICE,      /* tensors on different devices, or a device that is not there */
    GD_E_INDEX,       /* an axis or an index out of range */
    GD_E_OVERFLOW,    /* a size that does not fit 63 bits */
    GD_E_MEMORY,      /* no memory left */
    GD_E_UNSUPPORTED, /* a valid request that this build, device or op cannot serve */
    GD_E_STATE,       /* not now: backward twice, an overwritten saved value, a symbol read as data */
    GD_E_IO,          /* the operating system refused to read or write */
    GD_E_FORMAT,      /* a file that is not what it claims to be */
} gd_status;

/* The name of a status, such as "GD_E_SHAPE". */
GD_API const char *gd_status_name(gd_status status);

/* True when a call that returns an object has failed on this thread since the last clear. */
GD_API bool gd_failed(void);

/* The recorded status of this thread: that of the first failed object call, or GD_OK. */
GD_API gd_status gd_error_status(void);

/* What happened: the recorded failure if there is one, else the latest failed status call, else
 * "". The text belongs to the library and is valid until the thread's next gradus call. */
GD_API const char *gd_error_message(void);

/* Forgets the recorded failure, so that state-changing calls work again. */
GD_API void gd_clear_error(void);

/* --- log ------------------------------------------------------------------------------------ */

typedef enum gd_log_level { GD_LOG_DEBUG, GD_LOG_INFO, GD_LOG_WARNING, GD_LOG_ERROR } gd_log_level;
typedef void (*gd_log_fn)(gd_log_level level, const char *message, void *user);

/* All notices of the library go to `fn`; NULL (the default) drops them. May be called from any
 * thread; `fn` must be safe to call from any thread. */
GD_API void gd_set_log(gd_log_fn fn, void *user);

/* --- where a call stands -------------------------------------------------------------------- */

/* Every op call carries the place it was written at ("train.c:42"), for error messages. */
#define GD_STRING_(x) #x
#define GD_STRING(x) GD_STRING_(x)
#define GD_HERE __FILE__ ":" GD_STRING(__LINE__)

#ifdef __cplusplus
}
#endif
#endif
