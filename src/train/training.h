/* training.h - the training that gd_compile attaches to a net.
 *
 * It retains no module of the net, and no jit, whose plans would: otherwise the net could never be
 * freed.
 */
#ifndef GRADUS_TRAIN_TRAINING_H
#define GRADUS_TRAIN_TRAINING_H

#include "core/error.h"
#include "gradus/loss_scale.h"
#include "gradus/train.h"
#include "nn/module.h"
#include "train/metric.h"

/* A record and its options, parsed from text; the object is made later. */
typedef struct gd_recipe {
    const gd_maker *maker; /* NULL: none */
    void *options;
} gd_recipe;

/* All objects are retained. */
typedef struct gd_training {
    gd_object object;
    gd_recipe optimizer_recipe, schedule_recipe;
    bool schedule_is_open;   /* the first run sets its number of steps */
    gd_optimizer *optimizer; /* NULL: none, or not yet */
    gd_schedule *schedule;
    gd_loss_scale *scale; /* of f16; NULL: none */

    gd_module *loss; /* a layer; NULL: none */
    gd_module
        *loss_each; /* the same for each element, reduction=none; NULL: it has no such option */
    gd_loss_fn loss_function;
    void *loss_user;

    gd_metric **metrics;
    int n_metrics;
    gd_dtype precision; /* GD_DTYPE_NONE: that of the tensors */
    int accumulate;
    double clip_norm, clip_value;
} gd_training;

/* The training of a net; NULL: it is not compiled. */
gd_training *gd_training_of(const gd_module *net);
/* Fails if the net is NULL or not compiled. */
gd_status gd_training_get(gd_module *net, const char *what, gd_training **training);

/* Builds the net from the inputs of a batch, and makes optimizer and schedule from their names if
 * necessary. `steps`: of the optimizer in the run. */
gd_status gd_training_prepare(gd_training *training, gd_module *net, gd_tensors inputs,
                              int64_t steps);

/* Whether a net has all its parameters. */
gd_status gd_module_is_built(gd_module *net, bool *built);

/* A metric like this one with its own sums, owned by the caller. NULL: failed. */
gd_metric *gd_metric_like(const gd_metric *metric);

/* --- modes ------------------------------------------------------------------------------------ */

/* The modes of all modules of a tree, retained. */
typedef struct gd_modes {
    gd_module **at;
    int *training;
    int count, room;
} gd_modes;

gd_status gd_modes_save(gd_module *net, gd_modes *modes); /* into zeros */
void gd_modes_set(const gd_modes *modes, int training);
void gd_modes_put_back(gd_modes *modes); /* and frees the list; once */

#endif
