/* freed.h - tensor handles after their end.
 *
 * A freed handle is used again for the next tensor, which is fast, and hides a use after free: another
 * tensor's values show up. Handles are kept instead, as error tensors that know who they were,
 *
 *   - in checked mode: GRADUS_DEBUG=handles, a debug build, or AddressSanitizer. They are never reused.
 *   - while the thread traces a function: what the function returns may belong to a scope that it has
 *     closed. They are freed when the trace ends.
 *
 * Lists of tensors are kept in the same way; all places of a freed list hold one such handle.
 */
#ifndef GRADUS_CORE_FREED_H
#define GRADUS_CORE_FREED_H

#include "core/tensor.h"

/* Whether this thread keeps handles that are freed now. */
extern bool gd_handles_checked;
static inline bool gd_keeps_freed(const gd_thread *thread) {
    return __builtin_expect(gd_handles_checked || thread->keeping_freed > 0, 0);
}

/* Turns a handle whose contents were released into one that says so. `block` is what to free in the
 * end: the handle itself, or the list that it stands in. */
void gd_freed_keep(gd_tensor *t, void *block);

/* True for such a handle; any tensor, NULL too. */
static inline bool gd_is_freed(const gd_tensor *t) { return t && t->kind == GD_FAILED && t->block; }

/* "the result of relu (net.c:12), which was freed at the end of the scope of net.c:10" */
const char *gd_freed_text(const gd_tensor *t, char *text, size_t size);

/* Records the use of a freed handle in `what`. GD_E_STATE, or GD_OK for any other tensor. */
gd_status gd_check_freed(const gd_tensor *t, const char *what);

/* In checked mode, when the scope that was opened at `site` ends: an object of it must not have been freed
 * by a gd_release of the program, which had no reference of its own. Else the failure is recorded. */
void gd_check_owned(const gd_object *object, const char *site);

/* Around a function that is traced. */
void gd_keep_freed_begin(void);
void gd_keep_freed_end(void);

/* What a function of the program returned must outlive it: no list of a frame that is gone (gd_list in
 * place of gd_listed), and nothing of a scope that it has closed. `frame` is __builtin_frame_address(0)
 * of the caller, in which the function was called. */
gd_status gd_check_returned(gd_tensors returned, const void *frame);

#endif
