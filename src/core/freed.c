/* freed.c - keeps freed tensor handles, and reports their use (freed.h). */
#include "core/freed.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/fork.h"

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

/* --- messages --------------------------------------------------------------------------------- */

const char *gd_freed_text(const gd_tensor *t, char *text, size_t size) {
    char made[300] = "";
    if (t->made_op) snprintf(made, sizeof made, "the result of %s", t->made_op);
    else snprintf(made, sizeof made, "a %s", t->block == t ? "tensor" : "list of tensors");
    if (t->made_site)
        snprintf(made + strlen(made), sizeof made - strlen(made), " (%s)", t->made_site);
    if (!t->freed_in) snprintf(text, size, "%s, whose last reference was released", made);
    else if (!*t->freed_in) snprintf(text, size, "%s, which was freed at the end of a call", made);
    else
        snprintf(text, size, "%s, which was freed at the end of the scope of %s", made,
                 t->freed_in);
    return text;
}

const char *(*gd_missing_text_hook)(int position, char *text, size_t size);
gd_tensor gd_missing_inputs[GD_MAX_MISSING];

static void __attribute__((constructor)) fill_missing(void) {
    for (int i = 0; i < GD_MAX_MISSING; i++) gd_missing_inputs[i] = gd_error_tensor;
}

const char *gd_missing_text(const gd_tensor *t, char *text, size_t size) {
    return gd_missing_text_hook((int)(t - gd_missing_inputs), text, size);
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
    if (object->class != &gd_tensor_class || !gd_is_freed(t)) return;
    gd_report(site,
              gd_fail(GD_E_STATE,
                      "a scope ends that held %s: gd_release is for references that gd_retain took",
                      gd_freed_text(t, text, sizeof text)));
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
    for (int64_t k = 0; returned.at && k < returned.count; k++)
        if (gd_is_freed(returned.at[k]))
            return gd_fail(
                GD_E_STATE,
                "result %lld of the function is %s; hand it out with `return gd_keep_list(...);`",
                (long long)k, gd_freed_text(returned.at[k], text, sizeof text));
    return GD_OK;
}
