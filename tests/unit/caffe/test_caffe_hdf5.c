/* test_caffe_hdf5.c - weights and states of solvers in HDF5 files. tests/caffe/against_solver.py reads and
 * writes them with Caffe and h5py. */
#include <stdio.h>
#include <string.h>

#include "clean_test.h"
#include "gradus/gradus.h"
#include "caffe/hdf5_files.h"
#include "caffe/schema.h"
#include "core/alloc.h"
#include "core/error.h"
#include "files.h"
#include "fuzz/damage.h"
#include "temp.h"

#define LLVMFuzzerTestOneInput fuzz_caffe_hdf5
#include "fuzz/fuzz_caffe_hdf5.c"
#undef LLVMFuzzerTestOneInput

static gd_pb_doc *read_text(const gd_pb_schema *schema, const char *text) {
    gd_pb_doc *doc = NULL;
    CHECK_SAYING(gd_pb_read_text(&doc, schema, "text", text, strlen(text)) == GD_OK, "%s",
                 gd_latest_failure());
    return doc;
}

static void check_same_text(gd_pb_doc *a, gd_pb_doc *b) {
    char *p = NULL, *q = NULL;
    size_t bytes;
    CHECK(a && b && gd_pb_print_text(a, &p, &bytes) == GD_OK &&
          gd_pb_print_text(b, &q, &bytes) == GD_OK);
    if (p && q) CHECK_SAYING(strcmp(p, q) == 0, "%s\n---\n%s", p, q);
    gd_free(p);
    gd_free(q);
}

static const char net_text[] =
    "layer { name: 'a' blobs { data: 1 data: 2 data: 3 data: 4 shape { dim: 2 dim: 2 } }\n"
    "                  blobs { data: 5 shape { dim: 1 } } }\n"
    "layer { name: 'deep/er/1x1' blobs { data: 7 data: 8 shape { dim: 1 dim: 2 dim: 1 } } }\n"
    "layer { name: 'deep/one' blobs { data: 9 shape { } } }\n";
static const char state_text[] =
    "iter: 7 learned_net: 'a_iter_7.caffemodel.h5' current_step: 2\n"
    "history { data: 1 data: 2 shape { dim: 2 } } history { data: -3 shape { dim: 1 dim: 1 } }\n";

/* Layers whose names have slashes are groups in groups. */
CLEAN_TEST(weights_are_read_as_they_were_written) {
    const char *path = temp_path("net.h5");
    gd_pb_doc *net = read_text(&gd_caffe_net_schema, net_text), *again = NULL;
    CHECK(gd_caffe_net_save_hdf5(gd_pb_root(net), path) == GD_OK);
    CHECK_SAYING(gd_caffe_net_load_hdf5(&again, path) == GD_OK, "%s", gd_latest_failure());
    check_same_text(net, again);
    gd_pb_free(net);
    gd_pb_free(again);
}

CLEAN_TEST(states_are_read_as_they_were_written) {
    const char *path = temp_path("state.h5");
    gd_pb_doc *state = read_text(&gd_caffe_solver_state_schema, state_text), *again = NULL;
    CHECK(gd_caffe_state_save_hdf5(gd_pb_root(state), path) == GD_OK);
    CHECK_SAYING(gd_caffe_state_load_hdf5(&again, path) == GD_OK, "%s", gd_latest_failure());
    check_same_text(state, again);
    gd_pb_free(state);
    gd_pb_free(again);
}

CLEAN_TEST(a_net_is_saved_and_loaded_as_hdf5) {
    GD_SCOPE;
    const char *path = temp_path("module.caffemodel.h5"),
               *text = temp_write_text("net.prototxt",
                                       "input: 'x' input_shape { dim: 2 dim: 3 }\n"
                                       "layer { name: 'part/ip' type: 'InnerProduct' bottom: 'x' "
                                       "top: 'y' inner_product_param { num_output: 4 "
                                       "weight_filler { type: 'gaussian' std: 1 } } }\n");
    gd_module *one = gd_caffe_net(text), *two = gd_caffe_net(text);
    gd_tensor *x = gd_ones(gd_dims(2, 3));
    CHECK(gd_caffe_save(path, one) == GD_OK && gd_caffe_load(path, two) == GD_OK);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(gd_item(gd_max(gd_abs(gd_sub(gd_module_forward(one, x), gd_module_forward(two, x))))) ==
          0);
}

static void check_failure(gd_pb_doc *doc, gd_status status, const char *message) {
    CHECK_SAYING(!doc && status == GD_E_FORMAT && strstr(gd_latest_failure(), message), "%s",
                 gd_latest_failure());
}

CLEAN_TEST(a_file_of_another_kind_says_what_is_missing) {
    const char *path = temp_path("other.h5");
    gd_pb_doc *net = read_text(&gd_caffe_net_schema, net_text), *found = NULL;
    CHECK(gd_caffe_net_save_hdf5(gd_pb_root(net), path) == GD_OK);
    gd_status status = gd_caffe_state_load_hdf5(&found, path);
    check_failure(found, status, "it has no group 'history'");
    gd_pb_doc *state = read_text(&gd_caffe_solver_state_schema, state_text);
    CHECK(gd_caffe_state_save_hdf5(gd_pb_root(state), path) == GD_OK);
    status = gd_caffe_net_load_hdf5(&found, path);
    check_failure(found, status, "other.h5: it has no group 'data'");
    gd_pb_free(net);
    gd_pb_free(state);
}

CLEAN_TEST(damaged_files_fail_or_are_read) {
    const char *path = temp_path("damaged.h5");
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        gd_pb_doc *doc = i ? read_text(&gd_caffe_solver_state_schema, state_text)
                           : read_text(&gd_caffe_net_schema, net_text);
        CHECK((i ? gd_caffe_state_save_hdf5 : gd_caffe_net_save_hdf5)(gd_pb_root(doc), path) ==
              GD_OK);
        char *data = file_read(path, &bytes);
        run_cut(fuzz_caffe_hdf5, data, bytes);
        run_damaged(fuzz_caffe_hdf5, data, bytes, 3000);
        free(data);
        gd_pb_free(doc);
    }
}

TEST_MAIN
