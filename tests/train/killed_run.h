/* killed_run.h - a small training run that uses everything with state, for the tests that kill it.
 *
 * It has Adam, a cosine schedule with warm-up, dropout, batch norm, augmentation, 4 workers,
 * accumulation, clipping, validation, metrics, early stopping, a callback with state, and
 * checkpoints. Early stopping ends it after 84 batches.
 */
#ifndef GRADUS_TESTS_TRAIN_KILLED_RUN_H
#define GRADUS_TESTS_TRAIN_KILLED_RUN_H

#include <stdint.h>

enum { KILLED_EVERY_STEPS = 5 }; /* steps between two checkpoints */

/* Memory that the run shares with the test. It survives the kill. */
typedef struct killed_page {
    _Atomic int64_t step;     /* completed batches of the run, all processes together */
    _Atomic int64_t resumed;  /* step from which the log reports a resume; -1: none */
    _Atomic int64_t warnings; /* number of warnings in the log */
    _Atomic int64_t stopped;  /* step after which the log reports a stop by SIGTERM; -1: none */
    _Atomic int64_t
        die_at;        /* the run kills itself after this batch, before its checkpoint; 0: no */
    char warning[500]; /* the latest warning */
} killed_page;

/* Maps the file at this path and creates it if needed; NULL: failed. */
killed_page *killed_page_open(const char *path);

/* Resumes from the checkpoints in `folder`, or starts. Writes weights to the file `result` and the
 * history to `result`.txt. Returns 0, or 1 with the reason on stderr. */
int killed_run(const char *folder, const char *result, killed_page *page);

#endif
