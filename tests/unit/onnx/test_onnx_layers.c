/* test_onnx_layers.c - ONNX operators with other conventions than our ops: recurrent layers with
 * another gate order, OneHot, Resize, TopK. */
#include "compare.h"
#include "onnx_files.h"
#include "temp.h"
#include "values.h"

#define SIZE(n)           "dim { dim_value: " #n " } "
#define ANY               "dim { dim_param: 'n' } "
#define INT(name, number) "attribute { name: '" name "' type: INT i: " #number " } "
#define WORD(name, text)  "attribute { name: '" name "' type: STRING s: '" text "' } "
#define LIST(name, count, numbers) \
    "initializer { name: '" name "' data_type: 7 dims: " #count " int64_data: [" numbers "] } "

/* --- recurrent layers ------------------------------------------------------------------------- */

enum { T = 3, N = 2, I = 2, H = 2 };

/* Weights of ONNX as text and as tensors: W (D, G*H, I), R (D, G*H, H), B (D, 2*G*H). */
static void put_weight(FILE *out, const char *name, gd_tensor *t) {
    const gd_shape s = gd_tensor_shape(t);
    fprintf(out, "initializer { name: '%s' data_type: 1 ", name);
    for (int i = 0; i < s.rank; i++) fprintf(out, "dims: %d ", (int)s.at[i]);
    fputs("float_data: [", out);
    for (int64_t i = 0; i < gd_tensor_numel(t); i++)
        fprintf(out, "%s%.9g", i ? ", " : "", (double)((float *)gd_data(t))[i]);
    fputs("] } ", out);
}

/* The gates starting at row `at`, in the order of this library. */
static gd_tensor *reorder_gates(gd_tensor *t, int at, int n, const int *order) {
    gd_tensor *parts[4];
    for (int i = 0; i < n; i++) parts[i] = gd_narrow(t, 0, at + order[i] * H, H);
    return gd_cat(((gd_tensors){parts, n}), .axis = 0);
}

static void check_recurrent(const char *op_type, int n, const int *order, int directions,
                            const char *direction, const char *attributes, bool lengths,
                            bool batch_first) {
    GD_SCOPE;
    char *text = NULL;
    size_t size;
    gd_seed(4);
    gd_tensor *w = gd_randn(gd_dims(directions, n * H, I)),
              *r = gd_randn(gd_dims(directions, n * H, H)),
              *b = gd_randn(gd_dims(directions, 2 * n * H)),
              *h0 = gd_randn(gd_dims(directions, N, H)), *c0 = gd_randn(gd_dims(directions, N, H)),
              *x = gd_randn(gd_dims(T, N, I));
    FILE *out = open_memstream(&text, &size);
    fputs(HEAD "graph { " INPUT("x", ANY ANY SIZE(2)), out);
    put_weight(out, "W", w);
    put_weight(out, "R", r);
    put_weight(out, "B", b);
    put_weight(out, "h0", batch_first ? gd_contiguous(gd_permute(h0, gd_dims(1, 0, 2))) : h0);
    put_weight(out, "c0", batch_first ? gd_contiguous(gd_permute(c0, gd_dims(1, 0, 2))) : c0);
    fputs("initializer { name: 'lengths' data_type: 6 dims: 2 int32_data: [3, 1] } ", out);
    fprintf(
        out,
        "node { name: 'l' op_type: '%s' input: 'x' input: 'W' input: 'R' input: 'B' input: '%s' "
        "input: "
        "'h0' %s output: 'y' output: 'h' %s " WORD("direction", "%s")
            INT("hidden_size", 2) "attribute { name: 'layout' type: INT i: %d } %s } " OUTPUT("y")
                OUTPUT("h") "%s}",
        op_type, lengths ? "lengths" : "", n == 4 ? "input: 'c0'" : "", n == 4 ? "output: 'c'" : "",
        direction, batch_first, attributes, n == 4 ? OUTPUT("c") : "");
    fclose(out);
    gd_graph *g = gd_onnx_load(write_model(text));
    free(text);
    CHECK_SAYING(g != NULL, "%s", gd_error_message());
    if (!g) return;
    gd_tensor *fed = batch_first ? gd_contiguous(gd_permute(x, gd_dims(1, 0, 2))) : x;
    gd_tensor *y = run_one(g, "x", fed, "y"), *h = run_one(g, "x", fed, "h");
    if (batch_first) y = gd_permute(y, gd_dims(1, 2, 0, 3)), h = gd_permute(h, gd_dims(1, 0, 2));

    gd_tensor *weights[8];
    for (int d = 0; d < directions; d++) {
        gd_tensor *both = gd_select(b, 0, d);
        weights[4 * d] = reorder_gates(gd_select(w, 0, d), 0, n, order);
        weights[4 * d + 1] = reorder_gates(gd_select(r, 0, d), 0, n, order);
        weights[4 * d + 2] = reorder_gates(both, 0, n, order);
        weights[4 * d + 3] = reorder_gates(both, n * H, n, order);
    }
    const gd_tensors list = {weights, 4 * directions};
    const int64_t numbers_of[] = {3, 1};
    gd_tensor *limits = lengths ? gd_from_array(gd_dims(2), GD_I64, numbers_of) : NULL, *expected,
              *last;
    const bool two = directions == 2;
    if (n == 4) {
        gd_lstm_outputs o = gd_lstm(x, h0, c0, limits, list, .bidirectional = two);
        expected = o.y, last = o.h;
        gd_tensor *c = run_one(g, "x", fed, "c");
        CHECK(tensors_same_bits(batch_first ? gd_permute(c, gd_dims(1, 0, 2)) : c, o.c));
    } else if (n == 3) {
        gd_gru_outputs o = gd_gru(x, h0, limits, list, .bidirectional = two);
        expected = o.y, last = o.h;
    } else {
        gd_rnn_outputs o = gd_rnn(x, h0, limits, list, .bidirectional = two,
                                  .activation = strstr(attributes, "Relu") ? GD_RELU : GD_TANH);
        expected = o.y, last = o.h;
    }
    expected = gd_permute(gd_reshape(expected, gd_dims(T, N, directions, H)), gd_dims(0, 2, 1, 3));
    CHECK_SAYING(tensors_same_bits(y, expected) && tensors_same_bits(h, last), "%s %s: %s", op_type,
                 direction, gd_error_message());
}

CLEAN_TEST(recurrent_layers_are_loaded_with_the_gate_order_of_onnx) {
    static const int lstm[] = {0, 2, 3, 1}, gru[] = {1, 0, 2}, one[] = {0};
    for (int lengths = 0; lengths < 2; lengths++)
        for (int first = 0; first < 2; first++) {
            check_recurrent("LSTM", 4, lstm, 1, "forward", "", lengths, first);
            check_recurrent("LSTM", 4, lstm, 2, "bidirectional", "", lengths, first);
            check_recurrent("GRU", 3, gru, 2, "bidirectional", INT("linear_before_reset", 1),
                            lengths, first);
            check_recurrent("RNN", 1, one, 1, "forward", "", lengths, first);
            check_recurrent(
                "RNN", 1, one, 2, "bidirectional",
                "attribute { name: 'activations' type: STRINGS strings: 'Relu' strings: 'Relu' } ",
                lengths, first);
        }
}

#define LAYER(type, inputs, attributes)                                                       \
    HEAD "graph { " INPUT("x", SIZE(3) SIZE(2) SIZE(2)) INPUT("w", SIZE(1) SIZE(8) SIZE(2))   \
        INPUT("u", SIZE(1) SIZE(6) SIZE(2)) "node { name: 'l' op_type: '" type                \
                                            "' input: 'x' " inputs " output: 'y' " attributes \
                                            "} }"

CLEAN_TEST(recurrent_layers_that_ours_are_not_are_refused) {
    check_load_fails(
        LAYER("LSTM", "input: 'w' input: 'w'", "attribute { name: 'clip' type: FLOAT f: -1 } "),
        GD_E_FORMAT, "'l' (LSTM): its clip is -1; it must be above 0");
    check_load_fails(
        LAYER("LSTM", "input: 'w' input: 'w' input: '' input: '' input: '' input: '' input: 'x'",
              ""),
        GD_E_SHAPE, "its P is f32[3,2,2], and must be [1,6]");
    check_load_fails(LAYER("LSTM", "input: 'w' input: 'x'", ""), GD_E_SHAPE,
                     "'l' (LSTM): its R is");
    check_load_fails(LAYER("LSTM", "input: 'w'", ""), GD_E_FORMAT, "its input 2 is missing");
    check_load_fails(LAYER("LSTM", "input: 'w' input: 'w'", WORD("direction", "up")),
                     GD_E_UNSUPPORTED, "its direction is not supported");
    check_load_fails(LAYER("RNN", "input: 'w' input: 'w'",
                           "attribute { name: 'activations' type: STRINGS strings: 'Sine' }"),
                     GD_E_UNSUPPORTED, "its activation 'Sine' is not supported");
    check_load_fails(LAYER("LSTM", "input: 'w' input: 'w'", WORD("gates", "open")),
                     GD_E_UNSUPPORTED, "its attribute 'gates'");
}

/* --- other operators -------------------------------------------------------------------------- */

CLEAN_TEST(one_hot_takes_negative_indices_and_any_axis) {
    GD_SCOPE;
    gd_graph *g = gd_onnx_load(write_model(HEAD "graph { " INPUT("x", SIZE(2)) LIST(
        "depth", 1, "3") "initializer { name: 'v' data_type: 1 dims: 2 "
                         "float_data: [5, 7] } node { op_type: 'Cast' input: 'x' output: 'i' " INT(
                             "to", 7) "} "
                                      "node { op_type: 'OneHot' input: 'i' input: 'depth' input: "
                                      "'v' output: 'y' " INT("axis", 0) "} " OUTPUT("y") "}"));
    const float at[] = {2, -3}, expected[] = {5, 7, 5, 5, 7, 5};
    gd_tensor *y = g ? run_one(g, "x", gd_from_array(gd_dims(2), GD_F32, at), "y") : NULL;
    CHECK_SAYING(y && tensors_same_bits(y, gd_from_array(gd_dims(3, 2), GD_F32, expected)), "%s",
                 gd_error_message());
}

CLEAN_TEST(resize_takes_sizes_or_scales_of_given_axes) {
    GD_SCOPE;
    gd_tensor *x = ramp(gd_dims(1, 1, 2, 3), 0, 1);
#define RESIZE(numbers, inputs, attributes)                                                \
    HEAD "graph { " INPUT("x", ANY SIZE(1) SIZE(2) SIZE(3)) numbers                        \
        "node { name: 'r' op_type: 'Resize' input: 'x' " inputs " output: 'y' " attributes \
        "} " OUTPUT("y") "}"
#define ASYMMETRIC \
    WORD("coordinate_transformation_mode", "asymmetric") WORD("nearest_mode", "floor")
    gd_graph *g = gd_onnx_load(write_model(
        RESIZE(LIST("s", 2, "6, 4"), "input: '' input: '' input: 's'",
               "attribute { name: 'axes' type: INTS ints: [3, 2] } " WORD("mode", "linear"))));
    CHECK_SAYING(g && tensors_same_bits(run_one(g, "x", x, "y"),
                                        gd_resize(x, .size = gd_dims(4, 6), .mode = GD_LINEAR)),
                 "%s", gd_error_message());
    g = gd_onnx_load(write_model(
        RESIZE("initializer { name: 's' data_type: 1 dims: 4 float_data: [1, 1, 2, 2] } ",
               "input: '' input: 's'", ASYMMETRIC)));
    CHECK_SAYING(g && tensors_same_bits(run_one(g, "x", x, "y"), gd_resize(x, .scale = 2)), "%s",
                 gd_error_message());
    check_load_fails(
        RESIZE(LIST("s", 4, "1, 1, 4, 6"), "input: '' input: '' input: 's'", WORD("mode", "cubic")),
        GD_E_UNSUPPORTED, "'r' (Resize): size 0 of its input must be known");
    check_load_fails(
        RESIZE(LIST("s", 4, "1, 2, 4, 6"), "input: '' input: '' input: 's'", ASYMMETRIC),
        GD_E_UNSUPPORTED, "size 0 of its input must be known for this kind of Resize");
    check_load_fails(RESIZE(LIST("s", 3, "1, 4, 6"), "input: '' input: '' input: 's'", ASYMMETRIC),
                     GD_E_FORMAT, "3 numbers for 4 axes");
}

/* Kernels compute u8 as i32: a limit outside the range of u8 has no effect. */
CLEAN_TEST(u8_options_out_of_range_mean_the_same_in_a_file) {
    GD_SCOPE;
    const gd_dtype dtypes[] = {GD_U8, GD_I8, GD_I32, GD_I64};
    for (int d = 0; d < 4; d++) {
        gd_tensor *xs = gd_cast(gd_arange(0, 120, .step = 10), dtypes[d]);
        gd_graph *graph = gd_graph_new();
        gd_tensor *x, *y[4];
        {
            GD_GRAPH(graph);
            x = gd_placeholder(gd_dims(12), .dtype = dtypes[d], .name = "x");
            y[0] = gd_named(gd_clamp(x, .min = -5, .max = 300), "y0");
            y[1] = gd_named(gd_hardtanh(x, .min = -3, .max = 1e30), "y1");
            y[2] = gd_named(gd_threshold(x, -1, 9), "y2");
            y[3] = gd_named(gd_clamp(x, .min = 20, .max = 1e30), "y3");
        }
        gd_session *before = gd_session_new(graph);
        const char *path = temp_path("bytes.onnx");
        CHECK_SAYING(gd_onnx_save(path, before, gd_list(x), ((gd_tensors){y, 4})) == GD_OK, "%s",
                     gd_error_message());
        gd_graph *again = gd_onnx_load(path);
        gd_session *after = gd_session_new(again);
        for (int i = 0; i < 4 && !gd_failed(); i++) {
            char name[4] = {'y', (char)('0' + i), 0};
            gd_tensor *want = gd_session_run(before, gd_feed(x, xs), gd_list(y[i])).at[0];
            gd_tensor *got = gd_session_run(after, gd_feed(gd_graph_find(again, "x"), xs),
                                            gd_list(gd_graph_find(again, name)))
                                 .at[0];
            CHECK_SAYING(tensors_same_bits(want, got) && (i == 3 || tensors_same_bits(want, xs)),
                         "%s, %s", gd_dtype_name(dtypes[d]), name);
        }
        CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    }
}

CLEAN_TEST(a_sort_is_saved_as_topk_and_loaded_for_any_size) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(GD_ANY, 2), .name = "x");
        y = gd_named(gd_sort(x, .axis = 0, .descending = true).values, "y");
    }
    const char *path = temp_path("sort.onnx");
    gd_session *session = gd_session_new(graph);
    CHECK_SAYING(gd_onnx_save(path, session, gd_list(x), gd_list(y)) == GD_OK, "%s",
                 gd_error_message());
    gd_graph *g = gd_onnx_load(path);
    gd_tensor *value = ramp(gd_dims(5, 2), 0, 1);
    CHECK_SAYING(g && tensors_same_bits(run_one(g, "x", value, "y"),
                                        gd_contiguous(gd_flip(value, gd_dims(0)))),
                 "%s", gd_error_message());
}

TEST_MAIN
