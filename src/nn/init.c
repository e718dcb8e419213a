/* init.c - initializers: initial values of weights.
 *
 * `dims` are those of a weight as gd_linear and gd_conv2d take it: (outputs, inputs, window...).
 * Such a weight has inputs * window numbers for each output (fan in), and outputs * window for each
 * input (fan out).
 */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "gradus/inits.h"
#include "gradus/nn.h"
#include "gradus/ops.h"
#include "graph/build/graph.h"
#include "nn/initializer.h"
#include "dispatch/call.h"

/* --- construction ----------------------------------------------------------------------------- */

static gd_tensor *make_values(const gd_factory *factory, gd_shape dims, const void *options) {
    const gd_init_rules *rules = factory->rules;
    gd_status status = rules->check ? rules->check(dims, options) : GD_OK;
    if (status == GD_OK) return rules->make(dims, options);
    gd_error_prefix("gd_init_%s: ", factory->record.name);
    return gd_tensor_fail(status);
}

gd_tensor *gd_init_make(const char *site, const gd_factory *factory, gd_shape dims,
                        const void *given) {
    GD_CALLED_FROM(site);
    void *options;
    const gd_status status = gd_factory_take_options(factory, given, &options);
    if (status != GD_OK) {
        gd_error_prefix("gd_init_%s: ", factory->record.name);
        return gd_tensor_fail(status);
    }
    gd_tensor *t = make_values(factory, dims, options);
    gd_free(options);
    return t;
}

/* "NAME options" */
static gd_status parse_initializer(const char *text, const gd_factory **factory, void **options) {
    char name[64];
    const size_t n = strcspn(text, " ");
    *options = NULL;
    if (n >= sizeof name) return gd_fail(GD_E_ARGUMENT, "there is no initializer '%.60s'", text);
    memcpy(name, text, n);
    name[n] = 0;
    return gd_factory_read("init", name, text + n, factory, options);
}

gd_status gd_init_fill(gd_tensor *t, const char *text) {
    const gd_factory *factory;
    void *options;
    GD_TRY(parse_initializer(text, &factory, &options));
    gd_dtype *dtype = gd_factory_option(factory, options, "dtype", NULL);
    if (dtype) *dtype = (gd_dtype)t->dtype;
    gd_attempt attempt;
    gd_attempt_begin(&attempt);
    gd_scope *scope = gd_scope_open();
    gd_device *device = gd_this_thread.device;
    gd_this_thread.device = t->device;
    gd_tensor *value = make_values(factory, gd_shape_of(t->rank, t->dims), options);
    gd_this_thread.device = device;
    gd_status status = value->kind == GD_FAILED ? gd_failure() : gd_copy_tensor(t, value);
    gd_scope_close(&scope);
    gd_free(options);
    return gd_attempt_end(&attempt, status);
}

/* --- shared pieces ---------------------------------------------------------------------------- */

typedef struct fans {
    double in, out;
} fans;

static fans weight_fans(gd_shape dims) {
    double window = 1;
    for (int i = 2; i < dims.rank; i++) window *= (double)dims.at[i];
    return (fans){(double)dims.at[1] * window, (double)dims.at[0] * window};
}

static gd_status check_weight(gd_shape dims) {
    if (dims.rank >= 2) return GD_OK;
    return gd_fail(GD_E_SHAPE, "a weight has dims (outputs, inputs, ...), at least two, not %d",
                   dims.rank < 0 ? 0 : (int)dims.rank);
}

static gd_status check_std(double std) {
    return std >= 0 ? GD_OK : gd_fail(GD_E_ARGUMENT, "std is %g; it must be at least 0", std);
}

static gd_tensor *make_normal(gd_shape dims, gd_dtype dtype, double std) {
    return gd_normal(dims, .std = std, .dtype = dtype);
}

/* The standard deviation of numbers spread over [-w, w) is w / sqrt(3). */
static gd_tensor *make_uniform(gd_shape dims, gd_dtype dtype, double std) {
    const double bound = sqrt(3) * std;
    return gd_uniform(dims, .low = -bound, .high = bound, .dtype = dtype);
}

static double xavier_std(gd_shape dims, double gain) {
    const fans f = weight_fans(dims);
    return f.in + f.out > 0 ? gain * sqrt(2 / (f.in + f.out)) : 0;
}

static double fan_in_std(gd_shape dims, double gain) {
    const fans f = weight_fans(dims);
    return f.in > 0 ? gain / sqrt(f.in) : 0;
}

/* A tensor of these values, cast to the dtype. */
static gd_tensor *from_values(gd_shape dims, gd_dtype dtype, const double *values) {
    gd_tensor *t = gd_from_array(dims, GD_F64, values);
    return dtype == GD_F64 ? t : gd_cast(t, dtype);
}

/* --- constants -------------------------------------------------------------------------------- */

/*init zeros
 * Zeros.
 *   dtype dtype = f32
 */
static gd_tensor *zeros_make(gd_shape dims, const void *options) {
    const gd_init_zeros_options *o = options;
    return gd_zeros(dims, .dtype = o->dtype);
}

/*init ones
 * Ones.
 *   dtype dtype = f32
 */
static gd_tensor *ones_make(gd_shape dims, const void *options) {
    const gd_init_ones_options *o = options;
    return gd_ones(dims, .dtype = o->dtype);
}

/*init constant
 * One number everywhere.
 *   value float = 0
 *   dtype dtype = f32
 */
static gd_tensor *constant_make(gd_shape dims, const void *options) {
    const gd_init_constant_options *o = options;
    return gd_full(dims, o->value, .dtype = o->dtype);
}

/*init identity
 * Ones where the indices of output and input are equal, at the center of a window, and zeros
 * elsewhere: a linear layer or convolution that returns its input.
 *   gain float = 1
 *   dtype dtype = f32
 */
static gd_status identity_check(gd_shape dims, const void *options) {
    (void)options;
    return check_weight(dims);
}
static gd_tensor *identity_make(gd_shape dims, const void *options) {
    const gd_init_identity_options *o = options;
    const int64_t outputs = dims.at[0], inputs = dims.at[1];
    gd_tensor *eye = gd_mul(gd_eye(outputs, .m = inputs, .dtype = o->dtype),
                            gd_full(gd_dims(1), o->gain, .dtype = o->dtype));
    if (dims.rank == 2) return eye;
    gd_shape ones = gd_shape_of(dims.rank, dims.at);
    gd_tensor *window = NULL; /* 1 at its center, 0 elsewhere */
    for (int i = 2; i < dims.rank; i++) {
        for (int k = 0; k < dims.rank; k++) ones.at[k] = k == i ? dims.at[i] : 1;
        gd_tensor *at = gd_reshape(gd_arange(0, dims.at[i], .dtype = GD_I64), ones);
        gd_tensor *here =
            gd_cast(gd_eq(at, gd_full(gd_dims(1), dims.at[i] / 2, .dtype = GD_I64)), o->dtype);
        window = window ? gd_mul(window, here) : here;
    }
    for (int k = 0; k < dims.rank; k++) ones.at[k] = k < 2 ? dims.at[k] : 1;
    return gd_mul(gd_reshape(eye, ones), window);
}

/* --- random numbers --------------------------------------------------------------------------- */

/*init uniform
 * Random numbers between two bounds.
 *   low float = 0
 *   high float = 1
 *   dtype dtype = f32
 */
static gd_status uniform_check(gd_shape dims, const void *options) {
    const gd_init_uniform_options *o = options;
    (void)dims;
    return o->low <= o->high
               ? GD_OK
               : gd_fail(GD_E_ARGUMENT, "low is %g, and high %g; low must not be greater", o->low,
                         o->high);
}
static gd_tensor *uniform_make(gd_shape dims, const void *options) {
    const gd_init_uniform_options *o = options;
    return gd_uniform(dims, .low = o->low, .high = o->high, .dtype = o->dtype);
}

/*init normal
 * Normal random numbers.
 *   mean float = 0
 *   std float = 1
 *   dtype dtype = f32
 */
static gd_status normal_check(gd_shape dims, const void *options) {
    (void)dims;
    return check_std(((const gd_init_normal_options *)options)->std);
}
static gd_tensor *normal_make(gd_shape dims, const void *options) {
    const gd_init_normal_options *o = options;
    return gd_normal(dims, .mean = o->mean, .std = o->std, .dtype = o->dtype);
}

/*init truncated_normal
 * Normal random numbers between two bounds, which are given in standard deviations from the mean.
 * The result is eager, also while a graph is built.
 *   mean float = 0
 *   std float = 1
 *   low float = -2    in standard deviations
 *   high float = 2
 *   dtype dtype = f32
 */
static gd_status truncated_normal_check(gd_shape dims, const void *options) {
    const gd_init_truncated_normal_options *o = options;
    (void)dims;
    GD_TRY(check_std(o->std));
    return o->low < o->high ? GD_OK
                            : gd_fail(GD_E_ARGUMENT, "low is %g, and high %g; low must be less",
                                      o->low, o->high);
}

static double normal_cdf(double x) { return 0.5 * erfc(-x / sqrt(2)); }

/* The inverse of the normal distribution function at p: bisection, then Newton steps. */
static double normal_quantile(double p, double low, double high) {
    double x = 0.5 * (low + high);
    for (int i = 0; i < 60 && high - low > 1e-3; i++) {
        if (normal_cdf(x) < p) low = x;
        else high = x;
        x = 0.5 * (low + high);
    }
    for (int i = 0; i < 4; i++) {
        const double density = exp(-0.5 * x * x) / sqrt(2 * 3.14159265358979323846);
        if (density < 1e-280) break;
        const double next = x - (normal_cdf(x) - p) / density;
        if (!(next >= low - 1e-3 && next <= high + 1e-3)) break;
        x = next;
    }
    return x;
}

static gd_tensor *truncated_normal_make(gd_shape dims, const void *options) {
    const gd_init_truncated_normal_options *o = options;
    GD_EAGER;
    /* far above the mean the distribution function rounds to 1: use the symmetric lower tail */
    const double sign = o->low > 0 ? -1 : 1;
    const double low = fmax(sign > 0 ? o->low : -o->high, -38),
                 high = fmin(sign > 0 ? o->high : -o->low, 38);
    const double from = normal_cdf(low), to = normal_cdf(high);
    gd_tensor *u = gd_uniform(dims, .low = 0, .high = 1, .dtype = GD_F64);
    if (u->kind == GD_FAILED) return u;
    const int64_t n = gd_numel(u->rank, u->dims);
    double *values = gd_malloc((size_t)n * sizeof *values + 1);
    if (!values)
        return gd_tensor_fail(gd_fail(GD_E_MEMORY, "no memory for %lld values", (long long)n));
    gd_status status = gd_copy_out(u, values, (size_t)n * sizeof *values);
    for (int64_t i = 0; i < n && status == GD_OK; i++) {
        const double z = sign * normal_quantile(from + values[i] * (to - from), low, high);
        values[i] = o->mean + o->std * fmin(fmax(z, o->low), o->high);
    }
    gd_tensor *t = status == GD_OK ? from_values(dims, o->dtype, values) : gd_tensor_fail(status);
    gd_free(values);
    return t;
}

/*init xavier_uniform
 * Glorot and Bengio 2010: the variance is 2 / (fan in + fan out). For tanh, sigmoid, and layers
 * without activation.
 *   gain float = 1    factor of the standard deviation
 *   dtype dtype = f32
 */
static gd_status xavier_uniform_check(gd_shape dims, const void *options) {
    return (void)options, check_weight(dims);
}
static gd_tensor *xavier_uniform_make(gd_shape dims, const void *options) {
    const gd_init_xavier_uniform_options *o = options;
    return make_uniform(dims, o->dtype, xavier_std(dims, o->gain));
}

/*init xavier_normal
 * Like xavier_uniform, with normal numbers.
 *   gain float = 1
 *   dtype dtype = f32
 */
static gd_status xavier_normal_check(gd_shape dims, const void *options) {
    return (void)options, check_weight(dims);
}
static gd_tensor *xavier_normal_make(gd_shape dims, const void *options) {
    const gd_init_xavier_normal_options *o = options;
    return make_normal(dims, o->dtype, xavier_std(dims, o->gain));
}

/*init kaiming_uniform
 * He et al. 2015: the variance is gain^2 / fan in. The default gain is that of relu.
 *   gain float = 1.4142135623730951
 *   dtype dtype = f32
 */
static gd_status kaiming_uniform_check(gd_shape dims, const void *options) {
    return (void)options, check_weight(dims);
}
static gd_tensor *kaiming_uniform_make(gd_shape dims, const void *options) {
    const gd_init_kaiming_uniform_options *o = options;
    return make_uniform(dims, o->dtype, fan_in_std(dims, o->gain));
}

/*init kaiming_normal
 * Like kaiming_uniform, with normal numbers.
 *   gain float = 1.4142135623730951
 *   dtype dtype = f32
 */
static gd_status kaiming_normal_check(gd_shape dims, const void *options) {
    return (void)options, check_weight(dims);
}
static gd_tensor *kaiming_normal_make(gd_shape dims, const void *options) {
    const gd_init_kaiming_normal_options *o = options;
    return make_normal(dims, o->dtype, fan_in_std(dims, o->gain));
}

/*init lecun_uniform
 * LeCun et al. 1998: the variance is 1 / fan in. For selu.
 *   dtype dtype = f32
 */
static gd_status lecun_uniform_check(gd_shape dims, const void *options) {
    return (void)options, check_weight(dims);
}
static gd_tensor *lecun_uniform_make(gd_shape dims, const void *options) {
    return make_uniform(dims, ((const gd_init_lecun_uniform_options *)options)->dtype,
                        fan_in_std(dims, 1));
}

/*init lecun_normal
 * Like lecun_uniform, with normal numbers.
 *   dtype dtype = f32
 */
static gd_status lecun_normal_check(gd_shape dims, const void *options) {
    return (void)options, check_weight(dims);
}
static gd_tensor *lecun_normal_make(gd_shape dims, const void *options) {
    return make_normal(dims, ((const gd_init_lecun_normal_options *)options)->dtype,
                       fan_in_std(dims, 1));
}

/*init orthogonal
 * Saxe et al. 2013: a matrix (outputs, inputs * window) whose rows, or columns if these are fewer,
 * are orthogonal and have the norm `gain`. The result is eager, also while a graph is
 * built.
 *   gain float = 1
 *   dtype dtype = f32
 */
static gd_status orthogonal_check(gd_shape dims, const void *options) {
    return (void)options, check_weight(dims);
}

/* Gram-Schmidt: makes `count` vectors of `length` numbers orthonormal, in place. Each is projected
 * twice, which removes rounding errors. */
static void orthogonalize(double *v, int64_t count, int64_t length) {
    for (int64_t i = 0; i < count; i++) {
        double *a = v + i * length, norm = 0;
        for (int64_t k = 0; k < 2 * i; k++) {
            const double *b = v + (k % i) * length;
            double dot = 0;
            for (int64_t j = 0; j < length; j++) dot += a[j] * b[j];
            for (int64_t j = 0; j < length; j++) a[j] -= dot * b[j];
        }
        for (int64_t j = 0; j < length; j++) norm += a[j] * a[j];
        norm = norm > 0 ? 1 / sqrt(norm) : 0;
        for (int64_t j = 0; j < length; j++) a[j] *= norm;
    }
}

static gd_tensor *orthogonal_make(gd_shape dims, const void *options) {
    const gd_init_orthogonal_options *o = options;
    GD_EAGER;
    const int64_t rows = dims.at[0];
    gd_tensor *t = gd_normal(dims, .dtype = GD_F64);
    if (t->kind == GD_FAILED) return t;
    const int64_t n = gd_numel(t->rank, t->dims), columns = rows > 0 ? n / rows : 0;
    const bool wide = rows <= columns; /* otherwise the columns are the vectors */
    double *values = gd_malloc(2 * (size_t)n * sizeof *values + 1), *v = values + n;
    if (!values)
        return gd_tensor_fail(gd_fail(GD_E_MEMORY, "no memory for %lld values", (long long)n));
    gd_status status = gd_copy_out(t, v, (size_t)n * sizeof *v);
    if (status == GD_OK) orthogonalize(v, wide ? rows : columns, wide ? columns : rows);
    for (int64_t i = 0; i < n && status == GD_OK; i++)
        values[i] = o->gain * (wide ? v[i] : v[i % columns * rows + i / columns]);
    t = status == GD_OK ? from_values(dims, o->dtype, values) : gd_tensor_fail(status);
    gd_free(values);
    return t;
}

#include "nn/init.gen.h"
