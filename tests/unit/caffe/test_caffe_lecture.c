/* test_caffe_lecture.c - what courses on Caffe do with it: logistic regression on two kinds of files, fine-tuning with
 * a new last layer, and a siamese net.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clean_test.h"
#include "compare.h"
#include "files.h"
#include "format/hdf5.h"
#include "format/lmdb.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "caffe/schema.h"
#include "core/alloc.h"
#include "core/error.h"

enum { SAMPLES = 60, FEATURES = 4, LINES = 60 };

static float values[SAMPLES][FEATURES], classes[SAMPLES];

/* Points around two centres. */
static void make_points(void) {
    gd_random r = gd_random_of(5, 0);
    for (int i = 0; i < SAMPLES; i++) {
        const int class = (int)gd_random_below(&r, 2);
        classes[i] = (float)class;
        for (int k = 0; k < FEATURES; k++)
            values[i][k] = (float)gd_random_normal(&r) + (k % 2 == class ? 2.0F : 0);
    }
}

/* --- files ------------------------------------------------------------------------------------ */

static gd_status put_record(gd_lmdb_writer *db, int i) {
    gd_pb_doc *doc = gd_pb_new(&gd_caffe_datum_schema);
    if (!doc) return gd_failure();
    gd_pb *datum = gd_pb_root(doc);
    gd_pb_put_int(datum, "channels", FEATURES);
    gd_pb_put_int(datum, "height", 1);
    gd_pb_put_int(datum, "width", 1);
    gd_pb_put_int(datum, "label", (int64_t)classes[i]);
    for (int k = 0; k < FEATURES; k++) gd_pb_put_float(datum, "float_data", (double)values[i][k]);
    char key[16], *data = NULL;
    size_t bytes = 0;
    snprintf(key, sizeof key, "%08d", i);
    gd_status status = gd_pb_print(doc, &data, &bytes);
    if (status == GD_OK) status = gd_lmdb_put(db, key, 8, data, bytes);
    gd_free(data);
    gd_pb_free(doc);
    return status;
}

static void write_lmdb(void) {
    gd_lmdb_writer *db;
    CHECK(gd_lmdb_create(&db, temp_path("points_lmdb")) == GD_OK);
    for (int i = 0; i < SAMPLES; i++) CHECK(put_record(db, i) == GD_OK);
    CHECK(gd_lmdb_finish(db) == GD_OK);
}

static void write_rows(const char *name, int first, int count) {
    gd_hdf5_writer *w;
    CHECK(gd_hdf5_writer_begin(&w, temp_path("%s", name)) == GD_OK);
    CHECK(gd_hdf5_writer_dataset(w, "/data", GD_F32, 2, (int64_t[]){count, FEATURES}) == GD_OK);
    CHECK(gd_hdf5_writer_write(w, values[first], (size_t)count * sizeof *values) == GD_OK);
    CHECK(gd_hdf5_writer_dataset(w, "/label", GD_F32, 1, (int64_t[]){count}) == GD_OK);
    CHECK(gd_hdf5_writer_write(w, &classes[first], (size_t)count * sizeof *classes) == GD_OK);
    CHECK(gd_hdf5_writer_commit(w) == GD_OK);
}

/* --- runs ------------------------------------------------------------------------------------- */

typedef struct heard {
    double losses[LINES], accuracy;
    char all[20000];
} heard;

static void listen(const char *line, void *user) {
    heard *h = user;
    int number;
    double value;
    const char *at = strstr(line, "] ");
    at = at ? at + 2 : line;
    const size_t used = strlen(h->all);
    snprintf(h->all + used, sizeof h->all - used, "%s\n", at);
    if (sscanf(at, "Iteration %d (%*[^)]), loss = %lf", &number, &value) == 2 && number < LINES)
        h->losses[number] = value;
    if (sscanf(at, "    Test net output #%d: accuracy = %lf", &number, &value) == 2)
        h->accuracy = value;
}

/* Trains by a solver whose net is a text. NULL: it has failed. */
static gd_module *train(const char *name, const char *layers, const char *fields,
                        const char *weights, heard *h) {
    char solver[1000], path[600];
    gd_module *net = NULL;
    *h = (heard){.accuracy = -1};
    snprintf(path, sizeof path, "%s", temp_path("%s.prototxt", name));
    file_write_text(path, layers);
    snprintf(solver, sizeof solver,
             "net: '%s' base_lr: 0.1 lr_policy: 'fixed' display: 1 random_seed: 3 "
             "snapshot_prefix: '%s' %s",
             path, temp_path("%s", name), fields);
    const char *file = temp_write_text("solver.prototxt", solver);
    const gd_history *done =
        gd_caffe_train(file, .weights = weights, .line = listen, .line_user = h, .net = &net);
    CHECK_SAYING(done && net, "%s: %s", name, gd_error_message());
    return done ? net : NULL;
}

static const char *text_of(const char *format, const char *given) {
    static char text[4000];
    snprintf(text, sizeof text, format, given);
    return text;
}

/* --- logistic regression ---------------------------------------------------------------------- */

#define FLAT "layer { name: 'flat' type: 'Flatten' bottom: 'data' top: 'flat' }\n"
#define LOGISTIC                                                                                   \
    FLAT                                                                                           \
        "layer { name: 'fc' type: 'InnerProduct' bottom: 'flat' top: 'fc'\n"                       \
        "  inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }\n"             \
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'fc' bottom: 'label' }\n"            \
        "layer { name: 'accuracy' type: 'Accuracy' bottom: 'fc' bottom: 'label' top: 'accuracy'\n" \
        "  include { phase: TEST } }\n"

/* The same samples as records and as rows of two files: the same losses. Batches of 16 run across the end. */
CLEAN_TEST(logistic_regression_is_the_same_on_lmdb_and_hdf5) {
    static heard a, b;
    char list[1200];
    if (!gd_lmdb_is_built()) return;
    GD_SCOPE;
    make_points();
    write_lmdb();
    write_rows("first.h5", 0, 25);
    write_rows("second.h5", 25, SAMPLES - 25);
    snprintf(list, sizeof list, "%s\n", temp_path("first.h5"));
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s\n", temp_path("second.h5"));
    const char *fields = "max_iter: 30 test_iter: 4 test_interval: 30 momentum: 0.9";
    const gd_module *one =
        train("records",
              text_of("layer { name: 'data' type: 'Data' top: 'data' top: 'label'\n"
                      "  data_param { source: '%s' batch_size: 16 backend: LMDB } }\n" LOGISTIC,
                      temp_path("points_lmdb")),
              fields, NULL, &a);
    const gd_module *two =
        train("rows",
              text_of("layer { name: 'data' type: 'HDF5Data' top: 'data' top: 'label'\n"
                      "  hdf5_data_param { source: '%s' batch_size: 16 } }\n" LOGISTIC,
                      temp_write_text("list.txt", list)),
              fields, NULL, &b);
    if (!one || !two) return;
    CHECK_SAYING(a.accuracy > 0.85 && a.losses[29] < a.losses[0] / 2, "%g, loss %g to %g",
                 a.accuracy, a.losses[0], a.losses[29]);
    CHECK_SAYING(a.accuracy == b.accuracy, "%g and %g", a.accuracy, b.accuracy);
    for (int i = 0; i < 30; i++)
        CHECK_SAYING(a.losses[i] == b.losses[i], "%d: %g and %g", i, a.losses[i], b.losses[i]);
    CHECK(tensors_same_bits(gd_module_tensor((gd_module *)one, "fc.weight"),
                            gd_module_tensor((gd_module *)two, "fc.weight")));
}

/* --- fine-tuning ------------------------------------------------------------------------------ */

#define BODY                                                                                     \
    "layer { name: 'data' type: 'DummyData' top: 'data' top: 'label'\n"                          \
    "  dummy_data_param { shape { dim: 8 dim: 5 } shape { dim: 8 }\n"                            \
    "    data_filler { type: 'gaussian' std: 1 } data_filler { type: 'constant' } } }\n"         \
    "layer { name: 'body' type: 'InnerProduct' bottom: 'data' top: 'body' param { lr_mult: 0 } " \
    "param { lr_mult: 0 }\n"                                                                     \
    "  inner_product_param { num_output: 6 weight_filler { type: 'xavier' } } }\n"
#define HEAD                                                                                     \
    "layer { name: '%s' type: 'InnerProduct' bottom: 'body' top: 'head' param { lr_mult: 10 } "  \
    "param { lr_mult: 20 }\n"                                                                    \
    "  inner_product_param { num_output: 3 weight_filler { type: 'constant' value: 0.25 } } }\n" \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'head' bottom: 'label' }\n"

static bool near(float a, double b) { return a > (float)b - 1e-5F && a < (float)b + 1e-5F; }

/* The layers of the same names get their weights. The new one has those of its filler, of which all classes are
 * equally likely, and takes one step with its rates. */
CLEAN_TEST(a_renamed_last_layer_is_trained_anew) {
    static heard h;
    char path[600];
    GD_SCOPE;
    gd_module *old = train("old", text_of(BODY HEAD, "head"), "max_iter: 5", NULL, &h);
    snprintf(path, sizeof path, "%s", temp_path("old_iter_5.caffemodel"));
    gd_module *net = train("tuned", text_of(BODY HEAD, "fresh"), "max_iter: 1", path, &h);
    if (!old || !net) return;
    CHECK(strstr(h.all, "Finetuning from ") && near((float)h.losses[0], 1.0986123));
    CHECK(tensors_same_bits(gd_module_tensor(old, "body.weight"),
                            gd_module_tensor(net, "body.weight")));
    CHECK(
        tensors_same_bits(gd_module_tensor(old, "body.bias"), gd_module_tensor(net, "body.bias")));
    float bias[3] = {0};
    CHECK(gd_copy_to(gd_module_tensor(net, "fresh.bias"), bias, sizeof bias) == GD_OK);
    CHECK_SAYING(near(bias[0], 4.0 / 3) && near(bias[1], -2.0 / 3) && near(bias[2], -2.0 / 3),
                 "%g %g %g", (double)bias[0], (double)bias[1], (double)bias[2]);
    /* with its old name it continues */
    net = train("same", text_of(BODY HEAD, "head"), "max_iter: 1", path, &h);
    CHECK(net && h.losses[0] < 0.5);
}

CLEAN_TEST(a_last_layer_of_another_size_is_refused_with_advice) {
    static heard h;
    char path[600];
    GD_SCOPE;
    gd_module *old = train("old", text_of(BODY HEAD, "head"), "max_iter: 1", NULL, &h);
    if (!old) return;
    snprintf(path, sizeof path, "%s", temp_path("old_iter_1.caffemodel"));
    char *text = strdup(text_of(BODY HEAD, "head")), *count = strstr(text, "num_output: 3");
    count[12] = '4';
    gd_module *net = gd_caffe_net(temp_write_text("four.prototxt", text), .train = true);
    free(text);
    CHECK(net && gd_caffe_load(path, net) == GD_E_FORMAT);
    CHECK_SAYING(strstr(gd_latest_failure(),
                        "layer 'head': its blob 0 is [3,6] here, but [4,6] in the net; "
                        "to train the layer anew, give it another name in the net"),
                 "%s", gd_latest_failure());
    gd_clear_error();
}

CLEAN_TEST(a_label_without_a_class_is_named_with_its_layer) {
    GD_SCOPE;
    char text[5000];
    snprintf(text, sizeof text,
             "net_param { %s } base_lr: 0.1 lr_policy: 'fixed' max_iter: 1 snapshot_prefix: '%s'",
             text_of(BODY HEAD, "head"), temp_path("labels"));
    char *label = strstr(text, "type: 'constant' } } }");
    if (label) memcpy(label, "value: 7         } } }", 22);
    CHECK(label && !gd_caffe_train(temp_write_text("labels.prototxt", text)));
    CHECK_SAYING(strstr(gd_error_message(),
                        "gd_caffe_train: gd_fit: loss (SoftmaxWithLoss): cross_entropy(") &&
                     strstr(gd_error_message(), "target 0 is class 7, but classes are 0 to 2"),
                 "%s", gd_error_message());
    gd_clear_error();
}

/* --- a siamese net ---------------------------------------------------------------------------- */

#define BRANCH(name, bottom, top)                                                         \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" top "'\n" \
    "  param { name: 'w' } param { name: 'b' lr_mult: 2 }\n"                              \
    "  inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }\n"

/* Pairs of points, which are similar if they are of one class. */
static void write_pairs(void) {
    gd_hdf5_writer *w;
    float similar[SAMPLES / 2];
    for (int i = 0; i < SAMPLES / 2; i++) similar[i] = classes[2 * i] == classes[2 * i + 1];
    CHECK(gd_hdf5_writer_begin(&w, temp_path("pairs.h5")) == GD_OK);
    CHECK(gd_hdf5_writer_dataset(w, "/pair", GD_F32, 3, (int64_t[]){SAMPLES / 2, 2, FEATURES}) ==
          GD_OK);
    CHECK(gd_hdf5_writer_write(w, values, sizeof values) == GD_OK);
    CHECK(gd_hdf5_writer_dataset(w, "/similar", GD_F32, 1, (int64_t[]){SAMPLES / 2}) == GD_OK);
    CHECK(gd_hdf5_writer_write(w, similar, sizeof similar) == GD_OK);
    CHECK(gd_hdf5_writer_commit(w) == GD_OK);
}

CLEAN_TEST(branches_of_a_siamese_net_share_their_parameters) {
    static heard h;
    GD_SCOPE;
    make_points();
    write_pairs();
    char *list = strdup(temp_path("pairs.h5"));
    gd_module *net = train(
        "siamese",
        text_of("layer { name: 'data' type: 'HDF5Data' top: 'pair' top: 'similar'\n"
                "  hdf5_data_param { source: '%s' batch_size: 30 } }\n"
                "layer { name: 'slice' type: 'Slice' bottom: 'pair' top: 'a' top: 'b' slice_param "
                "{ axis: 1 } }\n" BRANCH("left", "a", "fa") BRANCH(
                    "right", "b", "fb") "layer { name: 'loss' type: 'ContrastiveLoss' bottom: 'fa' "
                                        "bottom: 'fb' bottom: 'similar' top: 'loss'\n"
                                        "  contrastive_loss_param { margin: 2 } }\n",
                temp_write_text("pairs.txt", list)),
        "max_iter: 50 momentum: 0.9", NULL, &h);
    free(list);
    if (!net) return;
    CHECK(gd_module_parameters(net).count == 2);
    CHECK_SAYING(h.losses[49] < h.losses[0] / 2, "%g to %g", h.losses[0], h.losses[49]);
    CHECK(gd_module_tensor(net, "left.weight") == gd_module_tensor(net, "right.weight"));
    /* the file has both layers, so either branch runs alone */
    gd_module *one = gd_caffe_net(
        temp_write_text("branch.prototxt",
                        "input: 'x' input_shape { dim: 1 dim: 4 }\n" BRANCH("right", "x", "f")),
        .weights = temp_path("siamese_iter_50.caffemodel"));
    CHECK(one && tensors_same_bits(gd_module_tensor(one, "right.weight"),
                                   gd_module_tensor(net, "left.weight")));
}

TEST_MAIN
