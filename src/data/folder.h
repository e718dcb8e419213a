/* folder.h - the contents of a folder, sorted by name. */
#ifndef GRADUS_DATA_FOLDER_H
#define GRADUS_DATA_FOLDER_H

#include "gradus/status.h"

typedef struct gd_folder {
    char **names; /* sorted by bytes; names that begin with a dot are left out */
    int count, room;
    bool *is_folder; /* of each name; symbolic links are followed */
} gd_folder;

gd_status gd_folder_read(gd_folder *folder, const char *path);
void gd_folder_free(gd_folder *folder); /* a struct of zero bytes is fine */

#endif
