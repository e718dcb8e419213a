/* image.h - images as bytes: JPEG, PNG and the PNM family, recognized by their first bytes.
 *
 * JPEG needs libjpeg (jpeg.c), PNG needs libpng (png.c); if Gradus was built without them, such
 * files are GD_E_UNSUPPORTED and the message names the package to install.
 *
 * A damaged or truncated file is GD_E_FORMAT, with its name and the byte offset. Sizes are checked
 * before memory is allocated: at most GD_BITMAP_MAX_PIXELS, and no more than the file can hold.
 */
#ifndef GRADUS_FORMAT_IMAGE_H
#define GRADUS_FORMAT_IMAGE_H

#include "gradus/status.h"

enum { GD_BITMAP_MAX_PIXELS = 1 << 28 };

typedef struct gd_bitmap {
    int width, height;
    int channels;    /* 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha */
    uint8_t *pixels; /* (height, width, channels) from gd_malloc */
} gd_bitmap;

typedef struct gd_bitmap_options {
    int channels;      /* without alpha: 1 or 3; 0: as in the file */
    bool alpha;        /* keeps or adds an alpha channel; else colours are blended with black */
    int width, height; /* of the result; 0: as in the file */
    bool unchanged;    /* all channels as in the file, also alpha */
} gd_bitmap_options;

/* `name` is for messages. On failure *image is empty. */
gd_status gd_bitmap_decode(gd_bitmap *image, const char *name, const void *data, size_t bytes,
                           const gd_bitmap_options *options);
/* Reads a file, which may be gzipped. */
gd_status gd_bitmap_read(gd_bitmap *image, const char *path, const gd_bitmap_options *options);
void gd_bitmap_free(gd_bitmap *image);

/* Whether the name of a file ends in .jpg, .jpeg, .png, .ppm, .pgm, .pbm or .pnm. */
bool gd_bitmap_has_suffix(const char *name);

/* Resizes by a triangle filter as wide as the scale (antialiased bilinear), with Pillow's
 * rounding. */
gd_status gd_bitmap_resize(gd_bitmap *image, const char *name, int width, int height);

/* Writes a PNG file of 8 bits, with 1 to 4 channels: pixels (height, width, channels). */
gd_status gd_bitmap_write_png(const char *path, int width, int height, int channels,
                              const uint8_t *pixels);

/* The bytes of such a file, from gd_malloc. `name` is for messages. On failure *data is NULL. */
gd_status gd_bitmap_encode_png(const char *name, int width, int height, int channels,
                               const uint8_t *pixels, uint8_t **data, size_t *bytes);

/* The same as a JPEG of quality 95: with 1 or 3 channels. GD_E_UNSUPPORTED without libjpeg. */
gd_status gd_bitmap_encode_jpeg(const char *name, int width, int height, int channels,
                                const uint8_t *pixels, uint8_t **data, size_t *bytes);

/* --- for the decoders ------------------------------------------------------------------------- */

/* Checks the sizes of a header and allocates the pixels. `what` is the format, for messages. */
gd_status gd_bitmap_new(gd_bitmap *image, const char *name, const char *what, uint64_t width,
                        uint64_t height, int channels);

/* Each decodes to the number of channels that is cheapest; gd_bitmap_decode converts them. */
gd_status gd_jpeg_decode(gd_bitmap *image, const char *name, const uint8_t *data, size_t bytes,
                         const gd_bitmap_options *options);
gd_status gd_png_decode(gd_bitmap *image, const char *name, const uint8_t *data, size_t bytes);
gd_status gd_pnm_decode(gd_bitmap *image, const char *name, const uint8_t *data, size_t bytes);

#endif
