/* test_callback_faults.c - callbacks in which one allocation fails.
 *
 * Each time the status is GD_E_MEMORY, or the callback did without the memory. Nothing leaks, logs
 * stay readable, and the same event, sent again, has its usual effect.
 */
#include <dirent.h>
#include <math.h>

#include "clean_test.h"
#include "core/alloc.h"
#include "fake_run.h"
#include "fault_walk.h"
#include "files.h"
#include "format/bytes.h"
#include "format/event_file.h"
#include "format/file.h"
#include "gradus/gradus.h"
#include "temp.h"

static const char *folder, *path; /* the folder of event files, and the path of the log */

typedef struct trial {
    gd_callback *callback;
    fake_run run;
    gd_optimizer *optimizer;
    double own; /* state of a user-defined callback */
} trial;

typedef struct work {
    const char *name;
    void (*make)(trial *t); /* creates the callback and sends earlier events */
    gd_status (*act)(trial *t);
    bool (*right)(trial *t); /* checks the effect of a successful `act`; NULL: no check */
} work;

static gd_status no_op(gd_event *event, void *self) { return (void)event, (void)self, GD_OK; }

static void make_run(trial *t) {
    gd_module *net = gd_nn_linear(3, 2);
    t->optimizer = gd_optim_sgd(gd_module_parameters(net), .lr = 0.5);
    fake_begin(&t->run, net, t->optimizer);
    t->run.inputs = gd_listed(gd_ones(gd_dims(4, 3)));
    fake_set(&t->run, "loss", 1);
}

static gd_status epoch_end(trial *t) { return fake_call(&t->run, t->callback, GD_ON_EPOCH_END); }
static gd_status fit_begin(trial *t) { return fake_call(&t->run, t->callback, GD_ON_FIT_BEGIN); }
static gd_status fit_end(trial *t) { return fake_call(&t->run, t->callback, GD_ON_FIT_END); }
static gd_status batch_end(trial *t) { return fake_call(&t->run, t->callback, GD_ON_BATCH_END); }
static gd_status save_and_load(trial *t) {
    GD_SCOPE;
    gd_state *state = gd_state_of(t->callback);
    return state ? gd_set_state(t->callback, state) : gd_error_status();
}

/* --- callbacks -------------------------------------------------------------------------------- */

static void make_stopping(trial *t) {
    t->callback = gd_early_stopping(.monitor = "loss");
    fit_begin(t);
}
static void make_stopped(trial *t) {
    make_stopping(t);
    fake_epoch(&t->run, t->callback, 1, "loss", 1);
    fake_epoch(&t->run, t->callback, 1, "loss", 2);
}
static void make_better(trial *t) {
    make_stopped(t);
    fake_set(&t->run, "loss", 0.5);
}
static void make_plateau(trial *t) {
    t->callback = gd_reduce_on_plateau(.monitor = "loss", .patience = 1);
    fit_begin(t);
    fake_epoch(&t->run, t->callback, 1, "loss", 1);
}
static bool is_reduced(trial *t) {
    GD_SCOPE;
    return fabs(gd_item(gd_optimizer_lr(t->optimizer)) - 0.05) < 1e-12;
}
static void make_scheduled(trial *t) { t->callback = gd_scheduled("step size=1 gamma=0.5"); }
static void make_started(trial *t) {
    make_scheduled(t);
    fit_begin(t);
}
static bool is_half(trial *t) {
    GD_SCOPE;
    return gd_item(gd_optimizer_lr(t->optimizer)) == 0.25;
}
static void make_own(trial *t) {
    t->callback = gd_callback_from(&t->own, .epoch_end = no_op, .state_bytes = sizeof t->own);
}
static void make_csv(trial *t) {
    t->callback = gd_csv_log(path);
    t->run.event.step = 0;
    fit_begin(t);
    t->run.event.step = 4;
}
static bool has_row(trial *t) {
    (void)t;
    return file_has_text(path, "epoch,step,loss,lr\n1,4,1,0.5\n");
}
static void make_csv_row(trial *t) {
    make_csv(t);
    epoch_end(t);
}
static void make_board(trial *t) {
    t->callback = gd_tensorboard(folder, .histograms = 1);
    t->run.event.step = 0;
    fit_begin(t);
    t->run.event.step = 1;
}

/* Whether all records of all event files have right checksums. */
static bool can_be_read(trial *t) {
    DIR *d = opendir(folder);
    bool good = d != NULL;
    (void)t;
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[400], *data;
        size_t bytes;
        if (strncmp(e->d_name, "events", 6) != 0) continue;
        snprintf(name, sizeof name, "%s/%s", folder, e->d_name);
        good = good && gd_file_read_all(name, &data, &bytes) == GD_OK;
        if (!good) break;
        const uint8_t *at = (const uint8_t *)data, *end = at + bytes;
        while (good && end - at >= 16) {
            const uint64_t length = gd_get_u64(at);
            good = length <= (uint64_t)(end - at) - 16 &&
                   gd_get_u32(at + 12 + length) == gd_masked_crc32c(at + 12, length);
            if (good) at += 16 + length;
        }
        good = good && at == end;
        gd_free(data);
    }
    if (d) closedir(d);
    return good;
}

static const work works[] = {
    {"early_stopping keeps weights", make_stopping, epoch_end, NULL},
    {"early_stopping keeps weights again", make_better, epoch_end, NULL},
    {"early_stopping restores", make_stopped, fit_end, NULL},
    {"early_stopping is saved and loaded", make_stopped, save_and_load, NULL},
    {"reduce_on_plateau", make_plateau, epoch_end, is_reduced},
    {"reduce_on_plateau is saved and loaded", make_plateau, save_and_load, NULL},
    {"scheduled begins", make_scheduled, fit_begin, NULL},
    {"scheduled steps", make_started, epoch_end, is_half},
    {"scheduled is saved and loaded", make_started, save_and_load, NULL},
    {"a program's own is saved and loaded", make_own, save_and_load, NULL},
    {"csv_log writes a row", make_csv, epoch_end, has_row},
    {"csv_log is resumed", make_csv_row, fit_begin, has_row},
    {"csv_log is saved and loaded", make_csv, save_and_load, NULL},
    {"tensorboard writes values and histograms", make_board, epoch_end, can_be_read},
    {"tensorboard writes the graph", make_board, batch_end, can_be_read},
    {"tensorboard is resumed", make_board, fit_begin, can_be_read},
};

static void run_round(fault_walk *faults, const work *w) {
    GD_SCOPE;
    trial t = {0};
    make_run(&t);
    w->make(&t);
    CHECK_SAYING(t.callback && !gd_failed(), "%s: %s", w->name, gd_error_message());
    fault_begin(faults);
    gd_status status = w->act(&t);
    fault_end(faults);
    CHECK_FAULT(faults, status);
    if (status != GD_OK && w->act != epoch_end) status = w->act(&t); /* an epoch ends once */
    if (status == GD_OK && w->right) CHECK_ROUND(faults, w->right(&t));
    gd_clear_error();
}

TEST(callbacks_survive_any_failed_allocation) {
    folder = temp_new_folder("events");
    path = temp_path("events/log.csv");
    gd_set_num_threads(1); /* so that allocation n is the same in each round */
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        fault_walk faults = {.what = works[i].name};
        while (fault_next(&faults)) {
            run_round(&faults, &works[i]);
            folder_clear(folder);
        }
        CHECK_SAYING(faults.rounds > 1, "%s has no allocations", works[i].name);
    }
    gd_set_num_threads(0);
}

static gd_status make_callback(int i) {
    GD_SCOPE;
    double own = 1;
    gd_callback *c = i == 0   ? gd_early_stopping()
                     : i == 1 ? gd_reduce_on_plateau()
                     : i == 2 ? gd_scheduled("cosine steps=10")
                     : i == 3 ? gd_csv_log("log.csv")
                     : i == 4 ? gd_tensorboard("run")
                     : i == 5 ? gd_callback_from(&own, .epoch_end = no_op)
                              : gd_callback_new("early_stopping", "patience=3");
    return c ? GD_OK : gd_error_status();
}

TEST(creating_callbacks_survives_any_failed_allocation) {
    for (int i = 0; i < 7; i++) {
        for (fault_walk faults = {.what = "making a callback"}; fault_next(&faults);) {
            fault_begin(&faults);
            const gd_status status = make_callback(i);
            fault_end(&faults);
            CHECK_FAULT(&faults, status);
        }
    }
}

TEST_MAIN
