/* test_fit_random.c - a run has its own random generator: what other threads draw changes no bit
 * of it, and it resumes to the same bits. */
#include <pthread.h>
#include <stdlib.h>

#include "clean_test.h"
#include "compare.h"
#include "fit_things.h"
#include "gradus/gradus.h"
#include "temp.h"

/* --- other threads ---------------------------------------------------------------------------- */

static void *draw_numbers(void *count) {
    GD_SCOPE;
    for (int i = 0; i < *(int *)count; i++) gd_randn(gd_dims(3));
    return NULL;
}

static gd_status draw_elsewhere(gd_event *event, void *self) {
    pthread_t thread;
    (void)event;
    if (pthread_create(&thread, NULL, draw_numbers, self) == 0) pthread_join(thread, NULL);
    return GD_OK;
}

static gd_module *fit_dropout_net(int drawn_by_others, int epochs, const char *folder) {
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_dropout_net();
    gd_compile(net, .optimizer = "adam lr=0.01", .loss = "cross_entropy");
    gd_callback *list[] = {gd_callback_from(&drawn_by_others, .batch_end = draw_elsewhere),
                           folder ? gd_checkpoint(folder) : NULL};
    gd_fit(net, gd_list(x, y), .epochs = epochs, .batch = 16, .resume = folder,
           .callbacks = ((gd_callback_list){list, folder ? 2 : 1}), QUIET);
    return net;
}

CLEAN_TEST(numbers_that_other_threads_draw_change_no_bit_of_a_run) {
    GD_SCOPE;
    gd_module *alone = fit_dropout_net(0, 4, NULL);
    for (int drawn = 1; drawn < 4; drawn++) {
        gd_module *beside = fit_dropout_net(drawn, 4, NULL);
        CHECK_SAYING(largest_difference(alone, beside) == 0 && !gd_failed(), "%g %s",
                     largest_difference(alone, beside), gd_error_message());
    }
}

CLEAN_TEST(a_run_beside_other_threads_resumes_to_the_same_bits) {
    GD_SCOPE;
    const char *folder = temp_path("run_beside");
    gd_module *whole = fit_dropout_net(0, 4, NULL);
    fit_dropout_net(2, 2, folder);
    gd_seed(99);
    gd_module *resumed = fit_dropout_net(5, 4, folder);
    CHECK_SAYING(largest_difference(whole, resumed) == 0 && !gd_failed(), "%g %s",
                 largest_difference(whole, resumed), gd_error_message());
}

/* --- two runs in two threads ------------------------------------------------------------------ */

typedef struct thread_run {
    gd_module *net;
    int epochs;
    uint64_t seed;
    const char *folder;
    gd_status status;
} thread_run;

static void *fit_in_thread(void *user) {
    thread_run *r = user;
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_compile(r->net, .optimizer = "adam lr=0.01", .loss = "cross_entropy");
    gd_callback_list callbacks = {NULL, 0};
    gd_callback *list[] = {r->folder ? gd_checkpoint(r->folder) : NULL};
    if (r->folder) callbacks = (gd_callback_list){list, 1};
    gd_fit(r->net, gd_list(x, y), .epochs = r->epochs, .batch = 16, .seed = r->seed,
           .resume = r->folder, .callbacks = callbacks, QUIET);
    r->status = gd_error_status();
    return NULL;
}

/* Trains two nets at the same time. */
static void fit_both(thread_run runs[2]) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, fit_in_thread, &runs[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

CLEAN_TEST(two_runs_in_two_threads_resume_to_the_same_bits) {
    GD_SCOPE;
    const char *folders[2] = {temp_path("first"), temp_path("second")};
    thread_run whole[2], parts[2];
    for (int i = 0; i < 2; i++) {
        whole[i] = (thread_run){make_dropout_net(), 6, (uint64_t)(5 + i), NULL, GD_OK};
        parts[i] = (thread_run){make_dropout_net(), 2, (uint64_t)(5 + i), folders[i], GD_OK};
    }
    fit_both(whole);
    for (int epochs = 2; epochs <= 6; epochs += 2) {
        parts[0].epochs = parts[1].epochs = epochs;
        fit_both(parts);
    }
    for (int i = 0; i < 2; i++)
        CHECK_SAYING(largest_difference(whole[i].net, parts[i].net) == 0 &&
                         whole[i].status == GD_OK && parts[i].status == GD_OK,
                     "run %d: %g", i, largest_difference(whole[i].net, parts[i].net));
    CHECK(largest_difference(whole[0].net, whole[1].net) > 0);
}

/* --- the process's generator ------------------------------------------------------------------ */

CLEAN_TEST(without_a_seed_a_run_continues_the_generator_of_the_process) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_dropout_net();
    gd_compile(net, .loss = "cross_entropy");
    gd_seed(11);
    gd_fit(net, gd_list(x, y), .batch = 10, QUIET); /* 6 batches, a dropout in each */
    const gd_rng after = gd_rng_state();
    CHECK_SAYING(after.seed == 11 && after.call == 6, "%llu", (unsigned long long)after.call);
    gd_fit(net, gd_list(x, y), .batch = 10, .seed = 4, QUIET);
    CHECK(gd_rng_state().seed == 11 && gd_rng_state().call == 6); /* its own numbers */
    CHECK(!gd_failed());
}

static gd_status note_state(gd_event *event, void *self) {
    (void)event;
    *(gd_rng *)self = gd_rng_state();
    return GD_OK;
}

CLEAN_TEST(with_a_seed_all_numbers_of_a_run_depend_on_it_alone) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *nets[3];
    gd_rng state[3];
    for (int i = 0; i < 3; i++) {
        nets[i] = make_dropout_net();
        gd_compile(nets[i], .loss = "cross_entropy");
        gd_seed((uint64_t)i);
        gd_fit(nets[i], gd_list(x, y), .seed = i < 2 ? 8 : 9, .shuffle = false,
               .callbacks = gd_callbacks(gd_callback_from(&state[i], .epoch_end = note_state)),
               QUIET);
    }
    CHECK(largest_difference(nets[0], nets[1]) == 0 && largest_difference(nets[0], nets[2]) > 0);
    CHECK(state[0].seed == state[1].seed && state[0].seed != 8 && state[0].seed != state[2].seed);
}

TEST_MAIN
