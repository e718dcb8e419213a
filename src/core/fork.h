/* fork.h - locks that a fork() waits for.
 *
 * Only the forking thread lives on in the child. A lock that another thread held at that moment
 * would stay held for ever, so the forking thread takes them all first:
 *
 *     static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
 *     GD_MUTEX_AT_FORK(lock)
 *
 * Handlers run in the reverse order of their registration. A lock that is taken while another one
 * is held must come last, and is registered first: GD_INNER_MUTEX_AT_FORK.
 */
#ifndef GRADUS_CORE_FORK_H
#define GRADUS_CORE_FORK_H

#include <pthread.h>

#define GD_AT_FORK_(lock, take, give, renew, ...)                                \
    static void lock##_before_fork(void) { take(&lock); }                        \
    static void lock##_in_parent(void) { give(&lock); }                          \
    static void lock##_in_child(void) { renew; }                                 \
    __attribute__((constructor __VA_ARGS__)) static void lock##_at_fork(void) {  \
        pthread_atfork(lock##_before_fork, lock##_in_parent, lock##_in_child);   \
    }

#define GD_MUTEX_AT_FORK(lock) \
    GD_AT_FORK_(lock, pthread_mutex_lock, pthread_mutex_unlock, pthread_mutex_unlock(&lock))
#define GD_INNER_MUTEX_AT_FORK(lock) \
    GD_AT_FORK_(lock, pthread_mutex_lock, pthread_mutex_unlock, pthread_mutex_unlock(&lock), (200))
/* A lock for writing knows its thread by a number that the child does not have: a new one. */
#define GD_RWLOCK_AT_FORK(lock) \
    GD_AT_FORK_(lock, pthread_rwlock_wrlock, pthread_rwlock_unlock, pthread_rwlock_init(&lock, NULL))

#endif
