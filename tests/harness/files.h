/* files.h - small files and folders in tests: read, write, count, remove.
 *
 * A file that cannot be written ends the program: the test cannot go on without it.
 */
#ifndef GRADUS_TESTS_FILES_H
#define GRADUS_TESTS_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* The contents of a file, with a zero byte behind them; `bytes` may be NULL. NULL: there is no such
 * file. free() it. */
void *file_read(const char *path, size_t *bytes);
void file_write(const char *path, const void *data, size_t bytes);
void file_write_text(const char *path, const char *text);
bool file_exists(const char *path);
/* Whether a file holds exactly this text; prints what it holds instead. */
bool file_has_text(const char *path, const char *text);

/* The number of files and folders in a folder. Names that begin with a dot are not counted. */
int folder_count(const char *folder);
/* Removes all files and folders in a folder. */
void folder_clear(const char *folder);
/* Removes a folder and all that is in it. */
void folder_remove(const char *folder);

#endif
