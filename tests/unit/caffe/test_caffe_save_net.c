/* test_caffe_save_net.c - modules as prototxts: read back with their weights they give the same outputs. */
#include <stdlib.h>
#include <string.h>

#include "backend/test/device.h"
#include "clean_test.h"
#include "compare.h"
#include "files.h"
#include "gradus/gradus.h"
#include "temp.h"

static bool hdf5; /* weights are read from an HDF5 file */

/* Saves a module and its weights, reads both, and compares the outputs. The text; free() it. */
static char *round_trip(gd_module *net, gd_tensors in, double tolerance) {
    const char *text = temp_path("net.prototxt"), *weights = temp_path("net.caffemodel");
    char why[256] = "";
    gd_module_eval(net);
    const gd_tensors want = gd_module_call(net, in);
    CHECK_SAYING(gd_caffe_save_net_at(GD_HERE, text, net, in) == GD_OK, "%s", gd_error_message());
    CHECK_SAYING(gd_caffe_save(weights, net) == GD_OK, "%s", gd_error_message());
    if (hdf5) {
        weights = temp_path("net.caffemodel.h5");
        CHECK_SAYING(gd_caffe_save(weights, net) == GD_OK, "%s", gd_error_message());
    }
    const bool has_weights = gd_module_parameters(net).count > 0;
    gd_module *same = gd_caffe_net(text, .weights = has_weights ? weights : NULL);
    CHECK_SAYING(same != NULL, "%s", gd_error_message());
    char *content = file_read(text, NULL);
    if (!same) return content;
    gd_tensor *floats[8];
    for (int i = 0; i < in.count && i < 8; i++) floats[i] = gd_cast(in.at[i], GD_F32);
    const gd_tensors have = gd_module_call(same, ((gd_tensors){floats, in.count}));
    CHECK_SAYING(have.count == want.count, "%d outputs, not %d\n%s", (int)have.count,
                 (int)want.count, gd_error_message());
    for (int i = 0; i < want.count && i < have.count; i++)
        CHECK_SAYING(tensors_agree(have.at[i], want.at[i], tolerance, why), "output %d: %s\n%s", i,
                     why, content);
    return content;
}

static void check_round_trip(gd_module *net, gd_tensors in) { free(round_trip(net, in, 1e-5)); }

/* Makes the statistics of batch norms, and all parameters, other than those at the beginning. */
static gd_module *mixed(gd_module *net, gd_tensors in) {
    GD_NO_GRAD;
    gd_module_build_at(GD_HERE, net, in);
    gd_module_train(net);
    for (int i = 0; i < 3; i++) gd_module_call(net, in);
    const gd_tensors all = gd_module_parameters(net);
    for (int i = 0; i < all.count; i++)
        gd_assign(all.at[i], gd_add(all.at[i], gd_mul(gd_randn_like(all.at[i]), 0.05)));
    return net;
}

CLEAN_TEST(a_net_of_the_zoo_has_the_names_of_its_modules) {
    GD_SCOPE;
    gd_seed(1);
    const gd_tensors in = gd_list(gd_randn(gd_dims(2, 1, 28, 28)));
    char *text = round_trip(mixed(gd_zoo_lenet(), in), in, 1e-5);
    CHECK_SAYING(strstr(text, "name: \"conv1\"\n  type: \"Convolution\""), "%s", text);
    CHECK_SAYING(strstr(text, "num_output: 6\n    pad: 2\n    kernel_size: 5"), "%s", text);
    free(text);
}

CLEAN_TEST(residual_blocks_become_eltwise_layers) {
    GD_SCOPE;
    gd_seed(2);
    const gd_tensors in = gd_list(gd_randn(gd_dims(2, 3, 32, 32)));
    gd_module *net = mixed(gd_zoo_resnet20(), in);
    char *text = round_trip(net, in, 1e-5);
    hdf5 = true; /* names with slashes are groups there */
    check_round_trip(net, in);
    hdf5 = false;
    CHECK_SAYING(strstr(text, "\"layer2/0/bn1/scale\"") && strstr(text, "\"layer2/0/add\""), "%s",
                 text);
    free(text);
}

typedef struct shared_parts {
    gd_module *conv;
} shared_parts;

/* Two branches, which are joined, and a dense layer. */
static gd_tensors branches(gd_tensors in, void *self) {
    const shared_parts *m = self;
    gd_tensor *x = in.at[0];
    gd_tensor *a = gd_max_pool2d(gd_module_forward(m->conv, x), .kernel = 3, .stride = 2,
                                 .padding = 1); /* Caffe has one window more */
    gd_tensor *b = gd_avg_pool2d(gd_leaky_relu(gd_module_forward(m->conv, x)), .kernel = 2);
    gd_tensor *y = gd_cat(gd_list(a, b, gd_narrow(a, 1, 1, 2)), .axis = 1);
    gd_tensor *gate = gd_sigmoid(gd_mean(y, .axis = gd_dims(2, 3), .keepdim = true));
    y = gd_mul(y, gate);
    y = gd_div(gd_sub(y, 0.5),
               gd_from_array(gd_dims(10, 1, 1), GD_F32, (float[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    return gd_listed(gd_softmax(gd_flatten(y, .start_axis = 1)), a, gd_square(gd_sub(1, b)));
}

CLEAN_TEST(functions_of_the_program_are_layers_with_shared_weights) {
    GD_SCOPE;
    gd_seed(3);
    const gd_tensors in = gd_list(gd_randn(gd_dims(2, 3, 8, 8)));
    gd_module *net = gd_module_new(branches, sizeof(shared_parts));
    shared_parts *m = gd_module_self(net);
    GD_CHILD(net, m->conv, gd_nn_conv2d(3, 4, 3, .padding = 1));
    char *text = round_trip(net, in, 1e-5);
    CHECK_SAYING(strstr(text, "param {") && strstr(text, "type: \"Silence\""), "%s", text);
    free(text);
}

CLEAN_TEST(layers_of_the_library_are_layers_of_caffe) {
    GD_SCOPE;
    gd_seed(4);
    const gd_tensors images = gd_list(gd_randn(gd_dims(2, 4, 12, 12)));
    check_round_trip(
        mixed(
            gd_nn_sequential(gd_nn_conv2d(4, 6, 3, .stride = {{2, 1}}, .groups = 2, .bias = false),
                             gd_nn_elu(.alpha = 0.5), gd_nn_local_response_norm(3),
                             gd_nn_conv_transpose2d(6, 4, 3, .stride = 2, .padding = 1),
                             gd_nn_prelu(.num_parameters = 4), gd_nn_prelu(),
                             gd_nn_batch_norm2d(4, .affine = false), gd_nn_adaptive_avg_pool2d(1),
                             gd_nn_flatten(), gd_nn_dropout(), gd_nn_batch_norm1d(4),
                             gd_nn_linear(4, 5, .bias = false), gd_nn_tanh(), gd_nn_softplus(),
                             gd_nn_softmax(.axis = -1)),
            images),
        images);
    const gd_tensors lines = gd_list(gd_randn(gd_dims(2, 4, 12)));
    check_round_trip(
        gd_nn_sequential(gd_nn_conv1d(4, 3, 3, .dilation = 2), gd_nn_sigmoid(), gd_nn_linear(8, 2)),
        lines);
    const gd_tensors words =
        gd_list(gd_from_array(gd_dims(2, 3), GD_I64, (int64_t[]){0, 4, 2, 1, 3, 3}));
    check_round_trip(gd_nn_sequential(gd_nn_embedding(5, 4), gd_nn_linear(4, 2)), words);
}

CLEAN_TEST(an_op_of_the_program_and_a_dropout_keep_their_options) {
    GD_SCOPE;
    CHECK(gd_op_define("my_bent(x) -> y  elementwise float\n"
                       "x times a plus b.\n"
                       "  a float = 2\n"
                       "  b float = 1\n"
                       "  y = x * a + b\n",
                       NULL) == GD_OK);
    gd_module *net =
        gd_nn_sequential(gd_nn_op("my_bent", .options = "b=0.5"), gd_nn_dropout(.p = 0.3));
    char *text = round_trip(net, gd_list(gd_ones(gd_dims(2, 3))), 1e-6);
    CHECK_SAYING(strstr(text, "my_bent_param {\n    b: 0.5\n  }"), "%s", text);
    CHECK_SAYING(strstr(text, "dropout_ratio: 0.3"), "%s", text);
    free(text);
}

/* What a module gives twice, and its input. */
static gd_tensors repeats(gd_tensors in, void *self) {
    (void)self;
    gd_tensor *y = gd_tanh(in.at[1]);
    return gd_listed(y, in.at[1], y, gd_relu(y));
}

CLEAN_TEST(outputs_keep_their_order_and_inputs_need_no_readers) {
    GD_SCOPE;
    gd_seed(7);
    gd_tensor *x = gd_randn(gd_dims(2, 3));
    check_round_trip(gd_module_new(repeats, 0), gd_list(gd_ones(gd_dims(4)), x));
}

CLEAN_TEST(the_weights_of_a_saved_net_are_those_of_the_time) {
    GD_SCOPE;
    gd_module *net = gd_nn_sequential(gd_nn_batch_norm1d(3));
    const char *text = temp_path("bn.prototxt"), *weights = temp_path("bn.caffemodel");
    gd_tensor *x = gd_from_array(gd_dims(2, 3), GD_F32, (float[]){1, 2, 3, 5, 6, 7});
    CHECK(gd_caffe_save_net(text, net, x) == GD_OK);
    gd_module_forward(net, x); /* train mode: the statistics change */
    CHECK(gd_caffe_save(weights, net) == GD_OK);
    gd_module_eval(net);
    gd_tensor *y = gd_module_forward(gd_caffe_net(text, .weights = weights), x);
    CHECK_SAYING(tensors_relative_distance(y, gd_module_forward(net, x)) < 1e-6, "%s",
                 gd_error_message());
}

CLEAN_TEST(a_module_on_a_device_is_saved) {
    GD_SCOPE;
    gd_seed(8);
    gd_module *net = gd_nn_sequential(gd_nn_conv2d(2, 3, 3), gd_nn_batch_norm2d(3),
                                      gd_nn_prelu(.num_parameters = 3));
    gd_tensor *x = gd_randn(gd_dims(1, 2, 5, 5));
    gd_module_eval(net);
    gd_tensor *want = gd_module_forward(net, x);
    gd_module_to(net, gd_device_name(gd_test_device()), GD_DTYPE_NONE);
    const char *text = temp_path("device.prototxt"), *weights = temp_path("device.caffemodel");
    CHECK_SAYING(gd_caffe_save_net(text, net, gd_to_device(x, gd_test_device())) == GD_OK, "%s",
                 gd_error_message());
    CHECK_SAYING(gd_caffe_save(weights, net) == GD_OK, "%s", gd_error_message());
    gd_tensor *y = gd_module_forward(gd_caffe_net(text, .weights = weights), x);
    CHECK_SAYING(tensors_relative_distance(y, want) < 1e-5, "%s", gd_error_message());
}

static const char text_of_net[] =
    "name: 'n' input: 'x' input_shape { dim: 2 dim: 3 dim: 6 dim: 6 }\n"
    "layer { name: 'c/1.a' type: 'Convolution' bottom: 'x' top: 'c' param { name: 'w' lr_mult: 2 "
    "}\n"
    "  convolution_param { num_output: 3 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } } "
    "}\n"
    "layer { name: 'r' type: 'ReLU' bottom: 'c' top: 'c' }\n"
    "layer { name: 'c2' type: 'Convolution' bottom: 'c' top: 'c2' param { name: 'w' }\n"
    "  convolution_param { num_output: 3 kernel_size: 3 pad: 1 } }\n"
    "layer { name: 'fc' type: 'InnerProduct' bottom: 'c2' top: 'f'\n"
    "  inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'side' type: 'Power' bottom: 'c' top: 'b' power_param { power: 2 shift: 0.1 } "
    "}\n";

CLEAN_TEST(a_net_from_text_keeps_its_names_fields_and_places) {
    GD_SCOPE;
    gd_seed(5);
    const gd_tensors in = gd_list(gd_randn(gd_dims(2, 3, 6, 6)));
    gd_module *net = gd_caffe_net(temp_write_text("given.prototxt", text_of_net));
    char *text = round_trip(net, in, 0);
    CHECK_SAYING(strstr(text, "name: \"r\"\n  type: \"ReLU\"\n  bottom: \"c\"\n  top: \"c\""), "%s",
                 text);
    CHECK_SAYING(strncmp(text, "name: \"n\"\n", 10) == 0, "%s", text);
    CHECK_SAYING(strstr(text, "lr_mult: 2") && strstr(text, "type: \"xavier\""), "%s", text);
    free(text);
}

CLEAN_TEST(a_replaced_layer_is_written_as_it_is) {
    GD_SCOPE;
    gd_seed(6);
    const gd_tensors in = gd_list(gd_randn(gd_dims(2, 3, 6, 6)));
    gd_module *net = gd_caffe_net(temp_write_text("given.prototxt", text_of_net));
    gd_module_replace(net, "fc", gd_nn_sequential(gd_nn_flatten(), gd_nn_linear(108, 7)));
    char *text = round_trip(net, in, 1e-5);
    CHECK_SAYING(strstr(text, "num_output: 7") && strstr(text, "top: \"f\""), "%s", text);
    free(text);
}

CLEAN_TEST(what_caffe_lacks_is_named) {
    GD_SCOPE;
    gd_tensor *x = gd_ones(gd_dims(2, 3, 5, 5));
    const char *path = temp_path("no.prototxt");
    CHECK(gd_caffe_save_net(path, gd_nn_sequential(gd_nn_relu(), gd_nn_gelu()), x) ==
          GD_E_UNSUPPORTED);
    CHECK_SAYING(says("layer '1' (gelu): Caffe has no layer for gelu"), "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_caffe_save_net(path, gd_nn_adaptive_avg_pool2d(2), x) == GD_E_UNSUPPORTED);
    CHECK_SAYING(says("must be a multiple"), "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_caffe_save_net(path, gd_nn_softplus(.beta = 2), x) == GD_E_UNSUPPORTED);
    CHECK_SAYING(says("beta = 1, and this one has 2"), "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_caffe_save_net(path, gd_nn_relu()) == GD_E_ARGUMENT);
    CHECK_SAYING(says("an example of each input"), "%s", gd_error_message());
    gd_clear_error();
    CHECK(!file_exists(path));
}

TEST_MAIN
