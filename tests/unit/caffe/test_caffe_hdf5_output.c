/* test_caffe_hdf5_output.c - HDF5Output writes its bottoms into a file. */
#include <string.h>

#include "caffe/net.h"
#include "caffe/schema.h"
#include "clean_test.h"
#include "core/error.h"
#include "format/hdf5.h"
#include "gradus/gradus.h"
#include "temp.h"

static gd_pb_doc *doc;

static gd_caffe_text_net *build(const char *path, const char *outputs, int labels) {
    char text[2000];
    gd_caffe_text_net *net = NULL;
    const gd_caffe_net_settings settings = {.phase = GD_CAFFE_TEST, .outputs = outputs};
    snprintf(text, sizeof text,
             "input: 'x' input_shape { dim: 2 dim: 3 } input: 'label' input_shape { dim: %d }\n"
             "layer { name: 'act' type: 'ReLU' bottom: 'x' top: 'h' }\n"
             "layer { name: 'save' type: 'HDF5Output' bottom: 'h' bottom: 'label'\n"
             "  hdf5_output_param { file_name: '%s' } }\n"
             "layer { name: 'abs' type: 'AbsVal' bottom: 'h' top: 'y' }\n",
             labels, path);
    if (gd_pb_read_text(&doc, &gd_caffe_net_schema, "net.prototxt", text, strlen(text)) == GD_OK)
        gd_caffe_net_build(&net, gd_pb_root(doc), "net.prototxt", &settings);
    return net;
}

static void drop(gd_caffe_text_net *net) {
    gd_caffe_net_free(net);
    gd_pb_free(doc);
    doc = NULL;
}

static gd_tensors inputs(void) {
    static const float x[] = {1, -2, 3, -4, 5, -6}, label[] = {7, 8};
    return gd_listed(gd_from_array(gd_dims(2, 3), GD_F32, x),
                     gd_from_array(gd_dims(2), GD_F32, label));
}

/* Whether the dataset has these rows. */
static void check_dataset(const gd_hdf5 *file, const char *name, int64_t channels,
                          const float *want) {
    gd_hdf5_object *dataset;
    float have[8];
    CHECK(gd_hdf5_object_open(&dataset, gd_hdf5_root(file), name) == GD_OK);
    CHECK(dataset->shape.rank == 4 && dataset->shape.dims[0] == 2 &&
          dataset->shape.dims[1] == channels && dataset->shape.dims[2] == 1);
    CHECK(gd_hdf5_read(dataset, 0, 2, GD_F32, have) == GD_OK);
    CHECK(memcmp(have, want, (size_t)(2 * channels) * sizeof *have) == 0);
    gd_hdf5_object_close(dataset);
}

CLEAN_TEST(the_bottoms_are_datasets_of_the_file) {
    static const float data[] = {1, 0, 3, 0, 5, 0}, label[] = {7, 8};
    GD_SCOPE;
    const char *path = temp_path("out.h5");
    gd_caffe_text_net *net = build(path, NULL, 2);
    CHECK_SAYING(net != NULL, "%s", gd_latest_failure());
    if (!net) return;
    for (int call = 0; call < 2; call++) {
        const gd_tensors y = gd_module_call(net->module, inputs());
        CHECK_SAYING(y.count == 1 && !gd_failed(), "%s", gd_error_message());
    }
    gd_file_reader *file;
    gd_hdf5 *h5 = NULL;
    CHECK(gd_file_reader_open(&file, path) == GD_OK && gd_hdf5_open(&h5, file) == GD_OK);
    check_dataset(h5, "/data", 3, data);
    check_dataset(h5, "/label", 1, label);
    gd_hdf5_close(h5);
    gd_file_reader_close(file);
    drop(net);
}

static gd_tensors call_net(gd_tensors in, void *net) { return gd_module_call(net, in); }

CLEAN_TEST(a_jit_needs_the_names_of_outputs) {
    GD_SCOPE;
    const char *path = temp_path("none.h5");
    gd_caffe_text_net *net = build(path, NULL, 2);
    gd_jit_call(gd_jit_new(call_net, net->module), inputs());
    CHECK_SAYING(says("save (HDF5Output): HDF5Output cannot be traced"), "%s", gd_error_message());
    gd_clear_error();
    drop(net);
    net = build(path, "y", 2);
    gd_jit_call(gd_jit_new(call_net, net->module), inputs());
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    drop(net);
}

CLEAN_TEST(what_does_not_fit_is_said) {
    GD_SCOPE;
    CHECK(!build("x.h5", NULL, 3) && strstr(gd_latest_failure(), "the same number of rows"));
    drop(NULL);
    CHECK(!build("", NULL, 2) && strstr(gd_latest_failure(), "has no file_name"));
    drop(NULL);
    gd_caffe_text_net *net = build("/no/such/folder/x.h5", NULL, 2);
    gd_module_call(net->module, inputs());
    CHECK_SAYING(says("/no/such/folder/x.h5"), "%s", gd_error_message());
    drop(net);
    gd_clear_error();
}

TEST_MAIN
