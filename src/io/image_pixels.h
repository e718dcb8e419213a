/* image_pixels.h - a tensor as the pixels of an image. */
#ifndef GRADUS_IO_IMAGE_PIXELS_H
#define GRADUS_IO_IMAGE_PIXELS_H

#include "core/tensor.h"
#include "format/image.h"

/* The pixels of a tensor (H, W) or (C, H, W), as gd_save_png writes them; gd_bitmap_free frees them.
 * `name` is for messages. On failure *image is empty. */
gd_status gd_image_pixels(const char *name, const gd_tensor *x, gd_bitmap *image);

#endif
