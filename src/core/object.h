/* object.h - what all reference-counted objects share: a count, a class, a place in a scope. */
#ifndef GRADUS_CORE_OBJECT_H
#define GRADUS_CORE_OBJECT_H

#include <stdatomic.h>

#include "gradus/scope.h"

typedef struct gd_object gd_object;

typedef struct gd_class {
    const char *name;
    void (*destroy)(gd_object *object);
    const struct gd_state_rules
        *state; /* how it is saved and loaded (core/state.h); NULL: it has no state */
} gd_class;

struct gd_object {
    _Atomic int32_t refs; /* GD_IMMORTAL: static, never counted */
    const gd_class *class;
};

enum { GD_IMMORTAL = INT32_MAX };

static inline void gd_object_init(gd_object *object, const gd_class *class) {
    atomic_init(&object->refs, 1);
    object->class = class;
}

void gd_object_retain(gd_object *object);
void gd_object_release(gd_object *object); /* NULL is fine */

/* Hands a new object (count 1) to the innermost scope, if one is open. Room on the stack must be
 * made first, with gd_scope_reserve, so that this cannot fail. */
gd_status gd_scope_reserve(size_t objects);
void gd_scope_adopt(gd_object *object);

/* Hands a reference over to the innermost scope, if one is open; drops it when there is no memory.
 */
gd_status gd_scope_take(gd_object *object);

/* Moves an object one scope out; see gd_keep. */
void gd_scope_keep(gd_object *object);

/* Counts live objects for gd_live_objects. */
void gd_object_count(int change);

#endif
