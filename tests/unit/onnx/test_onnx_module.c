/* test_onnx_module.c - modules saved as ONNX files, and ONNX files loaded as modules. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "clean_test.h"
#include "compare.h"
#include "files.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "test.h"

CLEAN_TEST(a_net_is_saved_and_loaded_with_names_and_results) {
    GD_SCOPE;
    gd_seed(1);
    gd_module *net = gd_net_new("lenet", "");
    gd_tensor *x = gd_randn(gd_dims(3, 1, 28, 28));
    CHECK(gd_onnx_save_module(temp_path("module.onnx"), net, gd_list(x),
                              .metadata = gd_names("classes", "a,b", NULL)) == GD_OK);
    gd_module *back = gd_onnx_module(temp_path("module.onnx"));
    CHECK(back != NULL && !gd_failed());
    gd_module_eval(net);
    gd_tensor *y = gd_module_forward(net, x), *z = gd_module_forward(back, x);
    CHECK(tensors_distance(y, z) <= 1e-5);
    gd_tensors p = gd_module_parameters(net);
    CHECK(gd_module_parameters(back).count == p.count);
    for (int64_t i = 0; i < p.count; i++) {
        char name[200];
        gd_module_name_of(net, p.at[i], name, sizeof name);
        gd_tensor *t = gd_module_tensor(back, name);
        CHECK(t && tensors_distance(t, p.at[i]) <= 0);
    }
    /* another batch size */
    gd_tensor *one = gd_randn(gd_dims(1, 1, 28, 28));
    CHECK(tensors_distance(gd_module_forward(net, one), gd_module_forward(back, one)) <= 1e-5);
    char text[8];
    CHECK(gd_onnx_metadata(temp_path("module.onnx"), "classes", text, sizeof text) == 3 &&
          strcmp(text, "a,b") == 0);
    CHECK(gd_onnx_metadata(temp_path("module.onnx"), "none", text, sizeof text) == -1 &&
          !gd_failed());
}

static gd_tensors train_step(gd_tensors in, void *user) {
    void **u = user;
    gd_tensor *loss = gd_cross_entropy(gd_module_forward((gd_module *)u[0], in.at[0]), in.at[1]);
    gd_backward(loss);
    gd_optimizer_step(u[1]);
    gd_optimizer_zero_grad(u[1]);
    return gd_listed(loss);
}

CLEAN_TEST(a_loaded_net_continues_training_eagerly_and_as_a_plan) {
    GD_SCOPE;
    gd_seed(2);
    gd_module *net = gd_net_new("lenet", "");
    gd_tensor *x = gd_randn(gd_dims(16, 1, 28, 28));
    gd_tensor *y = gd_cast(gd_mul(gd_rand(gd_dims(16)), gd_scalar(10)), GD_I64);
    CHECK(gd_onnx_save_module(temp_path("module.onnx"), net, gd_list(x)) == GD_OK);
    double last[2];
    for (int jit = 0; jit < 2; jit++) {
        gd_module *m = gd_onnx_module(temp_path("module.onnx"));
        void *user[] = {m, gd_optim_adam(gd_module_parameters(m), .lr = 1e-3)};
        gd_jit *fast = gd_jit_new(train_step, user);
        double first = 0;
        for (int i = 0; i < 30; i++) {
            GD_SCOPE;
            gd_tensors in = gd_list(x, y);
            last[jit] = gd_item(jit ? gd_jit_call(fast, in).at[0] : train_step(in, user).at[0]);
            if (i == 0) first = last[jit];
        }
        CHECK(!gd_failed());
        CHECK(last[jit] < first / 2);
    }
    CHECK(last[0] - last[1] < 1e-3 && last[1] - last[0] < 1e-3);
}

static gd_tensors forward_net(gd_tensors in, void *user) {
    return gd_listed(gd_module_forward((gd_module *)user, in.at[0]));
}

CLEAN_TEST(saving_restores_modes_and_saves_batch_norms_in_eval_mode) {
    GD_SCOPE;
    gd_module *net =
        gd_nn_sequential(gd_nn_conv2d(1, 4, 3), gd_nn_batch_norm2d(4), gd_nn_relu(),
                         gd_nn_dropout(.p = 0.5), gd_nn_flatten(), gd_nn_linear(4 * 36, 3));
    gd_tensor *x = gd_randn(gd_dims(8, 1, 8, 8));
    gd_module_forward(net, x); /* updates the statistics */
    gd_module_eval(gd_module_at(net, 3));
    CHECK(gd_onnx_save_module(temp_path("module.onnx"), net, gd_list(x), .inputs = "image",
                              .outputs = "scores") == GD_OK);
    CHECK(gd_module_is_training(net) && !gd_module_is_training(gd_module_at(net, 3)));
    gd_module *back = gd_onnx_module(temp_path("module.onnx")), *copy = gd_module_clone(back);
    gd_module_eval(net);
    gd_tensor *y = gd_module_forward(net, x);
    CHECK(tensors_distance(y, gd_module_forward(back, x)) <= 1e-5);
    CHECK(tensors_distance(y, gd_module_forward(copy, x)) <= 1e-5);
    CHECK(gd_module_buffers(back).count >= 2);
    gd_jit *jit = gd_jit_new(forward_net, back);
    CHECK(tensors_distance(y, gd_jit_call(jit, gd_list(x)).at[0]) <= 1e-5);
    char *text = gd_module_summary(back, x);
    CHECK(text && strstr(text, "parameters"));
    free(text);
    gd_graph *graph = gd_onnx_load(temp_path("module.onnx"));
    CHECK(gd_graph_find(graph, "image") && gd_graph_find(graph, "scores"));
}

/* Saves a net for sequences, loads it, and compares results for several batches and lengths. */
static void check_any_length(gd_module *net, const char *path,
                             gd_tensor *(*input)(int64_t n, int64_t t)) {
    CHECK_SAYING(gd_onnx_save_module(path, net, gd_list(input(2, 5)), .any_length = true) == GD_OK,
                 "%s", gd_error_message());
    gd_module *back = gd_onnx_module(path);
    CHECK_SAYING(back != NULL, "%s", gd_error_message());
    gd_module_eval(net);
    static const int64_t sizes[][2] = {{2, 5}, {1, 1}, {3, 16}, {1, 7}};
    for (int k = 0; k < 4 && back; k++) {
        GD_SCOPE;
        gd_tensor *x = input(sizes[k][0], sizes[k][1]);
        gd_tensor *y = gd_module_forward(net, x), *z = gd_module_forward(back, x);
        CHECK_SAYING(tensors_distance(y, z) <= 1e-5, "%lld x %lld: %s", (long long)sizes[k][0],
                     (long long)sizes[k][1], gd_error_message());
    }
}

static gd_tensor *tokens_of(int64_t n, int64_t t) {
    return gd_reshape(
        gd_remainder(gd_arange(0, (double)(n * t), .dtype = GD_I64), gd_scalar_of(11, GD_I64)),
        gd_dims(n, t));
}
static gd_tensor *vectors_of(int64_t n, int64_t t) {
    return gd_sin(gd_reshape(gd_arange(0, (double)(n * t * 8)), gd_dims(n, t, 8)));
}

CLEAN_TEST(a_gpt_is_saved_for_any_length) {
    GD_SCOPE;
    gd_seed(3);
    gd_module *net = gd_zoo_gpt(11, .layers = 2, .heads = 2, .width = 16, .context = 16);
    check_any_length(net, temp_path("gpt.onnx"), tokens_of);
    gd_tensor *p = gd_module_forward(net, tokens_of(1, 16));
    CHECK(!gd_tensor_is_error(p));
    CHECK(gd_tensor_is_error(gd_module_forward(net, tokens_of(1, 17))) && says("T at most 16"));
    gd_clear_error();
}

CLEAN_TEST(a_gpt_in_a_graph_takes_an_unknown_length) {
    GD_SCOPE;
    gd_seed(4);
    gd_module *net = gd_zoo_gpt(11, .layers = 1, .heads = 2, .width = 8, .context = 12);
    gd_module_eval(net);
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(GD_ANY, GD_ANY), .name = "x", .dtype = GD_I64);
        y = gd_named(gd_module_forward(net, x), "y");
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_session *session = gd_session_new(graph);
    for (int64_t t = 1; t <= 12; t += 5) {
        GD_SCOPE;
        gd_tensor *tokens = tokens_of(2, t);
        gd_tensors r = gd_session_run(session, gd_feed(x, tokens), gd_list(y));
        CHECK_SAYING(tensors_distance(r.at[0], gd_module_forward(net, tokens)) <= 1e-5, "%s",
                     gd_error_message());
    }
}

CLEAN_TEST(attention_layers_are_saved_for_any_length) {
    GD_SCOPE;
    gd_seed(5);
    check_any_length(gd_nn_multihead_attention(8, 2, .batch_first = true, .causal = true),
                     temp_path("causal.onnx"), vectors_of);
    check_any_length(gd_nn_transformer_encoder(8, 2, 2, .batch_first = true),
                     temp_path("encoder.onnx"), vectors_of);
    check_any_length(
        gd_nn_multihead_attention(8, 2, .batch_first = true, .causal = true, .need_weights = true),
        temp_path("weights.onnx"), vectors_of);
    check_any_length(
        gd_nn_sequential(gd_nn_positional_encoding(8, .batch_first = true), gd_nn_linear(8, 8)),
        temp_path("positions.onnx"), vectors_of);
}

/* (N, T, 8) as four heads of queries that share two heads of keys and values. */
static gd_tensors grouped_forward(gd_tensors in, void *self) {
    (void)self;
    gd_tensor *q = gd_permute(gd_unflatten(in.at[0], -1, gd_dims(4, 2)), gd_dims(0, 2, 1, 3)),
              *k = gd_narrow(q, 1, 1, 2);
    gd_tensor *y =
        gd_scaled_dot_product_attention(q, k, gd_neg(k), .causal = true, .grouped = true);
    return gd_listed(gd_flatten(gd_permute(y, gd_dims(0, 2, 1, 3)), .start_axis = 2));
}

CLEAN_TEST(grouped_attention_is_saved_for_any_length) {
    GD_SCOPE;
    check_any_length(gd_module_new(grouped_forward, 0), temp_path("grouped.onnx"), vectors_of);
}

static gd_tensors two_of_topk(gd_tensors in, void *self) {
    (void)self;
    gd_topk_outputs y = gd_topk(in.at[0], 2);
    return gd_listed(y.values, y.indices);
}

static gd_tensors indices_first(gd_tensors in, void *self) {
    (void)self;
    gd_topk_outputs y = gd_topk(in.at[0], 2);
    return gd_listed(y.indices, y.values);
}

/* Saves a net, and compares the outputs that the file's graph has by these names. */
static void check_output_names(gd_module *net, gd_tensor *x, const char *names,
                               const char *const *list) {
    const char *path = temp_path("outputs.onnx");
    CHECK(gd_onnx_save_module(path, net, gd_list(x), .outputs = names) == GD_OK);
    gd_graph *graph = gd_onnx_load(path);
    gd_tensors expected = gd_module_call(net, gd_list(x));
    for (int k = 0; list[k]; k++) {
        gd_tensor *y = gd_graph_find(graph, list[k]);
        CHECK_SAYING(y, "no '%s'", list[k]);
        if (!y) continue;
        CHECK(gd_tensor_dtype(y) == gd_tensor_dtype(expected.at[k]));
        gd_tensors got = gd_session_run(gd_session_new(graph),
                                        gd_feed(gd_graph_find(graph, "input"), x), gd_list(y));
        CHECK(tensors_distance(got.at[0], expected.at[k]) <= 1e-5);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

static gd_tensors relu_twice(gd_tensors in, void *self) {
    gd_tensor *y = gd_relu(in.at[0]);
    (void)self;
    return gd_listed(y, in.at[0], y);
}

CLEAN_TEST(several_outputs_of_one_op_have_their_names_in_files) {
    GD_SCOPE;
    gd_tensor *row = gd_from_array(gd_dims(1, 3), GD_F32, (const float[]){2, 7, 5});
    check_output_names(gd_module_new(two_of_topk, 0), row, "values indices",
                       (const char *[]){"values", "indices", NULL});
    check_output_names(gd_module_new(indices_first, 0), row, "where what",
                       (const char *[]){"where", "what", NULL});
    check_output_names(gd_nn_lstm(3, 4), gd_randn(gd_dims(5, 1, 3)), "y h c",
                       (const char *[]){"y", "h", "c", NULL});
    check_output_names(gd_module_new(relu_twice, 0), row, "a b c", /* one value, two names */
                       (const char *[]){"a", "b", "c", NULL});
}

static gd_tensors shuffle(gd_tensors in, void *self) {
    (void)self;
    return gd_listed(gd_index_select(in.at[0], 1, gd_randperm(3)));
}

CLEAN_TEST(own_ops_are_an_option_of_modules_too) {
    GD_SCOPE;
    const char *path = temp_path("own.onnx");
    gd_module *net = gd_module_new(shuffle, 0);
    CHECK(gd_onnx_save_module(path, net, gd_list(gd_ones(gd_dims(2, 3)))) == GD_E_UNSUPPORTED &&
          strstr(gd_error_message(), ".own_ops = true"));
    gd_clear_error();
    CHECK_SAYING(gd_onnx_save_module(path, net, gd_list(gd_ones(gd_dims(2, 3))), .own_ops = true) ==
                     GD_OK,
                 "%s", gd_error_message());
    CHECK(gd_tensor_dim(gd_module_forward(gd_onnx_module(path), gd_ones(gd_dims(5, 3))), 0) == 5);
}

typedef struct {
    gd_module *lstm;
} with_lengths;

static gd_tensors forward_lengths(gd_tensors in, void *self) {
    with_lengths *m = self;
    return gd_listed(gd_module_forward(m->lstm, in.at[0], NULL, NULL, in.at[1]));
}

CLEAN_TEST(a_recurrent_net_with_lengths_is_saved_for_any_batch) {
    GD_SCOPE;
    const char *path = temp_path("lengths.onnx");
    gd_module *net = gd_module_new(forward_lengths, sizeof(with_lengths));
    with_lengths *m = gd_module_self(net);
    GD_CHILD(net, m->lstm,
             gd_nn_lstm(3, 4, .layers = 2, .bidirectional = true, .batch_first = true));
    gd_tensor *x = gd_randn(gd_dims(2, 5, 3)), *n = gd_full(gd_dims(2), 3, .dtype = GD_I64);
    CHECK_SAYING(gd_onnx_save_module(path, net, gd_list(x, n), .inputs = "x lengths") == GD_OK,
                 "%s", gd_error_message());
    gd_module *back = gd_onnx_module(path);
    const int64_t lengths[] = {5, 1, 3, 4};
    x = gd_randn(gd_dims(4, 5, 3));
    n = gd_from_array(gd_dims(4), GD_I64, lengths);
    gd_tensor *y = gd_module_forward(net, x, n), *z = gd_module_forward(back, x, n);
    CHECK_SAYING(!gd_failed() && tensors_distance(y, z) <= 1e-5, "%s",
                 gd_failed() ? gd_error_message() : "other results");
}

static gd_tensors forward_gru_lengths(gd_tensors in, void *self) {
    with_lengths *m = self;
    return gd_listed(gd_module_forward(m->lstm, in.at[0], NULL, in.at[1]));
}

/* Saves a recurrent net with lengths for any batch and length, and compares results for others. */
static void check_lengths(gd_module *layer, gd_forward forward, bool batch_first) {
    const char *path = temp_path("any_lengths.onnx");
    const int64_t lengths[] = {3, 1, 7, 2};
    gd_module *net = gd_module_new(forward, sizeof(with_lengths));
    GD_CHILD(net, ((with_lengths *)gd_module_self(net))->lstm, layer);
    gd_tensor *x = gd_randn(batch_first ? gd_dims(2, 5, 3) : gd_dims(5, 2, 3));
    CHECK_SAYING(gd_onnx_save_module(path, net, gd_list(x, gd_full(gd_dims(2), 3, .dtype = GD_I64)),
                                     .inputs = "x lengths", .any_length = true) == GD_OK,
                 "%s", gd_error_message());
    gd_module *back = gd_onnx_module(path);
    for (int64_t steps = 1; steps < 10 && back; steps += 4) { /* some lengths are larger */
        GD_SCOPE;
        x = gd_randn(batch_first ? gd_dims(4, steps, 3) : gd_dims(steps, 4, 3));
        gd_tensor *n = gd_from_array(gd_dims(4), GD_I64, lengths);
        gd_tensor *y = gd_module_forward(net, x, n), *z = gd_module_forward(back, x, n);
        CHECK_SAYING(!gd_failed() && tensors_distance(y, z) <= 1e-5, "%lld steps: %s",
                     (long long)steps, gd_error_message());
    }
    gd_clear_error();
}

CLEAN_TEST(recurrent_nets_with_lengths_are_saved_for_any_length) {
    GD_SCOPE;
    check_lengths(gd_nn_lstm(3, 4), forward_lengths, false);
    check_lengths(gd_nn_lstm(3, 4, .batch_first = true), forward_lengths, true);
    check_lengths(gd_nn_lstm(3, 4, .layers = 2, .bidirectional = true, .batch_first = true),
                  forward_lengths, true);
    check_lengths(gd_nn_gru(3, 4, .layers = 2), forward_gru_lengths, false);
    check_lengths(gd_nn_rnn(3, 4, .bidirectional = true), forward_gru_lengths, false);
}

/* The trace with an unknown length does not fail: flatten makes an unknown size. */
CLEAN_TEST(a_net_that_needs_its_length_is_not_saved_for_any_length) {
    GD_SCOPE;
    const char *path = temp_path("fixed.onnx");
    gd_module *net = gd_nn_sequential(gd_nn_linear(4, 3), gd_nn_flatten(), gd_nn_linear(15, 2));
    gd_tensor *x = gd_ones(gd_dims(2, 5, 4));
    CHECK(gd_onnx_save_module(path, net, gd_list(x), .any_length = true) == GD_E_SHAPE);
    CHECK_SAYING(says("no other second size than 5") && says(".any_length") && says("2 (linear)"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(!file_exists(path));
    CHECK(gd_onnx_save_module(path, net, gd_list(x)) == GD_OK);
}

/* Pairs of steps: (N, T, 4) as (N, T / 2, 8). */
static gd_tensors join_pairs(gd_tensors in, void *self) {
    (void)self;
    return gd_listed(gd_flatten(gd_unflatten(in.at[0], 1, gd_dims(-1, 2)), .start_axis = 2));
}

static gd_tensors add_masked(gd_tensors in, void *self) {
    (void)self;
    return gd_listed(gd_matmul(in.at[1], in.at[0]));
}

CLEAN_TEST(nets_for_some_lengths_are_saved_for_any_length) {
    GD_SCOPE;
    const char *path = temp_path("some.onnx");
    gd_tensor *x = gd_ones(gd_dims(3, 6, 4)), *mask = gd_ones(gd_dims(6, 6));
    CHECK_SAYING(gd_onnx_save_module(path, gd_module_new(join_pairs, 0), gd_list(x),
                                     .any_length = true) == GD_OK,
                 "%s", gd_error_message());
    CHECK_SAYING(gd_onnx_save_module(path, gd_module_new(add_masked, 0), gd_list(x, mask),
                                     .any_length = true) == GD_OK,
                 "%s", gd_error_message());
}

/* ONNX has no operator for it, and its body needs the size of the axis. */
static gd_tensors roll_steps(gd_tensors in, void *self) {
    (void)self;
    return gd_listed(gd_roll(in.at[0], gd_dims(1), .axis = gd_dims(1)));
}
static gd_tensors roll_first(gd_tensors in, void *self) {
    (void)self;
    return gd_listed(gd_roll(in.at[0], gd_dims(1), .axis = gd_dims(0)));
}

CLEAN_TEST(a_net_whose_ops_need_a_size_is_refused_or_saved_for_it) {
    GD_SCOPE;
    const char *path = temp_path("rolled.onnx");
    gd_tensor *x = gd_ones(gd_dims(3, 5, 4));
    CHECK(gd_onnx_save_module(path, gd_module_new(roll_steps, 0), gd_list(x), .any_length = true) ==
          GD_E_UNSUPPORTED);
    CHECK_SAYING(says("gd_onnx_save_module: ") && says("x is f32[?,?,4]") &&
                     says("save the net without .any_length"),
                 "%s", gd_error_message());
    gd_clear_error();
    capture_log(GD_LOG_WARNING);
    CHECK_SAYING(gd_onnx_save_module(path, gd_module_new(roll_first, 0), gd_list(x)) == GD_OK, "%s",
                 gd_error_message());
    CHECK_SAYING(strstr(captured.text, "rolled.onnx is only for inputs with a first size of 3: ") &&
                     strstr(captured.text, "x is f32[?,5,4]"),
                 "%s", captured.text);
    end_log_capture();
}

CLEAN_TEST(more_names_than_inputs_or_outputs_are_refused) {
    GD_SCOPE;
    const char *path = temp_path("names.onnx");
    gd_module *net = gd_nn_linear(3, 4);
    gd_tensor *x = gd_ones(gd_dims(2, 3));
    CHECK(gd_onnx_save_module(path, net, gd_list(x), .inputs = "x lengths") == GD_E_ARGUMENT);
    CHECK_SAYING(says("gd_onnx_save_module: .inputs = \"x lengths\" has 2 names, and there is 1 "
                      "example"),
                 "%s", gd_error_message());
    gd_clear_error();
    for (int any = 0; any < 2; any++) {
        CHECK(gd_onnx_save_module(path, net, gd_list(x), .outputs = " scores classes  best",
                                  .any_batch = any) == GD_E_ARGUMENT);
        CHECK_SAYING(says("gd_onnx_save_module: .outputs = \" scores classes  best\" has 3 names, "
                          "and the net returns 1 tensor"),
                     "%s", gd_error_message());
        gd_clear_error();
    }
    CHECK(gd_onnx_save_module(path, net, gd_list(x), .inputs = " x ", .outputs = "y ") == GD_OK);
}

CLEAN_TEST(failures_name_the_missing_part) {
    GD_SCOPE;
    CHECK(gd_onnx_module("/no/such/file") == NULL && gd_error_status() == GD_E_IO);
    gd_clear_error();
    CHECK(gd_onnx_save_module(temp_path("failed.onnx"), NULL, gd_list(gd_ones(gd_dims(1)))) ==
          GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(gd_onnx_save_module(temp_path("failed.onnx"), gd_nn_linear(3, 2),
                              gd_list(gd_ones(gd_dims(2, 5)))) == GD_E_SHAPE);
    CHECK(!file_exists(temp_path("failed.onnx")));
    gd_clear_error();
}

TEST_MAIN
