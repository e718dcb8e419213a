/* test_loader_faults.c - every allocation fails once while datasets, samplers and loaders are
 * created and used.
 *
 * A failure is reported, nothing leaks, and the same work succeeds afterwards. With workers a
 * different allocation fails in each run.
 */
#include "fault_walk.h"
#include "loader_things.h"

/* Repeats `work` until none of its allocations fails. */
static void walk_work(const char *what, gd_status (*work)(void *), void *user) {
    fault_walk w = {.what = what};
    while (fault_next(&w)) {
        fault_begin(&w);
        const gd_status status = work(user);
        fault_end(&w);
        CHECK_FAULT(&w, status);
    }
    CHECK_SAYING(w.failures > 3, "%s: only %lld allocations failed", what, (long long)w.failures);
}

static gd_tensors double_sample(gd_tensors sample, gd_random *random, void *user) {
    (void)random, (void)user;
    return gd_listed(gd_add(sample.at[0], sample.at[0]), sample.at[1]);
}
static bool keep_all_but_two(gd_tensors sample, void *user) {
    (void)user;
    return gd_item_int(sample.at[1]) != 2;
}

static gd_status combine_datasets(void *user) {
    GD_SCOPE;
    const int64_t some[] = {1, 0, 3};
    gd_dataset *d = gd_dataset_tensors(gd_ones(gd_dims(4, 2)), gd_arange(0, 4, .dtype = GD_I64)),
               *a, *b;
    (void)user;
    gd_dataset_random_split(d, 0.5, &a, &b);
    gd_dataset *all =
        gd_dataset_concat(gd_dataset_subset(d, gd_from_array(gd_dims(3), GD_I64, some)),
                          gd_dataset_range(d, 1, 2), a, b);
    gd_dataset *last =
        gd_dataset_filter(gd_dataset_map(all, double_sample, NULL), keep_all_but_two, NULL);
    gd_dataset *pairs = gd_dataset_zip(last, last);
    if (pairs) gd_dataset_get(pairs, 0);
    return gd_error_status();
}
TEST(combining_datasets) { walk_work("combining", combine_datasets, NULL); }

static gd_status use_samplers(void *user) {
    GD_SCOPE;
    (void)user;
    const float weights[] = {1, 0, 3, 1, 1, 2};
    const int64_t classes[] = {1, 1, 1, 2, 2, INT64_MAX};
    gd_tensor *w = gd_from_array(gd_dims(6), GD_F32, weights),
              *c = gd_from_array(gd_dims(6), GD_I64, classes);
    gd_sampler *samplers[] = {gd_sampler_weighted(w),
                              gd_sampler_weighted(w, .count = 4, .replacement = false),
                              gd_sampler_stratified(c), gd_sampler_distributed(1, 2),
                              gd_sampler_bucketed(gd_cast(w, GD_I32), .pool = 2)};
    gd_dataset *d = gd_dataset_tensors(gd_ones(gd_dims(6, 2)));
    for (int i = 0; i < 5 && !gd_failed(); i++) {
        gd_loader *l = gd_loader_new(d, .batch = 2, .sampler = samplers[i], .targets = 0);
        for (gd_tensors batch; gd_loader_next(l, &batch);) {
        }
    }
    return gd_error_status();
}
TEST(creating_and_using_samplers) { walk_work("samplers", use_samplers, NULL); }

typedef struct trial {
    int workers;
    bool pad, skip_broken, tensors;
    gd_collate_fn collate;
} trial;

static gd_tensors collate_first(const gd_tensors *samples, int64_t count, void *user) {
    (void)count, (void)user;
    return gd_listed(samples[0].at[0], samples[0].at[1]);
}

/* After a failure the next call continues: every batch arrives except the failed one. */
static gd_status read_all(void *user) {
    const trial *t = user;
    GD_SCOPE;
    numbers n = {.count = 12};
    gd_dataset *d =
        t->tensors ? gd_dataset_tensors(gd_ones(gd_dims(12, 2)), gd_arange(0, 12, .dtype = GD_I64))
                   : NUMBERS(&n);
    gd_loader *l =
        gd_loader_new(d, .batch = 4, .shuffle = true, .workers = t->workers, .pad = t->pad,
                      .skip_broken = t->skip_broken, .collate = t->collate);
    int batches = 0;
    for (gd_tensors batch; gd_loader_next(l, &batch);) batches++;
    const gd_status status = gd_error_status();
    if (l && status != GD_OK) {
        gd_clear_error();
        for (gd_tensors batch; gd_loader_next(l, &batch);) batches++;
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    }
    CHECK(!l || (batches >= 2 && batches <= 3 && gd_loader_tell(l).epoch == 1));
    CHECK(status != GD_OK || batches == 3);
    CHECK(gd_loader_skipped(l) == 0); /* a failed allocation does not count as a broken sample */
    return status;
}

TEST(reading_batches) {
    trial trials[] = {
        {0}, {.skip_broken = true}, {.pad = true}, {.collate = collate_first}, {.tensors = true}};
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        for (int workers = 0; workers <= 2; workers += 2) {
            trials[i].workers = workers;
            walk_work(workers ? "reading with workers" : "reading", read_all, &trials[i]);
        }
}

typedef struct saved {
    gd_loader *loader;
    gd_state *state;
} saved;

static gd_status load_loader(void *user) {
    saved *s = user;
    gd_loader_seek(s->loader, ((gd_loader_position){0, 1}));
    const gd_status status = gd_set_state(s->loader, s->state);
    CHECK(gd_loader_tell(s->loader).batch == (status == GD_OK ? 2 : 1));
    return status;
}

TEST(loading_the_state) {
    GD_SCOPE;
    numbers n = {.count = 12};
    saved s = {.loader = gd_loader_new(NUMBERS(&n), .batch = 4, .shuffle = true)};
    CHECK(gd_loader_seek(s.loader, ((gd_loader_position){0, 2})) == GD_OK);
    s.state = gd_state_of(s.loader);
    walk_work("loading", load_loader, &s);
}

TEST_MAIN
