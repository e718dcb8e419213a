/* test_caffe_messages.c - what the readers say about nets and solvers with mistakes. */
#include "caffe/read.h"
#include "core/error.h"
#include "test.h"

typedef struct mistake {
    const char *text, *message;
} mistake;

static void check_messages(const gd_pb_schema *schema, const char *file, const mistake *mistakes,
                           size_t count) {
    for (size_t i = 0; i < count; i++) {
        gd_pb_doc *doc;
        gd_status status =
            gd_pb_read_text(&doc, schema, file, mistakes[i].text, strlen(mistakes[i].text));
        if (status == GD_OK)
            status = schema == &gd_caffe_net_schema
                         ? gd_caffe_upgrade_net(gd_pb_root(doc), file)
                         : gd_caffe_upgrade_solver(gd_pb_root(doc), file);
        CHECK_SAYING(status == GD_E_FORMAT, "%s", mistakes[i].text);
        CHECK_SAYING(strcmp(gd_latest_failure(), mistakes[i].message) == 0, "\n%s\n%s\n%s",
                     mistakes[i].text, gd_latest_failure(), mistakes[i].message);
        gd_pb_free(doc);
    }
}

#define CONV "layer {\n  name: 'conv2'\n  type: 'Convolution'\n"

TEST(a_mistake_in_a_net_is_named_with_its_place_its_layer_and_what_would_fit) {
    static const mistake mistakes[] = {
        {CONV "  convolution_param {\n    num_outputs: 20\n  }\n}",
         "net.prototxt:5:5: layer 'conv2' (Convolution): convolution_param has no field "
         "'num_outputs'; did you mean num_output?"},
        {CONV "  botom: 'data'\n}", "net.prototxt:4:3: layer 'conv2' (Convolution) has no field "
                                    "'botom'; did you mean bottom?"},
        {CONV "  num_output: 20\n}",
         "net.prototxt:4:3: layer 'conv2' (Convolution) has no field 'num_output'; it is a field "
         "of convolution_param, inner_product_param, embed_param or recurrent_param"},
        {CONV "  scale: 20\n}",
         "net.prototxt:4:3: layer 'conv2' (Convolution) has no field 'scale'; it is a field of "
         "transform_param, data_param, exp_param, image_data_param, ..."},
        {CONV "  convolution_param { kernel: 3 }\n}",
         "net.prototxt:4:23: layer 'conv2' (Convolution): convolution_param has no field 'kernel'; "
         "did you mean kernel_size?"},
        {CONV "  convolution_param { weight_filler { typ: 'xavier' } }\n}",
         "net.prototxt:4:39: layer 'conv2' (Convolution): convolution_param.weight_filler has no "
         "field 'typ'; did you mean type?"},
        {CONV "  convolution_param { num_output: 20.5 }\n}",
         "net.prototxt:4:35: layer 'conv2' (Convolution): convolution_param.num_output: expected a "
         "nonnegative integer of 32 bits, found '20.5'"},
        {CONV "  convolution_param { num_output: -1 }\n}",
         "net.prototxt:4:35: layer 'conv2' (Convolution): convolution_param.num_output: expected a "
         "nonnegative integer of 32 bits, found '-1'"},
        {CONV "  convolution_param { num_output: '20' }\n}",
         "net.prototxt:4:35: layer 'conv2' (Convolution): convolution_param.num_output: expected a "
         "nonnegative integer of 32 bits, found a string in quotes"},
        {CONV "  convolution_param { num_output 20 }\n}",
         "net.prototxt:4:34: layer 'conv2' (Convolution): convolution_param.num_output: expected "
         "':', found '20'"},
        {CONV "  convolution_param { num_output: }\n}",
         "net.prototxt:4:35: layer 'conv2' (Convolution): convolution_param.num_output: expected a "
         "nonnegative integer of 32 bits, found '}'"},
        {CONV "  convolution_param { bias_term: no }\n}",
         "net.prototxt:4:34: layer 'conv2' (Convolution): convolution_param.bias_term: expected "
         "true or false, found 'no'"},
        {CONV "  convolution_param { engine: CUDA }\n}",
         "net.prototxt:4:31: layer 'conv2' (Convolution): convolution_param.engine: expected "
         "DEFAULT, CAFFE or CUDNN, found 'CUDA'"},
        {CONV "  pooling_param { pool: max }\n}",
         "net.prototxt:4:25: layer 'conv2' (Convolution): pooling_param.pool: expected MAX, AVE or "
         "STOCHASTIC, found 'max'; did you mean MAX?"},
        {CONV "  pooling_param { pool: 'AVE' }\n}",
         "net.prototxt:4:25: layer 'conv2' (Convolution): pooling_param.pool: expected MAX, AVE or "
         "STOCHASTIC without quotes, found a string in quotes; did you mean AVE?"},
        {CONV "  pooling_param { pool: MEDIAN }\n}",
         "net.prototxt:4:25: layer 'conv2' (Convolution): pooling_param.pool: expected MAX, AVE or "
         "STOCHASTIC, found 'MEDIAN'"},
        {CONV "  convolution_param {\n    num_output: 20\n    num_output: 50\n  }\n}",
         "net.prototxt:6:5: layer 'conv2' (Convolution): convolution_param.num_output: is given "
         "twice"},
        {CONV "  convolution_param {\n    num_output: 20\n}\n\nlayer {\n  name: 'relu2'\n}",
         "net.prototxt:8:1: layer 'conv2' (Convolution) has no field 'layer'; is the closing "
         "bracket of line 1 missing?"},
        {CONV "  convolution_param {\n    num_output: 20\n  }\n",
         "net.prototxt:7:1: layer 'conv2' (Convolution): expected '}' for the bracket of line 1, "
         "found the end"},
        {CONV "  convolution_param {\n    num_output: 20\n  }\n}\n}\n",
         "net.prototxt:8:1: this bracket closes nothing"},
        {CONV "  convolution_param { num_output: 1 }\n  convolution_param { pad: 1 }\n}",
         "net.prototxt:5:3: layer 'conv2' (Convolution): convolution_param: is given twice, first "
         "in line 4"},
        {CONV "  phase: [TRAIN, TEST]\n}",
         "net.prototxt:4:10: layer 'conv2' (Convolution): phase: takes one value, not a list"},
        {CONV "  top: conv2\n}", "net.prototxt:4:8: layer 'conv2' (Convolution): top[0]: expected "
                                 "a string in quotes, found 'conv2'; write \"conv2\""},
        {CONV "  top: 'conv2\n}", "net.prototxt:4:14: layer 'conv2' (Convolution): top[0]: "
                                  "expected a closing quote, found the end of the line"},
        {CONV "  include { phase: TRAINING }\n}",
         "net.prototxt:4:20: layer 'conv2' (Convolution): include[0].phase: expected TRAIN or "
         "TEST, found 'TRAINING'; did you mean TRAIN?"},
        {CONV "  bottom: 'a\\q'\n}", "net.prototxt:4:14: layer 'conv2' (Convolution): bottom[0]: "
                                     "expected an escape after the backslash, found 'q'"},
        {"layer {\n  bottm: 'data'\n}",
         "net.prototxt:2:3: layer[0] has no field 'bottm'; did you mean bottom?"},
        {"nam: 'LeNet'", "net.prototxt:1:1: a NetParameter has no field 'nam'; did you mean name?"},
        {"layer {\n} layers {\n}",
         "net.prototxt:2:3: a net has either 'layers', of version 1, or 'layer', not both"},
        {"layers {\n  name: 'conv2' type: 'Convolution'\n}",
         "net.prototxt:2:23: layer 'conv2': type: expected one of 40 words without quotes, found a "
         "string in quotes; did you mean CONVOLUTION?"},
        {"layers {\n  name: 'conv2' type: CONVOLUTON\n}",
         "net.prototxt:2:23: layer 'conv2': type: expected one of 40 words, found 'CONVOLUTON'; "
         "did you mean CONVOLUTION?"},
        {"layers {\n  name: 'conv2' type: CONVOLUTION\n  bottem: 'data' }",
         "net.prototxt:3:3: layer 'conv2' (CONVOLUTION) has no field 'bottem'; did you mean "
         "bottom?"},
        {"layers {\n  layer { name: 'conv2' type: 'conv' }\n}",
         "net.prototxt:1:1: layer 'conv2' is of version 0 (V0LayerParameter), which is not "
         "supported; Caffe's upgrade_net_proto_text converts it"},
        {"layers { name: 'a' type: 77 }",
         "net.prototxt:1:1: layer 'a': a layer of version 1 has no type 77"},
        {"layer {\n  name: 'conv2'\n  type: CONVOLUTION\n}",
         "net.prototxt:3:9: layer 'conv2': type: expected a string in quotes, found 'CONVOLUTION'; "
         "write \"CONVOLUTION\""},
        {"name: \"LeNet\"\n\x01",
         "net.prototxt:2:1: expected the name of a field, found byte 0x01"},
        {"%YAML", "net.prototxt:1:1: expected the name of a field, found '%'"},
    };
    check_messages(&gd_caffe_net_schema, "net.prototxt", mistakes,
                   sizeof mistakes / sizeof *mistakes);
}

TEST(a_mistake_in_a_solver_is_named_with_its_place) {
    static const mistake mistakes[] = {
        {"net: 'a'\nbase_lr: 0,01",
         "solver.prototxt:2:11: a number has a decimal point, not a comma"},
        {"lr: 0.01", "solver.prototxt:1:1: a SolverParameter has no field 'lr'"},
        {"baselr: 0.01",
         "solver.prototxt:1:1: a SolverParameter has no field 'baselr'; did you mean base_lr?"},
        {"max_iter: 1e5",
         "solver.prototxt:1:11: max_iter: expected an integer of 32 bits, found '1e5'"},
        {"solver_mode: CUDA",
         "solver.prototxt:1:14: solver_mode: expected CPU or GPU, found 'CUDA'"},
        {"solver_type: ADAM\ntype: 'Adam'", "solver.prototxt:1:1: a solver has either 'type' or, "
                                            "in older files, 'solver_type'; this one has both"},
        {"learning_rate: 1", "solver.prototxt:1:1: a SolverParameter has no field 'learning_rate'"},
        {"net_param {\n  layers { name: 'a' type: 77 } }",
         "solver.prototxt:2:3: layer 'a': a layer of version 1 has no type 77"},
        {"test_iter: 100\ntest_interval: 500\ntest_interval: 100",
         "solver.prototxt:3:1: test_interval: is given twice"},
    };
    check_messages(&gd_caffe_solver_schema, "solver.prototxt", mistakes,
                   sizeof mistakes / sizeof *mistakes);
}

TEST_MAIN
