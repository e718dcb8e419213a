/* scope.h - who frees what.
 *
 *     for (int step = 0; step < 500; step++) {
 *         GD_SCOPE;                                  // frees at the end of this block ...
 *         gd_tensor *y = gd_matmul(x, w);            // ... what is made in it
 *     }
 *
 * Every object that a call returns joins the innermost open scope of its thread. The scope holds
 * one reference and drops it when the block is left, by whichever way: break, continue, return and
 * goto. What the tape, a view or a module needs longer has a reference of its own.
 *
 *   - `return gd_keep(y);` hands a result to the scope outside (or, where there is none, to the
 *     caller, who then releases it).
 *   - gd_retain(y) takes a reference of your own: y stays until gd_release(y).
 *   - A thread with no open scope owns what calls return, and releases it itself.
 *
 * A scope must not be left by longjmp: the cleanup would not run.
 *
 * A tensor that is used after its scope has ended may show another tensor's values. The environment
 * variable GRADUS_DEBUG=handles finds such mistakes: handles are never reused then, and a call that gets
 * a freed one fails, with the op and line that made the tensor and the scope that freed it. It costs
 * about 300 bytes for every tensor that is freed. Debug builds of the library and those with
 * AddressSanitizer always do it, for the latest million tensors.
 */
#ifndef GRADUS_SCOPE_H
#define GRADUS_SCOPE_H

#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_scope gd_scope;

#define GD_SCOPE_NAME__(n) gd_scope_##n
#define GD_SCOPE_NAME_(n) GD_SCOPE_NAME__(n)
#define GD_SCOPE                                                                                 \
    __attribute__((cleanup(gd_scope_close), unused)) gd_scope *GD_SCOPE_NAME_(__COUNTER__) =     \
        gd_scope_open_at(GD_HERE)

/* By hand, for those who cannot use the macro: close in reverse order. */
#define gd_scope_open() gd_scope_open_at(GD_HERE)
GD_API gd_scope *gd_scope_open_at(const char *site);
GD_API void gd_scope_close(gd_scope **scope);

/* Moves an object from the innermost scope to the one outside, and returns it. */
GD_API gd_tensor *gd_keep(gd_tensor *t);
GD_API gd_tensors gd_keep_list(gd_tensors list);

/* A list like gd_list(a, b, c), but with an array that belongs to the scope, so that a function may
 * return it: return gd_listed(y); */
#define gd_listed(...) gd_list_copy(gd_list(__VA_ARGS__))
GD_API gd_tensors gd_list_copy(gd_tensors list);

GD_API gd_tensor *gd_retain(gd_tensor *t);
GD_API void gd_release(gd_tensor *t);          /* NULL is fine */
GD_API void gd_release_list(gd_tensors list);  /* for a thread with no scope */

/* Live tensors, views and lists of the whole process, for leak checks. */
GD_API int64_t gd_live_objects(void);

#ifdef __cplusplus
}
#endif
#endif
