/* transforms_value.c - transforms that change values, and not the shape of images. */
#include <math.h>

#include "data/image.h"
#include "data/transform.h"
#include "gradus/ops.h"
#include "gradus/transforms.h"

/* y = x * factor + offset over n elements, in f32. */
static void scale_f32(const float *x, float *y, int64_t n, float factor, float offset) {
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor + offset;
}
static void scale_u8(const uint8_t *x, float *y, int64_t n, float factor, float offset) {
    for (int64_t i = 0; i < n; i++) y[i] = (float)x[i] * factor + offset;
}

/*transform scale
 * x * factor + offset, as floats. The defaults scale bytes to [0, 1].
 *   factor float = 0.00392156862745098   1 / 255
 *   offset float = 0
 *   field int = 0                        in [0, inf): the tensor of the sample
 */
static gd_tensor *scale_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_scale_options *o = options;
    (void)random;
    if ((x->dtype == GD_U8 || x->dtype == GD_F32) && gd_data(x) &&
        gd_is_row_major(x->rank, x->dims, x->strides)) {
        gd_tensor *y = gd_tensor_new(x->device, GD_F32, x->rank, x->dims);
        if (!y) return gd_tensor_fail(gd_failure());
        const int64_t n = gd_numel(x->rank, x->dims);
        if (x->dtype == GD_U8)
            scale_u8(gd_data(x), gd_data(y), n, (float)o->factor, (float)o->offset);
        else scale_f32(gd_data(x), gd_data(y), n, (float)o->factor, (float)o->offset);
        return y;
    }
    gd_tensor *y = gd_is_float(x->dtype) ? x : gd_cast(x, GD_F32);
    y = gd_mul(y, gd_scalar(o->factor));
    return o->offset == 0 ? y : gd_add(y, gd_scalar(o->offset));
}

/*transform normalize(mean:float[], std:float[])
 * (x - mean) / std, as floats: one number, or one for each channel of (C, H, W). Bytes are scaled
 * to [0, 1] first.
 *   field int = 0           in [0, inf): the tensor of the sample
 */
static gd_status normalize_check(const void *options) {
    const gd_transform_normalize_options *o = options;
    if (o->mean.count < 1 || o->std.count < 1)
        return gd_fail(GD_E_ARGUMENT, "mean and std need at least one number");
    if (o->mean.count > 1 && o->std.count > 1 && o->mean.count != o->std.count)
        return gd_fail(GD_E_ARGUMENT, "mean has %d numbers and std has %d", o->mean.count,
                       o->std.count);
    for (int i = 0; i < o->std.count; i++)
        if (!(o->std.at[i] > 0))
            return gd_fail(GD_E_ARGUMENT, "std is %g; it must be more than 0", o->std.at[i]);
    return GD_OK;
}
static gd_tensor *normalize_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_normalize_options *o = options;
    float mean[GD_MAX_FLOATS], std[GD_MAX_FLOATS];
    gd_image image, y;
    (void)random;
    gd_status status = gd_image_of_values(x, &image);
    if (status == GD_OK) status = gd_image_fill(&o->mean, &image, "mean", mean);
    if (status == GD_OK) status = gd_image_fill(&o->std, &image, "std", std);
    if (status == GD_OK) status = gd_image_new(&image, image.height, image.width, GD_F32, &y);
    if (status != GD_OK) return gd_tensor_fail(status);
    const int64_t n = image.height * image.width, colors = gd_image_colors(&image);
    for (int64_t c = 0; c < image.channels; c++) {
        const float factor = 1 / gd_fill_at(std, c, colors);
        const float offset = -gd_fill_at(mean, c, colors) * factor;
        float *to = (float *)y.data + c * n;
        if (image.dtype == GD_U8)
            scale_u8((uint8_t *)image.data + c * n, to, n, factor / 255, offset);
        else scale_f32((float *)image.data + c * n, to, n, factor, offset);
    }
    return gd_image_result(GD_OK, &y, x);
}

/*transform cast(dtype:dtype)
 * The same numbers as another dtype.
 *   field int = 0           in [0, inf): the tensor of the sample
 *   python ConvertDtype(dtype)
 */
static gd_status cast_check(const void *options) {
    const gd_transform_cast_options *o = options;
    return o->dtype ? GD_OK : gd_fail(GD_E_ARGUMENT, "dtype is none");
}
static gd_tensor *cast_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_cast_options *o = options;
    (void)random;
    return gd_cast(x, o->dtype);
}

/*transform one_hot(classes:int)
 * One-hot vectors of classes: x (...) of integers gives y (..., classes), with 1 at the index of
 * the class and 0 elsewhere. Fails for a number that is not a class.
 *   dtype dtype = f32
 *   smoothing float = 0     in [0, 1): the share of the 1 that is spread evenly over all classes
 *   field int = 1           in [0, inf): the tensor of the sample
 */
static gd_status one_hot_check(const void *options) {
    const gd_transform_one_hot_options *o = options;
    if (o->classes < 1 || o->classes > GD_IMAGE_SIDE)
        return gd_fail(GD_E_ARGUMENT, "classes is %lld; it must be in [1, %d]",
                       (long long)o->classes, GD_IMAGE_SIDE);
    return GD_OK;
}
static gd_tensor *one_hot_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_one_hot_options *o = options;
    char text[160];
    (void)random;
    if (gd_is_float(x->dtype) || x->dtype == GD_BOOL || x->rank == GD_MAX_RANK)
        return gd_tensor_fail(gd_fail(GD_E_DTYPE, "classes are integers; this is %s",
                                      gd_describe(x, text, sizeof text)));
    gd_tensor *index = gd_contiguous(gd_cast(x, GD_I64));
    gd_shape shape = gd_shape_of(x->rank, x->dims);
    shape.at[shape.rank++] = o->classes;
    gd_tensor *y = gd_empty(shape, GD_F32);
    const int64_t *at = gd_data(index);
    float *to = gd_data(y);
    if (!at || !to)
        return gd_tensor_fail(gd_failed() ? gd_failure()
                                          : gd_fail(GD_E_DEVICE, "classes must be on the CPU"));
    const float off = (float)(o->smoothing / (double)o->classes),
                on = (float)(1 - o->smoothing) + off;
    const int64_t n = gd_numel(x->rank, x->dims);
    for (int64_t i = 0; i < n * o->classes; i++) to[i] = off;
    for (int64_t i = 0; i < n; i++) {
        if (at[i] < 0 || at[i] >= o->classes)
            return gd_tensor_fail(gd_fail(GD_E_INDEX,
                                          "class is %lld; it must be from 0 to below %lld",
                                          (long long)at[i], (long long)o->classes));
        to[i * o->classes + at[i]] = on;
    }
    return o->dtype == GD_F32 || !o->dtype ? y : gd_cast(y, o->dtype);
}

/*transform noise
 * Adds normally distributed numbers, one for each element. Bytes are taken as 0 to 1, and the
 * result is rounded.
 *   mean float = 0
 *   sigma float = 0.1       in [0, inf): standard deviation
 *   clip bool = true        keeps results in [0, 1]
 *   field int = 0           in [0, inf): the tensor of the sample
 *   python GaussianNoise(mean, sigma, clip)
 */
static gd_tensor *noise_apply(const void *options, gd_tensor *x, gd_random *random) {
    const gd_transform_noise_options *o = options;
    gd_image image, y;
    gd_status status = gd_image_of_values(x, &image);
    if (status == GD_OK) status = gd_image_new(&image, image.height, image.width, image.dtype, &y);
    if (status != GD_OK) return gd_tensor_fail(status);
    const int64_t n = image.channels * image.height * image.width;
    const bool u8 = image.dtype == GD_U8;
    const float mean = (float)o->mean, sigma = (float)o->sigma;
    float values[256];
    for (int64_t first = 0; first < n; first += 256) {
        const int64_t count = n - first < 256 ? n - first : 256;
        gd_random_normals(random, values, count);
        for (int64_t i = 0; i < count; i++) {
            const float v = u8 ? (float)((uint8_t *)image.data)[first + i] / 255
                               : ((float *)image.data)[first + i];
            float z = v + mean + sigma * values[i];
            if (o->clip || u8) z = z < 0 ? 0 : z > 1 ? 1 : z;
            if (u8) ((uint8_t *)y.data)[first + i] = (uint8_t)(z * 255 + 0.5f);
            else ((float *)y.data)[first + i] = z;
        }
    }
    return gd_image_result(GD_OK, &y, x);
}

#include "data/transforms_value.gen.h"
