/* test_datasets_combined.c - datasets of tensors and of other datasets. */
#include <math.h>

#include "loader_things.h"

static gd_tensor *count_up(int64_t rows, int64_t width) {
    gd_tensor *x = gd_arange(0, (double)(rows * width));
    return width == 1 ? x : gd_reshape(x, gd_dims(rows, width));
}

/* The number in tensor `field` of a sample; NAN: failed. */
static double value_of(gd_dataset *d, int64_t index, int field) {
    GD_SCOPE;
    gd_tensors sample = gd_dataset_get(d, index);
    if (gd_failed() || field >= sample.count) return NAN;
    return gd_item(
        gd_reshape(gd_slice(gd_reshape(sample.at[field], gd_dims(-1)), .stop = 1), gd_dims()));
}

#define CHECK_FAILS(call, part)                             \
    do {                                                    \
        CHECK(!(call));                                     \
        CHECK_SAYING(says(part), "%s", gd_error_message()); \
        gd_clear_error();                                   \
    } while (0)

/* --- tensors ---------------------------------------------------------------------------------- */

CLEAN_TEST(a_sample_of_tensors_is_a_row_of_each) {
    GD_SCOPE;
    gd_tensor *x = count_up(5, 3), *y = gd_arange(0, 5, .dtype = GD_I64);
    gd_dataset *d = gd_dataset_tensors(x, y);
    CHECK(gd_dataset_count(d) == 5);
    gd_tensors sample = gd_dataset_get(d, 2);
    CHECK(sample.count == 2 && gd_tensor_rank(sample.at[0]) == 1 &&
          gd_tensor_rank(sample.at[1]) == 0);
    float row[3];
    CHECK(gd_copy_to(sample.at[0], row, sizeof row) == GD_OK && row[0] == 6 && row[2] == 8);
    CHECK(gd_item_int(sample.at[1]) == 2);
}

/* A map function that prevents gathering: batches are then stacked sample by sample. */
static gd_tensors as_it_is(gd_tensors sample, gd_random *random, void *user) {
    (void)random, (void)user;
    return sample;
}

static void check_gather(gd_dataset *d, const char *what) {
    GD_SCOPE;
    gd_loader *fast = gd_loader_new(d, .batch = 4, .shuffle = true),
              *slow = gd_loader_new(gd_dataset_map(d, as_it_is, NULL), .batch = 4, .shuffle = true);
    CHECK_SAYING(hash_epoch(fast, NULL) == hash_epoch(slow, NULL) && !gd_failed(), "%s: %s", what,
                 gd_error_message());
}

CLEAN_TEST(gathered_batches_equal_stacked_samples) {
    GD_SCOPE;
    gd_tensor *x = count_up(11, 6), *y = gd_arange(0, 11, .dtype = GD_I64);
    gd_tensor *across = gd_transpose(gd_reshape(gd_arange(0, 66), gd_dims(6, 11)), 0, 1);
    gd_tensor *deep =
        gd_permute(gd_reshape(gd_arange(0, 264), gd_dims(11, 2, 3, 4)), gd_dims(0, 3, 1, 2));
    gd_tensor *none = gd_zeros(gd_dims(11, 0));
    gd_dataset *d = gd_dataset_tensors(x, across, gd_flip(deep, gd_dims(0)), none,
                                       gd_expand(gd_ones(gd_dims(1, 2)), gd_dims(11, 2)), y);
    check_gather(d, "tensors");
    check_gather(gd_dataset_range(d, 3, 6), "range");
    const int32_t some[] = {10, 0, 0, 4, 9};
    gd_dataset *subset = gd_dataset_subset(d, gd_from_array(gd_dims(5), GD_I32, some));
    check_gather(subset, "subset");
    check_gather(gd_dataset_zip(subset, gd_dataset_range(d, 0, 5)), "zip");
    check_gather(gd_dataset_concat(d, subset), "concat");
    gd_dataset *first, *rest;
    CHECK(gd_dataset_random_split(d, 0.5, &first, &rest) == GD_OK);
    check_gather(first, "split");
}

CLEAN_TEST(tensors_of_different_lengths_fail) {
    GD_SCOPE;
    CHECK_FAILS(gd_dataset_tensors(gd_ones(gd_dims(3, 2)), gd_ones(gd_dims(4))),
                "tensor 1 is f32[4] and tensor 0 is f32[3,2]");
    CHECK_FAILS(gd_dataset_tensors(gd_ones(gd_dims(3)), NULL), "tensor 1 is NULL");
    CHECK_FAILS(gd_dataset_tensors(gd_scalar(3)), "a single number");
    CHECK_FAILS(gd_dataset_tensors_at("x.c:1", (gd_tensors){NULL, 0}), "it takes 1 to 16");
}

/* --- selecting samples ------------------------------------------------------------------------ */

static bool is_even(gd_tensors sample, void *user) {
    if (user) ++*(int *)user;
    return gd_item_int(sample.at[1]) % 2 == 0;
}

CLEAN_TEST(range_subset_filter_and_concat_choose_samples) {
    GD_SCOPE;
    numbers n = {.count = 20};
    gd_dataset *d = NUMBERS(&n);
    gd_dataset *range = gd_dataset_range(d, 5, 10);
    CHECK(gd_dataset_count(range) == 10 && value_of(range, 0, 1) == 5 &&
          value_of(range, 9, 1) == 14);
    const int64_t some[] = {3, 3, 19};
    gd_tensor *indices = gd_from_array(gd_dims(3), GD_I64, some);
    gd_dataset *subset = gd_dataset_subset(d, indices);
    gd_add_(indices, gd_scalar_int(50)); /* the subset has its own copy */
    CHECK(gd_dataset_count(subset) == 3 && value_of(subset, 1, 1) == 3 &&
          value_of(subset, 2, 1) == 19);
    int looked = 0;
    gd_dataset *even = gd_dataset_filter(range, is_even, &looked);
    CHECK(looked == 10 && gd_dataset_count(even) == 5 && value_of(even, 0, 1) == 6 &&
          value_of(even, 4, 1) == 14);
    gd_dataset *empty = gd_dataset_range(d, 20, 0);
    gd_dataset *all = gd_dataset_concat(empty, subset, empty, even, d);
    CHECK(gd_dataset_count(all) == 28);
    const double first[] = {3, 3, 19, 6, 8, 10, 12, 14, 0, 1};
    for (int i = 0; i < 10; i++) CHECK(value_of(all, i, 1) == first[i]);
    CHECK(value_of(all, 27, 1) == 19);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(isnan(value_of(all, 28, 1)) && says("concat has 28 samples"));
    gd_clear_error();
}

CLEAN_TEST(a_random_split_is_a_partition_that_depends_on_the_seed) {
    GD_SCOPE;
    numbers n = {.count = 101};
    gd_dataset *d = NUMBERS(&n), *parts[2], *again[2], *other[2];
    CHECK(gd_dataset_random_split(d, 0.8, &parts[0], &parts[1], .seed = 4) == GD_OK);
    CHECK(gd_dataset_random_split(d, 0.8, &again[0], &again[1], .seed = 4) == GD_OK);
    CHECK(gd_dataset_random_split(d, 0.8, &other[0], &other[1], .seed = 5) == GD_OK);
    CHECK(gd_dataset_count(parts[0]) == 81 && gd_dataset_count(parts[1]) == 20);
    int seen[101] = {0}, same = 0;
    for (int p = 0; p < 2; p++)
        for (int64_t i = 0; i < gd_dataset_count(parts[p]); i++) {
            const double here = value_of(parts[p], i, 1);
            seen[(int)here]++;
            CHECK(here == value_of(again[p], i, 1));
            same += here == value_of(other[p], i, 1);
        }
    for (int i = 0; i < 101; i++) CHECK(seen[i] == 1);
    CHECK(same < 8);
    for (int k = 0; k < 2; k++) {
        CHECK(gd_dataset_random_split(d, k, &parts[0], &parts[1]) == GD_OK);
        CHECK(gd_dataset_count(parts[0]) == 101 * k && gd_dataset_count(parts[1]) == 101 * (1 - k));
    }
    CHECK(gd_dataset_random_split(d, 1.5, &parts[0], &parts[1]) == GD_E_ARGUMENT);
    CHECK(says("share is 1.5") && !parts[0] && !parts[1]);
}

CLEAN_TEST(invalid_selections_fail) {
    GD_SCOPE;
    numbers n = {.count = 20}, broken = {.count = 20, .broken_every = 6};
    gd_dataset *d = NUMBERS(&n);
    CHECK_FAILS(gd_dataset_range(d, 15, 6),
                "a range of 6 samples from sample 15 on; numbers has 20 samples");
    CHECK_FAILS(gd_dataset_range(d, -1, 2), "sample -1");
    CHECK_FAILS(gd_dataset_range(d, INT64_MAX, INT64_MAX), "numbers has 20");
    CHECK_FAILS(gd_dataset_range(NULL, 0, 0), "the dataset is NULL");
    const int64_t some[] = {0, 20};
    CHECK_FAILS(gd_dataset_subset(d, gd_from_array(gd_dims(2), GD_I64, some)),
                "index 1 is 20; numbers has 20");
    CHECK_FAILS(gd_dataset_subset(d, gd_ones(gd_dims(2))),
                "f32[2]; they should be i32 or i64 of rank 1");
    CHECK_FAILS(gd_dataset_subset(d, NULL), "the indices are NULL");
    CHECK_FAILS(gd_dataset_filter(d, NULL, NULL), "the function is NULL");
    CHECK_FAILS(gd_dataset_filter(NUMBERS(&broken), is_even, NULL), "numbers: sample 5: ");
    CHECK_FAILS(gd_dataset_concat(d, NULL), "dataset 1 is NULL");
    CHECK_FAILS(gd_dataset_zip(d, gd_dataset_range(d, 0, 3)),
                "dataset 1 has 3 samples and dataset 0 has 20");
    CHECK_FAILS(gd_dataset_map(d, NULL, NULL), "the function is NULL");
}

/* --- new samples ------------------------------------------------------------------------------ */

static gd_tensors add_noise(gd_tensors sample, gd_random *random, void *user) {
    GD_SCOPE; /* frees the intermediate tensors */
    gd_tensor *noise = gd_scalar(gd_random_uniform(random));
    gd_tensor *x = gd_mul(gd_add(sample.at[0], noise), gd_scalar(*(double *)user));
    return gd_keep_list(gd_listed(x, sample.at[1]));
}

CLEAN_TEST(map_draws_different_random_numbers_for_each_sample) {
    GD_SCOPE;
    double factor = 100;
    numbers n = {.count = 30};
    gd_dataset *d = gd_dataset_map(NUMBERS(&n), add_noise, &factor);
    const double x = value_of(d, 7, 0);
    CHECK_SAYING(x > 700 && x < 800 && x == value_of(d, 7, 0), "%g", x);
    gd_tensors other = gd_dataset_get(d, 7, .epoch = 1);
    CHECK(gd_item(gd_slice(other.at[0], .stop = 1)) != x);
    uint64_t plain = 0;
    for (int workers = 0; workers <= 4; workers += 2) {
        gd_loader *l = gd_loader_new(d, .batch = 4, .shuffle = true, .workers = workers);
        const uint64_t h = hash_epoch(l, NULL);
        if (workers == 0) plain = h;
        CHECK(h == plain);
    }
}

static gd_tensors fails_at_three(gd_tensors sample, gd_random *random, void *user) {
    (void)random, (void)user;
    if (gd_item_int(sample.at[1]) != 3) return sample;
    return gd_listed(gd_matmul(sample.at[0], gd_ones(gd_dims(5, 5))));
}

static gd_tensors returns_nothing(gd_tensors sample, gd_random *random, void *user) {
    (void)sample, (void)random, (void)user;
    return (gd_tensors){NULL, 0};
}

static gd_tensors __attribute__((noinline))
returns_its_frame(gd_tensors sample, gd_random *random, void *user) {
    (void)random, (void)user;
    return gd_list(sample.at[0], sample.at[1]);
}

CLEAN_TEST(a_failure_in_map_names_the_sample) {
    GD_SCOPE;
    numbers n = {.count = 10};
    gd_dataset *d = gd_dataset_map(gd_dataset_range(NUMBERS(&n), 1, 8), fails_at_three, NULL);
    gd_dataset_get(d, 1);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_dataset_get(d, 2);
    CHECK_SAYING(says("sample 3") && says("gd_dataset_map") && says("matmul"), "%s",
                 gd_error_message());
    gd_clear_error();
    gd_dataset_get(gd_dataset_map(d, returns_nothing, NULL), 0);
    CHECK_SAYING(says("sample 1") && says("no tensors"), "%s", gd_error_message());
    gd_clear_error();
    gd_dataset_get(gd_dataset_map(d, returns_its_frame, NULL), 0);
    CHECK_SAYING(says("gd_listed"), "%s", gd_error_message());
    gd_clear_error();
}

CLEAN_TEST(zip_joins_the_tensors_of_samples) {
    GD_SCOPE;
    numbers n = {.count = 6};
    gd_dataset *d = gd_dataset_zip(NUMBERS(&n), gd_dataset_tensors(count_up(6, 2)));
    CHECK(gd_dataset_count(d) == 6 && value_of(d, 4, 1) == 4 && value_of(d, 4, 2) == 8);
    gd_dataset *wide = gd_dataset_zip(d, d, d, d, d, d);
    CHECK(isnan(value_of(wide, 0, 0)) && says("18 tensors; at most 16"));
    gd_clear_error();
}

CLEAN_TEST(combined_datasets_keep_names_of_classes_and_samples) {
    GD_SCOPE;
    numbers n = {.count = 30};
    gd_dataset *digits = gd_dataset_digits(.count = 30), *plain = NUMBERS(&n), *first, *rest;
    CHECK(gd_dataset_class_count(digits) == 10);
    gd_dataset_random_split(digits, 0.5, &first, &rest);
    const int64_t some[] = {7, 9};
    gd_dataset *subset = gd_dataset_subset(plain, gd_from_array(gd_dims(2), GD_I64, some));
    gd_dataset *with[] = {gd_dataset_range(digits, 2, 3), first,
                          gd_dataset_map(digits, as_it_is, NULL), gd_dataset_concat(digits, rest),
                          gd_dataset_zip(plain, digits)};
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        CHECK(gd_dataset_class_count(with[i]) == 10);
        CHECK(strcmp(gd_dataset_class_name(with[i], 7), "7") == 0);
    }
    CHECK(gd_dataset_class_count(gd_dataset_concat(digits, plain)) == 0);
    char text[80];
    gd_dataset *all = gd_dataset_concat(gd_dataset_range(plain, 20, 5), subset);
    CHECK(strcmp(gd_dataset_sample_name(all, 1, text, sizeof text), "sample 21") == 0);
    CHECK(strcmp(gd_dataset_sample_name(gd_dataset_zip(all), 6, text, sizeof text), "sample 9") ==
          0);
}

TEST_MAIN
