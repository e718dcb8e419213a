/* convert_images.c - databases of Datums from lists of images, with the keys and the bytes that
 * Caffe's convert_imageset writes. */
#include <stdio.h>
#include <string.h>

#include "caffe/convert.h"
#include "caffe/listing.h"
#include "caffe/picture.h"
#include "core/alloc.h"
#include "core/ascii.h"
#include "core/error.h"
#include "core/thread.h"
#include "data/permute.h"
#include "format/file.h"
#include "gradus/caffe.h"

typedef struct conversion {
    const gd_caffe_convert_images_options *o;
    gd_lmdb_writer *writer;
    gd_caffe_listing listing;
    int sizes[3];           /* of the first image, for .check_size */
    int64_t count, skipped; /* images written, and those that cannot be read */
} conversion;

/* The format of encoded images, in lower case: .encode_type, or the ending of the file's name. */
static void find_encoding(const conversion *c, const char *name, char type[8]) {
    const char *dot = strrchr(name, '.');
    const char *word = c->o->encode_type ? c->o->encode_type : dot ? dot + 1 : "";
    size_t i = 0;
    for (; word[i] && i < 7; i++) type[i] = gd_is_upper(word[i]) ? (char)(word[i] + 32) : word[i];
    type[i] = 0;
    if (strcmp(type, "jpeg") == 0) strcpy(type, "jpg");
}

/* Whether the file of an image can be stored as it is. */
static bool is_stored_as_is(const conversion *c, const char *name, const char *type) {
    conversion by_name = *c;
    gd_caffe_convert_images_options none = *c->o;
    char own[8];
    none.encode_type = NULL;
    by_name.o = &none;
    find_encoding(&by_name, name, own);
    return !c->o->height && !c->o->width && strcmp(own, type) == 0;
}

/* The pixels (height, width, channels) as RGB or grey, for an encoder. */
static uint8_t *rows_of_pixels(const gd_caffe_picture *p) {
    uint8_t *rows = gd_malloc((size_t)p->height * (size_t)p->width * (size_t)p->channels),
            *to = rows;
    for (int64_t y = 0; rows && y < p->height; y++)
        for (int64_t x = 0; x < p->width; x++)
            for (int c = p->channels; c-- > 0;) /* BGR */
                *to++ = p->bytes[p->first + c * p->step[0] + y * p->step[1] + x * p->step[2]];
    return rows;
}

static gd_status encode_picture(const gd_caffe_picture *p, const char *path, const char *type,
                                uint8_t **data, size_t *bytes) {
    uint8_t *rows = rows_of_pixels(p);
    gd_status status;
    if (!rows) status = gd_no_memory(path, "to encode it");
    else if (strcmp(type, "png") == 0)
        status = gd_bitmap_encode_png(path, p->width, p->height, p->channels, rows, data, bytes);
    else if (strcmp(type, "jpg") == 0)
        status = gd_bitmap_encode_jpeg(path, p->width, p->height, p->channels, rows, data, bytes);
    else
        status = gd_fail(GD_E_UNSUPPORTED, "%s: images are encoded as jpg or png; '%s' is neither",
                         path, type);
    gd_free(rows);
    return status;
}

/* The bytes of a Datum's data, from gd_malloc. */
static gd_status make_data(const conversion *c, const gd_caffe_picture *p, const char *path,
                           uint8_t **data, size_t *bytes) {
    char type[8];
    find_encoding(c, path, type);
    *data = NULL;
    if (c->o->encoded && is_stored_as_is(c, path, type)) {
        char *file;
        GD_TRY(gd_file_read_all(path, &file, bytes));
        *data = (uint8_t *)file;
        return GD_OK;
    }
    if (c->o->encoded) return encode_picture(p, path, type, data, bytes);
    *bytes = (size_t)p->channels * (size_t)p->height * (size_t)p->width;
    *data = gd_malloc(*bytes);
    if (!*data) return gd_no_memory(path, "for its pixels");
    gd_caffe_picture_planes(p, *data);
    return GD_OK;
}

static gd_status check_sizes(conversion *c, const gd_caffe_picture *p, const char *path) {
    const int sizes[3] = {p->channels, p->height, p->width};
    if (c->count == 0) memcpy(c->sizes, sizes, sizeof sizes);
    if (!c->o->check_size || memcmp(c->sizes, sizes, sizeof sizes) == 0) return GD_OK;
    return gd_fail(GD_E_SHAPE, "%s: has %d x %d pixels, and the first image %d x %d", path,
                   p->height, p->width, c->sizes[1], c->sizes[2]);
}

static gd_status put_image(conversion *c, int64_t line, int64_t number, const char *path,
                           const gd_caffe_picture *p) {
    uint8_t *data;
    size_t bytes;
    const char *name = c->listing.list.lines[line].path;
    GD_TRY(check_sizes(c, p, path));
    char *key = gd_malloc(strlen(name) + 24);
    if (!key) return gd_no_memory(path, "for its key");
    sprintf(key, "%08lld_%s", (long long)number, name);
    gd_status status = make_data(c, p, path, &data, &bytes);
    if (status == GD_OK) {
        const gd_caffe_item item = {p->channels, p->height,    p->width,
                                    data,        bytes,        c->listing.labels[line],
                                    true,        c->o->encoded};
        status = gd_caffe_put_item(c->writer, key, &item);
        gd_free(data);
    }
    gd_free(key);
    if (status == GD_OK) c->count++;
    return status;
}

/* An image that cannot be read is left out, with a line in the log. */
static gd_status convert_line(conversion *c, int64_t line, int64_t number) {
    const gd_caffe_convert_images_options *o = c->o;
    const char *name = c->listing.list.lines[line].path, *root = o->root ? o->root : "";
    gd_caffe_picture picture;
    char *path = gd_malloc(strlen(root) + strlen(name) + 1);
    if (!path) return gd_no_memory(name, "for its path");
    strcat(strcpy(path, root), name);
    gd_status status = gd_caffe_picture_read(&picture, path, (int)o->height, (int)o->width,
                                             o->gray ? GD_CAFFE_GREY : GD_CAFFE_COLOUR);
    if (status == GD_OK) {
        status = put_image(c, line, number, path, &picture);
        gd_caffe_picture_free(&picture);
    } else if (status != GD_E_MEMORY) {
        gd_notice(GD_LOG_WARNING, "%s; the image is left out", gd_latest_failure());
        c->skipped++;
        status = GD_OK;
    }
    gd_free(path);
    return status;
}

static gd_status convert_lines(conversion *c) {
    const int64_t lines = c->listing.list.count;
    const gd_rng key = gd_draw_key(GD_DRAW_ORDER, c->o->seed, 0);
    for (int64_t i = 0; i < lines; i++) {
        GD_TRY(convert_line(c, c->o->shuffle ? gd_shuffled(key, i, lines) : i, i));
        if ((i + 1) % 10000 == 0)
            gd_notice(GD_LOG_INFO, "%lld of %lld images", (long long)i + 1, (long long)lines);
    }
    if (c->count > 0) return GD_OK;
    return gd_fail(GD_E_IO, "none of the %lld images can be read", (long long)lines);
}

static gd_status convert_images(conversion *c, const char *list, const char *database) {
    const gd_caffe_convert_images_options *o = c->o;
    if (!list || !database) return gd_fail(GD_E_ARGUMENT, "a path is NULL");
    if (o->height < 0 || o->width < 0 || (o->height == 0) != (o->width == 0) ||
        o->height > GD_BITMAP_MAX_PIXELS || o->width > GD_BITMAP_MAX_PIXELS)
        return gd_fail(GD_E_ARGUMENT, "height is %lld and width %lld; give both, or 0 for both",
                       (long long)o->height, (long long)o->width);
    GD_TRY(gd_caffe_listing_read(&c->listing, list));
    GD_TRY(gd_lmdb_create(&c->writer, database));
    return gd_caffe_finish_writing(c->writer, convert_lines(c));
}

int64_t gd_caffe_convert_images_at(const char *site, const char *list, const char *database,
                                   const gd_caffe_convert_images_options *o) {
    conversion c = {.o = o ? o : GD_CAFFE_CONVERT_IMAGES_OPTIONS_()};
    GD_CALLED_FROM(site);
    const gd_status status = convert_images(&c, list, database);
    gd_caffe_listing_free(&c.listing);
    return gd_caffe_report_count(site, "gd_caffe_convert_images", status, c.count);
}
