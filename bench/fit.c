/* fit.c - the overhead of gd_fit compared with a hand-written loop, for a small network, where it
 * is largest. */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "gradus/gradus.h"

enum {
    BATCH = 32,
    FEATURES = 64,
    HIDDEN = 64,
    CLASSES = 10,
    SAMPLES = 50 * BATCH,
    WARM = 100,
    STEPS = 1000,
    ROUNDS = 15
};

typedef struct rival {
    gd_dataset *data;
    gd_module *net;
    gd_optimizer *adam;
    gd_tensor *sum;
    gd_metric *accuracy; /* NULL: none */
    double began, took;  /* nanoseconds of STEPS steps */
} rival;

static gd_module *make_net(void) {
    return gd_nn_sequential(gd_nn_linear(FEATURES, HIDDEN), gd_nn_relu(),
                            gd_nn_linear(HIDDEN, HIDDEN), gd_nn_relu(),
                            gd_nn_linear(HIDDEN, CLASSES));
}

static gd_tensors train_batch(gd_tensors in, void *user) {
    rival *r = user;
    gd_tensor *y = gd_module_forward(r->net, in.at[0]), *loss = gd_cross_entropy(y, in.at[1]);
    gd_backward(loss);
    gd_optimizer_step(r->adam);
    {
        GD_NO_GRAD;
        gd_add_(r->sum, gd_cast(gd_detach(loss), GD_F64));
        if (r->accuracy) gd_metric_update(r->accuracy, y, in.at[1]);
    }
    gd_optimizer_zero_grad(r->adam);
    return (gd_tensors){NULL, 0};
}

static void run_hand_written_loop(rival *r, bool metric) {
    GD_SCOPE;
    r->net = make_net();
    r->adam = gd_optim_adam(gd_module_parameters(r->net));
    r->sum = gd_zeros(gd_dims(), .dtype = GD_F64);
    r->accuracy = metric ? gd_metric_accuracy() : NULL;
    gd_loader *loader = gd_loader_new(r->data, .batch = BATCH, .shuffle = true);
    gd_jit *jit = gd_jit_new(train_batch, r);
    for (int n = 0; n < WARM + STEPS;) {
        for (gd_tensors batch; n < WARM + STEPS && gd_loader_next(loader, &batch); n++) {
            GD_SCOPE;
            if (n == WARM) r->began = bench_now();
            gd_jit_call(jit, batch);
        }
    }
    r->took = bench_now() - r->began;
}

static gd_status record_time(gd_event *event, void *self) {
    rival *r = self;
    if (event->step == WARM) r->began = bench_now();
    if (event->step == WARM + STEPS) r->took = bench_now() - r->began;
    return GD_OK;
}

static void run_fit(rival *r, bool metric) {
    GD_SCOPE;
    r->net = make_net();
    gd_compile(r->net, .optimizer = "adam", .loss = "cross_entropy",
               .metrics = metric ? "accuracy" : NULL);
    gd_loader *loader = gd_loader_new(r->data, .batch = BATCH, .shuffle = true);
    gd_fit(r->net, loader, .max_steps = WARM + STEPS, .progress = GD_PROGRESS_NONE,
           .callbacks = gd_callbacks(gd_callback_from(r, .batch_end = record_time)));
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare_loops(bool metric) {
    GD_SCOPE;
    rival r = {.data = gd_dataset_tensors(gd_randn(gd_dims(SAMPLES, FEATURES)),
                                          gd_randint(gd_dims(SAMPLES), 0, CLASSES))};
    double ratios[ROUNDS], hand[ROUNDS], fit[ROUNDS];
    for (int i = -1; i < ROUNDS; i++) { /* the first round compiles the kernels */
        run_hand_written_loop(&r, metric);
        const double a = r.took / STEPS;
        run_fit(&r, metric);
        const double b = r.took / STEPS;
        if (i >= 0) hand[i] = a, fit[i] = b, ratios[i] = b / a;
    }
    if (gd_failed()) printf("%s\n", gd_error_message());
    qsort(hand, ROUNDS, sizeof *hand, compare_doubles);
    qsort(fit, ROUNDS, sizeof *fit, compare_doubles);
    qsort(ratios, ROUNDS, sizeof *ratios, compare_doubles);
    const char *note = metric ? "with accuracy" : "";
    bench_report(metric ? "fit.metric.hand" : "fit.hand", hand[ROUNDS / 2] / 1e3,
                 (hand[3 * ROUNDS / 4] - hand[ROUNDS / 4]) / 1e3, "us", note);
    bench_report(metric ? "fit.metric.fit" : "fit.fit", fit[ROUNDS / 2] / 1e3,
                 (fit[3 * ROUNDS / 4] - fit[ROUNDS / 4]) / 1e3, "us", note);
    bench_report(metric ? "fit.metric.ratio" : "fit.ratio", ratios[ROUNDS / 2],
                 ratios[3 * ROUNDS / 4] - ratios[ROUNDS / 4], "x", "gd_fit / a jit by hand");
}

static void bench_fit_plain(void) { compare_loops(false); }
static void bench_fit_metric(void) { compare_loops(true); }

const bench_entry bench_fit[] = {
    {"fit", bench_fit_plain}, {"fit_metric", bench_fit_metric}, {NULL, NULL}};
