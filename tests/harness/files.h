/* files.h - small files and folders in tests: read, write, count, remove.
 *
 * The program aborts if a file cannot be written: the test cannot continue without it.
 */
#ifndef GRADUS_TESTS_HARNESS_FILES_H
#define GRADUS_TESTS_HARNESS_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* The contents of a file, followed by a zero byte; `bytes` may be NULL. free() it. NULL: the file
 * does not exist. */
void *file_read(const char *path, size_t *bytes);
void file_write(const char *path, const void *data, size_t bytes);
void file_write_text(const char *path, const char *text);
bool file_exists(const char *path);
/* Whether a file holds exactly this text; if not, prints its contents. */
bool file_has_text(const char *path, const char *text);

/* The number of files and folders in a folder. Names that begin with a dot are not counted. */
int folder_count(const char *folder);
/* Removes all files and folders in a folder. */
void folder_clear(const char *folder);
/* Removes a folder and its contents. */
void folder_remove(const char *folder);

/* Limits the size of files that this process writes, as a full disk would: writes beyond it fail.
 * -1: no limit. */
void file_size_limit(long bytes);

#endif
