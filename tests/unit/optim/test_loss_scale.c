/* test_loss_scale.c - loss scaling gives the same bits as training without it, and steps that
 * overflow change nothing. */
#include <math.h>
#include <string.h>

#include "compare.h"
#include "fault_walk.h"
#include "gradus/gradus.h"
#include "test.h"

enum { IN = 6, OUT = 3, ROWS = 8 };

static const char *const optimizers[][2] = {
    {"sgd", "lr=0.1"},
    {"sgd", "lr=0.1 momentum=0.9 dampening=0.1"},
    {"adam", "lr=0.01"},
    {"adam", "lr=0.01 amsgrad=true"},
    {"adamw", "lr=0.01 weight_decay=0.1"},
    {"rmsprop", "lr=0.01 momentum=0.5 centered=true"},
    {"rmsprop", "lr=0.01"},
    {"adagrad", "lr=0.1"},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

/* One training run: parameters, optimizer, schedule, and a loss scale or NULL. */
typedef struct training {
    gd_tensor *w, *b;
    gd_optimizer *optimizer;
    gd_schedule *schedule;
    gd_loss_scale *scale;
    bool clips;
} training;

static gd_tensor *start_value(gd_shape dims) {
    float data[IN * OUT];
    for (int i = 0; i < IN * OUT; i++) data[i] = sinf((float)i * 1.7f + 0.3f);
    return gd_requires_grad(gd_from_array(dims, GD_F32, data));
}

static training make_training(int which, gd_loss_scale *scale) {
    training r = {
        .w = start_value(gd_dims(IN, OUT)), .b = start_value(gd_dims(OUT)), .scale = scale};
    r.optimizer = gd_optimizer_new(optimizers[which][0], gd_list(r.w, r.b), optimizers[which][1]);
    r.schedule = gd_lr_exponential(r.optimizer, 0.9);
    return r;
}

static gd_tensor *make_batch(int step) {
    float data[ROWS * IN];
    for (int i = 0; i < ROWS * IN; i++) data[i] = cosf((float)(i + 31 * step));
    return gd_from_array(gd_dims(ROWS, IN), GD_F32, data);
}

/* Adds `bad` (rank 0) times the first element of w to the loss, so that NaN and infinity reach the
 * gradient. */
static gd_tensor *loss_of(const training *r, gd_tensor *x, gd_tensor *bad) {
    gd_tensor *y = gd_linear(x, gd_transpose(r->w, 0, 1), r->b);
    return gd_add(gd_mean(gd_square(y)), gd_mul(bad, gd_sum(gd_narrow(r->w, 0, 0, 1))));
}

static gd_tensors train_step(gd_tensors in, void *user) {
    training *r = user;
    gd_optimizer_zero_grad(r->optimizer);
    gd_tensor *loss = loss_of(r, in.at[0], in.at[1]);
    gd_backward(gd_loss_scale_apply(r->scale, loss));
    if (r->clips) {
        gd_loss_scale_unscale(r->scale, r->optimizer);
        gd_clip_grad_norm(gd_list(r->w, r->b), 0.5);
    }
    gd_loss_scale_step(r->scale, r->optimizer, .schedule = r->schedule);
    return gd_listed(loss);
}

static bool same_states(const gd_state *x, const gd_state *y) {
    bool all = gd_state_count(x) == gd_state_count(y) && gd_state_count(x) > 0;
    for (int64_t i = 0; all && i < gd_state_count(x); i++)
        all = tensors_same_bits(gd_state_tensor_at(x, i), gd_state_tensor_at(y, i));
    return all;
}

/* Compares parameters, learning rates and the entire optimizer state. */
static bool same_trainings(const training *a, const training *b) {
    return tensors_same_bits(a->w, b->w) && tensors_same_bits(a->b, b->b) &&
           same_states(gd_state_of(a->optimizer), gd_state_of(b->optimizer)) &&
           same_states(gd_state_of(a->schedule), gd_state_of(b->schedule));
}

static double scale_value(gd_loss_scale *s) { return gd_item(gd_loss_scale_value(s)); }
static double skipped_steps(gd_loss_scale *s) { return gd_item(gd_loss_scale_skipped(s)); }

/* --- the same bits ---------------------------------------------------------------------------- */

TEST(a_power_of_two_changes_no_bit) {
    GD_SCOPE;
    gd_tensor *none = gd_scalar(0);
    for (int which = 0; which < OPTIMIZERS; which++)
        for (int variant = 0; variant < 4; variant++) { /* eager or jit, clipped or not */
            GD_SCOPE;
            training plain = make_training(which, NULL),
                     scaled = make_training(which, gd_loss_scale_new(.interval = 3));
            plain.clips = scaled.clips = variant & 2;
            gd_jit *a = gd_jit_new(train_step, &plain, .level = 0),
                   *b = gd_jit_new(train_step, &scaled, .level = 0);
            for (int i = 0; i < 8; i++) {
                gd_tensors in = gd_list(make_batch(i), none);
                if (variant & 1) gd_jit_call(a, in), gd_jit_call(b, in);
                else train_step(in, &plain), train_step(in, &scaled);
            }
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
            CHECK_SAYING(same_trainings(&plain, &scaled), "%s %s, variant %d", optimizers[which][0],
                         optimizers[which][1], variant);
            CHECK(scale_value(scaled.scale) == 65536 * 4);
            CHECK(skipped_steps(scaled.scale) == 0);
        }
}

/* --- steps that overflow ---------------------------------------------------------------------- */

/* Runs with and without overflowing steps in between end with the same bits. */
TEST(a_step_that_overflows_changes_nothing) {
    GD_SCOPE;
    static const double bad[] = {0, NAN, INFINITY, 0, 0, -INFINITY, 0, NAN, 0};
    for (int which = 0; which < OPTIMIZERS; which++)
        for (int variant = 0; variant < 5; variant++) { /* eager, jit of levels 0 to 2, clipped */
            GD_SCOPE;
            training plain = make_training(which, NULL),
                     scaled = make_training(which, gd_loss_scale_new());
            plain.clips = scaled.clips = variant == 4;
            gd_jit *jit = gd_jit_new(train_step, &scaled,
                                     .level = variant > 0 ? (variant - 1) % 3 : 0),
                   *other =
                       gd_jit_new(train_step, &plain, .level = variant > 0 ? (variant - 1) % 3 : 0);
            for (int i = 0; i < 9; i++) {
                gd_tensors in = gd_list(make_batch(i), gd_scalar(bad[i]));
                if (variant == 0 || variant == 4) train_step(in, &scaled);
                else gd_jit_call(jit, in);
                if (bad[i] != 0) continue;
                if (variant == 0 || variant == 4) train_step(in, &plain);
                else gd_jit_call(other, in);
            }
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
            CHECK_SAYING(same_trainings(&plain, &scaled), "%s %s, variant %d", optimizers[which][0],
                         optimizers[which][1], variant);
            CHECK(scale_value(scaled.scale) == 65536.0 / 16);
            CHECK(skipped_steps(scaled.scale) == 4);
        }
}

/* The very first step may overflow: then Adam's corrections would divide by 1 - beta^0. */
TEST(the_first_step_may_be_skipped) {
    GD_SCOPE;
    training plain = make_training(2, NULL), scaled = make_training(2, gd_loss_scale_new());
    train_step(gd_list(make_batch(0), gd_scalar(NAN)), &scaled);
    for (int i = 0; i < 3; i++) {
        train_step(gd_list(make_batch(i), gd_scalar(0)), &scaled);
        train_step(gd_list(make_batch(i), gd_scalar(0)), &plain);
    }
    CHECK(!gd_failed() && same_trainings(&plain, &scaled));
}

TEST(the_scale_grows_after_good_steps_and_stays_finite) {
    GD_SCOPE;
    training r = make_training(
        0, gd_loss_scale_new(.start = 1024, .growth = 4, .backoff = 0.25, .interval = 2));
    static const double bad[] = {0, 0, 0, NAN, 0, 0};
    static const double expected[] = {1024, 4096, 4096, 1024, 1024, 4096};
    for (int i = 0; i < 6; i++) {
        train_step(gd_list(make_batch(i), gd_scalar(bad[i])), &r);
        CHECK(scale_value(r.scale) == expected[i]);
    }
    gd_loss_scale *large = gd_loss_scale_new(.start = 0x1p127, .interval = 1);
    gd_tensor *w = gd_requires_grad(gd_scalar(1e-3));
    gd_optimizer *o = gd_optim_sgd(gd_list(w), .lr = 0);
    gd_backward(gd_loss_scale_apply(large, gd_mul(w, gd_scalar(1e-3))));
    gd_loss_scale_step(large, o);
    CHECK(scale_value(large) == 0x1p127);
    gd_loss_scale *small = gd_loss_scale_new(.start = 0x1p-126);
    gd_optimizer_zero_grad(o);
    gd_backward(gd_loss_scale_apply(small, gd_mul(w, gd_scalar(NAN))));
    gd_loss_scale_step(small, o);
    CHECK(scale_value(small) == 0x1p-126);
    CHECK(!gd_failed());
}

TEST(a_loss_of_f16_is_scaled_in_f32) {
    GD_SCOPE;
    gd_tensor *w = gd_requires_grad(gd_full(gd_dims(2), 3, .dtype = GD_F16));
    gd_loss_scale *scale = gd_loss_scale_new();
    gd_optimizer *o = gd_optim_sgd(gd_list(w), .lr = 1);
    gd_tensor *loss = gd_loss_scale_apply(scale, gd_mean(w));
    CHECK(gd_tensor_dtype(loss) == GD_F32 && gd_item(loss) == 3 * 65536.0);
    CHECK(gd_tensor_dtype(gd_loss_scale_apply(scale, gd_scalar_of(2, GD_F64))) == GD_F64);
    gd_backward(gd_loss_scale_apply(scale, gd_mul(gd_mean(w), gd_scalar(0x1p-14))));
    gd_loss_scale_step(scale, o);
    CHECK(skipped_steps(scale) == 0);
    CHECK(gd_item(gd_select(gd_tensor_grad(w), 0, 0)) == 0x1p-15);
    CHECK(!gd_failed());
}

/* 1 / scale is smaller than the smallest f16. */
TEST(gradients_of_f16_are_unscaled_in_f32) {
    GD_SCOPE;
    gd_tensor *w = gd_requires_grad(gd_full(gd_dims(2), 3, .dtype = GD_F16));
    gd_loss_scale *scale = gd_loss_scale_new(.start = 0x1p25);
    gd_optimizer *o = gd_optim_sgd(gd_list(w), .lr = 1);
    gd_backward(gd_loss_scale_apply(scale, gd_mul(gd_cast(gd_sum(w), GD_F32), gd_scalar(0x1p-20))));
    gd_loss_scale_step(scale, o);
    CHECK(skipped_steps(scale) == 0);
    CHECK(gd_item(gd_select(gd_tensor_grad(w), 0, 0)) == 0x1p-20);
    CHECK(!gd_failed());
}

/* The largest element of an empty gradient does not exist. */
TEST(parameters_without_elements_or_gradients_are_allowed) {
    GD_SCOPE;
    gd_tensor *w = gd_requires_grad(gd_ones(gd_dims(3))),
              *empty = gd_requires_grad(gd_ones(gd_dims(0, 3))),
              *unused = gd_requires_grad(gd_ones(gd_dims(2)));
    gd_optimizer *o = gd_optim_adam(gd_list(w, empty, unused), .lr = 0.1);
    gd_schedule *schedule = gd_lr_exponential(o, 0.5);
    gd_loss_scale *scale = gd_loss_scale_new();
    /* no parameter has a gradient */
    CHECK(gd_loss_scale_step(scale, o, .schedule = schedule) == GD_OK);
    CHECK(gd_item(gd_optimizer_lr(o)) == 0.05);
    gd_backward(gd_loss_scale_apply(scale, gd_add(gd_sum(w), gd_sum(empty))));
    CHECK(gd_loss_scale_step(scale, o) == GD_OK);
    CHECK(gd_item(gd_select(w, 0, 0)) < 1 && gd_item(gd_select(unused, 0, 0)) == 1);
    CHECK(!gd_failed());
}

static void sign_update(gd_update *u) {
    gd_update_each(u, "sign_step", NULL, gd_list(gd_update_lr(u)));
}

TEST(user_defined_optimizers_skip_overflowing_steps) {
    GD_SCOPE;
    gd_op_define(
        "sign_step(p!, g, lr) -> p  elementwise nograd\nOne step by the sign of the gradient.\n"
        "  p = p - lr * sign(g)\n",
        NULL);
    gd_optimizer_define("signs\nSign descent.\n  lr float = 0.01   in [0, inf)\n",
                        (gd_optimizer_rules){.update = sign_update});
    gd_tensor *w = gd_requires_grad(gd_ones(gd_dims(3)));
    gd_optimizer *o = gd_optimizer_new("signs", gd_list(w), "lr=0.5");
    gd_loss_scale *scale = gd_loss_scale_new();
    static const double factors[] = {1, NAN, 1}, expected[] = {0.5, 0.5, 0};
    for (int i = 0; i < 3; i++) {
        gd_optimizer_zero_grad(o);
        gd_backward(gd_loss_scale_apply(scale, gd_mul(gd_sum(w), gd_scalar(factors[i]))));
        gd_loss_scale_step(scale, o);
        CHECK(gd_item(gd_select(w, 0, 1)) == expected[i]);
    }
    CHECK(!gd_failed());
}

/* --- graphs ----------------------------------------------------------------------------------- */

typedef struct built_step {
    gd_graph *graph;
    gd_tensor *x, *bad, *train, *w, *scale;
} built_step;

/* The same training as a graph, with variables or with eager parameters. */
static built_step build_step(int which, bool variables, bool scales, bool clips) {
    built_step g = {.graph = gd_graph_new()};
    gd_tensor *w = start_value(gd_dims(IN, OUT)), *b = start_value(gd_dims(OUT));
    GD_GRAPH(g.graph);
    if (variables) {
        w = gd_variable(gd_detach(w), .name = "w");
        b = gd_variable(gd_detach(b), .name = "b");
    }
    g.w = w;
    g.x = gd_placeholder(gd_dims(ROWS, IN));
    g.bad = gd_placeholder(gd_dims());
    const training r = {.w = w, .b = b};
    gd_optimizer *o = gd_optimizer_new(optimizers[which][0], gd_list(w, b), optimizers[which][1]);
    gd_schedule *s = gd_lr_exponential(o, 0.9);
    gd_loss_scale *scale = scales ? gd_loss_scale_new() : NULL;
    g.train = gd_minimize(o, loss_of(&r, g.x, g.bad), .schedule = s, .loss_scale = scale,
                          .clip_norm = clips ? 0.5 : 0);
    if (scales) g.scale = gd_loss_scale_value(scale);
    return g;
}

TEST(sessions_skip_overflowing_steps) {
    GD_SCOPE;
    static const double bad[] = {0, NAN, 0, 0, INFINITY, 0};
    for (int which = 0; which < OPTIMIZERS; which++)
        for (int variant = 0; variant < 12; variant++) {
            GD_SCOPE;
            const bool variables = variant & 1;
            const int level = variant / 2 % 3;
            built_step plain = build_step(which, variables, false, variant >= 6),
                       scaled = build_step(which, variables, true, variant >= 6);
            gd_session *a = gd_session_new(plain.graph, .level = level),
                       *b = gd_session_new(scaled.graph, .level = level);
            for (int i = 0; i < 6; i++) {
                gd_session_run(b, gd_list(scaled.x, make_batch(i), scaled.bad, gd_scalar(bad[i])),
                               gd_list(scaled.train));
                if (bad[i] == 0)
                    gd_session_run(a, gd_list(plain.x, make_batch(i), plain.bad, gd_scalar(0)),
                                   gd_list(plain.train));
            }
            CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
            if (gd_failed()) return;
            gd_tensor *u = variables ? gd_session_get(a, plain.w) : plain.w,
                      *v = variables ? gd_session_get(b, scaled.w) : scaled.w;
            CHECK_SAYING(tensors_same_bits(u, v), "%s %s, variant %d", optimizers[which][0],
                         optimizers[which][1], variant);
            gd_tensor *scale = variables ? gd_session_get(b, scaled.scale) : scaled.scale;
            CHECK(gd_item(scale) == 65536.0 / 4);
        }
}

/* --- state ------------------------------------------------------------------------------------ */

TEST(the_state_is_saved_and_restored) {
    GD_SCOPE;
    training r = make_training(0, gd_loss_scale_new(.interval = 5));
    static const double bad[] = {0, NAN, 0, 0};
    for (int i = 0; i < 4; i++) train_step(gd_list(make_batch(i), gd_scalar(bad[i])), &r);
    gd_loss_scale *other = gd_loss_scale_new(.interval = 5);
    gd_state *state = gd_state_of(r.scale);
    CHECK(gd_state_count(state) == 3);
    CHECK(gd_item(gd_state_find(state, "good_steps")) == 2);
    CHECK(gd_set_state(other, state) == GD_OK);
    CHECK(scale_value(other) == 32768 && skipped_steps(other) == 1);
    CHECK(!gd_failed());
}

/* --- misuse ----------------------------------------------------------------------------------- */

#define CHECK_FAILS(call, code, word)                                                       \
    do {                                                                                    \
        (void)(call);                                                                       \
        CHECK_SAYING(gd_error_status() == (code) && strstr(gd_error_message(), word), "%s", \
                     gd_error_message());                                                   \
        gd_clear_error();                                                                   \
    } while (0)

static gd_tensors step_without_loss(gd_tensors in, void *user) {
    training *r = user;
    gd_loss_scale_step(r->scale, r->optimizer);
    return gd_listed(gd_clone(in.at[0]));
}

TEST(misuse_fails_with_a_message) {
    GD_SCOPE;
    CHECK_FAILS(gd_loss_scale_new(.start = 0), GD_E_ARGUMENT, "start");
    CHECK_FAILS(gd_loss_scale_new(.start = 1e39), GD_E_ARGUMENT, "start");
    CHECK_FAILS(gd_loss_scale_new(.growth = 0.5), GD_E_ARGUMENT, "growth");
    CHECK_FAILS(gd_loss_scale_new(.backoff = 2), GD_E_ARGUMENT, "backoff");
    CHECK_FAILS(gd_loss_scale_new(.backoff = NAN), GD_E_ARGUMENT, "backoff");
    CHECK_FAILS(gd_loss_scale_new(.interval = 0), GD_E_ARGUMENT, "interval");
    training r = make_training(0, gd_loss_scale_new()), other = make_training(0, NULL);
    CHECK_FAILS(gd_loss_scale_apply(r.scale, NULL), GD_E_ARGUMENT, "loss is NULL");
    CHECK_FAILS(gd_loss_scale_apply(r.scale, gd_scalar_of(1, GD_I64)), GD_E_DTYPE, "i64");
    CHECK_FAILS(gd_loss_scale_step(r.scale, NULL), GD_E_ARGUMENT, "optimizer is NULL");
    CHECK_FAILS(gd_loss_scale_step(r.scale, r.optimizer, .schedule = other.schedule), GD_E_ARGUMENT,
                "schedule");
    CHECK_FAILS(gd_loss_scale_value(NULL), GD_E_ARGUMENT, "NULL");
    gd_backward(gd_loss_scale_apply(r.scale, loss_of(&r, make_batch(0), gd_scalar(0))));
    CHECK(gd_loss_scale_unscale(r.scale, r.optimizer) == GD_OK);
    CHECK_FAILS(gd_loss_scale_unscale(r.scale, r.optimizer), GD_E_STATE, "already");
    gd_jit *jit = gd_jit_new(step_without_loss, &r);
    CHECK_FAILS(gd_jit_call(jit, gd_list(make_batch(0))), GD_E_STATE, "outside");
    CHECK(gd_loss_scale_step(r.scale, r.optimizer) == GD_OK);
    CHECK(gd_loss_scale_unscale(r.scale, r.optimizer) ==
          GD_OK); /* the step above has ended the previous one */
}

TEST(a_scale_stays_on_the_device_of_its_first_use) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    gd_tensor *w = gd_variable(gd_scalar(1), .name = "w");
    gd_optimizer *o = gd_optim_sgd(gd_list(w));
    gd_loss_scale *scale = gd_loss_scale_new(), *eager = gd_loss_scale_new();
    gd_minimize(o, gd_square(w), .loss_scale = scale);
    CHECK(!gd_failed());
    CHECK_FAILS(gd_loss_scale_apply(scale, gd_square(w)), GD_E_STATE, "gd_minimize");
    CHECK_FAILS(gd_state_of(scale), GD_E_STATE, "session");
    gd_loss_scale_apply(eager, gd_square(w));
    CHECK_FAILS(gd_minimize(o, gd_square(w), .loss_scale = eager), GD_E_STATE, "loss scale");
}

/* --- failed allocations ----------------------------------------------------------------------- */

/* Whichever allocation fails, the step is done completely or not at all, and the next step
 * continues. */
TEST(a_step_with_a_failed_allocation_changes_nothing) {
    GD_SCOPE;
    training plain = make_training(2, gd_loss_scale_new()),
             r = make_training(2, gd_loss_scale_new());
    gd_tensor *zero = gd_scalar(0);
    train_step(gd_list(make_batch(0), zero), &plain);
    bool done = false; /* whether the step was done */
    gd_backward(gd_loss_scale_apply(r.scale, loss_of(&r, make_batch(0), zero)));
    fault_walk w = {.what = "a step"};
    while (!done && fault_advance(&w)) {
        fault_begin(&w);
        done = gd_loss_scale_step(r.scale, r.optimizer, .schedule = r.schedule) == GD_OK;
        fault_end(&w);
        CHECK_FAULT(&w, gd_error_status());
    }
    CHECK(done && w.failures > 20);
    CHECK(same_trainings(&plain, &r));
    CHECK(scale_value(r.scale) == 65536);
}

TEST(creation_with_a_failed_allocation_fails_cleanly) {
    for (fault_walk w = {.what = "gd_loss_scale_new"}; fault_next(&w);) {
        GD_SCOPE;
        fault_begin(&w);
        gd_loss_scale *s = gd_loss_scale_new();
        fault_end(&w);
        CHECK_ROUND(&w, s || gd_failed());
        CHECK_FAULT(&w, gd_error_status());
    }
}

TEST_MAIN
