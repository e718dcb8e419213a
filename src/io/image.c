/* image.c - loads images as tensors and saves tensors as PNG; see gradus/image.h. */
#include "gradus/image.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/error.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "dispatch/op.h"
#include "io/image_pixels.h"

/* --- loading ---------------------------------------------------------------------------------- */

static gd_status check_options(const gd_load_image_options *o) {
    if (o->channels != 0 && o->channels != 1 && o->channels != 3)
        return gd_fail(GD_E_ARGUMENT,
                       "channels is %lld; it must be 1, 3, or 0 for those of the file",
                       (long long)o->channels);
    if (o->height < 0 || o->width < 0 || o->height > GD_BITMAP_MAX_PIXELS ||
        o->width > GD_BITMAP_MAX_PIXELS)
        return gd_fail(GD_E_ARGUMENT, "the size %lld x %lld is out of range", (long long)o->height,
                       (long long)o->width);
    return GD_OK;
}

/* Converts (H, W, C) to (C, H, W), in the current scope and on the thread's device. */
static gd_status make_tensor(const gd_bitmap *image, gd_tensor **out) {
    const int64_t dims[3] = {image->channels, image->height, image->width};
    const size_t plane = (size_t)image->height * (size_t)image->width,
                 channels = (size_t)image->channels;
    gd_tensor *t = *out = gd_empty(gd_shape_of(3, dims), GD_U8);
    if (t->kind == GD_FAILED) return gd_failure();
    uint8_t *to = gd_data(t), *staged = NULL;
    if (!to && !(to = staged = gd_malloc(plane * channels)))
        return gd_no_memory(NULL, "for an image");
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < plane; i++) to[c * plane + i] = image->pixels[i * channels + c];
    const gd_status status = staged ? gd_copy_in(t, staged, plane * channels) : GD_OK;
    gd_free(staged);
    return status;
}

/* Loads the file at `path`, or decodes `bytes` if they are not NULL. */
static gd_tensor *load_image(const char *path, const void *bytes, size_t size,
                             const gd_load_image_options *o) {
    gd_bitmap image = {.width = 0};
    gd_tensor *t = NULL;
    gd_status status = check_options(o);
    const gd_bitmap_options bitmap_options = {.channels = (int)o->channels,
                                              .alpha = o->alpha,
                                              .width = (int)o->width,
                                              .height = (int)o->height};
    if (status == GD_OK)
        status = bytes ? gd_bitmap_decode(&image, path, bytes, size, &bitmap_options)
                       : gd_bitmap_read(&image, path, &bitmap_options);
    gd_scope *scope = gd_scope_open(); /* owns the tensor until it is complete */
    if (status == GD_OK) status = make_tensor(&image, &t);
    if (status == GD_OK) gd_keep(t);
    gd_scope_close(&scope);
    gd_bitmap_free(&image);
    return status == GD_OK ? t : gd_tensor_fail(status);
}

gd_tensor *gd_load_image_at(const char *site, const char *path,
                            const gd_load_image_options *options) {
    options = options ? options : GD_LOAD_IMAGE_OPTIONS_();
    GD_CALLED_FROM(site);
    if (!path) return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_load_image: path is NULL"));
    return load_image(path, NULL, 0, options);
}

gd_tensor *gd_decode_image_at(const char *site, const void *bytes, size_t size,
                              const gd_load_image_options *options) {
    options = options ? options : GD_LOAD_IMAGE_OPTIONS_();
    GD_CALLED_FROM(site);
    if (!bytes) return gd_tensor_fail(gd_fail(GD_E_ARGUMENT, "gd_decode_image: bytes is NULL"));
    return load_image("gd_decode_image", bytes, size, options);
}

/* --- saving ----------------------------------------------------------------------------------- */

static uint8_t pixel_byte(gd_dtype dtype, const uint8_t *p) {
    double v = gd_load_f64(dtype, p);
    if (gd_is_float(dtype) || dtype == GD_BOOL) v = v * 255;
    return (uint8_t)(v >= 255 ? 255 : v > 0 ? v + 0.5 : 0); /* NaN is black */
}

gd_status gd_image_pixels(const char *name, const gd_tensor *x, gd_bitmap *image) {
    *image = (gd_bitmap){.width = 0};
    if (!x) return gd_fail(GD_E_ARGUMENT, "%s: the tensor is NULL", name);
    if (x->kind != GD_VALUE)
        return gd_fail(GD_E_STATE, "%s: the tensor has no value to save", name);
    const int64_t channels = x->rank == 3 ? x->dims[0] : 1;
    char text[200];
    if (x->rank < 2 || x->rank > 3 || channels < 1 || channels > 4)
        return gd_fail(GD_E_SHAPE, "%s: an image is (H,W) or (C,H,W) with 1 to 4 channels, not %s",
                       name, gd_describe(x, text, sizeof text));
    const int64_t height = x->dims[x->rank - 2], width = x->dims[x->rank - 1];
    if (height < 1 || width < 1 || height > GD_BITMAP_MAX_PIXELS / width)
        return gd_fail(GD_E_SHAPE,
                       "%s: %s cannot be saved as an image: it must have from 1 to %d pixels", name,
                       gd_describe(x, text, sizeof text), GD_BITMAP_MAX_PIXELS);
    const size_t plane = (size_t)(height * width), count = plane * (size_t)channels;
    const size_t item = gd_dtype_bytes(x->dtype);
    uint8_t *planes = gd_malloc(count * item), *pixels = gd_malloc(count);
    const gd_status status = planes && pixels
                                 ? gd_copy_out(x, planes, count * item)
                                 : gd_fail(GD_E_MEMORY, "%s: no memory for its pixels", name);
    for (size_t i = 0; status == GD_OK && i < count; i++) {
        const size_t c = i / plane, at = i % plane;
        pixels[at * (size_t)channels + c] = pixel_byte((gd_dtype)x->dtype, planes + i * item);
    }
    gd_free(planes);
    *image = (gd_bitmap){(int)width, (int)height, (int)channels, pixels};
    if (status != GD_OK) gd_bitmap_free(image);
    return status;
}

static gd_status save_png(const char *path, const gd_tensor *x) {
    gd_bitmap image;
    if (!path) return gd_fail(GD_E_ARGUMENT, "gd_save_png: path is NULL");
    GD_TRY(gd_image_pixels(path, x, &image));
    const gd_status status =
        gd_bitmap_write_png(path, image.width, image.height, image.channels, image.pixels);
    gd_bitmap_free(&image);
    return status;
}

gd_status gd_save_png_at(const char *site, const char *path, const gd_tensor *x) {
    if (gd_failed()) return gd_error_status(); /* results after a failure are not saved */
    return gd_report(site, save_png(path, x));
}
