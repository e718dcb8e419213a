/* test_caffe_losses.c - losses of Caffe's nets and other layers without weights: what no recorded case shows.
 * Caffe's results are in the recorded cases (test_caffe_layers.c). */
#include <math.h>

#include "caffe/net.h"
#include "caffe/schema.h"
#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"
#include "temp.h"

static gd_pb_doc *doc;

/* A net; it is freed with forget. */
static gd_caffe_text_net *build(const char *text, gd_caffe_phase phase) {
    const gd_caffe_net_settings settings = {.phase = phase};
    gd_caffe_text_net *net = NULL;
    gd_pb_free(doc);
    doc = NULL;
    if (gd_pb_read_text(&doc, &gd_caffe_net_schema, "net.prototxt", text, strlen(text)) == GD_OK)
        gd_caffe_net_build(&net, gd_pb_root(doc), "net.prototxt", &settings);
    CHECK_SAYING(net != NULL, "%s\n%s", text, gd_latest_failure());
    return net;
}

static void forget(gd_caffe_text_net *net) {
    gd_caffe_net_free(net);
    gd_pb_free(doc);
    doc = NULL;
}

#define INPUT(name, dims) "input: '" name "' input_shape { " dims " }\n"
#define X34               INPUT("x", "dim: 3 dim: 4")
#define LABELS3           INPUT("label", "dim: 3")

static gd_tensors call_net(gd_tensors in, void *net) { return gd_module_call(net, in); }

/* --- the common case is the library's own loss ------------------------------------------------- */

static gd_tensors step_of_net(gd_tensors in, void *net) {
    gd_tensor *loss = gd_module_call(net, in).at[0];
    gd_tensors gradients = gd_grad(gd_list(loss), gd_list(in.at[0]));
    return gd_listed(loss, gradients.at[0]);
}
static gd_tensors step_of_program(gd_tensors in, void *user) {
    (void)user;
    gd_tensor *loss = gd_cross_entropy(in.at[0], gd_cast(in.at[1], GD_I64));
    gd_tensors gradients = gd_grad(gd_list(loss), gd_list(in.at[0]));
    return gd_listed(loss, gradients.at[0]);
}

CLEAN_TEST(softmax_with_loss_has_the_plan_and_the_bits_of_cross_entropy) {
    GD_SCOPE;
    gd_caffe_text_net *net = build(
        INPUT("x", "dim: 8 dim: 10")
            INPUT("label", "dim: 8") "layer { name: 'loss' type: "
                                     "'SoftmaxWithLoss' bottom: 'x' bottom: 'label' top: 'loss' }",
        GD_CAFFE_TRAIN);
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(8, 10)));
    gd_tensor *labels = gd_arange(0, 8, .dtype = GD_F32);
    gd_jit *ours = gd_jit_new(step_of_net, net->module), *own = gd_jit_new(step_of_program, NULL);
    gd_tensors a = gd_jit_call(ours, gd_list(x, labels)), b = gd_jit_call(own, gd_list(x, labels));
    CHECK(tensors_same_bits(a.at[0], b.at[0]) && tensors_same_bits(a.at[1], b.at[1]));
    char *plan_a = gd_jit_plan_text(ours, gd_list(x, labels)),
         *plan_b = gd_jit_plan_text(own, gd_list(x, labels));
    CHECK(plan_a && plan_b && strcmp(plan_a, plan_b) == 0);
    free(plan_a);
    free(plan_b);
    forget(net);
}

/* --- second tops -------------------------------------------------------------------------------- */

CLEAN_TEST(losses_also_give_the_probabilities) {
    GD_SCOPE;
    const char *texts[] = {
        X34 LABELS3 "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'x' "
                    "bottom: 'label' top: 'loss' top: 'prob' }",
        X34 LABELS3 INPUT("h",
                          "dim: 4 dim: 4") "layer { name: 'loss' type: "
                                           "'InfogainLoss' bottom: 'x' bottom: 'label' bottom: 'h' "
                                           "top: 'loss' top: 'prob' }"};
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(3, 4))), *labels = gd_zeros(gd_dims(3));
    gd_tensor *in[] = {x, labels, gd_eye(4)};
    for (int i = 0; i < 2; i++) {
        gd_caffe_text_net *net = build(texts[i], GD_CAFFE_TRAIN);
        CHECK(net->n_outputs == 2 && net->outputs[0].loss_weight == 1);
        gd_tensors y = gd_module_call(net->module, (gd_tensors){in, net->n_inputs});
        /* with the unit matrix the two losses are the same */
        CHECK(tensors_distance(y.at[0], gd_cross_entropy(x, gd_cast(labels, GD_I64))) < 1e-6);
        CHECK(tensors_distance(y.at[1], gd_softmax(x)) < 1e-6);
        CHECK(!gd_tensor_requires_grad(y.at[1]));
        forget(net);
    }
}

/* --- labels ------------------------------------------------------------------------------------- */

#define LOSS(type, tops)         \
    INPUT("x", "dim: 2 dim: 10") \
    INPUT("label", "dim: 2")     \
    "layer { name: 'far' type: '" type "' bottom: 'x' bottom: 'label' top: '" tops "' }"

CLEAN_TEST(a_label_without_a_class_is_named_with_its_layer) {
    const char *texts[] = {LOSS("SoftmaxWithLoss", "y"), LOSS("MultinomialLogisticLoss", "y"),
                           LOSS("HingeLoss", "y"), LOSS("Accuracy", "y")};
    for (int mode = 0; mode < 2; mode++)
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            GD_SCOPE;
            gd_caffe_text_net *net = build(texts[i], GD_CAFFE_TEST);
            gd_tensor *labels = gd_cat(gd_list(gd_full(gd_dims(1), 3), gd_full(gd_dims(1), 12)));
            gd_tensors in = gd_list(gd_ones(gd_dims(2, 10)), gd_cast(labels, GD_F32));
            if (mode == 0) gd_module_call(net->module, in);
            else gd_jit_call(gd_jit_new(call_net, net->module), in);
            CHECK_SAYING(says("far (") && says("12") && says("0 to 9"), "%s", gd_error_message());
            gd_clear_error();
            forget(net);
        }
}

/* --- messages ----------------------------------------------------------------------------------- */

typedef struct mistake {
    const char *text, *message;
} mistake;

#define LAYER(type, rest) "layer { name: 'y' type: '" type "' bottom: 'x' " rest " }"

TEST(a_layer_that_does_not_fit_says_why) {
    static const mistake mistakes[] = {
        {X34 LABELS3 LAYER("Exp", "top: 'y' exp_param { base: -2 }"),
         "net.prototxt:3:1: layer 'y' (Exp): base is -2; it must be positive, or -1 for e"},
        {X34 LAYER("Log", "top: 'y' log_param { base: 1 }"), "base is 1, which has no logarithms"},
        {X34 LABELS3 LAYER("Eltwise", "bottom: 'label' top: 'y'"),
         "bottom 'label' is [3], but 'x' is [3,4]; their shapes must be equal"},
        {X34 LAYER("Eltwise", "bottom: 'x' top: 'y' eltwise_param { coeff: 1 }"),
         "it has 2 bottoms, but 1 coeff; each bottom needs one"},
        {X34 LAYER("Eltwise",
                   "bottom: 'x' top: 'y' eltwise_param { operation: PROD coeff: 1 coeff: 1 }"),
         "coeff is for the operation SUM, not PROD"},
        {X34 LAYER("Slice", "top: 'a' top: 'b' top: 'c'"),
         "axis 1 has 4 elements, which 3 tops cannot share evenly; slice_point says where to cut"},
        {X34 LAYER("Slice", "top: 'a' top: 'b' top: 'c' slice_param { slice_point: 1 }"),
         "3 tops need 2 slice_point, but it has 1"},
        {X34 LAYER("Slice", "top: 'a' top: 'b' slice_param { slice_point: 4 }"),
         "slice_point 0 is 4; the points must increase, and lie between 0 and 4, the size of the "
         "axis"},
        {X34 LAYER("Reshape", "top: 'y' reshape_param { shape { dim: 5 dim: -1 } }"),
         "the 12 elements of its bottom [3,4] do not fit [5,?]"},
        {X34 LAYER("Reshape", "top: 'y' reshape_param { shape { dim: -1 dim: -1 } }"),
         "dim 1 is -1; a dim is a size, 0, or -1, which may be there once"},
        {X34 LAYER("Reshape", "top: 'y' reshape_param { axis: 3 shape { dim: 1 } }"),
         "axis is 3, but its bottom has 2 axes (-3 to 2)"},
        {X34 LAYER("Tile", "top: 'y'"), "tiles is 0; it must be at least 1"},
        {X34 LAYER("Reduction", "top: 'y' reduction_param { axis: 2 }"),
         "axis is 2, but its bottom has 2 axes (-2 to 1)"},
        {X34 LAYER("ArgMax", "top: 'y' argmax_param { top_k: 5 }"),
         "top_k is 5, but there are 4 elements to choose from"},
        {X34 LAYER("Dropout", "top: 'y' dropout_param { dropout_ratio: 1.5 }"),
         "dropout_ratio is 1.5; it must be at least 0 and less than 1"},
        {X34 LAYER("BatchReindex", "bottom: 'x' top: 'y'"),
         "its second bottom, the positions, has 2 axes; it must have 1"},
        {X34 LAYER("Filter", "bottom: 'x' top: 'y'"),
         "its last bottom is [3,4]; it must have one number for each item"},
        {X34 LABELS3 LAYER("Filter", "bottom: 'label' top: 'y' top: 'z'"),
         "it has 2 bottoms and 2 tops; each bottom but the last has a top"},
        {X34 INPUT("label", "dim: 2") LAYER("SoftmaxWithLoss", "bottom: 'label' top: 'y'"),
         "bottom 'label' is [2], but 'x' is [3,4]; with the classes on axis 1 it takes 3 labels"},
        {X34 INPUT("label", "dim: 2") LAYER("HingeLoss", "bottom: 'label' top: 'y'"),
         "bottom 'label' is [2], but 'x' is [3,4]; with the classes on axis 1 it takes 3 labels"},
        {X34 LABELS3 LAYER("EuclideanLoss", "bottom: 'label' top: 'y'"),
         "bottom 'label' is [3], but 'x' is [3,4]; they must have as many elements, and the same "
         "first"},
        {X34 LABELS3 LAYER("InfogainLoss", "bottom: 'label' top: 'y'"),
         "it needs a matrix: a third bottom, or a file as infogain_loss_param.source"},
        {X34 LABELS3 LAYER("InfogainLoss", "bottom: 'label' bottom: 'x' top: 'y'"),
         "its matrix is [3,4]; for 4 classes it must be [4,4]"},
        {X34 LABELS3 LAYER("Accuracy", "bottom: 'label' top: 'y' accuracy_param { top_k: 5 }"),
         "top_k is 5, but axis 1 has 4 classes"},
        {X34 LAYER("Python", "top: 'y' python_param { module: 'mine' layer: 'Loud' }"),
         "layers in Python do not run here (this one is 'Loud' of module 'mine'); define it as an "
         "op"},
        {X34 LAYER("Power", "top: 'y' top: 'z'"), "it takes 1 top, but has 2"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        GD_SCOPE;
        gd_caffe_text_net *net = NULL;
        gd_pb_doc *text = NULL;
        const gd_caffe_net_settings settings = {.phase = GD_CAFFE_TEST};
        gd_clear_error();
        CHECK(gd_pb_read_text(&text, &gd_caffe_net_schema, "net.prototxt", mistakes[i].text,
                              strlen(mistakes[i].text)) == GD_OK);
        CHECK(gd_caffe_net_build(&net, gd_pb_root(text), "net.prototxt", &settings) != GD_OK);
        CHECK_SAYING(strstr(gd_latest_failure(), mistakes[i].message) &&
                         strstr(gd_latest_failure(), "layer 'y' ("),
                     "%s\n%s", mistakes[i].text, gd_latest_failure());
        gd_caffe_net_free(net);
        gd_pb_free(text);
    }
    gd_clear_error();
}

/* --- layers that Caffe's results cannot show ------------------------------------------------------ */

CLEAN_TEST(dropout_drops_only_in_the_phase_train_and_in_train_mode) {
    GD_SCOPE;
    static const char text[] = INPUT(
        "x", "dim: 1 dim: 10000") "layer { name: 'drop' type: 'Dropout' "
                                  "bottom: 'x' top: 'y' dropout_param { dropout_ratio: 0.2 } }";
    gd_tensor *x = gd_ones(gd_dims(1, 10000));
    gd_seed(1);
    gd_caffe_text_net *net = build(text, GD_CAFFE_TRAIN);
    gd_module_train(net->module);
    gd_tensor *y = gd_module_call(net->module, gd_list(x)).at[0];
    const double kept = gd_item(gd_mean(gd_cast(gd_ne(y, gd_scalar(0)), GD_F32)));
    CHECK(fabs(kept - 0.8) < 0.02 && fabs(gd_item(gd_max(y)) - 1.25) < 1e-6);
    gd_module_eval(net->module);
    CHECK(tensors_same_bits(gd_module_call(net->module, gd_list(x)).at[0], x));
    forget(net);
    net = build(text, GD_CAFFE_TEST);
    gd_module_train(net->module);
    CHECK(tensors_same_bits(gd_module_call(net->module, gd_list(x)).at[0], x));
    forget(net);
}

CLEAN_TEST(clip_keeps_the_gradient_between_its_bounds) {
    GD_SCOPE;
    gd_caffe_text_net *net =
        build(INPUT("x", "dim: 5") "layer { name: 'c' type: 'Clip' bottom: 'x' top: "
                                   "'y' clip_param { min: -1 max: 2 } }",
              GD_CAFFE_TEST);
    gd_tensor *x = gd_requires_grad(gd_sub(gd_arange(0, 5, .dtype = GD_F32), gd_scalar(1.5)));
    gd_tensor *y = gd_module_call(net->module, gd_list(x)).at[0];
    CHECK(gd_backward(gd_sum(y)) == GD_OK);
    CHECK(tensors_same_bits(
        y, gd_from_array(gd_dims(5), GD_F32, ((float[]){-1, -0.5f, 0.5f, 1.5f, 2}))));
    CHECK(tensors_same_bits(gd_tensor_grad(x),
                            gd_from_array(gd_dims(5), GD_F32, ((float[]){0, 1, 1, 1, 0}))));
    forget(net);
}

CLEAN_TEST(a_filter_may_keep_nothing) {
    GD_SCOPE;
    gd_caffe_text_net *net =
        build(X34 LABELS3 "layer { name: 'f' type: 'Filter' bottom: 'x' bottom: "
                          "'label' top: 'y' }",
              GD_CAFFE_TEST);
    gd_tensor *x = gd_requires_grad(gd_randn(gd_dims(3, 4)));
    gd_tensor *y = gd_module_call(net->module, gd_list(x, gd_zeros(gd_dims(3)))).at[0];
    CHECK(gd_tensor_rank(y) == 2 && gd_tensor_dim(y, 0) == 0 && gd_tensor_dim(y, 1) == 4);
    CHECK(gd_backward(gd_sum(y)) == GD_OK && gd_item(gd_max(gd_abs(gd_tensor_grad(x)))) == 0);
    forget(net);
}

CLEAN_TEST(the_matrix_of_infogain_comes_from_a_file_and_clones_share_it) {
    GD_SCOPE;
    char text[2000];
    gd_tensor *x = gd_randn(gd_dims(3, 4)), *labels = gd_full(gd_dims(3), 2, .dtype = GD_F32);
    gd_tensor *matrix = gd_mul(gd_eye(4), gd_scalar(0.5));
    CHECK(gd_caffe_write_blob(temp_path("infogain.binaryproto"), matrix) == GD_OK);
    snprintf(text, sizeof text,
             X34 LABELS3
             "layer { name: 'loss' type: 'InfogainLoss' bottom: 'x' bottom: 'label' top: "
             "'loss' infogain_loss_param { source: '%s' } }",
             temp_path("infogain.binaryproto"));
    gd_caffe_text_net *net = build(text, GD_CAFFE_TRAIN);
    gd_module *copy = gd_module_clone(net->module);
    CHECK(gd_module_parameters(net->module).count == 0 &&
          gd_module_buffers(net->module).count == 0);
    const double half = 0.5 * gd_item(gd_cross_entropy(x, gd_cast(labels, GD_I64)));
    CHECK(fabs(gd_item(gd_module_call(net->module, gd_list(x, labels)).at[0]) - half) < 1e-6);
    forget(net);
    CHECK(fabs(gd_item(gd_module_call(copy, gd_list(x, labels)).at[0]) - half) < 1e-6);
}

CLEAN_TEST(losses_below_the_least_probability_keep_their_gradient) {
    GD_SCOPE;
    gd_caffe_text_net *net =
        build(INPUT("x", "dim: 1 dim: 2")
                  INPUT("label", "dim: 1") "layer { name: 'l' type: 'MultinomialLogisticLoss' "
                                           "bottom: 'x' bottom: 'label' top: 'loss' }",
              GD_CAFFE_TRAIN);
    gd_tensor *p = gd_requires_grad(gd_from_array(gd_dims(1, 2), GD_F32, ((float[]){0, 1})));
    gd_tensor *loss = gd_module_call(net->module, gd_list(p, gd_zeros(gd_dims(1)))).at[0];
    CHECK(gd_backward(loss) == GD_OK);
    CHECK(fabs(gd_item(loss) + log(1e-20)) < 1e-4);
    CHECK(fabs(gd_item(gd_sum(gd_tensor_grad(p))) / -1e20 - 1) < 1e-5);
    forget(net);
}

/* --- other batches, and ONNX --------------------------------------------------------------------- */

static const char all_layers[] =
    "name: 'all' input: 'x' input_shape { dim: 2 dim: 4 dim: 3 dim: 3 }\n"
    "layer { name: 'a' type: 'Power' bottom: 'x' top: 'a' power_param { power: 2 scale: 0.5 shift: "
    "1 } }\n"
    "layer { name: 'b' type: 'Exp' bottom: 'a' top: 'b' exp_param { base: 2 scale: 0.1 } }\n"
    "layer { name: 'c' type: 'Log' bottom: 'b' top: 'c' log_param { base: 10 shift: 2 } }\n"
    "layer { name: 'd' type: 'ReLU' bottom: 'x' top: 'd' relu_param { negative_slope: 0.1 } }\n"
    "layer { name: 'e' type: 'Eltwise' bottom: 'c' bottom: 'd' bottom: 'x' top: 'e'\n"
    "        eltwise_param { operation: MAX } }\n"
    "layer { name: 'f' type: 'Eltwise' bottom: 'e' bottom: 'x' top: 'f'\n"
    "        eltwise_param { coeff: 1 coeff: -0.5 } }\n"
    "layer { name: 'g' type: 'Slice' bottom: 'f' top: 'g1' top: 'g2' top: 'g3'\n"
    "        slice_param { slice_point: 1 slice_point: 2 } }\n"
    "layer { name: 'h' type: 'Concat' bottom: 'g3' bottom: 'g1' top: 'h' concat_param { axis: 1 } "
    "}\n"
    "layer { name: 'i' type: 'Split' bottom: 'h' top: 'i1' top: 'i2' }\n"
    "layer { name: 'j' type: 'Reshape' bottom: 'i1' top: 'j' reshape_param { shape { dim: 0 dim: "
    "-1 } } }\n"
    "layer { name: 'k' type: 'Tile' bottom: 'i2' top: 'k' tile_param { tiles: 2 } }\n"
    "layer { name: 'l' type: 'MVN' bottom: 'k' top: 'l' mvn_param { eps: 0.01 } }\n"
    "layer { name: 'm' type: 'Flatten' bottom: 'l' top: 'm' }\n"
    "layer { name: 'n' type: 'Reduction' bottom: 'm' top: 'n' reduction_param { operation: ASUM "
    "axis: 1 } }\n"
    "layer { name: 'o' type: 'Softmax' bottom: 'j' top: 'o' }\n"
    "layer { name: 'p' type: 'ArgMax' bottom: 'o' top: 'p' argmax_param { top_k: 3 } }\n"
    "layer { name: 'q' type: 'Threshold' bottom: 'x' top: 'q' threshold_param { threshold: 0.1 } "
    "}\n"
    "layer { name: 'r' type: 'Swish' bottom: 'x' top: 'r' swish_param { beta: 0.5 } }\n"
    "layer { name: 's' type: 'BNLL' bottom: 'r' top: 's' }\n"
    "layer { name: 't' type: 'Dropout' bottom: 's' top: 't' }\n"
    "layer { name: 'u' type: 'ELU' bottom: 't' top: 'u' }\n"
    "layer { name: 'v' type: 'Clip' bottom: 'u' top: 'v' clip_param { min: 0 max: 1 } }\n"
    "layer { name: 'w' type: 'AbsVal' bottom: 'v' top: 'w' }\n"
    "layer { name: 'quiet' type: 'Silence' bottom: 'g2' }\n";

CLEAN_TEST(nets_run_with_other_batches_and_as_onnx_with_any) {
    GD_SCOPE;
    gd_seed(3);
    gd_caffe_text_net *net = build(all_layers, GD_CAFFE_TEST);
    gd_module_eval(net->module);
    const char *path = temp_path("all.onnx");
    CHECK(gd_onnx_save_module(path, net->module, gd_list(gd_zeros(gd_dims(2, 4, 3, 3))),
                              .outputs = "n p q w") == GD_OK);
    gd_module *back = gd_onnx_module(path);
    CHECK_SAYING(back != NULL, "%s", gd_error_message());
    for (int n = 1; n < 4; n += 2) {
        gd_tensor *x = gd_randn(gd_dims(n, 4, 3, 3));
        gd_tensors a = gd_module_call(net->module, gd_list(x)),
                   b = gd_module_call(back, gd_list(x));
        CHECK_SAYING(a.count == 4 && b.count == 4, "%s", gd_error_message());
        for (int i = 0; i < 4 && b.count == 4; i++)
            CHECK_SAYING(gd_tensor_dim(a.at[i], 0) == n &&
                             tensors_distance(a.at[i], b.at[i]) < 1e-5,
                         "output %d: %g", i, tensors_distance(a.at[i], b.at[i]));
    }
    forget(net);
}

CLEAN_TEST(clones_give_the_same_bits_and_nets_of_f64_nearly_the_same) {
    GD_SCOPE;
    gd_seed(4);
    gd_caffe_text_net *net = build(all_layers, GD_CAFFE_TEST);
    gd_module *copy = gd_module_clone(net->module);
    gd_tensor *x = gd_randn(gd_dims(2, 4, 3, 3));
    gd_tensors a = gd_module_call(net->module, gd_list(x)), b = gd_module_call(copy, gd_list(x));
    forget(net);
    CHECK(gd_module_to(copy, NULL, GD_F64) == GD_OK);
    gd_tensors c = gd_module_call(copy, gd_list(gd_cast(x, GD_F64)));
    CHECK(a.count == 4 && b.count == 4 && c.count == 4);
    for (int i = 0; i < 4; i++)
        CHECK(tensors_same_bits(a.at[i], b.at[i]) && tensors_distance(a.at[i], c.at[i]) < 1e-5 &&
              gd_tensor_dtype(c.at[i]) == GD_F64);
}

TEST_MAIN
