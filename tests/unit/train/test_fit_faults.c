/* test_fit_faults.c - training in which one allocation fails.
 *
 * Each time the status is GD_E_MEMORY, or the run did without the memory. Nothing leaks, modes and
 * signal handlers are restored, the net is in the state after a complete step, and the same
 * training, repeated, gives the usual result.
 */
#include <signal.h>

#include "clean_test.h"
#include "fault_walk.h"
#include "fit_things.h"
#include "gradus/gradus.h"

enum { STEPS = 4 };

typedef struct work {
    const char *name;
    gd_status (*act)(gd_module *net, gd_tensor *x, gd_tensor *y);
    bool jit;
} work;

static gd_history *train_steps(gd_module *net, gd_tensor *x, gd_tensor *y, bool jit, int steps) {
    if (gd_compile(net, .optimizer = "adam lr=0.02", .schedule = "cosine steps=60",
                   .loss = "cross_entropy", .metrics = "accuracy", .clip_norm = 1) != GD_OK)
        return NULL;
    return gd_fit(net, gd_list(x, y), .epochs = 2, .max_steps = steps, .batch = 30, .seed = 3,
                  .validation_tensors = gd_list(x, y), .jit = jit, QUIET);
}

static gd_status fit(gd_module *net, gd_tensor *x, gd_tensor *y) {
    GD_SCOPE;
    train_steps(net, x, y, true, 0);
    return gd_error_status();
}

static gd_status fit_eager(gd_module *net, gd_tensor *x, gd_tensor *y) {
    GD_SCOPE;
    train_steps(net, x, y, false, 0);
    return gd_error_status();
}

static gd_status evaluate(gd_module *net, gd_tensor *x, gd_tensor *y) {
    GD_SCOPE;
    if (gd_compile(net, .loss = "cross_entropy", .metrics = "accuracy") != GD_OK)
        return gd_error_status();
    gd_evaluate(net, gd_list(x, y));
    return gd_error_status();
}

static gd_status predict(gd_module *net, gd_tensor *x, gd_tensor *y) {
    GD_SCOPE;
    (void)y;
    gd_predict(net, gd_list(x), .batch = 25);
    return gd_error_status();
}

/* The net after 0 to STEPS steps. */
static gd_module *after[STEPS + 1];

static bool is_after_some_steps(gd_module *net, bool trains) {
    for (int i = 0; i <= (trains ? STEPS : 0); i++)
        if (largest_difference(net, after[i]) == 0) return true;
    return false;
}

static void run_round(fault_walk *faults, const work *w, bool trains) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_dropout_net();
    gd_module_eval(gd_module_at(net, 1));
    gd_seed(17);
    fault_begin(faults);
    gd_status status = w->act(net, x, y);
    fault_end(faults);
    CHECK_FAULT(faults, status);
    struct sigaction handler;
    sigaction(SIGINT, NULL, &handler);
    CHECK_ROUND(faults, handler.sa_handler == SIG_DFL);
    CHECK_ROUND(faults, gd_module_is_training(net) && !gd_module_is_training(gd_module_at(net, 1)));
    CHECK_ROUND(faults, is_after_some_steps(net, trains)); /* no partial step */
    gd_tensors parameters = gd_module_parameters(net);
    for (int64_t i = 0; i < parameters.count; i++) CHECK(!gd_tensor_grad(parameters.at[i]));
}

static void walk_work(const work *w, bool trains) {
    GD_SCOPE;
    gd_set_num_threads(1); /* so that allocation n is the same in each round */
    for (int steps = 0; steps <= (trains ? STEPS : 0); steps++) {
        gd_tensor *x, *y;
        make_data(&x, &y);
        after[steps] = make_dropout_net();
        gd_module_eval(gd_module_at(after[steps], 1));
        gd_seed(17);
        if (steps) CHECK(train_steps(after[steps], x, y, w->jit, steps));
    }
    fault_walk faults = {.what = w->name};
    while (fault_next(&faults)) run_round(&faults, w, trains);
    CHECK_SAYING(faults.rounds > 20, "%s: %lld rounds", w->name, (long long)faults.rounds);
    gd_set_num_threads(0);
}

TEST(fit_survives_any_failed_allocation) { walk_work(&(work){"gd_fit", fit, true}, true); }
TEST(eager_fit_survives_any_failed_allocation) {
    walk_work(&(work){"gd_fit without a jit", fit_eager, false}, true);
}
TEST(evaluate_survives_any_failed_allocation) {
    walk_work(&(work){"gd_evaluate", evaluate, true}, false);
}
TEST(predict_survives_any_failed_allocation) {
    walk_work(&(work){"gd_predict", predict, true}, false);
}

TEST_MAIN
