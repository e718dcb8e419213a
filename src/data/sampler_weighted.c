/* sampler_weighted.c - samples drawn with given probabilities.
 *
 * With replacement, each position draws a number below the sum of weights: a binary search over
 * sums of blocks of 64 weights finds the block, a scan finds the sample. That is an eighth of a
 * byte a sample.
 *
 * Without replacement, sample i has the key E / weight[i], where E is exponentially distributed,
 * and an epoch has the samples in the order of their keys (Efraimidis and Spirakis 2006). The table
 * of an epoch holds 4 bytes for each position (8 beyond 2^31 samples) and is made by a bucket sort
 * that computes keys when it needs them, so that they take no memory.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/copy.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "data/indices.h"
#include "data/permute.h"
#include "data/sampler.h"

enum { BLOCK = 64 };

typedef struct weighted {
    gd_tensor *weights; /* held; on the CPU */
    int64_t samples, count;
    bool replacement;
    double *ends; /* of each block: the sum of the weights up to its end */
    int64_t blocks;
} weighted;

static double weight(const weighted *w, int64_t i) {
    const gd_tensor *t = w->weights;
    const size_t at = (size_t)(t->offset + i * t->strides[0]) * gd_dtype_bytes(t->dtype);
    return gd_load_f64((gd_dtype)t->dtype, (const char *)t->storage->data + at);
}

static int64_t weighted_count(const gd_sampler *s, int64_t samples) {
    (void)samples;
    return ((const weighted *)s->self)->count;
}

static void weighted_describe(const gd_sampler *s, char *text, size_t size) {
    const weighted *w = s->self;
    snprintf(text, size, "weighted, %lld of %lld, %s replacement", (long long)w->count,
             (long long)w->samples, w->replacement ? "with" : "without");
}

static void weighted_close(gd_sampler *s) {
    weighted *w = s->self;
    gd_release(w->weights);
    gd_free(w->ends);
}

/* [0, 1) with 53 bits. */
static double unit(gd_rng key, uint64_t block) {
    uint32_t words[4];
    gd_philox(key, block, words);
    return (double)(((uint64_t)words[0] << 32 | words[1]) >> 11) * 0x1p-53;
}

/* --- with replacement ------------------------------------------------------------------------- */

/* The sample whose part of the sum has `target` in it. */
static int64_t locate(const weighted *w, double target) {
    int64_t low = 0, high = w->blocks - 1;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (w->ends[middle] > target) high = middle;
        else low = middle + 1;
    }
    double sum = low > 0 ? w->ends[low - 1] : 0;
    int64_t i = low * BLOCK, last = i;
    const int64_t end = i + BLOCK < w->samples ? i + BLOCK : w->samples;
    for (; i < end; i++) {
        const double one = weight(w, i);
        if (!(one > 0)) continue;
        last = i;
        sum += one;
        if (target < sum) break;
    }
    return last; /* rounding may leave the target just behind the block */
}

static gd_status replacing_at(const gd_order *o, int64_t first, int64_t count, int64_t *indices) {
    const weighted *w = o->sampler->self;
    const gd_rng key = gd_draw_key(GD_DRAW_SAMPLE, o->seed, o->epoch);
    const double total = w->ends[w->blocks - 1];
    for (int64_t i = 0; i < count; i++)
        indices[i] = locate(w, unit(key, (uint64_t)(first + i)) * total);
    return GD_OK;
}

static const gd_sampler_rules replacing_rules = {.count = weighted_count,
                                                 .at = replacing_at,
                                                 .describe = weighted_describe,
                                                 .close = weighted_close};

/* --- without ---------------------------------------------------------------------------------- */

/* Buckets are the upper bits of a key: 256 for each power of two. However the weights are
 * distributed, about one key in 400 at most is in the same bucket. Few samples are sorted as
 * one. */
enum { BUCKET_SHIFT = 44, BUCKETS = 1 << 19, FEW = 1 << 16 };

typedef struct keyed {
    double key;
    int64_t index;
} keyed;

/* Infinite where the weight is 0, and only there. */
static double key_of(const weighted *w, gd_rng rng, int64_t i) {
    const double one = weight(w, i);
    return one > 0 ? fmin(-log1p(-unit(rng, (uint64_t)i)) / one, DBL_MAX) : INFINITY;
}

static int64_t bucket_count(const weighted *w) { return w->samples <= FEW ? 1 : BUCKETS; }

static int64_t bucket_of(const weighted *w, double key) {
    uint64_t bits;
    if (w->samples <= FEW) return 0;
    memcpy(&bits, &key, sizeof bits);
    return (int64_t)(bits >> BUCKET_SHIFT & (BUCKETS - 1));
}

static int by_key(const void *a, const void *b) {
    const keyed *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Sorts the samples from `begin` to `end` of the table, which are those of one bucket. */
static void sort_bucket(const weighted *w, gd_rng rng, gd_indices *table, int64_t begin,
                        int64_t end, keyed *room) {
    for (int64_t i = begin; i < end; i++) {
        const int64_t index = gd_indices_get(table, i);
        room[i - begin] = (keyed){key_of(w, rng, index), index};
    }
    qsort(room, (size_t)(end - begin), sizeof *room, by_key);
    for (int64_t i = begin; i < end; i++) gd_indices_set(table, i, room[i - begin].index);
}

/* In `next`, the place of each bucket's first sample. Returns how many buckets hold the first
 * w->count samples, and the number of samples in these and in the largest. */
static int64_t lay_out(const weighted *w, gd_rng rng, int64_t *next, int64_t *placed,
                       int64_t *largest) {
    for (int64_t i = 0; i < w->samples; i++) {
        const double key = key_of(w, rng, i);
        if (key < INFINITY) next[bucket_of(w, key)]++;
    }
    int64_t used = 0;
    *placed = *largest = 0;
    for (; used < bucket_count(w) && *placed < w->count; used++) {
        const int64_t size = next[used];
        if (size > *largest) *largest = size;
        next[used] = *placed;
        *placed += size;
    }
    return used;
}

static gd_status fill_table(const weighted *w, gd_rng rng, int64_t *next, gd_indices *table) {
    int64_t placed, largest;
    const int64_t used = lay_out(w, rng, next, &placed, &largest);
    keyed *room = gd_malloc((size_t)largest * sizeof *room);
    gd_status status =
        room ? gd_indices_make(table, placed, w->samples)
             : gd_fail(GD_E_MEMORY, "no memory to sort %lld samples", (long long)largest);
    for (int64_t i = 0; i < w->samples && status == GD_OK; i++) {
        const double key = key_of(w, rng, i);
        if (key < INFINITY && bucket_of(w, key) < used)
            gd_indices_set(table, next[bucket_of(w, key)]++, i);
    }
    /* now next[] are the ends */
    for (int64_t b = 0; b < used && status == GD_OK; b++)
        sort_bucket(w, rng, table, b > 0 ? next[b - 1] : 0, next[b], room);
    gd_free(room);
    return status;
}

static gd_status keyed_begin(gd_order *o) {
    const weighted *w = o->sampler->self;
    gd_indices table = {.at = NULL};
    int64_t *next = gd_calloc((size_t)bucket_count(w), sizeof *next);
    const gd_status status =
        next ? fill_table(w, gd_draw_key(GD_DRAW_KEY, o->seed, o->epoch), next, &table)
             : gd_fail(GD_E_MEMORY, "no memory for the order of an epoch");
    gd_free(next);
    o->table = table.at;
    return status;
}

static gd_status keyed_at(const gd_order *o, int64_t first, int64_t count, int64_t *indices) {
    const gd_indices table = {o->table, o->samples > INT32_MAX};
    for (int64_t i = 0; i < count; i++) indices[i] = gd_indices_get(&table, first + i);
    return GD_OK;
}

static const gd_sampler_rules keyed_rules = {.count = weighted_count,
                                             .at = keyed_at,
                                             .begin = keyed_begin,
                                             .describe = weighted_describe,
                                             .close = weighted_close};

/* --- making one ------------------------------------------------------------------------------- */

/* Checks the weights, and adds them up. */
static gd_status add_up(weighted *w, int64_t *positive) {
    double sum = 0;
    *positive = 0;
    for (int64_t i = 0; i < w->samples; i++) {
        const double one = weight(w, i);
        if (!(one >= 0 && one < INFINITY))
            return gd_fail(GD_E_ARGUMENT, "weight %lld is %g; weights are numbers from 0 on",
                           (long long)i, one);
        *positive += one > 0;
        sum += one;
        if (w->ends) w->ends[i / BLOCK] = sum;
    }
    if (!(sum > 0)) return gd_fail(GD_E_ARGUMENT, "all %lld weights are 0", (long long)w->samples);
    if (sum < INFINITY) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "the sum of the weights is too large for a number");
}

static gd_status fill(weighted *w, const gd_tensor *weights, const gd_sampler_options *o) {
    int64_t positive;
    w->weights = gd_retain((gd_tensor *)weights);
    w->samples = weights->dims[0];
    w->replacement = o->replacement;
    w->count = o->count ? o->count : w->samples;
    w->blocks = (w->samples + BLOCK - 1) / BLOCK;
    w->ends = w->replacement ? gd_malloc((size_t)w->blocks * sizeof *w->ends) : NULL;
    if (w->replacement && !w->ends) return gd_fail(GD_E_MEMORY, "no memory for a sampler");
    GD_TRY(add_up(w, &positive));
    if (w->replacement || w->count <= positive) return GD_OK;
    return gd_fail(
        GD_E_ARGUMENT,
        "an epoch of %lld samples without replacement; only %lld of the %lld weights are "
        "above 0. Set .count or .replacement",
        (long long)w->count, (long long)positive, (long long)w->samples);
}

static gd_status check(gd_tensor **weights, const gd_sampler_options *o) {
    char text[160];
    GD_TRY(gd_sampler_column(weights, "weights"));
    if (!gd_is_float((*weights)->dtype))
        return gd_fail(GD_E_DTYPE, "the weights are %s; they should be floats",
                       gd_describe(*weights, text, sizeof text));
    if ((*weights)->dims[0] < 1) return gd_fail(GD_E_SHAPE, "there are no weights");
    if (o->count < 0)
        return gd_fail(GD_E_ARGUMENT, ".count is %lld; 0 means as many as the dataset has",
                       (long long)o->count);
    return GD_OK;
}

gd_sampler *gd_sampler_weighted_at(const char *site, gd_tensor *weights,
                                   const gd_sampler_options *given) {
    GD_CALLED_FROM(site);
    const gd_sampler_options o = given ? *given : (gd_sampler_options){0, true};
    gd_sampler *s = NULL;
    gd_scope *scope = gd_scope_open();
    gd_status status = check(&weights, &o);
    if (status == GD_OK && (s = gd_sampler_bare(o.replacement ? &replacing_rules : &keyed_rules,
                                                weights->dims[0], sizeof(weighted))))
        status = fill(s->self, weights, &o);
    gd_scope_close(&scope);
    return gd_sampler_finish(site, "gd_sampler_weighted", s, status);
}
