/* image.h - images for transforms: the last two axes of a tensor are (H, W), and all axes before
 * them are channels. So (H, W), (C, H, W) and (frames, C, H, W) are images.
 *
 * The functions on images have no options and draw no random numbers: transforms draw their
 * parameters and then call them.
 */
#ifndef GRADUS_DATA_IMAGE_H
#define GRADUS_DATA_IMAGE_H

#include "core/error.h"
#include "core/tensor.h"

typedef struct gd_image {
    gd_tensor *tensor; /* row-major, on the CPU */
    gd_dtype dtype;
    int64_t channels, height, width;
    void *data;
} gd_image;

/* The values of pixels outside of an image, in the order of the words of the option. */
typedef enum gd_border {
    GD_BORDER_CONSTANT,
    GD_BORDER_EDGE,
    GD_BORDER_REFLECT,
    GD_BORDER_SYMMETRIC
} gd_border;
gd_border gd_border_of(gd_word mode);

/* Pixels to add at the four sides. */
typedef struct gd_margins {
    int64_t left, top, right, bottom;
} gd_margins;

/* The largest height and width: sums and products of two of them do not overflow. */
enum { GD_IMAGE_SIDE = 1 << 24 };

/* Fails if a tensor is not an image: fewer than two axes, no pixels, another device. */
gd_status gd_image_of(gd_tensor *x, gd_image *image);
/* The same for functions that compute with values: u8 and f32 stay, other floats become f32, other
 * integers fail. */
gd_status gd_image_of_values(gd_tensor *x, gd_image *image);
/* Creates an image of this size; its other axes are those of `like`. */
gd_status gd_image_new(const gd_image *like, int64_t height, int64_t width, gd_dtype dtype,
                       gd_image *image);
/* The tensor of the result, in the dtype of `x`, which gd_image_of_values may have changed. */
gd_tensor *gd_image_result(gd_status status, const gd_image *image, const gd_tensor *x);

/* The number of color channels, the third axis from the end: 1 for (H, W). */
int64_t gd_image_colors(const gd_image *image);

/* Expands an option, a list of one number or of one for each channel, to a number for each channel,
 * in the scale of the dtype. `what` is the name of the option. */
gd_status gd_image_fill(const gd_floats *list, const gd_image *image, const char *what,
                        float value[GD_MAX_FLOATS]);
/* The number for channel c. */
static inline float gd_fill_at(const float value[GD_MAX_FLOATS], int64_t c, int64_t colors) {
    return colors > GD_MAX_FLOATS ? value[0] : value[c % colors];
}

/* Checks the option "size": one number for height and width, or two. */
gd_status gd_image_check_size(const gd_shape *size);
static inline int64_t gd_size_height(const gd_shape *size) { return size->at[0]; }
static inline int64_t gd_size_width(const gd_shape *size) { return size->at[size->rank - 1]; }

/* --- moving pixels ---------------------------------------------------------------------------- */

/* The window of `height` by `width` at (top, left) of the image with a border around it. Any dtype;
 * constant borders have the number of the channel in `fill`. */
gd_status gd_image_window(const gd_image *x, int64_t top, int64_t left, int64_t height,
                          int64_t width, gd_border border, const float *fill, gd_image *y);
gd_status gd_image_flip(const gd_image *x, bool horizontal, gd_image *y);
/* Overwrites a rectangle in place: with the `fill` of each channel, or `values` (C, height,
 * width). */
void gd_image_set(gd_image *x, int64_t top, int64_t left, int64_t height, int64_t width,
                  const float *fill, const float *values);

/* --- resampling ------------------------------------------------------------------------------- */

typedef enum gd_filter { GD_FILTER_NEAREST, GD_FILTER_BILINEAR, GD_FILTER_BICUBIC } gd_filter;
gd_filter gd_filter_of(gd_word interpolation);

/* The part of `x` at (top, left) of these sizes, resized to height and width; u8 or f32. */
typedef struct gd_box {
    int64_t top, left, height, width;
} gd_box;
gd_status gd_image_resize(const gd_image *x, gd_box part, int64_t height, int64_t width,
                          gd_filter filter, bool antialias, gd_image *y);

/* Pixel (x, y) of the result, relative to its center, is the source pixel (m[0] x + m[1] y + m[2],
 * m[3] x + m[4] y + m[5]), relative to the source's center. Outside of the source it is `fill`. */
gd_status gd_image_affine(const gd_image *x, const double m[6], int64_t height, int64_t width,
                          gd_filter filter, const float *fill, gd_image *y);

/* The matrix for a rotation (degrees, clockwise), a translation in pixels, a scale and shears
 * (degrees), as torchvision composes them. */
void gd_affine_matrix(double angle, double tx, double ty, double scale, double shear_x,
                      double shear_y, double m[6]);
/* The sizes of an image that contains all of `x` after the transform. */
void gd_affine_sizes(const gd_image *x, const double m[6], int64_t *height, int64_t *width);

/* --- colors: (..., 3, H, W), or 1 channel; in place ------------------------------------------- */

void gd_image_brightness(gd_image *x, double factor);
void gd_image_contrast(gd_image *x, double factor);
void gd_image_saturation(gd_image *x, double factor);
void gd_image_hue(gd_image *x,
                  double shift); /* in full rotations of the color wheel, -0.5 to 0.5 */
gd_status gd_image_grayscale(const gd_image *x, int64_t channels, gd_image *y);

/* Draws normally distributed numbers. */
void gd_random_normals(gd_random *random, float *values, int64_t count);

#endif
