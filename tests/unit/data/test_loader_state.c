/* test_loader_state.c - a loader that is saved and loaded continues with the next batch. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

#include "child.h"
#include "loader_things.h"

static const char *const file = "test_loader_state.safetensors";

CLEAN_TEST(a_loaded_loader_continues_with_the_next_batch) {
    GD_SCOPE;
    numbers n = {.count = 50, .broken_every = 9};
    for (int workers = 0; workers <= 3; workers += 3)
        for (int stop = 0; stop < 14; stop += 3) { /* some stops lie in the second epoch */
            gd_loader *a = gd_loader_new(NUMBERS(&n), .batch = 8, .shuffle = true, .seed = 12,
                                         .workers = workers, .skip_broken = true);
            gd_loader *b = gd_loader_new(NUMBERS(&n), .batch = 8, .shuffle = true, .seed = 1,
                                         .workers = 3 - workers, .skip_broken = true);
            gd_tensors batch;
            for (int i = 0; i < stop; i++) gd_loader_next(a, &batch);
            CHECK(gd_save_state(file, gd_part("loader", a)) == GD_OK);
            for (int i = 0; i < 3; i++) gd_loader_next(b, &batch); /* starts at another position */
            CHECK_SAYING(gd_load_state(file, gd_part("loader", b)) == GD_OK, "%s",
                         gd_error_message());
            CHECK(gd_loader_tell(a).epoch == gd_loader_tell(b).epoch &&
                  gd_loader_tell(a).batch == gd_loader_tell(b).batch &&
                  gd_loader_skipped(a) == gd_loader_skipped(b));
            for (int epoch = 0; epoch < 2; epoch++)
                CHECK(hash_epoch(a, NULL) == hash_epoch(b, NULL) &&
                      gd_loader_skipped(a) == gd_loader_skipped(b));
        }
    remove(file);
}

CLEAN_TEST(loading_the_state_of_a_different_loader_fails_and_changes_nothing) {
    GD_SCOPE;
    numbers n = {.count = 50}, more = {.count = 51};
    gd_sampler *s = gd_sampler_weighted(gd_ones(gd_dims(50)));
    gd_loader *a = gd_loader_new(NUMBERS(&n), .batch = 8, .shuffle = true);
    gd_tensors batch;
    CHECK(gd_loader_next(a, &batch) && gd_loader_next(a, &batch));
    gd_state *state = gd_state_of(a);
    struct {
        gd_loader *loader;
        const char *words;
    } others[] = {
        {gd_loader_new(NUMBERS(&more), .batch = 8, .shuffle = true),
         "samples = 51, and the one that was saved had 50"},
        {gd_loader_new(NUMBERS(&n), .batch = 9, .shuffle = true),
         ".batch = 9, and the one that was saved had 8"},
        {gd_loader_new(NUMBERS(&n), .batch = 8),
         "\"in order\", and of the one that was saved \"shuffled\""},
        {gd_loader_new(NUMBERS(&n), .batch = 8, .sampler = s),
         "weighted, 50 of 50, with replacement"},
        {gd_loader_new(NUMBERS(&n), .batch = 8, .shuffle = true, .drop_last = true),
         ".drop_last = 1"},
        {gd_loader_new(NUMBERS(&n), .batch = 8, .sampler = gd_sampler_distributed(1, 2)),
         "distributed, rank 1 of 2"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CHECK(gd_set_state(others[i].loader, state) != GD_OK);
        CHECK_SAYING(says(others[i].words), "%s", gd_error_message());
        CHECK(gd_loader_tell(others[i].loader).batch == 0);
        gd_clear_error();
    }
    CHECK(gd_set_state(a, state) == GD_OK && gd_loader_tell(a).batch == 2);
}

/* --- fork ------------------------------------------------------------------------------------- */

#if defined(__SANITIZE_THREAD__)
#define SKIP_FORKS SKIP("ThreadSanitizer does not follow the child of a threaded program")
#elif defined(__SANITIZE_ADDRESS__)
#define SKIP_FORKS SKIP("AddressSanitizer's allocator does not survive a fork while others use it")
#else
#define SKIP_FORKS
#endif

enum { FORKS = 30, HANGS = 60 };

/* Returns whether the child gets batch `next` and the batches after it. */
static bool works_in_child(gd_loader *l, int next, bool use) {
    GD_SCOPE;
    if (use) {
        gd_tensors batch;
        int64_t y[4];
        for (int b = next; b < next + 5; b++) {
            if (!gd_loader_next(l, &batch) || gd_copy_to(batch.at[1], y, sizeof y) != GD_OK)
                return false;
            if (y[0] != 4 * b || y[3] != 4 * b + 3) return false;
        }
    }
    gd_loader_stop(l);
    gd_release(l); /* the test's reference */
    return !gd_failed();
}

TEST(the_child_of_a_fork_can_use_and_free_a_loader) {
    SKIP_FORKS;
    numbers n = {.count = 4 * (FORKS + 10), .sleep_us = 50};
    gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 4, .workers = 3);
    gd_tensors batch;
    fflush(NULL);
    for (int i = 0; i < FORKS; i++) {
        CHECK(gd_loader_next(l, &batch));
        const pid_t child = fork();
        if (child == 0) {
            alarm(HANGS);
            _exit(works_in_child(l, i + 1, i % 3 != 0) ? 0 : 1);
        }
        CHECK_SAYING(child_wait(child) == 0, "fork %d", i);
    }
    CHECK(gd_loader_next(l, &batch) && !gd_failed());
    gd_release(l);
}

/* --- signals and exit ------------------------------------------------------------------------- */

static _Atomic int in_worker;
static pthread_t main_thread;
static void record_signal_thread(int signal) {
    (void)signal;
    if (!pthread_equal(pthread_self(), main_thread)) atomic_fetch_add(&in_worker, 1);
}

CLEAN_TEST(workers_do_not_receive_signals) {
    GD_SCOPE;
    main_thread = pthread_self();
    struct sigaction action = {.sa_handler = record_signal_thread}, before;
    sigaction(SIGUSR1, &action, &before);
    numbers n = {.count = 400, .sleep_us = 100};
    gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 4, .workers = 4);
    sigset_t blocked, old;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    gd_tensors batch;
    CHECK(gd_loader_next(l, &batch));
    pthread_sigmask(SIG_BLOCK, &blocked, &old); /* now only a worker could receive the signal */
    for (int i = 0; i < 50; i++) {
        kill(getpid(), SIGUSR1);
        CHECK(gd_loader_next(l, &batch));
    }
    CHECK(atomic_load(&in_worker) == 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    sigaction(SIGUSR1, &before, NULL);
}

/* exit() while workers run and the loader still exists. */
TEST(a_program_may_exit_while_workers_run) {
    SKIP_FORKS;
    fflush(NULL);
    for (int i = 0; i < 5; i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(HANGS);
            static numbers n = {.count = 1000, .sleep_us = 200};
            gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 4, .workers = 4);
            gd_tensors batch;
            for (int b = 0; b <= i; b++)
                if (!gd_loader_next(l, &batch)) _exit(1);
            exit(0);
        }
        CHECK(child_wait(child) == 0);
    }
}

/* Reads a second loader in another thread. */
static void *read_other_loader(void *arg) {
    GD_SCOPE;
    numbers n = {.count = 60};
    for (int i = 0; i < 5; i++) {
        gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 7, .shuffle = true, .workers = 2);
        *(uint64_t *)arg = hash_epoch(l, NULL);
    }
    return NULL;
}

CLEAN_TEST(several_threads_can_use_separate_loaders) {
    pthread_t threads[3];
    uint64_t h[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, read_other_loader, &h[i]) == 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    CHECK(h[0] == h[1] && h[1] == h[2]);
}

TEST_MAIN
