/* image_files.c - lists image files and reads them as samples; see image_files.h. */
#include "data/image_files.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"

gd_status gd_image_files_check(gd_int2 size, int64_t channels) {
    if (channels != 1 && channels != 3)
        return gd_fail(GD_E_ARGUMENT, "channels is %lld; it must be 1 or 3", (long long)channels);
    if (size.at[0] < 0 || size.at[1] < 0 || size.at[0] > GD_BITMAP_MAX_PIXELS ||
        size.at[1] > GD_BITMAP_MAX_PIXELS || (size.at[0] == 0) != (size.at[1] == 0))
        return gd_fail(GD_E_ARGUMENT,
                       "size is %lld x %lld; give height and width of at least 1, or 0 for both",
                       (long long)size.at[0], (long long)size.at[1]);
    return GD_OK;
}

gd_status gd_image_files_new(gd_dataset *d, const char *folder, gd_int2 size, int64_t channels,
                             bool bytes) {
    gd_image_files *f = d->self = gd_calloc(1, sizeof *f);
    if (!f || !(f->folder = gd_malloc(strlen(folder) + 1)))
        return gd_no_memory(NULL, "for a list of images");
    strcpy(f->folder, folder);
    f->options = (gd_bitmap_options){
        .channels = (int)channels, .height = (int)size.at[0], .width = (int)size.at[1]};
    f->bytes = bytes;
    return GD_OK;
}

gd_status gd_image_files_add(gd_image_files *f, const char *name, int32_t class) {
    const size_t bytes = strlen(name) + 1;
    if (f->names_room - f->names_used < bytes) {
        const size_t room = 2 * f->names_room + bytes + 4096;
        char *names = gd_realloc(f->names, room);
        if (!names) return gd_no_memory(NULL, "for a list of images");
        f->names = names;
        f->names_room = room;
    }
    if (f->count == f->room) {
        const int64_t room = f->room ? 2 * f->room : 256;
        gd_image_file *files = gd_realloc(f->files, (size_t)room * sizeof *files);
        if (!files) return gd_no_memory(NULL, "for a list of images");
        f->files = files;
        f->room = room;
    }
    memcpy(f->names + f->names_used, name, bytes);
    f->files[f->count++] = (gd_image_file){f->names_used, class};
    f->names_used += bytes;
    return GD_OK;
}

static gd_status add_pixels(const gd_image_files *f, const gd_bitmap *image, gd_sample *sample) {
    const int64_t dims[3] = {image->channels, image->height, image->width};
    const size_t plane = (size_t)image->height * (size_t)image->width;
    void *to = NULL;
    GD_TRY(gd_sample_add(sample, f->bytes ? GD_U8 : GD_F32, 3, dims, &to));
    if (f->bytes) gd_pixels_to_bytes(to, image->pixels, plane, (size_t)image->channels);
    else gd_pixels_to_unit(to, image->pixels, plane, (size_t)image->channels);
    return GD_OK;
}

gd_status gd_image_files_get(const gd_dataset *d, int64_t index, gd_sample *sample) {
    const gd_image_files *f = d->self;
    const char *name = f->names + f->files[index].name;
    char *path = gd_folder_join(f->folder, name);
    if (!path) return gd_no_memory(NULL, "for a list of images");
    gd_bitmap image;
    gd_status status = gd_bitmap_read(&image, *name == '/' ? name : path, &f->options);
    if (status == GD_OK) status = add_pixels(f, &image, sample);
    gd_bitmap_free(&image);
    gd_free(path);
    const int64_t class = f->files[index].class;
    return status == GD_OK ? gd_sample_add_classes(sample, &class, NULL, 1) : status;
}

void gd_image_files_name(const gd_dataset *d, int64_t index, char *text, size_t size) {
    const gd_image_files *f = d->self;
    snprintf(text, size, "%s", f->names + f->files[index].name);
}

void gd_image_files_close(gd_dataset *d) {
    gd_image_files *f = d->self;
    if (!f) return;
    gd_free(f->folder);
    gd_free(f->names);
    gd_free(f->files);
    gd_free(f);
}
