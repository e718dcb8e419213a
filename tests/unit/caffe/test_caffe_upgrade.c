/* test_caffe_upgrade.c - files of older versions are read with today's fields, as Caffe reads them. */
#include <unistd.h>
#include <sys/stat.h>

#include "caffe/blob.h"
#include "caffe/read.h"
#include "core/alloc.h"
#include "core/error.h"
#include "fault_walk.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "test.h"

static char notices[2000];

static void keep_notice(gd_log_level level, const char *message, void *user) {
    (void)user;
    const size_t length = strlen(notices);
    snprintf(notices + length, sizeof notices - length, "%d %s\n", (int)level, message);
}

/* Reads the text, upgrades it and checks the text of the result. */
static void check_upgrade(const gd_pb_schema *schema, const char *old, const char *today) {
    gd_pb_doc *doc;
    char *text;
    size_t bytes;
    notices[0] = '\0';
    gd_set_log(keep_notice, NULL);
    CHECK_SAYING(gd_pb_read_text(&doc, schema, "old.prototxt", old, strlen(old)) == GD_OK, "%s",
                 gd_latest_failure());
    if (!doc) return;
    gd_pb *root = gd_pb_root(doc);
    CHECK_SAYING((schema == &gd_caffe_net_schema
                      ? gd_caffe_upgrade_net(root, "old.prototxt")
                      : gd_caffe_upgrade_solver(root, "old.prototxt")) == GD_OK,
                 "%s", gd_latest_failure());
    CHECK(gd_pb_print_text(doc, &text, &bytes) == GD_OK);
    CHECK_SAYING(strcmp(text, today) == 0, "\n%s", text);
    gd_free(text);
    gd_pb_free(doc);
    gd_set_log(NULL, NULL);
}

/* --- layers of version 1 ---------------------------------------------------------------------- */

TEST(a_layer_of_version_1_becomes_one_of_today) {
    check_upgrade(
        &gd_caffe_net_schema,
        "name: 'old'\ninput: 'x'\ninput_dim: 1\ninput_dim: 3\ninput_dim: 8\ninput_dim: 8\n"
        "layers { name: 'conv' type: CONVOLUTION bottom: 'x' top: 'y'\n"
        "  convolution_param { num_output: 2 kernel_size: 3 }\n"
        "  blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0.5\n"
        "  param: 'shared' blob_share_mode: PERMISSIVE\n"
        "  include { phase: TRAIN } exclude { stage: 'deploy' } }\n"
        "layers { name: 'loss' type: SOFTMAX_LOSS bottom: 'y' bottom: 'z' top: 'loss'\n"
        "  loss_weight: 0.5 loss_param { ignore_label: 3 } }",
        "name: \"old\"\n"
        "input: \"x\"\n"
        "input_dim: 1\n"
        "input_dim: 3\n"
        "input_dim: 8\n"
        "input_dim: 8\n"
        "layer {\n"
        "  name: \"conv\"\n"
        "  type: \"Convolution\"\n"
        "  bottom: \"x\"\n"
        "  top: \"y\"\n"
        "  param {\n"
        "    name: \"shared\"\n"
        "    share_mode: PERMISSIVE\n"
        "    lr_mult: 1\n"
        "    decay_mult: 1\n"
        "  }\n"
        "  param {\n"
        "    lr_mult: 2\n"
        "    decay_mult: 0.5\n"
        "  }\n"
        "  include {\n"
        "    phase: TRAIN\n"
        "  }\n"
        "  exclude {\n"
        "    stage: \"deploy\"\n"
        "  }\n"
        "  convolution_param {\n"
        "    num_output: 2\n"
        "    kernel_size: 3\n"
        "  }\n"
        "}\n"
        "layer {\n"
        "  name: \"loss\"\n"
        "  type: \"SoftmaxWithLoss\"\n"
        "  bottom: \"y\"\n"
        "  bottom: \"z\"\n"
        "  top: \"loss\"\n"
        "  loss_weight: 0.5\n"
        "  loss_param {\n"
        "    ignore_label: 3\n"
        "  }\n"
        "}\n");
    CHECK_SAYING(strcmp(notices,
                        "1 old.prototxt: written for an older Caffe, and upgraded: layers of "
                        "version 1\n") == 0,
                 "%s", notices);
}

/* Letters and digits, without case. */
static bool is_same_word(const char *a, const char *b) {
    for (;; a++, b++) {
        while (*a == '_') a++;
        while (*b == '_') b++;
        if ((*a | 32) != (*b | 32)) return false;
        if (*a == '\0') return *b == '\0';
    }
}

TEST(every_type_of_version_1_has_a_successor) {
    static const char *const others[][2] = {{"SOFTMAX_LOSS", "SoftmaxWithLoss"}};
    const gd_pb_schema *v1 = &gd_caffe_v1_layer_schema;
    int count = 0;
    for (int f = 0; f < v1->count; f++)
        for (const gd_pb_enum *e = strcmp(v1->fields[f].name, "type") ? NULL : v1->fields[f].values;
             e && e->name; e++) {
            char text[100];
            gd_pb_doc *doc;
            snprintf(text, sizeof text, "layers { type: %s }", e->name);
            CHECK(gd_pb_read_text(&doc, &gd_caffe_net_schema, "a", text, strlen(text)) == GD_OK &&
                  gd_caffe_upgrade_net(gd_pb_root(doc), "a") == GD_OK);
            const char *type = gd_pb_string_of(gd_pb_root(doc), "layer.type");
            const char *expected = strcmp(e->name, others[0][0]) == 0 ? others[0][1]
                                   : e->number == 0                   ? ""
                                                                      : e->name;
            CHECK_SAYING(is_same_word(type, expected), "%s: %s", e->name, type);
            gd_pb_free(doc);
            count++;
        }
    CHECK_SAYING(count == 40, "%d", count);
}

TEST(transforms_in_the_options_of_data_layers_move_to_transform_param) {
    check_upgrade(
        &gd_caffe_net_schema,
        "layers { name: 'a' type: DATA data_param { source: 'db' scale: 0.25 mirror: true\n"
        "  crop_size: 5 mean_file: 'm' } }\n"
        "layers { name: 'b' type: IMAGE_DATA image_data_param { crop_size: 7 }\n"
        "  transform_param { crop_size: 6 scale: 2 } data_param { scale: 3 } }\n"
        "layers { name: 'c' type: WINDOW_DATA window_data_param { mirror: false } }\n",
        "layer {\n"
        "  name: \"a\"\n"
        "  type: \"Data\"\n"
        "  transform_param {\n"
        "    scale: 0.25\n"
        "    mirror: true\n"
        "    crop_size: 5\n"
        "    mean_file: \"m\"\n"
        "  }\n"
        "  data_param {\n"
        "    source: \"db\"\n"
        "  }\n"
        "}\n"
        "layer {\n"
        "  name: \"b\"\n"
        "  type: \"ImageData\"\n"
        "  transform_param {\n"
        "    scale: 2\n"
        "    crop_size: 7\n"
        "  }\n"
        "  data_param {\n"
        "    scale: 3\n"
        "  }\n"
        "  image_data_param {\n"
        "  }\n"
        "}\n"
        "layer {\n"
        "  name: \"c\"\n"
        "  type: \"WindowData\"\n"
        "  transform_param {\n"
        "    mirror: false\n"
        "  }\n"
        "  window_data_param {\n"
        "  }\n"
        "}\n");
    CHECK_SAYING(strcmp(notices,
                        "1 old.prototxt: written for an older Caffe, and upgraded: layers of "
                        "version 1, transforms in the options of data layers\n") == 0,
                 "%s", notices);
}

/* --- layers of today -------------------------------------------------------------------------- */

TEST(a_transform_in_the_options_of_a_data_layer_of_today_has_no_effect_and_a_warning) {
    static const char net[] = "layer {\n"
                              "  name: \"a\"\n"
                              "  type: \"Data\"\n"
                              "  data_param {\n"
                              "    scale: 0.25\n"
                              "  }\n"
                              "}\n";
    check_upgrade(&gd_caffe_net_schema, net, net);
    CHECK_SAYING(strcmp(notices,
                        "2 old.prototxt: layer 'a' (Data): data_param.scale has no effect, as in "
                        "Caffe; write transform_param { scale: ... }\n") == 0,
                 "%s", notices);
}

TEST(the_statistics_of_a_batch_norm_are_not_trained) {
    check_upgrade(&gd_caffe_net_schema,
                  "layer { name: 'a' type: 'BatchNorm' param { lr_mult: 1 name: 'm' } param {}\n"
                  "  param { decay_mult: 2 } }\n"
                  "layer { name: 'b' type: 'BatchNorm' param { lr_mult: 1 } }\n",
                  "layer {\n"
                  "  name: \"a\"\n"
                  "  type: \"BatchNorm\"\n"
                  "  param {\n"
                  "    name: \"m\"\n"
                  "    lr_mult: 0\n"
                  "    decay_mult: 0\n"
                  "  }\n"
                  "  param {\n"
                  "    lr_mult: 0\n"
                  "    decay_mult: 0\n"
                  "  }\n"
                  "  param {\n"
                  "    lr_mult: 0\n"
                  "    decay_mult: 0\n"
                  "  }\n"
                  "}\n"
                  "layer {\n"
                  "  name: \"b\"\n"
                  "  type: \"BatchNorm\"\n"
                  "  param {\n"
                  "    lr_mult: 1\n"
                  "  }\n"
                  "}\n");
    CHECK(strstr(notices, "upgraded: rates of the statistics of batch norms\n"));
}

/* --- solvers ---------------------------------------------------------------------------------- */

TEST(a_solver_and_the_nets_in_it_are_upgraded) {
    check_upgrade(&gd_caffe_solver_schema,
                  "base_lr: 0.5 solver_type: ADADELTA\n"
                  "test_net_param { name: 'a' } test_net_param { layers { type: RELU } }\n"
                  "train_net_param { layers { type: TANH } }\n"
                  "net_param { layers { type: LRN } }",
                  "base_lr: 0.5\n"
                  "train_net_param {\n"
                  "  layer {\n"
                  "    type: \"TanH\"\n"
                  "  }\n"
                  "}\n"
                  "test_net_param {\n"
                  "  name: \"a\"\n"
                  "}\n"
                  "test_net_param {\n"
                  "  layer {\n"
                  "    type: \"ReLU\"\n"
                  "  }\n"
                  "}\n"
                  "net_param {\n"
                  "  layer {\n"
                  "    type: \"LRN\"\n"
                  "  }\n"
                  "}\n"
                  "type: \"AdaDelta\"\n");
    CHECK_SAYING(strcmp(notices,
                        "1 old.prototxt: written for an older Caffe, and upgraded: layers of "
                        "version 1, solver_type\n") == 0,
                 "%s", notices);
    static const char today[] = "net: \"a\"\ntype: \"Adam\"\n";
    check_upgrade(&gd_caffe_solver_schema, today, today);
    CHECK(notices[0] == '\0');
}

/* --- files ------------------------------------------------------------------------------------ */

static const char *write_file(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, bytes, f) == bytes);
    if (f) fclose(f);
    return path;
}

TEST(the_contents_of_a_file_say_whether_it_is_text) {
    static const char *const texts[] = {"name: \"LeNet\"",
                                        "\xEF\xBB\xBFname: \"LeNet\"",
                                        "# LeNet\r\nname: \"LeNet\" # a\x01",
                                        "\n\nname: 3",
                                        "",
                                        "\n\t"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        CHECK(gd_pb_is_text(texts[i], strlen(texts[i])));
    /* a name of 5 and of 9 letters: the length is a control character, or a tab */
    CHECK(!gd_pb_is_text("\n\x05LeNet", 7) && !gd_pb_is_text("\n\tCaffe_Net\xA2\x06\x00", 14));

    static const char binary[] = "\n\x05LeNet\xA2\x06\x08\n\x01x\x12\x03LRN";
    gd_pb_doc *doc;
    const char *path = temp_path("net.prototxt");
    CHECK(gd_caffe_read_net(&doc, write_file(path, binary, sizeof binary - 1)) == GD_OK &&
          !strcmp(gd_pb_string_of(gd_pb_root(doc), "layer.type"), "LRN"));
    gd_pb_free(doc);
    static const char text[] = "layers { type: LRN }";
    CHECK(gd_caffe_read_net(&doc, write_file(path, text, sizeof text - 1)) == GD_OK &&
          !strcmp(gd_pb_string_of(gd_pb_root(doc), "layer.type"), "LRN"));
    gd_pb_free(doc);
    static const char solver[] = "solver_type: ADAM";
    CHECK(gd_caffe_read_solver(&doc, write_file(path, solver, sizeof solver - 1)) == GD_OK &&
          !strcmp(gd_pb_string_of(gd_pb_root(doc), "type"), "Adam"));
    gd_pb_free(doc);
    CHECK(gd_caffe_read_net(&doc, temp_path("none.prototxt")) == GD_E_IO && doc == NULL);
    CHECK(gd_caffe_read_net(&doc, write_file(path, "\xFF\xFEn\0a\0", 6)) == GD_E_FORMAT &&
          doc == NULL);
    CHECK(
        strstr(gd_latest_failure(), "net.prototxt: the text is UTF-16; it must be saved as UTF-8"));
}

TEST(a_solver_in_place_of_a_net_is_called_one) {
    static const char text[] = "net: 'a'", wrong[] = "nett: 'a'";
    gd_pb_doc *doc;
    const char *path = temp_path("wrong.prototxt");
    CHECK(gd_caffe_read_net(&doc, write_file(path, text, sizeof text - 1)) == GD_E_FORMAT && !doc);
    CHECK(strstr(gd_latest_failure(), "wrong.prototxt: this is a solver, and a net is needed"));
    CHECK(gd_caffe_read_solver(&doc, write_file(path, "layer {}", 8)) == GD_E_FORMAT && !doc);
    CHECK(strstr(gd_latest_failure(), "wrong.prototxt: this is a net, and a solver is needed"));
    CHECK(gd_caffe_read_net(&doc, write_file(path, wrong, sizeof wrong - 1)) == GD_E_FORMAT &&
          !doc);
    CHECK(strstr(gd_latest_failure(), "wrong.prototxt:1:1: a NetParameter has no field 'nett'"));
}

TEST(a_file_that_a_file_names_is_found_from_the_folders_around_it) {
    char found[1000], folder[1000], solver[2000], expected[1000];
    snprintf(folder, sizeof folder, "%s", temp_path("around"));
    snprintf(solver, sizeof solver, "%s/examples/mnist/solver.prototxt", folder);
    CHECK(mkdir(folder, 0777) == 0);
    for (char *slash = solver + strlen(folder) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        CHECK(mkdir(solver, 0777) == 0);
    }
    write_file(solver, "", 0);
    CHECK(realpath(folder, expected) != NULL);
    strcat(expected, "/examples/mnist/solver.prototxt");
    static const char *const names[] = {"examples/mnist/solver.prototxt", "mnist/solver.prototxt",
                                        "solver.prototxt"};
    for (int i = 0; i < 3; i++) {
        CHECK(gd_caffe_find_file(names[i], solver, found, sizeof found) == GD_OK);
        CHECK_SAYING(strcmp(found, expected) == 0, "%s", found);
    }
    /* the working directory comes first; an absolute path stands for itself */
    CHECK(gd_caffe_find_file(solver, solver, found, sizeof found) == GD_OK &&
          strcmp(found, solver) == 0);
    CHECK(chdir(folder) == 0);
    CHECK(gd_caffe_find_file(names[0], names[0], found, sizeof found) == GD_OK &&
          strcmp(found, names[0]) == 0);
    CHECK(gd_caffe_find_file("mnist/solver.prototxt", names[0], found, sizeof found) == GD_OK &&
          strcmp(found, expected) == 0);
    CHECK(gd_caffe_find_file(names[0], NULL, found, sizeof found) == GD_OK);

    char message[3000];
    CHECK(gd_caffe_find_file("no.lmdb", solver, found, sizeof found) == GD_E_IO);
    *strrchr(expected, '/') = '\0';
    snprintf(message, sizeof message, "there is no 'no.lmdb' in the working directory, %s, ",
             expected);
    CHECK_SAYING(strncmp(gd_latest_failure(), message, strlen(message)) == 0 &&
                     strstr(gd_latest_failure(), " or /"),
                 "%s", gd_latest_failure());
    CHECK(gd_caffe_find_file("no.lmdb", NULL, found, sizeof found) == GD_E_IO);
    CHECK(!strcmp(gd_latest_failure(), "there is no 'no.lmdb' in the working directory"));
    CHECK(gd_caffe_find_file("/no.lmdb", solver, found, sizeof found) == GD_E_IO);
    CHECK(!strcmp(gd_latest_failure(), "there is no '/no.lmdb'"));
    CHECK(gd_caffe_find_file("", solver, found, sizeof found) == GD_E_ARGUMENT);
    CHECK(gd_caffe_find_file(names[0], solver, found, 20) == GD_E_ARGUMENT);
}

/* --- without memory --------------------------------------------------------------------------- */

/* Layers that need more than one piece of memory, with weights. */
static void write_layers(const char *path) {
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < 60; i++)
        fprintf(f,
                "layers { name: 'layer %d' type: IMAGE_DATA image_data_param { scale: 2 }\n"
                "  param: 'a' blobs_lr: 1 blobs { shape { dim: 2 dim: 3 } data: [1, 2, 3, 4, 5, 6] "
                "} }\n",
                i);
    if (f) fclose(f);
}

static gd_status put_layers(gd_pb_doc *from, gd_pb *to) {
    const gd_pb_list *layers = gd_pb_get(gd_pb_root(from), "layer");
    for (size_t i = 0; i < layers->count; i++) {
        GD_SCOPE;
        gd_tensor *t;
        GD_TRY(gd_caffe_blob_tensor(gd_pb_message(layers->messages[i], "blobs"), &t));
        gd_tensor *turned = gd_transpose(t, 0, 1);
        if (gd_failed()) return gd_failure();
        GD_TRY(
            gd_caffe_put_blob(gd_pb_put_message(gd_pb_put_message(to, "layer"), "blobs"), turned));
    }
    return GD_OK;
}

static gd_status read_and_write(const char *path) {
    gd_pb_doc *doc, *copy = NULL, *again = NULL;
    char *data = NULL;
    size_t bytes = 0;
    GD_TRY(gd_caffe_read_net(&doc, path));
    copy = gd_pb_new(&gd_caffe_net_schema);
    gd_status status = copy ? put_layers(doc, gd_pb_root(copy)) : GD_E_MEMORY;
    if (status == GD_OK) status = gd_pb_print(copy, &data, &bytes);
    if (status == GD_OK) status = gd_pb_read(&again, &gd_caffe_net_schema, "net", data, bytes);
    gd_pb_free(again);
    gd_pb_free(copy);
    gd_pb_free(doc);
    gd_free(data);
    return status;
}

TEST(without_memory_reading_and_upgrading_fail_as_such) {
    const char *path = temp_path("many.prototxt");
    write_layers(path);
    fault_walk w = {.what = "a net of Caffe"};
    while (fault_next(&w)) {
        fault_begin(&w);
        const gd_status status = read_and_write(path);
        fault_end(&w);
        CHECK_FAULT(&w, status);
        CHECK_ROUND(&w, (status == GD_OK) == !w.fired);
    }
    CHECK_SAYING(w.failures > 50, "%lld", (long long)w.failures);
}

TEST_MAIN
