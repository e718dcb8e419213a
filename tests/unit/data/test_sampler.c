/* test_sampler.c - random numbers of the data pipeline, the keyed permutation, and the samples of
 * an epoch. */
#include <malloc.h>
#include <math.h>

#include "data/permute.h"
#include "data/sampler.h"
#include "loader_things.h"

/* --- gd_random -------------------------------------------------------------------------------- */

/* The published test vectors of Random123 for Philox 4x32-10. */
TEST(random_words_come_from_philox) {
    static const struct {
        gd_rng rng;
        uint64_t block;
        uint32_t words[4];
    } known[] = {
        {{0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{UINT64_MAX, UINT64_MAX}, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x299f31d0a4093822, 0x0370734413198a2e},
         0x85a308d3243f6a88,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        gd_random r = gd_random_of(known[i].rng.seed, known[i].rng.call);
        r.block = known[i].block;
        for (int k = 0; k < 4; k++) CHECK(gd_random_word(&r) == known[i].words[k]);
    }
}

TEST(a_copied_generator_continues_alike_and_streams_differ) {
    gd_random a = gd_random_of(3, 4), other = gd_random_of(3, 5);
    gd_random_word(&a);
    gd_random b = a;
    int same = 0;
    for (int i = 0; i < 100; i++) {
        const uint32_t word = gd_random_word(&a);
        CHECK(word == gd_random_word(&b));
        same += word == gd_random_word(&other);
    }
    CHECK(same == 0 && gd_random_word(NULL) == 0 && gd_random_below(NULL, 5) == 0);
}

/* Pearson's chi-squared statistic for `cells` equally likely cells, in standard deviations from its
 * mean. */
static double chi_squared_deviation(const int *counts, int cells, int draws) {
    double sum = 0;
    const double expected = (double)draws / cells;
    for (int i = 0; i < cells; i++)
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    return (sum - (cells - 1)) / sqrt(2.0 * (cells - 1));
}

TEST(numbers_are_uniform_between_their_bounds_and_normal) {
    enum { DRAWS = 200000, CELLS = 100 };
    gd_random r = gd_random_of(11, 0);
    int uniform[CELLS] = {0}, between[CELLS] = {0};
    double sum = 0, squares = 0;
    int beyond = 0; /* outside 1.96 deviations */
    for (int i = 0; i < DRAWS; i++) {
        const double u = gd_random_uniform(&r), b = gd_random_between(&r, -3, 5),
                     z = gd_random_normal(&r);
        CHECK(u >= 0 && u < 1 && b >= -3 && b < 5);
        uniform[(int)(u * CELLS)]++;
        between[(int)((b + 3) / 8 * CELLS)]++;
        sum += z;
        squares += z * z;
        beyond += fabs(z) > 1.959964;
    }
    CHECK(fabs(chi_squared_deviation(uniform, CELLS, DRAWS)) < 4 &&
          fabs(chi_squared_deviation(between, CELLS, DRAWS)) < 4);
    CHECK(fabs(sum / DRAWS) < 4 / sqrt(DRAWS) && fabs(squares / DRAWS - 1) < 4 * sqrt(2.0 / DRAWS));
    CHECK(fabs(beyond - 0.05 * DRAWS) < 4 * sqrt(0.05 * 0.95 * DRAWS));
}

TEST(each_number_below_a_count_is_equally_likely) {
    enum { DRAWS = 200000 };
    gd_random r = gd_random_of(5, 1);
    for (int n = 2; n <= 60; n += 29) {
        int counts[60] = {0};
        for (int i = 0; i < DRAWS; i++) counts[gd_random_below(&r, n)]++;
        CHECK_SAYING(fabs(chi_squared_deviation(counts, n, DRAWS)) < 4, "below %d", n);
    }
    /* 2^64 is 8/3 of this: with a plain remainder, 3/4 of the draws would be in the lower 2/3 */
    const int64_t large = INT64_C(3) << 61;
    int low = 0;
    for (int i = 0; i < DRAWS; i++) {
        const int64_t x = gd_random_below(&r, large);
        CHECK(x >= 0 && x < large);
        low += x < INT64_C(1) << 62;
    }
    CHECK_SAYING(fabs(low - DRAWS * 2 / 3.0) < 4 * sqrt(DRAWS * 2 / 9.0), "%d of %d are low", low,
                 DRAWS);
    CHECK(gd_random_below(&r, 1) == 0 && gd_random_below(&r, 0) == 0 &&
          gd_random_below(&r, -9) == 0);
}

/* --- the permutation -------------------------------------------------------------------------- */

static void check_permutation(gd_rng key, int64_t n) {
    unsigned char *seen = calloc(1, (size_t)n + 1);
    int64_t missing = n;
    for (int64_t i = 0; i < n; i++) {
        const int64_t to = gd_shuffled(key, i, n);
        CHECK_SAYING(to >= 0 && to < n && !seen[to], "n %" PRId64 ": %" PRId64 " to %" PRId64, n, i,
                     to);
        if (test_failures > 5) break;
        missing -= !seen[to];
        seen[to] = 1;
    }
    CHECK(missing == 0);
    free(seen);
}

TEST(every_count_has_a_permutation) {
    for (int64_t n = 1; n <= 2500 && !test_failures; n++)
        check_permutation(gd_draw_key(GD_DRAW_ORDER, (uint64_t)n * 17, (uint64_t)n % 3), n);
    check_permutation(gd_draw_key(GD_DRAW_ORDER, 1, 0), 1 << 20);
    check_permutation(gd_draw_key(GD_DRAW_ORDER, 2, 0), (1 << 20) + 1);
}

/* Counts too large for a table: positions are in range, and a few of them are all different. */
TEST(huge_counts_stay_in_range) {
    static const int64_t counts[] = {INT64_C(1) << 33, (INT64_C(1) << 40) + 12345, INT64_MAX};
    for (int c = 0; c < 3; c++)
        for (int64_t i = 0; i < 1000; i++) {
            const int64_t a = gd_shuffled((gd_rng){1, 2}, i, counts[c]),
                          b = gd_shuffled((gd_rng){1, 2}, counts[c] - 1 - i, counts[c]);
            CHECK(a >= 0 && a < counts[c] && b >= 0 && b < counts[c] && a != b);
        }
}

/* Each of the n! orders of few samples is equally likely. */
TEST(all_orders_of_few_samples_are_equally_likely) {
    static const int factorial[] = {1, 1, 2, 6, 24, 120};
    enum { DRAWS = 60000 };
    for (int n = 2; n <= 5; n++) {
        int counts[120] = {0};
        for (int k = 0; k < DRAWS; k++) {
            int order[5], rank = 0;
            for (int i = 0; i < n; i++)
                order[i] = (int)gd_shuffled(gd_draw_key(GD_DRAW_ORDER, 77, (uint64_t)k), i, n);
            for (int i = 0; i < n; i++) {
                int below = 0;
                for (int j = i + 1; j < n; j++) below += order[j] < order[i];
                rank += below * factorial[n - 1 - i];
            }
            counts[rank]++;
        }
        const double e = chi_squared_deviation(counts, factorial[n], DRAWS);
        CHECK_SAYING(e < 4, "orders of %d: %g", n, e);
    }
}

/* The position of one sample, and the relative position of two, over many keys. */
TEST(positions_of_samples_and_of_pairs_are_uniform) {
    static const int64_t counts[] = {8, 37, 64, 100, 1000, 65536, 100003};
    enum { DRAWS = 40000, CELLS = 8 };
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const int64_t n = counts[c];
        int place[CELLS] = {0}, distance[CELLS] = {0};
        for (int k = 0; k < DRAWS; k++) {
            const gd_rng key = gd_draw_key(GD_DRAW_ORDER, (uint64_t)k, 3);
            const int64_t a = gd_shuffled(key, n / 3, n), b = gd_shuffled(key, n / 3 + 1, n);
            place[a * CELLS / n]++;
            distance[(((b - a) % n + n) % n - 1) * CELLS / (n - 1)]++;
        }
        double sum = 0;
        for (int i = 0; i < CELLS; i++) { /* cells differ by one sample in size */
            int64_t own = 0;
            for (int64_t x = 0; x < n && n < 2000; x++) own += x * CELLS / n == i;
            const double expected =
                n < 2000 ? (double)DRAWS * (double)own / (double)n : DRAWS / (double)CELLS;
            sum += (place[i] - expected) * (place[i] - expected) / expected;
        }
        CHECK_SAYING((sum - 7) / sqrt(14) < 4, "n %" PRId64 ": places %g", n, sum);
        if (n >= 1000)
            CHECK_SAYING(chi_squared_deviation(distance, CELLS, DRAWS) < 4,
                         "n %" PRId64 ": distances", n);
    }
}

TEST(orders_of_epochs_and_seeds_are_independent) {
    enum { N = 10000 };
    for (uint64_t k = 0; k < 4; k++) {
        int same_epoch = 0, same_seed = 0, fixed = 0;
        for (int64_t i = 0; i < N; i++) {
            const int64_t position = gd_shuffled(gd_draw_key(GD_DRAW_ORDER, k, k), i, N);
            same_epoch += position == gd_shuffled(gd_draw_key(GD_DRAW_ORDER, k, k + 1), i, N);
            same_seed += position == gd_shuffled(gd_draw_key(GD_DRAW_ORDER, k + 1, k), i, N);
            fixed += position == i;
        }
        /* each has mean 1 */
        CHECK_SAYING(same_epoch < 8 && same_seed < 8 && fixed < 8, "%d %d %d", same_epoch,
                     same_seed, fixed);
    }
}

/* --- samplers --------------------------------------------------------------------------------- */

/* Reads the samples of an epoch from the sampler, `step` at a time. */
static int64_t read_epoch(gd_sampler *s, int64_t samples, uint64_t seed, uint64_t epoch,
                          int64_t step, int64_t *indices) {
    gd_order order = {.sampler = s, .samples = samples, .seed = seed};
    CHECK(gd_order_begin(&order, epoch) == GD_OK);
    const int64_t count = gd_order_count(&order);
    for (int64_t i = 0; i < count; i += step)
        CHECK(gd_order_at(&order, i, count - i < step ? count - i : step, indices + i) == GD_OK);
    gd_order_end(&order);
    return count;
}

CLEAN_TEST(weighted_draws_are_proportional_to_the_weights) {
    GD_SCOPE;
    enum { N = 300, DRAWS = 200000 };
    float weights[N];
    double total = 0;
    for (int i = 0; i < N; i++) total += weights[i] = i % 7 == 0 ? 0 : (float)(1 + i % 5);
    gd_tensor *w = gd_from_array(gd_dims(N), GD_F32, weights);
    gd_sampler *s = gd_sampler_weighted(w, .count = DRAWS);
    int64_t *drawn = malloc(DRAWS * sizeof *drawn);
    CHECK(read_epoch(s, N, 9, 0, 777, drawn) == DRAWS);
    int counts[N] = {0}, kinds = 0;
    for (int i = 0; i < DRAWS; i++) counts[drawn[i]]++;
    double sum = 0;
    for (int i = 0; i < N; i++) {
        const double expected = weights[i] / total * DRAWS;
        if (weights[i] == 0) CHECK(counts[i] == 0);
        else sum += (counts[i] - expected) * (counts[i] - expected) / expected, kinds++;
    }
    CHECK_SAYING(fabs(sum - (kinds - 1)) < 4 * sqrt(2.0 * (kinds - 1)), "%g of %d", sum, kinds);
    free(drawn);
    /* strided weights of another dtype give the same draws */
    gd_tensor *pairs = gd_stack(gd_list(gd_zeros(gd_dims(N)), w), .axis = 1);
    gd_tensor *wide = gd_select(gd_cast(pairs, GD_F64), 1, 1);
    int64_t a[100], b[100];
    read_epoch(gd_sampler_weighted(w, .count = 100), N, 1, 2, 10, a);
    read_epoch(gd_sampler_weighted(wide, .count = 100), N, 1, 2, 100, b);
    CHECK_SAYING(memcmp(a, b, sizeof a) == 0, "%s", gd_error_message());
}

CLEAN_TEST(without_replacement_samples_are_unique_and_heavy_ones_come_first) {
    GD_SCOPE;
    enum { N = 1000, EPOCHS = 3000 };
    float weights[N];
    for (int i = 0; i < N; i++) weights[i] = i % 4 == 3 ? 0 : i % 2 ? 3 : 1;
    gd_tensor *w = gd_from_array(gd_dims(N), GD_F32, weights);
    gd_sampler *all = gd_sampler_weighted(w, .count = 750, .replacement = false);
    gd_sampler *few = gd_sampler_weighted(w, .count = 10, .replacement = false);
    int64_t order[N], first[10];
    int heavy = 0;
    for (int e = 0; e < EPOCHS; e++) {
        CHECK(read_epoch(few, N, 4, (uint64_t)e, 10, first) == 10);
        heavy += weights[first[0]] == 3;
        if (e % 100) continue;
        char seen[N] = {0};
        CHECK(read_epoch(all, N, 4, (uint64_t)e, 64, order) == 750);
        for (int i = 0; i < 750; i++) CHECK(weights[order[i]] > 0 && !seen[order[i]]++);
        CHECK(memcmp(order, first, sizeof first) == 0); /* a prefix of the same order */
    }
    /* 250 samples of weight 3 and 500 of weight 1: three of five first draws are heavy */
    CHECK_SAYING(fabs(heavy - 0.6 * EPOCHS) < 4 * sqrt(0.24 * EPOCHS), "%d of %d", heavy, EPOCHS);
    /* weights whose keys overflow still count */
    const double tiny[] = {1e300, 5e-324, 1};
    gd_sampler *odd =
        gd_sampler_weighted(gd_from_array(gd_dims(3), GD_F64, tiny), .replacement = false);
    CHECK(read_epoch(odd, 3, 0, 0, 3, order) == 3 && order[0] == 0 && order[1] == 2 &&
          order[2] == 1);
}

CLEAN_TEST(each_segment_of_a_stratified_order_keeps_the_class_proportions) {
    GD_SCOPE;
    enum { N = 4000, CLASSES = 8, STRETCH = 100 };
    static const int sizes[CLASSES] = {1000, 1000, 1000, 500, 300, 150, 45, 5};
    int64_t classes[N], order[N], again[N];
    int at = 0;
    for (int c = 0; c < CLASSES; c++)
        for (int i = 0; i < sizes[c]; i++) classes[at++] = c;
    gd_sampler *s = gd_sampler_stratified(gd_from_array(gd_dims(N), GD_I64, classes));
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        CHECK(read_epoch(s, N, 3, epoch, STRETCH, order) == N);
        read_epoch(s, N, 3, epoch, 37, again);
        CHECK(memcmp(order, again, sizeof order) == 0);
        char seen[N] = {0};
        for (int i = 0; i < N; i++) CHECK(!seen[order[i]]++);
        for (int first = 0; first + STRETCH <= N; first += 17) {
            int counts[CLASSES] = {0};
            for (int i = 0; i < STRETCH; i++) counts[classes[order[first + i]]]++;
            for (int c = 0; c < CLASSES; c++) {
                const double share = (double)sizes[c] / N * STRETCH;
                CHECK_SAYING(fabs(counts[c] - share) <= 3, "class %d: %d of %g", c, counts[c],
                             share);
            }
        }
        if (test_failures > 5) break;
    }
}

CLEAN_TEST(stratified_orders_are_shuffled_and_accept_any_integer_labels) {
    GD_SCOPE;
    enum { N = 600 };
    int64_t far[N], order[2][N];
    int8_t near[N];
    for (int i = 0; i < N; i++) {
        near[i] = (int8_t)(i % 3 - 1);
        far[i] = near[i] * (INT64_MAX / 2); /* labels too far apart for a table */
    }
    gd_sampler *a = gd_sampler_stratified(gd_from_array(gd_dims(N), GD_I64, far)),
               *b = gd_sampler_stratified(gd_from_array(gd_dims(N), GD_I8, near));
    read_epoch(a, N, 1, 0, N, order[0]);
    read_epoch(b, N, 1, 0, N, order[1]);
    CHECK(memcmp(order[0], order[1], sizeof *order) == 0);
    for (int i = 0; i < N; i += 3) { /* three classes of equal size: each once in a round */
        int sum = 0, most = -9;
        for (int k = 0; k < 3; k++)
            sum += near[order[0][i + k]],
                most = near[order[0][i + k]] > most ? near[order[0][i + k]] : most;
        CHECK(sum == 0 && most == 1);
    }
    read_epoch(a, N, 1, 1, N, order[1]);
    int same = 0, in_order = 0;
    for (int i = 0; i < N; i++) same += order[0][i] == order[1][i], in_order += order[0][i] == i;
    CHECK_SAYING(same < 20 && in_order < 20, "%d, %d", same, in_order);
    /* each sample in its own class, and all samples in one class */
    for (int i = 0; i < N; i++) far[i] = i;
    read_epoch(gd_sampler_stratified(gd_from_array(gd_dims(N), GD_I64, far)), N, 1, 0, 50,
               order[0]);
    read_epoch(gd_sampler_stratified(gd_zeros(gd_dims(N), .dtype = GD_I32)), N, 1, 0, 50, order[1]);
    for (int k = 0; k < 2; k++) {
        char seen[N] = {0};
        for (int i = 0; i < N; i++) CHECK(!seen[order[k][i]]++);
    }
}

CLEAN_TEST(ranks_have_equal_shares_that_cover_all_samples) {
    GD_SCOPE;
    for (int n = 1; n <= 40; n += 13)
        for (int world = 1; world <= 7; world += 2)
            for (int how = 0; how < 4; how++) {
                int times[40] = {0}, total = 0;
                int64_t order[40];
                for (int rank = 0; rank < world; rank++) {
                    gd_sampler *s = gd_sampler_distributed(rank, world, .shuffle = how % 2 == 1,
                                                           .drop_last = how >= 2);
                    const int64_t count = read_epoch(s, n, 8, 1, 40, order);
                    CHECK(count == (how >= 2 ? n / world : (n + world - 1) / world));
                    for (int64_t i = 0; i < count; i++) times[order[i]]++, total++;
                }
                for (int i = 0; i < n; i++)
                    CHECK(how >= 2 ? times[i] <= 1
                                   : times[i] >= 1 && times[i] <= 1 + (total - 1) / n);
            }
}

/* --- memory ----------------------------------------------------------------------------------- */

static int64_t million_count(void *self) {
    (void)self;
    return 10000000;
}
static gd_tensors million_get(int64_t index, gd_random *random, void *self) {
    (void)random, (void)self;
    return gd_listed(gd_scalar_of((double)index, GD_I64));
}

static double used_megabytes(void) {
    const struct mallinfo2 info = mallinfo2();
    return (double)(info.uordblks + info.hblkhd) / 1e6;
}

/* The memory that a loader of ten million samples uses while it runs. */
static void check_bookkeeping(const char *what, gd_sampler *sampler, double before) {
    GD_SCOPE;
    gd_dataset *d = gd_dataset_from(NULL, .count = million_count, .get = million_get);
    gd_loader *l = gd_loader_new(d, .batch = 64, .shuffle = !sampler, .sampler = sampler,
                                 .workers = 2, .targets = 0);
    gd_tensors batch;
    for (int i = 0; i < 50; i++) CHECK(gd_loader_next(l, &batch));
    gd_dataset *train, *rest;
    gd_dataset_random_split(d, 0.9, &train, &rest);
    CHECK(gd_dataset_count(train) == 9000000 && gd_dataset_count(rest) == 1000000);
    const double used = used_megabytes() - before;
    CHECK_SAYING(used < 64, "%s: %.1f MB", what, used);
    printf("# bookkeeping of ten million samples, %s: %.2f MB\n", what, used);
}

CLEAN_TEST(ten_million_samples_use_less_than_64_megabytes) {
    GD_SCOPE;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("the sanitizer's allocator does not count");
#endif
    check_bookkeeping("shuffled", NULL, used_megabytes());
    gd_tensor *weights = gd_ones(gd_dims(10000000));
    gd_tensor *classes =
        gd_remainder(gd_arange(0, 10000000, .dtype = GD_I32), gd_scalar_of(1000, GD_I32));
    for (int k = 0; k < 3; k++) {
        GD_SCOPE;
        const double before = used_megabytes();
        gd_sampler *s = k == 0   ? gd_sampler_weighted(weights)
                        : k == 1 ? gd_sampler_weighted(weights, .replacement = false)
                                 : gd_sampler_stratified(classes);
        static const char *const names[] = {"weighted", "weighted without replacement",
                                            "stratified"};
        check_bookkeeping(names[k], s, before);
    }
}

/* --- invalid arguments ------------------------------------------------------------------------ */

CLEAN_TEST(messages_of_samplers_state_what_is_expected) {
    GD_SCOPE;
#define CHECK_FAILS(call, part)                             \
    do {                                                    \
        CHECK(!(call));                                     \
        CHECK_SAYING(says(part), "%s", gd_error_message()); \
        gd_clear_error();                                   \
    } while (0)
    const float bad[] = {1, -2, 1}, none[] = {0, 0}, some[] = {0, 1, 0};
    CHECK_FAILS(gd_sampler_weighted(NULL), "the weights are NULL");
    CHECK_FAILS(gd_sampler_weighted(gd_ones(gd_dims(2, 2))), "f32[2,2]; they should have rank 1");
    CHECK_FAILS(gd_sampler_weighted(gd_zeros(gd_dims(2), .dtype = GD_I64)), "should be floats");
    CHECK_FAILS(gd_sampler_weighted(gd_ones(gd_dims(0))), "there are no weights");
    CHECK_FAILS(gd_sampler_weighted(gd_from_array(gd_dims(3), GD_F32, bad)), "weight 1 is -2");
    CHECK_FAILS(gd_sampler_weighted(gd_from_array(gd_dims(2), GD_F32, none)),
                "all 2 weights are 0");
    CHECK_FAILS(gd_sampler_weighted(gd_ones(gd_dims(3)), .count = -4), ".count is -4");
    CHECK_FAILS(gd_sampler_weighted(gd_from_array(gd_dims(3), GD_F32, some), .replacement = false),
                "only 1 of the 3 weights are above 0");
    CHECK_FAILS(gd_sampler_stratified(gd_ones(gd_dims(3))), "should be integers");
    CHECK_FAILS(gd_sampler_stratified(NULL), "the classes are NULL");
    CHECK_FAILS(gd_sampler_distributed(0, 0), "world is 0");
    CHECK_FAILS(gd_sampler_distributed(4, 4), "it must be from 0 to 3");
    CHECK_FAILS(gd_sampler_from(NULL), ".at");
}

TEST_MAIN
