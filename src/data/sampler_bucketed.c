/* sampler_bucketed.c - the bucketed sampler: batches of samples with like lengths, in a random
 * order.
 *
 * The table of an epoch has all samples: shuffled, and then sorted by length within each pool. The
 * batches are consecutive pieces of the table. All are full but one, which is at a random place of
 * the last pool, so that no length is in it more often than others; it is the last of the epoch.
 * The others are shuffled by the function of their number, without a table.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/copy.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "data/indices.h"
#include "data/permute.h"
#include "data/sampler.h"

typedef struct bucketed {
    gd_indices lengths;
    int64_t samples, pool;
} bucketed;

static int64_t bucketed_count(const gd_sampler *s, int64_t samples) {
    (void)s;
    return samples;
}

static void bucketed_describe(const gd_sampler *s, char *text, size_t size) {
    const bucketed *b = s->self;
    snprintf(text, size, "bucketed, %lld lengths, pools of %lld batches", (long long)b->samples,
             (long long)b->pool);
}

static void bucketed_close(gd_sampler *s) { gd_free(((bucketed *)s->self)->lengths.at); }

/* --- the order -------------------------------------------------------------------------------- */

typedef struct entry {
    int64_t length, position, sample; /* the position is that before the pool is sorted */
} entry;

static int by_length(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

static gd_indices table_of(const gd_order *o) {
    return (gd_indices){.at = o->table, .wide = o->samples > INT32_MAX};
}

/* The samples of a pool. */
static int64_t pool_samples(const gd_order *o) {
    const bucketed *b = o->sampler->self;
    int64_t samples;
    if (b->pool == 0 || !gd_mul_i64(b->pool, o->batch, &samples) || samples > o->samples)
        return o->samples;
    return samples;
}

static gd_status bucketed_begin(gd_order *o) {
    const bucketed *b = o->sampler->self;
    const gd_rng key = gd_draw_key(GD_DRAW_ORDER, o->seed, o->epoch);
    const int64_t n = o->samples, pool = pool_samples(o);
    gd_indices table;
    GD_TRY(gd_indices_make(&table, n, n));
    o->table = table.at;
    size_t bytes;
    entry *entries = gd_mul_size((size_t)pool, sizeof *entries, &bytes) ? gd_malloc(bytes) : NULL;
    if (!entries) return gd_no_memory(NULL, "to sort samples by length");
    for (int64_t first = 0; first < n; first += pool) {
        const int64_t count = n - first < pool ? n - first : pool;
        for (int64_t i = 0; i < count; i++) {
            const int64_t sample = gd_shuffled(key, first + i, n);
            entries[i] = (entry){gd_indices_get(&b->lengths, sample), i, sample};
        }
        qsort(entries, (size_t)count, sizeof *entries, by_length);
        for (int64_t i = 0; i < count; i++) gd_indices_set(&table, first + i, entries[i].sample);
    }
    gd_free(entries);
    return GD_OK;
}

/* The number, among all batches in the order of the table, of the one that is not full. */
static int64_t short_batch(const gd_order *o) {
    const int64_t pool = pool_samples(o), batches = (o->samples - 1) / o->batch + 1,
                  before = (o->samples - 1) / pool * pool / o->batch; /* in the other pools */
    uint32_t words[4];
    gd_philox(gd_draw_key(GD_DRAW_PLACE, o->seed, o->epoch), 0, words);
    return before + (int64_t)(((uint64_t)words[0] << 32 | words[1]) % (uint64_t)(batches - before));
}

static gd_status bucketed_at(const gd_order *o, int64_t first, int64_t count, int64_t *indices) {
    const gd_rng key = gd_draw_key(GD_DRAW_BATCH, o->seed, o->epoch);
    const int64_t full = o->samples / o->batch, rest = o->samples % o->batch,
                  odd = rest ? short_batch(o) : full;
    const gd_indices table = table_of(o);
    int64_t batch = -1, start = 0; /* the batch of the epoch, and where it begins in the table */
    for (int64_t i = 0; i < count; i++) {
        const int64_t position = first + i;
        if (position / o->batch != batch) {
            batch = position / o->batch;
            const int64_t number = batch < full ? gd_shuffled(key, batch, full) : odd;
            start = number * o->batch + (batch < full && number >= odd ? rest : 0);
        }
        indices[i] = gd_indices_get(&table, start + position % o->batch);
    }
    return GD_OK;
}

static const gd_sampler_rules bucketed_rules = {.count = bucketed_count,
                                                .at = bucketed_at,
                                                .begin = bucketed_begin,
                                                .describe = bucketed_describe,
                                                .close = bucketed_close};

/* --- construction ----------------------------------------------------------------------------- */

static int64_t length_at(const gd_tensor *t, int64_t i) {
    const size_t at = (size_t)(t->offset + i * t->strides[0]) * gd_dtype_bytes(t->dtype);
    return gd_load_i64((gd_dtype)t->dtype, (const char *)t->storage->data + at);
}

/* Checks the lengths and finds the largest. */
static gd_status check_lengths(const gd_tensor *t, int64_t *most) {
    *most = 0;
    if (!gd_dtype_is_int((gd_dtype)t->dtype))
        return gd_fail(GD_E_DTYPE, "the lengths are %s; they should be integers",
                       gd_dtype_name((gd_dtype)t->dtype));
    if (t->dims[0] == 0) return gd_fail(GD_E_SHAPE, "there are no lengths");
    for (int64_t i = 0; i < t->dims[0]; i++) {
        const int64_t length = length_at(t, i);
        if (length < 0)
            return gd_fail(GD_E_ARGUMENT, "length %lld is %lld; it must be at least 0",
                           (long long)i, (long long)length);
        if (length > *most) *most = length;
    }
    return GD_OK;
}

static gd_status make_bucketed(gd_tensor *lengths, int64_t pool, gd_sampler **made) {
    int64_t most;
    if (pool < 0)
        return gd_fail(GD_E_ARGUMENT, ".pool is %lld; it must be at least 1, or 0 for the epoch",
                       (long long)pool);
    GD_TRY(gd_sampler_column(&lengths, "lengths"));
    GD_TRY(check_lengths(lengths, &most));
    const int64_t samples = lengths->dims[0];
    gd_sampler *s = *made = gd_sampler_bare(&bucketed_rules, samples, sizeof(bucketed));
    if (!s) return GD_E_MEMORY;
    bucketed *b = s->self;
    b->samples = samples;
    b->pool = pool;
    GD_TRY(gd_indices_make(&b->lengths, samples, most));
    for (int64_t i = 0; i < samples; i++) gd_indices_set(&b->lengths, i, length_at(lengths, i));
    return GD_OK;
}

gd_sampler *gd_sampler_bucketed_at(const char *site, gd_tensor *lengths,
                                   const gd_sampler_bucketed_options *options) {
    GD_CALLED_FROM(site);
    gd_sampler *s = NULL;
    gd_scope *scope = gd_scope_open(); /* owns a copy of the lengths on the CPU */
    options = options ? options : GD_SAMPLER_BUCKETED_OPTIONS_();
    const gd_status status = make_bucketed(lengths, options->pool, &s);
    gd_scope_close(&scope);
    return gd_sampler_finish(site, "gd_sampler_bucketed", s, status);
}
