/* thread.h - what the library remembers for each thread, in one block.
 *
 * One block means one look-up of thread-local storage in a call, which a one-element add feels.
 */
#ifndef GRADUS_CORE_THREAD_H
#define GRADUS_CORE_THREAD_H

#include <pthread.h>

#include "core/error.h"
#include "core/object.h"

enum { GD_INLINE_SCOPES = 32, GD_SCRATCH = 2048 };

/* What a thread has made and not freed; less than nothing where it frees what others made. Each
 * thread writes its own without a lock, which would take as long as the rest of a small op, and
 * readers add them up. */
typedef struct gd_counts {
    _Atomic int64_t objects;
    _Atomic int64_t small_bytes, small_taken; /* of storages of a few elements (storage.c) */
} gd_counts;

/* Where the objects of a scope begin on the thread's stack of objects, and where it was opened. */
typedef struct gd_scope_start {
    size_t first;
    const char *site;
} gd_scope_start;

typedef struct gd_thread {
    /* errors: `latest` is that of the latest gd_fail, `recorded` the first that stuck */
    gd_status latest, recorded;
    bool latest_placed, recorded_placed; /* the text ends with the place of a call */
    bool latest_within, recorded_within; /* it begins with the path of a module */
    char latest_text[GD_MESSAGE_MAX], recorded_text[GD_MESSAGE_MAX];

    /* scopes: objects of all open scopes on one stack, and where each scope begins */
    gd_object **objects;
    size_t object_count, object_capacity;
    gd_scope_start *starts, inline_starts[GD_INLINE_SCOPES];
    size_t depth, start_capacity;
    size_t unrecorded; /* scopes opened when there was no memory to record their start */
    const char
        *closing; /* the site of the scope that is being closed, "" if it has none; NULL: none */
    /* --- modes: everything that changes what a call of this thread means ---------------------- */

    gd_device *device; /* gd_set_default_device: where creation ops put results; NULL: the CPU */
    int no_grad;       /* GD_NO_GRAD: > 0, the tape does not record */
    int autocast;      /* GD_AUTOCAST: its gd_dtype; GD_DTYPE_NONE: off */
    void *tracer;      /* GD_GRAPH, gd_jit: the graph that ops are appended to; NULL: they run */
    int rules;  /* > 0: in a gradient rule; nodes that it adds to a graph always have gradients */
    int bodies; /* > 0: in the body of an op */
    const struct gd_invocation *body; /* the call of that op, the outermost of several; or NULL */
    int attempts; /* > 0: in a gd_attempt (error.h); after a failure ops do not run */
    struct gd_transaction
        *transaction; /* kernel calls are collected there (ops/call.h); NULL: they run */
    struct gd_rng
        *noise;  /* random ops take their numbers from here (a replay); NULL: the generator */
    int settled; /* > 0: all sizes are known; gradients of loops are computed, not deferred */
    double *
        macs; /* multiply-adds are added up here by calls that infer shapes (ops/macs.h); or NULL */
    int keeping_freed; /* > 0: freed handles are kept until the trace ends (core/freed.h) */
    int in_profiler;   /* > 0: calls are not recorded by the profiler */
    const char *site;  /* the place of the public call that runs: that of the library's own calls */

    /* --- caches and bookkeeping --------------------------------------------------------------- */

    struct gd_tensor *freed;        /* handles that `keeping_freed` keeps */
    struct gd_tensor *free_tensors; /* handles for reuse */
    int free_tensor_count;
    struct gd_small_storage *free_small; /* storages of a few elements for reuse, buffer included */
    int free_small_count;
    void *
        free_lists; /* short lists of tensors for reuse; the first word of each links to the next */
    int free_list_count;
    char *stack_end; /* the lowest address of its stack; NULL: not known yet (gd_stack_end) */
    gd_counts counts;
    _Alignas(16) char scratch
        [GD_SCRATCH]; /* the struct of a module that could not be made (nn/module.c) */
    struct gd_module_watch *module_watch; /* that looks on (nn/watch.h); NULL: none */
    struct gd_module_frame
        *module_frame;      /* of the innermost module that is being called (nn/module.h) */
    struct gd_thread *next; /* of all threads that are alive */
    bool alive;             /* on the list of threads; what it caches is freed when it ends */
} gd_thread;

/* The block is on the heap, and one pointer to it is thread-local. The pointer is initial-exec: one
 * instruction away in a shared library, too. glibc has little room for such variables in libraries
 * that are opened by dlopen, so the library's whole thread-local segment stays small (tests/install
 * checks it). Not under the sanitizers: gcc's check for null looks at the flags of the addition of
 * the offset, which the linker relaxes to an instruction that sets none. */
#ifdef GD_SANITIZED
#define GD_THREAD_LOCAL _Thread_local
#else
#define GD_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) _Thread_local
#endif
extern GD_THREAD_LOCAL gd_thread *gd_thread_pointer;

/* Makes the block of a thread that calls for the first time. Never fails: see thread.c. */
gd_thread *gd_thread_make(void);

static inline gd_thread *gd_thread_self(void) {
    gd_thread *thread = gd_thread_pointer;
    return __builtin_expect(thread != NULL, 1) ? thread : gd_thread_make();
}
#define gd_this_thread (*gd_thread_self())

/* For the rest of the block, calls that library code makes have the place of the program's call:
 * GD_CALLED_FROM(site). Calls that the program's callbacks make in it have their own places. */
static inline const char *gd_site_begin(const char *site) {
    gd_thread *thread = &gd_this_thread;
    const char *before = thread->site;
    if (site) thread->site = site;
    return before;
}
static inline void gd_site_end(const char **before) { gd_this_thread.site = *before; }
#define GD_CALLED_FROM(site) \
    __attribute__((cleanup(gd_site_end), unused)) const char *site_before_ = gd_site_begin(site)

/* GD_E_MEMORY where this thread's stack is nearly used up. Called where functions of the program, or graphs
 * in graphs, nest. */
gd_status gd_check_stack(void);
/* The lowest address of this thread's stack; NULL: not known. Found once for each thread: for the main thread
 * the system reads /proc/self/maps, which takes longer than many ops. */
const char *gd_stack_end(void);

/* Starts a thread of the library, which the program's signals do not interrupt. False: the system
 * refused. */
bool gd_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* Adds to a count that only this thread writes. */
static inline void gd_count(_Atomic int64_t *count, int64_t change) {
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + change,
                          memory_order_relaxed);
}

/* Counts small storages taken, and bytes taken or, negative, given back; returns this thread's. */
int64_t gd_small_count(int taken, int64_t bytes);

/* The counts of all threads together. */
void gd_counts_sum(gd_counts *sum);

#endif
