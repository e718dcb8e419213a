/* test_random_key.c - random ops with a key draw the numbers of its seed and call number: the same
 * bits eagerly, in plans, in graphs of unknown sizes and on every device, without the generator. Keys
 * are split and folded into new ones. */
#include <math.h>
#include <string.h>

#include "backend/test/device.h"
#include "compare.h"
#include "fault_walk.h"
#include "gradus/gradus.h"
#include "gradus/testing.h"
#include "ops/random/random_dist.h"
#include "test.h"

static gd_tensor *key_of(uint64_t seed, uint64_t call) {
    return gd_from_array(gd_dims(2), GD_I64, ((int64_t[]){(int64_t)seed, (int64_t)call}));
}

/* --- one call of each random op, with a key or (NULL) without; x is (6, 35) ---------------------- */

typedef gd_tensor *(*draw_fn)(gd_tensor *x, gd_tensor *key);

static gd_tensor *draw_uniform(gd_tensor *x, gd_tensor *key) {
    return gd_uniform(gd_dims(6, 35), .low = -3, .high = 5, .dtype = gd_tensor_dtype(x),
                      .key = key);
}
static gd_tensor *draw_rand(gd_tensor *x, gd_tensor *key) {
    return gd_rand(gd_dims(7, 5), .dtype = gd_tensor_dtype(x), .key = key);
}
static gd_tensor *draw_rand_like(gd_tensor *x, gd_tensor *key) {
    return gd_rand_like(x, .key = key);
}
static gd_tensor *draw_normal(gd_tensor *x, gd_tensor *key) {
    return gd_normal(gd_dims(6, 35), .mean = 2, .std = 0.5, .dtype = gd_tensor_dtype(x),
                     .key = key);
}
static gd_tensor *draw_randn(gd_tensor *x, gd_tensor *key) {
    return gd_randn(gd_dims(301), .dtype = gd_tensor_dtype(x), .key = key);
}
static gd_tensor *draw_randn_like(gd_tensor *x, gd_tensor *key) {
    return gd_randn_like(x, .key = key);
}
static gd_tensor *draw_bernoulli(gd_tensor *x, gd_tensor *key) {
    return gd_bernoulli(gd_sigmoid(x), .key = key);
}
static gd_tensor *draw_dropout(gd_tensor *x, gd_tensor *key) {
    return gd_dropout(x, .p = 0.3, .key = key);
}
static gd_tensor *draw_randint(gd_tensor *x, gd_tensor *key) {
    (void)x;
    return gd_randint(gd_dims(6, 35), -7, INT64_C(1) << 40, .key = key);
}
static gd_tensor *draw_randperm(gd_tensor *x, gd_tensor *key) {
    (void)x;
    return gd_randperm(301, .key = key);
}
static gd_tensor *draw_classes(gd_tensor *x, gd_tensor *key) {
    return gd_multinomial(gd_sigmoid(x), 5, .key = key);
}
static gd_tensor *draw_repeated(gd_tensor *x, gd_tensor *key) {
    return gd_multinomial(gd_sigmoid(x), 50, .replacement = true, .key = key);
}

static const struct {
    const char *name;
    draw_fn draw;
} draws[] = {{"uniform", draw_uniform},     {"rand", draw_rand},
             {"rand_like", draw_rand_like}, {"normal", draw_normal},
             {"randn", draw_randn},         {"randn_like", draw_randn_like},
             {"bernoulli", draw_bernoulli}, {"dropout", draw_dropout},
             {"randint", draw_randint},     {"randperm", draw_randperm},
             {"multinomial", draw_classes}, {"multinomial with replacement", draw_repeated}};
enum { DRAWS = sizeof draws / sizeof *draws };

static gd_tensor *make_x(gd_dtype dtype) {
    return gd_cast(gd_reshape(gd_linspace(-2, 2, 210), gd_dims(6, 35)), dtype);
}

static bool generator_is_at(gd_rng state) {
    const gd_rng now = gd_rng_state();
    return now.seed == state.seed && now.call == state.call;
}

/* --- the same numbers ------------------------------------------------------------------------- */

TEST(a_key_draws_the_numbers_of_its_seed_and_call) {
    static const gd_dtype dtypes[] = {GD_F32, GD_F64, GD_F16, GD_BF16};
    static const gd_rng states[] = {{5, 0}, {UINT64_MAX - 3, UINT64_C(1) << 40}};
    for (int i = 0; i < DRAWS; i++)
        for (int d = 0; d < 4; d++)
            for (int s = 0; s < 2; s++) {
                GD_SCOPE;
                gd_tensor *x = make_x(dtypes[d]);
                gd_rng_set_state(states[s]);
                gd_tensor *drawn = draws[i].draw(x, NULL);
                const gd_rng after = gd_rng_state();
                gd_tensor *keyed = draws[i].draw(x, key_of(states[s].seed, states[s].call));
                CHECK_SAYING(tensors_same_bits(drawn, keyed), "%s %s: %s", draws[i].name,
                             gd_dtype_name(dtypes[d]), gd_error_message());
                CHECK(generator_is_at(after) && !generator_is_at(states[s]));
                gd_set_op_bodies(true);
                gd_tensor *body = draws[i].draw(x, key_of(states[s].seed, states[s].call));
                gd_set_op_bodies(false);
                CHECK_SAYING(tensors_same_bits(drawn, body), "%s %s as bodies: %s", draws[i].name,
                             gd_dtype_name(dtypes[d]), gd_error_message());
                CHECK(!tensors_same_bits(keyed, draws[i].draw(x, key_of(9, 9))));
            }
}

TEST(a_key_may_be_strided) {
    GD_SCOPE;
    gd_tensor *keys = gd_key_split(key_of(1, 2), 3);
    gd_tensor *column = gd_select(gd_contiguous(gd_transpose(keys, 0, 1)), 1, 2);
    CHECK(gd_tensor_stride(column, 0) != 1);
    for (int i = 0; i < DRAWS; i++) {
        gd_tensor *x = make_x(GD_F32);
        CHECK_SAYING(
            tensors_same_bits(draws[i].draw(x, gd_select(keys, 0, 2)), draws[i].draw(x, column)),
            "%s", draws[i].name);
    }
}

typedef struct {
    int draw, traces;
} traced;

static gd_tensors draw_traced(gd_tensors in, void *user) {
    traced *t = user;
    t->traces++;
    return gd_listed(draws[t->draw].draw(in.at[0], in.at[1]));
}

TEST(plans_draw_the_same_bits_and_a_key_is_an_input) {
    gd_device *devices[] = {gd_device_get("cpu"), gd_test_device()};
    for (int i = 0; i < DRAWS; i++)
        for (int d = 0; d < 2; d++)
            for (int level = 0; level <= 2; level++) {
                GD_SCOPE;
                traced t = {.draw = i};
                gd_jit *jit = gd_jit_new(draw_traced, &t, .level = level);
                gd_tensor *host = make_x(GD_F32), *x = gd_to_device(host, devices[d]);
                const gd_rng before = gd_rng_state();
                for (uint64_t run = 0; run < 4; run++) { /* later runs replay a captured plan */
                    gd_tensor *key = key_of(3, run / 2);
                    gd_tensor *expected = draws[i].draw(host, key);
                    gd_tensor *eager = draws[i].draw(x, gd_to_device(key, devices[d]));
                    gd_tensor *planned =
                        gd_jit_call(jit, gd_list(x, gd_to_device(key, devices[d]))).at[0];
                    CHECK_SAYING(
                        tensors_same_bits(expected, gd_to_device(eager, gd_device_get("cpu"))) &&
                            tensors_same_bits(expected,
                                              gd_to_device(planned, gd_device_get("cpu"))),
                        "%s, device %d, level %d, run %d: %s", draws[i].name, d, level, (int)run,
                        gd_error_message());
                }
                CHECK(t.traces == 1 && generator_is_at(before));
            }
}

TEST(graphs_of_unknown_sizes_draw_the_same_bits) {
    for (int i = 0; i < DRAWS; i++) {
        GD_SCOPE;
        gd_graph *graph = gd_graph_new();
        gd_tensor *x, *key, *y;
        {
            GD_GRAPH(graph);
            x = gd_placeholder(gd_dims(GD_ANY, 35));
            key = gd_placeholder(gd_dims(2), .dtype = GD_I64);
            y = draws[i].draw(x, key);
        }
        gd_session *session = gd_session_new(graph);
        for (int64_t rows = 6; rows > 3; rows--) {
            gd_tensor *value = gd_slice(make_x(GD_F32), .stop = rows);
            gd_tensor *k = key_of(4, (uint64_t)rows);
            gd_tensors r = gd_session_run(session, gd_feed(x, value, key, k), gd_list(y));
            CHECK_SAYING(tensors_same_bits(r.at[0], draws[i].draw(value, k)), "%s, %d rows: %s",
                         draws[i].name, (int)rows, gd_error_message());
        }
    }
}

/* --- dropout ---------------------------------------------------------------------------------- */

static gd_tensor *cube_of_dropout(gd_tensors in, void *key) {
    gd_tensor *y = gd_dropout(in.at[0], .p = 0.4, .key = key);
    return gd_sum(gd_mul(gd_mul(y, y), y));
}

TEST(dropout_with_a_key_has_first_and_second_order_gradients) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(3, 5), .dtype = GD_F64));
    CHECK_SAYING(gd_gradcheck(cube_of_dropout, gd_list(x), key_of(7, 1), .second_order = true) ==
                     GD_OK,
                 "%s", gd_error_message());
    /* the gradient is that of the call without a key which draws the same mask */
    gd_rng_set_state((gd_rng){7, 1});
    gd_tensor *drawn = gd_grad(gd_list(cube_of_dropout(gd_list(x), NULL)), gd_list(x)).at[0];
    gd_tensor *keyed =
        gd_grad(gd_list(cube_of_dropout(gd_list(x), key_of(7, 1))), gd_list(x)).at[0];
    CHECK(tensors_same_bits(drawn, keyed));
}

static gd_tensors dropout_and_gradient(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *y = cube_of_dropout(in, in.at[1]);
    return gd_listed(y, gd_grad(gd_list(y), gd_list(in.at[0])).at[0]);
}

TEST(a_jit_has_the_gradient_of_dropout_with_a_key) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(30, 5)));
    gd_jit *jit = gd_jit_new(dropout_and_gradient, NULL);
    for (uint64_t run = 0; run < 3; run++) {
        gd_tensors in = gd_list(x, key_of(1, run));
        gd_tensors expected = dropout_and_gradient(in, NULL), got = gd_jit_call(jit, in);
        CHECK_SAYING(tensors_agree(got.at[1], expected.at[1], 1e-5, (char[256]){0}), "%s",
                     gd_error_message());
    }
}

TEST(dropout_outside_training_returns_its_input_with_a_key) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(3));
    CHECK(gd_dropout(x, .training = false, .key = key_of(1, 1)) == x);
}

/* --- new keys --------------------------------------------------------------------------------- */

TEST(new_keys_are_blocks_of_the_key_that_no_element_uses) {
    GD_SCOPE;
    const gd_rng rng = {UINT64_MAX - 11, 77};
    static const int64_t numbers[] = {0, 1, 2, 1000000007, INT64_C(1) << 33, INT64_MAX, -1};
    for (int bodies = 0; bodies < 2; bodies++) {
        gd_set_op_bodies(bodies);
        gd_tensor *key = key_of(rng.seed, rng.call);
        gd_tensor *keys = gd_key_fold(key, gd_from_array(gd_dims(7), GD_I64, numbers));
        const int64_t *k = gd_data(gd_contiguous(keys));
        CHECK(gd_tensor_rank(keys) == 2 && gd_tensor_dim(keys, 0) == 7);
        for (int i = 0; i < 7; i++) {
            uint32_t w[4];
            gd_philox(rng, (uint64_t)numbers[i] | UINT64_C(1) << 63, w);
            CHECK((uint64_t)k[2 * i] == ((uint64_t)w[0] << 32 | w[1]) &&
                  (uint64_t)k[2 * i + 1] == ((uint64_t)w[2] << 32 | w[3]));
        }
        gd_tensor *rows = gd_key_split(key, 100);
        for (int64_t i = 0; i < 100; i++)
            CHECK(tensors_same_bits(gd_select(rows, 0, i),
                                    gd_key_fold(key, gd_scalar_of((double)i, GD_I32))));
        CHECK(gd_tensor_numel(gd_key_split(key, 0)) == 0);
        gd_set_op_bodies(false);
    }
    CHECK(!gd_failed());
}

static gd_tensors fold_step(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_randn(gd_dims(4), .key = gd_key_fold(in.at[0], in.at[1])));
}

TEST(a_step_is_folded_into_a_key_inside_a_plan) {
    gd_device *devices[] = {gd_device_get("cpu"), gd_test_device()};
    for (int d = 0; d < 2; d++) {
        GD_SCOPE;
        gd_jit *jit = gd_jit_new(fold_step, NULL);
        gd_tensor *key = key_of(8, 0), *before = NULL;
        for (int step = 0; step < 4; step++) {
            gd_tensor *number = gd_scalar_of(step, GD_I64);
            gd_tensor *y = gd_jit_call(jit, gd_list(gd_to_device(key, devices[d]),
                                                    gd_to_device(number, devices[d])))
                               .at[0];
            y = gd_clone(gd_to_device(y, gd_device_get("cpu")));
            CHECK(tensors_same_bits(y, fold_step(gd_list(key, number), NULL).at[0]));
            CHECK(!before || !tensors_same_bits(y, before));
            before = y;
        }
    }
}

static gd_tensor *add_noise(gd_tensors in, void *key) {
    gd_tensor *noise = gd_randn(gd_dims(3), .key = gd_key_fold(key, in.at[1]));
    return gd_dropout(gd_add(in.at[0], noise), .key = gd_key_fold(key, gd_neg(in.at[1])));
}

TEST(a_loop_of_a_graph_draws_the_same_bits_in_each_step) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *first = gd_ones(gd_dims(3)), *steps = gd_arange(1, 6, .dtype = GD_I64);
    gd_tensor *px, *key, *y;
    {
        GD_GRAPH(graph);
        px = gd_placeholder(gd_dims(5), .dtype = GD_I64);
        key = gd_placeholder(gd_dims(2), .dtype = GD_I64);
        y = gd_foldl(add_noise, first, gd_list(px), key);
    }
    gd_session *session = gd_session_new(graph);
    for (uint64_t run = 0; run < 3; run++) {
        gd_tensor *k = key_of(5, run);
        gd_tensor *got = gd_session_run(session, gd_feed(px, steps, key, k), gd_list(y)).at[0];
        CHECK_SAYING(tensors_same_bits(got, gd_foldl(add_noise, first, gd_list(steps), k)), "%s",
                     gd_error_message());
    }
}

/* --- failures --------------------------------------------------------------------------------- */

TEST(a_wrong_key_fails_and_says_what_would_fit) {
    GD_SCOPE;
    gd_tensor *wrong[] = {gd_zeros(gd_dims(2)), gd_zeros(gd_dims(3), .dtype = GD_I64),
                          gd_scalar_of(3, GD_I64), gd_key_split(key_of(1, 1), 4)};
    static const char *const says[] = {"'key' is f32[2]; it must be i64[2]",
                                       "'key' is i64[3]; it must be i64[2]",
                                       "'key' is i64[]; it must be i64[2]",
                                       "'key' is i64[4,2]; it must be i64[2], a seed and a call "
                                       "number. gd_key_split(key, n) gives n keys; gd_select"};
    gd_tensor *x = make_x(GD_F32);
    const gd_rng before = gd_rng_state();
    for (int i = 0; i < DRAWS; i++)
        for (int k = 0; k < 4; k++) {
            CHECK(gd_tensor_is_error(draws[i].draw(x, wrong[k])));
            CHECK_SAYING(strstr(gd_error_message(), says[k]) &&
                             gd_error_status() == (k ? GD_E_SHAPE : GD_E_DTYPE),
                         "%s: %s", draws[i].name, gd_error_message());
            gd_clear_error();
        }
    CHECK(gd_tensor_is_error(gd_key_split(wrong[0], 2)));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_key_split(key_of(1, 1), -1)));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_key_fold(key_of(1, 1), x)));
    CHECK(strstr(gd_error_message(), "'data' is f32; it must be an integer"));
    gd_clear_error();
    CHECK(generator_is_at(before));
}

TEST(a_key_on_another_device_fails) {
    GD_SCOPE;
    gd_tensor *key = gd_to_device(key_of(1, 1), gd_test_device());
    CHECK(gd_tensor_is_error(gd_dropout(make_x(GD_F32), .key = key)));
    CHECK_SAYING(gd_error_status() == GD_E_DEVICE && strstr(gd_error_message(), "'key'"), "%s",
                 gd_error_message());
    gd_clear_error();
    /* a call without another tensor runs where the key is */
    CHECK(gd_tensor_device(gd_rand(gd_dims(3), .key = key)) == gd_test_device());
}

TEST(a_call_into_tensors_has_no_key) {
    GD_SCOPE;
    gd_tensor *y = gd_zeros(gd_dims(6, 35));
    gd_op_run_into(gd_op_find("rand_like"), gd_list(make_x(GD_F32), key_of(1, 1)), NULL,
                   gd_list(y));
    CHECK(gd_error_status() == GD_E_ARGUMENT && gd_item(gd_sum(gd_abs(y))) == 0);
    gd_clear_error();
}

TEST(bad_data_of_a_call_with_a_key_is_reported) {
    GD_SCOPE;
    gd_tensor *p = gd_full(gd_dims(40), 0.5);
    ((float *)gd_data(p))[17] = -0.25f;
    gd_bernoulli(p, .key = key_of(1, 1));
    CHECK_SAYING(strstr(gd_error_message(), "element 17 of 'p' is -0.25"), "%s",
                 gd_error_message());
    gd_clear_error();
    gd_multinomial(gd_neg(gd_ones(gd_dims(4))), 2, .key = key_of(1, 1));
    CHECK_SAYING(strstr(gd_error_message(), "multinomial") &&
                     strstr(gd_error_message(), "weight 0 of row 0 is -1"),
                 "%s", gd_error_message());
    gd_clear_error();
}

TEST(failed_allocations_of_calls_with_a_key_return_a_status) {
    for (fault_walk faults = {.what = "drawing", .lasting = true}; fault_next(&faults);) {
        GD_SCOPE;
        gd_tensor *w = gd_ones(gd_dims(5)), *key = key_of(1, 1);
        fault_begin(&faults);
        gd_tensor *made[] = {gd_randperm(100, .key = key), gd_multinomial(w, 2, .key = key),
                             gd_randn(gd_dims(100), .key = key), gd_dropout(w, .key = key),
                             gd_key_split(key, 3)};
        fault_end(&faults);
        for (size_t i = 0; i < sizeof made / sizeof *made; i++)
            CHECK_ROUND(&faults, gd_failed() || !gd_tensor_is_error(made[i]));
        CHECK_FAULT(&faults, gd_error_status());
    }
}

TEST_MAIN
