/* test_onnx_control.c - branches and loops in ONNX files: saved and loaded by this library, and
 * loaded from files of other programs; files with invalid branches and loops.
 *
 * GRADUS_ONNX_DIR=FOLDER keeps the saved models there, with their inputs and outputs, for
 * tests/golden/onnx_check.py.
 */
#include "fuzz/damage.h"
#include "fuzz/fuzz_onnx.c"
#include "compare.h"
#include "control_models.h"
#include "fault_walk.h"
#include "onnx_files.h"
#include "temp.h"
#include "values.h"

/* --- models saved by this library ------------------------------------------------------------- */

typedef struct net {
    gd_graph *graph;
    gd_tensor *in[INPUTS], *y;
} net;

/* All inputs are placeholders, with an unknown first axis of x if `any`; or w is a variable. */
static net build_net(const model *m, gd_tensor **values, bool any, bool variable) {
    static const char *const names[] = {"y0", "x", "w"};
    net n = {.graph = gd_graph_new()};
    GD_GRAPH(n.graph);
    for (int i = 0; i < INPUTS; i++) {
        gd_shape dims = gd_tensor_shape(values[i]);
        if (any && i == 1) dims.at[0] = GD_ANY;
        n.in[i] = variable && i == 2
                      ? gd_variable(values[i], .name = names[i])
                      : gd_placeholder(dims, .name = names[i], .dtype = gd_tensor_dtype(values[i]));
    }
    n.y = gd_named(m->fn(gd_list(n.in[0], n.in[1], n.in[2]), m->user), "y");
    return n;
}

static gd_tensor *run_graph(gd_graph *graph, gd_tensor **values, bool variable, int level) {
    gd_session *session = gd_session_new(graph, .level = level);
    gd_tensor *feeds[] = {gd_graph_find(graph, "y0"), values[0],
                          gd_graph_find(graph, "x"),  values[1],
                          gd_graph_find(graph, "w"),  values[2]};
    return gd_session_run(session, ((gd_tensors){feeds, variable ? 4 : 6}),
                          gd_list(gd_graph_find(graph, "y")))
        .at[0];
}

static void keep_numbers(const char *name, gd_tensor **values, bool variable, gd_tensor *y) {
    char npz[600];
    const char *names[] = {"i0", "i1", variable ? "o0" : "i2", "o0"};
    gd_tensor *list[] = {values[0], values[1], variable ? y : values[2], y};
    if (!getenv("GRADUS_ONNX_DIR")) return;
    snprintf(npz, sizeof npz, "%s.npz", name);
    gd_save_npz(npz, names, ((gd_tensors){list, variable ? 3 : 4}));
}

static void check_save_and_load(const model *m, gd_dtype dtype, bool any, bool variable) {
    GD_SCOPE;
    gd_tensor *values[INPUTS];
    char name[500], path[520];
    const char *into = getenv("GRADUS_ONNX_DIR");
    gd_clear_error();
    control_inputs(dtype, values);
    net n = build_net(m, values, any, variable);
    gd_tensor *expected = run_graph(n.graph, values, variable, 0);
    snprintf(name, sizeof name, "%s/%.60s %s%s%s", into ? into : temp_folder(), m->name,
             gd_dtype_name(dtype), any ? " any" : "", variable ? " variable" : "");
    snprintf(path, sizeof path, "%s.onnx", name);
    gd_session *session = gd_session_new(n.graph);
    CHECK_SAYING(
        gd_onnx_save(path, session, ((gd_tensors){n.in, variable ? 2 : 3}), gd_list(n.y)) == GD_OK,
        "%s: %s", m->name, gd_error_message());
    keep_numbers(name, values, variable, expected);
    gd_graph *loaded = gd_onnx_load(path);
    CHECK_SAYING(loaded != NULL, "%s: %s", name, gd_error_message());
    if (!loaded) return;
    CHECK_SAYING(tensors_same_bits(run_graph(loaded, values, variable, 0), expected), "%s: %s",
                 name, gd_error_message());
    gd_tensor *off = gd_max(gd_abs(gd_sub(run_graph(loaded, values, variable, 2), expected)));
    CHECK_SAYING(gd_item(off) <= (dtype == GD_F32 ? 1e-4 : 1e-12) && !gd_failed(),
                 "%s: off by %g: %s", name, gd_item(off), gd_error_message());
    /* a loaded graph can be saved again */
    session = gd_session_new(loaded);
    gd_tensor *in[] = {gd_graph_find(loaded, "y0"), gd_graph_find(loaded, "x"),
                       gd_graph_find(loaded, "w")};
    const char *again = temp_path("again.onnx");
    CHECK_SAYING(gd_onnx_save(again, session, ((gd_tensors){in, variable ? 2 : 3}),
                              gd_list(gd_graph_find(loaded, "y"))) == GD_OK,
                 "%s: %s", name, gd_error_message());
    gd_graph *twice = gd_onnx_load(again);
    CHECK_SAYING(twice && tensors_same_bits(run_graph(twice, values, variable, 0), expected),
                 "%s: %s", name, gd_error_message());
}

CLEAN_TEST(saved_and_loaded_branches_and_loops_give_the_same_bits) {
    for (int i = 0; i < control_model_count; i++)
        for (int mode = 0; mode < 3; mode++) {
            check_save_and_load(&control_models[i], GD_F32, mode == 1, mode == 2);
            check_save_and_load(&control_models[i], GD_F64, mode == 1, mode == 2);
        }
}

/* --- files of other programs ------------------------------------------------------------------ */

#define SCALAR(list, name, type) \
    list " { name: '" name "' type { tensor_type { elem_type: " type " shape { } } } } "
#define ANY_OF(list, name, type) \
    list " { name: '" name "' type { tensor_type { elem_type: " type " } } } "
#define NODE(type, in, out) "node { op_type: '" type "' " in " output: '" out "' } "
#define CONSTANT(name, type, field)                                                             \
    "node { op_type: 'Constant' output: '" name "' attribute { name: 'value' type: TENSOR t { " \
    "data_type: " type " " field " } } } "
#define GRAPH(name, content) \
    "attribute { name: '" name "' type: GRAPH g { name: 'g' " content " } } "
#define INTS(name, numbers) "attribute { name: '" name "' type: INTS ints: " numbers " } "

static gd_tensor *run_with_condition(gd_graph *graph, gd_tensor *x, gd_tensor *p,
                                     const char *output) {
    if (!graph) return gd_full(gd_dims(), NAN);
    gd_session *session = gd_session_new(graph, .level = 0);
    return gd_session_run(session,
                          gd_feed(gd_graph_find(graph, "x"), x, gd_graph_find(graph, "p"), p),
                          gd_list(gd_graph_find(graph, output)))
        .at[0];
}

static bool has_values(gd_tensor *t, int64_t count, const double *expected) {
    if (gd_failed() || gd_tensor_numel(t) != count) return false;
    t = gd_contiguous(gd_cast(t, GD_F64));
    return memcmp(gd_data(t), expected, (size_t)count * sizeof *expected) == 0;
}
#define CHECK_VALUES(t, ...)                                                                      \
    CHECK_SAYING(                                                                                 \
        has_values(t, sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__}), \
        "%s", gd_error_message())

/* y = p ? x * w : -x, where only one branch reads the weight w of the file. */
#define BRANCHES                                                                               \
    GRAPH("then_branch", NODE("Mul", "input: 'x' input: 'w'", "a") ANY_OF("output", "a", "1")) \
    GRAPH("else_branch", NODE("Neg", "input: 'x'", "b") ANY_OF("output", "b", "1"))
#define WEIGHT "initializer { name: 'w' data_type: 1 dims: 2 float_data: [3, 4] } "

CLEAN_TEST(a_loaded_if_follows_its_condition) {
    GD_SCOPE;
    gd_graph *g = gd_onnx_load(
        write_model(HEAD "graph { " INPUT("x", "dim { dim_value: 2 }") SCALAR("input", "p", "9")
                        WEIGHT "node { name: 'n' op_type: 'If' input: 'p' output: 'y' " BRANCHES
                               "} " OUTPUT("y") "}"),
        .trainable = true);
    gd_tensor *x = ramp(gd_dims(2), 1, 1);
    CHECK_VALUES(run_with_condition(g, x, gd_scalar_of(1, GD_BOOL), "y"), 3, 8);
    CHECK_VALUES(run_with_condition(g, x, gd_scalar_of(0, GD_BOOL), "y"), -1, -2);
    CHECK(g && gd_graph_variables(g).count == 1 && gd_graph_find(g, "w") != NULL);
}

CLEAN_TEST(an_if_with_a_constant_condition_keeps_one_branch) {
    GD_SCOPE;
    gd_graph *g = gd_onnx_load(write_model(
        HEAD "graph { " INPUT("x", "dim { dim_value: 2 }") SCALAR("input", "p", "9")
            WEIGHT CONSTANT("one", "7", "int64_data: 1") CONSTANT("two", "7", "int64_data: 2")
                NODE("Less", "input: 'one' input: 'two'",
                     "known") "node { op_type: 'If' input: 'known' output: 'y' " BRANCHES
                              "} " OUTPUT("y") "}"));
    CHECK_SAYING(g != NULL, "%s", gd_error_message());
    char *text = g ? gd_graph_text(g) : NULL;
    CHECK_SAYING(text && !strstr(text, "cond_graph"), "%s", text ? text : "");
    free(text);
    CHECK_VALUES(run_one(g, "x", ramp(gd_dims(2), 1, 1), "y"), 3, 8);
}

/* s_0 = x; s_{t+1} = s_t + t, and z_t = s_t * w, where w is captured and t is the step number. */
#define LOOP_BODY(going)                                                                          \
    GRAPH("body",                                                                                 \
          SCALAR("input", "t", "7") SCALAR("input", "c", "9") ANY_OF(                             \
              "input", "s",                                                                       \
              "1") "node { op_type: 'Cast' input: 't' output: 'tf' attribute { name: 'to' type: " \
                   "INT i: 1 } } " NODE("Add", "input: 's' input: 'tf'", "n")                     \
                       NODE("Mul", "input: 's' input: 'w'", "z") going ANY_OF("output", "d", "9") \
                           ANY_OF("output", "n", "1") ANY_OF("output", "z", "1"))
#define LOOP(inputs, going)                                                                   \
    HEAD "graph { " INPUT("x", "dim { dim_value: 2 }") SCALAR("input", "p", "7")              \
        WEIGHT CONSTANT("three", "7", "int64_data: 3") CONSTANT("five", "1", "float_data: 5") \
            CONSTANT("yes", "9",                                                              \
                     "int32_data: 1") "node { name: 'l' op_type: 'Loop' " inputs              \
                                      " input: 'x' output: 'end' output: 'all' " LOOP_BODY(   \
                                          going) "} " OUTPUT("end") OUTPUT("all") "}"
#define ALWAYS NODE("Identity", "input: 'c'", "d")
/* continues while the sum is below 5 */
#define WHILE_SMALL                                                                                \
    "node { op_type: 'ReduceSum' input: 'n' output: 'sum' attribute { name: 'keepdims' type: INT " \
    "} } " NODE("Less", "input: 'sum' input: 'five'", "d")

CLEAN_TEST(a_loaded_loop_counts_its_steps_and_stacks_results) {
    GD_SCOPE;
    gd_tensor *x = ramp(gd_dims(2), 1, 1), *p = gd_scalar_of(2, GD_I64);
    gd_graph *g = gd_onnx_load(write_model(LOOP("input: 'three' input: ''", ALWAYS)));
    CHECK_VALUES(run_with_condition(g, x, p, "end"), 4, 5);
    CHECK_VALUES(run_with_condition(g, x, p, "all"), 3, 8, 3, 8, 6, 12);
    g = gd_onnx_load(write_model(LOOP("input: 'three' input: 'yes'", WHILE_SMALL)));
    CHECK_VALUES(run_with_condition(g, x, p, "end"), 2, 3); /* 1 2, then 1 2, then 2 3 */
    CHECK_VALUES(run_with_condition(g, x, p, "all"), 3, 8, 3, 8);
    CHECK_VALUES(run_with_condition(g, ramp(gd_dims(2), 9, 1), p, "all"), 27, 40);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* The same loop without stacked results: then the trip count may be data. */
#define LOOP_WITHOUT_RESULTS(inputs, going)                                                       \
    HEAD "graph { " INPUT("x", "dim { dim_value: 2 }") SCALAR("input", "p", "7") WEIGHT CONSTANT( \
        "five", "1",                                                                              \
        "float_data: 5") "node { name: 'l' op_type: 'Loop' " inputs                               \
                         " input: 'x' output: 'end' " GRAPH(                                      \
                             "body",                                                              \
                             SCALAR("input", "t", "7") SCALAR("input", "c", "9")                  \
                                 ANY_OF("input", "s", "1")                                        \
                                     NODE("Add", "input: 's' input: 'w'", "n")                    \
                                         going ANY_OF("output", "d", "9")                         \
                                             ANY_OF("output", "n", "1")) "} " OUTPUT("end") "}"

CLEAN_TEST(the_trip_count_may_be_computed) {
    GD_SCOPE;
    gd_tensor *x = ramp(gd_dims(2), 1, 1);
    gd_graph *g = gd_onnx_load(write_model(LOOP_WITHOUT_RESULTS("input: 'p' input: ''", ALWAYS)));
    CHECK_VALUES(run_with_condition(g, x, gd_scalar_of(3, GD_I64), "end"), 10, 14);
    CHECK_VALUES(run_with_condition(g, x, gd_scalar_of(0, GD_I64), "end"), 1, 2);
    g = gd_onnx_load(write_model(LOOP_WITHOUT_RESULTS("input: '' input: ''", WHILE_SMALL)));
    CHECK_VALUES(run_one(g, "x", x, "end"), 4, 6); /* runs at least once */
    g = gd_onnx_load(write_model(LOOP("input: 'p' input: 'yes'", ALWAYS)));
    CHECK(!g && gd_error_status() == GD_E_UNSUPPORTED && says("'l' (Loop)") &&
          says("one row for each step"));
    gd_clear_error();
}

/* Two sequences, one of them reversed and along its last axis; results are stacked along the last
 * axis. */
CLEAN_TEST(a_loaded_scan_follows_any_axis_in_any_direction) {
    GD_SCOPE;
    gd_graph *g = gd_onnx_load(write_model(
        HEAD "graph { " INPUT("x", "dim { dim_value: 3 } dim { dim_value: 2 }")
            INPUT("p", "dim { dim_value: 2 } dim { dim_value: 3 }") WEIGHT
        "node { name: 's' op_type: 'Scan' input: 'w' input: 'x' input: 'p' output: 'end' output: "
        "'all' output: 'back' attribute { name: 'num_scan_inputs' type: INT i: 2 } " INTS(
            "scan_input_axes", "[0, 1]") INTS("scan_input_directions", "[0, 1]")
            INTS("scan_output_axes", "[1, 0]") INTS("scan_output_directions", "[0, 1]") GRAPH(
                "body",
                ANY_OF("input", "s", "1") ANY_OF("input", "a", "1") ANY_OF("input", "b", "1") NODE(
                    "Sub", "input: 'a' input: 'b'", "d") NODE("Add", "input: 's' input: 'd'", "n")
                    NODE("Identity", "input: 'd'", "e") ANY_OF("output", "n", "1")
                        ANY_OF("output", "d", "1") ANY_OF("output", "e", "1")) "} " OUTPUT("end")
                OUTPUT("all") OUTPUT("back") "}"));
    gd_tensor *x = ramp(gd_dims(3, 2), 0, 10), *p = ramp(gd_dims(2, 3), 0, 1);
    /* (0 10) - (2 5), (20 30) - (1 4), (40 50) - (0 3) */
    CHECK_VALUES(run_with_condition(g, x, p, "end"), 3 - 2 + 19 + 40, 4 + 5 + 26 + 47);
    CHECK_VALUES(run_with_condition(g, x, p, "all"), -2, 19, 40, 5, 26, 47);
    CHECK_VALUES(run_with_condition(g, x, p, "back"), 40, 47, 19, 26, -2, 5);
}

/* --- invalid files ---------------------------------------------------------------------------- */

#define INVALID(node) \
    HEAD "graph { " INPUT("x", "dim { dim_value: 2 }") SCALAR("input", "p", "9") WEIGHT node "}"

CLEAN_TEST(an_invalid_branch_or_loop_fails_with_its_location) {
    check_load_fails(INVALID("node { name: 'n' op_type: 'If' input: 'p' output: 'y' }"),
                     GD_E_FORMAT, "'n' (If): it needs a graph 'then_branch'");
    check_load_fails(INVALID("node { name: 'n' op_type: 'If' output: 'y' " BRANCHES "}"),
                     GD_E_FORMAT, "'n' (If): its condition is missing");
    check_load_fails(
        INVALID("node { name: 'n' op_type: 'If' input: 'p' output: 'y' output: 'z' " BRANCHES "}"),
        GD_E_FORMAT, "it has 2 outputs, and its graph has 1");
    check_load_fails(INVALID("node { name: 'n' op_type: 'If' input: 'p' output: 'y' " GRAPH(
                         "then_branch", ANY_OF("output", "gone", "1"))
                                 GRAPH("else_branch", ANY_OF("output", "x", "1")) "}"),
                     GD_E_FORMAT, "'n' (If): then_branch: no node computes its output 'gone'");
    check_load_fails(
        INVALID("node { name: 'n' op_type: 'If' input: 'p' output: 'y' " GRAPH(
            "then_branch", ANY_OF("output", "x", "1"))
                    GRAPH("else_branch",
                          "node { name: 'in' op_type: 'Neg' input: 'z' output: 'q' } " ANY_OF(
                              "output", "q", "1")) "}"),
        GD_E_FORMAT,
        "'n' (If): else_branch: node 0 'in' (Neg): its input 'z' is neither an output of a node");
    check_load_fails(INVALID("node { name: 'n' op_type: 'If' input: 'p' output: 'y' " GRAPH(
                         "then_branch", ANY_OF("output", "x", "1"))
                                 GRAPH("else_branch", NODE("ReduceSum", "input: 'x'", "q")
                                                          ANY_OF("output", "q", "1")) "}"),
                     GD_E_SHAPE, "both branches must return the same shapes");
    check_load_fails(INVALID("node { name: 'n' op_type: 'If' input: 'p' output: 'y' " GRAPH(
                         "then_branch", ANY_OF("output", "x", "1"))
                                 GRAPH("else_branch", NODE("Neg", "input: 'y'", "q")
                                                          ANY_OF("output", "q", "1")) "}"),
                     GD_E_FORMAT,
                     "its input 'y' is an output of 'n', which comes later: the graph has a cycle");
    check_load_fails(
        INVALID(
            "node { name: 'l' op_type: 'Loop' input: '' input: '' input: 'x' output: 'y' " GRAPH(
                "body", SCALAR("input", "t", "7")) "}"),
        GD_E_FORMAT, "it has 3 inputs, and its body has 1 inputs and 0 outputs");
    check_load_fails(
        INVALID(
            "node { name: 'l' op_type: 'Loop' input: '' input: '' input: 'x' output: 'y' " GRAPH(
                "body",
                SCALAR("input", "t", "7") SCALAR("input", "c", "9") ANY_OF("input", "s", "7")
                    ANY_OF("output", "c", "9") ANY_OF("output", "s", "1")) "}"),
        GD_E_DTYPE, "body: its input 's' must be INT64, and it gets f32");
    check_load_fails(
        INVALID(
            "node { name: 'l' op_type: 'Loop' input: '' input: 'p' input: 'x' output: 'y' " GRAPH(
                "body",
                SCALAR("input", "t", "7") SCALAR("input", "c", "9") ANY_OF("input", "s", "1")
                    NODE("Concat", "input: 's' input: 's' attribute { name: 'axis' type: INT }",
                         "n") ANY_OF("output", "c", "9") ANY_OF("output", "n", "1")) "}"),
        GD_E_SHAPE, "a loop's state keeps its shape");
    check_load_fails(INVALID("node { name: 's' op_type: 'Scan' input: 'x' output: 'y' " GRAPH(
                         "body", ANY_OF("input", "a", "1") ANY_OF("output", "a", "1")) "}"),
                     GD_E_FORMAT, "it has 1 inputs, 0 of them scan inputs");
    check_load_fails(
        INVALID("node { name: 's' op_type: 'Scan' input: 'x' output: 'y' attribute { name: "
                "'num_scan_inputs' "
                "type: INT i: 1 } " INTS("scan_input_axes", "[5]")
                    GRAPH("body", ANY_OF("input", "a", "1") ANY_OF("output", "a", "1")) "}"),
        GD_E_INDEX, "'s' (Scan)");
    check_load_fails(
        INVALID("node { name: 's' op_type: 'Scan' input: 'x' output: 'y' attribute { name: "
                "'num_scan_inputs' "
                "type: INT i: 1 } " INTS("scan_input_directions", "[0, 1]")
                    GRAPH("body", ANY_OF("input", "a", "1") ANY_OF("output", "a", "1")) "}"),
        GD_E_FORMAT, "'scan_input_directions' has 2 numbers, and should have 1");
}

/* `levels` nested If nodes. */
static char *nested_text(int levels) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fputs(HEAD "graph { " INPUT("x", "dim { dim_value: 2 }") SCALAR("input", "p", "9"), out);
    for (int i = 0; i < levels; i++)
        fprintf(out,
                "node { name: 'n%d' op_type: 'If' input: 'p' output: 'y%d' attribute { name: "
                "'then_branch' g { ",
                i, i);
    fputs(ANY_OF("output", "x", "1"), out);
    for (int i = levels; i-- > 0;) {
        fputs("} } " GRAPH("else_branch", ANY_OF("output", "x", "1")) "} ", out);
        fprintf(out, ANY_OF("output", "y%d", "1"), i);
    }
    fputs("}", out);
    fclose(out);
    return text;
}

CLEAN_TEST(nesting_of_graphs_has_a_limit) {
    GD_SCOPE;
    char *fine = nested_text(20), *deep = nested_text(21), *parser = nested_text(40);
    gd_graph *g = gd_onnx_load(write_model(fine));
    CHECK_VALUES(run_with_condition(g, ramp(gd_dims(2), 1, 1), gd_scalar_of(1, GD_BOOL), "y0"), 1,
                 2);
    check_load_fails(deep, GD_E_UNSUPPORTED, "subgraphs are nested more than 20 levels deep");
    gd_pb_doc *doc;
    CHECK(gd_pb_read_text(&doc, &gd_onnx_model_schema, "model", parser, strlen(parser)) ==
          GD_E_FORMAT);
    gd_clear_error();
    free(fine);
    free(deep);
    free(parser);
}

CLEAN_TEST(a_loop_with_a_huge_trip_count_is_loaded_and_fails_before_its_first_step) {
    GD_SCOPE;
    gd_graph *g =
        gd_onnx_load(write_model(HEAD "graph { " INPUT("x", "dim { dim_value: 2 }") CONSTANT(
            "m", "7",
            "int64_data: 9223372036854775807") "node { name: 'l' op_type: 'Loop' input: 'm' "
                                               "input: '' input: 'x' output: 'end' output: "
                                               "'all' " GRAPH(
                                                   "body",
                                                   SCALAR("input", "t", "7") SCALAR(
                                                       "input", "c", "9") ANY_OF("input", "s", "1")
                                                       NODE("Identi"
                                                            "ty",
                                                            "input:"
                                                            " 'c'",
                                                            "d") NODE("Neg", "input: 's'", "n")
                                                           ANY_OF("output", "d",
                                                                  "9") ANY_OF("output", "n", "1")
                                                               ANY_OF("output", "n",
                                                                      "1")) "} " OUTPUT("en"
                                                                                        "d") "}"));
    CHECK(!g && gd_error_status() == GD_E_UNSUPPORTED && says("one row for each step"));
    gd_clear_error();
}

/* --- damage ----------------------------------------------------------------------------------- */

/* A scan in a branch in a loop. */
static char *read_nested(size_t *bytes) {
    GD_SCOPE;
    gd_tensor *values[INPUTS];
    char *data = NULL;
    control_inputs(GD_F32, values);
    net n = build_net(&control_models[6], values, true, true);
    gd_session *session = gd_session_new(n.graph);
    const char *path = temp_path("original.onnx");
    if (gd_onnx_save(path, session, ((gd_tensors){n.in, 2}), gd_list(n.y)) != GD_OK) abort();
    if (gd_file_read_all(path, &data, bytes) != GD_OK) abort();
    return data;
}

CLEAN_TEST(a_file_with_loops_truncated_anywhere_fails_or_gives_a_smaller_graph) {
    size_t bytes;
    char *original = read_nested(&bytes);
    run_cut(LLVMFuzzerTestOneInput, original, bytes);
    gd_free(original);
}

CLEAN_TEST(damaged_files_with_loops_never_crash) {
    size_t bytes;
    char *original = read_nested(&bytes);
    run_damaged(LLVMFuzzerTestOneInput, original, bytes, 10000);
    gd_free(original);
}

CLEAN_TEST(any_allocation_may_fail_while_loops_are_saved_and_loaded) {
    GD_SCOPE;
    gd_tensor *values[INPUTS];
    control_inputs(GD_F32, values);
    net n = build_net(&control_models[6], values, true, true);
    gd_session *session = gd_session_new(n.graph);
    gd_session_run(session, gd_feed(n.in[0], values[0], n.in[1], values[1]), gd_list(n.y));
    const char *path = temp_path("faults.onnx");
    for (fault_walk w = {.what = "saving", .lasting = true}; fault_next(&w);) {
        fault_begin(&w);
        const gd_status status = gd_onnx_save(path, session, ((gd_tensors){n.in, 2}), gd_list(n.y));
        fault_end(&w);
        CHECK_FAULT(&w, status);
    }
    walk_load(path, (fault_walk){.what = path, .lasting = true});
}

TEST_MAIN
