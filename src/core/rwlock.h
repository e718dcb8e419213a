/* rwlock.h - a fair reader-writer lock for the variables of a session: readers share it, a writer
 * has it exclusively, and it is granted in the order of arrival. It stays usable in the child of a
 * fork().
 */
#ifndef GRADUS_CORE_RWLOCK_H
#define GRADUS_CORE_RWLOCK_H

#include "core/error.h"
#include "core/guard.h"

typedef struct gd_rwlock {
    gd_guard guard;
    int readers;
    bool written; /* it is held for writing, by `writer` */
    pthread_t writer;
    bool torn; /* in a child: the process was forked while another thread wrote */
    gd_sleepers queue;
} gd_rwlock;

/* A lock that this thread holds; on its stack. */
typedef struct gd_rwlock_hold {
    struct gd_rwlock_hold *before; /* the one taken before */
    gd_rwlock *lock;
    bool writes;
} gd_rwlock_hold;

void gd_rwlock_init(gd_rwlock *lock);
/* Waits for the lock. Fails if this thread holds it already and one of the two uses writes, or if
 * the lock is torn. Release it only after success. */
gd_status gd_rwlock_take(gd_rwlock *lock, bool writes, gd_rwlock_hold *hold);
void gd_rwlock_release(gd_rwlock_hold *hold);

/* --- for forks (guard.c) ---------------------------------------------------------------------- */

/* While `held`, a thread that holds no lock cannot get one for writing. */
void gd_rwlocks_hold_writers(bool held);
bool gd_rwlock_is_written(gd_rwlock *lock); /* by another thread */
void gd_rwlock_wake(gd_rwlock *lock);       /* after writers are no longer held back */
void gd_rwlocks_in_child(void);
void gd_rwlock_in_child(gd_rwlock *lock); /* all guards are locked */

#endif
