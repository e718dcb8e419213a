/* batches.h - a batch in training and evaluation: forward, loss, sums, metrics.
 *
 * A batch is a list of tensors: inputs of the net, targets, and with .weights = 1 of the loader the
 * weights of the samples. Sums are tensors that the plan adds to; nothing is read until
 * gd_batches_read.
 */
#ifndef GRADUS_TRAIN_BATCHES_H
#define GRADUS_TRAIN_BATCHES_H

#include "gradus/jit.h"
#include "train/training.h"

typedef struct gd_batches {
    gd_module *net;        /* retained, as are all objects below */
    gd_training *training; /* NULL: gd_predict of a net that is not compiled */
    gd_loader *loader;
    int n_targets, n_weights;
    gd_tensor *class_weights; /* NULL: none */
    gd_metric **metrics;      /* those with scalar values first */
    int n_metrics, n_scalars;
    gd_tensor *loss_sum, *weight_sum; /* f64 of rank 0 */
    gd_jit *jit;                      /* NULL: eager */
    const char *what;                 /* "gd_fit", for messages */
    gd_device *loader_device;         /* .device of the loader before `sets_device` */
    bool sets_device;                 /* the loader copies batches to the device of the net */
} gd_batches;

/* Uses the metrics of the training, or with `own_metrics` new ones like them. */
gd_status gd_batches_begin(gd_batches *b, const char *what, gd_module *net, gd_training *training,
                           gd_loader *loader, bool own_metrics);
/* Sets the weights of classes, on the device of the net; NULL: none. */
gd_status gd_batches_weigh_classes(gd_batches *b, gd_tensor *weights);
void gd_batches_drop_metrics(gd_batches *b);
void gd_batches_end(gd_batches *b);

/* Creates the jit: gd_batches_call runs `fn` with `user`. */
gd_status gd_batches_compile(gd_batches *b, gd_body fn, void *user);

/* A call of the function for a batch, by the jit or eagerly. */
typedef struct gd_batch_call {
    gd_body fn; /* that of gd_batches_compile, as is `user` */
    void *user;
    int64_t key;
    gd_status (*save)(void *user); /* before an eager call; NULL: nothing to do */
    void (*restore)(void *user);   /* after an eager call that failed: undoes its changes */
} gd_batch_call;

/* A function that cannot be traced runs eagerly from then on, and the log says so. Results belong
 * to the current scope; NULL: the caller does not need them. */
gd_status gd_batches_call(gd_batches *b, const gd_batch_call *call, gd_tensors batch,
                          gd_tensors *results);

/* --- in the function -------------------------------------------------------------------------- */

typedef struct gd_batch_result {
    gd_tensors outputs, targets;
    gd_tensor *weight;      /* of the samples, (N); NULL: all 1 */
    gd_tensor *loss;        /* a scalar; NULL: the training has none */
    gd_tensor *sum, *count; /* loss = sum / count: f64 of rank 0, detached */
} gd_batch_result;

/* Calls the net. The message of a failure says how many tensors of a batch are its inputs, if that
 * may be the mistake. */
gd_status gd_batches_call_net(gd_batches *b, gd_tensors inputs, gd_tensors *outputs);
/* Runs forward and the loss. */
gd_status gd_batches_forward(gd_batches *b, gd_tensors batch, gd_batch_result *result);
/* Adds to the sums and the metrics. */
gd_status gd_batches_add(gd_batches *b, const gd_batch_result *result);
/* Sets sum and count for a loss that is the mean over `samples` samples. */
gd_status gd_batches_mean_of(gd_batch_result *result, int64_t samples);

/* --- outside of it ---------------------------------------------------------------------------- */

/* The number of samples: the first size of the first tensor. */
int64_t gd_batch_samples(gd_tensors batch);
/* The tensors before the targets. */
gd_status gd_batch_inputs(const gd_batches *b, gd_tensors batch, gd_tensors *inputs);
/* The next batch, on the device of the net. False at the end of the epoch, and after a failure
 * (*status). */
bool gd_batches_next(gd_batches *b, gd_tensors *batch, gd_status *status);

/* Sets sums and metrics to 0. */
gd_status gd_batches_reset(gd_batches *b);
/* Reads sums and metrics: `values` has the loss (NaN: none), then the metrics. */
gd_status gd_batches_read(gd_batches *b, double *values);

/* --- data ------------------------------------------------------------------------------------- */

typedef struct gd_batching {
    const char *function; /* "gd_fit", for messages */
    int64_t batch;
    bool shuffle;
    int workers;
    uint64_t seed;
    int targets; /* for tensors and datasets */
} gd_batching;

/* The loader for the data of the program, retained. */
gd_status gd_loader_for(gd_fit_data data, const gd_batching *o, gd_loader **loader);

#endif
