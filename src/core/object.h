/* object.h - the header of all reference-counted objects, and their scopes. */
#ifndef GRADUS_CORE_OBJECT_H
#define GRADUS_CORE_OBJECT_H

#include <stdatomic.h>

#include "gradus/scope.h"

typedef struct gd_object gd_object;

typedef struct gd_class {
    const char *name;
    void (*destroy)(gd_object *object);
    const struct gd_state_rules *state; /* saving and loading (core/state.h); NULL: no state */
} gd_class;

struct gd_object {
    _Atomic int32_t refs; /* GD_IMMORTAL: a static object, which is not counted */
    /* Where it was put on the stack of a thread's scopes (scope.c): a hint, which threads share */
    _Atomic int32_t place;
    const gd_class *class;
};

enum { GD_NO_PLACE = -1 }; /* it is in no scope */

static inline void gd_object_set_place(gd_object *object, size_t place) {
    atomic_store_explicit(&object->place, (int32_t)place, memory_order_relaxed);
}

/* The classes of objects that programs hold. A class of them is followed by GD_KNOWN_CLASS. */
void gd_class_add(const gd_class *class);
bool gd_class_is_known(const gd_class *class);
/* "a loader", "an optimizer" */
const char *gd_class_text(const gd_class *class, char *text, size_t size);
#define GD_KNOWN_CLASS(class) \
    static void __attribute__((constructor)) class##_add(void) { gd_class_add(&class); }

enum { GD_IMMORTAL = INT32_MAX };

static inline void gd_object_init(gd_object *object, const gd_class *class) {
    atomic_init(&object->refs, 1);
    atomic_init(&object->place, GD_NO_PLACE);
    object->class = class;
}

void gd_object_retain(gd_object *object);
void gd_object_release(gd_object *object); /* accepts NULL */

/* Moves a reference to the innermost scope, if one is open; releases it if out of memory. */
gd_status gd_scope_take(gd_object *object);

/* Moves an object to the enclosing scope; see gd_keep. Returns false if the innermost scope does not
 * hold it. */
bool gd_scope_keep(gd_object *object);

/* The same for the result of a call that ends its scope. If no scope encloses that one, the caller
 * gets a reference in any case: a result may also be an input, a parameter, or a result twice. */
void gd_scope_hand_out(gd_object *object);

#endif
