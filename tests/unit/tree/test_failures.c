/* test_failures.c - the rule of status.h, for every public function: a call that fails records the
 * failure.
 *
 * `rows` has a row for each function that the headers declare: a call that fails, or the reason why
 * no call can fail. A test reads the headers and fails for functions without a row, so the table is
 * always complete. Typed calls of ops all go through one dispatcher, which test_ops --suite errors
 * tests op by op.
 */
#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gradus/extend.h"
#include "gradus/gradus.h"
#include "gradus/testing.h"
#include "test.h"

static gd_tensor *make_tensor(void) { return gd_ones(gd_dims(3)); }
static gd_tensor *make_leaf(void) { return gd_requires_grad(make_tensor()); }
static gd_tensor *make_symbol(void) {
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    return gd_placeholder(gd_dims(3), .name = "x");
}
static gd_session *make_session(void) { return gd_session_new(gd_graph_new()); }
static gd_tensors body(gd_tensors in, void *user) {
    return user ? gd_listed(in.at[0]) : gd_listed(gd_reshape(in.at[0], gd_dims(77)));
}
static gd_tensor *fn(gd_tensors in, void *user) {
    return user ? in.at[0] : gd_reshape(in.at[0], gd_dims(77));
}
static void do_nothing(gd_context *c) { (void)c; }
static const gd_function no_output = {
    .name = "no_output", .forward = do_nothing, .backward = do_nothing};
static bool failed_list(gd_tensors list, int64_t count) {
    bool all = list.at && list.count == count;
    for (int64_t i = 0; all && i < list.count; i++) all = gd_tensor_is_error(list.at[i]);
    return all;
}
enum { UNKNOWN = GD_FAILED_COUNT };
static gd_tensors empty_list(void) { return (gd_tensors){NULL, 0}; }
static const char *const missing = "/no/such/folder/file";
static const char *const words[] = {"x", NULL};
static gd_module *make_net(void) { return gd_nn_linear(3, 2); }

/* --- one failing call for each function: true if it returned the error value ------------------ */

#define CALL(name, ...) \
    static bool fail_##name(void) { return (__VA_ARGS__); }
#define TENSOR(name, ...)      CALL(name, gd_tensor_is_error(__VA_ARGS__))
#define STATUS(name, ...)      CALL(name, (__VA_ARGS__) != GD_OK)
#define OBJECT(name, ...)      CALL(name, (__VA_ARGS__) == NULL)
#define LIST(name, count, ...) CALL(name, failed_list(__VA_ARGS__, count))

/* failures of the program */
STATUS(gd_raise_at, gd_raise(GD_E_IO, "of the program"))

/* datasets and transforms */
LIST(gd_dataset_get_at, UNKNOWN, gd_dataset_get(NULL, 0))
OBJECT(gd_dataset_from_at, gd_dataset_from(NULL))
OBJECT(gd_dataset_new_at, gd_dataset_new("none", ""))
OBJECT(gd_dataset_transform_at, gd_dataset_transform(NULL, NULL))
OBJECT(gd_transform_new_at, gd_transform_new("none", ""))
TENSOR(gd_transform_apply_at, gd_transform_apply(NULL, make_tensor(), NULL))
STATUS(gd_dataset_define_at, gd_dataset_define("x\n", (gd_dataset_type){NULL}))
STATUS(gd_transform_define_at, gd_transform_define("x\n", NULL))
TENSOR(gd_load_image_at, gd_load_image(missing))
TENSOR(gd_decode_image_at, gd_decode_image("text", 4))
STATUS(gd_save_png_at, gd_save_png(missing, gd_ones(gd_dims(2, 2))))
TENSOR(gd_make_grid_at, gd_make_grid(gd_ones(gd_dims(2, 3, 4, 4)), .nrow = 0))
CALL(gd_dataset_class_index_at, gd_dataset_class_index(NULL, "cat") == -1)

/* combined datasets, loaders and samplers */
static gd_dataset *rows_of(int64_t count) { return gd_dataset_tensors(gd_ones(gd_dims(count, 2))); }
static gd_dataset *half;
OBJECT(gd_dataset_tensors_at, gd_dataset_tensors(make_tensor(), gd_ones(gd_dims(4))))
OBJECT(gd_dataset_map_at, gd_dataset_map(rows_of(3), NULL, NULL))
OBJECT(gd_dataset_filter_at, gd_dataset_filter(NULL, NULL, NULL))
OBJECT(gd_dataset_zip_at, gd_dataset_zip(rows_of(3), rows_of(4)))
OBJECT(gd_dataset_concat_at, gd_dataset_concat(rows_of(3), NULL))
OBJECT(gd_dataset_subset_at, gd_dataset_subset(rows_of(3), make_tensor()))
OBJECT(gd_dataset_range_at, gd_dataset_range(rows_of(3), 2, 2))
STATUS(gd_dataset_random_split_at, gd_dataset_random_split(rows_of(3), 2, &half, &half))
OBJECT(gd_loader_new_at, gd_loader_new(rows_of(3), .batch = 0))
CALL(gd_loader_next_at, !gd_loader_next(NULL, NULL))
STATUS(gd_loader_seek_at, gd_loader_seek(gd_loader_new(rows_of(3)), ((gd_loader_position){0, 9})))
OBJECT(gd_sampler_weighted_at, gd_sampler_weighted(gd_zeros(gd_dims(3))))
OBJECT(gd_sampler_stratified_at, gd_sampler_stratified(make_tensor()))
OBJECT(gd_sampler_bucketed_at, gd_sampler_bucketed(make_tensor()))
OBJECT(gd_sampler_distributed_at, gd_sampler_distributed(2, 2))
OBJECT(gd_sampler_from_at, gd_sampler_from(NULL))

/* metrics and callbacks */
OBJECT(gd_metric_new_at, gd_metric_new("acuracy", NULL))
OBJECT(gd_metric_accuracy_at, gd_metric_accuracy(.threshold = 2))
STATUS(gd_metric_update_at, gd_metric_update(gd_metric_accuracy(), make_tensor(), NULL))
TENSOR(gd_metric_value_at, gd_metric_value(NULL))
CALL(gd_metric_number_at, isnan(gd_metric_number(NULL)))
STATUS(gd_metric_reset_at, gd_metric_reset(NULL))
STATUS(gd_metric_define_at, gd_metric_define("own\nA metric.\n", (gd_metric_rules){.check = NULL}))
CALL(gd_metric_add, (gd_metric_add(gd_metric_mse(), "error", make_tensor()), true))
OBJECT(gd_callback_new_at, gd_callback_new("early_stoping", NULL))
OBJECT(gd_csv_log_at, gd_csv_log(""))
OBJECT(gd_callback_from_at, gd_callback_from(NULL, .state_bytes = 8))
STATUS(gd_callback_define_at,
       gd_callback_define("own\nA callback.\n", (gd_callback_type){.open = NULL}))

/* compile, fit and history */
static gd_module *compiled(void) {
    gd_module *m = make_net();
    gd_compile(m, .optimizer = "sgd", .loss = "mse");
    return m;
}
STATUS(gd_compile_at, gd_compile(make_net(), .optimizer = "no_such_optimizer"))
OBJECT(gd_fit_at, gd_fit(compiled(), gd_list(gd_ones(gd_dims(4, 5)), gd_ones(gd_dims(4, 2))),
                         .progress = GD_PROGRESS_NONE))
OBJECT(gd_evaluate_at,
       gd_evaluate(make_net(), gd_list(gd_ones(gd_dims(4, 3)), gd_ones(gd_dims(4, 2)))))
TENSOR(gd_predict_at, gd_predict(make_net(), gd_list(gd_ones(gd_dims(4, 5)))))
STATUS(gd_history_plot_at, gd_history_plot(NULL, missing))

/* boards */
OBJECT(gd_board_new_at, gd_board_new(""))
STATUS(gd_board_scalar_at, gd_board_scalar(NULL, "loss", 1, 0))
STATUS(gd_board_image_at, gd_board_image(NULL, "image", make_tensor(), 0))
STATUS(gd_board_text_at, gd_board_text(NULL, "text", "words", 0))
STATUS(gd_board_histogram_at, gd_board_histogram(NULL, "weight", make_tensor(), 0))

/* checkpoints */

/* autocast */

/* begin returns the previous setting, which a failure does not change */
CALL(gd_autocast_begin_at, gd_autocast_begin(GD_F64) == gd_autocast_dtype())
OBJECT(gd_loss_scale_new_at, gd_loss_scale_new(.start = -1))
TENSOR(gd_loss_scale_apply_at, gd_loss_scale_apply(gd_loss_scale_new(), NULL))
STATUS(gd_loss_scale_unscale_at, gd_loss_scale_unscale(gd_loss_scale_new(), NULL))
STATUS(gd_loss_scale_step_at, gd_loss_scale_step(gd_loss_scale_new(), NULL))
TENSOR(gd_loss_scale_value_at, gd_loss_scale_value(NULL))
TENSOR(gd_loss_scale_skipped_at, gd_loss_scale_skipped(NULL))

OBJECT(gd_caffe_test_at, gd_caffe_test(missing))
OBJECT(gd_caffe_net_at, gd_caffe_net(missing))
TENSOR(gd_caffe_read_blob_at, gd_caffe_read_blob(missing))
STATUS(gd_caffe_write_blob_at, gd_caffe_write_blob(missing, make_tensor()))
STATUS(gd_caffe_load_at, gd_caffe_load(missing, make_net()))
CALL(gd_caffe_convert_mnist_at, gd_caffe_convert_mnist(missing, missing) == -1)
CALL(gd_caffe_convert_images_at, gd_caffe_convert_images(missing, missing) == -1)
TENSOR(gd_caffe_mean_at, gd_caffe_mean(missing))
STATUS(gd_caffe_draw_net_at, gd_caffe_draw_net(missing, missing))
STATUS(gd_caffe_extract_at, gd_caffe_extract(missing, "fc", missing))
STATUS(gd_caffe_upgrade_at, gd_caffe_upgrade(missing, missing))
STATUS(gd_caffe_save_at, gd_caffe_save(missing, make_net()))
STATUS(gd_caffe_save_net_at, gd_caffe_save_net(missing, make_net(), make_tensor()))
OBJECT(gd_caffe_train_at, gd_caffe_train(missing))
STATUS(gd_onnx_save_module_at, gd_onnx_save_module(missing, NULL, gd_list(make_tensor())))
OBJECT(gd_onnx_module_at, gd_onnx_module(missing))
CALL(gd_onnx_metadata_at, gd_onnx_metadata(missing, "key", NULL, 0) == -1)
TENSOR(gd_empty_at, gd_empty(gd_dims(-3), GD_F32))
TENSOR(gd_from_array_at, gd_from_array(gd_dims(2), GD_F32, NULL))
TENSOR(gd_from_memory_at, gd_from_memory(gd_dims(2), NULL, GD_F32, NULL, NULL, NULL))
TENSOR(gd_scalar_of_at, gd_scalar_of(1, (gd_dtype)99))
STATUS(gd_copy_to_at, gd_copy_to(make_tensor(), NULL, 1))
STATUS(gd_copy_from_at, gd_copy_from(make_tensor(), NULL, 1))
CALL(gd_item_at, isnan(gd_item(make_tensor())))
CALL(gd_item_int_at, gd_item_int(make_tensor()) == 0)
TENSOR(gd_to_device_at, gd_to_device(make_tensor(), NULL))
OBJECT(gd_device_get, gd_device_get("abacus"))
STATUS(gd_set_default_device_named, gd_set_default_device("abacus"))
STATUS(gd_add_library_folder, gd_add_library_folder(""))
STATUS(gd_set_num_threads, gd_set_num_threads(1 << 20))
STATUS(gd_fprint_with, gd_fprint(NULL, make_tensor()))
STATUS(gd_profiler_table, gd_profiler_table(NULL))
STATUS(gd_profiler_save_trace, gd_profiler_save_trace(missing))
TENSOR(gd_requires_grad_at, gd_requires_grad(gd_cast(make_tensor(), GD_I64)))
STATUS(gd_set_requires_grad_at, gd_set_requires_grad(NULL, true))
STATUS(gd_set_grad_at, gd_set_grad(make_leaf(), gd_ones(gd_dims(4))))
TENSOR(gd_detach_at, gd_detach(NULL))
STATUS(gd_tensor_hook_at, gd_tensor_hook(make_tensor(), NULL, NULL))
STATUS(gd_backward_at, gd_backward(make_tensor()))
LIST(gd_grad_at, 2, gd_grad(gd_list(make_tensor()), gd_list(make_leaf(), make_leaf())))
LIST(gd_apply_at, 1, gd_apply(&no_output, gd_list(make_tensor()), NULL))
TENSOR(gd_recompute_at, gd_recompute(NULL, gd_list(make_leaf()), NULL))
TENSOR(gd_jvp_at, gd_jvp(NULL, gd_list(make_leaf()), gd_list(make_tensor()), NULL))
TENSOR(gd_jacobian_at, gd_jacobian(fn, gd_list(make_leaf()), 7, NULL))
LIST(gd_hvp_at, 1, gd_hvp(NULL, gd_list(make_leaf()), gd_list(make_tensor()), NULL))
STATUS(gd_gradcheck_at, gd_gradcheck(NULL, gd_list(make_leaf()), NULL))
OBJECT(gd_to_dlpack_at, gd_to_dlpack(make_leaf()))
OBJECT(gd_to_dlpack_unversioned_at, gd_to_dlpack_unversioned(make_leaf()))
TENSOR(gd_from_dlpack_at, gd_from_dlpack(NULL))
TENSOR(gd_from_dlpack_unversioned_at, gd_from_dlpack_unversioned(NULL))
STATUS(gd_dl_describe_at, gd_dl_describe(make_tensor(), NULL))
CALL(gd_dl_dtype_of_at, gd_dl_dtype_of(NULL) == GD_DTYPE_NONE)
CALL(gd_dl_device_of_at, gd_dl_device_of(NULL).type == 0)
OBJECT(gd_dl_find_device_at, gd_dl_find_device((gd_dl_device){99, 0}))
STATUS(gd_save_npy_at, gd_save_npy(missing, make_tensor()))
TENSOR(gd_load_npy_at, gd_load_npy(missing))
STATUS(gd_save_npz_at, gd_save_npz(missing, words, gd_list(make_tensor())))
TENSOR(gd_load_npz_at, gd_load_npz(missing, "x"))
OBJECT(gd_npz_open_at, gd_npz_open(missing))
TENSOR(gd_npz_load_at, gd_npz_load(NULL, "x"))
LIST(gd_npz_load_all_at, UNKNOWN, gd_npz_load_all(NULL))
STATUS(gd_onnx_save_at, gd_onnx_save(missing, make_session(), empty_list(), gd_list(make_tensor())))
OBJECT(gd_onnx_load_at, gd_onnx_load(missing))
STATUS(gd_save_state_at, gd_save_state(missing, gd_part("x", make_tensor())))
STATUS(gd_load_state_at, gd_load_state(missing, gd_part("x", make_tensor())))
OBJECT(gd_read_state_at, gd_read_state(missing))
OBJECT(gd_state_of_at, gd_state_of(gd_graph_new()))
OBJECT(gd_state_of_parts_at, gd_state_of_parts(gd_part("x", gd_graph_new())))
STATUS(gd_set_state_at, gd_set_state(make_session(), NULL))
TENSOR(gd_placeholder_at, gd_placeholder(gd_dims(2)))
TENSOR(gd_variable_at, gd_variable(make_tensor()))
TENSOR(gd_named_at, gd_named(make_tensor(), "x"))
OBJECT(gd_session_new_at, gd_session_new(NULL))
LIST(gd_session_run_at, 2,
     gd_session_run(make_session(), gd_feed(), gd_list(make_symbol(), make_symbol())))
STATUS(gd_session_plan_at, gd_session_plan(make_session(), gd_feed(), gd_list(make_symbol()), NULL))
OBJECT(gd_session_plan_text_at,
       gd_session_plan_text(make_session(), gd_feed(), gd_list(make_symbol())))
TENSOR(gd_session_get_at, gd_session_get(make_session(), make_tensor()))
STATUS(gd_session_set_at, gd_session_set(make_session(), make_tensor(), make_tensor()))
OBJECT(gd_jit_new_at, gd_jit_new(NULL, NULL))
STATUS(gd_jit_plan_at, gd_jit_plan(gd_jit_new(body, NULL), gd_list(make_tensor()), NULL))
OBJECT(gd_jit_plan_text_at, gd_jit_plan_text(gd_jit_new(body, NULL), gd_list(make_tensor())))
LIST(gd_jit_call_at, UNKNOWN, gd_jit_call(gd_jit_new(body, NULL), gd_list(make_tensor())))
LIST(gd_cond_at, 1, gd_cond(make_tensor(), body, body, gd_list(make_tensor()), NULL))
LIST(gd_while_loop_at, 1, gd_while_loop(NULL, body, gd_list(make_tensor()), NULL))
CALL(gd_scan_at,
     failed_list(gd_scan(NULL, gd_list(make_tensor()), gd_list(make_tensor()), NULL).state, 1))
TENSOR(gd_foldl_at, gd_foldl(NULL, make_tensor(), gd_list(make_tensor()), NULL))
OBJECT(gd_optim_sgd_at, gd_optim_sgd(empty_list()))
OBJECT(gd_optim_adam_at, gd_optim_adam(gd_list(make_leaf()), .lr = -1))
OBJECT(gd_optim_adam_of_at, gd_optim_adam_of(NULL))
OBJECT(gd_optimizer_new_of_at, gd_optimizer_new_of("no_such_optimizer", make_net(), NULL))
OBJECT(gd_optimizer_new_at, gd_optimizer_new("no_such_optimizer", gd_list(make_leaf()), NULL))
STATUS(gd_optimizer_add_at,
       gd_optimizer_add(gd_optim_sgd(gd_list(make_leaf())), gd_list(make_leaf()), .beta1 = 0.5))
STATUS(gd_optimizer_add_text_at, gd_optimizer_add_text(NULL, gd_list(make_leaf()), NULL))
LIST(gd_optimizer_parameters_at, UNKNOWN, gd_optimizer_parameters(NULL))
STATUS(gd_optimizer_set_options_at,
       gd_optimizer_set_options(gd_optim_sgd(gd_list(make_leaf())), "no_such_option=1"))
STATUS(gd_optimizer_set_factors_at,
       gd_optimizer_set_factors(gd_optim_sgd(gd_list(make_leaf())), make_tensor(), .lr = 2))
STATUS(gd_optimizer_define_at, gd_optimizer_define("nonsense", (gd_optimizer_rules){NULL}))
TENSOR(gd_clip_grad_norm_at, gd_clip_grad_norm(gd_list(make_leaf()), -1))
STATUS(gd_clip_grad_value_at, gd_clip_grad_value(gd_list(make_leaf()), -1))
OBJECT(gd_schedule_new_at, gd_schedule_new("cosine", gd_optim_sgd(gd_list(make_leaf())), NULL))
STATUS(gd_schedule_step_at, gd_schedule_step(NULL))
STATUS(gd_schedule_define_at, gd_schedule_define("nonsense", (gd_schedule_rules){NULL}))
STATUS(gd_optimizer_step_at, gd_optimizer_step(NULL))
TENSOR(gd_optimizer_lr_at, gd_optimizer_lr(NULL))
STATUS(gd_optimizer_set_lr_at, gd_optimizer_set_lr(NULL, 1))
TENSOR(gd_minimize_at, gd_minimize(NULL, make_symbol()))
TENSOR(gd_dense_at, gd_dense(make_tensor(), 3))
TENSOR(gd_init_xavier_uniform_at, gd_init_xavier_uniform(gd_dims(3)))
TENSOR(gd_init_xavier_normal_at, gd_init_xavier_normal(gd_dims(3)))
TENSOR(gd_init_kaiming_uniform_at, gd_init_kaiming_uniform(gd_dims(3)))
TENSOR(gd_init_kaiming_normal_at, gd_init_kaiming_normal(gd_dims(3)))
TENSOR(gd_index_at, gd_index(make_tensor(), 7))
TENSOR(gd_index_put__at, gd_index_put_(make_tensor(), gd_places(7), make_tensor()))
TENSOR(gd_index_put_at, gd_index_put(make_tensor(), gd_places(7), make_tensor()))
TENSOR(gd_shaped, gd_shaped(gd_dims(-2), GD_F32))
LIST(gd_op_call_at, 1, gd_op_call(gd_op_find("add"), gd_list(make_tensor()), NULL))
TENSOR(gd_call_at, gd_call("no_such_op", gd_list(make_tensor()), NULL))
STATUS(gd_op_run_into_at,
       gd_op_run_into(gd_op_find("add"), gd_list(make_tensor(), make_tensor()), NULL, empty_list()))
STATUS(gd_op_define_at, gd_op_define("nonsense", NULL))
STATUS(gd_kernel_register, gd_kernel_register(NULL))
OBJECT(gd_attrs_new, gd_attrs_new(NULL))
STATUS(gd_attrs_set_int, gd_attrs_set_int(NULL, "axis", 1))
STATUS(gd_attrs_set_float, gd_attrs_set_float(NULL, "axis", 1))
STATUS(gd_attrs_set_ints, gd_attrs_set_ints(NULL, "axis", 1, NULL))
STATUS(gd_attrs_set_text, gd_attrs_set_text(gd_attrs_new(gd_op_find("sum")), "axis", "?"))
STATUS(gd_attrs_parse, gd_attrs_parse(gd_attrs_new(gd_op_find("sum")), "axis"))

TENSOR(gd_module_forward_at, gd_module_forward(NULL, make_tensor()))
LIST(gd_module_call_at, UNKNOWN, gd_module_call(make_net(), gd_list(gd_ones(gd_dims(2, 7)))))
STATUS(gd_module_build_at, gd_module_build(make_net(), gd_ones(gd_dims(2, 7))))
OBJECT(gd_module_new_at, gd_module_new(NULL, SIZE_MAX / 2))
STATUS(gd_module_add_at, gd_module_add(make_net(), "a.b", make_net()))
STATUS(gd_module_add_parameter_at,
       gd_module_add_parameter(make_net(), "n", gd_cast(make_tensor(), GD_I64)))
STATUS(gd_module_add_buffer_at, gd_module_add_buffer(make_net(), "n.m", make_tensor()))
STATUS(gd_module_replace_at, gd_module_replace(make_net(), "nowhere", make_net()))
STATUS(gd_module_override_at, gd_module_override(make_net(), NULL, 0))
LIST(gd_module_base_forward_at, UNKNOWN, gd_module_base_forward(NULL, gd_list(make_tensor())))
STATUS(gd_module_remove_at, gd_module_remove(make_net(), "nothing"))
STATUS(gd_module_set_tensor_at, gd_module_set_tensor(make_net(), "nothing", make_tensor()))
OBJECT(gd_nn_sequential_at, gd_nn_sequential(make_net(), NULL))
OBJECT(gd_nn_list_at, gd_nn_list(NULL))
OBJECT(gd_nn_residual_at, gd_nn_residual(NULL, NULL))
STATUS(gd_module_append_at, gd_module_append(make_net(), NULL))
OBJECT(gd_nn_net_at, gd_nn_net(NULL, "y"))
STATUS(gd_net_add_at, gd_net_add(gd_nn_net("x", "y"), "a", make_net(), "nothing", "y"))
OBJECT(gd_layer_new_at, gd_layer_new("no_such_layer", ""))
STATUS(gd_layer_set_number_at, gd_layer_set_number(gd_nn_relu(), "no_such_option", 1))
STATUS(gd_layer_define_at, gd_layer_define("scale(x", (gd_layer_functions){NULL, NULL}))
LIST(gd_module_parameters_at, UNKNOWN, gd_module_parameters(NULL))
LIST(gd_module_buffers_at, UNKNOWN, gd_module_buffers(NULL))
OBJECT(gd_module_tensor_at, gd_module_tensor(make_net(), "wieght"))
OBJECT(gd_module_grad_at, gd_module_grad(make_net(), "wieght"))
OBJECT(gd_module_find_at, gd_module_find(make_net(), "nowhere"))
OBJECT(gd_module_at_at, gd_module_at(make_net(), 99))
STATUS(gd_module_apply_at, gd_module_apply(make_net(), NULL, NULL))
STATUS(gd_module_freeze_at, gd_module_freeze(NULL))
STATUS(gd_module_unfreeze_at, gd_module_unfreeze(NULL))
STATUS(gd_module_to_at, gd_module_to(make_net(), "abacus", GD_DTYPE_NONE))
OBJECT(gd_module_clone_at, gd_module_clone(NULL))
STATUS(gd_module_init_at, gd_module_init(make_net(), NULL, "no_such_initializer"))
CALL(gd_module_on_forward_at, gd_module_on_forward(make_net(), NULL, NULL) <= 0)
OBJECT(gd_net_new_at, gd_net_new("no_such_net", ""))
STATUS(gd_module_print_at, gd_module_print(NULL, make_tensor()))
OBJECT(gd_module_summary_at, gd_module_summary(NULL, make_tensor()))
STATUS(gd_module_draw_at, gd_module_draw(NULL, missing, gd_list(make_tensor())))
CALL(gd_module_macs_at, isnan(gd_module_macs(NULL, make_tensor())))

/* --- the list --------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    bool (*fails)(void);
    const char *why; /* why no call can fail; NULL: `fails` does */
} row;

#define FAILS(name) \
    { #name, fail_##name, NULL }
#define MEMORY   "fails only without memory, which the fault tests cover"
#define QUESTION "a query: 'none' is a valid answer"
#define BLOCK    "opens or closes a block, or releases"
#define RULE     "reports to the op whose rule calls it"
#define SETTING  "sets or reads a value that cannot be wrong"

static const row rows[] = {
    /* datasets and transforms */
    FAILS(gd_raise_at),
    FAILS(gd_dataset_get_at),
    FAILS(gd_dataset_from_at),
    FAILS(gd_dataset_new_at),
    FAILS(gd_dataset_transform_at),
    FAILS(gd_transform_new_at),
    FAILS(gd_transform_apply_at),
    FAILS(gd_dataset_define_at),
    FAILS(gd_transform_define_at),
    FAILS(gd_load_image_at),
    FAILS(gd_decode_image_at),
    FAILS(gd_save_png_at),
    FAILS(gd_make_grid_at),
    FAILS(gd_dataset_class_index_at),

    /* combined datasets, loaders and samplers */
    FAILS(gd_dataset_tensors_at),
    FAILS(gd_dataset_map_at),
    FAILS(gd_dataset_filter_at),
    FAILS(gd_dataset_zip_at),
    FAILS(gd_dataset_concat_at),
    FAILS(gd_dataset_subset_at),
    FAILS(gd_dataset_range_at),
    FAILS(gd_dataset_random_split_at),
    FAILS(gd_loader_new_at),
    FAILS(gd_loader_next_at),
    FAILS(gd_loader_seek_at),
    FAILS(gd_sampler_weighted_at),
    FAILS(gd_sampler_stratified_at),
    FAILS(gd_sampler_bucketed_at),
    FAILS(gd_sampler_distributed_at),
    FAILS(gd_sampler_from_at),
    {"gd_loader_tell", NULL, QUESTION},
    {"gd_loader_preparing", NULL, QUESTION},
    {"gd_loader_dataset", NULL, QUESTION},
    {"gd_random_of", NULL, SETTING},
    {"gd_random_word", NULL, SETTING},

    /* metrics and callbacks */
    FAILS(gd_metric_new_at),
    FAILS(gd_metric_accuracy_at),
    FAILS(gd_metric_update_at),
    FAILS(gd_metric_value_at),
    FAILS(gd_metric_number_at),
    FAILS(gd_metric_reset_at),
    FAILS(gd_metric_define_at),
    FAILS(gd_metric_add),
    FAILS(gd_callback_new_at),
    FAILS(gd_csv_log_at),
    FAILS(gd_callback_from_at),
    FAILS(gd_callback_define_at),
    {"gd_metric_name", NULL, QUESTION},
    {"gd_metric_options", NULL, QUESTION},
    {"gd_metric_sum", NULL, "reports to the metric whose rule calls it"},
    {"gd_event_value", NULL, QUESTION},
    {"gd_event_name_at", NULL, QUESTION},
    {"gd_event_stop", NULL, SETTING},

    /* compile, fit and history */
    FAILS(gd_compile_at),
    FAILS(gd_fit_at),
    FAILS(gd_evaluate_at),
    FAILS(gd_predict_at),
    FAILS(gd_history_plot_at),
    FAILS(gd_board_new_at),
    FAILS(gd_board_scalar_at),
    FAILS(gd_board_image_at),
    FAILS(gd_board_text_at),
    FAILS(gd_board_histogram_at),
    {"gd_compiled_optimizer", NULL, QUESTION},
    {"gd_compiled_schedule", NULL, QUESTION},
    {"gd_compiled_metric", NULL, QUESTION},
    {"gd_fit_interrupt", NULL, SETTING},
    {"gd_caffe_request_snapshot", NULL, SETTING},
    {"gd_history_rows", NULL, QUESTION},
    {"gd_history_columns", NULL, QUESTION},
    {"gd_history_name", NULL, QUESTION},
    {"gd_history_value", NULL, QUESTION},

    /* checkpoints */

    /* autocast */
    FAILS(gd_autocast_begin_at),
    FAILS(gd_loss_scale_new_at),
    FAILS(gd_loss_scale_apply_at),
    FAILS(gd_loss_scale_unscale_at),
    FAILS(gd_loss_scale_step_at),
    FAILS(gd_loss_scale_value_at),
    FAILS(gd_loss_scale_skipped_at),

    FAILS(gd_caffe_test_at),
    FAILS(gd_caffe_net_at),
    FAILS(gd_caffe_read_blob_at),
    FAILS(gd_caffe_write_blob_at),
    FAILS(gd_caffe_load_at),
    FAILS(gd_caffe_save_at),
    FAILS(gd_caffe_save_net_at),
    FAILS(gd_caffe_train_at),
    FAILS(gd_caffe_convert_mnist_at),
    FAILS(gd_caffe_convert_images_at),
    FAILS(gd_caffe_mean_at),
    FAILS(gd_caffe_draw_net_at),
    FAILS(gd_caffe_extract_at),
    FAILS(gd_caffe_upgrade_at),
    FAILS(gd_onnx_save_module_at),
    FAILS(gd_onnx_module_at),
    FAILS(gd_onnx_metadata_at),
    FAILS(gd_empty_at),
    FAILS(gd_from_array_at),
    FAILS(gd_from_memory_at),
    FAILS(gd_scalar_of_at),
    FAILS(gd_copy_to_at),
    FAILS(gd_copy_from_at),
    FAILS(gd_item_at),
    FAILS(gd_item_int_at),
    FAILS(gd_to_device_at),
    FAILS(gd_device_get),
    FAILS(gd_set_default_device_named),
    FAILS(gd_add_library_folder),
    FAILS(gd_set_num_threads),
    FAILS(gd_fprint_with),
    FAILS(gd_profiler_table),
    FAILS(gd_profiler_save_trace),
    FAILS(gd_requires_grad_at),
    FAILS(gd_set_requires_grad_at),
    FAILS(gd_set_grad_at),
    FAILS(gd_detach_at),
    FAILS(gd_tensor_hook_at),
    FAILS(gd_backward_at),
    FAILS(gd_grad_at),
    FAILS(gd_apply_at),
    FAILS(gd_recompute_at),
    FAILS(gd_jvp_at),
    FAILS(gd_jacobian_at),
    FAILS(gd_hvp_at),
    FAILS(gd_gradcheck_at),
    FAILS(gd_to_dlpack_at),
    FAILS(gd_to_dlpack_unversioned_at),
    FAILS(gd_from_dlpack_at),
    FAILS(gd_from_dlpack_unversioned_at),
    FAILS(gd_dl_describe_at),
    FAILS(gd_dl_dtype_of_at),
    FAILS(gd_dl_device_of_at),
    FAILS(gd_dl_find_device_at),
    {"gd_device_stream", NULL, QUESTION},
    FAILS(gd_save_npy_at),
    FAILS(gd_load_npy_at),
    FAILS(gd_save_npz_at),
    FAILS(gd_load_npz_at),
    FAILS(gd_npz_open_at),
    FAILS(gd_npz_load_at),
    FAILS(gd_npz_load_all_at),
    FAILS(gd_save_state_at),
    FAILS(gd_load_state_at),
    FAILS(gd_read_state_at),
    FAILS(gd_state_of_at),
    FAILS(gd_set_state_at),
    FAILS(gd_onnx_save_at),
    FAILS(gd_onnx_load_at),
    FAILS(gd_placeholder_at),
    FAILS(gd_variable_at),
    FAILS(gd_named_at),
    FAILS(gd_session_new_at),
    FAILS(gd_session_run_at),
    FAILS(gd_session_plan_at),
    FAILS(gd_session_plan_text_at),
    FAILS(gd_session_get_at),
    FAILS(gd_session_set_at),
    FAILS(gd_jit_new_at),
    FAILS(gd_jit_plan_at),
    FAILS(gd_jit_plan_text_at),
    FAILS(gd_jit_call_at),
    FAILS(gd_cond_at),
    FAILS(gd_while_loop_at),
    FAILS(gd_scan_at),
    FAILS(gd_foldl_at),
    FAILS(gd_optim_sgd_at),
    FAILS(gd_optim_adam_at),
    FAILS(gd_optimizer_step_at),
    FAILS(gd_optimizer_lr_at),
    FAILS(gd_optimizer_new_at),
    FAILS(gd_optim_adam_of_at),
    FAILS(gd_optimizer_new_of_at),
    FAILS(gd_optimizer_add_at),
    FAILS(gd_optimizer_add_text_at),
    FAILS(gd_optimizer_set_factors_at),
    FAILS(gd_optimizer_set_options_at),
    FAILS(gd_optimizer_parameters_at),
    {"gd_optimizer_option_name", NULL, QUESTION},
    {"gd_optimizer_type", NULL, QUESTION},
    {"gd_schedule_type", NULL, QUESTION},
    {"gd_optimizer_option", NULL, QUESTION},
    {"gd_optimizer_slot_name", NULL, QUESTION},
    FAILS(gd_state_of_parts_at),
    FAILS(gd_optimizer_define_at),
    FAILS(gd_clip_grad_norm_at),
    FAILS(gd_clip_grad_value_at),
    FAILS(gd_schedule_new_at),
    FAILS(gd_schedule_step_at),
    FAILS(gd_schedule_define_at),
    {"gd_update_options", NULL, QUESTION},
    {"gd_update_lr", NULL, QUESTION},
    {"gd_update_count", NULL, QUESTION},
    {"gd_update_each", NULL, RULE},
    FAILS(gd_optimizer_set_lr_at),
    FAILS(gd_minimize_at),
    FAILS(gd_dense_at),
    FAILS(gd_init_xavier_uniform_at),
    FAILS(gd_init_xavier_normal_at),
    FAILS(gd_init_kaiming_uniform_at),
    FAILS(gd_init_kaiming_normal_at),
    FAILS(gd_index_at),
    FAILS(gd_index_put_at),
    FAILS(gd_index_put__at),
    FAILS(gd_shaped),
    FAILS(gd_op_call_at),
    FAILS(gd_call_at),
    FAILS(gd_op_run_into_at),
    FAILS(gd_op_define_at),
    FAILS(gd_kernel_register),
    FAILS(gd_attrs_new),
    FAILS(gd_attrs_set_int),
    FAILS(gd_attrs_set_float),
    FAILS(gd_attrs_set_ints),
    FAILS(gd_attrs_set_text),
    FAILS(gd_attrs_parse),
    FAILS(gd_module_forward_at),
    FAILS(gd_module_call_at),
    FAILS(gd_module_build_at),
    FAILS(gd_module_add_at),
    FAILS(gd_module_add_parameter_at),
    FAILS(gd_module_add_buffer_at),
    FAILS(gd_module_replace_at),
    FAILS(gd_module_override_at),
    FAILS(gd_module_base_forward_at),
    FAILS(gd_module_remove_at),
    FAILS(gd_module_set_tensor_at),
    FAILS(gd_nn_sequential_at),
    FAILS(gd_nn_list_at),
    FAILS(gd_nn_residual_at),
    FAILS(gd_module_append_at),
    FAILS(gd_nn_net_at),
    FAILS(gd_net_add_at),
    FAILS(gd_layer_new_at),
    FAILS(gd_layer_set_number_at),
    FAILS(gd_layer_define_at),
    FAILS(gd_module_parameters_at),
    FAILS(gd_module_buffers_at),
    FAILS(gd_module_tensor_at),
    FAILS(gd_module_grad_at),
    FAILS(gd_module_find_at),
    FAILS(gd_module_at_at),
    FAILS(gd_module_apply_at),
    FAILS(gd_module_freeze_at),
    FAILS(gd_module_unfreeze_at),
    FAILS(gd_module_to_at),
    FAILS(gd_module_clone_at),
    FAILS(gd_module_init_at),
    FAILS(gd_module_on_forward_at),
    FAILS(gd_net_new_at),
    FAILS(gd_module_print_at),
    FAILS(gd_module_summary_at),
    FAILS(gd_module_draw_at),
    FAILS(gd_module_macs_at),
    FAILS(gd_module_new_at),
    {"gd_scalar_at", NULL, MEMORY},
    {"gd_scalar_int_at", NULL, MEMORY},
    {"gd_graph_new", NULL, MEMORY},
    {"gd_graph_text", NULL, MEMORY},
    {"gd_graph_dot", NULL, MEMORY},
    {"gd_graph_variables", NULL, MEMORY},
    {"gd_list_copy", NULL, MEMORY},
    {"gd_name_scope_begin", NULL, MEMORY},
    {"gd_after_begin", NULL, MEMORY},
    {"gd_synchronize", NULL, "fails only with its device"},
    {"gd_set_default_device", NULL, SETTING},
    {"gd_profiler_start", NULL, SETTING},
    {"gd_profiler_start_plans", NULL, SETTING},
    {"gd_infer_outputs", NULL, RULE},
    {"gd_kernel_output", NULL, RULE},
    {"gd_op_fail", NULL, RULE},
    {"gd_save", NULL, "the gd_apply whose forward calls it fails"},
    {"gd_saved", NULL, "the walk whose backward calls it fails"},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Functions that return nothing, a number, a word or a part of an object are queries or releases,
 * which cannot fail. */
static bool cannot_fail(const char *type, const char *name) {
    static const char *const answers[] = {
        "void",      "bool",   "int",      "int64_t",         "size_t",
        "unsigned",  "const",  "gd_dtype", "gd_word",         "gd_shape",
        "gd_memory", "gd_rng", "gd_scope", "gd_profile_span", "double"};
    static const char *const questions[] = {
        "gd_error_status",   "gd_graph_find", "gd_tensor_grad",       "gd_tensor_device",
        "gd_default_device", "gd_keep",       "gd_keep_list",         "gd_retain",
        "gd_data",           "gd_hold",       "gd_jit_difference_at", "gd_device_begin",
        "gd_graph_begin",    "gd_generator",  "gd_state_tensor_at",   "gd_state_find",
        "gd_layer_tensor"};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (strcmp(type, answers[i]) == 0) return true;
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        if (strcmp(name, questions[i]) == 0) return true;
    return strlen(name) > 7 && strcmp(name + strlen(name) - 7, "_retain") == 0;
}

static const row *row_of(const char *name) {
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

/* Calls `look` for each declaration "GD_API type *name(" of a header, with the first word of the
 * type and the name. Returns their number. */
static int each_declaration(const char *path, void (*look)(const char *type, const char *name)) {
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    char line[400];
    int count = 0;
    while (fgets(line, sizeof line, file)) {
        char type[40], *open = strchr(line, '(');
        if (strncmp(line, "GD_API ", 7) != 0 || !open ||
            sscanf(line + 7, "%39[a-z0-9_]", type) != 1)
            continue;
        char *end = open, *start;
        for (start = end; start > line && (isalnum((unsigned char)start[-1]) || start[-1] == '_');
             start--) {
        }
        *end = 0;
        look(type, start);
        count++;
    }
    fclose(file);
    return count;
}

static void check_has_row(const char *type, const char *name) {
    CHECK_SAYING(row_of(name) || cannot_fail(type, name),
                 "%s has no row: add a call of it that fails, or why there is none", name);
}

TEST(every_public_function_has_a_row) {
    DIR *folder = opendir(GRADUS_INCLUDE_DIR);
    CHECK_SAYING(folder, "%s cannot be read", GRADUS_INCLUDE_DIR);
    int count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", GRADUS_INCLUDE_DIR, entry->d_name);
        count += each_declaration(path, check_has_row);
    }
    if (folder) closedir(folder);
    CHECK_SAYING(count > 150, "only %d declarations were found", count);
}

TEST(a_failed_call_is_recorded_and_returns_the_error_value_of_its_type) {
    for (int i = 0; i < ROWS; i++) {
        if (!rows[i].fails) continue;
        GD_SCOPE;
        gd_clear_error();
        CHECK_SAYING(rows[i].fails(), "%s did not return what a failed call returns", rows[i].name);
        CHECK_SAYING(gd_failed() && gd_error_message()[0], "%s failed without recording a failure",
                     rows[i].name);
    }
    gd_clear_error();
}

/* Functions behind a macro report the line of the call. */
TEST(the_message_ends_with_the_source_line_of_the_call_once) {
    for (int i = 0; i < ROWS; i++) {
        const size_t length = strlen(rows[i].name);
        if (!rows[i].fails || strcmp(rows[i].name + length - 3, "_at") != 0) continue;
        GD_SCOPE;
        gd_clear_error();
        rows[i].fails();
        const char *said = gd_error_message(), *at = strstr(said, "test_failures.c:");
        CHECK_SAYING(at && !strstr(at + 1, "test_failures.c:"), "%s: %s", rows[i].name, said);
        CHECK_SAYING(said[0] && said[strlen(said) - 1] == ')', "%s: %s", rows[i].name, said);
    }
    gd_clear_error();
}

static int count_of(const char *part) {
    int count = 0;
    for (const char *at = gd_error_message(); (at = strstr(at, part)); at += strlen(part)) count++;
    return count;
}

TEST(an_op_that_fails_in_its_body_is_named_once) {
    GD_SCOPE;
    gd_cross_entropy(gd_ones(gd_dims(2, 3)), gd_full(gd_dims(2), 9, .dtype = GD_I64));
    CHECK_SAYING(count_of("cross_entropy") == 1 && count_of("test_failures.c:") == 1 &&
                     count_of("class 9") == 1,
                 "%s", gd_error_message());
    gd_clear_error();
}

TEST(negative_sizes_and_leaves_are_named_as_in_the_program) {
    GD_SCOPE;
    gd_zeros(gd_dims(2, -1));
    CHECK_SAYING(count_of("[2,-1]") == 1, "%s", gd_error_message());
    gd_clear_error();
    gd_reshape(gd_ones(gd_dims(6)), gd_dims(-1, -1));
    CHECK_SAYING(count_of("[-1,-1]") == 1, "%s", gd_error_message());
    gd_clear_error();
    gd_add_(make_leaf(), make_tensor());
    CHECK_SAYING(count_of("GD_NO_GRAD") == 1, "%s", gd_error_message());
    gd_clear_error();
}

/* The idiom that status.h promises: a training loop that is checked once, at its end. */
TEST(a_loop_whose_loss_has_no_gradient_fails_at_its_end) {
    GD_SCOPE;
    gd_tensor *w = make_leaf();
    gd_optimizer *sgd = gd_optim_sgd(gd_list(w), .lr = 0.1);
    for (int step = 0; step < 50; step++) {
        GD_SCOPE;
        gd_tensor *loss;
        {
            GD_NO_GRAD;
            loss = gd_sum(gd_square(w));
        }
        gd_backward(loss);
        gd_optimizer_step(sgd);
        gd_optimizer_zero_grad(sgd);
    }
    CHECK(gd_failed() && gd_error_status() == GD_E_STATE);
    CHECK_SAYING(strstr(gd_error_message(), "gd_backward"), "%s", gd_error_message());
    gd_clear_error();
}

TEST(a_failed_list_of_any_length_can_be_read) {
    GD_SCOPE;
    gd_tensor *x = gd_randn(gd_dims(4, 8)), *w = gd_randn(gd_dims(8, 24)); /* should be (24, 8) */
    gd_tensors qkv = gd_chunk(gd_linear(x, w, NULL), 3, .axis = -1);
    CHECK(failed_list(qkv, 3));
    CHECK(gd_tensor_is_error(gd_matmul(qkv.at[0], gd_transpose(qkv.at[2], 0, 1))));
    gd_clear_error();
    CHECK(failed_list(gd_chunk(x, 3000, .axis = 7), 3000));
    gd_clear_error();
    CHECK(failed_list(gd_split(x, gd_dims(1, 2, 3, 4, 5)), 5));
    gd_clear_error();
    CHECK(failed_list(gd_chunk(x, -2), UNKNOWN));
    gd_clear_error();
    gd_fault_after(0, true); /* also without memory */
    gd_tensors list = gd_chunk(x, 3000);
    gd_fault_after(-1, false);
    CHECK(list.count >= UNKNOWN && gd_tensor_is_error(list.at[0]) &&
          gd_tensor_is_error(list.at[list.count - 1]));
    gd_clear_error();
}

TEST_MAIN
