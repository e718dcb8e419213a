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
#include "nn/saved_modes.h"
#include "train/metric.h"

/* A record and its options, parsed from text. The object is created later. */
typedef struct gd_recipe {
    const gd_factory *factory; /* NULL: none */
    void *options;
} gd_recipe;

/* All objects are retained. */
typedef struct gd_training {
    gd_object object;
    gd_recipe optimizer_recipe, schedule_recipe;
    bool schedule_is_open;   /* the first run sets its number of steps */
    gd_optimizer *optimizer; /* NULL: none, or not yet */
    gd_schedule *schedule;
    gd_loss_scale *scale; /* with precision f16; else NULL */

    gd_module *loss;      /* a layer; NULL: none */
    gd_module *loss_each; /* the same with reduction=none; NULL: it has no such option */
    gd_loss_fn loss_function;
    void *loss_user;

    gd_metric **metrics;
    int n_metrics;
    gd_dtype precision; /* of autocast; GD_DTYPE_NONE: off */
    int accumulate;
    double clip_norm, clip_eps, clip_value;
} gd_training;

/* The training of a net; NULL: it is not compiled. */
gd_training *gd_training_of(const gd_module *net);
/* Fails if the net is NULL or not compiled. */
gd_status gd_training_get(gd_module *net, const char *what, gd_training **training);

/* Builds the net from the inputs of a batch, and creates optimizer and schedule from their recipes
 * unless they exist. `steps` is the number of optimizer steps of the run. */
gd_status gd_training_prepare(gd_training *training, gd_module *net, gd_tensors inputs,
                              int64_t steps);

/* Splits "NAME option=value ...": copies the name; *options points to the rest. */
enum { GD_SPLIT_NAME = 80 };
gd_status gd_split_name(const char *text, char name[GD_SPLIT_NAME], const char **options);

/* Whether a net has all its parameters. */
gd_status gd_module_is_built(gd_module *net, bool *built);

/* A new metric with the same record and options, owned by the caller. NULL: failed. */
gd_metric *gd_metric_like(const gd_metric *metric);

#endif
