/* test_freed.c - a tensor that is used after its scope has ended. Runs twice: by default, where
 * only results of traced functions are checked, and with GRADUS_DEBUG=handles, which checks all
 * uses. */
#include <stdlib.h>
#include <string.h>

#include "core/freed.h"
#include "gradus/gradus.h"
#include "clean_test.h"
#include "temp.h"

#define MUST_BE_CHECKED() \
    if (!gd_handles_checked) SKIP("needs GRADUS_DEBUG=handles")

#define CHECK_SAYS(...)                                                                     \
    do {                                                                                    \
        const char *const parts[] = {__VA_ARGS__};                                          \
        for (size_t i_ = 0; i_ < sizeof parts / sizeof *parts; i_++)                        \
            CHECK_SAYING(says(parts[i_]), "no '%s' in: %s", parts[i_], gd_error_message()); \
        gd_clear_error();                                                                   \
    } while (0)

/* --- checked mode ----------------------------------------------------------------------------- */

static gd_tensor *make_freed_tensor(void) {
    GD_SCOPE;
    return gd_relu(gd_ones(gd_dims(3)));
}

TEST(a_tensor_of_an_ended_scope_names_its_op_its_line_and_the_scope) {
    MUST_BE_CHECKED();
    GD_SCOPE;
    gd_tensor *y = make_freed_tensor();
    gd_tensor *other = gd_full(gd_dims(5), 7); /* would reuse its memory in default mode */
    CHECK(y != other && gd_tensor_is_error(gd_add(y, y)) && gd_error_status() == GD_E_STATE);
    CHECK_SAYS("add(a freed", "use after free", "'a' is the result of relu (",
               "test_freed.c:", "scope of ");
    CHECK(gd_item(y) != gd_item(y));
    CHECK_SAYS("gd_item: use after free", "relu");
    float out[3];
    CHECK(gd_copy_to(y, out, sizeof out) == GD_E_STATE);
    CHECK_SAYS("gd_copy_to: use after free", "relu");
    CHECK(gd_tensor_rank(y) == 0 && gd_failed());
    CHECK_SAYS("use after free");
    char text[400];
    gd_to_text(y, text, sizeof text);
    CHECK(strstr(text, "use after free") && strstr(text, "relu"));
    CHECK_SAYS("use after free");
    CHECK(gd_backward(y) != GD_OK);
    CHECK_SAYS("freed", "relu");
}

TEST(tensors_without_an_op_name_the_call_that_created_them) {
    MUST_BE_CHECKED();
    gd_tensor *t;
    {
        GD_SCOPE;
        t = gd_from_array(gd_dims(1), GD_F32, (const float[]){1});
    }
    gd_item(t);
    CHECK_SAYS("a tensor (", "test_freed.c:", "scope of ");
}

TEST(releasing_twice_is_an_error) {
    MUST_BE_CHECKED();
    gd_tensor *t = gd_ones(gd_dims(3));
    gd_release(t);
    CHECK(!gd_failed());
    gd_release(t);
    CHECK_SAYS("gd_release: use after free", "last reference was released");
    CHECK(gd_retain(t) == t);
    CHECK_SAYS("gd_retain");
    CHECK(gd_keep(t) == t);
    CHECK_SAYS("gd_keep");
}

TEST(releasing_a_tensor_of_a_scope_is_an_error) {
    MUST_BE_CHECKED();
    {
        GD_SCOPE;
        gd_release(gd_ones(gd_dims(3)));
        CHECK(!gd_failed());
    }
    CHECK_SAYS("a scope ends that held the result of ones (", "gd_retain", "test_freed.c:");
}

TEST(a_list_of_an_ended_scope_holds_freed_tensors) {
    MUST_BE_CHECKED();
    GD_SCOPE;
    gd_tensors list;
    gd_tensor *kept;
    {
        GD_SCOPE;
        list = gd_listed(gd_ones(gd_dims(1)), kept = gd_keep(gd_ones(gd_dims(2))));
    }
    CHECK(gd_tensor_is_error(gd_cat(list)));
    CHECK_SAYS("use after free", "list of tensors");
    CHECK(!gd_optim_adam(list));
    CHECK_SAYS("gd_optim_adam: use after free", "list of tensors");
    CHECK(gd_tensor_is_error(gd_clip_grad_norm(list, 1)));
    CHECK_SAYS("gd_clip_grad_norm: use after free", "list of tensors");
    CHECK(gd_tensor_dim(kept, 0) == 2 && !gd_failed());
}

TEST(handles_are_not_reused) {
    MUST_BE_CHECKED();
    gd_tensor *seen[100];
    for (int i = 0; i < 100; i++) {
        GD_SCOPE;
        seen[i] = gd_ones(gd_dims(1));
        for (int k = 0; k < i; k++) CHECK(seen[k] != seen[i]);
    }
}

/* --- other objects, in checked mode ------------------------------------------------------------ */

static gd_tensors double_it(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_add(in.at[0], in.at[0]));
}

/* Objects of an ended scope. */
typedef struct {
    gd_module *net;
    gd_optimizer *optimizer;
    gd_schedule *schedule;
    gd_dataset *dataset;
    gd_loader *loader;
    gd_graph *graph;
    gd_session *session;
    gd_jit *jit;
    gd_metric *metric;
    gd_transform *transform;
    gd_sampler *sampler;
    gd_history *history;
    gd_state *state;
    gd_loss_scale *scale;
    gd_callback *callback;
    gd_board *board;
    gd_npz *npz;
    gd_attrs *attrs;
    gd_tensors parameters;
} objects;

static objects make_freed_objects(void) {
    GD_SCOPE;
    objects o = {.net = gd_nn_sequential(gd_nn_linear(4, 3), gd_nn_relu())};
    o.optimizer = gd_optim_sgd(gd_module_parameters(o.net));
    o.schedule = gd_lr_step(o.optimizer, 2);
    o.attrs = gd_attrs_new(gd_op_find("sum"));
    o.parameters = gd_module_parameters(o.net);
    o.dataset = gd_dataset_tensors(gd_ones(gd_dims(6, 4)));
    o.loader = gd_loader_new(o.dataset);
    o.graph = gd_graph_new();
    o.session = gd_session_new(o.graph);
    o.jit = gd_jit_new(double_it, NULL);
    o.metric = gd_metric_new("accuracy", NULL);
    o.transform = gd_transform_normalize(gd_floats(0), gd_floats(1));
    o.sampler = gd_sampler_distributed(0, 1);
    gd_compile(o.net, .loss = "mse");
    o.history = gd_fit(o.net, gd_list(gd_ones(gd_dims(2, 4)), gd_ones(gd_dims(2, 3))),
                       .progress = GD_PROGRESS_NONE);
    o.state = gd_state_of(o.optimizer);
    o.scale = gd_loss_scale_new();
    o.callback = gd_callback_new("early_stopping", "patience=2");
    o.board = gd_board_new(temp_new_folder("board"));
    const char *path = temp_path("one.npz");
    gd_save_npz(path, gd_names("x"), gd_list(gd_ones(gd_dims(1))));
    o.npz = gd_npz_open(path);
    return o;
}

/* A call with a freed object: it names the function, the kind of object and the scope. */
#define REPORTS(kind, function, ...)                                                             \
    do {                                                                                         \
        (void)(__VA_ARGS__);                                                                     \
        CHECK_SAYING(gd_failed(), "%s: no failure", function);                                   \
        CHECK_SAYS(function ": use after free: " kind, "end of the scope of ", "test_freed.c:"); \
    } while (0)

TEST(objects_of_an_ended_scope_name_the_function_the_object_and_the_scope) {
    MUST_BE_CHECKED();
    GD_SCOPE;
    const objects o = make_freed_objects();
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_tensor *x = gd_ones(gd_dims(2, 4));
    gd_tensors list = gd_list(x), batch;
    gd_optimizer *live = gd_optim_sgd(gd_module_parameters(gd_nn_linear(2, 2)));
    REPORTS("a module", "gd_module_forward", gd_module_forward(o.net, x));
    REPORTS("a module", "gd_module_call", gd_module_call(o.net, list));
    REPORTS("a module", "gd_module_parameters", gd_module_parameters(o.net));
    REPORTS("a module", "gd_module_buffers", gd_module_buffers(o.net));
    REPORTS("a module", "gd_module_count", gd_module_count(o.net));
    REPORTS("a module", "gd_module_at", gd_module_at(o.net, 0));
    REPORTS("a module", "gd_module_type", gd_module_type(o.net));
    REPORTS("a module", "gd_module_find", gd_module_find(o.net, "0"));
    REPORTS("a module", "gd_module_tensor", gd_module_tensor(o.net, "0.weight"));
    REPORTS("a module", "gd_module_clone", gd_module_clone(o.net));
    REPORTS("a module", "gd_module_freeze", gd_module_freeze(o.net));
    REPORTS("a module", "gd_module_is_training", gd_module_is_training(o.net));
    REPORTS("a module", "gd_module_parameter_count", gd_module_parameter_count(o.net));
    REPORTS("a module", "gd_module_summary", gd_module_summary(o.net, x));
    REPORTS("a module", "gd_module_append", gd_module_append(o.net, gd_nn_relu()));
    REPORTS("a module", "sequential", gd_nn_sequential(o.net));
    REPORTS("a module", "gd_compile", gd_compile(o.net, .loss = "mse"));
    REPORTS("a module", "gd_fit", gd_fit(o.net, list));
    REPORTS("a module", "gd_evaluate", gd_evaluate(o.net, list));
    REPORTS("a module", "gd_predict", gd_predict(o.net, list));
    REPORTS("a module", "gd_onnx_save_module", gd_onnx_save_module("none.onnx", o.net, list));
    gd_module_train(o.net);
    CHECK_SAYS("gd_module_train: use after free: a module");
    REPORTS("an optimizer", "gd_optimizer_step", gd_optimizer_step(o.optimizer));
    REPORTS("an optimizer", "gd_optimizer_lr", gd_optimizer_lr(o.optimizer));
    REPORTS("an optimizer", "gd_optimizer_set_lr", gd_optimizer_set_lr(o.optimizer, 1));
    REPORTS("an optimizer", "gd_optimizer_add", gd_optimizer_add(o.optimizer, list));
    gd_optimizer_zero_grad(o.optimizer);
    CHECK_SAYS("gd_optimizer_zero_grad: use after free: an optimizer");
    REPORTS("an optimizer", "gd_lr_step", gd_lr_step(o.optimizer, 2));
    REPORTS("a schedule", "gd_schedule_step", gd_schedule_step(o.schedule));
    REPORTS("a loader", "gd_loader_next", gd_loader_next(o.loader, &batch));
    REPORTS("a loader", "gd_loader_batches", gd_loader_batches(o.loader));
    REPORTS("a loader", "gd_loader_tell", gd_loader_tell(o.loader).epoch);
    REPORTS("a dataset", "gd_dataset_get", gd_dataset_get(o.dataset, 0));
    REPORTS("a dataset", "gd_dataset_count", gd_dataset_count(o.dataset));
    REPORTS("a dataset", "gd_loader_new", gd_loader_new(o.dataset));
    REPORTS("a graph", "gd_graph_find", gd_graph_find(o.graph, "x"));
    REPORTS("a graph", "gd_graph_text", gd_graph_text(o.graph));
    REPORTS("a graph", "gd_session_new", gd_session_new(o.graph));
    REPORTS("a session", "gd_session_run", gd_session_run(o.session, list, list));
    REPORTS("a session", "gd_session_get", gd_session_get(o.session, x));
    REPORTS("a jit", "gd_jit_call", gd_jit_call(o.jit, list));
    REPORTS("a jit", "gd_jit_traces", gd_jit_traces(o.jit));
    REPORTS("a metric", "gd_metric_update", gd_metric_update(o.metric, x, x));
    REPORTS("a metric", "gd_metric_value", gd_metric_value(o.metric));
    REPORTS("a history", "gd_history_rows", gd_history_rows(o.history));
    REPORTS("a loss_scale", "gd_loss_scale_step", gd_loss_scale_step(o.scale, live));
    REPORTS("a state", "gd_state_count", gd_state_count(o.state));
    REPORTS("a module", "gd_retain", gd_retain(o.net));
    REPORTS("a jit", "gd_keep", gd_keep(o.jit));
    gd_release(o.loader);
    CHECK_SAYS("gd_release: use after free: a loader");
    REPORTS("a transform", "gd_dataset_transform",
            gd_dataset_transform(gd_dataset_tensors(x), o.transform));
    REPORTS("a sampler", "gd_loader_new",
            gd_loader_new(gd_dataset_tensors(x), .sampler = o.sampler));
    REPORTS("a board", "gd_board_scalar", gd_board_scalar(o.board, "loss", 1, 0));
    REPORTS("a .npz file", "gd_npz_count", gd_npz_count(o.npz));
    static const int64_t axes[] = {0, 1};
    REPORTS("a set of options", "gd_attrs_set_int", gd_attrs_set_int(o.attrs, "axis", 1));
    REPORTS("a set of options", "gd_attrs_set_float", gd_attrs_set_float(o.attrs, "axis", 1));
    REPORTS("a set of options", "gd_attrs_set_ints", gd_attrs_set_ints(o.attrs, "axis", 2, axes));
    REPORTS("a set of options", "gd_attrs_set_text", gd_attrs_set_text(o.attrs, "axis", "1"));
    REPORTS("a set of options", "gd_attrs_parse", gd_attrs_parse(o.attrs, "axis=1"));
    REPORTS("a set of options", "gd_op_call", gd_op_call(gd_op_find("sum"), list, o.attrs));
    gd_release_list(o.parameters);
    CHECK_SAYS("gd_release_list: use after free: a list of tensors", "end of the scope of ");
    gd_module *net = gd_nn_linear(4, 4);
    gd_compile(net, .loss = "mse");
    gd_tensors data = gd_list(x, x);
    gd_tensor *freed;
    {
        GD_SCOPE;
        freed = gd_ones(gd_dims(2, 4));
    }
    gd_fit(net, gd_list(freed, x));
    CHECK_SAYS("gd_fit: tensor 0 of the data: use after free: the result of ", "scope of ");
    gd_fit(net, gd_list(x, freed));
    CHECK_SAYS("gd_fit: tensor 1 of the data: use after free: ");
    gd_fit(net, data, .validation_tensors = gd_list(freed, x));
    CHECK_SAYS("tensor 0 of the data: use after free: ");
    gd_compile(net, .loss = "cross_entropy");
    gd_fit(net, data, .class_weights = freed);
    CHECK_SAYS("gd_fit: class_weights: use after free: the result of ", "scope of ");
    gd_compile(net, .loss = "mse");
    REPORTS("a dataset", "gd_fit", gd_fit(net, o.dataset));
    REPORTS("a loader", "gd_fit", gd_fit(net, o.loader));
    REPORTS("a loader", "gd_evaluate", gd_evaluate(net, o.loader));
    REPORTS("a dataset", "gd_fit", gd_fit(net, data, .validation = o.dataset));
    REPORTS("a callback", "gd_fit", gd_fit(net, data, .callbacks = gd_callbacks(o.callback)));
    REPORTS("an optimizer", "gd_compile: .optimizer_object",
            gd_compile(net, .optimizer_object = o.optimizer));
    REPORTS("a schedule", "gd_compile: .schedule_object",
            gd_compile(net, .optimizer_object = live, .schedule_object = o.schedule));
    REPORTS("a metric", "gd_compile: .metric_objects",
            gd_compile(net, .metric_objects = gd_metrics(o.metric)));
    REPORTS("a module", "gd_save_state: part 'net'",
            gd_save_state("none.safetensors", gd_part("net", o.net)));
    REPORTS("an optimizer", "gd_load_state: part 'adam'",
            gd_load_state("none.safetensors", gd_part("adam", o.optimizer)));
    REPORTS("a module", "gd_state_of: the object", gd_state_of(o.net));
    REPORTS("a dataset", "gd_dataset_concat: dataset 0", gd_dataset_concat(o.dataset));
}

TEST(releasing_an_object_of_a_scope_is_an_error) {
    MUST_BE_CHECKED();
    {
        GD_SCOPE;
        gd_release(gd_nn_relu());
        CHECK(!gd_failed());
    }
    CHECK_SAYS("a scope ends that held a module", "gd_retain", "test_freed.c:");
}

/* --- results of traced functions, which are always checked ------------------------------------ */

static gd_tensors return_stack_list(gd_tensors in, void *user) {
    (void)user;
    return gd_list(gd_neg(in.at[0])); /* not gd_listed */
}
static gd_tensors return_freed_tensors(gd_tensors in, void *user) {
    (void)user;
    GD_SCOPE;
    return gd_listed(gd_neg(in.at[0])); /* no gd_keep_list */
}
static gd_tensors return_freed_list(gd_tensors in, void *user) {
    (void)user;
    GD_SCOPE;
    return gd_listed(gd_keep(gd_neg(in.at[0]))); /* keeps the tensor, and not the list */
}
static gd_tensors return_freed_tensor(gd_tensors in, void *user) {
    gd_tensor *y;
    (void)user;
    {
        GD_SCOPE;
        y = gd_neg(in.at[0]);
    }
    gd_exp(in.at[0]); /* may reuse its memory */
    return gd_listed(y);
}
static gd_tensors return_kept(gd_tensors in, void *user) {
    (void)user;
    GD_SCOPE;
    return gd_keep_list(gd_listed(gd_neg(in.at[0])));
}
static gd_tensors always_true(gd_tensors in, void *user) {
    (void)in, (void)user;
    return gd_listed(gd_scalar(1));
}

TEST(a_jit_fails_if_its_function_returns_freed_tensors) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(2));
    CHECK(gd_tensor_is_error(gd_jit_call(gd_jit_new(return_stack_list, NULL), gd_list(x)).at[0]));
    CHECK_SAYS("gd_jit_call", "ended with it", "gd_listed");
    CHECK(
        gd_tensor_is_error(gd_jit_call(gd_jit_new(return_freed_tensors, NULL), gd_list(x)).at[0]));
    CHECK_SAYS("gd_jit_call", "result 0 of the function", "freed at the end of the scope of ",
               "test_freed.c:", "gd_keep_list");
    CHECK(gd_tensor_is_error(gd_jit_call(gd_jit_new(return_freed_list, NULL), gd_list(x)).at[0]));
    CHECK_SAYS("list of tensors", "gd_keep_list");
    CHECK(gd_tensor_is_error(gd_jit_call(gd_jit_new(return_freed_tensor, NULL), gd_list(x)).at[0]));
    CHECK_SAYS("result of neg (", "scope of ");
    gd_tensors y = gd_jit_call(gd_jit_new(return_kept, NULL), gd_list(x));
    CHECK(y.count == 1 && !gd_failed() && ((float *)gd_data(y.at[0]))[0] == -1);
}

TEST(branches_and_loops_fail_if_a_body_returns_freed_tensors) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(2)), *yes = gd_scalar(1);
    gd_cond(yes, return_stack_list, return_stack_list, gd_list(x), NULL);
    CHECK_SAYS("ended with it", "gd_listed");
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    gd_tensor *p = gd_placeholder(gd_dims(2)), *choice = gd_placeholder(gd_dims());
    gd_cond(choice, return_freed_tensors, return_kept, gd_list(p), NULL);
    CHECK_SAYS("result 0 of the function", "gd_keep_list");
    gd_while_loop(always_true, return_stack_list, gd_list(p), NULL, .max_steps = 2);
    CHECK_SAYS("ended with it");
}

TEST(tensors_kept_for_a_trace_are_freed_with_it) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(2));
    gd_jit *jit = gd_jit_new(return_kept, NULL);
    gd_jit_call(jit, gd_list(x));
    CHECK(gd_this_thread.keeping_freed == 0 && gd_this_thread.freed == NULL);
}

TEST_MAIN
