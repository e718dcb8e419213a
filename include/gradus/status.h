/* status.h - errors: status codes, the recorded failure of a thread, and the log.
 *
 * The library never aborts, exits or prints. One rule holds for every call:
 *
 *     A call that fails records its failure for this thread. The first failure stays recorded until
 *     gd_clear_error(), so a program checks once, at the end, with gd_failed().
 *
 * What a failed call returns depends only on its type:
 *
 *   - a tensor: an error tensor. An op with an error tensor among its inputs returns an error
 *     tensor, so a chain of calls needs no checks.
 *   - a list of tensors: a list of error tensors. It has the requested length, or GD_FAILED_COUNT
 *     entries if the length is unknown, so list.at[0] always exists.
 *   - any other object: NULL, which every function accepts.
 *   - gd_status: the status, which is also recorded.
 *
 * While a failure is recorded, calls that change state (gd_backward, gd_optimizer_step,
 * gd_session_run, gd_jit_call, saving a file) do nothing and return the recorded failure. A program
 * that expects a failure (a file that may not exist) checks the result and calls gd_clear_error().
 *
 * gd_error_message() describes the failure: the op, the shapes of its arguments, what would fit,
 * and the file and line of the call.
 *
 * Two kinds of calls record nothing. Lookups and queries (gd_op_find, gd_graph_find, gd_tensor_dim,
 * gd_npz_has, ...) return NULL, 0 or false if there is no such thing, which is not a failure. Calls
 * for the rules of an op (gd_op_fail, gd_infer_outputs, gd_kernel_output of extend.h) report to the
 * call of that op, which records the failure.
 */
#ifndef GRADUS_STATUS_H
#define GRADUS_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define GD_API                     __attribute__((visibility("default")))
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
    GD_E_DTYPE,       /* the op does not support this element type */
    GD_E_DEVICE,      /* tensors on different devices, or a device that does not exist */
    GD_E_INDEX,       /* an axis or an index out of range */
    GD_E_OVERFLOW,    /* a size that does not fit 63 bits */
    GD_E_MEMORY,      /* out of memory */
    GD_E_UNSUPPORTED, /* a valid request that this build, device or op does not support */
    GD_E_STATE,  /* wrong state: backward twice, an overwritten saved value, data of a symbol */
    GD_E_IO,     /* the operating system could not read or write */
    GD_E_FORMAT, /* a file that is damaged or of another format */
} gd_status;

/* The name of a status, such as "GD_E_SHAPE". */
GD_API const char *gd_status_name(gd_status status);

/* The length of the list that a failed call returns if the requested length is unknown. */
enum { GD_FAILED_COUNT = 8 };

/* True when a call has failed on this thread since the last clear. */
GD_API bool gd_failed(void);

/* The recorded status of this thread: the status of the first call that failed, or GD_OK. */
GD_API gd_status gd_error_status(void);

/* The message of the recorded failure, or "". The text belongs to the library and is valid until
 * the thread's next gradus call. */
GD_API const char *gd_error_message(void);

/* Records a failure from code of the program that the library calls: a module's forward function, a
 * kernel, a rule of an op, a dataset, a callback. The call that runs this code then fails with this
 * message, to which it adds where it was: the path of the module, the op and its shapes, the number
 * of the sample.
 *
 *     static gd_status epoch_end(gd_event *event, void *self) {
 *         if (!upload(event->epoch)) return gd_raise(GD_E_IO, "the upload has failed");
 *         ...
 *
 * Returns `status`; GD_OK counts as GD_E_STATE. A function without a status returns as after any
 * failed call, with an empty list, NULL or 0. If a failure is recorded already, that one stays. */
#define gd_raise(...) gd_raise_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_raise_at(const char *site, gd_status status, const char *format, ...)
    GD_PRINTF(3, 4);

/* Clears the recorded failure, so that calls that change state work again. */
GD_API void gd_clear_error(void);

/* --- log -------------------------------------------------------------------------------------- */

typedef enum gd_log_level { GD_LOG_DEBUG, GD_LOG_INFO, GD_LOG_WARNING, GD_LOG_ERROR } gd_log_level;
typedef void (*gd_log_fn)(gd_log_level level, const char *message, void *user);

/* Sends all log messages of the library to `fn`; NULL (the default) drops them. May be called from
 * any thread; `fn` must be safe to call from any thread. */
GD_API void gd_set_log(gd_log_fn fn, void *user);

/* --- source locations ------------------------------------------------------------------------- */

/* Calls pass their source location ("train.c:42") for error messages: gd_item(t) is a macro for
 * gd_item_at(GD_HERE, t). Bindings call the functions behind the macros and pass a location of the
 * user's program, or NULL. */
#define GD_STRING_(x) #x
#define GD_STRING(x)  GD_STRING_(x)
#ifdef GD_BUILDING /* inside the library: messages name the line of the program's call instead */
#define GD_HERE ((const char *)0)
#else
#define GD_HERE __FILE__ ":" GD_STRING(__LINE__)
#endif

#ifdef __cplusplus
}
#endif
#endif
