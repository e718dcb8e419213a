/* test_caffe_recurrent.c - RNN and LSTM layers keep their states from call to call; what they refuse.
 * tests/caffe compares their results with Caffe's.
 */
#include <string.h>

#include "caffe/net.h"
#include "caffe/schema.h"
#include "clean_test.h"
#include "compare.h"
#include "core/error.h"
#include "fault_walk.h"
#include "gradus/caffe.h"
#include "gradus/gradus.h"
#include "temp.h"

static gd_pb_doc *doc;

static gd_caffe_text_net *build(const char *text) {
    gd_caffe_text_net *net = NULL;
    const gd_caffe_net_settings settings = {.phase = GD_CAFFE_TRAIN};
    gd_seed(1);
    if (gd_pb_read_text(&doc, &gd_caffe_net_schema, "net.prototxt", text, strlen(text)) == GD_OK)
        gd_caffe_net_build(&net, gd_pb_root(doc), "net.prototxt", &settings);
    return net;
}

static void drop(gd_caffe_text_net *net) {
    gd_caffe_net_free(net);
    gd_pb_free(doc);
    doc = NULL;
}

/* A net of one layer with inputs x (steps, 2, 3) and cont (steps, 2). */
static gd_caffe_text_net *build_layer(const char *type, int steps) {
    char text[1000];
    snprintf(
        text, sizeof text,
        "input: 'x' input_shape { dim: %d dim: 2 dim: 3 }\n"
        "input: 'cont' input_shape { dim: %d dim: 2 }\n"
        "layer { name: 'rec' type: '%s' bottom: 'x' bottom: 'cont' top: 'y' recurrent_param {\n"
        "  num_output: 4 weight_filler { type: 'uniform' min: -1 } bias_filler { value: 0.1 } } }",
        steps, steps, type);
    gd_caffe_text_net *net = build(text);
    CHECK_SAYING(net != NULL, "%s", gd_latest_failure());
    return net;
}

static const char *const types[] = {"LSTM", "RNN"};

typedef struct sequence {
    gd_tensor *x, *cont;
} sequence;

/* Six steps of two streams; the second begins a new sequence in step 4. */
static sequence six_steps(void) {
    static const float cont[] = {0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1};
    gd_seed(2);
    return (sequence){gd_randn(gd_dims(6, 2, 3)), gd_from_array(gd_dims(6, 2), GD_F32, cont)};
}

static gd_tensors call_net(gd_tensors in, void *net) { return gd_module_call(net, in); }

/* The outputs of calls with `steps` steps each, joined. */
static gd_tensor *in_pieces(gd_module *net, sequence s, int steps, bool traced) {
    gd_jit *jit = traced ? gd_jit_new(call_net, net) : NULL;
    gd_tensor *y[6];
    int count = 0;
    for (int t = 0; t < 6; t += steps) {
        const gd_tensors in = gd_list(gd_narrow(s.x, 0, t, steps), gd_narrow(s.cont, 0, t, steps));
        y[count++] = (jit ? gd_jit_call(jit, in) : gd_module_call(net, in)).at[0];
    }
    return gd_cat(((gd_tensors){y, count}), .axis = 0);
}

static void check_pieces(const char *type, int steps, bool traced) {
    gd_caffe_text_net *whole = build_layer(type, 6);
    gd_tensor *want = in_pieces(whole->module, six_steps(), 6, false);
    drop(whole);
    gd_caffe_text_net *net = build_layer(type, steps);
    gd_tensor *have = in_pieces(net->module, six_steps(), steps, traced);
    CHECK_SAYING(tensors_distance(have, want) < 1e-6, "%s in pieces of %d steps, %s: %g", type,
                 steps, traced ? "traced" : "eager", tensors_distance(have, want));
    drop(net);
}

CLEAN_TEST(a_sequence_in_pieces_gives_the_results_of_the_whole) {
    for (int i = 0; i < 2; i++)
        for (int traced = 0; traced < 2; traced++) {
            GD_SCOPE;
            check_pieces(types[i], 3, traced);
            check_pieces(types[i], 1, traced);
        }
}

CLEAN_TEST(states_are_saved_with_the_module_and_are_no_blobs) {
    GD_SCOPE;
    gd_caffe_text_net *net = build_layer("LSTM", 3);
    const sequence s = six_steps();
    gd_tensor *first = in_pieces(net->module, s, 3, false);
    const char *path = temp_path("state.safetensors");
    CHECK(gd_save_state(path, gd_part("net", net->module)) == GD_OK);
    const gd_tensors next = gd_list(gd_narrow(s.x, 0, 0, 3), gd_full(gd_dims(3, 2), 1));
    gd_tensor *want = gd_module_call(net->module, next).at[0];
    CHECK(tensors_distance(want, gd_narrow(first, 0, 0, 3)) > 1e-3);
    CHECK(gd_load_state(path, gd_part("net", net->module)) == GD_OK);
    CHECK(tensors_same_bits(gd_module_call(net->module, next).at[0], want));

    gd_module_part part;
    int count = 0;
    for (int i = 0; gd_module_part_at(gd_module_find(net->module, "rec"), i, &part); i++)
        count += part.kind != GD_PART_CHILD;
    CHECK(count == 3 && net->n_parameters == 3);
    CHECK(gd_module_tensor(net->module, "rec.state.h") &&
          gd_module_tensor(net->module, "rec.state.c"));
    drop(net);
}

CLEAN_TEST(another_number_of_streams_begins_with_zeros) {
    GD_SCOPE;
    gd_caffe_text_net *net = build_layer("LSTM", 3);
    const sequence s = six_steps();
    in_pieces(net->module, s, 3, false);
    gd_tensor *kept = gd_clone(gd_module_tensor(net->module, "rec.state.h"));
    const gd_tensors three = gd_list(gd_ones(gd_dims(3, 3, 3)), gd_ones(gd_dims(3, 3)));
    gd_tensor *a = gd_module_call(net->module, three).at[0];
    gd_tensor *b = gd_module_call(net->module, three).at[0];
    CHECK_SAYING(gd_tensor_dim(a, 1) == 3 && tensors_same_bits(a, b), "%s", gd_error_message());
    CHECK(tensors_same_bits(gd_module_tensor(net->module, "rec.state.h"), kept));
    CHECK(!gd_failed());
    drop(net);
}

CLEAN_TEST(a_file_of_onnx_begins_with_the_states_of_the_module) {
    for (int i = 0; i < 2; i++) {
        GD_SCOPE;
        gd_caffe_text_net *net = build_layer(types[i], 3);
        const sequence s = six_steps();
        const gd_tensors in = gd_list(gd_narrow(s.x, 0, 3, 3), gd_full(gd_dims(3, 2), 1));
        const char *path = temp_path("recurrent.onnx");
        gd_module_eval(net->module);
        in_pieces(net->module, s, 3, false);
        CHECK_SAYING(gd_onnx_save_module(path, net->module, in) == GD_OK, "%s", gd_error_message());
        gd_tensor *want = gd_module_call(net->module, in).at[0];
        gd_tensor *have = gd_module_call(gd_onnx_module(path), in).at[0];
        CHECK_SAYING(tensors_distance(have, want) < 1e-6, "%s", types[i]);
        drop(net);
    }
}

CLEAN_TEST(blobs_go_to_a_file_of_weights_and_back) {
    for (int i = 0; i < 2; i++) {
        GD_SCOPE;
        gd_caffe_text_net *net = build_layer(types[i], 6);
        gd_tensor *want = in_pieces(net->module, six_steps(), 6, false);
        const char *path = temp_path("recurrent.caffemodel");
        CHECK_SAYING(gd_caffe_save(path, net->module) == GD_OK, "%s", gd_error_message());
        gd_tensor *weight = gd_module_tensor(net->module, "rec.weight_h");
        gd_assign(weight, gd_zeros_like(weight));
        CHECK(tensors_distance(in_pieces(net->module, six_steps(), 6, false), want) > 1e-3);
        CHECK_SAYING(gd_caffe_load(path, net->module) == GD_OK, "%s", gd_error_message());
        CHECK(tensors_same_bits(in_pieces(net->module, six_steps(), 6, false), want));
        drop(net);
    }
}

/* --- failures --------------------------------------------------------------------------------- */

static void check_refused(const char *inputs, const char *layer, const char *message) {
    char text[2000];
    snprintf(text, sizeof text, "%s\nlayer { name: 'rec' %s }", inputs, layer);
    gd_clear_error();
    gd_caffe_text_net *net = build(text);
    CHECK_SAYING(!net && strstr(gd_latest_failure(), message), "%s", gd_latest_failure());
    gd_clear_error();
    drop(net);
}

static const char small[] =
    "input: 'x' input_shape { dim: 6 dim: 2 dim: 3 } input: 'cont' input_shape { dim: 6 dim: 2 }\n"
    "layer { name: 'rec' type: 'LSTM' bottom: 'x' bottom: 'cont' top: 'y'\n"
    "  recurrent_param { num_output: 4 weight_filler { type: 'xavier' } } }\n";

#define X    "input: 'x' input_shape { dim: 4 dim: 2 dim: 3 }"
#define CONT "input: 'cont' input_shape { dim: 4 dim: 2 }"
#define BOTH "bottom: 'x' bottom: 'cont' "

CLEAN_TEST(what_does_not_fit_is_said_with_the_layer) {
    GD_SCOPE;
    check_refused(X CONT, "type: 'LSTM' " BOTH "top: 'y'",
                  "net.prototxt:2:1: layer 'rec' (LSTM): ");
    check_refused(X CONT, "type: 'LSTM' " BOTH "top: 'y'", "num_output is 0");
    check_refused(X CONT, "type: 'RNN' " BOTH "top: 'y' top: 'z' recurrent_param { num_output: 2 }",
                  "it has 2 tops, not 1");
    check_refused(X CONT,
                  "type: 'RNN' " BOTH
                  "top: 'y' recurrent_param { num_output: 2 expose_hidden: true }",
                  "and the state h");
    check_refused("input: 'x' input_shape { dim: 4 dim: 2 }" CONT,
                  "type: 'RNN' " BOTH "top: 'y' recurrent_param { num_output: 2 }", "has 2 axes");
    check_refused(X "input: 'cont' input_shape { dim: 4 dim: 3 }",
                  "type: 'RNN' " BOTH "top: 'y' recurrent_param { num_output: 2 }", "(4, 2)");
    check_refused(X CONT "input: 'fixed' input_shape { dim: 3 dim: 2 }",
                  "type: 'RNN' " BOTH "bottom: 'fixed' top: 'y' recurrent_param { num_output: 2 }",
                  "(N, ...), and N is 2");
    check_refused(X CONT "input: 'h' input_shape { dim: 1 dim: 2 dim: 3 }",
                  "type: 'RNN' " BOTH "bottom: 'h' top: 'y' top: 'last' recurrent_param { "
                  "num_output: 2 expose_hidden: true }",
                  "(1, 2, 2)");
    check_refused(X CONT,
                  "type: 'LSTMUnit' bottom: 'x' bottom: 'x' bottom: 'cont' top: 'a' top: 'b'",
                  "gates (1, N, 4 H)");
}

CLEAN_TEST(no_allocation_that_fails_is_lost) {
    fault_walk w = {.what = "a net with an LSTM", .dense = 40};
    while (fault_next(&w)) {
        GD_SCOPE;
        const sequence s = six_steps();
        gd_caffe_text_net *net = NULL;
        gd_tensors y = {NULL, 0};
        gd_pb_read_text(&doc, &gd_caffe_net_schema, "net.prototxt", small, strlen(small));
        fault_begin(&w);
        gd_status status = gd_caffe_net_build(&net, gd_pb_root(doc), "net.prototxt",
                                              &(gd_caffe_net_settings){.phase = GD_CAFFE_TEST});
        if (status == GD_OK) y = gd_module_call(net->module, gd_list(s.x, s.cont));
        fault_end(&w);
        if (status == GD_OK) status = gd_error_status();
        CHECK_ROUND(&w, status != GD_OK || y.count == 1);
        CHECK_FAULT(&w, status);
        drop(net);
    }
    CHECK(w.failures > 10);
}

TEST_MAIN
