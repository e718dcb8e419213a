/* killed_run.h - a small training run with everything that has state, for the tests that kill
 * it.
 *
 * Adam, a cosine schedule with warm-up, dropout, batch norm, augmentation, 4 workers,
 * accumulation, clipping, validation, metrics, early stopping, a callback with state, and
 * checkpoints. Early stopping ends it after 84 batches.
 */
#ifndef GRADUS_TESTS_KILLED_RUN_H
#define GRADUS_TESTS_KILLED_RUN_H

#include <stdint.h>

enum { KILLED_EVERY_STEPS = 5 };

/* Shared memory: what the run says of itself while it can. */
typedef struct killed_page {
    _Atomic int64_t step;     /* batches done, of the run in all */
    _Atomic int64_t resumed;  /* the step it was resumed from, as the log says; -1: it was not */
    _Atomic int64_t warnings; /* in the log */
    _Atomic int64_t
        stopped; /* the step after which a signal has stopped it, as the log says; -1: none has */
    _Atomic int64_t
        die_at;        /* the batch after which it kills itself, before the checkpoint; 0: none */
    char warning[500]; /* the latest */
} killed_page;

/* Maps the file at this path, which is made if it is not there; NULL: it cannot be. */
killed_page *killed_page_open(const char *path);

/* Goes on from what is in `folder`, or starts; writes weights and history to `result`. Returns
 * 0, or 1 with the reason on stderr. */
int killed_run(const char *folder, const char *result, killed_page *page);

#endif
