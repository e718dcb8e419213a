/* transforms_crop.c - transforms that move pixels: crops, flips, padding, erasing. */
#include <math.h>

#include "data/image.h"
#include "data/transform.h"
#include "gradus/ops.h"
#include "gradus/transforms.h"

/* One number for all sides; two for left and right, top and bottom; or left, top, right, bottom. */
static gd_margins read_margins(const gd_shape *p) {
    const int64_t *at = p->at;
    if (p->form != 1 || p->rank == 0) return (gd_margins){0, 0, 0, 0};
    if (p->rank == 1) return (gd_margins){at[0], at[0], at[0], at[0]};
    if (p->rank == 2) return (gd_margins){at[0], at[1], at[0], at[1]};
    return (gd_margins){at[0], at[1], at[2], at[3]};
}

static gd_status check_padding(const gd_shape *p) {
    if (p->form == 1 && (p->rank == 3 || p->rank > 4))
        return gd_fail(GD_E_ARGUMENT,
                       "padding has %d numbers; give one, two (left and right, top and bottom) or "
                       "four (left, top, right, bottom)",
                       p->rank);
    for (int i = 0; p->form == 1 && i < p->rank; i++)
        if (p->at[i] < 0 || p->at[i] > GD_IMAGE_SIDE)
            return gd_fail(GD_E_ARGUMENT, "padding is %lld; it must be in [0, %d]",
                           (long long)p->at[i], GD_IMAGE_SIDE);
    return GD_OK;
}

/*transform pad(padding:int[])
 * Adds a border. One number for all sides; two for left and right, top and bottom; or four for
 * left, top, right, bottom.
 *   mode {constant, edge, reflect, symmetric} = constant   its values: a constant, the nearest pixel, or the image mirrored without or with its edge
 *   fill float[] = 0        of constant borders: one number, or one for each channel
 *   field int = 0           in [0, inf): the tensor of the sample
 *   python Pad(padding, fill, padding_mode=mode)
 */
static gd_status pad_check(const void *options) {
    const gd_transform_pad_options *o = options;
    return check_padding(&o->padding);
}
static gd_tensor *pad_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_pad_options *o = options;
    const gd_margins m = read_margins(&o->padding);
    float fill[GD_MAX_FLOATS];
    gd_image image, y;
    (void)random;
    gd_status status = gd_image_of(x, &image);
    if (status == GD_OK) status = gd_image_fill(&o->fill, &image, "fill", fill);
    if (status == GD_OK)
        status = gd_image_window(&image, -m.top, -m.left, image.height + m.top + m.bottom,
                                 image.width + m.left + m.right, gd_border_of(o->mode), fill, &y);
    return gd_image_result(status, &y, x);
}

/*transform crop(size:int[])
 * A random part of the image of this size: one number, or height and width. Draws its top, then its
 * left.
 *   padding int[] = 0       pixels to add around the image first: one number; two for left and right, top and bottom; or left, top, right, bottom
 *   pad_if_needed bool = false   also pads a smaller image to the size
 *   mode {constant, edge, reflect, symmetric} = constant   values of the padding, as in pad
 *   fill float[] = 0        of constant padding: one number, or one for each channel
 *   field int = 0           in [0, inf): the tensor of the sample
 *   python RandomCrop(size, padding, pad_if_needed, fill, padding_mode=mode)
 */
static gd_status crop_check(const void *options) {
    const gd_transform_crop_options *o = options;
    GD_TRY(gd_image_check_size(&o->size));
    return check_padding(&o->padding);
}
static gd_tensor *crop_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_crop_options *o = options;
    const int64_t h = gd_size_height(&o->size), w = gd_size_width(&o->size);
    gd_margins m = read_margins(&o->padding);
    float fill[GD_MAX_FLOATS];
    gd_image image, y;
    gd_status status = gd_image_of(x, &image);
    if (status == GD_OK) status = gd_image_fill(&o->fill, &image, "fill", fill);
    if (status != GD_OK) return gd_tensor_fail(status);
    int64_t height = image.height + m.top + m.bottom, width = image.width + m.left + m.right;
    if (o->pad_if_needed && height < h) {
        m.top += h - height;
        height += 2 * (h - height);
    }
    if (o->pad_if_needed && width < w) {
        m.left += w - width;
        width += 2 * (w - width);
    }
    if (height < h || width < w)
        return gd_tensor_fail(gd_fail(
            GD_E_SHAPE,
            "the image is %lldx%lld with its padding; it is too small for a crop of %lldx%lld",
            (long long)height, (long long)width, (long long)h, (long long)w));
    const int64_t top = gd_random_below(random, height - h + 1);
    const int64_t left = gd_random_below(random, width - w + 1);
    status =
        gd_image_window(&image, top - m.top, left - m.left, h, w, gd_border_of(o->mode), fill, &y);
    return gd_image_result(status, &y, x);
}

/*transform center_crop(size:int[])
 * The middle of the image, of this size: one number, or height and width. A smaller image is padded
 * with zeros.
 *   field int = 0           in [0, inf): the tensor of the sample
 */
static gd_status center_crop_check(const void *options) {
    const gd_transform_center_crop_options *o = options;
    return gd_image_check_size(&o->size);
}
/* The first pixel of the part, rounded as torchvision does: down for padding, half to even
 * otherwise. */
static int64_t center_offset(int64_t have, int64_t want) {
    return have < want ? -((want - have) / 2) : (int64_t)nearbyint((double)(have - want) / 2);
}
static gd_tensor *center_crop_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_center_crop_options *o = options;
    const int64_t h = gd_size_height(&o->size), w = gd_size_width(&o->size);
    gd_image image, y;
    (void)random;
    gd_status status = gd_image_of(x, &image);
    if (status == GD_OK)
        status = gd_image_window(&image, center_offset(image.height, h),
                                 center_offset(image.width, w), h, w, GD_BORDER_CONSTANT, NULL, &y);
    return gd_image_result(status, &y, x);
}

/*transform flip
 * Mirrors the image with probability p. Draws one number.
 *   p float = 0.5           in [0, 1]: how often
 *   axis {horizontal, vertical} = horizontal   left and right are swapped, or top and bottom
 *   field int = 0           in [0, inf): the tensor of the sample
 *   python RandomFlip(p, axis)
 */
static gd_tensor *flip_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_flip_options *o = options;
    gd_image image, y;
    gd_status status = gd_image_of(x, &image);
    if (status == GD_OK && gd_random_uniform(random) >= o->p) return x;
    if (status == GD_OK) status = gd_image_flip(&image, o->axis == GD_HORIZONTAL, &y);
    return gd_image_result(status, &y, x);
}

/* Checks a range for a random number: increasing, from `least` on. */
static gd_status check_range(const gd_floats *r, const char *name, double least, bool with_least) {
    if (r->count != 2)
        return gd_fail(GD_E_ARGUMENT, "%s has %d numbers; give the least and the greatest", name,
                       r->count);
    if (!(r->at[0] <= r->at[1]) || r->at[0] < least || (!with_least && r->at[0] <= least) ||
        !isfinite(r->at[1]))
        return gd_fail(GD_E_ARGUMENT, "%s is %g to %g; it must be an increasing range, from %s %g",
                       name, r->at[0], r->at[1], with_least ? "at least" : "more than", least);
    return GD_OK;
}

/*transform erase
 * Overwrites a random rectangle with probability p (random erasing). Draws one number; then, up to
 * ten times until a rectangle fits, its area and its ratio; then its top and left; then the noise.
 *   p float = 0.5           in [0, 1]: how often
 *   scale float[] = 0.02, 0.33   its area as a share of the image: least and greatest
 *   ratio float[] = 0.3, 3.3     its height to its width: least and greatest, drawn from their logarithms
 *   value float[] = 0       what it is set to: one number, or one for each channel
 *   noise bool = false      sets it to normally distributed numbers instead
 *   field int = 0           in [0, inf): the tensor of the sample
 *   python RandomErasing(p, scale, ratio, value)
 */
static gd_status erase_check(const void *options) {
    const gd_transform_erase_options *o = options;
    GD_TRY(check_range(&o->scale, "scale", 0, true));
    if (o->scale.at[1] > 1)
        return gd_fail(GD_E_ARGUMENT, "scale is up to %g; a share of the area is at most 1",
                       o->scale.at[1]);
    return check_range(&o->ratio, "ratio", 0, false);
}

/* Draws a rectangle; false: none fits. */
static bool erase_box(const gd_transform_erase_options *o, const gd_image *x, gd_random *random,
                      gd_box *box) {
    const double area = (double)(x->height * x->width);
    for (int i = 0; i < 10; i++) {
        const double a = area * gd_random_between(random, o->scale.at[0], o->scale.at[1]);
        const double r = exp(gd_random_between(random, log(o->ratio.at[0]), log(o->ratio.at[1])));
        box->height = (int64_t)nearbyint(sqrt(a * r));
        box->width = (int64_t)nearbyint(sqrt(a / r));
        if (box->height >= x->height || box->width >= x->width) continue;
        box->top = gd_random_below(random, x->height - box->height + 1);
        box->left = gd_random_below(random, x->width - box->width + 1);
        return true;
    }
    return false;
}

static gd_tensor *erase_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_erase_options *o = options;
    float value[GD_MAX_FLOATS];
    gd_image image, y;
    gd_box box;
    gd_status status = gd_image_of_values(x, &image);
    if (status == GD_OK) status = gd_image_fill(&o->value, &image, "value", value);
    if (status != GD_OK) return gd_tensor_fail(status);
    if (gd_random_uniform(random) >= o->p || !erase_box(o, &image, random, &box)) return x;
    status = gd_image_window(&image, 0, 0, image.height, image.width, GD_BORDER_CONSTANT, NULL, &y);
    if (status != GD_OK) return gd_tensor_fail(status);
    gd_tensor *noise = NULL;
    if (o->noise) {
        noise = gd_empty(gd_dims(image.channels, box.height, box.width), GD_F32);
        if (!gd_data(noise)) return noise;
        gd_random_normals(random, gd_data(noise), gd_tensor_numel(noise));
    }
    gd_image_set(&y, box.top, box.left, box.height, box.width, value,
                 noise ? gd_data(noise) : NULL);
    return gd_image_result(GD_OK, &y, x);
}

#include "data/transforms_crop.gen.h"
