/* folder.h - what is in a folder, sorted by name. */
#ifndef GRADUS_DATA_FOLDER_H
#define GRADUS_DATA_FOLDER_H

#include "gradus/status.h"

typedef struct gd_folder {
    char **names; /* without those that begin with a dot; by their bytes */
    int count, room;
    bool *is_folder; /* of each name; links count as what they lead to */
} gd_folder;

gd_status gd_folder_read(gd_folder *folder, const char *path);
void gd_folder_free(gd_folder *folder); /* one that is all zero is fine */

#endif
