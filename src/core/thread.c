/* thread.c - the blocks of threads (thread.h): creation, counts, and cleanup when a thread ends. */
#include "core/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/storage.h"
#include "core/tensor.h"

GD_THREAD_LOCAL gd_thread *gd_thread_pointer;

static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;
static _Atomic bool has_thread_key;

/* All live threads, and the counts of threads that have ended or have an emergency block. */
static gd_thread *threads;
static gd_counts others;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* --- counts ----------------------------------------------------------------------------------- */

static void add_atomic(_Atomic int64_t *count, int64_t change) {
    atomic_fetch_add_explicit(count, change, memory_order_relaxed);
}

static void add_counts(gd_counts *to, const gd_counts *from) {
    add_atomic(&to->objects, atomic_load_explicit(&from->objects, memory_order_relaxed));
    add_atomic(&to->small_bytes, atomic_load_explicit(&from->small_bytes, memory_order_relaxed));
    add_atomic(&to->small_taken, atomic_load_explicit(&from->small_taken, memory_order_relaxed));
}

void gd_object_count_anywhere(int change) { add_atomic(&others.objects, change); }

int64_t gd_small_count(int taken, int64_t bytes) {
    gd_thread *thread = &gd_this_thread;
    if (!thread->alive) {
        add_atomic(&others.small_taken, taken);
        add_atomic(&others.small_bytes, bytes);
        return atomic_load_explicit(&others.small_bytes, memory_order_relaxed);
    }
    gd_count(&thread->counts.small_taken, taken);
    gd_count(&thread->counts.small_bytes, bytes);
    return atomic_load_explicit(&thread->counts.small_bytes, memory_order_relaxed);
}

void gd_counts_sum(gd_counts *sum) {
    memset(sum, 0, sizeof *sum);
    pthread_mutex_lock(&lock);
    add_counts(sum, &others);
    for (const gd_thread *t = threads; t; t = t->next) add_counts(sum, &t->counts);
    pthread_mutex_unlock(&lock);
}

int64_t gd_live_objects(void) {
    gd_counts sum;
    gd_counts_sum(&sum);
    return sum.objects;
}

/* --- creation and end ------------------------------------------------------------------------- */

/* If there is no memory for the block of a thread, it gets an emergency block, so that it can
 * report the failure. If all are taken, threads share the last one. */
enum { EMERGENCY_BLOCKS = 8 };
static gd_thread emergency[EMERGENCY_BLOCKS];
static atomic_flag emergency_taken[EMERGENCY_BLOCKS - 1];

static gd_thread *take_emergency_block(void) {
    int i = 0;
    while (i < EMERGENCY_BLOCKS - 1 && atomic_flag_test_and_set(&emergency_taken[i])) i++;
    return &emergency[i];
}

static void free_thread_block(gd_thread *thread) {
    if (thread < emergency || thread >= emergency + EMERGENCY_BLOCKS) {
        free(thread);
        return;
    }
    memset(thread, 0, sizeof *thread);
    if (thread - emergency < EMERGENCY_BLOCKS - 1)
        atomic_flag_clear(&emergency_taken[thread - emergency]);
}

static void thread_end(void *arg) {
    gd_thread *thread = arg;
    pthread_mutex_lock(&lock);
    gd_thread **link = &threads;
    while (*link && *link != thread) link = &(*link)->next;
    if (*link) *link = thread->next;
    add_counts(&others, &thread->counts);
    pthread_mutex_unlock(&lock);
    gd_free(thread->objects);
    if (thread->starts != thread->inline_starts) gd_free(thread->starts);
    gd_tensor_free_cached(thread);
    gd_storage_free_cached(thread);
    while (thread->free_lists) {
        void *list = thread->free_lists;
        thread->free_lists = *(void **)list;
        gd_free(list);
    }
    if (thread == gd_thread_pointer) gd_thread_pointer = NULL;
    free_thread_block(thread);
}

static void make_thread_key(void) {
    atomic_store(&has_thread_key, pthread_key_create(&thread_key, thread_end) == 0);
}

/* The main thread ends by exit(), which runs no key destructors. */
static void __attribute__((destructor)) at_exit(void) {
    if (gd_thread_pointer) thread_end(gd_thread_pointer);
}

/* A thread that outlives dlclose() must not call thread_end, which is unmapped. This is the last
 * destructor, because others end the threads of the library. */
static void __attribute__((destructor(101))) delete_thread_key(void) {
    if (atomic_exchange(&has_thread_key, false)) pthread_key_delete(thread_key);
}

gd_thread *gd_thread_make(void) {
    gd_thread *thread = calloc(1, sizeof *thread);
    bool heap = thread != NULL;
    if (!heap) thread = take_emergency_block();
    gd_thread_pointer = thread;
    pthread_once(&thread_key_once, make_thread_key);
    if (atomic_load(&has_thread_key)) pthread_setspecific(thread_key, thread);
    if (!heap) return thread;
    pthread_mutex_lock(&lock);
    thread->next = threads;
    threads = thread;
    pthread_mutex_unlock(&lock);
    thread->alive = true;
    return thread;
}

/* --- threads of the library ------------------------------------------------------------------- */

/* Signals are for the program's threads, so they are blocked during pthread_create: a new thread
 * inherits the mask. Faults are not blocked, because debuggers and sanitizers handle them in the
 * thread that causes them. */
bool gd_thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
    sigset_t blocked, before;
    sigfillset(&blocked);
    const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    const bool started = pthread_create(thread, NULL, run, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* --- stack ------------------------------------------------------------------------------------ */

/* More than any call path needs between two checks. */
enum { STACK_NEEDED = 24 << 10 };

static char *find_stack_end(void) {
    pthread_attr_t attributes;
    void *lowest = NULL;
    size_t bytes, guard = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return NULL;
    if (pthread_attr_getstack(&attributes, &lowest, &bytes) != 0) lowest = NULL;
    pthread_attr_getguardsize(&attributes, &guard);
    pthread_attr_destroy(&attributes);
    return lowest ? (char *)lowest + guard : NULL;
}

const char *gd_stack_end(void) {
    gd_thread *thread = &gd_this_thread;
    if (!thread->stack_end) thread->stack_end = find_stack_end();
    return thread->stack_end;
}

gd_status gd_check_stack(void) {
    const char *here = __builtin_frame_address(0), *end = gd_stack_end();
    /* an address below `end` is on another stack: the program switches stacks */
    if (!end || here < end || here - end >= STACK_NEEDED) return GD_OK;
    return gd_fail(GD_E_MEMORY,
                   "the stack of this thread has %zu bytes left, and %d may be needed: branches, "
                   "loops and functions "
                   "nest too deeply for it",
                   (size_t)(here - end), STACK_NEEDED);
}

/* --- fork ------------------------------------------------------------------------------------- */

static void lock_threads(void) { pthread_mutex_lock(&lock); }
static void unlock_threads(void) { pthread_mutex_unlock(&lock); }

/* Only the forking thread exists in the child. The counts of the other threads are kept, and so are
 * their blocks, which they may have been changing. */
static gd_thread *stranded;

static void strand_other_threads(void) {
    gd_thread *self = NULL;
    for (gd_thread *t = threads, *next; t; t = next) {
        next = t->next;
        if (t == gd_thread_pointer) {
            self = t;
            continue;
        }
        add_counts(&others, &t->counts);
        t->next = stranded;
        stranded = t;
    }
    if (self) self->next = NULL;
    threads = self;
    pthread_mutex_unlock(&lock);
}

/* Registered early, so that the lock is taken last: see fork.h. */
__attribute__((constructor(200))) static void at_fork(void) {
    pthread_atfork(lock_threads, unlock_threads, strand_other_threads);
}
