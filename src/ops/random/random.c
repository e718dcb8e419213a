/* random.c - random numbers from continuous distributions, and bernoulli.
 *
 * Each call of a random op takes one call number from the generator, whatever its size. Element i
 * is a pure function of (seed, call number, i); random_dist.h defines which one. A call with a key
 * takes no number: seed and call number are the two integers of the key.
 */
#include "ops/random/random_ops.h"

#include <math.h>
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"
#include "dispatch/problem.h"
#include "ops/random/random_uniform.h"

/* --- shared with the other random*.c files ---------------------------------------------------- */

gd_status gd_random_float_meta(gd_meta *y, gd_shape dims, gd_dtype dtype) {
    size_t bytes;
    if (!gd_dtype_is_float(dtype))
        return gd_op_fail(GD_E_DTYPE,
                          "dtype is %s; it must be a float. For integers use gd_randint",
                          gd_dtype_name(dtype));
    GD_TRY(gd_shape_bytes(dims, dtype, &bytes));
    y->dtype = dtype;
    y->rank = dims.rank;
    memcpy(y->dims, dims.at, sizeof y->dims);
    return GD_OK;
}

gd_status gd_check_probability(double p) {
    if (p >= 0 && p <= 1) return GD_OK;
    return gd_op_fail(GD_E_ARGUMENT, "p is %g; it must lie between 0 and 1", p);
}

void gd_fill_normals(gd_rng rng, const gd_view *y, double mean, double std) {
    for (int64_t i = 0, n = gd_view_count(y); i < n; i++) {
        uint32_t w[4];
        double v;
        if (y->dtype == GD_F64) {
            double pair[2];
            gd_philox(rng, (uint64_t)i / 2, w);
            gd_normals_f64(w, &pair[0], &pair[1]);
            v = mean + std * pair[i % 2];
        } else {
            float pair[2];
            gd_philox(rng, (uint64_t)i / 4, w);
            gd_normals_f32(w[i % 4 & 2], w[(i % 4 & 2) + 1], &pair[0], &pair[1]);
            v = (float)mean + (float)std * pair[i % 2];
        }
        gd_store_f64(y->dtype, gd_view_element(y, i), v);
    }
}

/* The shape of the input; dtype 0: that of the input. */
static gd_status infer_like(gd_infer *i, gd_dtype dtype) {
    return gd_random_float_meta(&i->out[0], gd_shape_of(i->in[0]->rank, i->in[0]->dims),
                                dtype ? dtype : (gd_dtype)i->in[0]->dtype);
}

/* --- uniform ---------------------------------------------------------------------------------- */

/*op uniform(dims:int[]) -> y  nograd random
 * Random numbers from the uniform distribution over [low, high). An f32 has 24 random bits, an f64
 * 53.
 *   low float = 0
 *   high float = 1
 *   dtype dtype = f32
 *   key tensor?  draws from this key, two i64, and not from the generator: `gradus/random.h`
 *   onnx RandomUniform
 */
static gd_status uniform_infer(gd_infer *i) {
    const gd_uniform_options *o = i->attrs;
    GD_TRY(gd_need_key(i, 0));
    GD_TRY(gd_random_float_meta(&i->out[0], o->dims, o->dtype));
    if (!(o->low <= o->high))
        return gd_op_fail(GD_E_ARGUMENT, "low is %g and high is %g; low must be at most high",
                          o->low, o->high);
    gd_uniform_params p = gd_uniform_prepare(o->dtype, o->low, o->high);
    if (!isfinite(o->low) || !isfinite(o->high) || !isfinite(p.low) || !isfinite(p.range))
        return gd_op_fail(GD_E_ARGUMENT, "the range from %g to %g is too large for %s", o->low,
                          o->high, gd_dtype_name(o->dtype));
    return GD_OK;
}

static void fill_uniform(gd_rng rng, const gd_view *y, double low, double high) {
    gd_uniform_params p = gd_uniform_prepare(y->dtype, low, high);
    for (int64_t i = 0, n = gd_view_count(y); i < n; i++) {
        uint64_t bits = gd_long_at(rng, (uint64_t)i);
        double v = y->dtype == GD_F64 ? gd_uniform_f64(&p, (uint32_t)(bits >> 32), (uint32_t)bits)
                                      : gd_uniform_f32(&p, gd_word_at(rng, (uint64_t)i));
        gd_store_f64(y->dtype, gd_view_element(y, i), v);
    }
}

/*op top_bits(word, drop:int) -> y  elementwise integral internal
 * A random word without its `drop` lowest bits.
 *   y = shr(word, drop)
 */

/*op unit_bits(high, low) -> y  elementwise integral internal
 * 53 bits of two random words, for an f64.
 *   y = shr(high, 5) * 67108864 + shr(low, 6)
 */

/* Uniform numbers in [0, 1) that the dtype represents exactly. An f64 uses words 2 i and 2 i
 * + 1. */
static gd_tensor *draw_units(gd_tensor *key, gd_shape dims, gd_dtype dtype) {
    const int64_t n = gd_numel(dims.rank, dims.at);
    if (dtype == GD_F64) {
        gd_tensor *words = gd_key_words(key, gd_dims(n, 2));
        gd_tensor *bits = gd_unit_bits(gd_select(words, 1, 0), gd_select(words, 1, 1));
        return gd_reshape(gd_affine(gd_cast(bits, GD_F64), 0x1p-53, 0), dims);
    }
    const gd_uniform_params p = gd_uniform_prepare(dtype, 0, 1);
    gd_tensor *bits = gd_top_bits(gd_key_words(key, dims), p.shift);
    return gd_affine(gd_cast(bits, GD_F32), p.unit, 0);
}
/* Product and sum are two ops, so that each is rounded as in the kernels: one affine op may be
 * computed by a fused multiply-add. */
static void uniform_expand(gd_expansion *e) {
    const gd_uniform_options *o = e->attrs;
    const gd_uniform_params p = gd_uniform_prepare(o->dtype, o->low, o->high);
    gd_tensor *y = draw_units(gd_call_key(e, 0, NULL), o->dims, o->dtype);
    y = gd_affine(gd_affine(y, p.range, 0), 1, p.low);
    e->y[0] = gd_as_dtype(gd_clamp(y, .max = gd_number_of(p.below)), o->dtype);
}
static gd_status uniform_raw(gd_kernel_call *k) {
    const gd_uniform_options *o = k->attrs;
    fill_uniform(k->rng, &k->out[0], o->low, o->high);
    return GD_OK;
}

/*op rand(dims:int[]) -> y  nograd random
 * Random numbers from the uniform distribution over [0, 1).
 *   dtype dtype = f32
 *   key tensor?  draws from this key, two i64, and not from the generator: `gradus/random.h`
 *   python (*shape=dims, dtype)
 */
static gd_status rand_infer(gd_infer *i) {
    const gd_rand_options *o = i->attrs;
    GD_TRY(gd_need_key(i, 0));
    return gd_random_float_meta(&i->out[0], o->dims, o->dtype);
}
static void rand_expand(gd_expansion *e) {
    const gd_rand_options *o = e->attrs;
    e->y[0] = gd_uniform(o->dims, .dtype = o->dtype, .key = gd_optional_input(e->x, e->n_in, 0));
}

/*op rand_like(x) -> y  nograd random
 * Random numbers from the uniform distribution over [0, 1), with x's shape and device.
 *   dtype dtype = none  none: x's dtype
 *   key tensor?  draws from this key, two i64, and not from the generator: `gradus/random.h`
 *   saves nothing
 *   onnx RandomUniformLike
 *   python (x)
 */
static gd_status rand_like_infer(gd_infer *i) {
    const gd_rand_like_options *o = i->attrs;
    GD_TRY(gd_need_key(i, 1));
    return infer_like(i, o->dtype);
}
static void rand_like_expand(gd_expansion *e) {
    const gd_rand_like_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    const gd_dtype dtype = o->dtype ? o->dtype : (gd_dtype)x->dtype;
    gd_tensor *key = gd_call_key(e, 1, x);
    e->y[0] = gd_as_dtype(draw_units(key, gd_tensor_shape(x), dtype), dtype);
}
static gd_status rand_like_raw(gd_kernel_call *k) {
    fill_uniform(k->rng, &k->out[0], 0, 1);
    return GD_OK;
}

/* --- normal ----------------------------------------------------------------------------------- */

/*op normal(dims:int[]) -> y  nograd random
 * Random numbers from the normal distribution with this mean and standard deviation.
 *   mean float = 0
 *   std float = 1
 *   dtype dtype = f32
 *   key tensor?  draws from this key, two i64, and not from the generator: `gradus/random.h`
 *   onnx RandomNormal
 *   python (mean, std, size=dims)
 */
static gd_status normal_infer(gd_infer *i) {
    const gd_normal_options *o = i->attrs;
    GD_TRY(gd_need_key(i, 0));
    if (!(o->std >= 0)) return gd_op_fail(GD_E_ARGUMENT, "std is %g; it must be 0 or more", o->std);
    return gd_random_float_meta(&i->out[0], o->dims, o->dtype);
}

static void normal_expand(gd_expansion *e) {
    const gd_normal_options *o = e->attrs;
    gd_tensor *y =
        gd_key_normals(gd_call_key(e, 0, NULL), o->dims, .dtype = gd_wide_dtype(o->dtype));
    e->y[0] = gd_as_dtype(gd_affine(gd_affine(y, o->std, 0), 1, o->mean), o->dtype);
}
static gd_status normal_raw(gd_kernel_call *k) {
    const gd_normal_options *o = k->attrs;
    gd_fill_normals(k->rng, &k->out[0], o->mean, o->std);
    return GD_OK;
}

/*op randn(dims:int[]) -> y  nograd random
 * Random numbers from the normal distribution with mean 0 and standard deviation 1.
 *   dtype dtype = f32
 *   key tensor?  draws from this key, two i64, and not from the generator: `gradus/random.h`
 *   python (*shape=dims, dtype)
 */
static gd_status randn_infer(gd_infer *i) {
    const gd_randn_options *o = i->attrs;
    GD_TRY(gd_need_key(i, 0));
    return gd_random_float_meta(&i->out[0], o->dims, o->dtype);
}
static void randn_expand(gd_expansion *e) {
    const gd_randn_options *o = e->attrs;
    e->y[0] = gd_normal(o->dims, .dtype = o->dtype, .key = gd_optional_input(e->x, e->n_in, 0));
}

/*op randn_like(x) -> y  nograd random
 * Random numbers from the normal distribution with mean 0 and standard deviation 1, with x's shape
 * and device.
 *   dtype dtype = none  none: x's dtype
 *   key tensor?  draws from this key, two i64, and not from the generator: `gradus/random.h`
 *   saves nothing
 *   onnx RandomNormalLike
 *   python (x)
 */
static gd_status randn_like_infer(gd_infer *i) {
    const gd_randn_like_options *o = i->attrs;
    GD_TRY(gd_need_key(i, 1));
    return infer_like(i, o->dtype);
}
static void randn_like_expand(gd_expansion *e) {
    const gd_randn_like_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    const gd_dtype dtype = o->dtype ? o->dtype : (gd_dtype)x->dtype;
    gd_tensor *y =
        gd_key_normals(gd_call_key(e, 1, x), gd_tensor_shape(x), .dtype = gd_wide_dtype(dtype));
    e->y[0] = gd_as_dtype(y, dtype);
}
static gd_status randn_like_raw(gd_kernel_call *k) {
    gd_fill_normals(k->rng, &k->out[0], 0, 1);
    return GD_OK;
}

/* --- bernoulli -------------------------------------------------------------------------------- */

/*op bernoulli(p) -> y  nograd random fallible
 * 1 with the probability that the element of p gives, else 0.
 *   key tensor?  draws from this key, two i64, and not from the generator: `gradus/random.h`
 *   saves nothing
 *   onnx Bernoulli
 *   python (input=p)
 */
static gd_status bernoulli_infer(gd_infer *i) {
    GD_TRY(gd_need_float(i->in[0], "p"));
    GD_TRY(gd_need_key(i, 1));
    gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}

/* The kernels test word < p 2^32. A word is an integer, so word < ceil(p 2^32) is the same test;
 * the product is exact. */
static void bernoulli_expand(gd_expansion *e) {
    const gd_dtype dtype = (gd_dtype)e->x[0]->dtype;
    gd_tensor *p = gd_check_range(e->x[0], 0, 1, .what = "probability");
    gd_tensor *limit = gd_ceil(gd_affine(gd_as_dtype(p, gd_wide_dtype(dtype)), 0x1p32, 0));
    gd_tensor *words = gd_key_words(gd_call_key(e, 1, p), gd_tensor_shape(e->x[0]));
    e->y[0] = gd_cast(gd_lt(words, gd_cast(limit, GD_I64)), dtype);
}
static gd_status bernoulli_raw(gd_kernel_call *k) {
    const gd_view *p = &k->in[0], *y = &k->out[0];
    for (int64_t i = 0, n = gd_view_count(y); i < n; i++) {
        double chance = gd_load_f64(p->dtype, gd_view_element(p, i));
        if (!(chance >= 0 && chance <= 1))
            return gd_data_fail(
                &(gd_data_error){.problem = GD_DATA_PROBABILITY, .element = i, .real = chance},
                &(gd_data_operand){p->rank, p->dims, NULL});
        gd_store_f64(y->dtype, gd_view_element(y, i),
                     gd_chance(chance, gd_word_at(k->rng, (uint64_t)i)));
    }
    return GD_OK;
}

#include "ops/random/random.gen.h"
