/* thread.c - threads that the library knows: their counts, and what is freed when they end. */
#include "core/thread.h"

#include <pthread.h>
#include <string.h>

#include "core/alloc.h"
#include "core/storage.h"
#include "core/tensor.h"

GD_THREAD_LOCAL gd_thread gd_this_thread;

static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;

/* All threads that live, and what those that have ended, or were never attached, have counted. */
static gd_thread *threads;
static gd_counts others;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* --- counts ------------------------------------------------------------------------------------
 */

static void add_shared(_Atomic int64_t *count, int64_t change) {
    atomic_fetch_add_explicit(count, change, memory_order_relaxed);
}

static void add_all(gd_counts *to, const gd_counts *from) {
    add_shared(&to->objects, atomic_load_explicit(&from->objects, memory_order_relaxed));
    add_shared(&to->small_bytes, atomic_load_explicit(&from->small_bytes, memory_order_relaxed));
    add_shared(&to->small_taken, atomic_load_explicit(&from->small_taken, memory_order_relaxed));
}

void gd_object_count(int change) {
    gd_thread *thread = &gd_this_thread;
    if (thread->alive)
        gd_count(&thread->counts.objects, change);
    else
        add_shared(&others.objects, change);
}

int64_t gd_small_count(int taken, int64_t bytes) {
    gd_thread *thread = &gd_this_thread;
    if (!thread->alive) {
        add_shared(&others.small_taken, taken);
        add_shared(&others.small_bytes, bytes);
        return atomic_load_explicit(&others.small_bytes, memory_order_relaxed);
    }
    gd_count(&thread->counts.small_taken, taken);
    gd_count(&thread->counts.small_bytes, bytes);
    return atomic_load_explicit(&thread->counts.small_bytes, memory_order_relaxed);
}

void gd_counts_sum(gd_counts *sum) {
    memset(sum, 0, sizeof *sum);
    pthread_mutex_lock(&lock);
    add_all(sum, &others);
    for (const gd_thread *t = threads; t; t = t->next) add_all(sum, &t->counts);
    pthread_mutex_unlock(&lock);
}

int64_t gd_live_objects(void) {
    gd_counts sum;
    gd_counts_sum(&sum);
    return sum.objects;
}

/* --- the beginning and the end -----------------------------------------------------------------
 */

static void thread_end(void *arg) {
    gd_thread *thread = arg;
    pthread_mutex_lock(&lock);
    gd_thread **link = &threads;
    while (*link && *link != thread) link = &(*link)->next;
    if (*link) *link = thread->next;
    add_all(&others, &thread->counts);
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
    memset(thread, 0, sizeof *thread);
}

static void make_key(void) { pthread_key_create(&thread_key, thread_end); }

/* The main thread ends by exit(), which runs no key destructors. */
static void __attribute__((destructor)) at_exit(void) {
    if (gd_this_thread.alive) thread_end(&gd_this_thread);
}

void gd_thread_attach_now(gd_thread *thread) {
    pthread_once(&thread_key_once, make_key);
    pthread_setspecific(thread_key, thread);
    pthread_mutex_lock(&lock);
    thread->next = threads;
    threads = thread;
    pthread_mutex_unlock(&lock);
    thread->alive = true;
}

/* --- fork --------------------------------------------------------------------------------------
 */

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }

/* Only this thread lives on; what the others have counted stays. */
static void in_child(void) {
    gd_thread *self = NULL;
    for (gd_thread *t = threads; t; t = t->next) {
        if (t == &gd_this_thread)
            self = t;
        else
            add_all(&others, &t->counts);
    }
    if (self) self->next = NULL;
    threads = self;
    pthread_mutex_unlock(&lock);
}

/* Early, so that the lock is taken last: see fork.h. */
__attribute__((constructor(200))) static void at_fork(void) {
    pthread_atfork(before_fork, in_parent, in_child);
}
