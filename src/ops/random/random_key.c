/* random_key.c - random numbers from a key, a seed and call number as data.
 *
 * Bodies of random ops draw their numbers from a key. The gradient of an op that drew random
 * numbers can compute the same numbers again from it.
 */
#include <string.h>

#include "core/copy.h"
#include "gradus/ops.h"
#include "dispatch/body.h"
#include "dispatch/infer.h"
#include "ops/random/random_ops.h"

/*op random_key(x) -> key  nograd random internal shapeonly
 * Takes one call number from the generator and returns the key, two i64: the seed and the call
 * number. The key is on x's device.
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
 * The 32-bit random words that a call with this key draws, as i64 from 0 to 2^32 - 1.
 */
static gd_status need_key(const gd_tensor *key) {
    if (key->dtype == GD_I64 && key->rank == 1 && key->dims[0] == 2) return GD_OK;
    return gd_op_fail(GD_E_SHAPE, "'key' must be i64 of shape [2], as random_key returns it");
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
    for (int64_t i = 0, n = gd_view_count(words); i < n; i++)
        *(int64_t *)(void *)gd_view_element(words, i) = gd_word_at(rng, (uint64_t)i);
    return GD_OK;
}

/*op key_normals(key, dims:int[]) -> y  nograd internal
 * The numbers from the normal distribution with mean 0 and standard deviation 1 that a call with
 * this key draws.
 *   dtype dtype = f32  f32 or f64
 */
static gd_status key_normals_infer(gd_infer *i) {
    const gd_key_normals_options *o = i->attrs;
    GD_TRY(need_key(i->in[0]));
    if (o->dtype != gd_wide_dtype(o->dtype))
        return gd_op_fail(GD_E_DTYPE, "dtype is %s; it must be f32 or f64",
                          gd_dtype_name(o->dtype));
    return gd_random_float_meta(&i->out[0], o->dims, o->dtype);
}
static gd_status key_normals_raw(gd_kernel_call *k) {
    gd_fill_normals(rng_of(&k->in[0]), &k->out[0], 0, 1);
    return GD_OK;
}

/*op key_mask(key, dims:int[], p:float) -> mask  nograd internal
 * True with probability p: the mask that dropout or bernoulli draws with this key.
 */
static gd_status key_mask_infer(gd_infer *i) {
    const gd_key_mask_options *o = i->attrs;
    size_t bytes;
    GD_TRY(need_key(i->in[0]));
    GD_TRY(gd_check_probability(o->p));
    GD_TRY(gd_shape_bytes(o->dims, GD_BOOL, &bytes));
    i->out[0].dtype = GD_BOOL;
    i->out[0].rank = o->dims.rank;
    memcpy(i->out[0].dims, o->dims.at, sizeof o->dims.at);
    return GD_OK;
}
static void key_mask_expand(gd_expansion *e) {
    const gd_key_mask_options *o = e->attrs;
    e->y[0] = gd_word_below(gd_key_words(e->x[0], o->dims), (int64_t)gd_chance_limit(o->p));
}
static gd_status key_mask_raw(gd_kernel_call *k) {
    const gd_key_mask_options *o = k->attrs;
    const gd_view *mask = &k->out[0];
    const gd_rng rng = rng_of(&k->in[0]);
    for (int64_t i = 0, n = gd_view_count(mask); i < n; i++)
        *(bool *)gd_view_element(mask, i) = gd_chance(o->p, gd_word_at(rng, (uint64_t)i));
    return GD_OK;
}

#include "ops/random/random_key.gen.h"
