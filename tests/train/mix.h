/* mix.h - replaces one part of a checkpoint by that of another checkpoint. */
#ifndef GRADUS_TESTS_TRAIN_MIX_H
#define GRADUS_TESTS_TRAIN_MIX_H

#include <stdbool.h>

/* Replaces the tensors and values of a part of the file `into` ("adam": all names that begin with
 * "adam.") by those of the file `from`, and updates the checksum. Returns the number of tensors and
 * values of the part that differ; -1: failed. */
int mix_part(const char *into, const char *from, const char *part);

/* Stores the names of a file's parts in `text`, one per line. */
bool mix_parts(const char *path, char *text, int size);

#endif
