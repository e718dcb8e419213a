/* test_module.c - modules: trees, names, calls, modes and messages. */
#include <sys/resource.h>
#include <stdlib.h>
#include <string.h>

#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"

#define CHECK_MESSAGE(...)                                                              \
    do {                                                                                \
        const char *const parts_[] = {__VA_ARGS__};                                     \
        CHECK(gd_failed());                                                             \
        for (size_t i_ = 0; i_ < sizeof parts_ / sizeof *parts_; i_++)                  \
            CHECK_SAYING(strstr(gd_error_message(), parts_[i_]), "'%s' is not in '%s'", \
                         parts_[i_], gd_error_message());                               \
        gd_clear_error();                                                               \
    } while (0)

typedef struct {
    gd_module *fc1, *fc2;
} two_layer;

static gd_tensors two_layer_forward(gd_tensors in, void *self) {
    two_layer *m = self;
    return gd_listed(gd_module_forward(m->fc2, gd_relu(gd_module_forward(m->fc1, in.at[0]))));
}

static gd_module *two_layer_new(int64_t in, int64_t hidden, int64_t out) {
    gd_module *net = gd_module_new(two_layer_forward, sizeof(two_layer), .type = "two_layer");
    two_layer *m = gd_module_self(net);
    GD_CHILD(net, m->fc1, gd_nn_linear(in, hidden));
    GD_CHILD(net, m->fc2, gd_nn_linear(hidden, out));
    return net;
}

TEST(a_user_defined_module_has_named_parameters_and_computes) {
    GD_SCOPE;
    gd_module *net = two_layer_new(4, 8, 3);
    gd_tensors p = gd_module_parameters(net);
    CHECK(p.count == 4);
    char name[64];
    static const char *const names[] = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};
    for (int i = 0; i < 4; i++)
        CHECK(strcmp(gd_module_name_of(net, p.at[i], name, sizeof name), names[i]) == 0);
    CHECK(gd_module_parameter_count(net) == 4 * 8 + 8 + 8 * 3 + 3);
    gd_tensor *x = gd_randn(gd_dims(5, 4)), *y = gd_module_forward(net, x);
    CHECK(
        tensors_same_bits(y, gd_linear(gd_relu(gd_linear(x, p.at[0], p.at[1])), p.at[2], p.at[3])));
    CHECK(gd_module_parameters(net, .match = "*.weight").count == 2);
    CHECK(!gd_failed());
}

CLEAN_TEST(names_of_tensors_follow_changes_of_the_tree) {
    GD_SCOPE;
    char name[64];
    gd_module *head = gd_nn_linear(4, 2), *net = gd_nn_sequential(gd_nn_linear(4, 4), head);
    gd_module *outer = gd_nn_sequential(net);
    gd_tensor *weight = gd_module_tensor(head, "weight"), *other = gd_ones(gd_dims(1));
    CHECK(gd_module_name_of(outer, weight, name, sizeof name) && !strcmp(name, "0.1.weight"));
    CHECK(!gd_module_name_of(outer, other, name, sizeof name));
    gd_module *next = gd_nn_linear(4, 2);
    gd_module_replace(net, "1", next);
    CHECK(!gd_module_name_of(outer, weight, name, sizeof name));
    CHECK(gd_module_name_of(outer, gd_module_tensor(next, "weight"), name, sizeof name) &&
          !strcmp(name, "0.1.weight"));
    gd_module_append(outer, head); /* a shared tensor has its first name */
    gd_module_append(outer, head);
    CHECK(gd_module_name_of(outer, weight, name, sizeof name) && !strcmp(name, "1.weight"));
    CHECK(gd_module_name_of(head, weight, name, 4) && !strcmp(name, "wei"));
    gd_module *copy = gd_module_clone(outer);
    CHECK(!gd_module_name_of(copy, weight, name, sizeof name) && !gd_failed());
}

TEST(sequential_infers_input_sizes) {
    GD_SCOPE;
    gd_module *net =
        gd_nn_sequential(gd_nn_conv2d(1, 4, 5, .padding = 2), gd_nn_relu(), gd_nn_max_pool2d(2),
                         gd_nn_flatten(), gd_nn_linear(GD_ANY, 10));
    CHECK(net && !gd_failed());
    CHECK(gd_module_parameters(net, .match = "0.*").count == 2);
    gd_tensor *y = gd_module_forward(net, gd_randn(gd_dims(2, 1, 8, 8)));
    CHECK(gd_tensor_dim(y, 1) == 10);
    CHECK(gd_module_parameters(net).count == 4);
    CHECK(gd_tensor_dim(gd_module_tensor(net, "4.weight"), 1) == 4 * 4 * 4);
    CHECK(!gd_failed());
}

TEST(messages_name_the_layer_by_its_path) {
    GD_SCOPE;
    gd_module *net =
        gd_nn_sequential(gd_nn_linear(4, 8), gd_nn_sequential(gd_nn_relu(), gd_nn_linear(9, 2)));
    gd_tensor *y = gd_module_forward(net, gd_randn(gd_dims(5, 4)));
    (void)y;
    CHECK_MESSAGE("1.1 (linear): ", "'w' takes 9 inputs", "test_module.c:");
    CHECK(!gd_nn_linear(4, 0));
    CHECK_MESSAGE("linear: out_features is 0; it must be at least 1", "test_module.c:");
    CHECK(!gd_nn_sequential(gd_nn_linear(4, 4), gd_nn_dropout(.p = 1.5)));
    CHECK_MESSAGE("dropout: p is 1.5; it must be in [0, 1]");
    CHECK(!gd_nn_hardtanh(.min = 1, .max = -1));
    CHECK_MESSAGE("hardtanh: min is 1 and max is -1; min must not be larger");
    CHECK(gd_module_forward(NULL, gd_randn(gd_dims(1))) != NULL);
    CHECK_MESSAGE("gd_module_forward: the module is NULL");
    gd_module_tensor(net, "0.wieght");
    CHECK_MESSAGE("0.wieght", "0.weight, 0.bias");
}

TEST(a_child_out_of_range_is_a_failure) {
    GD_SCOPE;
    gd_module *net = gd_nn_sequential(gd_nn_linear(4, 8), gd_nn_relu());
    CHECK(gd_module_at(net, 1) && !gd_failed());
    CHECK(!gd_module_at(net, 2));
    CHECK_MESSAGE("gd_module_at: there is no child 2; 'sequential' has 2", "test_module.c:");
    CHECK(!gd_module_at(net, -1));
    CHECK_MESSAGE("there is no child -1");
    CHECK(!gd_module_at(gd_nn_relu(), 0));
    CHECK_MESSAGE("there is no child 0; 'relu' has no children");
    CHECK(!gd_module_at(NULL, 0));
    CHECK_MESSAGE("gd_module_at: the module is NULL");
}

TEST(a_size_to_be_inferred_is_any_in_text) {
    GD_SCOPE;
    gd_module *net = gd_layer_new("linear", "in_features=any out_features=3");
    CHECK_SAYING(net, "%s", gd_error_message());
    CHECK(gd_tensor_dim(gd_module_forward(net, gd_ones(gd_dims(2, 5))), 1) == 3);
    CHECK(gd_tensor_dim(gd_module_tensor(net, "weight"), 1) == 5);
    CHECK(!gd_layer_new("linear", "in_features=4 out_features=any"));
    CHECK_MESSAGE("out_features takes an integer, not 'any'");
    CHECK(!gd_layer_new("linear", "out_features=3"));
    CHECK_MESSAGE("linear needs the option 'in_features' (an integer, or any: inferred");
    CHECK(!gd_layer_new("linear", "in_features=some out_features=3"));
    CHECK_MESSAGE("in_features takes an integer, or any: inferred");
}

TEST(options_of_layers_can_be_read_and_numbers_changed) {
    GD_SCOPE;
    gd_module *net = gd_layer_new("linear", "in_features=any out_features=3");
    const gd_nn_linear_options *o = gd_layer_options(net, "linear");
    CHECK(o && o->in_features == GD_ANY && o->out_features == 3 && o->bias);
    gd_module_forward(net, gd_ones(gd_dims(2, 5)));
    CHECK(o->in_features == 5);
    CHECK(!gd_layer_options(net, "relu") && !gd_layer_options(gd_nn_sequential(net), "sequential"));
    CHECK(!gd_layer_options(NULL, "linear"));

    gd_module *act = gd_nn_leaky_relu(.slope = 0.5);
    gd_tensor *x = gd_full(gd_dims(1), -1);
    CHECK(gd_item(gd_module_forward(act, x)) == -0.5);
    CHECK(gd_layer_set_number(act, "slope", 2) == GD_OK);
    CHECK(gd_item(gd_module_forward(act, x)) == -2);
    gd_module *drop = gd_nn_dropout(.p = 0.5);
    CHECK(gd_layer_set_number(drop, "p", 2) == GD_E_ARGUMENT);
    CHECK_MESSAGE("p is 2");
    CHECK(((const gd_nn_dropout_options *)gd_layer_options(drop, "dropout"))->p == 0.5);
    CHECK(gd_layer_set_number(net, "out_features", 2) == GD_E_ARGUMENT);
    CHECK_MESSAGE("linear has no option 'out_features' that is a number");
    CHECK(gd_layer_set_number(gd_nn_sequential(drop), "p", 0) == GD_E_ARGUMENT);
    CHECK_MESSAGE("sequential is no layer");
}

TEST(a_number_tells_whether_trees_have_changed) {
    GD_SCOPE;
    gd_module *net = gd_nn_sequential(gd_nn_relu());
    const unsigned before = gd_module_changes();
    gd_module_forward(net, gd_ones(gd_dims(2)));
    gd_module_eval(net);
    CHECK(gd_module_changes() == before);
    gd_module_append(net, gd_nn_relu());
    CHECK(gd_module_changes() != before);
}

static gd_tensors add_dropped(gd_tensors in, void *user) {
    return gd_listed(gd_module_forward((gd_module *)user, in.at[0]));
}

TEST(a_jit_traces_again_when_a_number_of_a_layer_has_changed) {
    GD_SCOPE;
    gd_module *act = gd_nn_leaky_relu(.slope = 0.5);
    gd_jit *jit = gd_jit_new(add_dropped, act);
    gd_tensor *x = gd_full(gd_dims(1), -1);
    CHECK(gd_item(gd_jit_call(jit, gd_list(x)).at[0]) == -0.5);
    CHECK(gd_layer_set_number(act, "slope", 3) == GD_OK);
    CHECK(gd_item(gd_jit_call(jit, gd_list(x)).at[0]) == -3);
}

static gd_tensors forward_net(gd_tensors in, void *user) {
    return gd_listed(gd_module_forward((gd_module *)user, in.at[0]));
}

TEST(a_jit_has_a_plan_for_each_mode) {
    GD_SCOPE;
    gd_module *net = gd_nn_sequential(gd_nn_linear(8, 64), gd_nn_dropout());
    gd_jit *jit = gd_jit_new(forward_net, net);
    gd_tensor *x = gd_randn(gd_dims(4, 8));
    gd_tensor *a = gd_jit_call(jit, gd_list(x)).at[0], *b = gd_jit_call(jit, gd_list(x)).at[0];
    CHECK(!tensors_same_bits(a, b));
    gd_module_eval(net);
    a = gd_jit_call(jit, gd_list(x)).at[0], b = gd_jit_call(jit, gd_list(x)).at[0];
    CHECK(tensors_same_bits(a, b));
    CHECK(tensors_same_bits(a, gd_module_forward(net, x)));
    gd_module_train(net);
    CHECK(
        !tensors_same_bits(gd_jit_call(jit, gd_list(x)).at[0], gd_jit_call(jit, gd_list(x)).at[0]));
    CHECK(gd_jit_traces(jit) == 2);
    CHECK(!gd_failed());
}

TEST(a_parameter_created_while_tracing_is_a_parameter) {
    GD_SCOPE;
    gd_module *net = gd_nn_linear(GD_ANY, 3);
    gd_jit *jit = gd_jit_new(forward_net, net);
    gd_tensor *x = gd_randn(gd_dims(4, 8));
    gd_tensor *y = gd_jit_call(jit, gd_list(x)).at[0];
    CHECK(gd_module_parameters(net).count == 2);
    CHECK(tensors_same_bits(y, gd_module_forward(net, x)));
    gd_backward(gd_sum(y));
    CHECK(gd_module_grad(net, "weight") != NULL);
    CHECK(gd_jit_traces(jit) == 1);
    CHECK(!gd_failed());
}

TEST(a_clone_has_its_own_values_and_its_own_fields) {
    GD_SCOPE;
    gd_module *net = two_layer_new(4, 8, 3), *copy = gd_module_clone(net);
    gd_tensor *x = gd_randn(gd_dims(5, 4)), *y = gd_module_forward(net, x);
    CHECK(tensors_same_bits(y, gd_module_forward(copy, x)));
    {
        GD_NO_GRAD;
        gd_mul_(gd_module_tensor(net, "fc2.weight"), gd_scalar(2));
    }
    CHECK(tensors_same_bits(y, gd_module_forward(copy, x)));
    CHECK(!tensors_same_bits(y, gd_module_forward(net, x)));
    CHECK(((two_layer *)gd_module_self(copy))->fc1 == gd_module_find(copy, "fc1"));
    CHECK(!gd_failed());
}

/* A module whose struct owns memory. */
typedef struct {
    gd_module *fc;
    float *factors; /* one for each feature, on the heap */
} scaled;

static int destroyed;

static gd_tensors scaled_forward(gd_tensors in, void *self) {
    scaled *m = self;
    gd_tensor *y = gd_module_forward(m->fc, in.at[0]);
    return gd_listed(gd_mul(y, gd_from_array(gd_dims(3), GD_F32, m->factors)));
}

static void scaled_destroy(void *self) {
    destroyed++;
    free(((scaled *)self)->factors);
}

static gd_status scaled_clone(gd_module *copy, void *to, const void *from) {
    scaled *m = to;
    const scaled *original = from;
    CHECK(to == gd_module_self(copy) && m->factors == original->factors);
    CHECK(m->fc && m->fc == gd_module_find(copy, "fc") && m->fc != original->fc);
    if (original->factors[0] == 0) return GD_E_STATE;
    if (!(m->factors = malloc(3 * sizeof *m->factors))) return GD_E_MEMORY;
    memcpy(m->factors, original->factors, 3 * sizeof *m->factors);
    return GD_OK;
}

static gd_module *scaled_new(float factor, bool clones) {
    gd_module *net =
        gd_module_new(scaled_forward, sizeof(scaled), .type = "scaled", .destroy = scaled_destroy,
                      .clone = clones ? scaled_clone : NULL);
    scaled *m = gd_module_self(net);
    m->factors = malloc(3 * sizeof *m->factors);
    for (int i = 0; i < 3; i++) m->factors[i] = factor;
    GD_CHILD(net, m->fc, gd_nn_linear(4, 3));
    return net;
}

CLEAN_TEST(a_clone_function_copies_what_a_struct_owns) {
    destroyed = 0;
    {
        GD_SCOPE;
        gd_module *net = gd_nn_sequential(scaled_new(2, true), gd_nn_relu());
        gd_module *copy = gd_module_clone(net), *again = gd_module_clone(copy);
        CHECK(copy && again && !gd_failed());
        gd_tensor *x = gd_randn(gd_dims(5, 4)), *y = gd_module_forward(net, x);
        CHECK(tensors_same_bits(y, gd_module_forward(copy, x)));
        CHECK(tensors_same_bits(y, gd_module_forward(again, x)));
        scaled *m = gd_module_self(gd_module_at(copy, 0));
        m->factors[0] = m->factors[1] = m->factors[2] = 0;
        CHECK(tensors_same_bits(y, gd_module_forward(net, x)));
        CHECK(!tensors_same_bits(y, gd_module_forward(copy, x)));
    }
    CHECK(destroyed == 3);
}

CLEAN_TEST(a_failed_clone_function_fails_the_clone) {
    destroyed = 0;
    {
        GD_SCOPE;
        gd_module *net = gd_nn_sequential(gd_nn_relu(), scaled_new(0, true));
        CHECK(!gd_module_clone(net));
        CHECK_MESSAGE("gd_module_clone: scaled: its clone function returned GD_E_STATE",
                      "test_module.c");
        CHECK(!gd_module_clone(scaled_new(1, false)));
        CHECK_MESSAGE("gd_module_clone: scaled has a destroy function", ".clone");
    }
    CHECK(destroyed == 2); /* not for the copies that were never complete */
}

TEST(replacing_a_child_retraces_plans) {
    GD_SCOPE;
    gd_module *net = two_layer_new(4, 8, 3);
    gd_jit *jit = gd_jit_new(forward_net, net);
    gd_tensor *x = gd_randn(gd_dims(5, 4));
    CHECK(gd_tensor_dim(gd_jit_call(jit, gd_list(x)).at[0], 1) == 3);
    gd_module_replace(net, "fc2", gd_nn_linear(8, 7));
    CHECK(gd_tensor_dim(gd_module_forward(net, x), 1) == 7);
    CHECK(gd_tensor_dim(gd_jit_call(jit, gd_list(x)).at[0], 1) == 7);
    CHECK(!gd_failed());
}

TEST(moving_to_another_dtype_keeps_the_tensor_handles) {
    GD_SCOPE;
    gd_module *net = two_layer_new(4, 8, 3);
    gd_jit *jit = gd_jit_new(forward_net, net);
    gd_tensor *w = gd_module_tensor(net, "fc1.weight"), *x = gd_randn(gd_dims(5, 4));
    gd_tensor *y = gd_jit_call(jit, gd_list(x)).at[0];
    CHECK(gd_module_to(net, NULL, GD_F64) == GD_OK);
    CHECK(gd_module_tensor(net, "fc1.weight") == w && gd_tensor_dtype(w) == GD_F64);
    gd_tensor *z = gd_jit_call(jit, gd_list(gd_cast(x, GD_F64))).at[0];
    CHECK(gd_tensor_dtype(z) == GD_F64);
    CHECK(tensors_distance(z, y) < 1e-5);
    CHECK(!gd_failed());
}

TEST(moving_to_a_missing_device_changes_nothing) {
    GD_SCOPE;
    gd_module *net = two_layer_new(4, 8, 3);
    gd_tensor *x = gd_randn(gd_dims(2, 4)), *y = gd_module_forward(net, x);
    CHECK(gd_module_to(net, "abacus:0", GD_F64) != GD_OK);
    CHECK_MESSAGE("gd_module_to: ", "abacus:0", "cpu");
    CHECK(gd_tensor_dtype(gd_module_tensor(net, "fc1.weight")) == GD_F32);
    CHECK(tensors_same_bits(y, gd_module_forward(net, x)));
}

TEST(shared_modules_are_listed_once) {
    GD_SCOPE;
    gd_module *one = gd_nn_linear(4, 4), *net = gd_nn_sequential(one, gd_nn_relu(), one);
    CHECK(gd_module_parameters(net).count == 2);
    gd_module *copy = gd_module_clone(net);
    CHECK(gd_module_find(copy, "0") == gd_module_find(copy, "2"));
    CHECK(gd_module_add(one, "back", net) != GD_OK);
    CHECK_MESSAGE("itself, or contains it");
}

TEST(nets_of_named_layers_run_in_order) {
    GD_SCOPE;
    gd_module *net = gd_nn_net("x y", "sum loss");
    gd_net_add(net, "a", gd_nn_linear(4, 3), "x", "h");
    gd_net_add(net, "b", gd_nn_relu(), "h", "h");
    gd_net_add(net, "join", gd_layer_new("op", "name=add"), "h y", "sum");
    gd_net_add(net, "loss", gd_layer_new("op", "name=mse_loss"), "sum y", "loss");
    gd_tensors out = gd_module_call(net, gd_list(gd_randn(gd_dims(2, 4)), gd_randn(gd_dims(2, 3))));
    CHECK(out.count == 2 && gd_tensor_rank(out.at[1]) == 0);
    CHECK(!gd_failed());
    gd_net_add(net, "c", gd_nn_relu(), "nothing", "h");
    CHECK_MESSAGE("'c' reads 'nothing'", "x, y");
}

TEST(names_of_a_net_may_have_dots_slashes_and_spaces) {
    GD_SCOPE;
    gd_module *net = gd_nn_net("data\\ in", "out");
    gd_net_add(net, "block/conv.1", gd_nn_linear(4, 3), "data\\ in", "a.b");
    gd_net_add(net, "block/conv", gd_nn_sequential(gd_nn_linear(3, 2)), "a.b", "out");
    CHECK(gd_module_forward(net, gd_randn(gd_dims(2, 4))) && !gd_failed());
    CHECK(gd_module_tensor(net, "block/conv.1.weight") !=
          gd_module_tensor(net, "block/conv.0.weight"));
    CHECK(gd_module_count(gd_module_find(net, "block/conv")) == 1);
    gd_module_replace(net, "block/conv.1", gd_nn_linear(4, 3, .bias = false));
    CHECK(gd_module_parameter_count(net) == 12 + 8 && !gd_failed());
    gd_module *copy = gd_module_clone(net);
    CHECK(gd_module_forward(copy, gd_randn(gd_dims(2, 4))) && !gd_failed());
    CHECK(gd_save_state("net.safetensors", gd_part("", net)) == GD_OK);
    gd_module_init(copy, "*", "zeros");
    CHECK(gd_load_state("net.safetensors", gd_part("", copy)) == GD_OK);
    CHECK(gd_item(gd_sum(gd_abs(gd_module_tensor(copy, "block/conv.1.weight")))) > 0);
}

TEST(a_net_takes_any_number_of_names) {
    GD_SCOPE;
    enum { N = 200 };
    char names[N * 8] = "", one[16];
    for (int i = 0; i < N; i++) sprintf(one, "x%d ", i), strcat(names, one);
    gd_module *net = gd_nn_net(names, "y"), *list = gd_layer_new("op", "name=cat options='axis=0'");
    gd_net_add(net, "all", list, names, "y");
    gd_tensor *in[N];
    for (int i = 0; i < N; i++) in[i] = gd_full(gd_dims(1), i);
    gd_tensors out = gd_module_call(net, (gd_tensors){in, N});
    CHECK(!gd_failed() && out.count == 1 && gd_tensor_dim(out.at[0], 0) == N);
    CHECK(gd_item(gd_sum(out.at[0])) == N * (N - 1) / 2);
}

TEST(a_summary_lists_layers_shapes_parameters_and_multiply_adds) {
    GD_SCOPE;
    gd_module *net = gd_nn_sequential(gd_nn_conv2d(1, 4, 3, .padding = 1), gd_nn_relu(),
                                      gd_nn_flatten(), gd_nn_linear(GD_ANY, 10));
    gd_module_freeze(gd_module_at(net, 3));
    char *text = gd_module_summary(net, gd_zeros(gd_dims(2, 1, 8, 8)));
    CHECK(text && !gd_failed());
    static const char *const parts[] = {"0 (conv2d)",   "[2,4,8,8]",
                                        "40",           "4,608",
                                        "3 (linear)",   "2,570",
                                        "5,120",        "2,610 parameters (2,570 frozen)",
                                        "10,440 bytes", "9,728 multiply-adds"};
    for (size_t i = 0; text && i < sizeof parts / sizeof *parts; i++)
        CHECK_SAYING(strstr(text, parts[i]), "'%s' is not in\n%s", parts[i], text);
    free(text);
}

TEST(building_creates_parameters_without_computing) {
    GD_SCOPE;
    gd_module *net =
        gd_nn_sequential(gd_nn_linear(GD_ANY, 1000), gd_nn_dropout(), gd_nn_linear(GD_ANY, 3));
    gd_rng before = gd_rng_state();
    gd_tensor *w;
    CHECK(gd_module_build(net, gd_zeros(gd_dims(5, 20))) == GD_OK);
    CHECK((w = gd_module_tensor(net, "2.weight")) && gd_tensor_dim(w, 1) == 1000);
    CHECK(gd_rng_state().call == before.call + 4); /* draws weights and biases, but no dropout */
    CHECK(!gd_failed());
}

static gd_tensors count_calls(gd_module *m, gd_tensors in, gd_tensors out, void *user) {
    (void)m, (void)in, (void)out;
    ++*(int *)user;
    return (gd_tensors){NULL, 0};
}
static gd_tensors double_output(gd_module *m, gd_tensors in, gd_tensors out, void *user) {
    (void)m, (void)in, (void)user;
    return gd_listed(gd_mul(out.at[0], gd_scalar(2)));
}

TEST(hooks_are_called_and_a_jit_traces_hooks_that_only_call_ops) {
    GD_SCOPE;
    gd_module *net = gd_nn_sequential(gd_nn_linear(4, 3), gd_nn_relu());
    gd_tensor *x = gd_randn(gd_dims(2, 4)), *y = gd_module_forward(net, x);
    int calls = 0;
    int64_t hook = gd_module_on_forward(gd_module_at(net, 0), count_calls, &calls);
    gd_module_on_forward(net, double_output, NULL, .builds_ops = true);
    CHECK(tensors_same_bits(gd_module_forward(net, x), gd_mul(y, gd_scalar(2))));
    CHECK(calls == 1);
    gd_jit *jit = gd_jit_new(forward_net, net);
    gd_jit_call(jit, gd_list(x));
    CHECK_MESSAGE("0 (linear): it has a hook", ".builds_ops = true");
    gd_module_unhook(gd_module_at(net, 0), hook);
    CHECK(tensors_same_bits(gd_jit_call(jit, gd_list(x)).at[0], gd_mul(y, gd_scalar(2))));
    CHECK(calls == 1 && !gd_failed());
}

TEST(modules_are_saved_and_loaded) {
    GD_SCOPE;
    gd_module *a = two_layer_new(4, 8, 3), *b = two_layer_new(4, 8, 3),
              *other = two_layer_new(4, 9, 3);
    const char *path = "test_module.safetensors";
    CHECK(gd_save_state(path, gd_part("net", a)) == GD_OK);
    CHECK(gd_load_state(path, gd_part("net", b)) == GD_OK);
    gd_tensor *x = gd_randn(gd_dims(2, 4));
    CHECK(tensors_same_bits(gd_module_forward(a, x), gd_module_forward(b, x)));
    CHECK(gd_load_state(path, gd_part("net", other)) != GD_OK);
    CHECK_MESSAGE("fc1.weight", "[8,4]", "[9,4]");
    remove(path);
}

static gd_status scale_build(gd_module *m) {
    return gd_module_add_parameter(
        m, "weight", gd_full(gd_dims(gd_layer_int(m, "features")), gd_layer_float(m, "start")));
}
static gd_tensors scale_forward(gd_module *m, gd_tensors in) {
    return gd_listed(gd_mul(in.at[0], gd_layer_tensor(m, "weight")));
}

TEST(a_program_can_define_a_layer) {
    GD_SCOPE;
    gd_status status =
        gd_layer_define("scale(x, features:int) -> y\n"
                        "Multiplies each feature by a weight.\n"
                        "  start float = 1   what the weights are at first\n"
                        "  finds features x[-1]\n",
                        (gd_layer_functions){.build = scale_build, .forward = scale_forward});
    CHECK(status == GD_OK);
    gd_module *m = gd_layer_new("scale", "features=-1 start=3");
    gd_tensor *x = gd_randn(gd_dims(2, 5));
    CHECK(tensors_same_bits(gd_module_forward(m, x), gd_mul(x, gd_scalar(3))));
    CHECK(!gd_failed());
    CHECK(!gd_layer_new("scale", "start=3"));
    CHECK_MESSAGE("scale needs the option 'features'");
    CHECK(!gd_layer_new("scael", NULL));
    CHECK_MESSAGE("there is no layer 'scael'");
}

/* --- lists returned by forward functions ------------------------------------------------------ */

/* Returns a list whose array is gone when the function returns, as `return gd_list(...)` does. */
static gd_tensors __attribute__((noinline)) return_dangling_list(gd_tensors in, void *self) {
    gd_tensor *volatile local_array[1] = {in.at[0]};
    gd_tensor *const *volatile at = (gd_tensor *const *)local_array;
    (void)self;
    return (gd_tensors){at, 1};
}

/* The check finds the bounds of the stack without opening a file in each call, as
 * pthread_getattr_np does for the main thread. */
CLEAN_TEST(a_dangling_list_fails_even_without_free_file_descriptors) {
    GD_SCOPE;
    struct rlimit files;
    gd_module *bad = gd_module_new(return_dangling_list, 0);
    gd_tensor *x = gd_ones(gd_dims(2));
    gd_module_forward(bad, x);
    CHECK_SAYING(says("a list that ended with it"), "%s", gd_error_message());
    gd_clear_error();
    getrlimit(RLIMIT_NOFILE, &files);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, files.rlim_max});
    gd_module_forward(bad, x);
    setrlimit(RLIMIT_NOFILE, &files);
    CHECK_SAYING(says("a list that ended with it"), "%s", gd_error_message());
}

TEST_MAIN
