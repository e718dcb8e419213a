/* test_optim_of.c - parameters that do not exist yet: gd_module_parameters fails, and optimizers of
 * a module take them in when they are built. */
#include <stdio.h>
#include <string.h>

#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"
#include "gradus/state.h"
#include "temp.h"

static gd_module *half_built(void) {
    return gd_nn_sequential(gd_nn_linear(4, 8), gd_nn_tanh(), gd_nn_linear(GD_ANY, 5), gd_nn_tanh(),
                            gd_nn_linear(GD_ANY, 3));
}
static gd_module *unbuilt(void) {
    return gd_nn_sequential(gd_nn_linear(GD_ANY, 8), gd_nn_tanh(), gd_nn_linear(GD_ANY, 3));
}

/* --- lists of parameters ---------------------------------------------------------------------- */

TEST(parameters_of_a_net_that_is_not_built_fail_and_name_its_layers) {
    GD_SCOPE;
    gd_module *net = half_built();
    gd_module_parameters(net);
    CHECK_SAYING(says("gd_module_parameters: 2 (linear), 4 (linear) have no parameters yet"), "%s",
                 gd_error_message());
    CHECK(says("GD_ANY") && says("gd_module_build") && says("gd_optim_adam_of(net)"));
    gd_clear_error();
    CHECK(!gd_optim_adam(gd_module_parameters(unbuilt())));
    CHECK_SAYING(says("0 (linear), 2 (linear) have no"), "%s", gd_error_message());
    gd_clear_error();
    gd_module_parameters(gd_nn_linear(GD_ANY, 3));
    CHECK_SAYING(says("gd_module_parameters: linear has no"), "%s", gd_error_message());
    gd_clear_error();
    gd_module_forward(net, gd_randn(gd_dims(2, 4)));
    CHECK(gd_module_parameters(net).count == 6 && !gd_failed());
}

TEST(parameters_that_exist_can_be_selected_before_the_others_are_built) {
    GD_SCOPE;
    gd_module *net = half_built();
    CHECK(gd_module_parameters(net, .match = "0.*").count == 2 && !gd_failed());
    CHECK(gd_module_parameters(net, .match = "0.weight").count == 1 && !gd_failed());
    gd_module_parameters(net, .match = "*.bias");
    CHECK_SAYING(says("2 (linear), 4 (linear)"), "%s", gd_error_message());
    gd_clear_error();
    gd_module_parameters(net, .match = "2.*");
    CHECK_SAYING(says(": 2 (linear) has no"), "%s", gd_error_message());
    gd_clear_error();
    gd_module_freeze(gd_module_find(net, "2"));
    gd_module_parameters(net, .trainable = true);
    CHECK_SAYING(says(": 4 (linear) has no"), "%s", gd_error_message());
    gd_clear_error();
}

TEST(what_only_looks_at_a_net_works_before_it_is_built) {
    GD_SCOPE;
    gd_module *net = half_built();
    CHECK(gd_module_parameter_count(net) == 4 * 8 + 8);
    CHECK(gd_module_buffers(net).count == 0);
    char *text = gd_module_summary(half_built(), gd_ones(gd_dims(1, 4)));
    CHECK(text && strstr(text, "linear") && !gd_failed());
    free(text);
}

TEST(what_must_reach_all_layers_fails_before_a_net_is_built) {
    GD_SCOPE;
    gd_module *net = half_built();
    gd_tensor *weight = gd_module_tensor(net, "0.weight"), *before = gd_clone(gd_detach(weight));
    CHECK(gd_module_init(net, "*.weight", "zeros") != GD_OK);
    CHECK_SAYING(says("gd_module_init: 2 (linear), 4 (linear) have no parameters yet") &&
                     says("gd_module_build"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_item(gd_sum(gd_abs(gd_sub(gd_detach(weight), before)))) == 0);
    CHECK(gd_module_init(net, "0.*", "zeros") == GD_OK);
    gd_module *norm = gd_nn_sequential(gd_nn_linear(4, 8), gd_nn_batch_norm1d(GD_ANY));
    gd_module_buffers(norm);
    CHECK_SAYING(says("gd_module_buffers: 1 (batch_norm1d) has no buffers yet"), "%s",
                 gd_error_message());
    gd_clear_error();
    norm = gd_nn_sequential(gd_nn_batch_norm1d(GD_ANY, .track_running_stats = false));
    CHECK(gd_module_buffers(norm).count == 0 && !gd_failed());
}

/* --- training --------------------------------------------------------------------------------- */

typedef struct trainer {
    gd_module *net;
    gd_optimizer *optimizer;
    gd_schedule *schedule;
} trainer;

static gd_tensors train_step(gd_tensors in, void *user) {
    trainer *t = user;
    gd_optimizer_zero_grad(t->optimizer);
    gd_tensor *loss = gd_cross_entropy(gd_module_forward(t->net, in.at[0]), in.at[1]);
    gd_backward(loss);
    gd_optimizer_step(t->optimizer);
    if (t->schedule) gd_schedule_step(t->schedule);
    return gd_listed(loss);
}

static void take_steps(trainer *t, int count, bool traced) {
    GD_SCOPE;
    gd_jit *jit = traced ? gd_jit_new(train_step, t, .level = 0) : NULL;
    gd_random r = gd_random_of(5, 0);
    for (int i = 0; i < count; i++) {
        float x[6 * 4];
        int64_t y[6];
        for (int k = 0; k < 24; k++) x[k] = (float)gd_random_normal(&r);
        for (int k = 0; k < 6; k++) y[k] = gd_random_below(&r, 3);
        gd_tensors in =
            gd_list(gd_from_array(gd_dims(6, 4), GD_F32, x), gd_from_array(gd_dims(6), GD_I64, y));
        if (jit) gd_jit_call(jit, in);
        else train_step(in, t);
    }
}

static bool same_parameters(gd_module *a, gd_module *b) {
    gd_tensors p = gd_module_parameters(a), q = gd_module_parameters(b);
    bool same = p.count == q.count && p.count > 0;
    for (int64_t i = 0; i < p.count && same; i++) same = tensors_same_bits(p.at[i], q.at[i]);
    return same;
}

/* The same net with all sizes, and the weights that the half-built one will have. */
static void check_training(const char *name, const char *options, gd_module *(*make)(void),
                           bool traced) {
    GD_SCOPE;
    gd_seed(7);
    gd_module *built = make();
    gd_module_build(built, gd_ones(gd_dims(6, 4)));
    trainer a = {built, gd_optimizer_new(name, gd_module_parameters(built), options), NULL};
    gd_seed(7);
    gd_module *later = make();
    trainer b = {later, gd_optimizer_new_of(name, later, options), NULL};
    a.schedule = gd_lr_cosine(a.optimizer, 20), b.schedule = gd_lr_cosine(b.optimizer, 20);
    take_steps(&a, 5, traced);
    take_steps(&b, 5, traced);
    CHECK_SAYING(!gd_failed() && same_parameters(built, later), "%s%s: %s", name,
                 traced ? ", traced" : "", gd_error_message());
}

CLEAN_TEST(optimizers_of_a_module_train_what_is_built_later) {
    static const char *const names[][2] = {{"sgd", "lr=0.1"},      {"sgd", "lr=0.1 momentum=0.9"},
                                           {"adam", "lr=0.05"},    {"adamw", "lr=0.05"},
                                           {"rmsprop", "lr=0.01"}, {"adagrad", "lr=0.05"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int traced = 0; traced < 2; traced++) {
            check_training(names[i][0], names[i][1], half_built, traced);
            check_training(names[i][0], names[i][1], unbuilt, traced);
        }
}

CLEAN_TEST(constructors_of_a_module_take_the_options_of_the_record) {
    GD_SCOPE;
    gd_module *net = unbuilt();
    gd_optimizer *o = gd_optim_adamw_of(net, .lr = 0.25, .weight_decay = 0.5);
    CHECK(gd_item(gd_optimizer_lr(o)) == 0.25 && gd_optimizer_group_count(o) == 1);
    CHECK(gd_optim_sgd_of(net) && gd_optim_adam_of(net) && gd_optim_rmsprop_of(net) &&
          gd_optim_adagrad_of(net) && !gd_failed());
    CHECK(!gd_optim_adam_of(net, .lr = -1) && says("gd_optim_adam: lr is -1"));
    gd_clear_error();
    CHECK(!gd_optim_adam_of(NULL));
    CHECK_SAYING(says("gd_optim_adam_of: the module is NULL"), "%s", gd_error_message());
    gd_clear_error();
    CHECK(!gd_optimizer_new_of("adamm", net, "") && says("adamm"));
}

/* --- parts that are built one after the other ------------------------------------------------- */

static gd_module *two_parts(void) {
    return gd_nn_list(gd_nn_linear(GD_ANY, 2), gd_nn_linear(GD_ANY, 3));
}

static void train_part(gd_module *net, gd_optimizer *o, int part) {
    GD_SCOPE;
    gd_optimizer_zero_grad(o);
    gd_tensor *x = gd_from_array(gd_dims(2, 2), GD_F32, (float[]){1, -2, 0.5, 3});
    gd_backward(gd_mean(gd_square(gd_module_forward(gd_module_at(net, part), x))));
    gd_optimizer_step(o);
}

CLEAN_TEST(the_order_is_that_of_the_module_and_state_moves_with_its_parameter) {
    GD_SCOPE;
    gd_module *net = two_parts();
    gd_optimizer *o = gd_optim_adam_of(net);
    for (int i = 0; i < 3; i++) train_part(net, o, 1); /* the second part is built first */
    gd_optimizer_set_lr(o, 0.5);
    train_part(net, o, 0);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    static const char *const names[] = {"groups.0.lr",   "0.weight.exp_avg", "0.weight.exp_avg_sq",
                                        "0.weight.step", "0.bias.exp_avg",   "0.bias.exp_avg_sq",
                                        "0.bias.step",   "1.weight.exp_avg", "1.weight.exp_avg_sq",
                                        "1.weight.step"};
    gd_state *state = gd_state_of(o);
    CHECK(gd_state_count(state) == 13);
    for (int i = 0; i < 10 && i < gd_state_count(state); i++)
        CHECK_SAYING(strcmp(gd_state_name(state, i), names[i]) == 0, "%d: %s", i,
                     gd_state_name(state, i));
    CHECK(gd_item(gd_state_find(state, "0.weight.step")) == 1);
    CHECK(gd_item(gd_state_find(state, "1.weight.step")) == 3);
}

CLEAN_TEST(a_replaced_layer_is_trained_and_the_old_one_is_not) {
    GD_SCOPE;
    gd_module *net = gd_nn_sequential(gd_nn_linear(4, 8), gd_nn_tanh(), gd_nn_linear(8, 3)),
              *old = gd_module_find(net, "2");
    trainer t = {net, gd_optim_adam_of(net), NULL};
    take_steps(&t, 2, false);
    gd_tensor *before = gd_clone(gd_module_tensor(old, "weight"));
    gd_module_replace(net, "2", gd_nn_linear(8, 3));
    gd_tensor *head = gd_clone(gd_module_tensor(net, "2.weight"));
    take_steps(&t, 2, false);
    CHECK(!tensors_same_bits(head, gd_module_tensor(net, "2.weight")));
    CHECK(!gd_failed() && tensors_same_bits(before, gd_module_tensor(old, "weight")));
    gd_state *state = gd_state_of(t.optimizer);
    CHECK(gd_item(gd_state_find(state, "2.weight.step")) == 2);
    CHECK(gd_item(gd_state_find(state, "0.weight.step")) == 4);
}

CLEAN_TEST(groups_and_factors_stay_when_parameters_come_later) {
    GD_SCOPE;
    gd_module *net = half_built();
    gd_optimizer *o = gd_optim_sgd_of(net, .lr = 0.5);
    gd_tensor *extra = gd_requires_grad(gd_ones(gd_dims(2)));
    gd_optimizer_set_factors(o, gd_module_tensor(net, "0.bias"), .lr = 0);
    gd_optimizer_add(o, gd_list(extra), .lr = 0.25);
    trainer t = {net, o, NULL};
    gd_tensor *bias = gd_clone(gd_module_tensor(net, "0.bias"));
    take_steps(&t, 2, false);
    CHECK(tensors_same_bits(bias, gd_module_tensor(net, "0.bias"))); /* its factor is 0 */
    CHECK(gd_optimizer_group_count(o) == 2 && !gd_failed());
    gd_optimizer_zero_grad(o);
    gd_tensor *weight = gd_clone(gd_module_tensor(net, "4.weight"));
    gd_backward(gd_add(gd_sum(extra), gd_sum(gd_module_forward(net, gd_ones(gd_dims(1, 4))))));
    gd_optimizer_step(o);
    CHECK(gd_item(gd_sum(extra)) == 1.5);
    CHECK(!tensors_same_bits(weight, gd_module_tensor(net, "4.weight")));
}

/* Parameters of several parts, with different counts of steps, before and after a new layer. */
CLEAN_TEST(state_of_parts_with_factors_moves_with_its_parameter) {
    GD_SCOPE;
    gd_module *net =
        gd_nn_list(gd_nn_linear(2, 2), gd_nn_linear(2, 2), gd_nn_linear(2, 3), gd_nn_linear(2, 1));
    gd_optimizer *o = gd_optim_adam_of(net);
    gd_optimizer_set_factors(o, gd_module_tensor(net, "2.weight"), .lr = 2);
    gd_optimizer_set_factors(o, gd_module_tensor(net, "1.bias"), .lr = 2);
    gd_optimizer_set_factors(o, gd_module_tensor(net, "3.weight"), .lr = 3);
    for (int part = 0; part < 4; part++)
        for (int i = 0; i <= part; i++) train_part(net, o, part);
    gd_state *before = gd_state_of(o);
    CHECK(gd_state_count(before) == 1 + 3 * 8);
    gd_module_append(net, gd_nn_linear(2, 2));
    train_part(net, o, 4);
    gd_state *after = gd_state_of(o);
    CHECK(gd_state_count(after) == 1 + 3 * 10);
    for (int i = 0; i < gd_state_count(before); i++) {
        const char *name = gd_state_name(before, i);
        CHECK_SAYING(tensors_same_bits(gd_state_find(before, name), gd_state_find(after, name)),
                     "%s", name);
    }
    CHECK(gd_item(gd_state_find(after, "1.bias.step")) == 2);
    CHECK(gd_item(gd_state_find(after, "2.weight.step")) == 3);
}

/* --- state ------------------------------------------------------------------------------------ */

CLEAN_TEST(state_is_saved_and_loaded_by_the_names_of_the_module) {
    GD_SCOPE;
    const char *path = temp_path("of.safetensors");
    gd_seed(3);
    gd_module *net = half_built();
    trainer a = {net, gd_optim_adam_of(net), NULL};
    take_steps(&a, 3, false);
    gd_module *copy = gd_module_clone(net);
    CHECK(gd_save_state(path, gd_part("", a.optimizer)) == GD_OK);
    trainer b = {copy, gd_optim_adam_of(copy), NULL};
    CHECK_SAYING(gd_load_state(path, gd_part("", b.optimizer)) == GD_OK, "%s", gd_error_message());
    take_steps(&a, 2, false);
    take_steps(&b, 2, true);
    CHECK(same_parameters(net, copy) && !gd_failed());

    gd_module *fresh = half_built();
    CHECK(gd_load_state(path, gd_part("", gd_optim_adam_of(fresh))) != GD_OK);
    CHECK_SAYING(says("2 (linear), 4 (linear)") && says("gd_module_build"), "%s",
                 gd_error_message());
}

CLEAN_TEST(state_of_a_list_fits_an_optimizer_of_the_module) {
    GD_SCOPE;
    const char *path = temp_path("list.safetensors");
    gd_module *net = half_built();
    gd_module_build(net, gd_ones(gd_dims(1, 4)));
    trainer a = {net, gd_optim_adam(gd_module_parameters(net)), NULL};
    take_steps(&a, 2, false);
    CHECK(gd_save_state(path, gd_part("", a.optimizer)) == GD_OK); /* by number */
    gd_optimizer *o = gd_optim_adam_of(net);
    CHECK_SAYING(gd_load_state(path, gd_part("", o)) == GD_OK, "%s", gd_error_message());
    CHECK(gd_item(gd_state_find(gd_state_of(o), "4.bias.step")) == 2);
}

/* --- nothing to train ------------------------------------------------------------------------- */

CLEAN_TEST(a_step_without_parameters_fails) {
    GD_SCOPE;
    gd_module *net = unbuilt();
    gd_optimizer *o = gd_optim_sgd_of(net);
    CHECK(gd_optimizer_step(o) != GD_OK);
    CHECK_SAYING(says("gd_optimizer_step: ") && says("0 (linear), 2 (linear)"), "%s",
                 gd_error_message());
    gd_clear_error();
    CHECK(gd_optimizer_step(gd_optim_sgd_of(gd_nn_relu())) != GD_OK);
    CHECK_SAYING(says("has no parameters"), "%s", gd_error_message());
}

CLEAN_TEST(an_optimizer_does_not_hold_its_module) {
    GD_SCOPE;
    gd_optimizer *o;
    gd_tensor *w;
    {
        GD_SCOPE;
        gd_module *net = gd_nn_linear(2, 1);
        o = gd_keep(gd_optim_sgd_of(net, .lr = 1));
        w = gd_keep(gd_module_tensor(net, "weight"));
    }
    gd_tensor *before = gd_clone(w);
    gd_backward(gd_sum(w));
    CHECK(gd_optimizer_step(o) == GD_OK && !tensors_same_bits(before, w));
    gd_optimizer_zero_grad(o);
    CHECK(!gd_failed());
}

/* The module has its optimizer through gd_compile, and could not be freed if it were held. */
CLEAN_TEST(a_compiled_net_with_an_optimizer_of_itself_is_freed) {
    GD_SCOPE;
    gd_module *net = unbuilt();
    gd_compile(net, .optimizer_object = gd_optim_adam_of(net, .lr = 0.05), .loss = "mse");
    gd_history *h = gd_fit(net, gd_list(gd_ones(gd_dims(8, 4)), gd_ones(gd_dims(8, 3))),
                           .epochs = 30, .progress = GD_PROGRESS_NONE);
    CHECK_SAYING(h && gd_history_last(h, "loss") < 0.1, "%s", gd_error_message());
}

TEST_MAIN
