/* image_files.h - a list of image files with classes, shared by image_folder and image_list. */
#ifndef GRADUS_DATA_IMAGE_FILES_H
#define GRADUS_DATA_IMAGE_FILES_H

#include "data/samples.h"
#include "format/image.h"

typedef struct gd_image_file {
    size_t name; /* offset of its path in `names` */
    int32_t class;
} gd_image_file;

typedef struct gd_image_files {
    char *folder; /* paths are relative to it */
    char *names;  /* paths, each with a zero byte at its end */
    size_t names_used, names_room;
    gd_image_file *files;
    int64_t count, room;
    gd_bitmap_options options;
    bool bytes; /* samples are u8 */
} gd_image_files;

/* Creates dataset->self; copies `folder`. size: height and width, or 0 to keep that of each
 * file. */
gd_status gd_image_files_new(gd_dataset *dataset, const char *folder, gd_int2 size,
                             int64_t channels, bool bytes);
gd_status gd_image_files_add(gd_image_files *files, const char *name, int32_t class);

gd_status gd_image_files_check(gd_int2 size, int64_t channels);
gd_status gd_image_files_get(const gd_dataset *dataset, int64_t index, gd_sample *sample);
void gd_image_files_name(const gd_dataset *dataset, int64_t index, char *text, size_t size);
void gd_image_files_close(gd_dataset *dataset);

#endif
