/* grid.c - several images as one; see gradus/image.h. */
#include "core/error.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "gradus/image.h"
#include "gradus/ops.h"

static gd_status check_grid(const gd_tensor *x, const gd_make_grid_options *o) {
    char text[200];
    const bool ranged = o->value_range[0] != 0 || o->value_range[1] != 0;
    if (!x) return gd_fail(GD_E_ARGUMENT, "the images are NULL");
    if (x->rank < 2 || x->rank > 4 || (x->rank == 4 && x->dims[0] == 0))
        return gd_fail(GD_E_SHAPE, "the images are %s; they should be (N,C,H,W), (C,H,W) or (H,W)",
                       gd_describe(x, text, sizeof text));
    for (int i = 0; i < x->rank; i++)
        if (x->dims[i] == GD_UNKNOWN)
            return gd_fail(GD_E_SHAPE, "the images are %s; all sizes must be known",
                           gd_describe(x, text, sizeof text));
    if (o->nrow < 1)
        return gd_fail(GD_E_ARGUMENT, ".nrow is %lld; it must be at least 1", (long long)o->nrow);
    if (o->padding < 0)
        return gd_fail(GD_E_ARGUMENT, ".padding is %lld; it must be at least 0",
                       (long long)o->padding);
    if (o->normalize && !gd_dtype_is_float((gd_dtype)x->dtype))
        return gd_fail(GD_E_DTYPE,
                       ".normalize needs floats, and the images are %s: take "
                       "gd_cast(images, GD_F32)",
                       gd_dtype_name((gd_dtype)x->dtype));
    if (!o->normalize && (ranged || o->scale_each))
        return gd_fail(GD_E_ARGUMENT, "%s is for .normalize = true, which is not set",
                       ranged ? ".value_range" : ".scale_each");
    if (ranged && !(o->value_range[0] < o->value_range[1]))
        return gd_fail(GD_E_ARGUMENT,
                       ".value_range is {%g, %g}; the first number must be less than the second",
                       o->value_range[0], o->value_range[1]);
    return GD_OK;
}

/* Maps low to 0 and high to 1. A range below 1e-5 counts as 1e-5. */
static gd_tensor *normalize_images(gd_tensor *x, const gd_make_grid_options *o) {
    const gd_dtype dtype = gd_tensor_dtype(x);
    const double *range = o->value_range;
    if (range[0] != 0 || range[1] != 0) {
        const double width = range[1] - range[0];
        x = gd_clamp(x, .min = gd_number_of(range[0]), .max = gd_number_of(range[1]));
        return gd_div(gd_sub(x, gd_scalar_of(range[0], dtype)),
                      gd_scalar_of(width > 1e-5 ? width : 1e-5, dtype));
    }
    const gd_shape axes = o->scale_each ? gd_dims(1, 2, 3) : gd_dims(0, 1, 2, 3);
    gd_tensor *low = gd_min(x, .axis = axes, .keepdim = true),
              *high = gd_max(x, .axis = axes, .keepdim = true);
    return gd_div(gd_sub(x, low), gd_maximum(gd_sub(high, low), gd_scalar_of(1e-5, dtype)));
}

static gd_tensor *make_grid(gd_tensor *x, const gd_make_grid_options *o) {
    while (gd_tensor_rank(x) < 4 && !gd_tensor_is_error(x)) x = gd_unsqueeze(x, 0);
    const int64_t n = gd_tensor_dim(x, 0), pad = o->padding;
    if (gd_tensor_dim(x, 1) == 1) x = gd_expand(x, gd_dims(-1, 3, -1, -1));
    if (o->normalize) x = normalize_images(x, o);
    if (n == 1) return gd_select(x, 0, 0);
    const int64_t columns = n < o->nrow ? n : o->nrow, rows = (n - 1) / columns + 1;
    /* padding to the left of and above each image, and images for the empty places */
    x = gd_pad(x, gd_dims(pad, 0, pad, 0, 0, 0, 0, rows * columns - n), .value = o->pad_value);
    const int64_t channels = gd_tensor_dim(x, 1), height = gd_tensor_dim(x, 2),
                  width = gd_tensor_dim(x, 3);
    x = gd_permute(gd_unflatten(x, 0, gd_dims(rows, columns)), gd_dims(2, 0, 3, 1, 4));
    x = gd_reshape(x, gd_dims(channels, rows * height, columns * width));
    return gd_pad(x, gd_dims(0, pad, 0, pad), .value = o->pad_value);
}

gd_tensor *gd_make_grid_at(const char *site, gd_tensor *x, const gd_make_grid_options *given) {
    const gd_make_grid_options *o = given ? given : GD_MAKE_GRID_OPTIONS_();
    GD_CALLED_FROM(site);
    if (x && x->kind == GD_FAILED) return x;
    const gd_status status = check_grid(x, o);
    if (status != GD_OK) {
        gd_error_prefix("gd_make_grid: ");
        return gd_tensor_fail(status);
    }
    gd_scope *scope = gd_scope_open();
    gd_tensor *y = gd_keep(make_grid(x, o));
    gd_scope_close(&scope);
    return y;
}
