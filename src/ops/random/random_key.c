/* random_key.c - random numbers from a key, a seed and call number as data; and keys from keys.
 *
 * Bodies of random ops draw their numbers from a key: the caller's, or one that random_key takes
 * from the generator. The gradient of an op that drew random numbers can compute the same numbers
 * again from it.
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
gd_status gd_check_key(const gd_tensor *key) {
    char text[160];
    if (key->dtype == GD_I64 && key->rank == 1 && key->dims[0] == 2) return GD_OK;
    return gd_op_fail(key->dtype == GD_I64 ? GD_E_SHAPE : GD_E_DTYPE,
                      "'key' is %s%s; it must be i64[2], a seed and a call number. "
                      "gd_key_split(key, n) gives n keys; gd_select takes one of them",
                      gd_dtype_name((gd_dtype)key->dtype),
                      gd_shape_text(key->rank, key->dims, text, sizeof text));
}
gd_tensor *gd_call_key(const gd_expansion *e, int at, gd_tensor *x) {
    gd_tensor *key = gd_optional_input(e->x, e->n_in, at);
    return key ? key : gd_random_key(x ? x : gd_full(gd_dims(), 0));
}
static gd_status key_words_infer(gd_infer *i) {
    const gd_key_words_options *o = i->attrs;
    size_t bytes;
    GD_TRY(gd_need_key(i, 0));
    GD_TRY(gd_shape_bytes(o->dims, GD_I64, &bytes));
    i->out[0].dtype = GD_I64;
    i->out[0].rank = o->dims.rank;
    memcpy(i->out[0].dims, o->dims.at, sizeof o->dims.at);
    return GD_OK;
}
gd_rng gd_rng_of_key(const gd_view *key) {
    const int64_t *at = key->data;
    return (gd_rng){(uint64_t)at[0], (uint64_t)at[key->strides[0]]};
}
static gd_status key_words_raw(gd_kernel_call *k) {
    const gd_view *words = &k->out[0];
    const gd_rng rng = gd_rng_of_key(&k->in[0]);
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
    GD_TRY(gd_need_key(i, 0));
    if (o->dtype != gd_wide_dtype(o->dtype))
        return gd_op_fail(GD_E_DTYPE, "dtype is %s; it must be f32 or f64",
                          gd_dtype_name(o->dtype));
    return gd_random_float_meta(&i->out[0], o->dims, o->dtype);
}
static gd_status key_normals_raw(gd_kernel_call *k) {
    gd_fill_normals(gd_rng_of_key(&k->in[0]), &k->out[0], 0, 1);
    return GD_OK;
}

/*op key_mask(key, dims:int[], p:float) -> mask  nograd internal
 * True with probability p: the mask that dropout or bernoulli draws with this key.
 */
static gd_status key_mask_infer(gd_infer *i) {
    const gd_key_mask_options *o = i->attrs;
    size_t bytes;
    GD_TRY(gd_need_key(i, 0));
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
    const gd_rng rng = gd_rng_of_key(&k->in[0]);
    for (int64_t i = 0, n = gd_view_count(mask); i < n; i++)
        *(bool *)gd_view_element(mask, i) = gd_chance(o->p, gd_word_at(rng, (uint64_t)i));
    return GD_OK;
}

/* --- keys from keys --------------------------------------------------------------------------- */

/*op key_fold(key, data) -> keys  nograd
 * A new key for each integer of data: data (...) gives keys (..., 2). Each depends on the key and the
 * lower 63 bits of its integer alone, so the number of a step or of a layer can be folded into the
 * key of a run. The numbers of a new key are independent of those of the key and of all others.
 */
/* A key is a block of Philox words. Its number has the upper bit set, so that no element of a tensor
 * uses it. */
static const uint64_t fold_block = UINT64_C(1) << 63;

static gd_status key_fold_infer(gd_infer *i) {
    const gd_tensor *data = i->in[1];
    gd_meta *y = &i->out[0];
    GD_TRY(gd_need_key(i, 0));
    if (!gd_dtype_is_int((gd_dtype)data->dtype))
        return gd_op_fail(GD_E_DTYPE, "'data' is %s; it must be an integer",
                          gd_dtype_name((gd_dtype)data->dtype));
    if (data->rank == GD_MAX_RANK)
        return gd_op_fail(GD_E_SHAPE, "'data' has %d dimensions; the keys would have one more",
                          data->rank);
    gd_meta_like(y, data);
    y->dtype = GD_I64;
    y->dims[y->rank++] = 2;
    return GD_OK;
}
static gd_status key_fold_raw(gd_kernel_call *k) {
    const gd_view *data = &k->in[1], *keys = &k->out[0];
    const gd_rng rng = gd_rng_of_key(&k->in[0]);
    for (int64_t i = 0, n = gd_view_count(data); i < n; i++) {
        const uint64_t number = (uint64_t)gd_load_i64(data->dtype, gd_view_element(data, i));
        uint32_t w[4];
        gd_philox(rng, number | fold_block, w);
        for (int half = 0; half < 2; half++)
            gd_store_i64(GD_I64, gd_view_element(keys, 2 * i + half),
                         (int64_t)((uint64_t)w[2 * half] << 32 | w[2 * half + 1]));
    }
    return GD_OK;
}

/*op word_product(x, factor:int) -> y  elementwise integral internal
 * The product of two words, which fits into 64 bits.
 *   y = x * factor
 */

/*op lower_word(x, ones:int) -> y  elementwise integral internal
 * The lower 32 bits of an i64; ones is 2^32 - 1.
 *   y = bit_and(x, ones)
 */

/*op upper_word(x, ones:int, bits:int) -> y  elementwise integral internal
 * The upper 32 bits of an i64, with these bits set; ones is 2^32 - 1.
 *   y = bit_or(bit_and(shr(x, 32), ones), bits)
 */

/*op philox_word(product, c, k, bump:int, ones:int) -> y  elementwise integral internal
 * A word of the next round of Philox, from the upper word of a product, a word of the round before,
 * and a word of the key to which `bump` is added. ones is 2^32 - 1.
 *   y = bit_xor(bit_xor(bit_and(shr(product, 32), ones), c), bit_and(k + bump, ones))
 */

/*op joined_words(high, low, unit:int) -> y  elementwise integral internal
 * Two words as an i64; unit is 2^32.
 *   y = high * unit + low
 */

/* gd_philox on tensors of words, each an i64. */
static void key_fold_expand(gd_expansion *e) {
    const int64_t ones = UINT32_MAX, unit = INT64_C(1) << 32;
    gd_tensor *seed = gd_select(e->x[0], 0, 0), *call = gd_select(e->x[0], 0, 1);
    gd_tensor *number = gd_as_dtype(e->x[1], GD_I64);
    gd_tensor *c[4] = {gd_lower_word(number, ones),
                       gd_upper_word(number, ones, (int64_t)(fold_block >> 32)),
                       gd_lower_word(call, ones), gd_upper_word(call, ones, 0)};
    gd_tensor *k[2] = {gd_lower_word(seed, ones), gd_upper_word(seed, ones, 0)};
    for (int64_t round = 0; round < 10; round++) {
        gd_tensor *p0 = gd_word_product(c[0], 0xD2511F53), *p1 = gd_word_product(c[2], 0xCD9E8D57);
        c[0] = gd_philox_word(p1, c[1], k[0], round * 0x9E3779B9, ones);
        c[2] = gd_philox_word(p0, c[3], k[1], round * 0xBB67AE85, ones);
        c[1] = gd_lower_word(p1, ones);
        c[3] = gd_lower_word(p0, ones);
    }
    e->y[0] = gd_stack(
        gd_list(gd_joined_words(c[0], c[1], unit), gd_joined_words(c[2], c[3], unit)), .axis = -1);
}

/*op key_split(key, n:int) -> keys  nograd
 * n new keys (n, 2), independent of each other and of the key: row i is key_fold(key, i).
 */
static gd_status key_split_infer(gd_infer *i) {
    const gd_key_split_options *o = i->attrs;
    size_t bytes;
    GD_TRY(gd_need_key(i, 0));
    if (o->n < 0)
        return gd_op_fail(GD_E_ARGUMENT, "n is %lld; it must be 0 or more", (long long)o->n);
    GD_TRY(gd_shape_bytes(gd_dims(o->n, 2), GD_I64, &bytes));
    i->out[0].dtype = GD_I64;
    i->out[0].rank = 2;
    i->out[0].dims[0] = o->n;
    i->out[0].dims[1] = 2;
    return GD_OK;
}
static void key_split_expand(gd_expansion *e) {
    const gd_key_split_options *o = e->attrs;
    e->y[0] = gd_key_fold(e->x[0], gd_arange(0, o->n, .dtype = GD_I64));
}

#include "ops/random/random_key.gen.h"
