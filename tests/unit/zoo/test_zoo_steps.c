/* test_zoo_steps.c - training steps of the networks of the zoo have the same bits eagerly, by jit
 * and by session. */
#include "clean_test.h"
#include "compare.h"
#include "zoo_rule.h"

enum { STEPS = 5 };
typedef enum train_mode { EAGER, JIT, SESSION, TRAIN_MODES } train_mode;
static const char *const mode_names[] = {"eager", "jit", "session"};

typedef struct training {
    rule_case of;
    gd_optimizer *optimizer;
} training;

static gd_tensor *loss_of(const training *t, gd_tensor *x) {
    return rule_loss(&t->of, rule_output(&t->of, x));
}

static gd_tensors train_step(gd_tensors in, void *user) {
    training *t = user;
    gd_tensor *loss = loss_of(t, in.count ? in.at[0] : NULL);
    gd_optimizer_zero_grad(t->optimizer);
    gd_backward(loss);
    gd_optimizer_step(t->optimizer);
    return gd_listed(loss);
}

/* Trains for STEPS steps and returns the losses. */
static void run_training(training *t, train_mode how, double losses[STEPS]) {
    GD_SCOPE;
    gd_tensor *const x = t->of.x;
    const gd_tensors in = x ? gd_listed(x) : gd_nothing;
    gd_jit *jit = how == JIT ? gd_jit_new(train_step, t, .level = 0) : NULL;
    gd_session *session = NULL;
    gd_tensors fetches = gd_nothing, feeds = gd_nothing;
    if (how == SESSION) {
        gd_graph *graph = gd_graph_new();
        GD_GRAPH(graph);
        gd_tensor *fed = x ? gd_placeholder(gd_tensor_shape(x), .dtype = gd_tensor_dtype(x)) : NULL;
        gd_tensor *loss = loss_of(t, fed);
        fetches = gd_listed(loss, gd_minimize(t->optimizer, loss));
        if (x) feeds = gd_list_copy(gd_feed(fed, x));
        session = gd_session_new(graph, .level = 0);
    }
    for (int i = 0; i < STEPS; i++) {
        GD_SCOPE;
        const gd_tensors out = session ? gd_session_run(session, feeds, fetches)
                               : jit   ? gd_jit_call(jit, in)
                                       : train_step(in, t);
        losses[i] = gd_item(out.at[0]);
    }
    CHECK_SAYING(!jit || gd_jit_traces(jit) == 1, "%d traces", gd_jit_traces(jit));
}

static void check_modes(const rule_net *of) {
    GD_SCOPE;
    training all[TRAIN_MODES];
    double losses[TRAIN_MODES][STEPS];
    for (train_mode how = EAGER; how < TRAIN_MODES; how++) {
        all[how].of = rule_make(of, GD_F32);
        all[how].optimizer =
            gd_optim_sgd(gd_module_parameters(all[how].of.module), .lr = 0.002, .momentum = 0.9);
        run_training(&all[how], how, losses[how]);
        CHECK_SAYING(!gd_failed(), "%s by %s: %s", of->name, mode_names[how], gd_error_message());
    }
    CHECK_SAYING(losses[EAGER][STEPS - 1] < losses[EAGER][0], "%s does not learn: %g, %g", of->name,
                 losses[EAGER][0], losses[EAGER][STEPS - 1]);
    gd_state *eager = gd_state_of(all[EAGER].of.module);
    for (train_mode how = JIT; how < TRAIN_MODES; how++) {
        CHECK_SAYING(memcmp(losses[how], losses[EAGER], sizeof losses[how]) == 0,
                     "%s by %s: loss %.9g, not %.9g", of->name, mode_names[how],
                     losses[how][STEPS - 1], losses[EAGER][STEPS - 1]);
        gd_state *other = gd_state_of(all[how].of.module);
        for (int64_t i = 0; i < gd_state_count(eager); i++)
            CHECK_SAYING(
                tensors_same_bits(gd_state_tensor_at(other, i), gd_state_tensor_at(eager, i)),
                "%s by %s: %s", of->name, mode_names[how], gd_state_name(eager, i));
    }
}
CLEAN_TEST(five_steps_give_the_same_bits_eagerly_by_jit_and_by_session) {
    for (int n = 0; n < rule_net_count; n++) check_modes(&rule_nets[n]);
}

TEST_MAIN
