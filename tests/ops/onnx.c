/* onnx.c - every op, saved to an ONNX file and loaded again, gives the same results.
 *
 * GRADUS_ONNX_DIR=FOLDER keeps the files there, each with its inputs and outputs as .npz, for
 * tests/golden/onnx_check.py, which runs them with ONNX Runtime.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "onnx/operator_table.h"
#include "suites.h"
#include "temp.h"

static bool unknown_sizes;

typedef struct onnx_case {
    gd_graph *graph;
    gd_tensor *feeds[2 * MAX_TENSORS]; /* placeholder, value, placeholder, value, ... */
    gd_tensor *inputs[MAX_TENSORS];
    gd_tensor *outputs[MAX_TENSORS];
    int numbers[MAX_TENSORS]; /* index of each input in the call */
    int n, n_out;
} onnx_case;

static gd_tensor *placeholder_for(gd_tensor *t, int number) {
    gd_shape shape = gd_tensor_shape(t);
    char name[16];
    for (int d = 0; unknown_sizes && number == 0 && d < shape.rank; d++) shape.at[d] = GD_ANY;
    snprintf(name, sizeof name, "in%d", number);
    return gd_placeholder(shape, .name = name, .dtype = gd_tensor_dtype(t));
}

static onnx_case build_onnx_case(const run_setup *s) {
    const gd_op *op = s->c->block->op;
    onnx_case n = {.graph = gd_graph_new()};
    gd_tensor *in[MAX_TENSORS], *symbols[MAX_TENSORS] = {NULL};
    gd_seed(7);
    const int count = build_inputs(s, in);
    GD_GRAPH(n.graph);
    for (int i = 0; i < count; i++) {
        if (!in[i]) continue;
        if (input_is_mutated(op, i)) {
            symbols[i] = gd_variable(gd_detach(in[i]), .trainable = false);
            continue;
        }
        symbols[i] = n.inputs[n.n] = placeholder_for(in[i], i);
        n.numbers[n.n] = i;
        n.feeds[2 * n.n] = symbols[i];
        n.feeds[2 * n.n++ + 1] = gd_detach(in[i]);
    }
    gd_tensors y = gd_op_call(op, (gd_tensors){symbols, count}, build_attrs(s->c));
    for (int64_t k = 0; k < y.count && n.n_out < MAX_TENSORS; k++) {
        char name[16];
        snprintf(name, sizeof name, "out%d", n.n_out);
        n.outputs[n.n_out++] = gd_named(gd_clone(y.at[k]), name);
    }
    return n;
}

static void file_path(const test_case *c, gd_dtype dtype, char *path, size_t size) {
    const char *folder = getenv("GRADUS_ONNX_DIR");
    if (!folder) snprintf(path, size, "%s", temp_path("case"));
    else
        snprintf(path, size, "%s/%s_%s_%d_%s%s", folder, c->block->family, gd_op_name(c->block->op),
                 c->line, dtype ? gd_dtype_name(dtype) : "own", unknown_sizes ? "_any" : "");
}

/* Saves inputs and expected results for onnx_check.py. */
static void save_expected(const char *path, const onnx_case *n, gd_tensors results) {
    const char *names[2 * MAX_TENSORS];
    static char text[2 * MAX_TENSORS][16];
    gd_tensor *values[2 * MAX_TENSORS];
    int count = 0;
    char npz[600];
    for (int i = 0; i < n->n; i++, count++) {
        snprintf(text[count], sizeof *text, "i%d", i);
        values[count] = n->feeds[2 * i + 1];
    }
    for (int64_t k = 0; k < results.count; k++, count++) {
        snprintf(text[count], sizeof *text, "o%d", (int)k);
        values[count] = results.at[k];
    }
    for (int i = 0; i < count; i++) names[i] = text[i];
    snprintf(npz, sizeof npz, "%s.npz", path);
    gd_save_npz(npz, names, (gd_tensors){values, count});
}

static gd_tensors run_graph(gd_graph *graph, const onnx_case *n) {
    gd_session *session = gd_session_new(graph, .level = 0);
    gd_tensor *feeds[2 * MAX_TENSORS], *fetches[MAX_TENSORS];
    char name[16];
    for (int i = 0; i < n->n; i++) {
        snprintf(name, sizeof name, "in%d", n->numbers[i]);
        feeds[2 * i] = gd_graph_find(graph, name);
        feeds[2 * i + 1] = n->feeds[2 * i + 1];
    }
    for (int k = 0; k < n->n_out; k++) {
        snprintf(name, sizeof name, "out%d", k);
        fetches[k] = gd_graph_find(graph, name);
    }
    return gd_session_run(session, ((gd_tensors){feeds, 2 * n->n}),
                          ((gd_tensors){fetches, n->n_out}));
}

/* Whether a row saves the op as one node. */
static bool has_row(const gd_op *op) {
    gd_onnx_row row;
    for (int at = 0; gd_onnx_next_row(op, &at, &row);)
        if (!row.body && !row.save) return true;
    return false;
}

/* Whether the file has one node for the op, beside the Identity nodes that name its outputs. */
static bool is_one_node(const char *file, const gd_op *op) {
    gd_pb_doc *doc;
    int count = 0;
    if (!has_row(op)) return false;
    if (gd_pb_load(&doc, &gd_onnx_model_schema, file) != GD_OK) return false;
    const gd_pb *graph = gd_pb_message(gd_pb_root(doc), "graph");
    for (size_t i = 0; i < gd_pb_count(graph, "node"); i++)
        count +=
            strcmp(gd_pb_string(gd_pb_message_at(graph, "node", i), "op_type"), "Identity") != 0;
    gd_pb_free(doc);
    return count == 1;
}

static void check_variant(const test_case *c, gd_dtype dtype) {
    GD_SCOPE;
    char path[500], file[520], why[512] = "";
    run_setup s = {.c = c, .dtype = dtype};
    report_at(c, dtype);
    gd_clear_error();
    onnx_case n = build_onnx_case(&s);
    gd_session *session = gd_session_new(n.graph, .level = 0);
    gd_tensors expected = gd_session_run(session, ((gd_tensors){n.feeds, 2 * n.n}),
                                         ((gd_tensors){n.outputs, n.n_out}));
    if (gd_failed() && unknown_sizes) {
        report_skip("a shape depends on a size that is not known");
        return;
    }
    /* a new session: the run may have written variables */
    session = gd_session_new(n.graph, .level = 0);
    file_path(c, dtype, path, sizeof path);
    snprintf(file, sizeof file, "%s.onnx", path);
    gd_status status = gd_onnx_save(file, session, ((gd_tensors){n.inputs, n.n}),
                                    ((gd_tensors){n.outputs, n.n_out}), .own_ops = true);
    const bool one_node = status == GD_OK && is_one_node(file, c->block->op);
    gd_graph *loaded = status == GD_OK ? gd_onnx_load(file) : NULL;
    gd_tensors got = loaded ? run_graph(loaded, &n) : (gd_tensors){NULL, 0};
    const unsigned flags = gd_op_flags(c->block->op);
    /* Results are not compared for random ops, nor for gradient ops: their bodies may recompute
     * inputs to which the cases give arbitrary values. */
    const bool not_comparable =
        (flags & GD_OP_RANDOM) || strstr(c->options ? c->options : "", "dropout=0.5") ||
        ((flags & GD_OP_INTERNAL) && strstr(gd_op_name(c->block->op), "_grad"));
    if (getenv("GRADUS_ONNX_DIR") && status == GD_OK && !not_comparable)
        save_expected(path, &n, expected);
    else unlink(file);
    if (status != GD_OK || gd_failed()) {
        report_fail(c, dtype, "%s", gd_error_message());
        return;
    }
    if (not_comparable) {
        report_pass();
        return;
    }
    run_result a = {.n_out = n.n_out}, b = {.n_out = n.n_out};
    for (int k = 0; k < n.n_out; k++) a.out[k] = got.at[k], b.out[k] = expected.at[k];
    /* if one node represents the op, the loaded graph is the saved one: the same bits */
    if (results_agree(&a, &b, one_node ? NULL : c->block, why)) report_pass();
    else report_fail(c, dtype, "%s", why);
}

/* --- the page of the documentation ------------------------------------------------------------ */

/* A line for each op and each ONNX operator it is saved as: "| `add` | `Add` |". */
static char *expected_table(void) {
    char *text = NULL, last[128] = "";
    size_t size;
    FILE *out = open_memstream(&text, &size);
    for (int i = 0; i < gd_op_count(); i++) {
        const gd_op *op = gd_op_at(i);
        gd_onnx_row row;
        if ((gd_op_flags(op) & GD_OP_INTERNAL) || op->base) continue;
        for (int at = 0; gd_onnx_next_row(op, &at, &row);) {
            char line[128];
            if (row.body) continue;
            snprintf(line, sizeof line, "| `%s` | `%s` |\n", op->name, gd_onnx_row_name(&row));
            if (strcmp(line, last) != 0)
                fputs(line, out); /* rows may differ only in their options */
            memcpy(last, line, sizeof last);
        }
    }
    fclose(out);
    return text;
}

void check_onnx_page(void) {
    char *page = NULL, *expected_text = expected_table();
    size_t bytes = 0;
    const gd_status status =
        gd_file_read_all(GRADUS_CASES_DIR "/../../docs/guide/onnx.md", &page, &bytes);
    if (status == GD_OK && strstr(page, expected_text)) report_pass();
    else
        report_fail(NULL, GD_DTYPE_NONE, "docs/guide/onnx.md does not have this table:\n%s",
                    expected_text);
    gd_free(page);
    free(expected_text);
}

void suite_onnx(const test_cases *cases) {
    for (int unknown = 0; unknown < 2; unknown++) {
        unknown_sizes = unknown;
        each_variant(cases,
                     unknown ? 1u << GD_F32
                             : 1u << GD_F32 | 1u << GD_F64 | 1u << GD_I64 | 1u << GD_BOOL,
                     check_variant);
    }
}
