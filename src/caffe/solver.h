/* solver.h - a solver while it trains.
 *
 *   solver.c        opens it, runs gd_fit, and what Caffe does after the last iteration
 *   solver_nets.c   chooses and builds the net to train and the nets to test
 *   solver_rule.c   its optimizer and its schedule
 *   solver_run.c    what happens between iterations, as a callback of gd_fit
 *   solver_test.c   tests
 *   solver_reach.c  parameters that no loss reaches
 *   debug.c         the lines of debug_info
 *   snapshot.c      .caffemodel and .solverstate
 *
 * An iteration is iter_size batches, and a step of gd_fit is a batch. The steps of the run count from the
 * first iteration of the training, also if it continues from a snapshot.
 */
#ifndef GRADUS_CAFFE_SOLVER_H
#define GRADUS_CAFFE_SOLVER_H

#include "caffe/debug.h"
#include "caffe/log.h"
#include "caffe/net.h"
#include "gradus/caffe.h"
#include "gradus/jit.h"
#include "train/fit.h"
#include "train/history.h"

/* A net to test. */
typedef struct gd_caffe_tested {
    gd_caffe_text_net *net;
    int64_t iterations;    /* test_iter */
    gd_jit *jit;           /* retained; NULL: it runs eagerly */
    bool compiled;         /* `jit` and the sums were created */
    gd_caffe_debug *debug; /* NULL: none */
    gd_tensor **sums;      /* of each output over the batches, f64 of rank 1; retained */
    gd_tensor *loss;       /* the same of the loss, of rank 0 */
} gd_caffe_tested;

/* The losses of the last iterations, of which the log has the mean. */
typedef struct gd_caffe_losses {
    int64_t *iteration; /* (average_loss): -1: none */
    double *value;
} gd_caffe_losses;

typedef struct gd_caffe_solver {
    gd_pb_doc *doc;
    const gd_pb *message;
    const char *path;
    const gd_caffe_train_options *options;
    gd_caffe_log log;
    gd_device *device;

    gd_pb_doc **net_docs; /* of the files that the solver names */
    const char **net_paths;
    int n_net_docs, net_docs_room, net_paths_room;
    gd_caffe_text_net *net;
    gd_caffe_tested *tests;
    int n_tests;
    gd_optimizer *optimizer; /* in the scope of the call, as the schedule */
    gd_schedule *schedule;

    /* fields of the message */
    int64_t max_iter, iter_size, display, average_loss, test_interval, snapshot, seed;
    bool test_compute_loss, debug_info;
    char *prefix; /* of snapshots */

    /* the run */
    int64_t start, iter, end; /* iterations: before the run, so far, and at which it ends */
    int64_t tested;           /* the iteration of the latest tests; -1: none */
    gd_tensor *loss_sum;      /* of the batches of an iteration: f32 of rank 0 */
    gd_tensor **shown;        /* each output of the last batch; NULL: the log has none */
    gd_tensor **before;       /* each parameter before the last step, for snapshot_diff; or NULL */
    gd_caffe_losses losses;
    bool *unreached;  /* which parameters no loss reaches; NULL: they do not decay */
    gd_event *event;  /* of the callback that runs; NULL: the run has ended */
    double displayed; /* when the latest line with the loss was written */
    int64_t displayed_at;
    int snapshot_requests; /* that were seen */
    gd_caffe_debug *debug; /* of the net to train; NULL: none */
    bool debugs;           /* this iteration has lines of debug_info */
} gd_caffe_solver;

/* --- nets (solver_nets.c) --------------------------------------------------------------------- */

gd_status gd_caffe_solver_open_nets(gd_caffe_solver *s);
void gd_caffe_solver_close_nets(gd_caffe_solver *s);

/* --- the run (solver_run.c) ------------------------------------------------------------------- */

/* Creates what the run keeps; the callback for gd_fit; the loss of a batch (gd_loss_fn). */
gd_status gd_caffe_run_open(gd_caffe_solver *s);
void gd_caffe_run_close(gd_caffe_solver *s);
gd_callback *gd_caffe_run_callback(gd_caffe_solver *s);
gd_tensor *gd_caffe_run_loss(gd_tensors outputs, gd_tensors targets, void *solver);

/* Notes the loss of an iteration, and the mean of the last ones. NaN: there are none. */
void gd_caffe_note_loss(gd_caffe_solver *s, int64_t iteration, double loss);
double gd_caffe_mean_loss(const gd_caffe_solver *s);

/* --- parameters that no loss reaches (solver_reach.c) ----------------------------------------- */

gd_status gd_caffe_find_unreached(gd_caffe_solver *s);
/* Adds 0 to the loss in a way that gives them gradients. */
gd_tensor *gd_caffe_reach_all(const gd_caffe_solver *s, gd_tensor *loss);

/* --- tests (solver_test.c) -------------------------------------------------------------------- */

/* Tests all nets. Their results go to the log and to the last row of the history, if there is one. */
gd_status gd_caffe_test_all(gd_caffe_solver *s, gd_history *history);
void gd_caffe_test_close(gd_caffe_tested *t);
/* Whether Caffe would test before this iteration. */
bool gd_caffe_test_is_due(const gd_caffe_solver *s, int64_t iteration);

/* --- snapshots (snapshot.c) ------------------------------------------------------------------- */

/* Writes PREFIX_iter_N.caffemodel and .solverstate. */
gd_status gd_caffe_snapshot_write(gd_caffe_solver *s);
/* Fails if the folder of snapshots cannot be written. */
gd_status gd_caffe_snapshot_check(const gd_caffe_solver *s);
/* Continues from a .solverstate: weights, state of the optimizer, and iteration. */
gd_status gd_caffe_snapshot_restore(gd_caffe_solver *s, const char *path);

#endif
