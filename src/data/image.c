/* image.c - images for transforms, and functions that only move pixels. */
#include "data/image.h"

#include <math.h>
#include <string.h>

#include "core/device.h"
#include "gradus/ops.h"
#include "dispatch/op.h"

/* --- tensors as images ------------------------------------------------------------------------ */

gd_status gd_image_of(gd_tensor *x, gd_image *image) {
    char text[160];
    if (x->rank < 2)
        return gd_fail(GD_E_SHAPE, "an image has the shape (H, W) or (C, H, W); this is %s",
                       gd_describe(x, text, sizeof text));
    if (!gd_is_row_major(x->rank, x->dims, x->strides)) x = gd_contiguous(x);
    if (x->kind == GD_FAILED) return gd_failure();
    const int64_t h = x->dims[x->rank - 2], w = x->dims[x->rank - 1],
                  n = gd_numel(x->rank, x->dims);
    if (n == 0 || h > GD_IMAGE_SIDE || w > GD_IMAGE_SIDE)
        return gd_fail(GD_E_SHAPE, n ? "%s is too large for an image" : "%s has no pixels",
                       gd_describe(x, text, sizeof text));
    *image = (gd_image){.tensor = x,
                        .dtype = (gd_dtype)x->dtype,
                        .channels = n / (h * w),
                        .height = h,
                        .width = w,
                        .data = gd_data(x)};
    return image->data ? GD_OK : gd_fail(GD_E_DEVICE, "images must be on the CPU");
}

gd_status gd_image_of_values(gd_tensor *x, gd_image *image) {
    if (x->dtype == GD_F64 || x->dtype == GD_F16 || x->dtype == GD_BF16) x = gd_cast(x, GD_F32);
    if (x->kind == GD_FAILED) return gd_failure();
    if (x->dtype != GD_U8 && x->dtype != GD_F32) {
        char text[160];
        return gd_fail(GD_E_DTYPE, "images are u8 or floats; this is %s",
                       gd_describe(x, text, sizeof text));
    }
    return gd_image_of(x, image);
}

gd_status gd_image_new(const gd_image *like, int64_t height, int64_t width, gd_dtype dtype,
                       gd_image *image) {
    gd_shape shape = gd_shape_of(like->tensor->rank, like->tensor->dims);
    shape.at[shape.rank - 2] = height;
    shape.at[shape.rank - 1] = width;
    gd_tensor *t = gd_tensor_new(like->tensor->device, dtype, shape.rank, shape.at);
    if (!t) return gd_failure();
    *image = (gd_image){t, dtype, like->channels, height, width, gd_data(t)};
    return GD_OK;
}

gd_tensor *gd_image_result(gd_status status, const gd_image *image, const gd_tensor *x) {
    if (status != GD_OK) return gd_tensor_fail(status);
    return x->dtype == image->tensor->dtype || !gd_is_float(x->dtype)
               ? image->tensor
               : gd_cast(image->tensor, (gd_dtype)x->dtype);
}

int64_t gd_image_colors(const gd_image *image) {
    return image->tensor->rank > 2 ? image->tensor->dims[image->tensor->rank - 3] : 1;
}

gd_status gd_image_fill(const gd_floats *list, const gd_image *image, const char *what,
                        float value[GD_MAX_FLOATS]) {
    const int64_t colors = gd_image_colors(image);
    memset(value, 0, GD_MAX_FLOATS * sizeof *value);
    if (list->form != 1 || list->count == 0) return GD_OK;
    if (list->count != 1 && list->count != colors)
        return gd_fail(GD_E_SHAPE,
                       "%s has %d numbers and the image %lld channels; give one number, or one for "
                       "each channel",
                       what, list->count, (long long)colors);
    for (int64_t c = 0; c < GD_MAX_FLOATS; c++)
        value[c] = (float)list->at[list->count == 1 ? 0 : c % list->count];
    return GD_OK;
}

gd_status gd_image_check_size(const gd_shape *size) {
    if (size->form != 1 || size->rank < 1 || size->rank > 2)
        return gd_fail(GD_E_ARGUMENT, "size has %d numbers; give one, or height and width",
                       size->rank);
    for (int i = 0; i < size->rank; i++)
        if (size->at[i] < 1 || size->at[i] > GD_IMAGE_SIDE)
            return gd_fail(GD_E_ARGUMENT, "size is %lld; it must be in [1, %d]",
                           (long long)size->at[i], GD_IMAGE_SIDE);
    return GD_OK;
}

/* --- windows ---------------------------------------------------------------------------------- */

gd_border gd_border_of(gd_word mode) {
    return mode == GD_EDGE        ? GD_BORDER_EDGE
           : mode == GD_REFLECT   ? GD_BORDER_REFLECT
           : mode == GD_SYMMETRIC ? GD_BORDER_SYMMETRIC
                                  : GD_BORDER_CONSTANT;
}

/* The index of the source pixel for pixel i of a padded axis; 0 <= result < n. */
static int64_t source_index(int64_t i, int64_t n, gd_border border) {
    if (i >= 0 && i < n) return i;
    if (border == GD_BORDER_EDGE || n == 1) return i < 0 ? 0 : n - 1;
    const int64_t period = border == GD_BORDER_REFLECT ? 2 * n - 2 : 2 * n;
    i = (i % period + period) % period;
    return i < n ? i : border == GD_BORDER_REFLECT ? period - i : period - 1 - i;
}

/* Writes a number as an element of the dtype. */
static void write_element(gd_dtype dtype, float value, void *to) {
    gd_scope *scope = gd_scope_open();
    gd_tensor *t = gd_cast(gd_scalar(value), dtype);
    if (gd_data(t)) memcpy(to, gd_data(t), gd_dtype_bytes(dtype));
    gd_scope_close(&scope);
}

static void repeat_element(char *to, const char *one, size_t bytes, int64_t count) {
    if (bytes == 1) memset(to, *one, (size_t)count);
    else
        for (int64_t i = 0; i < count; i++) memcpy(to + (size_t)i * bytes, one, bytes);
}

/* Writes one row of the result. `row` NULL: the row lies outside of the source. */
static void copy_window_row(char *to, const char *row, int64_t n, int64_t left, int64_t width,
                            size_t bytes, gd_border border, const char *fill) {
    const int64_t before = left < 0 ? (-left < width ? -left : width) : 0;
    int64_t end = n - left < width ? n - left : width; /* after the last pixel inside */
    if (end < before) end = before;
    if (!row) {
        repeat_element(to, fill, bytes, width);
        return;
    }
    if (border == GD_BORDER_CONSTANT) {
        if (before) repeat_element(to, fill, bytes, before);
        if (end < width) repeat_element(to + (size_t)end * bytes, fill, bytes, width - end);
    } else {
        for (int64_t j = 0; j < width; j++) {
            if (j == before) j = end;
            if (j < width)
                memcpy(to + (size_t)j * bytes,
                       row + (size_t)source_index(left + j, n, border) * bytes, bytes);
        }
    }
    if (end > before)
        memcpy(to + (size_t)before * bytes, row + (size_t)(left + before) * bytes,
               (size_t)(end - before) * bytes);
}

gd_status gd_image_window(const gd_image *x, int64_t top, int64_t left, int64_t height,
                          int64_t width, gd_border border, const float *fill, gd_image *y) {
    const size_t bytes = gd_dtype_bytes(x->dtype);
    const int64_t colors = gd_image_colors(x);
    GD_TRY(gd_image_new(x, height, width, x->dtype, y));
    char one[16] = {0};
    for (int64_t c = 0; c < x->channels; c++) {
        const float value = fill ? gd_fill_at(fill, c, colors) : 0;
        if (value != 0 || c == 0 || colors > 1) {
            if (value == 0) memset(one, 0, sizeof one);
            else write_element(x->dtype, value, one);
        }
        for (int64_t i = 0; i < height; i++) {
            const bool outside = top + i < 0 || top + i >= x->height;
            const int64_t from = source_index(top + i, x->height, border);
            const char *row =
                border == GD_BORDER_CONSTANT && outside
                    ? NULL
                    : (char *)x->data + (size_t)((c * x->height + from) * x->width) * bytes;
            copy_window_row((char *)y->data + (size_t)((c * height + i) * width) * bytes, row,
                            x->width, left, width, bytes, border, one);
        }
    }
    return GD_OK;
}

/* Reverses eight bytes at a time. */
static void reverse_uint8_t(const void *from, void *to, int64_t n) {
    const uint8_t *x = from;
    uint8_t *y = to;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t eight;
        memcpy(&eight, x + n - 8 - i, 8);
        eight = __builtin_bswap64(eight);
        memcpy(y + i, &eight, 8);
    }
    for (; i < n; i++) y[i] = x[n - 1 - i];
}

#define REVERSE(type)                                                   \
    static void reverse_##type(const void *from, void *to, int64_t n) { \
        const type *x = from;                                           \
        type *y = to;                                                   \
        for (int64_t i = 0; i < n; i++) y[i] = x[n - 1 - i];            \
    }
REVERSE(uint16_t)
REVERSE(uint32_t)
REVERSE(uint64_t)

gd_status gd_image_flip(const gd_image *x, bool horizontal, gd_image *y) {
    const size_t bytes = gd_dtype_bytes(x->dtype), row = (size_t)x->width * bytes;
    GD_TRY(gd_image_new(x, x->height, x->width, x->dtype, y));
    void (*reverse)(const void *, void *, int64_t) = bytes == 1   ? reverse_uint8_t
                                                     : bytes == 2 ? reverse_uint16_t
                                                     : bytes == 4 ? reverse_uint32_t
                                                                  : reverse_uint64_t;
    for (int64_t c = 0; c < x->channels; c++)
        for (int64_t i = 0; i < x->height; i++) {
            const int64_t at = c * x->height + i;
            if (horizontal)
                reverse((char *)x->data + (size_t)at * row, (char *)y->data + (size_t)at * row,
                        x->width);
            else
                memcpy((char *)y->data + (size_t)(at + x->height - 1 - 2 * i) * row,
                       (char *)x->data + (size_t)at * row, row);
        }
    return GD_OK;
}

void gd_image_set(gd_image *x, int64_t top, int64_t left, int64_t height, int64_t width,
                  const float *fill, const float *values) {
    const int64_t colors = gd_image_colors(x);
    const bool u8 = x->dtype == GD_U8;
    for (int64_t c = 0; c < x->channels; c++)
        for (int64_t i = 0; i < height; i++) {
            const int64_t at = (c * x->height + top + i) * x->width + left;
            for (int64_t j = 0; j < width; j++) {
                float v =
                    values ? values[(c * height + i) * width + j] : gd_fill_at(fill, c, colors);
                if (!u8) ((float *)x->data)[at + j] = v;
                else ((uint8_t *)x->data)[at + j] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v + 0.5f);
            }
        }
}
