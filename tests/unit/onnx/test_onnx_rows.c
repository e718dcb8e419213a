/* test_onnx_rows.c - the rows that map ops to ONNX operators, in the table and in records. */
#include "compare.h"
#include "dispatch/infer.h"
#include "onnx/operator_table.h"
#include "onnx_files.h"
#include "values.h"

/* --- texts ------------------------------------------------------------------------------------ */

TEST(the_texts_of_the_table_name_what_their_ops_have) {
    for (int i = 0; i < gd_onnx_row_count; i++) {
        const gd_onnx_row *row = &gd_onnx_rows[i];
        const gd_op *op = gd_op_find(row->op);
        char error[256];
        CHECK_SAYING(op || !row->op, "there is no op '%s'", row->op);
        if (!op) continue;
        const gd_operator_owner owner = {op->inputs, op->n_inputs, op->attrs, op->n_attrs, true};
        const gd_operator_text text = {.inputs = row->inputs,
                                       .attributes = row->attributes,
                                       .when = row->when,
                                       .cast = row->cast};
        CHECK_SAYING(gd_operator_check(&text, &owner, error, sizeof error), "%s: %s", row->op,
                     error);
    }
}

TEST(an_op_has_its_rows_in_its_record_or_in_the_table) {
    for (int i = 0; i < gd_onnx_row_count; i++) {
        const gd_op *op = gd_op_find(gd_onnx_rows[i].op);
        gd_onnx_row row;
        CHECK_SAYING(!op || !gd_onnx_record_row(op, &row),
                     "%s has a text in its record and a row in the table", op->name);
    }
}

/* --- one row for each node -------------------------------------------------------------------- */

/* The library's rows that can load an operator, in the order in which they are tried. */
enum { MAX_ROWS = 64 };
typedef struct loading_rows {
    gd_onnx_row at[MAX_ROWS];
    int count, of_records;
} loading_rows;

static loading_rows find_rows(const char *name) {
    loading_rows r = {.count = 0};
    for (int i = 0; i < gd_op_count(); i++) {
        gd_onnx_row row;
        const gd_op *op = gd_op_at(i);
        if (gd_onnx_record_row(op, &row) && gd_onnx_row_loads(&row) &&
            strcmp(row.name, name) == 0 && r.count < MAX_ROWS)
            r.at[r.count++] = row;
    }
    r.of_records = r.count;
    for (int i = 0; i < gd_onnx_row_count && r.count < MAX_ROWS; i++)
        if (gd_onnx_row_loads(&gd_onnx_rows[i]) &&
            strcmp(gd_onnx_row_name(&gd_onnx_rows[i]), name) == 0)
            r.at[r.count++] = gd_onnx_rows[i];
    return r;
}

static bool names_attribute(const gd_onnx_row *row, const char *name) {
    gd_operator_attribute a;
    gd_operator_input input;
    for (const char *text = row->attributes; gd_operator_next_attribute(&text, &a);)
        if (strcmp(a.theirs, name) == 0) return true;
    for (const char *text = row->inputs; gd_operator_next_input(&text, &input);)
        if (strcmp(input.theirs, name) == 0) return true;
    return !row->attributes && !row->when && gd_onnx_find_option(gd_op_find(row->op), name);
}

/* Whether `row` takes nodes with all attributes that `other` names. */
static bool names_attributes_of(const gd_onnx_row *row, const gd_onnx_row *other) {
    const gd_op *op = gd_op_find(other->op);
    gd_operator_attribute a;
    for (const char *text = other->attributes; gd_operator_next_attribute(&text, &a);)
        if (!names_attribute(row, a.theirs)) return false;
    for (int i = 0; i < op->n_attrs; i++)
        if (names_attribute(other, op->attrs[i].name) && !names_attribute(row, op->attrs[i].name))
            return false;
    return true;
}

/* Whether `other` has all fixed attributes of `row`. */
static bool has_fixed_of(const gd_onnx_row *other, const gd_onnx_row *row) {
    gd_operator_attribute a, b;
    for (const char *text = row->attributes; gd_operator_next_attribute(&text, &a);) {
        bool found = !a.fixed[0];
        for (const char *t = other->attributes; gd_operator_next_attribute(&t, &b) && !found;)
            found = strcmp(a.theirs, b.theirs) == 0 && strcmp(a.fixed, b.fixed) == 0;
        if (!found) return false;
    }
    return true;
}

/* Whether `other` has all conditions for inputs of `row`. */
static bool has_conditions_of(const gd_onnx_row *other, const gd_onnx_row *row) {
    gd_operator_condition a, b;
    for (const char *text = row->when; gd_operator_next_condition(&text, &a);) {
        bool found = a.kind == GD_OPERATOR_OPTION;
        for (const char *t = other->when; gd_operator_next_condition(&t, &b) && !found;)
            found = a.kind == b.kind && strcmp(a.value, b.value) == 0; /* names may differ */
        if (!found) return false;
    }
    return true;
}

/* Whether `row` loads all nodes that `other` could load. */
static bool covers(const gd_onnx_row *row, const gd_onnx_row *other) {
    if (row->load || other->load) return row->load && row->load != other->load;
    return names_attributes_of(row, other) && has_fixed_of(other, row) &&
           has_conditions_of(other, row);
}

static void check_operator(const char *name) {
    const loading_rows r = find_rows(name);
    CHECK_SAYING(r.count > 0, "no row loads %s, which is saved", name);
    CHECK(r.count < MAX_ROWS);
    for (int i = 0; i < r.count; i++)
        for (int k = 0; k < r.count; k++) {
            /* the order of records has no meaning */
            const bool before = i < k || (i != k && i < r.of_records && k < r.of_records);
            CHECK_SAYING(!before || !covers(&r.at[i], &r.at[k]),
                         "%s is loaded as %s, never as %s; one of them is 'when saving'", name,
                         r.at[i].op ? r.at[i].op : "its function says",
                         r.at[k].op ? r.at[k].op : "its function says");
        }
}

TEST(no_row_hides_another_of_the_same_operator) {
    int operators = 0;
    for (int i = 0; i < gd_op_count(); i++) {
        gd_onnx_row row;
        if (gd_onnx_record_row(gd_op_at(i), &row)) check_operator(row.name), operators++;
    }
    for (int i = 0; i < gd_onnx_row_count; i++)
        if (!gd_onnx_rows[i].body) check_operator(gd_onnx_row_name(&gd_onnx_rows[i])), operators++;
    CHECK(operators > 150);
}

/* --- saved calls ------------------------------------------------------------------------------ */

/* Saves a graph that calls the op with x and these options, loads it and compares the results. The
 * file must have a node with these parts; a part that begins with ! must be absent. */
static void check_saved(const char *op, const char *options, const char *const *parts) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *value = ramp(gd_dims(3, 4), -1, 0.25), *x, *y;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(3, 4), .name = "x");
        gd_attrs *attrs = gd_attrs_new(gd_op_find(op));
        gd_attrs_parse(attrs, options);
        y = gd_named(gd_op_call(gd_op_find(op), gd_list(x), attrs).at[0], "y");
    }
    gd_session *session = gd_session_new(graph, .level = 0);
    gd_tensor *expected = gd_session_run(session, gd_feed(x, value), gd_list(y)).at[0];
    const char *path = temp_path("own.onnx");
    CHECK_SAYING(gd_onnx_save(path, session, gd_list(x), gd_list(y)) == GD_OK, "%s",
                 gd_error_message());
    gd_pb_doc *doc;
    char *text = NULL;
    size_t bytes;
    CHECK(gd_pb_load(&doc, &gd_onnx_model_schema, path) == GD_OK &&
          gd_pb_print_text(doc, &text, &bytes) == GD_OK);
    for (; *parts; parts++) {
        const bool absent = **parts == '!';
        CHECK_SAYING(text && !strstr(text, *parts + absent) == absent, "%s is %s\n%s",
                     *parts + absent, absent ? "in" : "not in", text);
    }
    gd_free(text);
    gd_pb_free(doc);
    gd_graph *loaded = gd_onnx_load(path);
    CHECK_SAYING(loaded && tensors_same_bits(run_one(loaded, "x", value, "y"), expected), "%s",
                 gd_error_message());
}

/* ONNX's Identity has no attributes: other readers reject a node with some. */
TEST(a_check_of_a_range_is_saved_as_a_plain_identity) {
    check_saved("check_range", "low=-2 high=9 but=20 what=target",
                (const char *[]){"op_type: \"Identity\"", "!attribute", NULL});
}

/* --- ops of a program ------------------------------------------------------------------------- */

static gd_status keep_shape(gd_infer *i) {
    gd_meta_like(&i->out[0], i->in[0]);
    return GD_OK;
}
static gd_status add_number(gd_kernel_call *k) {
    const double *x = k->in[0].data, by = (double)*(const int64_t *)k->attrs;
    double *y = k->out[0].data;
    for (int64_t i = 0; i < gd_numel(k->out[0].rank, k->out[0].dims); i++) y[i] = x[i] + by;
    return GD_OK;
}

TEST(an_op_of_the_program_is_saved_and_loaded_by_the_text_of_its_record) {
    CHECK_SAYING(gd_op_define("own_swirl(x) -> y  elementwise float\n"
                              "x times an option.\n"
                              "  gain float = 2\n"
                              "  mode {near, far} = near\n"
                              "  y = x * gain\n"
                              "  onnx Swirl amount=gain~1 mode=mode,far:FAR\n"
                              "             when x:float\n",
                              NULL) == GD_OK,
                 "%s", gd_error_message());
    check_saved(
        "own_swirl", "gain=3 mode=far",
        (const char *[]){"op_type: \"Swirl\"", "name: \"amount\"", "f: 3", "s: \"FAR\"", NULL});
    CHECK_SAYING(gd_op_define("own_shift(x, by:int) -> y\n"
                              "x plus a number.\n"
                              "  onnx Shift(x, offset=by) kind!up   caffe Shift\n",
                              &(gd_op_rules){.infer = keep_shape,
                                             .reference = add_number,
                                             .reference_flags = GD_KERNEL_DOUBLE}) == GD_OK,
                 "%s", gd_error_message());
    check_saved("own_shift", "by=5",
                (const char *[]){"op_type: \"Shift\"", "raw_data: \"\\005", "s: \"up\"", NULL});
    CHECK(strcmp(gd_op_onnx_name(gd_op_find("own_swirl")), "Swirl") == 0 &&
          strcmp(gd_op_caffe_name(gd_op_find("own_shift")), "Shift") == 0);
}

TEST(an_op_of_the_program_does_not_take_the_operators_of_the_library) {
    CHECK(gd_op_define("an_own_relu(x) -> y  elementwise float\n"
                       "Minus x.\n"
                       "  y = -x\n"
                       "  onnx Relu  when x:float\n",
                       NULL) == GD_OK);
    GD_SCOPE;
    gd_graph *g = gd_onnx_load(
        write_model(HEAD "graph { name: 'g' node { op_type: 'Relu' input: 'x' "
                         "output: 'y' } " INPUT("x", "dim { dim_value: 2 }") OUTPUT("y") "}"));
    gd_tensor *y = run_one(g, "x", gd_from_array(gd_dims(2), GD_F32, ((float[]){-1, 2})), "y");
    CHECK_SAYING(gd_item(gd_sum(y)) == 2, "%s", gd_error_message());
}

TEST_MAIN
