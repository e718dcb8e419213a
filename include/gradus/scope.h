/* scope.h - ownership: scopes free objects at the end of a block.
 *
 *     for (int step = 0; step < 500; step++) {
 *         GD_SCOPE;                                  // at the end of this block ...
 *         gd_tensor *y = gd_matmul(x, w);            // ... objects created in it are freed
 *     }
 *
 * Every object that a call returns joins the innermost open scope of its thread. The scope holds
 * one reference and drops it at the end of the block, also after break, continue, return and goto.
 * The tape, views and modules hold their own references to objects that they use longer.
 *
 *   - `return gd_keep(y);` moves a result to the enclosing scope. If there is none, the caller owns
 *     the result and releases it.
 *   - gd_retain(y) takes another reference: y lives until gd_release(y).
 *   - A thread without an open scope owns the objects that calls return, and releases them. Of a
 *     list it owns the array and a reference to each tensor, also if a module or a graph holds the
 *     tensors, too (gd_module_parameters): gd_release_list drops them all.
 *   - Functions that look up one object that another one holds (gd_module_at, gd_module_tensor,
 *     gd_tensor_grad, gd_compiled_optimizer, ...) return no reference. gd_retain takes one.
 *
 * Do not leave a scope by longjmp: the cleanup would not run.
 *
 * A tensor that is used after its scope has ended may show the values of another tensor; a module,
 * loader or session may end the program. The environment variable GRADUS_DEBUG=handles finds such
 * mistakes: handles are not reused, and a call with a freed one fails. The message names the op and
 * line that created a tensor, or the kind of another object, and the scope that freed it. This
 * costs about 300 bytes for each freed tensor, and the structs of other objects. Debug builds of
 * the library and builds with AddressSanitizer always check, for the latest million tensors and
 * 16,384 other objects.
 */
#ifndef GRADUS_SCOPE_H
#define GRADUS_SCOPE_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_scope gd_scope;

#define GD_SCOPE_NAME__(n) gd_scope_##n
#define GD_SCOPE_NAME_(n)  GD_SCOPE_NAME__(n)
#define GD_SCOPE                                                                             \
    __attribute__((cleanup(gd_scope_close), unused)) gd_scope *GD_SCOPE_NAME_(__COUNTER__) = \
        gd_scope_open_at(GD_HERE)

/* Without the macro: close scopes in reverse order. */
#define gd_scope_open() gd_scope_open_at(GD_HERE)
GD_API gd_scope *gd_scope_open_at(const char *site);
GD_API void gd_scope_close(gd_scope **scope);

/* These accept an object of any kind, or NULL; the first two return it.
 *   gd_keep     moves it from the innermost scope to the enclosing one.
 *   gd_retain   takes a reference for the caller.
 *   gd_release  drops such a reference. */
GD_API void *gd_keep(void *object);
GD_API void *gd_retain(void *object);
GD_API void gd_release(void *object);

/* Takes a reference that belongs to the innermost scope, as if a call had returned the object, and
 * returns it; NULL with the failure recorded if out of memory. For bindings: a function that the
 * library calls returns objects whose only references may be those of another language. */
GD_API void *gd_hold(void *object);

/* The kinds of objects. */
typedef struct gd_graph gd_graph;
typedef struct gd_session gd_session;
typedef struct gd_jit gd_jit;
typedef struct gd_module gd_module;
typedef struct gd_optimizer gd_optimizer;
typedef struct gd_schedule gd_schedule;
typedef struct gd_loss_scale gd_loss_scale;
typedef struct gd_state gd_state;
typedef struct gd_attrs gd_attrs;
typedef struct gd_npz gd_npz;
typedef struct gd_random_generator gd_random_generator;
typedef struct gd_dataset gd_dataset;
typedef struct gd_transform gd_transform;
typedef struct gd_sampler gd_sampler;
typedef struct gd_loader gd_loader;
typedef struct gd_metric gd_metric;
typedef struct gd_callback gd_callback;
typedef struct gd_history gd_history;
typedef struct gd_board gd_board;
#ifndef __cplusplus
/* `call` if `x` is a pointer to such an object; otherwise an error at compile time. */
#define GD_FOR_OBJECT_(x, call) \
    _Generic((x), gd_tensor *: call, gd_graph *: call, gd_session *: call, gd_jit *: call,           \
             gd_module *: call, gd_optimizer *: call, gd_schedule *: call, gd_loss_scale *: call,       \
             gd_state *: call,                                                                       \
             gd_attrs *: call, gd_npz *: call, gd_random_generator *: call,                              \
             gd_dataset *: call, gd_transform *: call, gd_sampler *: call, gd_loader *: call,        \
             gd_metric *: call, gd_callback *: call, gd_history *: call, gd_board *: call, \
             void *: call)
#define gd_keep(x)    ((__typeof__(x))GD_FOR_OBJECT_(x, gd_keep)(x))
#define gd_retain(x)  ((__typeof__(x))GD_FOR_OBJECT_(x, gd_retain)(x))
#define gd_release(x) GD_FOR_OBJECT_(x, gd_release)(x)
#endif

/* gd_keep for each tensor of a list and for its array. */
GD_API gd_tensors gd_keep_list(gd_tensors list);

/* A list like gd_list(a, b, c), but with an array that belongs to the scope, so that a function may
 * return it: return gd_listed(y); */
#define gd_listed(...) gd_list_copy(gd_list(__VA_ARGS__))
GD_API gd_tensors gd_list_copy(gd_tensors list);

/* For a thread without a scope: drops the references that it got with a list. */
GD_API void gd_release_list(gd_tensors list);

/* The number of live tensors, views and lists of the process, for leak checks. */
GD_API int64_t gd_live_objects(void);

#ifdef __cplusplus
}
template <typename T> inline T *gd_keep(T *object) {
    return static_cast<T *>(gd_keep(static_cast<void *>(object)));
}
template <typename T> inline T *gd_retain(T *object) {
    return static_cast<T *>(gd_retain(static_cast<void *>(object)));
}
#endif
#endif
