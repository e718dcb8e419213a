/* sampler.h - samplers: the samples of an epoch and their order.
 *
 * The order of an epoch is a function of the seed, the epoch and the position, which any thread can
 * evaluate. A sampler whose order needs a table builds it when an epoch begins.
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
    int64_t batch;   /* samples in a batch of the loader */
    uint64_t seed, epoch;
    void *table; /* of the sampler, for this epoch; NULL: none */
} gd_order;

typedef struct gd_sampler_rules {
    /* The positions in an epoch of a dataset with `samples` samples. */
    int64_t (*count)(const gd_sampler *sampler, int64_t samples);
    /* The samples at positions first, first + 1, ... Thread-safe. */
    gd_status (*at)(const gd_order *order, int64_t first, int64_t count, int64_t *indices);
    /* Builds order->table for an epoch, which gd_free frees. NULL: it needs none. */
    gd_status (*begin)(gd_order *order);
    /* A description for states: equal descriptions mean equal orders. */
    void (*describe)(const gd_sampler *sampler, char *text, size_t size);
    void (*close)(gd_sampler *sampler); /* NULL: nothing to free */
} gd_sampler_rules;

struct gd_sampler {
    gd_object object;
    const gd_sampler_rules *rules;
    int64_t made_for; /* samples of the dataset; -1: any number */
    void *self;
};

/* Creates a sampler with `size` zero bytes as its self. The caller owns it. NULL: no memory. */
gd_sampler *gd_sampler_bare(const gd_sampler_rules *rules, int64_t made_for, size_t size);
/* Adds a sampler to the scope of the program; on failure frees it and records the failure. */
gd_sampler *gd_sampler_finish(const char *site, const char *function, gd_sampler *sampler,
                              gd_status status);
/* Checks that a tensor has one number for each sample (rank 1), and copies it to the CPU if
 * necessary, in the current scope. Messages call it `what`. */
gd_status gd_sampler_column(gd_tensor **column, const char *what);

/* Checks that the sampler fits a dataset of this size. */
gd_status gd_sampler_fits(const gd_sampler *sampler, int64_t samples);

/* The positions in an epoch; a sampler of the program may return a negative number. */
int64_t gd_order_count(const gd_order *order);
/* Begins an epoch. */
gd_status gd_order_begin(gd_order *order, uint64_t epoch);
/* The samples at these positions, checked against the dataset. */
gd_status gd_order_at(const gd_order *order, int64_t first, int64_t count, int64_t *indices);
void gd_order_end(gd_order *order); /* frees the table */

/* "shuffled", "weighted, 1000 positions, with replacement". */
void gd_order_describe(const gd_order *order, char *text, size_t size);

#endif
