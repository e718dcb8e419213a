/* loader.h - the inside of a loader.
 *
 * gd_loader_prepare makes a batch: a function of the loader and the batch's number, which any thread
 * may call. gd_loader_next calls it, or takes what workers have prepared (loader_workers.c); the rest of
 * the loader does not know the difference.
 */
#ifndef GRADUS_DATA_LOADER_H
#define GRADUS_DATA_LOADER_H

#include "data/dataset.h"
#include "data/sampler.h"

/* A batch, or why there is none. */
typedef struct gd_prepared {
    gd_sample batch; /* held. No tensors, after success: all samples were broken and left out */
    int64_t skipped; /* samples that were left out */
    gd_status status;
    bool placed; /* the message ends with the place of a call */
    char text[GD_MESSAGE_MAX];
} gd_prepared;

typedef struct gd_workers gd_workers;

struct gd_loader {
    gd_object object;
    gd_dataset *dataset;       /* held */
    gd_loader_options options; /* with the sampler held */
    gd_order order;            /* of the epoch; workers read it */
    bool begun; /* the order is that of the epoch at.epoch, and workers are at work */
    int64_t positions, batches; /* in an epoch */
    gd_loader_position at;
    int64_t skipped;
    gd_prepared given;   /* what the latest gd_loader_next has given */
    gd_workers *workers; /* NULL: none */
};

/* Batch `number` of the epoch whose order has begun. Gives up, with any status, once *stop is true. */
void gd_loader_prepare(const gd_loader *loader, int64_t number, const _Atomic bool *stop,
                       gd_prepared *prepared);

/* Has workers prepare the batches from loader->at.batch on. They are started where there are none; where
 * the system refuses threads, loader->workers stays NULL. */
gd_status gd_workers_begin(gd_loader *loader);
/* The next batch, when it is ready. False: the workers have ended, with the process. */
bool gd_workers_take(gd_workers *workers, gd_prepared *prepared);
/* Ends the workers, and frees what they have prepared. */
void gd_workers_end(gd_loader *loader);

#endif
