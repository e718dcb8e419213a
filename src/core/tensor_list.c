/* tensor_list.c - lists of tensors that a scope owns. */
#include "core/tensor_list.h"

#include <stddef.h>
#include <string.h>

#include "core/alloc.h"
#include "core/freed.h"
#include "gradus/testing.h"

/* Every run of a session creates short lists, so each thread caches some freed ones. */
enum { SHORT_LIST = 12, CACHED_LISTS = 32 };

typedef struct {
    gd_object object;
    bool is_short; /* has room for SHORT_LIST tensors */
    /* NULL, or a failed tensor behind the entries: when the list is freed, all entries point
     * to it */
    gd_tensor *last;
    gd_tensor *at[];
} tensor_list;

static void list_destroy(gd_object *object) {
    tensor_list *l = (tensor_list *)object;
    gd_thread *thread = &gd_this_thread;
    gd_object_count(-1);
    if (l->last && gd_keeps_freed(thread)) {
        for (gd_tensor **at = l->at; (void *)at < (void *)l->last; at++) *at = l->last;
        gd_freed_keep(l->last, l);
        return;
    }
#ifndef GD_SANITIZED
    if (l->is_short && thread->alive && thread->free_list_count < CACHED_LISTS) {
        *(void **)object = thread->free_lists;
        thread->free_lists = object;
        thread->free_list_count++;
        return;
    }
#endif
    gd_free(object);
}
static const gd_class list_class = {.name = "list", .destroy = list_destroy};
GD_KNOWN_CLASS(list_class)

gd_tensor **gd_list_new(int64_t count) {
    if (gd_scope_reserve(1) != GD_OK) return NULL;
    gd_thread *thread = &gd_this_thread;
    const bool keep = gd_keeps_freed(thread), is_short = count <= SHORT_LIST && !keep;
    const size_t list_bytes =
        sizeof(tensor_list) +
        (size_t)(is_short || count < 1 ? SHORT_LIST : count) * sizeof(gd_tensor *);
    const size_t bytes = list_bytes + (keep ? sizeof(gd_tensor) : 0);
    tensor_list *l = is_short && !gd_faults_armed() ? thread->free_lists : NULL;
    if (l) {
        thread->free_lists = *(void **)l;
        thread->free_list_count--;
        memset(l, 0, bytes);
    } else {
        l = count < INT32_MAX ? gd_calloc(1, bytes) : NULL; /* kernel calls count them in an int */
    }
    if (!l) {
        gd_fail(GD_E_MEMORY, "no memory for a list of %lld tensors", (long long)count);
        return NULL;
    }
    l->is_short = is_short;
    l->last = keep ? (gd_tensor *)(void *)((char *)l + list_bytes) : NULL;
    if (keep)
        *l->last = (gd_tensor){.kind = GD_FAILED, .device = gd_cpu(), .made_site = thread->site};
    gd_object_init(&l->object, &list_class);
    gd_object_count(1);
    gd_scope_adopt(&l->object);
    return l->at;
}

gd_tensors gd_list_copy(gd_tensors given) {
    gd_tensor **copy = gd_list_new(given.count);
    if (!copy) {
        gd_error_record(GD_E_MEMORY);
        return gd_list_of_errors(given.count);
    }
    for (int64_t i = 0; i < given.count; i++) copy[i] = given.at[i];
    return (gd_tensors){copy, given.count};
}

/* A static list of error tensors, for calls that fail without memory. It has the layout of
 * tensor_list and is never freed. */
static struct {
    gd_object object;
    bool is_short;
    gd_tensor *last;
    gd_tensor *at[GD_FEW_ERRORS];
} errors = {.object = {.class = &list_class, .refs = GD_IMMORTAL}};

gd_tensors gd_list_of_errors(int64_t count) {
    if (count <= 0) count = GD_FAILED_COUNT;
    gd_tensor **at = count > GD_FEW_ERRORS ? gd_list_new(count) : NULL;
    for (int64_t i = 0; at && i < count; i++) at[i] = &gd_error_tensor;
    if (at) return (gd_tensors){at, count};
    return (gd_tensors){errors.at, count < GD_FEW_ERRORS ? count : GD_FEW_ERRORS};
}

static void __attribute__((constructor)) fill_errors(void) {
    for (int i = 0; i < GD_FEW_ERRORS; i++) errors.at[i] = &gd_error_tensor;
}

static tensor_list *list_of(gd_tensors tensors) {
    return (tensor_list *)(void *)((char *)(uintptr_t)tensors.at - offsetof(tensor_list, at));
}

gd_status gd_list_hold(gd_tensors tensors) {
    GD_TRY(gd_scope_reserve((size_t)tensors.count));
    for (int64_t i = 0; i < tensors.count; i++) {
        gd_object_retain(&tensors.at[i]->object);
        gd_scope_adopt(&tensors.at[i]->object);
    }
    return GD_OK;
}

void gd_list_drop(gd_tensors tensors) {
    if (tensors.at && gd_this_thread.depth == 0) gd_object_release(&list_of(tensors)->object);
}

gd_tensors gd_keep_list(gd_tensors tensors) {
    for (int64_t i = 0; i < tensors.count; i++) gd_keep(tensors.at[i]);
    if (tensors.at) gd_scope_keep(&list_of(tensors)->object);
    return tensors;
}

gd_status gd_hand_out_list(gd_tensors *tensors) {
    if (!gd_scope_keep(&list_of(*tensors)->object) && gd_this_thread.depth == 1) {
        gd_tensor **copy = gd_list_new(tensors->count);
        if (!copy) return GD_E_MEMORY;
        memcpy(copy, tensors->at, (size_t)tensors->count * sizeof *copy);
        tensors->at = copy;
        gd_scope_keep(&list_of(*tensors)->object);
    }
    for (int64_t i = 0; i < tensors->count; i++)
        if (tensors->at[i]) gd_scope_hand_out(&tensors->at[i]->object);
    return GD_OK;
}

/* In checked mode; the entries of a freed list have no class. */
static bool is_freed_list(gd_tensors tensors) {
    if (!gd_handles_checked || tensors.count < 1 || !tensors.at) return false;
    return tensors.at[0] && !tensors.at[0]->object.class && gd_is_freed(tensors.at[0]);
}

void gd_release_list(gd_tensors tensors) {
    if (is_freed_list(tensors)) {
        gd_report(NULL, gd_check_freed(tensors.at[0], "gd_release_list"));
        return;
    }
    for (int64_t i = 0; i < tensors.count; i++) gd_release(tensors.at[i]);
    if (tensors.at) gd_object_release(&list_of(tensors)->object);
}
