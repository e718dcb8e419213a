/* library_folders.h - folders in which backends look for libraries of their vendor:
 * gd_add_library_folder (gradus/device.h) and GRADUS_LIBRARY_PATH. */
#ifndef GRADUS_DISPATCH_LIBRARY_FOLDERS_H
#define GRADUS_DISPATCH_LIBRARY_FOLDERS_H

#include "dispatch/call.h"

/* Visits the folders in the order in which they are searched, until one visit returns true: those
 * of the variable, then those that the program added. */
void gd_each_library_folder(gd_visit_folder *visit, void *arg);

#endif
