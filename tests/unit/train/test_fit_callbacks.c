/* test_fit_callbacks.c - the library's callbacks in runs of gd_fit that stop, resume, or get
 * NaN. */

#include "clean_test.h"
#include "fit_things.h"
#include "temp.h"

/* Ends the run after a step, as Ctrl-C does. */
static gd_status stop_at(gd_event *event, void *self) {
    if (event->step == *(const int64_t *)self) gd_fit_interrupt();
    return GD_OK;
}

/* The text of a log without its last column, seconds. */
static const char *read_log(const char *path) {
    static char texts[2][20000];
    static int next;
    char *text = texts[next++ % 2], line[1000];
    FILE *file = fopen(path, "r");
    *text = 0;
    while (file && fgets(line, sizeof line, file)) {
        char *last = strrchr(line, ',');
        if (last) strcpy(last, "\n");
        if (strlen(text) + strlen(line) + 1 < sizeof texts[0]) strcat(text, line);
    }
    if (file) fclose(file);
    return text;
}

/* Trains 6 epochs of 7 batches, and stops after `steps` steps; 0: at the end. */
static gd_module *train_with_callbacks(const char *where, int64_t steps, const char *schedule,
                                       bool per_step) {
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_dropout_net();
    gd_seed(11);
    gd_compile(net, .optimizer = "adam lr=0.05", .loss = "cross_entropy",
               .metrics = "accuracy, f1, top_k k=2");
    gd_callback *rate = schedule ? gd_scheduled(schedule, .every = per_step ? GD_STEP : GD_EPOCH)
                                 : gd_reduce_on_plateau(.patience = 1, .factor = 0.5);
    gd_history *h =
        gd_fit(net, gd_list(x, y), .epochs = 6, .batch = 7, .validation_split = 0.2,
               .resume = temp_path("%s/states", where), .seed = 5,
               .callbacks = gd_callbacks(
                   gd_callback_from(&steps, .batch_end = stop_at), rate,
                   gd_early_stopping(.patience = 100),
                   gd_csv_log(temp_path("%s/log.csv", where), .every = 3),
                   gd_checkpoint(temp_path("%s/states", where), .every_steps = 5),
                   gd_tensorboard(temp_path("%s/board", where), .every = 4, .histograms = 2)),
               QUIET);
    CHECK_SAYING(h != NULL, "%s", gd_error_message());
    return net;
}

/* The run stops inside an epoch, at the end of an epoch, or twice. Resumed, it gives the same
 * weights and the same log as an uninterrupted run. */
CLEAN_TEST(a_resumed_run_has_the_same_weights_and_the_same_log) {
    static const struct {
        const char *schedule;
        bool per_step;
        int64_t ends[3];
    } cases[] = {
        {"exponential gamma=0.7", false, {17, 0, 0}},
        {"cosine steps=40 warmup=5", true, {14, 0, 0}},
        {NULL, false, {21, 0, 0}},
        {NULL, false, {3, 25, 0}},
        {NULL, false, {31, 0, 0}}, /* an epoch after the best one */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GD_SCOPE;
        temp_new_folder("once");
        temp_new_folder("parts");
        gd_module *once = train_with_callbacks("once", 0, cases[i].schedule, cases[i].per_step),
                  *parts = NULL;
        for (int k = 0; k < 3 && cases[i].ends[k]; k++)
            train_with_callbacks("parts", cases[i].ends[k], cases[i].schedule, cases[i].per_step);
        parts = train_with_callbacks("parts", 0, cases[i].schedule, cases[i].per_step);
        CHECK_SAYING(largest_difference(once, parts) == 0, "case %zu: %g", i,
                     largest_difference(once, parts));
        const char *a = read_log(temp_path("once/log.csv")),
                   *b = read_log(temp_path("parts/log.csv"));
        CHECK_SAYING(strcmp(a, b) == 0, "case %zu:\n%s\n%s", i, a, b);
        CHECK(strncmp(a, "epoch,step,loss,accuracy,f1,top_2,", 34) == 0 && strlen(a) > 500);
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    }
}

CLEAN_TEST(early_stopping_ends_a_run_with_the_best_weights) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "sgd lr=2 momentum=0.9",
               .loss = "cross_entropy"); /* a learning rate at which the loss increases */
    gd_history *h = gd_fit(net, gd_list(x, y), .epochs = 100, .validation_tensors = gd_list(x, y),
                           .callbacks = gd_callbacks(gd_early_stopping(.patience = 3)), QUIET);
    const int64_t rows = gd_history_rows(h);
    CHECK(rows > 3 && rows < 100);
    double best = INFINITY;
    for (int64_t i = 0; i < rows; i++) best = fmin(best, gd_history_value(h, "val_loss", i));
    CHECK(gd_history_value(h, "val_loss", rows - 4) == best &&
          gd_history_last(h, "val_loss") > best);
    CHECK(gd_history_last(gd_evaluate(net, gd_list(x, y)), "loss") == best);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(stop_on_nan_names_the_layer) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "sgd lr=1e30", .loss = "cross_entropy");
    CHECK(!gd_fit(net, gd_list(x, y), .epochs = 5, .callbacks = gd_callbacks(gd_stop_on_nan()),
                  QUIET));
    CHECK_SAYING(gd_failed() && says("linear"), "%s", gd_error_message());
}

CLEAN_TEST(an_unknown_metric_name_ends_the_run_with_a_failure) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .loss = "cross_entropy");
    CHECK(!gd_fit(net, gd_list(x, y), .callbacks = gd_callbacks(gd_early_stopping()), QUIET));
    CHECK_SAYING(says("early_stopping: there is no value 'val_loss'; there are loss, lr, seconds"),
                 "%s", gd_error_message());
}

TEST_MAIN
