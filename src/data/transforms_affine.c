/* transforms_affine.c - random rotations and affine maps. */
#include <math.h>

#include "data/image.h"
#include "data/transform.h"
#include "gradus/ops.h"
#include "gradus/transforms.h"

/* One number d is the range [-d, d]; two numbers are a range. */
static gd_status check_symmetric_range(const gd_floats *r, const char *name, double most) {
    const int n = r->count;
    if (n < 1 || n > 2)
        return gd_fail(GD_E_ARGUMENT, "%s has %d numbers; give one, or the least and the greatest",
                       name, n);
    if (n == 1 && !(r->at[0] >= 0 && r->at[0] <= most))
        return gd_fail(GD_E_ARGUMENT, "%s is %g; one number must be in [0, %g]", name, r->at[0],
                       most);
    if (n == 2 && !(r->at[0] >= -most && r->at[0] <= r->at[1] && r->at[1] <= most))
        return gd_fail(GD_E_ARGUMENT,
                       "%s is %g to %g; it must be an increasing range within [%g, %g]", name,
                       r->at[0], r->at[1], -most, most);
    return GD_OK;
}

static double draw_from_range(const gd_floats *r, gd_random *random) {
    return r->count == 2 ? gd_random_between(random, r->at[0], r->at[1])
                         : gd_random_between(random, -r->at[0], r->at[0]);
}

/*transform rotate(degrees:float[])
 * Rotates by a random angle, counterclockwise: from -degrees to degrees, or in a range of two
 * numbers. Draws the angle.
 *   interpolation {bilinear, nearest} = bilinear
 *   expand bool = false     enlarges the result to contain the entire image
 *   fill float[] = 0        value of pixels from outside: one number, or one for each channel
 *   field int = 0           in [0, inf): the tensor of the sample
 *   python RandomRotation(degrees, interpolation, expand, fill)
 */
static gd_status rotate_check(const void *options) {
    const gd_transform_rotate_options *o = options;
    return check_symmetric_range(&o->degrees, "degrees", 3600);
}
static gd_tensor *rotate_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_rotate_options *o = options;
    float fill[GD_MAX_FLOATS];
    double m[6];
    gd_image image, y;
    gd_status status = gd_image_of_values(x, &image);
    if (status == GD_OK) status = gd_image_fill(&o->fill, &image, "fill", fill);
    if (status != GD_OK) return gd_tensor_fail(status);
    gd_affine_matrix(-draw_from_range(&o->degrees, random), 0, 0, 1, 0, 0, m);
    int64_t height = image.height, width = image.width;
    if (o->expand) gd_affine_sizes(&image, m, &height, &width);
    status = gd_image_affine(&image, m, height, width, gd_filter_of(o->interpolation), fill, &y);
    return gd_image_result(status, &y, x);
}

/*transform affine(degrees:float[])
 * Rotates, translates, scales and shears at random, about the center of the image. Draws the angle
 * (clockwise), then the translations, the scale and the shears if they are given.
 *   translate float[] = 0   largest shift as a share of the width and of the height; one number for both
 *   scale float[] = 1       one number, or the least and the greatest
 *   shear float[] = 0       degrees along x: one number or a range, like degrees; four numbers: a range along x, and one along y
 *   interpolation {bilinear, nearest} = bilinear
 *   fill float[] = 0        value of pixels from outside: one number, or one for each channel
 *   field int = 0           in [0, inf): the tensor of the sample
 *   python RandomAffine(degrees, translate, scale, shear, interpolation, fill)
 */
static gd_status affine_check(const void *options) {
    const gd_transform_affine_options *o = options;
    const gd_floats *t = &o->translate, *s = &o->scale, *shear = &o->shear;
    GD_TRY(check_symmetric_range(&o->degrees, "degrees", 3600));
    if (t->count < 1 || t->count > 2)
        return gd_fail(GD_E_ARGUMENT, "translate has %d numbers; give one, or two for x and y",
                       t->count);
    for (int i = 0; i < t->count; i++)
        if (!(t->at[i] >= 0 && t->at[i] <= 1))
            return gd_fail(GD_E_ARGUMENT, "translate is %g; it must be in [0, 1]", t->at[i]);
    if (s->count < 1 || s->count > 2 || !(s->at[0] > 0) || !(s->at[s->count - 1] >= s->at[0]) ||
        !(s->at[s->count - 1] <= 1e6))
        return gd_fail(GD_E_ARGUMENT,
                       "scale must be one positive number, or an increasing range of two");
    if (shear->count == 4) {
        const gd_floats parts[2] = {{{shear->at[0], shear->at[1]}, 2, 1},
                                    {{shear->at[2], shear->at[3]}, 2, 1}};
        GD_TRY(check_symmetric_range(&parts[0], "shear", 89));
        return check_symmetric_range(&parts[1], "shear", 89);
    }
    return check_symmetric_range(shear, "shear", 89);
}

static void draw_affine(const gd_transform_affine_options *o, const gd_image *x, gd_random *random,
                        double m[6]) {
    const gd_floats *t = &o->translate, *shear = &o->shear;
    const double angle = draw_from_range(&o->degrees, random);
    double tx = 0, ty = 0, scale = o->scale.at[0], sx = 0, sy = 0;
    if (t->at[0] != 0 || t->at[t->count - 1] != 0) {
        const double most_x = t->at[0] * (double)x->width,
                     most_y = t->at[t->count - 1] * (double)x->height;
        tx = nearbyint(gd_random_between(random, -most_x, most_x));
        ty = nearbyint(gd_random_between(random, -most_y, most_y));
    }
    if (o->scale.count == 2) scale = gd_random_between(random, o->scale.at[0], o->scale.at[1]);
    if (shear->count == 4) {
        sx = gd_random_between(random, shear->at[0], shear->at[1]);
        sy = gd_random_between(random, shear->at[2], shear->at[3]);
    } else if (shear->count == 2 || shear->at[0] != 0) {
        sx = draw_from_range(shear, random);
    }
    gd_affine_matrix(angle, tx, ty, scale, sx, sy, m);
}

static gd_tensor *affine_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_affine_options *o = options;
    float fill[GD_MAX_FLOATS];
    double m[6];
    gd_image image, y;
    gd_status status = gd_image_of_values(x, &image);
    if (status == GD_OK) status = gd_image_fill(&o->fill, &image, "fill", fill);
    if (status != GD_OK) return gd_tensor_fail(status);
    draw_affine(o, &image, random, m);
    status = gd_image_affine(&image, m, image.height, image.width, gd_filter_of(o->interpolation),
                             fill, &y);
    return gd_image_result(status, &y, x);
}

#include "data/transforms_affine.gen.h"
