/* test_output_names.c - names of several outputs of one op: in lookups, runs, texts and messages. */
#include <stdlib.h>
#include <string.h>

#include "gradus/gradus.h"
#include "clean_test.h"

typedef struct {
    gd_graph *graph;
    gd_tensor *x, *values, *indices;
} named_topk;

static named_topk make_topk(void) {
    named_topk t = {.graph = gd_graph_new()};
    GD_GRAPH(t.graph);
    t.x = gd_placeholder(gd_dims(4), .name = "x");
    gd_topk_outputs y = gd_topk(t.x, 2);
    t.values = gd_named(y.values, "values");
    t.indices = gd_named(y.indices, "indices");
    return t;
}

CLEAN_TEST(a_name_finds_the_output_that_it_was_given_to) {
    GD_SCOPE;
    named_topk t = make_topk();
    CHECK(gd_graph_find(t.graph, "values") == t.values);
    CHECK(gd_graph_find(t.graph, "indices") == t.indices);
    CHECK(gd_graph_find(t.graph, "x") && !gd_failed());
    gd_session *s = gd_session_new(t.graph);
    gd_tensor *x = gd_from_array(gd_dims(4), GD_F32, (const float[]){1, 9, 5, 7});
    gd_tensors y = gd_session_run(
        s, gd_feed(t.x, x),
        gd_list(gd_graph_find(t.graph, "indices"), gd_graph_find(t.graph, "values")));
    CHECK(gd_tensor_dtype(y.at[0]) == GD_I64 && ((const int64_t *)gd_data(y.at[0]))[1] == 3);
    CHECK(((const float *)gd_data(y.at[1]))[1] == 7);
}

CLEAN_TEST(texts_of_graphs_have_the_names_of_all_outputs) {
    GD_SCOPE;
    named_topk t = make_topk();
    {
        GD_GRAPH(t.graph);
        gd_relu(gd_cast(t.indices, GD_F32));
    }
    char *text = gd_graph_text(t.graph);
    CHECK_SAYING(strstr(text, "values, indices = topk(x"), "%s", text);
    CHECK_SAYING(strstr(text, "cast(indices"), "%s", text);
    free(text);
}

CLEAN_TEST(only_a_later_output_may_have_a_name) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    gd_topk_outputs y = gd_topk(gd_placeholder(gd_dims(4), .name = "x"), 2);
    gd_named(y.indices, "best");
    CHECK(gd_graph_find(graph, "best") == y.indices && !gd_failed());
    gd_tensor *first = gd_graph_find(graph, "topk_1");
    CHECK(first && gd_tensor_dtype(first) == GD_F32);
}

CLEAN_TEST(a_new_name_replaces_that_of_the_same_output) {
    GD_SCOPE;
    named_topk t = make_topk();
    GD_GRAPH(t.graph);
    gd_named(t.indices, "places");
    gd_named(t.values, "largest");
    CHECK(gd_graph_find(t.graph, "places") == t.indices);
    CHECK(gd_graph_find(t.graph, "largest") == t.values);
    CHECK(!gd_graph_find(t.graph, "indices") && !gd_graph_find(t.graph, "values"));
    CHECK(gd_named(t.indices, "places") == t.indices && !gd_failed());
    gd_named(gd_relu(t.x), "indices"); /* the name is free again */
    CHECK(!gd_failed());
}

CLEAN_TEST(two_outputs_cannot_share_a_name) {
    GD_SCOPE;
    named_topk t = make_topk();
    GD_GRAPH(t.graph);
    CHECK(gd_tensor_is_error(gd_named(t.indices, "values")));
    CHECK(says("named \"values\""));
    gd_clear_error();
    CHECK(gd_tensor_is_error(gd_named(gd_relu(t.x), "indices")) && says("named \"indices\""));
    gd_clear_error();
    CHECK(gd_graph_find(t.graph, "indices") == t.indices);
}

CLEAN_TEST(messages_name_the_output) {
    GD_SCOPE;
    named_topk t = make_topk();
    gd_session *s = gd_session_new(t.graph);
    gd_tensor *values = gd_ones(gd_dims(2)), *wrong = gd_ones(gd_dims(7));
    gd_session_run(s, gd_feed(t.values, wrong, t.indices, wrong), gd_list(t.values));
    CHECK_SAYING(says("'values'"), "%s", gd_error_message());
    gd_clear_error();
    gd_session_run(s, gd_feed(t.values, values, t.indices, wrong), gd_list(t.values));
    CHECK_SAYING(says("'indices'"), "%s", gd_error_message());
}

TEST_MAIN
