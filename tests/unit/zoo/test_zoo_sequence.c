/* test_zoo_sequence.c - networks for sequences: a char-LSTM and a GPT. */
#include <math.h>
#include <string.h>

#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"

enum { VOCABULARY = 65 };

static gd_tensor *random_text(int64_t n, int64_t steps) {
    return gd_randint(gd_dims(n, steps), 0, VOCABULARY);
}

static bool has_shape(gd_tensor *t, gd_shape dims) {
    bool same = gd_tensor_rank(t) == dims.rank;
    for (int i = 0; same && i < dims.rank; i++) same = gd_tensor_dim(t, i) == dims.at[i];
    return same;
}

static void check_names(gd_module *net, int count, const char *const *names) {
    gd_tensors p = gd_module_parameters(net);
    char name[96];
    CHECK_SAYING(p.count == count, "%lld parameters", (long long)p.count);
    for (int i = 0; i < count && i < p.count; i++)
        CHECK_SAYING(strcmp(gd_module_name_of(net, p.at[i], name, sizeof name), names[i]) == 0,
                     "%s, expected %s", name, names[i]);
}

/* --- structure -------------------------------------------------------------------------------- */

CLEAN_TEST(parameters_equal_those_of_the_references) {
    GD_SCOPE;
    static const char *const lstm[] = {
        "embedding.weight", "lstm.weight_ih_l0", "lstm.weight_hh_l0", "lstm.bias_ih_l0",
        "lstm.bias_hh_l0",  "lstm.weight_ih_l1", "lstm.weight_hh_l1", "lstm.bias_ih_l1",
        "lstm.bias_hh_l1",  "head.weight",       "head.bias"};
    static const char *const one_block[] = {"transformer.wte.weight",
                                            "transformer.wpe.weight",
                                            "transformer.h.0.ln_1.weight",
                                            "transformer.h.0.ln_1.bias",
                                            "transformer.h.0.attn.c_attn.weight",
                                            "transformer.h.0.attn.c_attn.bias",
                                            "transformer.h.0.attn.c_proj.weight",
                                            "transformer.h.0.attn.c_proj.bias",
                                            "transformer.h.0.ln_2.weight",
                                            "transformer.h.0.ln_2.bias",
                                            "transformer.h.0.mlp.c_fc.weight",
                                            "transformer.h.0.mlp.c_fc.bias",
                                            "transformer.h.0.mlp.c_proj.weight",
                                            "transformer.h.0.mlp.c_proj.bias",
                                            "transformer.ln_f.weight",
                                            "transformer.ln_f.bias"};
    check_names(gd_zoo_char_lstm(VOCABULARY), 11, lstm);
    check_names(gd_zoo_gpt(VOCABULARY, .layers = 1), 16, one_block);
    CHECK(gd_module_parameter_count(gd_zoo_char_lstm(VOCABULARY)) == 1086017);
    CHECK(gd_module_parameter_count(gd_zoo_gpt(VOCABULARY)) == 2706624);
    CHECK(gd_module_parameter_count(gd_zoo_gpt(VOCABULARY, .bias = false)) == 2693760);
    CHECK(gd_module_parameter_count(gd_net_new("gpt", "vocabulary=65 tied=false")) == 2719104);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(outputs_have_a_score_for_each_character_at_each_position) {
    GD_SCOPE;
    gd_tensor *x = random_text(3, 7);
    gd_tensors y = gd_module_call(
        gd_zoo_char_lstm(VOCABULARY, .embedding = 8, .hidden = 12, .layers = 3), gd_list(x));
    CHECK(y.count == 3 && has_shape(y.at[0], gd_dims(3, 7, VOCABULARY)));
    CHECK(has_shape(y.at[1], gd_dims(3, 3, 12)) && has_shape(y.at[2], gd_dims(3, 3, 12)));
    gd_module *gpt = gd_zoo_gpt(VOCABULARY, .context = 8, .layers = 2, .heads = 2, .width = 16);
    CHECK(has_shape(gd_module_forward(gpt, x), gd_dims(3, 7, VOCABULARY)));
    CHECK(has_shape(gd_module_forward(gpt, random_text(1, 8)), gd_dims(1, 8, VOCABULARY)));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

static double std_of(gd_module *net, const char *name) {
    gd_tensor *w = gd_detach(gd_module_tensor(net, name));
    return sqrt(gd_item(gd_mean(gd_square(w))));
}

CLEAN_TEST(initial_weights_of_a_gpt_follow_nanogpt) {
    GD_SCOPE;
    gd_seed(1);
    gd_module *net = gd_zoo_gpt(VOCABULARY);
    CHECK(fabs(std_of(net, "transformer.wte.weight") / 0.02 - 1) < 0.05);
    CHECK(fabs(std_of(net, "transformer.h.3.attn.c_attn.weight") / 0.02 - 1) < 0.05);
    CHECK(fabs(std_of(net, "transformer.h.3.attn.c_proj.weight") * sqrt(12) / 0.02 - 1) < 0.05);
    CHECK(fabs(std_of(net, "transformer.h.5.mlp.c_proj.weight") * sqrt(12) / 0.02 - 1) < 0.05);
    CHECK(std_of(net, "transformer.h.0.mlp.c_fc.bias") == 0);
    CHECK(std_of(net, "transformer.ln_f.weight") == 1);
    CHECK(gd_module_tensor(net, "lm_head.weight") ==
          gd_module_tensor(net, "transformer.wte.weight"));
    gd_module *copy = gd_module_clone(net);
    CHECK(gd_module_tensor(copy, "lm_head.weight") ==
          gd_module_tensor(copy, "transformer.wte.weight"));
    CHECK(gd_module_tensor(copy, "lm_head.weight") != gd_module_tensor(net, "lm_head.weight"));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

static void check_fails(gd_module *net, const char *a, const char *b) {
    CHECK(!net && gd_failed());
    CHECK_SAYING(says(a) && says(b), "%s", gd_error_message());
    gd_clear_error();
}

CLEAN_TEST(wrong_options_and_inputs_are_named) {
    GD_SCOPE;
    check_fails(gd_zoo_char_lstm(0), "char_lstm", "vocabulary is 0");
    check_fails(gd_zoo_char_lstm(5, .layers = 1 << 20), "char_lstm", "layers");
    check_fails(gd_zoo_gpt(5, .heads = 5), "gpt", "heads is 5; it must divide width (192)");
    check_fails(gd_zoo_gpt(5, .dropout = 2), "gpt", "dropout is 2");
    check_fails(gd_net_new("gpt", "context=4"), "gpt", "vocabulary");
    gd_module *net = gd_zoo_gpt(5, .context = 4, .layers = 1, .heads = 1, .width = 4);
    gd_module_forward(net, gd_zeros(gd_dims(2, 5), .dtype = GD_I64));
    CHECK_SAYING(says("transformer (gpt_transformer)") && says("at most 4"), "%s",
                 gd_error_message());
    gd_clear_error();
    gd_module_forward(gd_zoo_char_lstm(5), gd_zeros(gd_dims(2), .dtype = GD_I64));
    CHECK_SAYING(says("char_lstm") && says("(N, T)"), "%s", gd_error_message());
}

/* --- computation ------------------------------------------------------------------------------ */

CLEAN_TEST(a_char_lstm_continues_from_its_states) {
    GD_SCOPE;
    gd_seed(2);
    GD_NO_GRAD;
    gd_module *net = gd_zoo_char_lstm(VOCABULARY, .embedding = 16, .hidden = 24, .dropout = 0.5);
    gd_module_eval(net);
    gd_tensor *x = random_text(2, 9);
    gd_tensors integer = gd_module_call(net, gd_list(x));
    gd_tensor *h = NULL, *c = NULL;
    for (int64_t t = 0; t < 9; t++) {
        gd_tensors y = gd_module_call(net, gd_list(gd_narrow(x, 1, t, 1), h, c));
        CHECK(tensors_distance(y.at[0], gd_narrow(integer.at[0], 1, t, 1)) < 1e-5);
        h = y.at[1], c = y.at[2];
    }
    CHECK(tensors_distance(h, integer.at[1]) < 1e-5 && tensors_distance(c, integer.at[2]) < 1e-5);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* A later character changes no earlier score, but the scores from its own position on. */
static void check_causal(gd_module *net) {
    enum { STEPS = 8, AT = 5 };
    gd_tensor *x = random_text(2, STEPS), *y = gd_module_forward(net, x);
    gd_tensor *later = gd_ge(gd_arange(0, STEPS, .dtype = GD_I64), gd_scalar_int(AT));
    gd_tensor *other =
        gd_where(later, gd_remainder(gd_add(x, gd_scalar_int(1)), gd_scalar_int(VOCABULARY)), x);
    gd_tensor *z = gd_module_forward(net, other);
    CHECK(tensors_distance(gd_narrow(y, 1, 0, AT), gd_narrow(z, 1, 0, AT)) == 0);
    for (int t = AT; t < STEPS; t++)
        CHECK(tensors_distance(gd_narrow(y, 1, t, 1), gd_narrow(z, 1, t, 1)) > 1e-4);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(no_score_depends_on_a_later_character) {
    GD_SCOPE;
    gd_seed(3);
    check_causal(gd_zoo_gpt(VOCABULARY, .context = 8, .layers = 2, .heads = 4, .width = 32));
    check_causal(gd_zoo_char_lstm(VOCABULARY, .embedding = 16, .hidden = 16));
}

/* --- training --------------------------------------------------------------------------------- */

typedef struct {
    gd_module *net;
    gd_optimizer *optimizer;
} trainer;

static gd_tensors train_step(gd_tensors in, void *user) {
    trainer *t = user;
    gd_tensor *scores = gd_reshape(gd_module_forward(t->net, in.at[0]), gd_dims(-1, VOCABULARY));
    gd_tensor *loss = gd_cross_entropy(scores, gd_reshape(in.at[1], gd_dims(-1)));
    gd_optimizer_zero_grad(t->optimizer);
    gd_backward(loss);
    gd_optimizer_step(t->optimizer);
    return gd_listed(loss);
}

/* Returns the loss on one batch after these steps: near 0 when the net has overfitted the batch. */
static double loss_after(gd_module *net, int steps, double lr) {
    trainer t = {net, gd_optim_adamw(gd_module_parameters(net), .lr = lr)};
    gd_jit *train = gd_jit_new(train_step, &t);
    gd_tensor *x = random_text(4, 17);
    gd_tensor *input = gd_contiguous(gd_narrow(x, 1, 0, 16)),
              *target = gd_contiguous(gd_narrow(x, 1, 1, 16));
    double loss = INFINITY;
    for (int i = 0; i < steps && !gd_failed(); i++) {
        GD_SCOPE;
        loss = gd_item(gd_jit_call(train, gd_list(input, target)).at[0]);
        if (i == 0) CHECK_SAYING(fabs(loss - log(VOCABULARY)) < 0.5, "the first loss is %g", loss);
    }
    CHECK(gd_jit_traces(train) == 1);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    return loss;
}

CLEAN_TEST(a_char_lstm_overfits_one_batch) {
    GD_SCOPE;
    gd_seed(4);
    const double loss =
        loss_after(gd_zoo_char_lstm(VOCABULARY, .embedding = 32, .hidden = 64), 200, 0.01);
    CHECK_SAYING(loss < 0.1, "the loss is %g", loss);
}

CLEAN_TEST(a_gpt_overfits_one_batch) {
    GD_SCOPE;
    gd_seed(5);
    const double loss = loss_after(
        gd_zoo_gpt(VOCABULARY, .context = 16, .layers = 2, .heads = 4, .width = 32), 200, 0.01);
    CHECK_SAYING(loss < 0.1, "the loss is %g", loss);
}

/* --- eager, jit and session ------------------------------------------------------------------- */

/* A gradient descent step: returns the loss, and the updates that a session has to fetch. */
static gd_tensors descent_step(gd_tensors in, void *user) {
    gd_module *net = user;
    gd_tensor *results[100];
    int64_t n = 0;
    gd_tensor *scores = gd_reshape(gd_module_forward(net, in.at[0]), gd_dims(-1, VOCABULARY));
    results[n++] = gd_cross_entropy(scores, gd_reshape(in.at[1], gd_dims(-1)));
    gd_tensors p = gd_module_parameters(net), g = gd_grad(gd_list(results[0]), p);
    GD_NO_GRAD;
    for (int64_t i = 0; i < p.count && i < g.count; i++)
        results[n++] = gd_assign(p.at[i], gd_sub(p.at[i], gd_mul(g.at[i], gd_scalar(0.1))));
    return gd_list_copy((gd_tensors){results, n});
}

enum { STEPS = 5 };

static void run_descent(int variant, gd_module *net, gd_tensor *x, gd_tensor *y, double *losses) {
    GD_SCOPE;
    if (variant < 2) {
        gd_jit *jit = variant ? gd_jit_new(descent_step, net, .level = 0) : NULL;
        for (int i = 0; i < STEPS; i++)
            losses[i] = gd_item(
                (jit ? gd_jit_call(jit, gd_list(x, y)) : descent_step(gd_list(x, y), net)).at[0]);
        return;
    }
    gd_graph *graph = gd_graph_new();
    gd_tensor *a, *b;
    gd_tensors fetches;
    {
        GD_GRAPH(graph);
        a = gd_placeholder(gd_tensor_shape(x), .dtype = GD_I64);
        b = gd_placeholder(gd_tensor_shape(y), .dtype = GD_I64);
        fetches = descent_step(gd_list(a, b), net);
    }
    gd_session *session = gd_session_new(graph, .level = 0);
    for (int i = 0; i < STEPS; i++)
        losses[i] = gd_item(gd_session_run(session, gd_list(a, x, b, y), fetches).at[0]);
}

static void check_modes(gd_module *net) {
    gd_module *twins[3] = {gd_module_clone(net), gd_module_clone(net), gd_module_clone(net)};
    gd_tensor *x = random_text(2, 6), *y = random_text(2, 6);
    double losses[3][STEPS];
    for (int variant = 0; variant < 3; variant++) {
        run_descent(variant, twins[variant], x, y, losses[variant]);
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        CHECK(memcmp(losses[variant], losses[0], sizeof losses[0]) == 0);
        gd_tensors p = gd_module_parameters(twins[variant]), q = gd_module_parameters(twins[0]);
        for (int64_t i = 0; i < p.count; i++) CHECK(tensors_distance(p.at[i], q.at[i]) == 0);
    }
    CHECK(losses[0][STEPS - 1] < losses[0][0]);
}

CLEAN_TEST(eager_steps_jits_and_sessions_give_the_same_bits) {
    GD_SCOPE;
    gd_seed(7);
    check_modes(gd_zoo_char_lstm(VOCABULARY, .embedding = 8, .hidden = 12));
    check_modes(gd_zoo_gpt(VOCABULARY, .context = 8, .layers = 2, .heads = 2, .width = 8));
    check_modes(gd_zoo_gpt(VOCABULARY, .context = 6, .layers = 1, .heads = 2, .width = 8,
                           .tied = false, .bias = false));
}

CLEAN_TEST(dropout_of_both_networks_depends_on_the_mode) {
    GD_SCOPE;
    gd_seed(6);
    gd_module *nets[] = {
        gd_zoo_char_lstm(VOCABULARY, .embedding = 8, .hidden = 8, .dropout = 0.5),
        gd_zoo_gpt(VOCABULARY, .context = 8, .layers = 1, .heads = 2, .width = 8, .dropout = 0.5)};
    gd_tensor *x = random_text(2, 8);
    for (int i = 0; i < 2; i++) {
        CHECK(tensors_distance(gd_module_forward(nets[i], x), gd_module_forward(nets[i], x)) > 0);
        gd_module_eval(nets[i]);
        CHECK(tensors_distance(gd_module_forward(nets[i], x), gd_module_forward(nets[i], x)) == 0);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST_MAIN
