/* test_sampler_bucketed.c - the bucketed sampler: batches of samples with like lengths. */
#include "data/sampler.h"
#include "loader_things.h"

enum { N = 1003, BATCH = 16 };

static gd_tensor *random_lengths(int64_t *lengths) {
    for (int i = 0; i < N; i++) lengths[i] = 1 + i * 7919 % 501;
    return gd_from_array(gd_dims(N), GD_I64, lengths);
}

static void read_order(gd_sampler *s, uint64_t seed, uint64_t epoch, int64_t step,
                       int64_t *indices) {
    gd_order order = {.sampler = s, .samples = N, .batch = BATCH, .seed = seed};
    CHECK(gd_order_begin(&order, epoch) == GD_OK && gd_order_count(&order) == N);
    for (int64_t i = 0; i < N; i += step)
        CHECK(gd_order_at(&order, i, N - i < step ? N - i : step, indices + i) == GD_OK);
    gd_order_end(&order);
}

/* The padding of all batches, as a share of all elements. */
static double padding_of(const int64_t *order, const int64_t *lengths) {
    int64_t elements = 0, used = 0;
    for (int first = 0; first < N; first += BATCH) {
        const int count = N - first < BATCH ? N - first : BATCH;
        int64_t most = 0;
        for (int i = 0; i < count; i++) {
            const int64_t length = lengths[order[first + i]];
            used += length;
            if (length > most) most = length;
        }
        elements += most * count;
    }
    return 1 - (double)used / (double)elements;
}

CLEAN_TEST(an_epoch_has_each_sample_once_and_little_padding) {
    GD_SCOPE;
    int64_t lengths[N], order[N], again[N];
    gd_tensor *column = random_lengths(lengths);
    static const struct {
        int64_t pool;
        double most;
    } cases[] = {{100, 0.02}, {0, 0.02}, {10, 0.12}, {1, 0.55}};
    for (int c = 0; c < 4; c++) {
        gd_sampler *s = gd_sampler_bucketed(column, .pool = cases[c].pool);
        for (uint64_t epoch = 0; epoch < 5; epoch++) {
            char seen[N] = {0};
            read_order(s, 3, epoch, N, order);
            read_order(s, 3, epoch, 7, again); /* pieces that do not begin with a batch */
            CHECK(memcmp(order, again, sizeof order) == 0);
            for (int i = 0; i < N; i++) CHECK(!seen[order[i]]++);
            const double padding = padding_of(order, lengths);
            CHECK_SAYING(padding < cases[c].most, "pool %" PRId64 ": %g", cases[c].pool, padding);
        }
    }
}

CLEAN_TEST(batches_are_shuffled_and_differ_between_epochs_and_seeds) {
    GD_SCOPE;
    enum { FULL = N / BATCH };
    int64_t lengths[N], order[N], other[N];
    gd_sampler *s = gd_sampler_bucketed(random_lengths(lengths));
    read_order(s, 1, 0, N, order);
    for (int k = 0; k < 2; k++) {
        int same = 0;
        read_order(s, k ? 2 : 1, k ? 0 : 1, N, other);
        for (int i = 0; i < N; i++) same += order[i] == other[i];
        CHECK_SAYING(same < 20, "%d at the same position", same);
    }
    int rising = 0; /* a random order of batches rises in half of the steps */
    for (int b = 1; b < FULL; b++)
        rising += lengths[order[b * BATCH]] > lengths[order[(b - 1) * BATCH]];
    CHECK_SAYING(rising > FULL / 4 && rising < FULL * 3 / 4, "%d of %d", rising, FULL);
}

/* With .drop_last the last batch is never seen: it must have short and long samples alike. */
CLEAN_TEST(the_batch_that_is_not_full_has_any_length) {
    GD_SCOPE;
    enum { EPOCHS = 200 };
    int64_t lengths[N], order[N];
    gd_sampler *s = gd_sampler_bucketed(random_lengths(lengths));
    int low = 0, high = 0;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        read_order(s, 5, epoch, N, order);
        low += lengths[order[N - 1]] < 125;
        high += lengths[order[N - 1]] > 375;
    }
    CHECK_SAYING(low > 25 && low < 75 && high > 25 && high < 75, "%d and %d of %d", low, high,
                 EPOCHS);
}

CLEAN_TEST(a_loader_with_it_is_the_same_with_workers_and_after_loading_its_state) {
    GD_SCOPE;
    numbers n = {.count = N};
    int64_t lengths[N];
    gd_tensor *column = random_lengths(lengths);
    const char *const file = "test_sampler_bucketed.safetensors";
    gd_loader *loaders[3];
    for (int i = 0; i < 3; i++)
        loaders[i] = gd_loader_new(NUMBERS(&n), .batch = BATCH, .seed = 9, .workers = i,
                                   .sampler = gd_sampler_bucketed(column));
    gd_tensors batch;
    for (int i = 0; i < 70; i++) /* into the second epoch */
        CHECK(gd_loader_next(loaders[0], &batch) == (i != N / BATCH + 1));
    CHECK(gd_save_state(file, gd_part("loader", loaders[0])) == GD_OK);
    for (int i = 1; i < 3; i++)
        CHECK_SAYING(gd_load_state(file, gd_part("loader", loaders[i])) == GD_OK, "%s",
                     gd_error_message());
    for (int k = 0; k < 100; k++) {
        uint64_t h[3] = {0};
        for (int i = 0; i < 3; i++)
            if (gd_loader_next(loaders[i], &batch)) h[i] = hash_batch(1, batch);
        CHECK(h[0] == h[1] && h[1] == h[2]);
    }
    gd_loader *other = gd_loader_new(NUMBERS(&n), .batch = BATCH, .seed = 9,
                                     .sampler = gd_sampler_bucketed(column, .pool = 7));
    CHECK(gd_load_state(file, gd_part("loader", other)) != GD_OK && says("pools of 7 batches"));
    gd_clear_error();
    remove(file);
}

CLEAN_TEST(messages_of_the_bucketed_sampler_state_what_is_expected) {
    GD_SCOPE;
    static const int64_t bad[] = {3, -1};
#define CHECK_FAILS(call, part)                             \
    do {                                                    \
        CHECK(!(call));                                     \
        CHECK_SAYING(says(part), "%s", gd_error_message()); \
        gd_clear_error();                                   \
    } while (0)
    CHECK_FAILS(gd_sampler_bucketed(NULL), "gd_sampler_bucketed: the lengths are NULL");
    CHECK_FAILS(gd_sampler_bucketed(gd_ones(gd_dims(3))), "f32; they should be integers");
    CHECK_FAILS(gd_sampler_bucketed(gd_zeros(gd_dims(0), .dtype = GD_I64)), "no lengths");
    CHECK_FAILS(gd_sampler_bucketed(gd_from_array(gd_dims(2), GD_I64, bad)), "length 1 is -1");
    CHECK_FAILS(gd_sampler_bucketed(gd_ones(gd_dims(3), .dtype = GD_I32), .pool = -1),
                ".pool is -1");
    numbers n = {.count = 4};
    gd_sampler *s = gd_sampler_bucketed(gd_ones(gd_dims(3), .dtype = GD_I32));
    CHECK_FAILS(gd_loader_new(NUMBERS(&n), .sampler = s),
                "the sampler is for 3 samples, and the dataset has 4");
}

TEST_MAIN
