/* test_fit_mistakes.c - what would train nothing, or something else, fails with a message in terms
 * of the program's own net, loss and data. */
#include <math.h>
#include <string.h>

#include "capture.h"
#include "clean_test.h"
#include "compare.h"
#include "fit_things.h"
#include "gradus/gradus.h"

/* --- optimizers of other nets ----------------------------------------------------------------- */

CLEAN_TEST(an_optimizer_of_another_net_is_refused) {
    GD_SCOPE;
    gd_module *net = gd_nn_linear(4, 3), *other = gd_nn_linear(4, 3),
              *later = gd_nn_linear(GD_ANY, 3);
    CHECK(gd_compile(net, .optimizer_object = gd_optim_sgd(gd_module_parameters(other)),
                     .loss = "mse") != GD_OK);
    CHECK_SAYING(says("gd_compile: parameter 0 of the optimizer, f32[3,4], is not a parameter of "
                      "the net") &&
                     says("gd_optim_sgd_of"),
                 "%s", gd_error_message());
    gd_clear_error();
    gd_tensor *extra = gd_requires_grad(gd_ones(gd_dims(7)));
    gd_optimizer *mixed = gd_optim_adam(gd_module_parameters(net));
    gd_optimizer_add(mixed, gd_list(extra));
    CHECK(gd_compile(net, .optimizer_object = mixed, .loss = "mse") != GD_OK);
    CHECK_SAYING(says("parameter 2 of the optimizer, f32[7],"), "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_compile(net, .optimizer_object = gd_optim_adam_of(other), .loss = "mse") != GD_OK);
    CHECK_SAYING(says("parameter 0 of the optimizer, 'weight' of its module f32[3,4],"), "%s",
                 gd_error_message());
    gd_clear_error();
    CHECK(gd_compile(net, .optimizer_object = gd_optim_adam_of(later), .loss = "mse") != GD_OK);
    CHECK_SAYING(says("of another module"), "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_compile(net,
                     .optimizer_object = gd_optim_adam(gd_list(
                         gd_module_tensor(net, "weight"))), /* a part of the net is allowed */
                     .loss = "mse") == GD_OK);
}

/* The list of parameters was right when the net was compiled. */
CLEAN_TEST(an_optimizer_whose_layer_was_replaced_is_refused_by_the_run) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .optimizer_object = gd_optim_sgd(gd_module_parameters(net)),
               .loss = "cross_entropy");
    gd_module_replace(net, "2", gd_nn_linear(8, CLASSES));
    CHECK(!gd_fit(net, gd_list(x, y), QUIET));
    CHECK_SAYING(says("parameter 2 of the optimizer, f32[3,8], is not"), "%s", gd_error_message());
    gd_clear_error();
    gd_compile(net, .optimizer = "sgd lr=0.1", .loss = "cross_entropy");
    gd_module *head = gd_nn_linear(8, CLASSES);
    gd_module_replace(net, "2", head);
    gd_tensor *before = gd_clone(gd_module_tensor(head, "weight"));
    CHECK(gd_fit(net, gd_list(x, y), QUIET)); /* its own optimizer takes in the new head */
    CHECK(!tensors_same_bits(before, gd_module_tensor(head, "weight")));
}

static gd_status unfreeze(gd_event *event, void *net) {
    (void)event;
    return gd_module_unfreeze((gd_module *)net);
}

CLEAN_TEST(an_optimizer_of_frozen_parameters_is_refused) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    for (int jit = 0; jit < 2; jit++) {
        gd_module *net = make_net(), *head = gd_module_find(net, "2");
        gd_compile(net, .optimizer_object = gd_optim_sgd(gd_module_parameters(head)),
                   .loss = "cross_entropy");
        gd_module_freeze(head); /* the other layers have gradients, and no optimizer */
        CHECK(!gd_fit(net, gd_list(x, y), .jit = jit, QUIET));
        CHECK_SAYING(says("gd_fit: all parameters of the optimizer are frozen"), "%s",
                     gd_error_message());
        gd_clear_error();
        CHECK(gd_fit(net, gd_list(x, y), .jit = jit, QUIET, /* layers may thaw when a run begins */
                     .callbacks = gd_callbacks(gd_callback_from(head, .epoch_begin = unfreeze))));
        gd_compile(net, .optimizer = "sgd lr=0.1", .loss = "cross_entropy");
        gd_module_freeze(net);
        CHECK(!gd_fit(net, gd_list(x, y), .jit = jit, QUIET));
        CHECK_SAYING(says("gd_fit: all parameters of the optimizer are frozen"), "%s",
                     gd_error_message());
        gd_clear_error();
        gd_module_unfreeze(head); /* a part is enough */
        CHECK_SAYING(gd_fit(net, gd_list(x, y), .jit = jit, QUIET), "%s", gd_error_message());
    }
}

/* --- wrong data ------------------------------------------------------------------------------- */

static gd_tensor *own_loss(gd_tensors outputs, gd_tensors targets, void *user) {
    (void)user;
    return gd_cross_entropy(outputs.at[0], targets.at[0]);
}

/* Sample 57 is of class 9. Its place in a shuffled batch tells nothing. */
CLEAN_TEST(a_wrong_class_is_reported_with_its_sample) {
    GD_SCOPE;
    int64_t classes[100];
    for (int i = 0; i < 100; i++) classes[i] = i == 57 ? 9 : i % 3;
    gd_tensor *x = gd_randn(gd_dims(100, 4)), *y = gd_from_array(gd_dims(100), GD_I64, classes);
    gd_module *net = gd_nn_linear(4, 3);
    for (int own = 0; own < 2; own++)
        for (int jit = 0; jit < 2; jit++) {
            if (own) gd_compile(net, .loss_function = own_loss);
            else gd_compile(net, .loss = "cross_entropy");
            CHECK(!gd_fit(net, gd_list(x, y), .batch = 10, .jit = jit, QUIET));
            CHECK_SAYING(says("gd_fit: sample 57, target ") && says(" is class 9") &&
                             says(own ? " of its batch: the loss function: cross_entropy"
                                      : " of its batch: the loss cross_entropy: "),
                         "%s", gd_error_message());
            gd_clear_error();
        }
    CHECK(!gd_evaluate(net, gd_dataset_tensors(x, y)));
    CHECK_SAYING(says("gd_evaluate: sample 57, target 25 of its batch: "), "%s",
                 gd_error_message());
    gd_clear_error();
}

CLEAN_TEST(wrong_inputs_are_reported_with_the_call_and_the_layer) {
    GD_SCOPE;
    gd_module *net = gd_nn_sequential(gd_nn_embedding(5, 4), gd_nn_flatten(), gd_nn_linear(8, 3));
    gd_tensor *tokens = gd_full(gd_dims(10, 2), 7, .dtype = GD_I64),
              *y = gd_zeros(gd_dims(10), .dtype = GD_I64);
    gd_compile(net, .loss = "cross_entropy");
    for (int jit = 0; jit < 2; jit++) {
        CHECK(!gd_fit(net, gd_list(tokens, y), .jit = jit, QUIET));
        CHECK_SAYING(says("gd_fit: 0 (embedding): ") && says("index 7"), "%s", gd_error_message());
        gd_clear_error();
        CHECK(!gd_fit(net, gd_list(gd_randn(gd_dims(10, 2)), y), .jit = jit, QUIET));
        CHECK_SAYING(says("gd_fit: 0 (embedding): ") && says("must be an integer"), "%s",
                     gd_error_message());
        gd_clear_error();
    }
}

static gd_tensor *negative_nan_loss(gd_tensors outputs, gd_tensors targets, void *user) {
    (void)user;
    return gd_add(gd_mse_loss(outputs.at[0], targets.at[0]), gd_neg(gd_scalar(NAN)));
}

CLEAN_TEST(a_loss_that_is_not_finite_is_logged_wherever_it_is_computed) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(20, 3)), *y = gd_randn(gd_dims(20, 2)),
              *bad = gd_full(gd_dims(20, 3), NAN);
    gd_module *net = gd_nn_linear(3, 2);
    gd_compile(net, .loss = "mse", .optimizer = "sgd lr=0.01");
    capture_log(GD_LOG_WARNING);
    CHECK(gd_fit(net, gd_list(x, y), .validation = gd_dataset_tensors(bad, y), .epochs = 3, QUIET));
    CHECK_SAYING(strstr(captured.text, "gd_fit: validation: epoch 1: the loss is nan"), "%s",
                 captured.text);
    CHECK(captured.warnings == 1); /* once in a run */
    capture_log(GD_LOG_WARNING);
    CHECK(gd_evaluate(net, gd_list(bad, y)));
    CHECK_SAYING(strstr(captured.text, "gd_evaluate: the loss is nan"), "%s", captured.text);
    gd_compile(net, .loss_function = negative_nan_loss, .optimizer = "sgd lr=0.01");
    capture_log(GD_LOG_WARNING);
    CHECK(gd_fit(net, gd_list(x, y), QUIET));
    CHECK_SAYING(strstr(captured.text, "the loss is nan") && !strstr(captured.text, "-nan"), "%s",
                 captured.text);
    end_log_capture();
}

static gd_tensor *net_step(gd_module *net, gd_tensors batch, void *user) {
    (void)user;
    gd_tensor *loss = gd_cross_entropy(gd_module_forward(net, batch.at[0]), batch.at[1]);
    gd_backward(loss);
    return loss;
}

/* --- callbacks that change what is trained ---------------------------------------------------- */

static gd_status replace_head(gd_event *event, void *user) {
    (void)event;
    return gd_module_replace(user, "2", gd_nn_linear(8, CLASSES));
}
static gd_status compile_again(gd_event *event, void *user) {
    (void)event;
    return gd_compile((gd_module *)user, .optimizer = "sgd lr=0", .loss = "mse");
}
static gd_status freeze_first(gd_event *event, void *user) {
    (void)event;
    gd_module_freeze(gd_module_find(user, "0"));
    return GD_OK;
}

/* The optimizer of a list would never train the new layer. */
CLEAN_TEST(a_callback_that_replaces_a_layer_of_a_list_is_refused) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    for (int own = 0; own < 2; own++)
        for (int batch = 0; batch < 2; batch++) {
            gd_module *net = make_net();
            if (own) gd_compile(net, .optimizer = "sgd lr=0.1", .loss = "cross_entropy");
            else
                gd_compile(net, .optimizer_object = gd_optim_sgd(gd_module_parameters(net)),
                           .loss = "cross_entropy");
            gd_callback *replace = batch ? gd_callback_from(net, .batch_end = replace_head)
                                         : gd_callback_from(net, .epoch_end = replace_head);
            gd_history *h =
                gd_fit(net, gd_list(x, y), .epochs = 2, .callbacks = gd_callbacks(replace), QUIET);
            CHECK_SAYING(own ? h != NULL
                             : !h && says("gd_fit: after a callback: parameter 2 of the "
                                          "optimizer, f32[3,8], is not a parameter of the net"),
                         "%s", gd_error_message());
            gd_clear_error();
        }
    gd_module *net = make_net(); /* other changes are allowed */
    gd_compile(net, .optimizer_object = gd_optim_sgd(gd_module_parameters(net)),
               .loss = "cross_entropy");
    gd_callback *freeze = gd_callback_from(net, .epoch_end = freeze_first);
    CHECK_SAYING(gd_fit(net, gd_list(x, y), .epochs = 2, .callbacks = gd_callbacks(freeze), QUIET),
                 "%s", gd_error_message());
}

CLEAN_TEST(a_callback_that_compiles_the_net_is_refused) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .loss = "cross_entropy");
    gd_callback *again = gd_callback_from(net, .epoch_end = compile_again);
    CHECK(!gd_fit(net, gd_list(x, y), .callbacks = gd_callbacks(again), QUIET));
    CHECK_SAYING(says("gd_compile: a gd_fit of this net is running") &&
                     says("compile the net before or after"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_compile(net, .loss = "cross_entropy") == GD_OK && gd_fit(net, gd_list(x, y), QUIET));
}

/* --- class weights ---------------------------------------------------------------------------- */

CLEAN_TEST(class_weights_of_another_count_than_classes_are_refused) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .loss = "cross_entropy");
    for (int jit = 0; jit < 2; jit++)
        for (int count = 2; count <= 5; count++) {
            gd_history *h = gd_fit(net, gd_list(x, y), .class_weights = gd_ones(gd_dims(count)),
                                   .jit = jit, QUIET);
            char text[100];
            snprintf(text, sizeof text,
                     "gd_fit: class_weights has %d weights, but the loss cross_entropy has 3 "
                     "classes",
                     count);
            CHECK_SAYING(count == CLASSES ? h != NULL : !h && says(text), "%s", gd_error_message());
            gd_clear_error();
        }
}

/* The classes of bce are 0 and 1, however many outputs the net has. */
CLEAN_TEST(class_weights_of_bce_are_two) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_tensor *targets = gd_one_hot(y, CLASSES);
    gd_module *net = make_net();
    gd_compile(net, .loss = "bce_with_logits");
    for (int count = 1; count <= CLASSES; count++) {
        gd_history *h = gd_fit(net, gd_list(x, gd_cast(targets, GD_F32)),
                               .class_weights = gd_ones(gd_dims(count)), QUIET);
        CHECK_SAYING(count == 2 ? h != NULL
                                : !h && says("but the loss bce_with_logits has 2 classes, 0 and 1"),
                     "%s", gd_error_message());
        gd_clear_error();
    }
}

CLEAN_TEST(class_weights_of_a_loss_without_classes_are_refused) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(4, 3)), *y = gd_full(gd_dims(4, 2), -1.5);
    static const char *const losses[] = {"mse", "l1", "huber", "smooth_l1"};
    for (int i = 0; i < 8; i++) {
        gd_module *net = gd_nn_linear(3, 2);
        gd_compile(net, .loss = losses[i / 2]);
        CHECK(
            !gd_fit(net, gd_list(x, y), .class_weights = gd_ones(gd_dims(2)), .jit = i % 2, QUIET));
        CHECK_SAYING(says("gd_fit: class_weights need targets that are classes, and those of the "
                          "loss") &&
                         says(losses[i / 2]) && says("are numbers: f32[4,2]"),
                     "%s", gd_error_message());
        gd_clear_error();
    }
}

/* The loss of a .step is the program's own, so nothing would be multiplied. */
CLEAN_TEST(class_weights_with_a_step_are_refused) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .loss = "cross_entropy");
    CHECK(!gd_fit(net, gd_list(x, y), .step = net_step, .class_weights = gd_ones(gd_dims(CLASSES)),
                  QUIET));
    CHECK_SAYING(says("gd_fit: .class_weights are for the .loss of gd_compile; the .step computes "
                      "its own loss"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK_SAYING(gd_fit(net, gd_list(x, y), .step = net_step, QUIET), "%s", gd_error_message());
}

/* --- arrays for lists ------------------------------------------------------------------------- */

/* In C an array initializes the pointer of a list, and its length is lost. */
CLEAN_TEST(an_array_for_a_list_of_options_is_refused) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_callback *callbacks[] = {gd_stop_on_nan()};
    gd_metric *metrics[] = {gd_metric_new("accuracy", "")};
    gd_tensor *tensors[] = {x, y};
    CHECK(gd_compile(net, .loss = "cross_entropy", .metric_objects = metrics) != GD_OK);
    CHECK_SAYING(says("gd_compile: .metric_objects is an array without a count; write "
                      "gd_metrics(a, b), or"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_compile(net, .loss = "cross_entropy",
                     .metric_objects = ((gd_metric_list){metrics, 0})) == GD_OK);
    CHECK(!gd_fit(net, gd_list(x, y), .callbacks = callbacks, QUIET));
    CHECK_SAYING(says("gd_fit: .callbacks is an array without a count; write gd_callbacks(a, b), "
                      "or ((gd_callback_list){array, 2})"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(!gd_fit(net, gd_list(x, y), .callbacks = ((gd_callback_list){NULL, 2}), QUIET));
    CHECK_SAYING(says(".callbacks is NULL with a count of 2"), "%s", gd_error_message());
    gd_clear_error();
    CHECK(!gd_fit(net, gd_list(x, y), .validation_tensors = tensors, QUIET));
    CHECK_SAYING(says("gd_fit: .validation_tensors is an array without a count; write gd_list(x, "
                      "y), or gd_list_of(array, 2)"),
                 "%s", gd_error_message());
    gd_clear_error();
    /* lists that a loop fills may be empty */
    CHECK_SAYING(gd_fit(net, gd_list(x, y), .callbacks = ((gd_callback_list){callbacks, 0}),
                        .validation_tensors = gd_list_of(tensors, 0), QUIET),
                 "%s", gd_error_message());
    CHECK_SAYING(gd_fit(net, gd_list(x, y), .callbacks = ((gd_callback_list){callbacks, 1}),
                        .validation_tensors = gd_list_of(tensors, 2), QUIET),
                 "%s", gd_error_message());
}

/* .validation takes any pointer. */
CLEAN_TEST(validation_that_is_no_object_is_refused) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .loss = "cross_entropy");
    gd_tensor *tensors[] = {x, y};
    static const char text[40] = "validation.csv";
    static const long numbers[4] = {1, 2, 3, 4};
    const void *const wrong[] = {tensors, gd_list(x, y).at, gd_listed(x, y).at, text, numbers};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(!gd_fit(net, gd_list(x, y), .validation = wrong[i], QUIET));
        CHECK_SAYING(says("gd_fit: .validation is neither a loader nor a dataset") &&
                         says(".validation_tensors = gd_list(x, y)"),
                     "%s", gd_error_message());
        gd_clear_error();
    }
    CHECK(!gd_fit(net, gd_list(x, y), .validation = gd_compiled_optimizer(net), QUIET));
    CHECK_SAYING(says("gd_fit: .validation is an optimizer; it takes a loader"), "%s",
                 gd_error_message());
    gd_clear_error();
    CHECK(!gd_fit(net, gd_list(x, y), .validation = x, QUIET));
    CHECK_SAYING(says("gd_fit: .validation is a tensor;"), "%s", gd_error_message());
}

/* --- validation ------------------------------------------------------------------------------- */

static int64_t four(void *self) {
    (void)self;
    return 4;
}
static gd_tensors broken_sample(int64_t index, gd_random *random, void *self) {
    (void)random;
    (void)self;
    gd_tensor *x = gd_ones(gd_dims(index == 2 ? 3 : FEATURES));
    return gd_listed(gd_add(x, gd_ones(gd_dims(FEATURES))), gd_scalar_int(index % CLASSES));
}

CLEAN_TEST(a_failure_in_validation_says_that_it_is_one) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    const int64_t n = gd_tensor_dim(y, 0);
    gd_dataset *broken = gd_dataset_from(NULL, .count = four, .get = broken_sample);
    for (int i = 0; i < 6; i++) {
        gd_module *net = make_net();
        gd_compile(net, .loss = "cross_entropy", .metrics = "accuracy");
        const int kind = i / 2;
        gd_history *h =
            kind == 0   ? gd_fit(net, gd_list(x, y), .jit = i % 2, QUIET,
                                 .validation_tensors = gd_list(gd_ones(gd_dims(n, 99)), y))
            : kind == 1 ? gd_fit(net, gd_list(x, y), .jit = i % 2, QUIET,
                                 .validation_tensors = gd_list(x, gd_full_like(y, CLASSES)))
                        : gd_fit(net, gd_list(x, y), .jit = i % 2, QUIET, .validation = broken);
        CHECK_SAYING(!h && says("gd_fit: validation: "), "%s", gd_error_message());
        const char *twice = strstr(gd_error_message(), "gd_fit");
        CHECK_SAYING(twice && !strstr(twice + 1, "gd_fit"), "%s", gd_error_message());
        gd_clear_error();
    }
}

CLEAN_TEST(a_net_without_parameters_is_refused_by_the_run) {
    GD_SCOPE;
    gd_module *net = gd_nn_relu();
    gd_compile(net, .loss = "mse");
    CHECK(!gd_fit(net, gd_list(gd_ones(gd_dims(4, 2)), gd_ones(gd_dims(4, 2))), QUIET));
    CHECK_SAYING(says("gd_fit: the net has no parameters to train"), "%s", gd_error_message());
}

/* --- steps without gradients ------------------------------------------------------------------ */

static gd_tensor *forward_only(gd_module *net, gd_tensors batch, void *user) {
    (void)user;
    return gd_cross_entropy(gd_module_forward(net, batch.at[0]), batch.at[1]);
}
static gd_tensor *with_backward(gd_module *net, gd_tensors batch, void *user) {
    gd_tensor *loss = forward_only(net, batch, user);
    gd_backward(loss);
    return loss;
}

CLEAN_TEST(a_step_that_never_calls_backward_is_refused) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    for (int i = 0; i < 4; i++) {
        gd_module *net = make_net();
        gd_compile(net, .optimizer = "sgd lr=0.1", .accumulate = i < 2 ? 1 : 2);
        CHECK(!gd_fit(net, gd_list(x, y), .step = forward_only, .jit = i % 2, QUIET));
        CHECK_SAYING(says("gd_fit: after the .step function no parameter") && says("gd_backward"),
                     "%s", gd_error_message());
        gd_clear_error();
        CHECK(gd_fit(net, gd_list(x, y), .step = with_backward, .jit = i % 2, QUIET));
        gd_compile(net, .optimizer = NULL); /* then the step has its own way to train */
        CHECK(gd_fit(net, gd_list(x, y), .step = forward_only, .jit = i % 2, QUIET));
    }
}

/* --- runs inside runs ------------------------------------------------------------------------- */

typedef struct nested_run {
    gd_module *net;
    gd_tensor *x, *y;
    bool refused;
} nested_run;

static gd_status fit_again(gd_event *event, void *self) {
    nested_run *n = self;
    (void)event;
    gd_history *h = gd_fit(n->net, gd_list(n->x, n->y), QUIET);
    n->refused = !h && says("gd_fit: a gd_fit of this net is running");
    gd_clear_error();
    return GD_OK;
}

CLEAN_TEST(a_run_in_a_callback_of_a_run_of_the_net_is_refused) {
    GD_SCOPE;
    nested_run n = {.net = make_net()};
    make_data(&n.x, &n.y);
    gd_module *other = gd_module_clone(n.net);
    gd_compile(n.net, .loss = "cross_entropy");
    gd_compile(other, .loss = "cross_entropy");
    CHECK(gd_fit(n.net, gd_list(n.x, n.y),
                 .callbacks = gd_callbacks(gd_callback_from(&n, .epoch_end = fit_again)), QUIET));
    CHECK(n.refused);
    CHECK(gd_fit(n.net, gd_list(n.x, n.y), QUIET)); /* after the run it works */
    CHECK(gd_fit(other, gd_list(n.x, n.y),          /* and in that of another net */
                 .callbacks = gd_callbacks(gd_callback_from(&n, .epoch_end = fit_again)), QUIET));
    CHECK(!n.refused && !gd_failed());
    CHECK(!gd_fit(n.net, gd_list(gd_ones(gd_dims(8, 99)), gd_ones(gd_dims(8))), QUIET));
    gd_clear_error();
    CHECK(gd_fit(n.net, gd_list(n.x, n.y), QUIET)); /* also after a run that failed */
}

/* --- the loss and the data -------------------------------------------------------------------- */

CLEAN_TEST(errors_of_a_run_name_the_loss_and_the_data) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .loss = "cross_entropy");
    for (int jit = 0; jit < 2; jit++) {
        CHECK(!gd_fit(net, gd_list(x, gd_add(y, gd_scalar_int(1))), .jit = jit, .shuffle = false,
                      QUIET));
        CHECK_SAYING(says("gd_fit: sample 1, target ") && says(": the loss cross_entropy: ") &&
                         says("is class 3, but classes are 0 to 2") && !says("gd_session_run") &&
                         !says("index_cross_entropy"),
                     "%s", gd_error_message());
        gd_clear_error();
        CHECK(!gd_fit(net, gd_list(x, gd_unsqueeze(y, 1)), .jit = jit, QUIET));
        CHECK_SAYING(says("gd_fit: the loss cross_entropy: ") && says("i64[32,1]"), "%s",
                     gd_error_message());
        gd_clear_error();
        CHECK(!gd_fit(net, gd_list(x), .jit = jit, QUIET));
        CHECK_SAYING(
            says("gd_fit: the loss cross_entropy: it needs a target, and batches have none"), "%s",
            gd_error_message());
        gd_clear_error();
        CHECK(!gd_fit(net, gd_list(x, x, y), .jit = jit, QUIET));
        CHECK_SAYING(says("gd_fit: the net gets 2 of the 3 tensors of a batch, all but the "
                          "targets: "),
                     "%s", gd_error_message());
        gd_clear_error();
        CHECK(gd_tensor_is_error(gd_predict(net, gd_dataset_tensors(x, y), .jit = jit)));
        CHECK_SAYING(says("gd_predict: the net gets all 2 tensors of a batch"), "%s",
                     gd_error_message());
        gd_clear_error();
        CHECK(!gd_evaluate(net, gd_list(x, gd_add(y, gd_scalar_int(1))), .jit = jit));
        CHECK_SAYING(says("gd_evaluate: sample 1, target 1 of its batch: the loss cross_entropy: "),
                     "%s", gd_error_message());
        gd_clear_error();
    }
}

CLEAN_TEST(a_loss_that_is_not_finite_is_logged_once) {
    GD_SCOPE;
    gd_tensor *x, *y;
    make_data(&x, &y);
    gd_module *net = make_net();
    gd_compile(net, .optimizer = "sgd lr=1e30", .loss = "cross_entropy");
    capture_log(GD_LOG_WARNING);
    CHECK(gd_fit(net, gd_list(x, y), .epochs = 4, QUIET));
    end_log_capture();
    CHECK_SAYING(captured.warnings == 1 &&
                     strstr(captured.text, "gd_fit: epoch 1, step 2: the loss"
                                           " is ") &&
                     strstr(captured.text, "gd_stop_on_nan"),
                 "%s", captured.text);
    capture_log(GD_LOG_WARNING);
    gd_module *good = make_net();
    gd_compile(good, .loss = "cross_entropy");
    CHECK(gd_fit(good, gd_list(x, y), .epochs = 2, QUIET));
    end_log_capture();
    CHECK_SAYING(captured.warnings == 0, "%s", captured.text);
}

TEST_MAIN
