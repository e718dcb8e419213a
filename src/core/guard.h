/* guard.h - the locks of sessions and jits, which stay usable in the child of a fork().
 *
 * Objects share a few mutexes, called guards. A guard is locked for a few instructions, never while
 * user code runs, and no thread locks two; a fork() waits until it has locked them all. Longer work
 * (building a plan, tracing a function, a run) is a state that the guard protects, and other
 * threads sleep until it ends. In the child only the forking thread exists: each object then resets
 * the work of the other threads.
 */
#ifndef GRADUS_CORE_GUARD_H
#define GRADUS_CORE_GUARD_H

#include <pthread.h>
#include <stdbool.h>

typedef int gd_guard;

gd_guard gd_guard_new(void); /* shared with other objects */
void gd_guard_lock(gd_guard guard);
void gd_guard_unlock(gd_guard guard);

/* --- sleeping --------------------------------------------------------------------------------- */

/* A sleeping thread. It lies on the thread's stack, so a fork cannot leave a queue inconsistent. */
typedef struct gd_sleeper {
    struct gd_sleeper *next;
    pthread_cond_t cond;
    pthread_t thread;
    bool writes; /* rwlock: it waits to write */
    bool bound;  /* rwlock: its thread holds another lock, in a run that must continue */
    bool awake;
} gd_sleeper;

typedef struct gd_sleepers {
    gd_sleeper *first, **last;
} gd_sleepers;

void gd_sleepers_init(gd_sleepers *s);
/* Releases the guard and sleeps at the end of the queue until gd_wake_first wakes it. */
void gd_sleep(gd_sleepers *s, gd_guard guard, gd_sleeper *self);
void gd_wake_first(gd_sleepers *s);

/* Long work that one thread at a time does. The owner may begin it recursively. */
typedef struct gd_work {
    pthread_t owner;
    int depth;
    gd_sleepers sleepers;
} gd_work;

void gd_work_init(gd_work *w);
/* With the guard locked: if another thread is working, sleeps until it ends and returns true. */
bool gd_work_waited(gd_work *w, gd_guard guard);
void gd_work_begin(gd_work *w);
void gd_work_end(gd_work *w);
/* In the child of a fork: resets the work of another thread. Returns whether there was any. */
bool gd_work_in_child(gd_work *w);

/* --- fork ------------------------------------------------------------------------------------- */

/* An object that is called in the child of a fork. */
typedef struct gd_forked {
    struct gd_forked *next, **link;
    void (*in_child)(struct gd_forked *self); /* all guards are locked */
    struct gd_rwlock *lock;                   /* its lock (rwlock.h), or NULL */
} gd_forked;

void gd_forked_add(gd_forked *f); /* with no guard locked */
void gd_forked_remove(gd_forked *f);

#endif
