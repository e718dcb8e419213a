/* train.h - training in three lines, the Keras way.
 *
 *     gd_compile(net, .optimizer = "adamw lr=0.001", .loss = "cross_entropy", .metrics =
 *     "accuracy"); gd_history *h = gd_fit(net, train, .epochs = 5, .validation = test);
 *     gd_history_plot(h, "curve.svg");
 *
 * gd_compile sets optimizer, loss and metrics of a net; gd_fit trains it. Each batch is one run of
 * a plan: forward, backward, the optimizer step, and the sums of loss and metrics. A net whose
 * forward function reads values (gd_item in an `if`) cannot run as a plan: it trains eagerly, and
 * the log says so.
 *
 * Resuming: with gd_checkpoint("run/") among the callbacks and .resume = "run/", a program that was
 * killed and is started again continues from its last checkpoint, and ends with the same bits as a
 * program that was not killed.
 */
#ifndef GRADUS_TRAIN_H
#define GRADUS_TRAIN_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header /* as in options.h */
#endif

#include "gradus/callback.h"
#include "gradus/callbacks.h"
#include "gradus/loader.h"
#include "gradus/metric.h"
#include "gradus/metrics.h"
#include "gradus/module.h"
#include "gradus/optim.h"
#include "gradus/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- compile ---------------------------------------------------------------------------------- */

/* The loss of a batch, a scalar to be minimized. */
typedef gd_tensor *(*gd_loss_fn)(gd_tensors outputs, gd_tensors targets, void *user);

typedef struct gd_metric_list {
    gd_metric *const *at;
    int64_t count;
} gd_metric_list;
#ifdef __cplusplus
}
template <int count> struct gd_metrics_of_ {
    gd_metric *at[count];
    operator gd_metric_list() const { return gd_metric_list{at, count}; }
};
template <typename... Items> inline gd_metrics_of_<sizeof...(Items)> gd_metrics(Items... items) {
    return gd_metrics_of_<sizeof...(Items)>{{items...}};
}
extern "C" {
#else
#define gd_metrics(...)                                          \
    (__extension__(gd_metric_list){(gd_metric *[]){__VA_ARGS__}, \
                                   sizeof((gd_metric *[]){__VA_ARGS__}) / sizeof(gd_metric *)})
#endif

typedef struct gd_compile_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    /* An optimizer's record with options, or an optimizer of parameters of this net. */
    const char *optimizer GD_DEFAULT_("adam"); /* "adamw lr=0.001 weight_decay=0.1"; NULL: none */
    gd_optimizer *optimizer_object GD_DEFAULT_(nullptr);
    /* A schedule's record with options, or a schedule of that optimizer. It takes a step after each
     * optimizer step. A schedule with a length (cosine, one_cycle, linear, polynomial) whose `steps`
     * are not given is as long as the first gd_fit, with its warm-up. Later calls of gd_fit train
     * with its last rate, and say so; gd_compile starts anew. */
    const char *schedule GD_DEFAULT_(nullptr); /* "cosine warmup=100" */
    gd_schedule *schedule_object GD_DEFAULT_(nullptr);
    /* The record of a loss layer ("_loss" may be left out) with options, or a function. */
    const char *loss GD_DEFAULT_(nullptr); /* "cross_entropy label_smoothing=0.1" */
    /* Or a module that returns the loss: a layer, gd_nn_mse_loss(), or one of the program, which gets
     * all outputs and then the targets. It must not be a part of the net. */
    gd_module *loss_module GD_DEFAULT_(nullptr);
    gd_loss_fn loss_function GD_DEFAULT_(nullptr);
    void *loss_user GD_DEFAULT_(nullptr);
    /* Records of metrics with options, separated by commas, and then metric objects. */
    const char *metrics GD_DEFAULT_(nullptr); /* "accuracy, top_k k=5" */
    gd_metric_list metric_objects GD_DEFAULT_({nullptr, GD_LIST_NOT_GIVEN_});
    /* The dtype of matrix products and the like: "f32", "bf16", "f16" (autocast.h). With f16 the
     * loss is scaled (loss_scale.h), unless gd_fit has a .step. */
    const char *precision GD_DEFAULT_("f32");
    int accumulate GD_DEFAULT_(1);     /* batches whose gradients are accumulated for one step */
    double clip_norm GD_DEFAULT_(0);   /* max_norm of gd_clip_grad_norm; 0: no clipping */
    double clip_eps GD_DEFAULT_(1e-6); /* eps of gd_clip_grad_norm */
    double clip_value GD_DEFAULT_(0);  /* value of gd_clip_grad_value; 0: no clipping */
} GD_GIVEN_BY_NAME_ gd_compile_options;
#define GD_COMPILE_OPTIONS_(...)                                                      \
    GD_OPTIONS_(gd_compile_options,                                                   \
                (.optimizer = "adam", .optimizer_object = NULL, .schedule = NULL,     \
                 .schedule_object = NULL, .loss = NULL, .loss_module = NULL,          \
                 .loss_function = NULL, .loss_user = NULL, .metrics = NULL,           \
                 .metric_objects = {NULL, GD_LIST_NOT_GIVEN_}, .precision = "f32",    \
                 .accumulate = 1, .clip_norm = 0, .clip_eps = 1e-6, .clip_value = 0), \
                __VA_ARGS__)

/* The net holds the objects. Compiling it again starts with new optimizer state. */
#define gd_compile(net, ...) \
    GD_WITH_OPTIONS_(gd_compile_at(GD_HERE, net, GD_COMPILE_OPTIONS_(__VA_ARGS__)))
GD_API gd_status gd_compile_at(const char *site, gd_module *net, const gd_compile_options *options);

/* The optimizer and the schedule of a compiled net, or NULL. If the net has unknown sizes (GD_ANY),
 * the optimizer is created with the first batch of gd_fit. */
GD_API gd_optimizer *gd_compiled_optimizer(gd_module *net);
GD_API gd_schedule *gd_compiled_schedule(gd_module *net);
/* Metric number `index`, from 0. It holds the sums of the latest gd_evaluate or validation;
 * training uses separate copies. */
GD_API gd_metric *gd_compiled_metric(gd_module *net, int index);

/* --- fit -------------------------------------------------------------------------------------- */

/* Data: a loader, a dataset, or a list of tensors with the same first size, the inputs and then the
 * target: gd_fit(net, gd_list(x, y)). */
typedef struct gd_fit_data {
    gd_loader *loader;
    gd_dataset *dataset;
    gd_tensors tensors;
} gd_fit_data;
#ifdef __cplusplus
}
inline gd_fit_data gd_fit_data_(gd_loader *loader) { return {loader, nullptr, {nullptr, 0}}; }
inline gd_fit_data gd_fit_data_(gd_dataset *dataset) { return {nullptr, dataset, {nullptr, 0}}; }
inline gd_fit_data gd_fit_data_(gd_tensors tensors) { return {nullptr, nullptr, tensors}; }
#define GD_FIT_DATA_(data) gd_fit_data_(data)
extern "C" {
#else
static inline gd_fit_data gd_fit_loader_(gd_loader *loader) {
    return (gd_fit_data){.loader = loader};
}
static inline gd_fit_data gd_fit_dataset_(gd_dataset *set) { return (gd_fit_data){.dataset = set}; }
static inline gd_fit_data gd_fit_tensors_(gd_tensors list) {
    return (gd_fit_data){.tensors = list};
}
#define GD_FIT_DATA_(data)                  \
    _Generic((data), gd_loader *            \
             : gd_fit_loader_, gd_dataset * \
             : gd_fit_dataset_, gd_tensors  \
             : gd_fit_tensors_)(data)
#endif

/* A user-defined training step: computes the loss, calls gd_backward, and returns the loss. Then
 * the compiled optimizer takes its step; if no parameter has a gradient, that is a failure. A
 * function that uses its own optimizers (a GAN) needs .optimizer = NULL. It is traced like the
 * function of a gd_jit. */
typedef gd_tensor *(*gd_step_fn)(gd_module *net, gd_tensors batch, void *user);

typedef enum gd_progress {
    GD_PROGRESS_AUTO, /* a bar on a terminal that can redraw it, otherwise a line for each epoch */
    GD_PROGRESS_BAR,
    GD_PROGRESS_LINES,
    GD_PROGRESS_NONE,
} gd_progress;

/* Receives the progress instead of stderr, for windows, notebooks and other languages. It must live
 * until the end of the run. */
typedef struct gd_progress_receiver {
    /* Gets what stderr would get, on the thread that called gd_fit or gd_evaluate, while the library
     * holds no lock. Texts follow each other as in a terminal: a bar is "\r", its text and "\x1b[K"
     * (clears the rest of the line), and the next text replaces it. `final`: the text ends with
     * "\n", and what it shows stays. If it returns a failure (gd_raise), the run ends with it. */
    gd_status (*write)(const char *text, bool final, void *user);
    void *user;
    bool redraws; /* "\r" returns to the beginning of the line: GD_PROGRESS_AUTO shows a bar */
    bool colour;  /* shows colours by ANSI escape codes */
    bool utf8;    /* shows UTF-8; otherwise bars are ASCII */
    int width;    /* columns of a line, read for each bar, so that it may change; 0: 80 */
} gd_progress_receiver;

typedef struct gd_fit_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t epochs GD_DEFAULT_(0);    /* 0: one, or the number that max_steps needs */
    int64_t max_steps GD_DEFAULT_(0); /* ends after this many batches in total; 0: no limit */
    /* An epoch of the run has this many batches, whatever the data have: they run on across the end
     * of the loader's epoch. So validation, rows of the history and callbacks come every
     * .steps_per_epoch batches. 0: an epoch of the loader */
    int64_t steps_per_epoch GD_DEFAULT_(0);
    const void *validation GD_DEFAULT_(nullptr); /* a gd_loader or a gd_dataset */
    gd_tensors validation_tensors GD_DEFAULT_({nullptr, GD_LIST_NOT_GIVEN_});
    /* the fraction of tensors or of a dataset that is used for validation instead of training */
    double validation_split GD_DEFAULT_(0);
    gd_tensor *class_weights GD_DEFAULT_(nullptr); /* f32 of rank 1: the weight of each class */
    gd_callback_list callbacks GD_DEFAULT_({nullptr, GD_LIST_NOT_GIVEN_});
    /* continues from the newest intact checkpoint in this folder, if there is one */
    const char *resume GD_DEFAULT_(nullptr);
    gd_step_fn step GD_DEFAULT_(nullptr);
    void *step_user GD_DEFAULT_(nullptr);
    /* options of the loader for tensors and datasets: */
    int64_t batch GD_DEFAULT_(32);
    bool shuffle GD_DEFAULT_(true);
    int workers GD_DEFAULT_(0);
    /* of the order of the samples, and if it is not 0 of all random numbers of the run */
    uint64_t seed GD_DEFAULT_(0);
    gd_progress progress GD_DEFAULT_(GD_PROGRESS_AUTO);
    const gd_progress_receiver *progress_receiver GD_DEFAULT_(nullptr); /* NULL: stderr */
    /* Ctrl-C ends the run after the current batch; the previous handler is restored at the end */
    bool interrupt GD_DEFAULT_(true);
    bool jit GD_DEFAULT_(true); /* false: trains eagerly */
} GD_GIVEN_BY_NAME_ gd_fit_options;
#define GD_FIT_OPTIONS_(...)                                                                     \
    GD_OPTIONS_(gd_fit_options,                                                                  \
                (.epochs = 0, .max_steps = 0, .steps_per_epoch = 0, .validation = NULL,          \
                 .validation_tensors = {NULL, GD_LIST_NOT_GIVEN_}, .validation_split = 0,        \
                 .class_weights = NULL, .callbacks = {NULL, GD_LIST_NOT_GIVEN_}, .resume = NULL, \
                 .step = NULL, .step_user = NULL, .batch = 32, .shuffle = true, .workers = 0,    \
                 .seed = 0, .progress = GD_PROGRESS_AUTO, .progress_receiver = NULL,             \
                 .interrupt = true, .jit = true),                                                \
                __VA_ARGS__)

/* Trains and returns the history, one row for each epoch. While a failure is recorded, it does
 * nothing. If it fails, it returns NULL; the net keeps the state after the last batch.
 *
 * An epoch that Ctrl-C or a callback has ended early has a row without validation; an epoch that
 * .max_steps has ended is validated. Modes of modules are restored at the end. A net has one gd_fit
 * at a time: in a callback of its run, another one fails.
 *
 * A run draws its random numbers (dropout, gd_randn in a .step or a callback, weights of layers
 * that it builds) from a generator of its own, whose state is part of its checkpoints. So several
 * threads can train, and each resumes to the same bits. Without .seed it continues the generator of
 * the process (random.h), which continues after the run; runs that begin at the same state draw
 * the same numbers. With .seed the numbers depend on .seed alone.
 *
 * docs/guide/training.md has the details. */
#define gd_fit(net, data, ...) \
    GD_WITH_OPTIONS_(gd_fit_at(GD_HERE, net, GD_FIT_DATA_(data), GD_FIT_OPTIONS_(__VA_ARGS__)))
GD_API gd_history *gd_fit_at(const char *site, gd_module *net, gd_fit_data data,
                             const gd_fit_options *options);

/* Ends the gd_fit that is running in any thread after its current batch, as Ctrl-C does. Safe in a
 * signal handler. */
GD_API void gd_fit_interrupt(void);

typedef struct gd_evaluate_options {
    gd_options_are_given_by_name by_name_ GD_DEFAULT_({});
    int64_t batch GD_DEFAULT_(32); /* for tensors and datasets */
    int workers GD_DEFAULT_(0);
    bool jit GD_DEFAULT_(true);
    gd_progress progress GD_DEFAULT_(GD_PROGRESS_NONE);                 /* gd_predict shows none */
    const gd_progress_receiver *progress_receiver GD_DEFAULT_(nullptr); /* NULL: stderr */
} GD_GIVEN_BY_NAME_ gd_evaluate_options;
#define GD_EVALUATE_OPTIONS_(...)                                                      \
    GD_OPTIONS_(gd_evaluate_options,                                                   \
                (.batch = 32, .workers = 0, .jit = true, .progress = GD_PROGRESS_NONE, \
                 .progress_receiver = NULL),                                           \
                __VA_ARGS__)

/* Loss and metrics on data, in eval mode and without gradients: a history of one row, "loss" first.
 * The net's mode is restored. */
#define gd_evaluate(net, data, ...) \
    GD_WITH_OPTIONS_(               \
        gd_evaluate_at(GD_HERE, net, GD_FIT_DATA_(data), GD_EVALUATE_OPTIONS_(__VA_ARGS__)))
GD_API gd_history *gd_evaluate_at(const char *site, gd_module *net, gd_fit_data data,
                                  const gd_evaluate_options *options);

/* The first output of the net for all samples, in eval mode. A list of tensors or a dataset has
 * only inputs here (gd_predict(net, gd_list(x))); the targets of a loader are ignored. */
#define gd_predict(net, data, ...) \
    GD_WITH_OPTIONS_(              \
        gd_predict_at(GD_HERE, net, GD_FIT_DATA_(data), GD_EVALUATE_OPTIONS_(__VA_ARGS__)))
GD_API gd_tensor *gd_predict_at(const char *site, gd_module *net, gd_fit_data data,
                                const gd_evaluate_options *options);

/* --- history ---------------------------------------------------------------------------------- */

/* A table: a row for each epoch, and columns "loss", the metrics, "val_loss", "val_" and the
 * metrics, "lr", "seconds". It has state (state.h). */
GD_API int64_t gd_history_rows(const gd_history *history);
GD_API int64_t gd_history_columns(const gd_history *history);
GD_API const char *gd_history_name(const gd_history *history, int64_t column);
/* NaN if there is no such column or row. Row -1 is the last one. */
GD_API double gd_history_value(const gd_history *history, const char *name, int64_t row);
#define gd_history_last(history, name) gd_history_value(history, name, -1)

/* The reason why the run ended early, or NULL; and whether it was interrupted. */
GD_API const char *gd_history_stopped(const gd_history *history);
GD_API bool gd_history_interrupted(const gd_history *history);

/* Writes the curves as an SVG image: losses, and below them metrics between 0 and 1. */
#define gd_history_plot(...) gd_history_plot_at(GD_HERE, __VA_ARGS__)
GD_API gd_status gd_history_plot_at(const char *site, const gd_history *history, const char *path);

#ifdef __cplusplus
}
#endif
#endif
