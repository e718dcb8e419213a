/* picture.c - see picture.h. */
#include "caffe/picture.h"

#include <math.h>
#include <string.h>

#include "caffe/schema.h"
#include "core/alloc.h"
#include "core/error.h"

void gd_caffe_picture_free(gd_caffe_picture *p) {
    gd_bitmap_free(&p->image);
    gd_pb_free(p->doc);
    *p = (gd_caffe_picture){.channels = 0};
}

/* --- decoded images --------------------------------------------------------------------------- */

/* Converts all pixels to `to` channels by `convert`, which gets a pixel and one of the result. */
static gd_status convert_pixels(gd_bitmap *image, const char *name, int to,
                                void (*convert)(const uint8_t *from, uint8_t *to)) {
    gd_bitmap made = {.width = 0};
    const size_t count = (size_t)image->width * (size_t)image->height;
    GD_TRY(gd_bitmap_new(&made, name, "converted", (uint64_t)image->width, (uint64_t)image->height,
                         to));
    for (size_t i = 0; i < count; i++)
        convert(image->pixels + i * (size_t)image->channels, made.pixels + i * (size_t)to);
    gd_bitmap_free(image);
    *image = made;
    return GD_OK;
}

/* With the weights of libpng, which rounds down. */
static void to_grey(const uint8_t *p, uint8_t *grey) {
    *grey = (uint8_t)((p[0] * 9797u + p[1] * 19234u + p[2] * 3737u) >> 15);
}
static void swap_colours(const uint8_t *p, uint8_t *bgra) {
    const uint8_t v[4] = {p[2], p[1], p[0], p[3]};
    memcpy(bgra, v, sizeof v);
}
static void spread_grey(const uint8_t *p, uint8_t *bgra) {
    const uint8_t v[4] = {p[0], p[0], p[0], p[1]};
    memcpy(bgra, v, sizeof v);
}

/* The decoder's result: 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha. Alpha is part of the
 * picture only if it is to be as stored; then it is BGRA. */
static gd_status take_image(gd_caffe_picture *p, const char *name, gd_caffe_colours colours) {
    gd_bitmap *image = &p->image;
    bool ordered = false; /* the channels are in the order of the picture */
    if (colours == GD_CAFFE_GREY && image->channels >= 3)
        GD_TRY(convert_pixels(image, name, 1, to_grey));
    if (colours == GD_CAFFE_AS_STORED && image->channels % 2 == 0) {
        GD_TRY(convert_pixels(image, name, 4, image->channels == 4 ? swap_colours : spread_grey));
        ordered = true;
    }
    const bool rgb = image->channels >= 3 && !ordered;
    p->channels = colours == GD_CAFFE_GREY ? 1 : colours == GD_CAFFE_COLOUR ? 3 : image->channels;
    p->height = image->height;
    p->width = image->width;
    p->bytes = image->pixels;
    p->first = rgb ? 2 : 0;
    p->step[0] = rgb                    ? -1
                 : image->channels >= 3 ? 1
                                        : 0; /* grey as colours: three times the same */
    p->step[1] = (int64_t)image->width * image->channels;
    p->step[2] = image->channels;
    return GD_OK;
}

static gd_bitmap_options decoding_options(gd_caffe_colours colours) {
    return (gd_bitmap_options){.unchanged = true, .channels = colours == GD_CAFFE_GREY ? 1 : 0};
}

gd_status gd_caffe_picture_read(gd_caffe_picture *p, const char *path, int height, int width,
                                gd_caffe_colours colours) {
    const gd_bitmap_options options = decoding_options(colours);
    *p = (gd_caffe_picture){.channels = 0};
    GD_TRY(gd_bitmap_read(&p->image, path, &options));
    gd_status status = GD_OK;
    if (colours == GD_CAFFE_GREY && p->image.channels >= 3)
        status = convert_pixels(&p->image, path, 1, to_grey);
    if (status == GD_OK && height > 0 && width > 0)
        status = gd_caffe_resize(&p->image, path, height, width);
    if (status == GD_OK) status = take_image(p, path, colours);
    if (status != GD_OK) gd_caffe_picture_free(p);
    return status;
}

void gd_caffe_picture_planes(const gd_caffe_picture *p, uint8_t *to) {
    for (int c = 0; c < p->channels; c++)
        for (int y = 0; y < p->height; y++) {
            const uint8_t *from = p->bytes + p->first + c * p->step[0] + y * p->step[1];
            for (int x = 0; x < p->width; x++) *to++ = from[x * p->step[2]];
        }
}

/* --- records ---------------------------------------------------------------------------------- */

static gd_status decode_datum(gd_caffe_picture *p, const char *name, const gd_pb_list *data,
                              gd_caffe_colours colours) {
    const gd_bitmap_options options = decoding_options(colours);
    if (!data) return gd_fail(GD_E_FORMAT, "%s: is encoded, and has no data", name);
    GD_TRY(gd_bitmap_decode(&p->image, name, data->bytes->data, data->bytes->length, &options));
    return take_image(p, name, colours);
}

/* The values are planes, in the record itself. */
static gd_status use_values(gd_caffe_picture *p, const char *name, const gd_pb_list *bytes,
                            const gd_pb_list *floats) {
    const gd_pb *datum = gd_pb_root(p->doc);
    const int64_t sizes[3] = {gd_pb_int_of(datum, "channels"), gd_pb_int_of(datum, "height"),
                              gd_pb_int_of(datum, "width")};
    const size_t count = bytes ? bytes->bytes->length : floats ? floats->count : 0;
    int64_t expected = 1;
    for (int i = 0; i < 3; i++) { /* each below 2^31 */
        if (sizes[i] < 1 || expected > INT32_MAX)
            return gd_fail(GD_E_FORMAT, "%s: is a Datum of %lld x %lld x %lld", name,
                           (long long)sizes[0], (long long)sizes[1], (long long)sizes[2]);
        expected *= sizes[i];
    }
    if ((size_t)expected != count)
        return gd_fail(GD_E_FORMAT, "%s: is a Datum of %lld x %lld x %lld with %zu values", name,
                       (long long)sizes[0], (long long)sizes[1], (long long)sizes[2], count);
    p->channels = (int)sizes[0];
    p->height = (int)sizes[1];
    p->width = (int)sizes[2];
    p->step[0] = sizes[1] * sizes[2];
    p->step[1] = sizes[2];
    p->step[2] = 1;
    if (bytes) p->bytes = (const uint8_t *)bytes->bytes->data;
    else p->floats = floats->floats;
    return GD_OK;
}

/* data of no bytes counts as not set, as in Caffe. */
static gd_status read_datum(gd_caffe_picture *p, const char *name, const void *data, size_t bytes,
                            gd_caffe_colours colours) {
    GD_TRY(gd_pb_read(&p->doc, &gd_caffe_datum_schema, name, data, bytes));
    const gd_pb *datum = gd_pb_root(p->doc);
    const gd_pb_list *values = gd_pb_list_of(datum, "data");
    if (values && values->bytes->length == 0) values = NULL;
    p->label = gd_pb_int_of(datum, "label");
    if (gd_pb_int_of(datum, "encoded")) return decode_datum(p, name, values, colours);
    return use_values(p, name, values, gd_pb_list_of(datum, "float_data"));
}

gd_status gd_caffe_datum_read(gd_caffe_picture *p, const char *name, const void *data, size_t bytes,
                              gd_caffe_colours colours) {
    *p = (gd_caffe_picture){.channels = 0};
    const gd_status status = read_datum(p, name, data, bytes, colours);
    if (status != GD_OK) gd_caffe_picture_free(p);
    return status;
}

gd_status gd_caffe_datum_label(int64_t *label, const char *name, const void *data, size_t bytes) {
    gd_pb_doc *doc;
    GD_TRY(gd_pb_read(&doc, &gd_caffe_datum_schema, name, data, bytes));
    *label = gd_pb_int_of(gd_pb_root(doc), "label");
    gd_pb_free(doc);
    return GD_OK;
}

/* --- resizing --------------------------------------------------------------------------------- */

enum { WEIGHT_BITS = 11 };

/* Where an output position is between two input positions. */
typedef struct place {
    int at[2];
    int weight[2]; /* their sum is 2^11 */
} place;

static void find_place(place *p, int i, int in, double scale, bool clamp) {
    float f = (float)((i + 0.5) * scale - 0.5);
    int at = (int)floorf(f);
    f -= (float)at;
    if (clamp && at < 0) f = 0, at = 0;
    if (clamp && at >= in - 1) f = 0, at = in - 1;
    for (int k = 0; k < 2; k++) {
        p->at[k] = at + k < 0 ? 0 : at + k > in - 1 ? in - 1 : at + k;
        p->weight[k] = (int)lrintf((k ? f : 1.f - f) * (1 << WEIGHT_BITS));
    }
}

/* Halving is a mean of four pixels. */
static void halve(const gd_bitmap *from, gd_bitmap *to) {
    const size_t channels = (size_t)from->channels, row = (size_t)from->width * channels;
    for (size_t y = 0; y < (size_t)to->height; y++)
        for (size_t x = 0; x < (size_t)to->width; x++)
            for (size_t c = 0; c < channels; c++) {
                const uint8_t *p = from->pixels + 2 * y * row + 2 * x * channels + c;
                to->pixels[(y * (size_t)to->width + x) * channels + c] =
                    (uint8_t)((p[0] + p[channels] + p[row] + p[row + channels] + 2) >> 2);
            }
}

/* A row (in, channels) to (out, channels), with the 11 bits of fraction. */
static void resize_row(int *to, const uint8_t *from, const place *columns, int out, int channels) {
    for (int x = 0; x < out; x++)
        for (int c = 0; c < channels; c++)
            to[x * channels + c] = from[columns[x].at[0] * channels + c] * columns[x].weight[0] +
                                   from[columns[x].at[1] * channels + c] * columns[x].weight[1];
}

/* `rows` has room for two rows of the result, `columns` for a place for each of its columns. */
static void resize_pixels(const gd_bitmap *from, gd_bitmap *to, int *rows, place *columns) {
    const double scale_y = (double)from->height / to->height,
                 scale_x = (double)from->width / to->width;
    const size_t in_row = (size_t)from->width * (size_t)from->channels,
                 out_row = (size_t)to->width * (size_t)to->channels;
    int *row[2] = {rows, rows + out_row}, held[2] = {-1, -1}; /* which input rows they are */
    for (int x = 0; x < to->width; x++) find_place(&columns[x], x, from->width, scale_x, true);
    for (int y = 0; y < to->height; y++) {
        place p;
        find_place(&p, y, from->height, scale_y, false);
        if (p.at[0] == held[1] && p.at[0] != held[0]) { /* the second row becomes the first */
            int *first = row[0];
            row[0] = row[1], row[1] = first;
            held[0] = held[1], held[1] = -1;
        }
        for (int k = 0; k < 2; k++)
            if (held[k] != p.at[k])
                resize_row(row[k], from->pixels + (size_t)(held[k] = p.at[k]) * in_row, columns,
                           to->width, from->channels);
        uint8_t *out = to->pixels + (size_t)y * out_row;
        for (size_t i = 0; i < out_row; i++)
            out[i] = (uint8_t)((((p.weight[0] * (row[0][i] >> 4)) >> 16) +
                                ((p.weight[1] * (row[1][i] >> 4)) >> 16) + 2) >>
                               2);
    }
}

gd_status gd_caffe_resize(gd_bitmap *image, const char *name, int height, int width) {
    if (image->height == height && image->width == width) return GD_OK;
    gd_bitmap to = {.width = 0};
    GD_TRY(gd_bitmap_new(&to, name, "resized", (uint64_t)width, (uint64_t)height, image->channels));
    if (image->height == 2 * height && image->width == 2 * width) {
        halve(image, &to);
    } else {
        int *rows = gd_malloc(2 * (size_t)width * (size_t)image->channels * sizeof *rows);
        place *columns = gd_malloc((size_t)width * sizeof *columns);
        if (rows && columns) resize_pixels(image, &to, rows, columns);
        gd_free(columns);
        gd_free(rows);
        if (!rows || !columns) {
            gd_bitmap_free(&to);
            return gd_fail(GD_E_MEMORY, "%s: no memory to resize it", name);
        }
    }
    gd_bitmap_free(image);
    *image = to;
    return GD_OK;
}
