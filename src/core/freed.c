/* freed.c - keeps freed handles and objects, and reports their use (freed.h). */
#include "core/freed.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/fork.h"
#include "core/tensor_list.h"

bool gd_handles_checked;

/* Under AddressSanitizer and in debug builds at most this many handles are kept, so that long
 * programs do not run out of memory. GRADUS_DEBUG=handles keeps all. */
enum { MAX_KEPT = 1 << 20 };

static struct {
    gd_tensor *first, *last;
    int64_t count;
    bool all;
} kept;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
GD_INNER_MUTEX_AT_FORK(lock)

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER
#endif

static void __attribute__((constructor)) read_mode(void) {
    const char *mode = getenv("GRADUS_DEBUG");
    kept.all = mode && strstr(mode, "handles");
    gd_handles_checked = kept.all;
#if defined(ADDRESS_SANITIZER) || defined(GD_DEBUG)
    gd_handles_checked = true;
#endif
}

/* --- keeping ---------------------------------------------------------------------------------- */

static void keep_handle(gd_tensor *t) {
    gd_tensor *oldest = NULL;
    pthread_mutex_lock(&lock);
    if (kept.last) kept.last->next_free = t;
    else kept.first = t;
    kept.last = t;
    if (!kept.all && ++kept.count > MAX_KEPT) {
        oldest = kept.first;
        kept.first = oldest->next_free;
        kept.count--;
    }
    pthread_mutex_unlock(&lock);
    if (oldest) gd_free(oldest->block);
}

void gd_freed_keep(gd_tensor *t, void *block) {
    gd_thread *thread = &gd_this_thread;
    atomic_store(&t->object.refs, GD_IMMORTAL);
    t->kind = GD_FAILED;
    t->rank = 0;
    t->requires_grad = t->is_view = false;
    t->storage = NULL;
    t->node = NULL;
    t->grad = NULL;
    t->hooks = NULL;
    t->next_free = NULL;
    t->block = block;
    t->freed_in = thread->closing;
    if (gd_handles_checked) {
        keep_handle(t);
    } else {
        t->next_free = thread->freed;
        thread->freed = t;
    }
}

void gd_keep_freed_begin(void) { gd_this_thread.keeping_freed++; }

void gd_keep_freed_end(void) {
    gd_thread *thread = &gd_this_thread;
    if (--thread->keeping_freed > 0) return;
    while (thread->freed) {
        gd_tensor *t = thread->freed;
        thread->freed = t->next_free;
        gd_free(t->block);
    }
}

/* --- other objects ---------------------------------------------------------------------------- */

/* What is known of a freed object, whose class this then is. It has memory of its own, because an
 * object may be as small as its header. */
typedef struct freed_object {
    gd_class class;
    const gd_class *was;
    const char *freed_in; /* as in gd_tensor */
    gd_object *object;    /* the memory that is kept */
    struct freed_object *next;
} freed_object;

/* Never called: a freed object has no last reference. */
void gd_destroy_freed(gd_object *object) { (void)object; }

static struct {
    freed_object *first, *last;
    int64_t count;
} kept_objects; /* protected by `lock`; at most MAX_OBJECTS, unless all are kept */
enum { MAX_OBJECTS = 1 << 14 };

/* Adds to the list; returns the oldest entry if the list is longer than it may be. */
static freed_object *keep_object(freed_object *f) {
    freed_object *oldest = NULL;
    pthread_mutex_lock(&lock);
    if (kept_objects.last) kept_objects.last->next = f;
    else kept_objects.first = f;
    kept_objects.last = f;
    if (!kept.all && ++kept_objects.count > MAX_OBJECTS) {
        oldest = kept_objects.first;
        kept_objects.first = oldest->next;
        kept_objects.count--;
    }
    pthread_mutex_unlock(&lock);
    return oldest;
}

void gd_object_free(gd_object *object) {
    freed_object *f = gd_handles_checked ? gd_calloc(1, sizeof *f) : NULL;
    if (!f) { /* not checked, or no memory to keep it */
        gd_free(object);
        return;
    }
    f->class = (gd_class){.name = "freed object", .destroy = gd_destroy_freed};
    f->was = object->class;
    f->freed_in = gd_this_thread.closing;
    f->object = object;
    object->class = &f->class;
    atomic_store(&object->refs, GD_IMMORTAL);
    freed_object *oldest = keep_object(f);
    if (oldest) gd_free(oldest->object);
    gd_free(oldest);
}

bool gd_is_object(const void *object) {
    if (!object || (uintptr_t)object % _Alignof(gd_object) != 0) return false;
    const gd_class *class = ((const gd_object *)object)->class;
    bool found = gd_class_is_known(class);
    if (found || !gd_handles_checked) return found;
    pthread_mutex_lock(&lock);
    for (const freed_object *f = kept_objects.first; f && !found; f = f->next)
        found = &f->class == class;
    pthread_mutex_unlock(&lock);
    return found;
}

/* --- messages --------------------------------------------------------------------------------- */

/* Writes "WHAT, which was freed at the end of the scope of net.c:10". */
static void put_freed(const char *what, const char *freed_in, char *text, size_t size) {
    if (!freed_in) snprintf(text, size, "%s, whose last reference was released", what);
    else if (!*freed_in) snprintf(text, size, "%s, which was freed at the end of a call", what);
    else snprintf(text, size, "%s, which was freed at the end of the scope of %s", what, freed_in);
}

const char *gd_freed_text(const gd_tensor *t, char *text, size_t size) {
    char made[300] = "";
    if (t->made_op) snprintf(made, sizeof made, "the result of %s", t->made_op);
    else snprintf(made, sizeof made, "a %s", t->block == t ? "tensor" : "list of tensors");
    if (t->made_site)
        snprintf(made + strlen(made), sizeof made - strlen(made), " (%s)", t->made_site);
    put_freed(made, t->freed_in, text, size);
    return text;
}

static void object_text(const gd_object *object, char *text, size_t size) {
    const freed_object *f = (const freed_object *)object->class;
    char what[100];
    put_freed(gd_class_text(f->was, what, sizeof what), f->freed_in, text, size);
}

/* Fails with the first `length` characters of the name of the function. */
static gd_status check_object(const void *object, const char *name, size_t length) {
    char text[600];
    if (!gd_is_freed_object(object)) return GD_OK;
    object_text(object, text, sizeof text);
    return gd_fail(GD_E_STATE, "%.*s: use after free: %s", (int)length, name, text);
}

static bool report_object(const char *site, const void *object, const char *name, size_t length) {
    return gd_report(site, check_object(object, name, length)) != GD_OK;
}

gd_status gd_check_freed_object(const void *object, const char *what) {
    return check_object(object, what, strlen(what));
}

bool gd_report_freed(const char *site, const void *object, const char *function) {
    return report_object(site, object, function, strlen(function));
}

bool gd_report_freed_at(const char *site, const void *object, const char *function) {
    return report_object(site, object, function, strlen(function) - strlen("_at"));
}

const char *(*gd_missing_text_hook)(int position, char *text, size_t size);
gd_tensor gd_missing_inputs[GD_READERS][GD_MAX_MISSING];

static void __attribute__((constructor)) fill_missing(void) {
    for (int r = 0; r < GD_READERS; r++)
        for (int i = 0; i < GD_MAX_MISSING; i++) gd_missing_inputs[r][i] = gd_error_tensor;
}

/* Modules have a text of their own, with their name. */
static const struct {
    const char *item, *of;
} readers[GD_READERS] = {
    [GD_READER_HOOK] = {"output", "the module"},
    [GD_READER_JIT] = {"input", "this call of a jit"},
    [GD_READER_CONTROL] = {"input", "the branch or body"},
    [GD_READER_FN] = {"input", "the function"},
    [GD_READER_STEP] = {"tensor", "the batch"},
    [GD_READER_OUTPUTS] = {"output", "the net"},
    [GD_READER_TARGETS] = {"target", "the batch"},
};

const char *gd_missing_text(const gd_tensor *t, char *text, size_t size) {
    const int at = (int)(t - gd_missing_inputs[0]), position = at % GD_MAX_MISSING;
    const char *item = readers[at / GD_MAX_MISSING].item;
    if (!item) return gd_missing_text_hook(position, text, size);
    snprintf(text, size, "%s %d (counted from 0) of %s, which has fewer %ss", item, position,
             readers[at / GD_MAX_MISSING].of, item);
    return text;
}

void gd_put_missing(gd_tensor **list, int64_t count, gd_reader reader) {
    for (int64_t i = count; i < gd_with_missing(count); i++)
        list[i] = &gd_missing_inputs[reader][i < GD_MAX_MISSING ? i : GD_MAX_MISSING - 1];
}

gd_tensors gd_list_for(gd_reader reader, gd_tensors in) {
    gd_tensor **list = gd_list_new(gd_with_missing(in.count));
    if (!list) {
        gd_error_record(GD_E_MEMORY);
        return gd_list_of_errors(in.count);
    }
    for (int64_t i = 0; i < in.count; i++) list[i] = in.at[i];
    gd_put_missing(list, in.count, reader);
    return (gd_tensors){list, in.count};
}

gd_status gd_check_freed(const gd_tensor *t, const char *what) {
    char text[600];
    if (gd_is_missing(t))
        return gd_fail(GD_E_ARGUMENT, "%s: uses %s", what, gd_missing_text(t, text, sizeof text));
    if (!gd_is_freed(t)) return GD_OK;
    return gd_fail(GD_E_STATE, "%s: use after free: %s", what, gd_freed_text(t, text, sizeof text));
}

void gd_check_owned(const gd_object *object, const char *site) {
    char text[600];
    const gd_tensor *t = (const gd_tensor *)object;
    if (gd_is_freed_object(object)) object_text(object, text, sizeof text);
    else if (object->class == &gd_tensor_class && gd_is_freed(t))
        gd_freed_text(t, text, sizeof text);
    else return;
    gd_report(site,
              gd_fail(GD_E_STATE,
                      "a scope ends that held %s: gd_release is for references that gd_retain took",
                      text));
}

/* --- results of functions of the program ------------------------------------------------------ */

/* Whether an address is on this thread's stack below `frame`, that is, in a frame that has ended.
 * */
static bool is_below_frame(const void *address, const void *frame) {
    if ((uintptr_t)address >= (uintptr_t)frame) return false;
    const char *end = gd_stack_end();
    return end && (uintptr_t)address >= (uintptr_t)end;
}

gd_status gd_check_returned(gd_tensors returned, const void *frame) {
    char text[600];
    if (returned.count > 0 && returned.at && is_below_frame(returned.at, frame))
        return gd_fail(
            GD_E_STATE,
            "the function returned a list that ended with it; write `return gd_listed(...);`, "
            "not gd_list");
    for (int64_t k = 0; returned.at && k < returned.count; k++) {
        if (gd_is_missing(returned.at[k])) return gd_check_freed(returned.at[k], "its result");
        if (gd_is_freed(returned.at[k]))
            return gd_fail(
                GD_E_STATE,
                "result %lld of the function is %s; hand it out with `return gd_keep_list(...);`",
                (long long)k, gd_freed_text(returned.at[k], text, sizeof text));
    }
    return GD_OK;
}
