/* init.c - what weights start as. */
#include "gradus/nn.h"

#include <math.h>

#include "core/error.h"
#include "core/tensor.h"
#include "gradus/ops.h"

static gd_tensor *refuse(const char *site, gd_status status) {
    gd_error_place(site);
    return gd_tensor_fail(status);
}

/* The numbers that go into an output of a weight (outputs, inputs, ...), and that an input goes into. */
static gd_status fans(const char *name, gd_shape dims, double *in, double *out) {
    if (dims.rank < 2)
        return gd_fail(GD_E_SHAPE, "%s: a weight has dims (outputs, inputs, ...), at least two, not %d", name,
                       dims.rank < 0 ? 0 : (int)dims.rank);
    double window = 1;
    for (int i = 2; i < dims.rank; i++) window *= (double)dims.at[i];
    *in = (double)dims.at[1] * window;
    *out = (double)dims.at[0] * window;
    return GD_OK;
}

/* Random numbers of a standard deviation; that of numbers spread over [-w, w) is w / sqrt(3). */
static gd_tensor *spread(const char *site, gd_shape dims, gd_dtype dtype, double deviation, bool normal) {
    if (normal) {
        gd_normal_options o = gd_normal_defaults();
        o.std = deviation;
        o.dtype = dtype;
        return gd_normal_at(site, dims, &o);
    }
    gd_uniform_options o = gd_uniform_defaults();
    o.high = sqrt(3) * deviation;
    o.low = -o.high;
    o.dtype = dtype;
    return gd_uniform_at(site, dims, &o);
}

static gd_tensor *xavier(const char *site, const char *name, gd_shape dims, const gd_init_options *o, bool normal) {
    double in = 0, out = 0;
    gd_status status = fans(name, dims, &in, &out);
    if (status != GD_OK) return refuse(site, status);
    return spread(site, dims, o->dtype, in + out > 0 ? o->gain * sqrt(2 / (in + out)) : 0, normal);
}

static gd_tensor *kaiming(const char *site, const char *name, gd_shape dims, const gd_init_options *o, bool normal) {
    double in = 0, out = 0;
    gd_status status = fans(name, dims, &in, &out);
    if (status != GD_OK) return refuse(site, status);
    return spread(site, dims, o->dtype, in > 0 ? o->gain / sqrt(in) : 0, normal);
}

gd_tensor *gd_init_xavier_uniform_at(const char *site, gd_shape dims, const gd_init_options *options) {
    return xavier(site, "gd_init_xavier_uniform", dims, options, false);
}

gd_tensor *gd_init_xavier_normal_at(const char *site, gd_shape dims, const gd_init_options *options) {
    return xavier(site, "gd_init_xavier_normal", dims, options, true);
}

gd_tensor *gd_init_kaiming_uniform_at(const char *site, gd_shape dims, const gd_init_options *options) {
    return kaiming(site, "gd_init_kaiming_uniform", dims, options, false);
}

gd_tensor *gd_init_kaiming_normal_at(const char *site, gd_shape dims, const gd_init_options *options) {
    return kaiming(site, "gd_init_kaiming_normal", dims, options, true);
}
