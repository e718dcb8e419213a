/* test_optim_state.c - the state of optimizers and schedules is saved and loaded, and training
 * continues with the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"
#include "gradus/state.h"
#include "temp.h"

enum { TENSORS = 3, STEPS = 100, SAVED = 50 };
typedef enum mode { EAGER, JIT, SESSION, MODES } mode;

typedef struct net {
    gd_tensor *w[TENSORS];
    gd_optimizer *optimizer;
    gd_schedule *schedule;
    gd_jit *jit;
    gd_session *session;
    gd_tensor *x, *step;
} net;

static gd_tensor *loss_of(const net *n, gd_tensor *x) {
    gd_tensor *h = gd_tanh(gd_linear(x, n->w[0], n->w[1]));
    return gd_mean(gd_square(gd_sub(gd_matmul(h, n->w[2]), gd_sum(x))));
}

static gd_tensors train_step(gd_tensors in, void *user) {
    net *n = user;
    gd_optimizer_zero_grad(n->optimizer);
    gd_tensor *loss = loss_of(n, in.at[0]);
    gd_backward(loss);
    gd_optimizer_step(n->optimizer);
    gd_schedule_step(n->schedule);
    return gd_listed(loss);
}

static gd_tensor *wave_data(gd_shape dims, double phase) {
    float values[64];
    int64_t n = 1;
    for (int d = 0; d < dims.rank; d++) n *= dims.at[d];
    for (int64_t i = 0; i < n; i++) values[i] = (float)sin(0.7 * (double)(i * i) + phase);
    return gd_from_array(dims, GD_F32, values);
}

static void make_net(net *n, const char *optimizer, const char *options, mode m) {
    const gd_shape shapes[] = {gd_dims(6, 4), gd_dims(6), gd_dims(6, 2)};
    *n = (net){.jit = NULL};
    for (int i = 0; i < TENSORS; i++) n->w[i] = gd_requires_grad(wave_data(shapes[i], i));
    n->optimizer = gd_optimizer_new(optimizer, gd_list(n->w[0], n->w[1]), options);
    gd_optimizer_add(n->optimizer, gd_list(n->w[2]), .lr = 0.02);
    gd_optimizer_set_factors(n->optimizer, n->w[1], .lr = 2);
    n->schedule = gd_lr_cosine(n->optimizer, 70, .warmup = 10);
    if (m == JIT) n->jit = gd_jit_new(train_step, n, .level = 0);
    if (m != SESSION) return;
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    n->x = gd_placeholder(gd_dims(5, 4));
    n->step = gd_minimize(n->optimizer, loss_of(n, n->x), .schedule = n->schedule);
    n->session = gd_session_new(graph, .level = 0);
}

static void run_steps(net *n, int from, int to) {
    for (int i = from; i < to && !gd_failed(); i++) {
        GD_SCOPE;
        gd_tensor *x = wave_data(gd_dims(5, 4), 10 + i % 5);
        if (n->session) gd_session_run(n->session, gd_feed(n->x, x), gd_list(n->step));
        else if (n->jit) gd_jit_call(n->jit, gd_list(x));
        else train_step(gd_list(x), n);
    }
}

static gd_state_parts parts_of(net *n, gd_state_part *parts) {
    const gd_state_part all[] = {gd_part("w1", n->w[0]), gd_part("b1", n->w[1]),
                                 gd_part("w2", n->w[2]), gd_part("optimizer", n->optimizer),
                                 gd_part("schedule", n->schedule)};
    memcpy(parts, all, sizeof all);
    return (gd_state_parts){parts, 5};
}

static bool same_nets(const net *a, const net *b) {
    GD_SCOPE;
    GD_NO_GRAD;
    bool all = gd_item(gd_optimizer_lr(a->optimizer)) == gd_item(gd_optimizer_lr(b->optimizer));
    for (int i = 0; i < TENSORS; i++) all &= tensors_distance(a->w[i], b->w[i]) == 0;
    return all;
}

static const char *const optimizers[][2] = {{"sgd", "lr=0.05 momentum=0.9 dampening=0.3"},
                                            {"adam", "lr=0.05 amsgrad=true"},
                                            {"adamw", "lr=0.05"},
                                            {"rmsprop", "lr=0.005 centered=true momentum=0.5"},
                                            {"adagrad", "lr=0.05 lr_decay=0.1"}};

/* 50 steps, a save, a load into a new net, and 50 more steps equal 100 steps. */
CLEAN_TEST(resumed_training_gives_the_same_bits) {
    const char *path = temp_path("optimizer.safetensors");
    for (size_t k = 0; k < sizeof optimizers / sizeof *optimizers; k++)
        for (mode m = EAGER; m < MODES; m++) {
            GD_SCOPE;
            net complete, begun, resumed;
            gd_state_part parts[5];
            make_net(&complete, optimizers[k][0], optimizers[k][1], m);
            make_net(&begun, optimizers[k][0], optimizers[k][1], m);
            make_net(&resumed, optimizers[k][0], optimizers[k][1], m);
            run_steps(&complete, 0, STEPS);
            run_steps(&begun, 0, SAVED);
            run_steps(&resumed, 0, (int)k * (int)m); /* may have other state before the load */
            CHECK_SAYING(gd_save_state_with(path, parts_of(&begun, parts)) == GD_OK, "%s",
                         gd_error_message());
            CHECK_SAYING(gd_load_state_with(path, parts_of(&resumed, parts)) == GD_OK,
                         "%s, mode %d: %s", optimizers[k][0], m, gd_error_message());
            run_steps(&resumed, SAVED, STEPS);
            CHECK_SAYING(!gd_failed() && same_nets(&complete, &resumed), "%s, mode %d: %s",
                         optimizers[k][0], m, gd_error_message());
            gd_clear_error();
        }
}

CLEAN_TEST(state_names_are_readable) {
    GD_SCOPE;
    net n;
    make_net(&n, "adam", "lr=0.05 amsgrad=true", EAGER);
    gd_state *fresh = gd_state_of(n.optimizer);
    CHECK(fresh && gd_state_find(fresh, "groups.1.lr") && !gd_state_find(fresh, "0.exp_avg"));
    run_steps(&n, 0, 3);
    gd_state *state = gd_state_of(n.optimizer);
    static const char *const names[] = {"groups.0.lr", "groups.0.base_lr", "groups.1.lr",
                                        "0.exp_avg",   "1.exp_avg_sq",     "2.max_exp_avg_sq",
                                        "2.step"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK_SAYING(state && gd_state_find(state, names[i]), "%s: %s", names[i],
                     gd_error_message());
    CHECK(state && gd_item(gd_state_find(state, "1.step")) == 3);
    gd_state *schedule = gd_state_of(n.schedule);
    CHECK(schedule && gd_item(gd_state_find(schedule, "step")) == 3);
}

/* A mismatch is named, and nothing changes. */
CLEAN_TEST(loading_the_state_of_another_optimizer_fails) {
    GD_SCOPE;
    net adam, sgd;
    make_net(&adam, "adam", "lr=0.05", EAGER);
    make_net(&sgd, "sgd", "lr=0.05 momentum=0.9", EAGER);
    run_steps(&adam, 0, 3);
    run_steps(&sgd, 0, 3);
    CHECK(gd_set_state(sgd.optimizer, gd_state_of(adam.optimizer)) != GD_OK &&
          says("momentum_buffer") && says("exp_avg"));
    gd_clear_error();
    net other;
    make_net(&other, "sgd", "lr=0.05 momentum=0.9", EAGER);
    run_steps(&other, 0, 4);
    run_steps(&sgd, 3, 4);
    CHECK(same_nets(&other, &sgd));
}

CLEAN_TEST(state_of_variables_belongs_to_the_session) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    gd_tensor *v = gd_variable(gd_ones(gd_dims(3)), .name = "v"),
              *w = gd_variable(gd_ones(gd_dims(3)), .name = "w");
    gd_optimizer *a = gd_optim_adam(gd_list(v, w)), *b = gd_optim_adam(gd_list(v));
    {
        GD_NAME_SCOPE("inner");
        gd_minimize(a, gd_sum(gd_mul(v, w)));
        gd_minimize(b, gd_sum(gd_mul(v, w)));
    }
    static const char *const names[] = {"v/exp_avg", "w/exp_avg_sq", "adam/lr",
                                        "adam/step", "v/exp_avg_2",  "adam/lr_2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK_SAYING(gd_graph_find(graph, names[i]), "%s: %s", names[i], gd_error_message());
    CHECK(!gd_state_of(a) && says("save and load the session"));
}

TEST_MAIN
