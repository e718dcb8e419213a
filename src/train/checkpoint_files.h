/* checkpoint_files.h - the files in a folder of checkpoints.
 *
 *     run/step-00001234.safetensors     the state after 1234 batches
 *     run/best.safetensors              the best so far
 *     run/previous/                     checkpoints of an earlier run in this folder
 *     run/previous-2/                   those of one more, if a run with .resume started here
 *     run/step-00001240.safetensors.tmp-1    temporary: a save in progress, or that was killed
 */
#ifndef GRADUS_TRAIN_CHECKPOINT_FILES_H
#define GRADUS_TRAIN_CHECKPOINT_FILES_H

#include "core/error.h"

/* DIR/step-NNNNNNNN.safetensors and DIR/best.safetensors, from gd_malloc; NULL: no memory. */
char *gd_checkpoint_path(const char *folder, int64_t step);
char *gd_checkpoint_best_path(const char *folder);

/* The steps of the checkpoints in a folder, the newest first; from gd_malloc. A folder that
 * does not exist has none. */
gd_status gd_checkpoint_steps(const char *folder, int64_t **steps, int *count);

/* Creates the folder and those above it, unless it exists. It is durable afterwards. */
gd_status gd_checkpoint_make_folder(const char *folder);

/* Removes temporary files of processes that have died. */
void gd_checkpoint_sweep(const char *folder);

/* Of the checkpoints up to that of `step`, removes all but the newest `keep`; 0: keeps all. */
void gd_checkpoint_prune(const char *folder, int64_t step, int64_t keep);

/* Removes those after `step`, except that of `saved`. */
void gd_checkpoint_remove_later(const char *folder, int64_t step, int64_t saved);

bool gd_checkpoint_same_folder(const char *a, const char *b);

/* The number of checkpoints of steps in a folder, and whether it has best.safetensors. */
gd_status gd_checkpoint_count(const char *folder, int *steps, bool *best);

/* Moves the checkpoints of an earlier run to the folder "previous" in it. Those that are there are
 * removed if `replaces`; otherwise the first of "previous", "previous-2", ... that has none is
 * taken. *moved is the number of those of steps, and `name` that of the folder. */
gd_status gd_checkpoint_set_aside(const char *folder, bool replaces, int *moved, char name[32]);

#endif
