/* test_caffe_fuzz.c - the short form of fuzz_prototxt and fuzz_caffemodel: files truncated at each byte
 * and some thousand damaged copies, the same in each run.
 */
#include "fuzz/damage.h"
#include "clean_test.h"

#define LLVMFuzzerTestOneInput fuzz_prototxt
#include "fuzz/fuzz_prototxt.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_caffemodel
#include "fuzz/fuzz_caffemodel.c"
#undef LLVMFuzzerTestOneInput

CLEAN_TEST(a_damaged_text_fails_or_is_read_and_upgraded_completely) {
    static const char v1[] =
        "name: 'a' input: 'x' input_dim: [1, 2] # a comment\n"
        "layers { name: 'd' type: DATA top: 'x' data_param { scale: 0.5 mean_file: 'm' } }\n"
        "layers { name: 'c' type: CONVOLUTION bottom: 'x' top: \"y\\n\" blobs_lr: 1 blobs_lr: 2.5\n"
        "  weight_decay: 0 param: 'w' blob_share_mode: PERMISSIVE include { phase: TEST }\n"
        "  convolution_param < num_output: 2 weight_filler { type: 'xavier' } > blobs { data: 1 } "
        "}\n";
    static const char today[] =
        "layer { name: 'b' type: 'BatchNorm' param { lr_mult: 1 } param {} param {}\n"
        "  batch_norm_param { eps: 1e-5 use_global_stats: true } propagate_down: [true, f] }";
    static const char solver[] = "net: 'a' base_lr: 0.01 solver_type: ADAM\n"
                                 "net_param { layers { type: RELU layer { name: 'v0' } } }\n"
                                 "test_net_param { layers { type: TANH } } stepvalue: [1, 2]";
    run_cut(fuzz_prototxt, v1, sizeof v1 - 1);
    run_damaged(fuzz_prototxt, v1, sizeof v1 - 1, 20000);
    run_damaged(fuzz_prototxt, today, sizeof today - 1, 10000);
    run_damaged(fuzz_prototxt, solver, sizeof solver - 1, 10000);
}

CLEAN_TEST(a_damaged_caffemodel_fails_or_is_read_and_upgraded_completely) {
    /* written by Caffe's messages in Python: layers of version 1 with blobs of both kinds, and a layer
     * of today with floats and raw f16 */
    static const char v1[] = "\x0a\x01\x61\x12\x42\x12\x01\x78\x1a\x01\x79\x22\x01\x63\x28\x04\x32"
                             "\x12\x08\x01\x10\x01\x18"
                             "\x02\x20\x01\x2a\x08\x00\x00\x80\x3f\x00\x00\x00\xc0\x32\x0f\x3a\x03"
                             "\x0a\x01\x01\x42\x08\x00"
                             "\x00\x00\x00\x00\x00\xe0\x3f\x3d\x00\x00\x80\x3f\x3d\x00\x00\x00\x40"
                             "\x52\x02\x08\x02\xca\x3e"
                             "\x01\x77";
    static const char today[] = "\x0a\x01\x61\xa2\x06\x46\x0a\x01\x63\x12\x0b\x43\x6f\x6e\x76\x6f"
                                "\x6c\x75\x74\x69\x6f\x6e\x1a"
                                "\x01\x78\x22\x01\x79\x32\x08\x0a\x01\x77\x1d\x00\x00\x80\x3f\x3a"
                                "\x10\x2a\x08\x00\x00\x80\x3f"
                                "\x00\x00\x00\xc0\x3a\x04\x0a\x02\x02\x01\x3a\x12\x3a\x04\x0a\x02"
                                "\x02\x02\x50\x02\x62\x08\x00"
                                "\x3c\x00\xc0\xff\x7b\x01\x00";
    gd_pb_doc *doc;
    CHECK(gd_pb_read(&doc, &gd_caffe_net_schema, "v1", v1, sizeof v1 - 1) == GD_OK);
    CHECK(gd_pb_count(gd_pb_message(gd_pb_root(doc), "layers"), "blobs") == 2);
    gd_pb_free(doc);
    CHECK(gd_pb_read(&doc, &gd_caffe_net_schema, "today", today, sizeof today - 1) == GD_OK);
    CHECK(gd_pb_count(gd_pb_message(gd_pb_root(doc), "layer"), "blobs") == 2);
    gd_pb_free(doc);
    run_cut(fuzz_caffemodel, v1, sizeof v1 - 1);
    run_cut(fuzz_caffemodel, today, sizeof today - 1);
    run_damaged(fuzz_caffemodel, v1, sizeof v1 - 1, 20000);
    run_damaged(fuzz_caffemodel, today, sizeof today - 1, 20000);
}

TEST_MAIN
