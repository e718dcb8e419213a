/* data_windows.c - the layer WindowData: random windows of images, warped to one size. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "caffe/data_feed.h"
#include "caffe/read.h"
#include "caffe/window_list.h"
#include "core/alloc.h"
#include "core/error.h"

typedef struct window_data {
    gd_caffe_window_list list;
    gd_caffe_transform transform; /* mean, crop_size, mirror */
    float scale;
    int context_pad;
    bool square;     /* crop_mode: "square" */
    int64_t objects; /* in a batch */
    char *root;      /* is put before each path, as it is */
} window_data;

/* --- opening ---------------------------------------------------------------------------------- */

static gd_status check_options(const window_data *w, const gd_caffe_feed *feed, const char *mode) {
    const gd_caffe_transform *t = &w->transform;
    if (t->crop < 1) return gd_fail(GD_E_FORMAT, "transform_param has no crop_size");
    if (strcmp(mode, "warp") != 0 && !w->square)
        return gd_fail(GD_E_FORMAT, "crop_mode is '%s'; it must be warp or square", mode);
    if (w->context_pad < 0 || 2 * (int64_t)w->context_pad >= t->crop)
        return gd_fail(GD_E_ARGUMENT, "context_pad is %d; twice of it must be below crop_size %d",
                       w->context_pad, t->crop);
    if (t->mean && (t->mean_sizes[0] != 3 || t->mean_sizes[1] != t->mean_sizes[2] ||
                    t->mean_sizes[1] < t->crop))
        return gd_fail(GD_E_SHAPE,
                       "the mean_file has %d x %d x %d values; it must have 3 channels of a square "
                       "of at least crop_size %d",
                       t->mean_sizes[0], t->mean_sizes[1], t->mean_sizes[2], t->crop);
    if (t->n_mean_values > 1 && t->n_mean_values != 3)
        return gd_fail(GD_E_SHAPE, "there are %d values mean_value, and the images have 3 channels",
                       t->n_mean_values);
    const bool lacks_objects = w->objects > 0 && w->list.object.count == 0,
               lacks_rest = w->objects < feed->batch && w->list.background.count == 0;
    if (lacks_objects || lacks_rest)
        return gd_fail(GD_E_FORMAT, "the list has no windows of %s",
                       lacks_objects ? "objects" : "the background");
    return GD_OK;
}

/* What is put before the paths of images: root_folder, and before that, if the first image is not
 * there, the folder from which it is found. */
static gd_status find_root(window_data *w, const char *root, const char *list) {
    char first[PATH_MAX], found[PATH_MAX];
    const char *path = w->list.paths[0];
    if (strlen(root) + strlen(path) >= sizeof first)
        return gd_fail(GD_E_ARGUMENT, "the path of an image is too long: '%.100s...'", path);
    strcat(strcpy(first, root), path);
    GD_TRY(gd_caffe_find_file(first, list, found, sizeof found));
    found[strlen(found) - strlen(path)] = 0;
    if (!(w->root = gd_malloc(strlen(found) + 1))) return gd_no_memory(NULL, "for a path");
    strcpy(w->root, found);
    return GD_OK;
}

static gd_status read_list(window_data *w, const char *path, const gd_pb *layer) {
    gd_stream *stream;
    GD_TRY(gd_stream_open(&stream, path));
    const gd_status status = gd_caffe_window_list_read(
        &w->list, stream, gd_pb_float_of(layer, "window_data_param.fg_threshold"),
        gd_pb_float_of(layer, "window_data_param.bg_threshold"));
    gd_stream_close(stream);
    return status;
}

static gd_status open_windows(gd_caffe_feed *feed, const gd_pb *layer) {
    char path[PATH_MAX];
    window_data *w = feed->self = gd_calloc(1, sizeof *w);
    if (!w) return gd_no_memory(NULL, "for a data layer");
    const char *mode = gd_pb_string_of(layer, "window_data_param.crop_mode");
    const double fraction = gd_pb_float_of(layer, "window_data_param.fg_fraction");
    const int64_t pad = gd_pb_int_of(layer, "window_data_param.context_pad");
    GD_TRY(gd_caffe_feed_batch(feed, layer, "window_data_param.batch_size"));
    w->scale = (float)gd_pb_float_of(layer, "window_data_param.scale");
    w->context_pad = pad < INT32_MAX ? (int)pad : INT32_MAX;
    w->square = strcmp(mode, "square") == 0;
    if (!(fraction >= 0 && fraction <= 1))
        return gd_fail(GD_E_ARGUMENT, "fg_fraction is %s; it must be in [0, 1]",
                       fraction > 1 ? "above 1" : "below 0");
    w->objects = (int64_t)((float)feed->batch * (float)fraction);
    GD_TRY(gd_caffe_transform_open(&w->transform, layer, feed->phase, feed->of_file));
    GD_TRY(gd_caffe_find_file(gd_pb_string_of(layer, "window_data_param.source"), feed->of_file,
                              path, sizeof path));
    GD_TRY(read_list(w, path, layer));
    GD_TRY(find_root(w, gd_pb_string_of(layer, "window_data_param.root_folder"), path));
    GD_TRY(check_options(w, feed, mode));
    feed->shapes[0] = gd_dims(feed->batch, 3, w->transform.crop, w->transform.crop);
    feed->shapes[1] = gd_dims(feed->batch);
    return GD_OK;
}

static void close_windows(gd_caffe_feed *feed) {
    window_data *w = feed->self;
    if (!w) return;
    gd_caffe_window_list_free(&w->list);
    gd_caffe_transform_close(&w->transform);
    gd_free(w->root);
    gd_free(w);
}

/* --- a window --------------------------------------------------------------------------------- */

/* The part of an image that becomes `height` x `width` pixels of the result, at (top, left). */
typedef struct window_part {
    int64_t x1, y1, x2, y2;
    int64_t height, width, top, left;
} window_part;

/* Rounds halves away from zero. */
static int64_t rounded(double x) { return (int64_t)(x < 0 ? -floor(0.5 - x) : floor(x + 0.5)); }

/* Widens one axis of a window, from a to b, by context: what lies outside of the image, of `size`
 * pixels, becomes padding of the result (before, after). `length` is that of the part in the
 * result. */
static void widen_axis(int64_t *a, int64_t *b, double half, double factor, int64_t size, int crop,
                       int64_t *before, int64_t *after, int64_t *length) {
    const double center = (double)*a + (double)(*b - *a + 1) / 2;
    *a = rounded(center - half * factor);
    *b = rounded(center + half * factor);
    const double scale = (double)crop / (double)(*b - *a + 1);
    const int64_t outside_a = *a < 0 ? -*a : 0, outside_b = *b >= size ? *b - size + 1 : 0;
    *a += outside_a;
    *b -= outside_b;
    *length = rounded((double)(*b - *a + 1) * scale);
    *before = rounded((double)outside_a * scale);
    *after = rounded((double)outside_b * scale);
}

static window_part find_part(const window_data *w, const gd_caffe_window *window,
                             const gd_bitmap *image, bool mirror) {
    const int crop = w->transform.crop;
    window_part p = {window->x1, window->y1, window->x2, window->y2, crop, crop, 0, 0};
    if (w->context_pad == 0 && !w->square) return p;
    const double factor = (double)crop / (double)(crop - 2 * w->context_pad);
    double half_y = (double)(p.y2 - p.y1 + 1) / 2, half_x = (double)(p.x2 - p.x1 + 1) / 2;
    if (w->square) half_y = half_x = half_y > half_x ? half_y : half_x;
    int64_t left, right, bottom;
    widen_axis(&p.x1, &p.x2, half_x, factor, image->width, crop, &left, &right, &p.width);
    widen_axis(&p.y1, &p.y2, half_y, factor, image->height, crop, &p.top, &bottom, &p.height);
    p.left = mirror ? right : left;
    if (p.top + p.height > crop) p.height = crop - p.top; /* by rounding */
    if (p.left + p.width > crop) p.width = crop - p.left;
    return p;
}

/* Replaces an image by its part, resized. */
static gd_status cut_part(gd_bitmap *image, const char *path, const gd_caffe_window *window,
                          const window_part *p) {
    gd_bitmap part = {.width = 0};
    if (p->x1 < 0 || p->y1 < 0 || p->x2 < p->x1 || p->y2 < p->y1 || p->x2 >= image->width ||
        p->y2 >= image->height || p->height < 1 || p->width < 1)
        return gd_fail(GD_E_FORMAT,
                       "%s: the window from (%d, %d) to (%d, %d) does not fit into %d x %d pixels",
                       path, window->x1, window->y1, window->x2, window->y2, image->width,
                       image->height);
    const size_t channels = (size_t)image->channels;
    GD_TRY(gd_bitmap_new(&part, path, "cut", (uint64_t)(p->x2 - p->x1 + 1),
                         (uint64_t)(p->y2 - p->y1 + 1), image->channels));
    for (int64_t y = 0; y < part.height; y++)
        memcpy(part.pixels + (size_t)y * (size_t)part.width * channels,
               image->pixels +
                   ((size_t)(p->y1 + y) * (size_t)image->width + (size_t)p->x1) * channels,
               (size_t)part.width * channels);
    gd_bitmap_free(image);
    *image = part;
    return gd_caffe_resize(image, path, (int)p->height, (int)p->width);
}

/* Writes the pixels into their place in (3, crop, crop) zeros. */
static void write_part(const window_data *w, const gd_bitmap *image, const window_part *p,
                       bool mirror, float *to) {
    const gd_caffe_transform *t = &w->transform;
    const int64_t crop = t->crop, side = t->mean_sizes[1], offset = (side - crop) / 2;
    for (int64_t c = 0; c < 3; c++)
        for (int64_t y = 0; y < p->height; y++)
            for (int64_t x = 0; x < p->width; x++) {
                const int64_t from = mirror ? p->width - 1 - x : x, row = p->top + y,
                              column = p->left + x;
                const uint8_t *pixel = image->pixels + (y * p->width + from) * image->channels;
                const float value = (float)(image->channels >= 3 ? pixel[2 - c] : pixel[0]);
                float mean = t->mean_values ? t->mean_values[t->n_mean_values > 1 ? c : 0] : 0;
                if (t->mean) mean = t->mean[(c * side + offset + row) * side + offset + column];
                to[(c * crop + row) * crop + column] = (value - mean) * w->scale;
            }
}

static gd_status read_window(const window_data *w, const gd_caffe_window *window, bool mirror,
                             float *to) {
    const char *name = w->list.paths[window->image];
    const gd_bitmap_options options = {.unchanged = true};
    gd_bitmap image;
    char path[PATH_MAX];
    if (strlen(w->root) + strlen(name) >= sizeof path)
        return gd_fail(GD_E_ARGUMENT, "the path of an image is too long: '%.100s...'", name);
    strcat(strcpy(path, w->root), name);
    GD_TRY(gd_bitmap_read(&image, path, &options));
    const window_part part = find_part(w, window, &image, mirror);
    const gd_status status = cut_part(&image, path, window, &part);
    if (status == GD_OK) write_part(w, &image, &part, mirror, to);
    gd_bitmap_free(&image);
    return status;
}

/* The background comes first, then objects; which ones is random. */
static gd_status read_windows(const gd_caffe_feed *feed, const gd_caffe_draw *draw,
                              gd_sample *sample) {
    const window_data *w = feed->self;
    const size_t values = 3 * (size_t)w->transform.crop * (size_t)w->transform.crop;
    float *data, *labels;
    GD_TRY(gd_caffe_add_top(sample, &feed->shapes[0], &data));
    GD_TRY(gd_caffe_add_top(sample, &feed->shapes[1], &labels));
    memset(data, 0, (size_t)feed->batch * values * sizeof *data);
    for (int64_t i = 0; i < feed->batch; i++) {
        const bool is_object = i >= feed->batch - w->objects;
        const gd_caffe_window_set *from = is_object ? &w->list.object : &w->list.background;
        gd_random random = gd_random_of(draw->key, (uint64_t)i);
        const gd_caffe_window *window = &from->at[gd_random_below(&random, from->count)];
        const bool mirror = w->transform.mirror && gd_random_below(&random, 2);
        GD_TRY(read_window(w, window, mirror, data + (size_t)i * values));
        labels[i] = (float)window->label;
    }
    return GD_OK;
}

const gd_caffe_feed_rules gd_caffe_windows_feed = {.type = "WindowData",
                                                   .least_tops = 2,
                                                   .most_tops = 2,
                                                   .open = open_windows,
                                                   .read = read_windows,
                                                   .close = close_windows};
