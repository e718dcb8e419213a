/* pool.h - the thread pool.
 *
 * Work is partitioned into tasks by shapes alone, never by the number of threads, so results have
 * the same bits for any number of threads. The pool only decides which thread runs a task.
 */
#ifndef GRADUS_CORE_POOL_H
#define GRADUS_CORE_POOL_H

#include <stdint.h>

/* Runs body(arg, i) once for every task i in [0, n), on the calling thread and the pool's workers,
 * and returns when all are done. Each thread starts with a range of tasks, which is the same in
 * every loop of n tasks, and then steals tasks from the others. The loop runs inline and in order
 * if n == 1, with one thread, inside of a task, or while another host thread uses the pool. Never
 * fails: if threads cannot be created, the caller runs the tasks. */
void gd_parallel_for(int64_t n, void (*body)(void *arg, int64_t i), void *arg);

/* Makes all later loops of this thread run inline. For background threads, such as those of a data
 * loader, so that they do not take the pool away from a training step. */
void gd_pool_stay_out(void);

#endif
