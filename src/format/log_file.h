/* log_file.h - files that grow by whole pieces: logs.
 *
 * A piece (a row, a record) is written by one call of the system and is there when the call returns: a
 * process that is killed leaves whole pieces. A piece that did not fit on the disk is taken back, so
 * that the next one can be appended. Nothing is synced: a log may lose its end when the power goes.
 */
#ifndef GRADUS_FORMAT_LOG_FILE_H
#define GRADUS_FORMAT_LOG_FILE_H

#include <stddef.h>

#include "gradus/status.h"

typedef struct gd_log_file gd_log_file;

/* Opens a file to append to, and makes it if it is not there; with `create`, it must not be there:
 * GD_E_STATE if it is. Messages name the file. */
gd_status gd_log_file_open(gd_log_file **out, const char *path, bool create);
gd_status gd_log_file_append(gd_log_file *file, const void *data, size_t bytes);
void gd_log_file_close(gd_log_file *file); /* NULL is fine */

#endif
