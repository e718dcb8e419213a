/* guard.h - the locks of sessions and jits, which stay usable in the child of a fork().
 *
 * Objects share a few mutexes, their guards. A guard is held for a few instructions, never while
 * user code runs, and never two at a time; a fork() waits for all of them. What takes longer
 * (making a plan, tracing a function, a run) is a state that the guard protects and that other
 * threads sleep on. In the child only the forking thread lives on: each object then forgets what
 * the other threads were doing.
 */
#ifndef GRADUS_GRAPH_GUARD_H
#define GRADUS_GRAPH_GUARD_H

#include <pthread.h>
#include <stdbool.h>

typedef int gd_guard;

gd_guard gd_guard_new(void); /* one of the few */
void gd_guard_lock(gd_guard guard);
void gd_guard_unlock(gd_guard guard);

/* --- sleeping --------------------------------------------------------------------------------- */

/* A thread that sleeps, on its own stack: a queue has no state that a fork could tear. */
typedef struct gd_sleeper {
    struct gd_sleeper *next;
    pthread_cond_t cond;
    pthread_t thread;
    bool writes; /* for turns */
    bool bound;  /* for turns: its thread is in another run, which must go on */
    bool awake;
} gd_sleeper;

typedef struct gd_sleepers {
    gd_sleeper *first, **last;
} gd_sleepers;

void gd_sleepers_init(gd_sleepers *s);
/* Gives the guard up until gd_wake; sleepers stand in a queue. */
void gd_sleep(gd_sleepers *s, gd_guard guard, gd_sleeper *self);
void gd_wake_first(gd_sleepers *s);

/* Work that one thread at a time does, and that takes long. The owner may begin it again inside. */
typedef struct gd_work {
    pthread_t owner;
    int depth;
    gd_sleepers sleepers;
} gd_work;

void gd_work_init(gd_work *w);
/* With the guard held: whether another thread is at it; then sleeps until that has ended. */
bool gd_work_waited(gd_work *w, gd_guard guard);
void gd_work_begin(gd_work *w);
void gd_work_end(gd_work *w);
/* In the child of a fork: forgets the work of another thread, and tells whether there was some. */
bool gd_work_in_child(gd_work *w);

/* --- fork ------------------------------------------------------------------------------------- */

/* An object that has to know that it is in the child of a fork. */
typedef struct gd_forked {
    struct gd_forked *next, **link;
    void (*in_child)(struct gd_forked *self); /* all guards are held */
    struct gd_rwlock *turn;                   /* its turn (turn.h), or NULL */
} gd_forked;

void gd_forked_add(gd_forked *f); /* no guard is held */
void gd_forked_remove(gd_forked *f);

#endif
