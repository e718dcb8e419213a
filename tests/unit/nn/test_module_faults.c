/* test_module_faults.c - every allocation fails once while modules are built, trained, copied,
 * moved, saved and loaded.
 *
 * A failure is reported, nothing leaks, existing objects are unchanged, and the same work succeeds
 * afterwards.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clean_test.h"
#include "compare.h"
#include "fault_walk.h"
#include "gradus/gradus.h"
#include "temp.h"

static gd_module *make_net(void) {
    return gd_nn_sequential(gd_nn_conv2d(1, 2, 3), gd_nn_batch_norm2d(2), gd_nn_relu(),
                            gd_nn_flatten(), gd_nn_dropout(), gd_nn_linear(GD_ANY, 3));
}

/* Repeats `work` until none of its allocations fails. `undo` reverts its changes. */
static void walk_work(const char *what, bool (*work)(void *), void (*undo)(void *, bool done),
                      void *user) {
    fault_walk w = {.what = what};
    while (fault_next(&w)) {
        fault_begin(&w);
        const bool done = work(user);
        fault_end(&w);
        CHECK_ROUND(&w, w.fired || (done && !gd_failed()));
        CHECK_ROUND(&w, done || gd_failed());
        CHECK_FAULT(&w, done ? GD_OK : gd_error_status());
        if (undo) undo(user, done);
    }
    CHECK_SAYING(w.failures > 3, "%s: only %lld allocations failed", what, (long long)w.failures);
}

static bool build_net(void *user) {
    GD_SCOPE;
    (void)user;
    gd_module *net = make_net();
    gd_module_build(net, gd_zeros(gd_dims(2, 1, 6, 6)));
    return net && !gd_failed();
}
typedef struct {
    gd_module *fc1, *fc2;
    gd_tensor *scale;
} user_module;

static gd_tensors user_module_forward(gd_tensors in, void *self) {
    user_module *m = self;
    return gd_listed(
        gd_module_forward(m->fc2, gd_mul(gd_module_forward(m->fc1, in.at[0]), m->scale)));
}

/* Written as in docs/guide/modules.md, with no check before the end. */
static bool build_user_module(void *user) {
    GD_SCOPE;
    (void)user;
    gd_module *net = gd_module_new(user_module_forward, sizeof(user_module));
    user_module *m = gd_module_self(net);
    GD_CHILD(net, m->fc1, gd_nn_linear(4, 3));
    GD_CHILD(net, m->fc2, gd_nn_sequential(gd_nn_linear(3, 2), gd_nn_relu()));
    GD_PARAMETER(net, m->scale, gd_ones(gd_dims(3)));
    gd_module_forward(net, gd_ones(gd_dims(2, 4)));
    return !gd_failed();
}
TEST(building_a_user_defined_module) {
    walk_work("a user-defined module", build_user_module, NULL, NULL);
}

TEST(building) { walk_work("building", build_net, NULL, NULL); }

static bool train_net(void *user) {
    GD_SCOPE;
    (void)user;
    gd_module *net = make_net();
    gd_tensor *x = gd_ones(gd_dims(2, 1, 6, 6)),
              *loss = gd_sum(gd_square(gd_module_forward(net, x)));
    gd_optimizer *adam = gd_optim_adam(gd_module_parameters(net));
    gd_optimizer_zero_grad(adam);
    gd_backward(loss);
    gd_optimizer_step(adam);
    return !gd_failed();
}
TEST(training) { walk_work("training", train_net, NULL, NULL); }

/* Networks with several inputs and outputs, nested modules and a shared parameter. */
static bool train_on_sequences(void *user) {
    GD_SCOPE;
    (void)user;
    gd_tensor *x = gd_zeros(gd_dims(2, 3), .dtype = GD_I64);
    gd_module *nets[] = {
        gd_zoo_char_lstm(5, .embedding = 3, .hidden = 3),
        gd_zoo_gpt(5, .context = 4, .layers = 1, .heads = 2, .width = 4, .dropout = 0.5)};
    for (int i = 0; i < 2; i++) {
        gd_optimizer *adam = gd_optim_adam(gd_module_parameters(nets[i]));
        gd_backward(gd_sum(gd_square(gd_module_forward(nets[i], x))));
        gd_optimizer_step(adam);
    }
    gd_module *m =
        gd_nn_multihead_attention(4, 2, .need_weights = true, .add_bias_kv = true, .causal = true);
    gd_tensor *q = gd_ones(gd_dims(3, 4)), *mask = gd_zeros(gd_dims(3, 3), .dtype = GD_BOOL);
    gd_backward(gd_sum(gd_module_forward(m, q, q, q, NULL, mask)));
    return !gd_failed();
}
TEST(training_on_sequences) { walk_work("training on sequences", train_on_sequences, NULL, NULL); }

/* Networks whose graph depends on tokens. */
static bool train_dynamic_networks(void *user) {
    GD_SCOPE;
    (void)user;
    const int64_t tree[] = {1, 0, 2}, program[] = {0, 1, 0, 2};
    gd_module *trees = gd_zoo_tree_net(.leaves = 2, .operators = 1, .width = 2);
    gd_module *programs =
        gd_zoo_modular_net(.channels = 1, .size = 2, .width = 2, .unary = 1, .binary = 1,
                           .classes = 2, .projection = 2, .hidden = 2);
    gd_tensor *y = gd_module_forward(trees, gd_from_array(gd_dims(3), GD_I64, tree));
    gd_tensor *x = gd_ones(gd_dims(1, 1, 2, 2));
    gd_tensor *z = gd_module_forward(programs, gd_from_array(gd_dims(4), GD_I64, program), x);
    gd_backward(gd_add(gd_sum(y), gd_sum(z)));
    return trees && programs && !gd_failed();
}
TEST(training_dynamic_networks) {
    walk_work("training dynamic networks", train_dynamic_networks, NULL, NULL);
}

typedef struct held {
    gd_module *net, *other;
    gd_tensor *x, *y;
} held;

static bool copy_net(void *user) {
    GD_SCOPE;
    held *h = user;
    gd_module *twin = gd_module_clone(h->net);
    return twin && !gd_failed();
}

static bool move_net(void *user) {
    return gd_module_to(((held *)user)->net, NULL, GD_F64) == GD_OK;
}

/* All parameters have moved, or none. */
static void move_back(void *user, bool done) {
    GD_SCOPE;
    held *h = user;
    gd_clear_error();
    gd_tensors parameters = gd_module_parameters(h->net);
    for (int i = 0; i < parameters.count; i++)
        CHECK(gd_tensor_dtype(parameters.at[i]) == (done ? GD_F64 : GD_F32));
    CHECK(gd_module_to(h->net, NULL, GD_F32) == GD_OK);
    CHECK(tensors_distance(gd_module_forward(h->net, h->x), h->y) == 0);
}

/* A failed load leaves the old values. */
static void check_loaded(void *user, bool done) {
    GD_SCOPE;
    held *h = user;
    gd_clear_error();
    CHECK((tensors_distance(gd_module_forward(h->other, h->x), h->y) == 0) == done);
    gd_module_init(h->other, "*", "normal");
}

static bool save_net(void *user) {
    held *h = user;
    return gd_save_state(temp_path("net.safetensors"), gd_part("net", h->net)) == GD_OK;
}

static bool load_net(void *user) {
    held *h = user;
    return gd_load_state(temp_path("net.safetensors"), gd_part("net", h->other)) == GD_OK;
}

static bool summarize_net(void *user) {
    GD_SCOPE;
    held *h = user;
    char *text = gd_module_summary(h->net, h->x);
    const bool done = text != NULL;
    free(text);
    return done;
}

static bool draw_net(void *user) {
    GD_SCOPE;
    held *h = user;
    return gd_module_draw(h->net, temp_path("net.svg"), gd_list(h->x)) == GD_OK;
}

TEST(copying_moving_saving_loading) {
    GD_SCOPE;
    held h = {.net = make_net(), .other = make_net(), .x = gd_randn(gd_dims(2, 1, 6, 6))};
    gd_module_eval(h.net);
    gd_module_eval(h.other);
    GD_NO_GRAD; /* the tape would hold parameters from before the move */
    h.y = gd_module_forward(h.net, h.x);
    gd_module_forward(h.other, h.x);
    walk_work("copying", copy_net, NULL, &h);
    walk_work("moving", move_net, move_back, &h);
    walk_work("saving", save_net, NULL, &h);
    walk_work("loading", load_net, check_loaded, &h);
    walk_work("summary", summarize_net, NULL, &h);
    walk_work("drawing", draw_net, NULL, &h);
}

TEST_MAIN
