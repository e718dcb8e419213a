/* test_bodies.c - an op that runs as its body draws the same random numbers as its kernel, and
 * fails for the same data with the same messages. */
#include <math.h>

#include "core/tensor.h"
#include "gradus/gradus.h"
#include "gradus/testing.h"
#include "test.h"

/* --- the same numbers ------------------------------------------------------------------------- */

typedef gd_tensor *(*draw_fn)(gd_dtype dtype);

static const gd_shape dims = {.rank = 3, .form = 1, .at = {7, 5, 3}};

static gd_tensor *draw_uniform(gd_dtype d) { return gd_uniform(dims, .dtype = d); }
static gd_tensor *draw_wide(gd_dtype d) {
    return gd_uniform(dims, .low = -3.3, .high = 17.1, .dtype = d);
}
static gd_tensor *draw_normal(gd_dtype d) { return gd_normal(dims, .dtype = d); }
static gd_tensor *draw_moved(gd_dtype d) {
    return gd_normal(dims, .mean = 0.3, .std = 2.7, .dtype = d);
}
static gd_tensor *draw_rand_like(gd_dtype d) { return gd_rand_like(gd_zeros(dims, .dtype = d)); }
static gd_tensor *draw_randn_like(gd_dtype d) { return gd_randn_like(gd_zeros(dims, .dtype = d)); }
static gd_tensor *draw_bernoulli(gd_dtype d) {
    return gd_bernoulli(gd_cast(gd_reshape(gd_linspace(0, 1, 105), dims), d));
}
static gd_tensor *draw_dropout(gd_dtype d) {
    return gd_dropout(gd_cast(gd_reshape(gd_linspace(-2, 2, 105), dims), d), .p = 0.3);
}
static gd_tensor *draw_dice(gd_dtype d) { return gd_randint(dims, -3, 4, .dtype = d); }
static gd_tensor *draw_large(gd_dtype d) {
    (void)d;
    return gd_randint(dims, INT64_MIN + 5, INT64_MAX - 11);
}
static gd_tensor *draw_order(gd_dtype d) {
    (void)d;
    return gd_randperm(1001);
}

static bool same_bits(const gd_tensor *a, const gd_tensor *b) {
    return a->rank == b->rank && a->dtype == b->dtype &&
           memcmp(a->dims, b->dims, sizeof(int64_t) * a->rank) == 0 &&
           gd_is_row_major(a->rank, a->dims, a->strides) &&
           gd_is_row_major(b->rank, b->dims, b->strides) &&
           memcmp(gd_data(a), gd_data(b),
                  (size_t)gd_tensor_numel(a) * gd_dtype_size((gd_dtype)a->dtype)) == 0;
}

TEST(bodies_draw_the_same_numbers_as_kernels) {
    static const struct {
        const char *name;
        draw_fn draw;
    } draws[] = {{"uniform", draw_uniform},     {"uniform -3.3 to 17.1", draw_wide},
                 {"normal", draw_normal},       {"normal 0.3, 2.7", draw_moved},
                 {"rand_like", draw_rand_like}, {"randn_like", draw_randn_like},
                 {"bernoulli", draw_bernoulli}, {"dropout", draw_dropout},
                 {"randint", draw_dice},        {"randint of large range", draw_large},
                 {"randperm", draw_order}};
    static const gd_dtype dtypes[] = {GD_F32, GD_F64, GD_F16, GD_BF16};
    for (size_t i = 0; i < sizeof draws / sizeof *draws; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            GD_SCOPE;
            gd_tensor *y[2][2]; /* two calls: the generator advances equally */
            for (int body = 0; body < 2; body++) {
                gd_seed(17);
                gd_set_op_bodies(body);
                for (int k = 0; k < 2; k++) y[body][k] = gd_contiguous(draws[i].draw(dtypes[d]));
                gd_set_op_bodies(false);
            }
            CHECK_SAYING(!gd_failed(), "%s: %s", draws[i].name, gd_error_message());
            gd_clear_error();
            for (int k = 0; k < 2; k++)
                CHECK_SAYING(same_bits(y[0][k], y[1][k]), "%s, %s, call %d", draws[i].name,
                             gd_dtype_name(dtypes[d]), k);
            CHECK(!same_bits(y[0][0], y[0][1]));
        }
}

/* --- the same errors -------------------------------------------------------------------------- */

/* Makes a call that fails because of its data. */
static void call_with_bad_data(int which) {
    gd_tensor *x = gd_reshape(gd_arange(0, 12), gd_dims(3, 4));
    gd_tensor *bad = gd_from_array(gd_dims(3), GD_I64, (int64_t[]){2, 7, 1});
    gd_tensor *negative = gd_from_array(gd_dims(1, 2), GD_I32, (int32_t[]){0, -1});
    gd_tensor *mask = gd_full(gd_dims(3, 4), 1, .dtype = GD_BOOL);
    switch (which) {
    case 0: gd_index_select(x, 1, bad); break;
    case 1: gd_index_select(x, -2, bad); break;
    case 2: gd_index_add(x, 0, bad, x); break;
    case 3: gd_embedding(negative, x); break;
    case 4: gd_one_hot(bad, 5); break;
    case 5: gd_gather(x, 0, negative); break;
    case 6: gd_bernoulli(gd_from_array(gd_dims(2), GD_F32, (float[]){0.5f, 1.5f})); break;
    case 7: gd_bernoulli(gd_from_array(gd_dims(2), GD_F64, (double[]){0.5, NAN})); break;
    case 8: gd_masked_scatter(x, mask, gd_zeros(gd_dims(5))); break;
    case 9: gd_masked_scatter(x, mask, gd_zeros(gd_dims(0))); break;
    case 10: gd_nll_loss(x, bad); break;
    case 11: gd_cross_entropy(x, bad, .ignore_index = 1); break;
    case 12: gd_check_finite(gd_div(x, gd_zeros_like(x))); break;
    case 13: gd_multinomial(gd_neg(x), 2); break;
    case 14: gd_scatter_add(x, 1, negative, gd_zeros(gd_dims(1, 2))); break;
    default: gd_one_hot(negative, -1); break;
    }
}
enum { BAD_CALLS = 16 };

TEST(bodies_reject_data_with_the_messages_of_kernels) {
    for (int which = 0; which < BAD_CALLS; which++) {
        GD_SCOPE;
        char message[2][600];
        gd_status status[2];
        for (int body = 0; body < 2; body++) {
            gd_set_op_bodies(body);
            call_with_bad_data(which);
            gd_set_op_bodies(false);
            status[body] = gd_failure();
            snprintf(message[body], sizeof message[body], "%s", gd_error_message());
            gd_clear_error();
        }
        CHECK_SAYING(status[0] != GD_OK, "call %d does not fail", which);
        CHECK_SAYING(status[0] == status[1] && strcmp(message[0], message[1]) == 0,
                     "call %d:\n  kernel: %s\n  body:   %s", which, message[0], message[1]);
    }
}

/* --- results are new tensors ------------------------------------------------------------------ */

TEST(results_of_bodies_do_not_share_memory_with_their_inputs) {
    GD_SCOPE;
    gd_set_op_bodies(true);
    gd_tensor *x = gd_full(gd_dims(1, 3), 2), *one = gd_full(gd_dims(1), 2);
    gd_tensor *made[] = {gd_cat(gd_list(x), .axis = 0),
                         gd_repeat(x, gd_dims(1, 1)),
                         gd_repeat(one, gd_dims(4)),
                         gd_roll(x, gd_dims(0)),
                         gd_roll(x, gd_dims(3), .axis = gd_dims(1)),
                         gd_flip(x, (gd_shape){.form = 1}),
                         gd_stack(gd_list(x)),
                         gd_tril(x),
                         gd_full_like(x, 1)};
    gd_set_op_bodies(false);
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        gd_add_(made[i], gd_scalar(1));
        CHECK_SAYING(!gd_failed(), "%zu: %s", i, gd_error_message());
        gd_clear_error();
    }
    CHECK(gd_item(gd_max(x)) == 2 && gd_item(one) == 2);
}

TEST_MAIN
