/* test_caffe_windows.c - layers with weights and windows: nets from text run the ops of the same net in C,
 * statistics are Caffe's sums, and wrong layers get messages. */
#include "caffe/net.h"
#include "caffe/schema.h"
#include "clean_test.h"
#include "compare.h"
#include "core/error.h"
#include "temp.h"

static gd_pb_doc *doc;

static gd_caffe_text_net *build(const char *text, gd_caffe_phase phase) {
    gd_caffe_text_net *net = NULL;
    gd_pb_free(doc);
    doc = NULL;
    if (gd_pb_read_text(&doc, &gd_caffe_net_schema, "net.prototxt", text, strlen(text)) == GD_OK)
        gd_caffe_net_build(&net, gd_pb_root(doc), "net.prototxt",
                           &(gd_caffe_net_settings){.phase = phase});
    return net;
}

static void drop(gd_caffe_text_net *net) {
    gd_caffe_net_free(net);
    gd_pb_free(doc);
    doc = NULL;
}

/* --- the same bits ---------------------------------------------------------------------------- */

#define GAUSSIAN "weight_filler { type: 'gaussian' std: 0.1 }"

static const char lenet_text[] =
    "input: 'data' input_shape { dim: 2 dim: 1 dim: 28 dim: 28 }\n"
    "layer { name: 'conv1' type: 'Convolution' bottom: 'data' top: 'conv1'\n"
    "  convolution_param { num_output: 6 kernel_size: 5 " GAUSSIAN " } }\n"
    "layer { name: 'pool1' type: 'Pooling' bottom: 'conv1' top: 'pool1'\n"
    "  pooling_param { kernel_size: 2 stride: 2 } }\n"
    "layer { name: 'conv2' type: 'Convolution' bottom: 'pool1' top: 'conv2'\n"
    "  convolution_param { num_output: 8 kernel_size: 5 " GAUSSIAN " } }\n"
    "layer { name: 'pool2' type: 'Pooling' bottom: 'conv2' top: 'pool2'\n"
    "  pooling_param { kernel_size: 2 stride: 2 } }\n"
    "layer { name: 'ip1' type: 'InnerProduct' bottom: 'pool2' top: 'ip1'\n"
    "  inner_product_param { num_output: 20 " GAUSSIAN " } }\n"
    "layer { name: 'relu1' type: 'ReLU' bottom: 'ip1' top: 'ip1' }\n"
    "layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2'\n"
    "  inner_product_param { num_output: 10 " GAUSSIAN " } }\n";

static gd_module *lenet_in_c(void) {
    return gd_nn_sequential(gd_nn_conv2d(1, 6, 5), gd_nn_max_pool2d(2), gd_nn_conv2d(6, 8, 5),
                            gd_nn_max_pool2d(2), gd_nn_flatten(), gd_nn_linear(128, 20),
                            gd_nn_relu(), gd_nn_linear(20, 10));
}

static gd_tensors step(gd_tensors in, void *net) {
    gd_tensor *y = gd_module_forward(net, in.at[0]);
    gd_backward(gd_sum(gd_square(y)));
    return gd_listed(y);
}

static void compare_steps(gd_module *a, gd_module *b, gd_tensor *x, bool jit) {
    const gd_tensors p = gd_module_parameters(a), q = gd_module_parameters(b);
    gd_module_zero_grad(a);
    gd_module_zero_grad(b);
    gd_tensors y = jit ? gd_jit_call(gd_jit_new(step, a), gd_list(x)) : step(gd_list(x), a);
    gd_tensors z = jit ? gd_jit_call(gd_jit_new(step, b), gd_list(x)) : step(gd_list(x), b);
    CHECK(tensors_same_bits(y.at[0], z.at[0]));
    for (int i = 0; i < p.count; i++)
        CHECK(tensors_same_bits(gd_tensor_grad(p.at[i]), gd_tensor_grad(q.at[i])));
}

TEST(lenet_from_text_has_the_bits_of_lenet_in_c) {
    GD_SCOPE;
    gd_seed(3);
    gd_caffe_text_net *net = build(lenet_text, GD_CAFFE_TRAIN);
    gd_module *in_c = lenet_in_c();
    gd_tensor *x = gd_randn(gd_dims(2, 1, 28, 28));
    CHECK_SAYING(net != NULL, "%s", gd_latest_failure());
    if (!net) return;
    const gd_tensors p = gd_module_parameters(net->module), q = gd_module_parameters(in_c);
    CHECK(p.count == 8 && q.count == 8);
    for (int i = 0; i < p.count; i++) {
        GD_NO_GRAD;
        gd_assign(q.at[i], p.at[i]);
    }
    compare_steps(net->module, in_c, x, false);
    compare_steps(net->module, in_c, x, true);
    drop(net);
}

/* --- statistics ------------------------------------------------------------------------------- */

TEST(batch_norm_keeps_sums) {
    GD_SCOPE;
    gd_caffe_text_net *net = build("input: 'x' input_shape { dim: 4 dim: 1 }\n"
                                   "layer { name: 'n' type: 'BatchNorm' bottom: 'x' top: 'y'\n"
                                   "  batch_norm_param { moving_average_fraction: 0.5 eps: 0 } }\n",
                                   GD_CAFFE_TRAIN);
    CHECK_SAYING(net != NULL, "%s", gd_latest_failure());
    if (!net) return;
    gd_tensor *x = gd_reshape(gd_arange(1, 5), gd_dims(4, 1)); /* mean 2.5, variance 5/3 */
    for (int i = 0; i < 2; i++) gd_module_forward(net->module, x);
    CHECK(gd_item(gd_module_tensor(net->module, "n.mean")) == 3.75);
    CHECK(fabs(gd_item(gd_module_tensor(net->module, "n.variance")) - 2.5) < 1e-6);
    CHECK(gd_item(gd_module_tensor(net->module, "n.weight")) == 1.5);
    gd_module_eval(net->module);
    gd_tensor *y = gd_module_forward(net->module, x); /* (x - 2.5) / sqrt(5/3) */
    CHECK(fabs(gd_item(gd_select(gd_select(y, 0, 3), 0, 0)) - 1.161895) < 1e-5);
    drop(net);
}

TEST(stochastic_pooling_draws_elements_by_their_share) {
    GD_SCOPE;
    gd_seed(5);
    gd_caffe_text_net *net = build("input: 'x' input_shape { dim: 1 dim: 1 dim: 2 dim: 2 }\n"
                                   "layer { name: 'p' type: 'Pooling' bottom: 'x' top: 'y'\n"
                                   "  pooling_param { pool: STOCHASTIC kernel_size: 2 } }\n",
                                   GD_CAFFE_TRAIN);
    CHECK_SAYING(net != NULL, "%s", gd_latest_failure());
    if (!net) return;
    static const float window[] = {1, 0, 2, 5};
    gd_tensor *x =
        gd_expand(gd_from_array(gd_dims(1, 1, 2, 2), GD_F32, window), gd_dims(4000, 1, 2, 2));
    gd_tensor *y = gd_module_forward(net->module, x);
    int counts[6] = {0};
    const float *values = gd_data(y);
    for (int i = 0; values && i < 4000; i++) counts[(int)values[i]]++;
    CHECK(counts[0] == 0 && counts[1] + counts[2] + counts[5] == 4000);
    CHECK(abs(counts[1] - 500) < 100 && abs(counts[2] - 1000) < 130 && abs(counts[5] - 2500) < 150);
    drop(net);
}

/* --- ONNX files ------------------------------------------------------------------------------- */

static const char many_text[] =
    "input: 'x' input_shape { dim: 2 dim: 4 dim: 9 dim: 9 }\n"
    "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c'\n"
    "  convolution_param { num_output: 4 kernel_size: 3 pad: 1 group: 2 " GAUSSIAN " } }\n"
    "layer { name: 'b' type: 'BatchNorm' bottom: 'c' top: 'b' }\n"
    "layer { name: 's' type: 'Scale' bottom: 'b' top: 's' scale_param { bias_term: true } }\n"
    "layer { name: 'r' type: 'PReLU' bottom: 's' top: 's' }\n"
    "layer { name: 'l' type: 'LRN' bottom: 's' top: 'l' }\n"
    "layer { name: 'w' type: 'LRN' bottom: 'l' top: 'w'\n"
    "  lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 } }\n"
    "layer { name: 'p' type: 'Pooling' bottom: 'w' top: 'p'\n"
    "  pooling_param { kernel_size: 3 stride: 2 } }\n"
    "layer { name: 'q' type: 'Pooling' bottom: 'p' top: 'q'\n"
    "  pooling_param { pool: AVE kernel_size: 3 stride: 1 pad: 2 } }\n"
    "layer { name: 'd' type: 'Deconvolution' bottom: 'q' top: 'd'\n"
    "  convolution_param { num_output: 3 kernel_size: 2 stride: 2 " GAUSSIAN " } }\n"
    "layer { name: 'g' type: 'Pooling' bottom: 'd' top: 'g'\n"
    "  pooling_param { pool: AVE global_pooling: true } }\n"
    "layer { name: 'v' type: 'Flatten' bottom: 'g' top: 'v' }\n"
    "layer { name: 'm' type: 'Scale' bottom: 'd' bottom: 'v' top: 'm' scale_param { axis: 0 } }\n"
    "layer { name: 'i' type: 'Im2col' bottom: 'm' top: 'i' convolution_param { kernel_size: 2 } }\n"
    "layer { name: 'y' type: 'SPP' bottom: 'i' top: 'y' spp_param { pyramid_height: 2 } }\n"
    "layer { name: 'f' type: 'InnerProduct' bottom: 'y' top: 'f'\n"
    "  inner_product_param { num_output: 5 " GAUSSIAN " } }\n";

TEST(layers_in_onnx_files_take_any_batch) {
    GD_SCOPE;
    gd_seed(9);
    gd_caffe_text_net *net = build(many_text, GD_CAFFE_TEST);
    CHECK_SAYING(net != NULL, "%s", gd_latest_failure());
    if (!net) return;
    gd_assign(gd_module_tensor(net->module, "b.variance"), gd_ones(gd_dims(4)));
    gd_assign(gd_module_tensor(net->module, "b.weight"), gd_ones(gd_dims(1)));
    const char *path = temp_path("many.onnx");
    CHECK(gd_onnx_save_module(path, net->module, gd_list(gd_zeros(gd_dims(2, 4, 9, 9)))) == GD_OK);
    gd_tensor *x = gd_randn(gd_dims(3, 4, 9, 9));
    gd_tensor *y = gd_module_forward(net->module, x);
    gd_tensor *z = gd_module_forward(gd_onnx_module(path), x);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(gd_tensor_dim(y, 0) == 3 && tensors_distance(y, z) < 1e-4);
    drop(net);
}

/* --- messages --------------------------------------------------------------------------------- */

static void check_message(const char *layer, const char *message) {
    GD_SCOPE;
    char text[2000];
    snprintf(
        text, sizeof text,
        "input: 'x' input_shape { dim: 1 dim: 3 dim: 5 dim: 5 } input: 's' input_shape { dim: 4 }\n"
        "layer { name: 'l' bottom: 'x' top: 'y' %s }\n",
        layer);
    gd_caffe_text_net *net = build(text, GD_CAFFE_TRAIN);
    CHECK_SAYING(!net && strstr(gd_latest_failure(), message), "%s", gd_latest_failure());
    CHECK_SAYING(net || strstr(gd_latest_failure(), "net.prototxt:2:1: layer 'l' ("), "%s",
                 gd_latest_failure());
    drop(net);
    gd_clear_error();
}

TEST(wrong_windows_get_messages) {
    check_message("type: 'Convolution' convolution_param { kernel_size: 3 }",
                  "it has no num_output");
    check_message("type: 'Convolution' convolution_param { num_output: 2 }",
                  "it has no kernel_size");
    check_message("type: 'Convolution' convolution_param { num_output: 2 kernel_size: 3 group: 2 }",
                  "group is 2; it must divide the 3 channels of its bottom and num_output, 2");
    check_message(
        "type: 'Convolution' convolution_param { num_output: 2 kernel_size: 1 kernel_size: 2 "
        "kernel_size: 3 }",
        "kernel_size has 3 numbers; it takes one, or one for each of 2 axes");
    check_message(
        "type: 'Convolution' convolution_param { num_output: 2 kernel_size: 3 kernel_h: 2 }",
        "it has kernel_size and kernel_h or kernel_w");
    check_message(
        "type: 'Convolution' convolution_param { num_output: 2 kernel_size: 3 stride: 0 }",
        "must be at least 1");
    check_message("type: 'Convolution' convolution_param { num_output: 2 kernel_size: 9 }",
                  "does not fit");
    check_message(
        "type: 'Deconvolution' convolution_param { num_output: 2 kernel_size: 3 axis: 4 }",
        "axis is 4, but its bottom has 4 axes");
    check_message("type: 'Pooling' pooling_param { }", "it has no kernel_size");
    check_message("type: 'Pooling' pooling_param { kernel_size: 2 pad: 2 }",
                  "pad is 2; it must be less than the kernel, 2");
    check_message("type: 'Pooling' pooling_param { kernel_h: 2 }",
                  "it needs kernel_size, or both of kernel_h and kernel_w");
    check_message("type: 'Pooling' pooling_param { kernel_size: 2 global_pooling: true }",
                  "with global_pooling the window is the plane");
    check_message("type: 'Pooling' top: 'mask' pooling_param { kernel_size: 2 pool: AVE }",
                  "only MAX pooling has a second one");
    check_message("type: 'Pooling' pooling_param { kernel_size: 9 }",
                  "does not fit into a plane of 5 x 5");
    check_message("type: 'SPP' spp_param { pyramid_height: 4 }", "pyramid_height must be less");
}

TEST(a_pyramid_of_empty_planes_gets_a_message) {
    GD_SCOPE;
    gd_caffe_text_net *net = build("input: 'x' input_shape { dim: 1 dim: 2 dim: 0 dim: 6 }\n"
                                   "layer { name: 'l' type: 'SPP' bottom: 'x' top: 'y'\n"
                                   "  spp_param { pyramid_height: 2 } }\n",
                                   GD_CAFFE_TEST);
    CHECK_SAYING(!net && strstr(gd_latest_failure(), "its bottom has empty planes"), "%s",
                 gd_latest_failure());
    drop(net);
    gd_clear_error();
}

TEST(other_wrong_layers_get_messages) {
    check_message("type: 'InnerProduct' inner_product_param { }", "it has no num_output");
    check_message("type: 'Embed' embed_param { num_output: 3 }", "it has no input_dim");
    check_message("type: 'LRN' lrn_param { local_size: 4 }", "local_size is 4; it must be odd");
    check_message("type: 'BatchNorm' param { lr_mult: 1 }", "write param { lr_mult: 0 }");
    check_message("type: 'Scale' scale_param { num_axes: 4 }", "num_axes is 4");
    check_message("type: 'Scale' bottom: 's'", "has size 4, but axis 1 of the first one has 3");
    check_message("type: 'Bias' bottom: 's' bias_param { axis: 3 }", "has size 4, but axis 3");
    check_message("type: 'Crop' bottom: 's'", "its bottoms have 4 and 1 axes");
    check_message("type: 'Crop' bottom: 'x' crop_param { offset: 1 }", "from offset 1 on");
    check_message("type: 'PReLU' bottom: 's'", "it takes 1 bottom");
}

TEST_MAIN
