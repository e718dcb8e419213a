/* test_net.c - nets from text as modules. */
#include <string.h>

#include "clean_test.h"
#include "compare.h"
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

TEST_MAIN
