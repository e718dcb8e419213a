/* rwlock.c - a fair reader-writer lock that survives fork(). */
#include "core/rwlock.h"

#include <stdatomic.h>

static _Thread_local gd_rwlock_hold *holds; /* the locks of this thread, the latest first */
static _Atomic int pending_forks;           /* while it is not 0, writers are held back */

void gd_rwlock_init(gd_rwlock *lock) {
    *lock = (gd_rwlock){.guard = gd_guard_new()};
    gd_sleepers_init(&lock->queue);
}

static bool can_take(const gd_rwlock *lock, bool writes, bool bound) {
    if (lock->written) return false;
    return !writes || (lock->readers == 0 && (bound || atomic_load(&pending_forks) == 0));
}

static void grant_lock(gd_rwlock *lock, bool writes, pthread_t thread) {
    lock->written = writes;
    lock->writer = thread;
    lock->readers += !writes;
}

/* Grants the lock to the threads at the head of the queue that can take it, and wakes them. */
static void wake_waiters(gd_rwlock *lock) {
    for (gd_sleeper *s; (s = lock->queue.first) && can_take(lock, s->writes, s->bound);) {
        grant_lock(lock, s->writes, s->thread);
        gd_wake_first(&lock->queue);
    }
}

/* A run inside a run of the same thread would wait for the outer one forever, if one of them
 * writes. */
static gd_status check_recursion(const gd_rwlock *lock, bool writes, bool *inside) {
    for (const gd_rwlock_hold *h = holds; h; h = h->before) {
        if (h->lock != lock) continue;
        *inside = true;
        if (writes || h->writes)
            return gd_fail(
                GD_E_STATE,
                "called from a function that a run of the same session or jit calls, where "
                "one of the two writes variables; call it after that run");
    }
    return GD_OK;
}

gd_status gd_rwlock_take(gd_rwlock *lock, bool writes, gd_rwlock_hold *hold) {
    bool inside = false;
    GD_TRY(check_recursion(lock, writes, &inside));
    gd_guard_lock(lock->guard);
    const bool torn = lock->torn, bound = holds != NULL;
    if (!torn && (inside || (!lock->queue.first && can_take(lock, writes, bound))))
        grant_lock(lock, writes, pthread_self());
    else if (!torn)
        gd_sleep(&lock->queue, lock->guard, &(gd_sleeper){.writes = writes, .bound = bound});
    gd_guard_unlock(lock->guard);
    if (torn)
        return gd_fail(
            GD_E_STATE,
            "the process was forked while another thread was in a run that writes variables, "
            "which may be incomplete in this child; fork between such runs, or create a new "
            "session or jit here");
    *hold = (gd_rwlock_hold){holds, lock, writes};
    holds = hold;
    return GD_OK;
}

void gd_rwlock_release(gd_rwlock_hold *hold) {
    gd_rwlock *lock = hold->lock;
    holds = hold->before;
    gd_guard_lock(lock->guard);
    if (hold->writes) lock->written = false;
    else lock->readers--;
    wake_waiters(lock);
    gd_guard_unlock(lock->guard);
}

/* --- forks ------------------------------------------------------------------------------------ */

void gd_rwlocks_hold_writers(bool hold) { atomic_fetch_add(&pending_forks, hold ? 1 : -1); }

bool gd_rwlock_is_written(gd_rwlock *lock) {
    gd_guard_lock(lock->guard);
    const bool written = lock->written && !pthread_equal(lock->writer, pthread_self());
    gd_guard_unlock(lock->guard);
    return written;
}

void gd_rwlock_wake(gd_rwlock *lock) {
    gd_guard_lock(lock->guard);
    wake_waiters(lock);
    gd_guard_unlock(lock->guard);
}

void gd_rwlocks_in_child(void) { atomic_store(&pending_forks, 0); }

void gd_rwlock_in_child(gd_rwlock *lock) {
    const bool written = lock->written;
    lock->readers = 0;
    lock->written = false;
    gd_sleepers_init(&lock->queue);
    for (const gd_rwlock_hold *h = holds; h; h = h->before)
        if (h->lock == lock) grant_lock(lock, h->writes, pthread_self());
    lock->torn |= written && !lock->written;
}
