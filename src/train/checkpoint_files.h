/* checkpoint_files.h - the files in a folder of checkpoints.
 *
 *     run/step-00001234.safetensors     the state after 1234 batches
 *     run/best.safetensors              the best so far
 *     run/previous/                     checkpoints of an earlier run in this folder
 *     run/step-00001240.safetensors.tmp-1    one that is being written, or that a killed process has left
 */
#ifndef GRADUS_TRAIN_CHECKPOINT_FILES_H
#define GRADUS_TRAIN_CHECKPOINT_FILES_H

#include "core/error.h"

/* DIR/step-NNNNNNNN.safetensors and DIR/best.safetensors, from gd_malloc; NULL: no memory. */
char *gd_checkpoint_path(const char *folder, int64_t step);
char *gd_checkpoint_best_path(const char *folder);

/* The steps of the checkpoints in a folder, the newest first; from gd_malloc. A folder that is not
 * there has none. */
gd_status gd_checkpoint_steps(const char *folder, int64_t **steps, int *count);

/* Makes the folder, and those above it, if it is not there. It is on the disk then. */
gd_status gd_checkpoint_make_folder(const char *folder);

/* Removes what killed processes have left. A file that somebody writes stays. */
void gd_checkpoint_sweep(const char *folder);

/* Once the checkpoint of `step` is in place: removes all but the newest `keep` (0: removes none),
 * and later ones, which were damaged when the run was resumed from an earlier one. */
void gd_checkpoint_prune(const char *folder, int64_t step, int64_t keep);

/* Moves the checkpoints of an earlier run to the folder "previous" in it, and removes those that
 * were there. *moved is how many. */
gd_status gd_checkpoint_set_aside(const char *folder, int *moved);

#endif
