/* temp.h - temporary files of tests: one folder for each process, in $TMPDIR or /tmp.
 *
 *     const char *path = temp_path("net.safetensors");
 *     gd_save_state(path, ...);
 *
 * The folder is made by the first call and removed with all that is in it when the process ends.
 * A child of fork() uses its parent's folder and does not remove it. The paths returned here stay
 * valid until the process ends. files.h reads and writes files.
 */
#ifndef GRADUS_TESTS_TEMP_H
#define GRADUS_TESTS_TEMP_H

#include <stddef.h>

const char *temp_folder(void);

/* The path of a file in the folder, its name written as printf does. */
const char *temp_path(const char *name, ...) __attribute__((format(printf, 1, 2)));

/* A new empty folder in it; one of that name is removed first. */
const char *temp_new_folder(const char *name);

/* Writes a file in the folder and returns its path. */
const char *temp_write(const char *name, const void *data, size_t bytes);
const char *temp_write_text(const char *name, const char *text);

#endif
