/* temp.h - temporary files of tests: one folder per process, in $TMPDIR or /tmp.
 *
 *     const char *path = temp_path("net.safetensors");
 *     gd_save_state(path, ...);
 *
 * The first call creates the folder; the exit of the process removes it with its contents. A child
 * of fork() uses its parent's folder and does not remove it. Returned paths stay valid until the
 * process exits. files.h reads and writes files.
 */
#ifndef GRADUS_TESTS_HARNESS_TEMP_H
#define GRADUS_TESTS_HARNESS_TEMP_H

#include <stddef.h>

const char *temp_folder(void);

/* The path of a file in the folder; the name is a printf format. */
const char *temp_path(const char *name, ...) __attribute__((format(printf, 1, 2)));

/* Creates an empty folder in it, after removing one of the same name. */
const char *temp_new_folder(const char *name);

/* Writes a file in the folder and returns its path. */
const char *temp_write(const char *name, const void *data, size_t bytes);
const char *temp_write_text(const char *name, const char *text);

#endif
