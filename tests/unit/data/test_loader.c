/* test_loader.c - batches are independent of the workers, arrive in order, and belong to the
 * loader. */
#include <pthread.h>

#include "core/pool.h"
#include "loader_things.h"

static uint64_t hash_two_epochs(int workers, int prefetch, bool shuffle) {
    GD_SCOPE;
    numbers n = {.count = 103};
    gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 8, .shuffle = shuffle, .seed = 5,
                                 .workers = workers, .prefetch = prefetch);
    int batches;
    uint64_t h = hash_epoch(l, &batches);
    CHECK(batches == 13 && gd_loader_batches(l) == 13);
    const uint64_t second = hash_epoch(l, &batches);
    /* random numbers differ between epochs, even without shuffling */
    CHECK(batches == 13 && second != h);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    return h ^ second * 3;
}

CLEAN_TEST(batches_have_the_same_bits_for_any_number_of_workers) {
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        const uint64_t plain = hash_two_epochs(0, 2, shuffle);
        CHECK(hash_two_epochs(1, 1, shuffle) == plain);
        CHECK(hash_two_epochs(4, 2, shuffle) == plain);
        CHECK(hash_two_epochs(40, 3, shuffle) == plain);
    }
    CHECK(hash_two_epochs(0, 2, true) != hash_two_epochs(0, 2, false));
}

CLEAN_TEST(an_epoch_has_each_sample_once) {
    GD_SCOPE;
    enum { COUNT = 250 };
    numbers n = {.count = COUNT};
    for (int workers = 0; workers <= 3; workers += 3) {
        gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 16, .shuffle = true, .workers = workers);
        int seen[COUNT] = {0}, in_order = 0;
        int64_t y[16], all = 0;
        for (gd_tensors batch; gd_loader_next(l, &batch);) {
            CHECK(batch.count == 2 && gd_tensor_rank(batch.at[0]) == 2 &&
                  gd_tensor_rank(batch.at[1]) == 1);
            read_ints(batch.at[1], y, 16);
            for (int64_t i = 0; i < gd_tensor_numel(batch.at[1]); i++)
                in_order += y[i] == all++, seen[y[i]]++;
        }
        for (int i = 0; i < COUNT; i++) CHECK(seen[i] == 1);
        CHECK_SAYING(in_order < 10, "%d samples kept their position", in_order);
    }
}

CLEAN_TEST(samples_of_a_batch_equal_those_of_gd_dataset_get) {
    GD_SCOPE;
    numbers n = {.count = 20};
    gd_dataset *d = NUMBERS(&n);
    gd_loader *l = gd_loader_new(d, .batch = 5, .shuffle = true, .seed = 8);
    CHECK(gd_loader_seek(l, ((gd_loader_position){3, 2})) == GD_OK);
    gd_tensors batch;
    CHECK(gd_loader_next(l, &batch));
    float x[5][2], alone[2];
    gd_copy_to(batch.at[0], x, sizeof x);
    for (int i = 0; i < 5; i++) {
        gd_tensors sample = gd_dataset_get(d, (int64_t)x[i][0], .seed = 8, .epoch = 3);
        gd_copy_to(sample.at[0], alone, sizeof alone);
        CHECK(alone[0] == x[i][0] && alone[1] == x[i][1]);
    }
}

CLEAN_TEST(drop_last_omits_an_incomplete_batch) {
    GD_SCOPE;
    numbers n = {.count = 21};
    for (int workers = 0; workers <= 2; workers += 2) {
        gd_loader *l =
            gd_loader_new(NUMBERS(&n), .batch = 4, .drop_last = true, .workers = workers);
        CHECK(gd_loader_batches(l) == 5);
        int count = 0;
        for (gd_tensors batch; gd_loader_next(l, &batch); count++)
            CHECK(gd_tensor_dim(batch.at[0], 0) == 4);
        CHECK(count == 5);
    }
}

CLEAN_TEST(an_empty_dataset_has_epochs_without_batches) {
    GD_SCOPE;
    numbers n = {.count = 0};
    for (int workers = 0; workers <= 2; workers += 2) {
        gd_loader *l = gd_loader_new(NUMBERS(&n), .shuffle = true, .workers = workers);
        gd_tensors batch;
        CHECK(!gd_loader_next(l, &batch) && !gd_loader_next(l, &batch) && !gd_failed());
        CHECK(gd_loader_tell(l).epoch == 2 && gd_loader_batches(l) == 0);
    }
}

CLEAN_TEST(the_loader_owns_a_batch_until_the_next_one_unless_it_is_retained) {
    GD_SCOPE;
    numbers n = {.count = 12};
    gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 4, .workers = 2);
    gd_tensors batch;
    gd_tensor *kept;
    {
        GD_SCOPE; /* does not own the batch */
        CHECK(gd_loader_next(l, &batch));
        kept = gd_retain(batch.at[1]);
    }
    int64_t y[4];
    read_ints(batch.at[1], y, 4);
    CHECK(y[0] == 0 && y[3] == 3);
    CHECK(gd_loader_next(l, &batch));
    read_ints(kept, y, 4);
    CHECK(y[0] == 0 && y[3] == 3);
    gd_release(kept);
    read_ints(batch.at[1], y, 4);
    CHECK(y[0] == 4 && y[3] == 7);
    CHECK(!gd_failed());
}

/* --- small stacks ----------------------------------------------------------------------------- */

static void *load_on_small_stack(void *arg) {
    GD_SCOPE;
    numbers n = {.count = 40, .broken_every = 7};
    gd_tensor *weights = gd_ones(gd_dims(40)), *classes = gd_zeros(gd_dims(40), .dtype = GD_I64);
    gd_sampler *samplers[] = {gd_sampler_weighted(weights, .replacement = false),
                              gd_sampler_stratified(classes)};
    gd_dataset *a, *b;
    gd_dataset_random_split(NUMBERS(&n), 0.5, &a, &b);
    gd_dataset *all = gd_dataset_concat(a, b);
    for (int i = 0; i < 2; i++) {
        hash_epoch(gd_loader_new(all, .batch = 4, .sampler = samplers[i], .skip_broken = true),
                   NULL);
        hash_epoch(
            gd_loader_new(all, .batch = 4, .sampler = samplers[i], .pad = true, .workers = 2),
            NULL);
    }
    /* from the last loader, which skips no samples */
    *(bool *)arg = gd_failed() && says("sample ");
    return NULL;
}

CLEAN_TEST(a_loader_needs_little_stack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("frames are larger with a sanitizer");
#endif
    pthread_attr_t attributes;
    pthread_t thread;
    bool ended = false;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    CHECK(pthread_create(&thread, &attributes, load_on_small_stack, &ended) == 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    CHECK(ended);
}

/* --- prefetch --------------------------------------------------------------------------------- */

CLEAN_TEST(workers_prefetch_no_more_batches_than_the_limit) {
    GD_SCOPE;
    numbers n = {.count = 400};
    gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 4, .workers = 3, .prefetch = 2);
    gd_tensors batch;
    for (int taken = 1; taken <= 20; taken++) {
        CHECK(gd_loader_next(l, &batch));
        while (atomic_load(&n.calls) < (taken + 6) * 4) usleep(100);
        usleep(500);
        CHECK_SAYING(atomic_load(&n.calls) == (taken + 6) * 4,
                     "%d samples were made after %d batches", atomic_load(&n.calls), taken);
    }
}

CLEAN_TEST(workers_are_idle_between_epochs) {
    GD_SCOPE;
    numbers n = {.count = 40};
    gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 4, .workers = 2);
    hash_epoch(l, NULL);
    usleep(20000);
    CHECK(atomic_load(&n.calls) == 40);
    hash_epoch(l, NULL);
    CHECK(atomic_load(&n.calls) == 80);
}

/* --- the thread pool -------------------------------------------------------------------------- */

static _Thread_local bool is_caller;
static _Atomic int pieces_on_other_threads;
static bool pool_is_used; /* the caller's piece waits until another thread has run one */
static void count_other_threads(void *arg, int64_t piece) {
    (void)arg, (void)piece;
    if (!is_caller) atomic_fetch_add(&pieces_on_other_threads, 1);
    while (pool_is_used && atomic_load(&pieces_on_other_threads) == 0) usleep(200);
}
static gd_tensors get_with_pool(int64_t index, gd_random *random, void *self) {
    is_caller = true;
    gd_parallel_for(8, count_other_threads, NULL);
    is_caller = false;
    return numbers_get(index, random, self);
}

/* Otherwise a training step would find the pool occupied. */
CLEAN_TEST(workers_do_not_occupy_the_thread_pool) {
    GD_SCOPE;
    numbers n = {.count = 12};
    gd_set_num_threads(3);
    for (int workers = 2; workers >= 0; workers -= 2) {
        gd_dataset *d = gd_dataset_from(&n, .count = numbers_count, .get = get_with_pool);
        pool_is_used = workers == 0;
        hash_epoch(gd_loader_new(d, .batch = 3, .workers = workers), NULL);
        CHECK_SAYING((atomic_load(&pieces_on_other_threads) == 0) == (workers > 0),
                     "%d pieces with %d workers", atomic_load(&pieces_on_other_threads), workers);
    }
    gd_set_num_threads(0);
}

/* --- stopping --------------------------------------------------------------------------------- */

CLEAN_TEST(a_loader_can_be_stopped_and_released_at_any_time) {
    numbers n = {.count = 64, .sleep_us = 100};
    for (int after = 0; after < 12; after++) {
        GD_SCOPE;
        gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 4, .workers = 4);
        gd_tensors batch;
        for (int i = 0; i < after; i++) CHECK(gd_loader_next(l, &batch));
        if (after % 3 == 0) continue; /* released by the scope */
        gd_loader_stop(l);
        const int calls = atomic_load(&n.calls);
        usleep(1000);
        CHECK(atomic_load(&n.calls) == calls);
        CHECK(gd_loader_tell(l).batch == after);
        if (after % 3 == 1) continue;
        int64_t y[4];
        CHECK(gd_loader_next(l, &batch)); /* the loader continues */
        read_ints(batch.at[1], y, 4);
        CHECK(y[0] == 4 * after);
    }
    gd_loader_stop(NULL);
}

/* --- position --------------------------------------------------------------------------------- */

CLEAN_TEST(seek_goes_to_any_batch_of_any_epoch) {
    GD_SCOPE;
    numbers n = {.count = 50};
    for (int workers = 0; workers <= 3; workers += 3) {
        gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 8, .shuffle = true, .workers = workers);
        uint64_t at[3][7];
        gd_tensors batch;
        for (int e = 0; e < 3; e++) {
            for (int b = 0; b < 7; b++) {
                const gd_loader_position position = gd_loader_tell(l);
                CHECK(position.epoch == e && position.batch == b);
                CHECK(gd_loader_next(l, &batch));
                at[e][b] = hash_batch(1, batch);
            }
            CHECK(gd_loader_tell(l).batch == 7 && !gd_loader_next(l, &batch) && batch.count == 0);
        }
        for (int i = 0; i < 30; i++) {
            const int e = i * 7 % 3, b = i * 5 % 7;
            CHECK(gd_loader_seek(l, ((gd_loader_position){e, b})) == GD_OK);
            CHECK(gd_loader_next(l, &batch) && hash_batch(1, batch) == at[e][b]);
        }
        CHECK(gd_loader_seek(l, ((gd_loader_position){1, 7})) == GD_OK);
        CHECK(!gd_loader_next(l, &batch) && gd_loader_tell(l).epoch == 2);
    }
}

/* --- cancelled threads ------------------------------------------------------------------------ */

static void *take_one(void *loader) {
    GD_SCOPE;
    gd_tensors batch;
    gd_loader_next(loader, &batch);
    return NULL;
}

CLEAN_TEST(a_thread_that_is_cancelled_while_it_waits_leaves_loaders_usable) {
    GD_SCOPE;
    numbers slow = {.count = 8, .sleep_us = 50000}, fast = {.count = 8};
    gd_loader *waited = gd_loader_new(NUMBERS(&slow), .batch = 2, .workers = 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take_one, waited) == 0);
    usleep(20000);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    gd_loader *other = gd_loader_new(NUMBERS(&fast), .batch = 4, .workers = 2);
    gd_tensors batch;
    CHECK(gd_loader_next(other, &batch) && gd_loader_next(other, &batch));
    CHECK(!gd_loader_next(other, &batch) && !gd_failed());
}

TEST_MAIN
