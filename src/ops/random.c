/* random.c - random numbers. Each call takes one number of the generator, whatever its size, and
 * element i is a pure function of (seed, call, i): see random_dist.h for which.
 */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "gradus/ops.h"
#include "ops/body.h"
#include "ops/infer.h"
#include "ops/problem.h"
#include "ops/random_dist.h"

/* --- what the ops share ----------------------------------------------------------------------- */

static gd_status float_shape(gd_meta *y, gd_shape dims, gd_dtype dtype) {
    size_t bytes;
    if (!gd_dtype_is_float(dtype))
        return gd_op_fail(GD_E_DTYPE, "makes floats, not %s; see gd_randint", gd_dtype_name(dtype));
    GD_TRY(gd_shape_bytes(dims, dtype, &bytes));
    y->dtype = dtype;
    y->rank = dims.rank;
    memcpy(y->dims, dims.at, sizeof y->dims);
    return GD_OK;
}

static gd_status like_shape(gd_infer *i, gd_dtype dtype) {
    return float_shape(&i->out[0], gd_shape_of(i->in[0]->rank, i->in[0]->dims),
                       dtype ? dtype : (gd_dtype)i->in[0]->dtype);
}

/* Where element i of a view, counted row-major, lies. */
static char *element(const gd_view *v, int64_t i) {
    int64_t at = 0;
    for (int k = v->rank; k-- > 0;) {
        at += i % v->dims[k] * v->strides[k];
        i /= v->dims[k];
    }
    return (char *)v->data + at * (int64_t)gd_dtype_size(v->dtype);
}

static int64_t count_of(const gd_view *v) { return gd_numel(v->rank, v->dims); }

/* --- uniform ---------------------------------------------------------------------------------- */

/* The largest number of a 16-bit float type under the one with these bits. */
static uint16_t half_below(uint16_t bits) {
    if ((bits & 0x7fff) == 0) return 0x8001;
    return (uint16_t)(bits & 0x8000 ? bits + 1 : bits - 1);
}

gd_uniform_params gd_uniform_prepare(gd_dtype dtype, double low, double high) {
    gd_uniform_params p = {.shift = 8, .unit = 0x1p-24f};
    double top; /* high and low as the type has them */
    switch (dtype) {
    case GD_F16:
        p.shift = 21, p.unit = 0x1p-11f;
        p.low = gd_f16_to_f32(gd_f32_to_f16((float)low));
        top = gd_f16_to_f32(gd_f32_to_f16((float)high));
        p.below = gd_f16_to_f32(half_below(gd_f32_to_f16((float)high)));
        break;
    case GD_BF16:
        p.shift = 24, p.unit = 0x1p-8f;
        p.low = gd_bf16_to_f32(gd_f32_to_bf16((float)low));
        top = gd_bf16_to_f32(gd_f32_to_bf16((float)high));
        p.below = gd_bf16_to_f32(half_below(gd_f32_to_bf16((float)high)));
        break;
    case GD_F32:
        p.low = (float)low, top = (float)high;
        p.below = nextafterf((float)high, -INFINITY);
        break;
    default:
        p.low = low, top = high;
        p.below = nextafter(high, -(double)INFINITY);
        break;
    }
    p.range = top - p.low;
    if (dtype != GD_F64) p.range = (float)p.range;
    if (p.below < p.low) p.below = p.low; /* low == high */
    return p;
}

/*op uniform(dims:int[]) -> y  nograd random
 * Random numbers spread evenly over [low, high). An f32 has 24 random bits, an f64 53.
 *   low float = 0
 *   high float = 1
 *   dtype dtype = f32
 *   onnx RandomUniform
 */
static gd_status uniform_infer(gd_infer *i) {
    const gd_uniform_options *o = i->attrs;
    GD_TRY(float_shape(&i->out[0], o->dims, o->dtype));
    if (!(o->low <= o->high))
        return gd_op_fail(GD_E_ARGUMENT, "low is %g and high is %g; low must not be above", o->low,
                          o->high);
    gd_uniform_params p = gd_uniform_prepare(o->dtype, o->low, o->high);
    if (!isfinite(o->low) || !isfinite(o->high) || !isfinite(p.low) || !isfinite(p.range))
        return gd_op_fail(GD_E_ARGUMENT, "from %g to %g is more than %s can hold", o->low, o->high,
                          gd_dtype_name(o->dtype));
    return GD_OK;
}

static void fill_uniform(gd_rng rng, const gd_view *y, double low, double high) {
    gd_uniform_params p = gd_uniform_prepare(y->dtype, low, high);
    for (int64_t i = 0, n = count_of(y); i < n; i++) {
        uint64_t bits = gd_long_at(rng, (uint64_t)i);
        double v = y->dtype == GD_F64 ? gd_uniform_f64(&p, (uint32_t)(bits >> 32), (uint32_t)bits)
                                      : gd_uniform_f32(&p, gd_word_at(rng, (uint64_t)i));
        gd_store_f64(y->dtype, element(y, i), v);
    }
}
/*op top_bits(word, drop:int) -> y  elementwise integral internal
 * The upper bits of a random word.
 *   y = shr(word, drop)
 */

/*op unit_bits(high, low) -> y  elementwise integral internal
 * The 53 bits of two random words that a random f64 has.
 *   y = shr(high, 5) * 67108864 + shr(low, 6)
 */

/* The words that a random call draws where `where` is, as gd_word_at has them. */
static gd_tensor *drawn_words(gd_tensor *where, gd_shape dims) {
    return gd_key_words(gd_random_key(where), dims);
}
/* A tensor for the place of a call that has no input. */
static gd_tensor *any_place(void) { return gd_full(gd_dims(), 0); }

/* [0, 1) as the dtype has it: every step is exact. An f64 takes the words 2 i and 2 i + 1. */
static gd_tensor *units_of(gd_tensor *where, gd_shape dims, gd_dtype dtype) {
    const int64_t n = gd_numel(dims.rank, dims.at);
    if (dtype == GD_F64) {
        gd_tensor *words = drawn_words(where, gd_dims(n, 2));
        gd_tensor *bits = gd_unit_bits(gd_select(words, 1, 0), gd_select(words, 1, 1));
        return gd_reshape(gd_affine(gd_cast(bits, GD_F64), 0x1p-53, 0), dims);
    }
    const gd_uniform_params p = gd_uniform_prepare(dtype, 0, 1);
    gd_tensor *bits = gd_top_bits(drawn_words(where, dims), p.shift);
    return gd_affine(gd_cast(bits, GD_F32), p.unit, 0);
}
/* Product and sum are rounded one after the other, as by the kernels: two ops, also where x * by + plus
 * is one instruction. */
static void uniform_expand(gd_expand *e) {
    const gd_uniform_options *o = e->attrs;
    const gd_uniform_params p = gd_uniform_prepare(o->dtype, o->low, o->high);
    gd_tensor *y = units_of(any_place(), o->dims, o->dtype);
    y = gd_affine(gd_affine(y, p.range, 0), 1, p.low);
    e->y[0] = gd_as_dtype(gd_clamp(y, .max = gd_number_of(p.below)), o->dtype);
}
static gd_status uniform_raw(gd_kernel_call *k) {
    const gd_uniform_options *o = k->attrs;
    fill_uniform(k->rng, &k->out[0], o->low, o->high);
    return GD_OK;
}

/*op rand(dims:int[]) -> y  nograd random
 * Random numbers spread evenly over [0, 1).
 *   dtype dtype = f32
 */
static gd_status rand_infer(gd_infer *i) {
    const gd_rand_options *o = i->attrs;
    return float_shape(&i->out[0], o->dims, o->dtype);
}
static void rand_expand(gd_expand *e) {
    const gd_rand_options *o = e->attrs;
    e->y[0] = gd_uniform(o->dims, .dtype = o->dtype);
}

/*op rand_like(x) -> y  nograd random
 * Random numbers spread evenly over [0, 1), in x's shape and on its device.
 *   dtype dtype = none  none: that of x
 *   saves nothing
 *   onnx RandomUniformLike
 */
static gd_status rand_like_infer(gd_infer *i) {
    const gd_rand_like_options *o = i->attrs;
    return like_shape(i, o->dtype);
}
static void rand_like_expand(gd_expand *e) {
    const gd_rand_like_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    const gd_dtype dtype = o->dtype ? o->dtype : (gd_dtype)x->dtype;
    e->y[0] = gd_as_dtype(units_of(x, gd_tensor_shape(x), dtype), dtype);
}
static gd_status rand_like_raw(gd_kernel_call *k) {
    fill_uniform(k->rng, &k->out[0], 0, 1);
    return GD_OK;
}

/* --- normal ----------------------------------------------------------------------------------- */

/*op normal(dims:int[]) -> y  nograd random
 * Random numbers of the normal distribution with this mean and standard deviation.
 *   mean float = 0
 *   std float = 1
 *   dtype dtype = f32
 *   onnx RandomNormal
 */
static gd_status normal_infer(gd_infer *i) {
    const gd_normal_options *o = i->attrs;
    if (!(o->std >= 0)) return gd_op_fail(GD_E_ARGUMENT, "std is %g; it must be 0 or more", o->std);
    return float_shape(&i->out[0], o->dims, o->dtype);
}

static void fill_normal(gd_rng rng, const gd_view *y, double mean, double std) {
    for (int64_t i = 0, n = count_of(y); i < n; i++) {
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
        gd_store_f64(y->dtype, element(y, i), v);
    }
}
static void normal_expand(gd_expand *e) {
    const gd_normal_options *o = e->attrs;
    gd_tensor *y =
        gd_key_normals(gd_random_key(any_place()), o->dims, .dtype = gd_wide_dtype(o->dtype));
    e->y[0] = gd_as_dtype(gd_affine(gd_affine(y, o->std, 0), 1, o->mean), o->dtype);
}
static gd_status normal_raw(gd_kernel_call *k) {
    const gd_normal_options *o = k->attrs;
    fill_normal(k->rng, &k->out[0], o->mean, o->std);
    return GD_OK;
}

/*op randn(dims:int[]) -> y  nograd random
 * Random numbers of the normal distribution with mean 0 and standard deviation 1.
 *   dtype dtype = f32
 */
static gd_status randn_infer(gd_infer *i) {
    const gd_randn_options *o = i->attrs;
    return float_shape(&i->out[0], o->dims, o->dtype);
}
static void randn_expand(gd_expand *e) {
    const gd_randn_options *o = e->attrs;
    e->y[0] = gd_normal(o->dims, .dtype = o->dtype);
}

/*op randn_like(x) -> y  nograd random
 * Random numbers of the normal distribution, in x's shape and on its device.
 *   dtype dtype = none  none: that of x
 *   saves nothing
 *   onnx RandomNormalLike
 */
static gd_status randn_like_infer(gd_infer *i) {
    const gd_randn_like_options *o = i->attrs;
    return like_shape(i, o->dtype);
}
static void randn_like_expand(gd_expand *e) {
    const gd_randn_like_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    const gd_dtype dtype = o->dtype ? o->dtype : (gd_dtype)x->dtype;
    gd_tensor *y =
        gd_key_normals(gd_random_key(x), gd_tensor_shape(x), .dtype = gd_wide_dtype(dtype));
    e->y[0] = gd_as_dtype(y, dtype);
}
static gd_status randn_like_raw(gd_kernel_call *k) {
    fill_normal(k->rng, &k->out[0], 0, 1);
    return GD_OK;
}

/* --- yes or no -------------------------------------------------------------------------------- */

/*op bernoulli(p) -> y  nograd random refuses
 * 1 with the probability that p says for that element, else 0.
 *   saves nothing
 *   onnx Bernoulli
 */
static gd_status bernoulli_infer(gd_infer *i) {
    GD_TRY(gd_need_float(i->in[0], "p"));
    gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}
/*op word_below(word, limit:int) -> y  elementwise truth internal
 * Whether a random word is below a limit.
 *   y = word < limit
 */

/* A word is below p 2^32 where it is below the next integer; both are exact. */
static void bernoulli_expand(gd_expand *e) {
    const gd_dtype dtype = (gd_dtype)e->x[0]->dtype;
    gd_tensor *p = gd_check_range(e->x[0], 0, 1, .what = "probability");
    gd_tensor *limit = gd_ceil(gd_affine(gd_as_dtype(p, gd_wide_dtype(dtype)), 0x1p32, 0));
    gd_tensor *words = drawn_words(p, gd_tensor_shape(e->x[0]));
    e->y[0] = gd_cast(gd_lt(words, gd_cast(limit, GD_I64)), dtype);
}
static gd_status bernoulli_raw(gd_kernel_call *k) {
    const gd_view *p = &k->in[0], *y = &k->out[0];
    for (int64_t i = 0, n = count_of(y); i < n; i++) {
        double chance = gd_load_f64(p->dtype, element(p, i));
        if (!(chance >= 0 && chance <= 1))
            return gd_data_fail(
                &(gd_data_error){.problem = GD_DATA_PROBABILITY, .element = i, .real = chance},
                &(gd_data_operand){p->rank, p->dims, NULL});
        gd_store_f64(y->dtype, element(y, i), gd_chance(chance, gd_word_at(k->rng, (uint64_t)i)));
    }
    return GD_OK;
}

/*op masked_scale(x, mask) -> y  elementwise internal
 * x * scale where the mask is set, x * 0 elsewhere: what dropout and its gradient do.
 *   scale float = 1
 *   y  = x * (mask != 0 ? scale : 0)
 *   gx = gy * (mask != 0 ? scale : 0)
 *   gmask = 0
 */
static gd_status masked_scale_infer(gd_infer *i) {
    GD_TRY(gd_infer_elementwise(i));
    i->out[0].dtype = (gd_dtype)i->in[0]->dtype;
    return GD_OK;
}

static gd_status check_p(double p) {
    if (p >= 0 && p <= 1) return GD_OK;
    return gd_op_fail(GD_E_ARGUMENT, "p is %g; it must lie between 0 and 1", p);
}

/*op dropout(x) -> y  random
 * Zeroes each element with probability p and divides the others by 1 - p, while training; else x
 * itself, and no random number is taken.
 *   p float = 0.5
 *   training bool = true
 *   onnx Dropout   caffe Dropout
 */
static gd_status dropout_infer(gd_infer *i) {
    const gd_dropout_options *o = i->attrs;
    GD_TRY(gd_need_float(i->in[0], "x"));
    GD_TRY(check_p(o->p));
    gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}
static void dropout_expand(gd_expand *e) {
    const gd_dropout_options *o = e->attrs;
    e->y[0] = o->training ? gd_dropout_train(e->x[0], .p = o->p) : e->x[0];
}

/*op dropout_train(x) -> y, mask~  random internal
 * Dropout while training; the mask says which elements stayed.
 *   p float = 0.5
 *   saves mask
 *   onnx Dropout
 */
static double kept_scale(double p) { return p < 1 ? 1 / (1 - p) : 0; }

static gd_status dropout_train_infer(gd_infer *i) {
    const gd_dropout_train_options *o = i->attrs;
    GD_TRY(gd_need_float(i->in[0], "x"));
    GD_TRY(check_p(o->p));
    gd_meta_like(&i->out[0], i->in[0]);
    gd_meta_like(&i->out[1], i->in[0]);
    i->out[1].dtype = GD_BOOL;
    return GD_OK;
}
static void dropout_train_vjp(gd_vjp *v) {
    const gd_dropout_train_options *o = v->attrs;
    v->gx[0] = gd_masked_scale(v->gy[0], v->y[1], .scale = kept_scale(o->p));
}
static void dropout_train_expand(gd_expand *e) {
    const gd_dropout_train_options *o = e->attrs;
    gd_tensor *x = e->x[0];
    e->y[1] = gd_word_below(drawn_words(x, gd_tensor_shape(x)), (int64_t)gd_chance_limit(1 - o->p));
    e->y[0] = gd_masked_scale(x, e->y[1], .scale = kept_scale(o->p));
}
static gd_status dropout_train_raw(gd_kernel_call *k) {
    const gd_dropout_train_options *o = k->attrs;
    const gd_view *x = &k->in[0], *y = &k->out[0], *mask = &k->out[1];
    double scale = kept_scale(o->p);
    if (y->dtype != GD_F64) scale = (float)scale;
    for (int64_t i = 0, n = count_of(y); i < n; i++) {
        bool keep = gd_chance(1 - o->p, gd_word_at(k->rng, (uint64_t)i));
        double v = gd_load_f64(x->dtype, element(x, i)), kept = v * (keep ? scale : 0);
        gd_store_f64(y->dtype, element(y, i), y->dtype == GD_F64 ? kept : (float)kept);
        if (mask->data) *(bool *)element(mask, i) = keep;
    }
    return GD_OK;
}

/* --- one number for several calls ------------------------------------------------------------- */

/*op random_key(x) -> key  nograd random internal shapeonly
 * A number of the generator as data: its seed and its call number, two i64. What is computed from it
 * can be computed again. x says where it is needed.
 */
static gd_status random_key_infer(gd_infer *i) {
    i->out[0].dtype = GD_I64;
    i->out[0].rank = 1;
    i->out[0].dims[0] = 2;
    return GD_OK;
}
static gd_status random_key_raw(gd_kernel_call *k) {
    int64_t *key = k->out[0].data, step = k->out[0].strides[0];
    key[0] = (int64_t)k->rng.seed;
    key[step] = (int64_t)k->rng.call;
    return GD_OK;
}

/*op key_words(key, dims:int[]) -> words  nograd internal
 * Random words, from 0 to 2^32 - 1: those that a call with this number of the generator draws.
 */
static gd_status need_key(const gd_tensor *key) {
    if (key->dtype == GD_I64 && key->rank == 1 && key->dims[0] == 2) return GD_OK;
    return gd_op_fail(GD_E_SHAPE, "'key' must be two i64, as random_key gives them");
}
static gd_status key_words_infer(gd_infer *i) {
    const gd_key_words_options *o = i->attrs;
    size_t bytes;
    GD_TRY(need_key(i->in[0]));
    GD_TRY(gd_shape_bytes(o->dims, GD_I64, &bytes));
    i->out[0].dtype = GD_I64;
    i->out[0].rank = o->dims.rank;
    memcpy(i->out[0].dims, o->dims.at, sizeof o->dims.at);
    return GD_OK;
}
static gd_rng rng_of(const gd_view *key) {
    const int64_t *at = key->data;
    return (gd_rng){(uint64_t)at[0], (uint64_t)at[key->strides[0]]};
}
static gd_status key_words_raw(gd_kernel_call *k) {
    const gd_view *words = &k->out[0];
    const gd_rng rng = rng_of(&k->in[0]);
    for (int64_t i = 0, n = count_of(words); i < n; i++)
        *(int64_t *)(void *)element(words, i) = gd_word_at(rng, (uint64_t)i);
    return GD_OK;
}

/*op key_normals(key, dims:int[]) -> y  nograd internal
 * Random numbers of the normal distribution with mean 0 and standard deviation 1: those that a call with
 * this number of the generator draws.
 *   dtype dtype = f32  f32 or f64
 */
static gd_status key_normals_infer(gd_infer *i) {
    const gd_key_normals_options *o = i->attrs;
    GD_TRY(need_key(i->in[0]));
    if (o->dtype != gd_wide_dtype(o->dtype))
        return gd_op_fail(GD_E_DTYPE, "makes f32 or f64, not %s", gd_dtype_name(o->dtype));
    return float_shape(&i->out[0], o->dims, o->dtype);
}
static gd_status key_normals_raw(gd_kernel_call *k) {
    fill_normal(rng_of(&k->in[0]), &k->out[0], 0, 1);
    return GD_OK;
}

/*op key_mask(key, dims:int[], p:float) -> mask  nograd internal
 * True with probability p, as dropout and bernoulli would have it with this number of the generator.
 */
static gd_status key_mask_infer(gd_infer *i) {
    const gd_key_mask_options *o = i->attrs;
    size_t bytes;
    GD_TRY(need_key(i->in[0]));
    GD_TRY(check_p(o->p));
    GD_TRY(gd_shape_bytes(o->dims, GD_BOOL, &bytes));
    i->out[0].dtype = GD_BOOL;
    i->out[0].rank = o->dims.rank;
    memcpy(i->out[0].dims, o->dims.at, sizeof o->dims.at);
    return GD_OK;
}
static void key_mask_expand(gd_expand *e) {
    const gd_key_mask_options *o = e->attrs;
    e->y[0] = gd_word_below(gd_key_words(e->x[0], o->dims), (int64_t)gd_chance_limit(o->p));
}
static gd_status key_mask_raw(gd_kernel_call *k) {
    const gd_key_mask_options *o = k->attrs;
    const gd_view *mask = &k->out[0];
    const gd_rng rng = rng_of(&k->in[0]);
    for (int64_t i = 0, n = count_of(mask); i < n; i++)
        *(bool *)element(mask, i) = gd_chance(o->p, gd_word_at(rng, (uint64_t)i));
    return GD_OK;
}

/* --- integers --------------------------------------------------------------------------------- */

/* The smallest and largest integers that a dtype counts without gaps. */
static void whole_limits(gd_dtype dtype, int64_t *least, int64_t *most) {
    switch (dtype) {
    case GD_BOOL: *least = 0, *most = 1; break;
    case GD_U8: *least = 0, *most = UINT8_MAX; break;
    case GD_I8: *least = INT8_MIN, *most = INT8_MAX; break;
    case GD_I32: *least = INT32_MIN, *most = INT32_MAX; break;
    case GD_BF16: *least = -256, *most = 256; break;
    case GD_F16: *least = -2048, *most = 2048; break;
    case GD_F32: *least = -(1 << 24), *most = 1 << 24; break;
    case GD_F64: *least = -((int64_t)1 << 53), *most = (int64_t)1 << 53; break;
    default: *least = INT64_MIN, *most = INT64_MAX; break;
    }
}

/*op randint(dims:int[], low:int, high:int) -> y  nograd random
 * Random integers from low to high - 1, all equally likely.
 *   dtype dtype = i64
 */
static gd_status randint_infer(gd_infer *i) {
    const gd_randint_options *o = i->attrs;
    size_t bytes;
    int64_t least, most;
    if (o->low >= o->high)
        return gd_op_fail(GD_E_ARGUMENT, "there is no integer from %lld up to and without %lld",
                          (long long)o->low, (long long)o->high);
    GD_TRY(gd_shape_bytes(o->dims, o->dtype, &bytes));
    whole_limits(o->dtype, &least, &most);
    if (o->low < least || o->high - 1 > most)
        return gd_op_fail(GD_E_OVERFLOW, "%s counts from %lld to %lld only",
                          gd_dtype_name(o->dtype), (long long)least, (long long)most);
    i->out[0].dtype = o->dtype;
    i->out[0].rank = o->dims.rank;
    memcpy(i->out[0].dims, o->dims.at, sizeof i->out[0].dims);
    return GD_OK;
}
/*op scaled_words(high, low, range_high:int, range_low:int, ones:int, first:int) -> y  elementwise integral internal
 * first + the upper 64 bits of the product of two numbers of 64 bits: random bits, in two words, and a
 * range, in two words. `ones` are the bits of a word. The products of words wrap and keep all their bits.
 *   low_low = low * range_low
 *   low_high = low * range_high
 *   high_low = high * range_low
 *   middle = bit_and(shr(low_low, 32), ones) + bit_and(low_high, ones) + bit_and(high_low, ones)
 *   carried = bit_and(shr(low_high, 32), ones) + bit_and(shr(high_low, 32), ones) + shr(middle, 32)
 *   y = first + high * range_high + carried
 */
static void randint_expand(gd_expand *e) {
    const gd_randint_options *o = e->attrs;
    const uint64_t range = (uint64_t)o->high - (uint64_t)o->low;
    gd_tensor *words = drawn_words(any_place(), gd_dims(gd_numel(o->dims.rank, o->dims.at), 2));
    gd_tensor *y =
        gd_scaled_words(gd_select(words, 1, 0), gd_select(words, 1, 1), (int64_t)(range >> 32),
                        (int64_t)(range & UINT32_MAX), UINT32_MAX, o->low);
    e->y[0] = gd_reshape(gd_as_dtype(y, o->dtype), o->dims);
}
static gd_status randint_raw(gd_kernel_call *k) {
    const gd_randint_options *o = k->attrs;
    const gd_view *y = &k->out[0];
    uint64_t range = (uint64_t)o->high - (uint64_t)o->low;
    for (int64_t i = 0, n = count_of(y); i < n; i++)
        gd_store_i64(
            y->dtype, element(y, i),
            (int64_t)((uint64_t)o->low + gd_below(gd_long_at(k->rng, (uint64_t)i), range)));
    return GD_OK;
}

/*op randperm(n:int) -> y  nograd random
 * The numbers 0 to n - 1 in random order: each has 64 random bits, and they stand sorted by these.
 *   dtype dtype = i64
 */
static gd_status randperm_infer(gd_infer *i) {
    const gd_randperm_options *o = i->attrs;
    size_t bytes;
    int64_t least, most;
    if (o->n < 0)
        return gd_op_fail(GD_E_ARGUMENT, "n is %lld; it must be 0 or more", (long long)o->n);
    if (!gd_dtype_is_int(o->dtype))
        return gd_op_fail(GD_E_DTYPE, "makes integers, not %s", gd_dtype_name(o->dtype));
    GD_TRY(gd_shape_bytes(gd_dims(o->n), GD_I64, &bytes));
    whole_limits(o->dtype, &least, &most);
    if (o->n - 1 > most)
        return gd_op_fail(GD_E_OVERFLOW, "%s counts to %lld only", gd_dtype_name(o->dtype),
                          (long long)most);
    i->out[0].dtype = o->dtype;
    i->out[0].rank = 1;
    i->out[0].dims[0] = o->n;
    return GD_OK;
}

typedef struct {
    uint64_t bits;
    int64_t index;
} ticket;

/* Buckets by the bits above `shift` hold two to four tickets. */
static int bucket_shift(int64_t n) {
    int shift = 63;
    while (shift > 0 && (n >> (64 - shift)) > 2) shift--;
    return shift;
}

/* By their bits; equal ones stay in order. The bits are spread evenly, so buckets by the upper
 * ones hold few tickets each; what is left to do is done by insertion. */
static void draw_tickets(gd_rng rng, int64_t n, ticket *tickets) {
    const int shift = bucket_shift(n);
    const size_t buckets = (size_t)1 << (64 - shift);
    uint64_t *bits = (uint64_t *)(tickets + n);
    int64_t *starts = (int64_t *)(bits + n + 1);
    memset(starts, 0, (buckets + 1) * sizeof *starts);
    for (int64_t i = 0; i < n;
         i += 2) { /* the elements of a block: one more than n if that is odd */
        uint32_t w[4];
        gd_philox(rng, (uint64_t)i / 2, w);
        bits[i] = (uint64_t)w[0] << 32 | w[1];
        bits[i + 1] = (uint64_t)w[2] << 32 | w[3];
    }
    for (int64_t i = 0; i < n; i++) starts[(bits[i] >> shift) + 1]++;
    for (size_t b = 1; b <= buckets; b++) starts[b] += starts[b - 1];
    for (int64_t i = 0; i < n; i++) tickets[starts[bits[i] >> shift]++] = (ticket){bits[i], i};
    for (int64_t i = 1; i < n; i++) {
        ticket t = tickets[i];
        int64_t at = i;
        for (; at > 0 && tickets[at - 1].bits > t.bits; at--) tickets[at] = tickets[at - 1];
        tickets[at] = t;
    }
}

/*op ticket_order(high, low, half:int, unit:int) -> y  elementwise integral internal
 * 64 random bits, of two words, as an i64 that sorts as the unsigned number does: half is 2^31, unit 2^32.
 *   y = (high - half) * unit + low
 */
/* The 64 bits of element i are the words 2 i and 2 i + 1. */
static void randperm_expand(gd_expand *e) {
    const gd_randperm_options *o = e->attrs;
    gd_tensor *words = drawn_words(any_place(), gd_dims(o->n, 2));
    gd_tensor *order = gd_ticket_order(gd_select(words, 1, 0), gd_select(words, 1, 1),
                                       INT64_C(1) << 31, INT64_C(1) << 32);
    e->y[0] = gd_as_dtype(gd_argsort(order), o->dtype);
}

/* Tickets, their bits (one more, for blocks of two), and where buckets begin. */
static size_t randperm_workspace(const gd_kernel_call *k) {
    const int64_t n = k->out[0].dims[0];
    return (size_t)n * sizeof(ticket) + ((size_t)n + 1) * 8 +
           (((size_t)1 << (64 - bucket_shift(n))) + 1) * 8;
}
static gd_status randperm_raw(gd_kernel_call *k) {
    const gd_view *y = &k->out[0];
    int64_t n = y->dims[0];
    ticket *tickets = k->workspace;
    draw_tickets(k->rng, n, tickets);
    for (int64_t i = 0; i < n; i++) gd_store_i64(y->dtype, element(y, i), tickets[i].index);
    return GD_OK;
}

/* --- choosing --------------------------------------------------------------------------------- */

/*op multinomial(weights, n:int) -> y  nograd random refuses
 * n classes drawn with the probabilities that a row of weights is proportional to: weights (K) give
 * (n), weights (R,K) give (R,n), as i64. Without replacement no class comes twice in a row.
 *   replacement bool = false
 *   saves nothing
 *   onnx Multinomial
 */
static gd_status multinomial_infer(gd_infer *i) {
    const gd_multinomial_options *o = i->attrs;
    const gd_tensor *w = i->in[0];
    gd_meta *y = &i->out[0];
    GD_TRY(gd_need_float(w, "weights"));
    if (w->rank != 1 && w->rank != 2)
        return gd_op_fail(GD_E_SHAPE, "weights must have 1 or 2 dimensions, not %d", w->rank);
    int64_t classes = w->dims[w->rank - 1];
    if (o->n <= 0)
        return gd_op_fail(GD_E_ARGUMENT, "n is %lld; at least 1 must be drawn", (long long)o->n);
    if (classes == 0) return gd_op_fail(GD_E_SHAPE, "there is no class to draw");
    if (!o->replacement && o->n > classes)
        return gd_op_fail(GD_E_ARGUMENT, "%lld of %lld classes cannot be drawn without replacement",
                          (long long)o->n, (long long)classes);
    gd_meta_like(y, w);
    y->dims[y->rank - 1] = o->n;
    y->dtype = GD_I64;
    return GD_OK;
}

/* The failure of a weight, or of the row that begins with it: see GD_DATA_WEIGHTS. */
static gd_status refuse_weights(const gd_view *w, int64_t element, int64_t positive, int64_t draws,
                                double real) {
    return gd_data_fail(&(gd_data_error){.problem = GD_DATA_WEIGHTS,
                                         .element = element,
                                         .values = {positive, draws},
                                         .real = real},
                        &(gd_data_operand){w->rank, w->dims, NULL});
}

/* A row of weights as f64, checked, and how many are not 0. */
static gd_status read_weights(const gd_view *w, int64_t row, double *weights, int64_t *positive) {
    int last = w->rank - 1;
    int64_t size = (int64_t)gd_dtype_size(w->dtype);
    const char *at = (const char *)w->data + (last ? row * w->strides[0] * size : 0);
    double total = 0;
    *positive = 0;
    for (int64_t c = 0; c < w->dims[last]; c++) {
        double weight = gd_load_f64(w->dtype, at + c * w->strides[last] * size);
        if (!(weight >= 0) || isinf(weight))
            return refuse_weights(w, row * w->dims[last] + c, -1, 0, weight);
        *positive += weight > 0;
        total += weights[c] = weight;
    }
    if (total > 0 && isfinite(total)) return GD_OK;
    return refuse_weights(w, row * w->dims[last], 0, 0, total);
}

/* The first class whose running sum is above x; that is never one of weight 0. */
static int64_t first_above(const double *sums, int64_t n, double x) {
    int64_t low = 0, high = n - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (sums[middle] > x) high = middle;
        else low = middle + 1;
    }
    return low;
}

typedef struct {
    double wait;
    int64_t index;
} arrival;

static bool later(arrival a, arrival b) {
    return a.wait > b.wait || (a.wait == b.wait && a.index > b.index);
}

static void sink(arrival *heap, int64_t n, int64_t at) {
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && later(heap[child + 1], heap[child])) child++;
        if (!later(heap[child], heap[at])) return;
        arrival swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

/* Without replacement: class c arrives after an exponential time with rate weight c; the first n
 * to arrive are the draw, in that order. The heap has the latest of the earliest n on top. */
static void first_arrivals(gd_rng rng, int64_t row, int64_t classes, const double *weights,
                           arrival *heap, int64_t n) {
    int64_t held = 0;
    uint64_t block = UINT64_MAX;
    uint32_t w[4];
    for (int64_t c = 0; c < classes; c++) {
        if (!(weights[c] > 0)) continue;
        uint64_t at = (uint64_t)(row * classes + c);
        if (at / 2 != block) gd_philox(rng, block = at / 2, w); /* a block serves two classes */
        double u = gd_unit_f64(w[at % 2 * 2], w[at % 2 * 2 + 1]) + 0x1p-54;
        /* -log u is never below 1 - u, which spares most logarithms (a little less: both are rounded) */
        if (held == n && (1 - u) * 0.999999 > heap[0].wait * weights[c]) continue;
        arrival a = {-gd_log_unit_f64(u) / weights[c], c};
        if (held < n) {
            heap[held++] = a;
            for (int64_t i = held / 2; held == n && i-- > 0;) sink(heap, n, i);
        } else if (later(heap[0], a)) {
            heap[0] = a;
            sink(heap, n, 0);
        }
    }
    for (int64_t last = n - 1; last > 0; last--) {
        arrival swap = heap[0];
        heap[0] = heap[last];
        heap[last] = swap;
        sink(heap, last, 0);
    }
}

static gd_status multinomial_row(const gd_kernel_call *k, int64_t row, double *weights,
                                 arrival *heap) {
    const gd_multinomial_options *o = k->attrs;
    const gd_view *w = &k->in[0], *y = &k->out[0];
    int64_t classes = w->dims[w->rank - 1], positive;
    GD_TRY(read_weights(w, row, weights, &positive));
    if (!o->replacement && positive < o->n)
        return refuse_weights(w, row * classes, positive, o->n, 0);
    if (!o->replacement) first_arrivals(k->rng, row, classes, weights, heap, o->n);
    for (int64_t c = 1; c < classes && o->replacement; c++)
        weights[c] += weights[c - 1]; /* running sums */
    for (int64_t i = 0; i < o->n; i++) {
        int64_t at = row * o->n + i, drawn;
        if (o->replacement) {
            uint64_t bits = gd_long_at(k->rng, (uint64_t)at);
            double u = gd_unit_f64((uint32_t)(bits >> 32), (uint32_t)bits);
            drawn = first_above(weights, classes, u * weights[classes - 1]);
        } else drawn = heap[i].index;
        gd_store_i64(y->dtype, element(y, at), drawn);
    }
    return GD_OK;
}

static size_t multinomial_workspace(const gd_kernel_call *k) {
    const gd_multinomial_options *o = k->attrs;
    const size_t classes = (size_t)k->in[0].dims[k->in[0].rank - 1];
    return classes * sizeof(double) + (o->replacement ? 0 : (size_t)o->n * sizeof(arrival));
}
static gd_status multinomial_raw(gd_kernel_call *k) {
    const gd_multinomial_options *o = k->attrs;
    const gd_view *w = &k->in[0];
    int64_t classes = w->dims[w->rank - 1], rows = w->rank == 2 ? w->dims[0] : 1;
    double *weights = k->workspace;
    arrival *heap = o->replacement ? NULL : (arrival *)(weights + classes);
    gd_status status = GD_OK;
    for (int64_t row = 0; row < rows && status == GD_OK; row++)
        status = multinomial_row(k, row, weights, heap);
    return status;
}

#include "random.gen.h"
