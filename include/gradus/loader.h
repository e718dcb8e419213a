/* loader.h - batches of a dataset.
 *
 *     gd_loader *train = gd_loader_new(gd_dataset_mnist("mnist", GD_TRAIN), .batch = 64,
 *                                      .shuffle = true, .workers = 2);
 *     for (int epoch = 0; epoch < 5; epoch++)
 *         for (gd_tensors batch; gd_loader_next(train, &batch);) {
 *             GD_SCOPE;
 *             gd_tensor *images = batch.at[0], *classes = batch.at[1];
 *             ...
 *         }
 *
 * A batch has the tensors of its samples, stacked along a new first axis: inputs, then targets,
 * then weights. It belongs to the loader until the next gd_loader_next; gd_retain keeps a tensor
 * longer. Batches are on the CPU, or on .device: then workers copy them there through pinned memory
 * in advance, while the device computes. gd_fit does this for the device of the net.
 *
 * The order of samples depends only on the seed and the epoch, never on the number of workers or
 * their timing. Workers are threads that prefetch up to .prefetch batches each, from the first
 * gd_loader_next of an epoch to its last batch. A program that leaves an epoch early and frees data
 * that its dataset reads must call gd_loader_stop first.
 *
 * A loader belongs to the current scope and is used by one thread at a time. It has state
 * (state.h): seed, epoch and position, so that a resumed run continues with the next batch. The
 * state loads only into a loader with the same number of samples, batch size and kind of order.
 */
#ifndef GRADUS_LOADER_H
#define GRADUS_LOADER_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Combines `count` samples into a batch: return gd_listed(...). */
typedef gd_tensors (*gd_collate_fn)(const gd_tensors *samples, int64_t count, void *user);

typedef struct gd_loader_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t batch GD_DEFAULT_(32);   /* samples in a batch */
    bool shuffle GD_DEFAULT_(false); /* a new random order in each epoch */
    uint64_t seed GD_DEFAULT_(0);    /* of the order and of augmentation */
    gd_sampler *
        sampler GD_DEFAULT_(nullptr);  /* chooses the samples of an epoch; not with .shuffle */
    int workers GD_DEFAULT_(0);        /* threads that load batches; 0: gd_loader_next loads them */
    int prefetch GD_DEFAULT_(2);       /* batches that each worker loads in advance */
    bool drop_last GD_DEFAULT_(false); /* skips a last batch that is not full */
    int targets GD_DEFAULT_(1);        /* number of targets in a sample, after the inputs */
    int weights GD_DEFAULT_(0);        /* 1: the last tensor is the weight of the sample */
    bool pad GD_DEFAULT_(false); /* pads tensors of different sizes to the largest in the batch */
    double pad_value GD_DEFAULT_(0);     /* the padding value, added at the end of each axis */
    bool skip_broken GD_DEFAULT_(false); /* skips and counts samples that cannot be read */
    gd_collate_fn collate GD_DEFAULT_(nullptr); /* NULL: stacks the samples */
    void *user GD_DEFAULT_(nullptr);            /* for collate */
    gd_device *device GD_DEFAULT_(nullptr);     /* where batches are; NULL: the CPU */
} GD_GIVEN_BY_NAME_ gd_loader_options;
#define GD_LOADER_OPTIONS_(...)                                                               \
    GD_OPTIONS_(gd_loader_options,                                                            \
                (.batch = 32, .shuffle = false, .seed = 0, .sampler = NULL, .workers = 0,     \
                 .prefetch = 2, .drop_last = false, .targets = 1, .weights = 0, .pad = false, \
                 .pad_value = 0, .skip_broken = false, .collate = NULL, .user = NULL,         \
                 .device = NULL),                                                             \
                __VA_ARGS__)

#define gd_loader_new(dataset, ...) \
    GD_WITH_OPTIONS_(gd_loader_new_at(GD_HERE, dataset, GD_LOADER_OPTIONS_(__VA_ARGS__)))
GD_API gd_loader *gd_loader_new_at(const char *site, gd_dataset *dataset,
                                   const gd_loader_options *options);

/* The next batch. Returns false at the end of the epoch; the call after that begins the next epoch.
 * Also returns false after a failure, which is recorded and names the sample: after gd_clear_error
 * the next call continues after the batch that failed. */
#define gd_loader_next(loader, batch) gd_loader_next_at(GD_HERE, loader, batch)
GD_API bool gd_loader_next_at(const char *site, gd_loader *loader, gd_tensors *batch);

/* The number of batches in an epoch, and the number of targets and weights in a batch. */
GD_API int64_t gd_loader_batches(const gd_loader *loader);
GD_API int gd_loader_targets(const gd_loader *loader);
GD_API int gd_loader_weights(const gd_loader *loader);
GD_API gd_dataset *gd_loader_dataset(const gd_loader *loader);

/* The number of broken samples skipped in the batches returned so far. */
GD_API int64_t gd_loader_skipped(const gd_loader *loader);

/* The position: the batch that the next call returns. Prefetched batches do not count. */
typedef struct gd_loader_position {
    int64_t epoch, batch;
} gd_loader_position;
GD_API gd_loader_position gd_loader_tell(const gd_loader *loader);
#define gd_loader_seek(loader, position) gd_loader_seek_at(GD_HERE, loader, position)
GD_API gd_status gd_loader_seek_at(const char *site, gd_loader *loader,
                                   gd_loader_position position);

/* In a function that a loader calls (of a dataset, a sampler or a collate function), on the thread that
 * calls it: the batch that this thread prepares. Elsewhere both numbers are -1. */
GD_API gd_loader_position gd_loader_preparing(void);

/* Ends the workers and frees prefetched batches. The position stays, and the next gd_loader_next
 * starts the workers again. */
GD_API void gd_loader_stop(gd_loader *loader);

/* --- samplers --------------------------------------------------------------------------------- */

/* A sampler chooses the samples of an epoch and their order. It fits datasets with the number of
 * samples that it was created for. */

typedef struct gd_sampler_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t count GD_DEFAULT_(0);       /* samples in an epoch; 0: the size of the dataset */
    bool replacement GD_DEFAULT_(true); /* a sample may be drawn several times in an epoch */
} GD_GIVEN_BY_NAME_ gd_sampler_options;
#define GD_SAMPLER_OPTIONS_(...) \
    GD_OPTIONS_(gd_sampler_options, (.count = 0, .replacement = true), __VA_ARGS__)

/* Draws sample i with probability weights[i] / sum of weights. The weights are floats of rank 1,
 * none negative; they are held, and must not change. Memory: 1/8 byte for each sample with
 * replacement, 4 bytes without. */
#define gd_sampler_weighted(weights, ...) \
    GD_WITH_OPTIONS_(gd_sampler_weighted_at(GD_HERE, weights, GD_SAMPLER_OPTIONS_(__VA_ARGS__)))
GD_API gd_sampler *gd_sampler_weighted_at(const char *site, gd_tensor *weights,
                                          const gd_sampler_options *options);

/* Shuffles so that every part of an epoch, and so every batch, has the class proportions of the
 * dataset, within one or two samples. `classes`: integers of rank 1, one for each sample. Memory: 4
 * bytes for each sample. */
#define gd_sampler_stratified(classes) gd_sampler_stratified_at(GD_HERE, classes)
GD_API gd_sampler *gd_sampler_stratified_at(const char *site, gd_tensor *classes);

typedef struct gd_sampler_bucketed_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t pool GD_DEFAULT_(100); /* batches that are sorted together; 0: those of an epoch */
} GD_GIVEN_BY_NAME_ gd_sampler_bucketed_options;
#define GD_SAMPLER_BUCKETED_OPTIONS_(...) \
    GD_OPTIONS_(gd_sampler_bucketed_options, (.pool = 100), __VA_ARGS__)

/* Batches of samples with like lengths, which need little padding (.pad of the loader). An epoch
 * shuffles the samples, takes them in pools of .pool batches, sorts each pool by length, cuts it
 * into batches, and shuffles the batches. A large pool gives batches of more equal lengths, a small
 * one more random batches. A batch that is not full comes last. `lengths`: integers of rank 1, one
 * for each sample, none negative; they are copied. Memory: 8 bytes for each sample (16 beyond 2^31
 * samples), and 24 for each sample of a pool.
 *
 *     gd_loader *train = gd_loader_new(sentences, .batch = 32, .pad = true,
 *                                      .sampler = gd_sampler_bucketed(lengths));
 */
#define gd_sampler_bucketed(lengths, ...) \
    GD_WITH_OPTIONS_(                     \
        gd_sampler_bucketed_at(GD_HERE, lengths, GD_SAMPLER_BUCKETED_OPTIONS_(__VA_ARGS__)))
GD_API gd_sampler *gd_sampler_bucketed_at(const char *site, gd_tensor *lengths,
                                          const gd_sampler_bucketed_options *options);

typedef struct gd_sampler_distributed_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    bool shuffle GD_DEFAULT_(true);
    /* To give every process the same number of samples, skips some; false: repeats some. */
    bool drop_last GD_DEFAULT_(false);
} GD_GIVEN_BY_NAME_ gd_sampler_distributed_options;
#define GD_SAMPLER_DISTRIBUTED_OPTIONS_(...) \
    GD_OPTIONS_(gd_sampler_distributed_options, (.shuffle = true, .drop_last = false), __VA_ARGS__)

/* The samples of process number `rank` of `world`. All processes have the same number of samples,
 * and together they have all samples. */
#define gd_sampler_distributed(rank, world, ...)                     \
    GD_WITH_OPTIONS_(gd_sampler_distributed_at(GD_HERE, rank, world, \
                                               GD_SAMPLER_DISTRIBUTED_OPTIONS_(__VA_ARGS__)))
GD_API gd_sampler *gd_sampler_distributed_at(const char *site, int rank, int world,
                                             const gd_sampler_distributed_options *options);

/* A user-defined sampler. `at` returns the sample at a position of an epoch. It must depend only on
 * its arguments; several threads call it. */
typedef struct gd_sampler_functions {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t (*count)(int64_t dataset_count, void *self)
        GD_DEFAULT_(nullptr); /* positions in an epoch */
    int64_t (*at)(int64_t position, uint64_t seed, uint64_t epoch, int64_t dataset_count,
                  void *self) GD_DEFAULT_(nullptr);
    void (*destroy)(void *self) GD_DEFAULT_(nullptr);
} GD_GIVEN_BY_NAME_ gd_sampler_functions;
#define GD_SAMPLER_FUNCTIONS_(...) \
    GD_OPTIONS_(gd_sampler_functions, (.count = NULL, .at = NULL, .destroy = NULL), __VA_ARGS__)
#define gd_sampler_from(self, ...) \
    GD_WITH_OPTIONS_(gd_sampler_from_at(GD_HERE, self, GD_SAMPLER_FUNCTIONS_(__VA_ARGS__)))
GD_API gd_sampler *gd_sampler_from_at(const char *site, void *self,
                                      const gd_sampler_functions *functions);

#ifdef __cplusplus
}
#endif
#endif
