/* status.h - what can go wrong, and how a program learns of it.
 *
 * The library never aborts, exits or prints. One rule holds for every call:
 *
 *     A call that fails records its failure for this thread. The first failure stays recorded until
 *     gd_clear_error(), so a program checks once, at the end, with gd_failed().
 *
 * What a failed call returns depends only on its type:
 *
 *   - a tensor: an error tensor. Ops pass it through untouched, so a chain of calls needs no checks.
 *   - a list of tensors: error tensors, as many as were asked for, or GD_FAILED_COUNT where the call
 *     cannot tell. So list.at[0] is always there.
 *   - any other object: NULL, which every function accepts.
 *   - gd_status: the status; it is recorded, too.
 *
 * While a failure is recorded, whatever changes state (gd_backward, gd_optimizer_step,
 * gd_session_run, gd_jit_call, saving a file) does nothing and returns the recorded failure. A
 * program that expects a failure (a file that need not be there) looks at the result and calls
 * gd_clear_error().
 *
 * gd_error_message() says what happened: the op, the arguments' shapes, what would fit, and the file
 * and line of the call.
 *
 * Two kinds of calls record nothing. Questions (gd_op_find, gd_graph_find, gd_tensor_dim,
 * gd_npz_has, ...) answer "there is none" with NULL, 0 or false, which is no failure. And what an op's
 * own rules call (gd_op_fail, gd_infer_outputs, gd_kernel_output of extend.h) reports to the call of
 * that op, which records it.
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
    GD_E_DTYPE,       /* the op does not know this element type */
    GD_E_DEVICE,      /* tensors on different devices, or a device that is not there */
    GD_E_INDEX,       /* an axis or an index out of range */
    GD_E_OVERFLOW,    /* a size that does not fit 63 bits */
    GD_E_MEMORY,      /* no memory left */
    GD_E_UNSUPPORTED, /* a valid request that this build, device or op cannot serve */
    GD_E_STATE,  /* not now: backward twice, an overwritten saved value, a symbol read as data */
    GD_E_IO,     /* the operating system refused to read or write */
    GD_E_FORMAT, /* a file that is not what it claims to be */
} gd_status;

/* The name of a status, such as "GD_E_SHAPE". */
GD_API const char *gd_status_name(gd_status status);

/* How many error tensors a failed list holds where the call cannot tell how many were asked for. */
enum { GD_FAILED_COUNT = 8 };

/* True when a call has failed on this thread since the last clear. */
GD_API bool gd_failed(void);

/* The recorded status of this thread: that of the first call that failed, or GD_OK. */
GD_API gd_status gd_error_status(void);

/* What happened in the call whose failure is recorded; "" where none is. The text belongs to the
 * library and is valid until the thread's next gradus call. */
GD_API const char *gd_error_message(void);

/* Forgets the recorded failure, so that state-changing calls work again. */
GD_API void gd_clear_error(void);

/* --- log -------------------------------------------------------------------------------------- */

typedef enum gd_log_level { GD_LOG_DEBUG, GD_LOG_INFO, GD_LOG_WARNING, GD_LOG_ERROR } gd_log_level;
typedef void (*gd_log_fn)(gd_log_level level, const char *message, void *user);

/* All notices of the library go to `fn`; NULL (the default) drops them. May be called from any
 * thread; `fn` must be safe to call from any thread. */
GD_API void gd_set_log(gd_log_fn fn, void *user);

/* --- where a call stands ---------------------------------------------------------------------- */

/* Calls carry the place they were written at ("train.c:42"), for error messages: gd_item(t) is a macro
 * for gd_item_at(GD_HERE, t). Bindings call the functions behind the macros and give a place of their
 * own, or NULL. */
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
