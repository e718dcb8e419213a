/* transforms_color.c - color_jitter and grayscale. */
#include <math.h>

#include "data/image.h"
#include "data/transform.h"
#include "gradus/ops.h"
#include "gradus/transforms.h"

static gd_status read_color_image(gd_tensor *x, gd_image *image) {
    char text[160];
    GD_TRY(gd_image_of_values(x, image));
    const int64_t colors = gd_image_colors(image);
    if (colors == 1 || colors == 3) return GD_OK;
    return gd_fail(GD_E_SHAPE, "colors are (3, H, W), gray is (1, H, W) or (H, W); this is %s",
                   gd_describe(x, text, sizeof text));
}

/* One number v is the range from max(0, 1 - v) to 1 + v; two numbers are a range. */
static gd_status check_factor(const gd_floats *f, const char *name) {
    if (f->count < 1 || f->count > 2)
        return gd_fail(GD_E_ARGUMENT,
                       "%s has %d numbers; give one, or the least and the greatest factor", name,
                       f->count);
    if (!(f->at[0] >= 0 && f->at[f->count - 1] >= f->at[0] && f->at[f->count - 1] <= 1e6))
        return gd_fail(GD_E_ARGUMENT,
                       "%s must be one number of at least 0, or an increasing range of two", name);
    return GD_OK;
}

static bool draw_factor(const gd_floats *f, gd_random *random, double *factor) {
    if (f->count == 1 && f->at[0] == 0) return false;
    const double low = f->count == 2 ? f->at[0] : f->at[0] < 1 ? 1 - f->at[0] : 0;
    *factor = gd_random_between(random, low, f->count == 2 ? f->at[1] : 1 + f->at[0]);
    return true;
}

/*transform color_jitter
 * Changes brightness, contrast, saturation and hue at random, in a random order. One number v for
 * one of the first three means a factor from 1 - v to 1 + v; two numbers are the least and the
 * greatest factor. Draws the order, then the factors of the given options. Gray images have no
 * saturation and no hue.
 *   brightness float[] = 0
 *   contrast float[] = 0
 *   saturation float[] = 0
 *   hue float[] = 0         in [-0.5, 0.5]: rotation of the color wheel, from -hue to hue, or two numbers
 *   field int = 0           in [0, inf): the tensor of the sample
 */
static gd_status color_jitter_check(const void *options) {
    const gd_transform_color_jitter_options *o = options;
    GD_TRY(check_factor(&o->brightness, "brightness"));
    GD_TRY(check_factor(&o->contrast, "contrast"));
    GD_TRY(check_factor(&o->saturation, "saturation"));
    if (o->hue.count < 1 || o->hue.count > 2 || (o->hue.count == 1 && o->hue.at[0] < 0) ||
        (o->hue.count == 2 && o->hue.at[0] > o->hue.at[1]))
        return gd_fail(GD_E_ARGUMENT,
                       "hue must be one number of at least 0, or an increasing range of two");
    return GD_OK;
}

static gd_tensor *color_jitter_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_color_jitter_options *o = options;
    double factor[4];
    int order[4];
    gd_image image, y;
    gd_status status = read_color_image(x, &image);
    if (status == GD_OK)
        status =
            gd_image_window(&image, 0, 0, image.height, image.width, GD_BORDER_CONSTANT, NULL, &y);
    if (status != GD_OK) return gd_tensor_fail(status);
    for (int i = 0; i < 4; i++) {
        const int k = (int)gd_random_below(random, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    bool given[4];
    given[0] = draw_factor(&o->brightness, random, &factor[0]);
    given[1] = draw_factor(&o->contrast, random, &factor[1]);
    given[2] = draw_factor(&o->saturation, random, &factor[2]);
    given[3] = o->hue.count == 2 || o->hue.at[0] != 0;
    if (given[3])
        factor[3] = gd_random_between(random, o->hue.count == 2 ? o->hue.at[0] : -o->hue.at[0],
                                      o->hue.at[o->hue.count - 1]);
    static void (*const change[4])(gd_image *, double) = {gd_image_brightness, gd_image_contrast,
                                                          gd_image_saturation, gd_image_hue};
    for (int i = 0; i < 4; i++)
        if (given[order[i]]) change[order[i]](&y, factor[order[i]]);
    return gd_image_result(GD_OK, &y, x);
}

/*transform grayscale
 * Converts colors to gray: 0.2989 red + 0.587 green + 0.114 blue. With p below 1 it does so at
 * random, keeps the number of channels, and draws one number.
 *   channels int = 1        in [1, 3]: of the result: 1, or 3 equal ones
 *   p float = 1             in [0, 1]: how often
 *   field int = 0           in [0, inf): the tensor of the sample
 *   python Grayscale(num_output_channels=channels)
 */
static gd_status grayscale_check(const void *options) {
    const gd_transform_grayscale_options *o = options;
    return o->channels != 2 ? GD_OK : gd_fail(GD_E_ARGUMENT, "channels is 2; it must be 1 or 3");
}
static gd_tensor *grayscale_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_grayscale_options *o = options;
    gd_image image, y;
    gd_status status = read_color_image(x, &image);
    if (status != GD_OK) return gd_tensor_fail(status);
    if (o->p < 1 && gd_random_uniform(random) >= o->p) return x;
    status = gd_image_grayscale(&image, o->p < 1 ? gd_image_colors(&image) : o->channels, &y);
    return gd_image_result(status, &y, x);
}

#include "data/transforms_color.gen.h"
