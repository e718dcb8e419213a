/* mix.h - checkpoints in which one part is not what it should be. */
#ifndef GRADUS_TESTS_MIX_H
#define GRADUS_TESTS_MIX_H

#include <stdbool.h>

/* Writes the file `into` anew, with the tensors and values of a part ("adam": all names that
 * begin with "adam.") taken from the file `from`. Its checksum is right. Returns how many
 * tensors and values of the part differ; -1: it cannot be done. */
int mix_part(const char *into, const char *from, const char *part);

/* The names of a file's parts, a line each, in `text`. */
bool mix_parts(const char *path, char *text, int size);

#endif
