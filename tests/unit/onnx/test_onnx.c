/* test_onnx.c - graphs saved as ONNX files and loaded; damaged and malicious files. */
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/damage.h"
#include "fuzz/fuzz_onnx.c"
#include "compare.h"
#include "fault_walk.h"
#include "files.h"
#include "onnx_files.h"
#include "temp.h"
#include "values.h"

/* --- nets ------------------------------------------------------------------------------------- */

typedef struct net {
    gd_graph *graph;
    gd_session *session;
    gd_tensor *x, *y;
} net;

static net make_two_layers(void) {
    net n = {.graph = gd_graph_new()};
    gd_seed(3);
    GD_GRAPH(n.graph);
    n.x = gd_placeholder(gd_dims(GD_ANY, 20), .name = "x");
    gd_tensor *w1 = gd_variable(gd_randn(gd_dims(20, 10)), .name = "w1");
    gd_tensor *w2 = gd_variable(gd_randn(gd_dims(5, 10)), .name = "w2"),
              *b2 = gd_variable(gd_randn(gd_dims(5)), .name = "b2", .trainable = false);
    n.y = gd_named(gd_linear(gd_relu(gd_matmul(n.x, w1)), w2, b2), "y");
    n.session = gd_session_new(n.graph, .level = 0);
    return n;
}

CLEAN_TEST(a_saved_net_is_loaded_with_names_and_weights_and_gives_the_same_bits) {
    GD_SCOPE;
    net n = make_two_layers();
    gd_tensor *value = ramp(gd_dims(7, 20), -1, 0.01);
    gd_tensor *w1 = gd_graph_find(n.graph, "w1");
    gd_session_set(n.session, w1,
                   ramp(gd_dims(20, 10), 0.5, -0.003)); /* differs from the initial value */
    gd_tensor *expected = gd_session_run(n.session, gd_feed(n.x, value), gd_list(n.y)).at[0];
    const char *path = temp_path("net.onnx");
    CHECK_SAYING(gd_onnx_save(path, n.session, gd_list(n.x), gd_list(n.y)) == GD_OK, "%s",
                 gd_error_message());
    gd_graph *loaded = gd_onnx_load(path);
    CHECK_SAYING(loaded != NULL, "%s", gd_error_message());
    CHECK(tensors_same_bits(run_one(loaded, "x", value, "y"), expected));
    CHECK(gd_tensor_shape(gd_graph_find(loaded, "x")).at[0] == GD_ANY &&
          gd_graph_find(loaded, "b2") != NULL);
    CHECK(gd_graph_variables(loaded).count == 2); /* w1 and w2 were trainable */
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

CLEAN_TEST(a_convolutional_net_is_saved_and_loaded) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *classes;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(GD_ANY, 3, 12, 12), .name = "image");
        gd_tensor *h = gd_conv2d(x, gd_variable(gd_randn(gd_dims(8, 3, 3, 3))),
                                 gd_variable(gd_randn(gd_dims(8))), .padding = 1);
        gd_tensor *mean = gd_variable(gd_randn(gd_dims(8)), .trainable = false),
                  *var = gd_variable(gd_rand(gd_dims(8)), .trainable = false);
        h = gd_leaky_relu(gd_batch_norm(h, NULL, gd_variable(gd_randn(gd_dims(8))), mean, var),
                          .slope = 0.2);
        h = gd_max_pool2d(h, .kernel = 2);
        h = gd_avg_pool2d(gd_conv2d(h, gd_variable(gd_randn(gd_dims(6, 4, 3, 3))), NULL,
                                    .groups = 2, .stride = {1, 2}),
                          .kernel = 2, .stride = 1);
        h = gd_dropout(gd_flatten(gd_gelu(h), .start_axis = 1), .training = false);
        h = gd_layer_norm(h, NULL, NULL, .normalized_dims = gd_dims(18));
        y = gd_named(gd_log_softmax(gd_linear(h, gd_variable(gd_randn(gd_dims(10, 18))), NULL)),
                     "scores");
        classes = gd_named(gd_argmax(y, .axis = 1), "classes");
    }
    gd_session *session = gd_session_new(graph, .level = 0);
    gd_tensor *value = ramp(gd_dims(2, 3, 12, 12), -2, 0.004);
    gd_tensors expected = gd_session_run(session, gd_feed(x, value), gd_list(y, classes));
    const char *path = temp_path("conv.onnx");
    CHECK_SAYING(gd_onnx_save(path, session, gd_list(x), gd_list(y, classes)) == GD_OK, "%s",
                 gd_error_message());
    gd_graph *loaded = gd_onnx_load(path);
    CHECK_SAYING(tensors_same_bits(run_one(loaded, "image", value, "scores"), expected.at[0]), "%s",
                 gd_error_message());
    CHECK(tensors_same_bits(run_one(loaded, "image", value, "classes"), expected.at[1]));
    char *text = gd_graph_text(loaded); /* the ops themselves, not their bodies */
    CHECK_SAYING(strstr(text, "= batch_norm(") && strstr(text, "= layer_norm(") &&
                     strstr(text, "= conv2d(") && strstr(text, "= linear("),
                 "%s", text);
    free(text);
}

CLEAN_TEST(outputs_may_be_inputs_variables_duplicates_or_any_output_of_a_node) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *v;
    gd_tensors parts;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(4, 6), .name = "x");
        v = gd_variable(gd_full(gd_dims(2), 4), .name = "v");
        parts = gd_split(x, gd_dims(2, 4), .axis = 1);
        gd_named(parts.at[0], "part");
    }
    gd_session *session = gd_session_new(graph);
    const char *path = temp_path("outputs.onnx");
    CHECK_SAYING(gd_onnx_save(path, session, gd_list(x),
                              gd_list(x, v, parts.at[0], parts.at[0], parts.at[1])) == GD_OK,
                 "%s", gd_error_message());
    gd_graph *loaded = gd_onnx_load(path);
    CHECK_SAYING(loaded != NULL, "%s", gd_error_message());
    gd_tensor *value = ramp(gd_dims(4, 6), 0, 1);
    CHECK(tensors_same_bits(run_one(loaded, "x", value, "x/output"), value));
    CHECK(tensors_same_bits(run_one(loaded, "x", value, "part"), gd_narrow(value, 1, 0, 2)));
    CHECK(tensors_same_bits(run_one(loaded, "x", value, "part/output"), gd_narrow(value, 1, 0, 2)));
    CHECK_SAYING(
        tensors_same_bits(run_one(loaded, "x", value, "part:1"), gd_narrow(value, 1, 2, 4)), "%s",
        gd_error_message());
    CHECK(gd_item(gd_sum(run_one(loaded, "x", value, "v/output"))) == 8);
}

/* Its gradient rules depend on sizes that only a run provides. */
CLEAN_TEST(a_gradient_of_unknown_sizes_is_saved_as_a_gradus_node) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *g;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(GD_ANY, 4), .name = "x");
        gd_tensor *w = gd_variable(gd_full(gd_dims(4, 2), 0.1), .name = "w");
        gd_tensor *loss = gd_sum(gd_square(gd_tanh(gd_matmul(x, w))));
        g = gd_named(gd_gradients(gd_list(loss), gd_list(w)).at[0], "g");
    }
    gd_session *session = gd_session_new(graph);
    const char *path = temp_path("waits.onnx");
    CHECK(gd_onnx_save(path, session, gd_list(x), gd_list(g)) == GD_E_UNSUPPORTED);
    CHECK_SAYING(says("'g' is deferred_gradients, which depends on sizes") &&
                     says("To save it, give the placeholders known sizes"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_onnx_save(path, session, gd_list(x), gd_list(g), .own_ops = true) == GD_OK);
    gd_graph *loaded = gd_onnx_load(path);
    gd_tensor *xs = ramp(gd_dims(3, 4), -1, 0.1);
    CHECK_SAYING(loaded &&
                     tensors_same_bits(run_one(loaded, "x", xs, "g"), run_one(graph, "x", xs, "g")),
                 "%s", gd_error_message());
}

/* A graph that assigns is saved as nodes of the library's own domain. */
CLEAN_TEST(a_training_graph_is_saved_and_continues_training) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *loss, *train;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(8, 4), .name = "x");
        y = gd_placeholder(gd_dims(8, 2), .name = "y");
        gd_tensor *w = gd_variable(gd_full(gd_dims(4, 2), 0.1), .name = "w");
        loss = gd_named(gd_mse_loss(gd_matmul(x, w), y), "loss");
        gd_tensor *g = gd_gradients(gd_list(loss), gd_list(w)).at[0];
        train = gd_named(gd_assign(w, gd_sub(w, gd_mul(g, gd_scalar(0.01)))), "train");
    }
    gd_session *session = gd_session_new(graph, .level = 0);
    const char *path = temp_path("train.onnx");
    CHECK_SAYING(
        gd_onnx_save(path, session, gd_list(x, y), gd_list(loss, train), .own_ops = true) == GD_OK,
        "%s", gd_error_message());
    gd_graph *loaded = gd_onnx_load(path);
    CHECK_SAYING(loaded != NULL, "%s", gd_error_message());
    gd_session *other = gd_session_new(loaded, .level = 0);
    gd_tensor *xs = ramp(gd_dims(8, 4), -1, 0.1), *ys = ramp(gd_dims(8, 2), 0, 0.1);
    double mine = 0, theirs = 0;
    for (int i = 0; i < 3 && loaded; i++) {
        gd_tensor *f = gd_graph_find(loaded, "x"), *g = gd_graph_find(loaded, "y");
        mine = gd_item(gd_session_run(session, gd_feed(x, xs, y, ys), gd_list(loss, train)).at[0]);
        theirs = gd_item(
            gd_session_run(other, gd_feed(f, xs, g, ys),
                           gd_list(gd_graph_find(loaded, "loss"), gd_graph_find(loaded, "train")))
                .at[0]);
    }
    CHECK_SAYING(mine == theirs && mine > 0 && !gd_failed(), "%g and %g: %s", mine, theirs,
                 gd_error_message());
}

CLEAN_TEST(a_loaded_graph_updates_running_statistics) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *mean;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(6, 3), .name = "x");
        mean = gd_variable(gd_full(gd_dims(3), 1), .name = "mean", .trainable = false);
        gd_tensor *var = gd_variable(gd_full(gd_dims(3), 2), .name = "var", .trainable = false);
        y = gd_named(gd_batch_norm(x, NULL, NULL, mean, var, .training = true), "y");
    }
    gd_session *session = gd_session_new(graph, .level = 0);
    const char *path = temp_path("statistics.onnx");
    CHECK_SAYING(gd_onnx_save(path, session, gd_list(x), gd_list(y), .own_ops = true) == GD_OK,
                 "%s", gd_error_message());
    gd_graph *loaded = gd_onnx_load(path);
    CHECK_SAYING(loaded != NULL, "%s", gd_error_message());
    gd_session *other = gd_session_new(loaded, .level = 0);
    gd_tensor *value = ramp(gd_dims(6, 3), -3, 0.5), *before = gd_session_get(session, mean);
    gd_session_run(session, gd_feed(x, value), gd_list(y));
    gd_session_run(other, gd_feed(gd_graph_find(loaded, "x"), value),
                   gd_list(gd_graph_find(loaded, "y")));
    gd_tensor *mine = gd_session_get(session, mean);
    CHECK(!tensors_same_bits(mine, before));
    CHECK_SAYING(tensors_same_bits(mine, gd_session_get(other, gd_graph_find(loaded, "mean"))),
                 "%s", gd_error_message());
}

CLEAN_TEST(saving_consumes_no_random_number) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(graph);
        /* the body of the op depends on the unknown size */
        x = gd_placeholder(gd_dims(GD_ANY, 3), .name = "x");
        y = gd_dropout(x);
    }
    gd_session *session = gd_session_new(graph);
    gd_seed(5);
    gd_tensor *expected = gd_randn(gd_dims(4));
    gd_seed(5);
    CHECK_SAYING(gd_onnx_save(temp_path("noise.onnx"), session, gd_list(x), gd_list(y),
                              .own_ops = true) == GD_OK,
                 "%s", gd_error_message());
    CHECK(tensors_same_bits(gd_randn(gd_dims(4)), expected));
    CHECK(gd_onnx_load(temp_path("noise.onnx")) != NULL);
}

CLEAN_TEST(saving_fails_with_the_missing_or_unsupported_part) {
    GD_SCOPE;
    net n = make_two_layers();
    gd_tensor *value = gd_full(gd_dims(2), 0);
    const char *path = temp_path("never.onnx");
    CHECK(gd_onnx_save(path, n.session, gd_nothing, gd_list(n.y)) == GD_E_ARGUMENT &&
          says("'x' is needed and is not among the inputs"));
    gd_clear_error();
    CHECK(gd_onnx_save(path, n.session, gd_list(n.x), gd_list(value)) == GD_E_ARGUMENT &&
          says("output 0"));
    gd_clear_error();
    CHECK(gd_onnx_save(path, n.session, gd_list(n.x, n.x), gd_list(n.y)) == GD_E_ARGUMENT &&
          says("twice"));
    gd_clear_error();
    CHECK(gd_onnx_save(NULL, n.session, gd_list(n.x), gd_list(n.y)) == GD_E_ARGUMENT &&
          gd_onnx_save(path, NULL, gd_list(n.x), gd_list(n.y)) == GD_E_ARGUMENT);
    gd_clear_error();
    CHECK(gd_onnx_save(temp_path("no/folder.onnx"), n.session, gd_list(n.x), gd_list(n.y)) ==
          GD_E_IO);
    gd_clear_error();
    gd_tensor *sorted;
    {
        GD_GRAPH(n.graph);
        sorted = gd_named(gd_randperm(5), "shuffled");
    }
    CHECK_SAYING(gd_onnx_save(path, n.session, gd_nothing, gd_list(sorted)) == GD_E_UNSUPPORTED &&
                     says("'shuffled' is randperm, which ONNX has no operator for"),
                 "%s", gd_error_message());
    gd_clear_error();
    gd_tensor *rows, *spread, *drawn; /* the reason may be the sizes, or the random numbers */
    {
        GD_GRAPH(n.graph);
        rows = gd_placeholder(gd_dims(GD_ANY, 4), .name = "rows");
        spread = gd_named(gd_var(rows), "spread");
        drawn = gd_named(gd_bernoulli(rows), "drawn");
    }
    CHECK_SAYING(gd_onnx_save(path, n.session, gd_list(rows), gd_list(spread)) ==
                         GD_E_UNSUPPORTED &&
                     says("'spread' is var, which is saved as other operators, and for unknown "
                          "sizes (x is f32[?,4])"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK_SAYING(gd_onnx_save(path, n.session, gd_list(rows), gd_list(drawn)) == GD_E_UNSUPPORTED &&
                     says("'drawn' is bernoulli, which ONNX has no operator for"),
                 "%s", gd_error_message());
    gd_clear_error();
    gd_tensor *key, *noise, *like;
    {
        GD_GRAPH(n.graph);
        key = gd_placeholder(gd_dims(2), .dtype = GD_I64, .name = "key");
        noise = gd_named(gd_randn(gd_dims(3), .key = key), "noise");
        like = gd_named(gd_randn_like(rows, .key = key), "like"); /* not a RandomNormalLike */
    }
    CHECK_SAYING(gd_onnx_save(path, n.session, gd_list(key), gd_list(noise)) == GD_E_UNSUPPORTED &&
                     says("draws random numbers from a key, and ONNX has no operator for that"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK_SAYING(gd_onnx_save(path, n.session, gd_list(rows, key), gd_list(like)) ==
                         GD_E_UNSUPPORTED &&
                     says("'like' is randn_like, which draws random numbers from a key"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(!file_exists(path) && !gd_failed());
}

CLEAN_TEST(random_ops_with_a_key_are_saved_as_gradus_nodes) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *key, *y;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(4, 5), .name = "x");
        key = gd_placeholder(gd_dims(2), .dtype = GD_I64, .name = "key");
        y = gd_named(gd_dropout(x, .key = gd_key_fold(key, gd_scalar_of(3, GD_I64))), "y");
    }
    const char *path = temp_path("keyed.onnx");
    CHECK_SAYING(gd_onnx_save(path, gd_session_new(graph), gd_list(x, key), gd_list(y),
                              .own_ops = true) == GD_OK,
                 "%s", gd_error_message());
    gd_tensor *value = gd_ones(gd_dims(4, 5));
    gd_tensor *k = gd_from_array(gd_dims(2), GD_I64, ((int64_t[]){1, 2}));
    gd_graph *loaded = gd_onnx_load(path);
    CHECK_SAYING(loaded != NULL, "%s", gd_error_message());
    gd_tensors got =
        gd_session_run(gd_session_new(loaded),
                       gd_feed(gd_graph_find(loaded, "x"), value, gd_graph_find(loaded, "key"), k),
                       gd_list(gd_graph_find(loaded, "y")));
    gd_tensor *folded = gd_key_fold(k, gd_scalar_of(3, GD_I64));
    CHECK_SAYING(tensors_same_bits(got.at[0], gd_dropout(value, .key = folded)), "%s",
                 gd_error_message());
}

/* A control edge of GD_AFTER matters only if its node has an effect. */
CLEAN_TEST(control_edges_are_saved_except_those_after_a_write) {
    GD_SCOPE;
    net n = make_two_layers();
    gd_tensor *v, *harmless, *counted, *far, *value = ramp(gd_dims(2, 20), -1, 0.1);
    const char *path = temp_path("after.onnx");
    {
        GD_GRAPH(n.graph);
        v = gd_variable(gd_full(gd_dims(), 0), .name = "count");
        gd_tensor *count = gd_named(gd_assign(v, gd_add(v, gd_full(gd_dims(), 1))), "add_one");
        {
            GD_AFTER(gd_list(n.y));
            harmless = gd_named(gd_relu(n.x), "harmless");
        }
        {
            GD_AFTER(gd_list(count));
            counted = gd_named(gd_relu(n.x), "counted");
        }
        {
            GD_AFTER(gd_list(gd_neg(counted)));
            far = gd_named(gd_exp(n.x), "far");
        }
    }
    CHECK_SAYING(gd_onnx_save(path, n.session, gd_list(n.x), gd_list(harmless)) == GD_OK, "%s",
                 gd_error_message());
    gd_graph *loaded = gd_onnx_load(path);
    CHECK_SAYING(loaded &&
                     tensors_same_bits(run_one(loaded, "x", value, "harmless"), gd_relu(value)),
                 "%s", gd_error_message());
    CHECK_SAYING(gd_onnx_save(path, n.session, gd_list(n.x), gd_list(counted)) ==
                         GD_E_UNSUPPORTED &&
                     says("'counted' runs after 'add_one' (GD_AFTER), which writes a variable"),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK_SAYING(gd_onnx_save(path, n.session, gd_list(n.x), gd_list(far)) == GD_E_UNSUPPORTED &&
                     says("'far' runs after 'add_one' (GD_AFTER)"),
                 "%s", gd_error_message());
    gd_clear_error();
}

/* --- external data ---------------------------------------------------------------------------- */

/* Returns the only file of the folder whose name begins with `start`. */
static const char *find_data_file(const char *start) {
    char pattern[400];
    static char found[400];
    glob_t files;
    snprintf(pattern, sizeof pattern, "%s*", temp_path("%s", start));
    if (glob(pattern, 0, NULL, &files) != 0 || files.gl_pathc != 1) return "";
    snprintf(found, sizeof found, "%s", files.gl_pathv[0]);
    globfree(&files);
    return found;
}

CLEAN_TEST(large_tensors_are_stored_in_an_external_file_beside_the_model) {
    GD_SCOPE;
    net n = make_two_layers();
    gd_tensor *value = ramp(gd_dims(3, 20), -1, 0.01);
    gd_tensor *expected = gd_session_run(n.session, gd_feed(n.x, value), gd_list(n.y)).at[0];
    const char *path = temp_path("external.onnx");
    CHECK_SAYING(gd_onnx_save(path, n.session, gd_list(n.x), gd_list(n.y), .external_above = 100) ==
                     GD_OK,
                 "%s", gd_error_message());
    struct stat info;
    const char *data = find_data_file("external.onnx.data-");
    CHECK(stat(data, &info) == 0 && info.st_size >= 800 + 200); /* w1 and w2, but not b2 */
    gd_graph *loaded = gd_onnx_load(path);
    CHECK_SAYING(tensors_same_bits(run_one(loaded, "x", value, "y"), expected), "%s",
                 gd_error_message());
    if (truncate(data, 500) != 0) abort();
    CHECK(gd_onnx_load(path) == NULL && gd_error_status() == GD_E_FORMAT && says("tensor 'w1'") &&
          says("external.onnx.data"));
    gd_clear_error();
    unlink(data);
    CHECK(gd_onnx_load(path) == NULL && gd_error_status() == GD_E_IO && says("external.onnx.data"));
    gd_clear_error();
    if (symlink("/etc/passwd", data) != 0) abort();
    CHECK_SAYING(gd_onnx_load(path) == NULL && gd_error_status() == GD_E_FORMAT &&
                     says("leads out of the folder"),
                 "%s", gd_error_message());
    gd_clear_error();
}

CLEAN_TEST(external_data_outside_the_folder_fails) {
    static const char *const places[] = {"../secret", "/etc/passwd", "a/../../b", "..", "a/..",
                                         "",          "C:\\\\x"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char text[800];
        snprintf(text, sizeof text,
                 HEAD
                 "graph { initializer { name: 'w' dims: 2 data_type: 1 data_location: EXTERNAL "
                 "external_data { key: 'location' value: '%s' } } node { op_type: 'Relu' input: "
                 "'w' output: 'y' } " OUTPUT("y") "}",
                 places[i]);
        check_load_fails(text, GD_E_FORMAT, "is not in the folder of the file");
    }
    check_load_fails(HEAD
                     "graph { initializer { name: 'w' dims: 2 data_type: 1 data_location: EXTERNAL "
                     "external_data { key: 'location' value: 'x' } "
                     "external_data { key: 'offset' value: '99999999999999999999' } } }",
                     GD_E_FORMAT, "the offset of its data");
}

/* --- invalid files ---------------------------------------------------------------------------- */

CLEAN_TEST(an_invalid_file_fails_with_the_node_and_its_operator) {
    check_load_fails("ir_version: 10", GD_E_FORMAT, "no graph");
    check_load_fails("opset_import { version: 9 } graph { node { op_type: 'Relu' } }",
                     GD_E_UNSUPPORTED, "its opset is 9");
    check_load_fails("graph { node { op_type: 'Relu' } }", GD_E_FORMAT,
                     "it does not say which opset");
    check_load_fails(
        "opset_import { domain: 'ai.other' version: 3 } graph { node { op_type: 'Relu' } }",
        GD_E_FORMAT, "no opset_import with the domain");
    check_load_fails(
        HEAD "graph { " INPUT(
            "x", "dim { dim_value: 3 }") "node { name: 'n' op_type: 'Frobnicate' input: 'x' "
                                         "output: 'y' } " OUTPUT("y") "}",
        GD_E_UNSUPPORTED, "node 0 'n' (Frobnicate): this operator is not supported");
    check_load_fails(
        HEAD "graph { " INPUT(
            "x",
            "") "node { name: 'n' op_type: 'Relu' domain: 'com.example' input: 'x' output: 'y' } }",
        GD_E_UNSUPPORTED, "the domain 'com.example'");
    check_load_fails(
        HEAD "graph { " INPUT(
            "x",
            "") "node { name: 'n' op_type: 'nothing' domain: 'gradus' input: 'x' output: 'y' } }",
        GD_E_UNSUPPORTED, "there is no op 'nothing'");
    check_load_fails(
        HEAD
        "graph { " INPUT("x", "dim { dim_value: 3 }") "node { name: 'a' op_type: 'Add' input: 'x' "
                                                      "input: 'z' output: 'y' } "
                                                      "node { name: 'b' op_type: 'Relu' input: 'y' "
                                                      "output: 'z' } " OUTPUT("z") "}",
        GD_E_FORMAT,
        "node 0 'a' (Add): its input 'z' is an output of 'b', which comes later: the graph has "
        "a cycle");
    check_load_fails(HEAD "graph { " INPUT(
                         "x", "") "node { name: 'a' op_type: 'Relu' input: 'q' output: 'y' } }",
                     GD_E_FORMAT, "its input 'q' is neither an output of a node nor an input");
    check_load_fails(HEAD "graph { " INPUT("x", "dim { dim_value: 3 }") INPUT(
                         "z", "dim { dim_value: 4 }") "node { name: 'a' op_type: 'Add' input: 'x' "
                                                      "input: 'z' output: 'y' } " OUTPUT("y") "}",
                     GD_E_SHAPE, "node 0 'a' (Add): add(a f32[3], b f32[4])");
    check_load_fails(HEAD "graph { " INPUT("x", "") INPUT("x", "") "}", GD_E_FORMAT,
                     "two values named 'x'");
    check_load_fails(HEAD
                     "graph { " INPUT("x", "") "node { op_type: 'Relu' input: 'x' output: 'x' } }",
                     GD_E_FORMAT, "two values named 'x'");
    check_load_fails(HEAD "graph { " INPUT(
                         "x", "dim { dim_value: 4611686018427387904 } dim { dim_value: 4 }") "}",
                     GD_E_OVERFLOW, "input 'x'");
    check_load_fails(HEAD "graph { " INPUT("x", "dim { dim_value: -5 }") "}", GD_E_FORMAT,
                     "its dimension 0 is -5");
    check_load_fails(
        HEAD "graph { initializer { name: 'w' data_type: 1 dims: 4611686018427387904 dims: 4 "
             "raw_data: '' } }",
        GD_E_OVERFLOW, "tensor 'w'");
    check_load_fails(HEAD
                     "graph { initializer { name: 'w' data_type: 1 dims: 3 raw_data: 'abcd' } }",
                     GD_E_FORMAT, "tensor 'w': has 4 bytes of data, and should have 12");
    check_load_fails(HEAD
                     "graph { initializer { name: 'w' data_type: 8 dims: 1 string_data: 'a' } }",
                     GD_E_UNSUPPORTED, "STRING");
    check_load_fails(HEAD "graph { " INPUT("x", "") OUTPUT("y") "}", GD_E_FORMAT,
                     "output 'y': no node computes it");
    check_load_fails(
        HEAD "graph { " INPUT(
            "x", "dim { dim_value: 3 }") "node { op_type: 'Relu' input: 'x' output: 'y' } "
                                         "output { name: 'y' type { tensor_type { elem_type: 7 "
                                         "shape { dim { dim_value: 4 } } } } } }",
        GD_E_SHAPE, "it is f32[3], and the file declares i64[4]");
    check_load_fails(
        HEAD "graph { " INPUT("x", "dim { dim_value: 6 }") INPUT(
            "s", "") "node { name: 'r' op_type: 'Reshape' input: 'x' input: 's' output: 'y' } }",
        GD_E_UNSUPPORTED, "'s' is known only when the graph runs");
    check_load_fails(
        HEAD "graph { " INPUT(
            "x", "dim { dim_value: 6 }") "node { name: 'r' op_type: 'Relu' input: 'x' output: "
                                         "'y' attribute { name: 'odd' i: 1 type: INT } } }",
        GD_E_UNSUPPORTED, "its attribute 'odd'");
    check_load_fails(
        HEAD "graph { " INPUT(
            "x", "dim { dim_value: 6 }") "node { name: 'r' op_type: 'Relu' output: 'y' } }",
        GD_E_FORMAT, "its input for 'x' is missing");
    GD_SCOPE;
    CHECK(gd_onnx_load(temp_path("not there")) == NULL && gd_error_status() == GD_E_IO);
    gd_clear_error();
    CHECK(gd_onnx_load(NULL) == NULL && gd_error_status() == GD_E_ARGUMENT);
    gd_clear_error();
}

/* Models as other programs write them. */
CLEAN_TEST(files_of_other_programs_are_read) {
    GD_SCOPE;
    gd_graph *g =
        gd_onnx_load(write_model(HEAD "graph { " INPUT(
                         "x", "dim { dim_param: 'N' } dim { dim_value: 2 } dim { dim_value: 3 "
                              "}") "initializer { name: 'shape' data_type: 7 dims: 2 "
                                   "int64_data: [0, -1] } "
                                   "initializer { name: 'w' data_type: 1 dims: 6 dims: 2 "
                                   "float_data: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] } "
                                   "node { op_type: 'Constant' output: 'c' attribute { name: "
                                   "'value_float' type: FLOAT f: 0.5 } } "
                                   "node { op_type: 'Reshape' input: 'x' input: 'shape' "
                                   "output: 'flat' } "
                                   "node { op_type: 'Gemm' input: 'flat' input: 'w' input: 'c' "
                                   "output: 'g' attribute { name: 'alpha' type: FLOAT f: 2 } } "
                                   "node { op_type: 'ReduceSum' input: 'g' output: 's' "
                                   "attribute { name: 'axes' type: INTS ints: [1] } "
                                   "attribute { name: 'keepdims' type: INT i: 0 } } "
                                   "node { op_type: 'Clip' input: 's' input: '' input: 'c' "
                                   "output: 'y' } " OUTPUT("y") OUTPUT("s") "}"),
                     .trainable = true);
    CHECK_SAYING(g != NULL, "%s", gd_error_message());
    gd_tensor *value = gd_full(gd_dims(2, 2, 3), 1);
    gd_tensor *s = run_one(g, "x", value, "s"), *y = run_one(g, "x", value, "y");
    CHECK_SAYING(!gd_failed() && ((float *)gd_data(s))[1] == 2 * 78 + 1 &&
                     ((float *)gd_data(y))[0] == 0.5f,
                 "%s", gd_error_message());
    CHECK(gd_graph_variables(g).count == 1); /* w; the shape is a constant, and c is a node */
}

/* --- damage ----------------------------------------------------------------------------------- */

static char *read_net(size_t *bytes) {
    GD_SCOPE;
    net n = make_two_layers();
    gd_tensor *more;
    {
        GD_GRAPH(n.graph);
        gd_tensor *t = gd_transpose(gd_slice(n.y, .axis = 1, .step = 2), 0, 1);
        more = gd_softmax(
            gd_cat(gd_list(gd_expand(gd_sum(t, .axis = 1, .keepdim = true), gd_dims(-1, 4)),
                           gd_full(gd_dims(3, 1), 2)),
                   .axis = 1));
    }
    const char *path = temp_path("original.onnx");
    char *data = NULL;
    if (gd_onnx_save(path, n.session, gd_list(n.x), gd_list(n.y, more)) != GD_OK) abort();
    if (gd_file_read_all(path, &data, bytes) != GD_OK) abort();
    return data;
}

CLEAN_TEST(a_file_truncated_anywhere_fails_or_gives_a_smaller_graph) {
    size_t bytes;
    char *original = read_net(&bytes);
    run_cut(LLVMFuzzerTestOneInput, original, bytes);
    gd_free(original);
}

CLEAN_TEST(damaged_files_never_crash) {
    size_t bytes;
    char *original = read_net(&bytes);
    run_damaged(LLVMFuzzerTestOneInput, original, bytes, 20000);
    gd_free(original);
}

CLEAN_TEST(any_allocation_may_fail) {
    net n;
    GD_SCOPE;
    n = make_two_layers();
    gd_session_run(n.session, gd_feed(n.x, gd_full(gd_dims(1, 20), 1)),
                   gd_list(n.y)); /* initializes the variables */
    const char *path = temp_path("faults.onnx");
    for (fault_walk w = {.what = "saving", .lasting = true}; fault_next(&w);) {
        fault_begin(&w);
        const gd_status status = gd_onnx_save(path, n.session, gd_list(n.x), gd_list(n.y));
        fault_end(&w);
        CHECK_FAULT(&w, status);
    }
    walk_load(path, (fault_walk){.what = path, .lasting = true});
}

/* Ops that are saved by conditional table entries, by expressions and by bodies, for known and
 * unknown sizes. */
static gd_tensor *many_forms(gd_tensor *x) {
    gd_tensor *h = gd_silu(gd_matmul(x, gd_full(gd_dims(6, 6), 0.1)));
    h = gd_softplus(gd_layer_norm(h, gd_ones(gd_dims(6)), NULL));
    h = gd_max_pool1d(gd_unsqueeze(h, 0), .kernel = {2});
    h = gd_transpose(gd_squeeze(h, .axis = 0), 0, 1);
    return gd_add(gd_mse_loss(h, gd_zeros_like(h)), gd_sum(gd_sort(x).values));
}

CLEAN_TEST(a_failed_allocation_while_saving_is_not_reported_as_an_unsupported_op) {
    for (int known = 0; known < 2; known++) {
        GD_SCOPE;
        gd_graph *g = gd_graph_new();
        gd_tensor *x, *y;
        {
            GD_GRAPH(g);
            x = gd_placeholder(gd_dims(known ? 4 : GD_ANY, 6), .name = "x");
            y = gd_named(many_forms(x), "y");
        }
        gd_session *session = gd_session_new(g);
        const char *path = temp_path("one_fault.onnx");
        CHECK_SAYING(gd_onnx_save(path, session, gd_list(x), gd_list(y)) == GD_OK, "%s",
                     gd_error_message());
        for (fault_walk w = {.what = "saving"}; fault_next(&w);) {
            fault_begin(&w);
            const gd_status status = gd_onnx_save(path, session, gd_list(x), gd_list(y));
            fault_end(&w);
            CHECK_FAULT(&w, status);
        }
    }
}

TEST_MAIN
