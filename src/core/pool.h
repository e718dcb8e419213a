/* pool.h - the one thread pool.
 *
 * Work is cut into pieces by shapes alone, never by the number of threads, so that results have
 * the same bits however many threads run. The pool only decides who runs a piece.
 */
#ifndef GRADUS_CORE_POOL_H
#define GRADUS_CORE_POOL_H

#include <stdint.h>

/* Runs body(arg, i) once for every i in [0, n), on the calling thread and the pool's workers, and
 * returns when all are done. Each thread has a run of pieces of its own, the same in every loop of
 * as many, and helps the others when it is done. n == 1 (or one thread) runs inline, in order.
 * Called from inside a piece, or while another host thread has the pool, it runs inline: the
 * result is the same. Never fails: where threads cannot be made, the caller does the work. */
void gd_parallel_for(int64_t n, void (*body)(void *arg, int64_t i), void *arg);

/* From here on, loops of this thread run inline. For threads that work beside the program's, as those
 * of a data loader: a step of training is not to find the pool taken by them. */
void gd_pool_stay_out(void);

#endif
