/* test_defaults.c - the functions behind the macros take NULL for options: the defaults. */
#include <stdlib.h>
#include <string.h>

#include "gradus/gradus.h"
#include "capture.h"
#include "clean_test.h"
#include "temp.h"

static gd_tensors identity(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_relu(in.at[0]));
}
static gd_tensors never(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_lt(gd_sum(in.at[0]), 0));
}
static gd_tensors carry(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_add(in.at[0], in.at[1]), gd_relu(in.at[1]));
}
static gd_tensor *total(gd_tensors in, void *user) {
    (void)user;
    return gd_sum(gd_square(in.at[0]));
}
static gd_tensors observe(gd_module *m, gd_tensors inputs, gd_tensors outputs, void *user) {
    (void)m, (void)inputs, (void)user;
    return outputs;
}

#define WORKS(...)                                                              \
    do {                                                                        \
        (void)(__VA_ARGS__);                                                    \
        CHECK_SAYING(!gd_failed(), "%s: %s", #__VA_ARGS__, gd_error_message()); \
        gd_clear_error();                                                       \
    } while (0)

CLEAN_TEST(calls_on_tensors_take_null) {
    GD_SCOPE;
    gd_tensor *x = gd_requires_grad(gd_ones(gd_dims(3))), *rows = gd_ones(gd_dims(4, 3));
    gd_tensor *doubles = gd_requires_grad(gd_ones(gd_dims(2), .dtype = GD_F64));
    WORKS(gd_sum_at(GD_HERE, x, NULL));
    WORKS(gd_backward_at(GD_HERE, gd_sum(x), NULL));
    WORKS(gd_grad_at(GD_HERE, gd_list(gd_sum(x)), gd_list(x), NULL));
    WORKS(gd_gradcheck_at(GD_HERE, total, gd_list(doubles), NULL, NULL));
    WORKS(gd_index_put_at(GD_HERE, rows, gd_places(0), gd_ones(gd_dims(3)), NULL));
    WORKS(gd_index_put__at(GD_HERE, gd_clone(rows), gd_places(0), gd_ones(gd_dims(3)), NULL));
    WORKS(gd_while_loop_at(GD_HERE, never, identity, gd_list(rows), NULL, NULL));
    WORKS(gd_scan_at(GD_HERE, carry, gd_list(gd_zeros(gd_dims(3))), gd_list(rows), NULL, NULL).ys);
    WORKS(gd_clip_grad_norm_at(GD_HERE, gd_list(x), 1, NULL));
    char text[200];
    WORKS(gd_to_text_with(x, text, sizeof text, NULL));
}

CLEAN_TEST(jits_graphs_and_sessions_take_null) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(2, 3));
    gd_jit *jit = gd_jit_new_at(GD_HERE, identity, NULL, NULL);
    CHECK(jit && !gd_failed());
    WORKS(gd_jit_call_at(GD_HERE, jit, gd_list(x), NULL));
    WORKS(gd_jit_plan_at(GD_HERE, jit, gd_list(x), NULL, NULL));
    char *text = gd_jit_plan_text_at(GD_HERE, jit, gd_list(x), NULL);
    CHECK(text);
    free(text);
    gd_graph *graph = gd_graph_new();
    gd_tensor *p, *y;
    {
        GD_GRAPH(graph);
        p = gd_placeholder_at(GD_HERE, gd_dims(2, 3), NULL);
        y = gd_dense_at(GD_HERE, p, 4, NULL);
        WORKS(gd_variable_at(GD_HERE, gd_ones(gd_dims(2)), NULL));
    }
    gd_optimizer *o = gd_optim_sgd(gd_list(gd_graph_variables(graph).at[0]));
    WORKS(gd_minimize_at(GD_HERE, o, gd_sum(y), NULL));
    WORKS(gd_optimizer_lr_at(GD_HERE, o, NULL));
    gd_session *s = gd_session_new_at(GD_HERE, graph, NULL);
    WORKS(gd_session_run_at(GD_HERE, s, gd_feed(p, x), gd_list(y), NULL));
    WORKS(gd_onnx_save_at(GD_HERE, temp_path("a.onnx"), s, gd_list(p), gd_list(y), NULL));
    WORKS(gd_onnx_load_at(GD_HERE, temp_path("a.onnx"), NULL));
}

CLEAN_TEST(modules_and_optimizers_take_null) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(6, 3));
    gd_module *net = gd_nn_linear(3, 2), *own = gd_module_new_at(GD_HERE, identity, 8, NULL);
    CHECK(own && strcmp(gd_module_type(own), "module") == 0);
    CHECK(gd_module_parameters_at(GD_HERE, net, NULL).count == 2);
    WORKS(gd_module_on_forward_at(GD_HERE, net, observe, NULL, NULL));
    WORKS(gd_onnx_save_module_at(GD_HERE, temp_path("m.onnx"), own, gd_list(x), NULL));
    gd_optimizer *o = gd_optim_adam_at(GD_HERE, gd_module_parameters(net), NULL);
    CHECK(o && !gd_failed());
    WORKS(gd_optimizer_set_lr_at(GD_HERE, o, 0.1, NULL));
    WORKS(gd_optimizer_add_at(GD_HERE, o, gd_list(gd_requires_grad(gd_ones(gd_dims(2)))), NULL));
    WORKS(gd_optimizer_set_factors_at(GD_HERE, o, gd_module_parameters(net).at[0], NULL));
    gd_loss_scale *scale = gd_loss_scale_new_at(GD_HERE, NULL);
    CHECK(scale && !gd_failed());
    gd_backward(gd_sum(gd_module_forward(net, x)));
    WORKS(gd_loss_scale_step_at(GD_HERE, scale, o, NULL));
}

CLEAN_TEST(training_takes_null) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(6, 3)), *y = gd_ones(gd_dims(6, 2));
    gd_tensors pair = gd_list(x, y), inputs = gd_list(x);
    gd_module *net = gd_nn_linear(3, 2);
    gd_compile_at(GD_HERE, net, NULL);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    gd_compile(net, .loss = "mse");
    capture_stderr();
    gd_history *h = gd_fit_at(GD_HERE, net, GD_FIT_DATA_(pair), NULL);
    free(end_stderr_capture());
    CHECK_SAYING(h && gd_history_rows(h) == 1, "%s", gd_error_message());
    WORKS(gd_evaluate_at(GD_HERE, net, GD_FIT_DATA_(pair), NULL));
    WORKS(gd_predict_at(GD_HERE, net, GD_FIT_DATA_(inputs), NULL));
    WORKS(gd_metric_update_at(GD_HERE, gd_metric_new("mae", NULL), y, y, NULL));
}

CLEAN_TEST(data_and_files_take_null) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(6, 3));
    gd_dataset *d = gd_dataset_tensors(x), *a, *b;
    WORKS(gd_dataset_get_at(GD_HERE, d, 0, NULL));
    WORKS(gd_dataset_random_split_at(GD_HERE, d, 0.5, &a, &b, NULL));
    gd_loader *l = gd_loader_new_at(GD_HERE, d, NULL);
    CHECK(l && gd_loader_batches(l) == 1);
    WORKS(gd_sampler_distributed_at(GD_HERE, 0, 1, NULL));
    WORKS(gd_sampler_weighted_at(GD_HERE, gd_ones(gd_dims(6)), NULL));
    WORKS(gd_save_state_at(GD_HERE, temp_path("s.safetensors"), gd_parts(gd_part("x", x)), NULL));
    WORKS(gd_load_state_at(GD_HERE, temp_path("s.safetensors"), gd_parts(gd_part("x", x)), NULL));
    gd_tensor *image = gd_full(gd_dims(3, 4, 4), 9, .dtype = GD_U8);
    if (gd_save_png(temp_path("i.png"), image) == GD_OK)
        WORKS(gd_load_image_at(GD_HERE, temp_path("i.png"), NULL));
    gd_clear_error(); /* the library may be built without PNG */
}

/* Functions that need some of their options say which. */
CLEAN_TEST(functions_without_a_usable_default_fail_with_a_message) {
    GD_SCOPE;
    CHECK(!gd_dataset_from_at(GD_HERE, NULL, NULL) && says("count"));
    gd_clear_error();
    CHECK(!gd_sampler_from_at(GD_HERE, NULL, NULL) && says("gd_sampler_from"));
    gd_clear_error();
}

TEST_MAIN
