/* image.h - images as tensors: u8 (C, H, W).
 *
 *     gd_tensor *x = gd_load_image("cat.jpg", .channels = 3);        // u8 (3, H, W)
 *     gd_tensor *digit = gd_load_image("7.png", .channels = 1, .height = 28, .width = 28);
 *     gd_save_png("copy.png", x);
 *
 * Reads JPEG, PNG, PPM, PGM and PBM, also gzipped; the content determines the format. Decoded
 * pixels equal Pillow's. Reading JPEG and PNG needs libjpeg and libpng when the library is built;
 * without them it fails with GD_E_UNSUPPORTED. Writing PNG needs neither.
 *
 * Other depths are converted to 8 bits. Grey and colour are converted to .channels; CMYK becomes
 * RGB. If alpha is dropped, the image is blended with black. EXIF orientation is not applied.
 */
#ifndef GRADUS_IMAGE_H
#define GRADUS_IMAGE_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/options.h"
#include "gradus/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_load_image_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t channels GD_DEFAULT_(0); /* 1 grey, 3 RGB; 0: as in the file */
    bool alpha GD_DEFAULT_(false);   /* adds a channel with alpha */
    /* The image is resized to this size; 0: as in the file. A JPEG is decoded at reduced size if
     * that is enough. */
    int64_t height GD_DEFAULT_(0);
    int64_t width GD_DEFAULT_(0);
} GD_GIVEN_BY_NAME_ gd_load_image_options;
#define GD_LOAD_IMAGE_OPTIONS_(...)                                                              \
    GD_OPTIONS_(gd_load_image_options, (.channels = 0, .alpha = false, .height = 0, .width = 0), \
                __VA_ARGS__)

#define gd_load_image(path, ...) \
    GD_WITH_OPTIONS_(gd_load_image_at(GD_HERE, path, GD_LOAD_IMAGE_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_load_image_at(const char *site, const char *path,
                                   const gd_load_image_options *options);

/* The same from the bytes of a file in memory. */
#define gd_decode_image(bytes, size, ...) \
    GD_WITH_OPTIONS_(gd_decode_image_at(GD_HERE, bytes, size, GD_LOAD_IMAGE_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_decode_image_at(const char *site, const void *bytes, size_t size,
                                     const gd_load_image_options *options);

/* Saves a tensor (H, W) or (C, H, W) with C from 1 to 4, on any device: integers from 0 to 255,
 * floats and bools from 0 to 1. Values out of range are clamped. The file is replaced atomically.
 * */
#define gd_save_png(path, x) gd_save_png_at(GD_HERE, path, x)
GD_API gd_status gd_save_png_at(const char *site, const char *path, const gd_tensor *x);

typedef struct gd_make_grid_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t nrow GD_DEFAULT_(8);           /* images in a row */
    int64_t padding GD_DEFAULT_(2);        /* pixels around each image */
    double pad_value GD_DEFAULT_(0);       /* of these pixels, and of places without an image */
    bool normalize GD_DEFAULT_(false);     /* maps the values to 0 to 1; for floats */
    double value_range[2] GD_DEFAULT_({}); /* {low, high}, which become 0 and 1; values beyond are
                                              clamped. Default: the smallest and largest value */
    bool scale_each GD_DEFAULT_(false);    /* the smallest and largest value of each image */
} GD_GIVEN_BY_NAME_ gd_make_grid_options;
#define GD_MAKE_GRID_OPTIONS_(...)                                            \
    GD_OPTIONS_(gd_make_grid_options,                                         \
                (.nrow = 8, .padding = 2, .pad_value = 0, .normalize = false, \
                 .value_range = {0, 0}, .scale_each = false),                 \
                __VA_ARGS__)

/* Images (N, C, H, W) as one image (C, height, width), in rows of .nrow, as torchvision's
 * make_grid: grey images get three channels, and a single image, also (C, H, W) or (H, W), gets no
 * padding. The result is on the device of the images.
 *
 *     gd_save_png("samples.png", gd_make_grid(images, .nrow = 4, .normalize = true,
 *                                             .value_range = {-1, 1}));
 */
#define gd_make_grid(images, ...) \
    GD_WITH_OPTIONS_(gd_make_grid_at(GD_HERE, images, GD_MAKE_GRID_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_make_grid_at(const char *site, gd_tensor *images,
                                  const gd_make_grid_options *options);

#ifdef __cplusplus
}
#endif
#endif
