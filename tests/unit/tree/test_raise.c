/* test_raise.c - gd_raise in a function of the program makes the call that runs it fail with that
 * message, and with its place. */
#include <string.h>

#include "clean_test.h"
#include "gradus/gradus.h"

#define BOOM() gd_raise(GD_E_IO, "boom %d of %s", 7, "ours")

/* Failures name the function's place, not that of the call. */
#define CHECK_RAISED(context)                                                                   \
    do {                                                                                        \
        CHECK_SAYING(gd_error_status() == GD_E_IO, "%s: %s", gd_status_name(gd_error_status()), \
                     gd_error_message());                                                       \
        CHECK_SAYING(strstr(gd_error_message(), "boom 7 of ours (" __FILE__ ":"), "'%s'",       \
                     gd_error_message());                                                       \
        CHECK_SAYING(strstr(gd_error_message(), context), "'%s' is not in '%s'", context,       \
                     gd_error_message());                                                       \
        gd_clear_error();                                                                       \
    } while (0)

static const gd_tensors empty;

/* --- the call itself -------------------------------------------------------------------------- */

CLEAN_TEST(raise_records_status_message_and_place) {
    CHECK(BOOM() == GD_E_IO);
    CHECK_RAISED("boom");
    CHECK(gd_raise_at("model.py:12", GD_E_SHAPE, "no") == GD_E_SHAPE);
    CHECK(strcmp(gd_error_message(), "no (model.py:12)") == 0);
    CHECK(BOOM() == GD_E_IO); /* the first failure stays */
    CHECK(strcmp(gd_error_message(), "no (model.py:12)") == 0);
    gd_clear_error();
    CHECK(gd_raise_at(NULL, GD_OK, "%s", "odd") == GD_E_STATE);
    CHECK(strcmp(gd_error_message(), "odd") == 0);
    gd_clear_error();
}

/* --- modules ---------------------------------------------------------------------------------- */

static gd_tensors forward_raises(gd_tensors in, void *self) {
    (void)in, (void)self;
    BOOM();
    return empty;
}
static gd_tensors forward_raises_and_returns(gd_tensors in, void *self) {
    (void)self;
    BOOM();
    return gd_listed(in.at[0]);
}
static gd_tensors hook_raises(gd_module *m, gd_tensors in, gd_tensors out, void *user) {
    (void)m, (void)in, (void)out, (void)user;
    BOOM();
    return empty;
}
static gd_status clone_raises(gd_module *copy, void *to, const void *from) {
    (void)copy, (void)to, (void)from;
    return BOOM();
}

CLEAN_TEST(modules_and_their_hooks) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(2, 3));
    gd_module *net = gd_nn_sequential(gd_nn_relu(), gd_module_new(forward_raises, 0));
    CHECK(gd_tensor_is_error(gd_module_forward(net, x)));
    CHECK_RAISED("1 (module): boom");
    net = gd_nn_sequential(gd_module_new(forward_raises_and_returns, 0, .clone = clone_raises));
    CHECK(gd_tensor_is_error(gd_module_forward(net, x)));
    CHECK_RAISED("0 (module): boom");
    CHECK(!gd_module_clone(net));
    CHECK_RAISED("gd_module_clone: module: boom");
    net = gd_nn_sequential(gd_nn_relu());
    gd_module_on_forward(gd_module_at(net, 0), hook_raises, NULL);
    CHECK(gd_tensor_is_error(gd_module_forward(net, x)));
    CHECK_RAISED("0 (relu): boom");
}

/* --- autograd --------------------------------------------------------------------------------- */

static gd_tensor *gradient_raises(gd_tensor *gradient, void *user) {
    (void)user;
    BOOM();
    return gradient;
}
static void function_raises(gd_context *c) { (void)c, BOOM(); }
static void function_copies(gd_context *c) { c->y[0] = gd_clone(c->x[0]); }
static void function_infers(gd_context *c) { c->y[0] = gd_shaped(gd_dims(3), GD_F32); }
static gd_tensor *fn_raises(gd_tensors in, void *user) {
    (void)in, (void)user, BOOM();
    return NULL;
}

CLEAN_TEST(hooks_and_functions_of_the_tape) {
    GD_SCOPE;
    gd_tensor *w = gd_requires_grad(gd_ones(gd_dims(3)));
    gd_tensor *y = gd_mul(w, 2);
    gd_tensor_hook(y, gradient_raises, NULL);
    CHECK(gd_backward(gd_sum(y)) == GD_E_IO);
    CHECK_RAISED("boom");
    CHECK(!gd_tensor_grad(w));
    const gd_function forward = {"first", 1, function_raises, function_raises, NULL, false, NULL};
    CHECK(gd_tensor_is_error(gd_apply(&forward, gd_list(w), NULL).at[0]));
    CHECK_RAISED("boom");
    const gd_function backward = {"second", 1, function_copies, function_raises, NULL, false, NULL};
    CHECK(gd_backward(gd_sum(gd_apply(&backward, gd_list(w), NULL).at[0])) == GD_E_IO);
    CHECK_RAISED("second");
    CHECK(!gd_tensor_grad(w));
    CHECK(gd_tensor_is_error(gd_recompute(fn_raises, gd_list(w), NULL)));
    CHECK_RAISED("boom");
    CHECK(gd_tensor_is_error(gd_jacobian(fn_raises, gd_list(w), 0, NULL)));
    CHECK_RAISED("boom");
}

/* --- jits, branches and loops ----------------------------------------------------------------- */

static gd_tensors body_raises(gd_tensors in, void *user) {
    (void)in, (void)user, BOOM();
    return empty;
}
static gd_tensors body_copies(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_clone(in.at[0]));
}
static gd_tensors jit_branches(gd_tensors in, void *user) {
    (void)user;
    return gd_cond(gd_any(in.at[0]), body_raises, body_copies, in, NULL);
}
static gd_tensors jit_applies(gd_tensors in, void *user) { return gd_apply(user, in, NULL); }

CLEAN_TEST(jits_and_control_flow) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(3));
    gd_jit *jit = gd_jit_new(body_raises, NULL);
    CHECK(gd_tensor_is_error(gd_jit_call(jit, gd_list(x)).at[0]));
    CHECK_RAISED("boom");
    CHECK(gd_tensor_is_error(gd_jit_call(gd_jit_new(jit_branches, NULL), gd_list(x)).at[0]));
    CHECK_RAISED("boom");
    const gd_function run = {"third", 1,   function_raises, function_raises, function_infers,
                             false,   NULL};
    CHECK(gd_tensor_is_error(gd_jit_call(gd_jit_new(jit_applies, (void *)&run), gd_list(x)).at[0]));
    CHECK_RAISED("boom");
    CHECK(gd_tensor_is_error(
        gd_cond(gd_scalar(1), body_raises, body_copies, gd_list(x), NULL).at[0]));
    CHECK_RAISED("boom");
}

/* --- ops -------------------------------------------------------------------------------------- */

static bool infer_fails;
static gd_status op_infer(gd_infer *i) {
    if (infer_fails) return BOOM();
    i->out[0].rank = 0;
    return GD_OK;
}
static gd_status op_kernel(gd_kernel_call *k) {
    (void)k;
    return BOOM();
}

CLEAN_TEST(rules_and_kernels_of_ops) {
    GD_SCOPE;
    CHECK(gd_op_define("raises(x) -> y\nRaises.\n",
                       &(gd_op_rules){.infer = op_infer, .reference = op_kernel}) == GD_OK);
    gd_tensor *x = gd_ones(gd_dims(2, 3));
    infer_fails = true;
    CHECK(gd_tensor_is_error(gd_call("raises", gd_list(x), "")));
    CHECK_RAISED("raises(x f32[2,3]): boom");
    infer_fails = false;
    CHECK(gd_tensor_is_error(gd_call("raises", gd_list(x), "")));
    CHECK_RAISED("raises(x f32[2,3]): boom");
    gd_reshape(x, gd_dims(5)); /* a recorded failure gets no more words from a later one */
    CHECK(strstr(gd_error_message(), "reshape") == gd_error_message());
    const size_t length = strlen(gd_error_message());
    CHECK(gd_tensor_is_error(gd_call("raises", gd_list(x), "")));
    CHECK(strlen(gd_error_message()) == length);
    gd_clear_error();
}

/* --- data ------------------------------------------------------------------------------------- */

static int64_t four(void *self) {
    (void)self;
    return 4;
}
static gd_tensors get_raises(int64_t index, gd_random *random, void *self) {
    (void)random, (void)self;
    if (index == 2) BOOM();
    return index == 2 ? empty : gd_listed(gd_ones(gd_dims(3)));
}
static gd_tensors map_raises(gd_tensors sample, gd_random *random, void *user) {
    (void)random, (void)user, BOOM();
    return sample;
}
static bool filter_raises(gd_tensors sample, void *user) {
    (void)sample, (void)user, BOOM();
    return true;
}
static gd_tensors collate_raises(const gd_tensors *samples, int64_t count, void *user) {
    (void)samples, (void)count, (void)user, BOOM();
    return empty;
}
static int64_t sampler_count(int64_t count, void *self) {
    (void)self;
    return count;
}
static int64_t sampler_raises(int64_t position, uint64_t seed, uint64_t epoch, int64_t count,
                              void *self) {
    (void)position, (void)seed, (void)epoch, (void)count, (void)self, BOOM();
    return -1;
}
static int64_t count_raises(int64_t count, void *self) {
    (void)count, (void)self, BOOM();
    return 0;
}

static gd_status next_status(gd_loader *loader) {
    gd_tensors batch;
    while (gd_loader_next(loader, &batch)) {
    }
    return gd_error_status();
}

CLEAN_TEST(datasets_and_loaders) {
    GD_SCOPE;
    gd_dataset *d = gd_dataset_from(NULL, .count = four, .get = get_raises, .name = "ours");
    CHECK(gd_tensor_is_error(gd_dataset_get(d, 2).at[0]));
    CHECK_RAISED("ours: sample 2: boom");
    for (int workers = 0; workers < 3; workers++) {
        CHECK(next_status(gd_loader_new(d, .batch = 2, .workers = workers)) == GD_E_IO);
        CHECK_RAISED("ours: sample 2: boom");
    }
    gd_dataset *plain = gd_dataset_tensors(gd_ones(gd_dims(4, 3)));
    CHECK(gd_tensor_is_error(gd_dataset_get(gd_dataset_map(plain, map_raises, NULL), 1).at[0]));
    CHECK_RAISED("sample 1: gd_dataset_map: boom");
    CHECK(!gd_dataset_filter(plain, filter_raises, NULL));
    CHECK_RAISED("sample 0: boom");
    for (int workers = 0; workers < 2; workers++) {
        CHECK(next_status(gd_loader_new(plain, .collate = collate_raises, .workers = workers)) ==
              GD_E_IO);
        CHECK_RAISED("the collate function: boom");
        gd_sampler *at = gd_sampler_from(NULL, .count = sampler_count, .at = sampler_raises);
        CHECK(next_status(gd_loader_new(plain, .sampler = at, .workers = workers)) == GD_E_IO);
        CHECK_RAISED("boom");
    }
    gd_sampler *none = gd_sampler_from(NULL, .count = count_raises, .at = sampler_raises);
    CHECK(!gd_loader_new(plain, .sampler = none));
    CHECK_RAISED("boom");
}

/* --- training --------------------------------------------------------------------------------- */

static gd_status event_raises(gd_event *event, void *self) {
    (void)event, (void)self;
    return BOOM();
}
static gd_status event_raises_silently(gd_event *event, void *self) {
    (void)event, (void)self, BOOM();
    return GD_OK;
}
static gd_tensor *loss_raises(gd_tensors outputs, gd_tensors targets, void *user) {
    (void)targets, (void)user, BOOM();
    return gd_sum(outputs.at[0]);
}
static gd_tensor *step_raises(gd_module *net, gd_tensors batch, void *user) {
    (void)net, (void)batch, (void)user, BOOM();
    return NULL;
}
static void update_raises(gd_metric *m, gd_tensor *output, gd_tensor *target, gd_tensor *weight) {
    (void)m, (void)output, (void)target, (void)weight, BOOM();
}
static gd_tensor *value_raises(gd_metric *m) {
    (void)m, BOOM();
    return gd_scalar(1);
}

CLEAN_TEST(training) {
    GD_SCOPE;
    gd_dataset *data = gd_dataset_tensors(gd_ones(gd_dims(8, 3)), gd_ones(gd_dims(8, 1)));
    gd_module *net = gd_nn_linear(3, 1);
    gd_optimizer *sgd = gd_optim_sgd(gd_module_parameters(net), .lr = 0.1);
    gd_compile(net, .optimizer_object = sgd, .loss = "mse");
    for (int jit = 0; jit < 2; jit++) {
        gd_callback *c = gd_callback_from(NULL, .epoch_end = event_raises, .name = "ours");
        CHECK(!gd_fit(net, data, .callbacks = gd_callbacks(c), .progress = GD_PROGRESS_NONE,
                      .jit = jit));
        CHECK_RAISED("ours: boom");
        c = gd_callback_from(NULL, .batch_end = event_raises_silently, .name = "ours");
        CHECK(!gd_fit(net, data, .callbacks = gd_callbacks(c), .progress = GD_PROGRESS_NONE,
                      .jit = jit));
        CHECK_RAISED("ours: boom");
        CHECK(!gd_fit(net, data, .step = step_raises, .progress = GD_PROGRESS_NONE, .jit = jit));
        CHECK_RAISED("boom");
    }
    gd_metric_define("raising_update\nRaises.\n",
                     (gd_metric_rules){.update = update_raises, .value = value_raises});
    gd_compile(net, .optimizer_object = sgd, .loss_function = loss_raises);
    CHECK(!gd_fit(net, data, .progress = GD_PROGRESS_NONE));
    CHECK_RAISED("boom");
    gd_compile(net, .optimizer_object = sgd, .loss = "mse", .metrics = "raising_update");
    CHECK(!gd_fit(net, data, .progress = GD_PROGRESS_NONE));
    CHECK_RAISED("metric raising_update: boom");
    CHECK(!gd_evaluate(net, data));
    CHECK_RAISED("metric raising_update: boom");
}

TEST_MAIN
