/* run.h - one run of gd_fit. */
#ifndef GRADUS_TRAIN_RUN_H
#define GRADUS_TRAIN_RUN_H

#include "gradus/random.h"
#include "train/batches.h"
#include "train/callback.h"
#include "train/fit.h"
#include "train/history.h"
#include "train/interrupt.h"
#include "train/progress.h"

/* A value that histories, callbacks and the progress know by its name. */
typedef struct gd_run_value {
    char name[GD_METRIC_UNIQUE + 8];
    double value;
} gd_run_value;

/* What an eager step may have changed when it fails. */
typedef struct gd_undo {
    gd_tensor **tensors,
        **copies;      /* buffers and, where a step function steps itself, parameters; held */
    gd_tensor **grads; /* of the parameters before the step, in their order; NULL: none; held */
    int count, n_grads;
    gd_rng rng;
} gd_undo;

typedef struct gd_fit_run gd_fit_run;
struct gd_fit_run {
    const gd_event_source *source; /* first: event.c reads it */
    gd_object state;               /* the counters as a part of a checkpoint (run_state.c) */
    gd_module *net;                /* held by `train` */
    gd_training *training;
    const gd_fit_options *options;
    int64_t epochs; /* to do; 0: until max_steps */
    gd_batches train, validation;
    bool validates;
    gd_tensors
        parameters;      /* of the net, held by its modules; the list is held by the run's scope */
    gd_history *history; /* held */
    gd_modes modes;
    gd_interrupt interrupt;
    gd_progress_writer progress;
    gd_event event;
    gd_undo undo;

    /* where it is; saved in checkpoints */
    int64_t epoch, batch, step; /* batches done in this epoch, and in all */
    int64_t ended;              /* the loader has given the last batch of the epoch */
    int64_t partial; /* the last row of the history is that of an epoch that is not complete */
    int64_t group_done, group_size; /* batches whose gradients are added up, of so many */
    double seconds;                 /* of this epoch, before it was resumed */
    char *stopped;                  /* why a callback has ended the run; "": it has not */

    gd_tensors current; /* the batch that has just ended; the list is empty outside of its event */
    bool check_finite;
    const char *interrupted; /* why it has to stop; NULL: not */

    /* times of this epoch, for the progress */
    double began, first_done;
    int64_t samples, first_samples, first_batch;

    gd_run_value *values; /* loss, metrics, val_loss, val_ metrics, lr, seconds */
    int n_values, n_train, n_val, lr_at, seconds_at;
    bool fresh; /* those of training are read since the last batch */
    gd_state_part parts[GD_FIT_PARTS];
    char part_names[GD_FIT_PARTS][64];
};

/* step.c: one batch. Nothing has changed where it fails. */
gd_status gd_run_step(gd_fit_run *r, gd_tensors batch);
gd_status gd_run_finish_group(gd_fit_run *r); /* an epoch has ended in the middle of one */
/* Before an eager step: keeps what it may change; after one that failed: puts it back. */
gd_status gd_run_save(void *run);
void gd_run_restore(void *run);
void gd_undo_free(gd_undo *undo);
/* Forward, loss and backward alone, eagerly. */
gd_status gd_run_forward_backward(gd_fit_run *r, gd_tensors batch, double *loss);
/* The function of the plan. */
gd_tensors gd_run_traced(gd_tensors batch, void *run);

/* evaluate.c: makes the plan of validation; a pass over its batches. `*complete` is false after an interrupt. */
gd_status gd_run_compile_validation(gd_fit_run *r);
gd_status gd_run_validate(gd_fit_run *r, bool *complete);

/* finite.c: which layer, if a step has failed for a value that is not finite. Gives the status to
 * end with, and its message. */
gd_status gd_run_explain(gd_fit_run *r, gd_tensors batch, gd_status status);
/* In the function of the plan: fails where the loss or a gradient is not finite. */
gd_status gd_run_check(gd_fit_run *r, gd_batch_result *result);

/* values.c */
gd_status gd_run_name_values(gd_fit_run *r);
gd_status gd_run_read(gd_fit_run *r); /* loss, metrics and lr, unless they are fresh */
int gd_run_find(const gd_fit_run *r, const char *name); /* -1: none */
extern const gd_event_source gd_run_source;

/* run_state.c */
void gd_run_state_init(gd_fit_run *r);
void gd_run_resumed(gd_fit_run *r); /* after a restore */

#endif
