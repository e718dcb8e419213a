/* test_loader_batches.c - how samples become a batch: stacked, padded or collated, and broken
 * samples. */
#include "backend/test/device.h"
#include "loader_things.h"

/* --- shapes ----------------------------------------------------------------------------------- */

/* Sample i has three tensors: i32 with i % 4 + 1 times the number i, a (2, i % 3) matrix of ones,
 * and a number. */
static int64_t ragged_count(void *self) {
    (void)self;
    return 9;
}
static gd_tensors ragged_get(int64_t index, gd_random *random, void *self) {
    (void)random, (void)self;
    return gd_listed(gd_full(gd_dims(index % 4 + 1), (double)index, .dtype = GD_I32),
                     gd_transpose(gd_ones(gd_dims(index % 3, 2)), 0, 1),
                     gd_scalar_of((double)index, GD_I64));
}
static gd_dataset *ragged_dataset(void) {
    return gd_dataset_from(NULL, .count = ragged_count, .get = ragged_get, .name = "ragged");
}

CLEAN_TEST(an_error_about_different_shapes_names_both_samples) {
    GD_SCOPE;
    for (int workers = 0; workers <= 2; workers += 2) {
        gd_loader *l = gd_loader_new(ragged_dataset(), .batch = 3, .workers = workers);
        gd_tensors batch;
        CHECK(!gd_loader_next(l, &batch) && gd_error_status() == GD_E_SHAPE);
        CHECK(batch.count > 0 && gd_tensor_is_error(batch.at[0]));
        CHECK_SAYING(
            says("sample 0 and sample 1 do not fit in one batch: tensor 0 is i32[1] and i32[2]") &&
                says(".pad") && says("test_loader_batches.c:"),
            "%s", gd_error_message());
        gd_clear_error();
    }
}

CLEAN_TEST(pad_extends_each_axis_at_its_end) {
    GD_SCOPE;
    for (int workers = 0; workers <= 2; workers += 2) {
        gd_loader *l = gd_loader_new(ragged_dataset(), .batch = 4, .workers = workers, .pad = true,
                                     .pad_value = -7);
        gd_tensors batch;
        CHECK_SAYING(gd_loader_next(l, &batch), "%s", gd_error_message());
        CHECK(batch.count == 3 && gd_tensor_is_contiguous(batch.at[0]));
        const int32_t rows[4][4] = {{0, -7, -7, -7}, {1, 1, -7, -7}, {2, 2, 2, -7}, {3, 3, 3, 3}};
        int32_t got[4][4];
        CHECK(gd_tensor_dim(batch.at[0], 0) == 4 && gd_tensor_dim(batch.at[0], 1) == 4);
        CHECK(gd_copy_to(batch.at[0], got, sizeof got) == GD_OK &&
              memcmp(rows, got, sizeof got) == 0);
        const float flat[4][2][2] = {
            {{-7, -7}, {-7, -7}}, {{1, -7}, {1, -7}}, {{1, 1}, {1, 1}}, {{-7, -7}, {-7, -7}}};
        float two[4][2][2];
        CHECK(gd_tensor_rank(batch.at[1]) == 3 && gd_tensor_dim(batch.at[1], 2) == 2);
        CHECK(gd_copy_to(batch.at[1], two, sizeof two) == GD_OK &&
              memcmp(flat, two, sizeof two) == 0);
        CHECK(gd_tensor_rank(batch.at[2]) == 1);
        /* the last batch has one sample */
        CHECK(gd_loader_next(l, &batch) && gd_loader_next(l, &batch));
        CHECK(gd_tensor_dim(batch.at[0], 0) == 1 && gd_tensor_dim(batch.at[0], 1) == 1);
        CHECK(!gd_loader_next(l, &batch) && !gd_failed());
    }
}

/* Samples that cannot be stacked for another reason than their shape. */
static gd_tensors odd_get(int64_t index, gd_random *random, void *self) {
    (void)random;
    gd_tensor *x = gd_ones(gd_dims(2));
    switch (*(int *)self) {
    case 0: return index ? gd_listed(gd_cast(x, GD_F64)) : gd_listed(x);
    case 1: return index ? gd_listed(gd_ones(gd_dims(2, 1))) : gd_listed(x);
    case 2: return index ? gd_listed(x, x) : gd_listed(x);
    default: return gd_listed(gd_ones(gd_dims(1, 1, 1, 1, 1, 1, 1, 1)));
    }
}

CLEAN_TEST(samples_that_differ_in_rank_dtype_or_count_fail_with_and_without_pad) {
    GD_SCOPE;
    static const char *const words[] = {"tensor 0 is f32[2] and f64[2]",
                                        "tensor 0 is f32[2] and f32[2,1]",
                                        "sample 0 has 1 tensors and sample 1 has 2", "rank 8"};
    for (int kind = 0; kind < 4; kind++)
        for (int pad = 0; pad < 2; pad++) {
            gd_dataset *d = gd_dataset_from(&kind, .count = ragged_count, .get = odd_get);
            gd_loader *l =
                gd_loader_new(d, .batch = 2, .pad = pad, .skip_broken = true, .targets = 0);
            gd_tensors batch;
            CHECK(!gd_loader_next(l, &batch));
            CHECK_SAYING(says(words[kind]), "%s", gd_error_message());
            gd_clear_error();
        }
}

/* --- collate functions ------------------------------------------------------------------------ */

static gd_tensors collate_lengths(const gd_tensors *samples, int64_t count, void *user) {
    GD_SCOPE;
    int64_t sizes[16];
    for (int64_t i = 0; i < count; i++)
        sizes[i] = gd_tensor_dim(samples[i].at[0], 0) * *(int *)user;
    return gd_keep_list(gd_listed(samples[0].at[0], gd_from_array(gd_dims(count), GD_I64, sizes)));
}
static gd_tensors collate_fails(const gd_tensors *samples, int64_t count, void *user) {
    (void)count, (void)user;
    return gd_listed(gd_reshape(samples[0].at[0], gd_dims(77)));
}

CLEAN_TEST(a_collate_function_builds_the_batch) {
    GD_SCOPE;
    int factor = 10;
    for (int workers = 0; workers <= 2; workers += 2) {
        gd_loader *l = gd_loader_new(ragged_dataset(), .batch = 4, .workers = workers,
                                     .collate = collate_lengths, .user = &factor);
        gd_tensors batch;
        int64_t sizes[4];
        CHECK_SAYING(gd_loader_next(l, &batch), "%s", gd_error_message());
        read_ints(batch.at[1], sizes, 4);
        CHECK(sizes[0] == 10 && sizes[3] == 40);
        gd_loader *bad = gd_loader_new(ragged_dataset(), .batch = 4, .workers = workers,
                                       .collate = collate_fails);
        CHECK(!gd_loader_next(bad, &batch) && says("the collate function: "));
        gd_clear_error();
    }
}

/* The sum over the batch of the epoch and the number of the batch, as the functions see them. */
static gd_tensors preparing_get(int64_t index, gd_random *random, void *self) {
    (void)index, (void)random, (void)self;
    const gd_loader_position at = gd_loader_preparing();
    return gd_listed(gd_scalar_of((double)(100 * at.epoch + at.batch), GD_I64));
}
static gd_tensors preparing_collate(const gd_tensors *samples, int64_t count, void *user) {
    (void)user;
    const gd_loader_position at = gd_loader_preparing();
    int64_t both[2] = {0, 100 * at.epoch + at.batch};
    read_ints(samples[count - 1].at[0], both, 1);
    return gd_listed(gd_from_array(gd_dims(2), GD_I64, both));
}

CLEAN_TEST(functions_of_a_loader_know_the_batch_that_is_prepared) {
    GD_SCOPE;
    gd_dataset *d = gd_dataset_from(NULL, .count = ragged_count, .get = preparing_get);
    for (int workers = 0; workers <= 2; workers += 2) {
        gd_loader *l = gd_loader_new(d, .batch = 2, .workers = workers, .targets = 0,
                                     .collate = preparing_collate);
        for (int epoch = 0; epoch < 2; epoch++) {
            int64_t n = 0, seen[2];
            for (gd_tensors batch; gd_loader_next(l, &batch); n++) {
                read_ints(batch.at[0], seen, 2);
                CHECK(seen[0] == 100 * epoch + n && seen[1] == seen[0]);
            }
            CHECK(n == 5);
        }
        CHECK(gd_loader_preparing().epoch == -1 && gd_loader_preparing().batch == -1);
    }
}

/* --- broken samples --------------------------------------------------------------------------- */

CLEAN_TEST(a_broken_sample_fails_its_own_batch_and_the_next_batch_follows) {
    for (int records = 0; records < 2; records++)
        for (int workers = 0; workers <= 4; workers += 2) {
            GD_SCOPE;
            /* samples 13 and 27 */
            numbers n = {.count = 30, .broken_every = 14, .records = records};
            gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 4, .workers = workers);
            gd_tensors batch;
            int64_t y[4];
            for (int b = 0; b < 8; b++) {
                const bool fails = b == 3 || b == 6;
                if (workers) usleep(2000); /* the batch is prepared long before it is used */
                CHECK_SAYING(gd_loader_next(l, &batch) == !fails, "batch %d: %s", b,
                             gd_error_message());
                CHECK(gd_failed() == fails);
                if (fails) {
                    CHECK_SAYING(says(b == 3 ? "numbers: sample 13: " : "numbers: sample 27: "),
                                 "%s", gd_error_message());
                    CHECK(!gd_loader_next(l, &batch)); /* fails until gd_clear_error */
                    CHECK(gd_loader_tell(l).batch == b + 1);
                    gd_clear_error();
                } else {
                    read_ints(batch.at[1], y, 4);
                    CHECK(y[0] == 4 * b);
                }
            }
            CHECK(!gd_loader_next(l, &batch) && !gd_failed() && gd_loader_skipped(l) == 0);
            CHECK(gd_loader_tell(l).epoch == 1);
        }
}

static void check_skipping(int broken_every, int workers, uint64_t *expected) {
    GD_SCOPE;
    numbers n = {.count = 60, .broken_every = broken_every, .records = workers % 2};
    gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 4, .shuffle = true, .workers = workers,
                                 .skip_broken = true);
    uint64_t h = 7;
    int64_t samples = 0;
    for (int epoch = 0; epoch < 2; epoch++)
        for (gd_tensors batch; gd_loader_next(l, &batch);) {
            CHECK(gd_tensor_is_contiguous(batch.at[0]));
            samples += gd_tensor_dim(batch.at[1], 0);
            CHECK(gd_loader_skipped(l) + samples <= 4 * gd_loader_tell(l).batch + 60 * epoch);
            h = hash_batch(h, batch);
            const int64_t skipped = gd_loader_skipped(l);
            /* counts only batches that were returned, not prepared ones */
            h = hash(h, &skipped, sizeof skipped);
        }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK_SAYING(gd_loader_skipped(l) == 2 * (60 / broken_every), "%" PRId64, gd_loader_skipped(l));
    CHECK(samples == 120 - gd_loader_skipped(l));
    if (workers == 0) *expected = h;
    CHECK(h == *expected);
}

CLEAN_TEST(broken_samples_can_be_skipped_and_are_counted) {
    uint64_t expected = 0;
    /* with 1 all samples are broken and there are no batches */
    static const int kinds[] = {7, 2, 1};
    for (int k = 0; k < 3; k++)
        for (int workers = 0; workers <= 3; workers++) check_skipping(kinds[k], workers, &expected);
}

CLEAN_TEST(broken_samples_are_skipped_in_padded_batches) {
    GD_SCOPE;
    numbers n = {.count = 10, .broken_every = 3};
    gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 5, .pad = true, .skip_broken = true);
    gd_tensors batch;
    CHECK(gd_loader_next(l, &batch) && gd_tensor_dim(batch.at[0], 0) == 4 &&
          gd_loader_skipped(l) == 1);
    CHECK(gd_loader_next(l, &batch) && gd_tensor_dim(batch.at[0], 0) == 3 &&
          gd_loader_skipped(l) == 3);
}

/* --- where samples are computed --------------------------------------------------------------- */

static gd_tensors collate_first(const gd_tensors *samples, int64_t count, void *user) {
    (void)count, (void)user;
    return gd_listed(samples[0].at[0]);
}
static gd_tensors get_and_check_modes(int64_t index, gd_random *random, void *self) {
    (void)random;
    gd_tensor *x = gd_requires_grad(gd_full(gd_dims(2), (double)index));
    if (gd_default_device() != gd_device_get("cpu")) *(bool *)self = true;
    return gd_listed(gd_mul(x, x));
}

CLEAN_TEST(samples_are_computed_on_the_cpu_without_a_tape) {
    GD_SCOPE;
    bool wrong_modes = false;
    gd_dataset *d =
        gd_dataset_from(&wrong_modes, .count = ragged_count, .get = get_and_check_modes);
    gd_loader *l = gd_loader_new(d, .batch = 3, .targets = 0, .collate = collate_first);
    gd_tensors batch;
    {
        GD_DEVICE(gd_test_device());
        CHECK_SAYING(gd_loader_next(l, &batch), "%s", gd_error_message());
    }
    CHECK(!wrong_modes && gd_tensor_device(batch.at[0]) == gd_device_get("cpu"));
    CHECK(!gd_tensor_requires_grad(batch.at[0]));
}

static gd_tensors get_on_other_device(int64_t index, gd_random *random, void *self) {
    (void)random, (void)self;
    return gd_listed(gd_to_device(gd_full(gd_dims(2), (double)index), gd_test_device()));
}

CLEAN_TEST(samples_on_another_device_are_copied) {
    GD_SCOPE;
    gd_device *device = gd_test_device();
    gd_tensors batch;
    float x[3][2];
    for (int pad = 0; pad < 2; pad++) {
        gd_dataset *d = gd_dataset_from(NULL, .count = ragged_count, .get = get_on_other_device);
        gd_loader *l = gd_loader_new(d, .batch = 3, .targets = 0, .pad = pad);
        CHECK_SAYING(gd_loader_next(l, &batch), "%s", gd_error_message());
        CHECK(gd_tensor_device(batch.at[0]) == gd_device_get("cpu"));
        CHECK(gd_copy_to(batch.at[0], x, sizeof x) == GD_OK && x[0][0] == 0 && x[2][1] == 2);
    }
    gd_tensor *ones = gd_to_device(gd_ones(gd_dims(9)), device);
    gd_tensor *classes = gd_to_device(gd_zeros(gd_dims(9), .dtype = GD_I64), device);
    CHECK(gd_sampler_weighted(ones) && gd_sampler_stratified(classes));
    CHECK(gd_dataset_count(gd_dataset_subset(ragged_dataset(), classes)) == 9);
    CHECK(gd_dataset_count(gd_dataset_tensors(ones)) == 9);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

static gd_tensors read_loader(gd_tensors in, void *user) {
    gd_tensors batch;
    gd_loader_next(user, &batch);
    return gd_listed(gd_add(in.at[0], batch.at[0]));
}

CLEAN_TEST(a_traced_function_cannot_read_a_loader) {
    GD_SCOPE;
    gd_loader *l =
        gd_loader_new(gd_dataset_tensors(gd_ones(gd_dims(6, 2))), .batch = 2, .targets = 0);
    gd_jit_call(gd_jit_new(read_loader, l), gd_list(gd_ones(gd_dims(2, 2))));
    CHECK_SAYING(says("gd_loader_next: a function is being traced"), "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_loader_tell(l).batch == 0);
}

/* --- options ---------------------------------------------------------------------------------- */

static int64_t sampler_count(int64_t samples, void *self) {
    (void)samples;
    return *(int64_t *)self;
}
static int64_t sampler_at(int64_t position, uint64_t seed, uint64_t epoch, int64_t samples,
                          void *self) {
    (void)self;
    return position == 5 && seed == 99 ? samples : (position + (int64_t)epoch) % samples;
}

CLEAN_TEST(a_program_can_define_a_sampler) {
    GD_SCOPE;
    numbers n = {.count = 4};
    int64_t positions = 9, y[9];
    gd_sampler *s = gd_sampler_from(&positions, .count = sampler_count, .at = sampler_at);
    for (int workers = 0; workers <= 2; workers += 2) {
        gd_loader *l = gd_loader_new(NUMBERS(&n), .batch = 3, .sampler = s, .workers = workers);
        CHECK(gd_loader_batches(l) == 3 &&
              gd_loader_seek(l, ((gd_loader_position){1, 1})) == GD_OK);
        gd_tensors batch;
        CHECK(gd_loader_next(l, &batch));
        read_ints(batch.at[1], y, 9);
        CHECK(y[0] == 0 && y[1] == 1 && y[2] == 2);
        gd_loader *bad =
            gd_loader_new(NUMBERS(&n), .batch = 3, .sampler = s, .workers = workers, .seed = 99);
        CHECK(gd_loader_next(bad, &batch) && !gd_loader_next(bad, &batch));
        CHECK_SAYING(says("returned sample 4 at position 5; the dataset has 4"), "%s",
                     gd_error_message());
        gd_clear_error();
    }
    positions = -1;
    CHECK(!gd_loader_new(NUMBERS(&n), .sampler = s) && says("the sampler's count is -1"));
}

CLEAN_TEST(invalid_options_fail) {
    GD_SCOPE;
    numbers n = {.count = 6};
    gd_dataset *d = NUMBERS(&n);
    gd_sampler *s = gd_sampler_weighted(gd_ones(gd_dims(5)));
#define CHECK_FAILS(part, ...)                                                         \
    do {                                                                               \
        CHECK(!gd_loader_new(__VA_ARGS__));                                            \
        CHECK_SAYING(says(part) && says("gd_loader_new: "), "%s", gd_error_message()); \
        gd_clear_error();                                                              \
    } while (0)
    CHECK_FAILS("the dataset is NULL", NULL);
    CHECK_FAILS(".batch is 0; it must be at least 1", d, .batch = 0);
    CHECK_FAILS(".workers is -1; it must be from 0 to 256", d, .workers = -1);
    CHECK_FAILS(".prefetch is 0", d, .prefetch = 0);
    CHECK_FAILS(".targets is -1", d, .targets = -1);
    CHECK_FAILS(".weights is 2; it must be from 0 to 1", d, .weights = 2);
    CHECK_FAILS(".shuffle and .sampler", d, .shuffle = true,
                .sampler = gd_sampler_distributed(0, 2));
    CHECK_FAILS(".pad is for stacking", d, .pad = true, .collate = collate_lengths);
    CHECK_FAILS("the sampler is for 5 samples, and the dataset has 6", d, .sampler = s);
    gd_loader *l = gd_loader_new(d, .targets = 2, .weights = 1);
    gd_tensors batch;
    CHECK(!gd_loader_next(l, &batch));
    CHECK_SAYING(says("batches have 2 tensors; .targets = 2 and .weights = 1 would be 3"), "%s",
                 gd_error_message());
    gd_clear_error();
    CHECK(gd_loader_seek(l, ((gd_loader_position){0, 2})) != GD_OK &&
          says("an epoch has 1 batches"));
    gd_clear_error();
    CHECK(gd_loader_seek(l, ((gd_loader_position){-1, 0})) != GD_OK && says("epoch is -1"));
    gd_clear_error();
    CHECK(gd_loader_targets(l) == 2 && gd_loader_weights(l) == 1 && gd_loader_dataset(l) == d);
    CHECK(gd_loader_batches(NULL) == 0 && !gd_loader_dataset(NULL) &&
          gd_loader_tell(NULL).epoch == 0);
}

TEST_MAIN
