/* test_net.c - nets from text as modules. */
#include <stdio.h>
#include <string.h>

#include "capture.h"
#include "clean_test.h"
#include "compare.h"
#include "temp.h"
#include "gradus/gradus.h"
#include "caffe/net.h"
#include "caffe/schema.h"

static gd_pb_doc *doc;
static gd_caffe_text_net *build(const char *text, const gd_caffe_net_settings *settings) {
    gd_caffe_text_net *net = NULL;
    gd_pb_free(doc);
    doc = NULL;
    if (gd_pb_read_text(&doc, &gd_caffe_net_schema, "net.prototxt", text, strlen(text)) == GD_OK)
        gd_caffe_net_build(&net, gd_pb_root(doc), "net.prototxt", settings);
    return net;
}

TEST(layers_become_rows_of_a_net) {
    GD_SCOPE;
    static const char text[] =
        "name: 'tiny'\n"
        "input: 'data' input_shape { dim: 2 dim: 3 }\n"
        "layer { name: 'act' type: 'TanH' bottom: 'data' top: 'data' }\n"
        "layer { name: 'a/b.c' type: 'Softmax' bottom: 'data' top: 'prob' }\n"
        "layer { name: 'quiet' type: 'Silence' bottom: 'prob' include { phase: TRAIN } }\n"
        "layer { name: 'power' type: 'Sigmoid' bottom: 'data' top: 'z' include { phase: TEST } }\n";
    gd_caffe_text_net *net = build(text, &(gd_caffe_net_settings){.phase = GD_CAFFE_TEST});
    CHECK(net);
    if (!net) printf("%s\n", gd_latest_failure());
    if (!net) return;
    CHECK(net->n_inputs == 1 && net->n_outputs == 2);
    CHECK(strcmp(net->outputs[0].name, "prob") == 0 && strcmp(net->outputs[1].name, "z") == 0);
    gd_tensors y = gd_module_call(net->module, gd_list(gd_ones(gd_dims(4, 3))));
    CHECK(y.count == 2 && gd_tensor_dim(y.at[0], 0) == 4);
    CHECK(gd_item(gd_sum(y.at[0])) == 4);
    gd_caffe_net_free(net);
}

TEST(an_op_of_the_program_is_a_layer_with_its_options_as_fields) {
    GD_SCOPE;
    CHECK(gd_op_define("my_shifted(x) -> y  elementwise float\n"
                       "x times a plus b.\n"
                       "  a float = 2\n"
                       "  b float = 1\n"
                       "  y = x * a + b\n",
                       NULL) == GD_OK);
    static const char text[] =
        "input: 'x' input_shape { dim: 2 dim: 3 }\n"
        "layer { name: 'l' type: 'my_shifted' bottom: 'x' top: 'y' my_shifted_param { b: 0.5 } }\n";
    gd_caffe_text_net *net = build(text, &(gd_caffe_net_settings){.phase = GD_CAFFE_TEST});
    CHECK_SAYING(net, "%s", gd_latest_failure());
    if (!net) return;
    gd_tensors y = gd_module_call(net->module, gd_list(gd_ones(gd_dims(2, 3))));
    CHECK(y.count == 1 && gd_item(gd_sum(y.at[0])) == 15);
    gd_caffe_net_free(net);
}

TEST(a_blob_with_too_many_elements_is_refused) {
    GD_SCOPE;
    static const char text[] =
        "input: 'data' input_shape { dim: 4294967296 dim: 0 dim: 4294967296 }\n"
        "layer { name: 'act' type: 'TanH' bottom: 'data' top: 'y' }\n";
    CHECK(!build(text, &(gd_caffe_net_settings){.phase = GD_CAFFE_TEST}));
    CHECK_SAYING(strstr(gd_latest_failure(), "the blob 'data' has too many elements"), "%s",
                 gd_latest_failure());
    gd_clear_error();
}

/* Names of its layers that the net has. */
static void check_layers(const char *outputs, const char *names) {
    static const char text[] = "input: 'x' input_shape { dim: 2 dim: 3 }\n"
                               "layer { name: 'a' type: 'TanH' bottom: 'x' top: 'h' }\n"
                               "layer { name: 'b' type: 'Sigmoid' bottom: 'h' top: 'side' }\n"
                               "layer { name: 'c' type: 'ReLU' bottom: 'h' top: 'h' }\n"
                               "layer { name: 'd' type: 'AbsVal' bottom: 'h' top: 'y' }\n"
                               "layer { name: 'e' type: 'no such type' bottom: 'y' top: 'z' }\n"
                               "layer { name: 'f' type: 'Silence' bottom: 'side' }\n";
    char found[100] = "";
    gd_caffe_text_net *net =
        build(text, &(gd_caffe_net_settings){.phase = GD_CAFFE_TEST, .outputs = outputs});
    CHECK_SAYING(net != NULL, "%s", gd_latest_failure());
    gd_module_part part;
    for (int i = 0; net && gd_module_part_at(net->module, i, &part); i++) strcat(found, part.name);
    CHECK_SAYING(strcmp(found, names) == 0, "%s: %s", outputs, found);
    gd_caffe_net_free(net);
}

TEST(layers_that_named_outputs_do_not_need_are_left_out) {
    GD_SCOPE;
    check_layers("y", "acd");
    check_layers("h", "ac");
    check_layers("side", "ab");
    check_layers("side y", "abcd");
    CHECK(!build("input: 'x' input_shape { dim: 2 }\n",
                 &(gd_caffe_net_settings){.phase = GD_CAFFE_TEST, .outputs = "x1"}));
    CHECK(strstr(gd_latest_failure(), "has no blob 'x1'"));
    gd_clear_error();
}

static void check_refused(const char *layers, const char *message) {
    char text[1000];
    snprintf(text, sizeof text, "input: 'x' input_shape { dim: 2 dim: 3 }\n%s", layers);
    CHECK_SAYING(!build(text, &(gd_caffe_net_settings){.phase = GD_CAFFE_TEST}), "%s", layers);
    CHECK_SAYING(strcmp(gd_latest_failure(), message) == 0, "%s\n%s", gd_latest_failure(), message);
    gd_clear_error();
}

TEST(fields_of_tops_and_bottoms_are_there_for_each_or_for_none) {
    GD_SCOPE;
    check_refused(
        "layer { name: 'a' type: 'ReLU' bottom: 'x' top: 'y' loss_weight: 1 loss_weight: 2 }",
        "net.prototxt:2:1: layer 'a' (ReLU): it has 2 loss_weight, but 1 top; each needs "
        "one, or none has one");
    check_refused(
        "layer { name: 'a' type: 'Eltwise' bottom: 'x' bottom: 'x' top: 'y' propagate_down: true }",
        "net.prototxt:2:1: layer 'a' (Eltwise): it has 1 propagate_down, but 2 bottoms; each needs "
        "one, or none has one");
}

TEST(a_failure_of_a_part_of_a_layer_has_one_place) {
    GD_SCOPE;
    check_refused(
        "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'y' inner_product_param {\n"
        "  num_output: 2 weight_filler { type: 'xaver' } } }",
        "net.prototxt:3:17: layer 'a' (InnerProduct): there is no filler of type 'xaver'; "
        "the types are constant, uniform, gaussian, positive_unitball, xavier, msra and "
        "bilinear");
}

TEST(layers_need_no_names_and_may_have_equal_ones) {
    GD_SCOPE;
    static const char text[] = "input: 'x' input_shape { dim: 2 dim: 3 }\n"
                               "layer { name: 'a' type: 'ReLU' bottom: 'x' top: 'x' }\n"
                               "layer { name: 'a' type: 'TanH' bottom: 'x' top: 'b' }\n"
                               "layer { type: 'ReLU' bottom: 'x' top: 'c' }\n"
                               "layer { type: 'ReLU' bottom: 'x' top: 'd' }\n"
                               "layer { type: 'Silence' bottom: 'd' }\n"
                               "layer { type: 'EuclideanLoss' bottom: 'c' bottom: 'x' }\n"
                               "layer { type: 'EuclideanLoss' bottom: 'b' bottom: 'x' }\n";
    static const char *const names[] = {"a",      "a_1",           "ReLU",
                                        "ReLU_1", "EuclideanLoss", "EuclideanLoss_1"};
    gd_caffe_text_net *net = build(text, &(gd_caffe_net_settings){.phase = GD_CAFFE_TRAIN});
    CHECK_SAYING(net, "%s", gd_latest_failure());
    gd_module_part part;
    for (int i = 0; net && i < 6; i++)
        CHECK_SAYING(gd_module_part_at(net->module, i, &part) && strcmp(part.name, names[i]) == 0,
                     "%d", i);
    gd_caffe_net_free(net);
}

TEST(a_zero_byte_does_not_end_a_text) {
    gd_pb_doc *read = NULL;
    static const char text[] = "name: 'a'\n\0layer {";
    CHECK(gd_pb_read_text(&read, &gd_caffe_net_schema, "net.prototxt", text, sizeof text - 1) ==
          GD_E_FORMAT);
    CHECK_SAYING(strcmp(gd_latest_failure(),
                        "net.prototxt:2:1: expected the name of a field, found byte 0x00") == 0,
                 "%s", gd_latest_failure());
    gd_pb_free(read);
}

TEST(options_and_paths_may_be_null) {
    GD_SCOPE;
    const char *path =
        temp_write_text("null.prototxt", "input: 'x' input_shape { dim: 2 }\n"
                                         "layer { name: 'a' type: 'ReLU' bottom: 'x' top: 'y' }");
    CHECK(gd_caffe_net_at(NULL, path, NULL));
    CHECK(!gd_caffe_net_at(NULL, NULL, NULL) && strstr(gd_error_message(), "the path is NULL"));
    gd_clear_error();
    CHECK(!gd_caffe_train_at(NULL, NULL, NULL));
    gd_clear_error();
    CHECK(!gd_caffe_test_at(NULL, NULL, NULL));
    gd_clear_error();
    CHECK(gd_caffe_convert_mnist_at(NULL, NULL, NULL, NULL) == -1);
    gd_clear_error();
    CHECK(gd_caffe_convert_images_at(NULL, NULL, NULL, NULL) == -1);
    gd_clear_error();
}

/* --- weights ---------------------------------------------------------------------------------- */

#define FC                                                                                  \
    "layer { name: 'fc%s' type: 'InnerProduct' bottom: 'x' top: 'y' inner_product_param { " \
    "num_output: 2 } }"

TEST(files_of_weights_that_give_nothing_are_noticed) {
    GD_SCOPE;
    char text[400];
    snprintf(text, sizeof text, "input: 'x' input_shape { dim: 2 dim: 3 }\n" FC, "");
    gd_module *net = gd_caffe_net(temp_write_text("fc.prototxt", text));
    snprintf(text, sizeof text, "input: 'x' input_shape { dim: 2 dim: 3 }\n" FC, "2");
    gd_module *other = gd_caffe_net(temp_write_text("fc2.prototxt", text));
    const char *weights = temp_path("fc.caffemodel");
    CHECK(gd_caffe_save(weights, net) == GD_OK);
    capture_log(GD_LOG_WARNING);
    CHECK(gd_caffe_load(weights, net) == GD_OK && captured.warnings == 0);
    CHECK(gd_caffe_load(weights, other) == GD_OK);
    CHECK_SAYING(captured.warnings == 1 &&
                     strstr(captured.text, "nothing was copied: none of its 1 layers"),
                 "%s", captured.text);
    end_log_capture();
    CHECK(gd_caffe_load(temp_write_text("empty.caffemodel", ""), net) == GD_E_FORMAT);
    CHECK(strstr(gd_latest_failure(), "empty.caffemodel: there are no weights in this file"));
    gd_clear_error();
    CHECK(gd_caffe_load(temp_path("fc.prototxt"), net) == GD_E_FORMAT);
    gd_clear_error();
    weights = temp_write_text("lies.caffemodel",
                              "layer { name: 'fc' blobs { data: 1 shape { dim: 2 dim: 3 } }\n"
                              "  blobs { data: 1 data: 2 shape { dim: 2 } } }");
    CHECK(gd_caffe_load(weights, net) == GD_E_FORMAT);
    CHECK_SAYING(strstr(gd_latest_failure(),
                        "lies.caffemodel:1:20: layer 'fc': its blob 0 of shape "
                        "[2,3] has 4 bytes of f32"),
                 "%s", gd_latest_failure());
    gd_clear_error();
}

TEST_MAIN
