/* test_fit_schedules.c - schedules that take their length from the run. */
#include <string.h>

#include "capture.h"
#include "clean_test.h"
#include "fit_things.h"
#include "gradus/gradus.h"

static double rate_of(gd_module *net) {
    return gd_item(gd_optimizer_lr(gd_compiled_optimizer(net)));
}

/* 5 batches in an epoch. */
static gd_history *fit_line(gd_module *net, int epochs) {
    return gd_fit(net, gd_list(gd_ones(gd_dims(50, 3)), gd_ones(gd_dims(50, 1))), .epochs = epochs,
                  .batch = 10, QUIET);
}

CLEAN_TEST(every_schedule_with_a_length_takes_that_of_the_run) {
    static const struct {
        const char *schedule;
        double middle, end; /* rates after half of the steps and at the end */
    } rows[] = {
        {"cosine", 0.05, 0},
        {"cosine min_lr=0.02", 0.06, 0.02},
        {"polynomial", 0.05, 0},
        {"polynomial power=2", 0.025, 0},
        {"linear start=1 end=0", 0.05, 0},
        {"linear", 0.1 * (1 + 1 / 3.0) / 2, 0.1},
        {"one_cycle", -1, 0.1 / 25 / 1e4},
        {"one_cycle rise=0.5 anneal=linear", -1, 0.1 / 25 / 1e4},
        {"cosine steps=10", 0, 0.1}, /* a given length: half of the run, and then up again */
        {"polynomial steps=5", 0, 0},
        {"constant factor=0.5", 0.1, 0.1}, /* has no length */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        GD_SCOPE;
        gd_module *net = gd_nn_linear(3, 1);
        CHECK_SAYING(gd_compile(net, .optimizer = "sgd lr=0.1", .schedule = rows[i].schedule,
                                .loss = "mse") == GD_OK,
                     "%s", gd_error_message());
        gd_history *h = fit_line(net, 4);
        CHECK_SAYING(h, "%s: %s", rows[i].schedule, gd_error_message());
        const double middle = gd_history_value(h, "lr", 1), end = rate_of(net);
        CHECK_SAYING((rows[i].middle < 0 || fabs(middle - rows[i].middle) < 1e-9) &&
                         fabs(end - rows[i].end) < 1e-9,
                     "%s: %g, then %g", rows[i].schedule, middle, end);
    }
}

CLEAN_TEST(a_run_that_is_too_short_for_its_schedule_says_its_length) {
    GD_SCOPE;
    gd_module *net = gd_nn_linear(3, 1);
    CHECK(gd_compile(net, .schedule = "one_cycle", .loss = "mse") == GD_OK);
    CHECK(!gd_fit(net, gd_list(gd_ones(gd_dims(4, 3)), gd_ones(gd_dims(4, 1))), QUIET));
    CHECK_SAYING(says("gd_fit: the schedule takes its steps from the run, which has 1 step of") &&
                     says("gd_lr_one_cycle"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_compile(net, .schedule = "one_cycle steps=2", .loss = "mse") != GD_OK &&
          says("steps is 2"));
    gd_clear_error();
    CHECK(gd_compile(net, .schedule = "one_cycle rise=2", .loss = "mse") != GD_OK && says("rise"));
}

CLEAN_TEST(a_warmup_longer_than_the_run_is_said) {
    for (int warmup = 9; warmup <= 20; warmup += 11) {
        GD_SCOPE;
        gd_module *net = gd_nn_linear(3, 1);
        char schedule[40];
        snprintf(schedule, sizeof schedule, "cosine warmup=%d", warmup);
        gd_compile(net, .optimizer = "sgd lr=0.1", .schedule = schedule, .loss = "mse");
        capture_log(GD_LOG_WARNING);
        fit_line(net, 2); /* 10 steps */
        end_log_capture();
        CHECK_SAYING(warmup == 9 ? captured.warnings == 0
                                 : captured.warnings == 1 &&
                                       strstr(captured.text,
                                              "gd_fit: the warm-up of the schedule cosine has "
                                              "20 steps, and the run 10"),
                     "%s", captured.text);
    }
}

CLEAN_TEST(a_second_run_stays_at_the_last_rate_and_says_so) {
    static const char *const schedules[] = {"cosine", "cosine min_lr=0.01 warmup=3", "polynomial",
                                            "one_cycle"};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        GD_SCOPE;
        gd_module *net = gd_nn_linear(3, 1);
        gd_compile(net, .optimizer = "sgd lr=0.1", .schedule = schedules[i], .loss = "mse");
        capture_log(GD_LOG_WARNING);
        fit_line(net, 2);
        end_log_capture();
        CHECK_SAYING(captured.warnings == 0, "%s", captured.text);
        const double end = rate_of(net);
        CHECK(end < 0.011);
        capture_log(GD_LOG_WARNING);
        gd_history *h = fit_line(net, 2);
        end_log_capture();
        CHECK_SAYING(h && gd_history_value(h, "lr", 0) == end &&
                         gd_history_value(h, "lr", 1) == end,
                     "%s: %g, then %g, %g", schedules[i], end, gd_history_value(h, "lr", 0),
                     gd_history_value(h, "lr", 1));
        CHECK_SAYING(strstr(captured.text, "has ended with an earlier run") &&
                         strstr(captured.text, "gd_compile starts anew"),
                     "%s", captured.text);
        gd_compile(net, .optimizer = "sgd lr=0.1", .schedule = schedules[i], .loss = "mse");
        CHECK(fit_line(net, 2) && rate_of(net) == end); /* its steps are those of this run */
        CHECK(!gd_failed());
    }
}

/* With `steps` a schedule follows its formula, which may rise again. */
CLEAN_TEST(a_second_run_past_the_given_steps_says_so) {
    static const struct {
        const char *schedule, *said; /* NULL: nothing */
    } rows[] = {
        {"cosine steps=10", "the schedule cosine is past its 10 steps: the learning rate is 0 and "
                            "follows its formula beyond them; gd_compile starts anew"},
        {"cosine steps=4 warmup=3", "is past its 4 steps: the learning rate is "},
        {"cosine steps=11", NULL},
        {"polynomial steps=4", "the schedule polynomial is past its 4 steps: the learning rate "
                               "stays 0; gd_compile starts anew"},
        {"linear start=0.1 end=1 steps=4", NULL}, /* the base rate */
        {"constant factor=0.5 steps=4", NULL},
        {"step size=2", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        GD_SCOPE;
        gd_module *net = gd_nn_linear(3, 1);
        CHECK(gd_compile(net, .optimizer = "sgd lr=0.1", .schedule = rows[i].schedule,
                         .loss = "mse") == GD_OK);
        capture_log(GD_LOG_WARNING);
        fit_line(net, 2); /* 10 steps */
        end_log_capture();
        CHECK_SAYING(captured.warnings == 0, "%s: %s", rows[i].schedule, captured.text);
        capture_log(GD_LOG_WARNING);
        fit_line(net, 1);
        end_log_capture();
        CHECK_SAYING(rows[i].said ? strstr(captured.text, rows[i].said) != NULL
                                  : captured.warnings == 0,
                     "%s: %s", rows[i].schedule, captured.text);
    }
    GD_SCOPE;
    gd_module *net = gd_nn_linear(3, 1);
    gd_optimizer *optimizer = gd_optim_sgd(gd_module_parameters(net), .lr = 0.1);
    gd_compile(net, .optimizer_object = optimizer, .schedule_object = gd_lr_cosine(optimizer, 10),
               .loss = "mse");
    fit_line(net, 2);
    capture_log(GD_LOG_WARNING);
    fit_line(net, 1);
    end_log_capture();
    CHECK_SAYING(strstr(captured.text, "is past its 10 steps"), "%s", captured.text);
}

/* The first run ends early: the second one continues the schedule, to its length. */
CLEAN_TEST(a_schedule_that_has_not_ended_continues_in_the_next_run) {
    GD_SCOPE;
    gd_module *net = gd_nn_linear(3, 1);
    gd_tensor *x = gd_ones(gd_dims(50, 3)), *y = gd_ones(gd_dims(50, 1));
    gd_compile(net, .optimizer = "sgd lr=0.1", .schedule = "polynomial", .loss = "mse");
    gd_callback *stop = gd_early_stopping(.monitor = "lr", .mode = GD_MAX, .patience = 1);
    gd_history *h = gd_fit(net, gd_list(x, y), .epochs = 10, .batch = 10,
                           .callbacks = gd_callbacks(stop), QUIET);
    CHECK_SAYING(h && gd_history_rows(h) == 2, "%s", gd_error_message());
    CHECK(fabs(rate_of(net) - 0.08) < 1e-12);
    fit_line(net, 3);
    CHECK_SAYING(fabs(rate_of(net) - 0.05) < 1e-12, "%g", rate_of(net));
}

TEST_MAIN
