/* rwlock.h - a fair reader-writer lock for the variables of a session: readers share it, a writer has
 * it alone, and it is granted in the order of arrival. Threads that wait sleep. A fork() leaves it
 * usable in the child.
 */
#ifndef GRADUS_GRAPH_RWLOCK_H
#define GRADUS_GRAPH_RWLOCK_H

#include "core/error.h"
#include "graph/run/guard.h"

typedef struct gd_rwlock {
    gd_guard guard;
    int readers;
    bool written;     /* somebody has it for writing: */
    pthread_t writer; /* this thread */
    bool torn;        /* the process was forked while another thread wrote */
    gd_sleepers queue;
} gd_rwlock;

/* A turn that this thread has; on its stack. */
typedef struct gd_rwlock_hold {
    struct gd_rwlock_hold *before;
    gd_rwlock *turn;
    bool writes;
} gd_rwlock_hold;

void gd_rwlock_init(gd_rwlock *turn);
/* Waits. Refuses a second turn of the same thread where one of the two writes, and everything where
 * a fork has torn what is written. A refused turn is not left. */
gd_status gd_rwlock_take(gd_rwlock *turn, bool writes, gd_rwlock_hold *hold);
void gd_rwlock_release(gd_rwlock_hold *hold);

/* --- for forks (guard.c) ---------------------------------------------------------------------- */

/* From here on, threads that are in no run are given no turn to write. */
void gd_turns_hold_writers(bool held);
bool gd_rwlock_is_written(gd_rwlock *turn); /* by another thread */
void gd_rwlock_go_on(gd_rwlock *turn);      /* once writers are no longer held */
void gd_turns_in_child(void);
void gd_rwlock_in_child(gd_rwlock *turn); /* all guards are held */

#endif
