/* thread.h - the state that the library keeps for each thread, in one block.
 *
 * With one block a call needs a single lookup of thread-local storage, whose cost is noticeable in
 * an add of one element.
 */
#ifndef GRADUS_CORE_THREAD_H
#define GRADUS_CORE_THREAD_H

#include <pthread.h>

#include "core/error.h"
#include "core/object.h"

enum { GD_INLINE_SCOPES = 32, GD_SCRATCH = 2048 };

/* Allocations minus frees by a thread; negative if it frees objects of other threads. Each thread
 * writes its own counts without a lock, which would take as long as the rest of a small op. Readers
 * add up the counts of all threads. */
typedef struct gd_counts {
    _Atomic int64_t objects;
    _Atomic int64_t small_bytes, small_taken; /* storages of a few elements (storage.c) */
} gd_counts;

/* The position of a scope's first object on the thread's stack of objects, and the location at
 * which the scope was opened. */
typedef struct gd_scope_start {
    size_t first;
    const char *site;
} gd_scope_start;

typedef struct gd_thread {
    /* errors: the latest gd_fail, and the recorded failure (error.h) */
    gd_status latest, recorded;
    bool latest_placed, recorded_placed; /* the text ends with a source location */
    bool latest_within, recorded_within; /* the text begins with the path of a module */
    bool raised;                         /* gd_raise has set the latest failure, and recorded it */

    /* scopes: the objects of all open scopes on one stack, and the start of each scope */
    gd_object **objects;
    size_t object_count, object_capacity;
    gd_scope_start *starts; /* inline_starts, or on the heap if there are more scopes */
    size_t depth, start_capacity;
    size_t unrecorded; /* scopes opened when there was no memory to record their start */
    /* location of the scope that is being closed; "": it has no location; NULL: none is closed */
    const char *closing;

    /* --- modes: everything that changes the meaning of calls on this thread --------------------
     * */

    gd_device *device; /* gd_set_default_device: the device of new tensors; NULL: the CPU */
    int no_grad;       /* GD_NO_GRAD: > 0, the tape does not record */
    int autocast;      /* GD_AUTOCAST: its gd_dtype; GD_DTYPE_NONE: off */
    bool tf32;         /* gd_allow_tf32 */
    void *tracer;      /* GD_GRAPH, gd_jit: the graph to which ops are appended; NULL: ops run */
    int rules;  /* > 0: in a gradient rule; nodes that it adds to a graph always have gradients */
    int bodies; /* > 0: in the body of an op */
    const struct gd_invocation *body; /* the call of that op, the outermost if they nest; or NULL */
    int attempts; /* > 0: in a gd_attempt (error.h); after a failure ops do not run */
    struct gd_transaction
        *transaction;          /* collects kernel calls (dispatch/call.h); NULL: they run */
    struct gd_rng *replay_rng; /* random ops take call numbers from here (a replay); or NULL */
    struct gd_rng *rng; /* the generator of a run on this thread; NULL: that of the process */
    int settled; /* > 0: all sizes are known; gradients of loops are computed, not deferred */
    double
        *macs; /* calls that infer shapes add their multiply-adds here (dispatch/macs.h); or NULL */
    int keeping_freed; /* > 0: freed handles are kept until the trace ends (core/freed.h) */
    int in_profiler;   /* > 0: the profiler does not record calls */
    const char *site;  /* location of the running public call, for calls by library code */

    /* --- caches and bookkeeping --------------------------------------------------------------- */

    struct gd_tensor *freed;        /* handles that `keeping_freed` keeps */
    struct gd_tensor *free_tensors; /* handles for reuse */
    int free_tensor_count;
    struct gd_small_storage *free_small; /* small storages with their buffers, for reuse */
    int free_small_count;
    struct gd_storage *free_storages; /* structs of storages for reuse */
    int free_storage_count;
    void *free_lists; /* short lists of tensors for reuse; their first word links to the next */
    int free_list_count;
    char *stack_end; /* the lowest address of the stack; NULL: not determined (gd_stack_end) */
    gd_counts counts;
    struct gd_module_watch *module_watch; /* observes module calls (nn/watch.h); or NULL */
    struct gd_module_frame *module_frame; /* the innermost running module call (nn/module.h) */
    struct gd_thread *next;               /* in the list of live threads */
    bool alive; /* in the list of live threads; its caches are freed when it ends */

    /* --- arrays: last, so that the fields above, which every call reads, share cache lines ----- */

    gd_scope_start inline_starts[GD_INLINE_SCOPES];
    char latest_text[GD_MESSAGE_MAX], recorded_text[GD_MESSAGE_MAX];
    /* the struct of a module whose creation has failed (nn/module.c) */
    _Alignas(16) char scratch[GD_SCRATCH];
} gd_thread;

/* The block is on the heap; only a pointer to it is thread-local. The pointer is initial-exec, so
 * that reading it takes one instruction also in a shared library. glibc has little space for such
 * variables in libraries that are opened by dlopen, so the library's thread-local segment must stay
 * small (tests/install checks it). Not under sanitizers: gcc's null check uses the flags of the
 * instruction that adds the offset, and the linker may relax it to an instruction that sets no
 * flags. */
#ifdef GD_SANITIZED
#define GD_THREAD_LOCAL _Thread_local
#else
#define GD_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) _Thread_local
#endif
extern GD_THREAD_LOCAL gd_thread *gd_thread_pointer;

/* Creates the block at the first call of a thread. Never fails: see thread.c. */
gd_thread *gd_thread_make(void);

static inline gd_thread *gd_thread_self(void) {
    gd_thread *thread = gd_thread_pointer;
    return __builtin_expect(thread != NULL, 1) ? thread : gd_thread_make();
}
#define gd_this_thread (*gd_thread_self())

/* gd_scope_adopt moves the reference of a new object to the innermost scope, if one is open. It
 * cannot fail, because gd_scope_reserve must be called before. */
gd_status gd_scope_grow(size_t objects); /* for gd_scope_reserve */
static inline gd_status gd_scope_reserve(size_t objects) {
    const gd_thread *thread = &gd_this_thread;
    const bool fits = thread->object_count + objects <= thread->object_capacity;
    return fits || thread->depth == 0 ? GD_OK : gd_scope_grow(objects);
}
static inline void gd_scope_adopt(gd_object *object) {
    gd_thread *thread = &gd_this_thread;
    if (thread->depth == 0) return;
    gd_object_set_place(object, thread->object_count);
    thread->objects[thread->object_count++] = object;
}

/* For the rest of the block, calls by library code have the source location of the program's call:
 * GD_CALLED_FROM(site). Calls by callbacks of the program have their own locations. */
static inline const char *gd_site_begin(const char *site) {
    gd_thread *thread = &gd_this_thread;
    const char *before = thread->site;
    if (site) thread->site = site;
    return before;
}
static inline void gd_site_end(const char **before) { gd_this_thread.site = *before; }
#define GD_CALLED_FROM(site) \
    __attribute__((cleanup(gd_site_end), unused)) const char *site_before_ = gd_site_begin(site)

/* For the rest of the block, creation ops put their results on the CPU: GD_ON_CPU; */
static inline gd_device *gd_on_cpu_begin(void) {
    gd_thread *thread = &gd_this_thread;
    gd_device *before = thread->device;
    thread->device = NULL;
    return before;
}
static inline void gd_on_cpu_end(gd_device **before) { gd_this_thread.device = *before; }
#define GD_ON_CPU \
    __attribute__((cleanup(gd_on_cpu_end), unused)) gd_device *device_before_ = gd_on_cpu_begin()

/* Fails with GD_E_MEMORY if this thread's stack is nearly full. Recursive code calls it: nested
 * functions of the program, nested graphs. */
gd_status gd_check_stack(void);
/* The lowest address of this thread's stack, or NULL. Cached: for the main thread the system reads
 * /proc/self/maps, which takes longer than many ops. */
const char *gd_stack_end(void);

/* Starts a thread of the library, with the program's signals blocked. False if the system cannot.
 * */
bool gd_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* Adds to a count that only this thread writes, or only threads that hold a lock. */
static inline void gd_count(_Atomic int64_t *count, int64_t change) {
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + change,
                          memory_order_relaxed);
}

/* Counts live objects for gd_live_objects. */
void gd_object_count_anywhere(int change);
static inline void gd_object_count(int change) {
    gd_thread *thread = gd_thread_self();
    if (__builtin_expect(thread->alive, 1)) gd_count(&thread->counts.objects, change);
    else gd_object_count_anywhere(change);
}

/* Counts allocated small storages and their bytes (negative: freed). Returns this thread's bytes.
 * */
int64_t gd_small_count(int taken, int64_t bytes);

/* The sum of the counts of all threads. */
void gd_counts_sum(gd_counts *sum);

#endif
