/* fork.h - locks that a fork() waits for.
 *
 * Only the forking thread exists in the child. A lock that another thread holds during the fork
 * would stay locked there for ever, so the forking thread takes all locks first:
 *
 *     static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
 *     GD_MUTEX_AT_FORK(lock)
 *
 * Fork handlers run in the reverse order of their registration. A lock that is taken while another
 * one is held must be taken last, so it is registered first: GD_INNER_MUTEX_AT_FORK.
 */
#ifndef GRADUS_CORE_FORK_H
#define GRADUS_CORE_FORK_H

#include <pthread.h>

#define GD_AT_FORK_(lock, ...)                                                    \
    static void lock##_before_fork(void) { pthread_mutex_lock(&lock); }           \
    static void lock##_after_fork(void) { pthread_mutex_unlock(&lock); }          \
    __attribute__((constructor __VA_ARGS__)) static void lock##_at_fork(void) {   \
        pthread_atfork(lock##_before_fork, lock##_after_fork, lock##_after_fork); \
    }

#define GD_MUTEX_AT_FORK(lock)       GD_AT_FORK_(lock)
#define GD_INNER_MUTEX_AT_FORK(lock) GD_AT_FORK_(lock, (200))
#endif
