/* log_file.h - append-only logs of complete records.
 *
 * A record (a line of a table, an event) is written by one system call: a killed process leaves
 * only complete records. A record that did not fit on the disk is removed again, so that the next
 * one can be appended. Nothing is synced: a power failure may lose the last records.
 */
#ifndef GRADUS_FORMAT_LOG_FILE_H
#define GRADUS_FORMAT_LOG_FILE_H

#include <stddef.h>

#include "gradus/status.h"

typedef struct gd_log_file gd_log_file;

/* Opens a file to append to, and creates it if necessary; with `create`, it must not exist
 * (GD_E_STATE). Messages name the file. */
gd_status gd_log_file_open(gd_log_file **out, const char *path, bool create);
gd_status gd_log_file_append(gd_log_file *file, const void *data, size_t bytes);
void gd_log_file_close(gd_log_file *file); /* NULL is fine */

#endif
