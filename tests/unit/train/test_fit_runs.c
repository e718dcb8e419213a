/* test_fit_runs.c - how runs of gd_fit start, stop, fail and resume. */
#include <math.h>
#include <pthread.h>
#include <signal.h>

#include "clean_test.h"
#include "fit_things.h"
#include "gradus/gradus.h"
#include "stack.h"
#include "temp.h"
#include "train/fit.h"

/* --- user-defined steps ----------------------------------------------------------------------- */

/* A GAN: the net contains both networks, each with its own optimizer. */
typedef struct gan {
    gd_module *generator, *critic;
    gd_optimizer *generator_adam, *critic_adam;
} gan;

static gd_tensor *discriminator_loss(gan *g, gd_tensor *x, double as) {
    gd_tensor *logits = gd_module_forward(g->critic, x);
    return gd_bce_with_logits(logits, gd_full(gd_tensor_shape(logits), as));
}

static gd_tensor *gan_step(gd_module *net, gd_tensors batch, void *user) {
    gan *g = user;
    (void)net;
    gd_tensor *real = batch.at[0];
    gd_tensor *noise = gd_randn(gd_dims(gd_tensor_dim(real, 0), 3));
    gd_tensor *fake = gd_module_forward(g->generator, noise);
    gd_tensor *critic =
        gd_add(discriminator_loss(g, real, 1), discriminator_loss(g, gd_detach(fake), 0));
    gd_optimizer_zero_grad(g->critic_adam);
    gd_backward(critic);
    gd_optimizer_step(g->critic_adam);
    gd_tensor *fooled = discriminator_loss(g, fake, 1);
    gd_optimizer_zero_grad(g->generator_adam);
    gd_backward(fooled);
    gd_optimizer_step(g->generator_adam);
    gd_optimizer_zero_grad(g->generator_adam);
    gd_optimizer_zero_grad(g->critic_adam);
    return critic;
}

static gd_module *make_gan(gan *g) {
    gd_seed(11);
    g->generator = gd_nn_sequential(gd_nn_linear(3, 16), gd_nn_relu(), gd_nn_linear(16, 2));
    g->critic = gd_nn_sequential(gd_nn_linear(2, 16), gd_nn_leaky_relu(), gd_nn_linear(16, 1));
    g->generator_adam = gd_optim_adam(gd_module_parameters(g->generator), .lr = 0.02);
    g->critic_adam = gd_optim_adam(gd_module_parameters(g->critic), .lr = 0.02);
    return gd_nn_list(g->generator, g->critic);
}

CLEAN_TEST(a_gan_trains_with_a_step_function) {
    GD_SCOPE;
    gd_seed(2);
    gd_tensor *real = gd_add(gd_mul(gd_randn(gd_dims(256, 2)), gd_scalar(0.2)),
                             gd_from_array(gd_dims(2), GD_F32, ((float[]){3, -2})));
    gan made[2];
    gd_module *nets[2];
    for (int jit = 0; jit < 2; jit++) {
        nets[jit] = make_gan(&made[jit]);
        gd_seed(5);
        CHECK(gd_compile(nets[jit], .optimizer = NULL) == GD_OK);
        gd_history *h = gd_fit(nets[jit], gd_list(real), .epochs = 60, .batch = 64,
                               .step = gan_step, .step_user = &made[jit], .jit = jit, QUIET);
        CHECK_SAYING(h, "%s", gd_error_message());
        CHECK(isfinite(gd_history_last(h, "loss")) && isnan(gd_history_last(h, "lr")));
    }
    CHECK_SAYING(largest_difference(nets[0], nets[1]) < 1e-3, "%g",
                 largest_difference(nets[0], nets[1]));
    gd_tensor *centre = gd_mean(gd_module_forward(made[1].generator, gd_randn(gd_dims(500, 3))),
                                .axis = gd_dims(0));
    CHECK_SAYING(gd_item(gd_select(centre, 0, 0)) > 1 && gd_item(gd_select(centre, 0, 1)) < -0.5,
                 "generates around %g %g", gd_item(gd_select(centre, 0, 0)),
                 gd_item(gd_select(centre, 0, 1)));
}

/* A language model: batches of token windows, a loss over all positions, and the optimizer of
 * gd_compile. */
enum { TOKENS = 11, WINDOW = 6 };

static gd_tensor *next_token_loss(gd_module *net, gd_tensor *tokens) {
    const int64_t n = gd_tensor_dim(tokens, 0);
    gd_tensor *logits =
        gd_module_forward(net, gd_narrow(tokens, 1, 0, WINDOW)); /* (n, WINDOW, TOKENS) */
    return gd_cross_entropy(gd_reshape(logits, gd_dims(n * WINDOW, TOKENS)),
                            gd_reshape(gd_narrow(tokens, 1, 1, WINDOW), gd_dims(n * WINDOW)));
}

static gd_tensor *language_step(gd_module *net, gd_tensors batch, void *user) {
    (void)user;
    gd_tensor *loss = next_token_loss(net, batch.at[0]);
    gd_backward(loss);
    return loss;
}

CLEAN_TEST(a_language_model_trains_with_a_step_function) {
    GD_SCOPE;
    int64_t tokens[64][WINDOW + 1];
    for (int i = 0; i < 64; i++)
        for (int k = 0; k <= WINDOW; k++)
            tokens[i][k] = (i + 3 * k) % TOKENS; /* each token determines the next one */
    gd_tensor *windows = gd_from_array(gd_dims(64, WINDOW + 1), GD_I64, tokens);
    gd_seed(1);
    gd_module *net = gd_nn_sequential(gd_nn_embedding(TOKENS, 12), gd_nn_linear(12, TOKENS));
    CHECK(gd_compile(net, .optimizer = "adam lr=0.05", .schedule = "cosine steps=200",
                     .clip_norm = 1) == GD_OK);
    gd_history *h =
        gd_fit(net, gd_list(windows), .max_steps = 100, .batch = 16, .step = language_step, QUIET);
    CHECK_SAYING(h && gd_history_last(h, "loss") < 0.1, "%g %s", gd_history_last(h, "loss"),
                 gd_error_message());
    CHECK(gd_history_last(h, "lr") < 0.05 && gd_history_last(h, "lr") > 0);
}

static gd_tensor *no_loss(gd_module *net, gd_tensors batch, void *user) {
    (void)user;
    return gd_module_forward(net, batch.at[0]);
}

CLEAN_TEST(a_step_function_must_return_the_loss) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "sgd");
    CHECK(!gd_fit(net, gd_list(x, y), .step = no_loss, QUIET) && says("return the loss"));
    gd_clear_error();
    CHECK(!gd_fit(net, gd_list(x, y), QUIET) && says("without a loss"));
    gd_clear_error();
    gd_compile(net, .optimizer = NULL, .loss = "cross_entropy");
    CHECK(!gd_fit(net, gd_list(x, y), QUIET) && says(".step"));
}

/* --- interrupts ------------------------------------------------------------------------------- */

static int old_handler_calls;
static void old_handler(int signal) { (void)signal, old_handler_calls++; }

typedef struct stopper {
    int at, signal; /* the batch after which to stop; the signal to raise, 0: gd_fit_interrupt */
    int seen, ends;
} stopper;

static gd_status stop_batch(gd_event *event, void *self) {
    stopper *s = self;
    (void)event;
    if (++s->seen == s->at) {
        if (s->signal) raise(s->signal);
        else gd_fit_interrupt();
    }
    return GD_OK;
}

static gd_status stop_end(gd_event *event, void *self) {
    ((stopper *)self)->ends += event->stopping;
    return GD_OK;
}

CLEAN_TEST(signals_end_a_run_after_its_batch) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    static const int signals[] = {SIGINT, SIGTERM, 0};
    struct sigaction old = {.sa_handler = old_handler}, now;
    sigaction(SIGINT, &old, NULL);
    sigaction(SIGTERM, &old, NULL);
    for (int i = 0; i < 3; i++) {
        stopper s = {.at = 8, .signal = signals[i]};
        gd_module *net = make_net();
        gd_compile(net, .optimizer = "sgd", .loss = "cross_entropy");
        gd_history *h = gd_fit(
            net, gd_list(x, y), .epochs = 5, .batch = 10, .validation_tensors = gd_list(x, y),
            .callbacks =
                gd_callbacks(gd_callback_from(&s, .batch_end = stop_batch, .fit_end = stop_end)),
            QUIET);
        CHECK_SAYING(h, "%s", gd_error_message());
        CHECK_SAYING(s.seen == 8 && s.ends == 1, "%d batches, %d ends", s.seen, s.ends);
        CHECK(gd_history_rows(h) == 2 && isfinite(gd_history_value(h, "val_loss", 0)) &&
              isnan(gd_history_last(h, "val_loss")));
        CHECK(isfinite(gd_history_last(h, "loss")));
        sigaction(SIGINT, NULL, &now);
        CHECK(now.sa_handler == old_handler);
        CHECK(gd_fit(net, gd_list(x, y), .batch = 10, QUIET)); /* the next run is not interrupted */
    }
    CHECK(old_handler_calls == 0);
    /* a second signal calls the previous handler */
    stopper once = {.at = 2, .signal = SIGINT}, twice = {.at = 2, .signal = SIGINT};
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "sgd", .loss = "cross_entropy");
    gd_fit(net, gd_list(x, y), .batch = 10, QUIET,
           .callbacks = gd_callbacks(gd_callback_from(&once, .batch_end = stop_batch),
                                     gd_callback_from(&twice, .batch_end = stop_batch)));
    CHECK_SAYING(old_handler_calls == 1 && once.seen == 2, "%d calls, %d batches",
                 old_handler_calls, once.seen);
    sigaction(SIGINT, NULL, &now);
    CHECK(now.sa_handler == old_handler);
    /* with signal handling disabled */
    old_handler_calls = 0;
    stopper declined = {.at = 2, .signal = SIGINT};
    gd_fit(net, gd_list(x, y), .batch = 10, .interrupt = false, QUIET,
           .callbacks = gd_callbacks(gd_callback_from(&declined, .batch_end = stop_batch)));
    CHECK(old_handler_calls == 1 && declined.seen == 6);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

/* --- values that are not finite --------------------------------------------------------------- */

static gd_status check_finite(gd_event *event, void *self) {
    (void)self;
    gd_fit_check_finite(event);
    return GD_OK;
}

/* A run fails at the step with the bad sample; the net is then in the state before that step. */
static void run_bad(gd_module *net, gd_tensor *x, gd_tensor *y, bool jit, const char *expected) {
    gd_module *good = gd_module_clone(net);
    gd_compile(good, .optimizer = "sgd lr=0.1", .loss = "cross_entropy");
    gd_compile(net, .optimizer = "sgd lr=0.1", .loss = "cross_entropy");
    gd_seed(8);
    gd_fit(good, gd_list(gd_narrow(x, 0, 0, 30), gd_narrow(y, 0, 0, 30)), .batch = 10,
           .shuffle = false, .jit = jit, QUIET);
    const gd_rng rng = gd_rng_state();
    gd_seed(8);
    gd_fit(net, gd_list(x, y), .batch = 10, .shuffle = false, .jit = jit, QUIET,
           .callbacks = gd_callbacks(gd_callback_from(NULL, .fit_begin = check_finite)));
    CHECK_SAYING(gd_failed() && says("step 4") && says(expected), "jit %d: %s", jit,
                 gd_error_message());
    gd_clear_error();
    CHECK_SAYING(largest_difference(net, good) < 1e-6, "jit %d: %g", jit,
                 largest_difference(net, good));
    CHECK(gd_rng_state().call == rng.call);
}

/* h * exp(x): infinite where x is large. */
static gd_tensors boost(gd_tensors in, void *self) {
    (void)self;
    return gd_listed(
        gd_mul(in.at[0], gd_exp(gd_mean(in.at[1], .axis = gd_dims(1), .keepdim = true))));
}

typedef struct boosted {
    gd_module *norm, *drop, *boost, *fc;
} boosted;

static gd_tensors boosted_forward(gd_tensors in, void *self) {
    boosted *m = self;
    gd_tensor *h = gd_module_forward(m->drop, gd_module_forward(m->norm, in.at[0]));
    return gd_listed(gd_module_forward(m->fc, gd_module_forward(m->boost, h, in.at[0])));
}

static gd_module *make_boosted(void) {
    gd_seed(3);
    gd_module *net = gd_module_new(boosted_forward, sizeof(boosted));
    boosted *m = gd_module_self(net);
    GD_CHILD(net, m->norm, gd_nn_batch_norm1d(FEATURES));
    GD_CHILD(net, m->drop, gd_nn_dropout());
    GD_CHILD(net, m->boost, gd_module_new(boost, 0, .type = "boost"));
    GD_CHILD(net, m->fc, gd_nn_linear(FEATURES, CLASSES));
    return net;
}

CLEAN_TEST(a_non_finite_step_is_not_applied_and_names_the_layer) {
    for (int jit = 0; jit < 2; jit++) {
        GD_SCOPE;
        gd_tensor *x, *y;
        make_data(&x, &y);
        gd_tensor *bad = gd_clone(x);
        float *row = (float *)gd_data(bad) + 35 * FEATURES;
        for (int k = 0; k < FEATURES; k++) row[k] = 100;
        run_bad(make_boosted(), bad, y, jit,
                "gd_fit: step 4: boost (boost): output is not finite (inputs are finite)");
        row[0] = NAN;
        run_bad(make_dropout_net(), bad, y, jit,
                "0 (linear): output is not finite (inputs are not finite, max |w| = 0.");
    }
}

/* sqrt has no finite gradient at 0. */
static gd_tensors root(gd_tensors in, void *self) {
    gd_module **layer = self;
    gd_tensor *h = gd_module_forward(*layer, in.at[0]);
    return gd_listed(gd_add(h, gd_sqrt(gd_mul(h, gd_scalar(0)))));
}

CLEAN_TEST(a_non_finite_gradient_is_named) {
    for (int jit = 0; jit < 2; jit++) {
        GD_SCOPE;
        gd_tensor *x, *y;
        make_data(&x, &y);
        gd_module *net = gd_module_new(root, sizeof(gd_module *));
        gd_module **self = gd_module_self(net);
        gd_seed(1);
        gd_module_add(net, "fc", *self = gd_nn_linear(FEATURES, CLASSES));
        gd_compile(net, .optimizer = "sgd", .loss = "cross_entropy");
        gd_module *before = gd_nn_linear(FEATURES, CLASSES);
        gd_set_state(before, gd_state_of(*self));
        gd_fit(net, gd_list(x, y), .jit = jit, QUIET,
               .callbacks = gd_callbacks(gd_callback_from(NULL, .fit_begin = check_finite)));
        CHECK_SAYING(says("step 1") && says("the gradient of fc.bias is not finite"), "%s",
                     gd_error_message());
        gd_clear_error();
        CHECK(largest_difference(*self, before) == 0 &&
              !gd_tensor_grad(gd_module_parameters(net).at[0]));
    }
}

/* --- resuming --------------------------------------------------------------------------------- */

/* How the first part of a resumed run ends. */
enum { NOT, BY_MAX_STEPS, BY_INTERRUPT, BY_FAILURE };
typedef struct ending {
    int how, step;
} ending;

static gd_status end_run(gd_event *event, void *self) {
    const ending *e = self;
    if (e->how == BY_INTERRUPT && event->step == e->step) gd_fit_interrupt();
    /* before the checkpoint of this step is written */
    return e->how == BY_FAILURE && event->step == e->step + 1 ? GD_E_IO : GD_OK;
}

static gd_history *train_one(gd_module *net, gd_tensor *x, gd_tensor *y, const char *folder,
                             ending end, int accumulate, int steps, bool jit) {
    gd_compile(net, .optimizer = "adam lr=0.02", .schedule = "cosine steps=60",
               .loss = "cross_entropy", .metrics = "accuracy", .accumulate = accumulate,
               .clip_norm = 1);
    gd_callback *stop = gd_early_stopping(.patience = 50),
                *ends = gd_callback_from(&end, .batch_end = end_run);
    gd_callback_list list =
        folder ? gd_callbacks(gd_checkpoint(folder, .every_steps = 3, .keep = 0), stop, ends)
               : gd_callbacks(stop);
    gd_loader *loader =
        gd_loader_new(gd_dataset_tensors(x, y), .batch = 11, .shuffle = true, .seed = 5);
    return gd_fit(net, loader, .epochs = 4, .steps_per_epoch = steps,
                  .max_steps = end.how == BY_MAX_STEPS ? end.step : 0, .resume = folder,
                  .validation_tensors = gd_list(x, y), .callbacks = list, .jit = jit, QUIET);
}

static bool same_history(const gd_history *a, const gd_history *b) {
    bool same =
        gd_history_rows(a) == gd_history_rows(b) && gd_history_columns(a) == gd_history_columns(b);
    for (int64_t c = 0; same && c < gd_history_columns(a); c++) {
        const char *name = gd_history_name(a, c);
        if (strcmp(name, "seconds") == 0) continue;
        for (int64_t row = 0; row < gd_history_rows(a); row++) {
            const double p = gd_history_value(a, name, row), q = gd_history_value(b, name, row);
            if (p == q || (isnan(p) && isnan(q))) continue;
            fprintf(stderr, "%s[%lld]: %.17g, expected %.17g\n", name, (long long)row, q, p);
            same = false;
        }
    }
    return same;
}

/* Trains in two parts and compares with the complete run. */
static void check_resumed(gd_module *complete, const gd_history *all, gd_tensor *x, gd_tensor *y,
                          ending end, int accumulate, int steps, bool jit) {
    GD_SCOPE;
    const char *folder = temp_new_folder("run");
    gd_module *first = make_dropout_net(), *again = make_dropout_net();
    gd_seed(21);
    train_one(first, x, y, folder, end, accumulate, steps, jit);
    CHECK_SAYING(gd_failed() == (end.how == BY_FAILURE), "%s", gd_error_message());
    gd_clear_error();
    gd_seed(99);
    const gd_history *rest =
        train_one(again, x, y, folder, (ending){NOT, 0}, accumulate, steps, jit);
    CHECK_SAYING(rest, "%s", gd_error_message());

    CHECK_SAYING(largest_difference(again, complete) == 0,
                 "jit %d, accumulate %d, way %d, step %d: differs by %g", jit, accumulate, end.how,
                 end.step, largest_difference(again, complete));
    CHECK_SAYING(same_history(all, rest), "jit %d, accumulate %d, way %d, step %d", jit, accumulate,
                 end.how, end.step);
}

CLEAN_TEST(a_resumed_run_ends_with_the_same_bits) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    for (int jit = 0; jit < 2; jit++)
        for (int accumulate = 1; accumulate <= 4; accumulate += 3) {
            gd_module *complete = make_dropout_net();
            gd_seed(21);
            const gd_history *all =
                train_one(complete, x, y, NULL, (ending){NOT, 0}, accumulate, 0, jit);
            CHECK_SAYING(all, "%s", gd_error_message());
            /* 60 samples, batches of 11: an epoch is 6 batches; 24 in all */
            static const int stops[] = {3, 6, 10, 23};
            for (int i = 0; i < 4; i++)
                for (int how = BY_MAX_STEPS; how <= BY_FAILURE; how++)
                    /* max_steps inside an accumulation group ends the group early, which changes
                     * the step */
                    if (how != BY_MAX_STEPS || accumulate == 1)
                        check_resumed(complete, all, x, y, (ending){how, stops[i]}, accumulate, 0,
                                      jit);
        }
}

/* 15 steps are two epochs and a half. The row of the incomplete one stays when the run resumes at its end, and
 * is replaced when it goes on. */
CLEAN_TEST(a_run_that_resumes_at_its_end_has_the_same_history) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    const char *folder = temp_new_folder("run");
    const gd_history *h[4];
    for (int i = 0; i < 4; i++) {
        gd_module *net = make_dropout_net();
        gd_compile(net, .optimizer = "adam", .loss = "cross_entropy");
        h[i] = gd_fit(net, gd_list(x, y), .batch = 10, .max_steps = i < 3 ? 15 : 24, .seed = 2,
                      .resume = i ? folder : NULL, .callbacks = gd_callbacks(gd_checkpoint(folder)),
                      QUIET);
        CHECK_SAYING(h[i], "%s", gd_error_message());
    }
    CHECK(gd_history_rows(h[0]) == 3 && same_history(h[0], h[1]) && same_history(h[0], h[2]));
    CHECK(gd_history_rows(h[3]) == 4);
}

/* Epochs of 7 and of 3 batches, in the middle of which the loader's epochs of 6 end. */
CLEAN_TEST(a_resumed_run_with_epochs_of_steps_ends_with_the_same_bits) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    for (int steps = 3; steps <= 7; steps += 4) {
        gd_module *complete = make_dropout_net();
        gd_seed(21);
        const gd_history *all = train_one(complete, x, y, NULL, (ending){NOT, 0}, 2, steps, true);
        CHECK_SAYING(all, "%s", gd_error_message());
        static const int stops[] = {3, 6, 7, 10};
        for (int i = 0; i < 4; i++)
            for (int how = BY_INTERRUPT; how <= BY_FAILURE; how++)
                check_resumed(complete, all, x, y, (ending){how, stops[i]}, 2, steps, true);
    }
}

/* Resuming a run that early stopping has ended trains no further. */
CLEAN_TEST(a_run_that_a_callback_ended_does_not_resume) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    const char *folder = temp_new_folder("run");
    gd_module *net = make_net(), *again = make_net();
    for (int i = 0; i < 2; i++) {
        gd_module *m = i ? again : net;
        gd_compile(m, .optimizer = "sgd lr=0", .loss = "cross_entropy");
        gd_history *h = gd_fit(
            m, gd_list(x, y), .epochs = 20, .resume = folder, .validation_tensors = gd_list(x, y),
            QUIET,
            .callbacks = gd_callbacks(gd_early_stopping(.patience = 2), gd_checkpoint(folder)));
        CHECK_SAYING(gd_history_rows(h) == 3, "%lld rows: %s", (long long)gd_history_rows(h),
                     gd_error_message());
    }
    CHECK(largest_difference(net, again) == 0);
}

/* --- threads ---------------------------------------------------------------------------------- */

typedef struct job {
    gd_tensor *x, *y;
    gd_module *net;
    double loss;
} job;

static void *train_in_thread(void *arg) {
    job *j = arg;
    GD_SCOPE;
    gd_compile(j->net, .optimizer = "sgd lr=0.1", .loss = "cross_entropy", .metrics = "accuracy");
    gd_history *h = gd_fit(j->net, gd_list(j->x, j->y), .epochs = 20, .workers = 1,
                           .validation_tensors = gd_list(j->x, j->y), QUIET);
    j->loss = h ? gd_history_last(h, "val_loss") : NAN;
    return NULL;
}

CLEAN_TEST(two_threads_train_two_nets) {
    GD_SCOPE;
    job jobs[3];
    for (int i = 0; i < 3; i++) {
        make_data(&jobs[i].x, &jobs[i].y);
        jobs[i].net = make_net();
    }
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, train_in_thread, &jobs[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    train_in_thread(&jobs[2]);
    for (int i = 0; i < 2; i++)
        CHECK(largest_difference(jobs[i].net, jobs[2].net) == 0 && jobs[i].loss == jobs[2].loss);
}

/* A run with progress, a checkpoint and a non-finite step. */
static void train_with_all_features(void *arg) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_dropout_net();
    gd_compile(net, .optimizer = "adamw", .schedule = "cosine steps=60", .loss = "cross_entropy",
               .metrics = "accuracy, top_k k=2", .clip_norm = 1, .accumulate = 2);
    for (int i = 0; i < 2; i++)
        CHECK(gd_fit(net, gd_list(x, y), .epochs = 2 + i, .validation_split = 0.2, .resume = arg,
                     QUIET, .callbacks = gd_callbacks(gd_early_stopping(), gd_checkpoint(arg))));
    CHECK(gd_evaluate(net, gd_list(x, y)) &&
          gd_tensor_dim(gd_predict(net, gd_list(x)), 0) == SAMPLES);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    ((float *)gd_data(x))[7] = NAN;
    gd_fit(net, gd_list(x, y), QUIET, .callbacks = gd_callbacks(gd_stop_on_nan()));
    CHECK(says("not finite"));
    gd_clear_error();
}

TEST(a_run_needs_less_than_64_kib_of_stack) {
    const char *folder = temp_new_folder("run");
    const size_t used = stack_used(train_with_all_features, (void *)folder);
#ifndef __SANITIZE_THREAD__ /* whose frames are larger */
    CHECK_SAYING(used > 0 && used < STACK_ALLOWED, "%zu bytes of stack", used);
#endif
}

/* Calls gd_fit in a callback of another run. */
static gd_status fit_inside(gd_event *event, void *self) {
    job *j = self;
    (void)event;
    gd_history *h = gd_fit(j->net, gd_list(j->x, j->y), .epochs = 2, QUIET);
    j->loss = gd_history_last(gd_evaluate(event->net, gd_list(j->x, j->y)), "loss");
    return h ? GD_OK : gd_error_status();
}

CLEAN_TEST(runs_nest) {
    GD_SCOPE;
    job j, other;
    make_data(&j.x, &j.y);
    other = j;
    j.net = make_net();
    other.net = make_net();
    gd_module *alone = make_net();
    gd_compile(j.net, .optimizer = "sgd", .loss = "cross_entropy", .metrics = "accuracy");
    gd_compile(other.net, .optimizer = "sgd", .loss = "cross_entropy", .metrics = "accuracy");
    gd_compile(alone, .optimizer = "sgd", .loss = "cross_entropy", .metrics = "accuracy");
    gd_history *a =
        gd_fit(other.net, gd_list(j.x, j.y), .epochs = 2, .batch = 16, QUIET,
               .callbacks = gd_callbacks(gd_callback_from(&j, .batch_end = fit_inside)));
    CHECK_SAYING(a && isfinite(j.loss), "%s", gd_error_message());
    gd_history *b = gd_fit(alone, gd_list(j.x, j.y), .epochs = 2, .batch = 16, QUIET);
    /* gd_evaluate of the net inside an epoch does not change the sums of training */
    CHECK(same_history(b, a) && largest_difference(alone, other.net) == 0);
}

TEST_MAIN
