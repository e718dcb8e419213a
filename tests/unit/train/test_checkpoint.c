/* test_checkpoint.c - the checkpoint callback: when it saves, which files it keeps, and
 * resuming. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clean_test.h"
#include "files.h"
#include "gradus/gradus.h"
#include "capture.h"
#include "temp.h"

static const char *folder;

static void begin_test(void) {
    folder = temp_new_folder("checkpoints");
    capture_log(GD_LOG_INFO);
}

static bool is_there(const char *name) { return file_exists(temp_path("checkpoints/%s", name)); }

/* --- runs ------------------------------------------------------------------------------------- */

/* A net for fit_net, which trains 4 batches per epoch. */
static gd_module *make_net(void) {
    gd_seed(1);
    gd_module *net =
        gd_nn_sequential(gd_nn_linear(3, 4), gd_nn_dropout(.p = 0.2), gd_nn_linear(4, 1));
    gd_compile(net, .optimizer = "adam lr=0.01", .loss = "mse");
    return net;
}

typedef struct run {
    int64_t epochs, stop_at;
    bool resumes, validates;
    gd_callback *checkpoint, *more;
} run;

static gd_status stop_at(gd_event *event, void *self) {
    if (event->step == *(int64_t *)self) gd_fit_interrupt();
    return GD_OK;
}

static gd_history *fit_net(gd_module *net, run r) {
    gd_random random = gd_random_of(1, 2);
    float x[16 * 3], y[16];
    for (int i = 0; i < 48; i++) x[i] = (float)gd_random_normal(&random);
    for (int i = 0; i < 16; i++) y[i] = x[3 * i] - x[3 * i + 1];
    gd_tensor *inputs = gd_from_array(gd_dims(16, 3), GD_F32, x),
              *targets = gd_from_array(gd_dims(16, 1), GD_F32, y);
    gd_callback *stop = gd_callback_from(&r.stop_at, .batch_end = stop_at, .name = "stop");
    gd_tensor *const both[] = {inputs, targets};
    const gd_tensors validation = {both, r.validates ? 2 : 0};
    gd_callback *list[3] = {r.checkpoint, stop, r.more};
    return gd_fit(net, gd_list(inputs, targets), .epochs = r.epochs, .batch = 4,
                  .progress = GD_PROGRESS_NONE, .resume = r.resumes ? folder : NULL,
                  .validation_tensors = validation,
                  .callbacks = ((gd_callback_list){list, r.more ? 3 : 2}));
}

static double sum_of(gd_module *net) {
    double sum = 0;
    gd_tensors parameters = gd_module_parameters(net);
    for (int64_t i = 0; i < parameters.count; i++)
        sum +=
            gd_item(gd_sum(gd_mul(gd_cast(parameters.at[i], GD_F64), gd_scalar((double)(i + 1)))));
    return sum;
}

/* --- when ------------------------------------------------------------------------------------- */

CLEAN_TEST(checkpoints_are_saved_after_each_epoch_and_three_are_kept) {
    GD_SCOPE;
    begin_test();
    gd_history *h = fit_net(make_net(), (run){.epochs = 5, .checkpoint = gd_checkpoint(folder)});
    CHECK_SAYING(h && gd_history_rows(h) == 5, "%s", gd_error_message());
    CHECK_SAYING(folder_count(folder) == 3, "%d files", folder_count(folder));
    CHECK(is_there("step-00000012.safetensors") && is_there("step-00000016.safetensors") &&
          is_there("step-00000020.safetensors"));
    end_log_capture();
}

CLEAN_TEST(the_next_save_removes_the_files_of_a_killed_process) {
    GD_SCOPE;
    begin_test();
    temp_write_text("checkpoints/step-00000099.safetensors.tmp-1", "");
    CHECK(is_there("step-00000099.safetensors.tmp-1"));
    CHECK(fit_net(make_net(), (run){.epochs = 1, .checkpoint = gd_checkpoint(folder)}));
    CHECK(!is_there("step-00000099.safetensors.tmp-1") && folder_count(folder) == 1);
    end_log_capture();
}

CLEAN_TEST(checkpoints_are_saved_every_n_steps_and_at_the_end) {
    GD_SCOPE;
    begin_test();
    CHECK(fit_net(make_net(), (run){.epochs = 2,
                                    .checkpoint = gd_checkpoint(folder, .every_steps = 3,
                                                                .every_epochs = 0, .keep = 0)}));
    CHECK_SAYING(folder_count(folder) == 3, "%d files", folder_count(folder));
    CHECK(is_there("step-00000003.safetensors") && is_there("step-00000006.safetensors") &&
          is_there("step-00000008.safetensors"));
    end_log_capture();
}

CLEAN_TEST(checkpoints_are_saved_at_time_intervals) {
    GD_SCOPE;
    begin_test();
    CHECK(fit_net(make_net(), (run){.epochs = 2,
                                    .checkpoint = gd_checkpoint(folder, .every_minutes = 1e-9,
                                                                .every_epochs = 0, .keep = 0)}));
    CHECK_SAYING(folder_count(folder) == 8, "%d files", folder_count(folder));
    folder_clear(folder);
    CHECK(fit_net(make_net(), (run){.epochs = 2,
                                    .checkpoint = gd_checkpoint(folder, .every_minutes = 1e9,
                                                                .every_epochs = 0, .keep = 0)}));
    CHECK_SAYING(folder_count(folder) == 1, "%d files", folder_count(folder));
    end_log_capture();
}

CLEAN_TEST(a_stopped_run_saves_and_resumes_at_that_step) {
    GD_SCOPE;
    begin_test();
    gd_module *complete = make_net();
    CHECK(fit_net(complete, (run){.epochs = 3, .checkpoint = gd_checkpoint(folder)}));
    const double expected = sum_of(complete);
    folder_clear(folder);
    CHECK(
        fit_net(make_net(), (run){.epochs = 3, .stop_at = 6, .checkpoint = gd_checkpoint(folder)}));
    CHECK(is_there("step-00000006.safetensors"));
    captured.text[0] = 0;
    gd_module *net = make_net();
    (void)gd_item(gd_randn(gd_dims())); /* advance the generator, which the resume must restore */
    CHECK(sum_of(net) != expected);
    gd_history *h =
        fit_net(net, (run){.epochs = 3, .resumes = true, .checkpoint = gd_checkpoint(folder)});
    CHECK_SAYING(h && sum_of(net) == expected, "%s", gd_error_message());
    CHECK_SAYING(h && gd_history_rows(h) == 3, "%d", (int)gd_history_rows(h));
    CHECK_SAYING(strstr(captured.text, "resumed from step 6: "), "%s", captured.text);
    end_log_capture();
}

/* Validation samples to read until the run is interrupted; -1: it is not. */
static int64_t reads_left = -1;

static int64_t count_validation(void *self) {
    (void)self;
    return 6;
}
static gd_tensors validation_sample(int64_t index, gd_random *random, void *self) {
    (void)random, (void)self;
    if (reads_left >= 0 && reads_left-- == 0) gd_fit_interrupt();
    return gd_listed(gd_full(gd_dims(3), (double)index), gd_full(gd_dims(1), 1));
}

/* Three epochs of 4 batches and 3 validation batches; early stopping keeps the best weights. */
static gd_history *fit_validated(gd_module *net, int64_t stop) {
    GD_SCOPE;
    gd_random random = gd_random_of(1, 2);
    float x[48], y[16];
    for (int i = 0; i < 48; i++) x[i] = (float)gd_random_normal(&random);
    for (int i = 0; i < 16; i++) y[i] = x[3 * i] - x[3 * i + 1];
    gd_loader *validation = gd_loader_new(
        gd_dataset_from(NULL, .count = count_validation, .get = validation_sample), .batch = 2);
    return gd_keep(gd_fit(
        net,
        gd_list(gd_from_array(gd_dims(16, 3), GD_F32, x), gd_from_array(gd_dims(16, 1), GD_F32, y)),
        .epochs = 3, .batch = 4, .progress = GD_PROGRESS_NONE, .resume = folder,
        .validation = validation,
        .callbacks =
            gd_callbacks(gd_checkpoint(folder, .every_epochs = 0), gd_early_stopping(.patience = 5),
                         gd_callback_from(&stop, .batch_end = stop_at, .name = "stop"))));
}

static double sum_of_history(const gd_history *h) {
    double sum = 1000 * (double)gd_history_rows(h);
    for (int64_t r = 0; r < gd_history_rows(h); r++)
        sum += (double)(r + 1) *
               (gd_history_value(h, "loss", r) + 2 * gd_history_value(h, "val_loss", r));
    return sum;
}

/* Interrupts the run after each batch and at each validation sample. */
CLEAN_TEST(a_run_that_is_interrupted_anywhere_resumes_there) {
    GD_SCOPE;
    begin_test();
    gd_module *net = make_net();
    gd_history *h = fit_validated(net, 0);
    const double expected = sum_of(net), rows = h ? sum_of_history(h) : 0;
    for (int64_t moment = 1; moment <= 12 + 18 && test_failures < 3; moment++) {
        GD_SCOPE;
        folder_clear(folder);
        reads_left = moment > 12 ? moment - 13 : -1;
        CHECK(fit_validated(make_net(), moment <= 12 ? moment : 0));
        CHECK(moment > 12 || strstr(captured.text, "stopped after step"));
        reads_left = -1;
        net = make_net();
        h = fit_validated(net, 0);
        CHECK_SAYING(h && sum_of(net) == expected, "%d: %s", (int)moment, gd_error_message());
        CHECK_SAYING(h && sum_of_history(h) == rows, "%d: the history differs and has %d rows",
                     (int)moment, (int)gd_history_rows(h));
    }
    end_log_capture();
}

CLEAN_TEST(a_complete_run_does_not_train_again) {
    GD_SCOPE;
    begin_test();
    gd_module *net = make_net();
    CHECK(fit_net(net, (run){.epochs = 2, .checkpoint = gd_checkpoint(folder)}));
    const double expected = sum_of(net);
    net = make_net();
    gd_history *h =
        fit_net(net, (run){.epochs = 2, .resumes = true, .checkpoint = gd_checkpoint(folder)});
    CHECK_SAYING(h && sum_of(net) == expected && gd_history_rows(h) == 2, "%s", gd_error_message());
    for (int i = 1; i < 4; i++) /* older checkpoints that a killed process did not remove */
        CHECK(link(temp_path("checkpoints/step-00000004.safetensors"),
                   temp_path("checkpoints/step-%08d.safetensors", i)) == 0);
    CHECK(fit_net(net, (run){.epochs = 2, .resumes = true, .checkpoint = gd_checkpoint(folder)}));
    CHECK(folder_count(folder) == 3);
    h = fit_net(net, (run){.epochs = 3,
                           .resumes = true,
                           .checkpoint = gd_checkpoint(folder)}); /* more epochs continue the run */
    CHECK(h && sum_of(net) != expected && gd_history_rows(h) == 3);
    end_log_capture();
}

/* --- the best checkpoint ---------------------------------------------------------------------- */

CLEAN_TEST(the_best_checkpoint_is_an_ordinary_weight_file) {
    GD_SCOPE;
    begin_test();
    gd_module *net = make_net();
    gd_history *h =
        fit_net(net, (run){.epochs = 4,
                           .validates = true,
                           .checkpoint = gd_checkpoint(folder, .best = "val_loss", .keep = 0)});
    CHECK_SAYING(h, "%s", gd_error_message());
    int best = 0;
    for (int i = 1; i < 4; i++)
        if (gd_history_value(h, "val_loss", i) < gd_history_value(h, "val_loss", best)) best = i;
    const char *best_path = temp_path("checkpoints/best.safetensors"),
               *step_path = temp_path("checkpoints/step-%08d.safetensors", 4 * (best + 1));
    gd_module *a = make_net(), *b = make_net();
    CHECK_SAYING(gd_load_state(best_path, gd_part("net", a)) == GD_OK &&
                     gd_load_state(step_path, gd_part("net", b)) == GD_OK,
                 "%s", gd_error_message());
    CHECK(sum_of(a) == sum_of(b));
    end_log_capture();
}

/* If the largest loss is the best, the first epoch wins. */
CLEAN_TEST(the_mode_selects_the_best_checkpoint_which_survives_a_resume) {
    GD_SCOPE;
    begin_test();
    struct stat first, later;
    const char *path = temp_path("checkpoints/best.safetensors");
    for (int round = 0; round < 2; round++) {
        gd_history *h =
            fit_net(make_net(),
                    (run){.epochs = 1 + 3 * round,
                          .validates = true,
                          .resumes = true,
                          .checkpoint = gd_checkpoint(folder, .best = "val_loss", .mode = GD_MAX)});
        CHECK_SAYING(h, "%s", gd_error_message());
        CHECK(stat(path, round ? &later : &first) == 0);
        if (round) CHECK(gd_history_value(h, "val_loss", 0) > gd_history_value(h, "val_loss", 3));
    }
    CHECK(first.st_ino == later.st_ino);
    end_log_capture();
}

CLEAN_TEST(an_unknown_metric_ends_the_run_and_lists_the_known_ones) {
    GD_SCOPE;
    begin_test();
    CHECK(!fit_net(make_net(),
                   (run){.epochs = 1, .checkpoint = gd_checkpoint(folder, .best = "val_los")}));
    CHECK_SAYING(says("checkpoint: there is no value 'val_los'; there are loss"), "%s",
                 gd_error_message());
    end_log_capture();
}

/* --- folders ---------------------------------------------------------------------------------- */

CLEAN_TEST(a_new_run_moves_the_checkpoints_of_the_previous_run_aside) {
    GD_SCOPE;
    begin_test();
    CHECK(fit_net(make_net(), (run){.epochs = 3, .checkpoint = gd_checkpoint(folder)}));
    CHECK(fit_net(make_net(), (run){.epochs = 1, .checkpoint = gd_checkpoint(folder)}));
    CHECK(is_there("step-00000004.safetensors") && !is_there("step-00000012.safetensors") &&
          is_there("previous/step-00000012.safetensors"));
    CHECK_SAYING(strstr(captured.text, "3 checkpoints of an earlier run"), "%s", captured.text);
    gd_history *h = fit_net(
        make_net(), (run){.epochs = 2, .resumes = true, .checkpoint = gd_checkpoint(folder)});
    CHECK(h && strstr(captured.text, "resumed from step 4: ") &&
          is_there("step-00000008.safetensors"));
    end_log_capture();
}

/* Resumes from the folder, and saves in another one. */
static gd_history *fit_elsewhere(const char *other) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(16, 3)), *y = gd_ones(gd_dims(16, 1));
    return gd_keep(gd_fit(make_net(), gd_list(x, y), .epochs = 3, .batch = 4, .resume = folder,
                          .progress = GD_PROGRESS_NONE,
                          .callbacks = gd_callbacks(gd_checkpoint(other, .keep = 1))));
}

CLEAN_TEST(a_resume_from_another_folder_removes_no_checkpoint_of_another_run) {
    GD_SCOPE;
    begin_test();
    CHECK(fit_net(make_net(), (run){.epochs = 2, .checkpoint = gd_checkpoint(folder)}));
    const char *other = temp_new_folder("other"); /* has a checkpoint of the same step, 8 */
    CHECK(fit_net(make_net(), (run){.epochs = 4, .checkpoint = gd_checkpoint(other)}));
    CHECK(fit_elsewhere(other));
    CHECK_SAYING(strstr(captured.text, "resumed from step 8: ") &&
                     strstr(captured.text, "moved 3 checkpoints of an earlier run to its folder "
                                           "'previous'"),
                 "%s", captured.text);
    CHECK(folder_count(temp_path("other/previous")) == 3 && folder_count(other) == 2);
    CHECK(file_exists(temp_path("other/previous/step-00000016.safetensors")) &&
          file_exists(temp_path("other/step-00000012.safetensors")));
    CHECK(fit_elsewhere(other)); /* and the files of both runs stay */
    CHECK(folder_count(temp_path("other/previous")) == 3 &&
          folder_count(temp_path("other/previous-2")) == 1 && folder_count(other) == 3);
    CHECK(folder_count(folder) == 2);
    end_log_capture();
}

CLEAN_TEST(the_best_file_of_another_run_is_kept_if_it_is_alone) {
    GD_SCOPE;
    begin_test();
    CHECK(fit_net(make_net(),
                  (run){.epochs = 2, .validates = true, .checkpoint = gd_checkpoint(folder)}));
    const char *other = temp_new_folder("other");
    for (int round = 0; round < 2; round++) { /* the second run is not resumed */
        temp_write_text("other/best.safetensors", round ? "second" : "first");
        gd_history *h =
            fit_net(make_net(), (run){.epochs = 3,
                                      .validates = true,
                                      .resumes = round == 0,
                                      .checkpoint = gd_checkpoint(other, .best = "val_loss")});
        CHECK_SAYING(h, "%s", gd_error_message());
        CHECK(file_exists(temp_path("other/best.safetensors")) &&
              unlink(temp_path("other/step-00000012.safetensors")) == 0);
    }
    CHECK_SAYING(strstr(captured.text, "moved best.safetensors of an earlier run to its folder "
                                       "'previous-2'"),
                 "%s", captured.text);
    CHECK(file_has_text(temp_path("other/previous/best.safetensors"), "first") &&
          file_has_text(temp_path("other/previous-2/best.safetensors"), "second"));
    end_log_capture();
}

CLEAN_TEST(a_damaged_checkpoint_is_skipped_and_replaced) {
    GD_SCOPE;
    begin_test();
    gd_module *net = make_net();
    CHECK(fit_net(net, (run){.epochs = 3, .checkpoint = gd_checkpoint(folder)}));
    const double expected = sum_of(net);
    const char *path = temp_path("checkpoints/step-00000012.safetensors");
    CHECK(truncate(path, 300) == 0);
    net = make_net();
    CHECK(fit_net(net, (run){.epochs = 3, .resumes = true, .checkpoint = gd_checkpoint(folder)}));
    CHECK_SAYING(strstr(captured.text, "step-00000012.safetensors") &&
                     strstr(captured.text, "resumed from step 8: "),
                 "%s", captured.text);
    CHECK(sum_of(net) == expected);
    gd_state *s = gd_read_state(path);
    CHECK_SAYING(s, "%s", gd_error_message());
    end_log_capture();
}

CLEAN_TEST(a_checkpoint_of_another_net_ends_the_run) {
    GD_SCOPE;
    begin_test();
    CHECK(fit_net(make_net(), (run){.epochs = 1, .checkpoint = gd_checkpoint(folder)}));
    gd_module *other = gd_nn_sequential(gd_nn_linear(3, 1));
    gd_compile(other, .optimizer = "adam", .loss = "mse");
    CHECK(
        !fit_net(other, (run){.epochs = 1, .resumes = true, .checkpoint = gd_checkpoint(folder)}));
    CHECK_SAYING(says("step-00000004.safetensors does not fit"), "%s", gd_error_message());
    end_log_capture();
}

CLEAN_TEST(a_folder_that_cannot_be_created_ends_the_run_at_once) {
    GD_SCOPE;
    begin_test();
    const char *path = temp_write_text("checkpoints/file", "");
    CHECK(!fit_net(make_net(), (run){.epochs = 1, .checkpoint = gd_checkpoint(path)}));
    CHECK_SAYING(says("/file: cannot create the folder"), "%s", gd_error_message());
    gd_clear_error();
    CHECK(!gd_checkpoint("") && says("gd_checkpoint: the path is empty"));
    gd_clear_error();
    CHECK(!gd_checkpoint("x", .keep = -1) && says("keep is -1"));
    end_log_capture();
}

/* --- other callbacks -------------------------------------------------------------------------- */

typedef struct seen {
    int64_t epochs;
} seen;
static gd_status count_epochs(gd_event *event, void *self) {
    (void)event;
    ((seen *)self)->epochs++;
    return GD_OK;
}

/* The checkpoint callback is first in the list, but saves the state of later callbacks after the
 * event. */
CLEAN_TEST(a_checkpoint_has_the_state_of_later_callbacks_after_the_event) {
    GD_SCOPE;
    begin_test();
    seen before = {0}, after = {0};
    gd_callback *counts =
        gd_callback_from(&before, .epoch_end = count_epochs, .state_bytes = sizeof before);
    CHECK(fit_net(make_net(),
                  (run){.epochs = 2, .checkpoint = gd_checkpoint(folder), .more = counts}));
    counts = gd_callback_from(&after, .epoch_end = count_epochs, .state_bytes = sizeof after);
    CHECK(fit_net(
        make_net(),
        (run){.epochs = 3, .resumes = true, .checkpoint = gd_checkpoint(folder), .more = counts}));
    CHECK_SAYING(before.epochs == 2 && after.epochs == 3, "%d, %d", (int)before.epochs,
                 (int)after.epochs);
    end_log_capture();
}

TEST_MAIN
