/* run.h - one run of gd_fit. */
#ifndef GRADUS_TRAIN_RUN_H
#define GRADUS_TRAIN_RUN_H

#include "core/random.h"
#include "train/batches.h"
#include "train/callback.h"
#include "train/fit.h"
#include "train/history.h"
#include "train/interrupt.h"
#include "train/progress.h"

/* A named value for histories, callbacks and the progress. */
typedef struct gd_run_value {
    char name[GD_METRIC_UNIQUE + 8];
    double value;
} gd_run_value;

/* Copies of everything that an eager step may change before it fails. */
typedef struct gd_undo {
    gd_tensor **tensors, **copies; /* buffers, and parameters that a .step changes; retained */
    gd_tensor **grads;             /* one for each parameter, retained; NULL: none */
    int count, n_grads;
    gd_rng rng;
} gd_undo;

typedef struct gd_fit_run gd_fit_run;
struct gd_fit_run {
    const gd_event_source *source; /* must be first: event.c reads it */
    gd_object state;               /* the counters as a part of a checkpoint (run_state.c) */
    gd_module *net;                /* retained by `train` */
    gd_training *training;
    const gd_fit_options *options;
    int64_t epochs; /* of the run; 0: until max_steps */
    gd_batches train, validation;
    bool validates;
    unsigned seen;         /* gd_module_changes when the optimizer was checked */
    gd_tensors parameters; /* retained by the net; the list belongs to the run's scope */
    gd_history *history;   /* retained */
    gd_saved_modes modes;
    gd_interrupt interrupt;
    gd_progress_writer progress;
    gd_event event;
    gd_undo undo;
    gd_own_rng rng;
    bool said_nan;     /* the log has a line about a loss that is not finite */
    bool said_val_nan; /* the same of the validation */

    /* the position; saved in checkpoints */
    int64_t epoch, batch, step;     /* batches of this epoch, and in total */
    int64_t ended;                  /* the loader has returned the last batch of the epoch */
    int64_t partial;                /* the last row of the history is of an incomplete epoch */
    int64_t group_done, group_size; /* batches of the current group so far, and in total */
    double seconds;                 /* of this epoch before the resume */
    char *stopped;                  /* the reason if a callback ended the run; or "" */

    gd_tensors current; /* the batch that has just ended; the list is empty outside of its event */
    bool check_finite;
    bool restored;           /* a checkpoint of options->resume */
    const char *interrupted; /* the reason to stop; NULL: none */

    /* times of this epoch, for the progress */
    double began, first_done; /* of the epoch, and the end of its first batch */
    int64_t samples, first_samples, first_batch;

    gd_run_value *values; /* loss, metrics, val_loss, val_ metrics, lr, seconds */
    int n_values, n_train, n_val, lr_at, seconds_at;
    bool fresh; /* the values of training were read after the last batch */
    gd_state_part parts[GD_FIT_PARTS];
    char part_names[GD_FIT_PARTS][64];
};

/* step.c: runs one batch. If it fails, nothing has changed. */
gd_status gd_run_step(gd_fit_run *r, gd_tensors batch);
gd_status gd_run_finish_group(gd_fit_run *r); /* for an epoch that ends inside a group */
/* Before an eager step: copies everything that it may change; after a failure: restores it. */
gd_status gd_run_save(void *run);
void gd_run_restore(void *run);
void gd_undo_free(gd_undo *undo);
/* Forward, loss and backward only, eagerly. */
gd_status gd_run_forward_backward(gd_fit_run *r, gd_tensors batch, double *loss);
/* The function that is traced: one batch of training. */
gd_tensors gd_run_traced(gd_tensors batch, void *run);

/* evaluate.c: creates the jit of validation; runs it over all batches. *complete is false after an
 * interrupt. */
gd_status gd_run_compile_validation(gd_fit_run *r);
gd_status gd_run_validate(gd_fit_run *r, bool *complete);

/* finite.c: finds the layer if a step failed because of a nonfinite value. Returns the final
 * status, with its message. */
gd_status gd_run_explain(gd_fit_run *r, gd_tensors batch, gd_status status);
/* In the traced function: fails if the loss or a gradient is not finite. */
gd_status gd_run_check(gd_fit_run *r, gd_batch_result *result);

/* values.c */
gd_status gd_run_name_values(gd_fit_run *r); /* creates `values` */
gd_status gd_run_read(gd_fit_run *r);        /* reads loss, metrics and lr, unless they are fresh */
int gd_run_find(const gd_fit_run *r, const char *name); /* -1: none */
extern const gd_event_source gd_run_source;
/* The number of batches in an epoch of the run; 0: unknown. */
int64_t gd_run_epoch_batches(const gd_fit_run *r);

/* run_state.c */
void gd_run_state_init(gd_fit_run *r);
void gd_run_resumed(gd_fit_run *r); /* after a restore */

#endif
