/* dataset_images.c - images in a folder for each class, and images that a text file lists. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/ascii.h"
#include "core/name_map.h"
#include "data/folder.h"
#include "data/image_files.h"
#include "format/image_list.h"
#include "gradus/datasets.h"

enum { MAX_DEPTH = 32 }; /* of nested folders: symbolic links may form cycles */

/*dataset image_folder(path:string)
 * Images (JPEG, PNG, PPM, PGM, PBM) whose class is their folder: cats/1.jpg, cats/black/2.png.
 * Classes are numbered in the order of their names. Samples: the image, f32 (3,H,W) in [0,1], and
 * its class, i64.
 *   size int[2] = 0          height and width to resize every image to; 0: no resizing
 *   channels int = 3         3 (RGB) or 1 (grey)
 *   bytes bool = false       images as u8, 0 to 255
 *   suffixes string = none   only files with these endings, such as '.jpg .jpeg'; none: all image files
 */
static gd_status image_folder_check(const void *options) {
    const gd_dataset_image_folder_options *o = options;
    GD_TRY(gd_check_path(o->path, "path"));
    return gd_image_files_check(o->size, o->channels);
}

/* Whether the name ends with one of `suffixes`; NULL: with one of an image file. */
static bool has_suffix(const char *name, const char *suffixes) {
    if (!suffixes) return gd_bitmap_has_suffix(name);
    const size_t length = strlen(name);
    for (const char *s = suffixes + strspn(suffixes, " "); *s; s += strspn(s, " ")) {
        const size_t n = strcspn(s, " ");
        if (length > n && gd_is_same_word(name + length - n, s, n)) return true;
        s += n;
    }
    return false;
}

/* Adds all images below `name`, a path relative to the folder of the dataset. */
static gd_status add_folder(gd_image_files *f, const char *name, int32_t class,
                            const char *suffixes, int depth) {
    gd_folder in = {.count = 0};
    char *path = gd_folder_join(f->folder, name);
    gd_status status = path ? GD_OK : gd_no_memory(NULL, "for a path");
    if (status == GD_OK && depth > MAX_DEPTH)
        status = gd_fail(GD_E_IO, "%s: more than %d folders inside each other", path, MAX_DEPTH);
    if (status == GD_OK) status = gd_folder_read(&in, path);
    for (int i = 0; i < in.count && status == GD_OK; i++) {
        char *inside = gd_folder_join(name, in.names[i]);
        if (!inside) status = gd_no_memory(NULL, "for a path");
        else if (in.is_folder[i]) status = add_folder(f, inside, class, suffixes, depth + 1);
        else if (has_suffix(inside, suffixes)) status = gd_image_files_add(f, inside, class);
        gd_free(inside);
    }
    gd_folder_free(&in);
    gd_free(path);
    return status;
}

/* Adds the images of all folders in `in`, each of which is a class. */
static gd_status add_classes(gd_dataset *d, gd_folder *in, const char *suffixes) {
    int classes = 0;
    for (int i = 0; i < in->count; i++) {
        if (!in->is_folder[i]) continue;
        GD_TRY(add_folder(d->self, in->names[i], classes, suffixes, 0));
        char *name = in->names[i];
        in->names[i] = in->names[classes];
        in->names[classes++] = name;
    }
    const gd_image_files *f = d->self;
    if (f->count == 0)
        return gd_fail(GD_E_IO, "%s: has %d folders, and no images in them", f->folder, classes);
    d->count = f->count;
    return gd_dataset_set_classes(d, (const char *const *)in->names, classes);
}

static gd_status image_folder_open(gd_dataset *d) {
    const gd_dataset_image_folder_options *o = d->options;
    gd_folder in;
    GD_TRY(gd_image_files_new(d, o->path, o->size, o->channels, o->bytes));
    GD_TRY(gd_folder_read(&in, o->path));
    const gd_status status = add_classes(d, &in, o->suffixes);
    gd_folder_free(&in);
    return status;
}

static gd_status image_folder_get(const gd_dataset *d, int64_t index, gd_random *random,
                                  gd_sample *sample) {
    (void)random;
    return gd_image_files_get(d, index, sample);
}
static void image_folder_name(const gd_dataset *d, int64_t index, char *text, size_t size) {
    gd_image_files_name(d, index, text, size);
}
static void image_folder_close(gd_dataset *d) { gd_image_files_close(d); }

/*dataset image_list(path:string)
 * Images that a text file lists, one in a line: the path, a space, the label. Labels are numbers,
 * or names, which are numbered in sorted order. Samples: the image, f32 (3,H,W) in [0,1], and its
 * class, i64.
 *   root string = none   the folder that paths are relative to; none: that of the list
 *   size int[2] = 0      height and width to resize every image to; 0: no resizing
 *   channels int = 3     3 (RGB) or 1 (grey)
 *   bytes bool = false   images as u8, 0 to 255
 */
static gd_status image_list_check(const void *options) {
    const gd_dataset_image_list_options *o = options;
    GD_TRY(gd_check_path(o->path, "path"));
    return gd_image_files_check(o->size, o->channels);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Collects the distinct labels, sorted. *names is from gd_malloc. */
static gd_status sort_labels(const gd_image_list *list, const char ***names, int64_t *count) {
    gd_name_map seen = {0};
    int64_t n = 0;
    bool enough = true;
    *names = gd_malloc((size_t)(list->count + 1) * sizeof **names);
    for (int64_t i = 0; *names && enough && i < list->count; i++) {
        const char *label = list->lines[i].label;
        if (gd_name_map_find(&seen, label)) continue;
        enough = gd_name_map_add(&seen, label, (void *)label);
        (*names)[n++] = label;
    }
    gd_name_map_free(&seen);
    if (!*names || !enough) return gd_no_memory(NULL, "for names of classes");
    qsort(*names, (size_t)n, sizeof **names, by_text);
    *count = n;
    return GD_OK;
}

static gd_status add_named_labels(gd_dataset *d, const gd_image_list *list) {
    const char **names = NULL;
    int64_t count = 0;
    gd_status status = sort_labels(list, &names, &count);
    for (int64_t i = 0; i < list->count && status == GD_OK; i++) {
        const char **at =
            bsearch(&list->lines[i].label, names, (size_t)count, sizeof *names, by_text);
        status = gd_image_files_add(d->self, list->lines[i].path, (int32_t)(at - names));
    }
    if (status == GD_OK) status = gd_dataset_set_classes(d, names, count);
    gd_free(names);
    return status;
}

enum { MAX_CLASSES = 1 << 20 }; /* beyond this, labels are not taken for classes and get no names */

static gd_status add_numbered_labels(gd_dataset *d, const gd_image_list *list) {
    int64_t classes = 0;
    for (int64_t i = 0; i < list->count; i++) {
        const int64_t class = strtoll(list->lines[i].label, NULL, 10);
        GD_TRY(gd_image_files_add(d->self, list->lines[i].path, (int32_t) class));
        if (class >= classes) classes = class + 1;
    }
    return classes <= MAX_CLASSES ? gd_dataset_set_classes(d, NULL, classes) : GD_OK;
}

static gd_status add_list(gd_dataset *d, const char *path) {
    gd_stream *stream;
    gd_image_list list;
    GD_TRY(gd_stream_open(&stream, path));
    gd_status status = gd_image_list_read(&list, stream);
    gd_stream_close(stream);
    if (status == GD_OK && list.count == 0)
        status = gd_fail(GD_E_FORMAT, "%s: lists no images", path);
    if (status == GD_OK)
        status = list.numbers ? add_numbered_labels(d, &list) : add_named_labels(d, &list);
    d->count = list.count;
    gd_image_list_free(&list);
    return status;
}

static gd_status image_list_open(gd_dataset *d) {
    const gd_dataset_image_list_options *o = d->options;
    char *root = gd_malloc(strlen(o->path) + 2);
    if (!root) return gd_no_memory(NULL, "for a path");
    strcpy(root, o->path);
    char *slash = strrchr(root, '/');
    if (!slash) strcpy(root, ".");
    else slash[slash == root] = 0; /* "/list.txt" is in "/" */
    gd_status status =
        gd_image_files_new(d, o->root ? o->root : root, o->size, o->channels, o->bytes);
    gd_free(root);
    return status == GD_OK ? add_list(d, o->path) : status;
}

static gd_status image_list_get(const gd_dataset *d, int64_t index, gd_random *random,
                                gd_sample *sample) {
    (void)random;
    return gd_image_files_get(d, index, sample);
}
static void image_list_name(const gd_dataset *d, int64_t index, char *text, size_t size) {
    gd_image_files_name(d, index, text, size);
}
static void image_list_close(gd_dataset *d) { gd_image_files_close(d); }

#include "data/dataset_images.gen.h"
