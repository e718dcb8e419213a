/* data_images.c - the layer ImageData: image files that a text lists. */
#include <limits.h>
#include <string.h>

#include "caffe/data_feed.h"
#include "caffe/listing.h"
#include "caffe/read.h"
#include "core/alloc.h"
#include "core/error.h"

typedef struct images {
    gd_caffe_pictures pictures;
    gd_caffe_listing listing;
    char *root; /* is put before each path, as it is */
    int height, width;
    gd_caffe_colours colours;
} images;

/* The path of an image, from gd_malloc; NULL: no memory. */
static char *image_path(const images *m, int64_t index) {
    const char *path = m->listing.list.lines[index].path;
    const size_t length = strlen(m->root);
    char *joined = gd_malloc(length + strlen(path) + 1);
    if (joined) memcpy(joined, m->root, length), strcpy(joined + length, path);
    return joined;
}

static gd_status read_image(const images *m, int64_t index, gd_caffe_picture *picture) {
    char *path = image_path(m, index);
    if (!path) return gd_no_memory(NULL, "for a path");
    const gd_status status = gd_caffe_picture_read(picture, path, m->height, m->width, m->colours);
    gd_free(path);
    picture->label = m->listing.labels[index];
    return status;
}

/* Finds root_folder from the net's file. Caffe puts its text before a path as it is: what follows
 * the last slash begins the names of the files. */
static gd_status find_root(images *m, const char *root, const char *of_file) {
    char folder[PATH_MAX], found[PATH_MAX];
    const char *slash = strrchr(root, '/'), *rest = slash ? slash + 1 : root;
    *found = 0;
    if (slash && slash > root) {
        if ((size_t)(slash - root) >= sizeof folder)
            return gd_fail(GD_E_ARGUMENT, "root_folder is too long: '%.100s...'", root);
        memcpy(folder, root, (size_t)(slash - root));
        folder[slash - root] = 0;
        GD_TRY(gd_caffe_find_file(folder, of_file, found, sizeof found));
    }
    m->root = gd_malloc(strlen(found) + strlen(rest) + 2);
    if (!m->root) return gd_no_memory(NULL, "for a path");
    strcat(strcat(strcpy(m->root, found), slash ? "/" : ""), rest);
    return GD_OK;
}

/* Without root_folder, paths are relative to the working directory; if the first image is not
 * there, to the folder of the list or one above it. */
static gd_status find_default_root(images *m, const char *list) {
    const char *first = m->listing.list.lines[0].path;
    char found[PATH_MAX];
    if (*first == '/') return find_root(m, "", NULL);
    GD_TRY(gd_caffe_find_file(first, list, found, sizeof found));
    found[strlen(found) - strlen(first)] = 0;
    return find_root(m, found, NULL);
}

static gd_status begin_images(gd_caffe_feed *feed, images *m) {
    gd_caffe_picture picture;
    GD_TRY(read_image(m, 0, &picture));
    const gd_status status = gd_caffe_pictures_shape(&m->pictures, feed, &picture);
    if (status != GD_OK) gd_error_prefix("%s: ", m->listing.list.lines[0].path);
    gd_caffe_picture_free(&picture);
    return status;
}

static gd_status open_images(gd_caffe_feed *feed, const gd_pb *layer) {
    const gd_pb *o = gd_pb_message_of(layer, "image_data_param");
    images *m = feed->self = gd_calloc(1, sizeof *m);
    char path[PATH_MAX];
    if (!m) return gd_no_memory(NULL, "for a data layer");
    GD_TRY(gd_caffe_feed_batch(feed, layer, "image_data_param.batch_size"));
    const int64_t height = gd_pb_int_of(o, "new_height"), width = gd_pb_int_of(o, "new_width");
    if ((height == 0) != (width == 0) || height > GD_BITMAP_MAX_PIXELS ||
        width > GD_BITMAP_MAX_PIXELS)
        return gd_fail(GD_E_ARGUMENT,
                       "new_height is %lld and new_width %lld; give both, or 0 for both",
                       (long long)height, (long long)width);
    m->height = (int)height;
    m->width = (int)width;
    m->colours = gd_pb_int_of(layer, "image_data_param.is_color") ? GD_CAFFE_COLOUR : GD_CAFFE_GREY;
    m->pictures.shuffle = gd_pb_int_of(o, "shuffle");
    m->pictures.rand_skip = gd_pb_int_of(o, "rand_skip");
    GD_TRY(gd_caffe_transform_open(&m->pictures.transform, layer, feed->phase, feed->of_file));
    GD_TRY(gd_caffe_find_file(gd_pb_string_of(o, "source"), feed->of_file, path, sizeof path));
    GD_TRY(gd_caffe_listing_read(&m->listing, path));
    m->pictures.count = m->listing.list.count;
    const char *root = gd_pb_string_of(o, "root_folder");
    GD_TRY(*root ? find_root(m, root, feed->of_file) : find_default_root(m, path));
    return begin_images(feed, m);
}

static gd_status fill_images(const images *m, gd_caffe_filling *filling, const int64_t *indices) {
    for (int64_t i = 0; i < filling->feed->batch; i++) {
        gd_caffe_picture picture;
        GD_TRY(read_image(m, indices[i], &picture));
        const gd_status status = gd_caffe_filling_add(filling, &picture);
        gd_caffe_picture_free(&picture);
        if (status == GD_OK) continue;
        gd_error_prefix("%s: ", m->listing.list.lines[indices[i]].path);
        return status;
    }
    return GD_OK;
}

static gd_status read_images(const gd_caffe_feed *feed, const gd_caffe_draw *draw,
                             gd_sample *sample) {
    const images *m = feed->self;
    gd_caffe_filling filling = {
        .pictures = &m->pictures, .feed = feed, .key = draw->key, .sample = sample};
    int64_t *indices = gd_malloc((size_t)feed->batch * sizeof *indices);
    if (!indices) return gd_no_memory(NULL, "for a batch");
    gd_caffe_pictures_at(&m->pictures, feed, draw, indices);
    const gd_status status = fill_images(m, &filling, indices);
    gd_free(indices);
    return status;
}

static void close_images(gd_caffe_feed *feed) {
    images *m = feed->self;
    if (!m) return;
    gd_caffe_transform_close(&m->pictures.transform);
    gd_caffe_listing_free(&m->listing);
    gd_free(m->root);
    gd_free(m);
}

const gd_caffe_feed_rules gd_caffe_images_feed = {.type = "ImageData",
                                                  .least_tops = 2,
                                                  .most_tops = 2,
                                                  .open = open_images,
                                                  .read = read_images,
                                                  .close = close_images};
