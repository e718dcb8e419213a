/* test_caffe_draw.c - pictures of nets from text, features of their data, upgraded files. */
#include <string.h>

#include "caffe/read.h"
#include "clean_test.h"
#include "core/alloc.h"
#include "fault_walk.h"
#include "format/file.h"
#include "gradus/caffe.h"
#include "gradus/gradus.h"
#include "temp.h"

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static bool has(const char *path, const char *text) {
    char *all;
    size_t bytes;
    if (gd_file_read_all(path, &all, &bytes) != GD_OK) return false;
    const bool found = strstr(all, text) != NULL;
    gd_free(all);
    return found;
}

static int count(const char *path, const char *text) {
    char *all;
    size_t bytes;
    int n = 0;
    if (gd_file_read_all(path, &all, &bytes) != GD_OK) return -1;
    for (const char *s = all; (s = strstr(s, text)); s++) n++;
    gd_free(all);
    return n;
}

static const char net_text[] =
    "name: 'small & <new>'\n"
    "layer { name: 'numbers' type: 'Data' top: 'data' top: 'label'\n"
    "        data_param { source: 'not/here_lmdb' batch_size: 5 } }\n"
    "layer { name: 'conv1' type: 'Convolution' bottom: 'data' top: 'conv1'\n"
    "        convolution_param { num_output: 4 kernel_size: 3 pad: 1\n"
    "                            weight_filler { type: 'gaussian' std: 0.1 } } }\n"
    "layer { name: 'relu1' type: 'ReLU' bottom: 'conv1' top: 'conv1' }\n"
    "layer { name: 'pool1' type: 'Pooling' bottom: 'conv1' top: 'pooled'\n"
    "        pooling_param { pool: AVE kernel_size: 2 stride: 2 } }\n"
    "layer { name: 'fc' type: 'InnerProduct' bottom: 'pooled' top: 'fc'\n"
    "        inner_product_param { num_output: 3 weight_filler { type: 'gaussian' std: 0.1 } } }\n"
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 'fc' bottom: 'label' top: 'accuracy'\n"
    "        include { phase: TEST } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'fc' bottom: 'label' top: 'loss' }\n";
static const char dummy[] = "data=2,8,8 label=3";

TEST(a_picture_has_layers_fields_blobs_and_shapes) {
    GD_SCOPE;
    write_file(temp_path("net.prototxt"), net_text);
    CHECK(gd_caffe_draw_net(temp_path("net.prototxt"), temp_path("net.svg"), .dummy = dummy) ==
          GD_OK);
    static const char *const texts[] = {"small &amp; &lt;new&gt;",
                                        ">numbers<",
                                        ">Data<",
                                        ">data<",
                                        ">label<",
                                        ">[5,2,8,8]<",
                                        "4 outputs, kernel 3, pad 1",
                                        ">relu1<",
                                        ">[5,4,8,8]<",
                                        ">AVE, kernel 2, stride 2<",
                                        ">pooled<",
                                        ">[5,4,4,4]<",
                                        ">accuracy<"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        CHECK_SAYING(has(temp_path("net.svg"), texts[i]), "no '%s' in the picture", texts[i]);
    CHECK(count(temp_path("net.svg"), "class=\"b\"") == 6); /* relu1 is in the box of conv1 */
    CHECK(gd_caffe_draw_net(temp_path("net.prototxt"), temp_path("net.dot"), .dummy = dummy,
                            .train = true) == GD_OK);
    CHECK(!has(temp_path("net.dot"), "accuracy"));
    CHECK(count(temp_path("net.dot"), " -> ") == 5);
    CHECK(has(temp_path("net.dot"), "[label=\"label\"]"));
}

TEST(a_net_whose_data_are_missing_is_drawn_without_shapes) {
    GD_SCOPE;
    write_file(temp_path("net.prototxt"), net_text);
    CHECK(gd_caffe_draw_net(temp_path("net.prototxt"), temp_path("bare.svg")) == GD_OK);
    CHECK(has(temp_path("bare.svg"), ">conv1<") && !has(temp_path("bare.svg"), "[5,"));
}

TEST(a_layer_in_place_with_two_bottoms_has_its_own_box) {
    GD_SCOPE;
    write_file(temp_path("sum.prototxt"),
               "input: 'a' input_shape { dim: 2 dim: 3 }\n"
               "layer { name: 'act' type: 'TanH' bottom: 'a' top: 'b' }\n"
               "layer { name: 'sum' type: 'Eltwise' bottom: 'b' bottom: 'a' top: 'b' }\n");
    CHECK(gd_caffe_draw_net(temp_path("sum.prototxt"), temp_path("sum.dot")) == GD_OK);
    CHECK(count(temp_path("sum.dot"), " -> ") == 3);
    CHECK(count(temp_path("sum.dot"), "label=\"") == 4); /* of the picture and three boxes */
}

static void check_message(const char *text) {
    CHECK(gd_failed());
    CHECK_SAYING(strstr(gd_error_message(), text), "'%s' is not in '%s'", text, gd_error_message());
    gd_clear_error();
}

TEST(layers_with_one_name_have_their_own_shapes) {
    GD_SCOPE;
    write_file(temp_path("twice.prototxt"),
               "input: 'a' input_shape { dim: 2 dim: 3 }\n"
               "layer { name: 'act' type: 'TanH' bottom: 'a' top: 'b' }\n"
               "layer { name: 'act' type: 'InnerProduct' bottom: 'b' top: 'c'\n"
               "        inner_product_param { num_output: 7 } }\n"
               "layer { type: 'InnerProduct' bottom: 'c' top: 'd'\n"
               "        inner_product_param { num_output: 5 } }\n");
    CHECK(gd_caffe_draw_net(temp_path("twice.prototxt"), temp_path("twice.svg")) == GD_OK);
    CHECK(count(temp_path("twice.svg"), ">[2,3]<") == 2);
    CHECK(count(temp_path("twice.svg"), ">[2,7]<") == 1);
    CHECK(count(temp_path("twice.svg"), ">[2,5]<") == 1);
}

TEST(wrong_nets_are_not_drawn) {
    GD_SCOPE;
    write_file(temp_path("bad.prototxt"),
               "input: 'a' input_shape { dim: 2 dim: 3 }\n"
               "layer { name: 'act' type: 'TanH' bottom: 'nothing' top: 'b' }\n");
    CHECK(gd_caffe_draw_net(temp_path("bad.prototxt"), temp_path("bad.svg")) == GD_E_FORMAT);
    check_message("'nothing'");
    write_file(
        temp_path("bad.prototxt"),
        "layer { name: 'd' type: 'Data' top: 'a' data_param { source: 'no' batch_size: 1 } }\n"
        "layer { name: 'act' type: 'TanH' bottom: 'nothing' top: 'b' }\n");
    CHECK(gd_caffe_draw_net(temp_path("bad.prototxt"), temp_path("bad.svg")) == GD_E_FORMAT);
    check_message("bad.prototxt:2:1: layer 'act' (TanH): its bottom 'nothing'");
    write_file(temp_path("bad.prototxt"), "layer { name: 'act' type: 'TanH'");
    CHECK(gd_caffe_draw_net(temp_path("bad.prototxt"), temp_path("bad.svg")) == GD_E_FORMAT);
    check_message("bad.prototxt:1:");
    write_file(temp_path("net.prototxt"), net_text);
    CHECK(gd_caffe_draw_net(temp_path("net.prototxt"), temp_path("net.png")) == GD_E_ARGUMENT);
    check_message(".svg or .dot");
    CHECK(gd_caffe_draw_net(NULL, temp_path("net.svg")) == GD_E_ARGUMENT);
    check_message("NULL");
}

/* --- features --------------------------------------------------------------------------------- */

TEST(features_are_the_blobs_of_the_batches_one_after_the_other) {
    GD_SCOPE;
    write_file(temp_path("fill.prototxt"),
               "layer { name: 'numbers' type: 'DummyData' top: 'data'\n"
               "        dummy_data_param { shape { dim: 2 dim: 3 }\n"
               "                           data_filler { type: 'constant' value: 2 } } }\n"
               "layer { name: 'half' type: 'Power' bottom: 'data' top: 'a/half'\n"
               "        power_param { scale: 0.5 shift: 1 } }\n"
               "layer { name: 'sum' type: 'Reduction' bottom: 'a/half' top: 'sum' }\n");
    CHECK(gd_caffe_extract(temp_path("fill.prototxt"), "sum a/half", temp_path("f.npz"),
                           .iterations = 3) == GD_OK);
    gd_tensor *half = gd_load_npz(temp_path("f.npz"), "a/half"),
              *sum = gd_load_npz(temp_path("f.npz"), "sum");
    CHECK(!gd_failed());
    CHECK(gd_tensor_rank(half) == 2 && gd_tensor_dim(half, 0) == 6 && gd_tensor_dim(half, 1) == 3);
    CHECK(gd_item(gd_sum(half)) == 36);
    CHECK(gd_tensor_rank(sum) == 1 && gd_tensor_dim(sum, 0) == 3 && gd_item(gd_sum(sum)) == 36);
    gd_clear_error();
}

TEST(an_extraction_says_what_is_wrong) {
    GD_SCOPE;
    write_file(temp_path("net.prototxt"), net_text);
    const char *net = temp_path("net.prototxt"), *out = temp_path("g.npz");
    CHECK(gd_caffe_extract(net, "fc8", out, .dummy = dummy) == GD_E_ARGUMENT);
    check_message("no blob 'fc8'");
    CHECK(gd_caffe_extract(net, "", out, .dummy = dummy) == GD_E_ARGUMENT);
    check_message("no names");
    CHECK(gd_caffe_extract(net, "fc", out, .dummy = dummy, .iterations = 0) == GD_E_ARGUMENT);
    check_message("iterations is 0");
    CHECK(gd_caffe_extract(net, "fc", NULL, .dummy = dummy) == GD_E_ARGUMENT);
    check_message("NULL");
    write_file(temp_path("in.prototxt"),
               "input: 'a' input_shape { dim: 2 dim: 3 }\n"
               "layer { name: 'act' type: 'TanH' bottom: 'a' top: 'b' }\n");
    CHECK(gd_caffe_extract(temp_path("in.prototxt"), "b", out) == GD_E_ARGUMENT);
    check_message("needs data layers");
}

/* --- upgrades --------------------------------------------------------------------------------- */

static const char old_net[] =
    "name: 'old' input: 'data' input_dim: 1 input_dim: 1 input_dim: 4 input_dim: 4\n"
    "layers { name: 'c' type: CONVOLUTION bottom: 'data' top: 'c' blobs_lr: 1\n"
    "         blobs_lr: 2 convolution_param { num_output: 2 kernel_size: 3 } }\n"
    "layers { name: 'r' type: RELU bottom: 'c' top: 'c' }\n";

TEST(old_files_are_written_with_the_fields_of_today) {
    GD_SCOPE;
    gd_pb_doc *doc;
    write_file(temp_path("old.prototxt"), old_net);
    CHECK(gd_caffe_upgrade(temp_path("old.prototxt"), temp_path("new.prototxt")) == GD_OK);
    CHECK(has(temp_path("new.prototxt"), "type: \"Convolution\""));
    CHECK(!has(temp_path("new.prototxt"), "layers {") &&
          !has(temp_path("new.prototxt"), "blobs_lr"));
    CHECK(gd_caffe_net(temp_path("new.prototxt")) && !gd_failed());
    CHECK(gd_caffe_upgrade(temp_path("old.prototxt"), temp_path("new.caffemodel")) == GD_OK);
    CHECK(gd_pb_load(&doc, &gd_caffe_net_schema, temp_path("new.caffemodel")) == GD_OK);
    CHECK(gd_pb_count(gd_pb_root(doc), "layer") == 2 &&
          gd_pb_count(gd_pb_root(doc), "layers") == 0);
    gd_pb_free(doc);
    write_file(temp_path("old_solver.prototxt"),
               "net: 'a.prototxt' base_lr: 0.1 solver_type: ADAM\n");
    CHECK(gd_caffe_upgrade(temp_path("old_solver.prototxt"), temp_path("solver.prototxt"),
                           .solver = true) == GD_OK);
    CHECK(has(temp_path("solver.prototxt"), "type: \"Adam\""));
    CHECK(!has(temp_path("solver.prototxt"), "solver_type"));
}

TEST(an_upgrade_says_what_is_wrong) {
    GD_SCOPE;
    write_file(temp_path("old.prototxt"), old_net);
    CHECK(gd_caffe_upgrade(temp_path("old.prototxt"), temp_path("new.txt")) == GD_E_ARGUMENT);
    check_message("ends in .prototxt");
    CHECK(gd_caffe_upgrade(temp_path("none.prototxt"), temp_path("n.prototxt")) == GD_E_IO);
    check_message("none.prototxt");
    CHECK(gd_caffe_upgrade(NULL, temp_path("n.prototxt")) == GD_E_ARGUMENT);
    check_message("old file is NULL");
}

/* --- out of memory ---------------------------------------------------------------------------- */

static gd_status draw_small(void) {
    return gd_caffe_draw_net(temp_path("net.prototxt"), temp_path("fault.svg"), .dummy = dummy);
}
static gd_status extract_small(void) {
    return gd_caffe_extract(temp_path("net.prototxt"), "fc loss", temp_path("fault.npz"),
                            .dummy = dummy, .iterations = 2);
}
static gd_status upgrade_small(void) {
    return gd_caffe_upgrade(temp_path("old.prototxt"), temp_path("fault.prototxt"));
}

TEST(a_failed_allocation_is_a_status) {
    gd_status (*const works[])(void) = {draw_small, extract_small, upgrade_small};
    static const char *const names[] = {"draw", "extract", "upgrade"};
    write_file(temp_path("net.prototxt"), net_text);
    write_file(temp_path("old.prototxt"), old_net);
    for (int i = 0; i < 3; i++) {
        fault_walk w = {.what = names[i]};
        works[i](); /* fills what the library keeps */
        gd_clear_error();
        while (fault_next(&w)) {
            GD_SCOPE;
            fault_begin(&w);
            const gd_status status = works[i]();
            fault_end(&w);
            CHECK_ROUND(&w, (status == GD_OK) == !gd_failed());
            CHECK_ROUND(&w, w.fired || status == GD_OK);
            CHECK_FAULT(&w, status);
            gd_clear_error();
        }
        CHECK_SAYING(w.failures > 3, "%s: only %lld allocations failed", names[i],
                     (long long)w.failures);
    }
}

TEST_MAIN
