/* scope.c - reference counts of objects, and the scopes that own them.
 *
 * The objects of all open scopes of a thread are on one stack. A scope is the part of the stack
 * from its start to the start of the next scope. gd_keep swaps an object to the start of its scope
 * and moves the start past it: then the object belongs to the enclosing scope.
 */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "core/tensor.h"
#include "core/thread.h"

/* --- classes ---------------------------------------------------------------------------------- */

/* Filled when the library is loaded. */
static const gd_class *classes[32];
static int n_classes;

void gd_class_add(const gd_class *class) {
    if (n_classes < (int)(sizeof classes / sizeof *classes)) classes[n_classes++] = class;
}

bool gd_class_is_known(const gd_class *class) {
    for (int i = 0; i < n_classes; i++)
        if (classes[i] == class) return true;
    return false;
}

const char *gd_class_text(const gd_class *class, char *text, size_t size) {
    snprintf(text, size, "%s %s", strchr("aeiou", *class->name) ? "an" : "a", class->name);
    return text;
}

/* --- references ------------------------------------------------------------------------------- */

void gd_object_retain(gd_object *object) {
    if (atomic_load_explicit(&object->refs, memory_order_relaxed) != GD_IMMORTAL)
        atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
}

void gd_object_release(gd_object *object) {
    if (!object) return;
    int refs = (int)atomic_load_explicit(&object->refs, memory_order_acquire);
    if (refs == GD_IMMORTAL) return;
    /* no other thread can take a reference while this one holds the only one */
    if (refs == 1 || atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) == 1)
        object->class->destroy(object);
}

/* --- scopes ----------------------------------------------------------------------------------- */

gd_scope *gd_scope_open_at(const char *site) {
    gd_thread *thread = &gd_this_thread;
    if (!thread->starts) {
        thread->starts = thread->inline_starts;
        thread->start_capacity = GD_INLINE_SCOPES;
    }
    if (thread->depth == thread->start_capacity && thread->unrecorded == 0) {
        size_t capacity = 2 * thread->start_capacity;
        bool inline_now = thread->starts == thread->inline_starts;
        gd_scope_start *starts =
            gd_realloc(inline_now ? NULL : thread->starts, capacity * sizeof *starts);
        if (starts) {
            if (inline_now) memcpy(starts, thread->inline_starts, sizeof thread->inline_starts);
            thread->starts = starts;
            thread->start_capacity = capacity;
        }
    }
    if (thread->unrecorded > 0 || thread->depth == thread->start_capacity)
        thread->unrecorded++; /* no memory: its objects go to the enclosing scope */
    else thread->starts[thread->depth++] = (gd_scope_start){thread->object_count, site};
    return (gd_scope *)thread;
}

void gd_scope_close(gd_scope **scope) {
    gd_thread *thread = scope ? (gd_thread *)*scope : NULL;
    if (thread != &gd_this_thread) return; /* closed already, or opened by another thread */
    *scope = NULL;
    if (thread->unrecorded > 0) {
        thread->unrecorded--;
        return;
    }
    if (thread->depth == 0) return;
    const gd_scope_start start = thread->starts[--thread->depth];
    const char *outer = thread->closing;
    thread->closing = start.site ? start.site : "";
    while (thread->object_count > start.first) {
        gd_object *object = thread->objects[--thread->object_count];
        if (__builtin_expect(gd_handles_checked, 0)) gd_check_owned(object, start.site);
        gd_object_release(object);
    }
    thread->closing = outer;
}

gd_status gd_scope_grow(size_t objects) {
    gd_thread *thread = &gd_this_thread;
    size_t need = thread->object_count + objects;
    size_t capacity = thread->object_capacity ? 2 * thread->object_capacity : 64;
    if (capacity < need) capacity = need;
    gd_object **grown = gd_realloc(thread->objects, capacity * sizeof *grown);
    if (!grown) return gd_fail(GD_E_MEMORY, "no memory for a scope of %zu objects", need);
    thread->objects = grown;
    thread->object_capacity = capacity;
    return GD_OK;
}

gd_status gd_scope_take(gd_object *object) {
    gd_status status = gd_scope_reserve(1);
    if (status == GD_OK) gd_scope_adopt(object);
    else gd_object_release(object);
    return status;
}

static void put(gd_thread *thread, size_t place, gd_object *object) {
    thread->objects[place] = object;
    gd_object_set_place(object, place);
}

/* The place of an object on the stack; `count` if the scope from `start` on does not hold it. The
 * hint is wrong if another thread holds the object, too, or if its latest scope has ended. */
static size_t find_place(const gd_thread *thread, const gd_object *object, size_t start) {
    const int32_t hint = atomic_load_explicit(&object->place, memory_order_relaxed);
    const size_t count = thread->object_count, place = (uint32_t)hint;
    if (hint == GD_NO_PLACE) return count;
    if (place < count && thread->objects[place] == object) return place < start ? count : place;
    for (size_t i = count; i-- > start;)
        if (thread->objects[i] == object) return i;
    return count;
}

bool gd_scope_keep(gd_object *object) {
    gd_thread *thread = &gd_this_thread;
    if (thread->depth == 0 || thread->unrecorded > 0) return false;
    size_t *start = &thread->starts[thread->depth - 1].first;
    const size_t place = find_place(thread, object, *start);
    if (place == thread->object_count) return false;
    if (thread->depth == 1) { /* no enclosing scope: the caller owns it */
        put(thread, place, thread->objects[--thread->object_count]);
        gd_object_set_place(object, (size_t)GD_NO_PLACE);
        return true;
    }
    put(thread, place, thread->objects[*start]);
    put(thread, (*start)++, object);
    return true;
}

void gd_scope_hand_out(gd_object *object) {
    if (!gd_scope_keep(object) && gd_this_thread.depth == 1) gd_object_retain(object);
}

/* --- public ----------------------------------------------------------------------------------- */

/* Whether the object is freed; if so, records a failure. */
static bool is_freed(void *object, const char *what) {
    const gd_object *o = object;
    if (gd_report_freed(NULL, object, what)) return true;
    const bool is_tensor = o && (o->class == &gd_tensor_class || !o->class); /* of a freed list */
    if (!is_tensor || !gd_is_freed(object)) return false;
    gd_report(NULL, gd_check_freed(object, what));
    return true;
}

/* The names are in parentheses because the header has macros of the same names. */
void *(gd_keep)(void *object) {
    if (object && !is_freed(object, "gd_keep")) gd_scope_keep(object);
    return object;
}

void *gd_hold(void *object) {
    if (!object || is_freed(object, "gd_hold")) return object;
    gd_object_retain(object);
    const gd_status status = gd_scope_take(object);
    if (status == GD_OK) return object;
    gd_error_record(status);
    return NULL;
}
void *(gd_retain)(void *object) {
    if (object && !is_freed(object, "gd_retain")) gd_object_retain(object);
    return object;
}

void(gd_release)(void *object) {
    if (object && !is_freed(object, "gd_release")) gd_object_release(object);
}
