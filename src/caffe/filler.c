/* filler.c - the types of fillers. Types that are an initializer of the library, too (init.c of src/nn),
 * call the same op with the same numbers: the same seed gives the same bits.
 */
#include "caffe/filler.h"

#include <math.h>
#include <string.h>

#include "caffe/schema.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/tensor.h"
#include "gradus/ops.h"

/* The size of an axis; 1 where a blob has fewer axes: a bias (C) has C numbers for one channel. */
static int64_t size_of(gd_shape shape, int axis) { return axis < shape.rank ? shape.at[axis] : 1; }

/* A blob has `in` numbers for each of its outputs, which are its first axis, and `out` numbers for each
 * of its channels, its second axis. */
typedef struct fans {
    double in, out;
} fans;

static fans blob_fans(gd_shape shape) {
    double rest = 1; /* all but the first two axes */
    for (int i = 2; i < shape.rank; i++) rest *= (double)shape.at[i];
    return (fans){(double)size_of(shape, 1) * rest, (double)size_of(shape, 0) * rest};
}

/* The standard deviation gain / sqrt(n), where variance_norm says which number n is. */
static double scaled_std(const gd_pb *filler, gd_shape shape, double gain) {
    const fans f = blob_fans(shape);
    const char *norm = gd_pb_word_of(filler, "variance_norm");
    if (strcmp(norm, "AVERAGE") == 0) return f.in + f.out > 0 ? gain * sqrt(2 / (f.in + f.out)) : 0;
    const double n = strcmp(norm, "FAN_OUT") == 0 ? f.out : f.in;
    return n > 0 ? gain / sqrt(n) : 0;
}

typedef gd_status make_function(const gd_pb *filler, gd_shape shape, gd_tensor **out);

static gd_status made(gd_tensor **out, gd_tensor *t) {
    *out = t;
    return t->kind == GD_FAILED ? gd_failure() : GD_OK;
}

/* --- constants -------------------------------------------------------------------------------- */

static gd_status make_constant(const gd_pb *filler, gd_shape shape, gd_tensor **out) {
    return made(out, gd_full(shape, gd_pb_float_of(filler, "value")));
}

/* A kernel (outputs, channels, K, K) that interpolates: a tent over the window in both directions. */
static gd_status make_bilinear(const gd_pb *filler, gd_shape shape, gd_tensor **out) {
    if (shape.rank != 4 || shape.at[2] != shape.at[3])
        return gd_pb_fail(filler, "filler bilinear is for kernels as wide as high: (outputs, "
                                  "channels, K, K)");
    const int64_t size = shape.at[3];
    double *tent = gd_malloc((size_t)size * sizeof *tent + 1);
    if (!tent) return gd_no_memory(NULL, "for a bilinear kernel");
    const double half = ceil((double)size / 2);
    const double center = ((double)size - 1) / (2 * half);
    for (int64_t i = 0; i < size; i++) tent[i] = 1 - fabs((double)i / half - center);
    gd_tensor *t = gd_cast(gd_from_array(gd_dims(size), GD_F64, tent), GD_F32);
    gd_free(tent);
    t = gd_mul(gd_reshape(t, gd_dims(size, 1)), t);
    return made(out, gd_clone(gd_expand(t, shape)));
}

/* --- random numbers --------------------------------------------------------------------------- */

static gd_status make_uniform(const gd_pb *filler, gd_shape shape, gd_tensor **out) {
    const double low = gd_pb_float_of(filler, "min"), high = gd_pb_float_of(filler, "max");
    if (!(low <= high))
        return gd_pb_fail(filler, "filler uniform has min %g and max %g; min must not be greater",
                          low, high);
    return made(out, gd_uniform(shape, .low = low, .high = high));
}

static gd_status make_gaussian(const gd_pb *filler, gd_shape shape, gd_tensor **out) {
    const double std = gd_pb_float_of(filler, "std");
    const int64_t sparse = gd_pb_int_of(filler, "sparse");
    if (!(std >= 0))
        return gd_pb_fail(filler, "filler gaussian has std %g, which must be at least 0", std);
    gd_tensor *t = gd_normal(shape, .mean = gd_pb_float_of(filler, "mean"), .std = std);
    if (sparse == -1) return made(out, t);
    if (sparse < 0)
        return gd_pb_fail(filler, "filler gaussian has sparse %lld; it must be at least 0, or -1",
                          (long long)sparse);
    if (sparse > size_of(shape, 0))
        return gd_pb_fail(filler,
                          "filler gaussian has sparse %lld; of the %lld outputs of a blob at most "
                          "all can be other than zero",
                          (long long)sparse, (long long)size_of(shape, 0));
    const double kept = sparse > 0 ? (double)sparse / (double)size_of(shape, 0) : 0;
    return made(out, gd_mul(t, gd_bernoulli(gd_full(shape, kept))));
}

/* Random numbers above 0 of which those of each output have the sum 1. */
static gd_status make_positive_unitball(const gd_pb *filler, gd_shape shape, gd_tensor **out) {
    (void)filler;
    gd_tensor *t = gd_uniform(shape);
    if (shape.rank < 2) return made(out, shape.rank ? gd_ones_like(t) : t);
    gd_shape rest = {.rank = shape.rank - 1, .form = 1};
    for (int i = 1; i < shape.rank; i++) rest.at[i - 1] = i;
    return made(out, gd_div(t, gd_sum(t, .axis = rest, .keepdim = true)));
}

/* The standard deviation of numbers spread over [-w, w) is w / sqrt(3). */
static gd_status make_xavier(const gd_pb *filler, gd_shape shape, gd_tensor **out) {
    const double bound = sqrt(3) * scaled_std(filler, shape, 1);
    return made(out, gd_uniform(shape, .low = -bound, .high = bound));
}

static gd_status make_msra(const gd_pb *filler, gd_shape shape, gd_tensor **out) {
    return made(out, gd_normal(shape, .std = scaled_std(filler, shape, sqrt(2))));
}

/* --- types ------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    make_function *make;
} types[] = {
    {"constant", make_constant}, {"uniform", make_uniform},
    {"gaussian", make_gaussian}, {"positive_unitball", make_positive_unitball},
    {"xavier", make_xavier},     {"msra", make_msra},
    {"bilinear", make_bilinear},
};
enum { N_TYPES = sizeof types / sizeof *types };

static gd_status fail_unknown(const gd_pb *filler, const char *name) {
    gd_pb_fail(filler, "there is no filler of type '%s'; the types are", name);
    for (int i = 0; i < N_TYPES; i++)
        gd_error_suffix("%s%s", i == 0 ? " " : i + 1 < N_TYPES ? ", " : " and ", types[i].name);
    return GD_E_FORMAT;
}

gd_status gd_caffe_filled(const gd_pb *filler, gd_shape shape, gd_tensor **out) {
    if (!filler) return made(out, gd_zeros(shape));
    const char *name = gd_pb_string_of(filler, "type");
    int i = 0;
    while (i < N_TYPES && strcmp(types[i].name, name) != 0) i++;
    if (i == N_TYPES) return fail_unknown(filler, name);
    if (types[i].make != make_gaussian && gd_pb_int_of(filler, "sparse") != -1)
        return gd_pb_fail(filler, "filler %s cannot be sparse; that of type gaussian can", name);
    return types[i].make(filler, shape, out);
}
