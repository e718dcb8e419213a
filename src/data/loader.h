/* loader.h - the internals of a loader.
 *
 * gd_loader_prepare builds a batch: a pure function of the loader and the number of the batch,
 * which any thread may call. gd_loader_next calls it, or takes a batch that workers have prepared
 * (loader_workers.c).
 */
#ifndef GRADUS_DATA_LOADER_H
#define GRADUS_DATA_LOADER_H

#include "data/dataset.h"
#include "data/sampler.h"

/* A batch, or a failure. */
typedef struct gd_prepared_batch {
    gd_sample batch;          /* retained; empty if all samples were broken and skipped */
    gd_queue_event *uploaded; /* after its upload to the loader's device; NULL: none */
    int64_t skipped;          /* broken samples */
    gd_status status;
    bool placed; /* the message ends with the place of the call */
    char text[GD_MESSAGE_MAX];
} gd_prepared_batch;

typedef struct gd_workers gd_workers;

struct gd_loader {
    gd_object object;
    gd_dataset *dataset;        /* retained */
    gd_loader_options options;  /* the sampler is retained */
    gd_order order;             /* of the epoch; workers read it */
    bool begun;                 /* `order` is that of epoch at.epoch, and the workers run */
    int64_t positions, batches; /* in an epoch */
    gd_loader_position at;
    int64_t skipped;
    gd_prepared_batch given; /* the result of the last gd_loader_next */
    gd_workers *workers;     /* NULL: none */
};

/* Prepares batch `number` of the current epoch. Returns early, with any status, once *stop is
 * true. */
void gd_loader_prepare(const gd_loader *loader, int64_t number, const _Atomic bool *stop,
                       gd_prepared_batch *prepared);

/* Frees a batch that no one uses. */
void gd_loader_drop(const gd_loader *loader, gd_prepared_batch *prepared);

/* The name of the sample in a row of the batch that gd_loader_next gave last. False: unknown. */
bool gd_loader_row_name(gd_loader *loader, int64_t row, char *text, size_t size);

/* Whether an object of any kind is a loader. */
bool gd_is_loader(const void *object);

/* Changes .device and returns the previous one. Prefetched batches are discarded if it differs. */
gd_device *gd_loader_set_device(gd_loader *loader, gd_device *device);

/* Makes workers prepare the batches from loader->at.batch on, and starts them if necessary. If the
 * system cannot create threads, loader->workers stays NULL. */
gd_status gd_workers_begin(gd_loader *loader);
/* Waits for the next batch. False: the workers have ended, by a fork or at the end of the
 * process. */
bool gd_workers_take(gd_workers *workers, gd_prepared_batch *prepared);
/* Ends the workers and frees their batches. */
void gd_workers_end(gd_loader *loader);

#endif
