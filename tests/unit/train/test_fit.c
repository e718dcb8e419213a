/* test_fit.c - the results of gd_compile, gd_fit, gd_evaluate and gd_predict. */
#include <math.h>

#include "backend/test/device.h"
#include "capture.h"
#include "clean_test.h"
#include "compare.h"
#include "fit_things.h"
#include "gradus/gradus.h"

/* --- compile ---------------------------------------------------------------------------------- */

static gd_tensors half_forward(gd_tensors in, void *self) {
    (void)self;
    return gd_listed(gd_mul(gd_cross_entropy(in.at[0], in.at[1]), gd_scalar(0.5)));
}

/* A layer gives the same bits as its name, and a module of the program those of its function. */
TEST(the_loss_may_be_a_module) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *nets[4];
    for (int i = 0; i < 4; i++) {
        nets[i] = make_net();
        if (i == 0) gd_compile(nets[i], .optimizer = "sgd", .loss = "cross_entropy");
        if (i == 1)
            gd_compile(nets[i], .optimizer = "sgd", .loss_module = gd_nn_cross_entropy_loss());
        if (i == 2) gd_compile(nets[i], .optimizer = "sgd", .loss_function = half_loss);
        if (i == 3)
            gd_compile(nets[i], .optimizer = "sgd",
                       .loss_module = gd_module_new_at(GD_HERE, half_forward, 0,
                                                       &(gd_module_options){.type = "half"}));
        gd_fit(nets[i], gd_list(x, y), .epochs = 2, .seed = 1, QUIET,
               .class_weights =
                   i < 2 ? gd_from_array(gd_dims(3), GD_F32, ((float[]){1, 2, 3})) : NULL);
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    }
    CHECK(largest_difference(nets[0], nets[1]) == 0 && largest_difference(nets[2], nets[3]) == 0);
    CHECK(largest_difference(nets[0], nets[2]) > 0);
    CHECK(gd_compile(nets[0], .loss = "mse", .loss_module = gd_nn_mse_loss()) == GD_E_ARGUMENT &&
          says("there is a .loss and a .loss_module"));
    gd_clear_error();
}

CLEAN_TEST(compile_errors_list_the_valid_names) {
    GD_SCOPE;
    gd_module *net = make_net();
    static const struct {
        gd_compile_options options;
        const char *says;
    } wrong[] = {
        {{.optimizer = "adamm", .accumulate = 1}, "there is no optimizer 'adamm'; there are "},
        {{.optimizer = "adam lr=-1", .accumulate = 1}, "lr"},
        {{.optimizer = "adam rate=1", .accumulate = 1}, "rate"},
        {{.optimizer = "adam", .loss = "cross", .accumulate = 1},
         "there is no loss 'cross'; there are mse, l1"},
        {{.optimizer = "adam", .loss = "relu", .accumulate = 1}, "there is no loss 'relu'"},
        {{.optimizer = "adam", .loss = "mse reduction=none", .accumulate = 1}, "reduction=none"},
        {{.optimizer = "adam", .loss = "cross_entropy label_smoothing=2", .accumulate = 1},
         "label_smoothing"},
        {{.optimizer = "adam", .metrics = "acuracy", .accumulate = 1},
         "there is no metric 'acuracy'"},
        {{.optimizer = "adam", .metrics = "accuracy,", .accumulate = 1}, "comma"},
        {{.optimizer = "adam", .metrics = "top_k k=0", .accumulate = 1}, "k"},
        {{.optimizer = "adam", .schedule = "cosin", .accumulate = 1},
         "there is no schedule 'cosin'"},
        {{.optimizer = "adam", .schedule = "cosine warmup=-1", .accumulate = 1}, "warmup"},
        {{.optimizer = NULL, .schedule = "cosine steps=5", .accumulate = 1},
         "schedule without an optimizer"},
        {{.optimizer = "adam", .precision = "f8", .accumulate = 1}, "there is no precision 'f8'"},
        {{.optimizer = "adam", .accumulate = 0}, "accumulate"},
        {{.optimizer = "adam", .accumulate = 1, .clip_norm = -1}, "clip_norm"},
        {{.optimizer = NULL, .accumulate = 2}, "accumulate"},
        {{.optimizer = "sgd", .loss = "mse", .loss_function = half_loss, .accumulate = 1},
         "give one of them"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_SAYING(gd_compile_at("here", net, &wrong[i].options) != GD_OK, "case %zu", i);
        CHECK_SAYING(says(wrong[i].says), "case %zu: %s", i, gd_error_message());
        gd_clear_error();
        CHECK(!gd_compiled_optimizer(net));
    }
    gd_optimizer *own = gd_optim_sgd(gd_module_parameters(net));
    CHECK(gd_compile(net, .optimizer = "sgd", .optimizer_object = own) == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(gd_compile(net, .optimizer_object = own, .schedule_object = gd_lr_step(own, 5)) == GD_OK);
    CHECK(gd_compiled_optimizer(net) == own && gd_compiled_schedule(net));
    CHECK(gd_compile(net, .metrics = "accuracy, top_k k=2 ,accuracy",
                     .loss = "cross_entropy_loss") == GD_OK);
    CHECK(strcmp(gd_metric_name(gd_compiled_metric(net, 1)), "top_2") == 0 &&
          gd_compiled_metric(net, 2) && !gd_compiled_metric(net, 3));
    CHECK(gd_compiled_optimizer(net) != own);
    CHECK(!gd_compiled_optimizer(gd_module_clone(net)));
    CHECK(!gd_fit(gd_module_clone(net), gd_list(gd_ones(gd_dims(2, 2)), gd_ones(gd_dims(2)))) &&
          says("gd_compile"));
}

/* --- the same bits as a manual loop ----------------------------------------------------------- */

/* Trains on 60 samples in batches of 16; the last batch has 12. */
static void train_by_manual_loop(gd_module *net, gd_tensor *x, gd_tensor *y, int epochs,
                                 double losses[]) {
    gd_optimizer *adam = gd_optim_adam(gd_module_parameters(net), .lr = 0.05);
    gd_schedule *schedule = gd_lr_cosine(adam, 20);
    for (int e = 0; e < epochs; e++) {
        double sum = 0;
        for (int64_t from = 0; from < SAMPLES; from += 16) {
            GD_SCOPE;
            const int64_t n = SAMPLES - from < 16 ? SAMPLES - from : 16;
            gd_tensor *loss = gd_cross_entropy(gd_module_forward(net, gd_narrow(x, 0, from, n)),
                                               gd_narrow(y, 0, from, n));
            gd_optimizer_zero_grad(adam);
            gd_backward(loss);
            gd_clip_grad_norm(gd_module_parameters(net), 0.7);
            gd_optimizer_step(adam);
            gd_schedule_step(schedule);
            sum += gd_item(loss) * (double)n;
        }
        losses[e] = sum / SAMPLES;
    }
}

CLEAN_TEST(fit_computes_the_same_as_a_manual_loop) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *hand = make_dropout_net(), *eager = gd_module_clone(hand),
              *plan = gd_module_clone(hand);
    double losses[3];
    gd_seed(9);
    train_by_manual_loop(hand, x, y, 3, losses);
    for (int jit = 0; jit < 2; jit++) {
        gd_module *net = jit ? plan : eager;
        gd_seed(9);
        gd_compile(net, .optimizer = "adam lr=0.05", .schedule = "cosine steps=20",
                   .loss = "cross_entropy", .clip_norm = 0.7);
        gd_history *h = gd_fit(net, gd_list(x, y), .epochs = 3, .batch = 16, .shuffle = false,
                               .jit = jit, QUIET);
        CHECK_SAYING(h, "%s", gd_error_message());
        for (int e = 0; e < 3; e++)
            CHECK_SAYING(fabs(gd_history_value(h, "loss", e) - losses[e]) < (jit ? 1e-6 : 1e-12),
                         "epoch %d: %.17g, expected %.17g", e, gd_history_value(h, "loss", e),
                         losses[e]);
        const double difference = largest_difference(net, hand);
        CHECK_SAYING(difference <= (jit ? 1e-5 : 0), "jit %d: differs by %g", jit, difference);
        CHECK(gd_module_is_training(net));
    }
}

CLEAN_TEST(nets_without_sizes_are_built_by_the_first_batch) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_seed(1);
    gd_module *net =
        gd_nn_sequential(gd_nn_linear(GD_ANY, 8), gd_nn_tanh(), gd_nn_linear(GD_ANY, CLASSES));
    CHECK(gd_compile(net, .optimizer = "sgd lr=0.1", .loss = "cross_entropy") == GD_OK);
    CHECK(!gd_compiled_optimizer(net));
    gd_history *h = gd_fit(net, gd_list(x, y), .epochs = 2, QUIET);
    CHECK_SAYING(h && gd_compiled_optimizer(net), "%s", gd_error_message());
    CHECK(gd_history_value(h, "loss", 1) < gd_history_value(h, "loss", 0));
}

/* Compares with groups of batches by hand: the loss of a group is the mean of its batches'
 * losses. */
CLEAN_TEST(accumulated_batches_give_the_step_of_their_mean_loss) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *hand = make_net(), *net = gd_module_clone(hand);
    gd_optimizer *sgd = gd_optim_sgd(gd_module_parameters(hand), .lr = 0.1);
    /* 60 samples: batches of 13, 13, 13 | 13, 8 */
    static const int groups[2][4] = {{0, 13, 26, -1}, {39, 52, -1}};
    for (int g = 0; g < 2; g++) {
        const int count = g ? 2 : 3;
        gd_optimizer_zero_grad(sgd);
        for (int i = 0; i < count; i++) {
            const int from = groups[g][i], n = SAMPLES - from < 13 ? SAMPLES - from : 13;
            gd_tensor *loss = gd_cross_entropy(gd_module_forward(hand, gd_narrow(x, 0, from, n)),
                                               gd_narrow(y, 0, from, n));
            gd_backward(gd_mul(loss, gd_scalar(1.0 / count)));
        }
        gd_optimizer_step(sgd);
    }
    for (int jit = 0; jit < 2; jit++) {
        gd_module *own = gd_module_clone(net);
        gd_compile(own, .optimizer = "sgd lr=0.1", .loss = "cross_entropy", .accumulate = 3);
        gd_fit(own, gd_list(x, y), .batch = 13, .shuffle = false, .jit = jit, QUIET);
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        CHECK_SAYING(largest_difference(own, hand) < 1e-6, "jit %d: differs by %g", jit,
                     largest_difference(own, hand));
        CHECK(!gd_tensor_grad(gd_module_parameters(own).at[0]));
    }
}

/* Mixed precision gives nearly the same loss; parameters stay f32, and f16 has a loss scale. */
CLEAN_TEST(nets_train_in_half_precision) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    double loss[3];
    for (int i = 0; i < 3; i++) {
        gd_module *net = make_net();
        CHECK(gd_compile(net, .optimizer = "adam lr=0.02", .schedule = "cosine steps=100",
                         .loss = "cross_entropy", .metrics = "accuracy", .clip_norm = 1,
                         .accumulate = 2,
                         .precision = ((const char *[]){"f32", "bf16", "f16"})[i]) == GD_OK);
        gd_history *h = gd_fit(net, gd_list(x, y), .epochs = 10, .batch = 16,
                               .validation_tensors = gd_list(x, y), QUIET);
        CHECK_SAYING(h, "%s", gd_error_message());
        loss[i] = gd_history_last(h, "val_loss");
        CHECK(gd_tensor_dtype(gd_module_parameters(net).at[0]) == GD_F32);
        CHECK(fabs(gd_history_last(gd_evaluate(net, gd_list(x, y)), "loss") - loss[i]) < 1e-6);
        CHECK(!gd_failed() && gd_tensor_dim(gd_predict(net, gd_list(x)), 0) == SAMPLES);
    }
    CHECK_SAYING(loss[1] != loss[0] && fabs(loss[1] - loss[0]) < 0.05, "bf16: %g, f32: %g", loss[1],
                 loss[0]);
    CHECK_SAYING(loss[2] != loss[0] && fabs(loss[2] - loss[0]) < 0.02, "f16: %g, f32: %g", loss[2],
                 loss[0]);
}

/* Batches, class weights and sums are moved to the device of the net. */
CLEAN_TEST(nets_train_on_their_device) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_device *device = gd_test_device();
    gd_module *late = gd_nn_linear(GD_ANY, CLASSES); /* built on the device */
    CHECK(gd_module_to(late, gd_device_name(device), GD_DTYPE_NONE) == GD_OK);
    gd_compile(late, .optimizer = "sgd", .loss = "cross_entropy");
    CHECK_SAYING(gd_fit(late, gd_list(x, y), QUIET), "%s", gd_error_message());
    CHECK(gd_tensor_device(gd_module_parameters(late).at[0]) == device);
    gd_module *there = make_net(), *here = gd_module_clone(there);
    CHECK(gd_module_to(there, gd_device_name(device), GD_DTYPE_NONE) == GD_OK);
    gd_tensor *w = gd_from_array(gd_dims(CLASSES), GD_F32, ((float[]){1, 2, 3}));
    double loss[2];
    for (int i = 0; i < 2; i++) {
        gd_module *net = i ? there : here;
        gd_compile(net, .optimizer = "adam lr=0.02", .schedule = "cosine steps=100",
                   .loss = "cross_entropy", .metrics = "accuracy", .clip_norm = 1, .accumulate = 2);
        gd_history *h = gd_fit(net, gd_list(x, y), .epochs = 2, .batch = 16, .class_weights = w,
                               .validation_tensors = gd_list(x, y), QUIET,
                               .callbacks = gd_callbacks(gd_stop_on_nan()));
        CHECK_SAYING(h, "%s", gd_error_message());
        loss[i] = gd_history_last(h, "val_loss");
        gd_tensor *out = gd_predict(net, gd_list(x));
        CHECK_SAYING(!gd_failed() && gd_tensor_device(out) == (i ? device : gd_device_get("cpu")),
                     "%s", gd_error_message());
    }
    CHECK_SAYING(fabs(loss[1] - loss[0]) < 1e-5, "%g %g", loss[1], loss[0]);
}

/* --- weights ---------------------------------------------------------------------------------- */

CLEAN_TEST(class_weights_are_those_of_the_loss) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *hand = make_net(), *net = gd_module_clone(hand);
    gd_tensor *w = gd_from_array(gd_dims(CLASSES), GD_F32, ((float[]){1, 5, 0.2f}));
    gd_optimizer *sgd = gd_optim_sgd(gd_module_parameters(hand), .lr = 0.1);
    gd_tensor *loss = gd_cross_entropy(gd_module_forward(hand, x), y, .weight = w);
    gd_backward(loss);
    gd_optimizer_step(sgd);
    gd_compile(net, .optimizer = "sgd lr=0.1", .loss = "cross_entropy", .metrics = "accuracy");
    gd_history *h =
        gd_fit(net, gd_list(x, y), .batch = SAMPLES, .shuffle = false, .class_weights = w, QUIET);
    CHECK_SAYING(h, "%s", gd_error_message());
    CHECK_SAYING(largest_difference(net, hand) < 1e-6, "differs by %g",
                 largest_difference(net, hand));
    CHECK(fabs(gd_history_last(h, "loss") - gd_item(loss)) < 1e-5);
    gd_compile(net, .optimizer = "sgd", .loss_function = half_loss);
    CHECK(!gd_fit(net, gd_list(x, y), .class_weights = w, QUIET) && says("reduction"));
}

/* Samples of weight 0 do not count; equal weights change nothing. */
CLEAN_TEST(sample_weights_come_from_the_loader) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    const int64_t half = SAMPLES / 2;
    gd_tensor *w = gd_cat(gd_list(gd_full(gd_dims(half), 2), gd_zeros(gd_dims(half))));
    gd_module *part = make_net(), *net = gd_module_clone(part);
    gd_compile(part, .optimizer = "sgd lr=0.1", .loss = "cross_entropy", .metrics = "accuracy");
    gd_compile(net, .optimizer = "sgd lr=0.1", .loss = "cross_entropy", .metrics = "accuracy");
    gd_history *a = gd_fit(part, gd_list(gd_narrow(x, 0, 0, half), gd_narrow(y, 0, 0, half)),
                           .batch = half, .shuffle = false, QUIET);
    gd_loader *loader = gd_loader_new(gd_dataset_tensors(x, y, w), .batch = SAMPLES, .weights = 1);
    gd_history *b = gd_fit(net, loader, QUIET);
    CHECK_SAYING(a && b, "%s", gd_error_message());
    CHECK_SAYING(largest_difference(net, part) < 1e-6, "differs by %g",
                 largest_difference(net, part));
    CHECK(fabs(gd_history_last(a, "loss") - gd_history_last(b, "loss")) < 1e-6);
    CHECK(fabs(gd_history_last(a, "accuracy") - gd_history_last(b, "accuracy")) < 1e-12);
    gd_history *e = gd_evaluate(net, loader);
    CHECK_SAYING(
        fabs(gd_history_last(e, "loss") -
             gd_history_last(
                 gd_evaluate(net, gd_list(gd_narrow(x, 0, 0, half), gd_narrow(y, 0, 0, half)),
                             .batch = half),
                 "loss")) < 1e-6,
        "%s", gd_error_message());
}

/* --- validation, evaluation, prediction ------------------------------------------------------- */

CLEAN_TEST(validation_runs_in_eval_mode_and_restores_modes) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_dropout_net();
    gd_module *frozen = gd_module_at(net, 1);
    gd_compile(net, .optimizer = "sgd lr=0.05", .loss = "cross_entropy", .metrics = "accuracy");
    gd_module_eval(frozen); /* stays in eval mode during training */
    gd_history *h =
        gd_fit(net, gd_list(x, y), .epochs = 2, .validation_tensors = gd_list(x, y), QUIET);
    CHECK_SAYING(h, "%s", gd_error_message());
    CHECK(gd_module_is_training(net) && !gd_module_is_training(frozen));
    gd_module_eval(net);
    gd_tensor *loss = gd_cross_entropy(gd_module_forward(net, x), y);
    CHECK_SAYING(fabs(gd_history_last(h, "val_loss") - gd_item(loss)) < 1e-5, "%g %g",
                 gd_history_last(h, "val_loss"), gd_item(loss));
    gd_history *e = gd_evaluate(net, gd_list(x, y), .batch = 7);
    CHECK(fabs(gd_history_last(e, "loss") - gd_item(loss)) < 1e-5);
    CHECK(gd_history_last(e, "accuracy") == gd_history_last(h, "val_accuracy"));
    CHECK(gd_metric_number(gd_compiled_metric(net, 0)) == gd_history_last(e, "accuracy"));
    CHECK(!gd_module_is_training(net));
    CHECK(gd_fit(net, gd_list(x, y), QUIET) && !gd_module_is_training(net));
}

CLEAN_TEST(a_validation_split_holds_out_samples) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    double first = 0;
    for (int i = 0; i < 2; i++) {
        gd_module *net = make_net();
        gd_compile(net, .optimizer = "sgd lr=0.1", .loss = "cross_entropy");
        gd_history *h =
            gd_fit(net, gd_list(x, y), .epochs = 2, .validation_split = 0.25, .seed = 4, QUIET);
        CHECK_SAYING(h && isfinite(gd_history_last(h, "val_loss")), "%s", gd_error_message());
        if (i) CHECK(gd_history_last(h, "val_loss") == first);
        first = gd_history_last(h, "val_loss");
    }
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "sgd", .loss = "cross_entropy");
    CHECK(!gd_fit(net, gd_list(x, y), .validation_split = 0.001, QUIET) && says("leaves"));
    gd_clear_error();
    CHECK(!gd_fit(net, gd_loader_new(gd_dataset_tensors(x, y)), .validation_split = 0.1, QUIET) &&
          says("gd_dataset_random_split"));
}

CLEAN_TEST(validation_is_a_loader_or_a_dataset) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_dataset *data = gd_dataset_tensors(x, y);
    double loss[3];
    for (int i = 0; i < 3; i++) {
        gd_seed(3);
        gd_module *net = make_net();
        gd_compile(net, .optimizer = "sgd lr=0.1", .loss = "cross_entropy");
        gd_loader *loader = gd_loader_new(data);
        gd_history *h = i == 0   ? gd_fit(net, data, .validation = data, QUIET)
                        : i == 1 ? gd_fit(net, data, .validation = loader, QUIET)
                                 : gd_fit(net, data, .validation_tensors = gd_list(x, y), QUIET);
        CHECK_SAYING(h, "%s", gd_error_message());
        loss[i] = gd_history_last(h, "val_loss");
    }
    CHECK(isfinite(loss[0]) && loss[0] == loss[1] && loss[1] == loss[2]);
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "sgd", .loss = "cross_entropy");
    CHECK(!gd_fit(net, data, .validation = net, QUIET) && says(".validation is a module"));
    gd_clear_error();
    CHECK(!gd_fit(net, data, .validation = x, QUIET) && says(".validation is a tensor") &&
          says(".validation_tensors"));
    gd_clear_error();
    CHECK(!gd_fit(net, data, .validation = data, .validation_split = 0.5, QUIET) &&
          says("2 sources of validation"));
}

CLEAN_TEST(predictions_equal_the_outputs_of_the_net) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_dropout_net();
    gd_module_eval(net);
    gd_tensor *expected = gd_module_forward(net, x);
    gd_module_train(net);
    for (int jit = 0; jit < 2; jit++) {
        gd_tensor *a = gd_predict(net, gd_list(x), .batch = 7, .jit = jit);
        gd_tensor *b =
            gd_predict(net, gd_loader_new(gd_dataset_tensors(x, y), .batch = 16), .jit = jit);
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
        CHECK(tensors_distance(a, expected) < 1e-5 && tensors_distance(b, expected) < 1e-5);
        CHECK(gd_tensor_dim(a, 0) == SAMPLES && !gd_tensor_requires_grad(a));
    }
    CHECK(gd_module_is_training(net));
    gd_predict(net, gd_list(gd_zeros(gd_dims(4, FEATURES + 1))));
    CHECK(gd_failed() && gd_module_is_training(net));
}

/* --- steps ------------------------------------------------------------------------------------ */

CLEAN_TEST(max_steps_ends_in_the_middle_of_an_epoch) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "sgd lr=0.1", .loss = "cross_entropy");
    int batches = 0;
    gd_callback *counter = gd_callback_from(&batches, .batch_end = count_batch);
    gd_history *h =
        gd_fit(net, gd_list(x, y), .batch = 10, .max_steps = 15, .callbacks = gd_callbacks(counter),
               .validation_tensors = gd_list(x, y), QUIET);
    CHECK_SAYING(batches == 15 && gd_history_rows(h) == 3, "%d batches, %lld rows", batches,
                 (long long)gd_history_rows(h));
    CHECK(isfinite(gd_history_last(h, "val_loss")));
    batches = 0;
    gd_fit(net, gd_list(x, y), .batch = 10, .max_steps = 15, .epochs = 2,
           .callbacks = gd_callbacks(counter), QUIET);
    CHECK(batches == 12);
}

typedef struct epochs_seen {
    int64_t ends, batches; /* of all epochs */
} epochs_seen;

static gd_status count_epoch(gd_event *event, void *self) {
    epochs_seen *s = self;
    CHECK(gd_history_rows(event->history) == ++s->ends);
    s->batches += event->batches;
    return GD_OK;
}

/* 60 samples, batches of 10: 6 in an epoch of the loader. */
CLEAN_TEST(epochs_of_steps_run_on_across_the_end_of_the_data) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net(), *plain = make_net();
    epochs_seen seen = {0, 0};
    gd_compile(net, .optimizer = "adam lr=0.01", .loss = "cross_entropy", .accumulate = 2);
    gd_compile(plain, .optimizer = "adam lr=0.01", .loss = "cross_entropy", .accumulate = 2);
    gd_history *h =
        gd_fit(net, gd_list(x, y), .batch = 10, .steps_per_epoch = 8, .epochs = 3, .seed = 3,
               .validation_tensors = gd_list(x, y), QUIET,
               .callbacks = gd_callbacks(gd_callback_from(&seen, .epoch_end = count_epoch)));
    CHECK_SAYING(h && gd_history_rows(h) == 3 && seen.ends == 3 && seen.batches == 24, "%s",
                 gd_error_message());
    for (int row = 0; row < 3; row++) CHECK(isfinite(gd_history_value(h, "val_loss", row)));
    gd_fit(plain, gd_list(x, y), .batch = 10, .epochs = 4, .seed = 3, QUIET);
    CHECK(largest_difference(net, plain) == 0);
    gd_history *one = gd_fit(net, gd_list(x, y), .batch = 10, .steps_per_epoch = 2, QUIET);
    CHECK(one && gd_history_rows(one) == 1);
    CHECK(!gd_fit(net, gd_list(x, y), .steps_per_epoch = -1, QUIET) &&
          says("steps_per_epoch is -1"));
    gd_clear_error();
}

/* A forward that reads values cannot be traced. */
static gd_tensors reads_values(gd_tensors in, void *self) {
    gd_module **layer = self;
    gd_tensor *y = gd_module_forward(*layer, in.at[0]);
    return gd_listed(gd_item(gd_max(y)) > 1e9 ? gd_neg(y) : y);
}

CLEAN_TEST(a_net_that_reads_values_trains_eagerly) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *inner = make_dropout_net(), *plain = gd_module_clone(inner);
    gd_module *net = gd_module_new(reads_values, sizeof(gd_module *));
    gd_module **self = gd_module_self(net);
    GD_CHILD(net, *self, inner);
    for (int i = 0; i < 2; i++) {
        gd_module *m = i ? plain : net;
        gd_compile(m, .optimizer = "adam", .loss = "cross_entropy", .metrics = "accuracy");
        capture_log(GD_LOG_DEBUG);
        gd_seed(5);
        gd_history *h =
            gd_fit(m, gd_list(x, y), .epochs = 2, .shuffle = false, .jit = i == 0, QUIET);
        end_log_capture();
        CHECK_SAYING(h, "%s", gd_error_message());
        if (i == 0)
            CHECK_SAYING(strstr(captured.text, "eagerly") && strstr(captured.text, "gd_fit"), "%s",
                         captured.text);
    }
    CHECK_SAYING(largest_difference(inner, plain) == 0, "%g", largest_difference(inner, plain));
}

CLEAN_TEST(a_failure_names_the_layer_and_restores_modes) {
    GD_SCOPE;
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "adam", .loss = "cross_entropy");
    gd_module_eval(net);
    CHECK(!gd_fit(net,
                  gd_list(gd_ones(gd_dims(8, FEATURES + 1)), gd_zeros(gd_dims(8), .dtype = GD_I64)),
                  QUIET));
    CHECK_SAYING(says("0 (linear)"), "%s", gd_error_message());
    CHECK(!gd_module_is_training(net));
    gd_clear_error();
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_tensor *wrong = gd_full(gd_dims(SAMPLES), 7, .dtype = GD_I64);
    CHECK(!gd_fit(net, gd_list(x, wrong), QUIET));
    CHECK_SAYING(says("7"), "%s", gd_error_message());
}

/* --- text models ------------------------------------------------------------------------------ */

static gd_tensor *position_loss(gd_tensors outputs, gd_tensors targets, void *user) {
    (void)user;
    return gd_cross_entropy(gd_flatten(outputs.at[0], .start_axis = 0, .end_axis = 1),
                            gd_flatten(targets.at[0]));
}

CLEAN_TEST(a_text_model_trains_with_a_loss_by_name) {
    GD_SCOPE;
    enum { TOKENS = 7, LENGTH = 5 };
    gd_tensor *text =
        gd_remainder(gd_arange(0, 40 * LENGTH, .dtype = GD_I64), gd_scalar_int(TOKENS));
    gd_tensor *tokens = gd_reshape(text, gd_dims(40, LENGTH));
    gd_module *net = gd_nn_sequential(gd_nn_embedding(TOKENS, 8), gd_nn_linear(8, TOKENS));
    gd_module *other = gd_module_clone(net);
    gd_compile(net, .loss = "cross_entropy axis=-1",
               .metrics = "accuracy axis=-1, perplexity axis=-1");
    gd_compile(other, .loss_function = position_loss);
    gd_history *h = gd_fit(net, gd_list(tokens, tokens), .epochs = 3, QUIET);
    gd_fit(other, gd_list(tokens, tokens), .epochs = 3, QUIET);
    CHECK_SAYING(h && largest_difference(net, other) == 0, "%s", gd_error_message());
    CHECK(gd_fit(net, gd_list(tokens, tokens), .class_weights = gd_ones(gd_dims(TOKENS)), QUIET));
    CHECK(!gd_fit(net, gd_list(tokens, tokens), .class_weights = gd_ones(gd_dims(LENGTH)), QUIET));
    CHECK_SAYING(says("class_weights has 5 weights, but the loss cross_entropy has 7 classes"),
                 "%s", gd_error_message());
}

/* --- schedules over the entire run ------------------------------------------------------------ */

CLEAN_TEST(a_schedule_without_steps_ends_with_the_run) {
    static const struct {
        const char *schedule;
        int epochs, accumulate;
        int64_t max_steps;
    } rows[] = {{"cosine", 4, 1, 0},          {"cosine warmup=3", 2, 1, 0}, {"cosine", 3, 2, 0},
                {"cosine warmup=2", 0, 1, 7}, {"cosine", 9, 4, 13},         {"cosine", 2, 3, 1000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        GD_SCOPE;
        gd_tensor *x = gd_randn(gd_dims(50, 3)), *y = gd_randn(gd_dims(50, 1));
        gd_module *net = gd_nn_linear(3, 1);
        CHECK(gd_compile(net, .optimizer = "sgd lr=0.1", .schedule = rows[i].schedule,
                         .loss = "mse", .accumulate = rows[i].accumulate) == GD_OK);
        CHECK(gd_compiled_schedule(net) == NULL);
        gd_fit(net, gd_list(x, y), .epochs = rows[i].epochs, .max_steps = rows[i].max_steps,
               .batch = 10, .progress = GD_PROGRESS_NONE);
        const double lr = gd_item(gd_optimizer_lr(gd_compiled_optimizer(net)));
        CHECK_SAYING(!gd_failed() && lr < 1e-9, "row %d: the rate ends at %g", (int)i, lr);
    }
}

TEST_MAIN
