/* test_onnx_large.c - files of many nodes are loaded, planned, run and saved. */
#include "files.h"
#include "onnx_files.h"
#include "temp.h"

/* --- models ----------------------------------------------------------------------------------- */

static gd_pb *add_node(gd_pb *graph, const char *type, const char *a, const char *b,
                       const char *y) {
    gd_pb *node = gd_pb_put_message(graph, "node");
    gd_pb_put_string(node, "op_type", type);
    if (a) gd_pb_put_string(node, "input", a);
    if (b) gd_pb_put_string(node, "input", b);
    gd_pb_put_string(node, "output", y);
    return node;
}

static void add_list(gd_pb *graph, const char *name, int rank, int64_t first) {
    gd_pb *tensor = gd_pb_put_message(graph, "initializer");
    gd_pb_put_string(tensor, "name", name);
    gd_pb_put_int(tensor, "data_type", 7);
    if (rank) gd_pb_put_int(tensor, "dims", 1);
    gd_pb_put_int(tensor, "int64_data", first);
}

static void add_value(gd_pb *graph, const char *list, const char *name, bool shaped) {
    gd_pb *info = gd_pb_put_message(graph, list), *type;
    gd_pb_put_string(info, "name", name);
    type = gd_pb_put_message(gd_pb_put_message(info, "type"), "tensor_type");
    gd_pb_put_int(type, "elem_type", 1);
    if (!shaped) return;
    gd_pb *shape = gd_pb_put_message(type, "shape");
    gd_pb_put_string(gd_pb_put_message(shape, "dim"), "dim_param", "n");
    gd_pb_put_int(gd_pb_put_message(shape, "dim"), "dim_value", 2);
}

static const char *numbered_name(char *name, const char *what, int i) {
    snprintf(name, 32, "%s%d", what, i);
    return name;
}

/* A chain of nodes; each reads the previous one and one more tensor. */
static void fill_chain(gd_pb *graph, int nodes) {
    char before[32] = "x", next[32], w[32];
    for (int i = 0; i < nodes; i++) {
        gd_pb *tensor = gd_pb_put_message(graph, "initializer");
        gd_pb_put_string(tensor, "name", numbered_name(w, "w", i));
        gd_pb_put_int(tensor, "data_type", 1);
        gd_pb_put_float(tensor, "float_data", 1);
        add_node(graph, "Add", before, w, i == nodes - 1 ? "y" : numbered_name(next, "v", i));
        memcpy(before, next, sizeof before);
    }
    add_value(graph, "output", "y", false);
}

/* Shape, Gather, Unsqueeze, Concat, Reshape, repeated, for an unknown size. */
static void fill_shape_computations(gd_pb *graph, int nodes) {
    char x[32] = "x", y[32], a[32], b[32], c[32], d[32];
    add_list(graph, "zero", 0, 0);
    add_list(graph, "first", 1, 0);
    add_list(graph, "two", 1, 2);
    for (int i = 0; i < nodes / 6; i++) {
        add_node(graph, "Shape", x, NULL, numbered_name(a, "a", i));
        add_node(graph, "Gather", a, "zero", numbered_name(b, "b", i));
        add_node(graph, "Unsqueeze", b, "first", numbered_name(c, "c", i));
        gd_pb *cat = add_node(graph, "Concat", c, "two", numbered_name(d, "d", i));
        gd_pb *axis = gd_pb_put_message(cat, "attribute");
        gd_pb_put_string(axis, "name", "axis");
        gd_pb_put_int(axis, "type", 2);
        gd_pb_put_int(axis, "i", 0);
        add_node(graph, "Reshape", x, d, numbered_name(y, "r", i));
        add_node(graph, "Relu", y, NULL, i == nodes / 6 - 1 ? "y" : numbered_name(x, "v", i));
    }
    add_value(graph, "output", "y", false);
}

/* Constants added to the input, all of them outputs. */
static void fill_outputs(gd_pb *graph, int nodes) {
    char c[32], y[32];
    for (int i = 0; i < nodes / 2; i++) {
        gd_pb *node = add_node(graph, "Constant", NULL, NULL, numbered_name(c, "c", i));
        gd_pb *value = gd_pb_put_message(node, "attribute");
        gd_pb_put_string(value, "name", "value_float");
        gd_pb_put_int(value, "type", 1);
        gd_pb_put_float(value, "f", 1);
        add_node(graph, "Add", "x", c, i == 0 ? "y" : numbered_name(y, "v", i));
        add_value(graph, "output", i == 0 ? "y" : y, false);
    }
}

/* --- loading, running, saving ----------------------------------------------------------------- */

/* Takes a second or two if the time is linear in the number of nodes, hours if it is quadratic. */
#ifdef GD_SANITIZED
enum { NODES = 12000 };
#else
enum { NODES = 60000 };
#endif

static void load_run_save(void (*fill)(gd_pb *, int)) {
    GD_SCOPE;
    gd_pb_doc *doc = gd_pb_new(&gd_onnx_model_schema);
    gd_pb_put_int(gd_pb_root(doc), "ir_version", 10);
    gd_pb_put_int(gd_pb_put_message(gd_pb_root(doc), "opset_import"), "version", 21);
    gd_pb *graph = gd_pb_put_message(gd_pb_root(doc), "graph");
    add_value(graph, "input", "x", true);
    fill(graph, NODES);
    char *data;
    size_t bytes;
    CHECK(gd_pb_print(doc, &data, &bytes) == GD_OK);
    const char *path = temp_path("large.onnx");
    file_write(path, data, bytes);
    gd_free(data);
    gd_pb_free(doc);
    gd_graph *g = gd_onnx_load(path);
    CHECK_SAYING(g != NULL, "%s", gd_error_message());
    if (!g) return;
    gd_session *session = gd_session_new(g);
    gd_tensor *x = gd_graph_find(g, "x"), *y = gd_graph_find(g, "y");
    gd_session_run(session, gd_feed(x, gd_ones(gd_dims(3, 2))), gd_list(y));
    CHECK_SAYING(gd_onnx_save(temp_path("again.onnx"), session, gd_list(x), gd_list(y)) == GD_OK,
                 "%s", gd_error_message());
}

CLEAN_TEST(a_long_chain_is_loaded_run_and_saved) { load_run_save(fill_chain); }
CLEAN_TEST(many_shape_computations_are_loaded_run_and_saved) {
    load_run_save(fill_shape_computations);
}
CLEAN_TEST(many_outputs_are_loaded_run_and_saved) { load_run_save(fill_outputs); }

TEST_MAIN
