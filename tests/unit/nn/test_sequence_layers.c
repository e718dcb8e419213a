/* test_sequence_layers.c - recurrent layers, attention and transformers, beyond the case files. */
#include <math.h>

#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"

/* --- initial weights -------------------------------------------------------------------------- */

/* Checks for a uniform distribution in (-bound, bound): none beyond it, and some near it. */
static void check_uniform(gd_module *m, const char *name, double bound) {
    gd_tensor *w = gd_detach(gd_module_tensor(m, name));
    const double most = gd_item(gd_max(gd_abs(w))), std = sqrt(gd_item(gd_mean(gd_square(w))));
    CHECK_SAYING(most <= bound && most > 0.9 * bound, "%s: up to %g, bound %g", name, most, bound);
    CHECK_SAYING(fabs(std * sqrt(3) / bound - 1) < 0.15, "%s: std %g, bound %g", name, std, bound);
}

static void check_filled(gd_module *m, const char *name, double value) {
    gd_tensor *w = gd_detach(gd_module_tensor(m, name));
    CHECK_SAYING(gd_item(gd_min(w)) == value && gd_item(gd_max(w)) == value, "%s", name);
}

CLEAN_TEST(initial_weights_follow_pytorch) {
    GD_SCOPE;
    gd_seed(1);
    gd_module *lstm = gd_nn_lstm(7, 16, .layers = 2, .bidirectional = true);
    check_uniform(lstm, "weight_ih_l0", 0.25);
    check_uniform(lstm, "weight_hh_l1_reverse", 0.25);
    check_uniform(lstm, "bias_hh_l0", 0.25);
    check_uniform(gd_nn_gru_cell(7, 16), "weight_ih", 0.25);
    gd_module *one = gd_nn_multihead_attention(24, 2),
              *three = gd_nn_multihead_attention(24, 2, .kdim = 12, .add_bias_kv = true);
    check_uniform(one, "in_proj_weight", sqrt(6 / (4 * 24.0)));
    check_uniform(one, "out_proj.weight", 1 / sqrt(24));
    check_filled(one, "in_proj_bias", 0);
    check_filled(one, "out_proj.bias", 0);
    check_uniform(three, "q_proj_weight", sqrt(6 / 48.0));
    check_uniform(three, "k_proj_weight", sqrt(6 / 36.0));
    CHECK(fabs(sqrt(gd_item(gd_mean(gd_square(gd_detach(gd_module_tensor(three, "bias_v")))))) *
                   sqrt(24) -
               1) < 0.5);
    gd_module *stack = gd_nn_transformer_encoder(8, 2, 2, .dim_feedforward = 16);
    check_filled(stack, "layers.1.norm2.weight", 1);
    CHECK(tensors_distance(gd_module_tensor(stack, "layers.0.linear1.weight"),
                           gd_module_tensor(stack, "layers.1.linear1.weight")) > 0);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* --- dropout ---------------------------------------------------------------------------------- */

/* Two calls differ in train mode and agree in eval mode. */
static void check_dropout(gd_module *m, gd_tensors in) {
    CHECK_SAYING(tensors_distance(gd_module_call(m, in).at[0], gd_module_call(m, in).at[0]) > 0,
                 "%s", gd_module_type(m));
    gd_module_eval(m);
    CHECK_SAYING(tensors_distance(gd_module_call(m, in).at[0], gd_module_call(m, in).at[0]) == 0,
                 "%s", gd_module_type(m));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(dropout_applies_only_in_train_mode) {
    GD_SCOPE;
    gd_seed(2);
    gd_tensors in = gd_list(gd_randn(gd_dims(6, 3, 8))),
               both = gd_list(in.at[0], gd_randn(gd_dims(4, 3, 8)));
    check_dropout(gd_nn_rnn(8, 8, .layers = 2, .dropout = 0.5), in);
    check_dropout(gd_nn_lstm(8, 8, .layers = 2, .dropout = 0.5), in);
    check_dropout(gd_nn_gru(8, 8, .layers = 2, .dropout = 0.5), in);
    check_dropout(gd_nn_multihead_attention(8, 2, .dropout = 0.5), in);
    check_dropout(gd_nn_multihead_attention(8, 2, .dropout = 0.5, .need_weights = true), in);
    check_dropout(gd_nn_positional_encoding(8, .dropout = 0.5), in);
    check_dropout(gd_nn_transformer_encoder_layer(8, 2, .dropout = 0.5), in);
    check_dropout(gd_nn_transformer_decoder(8, 2, 2, .dropout = 0.5), both);
    /* dropout is between layers, so a single layer has none */
    gd_module *one = gd_nn_lstm(8, 8, .dropout = 0.5);
    CHECK(tensors_distance(gd_module_call(one, in).at[0], gd_module_call(one, in).at[0]) == 0);
}

/* --- attention -------------------------------------------------------------------------------- */

/* Where the mask hides all positions, the heads give zeros, and y is the bias of out_proj. */
CLEAN_TEST(a_fully_masked_query_gives_zeros_and_no_nan) {
    GD_SCOPE;
    gd_seed(3);
    gd_tensor *x = gd_randn(gd_dims(3, 2, 8));
    gd_tensor *mask = gd_from_array(gd_dims(3, 3), GD_BOOL, (bool[]){0, 1, 1, 1, 1, 1, 0, 0, 1});
    for (int weights = 0; weights < 2; weights++) {
        gd_module *m = gd_nn_multihead_attention(8, 2, .need_weights = weights);
        gd_tensors y = gd_module_call(m, gd_list(x, NULL, NULL, NULL, mask));
        CHECK(gd_item(gd_max(gd_abs(gd_select(y.at[0], 0, 1)))) == 0);
        CHECK(gd_item(gd_min(gd_max(gd_abs(gd_select(y.at[0], 0, 0)), .axis = -1))) > 0);
        CHECK(y.count == 1 + weights);
        gd_backward(gd_sum(gd_square(y.at[0])));
        CHECK(gd_item(gd_all(gd_isfinite(gd_module_grad(m, "in_proj_weight")))) == 1);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(attention_is_the_same_with_and_without_returned_weights) {
    GD_SCOPE;
    gd_seed(4);
    gd_module *fused = gd_nn_multihead_attention(8, 2, .causal = true, .batch_first = true);
    gd_module *plain =
        gd_nn_multihead_attention(8, 2, .causal = true, .batch_first = true, .need_weights = true);
    GD_NO_GRAD;
    gd_tensors a = gd_module_parameters(fused), b = gd_module_parameters(plain);
    for (int64_t i = 0; i < a.count; i++) gd_assign(b.at[i], a.at[i]);
    gd_tensor *x = gd_randn(gd_dims(2, 5, 8));
    gd_tensors y = gd_module_call(plain, gd_list(x));
    CHECK(tensors_distance(gd_module_forward(fused, x), y.at[0]) < 1e-5);
    CHECK(tensors_distance(gd_sum(y.at[1], .axis = -1), gd_ones(gd_dims(2, 5))) < 1e-5);
    CHECK(gd_item(gd_index(y.at[1], 0, 1, 2)) == 0);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(a_graph_may_have_an_unknown_batch_size) {
    GD_SCOPE;
    gd_seed(5);
    gd_module *attention = gd_nn_transformer_encoder_layer(8, 2, .dim_feedforward = 8,
                                                           .batch_first = true, .dropout = 0);
    gd_module *cell = gd_nn_lstm_cell(8, 4);
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *s, *h;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(GD_ANY, 5, 8));
        y = gd_module_forward(attention, x);
        s = gd_placeholder(gd_dims(GD_ANY, 8));
        h = gd_module_forward(cell, s);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_session *session = gd_session_new(graph, .level = 0);
    for (int n = 1; n <= 3; n++) {
        gd_tensor *a = gd_randn(gd_dims(n, 5, 8)), *b = gd_randn(gd_dims(n, 8));
        gd_tensors got = gd_session_run(session, gd_list(x, a, s, b), gd_list(y, h));
        CHECK(tensors_distance(got.at[0], gd_module_forward(attention, a)) == 0);
        CHECK(tensors_distance(got.at[1], gd_module_forward(cell, b)) == 0);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

static void check_message(const char *a, const char *b) {
    CHECK_SAYING(gd_failed() && says(a) && says(b), "'%s'", gd_error_message());
    gd_clear_error();
}

CLEAN_TEST(wrong_shapes_and_options_are_named) {
    GD_SCOPE;
    gd_module *m = gd_nn_multihead_attention(8, 2);
    gd_module_forward(m, gd_randn(gd_dims(8)));
    check_message("multihead_attention", "the query must be (L, N, E)");
    gd_module_forward(m, gd_randn(gd_dims(3, 2, 8)), gd_randn(gd_dims(3, 8)));
    check_message("multihead_attention", "the same number of dimensions");
    gd_module_forward(m, gd_randn(gd_dims(3, 2, 7)));
    check_message("multihead_attention", "8 inputs");
    gd_tensor *x = gd_randn(gd_dims(3, 2, 8)), *zeros = gd_zeros(gd_dims(3, 3), .dtype = GD_I64);
    gd_module_forward(m, x, NULL, NULL, NULL, zeros);
    check_message(
        "multihead_attention",
        "attn_mask is i64; it must be bool, where true is \"hide\" (gd_ne(mask, 0) makes it so)");
    gd_module_forward(m, x, NULL, NULL, gd_zeros(gd_dims(2, 3), .dtype = GD_I64));
    check_message("multihead_attention", "key_padding_mask is i64; it must be bool");
    CHECK(!gd_nn_multihead_attention(8, 3));
    check_message("multihead_attention", "num_heads is 3; it must divide embed_dim (8)");
    CHECK(!gd_nn_transformer_decoder(8, 2, 0));
    check_message("transformer_decoder", "layers is 0");
    CHECK(!gd_nn_lstm(4, INT64_MAX / 2));
    check_message("lstm", "hidden_size");
    CHECK(!gd_nn_positional_encoding(INT64_MAX / 2));
    check_message("positional_encoding", "embed_dim");
    gd_module_forward(gd_nn_gru(4, 4), gd_randn(gd_dims(3, 2, 5)));
    check_message("gru", "with 5 features; input_size is 4");
    gd_module_forward(gd_nn_rnn(4, 4, .batch_first = true), gd_randn(gd_dims(4)));
    check_message("rnn", "x must be (N, T, I), or (T, I)");
    gd_module_forward(gd_nn_lstm_cell(4, 4), gd_randn(gd_dims(2, 3, 4)));
    check_message("lstm_cell", "x must be (N, I), or (I)");
    gd_module_forward(gd_nn_lstm(4, 4), gd_randn(gd_dims(2, 3, 4)), gd_randn(gd_dims(1, 2, 4)));
    check_message("lstm", "'h0' must have shape [1,3,4]");
    gd_module_forward(gd_nn_transformer_encoder(8, 2, 2, .dim_feedforward = 4),
                      gd_randn(gd_dims(3, 2, 8)), gd_randn(gd_dims(4, 4)));
    check_message("layers.0.self_attn", "mask");
}

/* --- positional encoding, which PyTorch has no layer for ---------------------------------------
 */

CLEAN_TEST(positional_encoding_uses_sines_and_cosines) {
    GD_SCOPE;
    gd_module *m = gd_nn_positional_encoding(5, .max_len = 7, .batch_first = true);
    gd_tensor *x = gd_zeros(gd_dims(2, 6, 5)), *y = gd_module_forward(m, x);
    for (int t = 0; t < 6; t++)
        for (int i = 0; i < 5; i++) {
            const double angle = t / pow(10000, (i - i % 2) / 5.0);
            CHECK(fabs(gd_item(gd_index(y, 1, t, i)) - (i % 2 ? cos(angle) : sin(angle))) < 1e-6);
        }
    gd_module *time_first = gd_nn_positional_encoding(5, .max_len = 7);
    CHECK(tensors_distance(gd_module_forward(time_first, gd_transpose(x, 0, 1)),
                           gd_transpose(y, 0, 1)) == 0);
    CHECK(tensors_distance(gd_module_forward(time_first, gd_zeros(gd_dims(6, 5))),
                           gd_select(y, 0, 0)) == 0);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_module_forward(m, gd_zeros(gd_dims(2, 8, 5)));
    CHECK_SAYING(says("positional_encoding") && says("max_len (7)"), "%s", gd_error_message());
}

TEST_MAIN
