/* picture_files.h - a list of image files with classes, shared by image_folder and image_list. */
#ifndef GRADUS_DATA_PICTURE_FILES_H
#define GRADUS_DATA_PICTURE_FILES_H

#include "data/samples.h"
#include "format/image.h"

typedef struct gd_picture_file {
    size_t name; /* offset of its path in `names` */
    int32_t class;
} gd_picture_file;

typedef struct gd_picture_files {
    char *folder; /* paths are relative to it */
    char *names;  /* one after the other, each with a zero byte */
    size_t names_used, names_room;
    gd_picture_file *files;
    int64_t count, room;
    gd_picture_options options;
    bool bytes; /* samples are u8 */
} gd_picture_files;

/* Makes dataset->self with a copy of the folder. size: height, width, or 0. */
gd_status gd_picture_files_new(gd_dataset *dataset, const char *folder, gd_int2 size,
                               int64_t channels, bool bytes);
gd_status gd_picture_files_add(gd_picture_files *files, const char *name, int32_t class);

gd_status gd_picture_files_check(gd_int2 size, int64_t channels);
gd_status gd_picture_files_get(const gd_dataset *dataset, int64_t index, gd_sample *sample);
void gd_picture_files_name(const gd_dataset *dataset, int64_t index, char *text, size_t size);
void gd_picture_files_close(gd_dataset *dataset);

#endif
