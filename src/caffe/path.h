/* path.h - finds the files and folders that a file of Caffe names.
 *
 * Caffe reads such paths from the working directory, which for its own examples is the folder above
 * "examples". Here a path is tried from the working directory, then from the folder of the file that
 * names it, and then from each folder above that.
 */
#ifndef GRADUS_CAFFE_PATH_H
#define GRADUS_CAFFE_PATH_H

#include "gradus/status.h"

/* Finds `path`, which the file `of_file` names; NULL: no file does, and only the working directory
 * counts. *found is from gd_malloc. GD_E_IO: it is nowhere, and the message lists where it was
 * looked for. */
gd_status gd_caffe_find_path(char **found, const char *path, const char *of_file);

#endif
