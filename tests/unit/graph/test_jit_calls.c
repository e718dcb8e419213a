/* test_jit_calls.c - gd_jit: plans by key, and the C code that a traced function may contain. */
#include "gradus/gradus.h"
#include "clean_test.h"

typedef struct net {
    gd_tensor *w, *v;
    bool training;
    int64_t depth;
    int calls;
} net;

static net make_net(void) {
    return (net){.w = gd_requires_grad(gd_full(gd_dims(4), 2)),
                 .v = gd_requires_grad(gd_full(gd_dims(4), 3)),
                 .depth = 1};
}

static double first_element(gd_tensor *t) { return gd_item(gd_at(gd_detach(t), 0)); }

/* --- keys ------------------------------------------------------------------------------------- */

static gd_tensors predict_with_depth(gd_tensors in, void *user) {
    net *n = user;
    gd_tensor *x = in.at[0];
    n->calls++;
    for (int64_t i = 0; i < n->depth; i++) x = gd_mul(x, n->w);
    return gd_listed(n->training ? gd_add(x, gd_scalar(100)) : x);
}

CLEAN_TEST(each_key_has_its_own_plan) {
    GD_SCOPE;
    GD_NO_GRAD;
    net n = make_net();
    gd_jit *jit = gd_jit_new(predict_with_depth, &n, .level = 0);
    gd_tensor *x = gd_ones(gd_dims(4));
    for (int again = 0; again < 3; again++)
        for (int mode = 0; mode < 2; mode++)
            for (n.depth = 1; n.depth < 4; n.depth++) {
                n.training = mode;
                const double y = first_element(
                    gd_jit_call(jit, gd_list(x), .key = n.training | n.depth << 1).at[0]);
                CHECK_SAYING(y == (1 << n.depth) + (mode ? 100 : 0), "depth %d: %g", (int)n.depth,
                             y);
            }
    CHECK_SAYING(gd_jit_traces(jit) == 6 && n.calls == 6, "%d", gd_jit_traces(jit));
    n.depth = 1;
    gd_jit_call(jit, gd_list(x)); /* a call without a key has key 0 */
    gd_jit_call(jit, gd_list(x), .key = 0);
    gd_jit_call(jit, gd_list(x), .key = INT64_MIN);
    CHECK(gd_jit_traces(jit) == 8 && !gd_failed());
}

CLEAN_TEST(the_plan_of_a_call_can_be_inspected_without_running_it) {
    GD_SCOPE;
    net n = make_net();
    gd_jit *jit = gd_jit_new(predict_with_depth, &n, .level = 0);
    gd_tensor *x = gd_ones(gd_dims(4));
    n.depth = 2;
    char *text = gd_jit_plan_text(jit, gd_list(x), .key = 2);
    CHECK(!gd_failed() && text && gd_jit_traces(jit) == 1);
    const char *first = strstr(text ? text : "", "mul(");
    CHECK_SAYING(first && strstr(first + 1, "mul("), "%s", text ? text : "no text");
    free(text);
    gd_plan_memory memory;
    CHECK(gd_jit_plan(jit, gd_list(x), &memory, .key = 2) == GD_OK);
    CHECK_SAYING(memory.peak_bytes >= 16 && memory.fetch_bytes == 16, "%lld",
                 (long long)memory.fetch_bytes);
    gd_jit_call(jit, gd_list(x), .key = 2);
    CHECK(gd_jit_traces(jit) == 1); /* the call uses the same trace */
    CHECK(gd_jit_plan(NULL, gd_list(x), NULL) == GD_E_ARGUMENT && gd_failed());
    gd_clear_error();
    CHECK(!gd_jit_plan_text(NULL, gd_list(x)) && gd_failed());
    gd_clear_error();
}

CLEAN_TEST(gradients_of_calls_with_keys_come_from_the_plan_of_the_key) {
    GD_SCOPE;
    net n = make_net();
    gd_jit *jit = gd_jit_new(predict_with_depth, &n, .level = 0);
    gd_tensor *x = gd_ones(gd_dims(4)),
              *a = gd_sum(gd_jit_call(jit, gd_list(x), .key = n.depth = 1).at[0]),
              *b = gd_sum(gd_jit_call(jit, gd_list(x), .key = n.depth = 3).at[0]);
    gd_backward(a);
    CHECK(first_element(gd_tensor_grad(n.w)) == 1);
    gd_zero_grad(n.w);
    gd_backward(b);
    CHECK_SAYING(first_element(gd_tensor_grad(n.w)) == 12 && !gd_failed(), "%s",
                 gd_error_message());
}

/* --- side effects of C code ------------------------------------------------------------------- */

typedef enum {
    COPY_FROM,
    SEED,
    STATE,
    DATA_WRITTEN,
    ITEM_WRITTEN,
    COPY_WRITTEN,
    FREEZES,
    SIDE_EFFECTS
} side_effect;
typedef struct effect_case {
    side_effect what;
    gd_tensor *w;
} effect_case;

static gd_tensors run_side_effect(gd_tensors in, void *user) {
    effect_case *d = user;
    float v[4] = {1, 2, 3, 4};
    int grad = gd_no_grad_begin();
    if (d->what >= DATA_WRITTEN && d->what <= COPY_WRITTEN) gd_add_(d->w, in.at[0]);
    switch (d->what) {
    case COPY_FROM: gd_copy_from(d->w, v, sizeof v); break;
    case SEED: gd_seed(1); break;
    case STATE: gd_rng_set_state((gd_rng){1, 2}); break;
    case DATA_WRITTEN: gd_data(d->w); break;
    case ITEM_WRITTEN: gd_item(d->w); break;
    case COPY_WRITTEN:
        if (gd_copy_to(d->w, v, sizeof *v) != GD_OK) gd_item(d->w);
        break;
    case FREEZES: gd_set_requires_grad(d->w, false); break;
    case SIDE_EFFECTS: break;
    }
    gd_grad_mode_end(&grad);
    return gd_listed(gd_mul(in.at[0], d->w));
}

CLEAN_TEST(side_effects_that_would_run_only_while_tracing_fail) {
    static const char *const parts[SIDE_EFFECTS] = {
        "gd_assign",      "call it outside", "call it outside", "written by add",
        "written by add", "written by add",  "change it back"};
    for (int i = 0; i < SIDE_EFFECTS; i++) {
        GD_SCOPE;
        effect_case d = {(side_effect)i, gd_requires_grad(gd_ones(gd_dims(1)))};
        gd_seed(5);
        const gd_rng before = gd_rng_state();
        gd_jit_call(gd_jit_new(run_side_effect, &d), gd_list(gd_ones(gd_dims(1))));
        CHECK_SAYING(gd_failed() && says(parts[i]), "side effect %d: %s", i, gd_error_message());
        gd_clear_error();
        const gd_rng now = gd_rng_state();
        CHECK(gd_item(d.w) == 1 && gd_tensor_requires_grad(d.w) && now.seed == before.seed &&
              now.call == before.call);
        d.what = SIDE_EFFECTS;
        CHECK(gd_item(gd_jit_call(gd_jit_new(run_side_effect, &d), gd_list(gd_full(gd_dims(1), 3)))
                          .at[0]) == 3);
    }
}

CLEAN_TEST(data_may_be_written_while_a_graph_is_built) {
    GD_SCOPE;
    gd_tensor *t = gd_ones(gd_dims(2));
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    CHECK(gd_copy_from(t, (float[]){4, 5}, 8) == GD_OK && *(float *)gd_data(t) == 4);
    gd_seed(3);
    CHECK(!gd_failed() && gd_rng_state().seed == 3);
}

/* w is frozen while the loss of v is computed, as for the discriminator of a GAN. */
static gd_tensors train_with_frozen_w(gd_tensors in, void *user) {
    net *n = user;
    n->calls++;
    gd_set_requires_grad(n->w, false);
    gd_backward(gd_sum(gd_mul(gd_mul(n->w, n->v), in.at[0])));
    gd_set_requires_grad(n->w, true);
    return gd_nothing;
}

CLEAN_TEST(leaves_may_be_frozen_in_a_part_of_the_function) {
    for (int level = 0; level <= 2; level += 2) {
        GD_SCOPE;
        net n = make_net();
        gd_jit *jit = gd_jit_new(train_with_frozen_w, &n, .level = level);
        for (int i = 0; i < 3; i++) {
            gd_zero_grad(n.v);
            gd_jit_call(jit, gd_list(gd_ones(gd_dims(4))));
            CHECK_SAYING(!gd_failed() && !gd_tensor_grad(n.w) && gd_tensor_requires_grad(n.w) &&
                             first_element(gd_tensor_grad(n.v)) == 2,
                         "%s", gd_error_message());
        }
        CHECK_SAYING(gd_jit_traces(jit) == 1 && n.calls == 1, "%d", gd_jit_traces(jit));
    }
}

/* --- traces ----------------------------------------------------------------------------------- */

typedef struct counted {
    gd_jit *jit;
    gd_module *net;
    int64_t seen; /* gd_jit_traces during the latest trace */
} counted;

static gd_tensors call_net(gd_tensors in, void *user) {
    counted *c = user;
    c->seen = gd_jit_traces(c->jit);
    return gd_listed(gd_module_forward(c->net, in.at[0]));
}
static gd_tensors call_jit_inside(gd_tensors in, void *user) {
    int64_t inner = 0;
    gd_tensors y = gd_jit_call(user, in, .trace = &inner);
    CHECK(inner == -1);
    return y;
}

CLEAN_TEST(a_call_tells_the_number_of_its_trace) {
    GD_SCOPE;
    GD_NO_GRAD;
    counted c = {.net = gd_nn_dropout()};
    c.jit = gd_jit_new(call_net, &c, .plans = 2);
    gd_tensor *x[3];
    for (int i = 0; i < 3; i++) x[i] = gd_ones(gd_dims(i + 1));
    int64_t trace = -2;
    for (int i = 0; i < 2; i++) {
        gd_jit_call(c.jit, gd_list(x[i]), .trace = &trace);
        CHECK(trace == i && c.seen == i);
    }
    gd_jit_call(c.jit, gd_list(x[0]), .trace = &trace);
    CHECK(trace == 0 && c.seen == 1 && gd_jit_keeps(c.jit, 0) && gd_jit_keeps(c.jit, 1));
    gd_jit_call(c.jit, gd_list(x[2]), .trace = &trace);
    CHECK(trace == 2 && gd_jit_keeps(c.jit, 0) && !gd_jit_keeps(c.jit, 1) &&
          gd_jit_keeps(c.jit, 2) && !gd_jit_keeps(c.jit, 3) && !gd_jit_keeps(NULL, 0));
    gd_jit_call(gd_jit_new(call_jit_inside, c.jit), gd_list(x[0]));
    CHECK(!gd_failed());
}

#define DIFFERS(jit, inputs, text, ...)                                                \
    do {                                                                               \
        char *found = gd_jit_difference(jit, inputs, __VA_ARGS__);                     \
        CHECK_SAYING(strcmp(found ? found : "", text) == 0, "%s", found ? found : ""); \
        free(found);                                                                   \
    } while (0)

CLEAN_TEST(a_jit_says_why_it_would_trace_again) {
    GD_SCOPE;
    counted c = {.net = gd_nn_sequential(gd_nn_linear(4, 2), gd_nn_dropout())};
    c.jit = gd_jit_new(call_net, &c);
    gd_tensor *x = gd_ones(gd_dims(3, 4));
    DIFFERS(c.jit, gd_list(x), "", .key = 0);
    gd_jit_call(c.jit, gd_list(x));
    DIFFERS(c.jit, gd_list(x), "", .key = 0);
    DIFFERS(c.jit, gd_list(x), "the key is another one", .key = 1);
    DIFFERS(c.jit, gd_list(gd_ones(gd_dims(2, 4))), "input 0 is f32[2,4], it was f32[3,4]",
            .key = 0);
    DIFFERS(c.jit, gd_list(x, x), "2 inputs instead of 1", .key = 0);
    gd_module_eval(c.net);
    DIFFERS(c.jit, gd_list(x), "a module is in evaluation mode", .key = 0);
    gd_module_train(c.net);
    gd_tensor *w = gd_module_parameters(c.net).at[0];
    gd_set_requires_grad(w, false);
    DIFFERS(c.jit, gd_list(x), "a captured tensor, f32[2,4], requires no gradient any more",
            .key = 0);
    gd_set_requires_grad(w, true);
    GD_AUTOCAST(GD_BF16);
    DIFFERS(c.jit, gd_list(x), "autocast is bf16, it was off", .key = 0);
    CHECK(!gd_failed());
}

TEST_MAIN
