/* sampler.h - which samples an epoch has, and in which order.
 *
 * The order of an epoch is a function of the seed, the epoch and the position, which any thread can
 * evaluate. A sampler whose order needs a table makes it when an epoch begins.
 */
#ifndef GRADUS_DATA_SAMPLER_H
#define GRADUS_DATA_SAMPLER_H

#include "core/object.h"
#include "gradus/loader.h"

/* The order of one epoch. */
typedef struct gd_order {
    const gd_sampler *sampler; /* NULL: all samples, in order or shuffled */
    bool shuffle;
    int64_t samples; /* of the dataset */
    uint64_t seed, epoch;
    void *table; /* the sampler's own, for this epoch; NULL: none */
} gd_order;

typedef struct gd_sampler_rules {
    /* Positions in an epoch of a dataset of so many samples. */
    int64_t (*count)(const gd_sampler *sampler, int64_t samples);
    /* The samples at positions first, first + 1, ... Thread-safe. */
    gd_status (*at)(const gd_order *order, int64_t first, int64_t count, int64_t *indices);
    /* Makes order->table for an epoch, freed with gd_free; NULL: it needs none. */
    gd_status (*begin)(gd_order *order);
    /* In words, for states: loaders whose samplers say the same have the same order. */
    void (*describe)(const gd_sampler *sampler, char *text, size_t size);
    void (*close)(gd_sampler *sampler); /* NULL: nothing to free */
} gd_sampler_rules;

struct gd_sampler {
    gd_object object;
    const gd_sampler_rules *rules;
    int64_t made_for; /* samples of the dataset; -1: any number */
    void *self;
};

/* A sampler with `size` zero bytes as its self, in no scope; NULL: no memory. */
gd_sampler *gd_sampler_bare(const gd_sampler_rules *rules, int64_t made_for, size_t size);
/* Hands one to the scope of the program, or drops it after a failure, which it records. */
gd_sampler *gd_sampler_finish(const char *site, const char *function, gd_sampler *sampler,
                              gd_status status);
/* That a tensor is one number a sample: of rank 1, and on the CPU, where it is copied if need be, in
 * the current scope. `what` is its name in messages. */
gd_status gd_sampler_column(gd_tensor **column, const char *what);

/* Whether the sampler fits a dataset of so many samples. */
gd_status gd_sampler_fits(const gd_sampler *sampler, int64_t samples);

/* Positions in an epoch; negative: the program's own sampler says so. */
int64_t gd_order_count(const gd_order *order);
/* Begins an epoch. */
gd_status gd_order_begin(gd_order *order, uint64_t epoch);
/* All of them are samples of the dataset. */
gd_status gd_order_at(const gd_order *order, int64_t first, int64_t count, int64_t *indices);
void gd_order_end(gd_order *order); /* frees the table */

/* "shuffled", "weighted, 1000 positions, with replacement". */
void gd_order_describe(const gd_order *order, char *text, size_t size);

#endif
