/* image.c - chooses the decoder of an image and converts channels and sizes; see image.h. */
#include "format/image.h"

#include <string.h>

#include "core/alloc.h"
#include "core/ascii.h"
#include "core/error.h"
#include "format/stream.h"

void gd_bitmap_free(gd_bitmap *image) {
    gd_free(image->pixels);
    *image = (gd_bitmap){.width = 0};
}

gd_status gd_bitmap_new(gd_bitmap *image, const char *name, const char *what, uint64_t width,
                        uint64_t height, int channels) {
    if (width == 0 || height == 0)
        return gd_fail(GD_E_FORMAT, "%s: a %s image of %llu x %llu pixels", name, what,
                       (unsigned long long)width, (unsigned long long)height);
    if (width > GD_BITMAP_MAX_PIXELS || height > GD_BITMAP_MAX_PIXELS / width)
        return gd_fail(GD_E_UNSUPPORTED,
                       "%s: its %s header has %llu x %llu pixels; at most %d are read", name, what,
                       (unsigned long long)width, (unsigned long long)height, GD_BITMAP_MAX_PIXELS);
    const size_t bytes = (size_t)width * (size_t)height * (size_t)channels;
    image->pixels = gd_malloc(bytes);
    if (!image->pixels)
        return gd_fail(GD_E_MEMORY, "%s: no memory for %zu bytes of pixels", name, bytes);
    image->width = (int)width;
    image->height = (int)height;
    image->channels = channels;
    return GD_OK;
}

/* --- channels --------------------------------------------------------------------------------- */

/* v * a / 255, rounded. */
static inline uint8_t blend_alpha(unsigned v, unsigned a) {
    const unsigned t = v * a + 128;
    return (uint8_t)((t + (t >> 8)) >> 8);
}

/* ITU-R 601-2, in 16 bits of fraction. */
static inline uint8_t pixel_luma(const uint8_t *p) {
    return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

/* Converts a pixel of `from` channels to one of `to` channels. */
static inline void convert_pixel(const uint8_t *p, int from, uint8_t *q, int to) {
    uint8_t v[4] = {p[0], p[0], p[0], 255};
    if (from >= 3) v[1] = p[1], v[2] = p[2];
    if (from % 2 == 0) v[3] = p[from - 1];
    const bool alpha = to % 2 == 0;
    if (!alpha && v[3] != 255)
        for (int k = 0; k < 3; k++) v[k] = blend_alpha(v[k], v[3]);
    if (to <= 2) {
        q[0] = from >= 3 ? pixel_luma(v) : v[0];
        if (alpha) q[1] = v[3];
    } else {
        memcpy(q, v, (size_t)to);
    }
}

static gd_status set_channels(gd_bitmap *image, const char *name, int to) {
    const int from = image->channels;
    if (from == to) return GD_OK;
    const size_t count = (size_t)image->width * (size_t)image->height;
    uint8_t *old = image->pixels, *new = old; /* in place unless it grows */
    if (to > from && !(new = gd_malloc(count * (size_t)to)))
        return gd_fail(GD_E_MEMORY, "%s: no memory for its pixels", name);
    for (size_t i = 0; i < count; i++) {
        uint8_t q[4];
        convert_pixel(old + i * (size_t)from, from, q, to);
        memcpy(new + i *(size_t)to, q, (size_t)to);
    }
    if (new != old) gd_free(old);
    image->pixels = new;
    image->channels = to;
    return GD_OK;
}

/* --- decoding --------------------------------------------------------------------------------- */

static gd_status fail_unknown_format(const char *name, const uint8_t *p, size_t bytes) {
    if (bytes == 0) return gd_fail(GD_E_FORMAT, "%s: is empty", name);
    return gd_fail(GD_E_FORMAT,
                   "%s: is not a JPEG, PNG, PPM, PGM or PBM image: it begins with byte 0x%02x",
                   name, p[0]);
}

static gd_status decode_format(gd_bitmap *image, const char *name, const uint8_t *data,
                               size_t bytes, const gd_bitmap_options *o) {
    if (bytes >= 3 && data[0] == 0xFF && data[1] == 0xD8 && data[2] == 0xFF)
        GD_TRY(gd_jpeg_decode(image, name, data, bytes, o));
    else if (bytes >= 4 && memcmp(data, "\x89PNG", 4) == 0)
        GD_TRY(gd_png_decode(image, name, data, bytes));
    else if (bytes >= 2 && data[0] == 'P' && data[1] >= '1' && data[1] <= '6')
        GD_TRY(gd_pnm_decode(image, name, data, bytes));
    else return fail_unknown_format(name, data, bytes);
    if (o->unchanged) return GD_OK;
    const int colours = o->channels ? o->channels : image->channels >= 3 ? 3 : 1;
    GD_TRY(set_channels(image, name, colours + o->alpha));
    if (o->width == 0 && o->height == 0) return GD_OK;
    return gd_bitmap_resize(image, name, o->width ? o->width : image->width,
                            o->height ? o->height : image->height);
}

gd_status gd_bitmap_decode(gd_bitmap *image, const char *name, const void *data, size_t bytes,
                           const gd_bitmap_options *options) {
    *image = (gd_bitmap){.width = 0};
    const gd_status status = decode_format(image, name, data, bytes, options);
    if (status != GD_OK) gd_bitmap_free(image);
    return status;
}

enum { MAX_UNPACKED = 1 << 30 };

/* Replaces the bytes of a gzip file by their decompressed form. */
static gd_status decompress_gzip(const char *path, char **data, size_t *bytes) {
    gd_stream *s;
    char *out;
    size_t size;
    GD_TRY(gd_stream_open_memory(&s, path, *data, *bytes));
    const gd_status status = gd_stream_read_all(s, MAX_UNPACKED, &out, &size);
    gd_stream_close(s);
    if (status != GD_OK) return status;
    gd_free(*data);
    *data = out;
    *bytes = size;
    return GD_OK;
}

gd_status gd_bitmap_read(gd_bitmap *image, const char *path, const gd_bitmap_options *options) {
    char *data;
    size_t bytes;
    *image = (gd_bitmap){.width = 0};
    GD_TRY(gd_file_read_all(path, &data, &bytes));
    gd_status status = GD_OK;
    if (bytes >= 2 && memcmp(data, "\x1f\x8b", 2) == 0)
        status = decompress_gzip(path, &data, &bytes);
    if (status == GD_OK) status = gd_bitmap_decode(image, path, data, bytes, options);
    gd_free(data);
    return status;
}

bool gd_bitmap_has_suffix(const char *name) {
    static const char *const suffixes[] = {".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".pbm", ".pnm"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t n = strlen(suffixes[i]);
        if (length > n && gd_is_same_word(name + length - n, suffixes[i], n)) return true;
    }
    return false;
}
