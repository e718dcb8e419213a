/* test_tensorboard.c - event files: their bytes, and what TensorBoard's own reader finds in them.
 *
 * The reader is a Python package. The test uses the one of python3 (or of the Python named by
 * GRADUS_PYTHON); otherwise it creates a virtual environment in the build folder, if packages can
 * be installed. */
#include <dirent.h>
#include <float.h>
#include <unistd.h>

#include "clean_test.h"
#include "core/alloc.h"
#include "fake_run.h"
#include "fault_walk.h"
#include "files.h"
#include "format/bytes.h"
#include "format/crc32.h"
#include "format/event_file.h"
#include "format/file.h"
#include "gradus/gradus.h"
#include "temp.h"
#include "train/tensorboard.h"

static const char *folder;

#define CHECK_OK(...)                                              \
    do {                                                           \
        const gd_status status_ = (__VA_ARGS__);                   \
        CHECK_SAYING(status_ == GD_OK, "%s", gd_latest_failure()); \
    } while (0)

/* --- a reader --------------------------------------------------------------------------------- */

enum { MAX_EVENTS = 200 };
typedef struct events {
    gd_pb_doc *at[MAX_EVENTS];
    char *data[8];
    int count, files;
} events;

/* Reads all records of a file; false if a length or a checksum is wrong. */
static bool read_records(events *e, const char *path) {
    char *data;
    size_t bytes;
    if (gd_file_read_all(path, &data, &bytes) != GD_OK) return false;
    e->data[e->files++] = data;
    const uint8_t *at = (const uint8_t *)data, *end = at + bytes;
    while (at < end && e->count < MAX_EVENTS) {
        if (end - at < 16) return false;
        const uint64_t length = gd_get_u64(at);
        if (gd_get_u32(at + 8) != gd_masked_crc32c(at, 8) || length > (uint64_t)(end - at) - 16)
            return false;
        if (gd_get_u32(at + 12 + length) != gd_masked_crc32c(at + 12, length)) return false;
        if (gd_pb_read(&e->at[e->count], &gd_event_schema, path, at + 12, length) != GD_OK)
            return false;
        e->count++;
        at += 16 + length;
    }
    return at == end;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}
static int is_event_file(const struct dirent *e) {
    return strncmp(e->d_name, "events.out.tfevents.", 20) == 0;
}

static bool read_all(events *e, const char *in) {
    struct dirent **list;
    const int count = scandir(in, &list, is_event_file, by_name);
    bool good = count > 0;
    *e = (events){.count = 0};
    for (int i = 0; i < count; i++) {
        char path[700];
        snprintf(path, sizeof path, "%s/%s", in, list[i]->d_name);
        good = good && read_records(e, path);
        free(list[i]);
    }
    if (count >= 0) free(list);
    return good;
}

static void end_events(events *e) {
    for (int i = 0; i < e->count; i++) gd_pb_free(e->at[i]);
    for (int i = 0; i < e->files; i++) gd_free(e->data[i]);
}

static const gd_pb *find_value(const events *e, const char *tag, int64_t step) {
    for (int i = 0; i < e->count; i++) {
        const gd_pb *summary = gd_pb_message(gd_pb_root(e->at[i]), "summary");
        if (gd_pb_int(gd_pb_root(e->at[i]), "step", 0) != step) continue;
        for (size_t k = 0; k < gd_pb_count(summary, "value"); k++) {
            const gd_pb *value = gd_pb_message_at(summary, "value", k);
            if (strcmp(gd_pb_string(value, "tag"), tag) == 0) return value;
        }
    }
    return NULL;
}

static double find_scalar(const events *e, const char *tag, int64_t step) {
    return gd_pb_float(find_value(e, tag, step), "simple_value", NAN);
}

TEST(checksums_use_the_castagnoli_polynomial) {
    CHECK(gd_crc32c(0, "123456789", 9) == 0xE3069283u);
    CHECK(gd_crc32(0, "123456789", 9) == 0xCBF43926u);
    const char zeros[32] = {0};
    CHECK(gd_crc32c(0, zeros, 32) == 0x8A9136AAu);
    CHECK(gd_crc32c(gd_crc32c(0, "1234", 4), "56789", 5) == 0xE3069283u);
}

/* --- a run ------------------------------------------------------------------------------------ */

static gd_module *make_net(void) {
    gd_module *net = gd_nn_sequential(gd_nn_conv2d(1, 2, 3, .padding = 1), gd_nn_relu(),
                                      gd_nn_flatten(), gd_nn_dropout(), gd_nn_linear(32, 3));
    return net;
}

/* A value for each epoch, exact in f32. */
static double loss_of(int epoch) { return 2.0 / (1 << epoch); }

static void run_epochs(fake_run *r, gd_callback *c, int first, int end) {
    for (int epoch = first; epoch < end; epoch++) {
        fake_set(r, "loss", loss_of(epoch));
        fake_set(r, "accuracy", epoch == 1 ? NAN : 0.5);
        CHECK_OK(fake_epoch(r, c, 4, "val_loss", loss_of(epoch) + 1));
    }
}

/* Three epochs of four batches, the last of which is lost; then the run resumes after the
 * second. */
static void run_and_resume(gd_module *net, gd_tensor *x) {
    fake_run r;
    gd_optimizer *o = gd_optim_sgd(gd_module_parameters(net), .lr = 0.125);
    fake_begin(&r, net, o);
    r.inputs = gd_listed(x);
    gd_set_grad(gd_module_tensor(net, "4.bias"), gd_full(gd_dims(3), 0.5));
    gd_callback *c = gd_tensorboard(folder, .every = 3, .histograms = 2);
    CHECK_OK(fake_call(&r, c, GD_ON_FIT_BEGIN));
    run_epochs(&r, c, 0, 2);
    gd_callback *resumed = gd_tensorboard(folder, .every = 3, .histograms = 2);
    CHECK_OK(gd_set_state(resumed, gd_state_of(c)));
    fake_set(&r, "loss", 99);
    for (int i = 0; i < 4; i++) CHECK_OK(fake_batch(&r, c));
    CHECK_OK(fake_epoch_end(&r, c));
    r.event.step = 8, r.event.epoch = 2;
    CHECK_OK(fake_call(&r, resumed, GD_ON_FIT_BEGIN));
    run_epochs(&r, resumed, 2, 4);
    CHECK_OK(fake_call(&r, resumed, GD_ON_FIT_END));
}

CLEAN_TEST(written_events_are_read_back) {
    GD_SCOPE;
    events e;
    folder = temp_new_folder("events");
    gd_module *net = make_net();
    run_and_resume(net, gd_ones(gd_dims(2, 1, 4, 4)));
    CHECK(read_all(&e, folder) && e.files == 2);
    CHECK(strcmp(gd_pb_string(gd_pb_root(e.at[0]), "file_version"), "brain.Event:2") == 0);
    CHECK(find_scalar(&e, "loss/train", 4) == 2 && find_scalar(&e, "loss/validation", 8) == 2);
    CHECK(find_scalar(&e, "lr", 4) == 0.125 && find_scalar(&e, "accuracy/train", 4) == 0.5);
    CHECK(find_scalar(&e, "step/loss", 3) == 2 && find_scalar(&e, "step/loss", 6) == 1);
    CHECK(!find_value(&e, "step/loss", 4) && !find_value(&e, "step/val_loss", 6));
    const gd_pb *weights = gd_pb_message(find_value(&e, "weights/0.weight", 8), "histo");
    CHECK(gd_pb_float(weights, "num", 0) == 18);
    const gd_pb *gradient = gd_pb_message(find_value(&e, "gradients/4.bias", 8), "histo");
    CHECK(gd_pb_float(gradient, "sum", 0) == 1.5 && gd_pb_float(gradient, "min", 0) == 0.5);
    CHECK(!find_value(&e, "weights/0.weight", 4));
    int starts = 0, graphs = 0;
    for (int i = 0; i < e.count; i++) {
        const gd_pb *session = gd_pb_message(gd_pb_root(e.at[i]), "session_log");
        graphs += gd_pb_count(gd_pb_root(e.at[i]), "graph_def") == 1;
        if (!session) continue;
        starts++;
        CHECK(gd_pb_int(session, "status", 0) == 1 &&
              gd_pb_int(gd_pb_root(e.at[i]), "step", 0) == 9);
    }
    CHECK(starts == 1 && graphs == 1);
    end_events(&e);
}

CLEAN_TEST(histograms_count_every_finite_element_once) {
    GD_SCOPE;
    const double x[] = {0,    -0.0,     1,         1,           -3,           1e-13, 1e25,
                        NAN,  INFINITY, -INFINITY, 1e-30,       -1e30,        1e-12, -1e-12,
                        0.25, -0.25,    1e20,      1e-12 * 1.1, -1e-12 * 1.1, 5e-324};
    enum { COUNT = sizeof x / sizeof *x, FINITE = COUNT - 3 };
    gd_pb_doc *doc = gd_event_new(1);
    CHECK_OK(gd_tensorboard_histogram(doc, "x", gd_from_array(gd_dims(2, COUNT / 2), GD_F64, x)));
    CHECK_OK(gd_tensorboard_histogram(doc, "none", gd_full(gd_dims(2), NAN)));
    CHECK_OK(gd_tensorboard_histogram(doc, "empty", gd_zeros(gd_dims(0))));
    CHECK_OK(gd_tensorboard_histogram(doc, "whole", gd_arange(0, 20000, .dtype = GD_I64)));
    const gd_pb *summary = gd_pb_message(gd_pb_root(doc), "summary");
    CHECK(gd_pb_count(summary, "value") == 2);
    const gd_pb *h = gd_pb_message(gd_pb_message_at(summary, "value", 0), "histo");
    const gd_pb_list *limits = gd_pb_get(h, "bucket_limit"), *counts = gd_pb_get(h, "bucket");
    CHECK(gd_pb_float(h, "num", 0) == FINITE && gd_pb_float(h, "max", 0) == 1e25);
    CHECK(limits->count == counts->count && limits->doubles[limits->count - 1] == DBL_MAX);
    double all = 0;
    for (size_t i = 0; i < counts->count; i++) {
        int in = 0;
        for (int k = 0; k < COUNT; k++)
            in += isfinite(x[k]) && (double)x[k] < limits->doubles[i] &&
                  (i == 0 || (double)x[k] >= limits->doubles[i - 1]);
        CHECK(counts->doubles[i] == in);
        all += counts->doubles[i];
    }
    CHECK(all == FINITE);
    const gd_pb *many = gd_pb_message(gd_pb_message_at(summary, "value", 1), "histo");
    CHECK(gd_pb_float(many, "num", 0) == 20000 && gd_pb_float(many, "sum", 0) == 199990000);
    gd_pb_free(doc);
}

/* --- the graph -------------------------------------------------------------------------------- */

static bool has_node(const gd_pb *graph, const char *name, const char *op, const char *inputs) {
    for (size_t i = 0; i < gd_pb_count(graph, "node"); i++) {
        const gd_pb *node = gd_pb_message_at(graph, "node", i);
        char text[500] = "";
        if (strcmp(gd_pb_string(node, "name"), name) != 0) continue;
        for (size_t k = 0; k < gd_pb_count(node, "input"); k++) {
            if (k) strcat(text, ",");
            strcat(text, gd_pb_string_at(node, "input", k));
        }
        if (strcmp(gd_pb_string(node, "op"), op) == 0 && strcmp(text, inputs) == 0) return true;
        fprintf(stderr, "%s is %s(%s)\n", name, gd_pb_string(node, "op"), text);
    }
    return false;
}

static const char *const graph_lines[][3] = {
    {"input", "Placeholder", ""},
    {"0/weight", "Parameter", ""},
    {"0/conv2d", "conv2d", "input,0/weight,0/bias"},
    {"1/relu", "relu", "0/conv2d"},
    {"4/linear", "linear", "3/dropout_train,4/weight,4/bias"},
    {"output", "Identity", "4/linear"},
};
enum { GRAPH_LINES = sizeof graph_lines / sizeof *graph_lines, GRAPH_NODES = 11 };

CLEAN_TEST(a_graph_has_the_ops_of_the_net_under_the_names_of_its_modules) {
    GD_SCOPE;
    gd_module *net = make_net();
    char *data;
    size_t bytes;
    gd_pb_doc *doc;
    CHECK_OK(gd_tensorboard_graph(net, gd_list(gd_ones(gd_dims(2, 1, 4, 4))), &data, &bytes));
    CHECK_OK(gd_pb_read(&doc, &gd_graph_def_schema, "graph", data, bytes));
    const gd_pb *graph = gd_pb_root(doc);
    for (int i = 0; i < GRAPH_LINES; i++)
        CHECK_SAYING(has_node(graph, graph_lines[i][0], graph_lines[i][1], graph_lines[i][2]), "%s",
                     graph_lines[i][0]);
    CHECK_SAYING(gd_pb_count(graph, "node") == GRAPH_NODES, "%zu nodes",
                 gd_pb_count(graph, "node"));
    gd_pb_free(doc);
    gd_free(data);
}

static gd_tensors two_in_forward(gd_tensors in, void *self) {
    (void)self;
    gd_tensors parts = gd_chunk(in.at[0], 2);
    return gd_listed(gd_add(parts.at[1], in.at[1]), gd_mul(parts.at[0], gd_scalar(2)));
}

CLEAN_TEST(a_graph_has_all_inputs_and_outputs) {
    GD_SCOPE;
    gd_module *net = gd_module_new(two_in_forward, 0);
    char *data;
    size_t bytes;
    gd_pb_doc *doc;
    CHECK_OK(gd_tensorboard_graph(net, gd_list(gd_ones(gd_dims(4, 2)), gd_ones(gd_dims(2, 2))),
                                  &data, &bytes));
    CHECK_OK(gd_pb_read(&doc, &gd_graph_def_schema, "graph", data, bytes));
    const gd_pb *graph = gd_pb_root(doc);
    CHECK(has_node(graph, "input", "Placeholder", "") &&
          has_node(graph, "input_1", "Placeholder", ""));
    CHECK(has_node(graph, "output", "Identity", "add") &&
          has_node(graph, "output_1", "Identity", "mul"));
    gd_pb_free(doc);
    gd_free(data);
}

/* Checks that names are unique and that every edge starts at an earlier node. */
static bool is_complete(const gd_pb *graph) {
    for (size_t i = 0; i < gd_pb_count(graph, "node"); i++) {
        const gd_pb *node = gd_pb_message_at(graph, "node", i);
        for (size_t k = 0; k < i; k++)
            if (strcmp(gd_pb_string(gd_pb_message_at(graph, "node", k), "name"),
                       gd_pb_string(node, "name")) == 0)
                return false;
        for (size_t k = 0; k < gd_pb_count(node, "input"); k++) {
            const char *from = gd_pb_string_at(node, "input", k);
            bool found = false;
            for (size_t n = 0; n < i && !found; n++) {
                const char *name = gd_pb_string(gd_pb_message_at(graph, "node", n), "name");
                found = strncmp(name, from, strlen(name)) == 0 &&
                        strspn(from + strlen(name), ":0123456789") == strlen(from + strlen(name));
            }
            if (!found) fprintf(stderr, "%s reads '%s'\n", gd_pb_string(node, "name"), from);
            if (!found) return false;
        }
    }
    return true;
}

CLEAN_TEST(graphs_of_networks_are_complete) {
    GD_SCOPE;
    gd_tensor *image = gd_ones(gd_dims(2, 3, 64, 64)),
              *text = gd_zeros(gd_dims(2, 8), .dtype = GD_I64);
    struct {
        gd_module *net;
        gd_tensor *input;
        size_t least;
        const char *node, *op, *inputs;
    } const nets[] = {
        {gd_zoo_resnet18(), image, 100, "layer1/0/relu", "relu", "layer1/0/bn1/batch_norm"},
        {gd_zoo_gpt(10, .layers = 2, .heads = 2, .width = 8, .context = 8), text, 30, "input",
         "Placeholder", ""},
        {gd_zoo_char_lstm(10), text, 5, "input", "Placeholder", ""},
    };
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        char *data;
        size_t bytes;
        gd_pb_doc *doc = NULL;
        CHECK_OK(gd_tensorboard_graph(nets[i].net, gd_list(nets[i].input), &data, &bytes));
        CHECK_OK(gd_pb_read(&doc, &gd_graph_def_schema, "graph", data, bytes));
        const gd_pb *graph = gd_pb_root(doc);
        CHECK_SAYING(is_complete(graph) && gd_pb_count(graph, "node") >= nets[i].least,
                     "net %zu: %zu nodes", i, gd_pb_count(graph, "node"));
        CHECK(has_node(graph, nets[i].node, nets[i].op, nets[i].inputs));
        gd_pb_free(doc);
        gd_free(data);
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

static gd_tensors read_values_forward(gd_tensors in, void *self) {
    (void)self;
    return gd_listed(gd_item(gd_sum(in.at[0])) > 0 ? in.at[0] : gd_neg(in.at[0]));
}

CLEAN_TEST(a_net_that_reads_values_has_no_graph_and_trains) {
    GD_SCOPE;
    fake_run r;
    events e;
    folder = temp_new_folder("events");
    gd_module *net = gd_module_new(read_values_forward, 0);
    fake_begin(&r, net, NULL);
    r.inputs = gd_listed(gd_ones(gd_dims(3)));
    gd_callback *c = gd_tensorboard(folder);
    CHECK_OK(fake_call(&r, c, GD_ON_FIT_BEGIN));
    CHECK_OK(fake_epoch(&r, c, 2, "loss", 1));
    CHECK(!gd_failed());
    CHECK(read_all(&e, folder) && find_scalar(&e, "loss/train", 2) == 1);
    end_events(&e);
}

/* --- full disk -------------------------------------------------------------------------------- */

CLEAN_TEST(a_full_disk_loses_events_but_does_not_stop_training) {
    GD_SCOPE;
    fake_run r;
    events e;
    folder = temp_new_folder("events");
    fake_begin(&r, make_net(), NULL);
    gd_callback *c = gd_tensorboard(folder);
    CHECK_OK(fake_call(&r, c, GD_ON_FIT_BEGIN));
    CHECK_OK(fake_epoch(&r, c, 1, "loss", 4));
    file_size_limit(100); /* a part of an event fits */
    CHECK_OK(fake_epoch(&r, c, 1, "loss", 3));
    CHECK_SAYING(strstr(r.said, "tensorboard: events are lost, and training continues: "), "%s",
                 r.said);
    file_size_limit(-1);
    CHECK_OK(fake_epoch(&r, c, 1, "loss", 2));
    CHECK(read_all(&e, folder) && find_scalar(&e, "loss/train", 1) == 4 &&
          find_scalar(&e, "loss/train", 3) == 2);
    CHECK(!find_value(&e, "loss/train", 2));
    end_events(&e);
    CHECK(fake_call(&r, gd_tensorboard("/proc/no/such"), GD_ON_FIT_BEGIN) == GD_E_IO);
    CHECK(!gd_tensorboard("") && says("gd_tensorboard: the folder's name is empty"));
    gd_clear_error();
}

/* --- boards ----------------------------------------------------------------------------------- */

/* A loop of three steps. */
static void write_board(const char *in) {
    GD_SCOPE;
    gd_board *board = gd_board_new(in);
    static const uint8_t pixels[] = {0, 255, 128, 7, 9, 11};
    for (int step = 0; step < 3; step++)
        CHECK_OK(gd_board_scalar(board, "loss", step == 1 ? NAN : 0.5 * step, step * 10));
    CHECK_OK(gd_board_image(board, "grey", gd_from_array(gd_dims(2, 3), GD_U8, pixels), 20));
    CHECK_OK(gd_board_image(board, "colour", gd_full(gd_dims(3, 4, 2), 0.25), 20));
    CHECK_OK(gd_board_text(board, "notes/first", "a *text*, \xC3\xA4", 0));
    CHECK_OK(gd_board_histogram(board, "weights", gd_arange(0, 10), 20));
    CHECK_OK(gd_board_histogram(board, "none", gd_full(gd_dims(2), NAN), 20));
}

CLEAN_TEST(a_board_writes_scalars_images_texts_and_histograms) {
    GD_SCOPE;
    events e;
    char path[600];
    snprintf(path, sizeof path, "%s/runs/1", temp_new_folder("board")); /* new folders */
    write_board(path);
    CHECK(read_all(&e, path) && e.files == 1 && e.count == 9);
    CHECK(find_scalar(&e, "loss", 0) == 0 && find_scalar(&e, "loss", 20) == 1);
    CHECK(find_value(&e, "loss", 10) && isnan(find_scalar(&e, "loss", 10)));
    const gd_pb *grey = gd_pb_message(find_value(&e, "grey", 20), "image");
    CHECK(gd_pb_int(grey, "height", 0) == 2 && gd_pb_int(grey, "width", 0) == 3 &&
          gd_pb_int(grey, "colorspace", 0) == 1);
    const gd_pb *colour = gd_pb_message(find_value(&e, "colour", 20), "image");
    CHECK(gd_pb_int(colour, "colorspace", 0) == 3 && gd_pb_int(colour, "height", 0) == 4);
    const gd_pb *note = find_value(&e, "notes/first", 0), *text = gd_pb_message(note, "tensor");
    CHECK(strcmp(gd_pb_string_at(text, "string_val", 0), "a *text*, \xC3\xA4") == 0);
    CHECK(gd_pb_int(text, "dtype", 0) == 7);
    CHECK(strcmp(gd_pb_string(gd_pb_message(gd_pb_message(note, "metadata"), "plugin_data"),
                              "plugin_name"),
                 "text") == 0);
    CHECK(gd_pb_float(gd_pb_message(find_value(&e, "weights", 20), "histo"), "sum", 0) == 45);
    CHECK(!find_value(&e, "none", 20));
    end_events(&e);
}

CLEAN_TEST(messages_of_boards_name_the_function_and_the_tag) {
    GD_SCOPE;
    gd_board *board = gd_board_new(temp_new_folder("board"));
#define CHECK_FAILS(call, part)                             \
    do {                                                    \
        CHECK(!(call));                                     \
        CHECK_SAYING(says(part), "%s", gd_error_message()); \
        gd_clear_error();                                   \
    } while (0)
    CHECK_FAILS(gd_board_new(NULL), "gd_board_new: the folder's name is NULL");
    CHECK_FAILS(gd_board_new("/proc/no/such"), "gd_board_new: ");
    CHECK_FAILS(gd_board_scalar(NULL, "loss", 1, 0) == GD_OK, "gd_board_scalar: the board is NULL");
    CHECK_FAILS(gd_board_scalar(board, NULL, 1, 0) == GD_OK, "the tag is NULL");
    CHECK_FAILS(gd_board_text(board, "notes", NULL, 0) == GD_OK, "the text is NULL");
    CHECK_FAILS(gd_board_image(board, "faces", gd_ones(gd_dims(2, 3, 4, 4)), 0) == GD_OK,
                "faces: an image is (H,W) or (C,H,W) with 1 to 4 channels, not f32[2,3,4,4]");
    CHECK_FAILS(gd_board_histogram(board, "w", NULL, 0) == GD_OK, "w: the tensor is NULL");
    gd_matmul(gd_ones(gd_dims(2)),
              gd_ones(gd_dims(3))); /* results after a failure are not logged */
    CHECK(gd_board_scalar(board, "loss", 1, 0) == gd_error_status() && gd_failed());
    gd_clear_error();
}

TEST(a_board_without_memory_fails_and_its_file_stays_readable) {
    const char *in = temp_new_folder("board");
    for (fault_walk w = {.what = "writing a board"}; fault_next(&w);) {
        GD_SCOPE;
        gd_tensor *images = gd_full(gd_dims(3, 1, 4, 4), 0.5);
        fault_begin(&w);
        gd_board *board = gd_board_new(in);
        gd_board_scalar(board, "loss", 1, 0);
        gd_board_text(board, "notes", "words", 0);
        gd_board_image(board, "samples", gd_make_grid(images, .normalize = true), 0);
        gd_board_histogram(board, "weights", images, 0);
        fault_end(&w);
        CHECK_FAULT(&w, gd_error_status());
    }
    events e;
    bool readable = true;
    struct dirent **list;
    const int count = scandir(in, &list, is_event_file, by_name);
    for (int i = 0; i < count; i++) {
        char path[700];
        snprintf(path, sizeof path, "%s/%s", in, list[i]->d_name);
        e = (events){.count = 0};
        readable = readable && read_records(&e, path);
        end_events(&e);
        free(list[i]);
    }
    CHECK(count > 10 && readable);
    if (count >= 0) free(list);
}

/* --- TensorBoard itself ----------------------------------------------------------------------- */

static bool has_package(const char *python) {
    char command[700];
    snprintf(command, sizeof command, "%s -c 'import tensorboard' >/dev/null 2>&1", python);
    return system(command) == 0;
}

/* Returns a Python that has TensorBoard, or NULL. */
static const char *find_python(void) {
    static char own[500];
    char command[1500];
    const char *name = getenv("GRADUS_PYTHON") ? getenv("GRADUS_PYTHON") : "python3";
    if (has_package(name)) return name;
    snprintf(own, sizeof own, "'%s/bin/python'", GRADUS_VENV);
    if (has_package(own)) return own;
    if (file_exists(GRADUS_VENV)) return NULL; /* an earlier attempt failed */
    snprintf(command, sizeof command,
             "{ python3 -m venv '%s' && %s -m pip install -q --retries 0 --timeout 5 tensorboard; "
             "} >/dev/null 2>&1",
             GRADUS_VENV, own);
    return system(command) == 0 && has_package(own) ? own : NULL;
}

static void expect_histogram(FILE *out, const char *tag, int step, gd_tensor *t) {
    GD_SCOPE;
    t = gd_cast(t, GD_F64);
    fprintf(out, "histogram %s %d %.17g %.17g %lld %.17g %.17g\n", tag, step, gd_item(gd_min(t)),
            gd_item(gd_max(t)), (long long)gd_tensor_numel(t), gd_item(gd_sum(t)),
            gd_item(gd_sum(gd_square(t))));
}

CLEAN_TEST(tensorboard_reads_our_files) {
    GD_SCOPE;
    const char *name = find_python();
    if (!name) SKIP("no Python with tensorboard, and pip installs none (in " GRADUS_VENV ")");
    folder = temp_new_folder("events");
    gd_module *net = make_net();
    run_and_resume(net, gd_ones(gd_dims(2, 1, 4, 4)));
    const char *expected = temp_path("expected.txt");
    char command[1500];
    FILE *out = fopen(expected, "w");
    CHECK(out != NULL);
    if (!out) return;
    /* without epoch 99, which was purged */
    fputs("scalar loss/train 4 2 8 1 12 0.5 16 0.25\n", out);
    fputs("scalar loss/validation 4 3 8 2 12 1.5 16 1.25\n", out);
    fputs("scalar accuracy/train 4 0.5 8 nan 12 0.5 16 0.5\nscalar lr 4 0.125 8 0.125 12 0.125 16 "
          "0.125\n",
          out);
    fputs("scalar step/loss 3 2 6 1 9 0.5 12 0.5 15 0.25\n", out);
    expect_histogram(out, "weights/0.weight", 8, gd_module_tensor(net, "0.weight"));
    expect_histogram(out, "weights/4.bias", 16, gd_module_tensor(net, "4.bias"));
    expect_histogram(out, "gradients/4.bias", 16, gd_module_grad(net, "4.bias"));
    for (int i = 0; i < GRAPH_LINES; i++)
        fprintf(out, "node %s %s %s\n", graph_lines[i][0], graph_lines[i][1], graph_lines[i][2]);
    fprintf(out, "nodes %d\n", GRAPH_NODES);
    write_board(folder);
    fputs("scalar loss 0 0 10 nan 20 1\nimage grey 20 3 2\nimage colour 20 2 4\n", out);
    fputs("text notes/first 0 a *text*, \xC3\xA4\n", out);
    fclose(out);
    snprintf(command, sizeof command, "%s '%s/unit/train/tensorboard_python.py' '%s' '%s'", name,
             GRADUS_TESTS, folder, expected);
    CHECK(system(command) == 0);
}

TEST_MAIN
