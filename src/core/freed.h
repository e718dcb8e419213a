/* freed.h - detects the use of freed tensor handles.
 *
 * Normally a freed handle is reused for the next tensor. That is fast, but a use after free then
 * silently reads another tensor. In two cases freed handles are kept instead, as error tensors that
 * remember their op and location:
 *
 *   - in checked mode: GRADUS_DEBUG=handles, a debug build, or AddressSanitizer. They are never
 *     reused.
 *   - while the thread traces a function, which may return tensors of a scope that it has closed.
 *     They are freed when the trace ends.
 *
 * Lists of tensors are kept in the same way; all entries of a freed list are one such handle.
 *
 * In checked mode the memory of other objects (modules, loaders, sessions, ...) is kept, too, with
 * a class that says what the object was. Public functions begin with GD_LIVE for each object that they take.
 */
#ifndef GRADUS_CORE_FREED_H
#define GRADUS_CORE_FREED_H

#include "core/tensor.h"

enum { GD_MAX_MISSING = 32 };

/* The functions of a program that get a list of tensors and may read more of them than there are. */
typedef enum gd_reader {
    GD_READER_MODULE,  /* and its hooks */
    GD_READER_HOOK,    /* of a module's outputs */
    GD_READER_JIT,     /* of gd_jit */
    GD_READER_CONTROL, /* of gd_cond, gd_while_loop, gd_scan */
    GD_READER_FN,      /* of gd_recompute and transforms */
    GD_READER_STEP,    /* the .step of gd_fit */
    GD_READER_OUTPUTS, /* .loss_function */
    GD_READER_TARGETS,
    GD_READERS,
} gd_reader;

/* Whether this thread keeps freed handles. */
extern bool gd_handles_checked;
static inline bool gd_keeps_freed(const gd_thread *thread) {
    return __builtin_expect(gd_handles_checked || thread->keeping_freed > 0, 0);
}

/* Marks a handle, whose contents are already released, as freed and keeps it. `block` is the memory
 * to free in the end: the handle itself, or the list that contains it. */
void gd_freed_keep(gd_tensor *t, void *block);

/* Whether a tensor is such a handle; accepts NULL. */
static inline bool gd_is_freed(const gd_tensor *t) { return t && t->kind == GD_FAILED && t->block; }

/* "the result of relu (net.c:12), which was freed at the end of the scope of net.c:10" */
const char *gd_freed_text(const gd_tensor *t, char *text, size_t size);

/* Error tensors behind the end of the list that a function of the program gets, by the function and
 * their position. */
extern gd_tensor gd_missing_inputs[GD_READERS][GD_MAX_MISSING];
static inline bool gd_is_missing(const gd_tensor *t) {
    const gd_tensor *first = gd_missing_inputs[0];
    return t >= first && t < first + GD_READERS * GD_MAX_MISSING;
}

/* Writes the missing inputs into `list` behind its first `count` entries: it has room for
 * gd_with_missing(count). */
static inline int64_t gd_with_missing(int64_t count) { return count + GD_FAILED_COUNT; }
void gd_put_missing(gd_tensor **list, int64_t count, gd_reader reader);

/* A copy of the list with the missing inputs behind its end. The innermost scope owns it; a list of
 * errors if out of memory. */
gd_tensors gd_list_for(gd_reader reader, gd_tensors in);

/* The text of a missing input of a module: "input 1 of pair, which was called with 1 input". */
extern const char *(*gd_missing_text_hook)(int position, char *text, size_t size);
const char *gd_missing_text(const gd_tensor *t, char *text, size_t size);

/* Fails with GD_E_STATE if `t` is a freed handle, or a missing input; `what` is the call that uses
 * it. */
gd_status gd_check_freed(const gd_tensor *t, const char *what);

/* --- other objects ---------------------------------------------------------------------------- */

/* Whether an object has been freed and its memory is kept; accepts NULL. */
void gd_destroy_freed(gd_object *object); /* of their classes; never called */
static inline bool gd_is_freed_object(const void *object) {
    const gd_class *class = object ? ((const gd_object *)object)->class : NULL;
    return class && class->destroy == gd_destroy_freed; /* entries of freed lists have none */
}

/* Whether a pointer of a program is to an object at all, and not to an array or a text; only its
 * field `class` is read. Freed objects are objects in checked mode. */
bool gd_is_object(const void *object);

/* The end of a class's `destroy`: frees the memory of the object, or keeps it in checked mode. */
void gd_object_free(gd_object *object);

/* If `object` is freed, records a failure of the public function `function` and returns true. For
 * gd_report_freed_at it is the function behind a macro, gd_fit_at. */
GD_COLD bool gd_report_freed(const char *site, const void *object, const char *function);
GD_COLD bool gd_report_freed_at(const char *site, const void *object, const char *function);

/* Fails with GD_E_STATE if `object` is freed; `what` is what uses it, for a caller that reports. */
gd_status gd_check_freed_object(const void *object, const char *what);

/* Begins a public function that takes an object: a freed one is reported, and from then on the
 * function sees NULL. GD_LIVE_AT is for functions NAME_at(site, ...) behind a macro. */
#define GD_LIVE(object)                                                                         \
    do {                                                                                        \
        if (__builtin_expect(gd_handles_checked, 0) && gd_report_freed(NULL, object, __func__)) \
            (object) = NULL;                                                                    \
    } while (0)
#define GD_LIVE_AT(site, object)                                                                   \
    do {                                                                                           \
        if (__builtin_expect(gd_handles_checked, 0) && gd_report_freed_at(site, object, __func__)) \
            (object) = NULL;                                                                       \
    } while (0)

/* The same for an object in a list or an option; the function fails. */
#define GD_TRY_LIVE(object, function)                                     \
    do {                                                                  \
        if (gd_report_freed(NULL, object, function)) return gd_failure(); \
    } while (0)

/* --- scopes and functions of the program ------------------------------------------------------ */

/* In checked mode, when the scope that was opened at `site` ends: records a failure if an object of
 * the scope has already been freed by a gd_release without a gd_retain. */
void gd_check_owned(const gd_object *object, const char *site);

/* Around a function that is traced. */
void gd_keep_freed_begin(void);
void gd_keep_freed_end(void);

/* Fails if a list that a function of the program returned does not outlive the function: its array
 * is in an ended stack frame (gd_list instead of gd_listed), or a tensor belonged to a scope that
 * the function has closed, or is a missing input. `frame` is __builtin_frame_address(0) of the
 * function's caller. */
gd_status gd_check_returned(gd_tensors returned, const void *frame);

#endif
