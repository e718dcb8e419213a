/* sampler_weighted.c - the weighted sampler: samples are drawn with given probabilities.
 *
 * With replacement, each position draws a number below the sum of weights. A binary search over
 * cumulative sums of blocks of 64 weights finds the block, a linear search the sample. The sums
 * take an eighth of a byte for each sample.
 *
 * Without replacement, sample i has the key E / weight[i], where E is exponentially distributed,
 * and an epoch has the samples in the order of their keys (Efraimidis and Spirakis 2006). The table
 * of an epoch holds 4 bytes for each position (8 beyond 2^31 samples). A bucket sort builds it and
 * computes keys when it needs them, so that they take no memory.
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
    gd_tensor *weights; /* retained; on the CPU */
    int64_t samples, count;
    bool replacement;
    double *ends; /* of each block: the sum of all weights up to its end */
    int64_t blocks;
} weighted;

static double weight_at(const weighted *w, int64_t i) {
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

/* Uniform in [0, 1), with 53 bits. */
static double draw_unit(gd_rng key, uint64_t block) {
    uint32_t words[4];
    gd_philox(key, block, words);
    return (double)(((uint64_t)words[0] << 32 | words[1]) >> 11) * 0x1p-53;
}

/* --- with replacement ------------------------------------------------------------------------- */

/* The sample whose interval of the cumulative sum contains `target`. */
static int64_t find_sample(const weighted *w, double target) {
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
        const double one = weight_at(w, i);
        if (!(one > 0)) continue;
        last = i;
        sum += one;
        if (target < sum) break;
    }
    return last; /* by rounding, the target may lie just after the block */
}

static gd_status replacement_at(const gd_order *o, int64_t first, int64_t count, int64_t *indices) {
    const weighted *w = o->sampler->self;
    const gd_rng key = gd_draw_key(GD_DRAW_SAMPLE, o->seed, o->epoch);
    const double total = w->ends[w->blocks - 1];
    for (int64_t i = 0; i < count; i++)
        indices[i] = find_sample(w, draw_unit(key, (uint64_t)(first + i)) * total);
    return GD_OK;
}

static const gd_sampler_rules replacement_rules = {.count = weighted_count,
                                                   .at = replacement_at,
                                                   .describe = weighted_describe,
                                                   .close = weighted_close};

/* --- without replacement ---------------------------------------------------------------------- */

/* Buckets are the upper bits of a key: 256 for each power of two. However the weights are
 * distributed, a bucket has at most about one key in 400. Up to FEW samples are sorted as one
 * bucket. */
enum { BUCKET_SHIFT = 44, BUCKETS = 1 << 19, FEW = 1 << 16 };

typedef struct keyed {
    double key;
    int64_t index;
} keyed;

/* Infinite if and only if the weight is 0. */
static double key_of(const weighted *w, gd_rng rng, int64_t i) {
    const double one = weight_at(w, i);
    return one > 0 ? fmin(-log1p(-draw_unit(rng, (uint64_t)i)) / one, DBL_MAX) : INFINITY;
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

/* Sorts the samples of one bucket, which are at `begin` to before `end` of the table. */
static void sort_bucket(const weighted *w, gd_rng rng, gd_indices *table, int64_t begin,
                        int64_t end, keyed *room) {
    for (int64_t i = begin; i < end; i++) {
        const int64_t index = gd_indices_get(table, i);
        room[i - begin] = (keyed){key_of(w, rng, index), index};
    }
    qsort(room, (size_t)(end - begin), sizeof *room, by_key);
    for (int64_t i = begin; i < end; i++) gd_indices_set(table, i, room[i - begin].index);
}

/* Sets `next` to the position of the first sample of each bucket. Returns the number of buckets
 * that hold the first w->count samples; *placed: the samples in these; *largest: in the largest of
 * them. */
static int64_t lay_out_buckets(const weighted *w, gd_rng rng, int64_t *next, int64_t *placed,
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
    const int64_t used = lay_out_buckets(w, rng, next, &placed, &largest);
    keyed *room = gd_malloc((size_t)largest * sizeof *room);
    gd_status status =
        room ? gd_indices_make(table, placed, w->samples)
             : gd_fail(GD_E_MEMORY, "no memory to sort %lld samples", (long long)largest);
    for (int64_t i = 0; i < w->samples && status == GD_OK; i++) {
        const double key = key_of(w, rng, i);
        if (key < INFINITY && bucket_of(w, key) < used)
            gd_indices_set(table, next[bucket_of(w, key)]++, i);
    }
    /* now next[b] is the end of bucket b */
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
             : gd_no_memory(NULL, "for the order of an epoch");
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

/* --- construction ----------------------------------------------------------------------------- */

/* Checks the weights and computes the sums of blocks. */
static gd_status sum_weights(weighted *w, int64_t *positive) {
    double sum = 0;
    *positive = 0;
    for (int64_t i = 0; i < w->samples; i++) {
        const double one = weight_at(w, i);
        if (!(one >= 0 && one < INFINITY))
            return gd_fail(GD_E_ARGUMENT,
                           "weight %lld is %g; weights must be finite and at least 0", (long long)i,
                           one);
        *positive += one > 0;
        sum += one;
        if (w->ends) w->ends[i / BLOCK] = sum;
    }
    if (!(sum > 0)) return gd_fail(GD_E_ARGUMENT, "all %lld weights are 0", (long long)w->samples);
    if (sum < INFINITY) return GD_OK;
    return gd_fail(GD_E_ARGUMENT, "the sum of the weights is infinite");
}

static gd_status init_weighted(weighted *w, const gd_tensor *weights, const gd_sampler_options *o) {
    int64_t positive;
    w->weights = gd_retain((gd_tensor *)weights);
    w->samples = weights->dims[0];
    w->replacement = o->replacement;
    w->count = o->count ? o->count : w->samples;
    w->blocks = (w->samples + BLOCK - 1) / BLOCK;
    w->ends = w->replacement ? gd_malloc((size_t)w->blocks * sizeof *w->ends) : NULL;
    if (w->replacement && !w->ends) return gd_no_memory(NULL, "for a sampler");
    GD_TRY(sum_weights(w, &positive));
    if (w->replacement || w->count <= positive) return GD_OK;
    return gd_fail(
        GD_E_ARGUMENT,
        "an epoch of %lld samples without replacement; only %lld of the %lld weights are "
        "above 0. Set .count or .replacement",
        (long long)w->count, (long long)positive, (long long)w->samples);
}

static gd_status check_weights(gd_tensor **weights, const gd_sampler_options *o) {
    char text[160];
    GD_TRY(gd_sampler_column(weights, "weights"));
    if (!gd_is_float((*weights)->dtype))
        return gd_fail(GD_E_DTYPE, "the weights are %s; they should be floats",
                       gd_describe(*weights, text, sizeof text));
    if ((*weights)->dims[0] < 1) return gd_fail(GD_E_SHAPE, "there are no weights");
    if (o->count < 0)
        return gd_fail(GD_E_ARGUMENT,
                       ".count is %lld; it must be at least 0; 0 means all samples of the dataset",
                       (long long)o->count);
    return GD_OK;
}

gd_sampler *gd_sampler_weighted_at(const char *site, gd_tensor *weights,
                                   const gd_sampler_options *given) {
    given = given ? given : GD_SAMPLER_OPTIONS_();
    GD_CALLED_FROM(site);
    const gd_sampler_options o = *given;
    gd_sampler *s = NULL;
    gd_scope *scope = gd_scope_open();
    gd_status status = check_weights(&weights, &o);
    if (status == GD_OK && (s = gd_sampler_bare(o.replacement ? &replacement_rules : &keyed_rules,
                                                weights->dims[0], sizeof(weighted))))
        status = init_weighted(s->self, weights, &o);
    gd_scope_close(&scope);
    return gd_sampler_finish(site, "gd_sampler_weighted", s, status);
}
