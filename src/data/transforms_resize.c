/* transforms_resize.c - transforms that resample on a grid: resize, random_resized_crop. */
#include <math.h>

#include "data/image.h"
#include "data/transform.h"
#include "gradus/ops.h"
#include "gradus/transforms.h"

/*transform resize(size:int[])
 * Resizes the image. One number is the new size of the shorter side, and the ratio of the sides is
 * kept; two numbers are height and width.
 *   interpolation {bilinear, nearest, bicubic} = bilinear
 *   antialias bool = true   averages all pixels that an output pixel covers, as PIL does; not for nearest
 *   max_size int = none     with one number: the largest size of the longer side
 *   field int = 0           in [0, inf): the tensor of the sample
 *   python Resize(size, interpolation, max_size, antialias)
 */
static gd_status resize_check(const void *options) {
    const gd_transform_resize_options *o = options;
    GD_TRY(gd_image_check_size(&o->size));
    if (o->max_size == GD_UNSET) return GD_OK;
    if (o->size.rank == 2) return gd_fail(GD_E_ARGUMENT, "max_size requires a size of one number");
    if (o->max_size <= o->size.at[0])
        return gd_fail(GD_E_ARGUMENT, "max_size is %lld; it must be more than size, %lld",
                       (long long)o->max_size, (long long)o->size.at[0]);
    return GD_OK;
}

/* The sizes of the result. */
static gd_status resize_sizes(const gd_transform_resize_options *o, const gd_image *x,
                              int64_t *height, int64_t *width) {
    if (o->size.rank == 2) {
        *height = o->size.at[0];
        *width = o->size.at[1];
        return GD_OK;
    }
    const bool high = x->height > x->width;
    const int64_t shorter = high ? x->width : x->height, longer = high ? x->height : x->width;
    int64_t a = o->size.at[0], b = (int64_t)((double)a * (double)longer / (double)shorter);
    if (o->max_size != GD_UNSET && b > o->max_size) {
        a = (int64_t)((double)o->max_size * (double)a / (double)b);
        b = o->max_size;
    }
    if (a < 1) a = 1;
    if (b > GD_IMAGE_SIDE)
        return gd_fail(GD_E_SHAPE, "the longer side would have %lld pixels", (long long)b);
    *height = high ? b : a;
    *width = high ? a : b;
    return GD_OK;
}

static gd_tensor *resize_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_resize_options *o = options;
    int64_t height = 0, width = 0;
    gd_image image, y;
    (void)random;
    gd_status status = gd_image_of_values(x, &image);
    if (status == GD_OK) status = resize_sizes(o, &image, &height, &width);
    if (status == GD_OK && height == image.height && width == image.width) return x;
    if (status == GD_OK)
        status = gd_image_resize(&image, (gd_box){0, 0, image.height, image.width}, height, width,
                                 gd_filter_of(o->interpolation), o->antialias, &y);
    return gd_image_result(status, &y, x);
}

/*transform random_resized_crop(size:int[])
 * A random part of the image, resized to this size: one number, or height and width. Draws, up to
 * ten times until a part fits, its area and its ratio; then its top and its left. If none fits, the
 * part is the center of the image.
 *   scale float[] = 0.08, 1  area of the part as a share of the image: least and greatest
 *   ratio float[] = 0.75, 1.3333333333333333   its width to its height: least and greatest, drawn from their logarithms
 *   interpolation {bilinear, nearest, bicubic} = bilinear
 *   antialias bool = true    as in resize
 *   field int = 0            in [0, inf): the tensor of the sample
 *   python RandomResizedCrop(size, scale, ratio, interpolation, antialias)
 */
static gd_status random_resized_crop_check(const void *options) {
    const gd_transform_random_resized_crop_options *o = options;
    GD_TRY(gd_image_check_size(&o->size));
    const gd_floats *ranges[] = {&o->scale, &o->ratio};
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "ratio" : "scale";
        if (ranges[i]->count != 2)
            return gd_fail(GD_E_ARGUMENT, "%s has %d numbers; give the least and the greatest",
                           name, ranges[i]->count);
        const double low = ranges[i]->at[0], high = ranges[i]->at[1];
        if (!(low > 0 && low <= high && high <= (i ? 1e6 : 1)))
            return gd_fail(
                GD_E_ARGUMENT,
                "%s is %g to %g; it must be an increasing range, from more than 0 to at most %g",
                name, low, high, i ? 1e6 : 1.0);
    }
    return GD_OK;
}

static gd_box resized_part(const gd_transform_random_resized_crop_options *o, const gd_image *x,
                           gd_random *random) {
    const double area = (double)(x->height * x->width);
    gd_box box;
    for (int i = 0; i < 10; i++) {
        const double a = area * gd_random_between(random, o->scale.at[0], o->scale.at[1]);
        const double r = exp(gd_random_between(random, log(o->ratio.at[0]), log(o->ratio.at[1])));
        box.width = (int64_t)nearbyint(sqrt(a * r));
        box.height = (int64_t)nearbyint(sqrt(a / r));
        if (box.width < 1 || box.width > x->width || box.height < 1 || box.height > x->height)
            continue;
        box.top = gd_random_below(random, x->height - box.height + 1);
        box.left = gd_random_below(random, x->width - box.width + 1);
        return box;
    }
    const double ratio = (double)x->width / (double)x->height;
    box = (gd_box){0, 0, x->height, x->width};
    if (ratio < o->ratio.at[0]) box.height = (int64_t)nearbyint((double)x->width / o->ratio.at[0]);
    else if (ratio > o->ratio.at[1])
        box.width = (int64_t)nearbyint((double)x->height * o->ratio.at[1]);
    if (box.height < 1) box.height = 1;
    if (box.width < 1) box.width = 1;
    box.top = (x->height - box.height) / 2;
    box.left = (x->width - box.width) / 2;
    return box;
}

static gd_tensor *random_resized_crop_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_random_resized_crop_options *o = options;
    gd_image image, y;
    gd_status status = gd_image_of_values(x, &image);
    if (status == GD_OK)
        status = gd_image_resize(&image, resized_part(o, &image, random), gd_size_height(&o->size),
                                 gd_size_width(&o->size), gd_filter_of(o->interpolation),
                                 o->antialias, &y);
    return gd_image_result(status, &y, x);
}

#include "data/transforms_resize.gen.h"
