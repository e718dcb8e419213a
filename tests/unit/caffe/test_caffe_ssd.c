/* test_caffe_ssd.c - SSD's layers: boxes are found eagerly, what cannot be traced, what is refused.
 * tests/caffe/against_opencv.py compares them with OpenCV; some of its cases are stored.
 */
#include <string.h>

#include "backend/test/device.h"
#include "caffe/net.h"
#include "caffe/schema.h"
#include "caffe_golden.h"
#include "clean_test.h"
#include "compare.h"
#include "core/error.h"
#include "fault_walk.h"
#include "gradus/gradus.h"
#include "temp.h"

static gd_pb_doc *doc;

static gd_caffe_text_net *build(const char *text, const char *outputs) {
    gd_caffe_text_net *net = NULL;
    const gd_caffe_net_settings settings = {.phase = GD_CAFFE_TEST, .outputs = outputs};
    if (gd_pb_read_text(&doc, &gd_caffe_net_schema, "net.prototxt", text, strlen(text)) == GD_OK)
        gd_caffe_net_build(&net, gd_pb_root(doc), "net.prototxt", &settings);
    return net;
}

static void drop(gd_caffe_text_net *net) {
    gd_caffe_net_free(net);
    gd_pb_free(doc);
    doc = NULL;
}

CLEAN_TEST(boxes_agree_with_opencv) {
    static caffe_case c;
    FILE *file = fopen(GRADUS_TESTS "/caffe/golden/eager/detection_output.txt", "r");
    int count = 0;
    CHECK(file != NULL);
    for (bool more = file != NULL; more; count += more) {
        GD_SCOPE;
        more = caffe_case_read(file, &c);
        if (more) CHECK(caffe_case_run(&c, "eager") == 0);
    }
    CHECK(file && feof(file) && count >= 10);
    if (file) fclose(file);
}

/* Locations and scores are inputs: two images, three boxes, two classes. */
static const char deploy[] =
    "input: 'loc' input_shape { dim: 2 dim: 12 } input: 'conf' input_shape { dim: 2 dim: 6 }\n"
    "input: 'prior' input_shape { dim: 1 dim: 2 dim: 12 }\n"
    "layer { name: 'act' type: 'TanH' bottom: 'loc' top: 'box' }\n"
    "layer { name: 'found' type: 'DetectionOutput' bottom: 'box' bottom: 'conf' bottom: 'prior'\n"
    "  top: 'found' detection_output_param { num_classes: 2 confidence_threshold: 0.5 } }\n";

static gd_tensors deploy_inputs(float score) {
    static const float boxes[] = {0, 0, 1, 1, 0, 0, 0.5f, 0.9f, 0.5f, 0.5f, 1, 1};
    gd_tensor *prior = gd_from_array(gd_dims(12), GD_F32, boxes);
    return gd_listed(gd_zeros(gd_dims(2, 12)), gd_full(gd_dims(2, 6), score),
                     gd_reshape(gd_cat(gd_list(prior, prior), .axis = 0), gd_dims(1, 2, 12)));
}

CLEAN_TEST(overlapping_boxes_are_dropped_and_nothing_found_is_a_row_of_minus_one) {
    GD_SCOPE;
    gd_caffe_text_net *net = build(deploy, NULL);
    CHECK_SAYING(net != NULL, "%s", gd_latest_failure());
    if (!net) return;
    gd_tensor *found = gd_module_call(net->module, deploy_inputs(0.75f)).at[0];
    static const float want[] = {0, 1, 0.75f, 0, 0, 1, 1, 0, 1, 0.75f, 0.5f, 0.5f, 1, 1,
                                 1, 1, 0.75f, 0, 0, 1, 1, 1, 1, 0.75f, 0.5f, 0.5f, 1, 1};
    CHECK(tensors_same_bits(found, gd_from_array(gd_dims(1, 1, 4, 7), GD_F32, want)));
    found = gd_module_call(net->module, deploy_inputs(0.25f)).at[0];
    static const float none[] = {0, -1, -1, -1, -1, -1, -1, 1, -1, -1, -1, -1, -1, -1};
    CHECK(tensors_same_bits(found, gd_from_array(gd_dims(1, 1, 2, 7), GD_F32, none)));
    drop(net);
}

static gd_tensors call_net(gd_tensors in, void *net) { return gd_module_call(net, in); }

CLEAN_TEST(a_jit_and_an_onnx_file_end_before_the_boxes) {
    GD_SCOPE;
    gd_caffe_text_net *net = build(deploy, NULL);
    gd_clear_error();
    gd_jit_call(gd_jit_new(call_net, net->module), deploy_inputs(1));
    CHECK_SAYING(says("cannot be traced") && says(".outputs = \"box conf prior\""), "%s",
                 gd_error_message());
    gd_clear_error();
    drop(net);

    net = build(deploy, "box conf");
    CHECK(net && net->n_outputs == 2);
    const gd_tensors in = deploy_inputs(1), y = gd_jit_call(gd_jit_new(call_net, net->module), in);
    CHECK_SAYING(y.count == 2 && !gd_failed(), "%s", gd_error_message());
    const char *path = temp_path("ssd.onnx");
    CHECK_SAYING(gd_onnx_save_module(path, net->module, in) == GD_OK, "%s", gd_error_message());
    drop(net);
}

CLEAN_TEST(a_net_with_boxes_runs_on_the_test_device) {
    GD_SCOPE;
    gd_caffe_text_net *net = build(deploy, NULL);
    gd_tensor *want = gd_module_call(net->module, deploy_inputs(0.75f)).at[0];
    gd_tensor *in[3];
    for (int i = 0; i < 3; i++) in[i] = gd_to_device(deploy_inputs(0.75f).at[i], gd_test_device());
    gd_tensor *found = gd_module_call(net->module, ((gd_tensors){in, 3})).at[0];
    CHECK(gd_tensor_device(found) == gd_test_device());
    CHECK(tensors_same_bits(gd_to_device(found, gd_device_get("cpu")), want));
    drop(net);
}

/* --- failures --------------------------------------------------------------------------------- */

static void check_refused(const char *layer, const char *message) {
    char text[2000];
    snprintf(text, sizeof text,
             "input: 'x' input_shape { dim: 1 dim: 2 dim: 3 dim: 4 }\n"
             "input: 'v' input_shape { dim: 3 }\nlayer { name: 'a' %s }",
             layer);
    gd_clear_error();
    gd_caffe_text_net *net = build(text, NULL);
    CHECK_SAYING(!net && strstr(gd_latest_failure(), message), "%s", gd_latest_failure());
    gd_clear_error();
    drop(net);
}

#define PRIOR "type: 'PriorBox' bottom: 'x' bottom: 'x' top: 'y' prior_box_param "
#define FOUND "type: 'DetectionOutput' bottom: 'x' bottom: 'x' bottom: 'x' top: 'y' "

CLEAN_TEST(what_does_not_fit_is_said_with_the_layer) {
    GD_SCOPE;
    check_refused("type: 'Normalize' bottom: 'v' top: 'y'",
                  "layer 'a' (Normalize): its bottom has 1 axes");
    check_refused("type: 'Permute' bottom: 'v' top: 'y' permute_param { order: 1 }", "order has 1");
    check_refused("type: 'Permute' bottom: 'x' top: 'y' permute_param { order: 1 order: 1 }",
                  "1 twice");
    check_refused(PRIOR "{ }", "no min_size");
    check_refused(PRIOR "{ min_size: 0 }", "min_size is 0");
    check_refused(PRIOR "{ min_size: 2 max_size: 1 }", "max_size is 1");
    check_refused(PRIOR "{ min_size: 2 max_size: 3 max_size: 4 }", "2 max_size");
    check_refused(PRIOR "{ min_size: 2 aspect_ratio: -1 }", "aspect_ratio is -1");
    check_refused(PRIOR "{ min_size: 2 variance: 1 variance: 1 }", "2 variance");
    check_refused(PRIOR "{ min_size: 2 step: 8 step_h: 8 }", "step beside step_h");
    check_refused(PRIOR "{ min_size: 2 img_h: 8 }", "img_h without img_w");
    check_refused("type: 'PriorBox' bottom: 'v' bottom: 'x' top: 'y'", "bottom 0 has 1 axes");
    check_refused(FOUND "detection_output_param { }", "num_classes is 0");
    check_refused(FOUND "detection_output_param { num_classes: 2 }",
                  "third bottom must be (1, 2, 4 P)");
    check_refused(FOUND "detection_output_param { num_classes: 2 nms_param { eta: 2 } }",
                  "eta is 2");
    check_refused("type: 'MultiBoxLoss' bottom: 'x' top: 'y'", "train or evaluate a detector");
}

CLEAN_TEST(no_allocation_that_fails_is_lost) {
    static const char all[] =
        "input: 'x' input_shape { dim: 1 dim: 8 dim: 2 dim: 2 }\n"
        "layer { name: 'n' type: 'Normalize' bottom: 'x' top: 'n' }\n"
        "layer { name: 'p' type: 'Permute' bottom: 'n' top: 'p' permute_param { order: 0 order: 2 "
        "} }\n"
        "layer { name: 'b' type: 'PriorBox' bottom: 'x' bottom: 'x' top: 'b'\n"
        "  prior_box_param { min_size: 1 aspect_ratio: 2 flip: false } }\n"
        "layer { name: 'd' type: 'DetectionOutput' bottom: 'p' bottom: 'p' bottom: 'b' top: 'd'\n"
        "  detection_output_param { num_classes: 4 background_label_id: -1 } }\n";
    fault_walk w = {.what = "a detector", .dense = 40};
    while (fault_next(&w)) {
        GD_SCOPE;
        gd_caffe_text_net *net = NULL;
        gd_tensor *y = NULL, *x = gd_ones(gd_dims(1, 8, 2, 2));
        gd_pb_read_text(&doc, &gd_caffe_net_schema, "net.prototxt", all, strlen(all));
        fault_begin(&w);
        gd_status status = gd_caffe_net_build(&net, gd_pb_root(doc), "net.prototxt",
                                              &(gd_caffe_net_settings){.phase = GD_CAFFE_TEST});
        if (status == GD_OK) y = gd_module_forward(net->module, x);
        fault_end(&w);
        if (status == GD_OK) status = gd_error_status();
        CHECK_ROUND(&w, status != GD_OK || gd_tensor_dim(y, 3) == 7);
        CHECK_FAULT(&w, status);
        drop(net);
    }
    CHECK(w.failures > 10);
}

TEST_MAIN
