/* test_graph.c - graphs and sessions: building, feeding, fetching, assigning, failing. */
#include <math.h>
#include <pthread.h>

#include "clean_test.h"
#include "compare.h"
#include "gradus/gradus.h"
#include "values.h"

/* --- training --------------------------------------------------------------------------------- */

typedef struct net {
    gd_graph *graph;
    gd_tensor *x, *y, *w1, *w2, *loss, *new_w1, *new_w2, *train;
} net;

static net make_net(bool any_batch) {
    net n = {.graph = gd_graph_new()};
    GD_GRAPH(n.graph);
    const int64_t batch = any_batch ? GD_ANY : 8;
    n.x = gd_placeholder(gd_dims(batch, 20), .name = "x");
    n.y = gd_placeholder(gd_dims(batch, 5), .name = "y");
    n.w1 = gd_variable(gd_randn(gd_dims(20, 10)), .name = "w1");
    n.w2 = gd_variable(gd_randn(gd_dims(10, 5)), .name = "w2");
    n.loss = gd_mean(gd_square(gd_sub(gd_matmul(gd_relu(gd_matmul(n.x, n.w1)), n.w2), n.y)));
    gd_tensors g = gd_gradients(gd_list(n.loss), gd_list(n.w1, n.w2));
    n.new_w1 = gd_assign(n.w1, gd_sub(n.w1, gd_mul(g.at[0], gd_scalar_of(0.01, GD_F32))));
    n.new_w2 = gd_assign(n.w2, gd_sub(n.w2, gd_mul(g.at[1], gd_scalar_of(0.01, GD_F32))));
    n.train = gd_group(gd_list(n.new_w1, n.new_w2));
    return n;
}

/* Whether all source lines in the message are in this file, not in the library. */
static bool names_this_file_alone(void) {
    const char *message = gd_error_message(), *at = message;
    int places = 0;
    for (; (at = strstr(at, ".c:")); at += 3, places++)
        if (at - message < 10 || strncmp(at - 10, "test_graph.c:", 13) != 0) return false;
    return places > 0;
}

CLEAN_TEST(a_net_learns_and_fetching_the_loss_alone_changes_nothing) {
    GD_SCOPE;
    gd_seed(1);
    net n = make_net(false);
    gd_session *s = gd_session_new(n.graph);
    gd_tensor *x = ramp(gd_dims(8, 20), -1, 0.0125), *y = ramp(gd_dims(8, 5), 0, 0.1);
    gd_tensor *before = gd_session_get(s, n.w1);
    double first = gd_item(gd_session_run(s, gd_feed(n.x, x, n.y, y), gd_list(n.loss)).at[0]);
    double again = gd_item(gd_session_run(s, gd_feed(n.x, x, n.y, y), gd_list(n.loss)).at[0]);
    CHECK(first == again && tensors_same_bits(before, gd_session_get(s, n.w1)));
    double loss = first;
    for (int i = 0; i < 50; i++) {
        GD_SCOPE;
        loss = gd_item(gd_session_run(s, gd_feed(n.x, x, n.y, y), gd_list(n.loss, n.train)).at[0]);
    }
    CHECK_SAYING(loss < 0.2 * first && !gd_failed(), "%g to %g: %s", first, loss,
                 gd_error_message());
    CHECK(!tensors_same_bits(before, gd_session_get(s, n.w1)));
}

/* At level 0 a session and eager ops give the same bits after some steps. */
CLEAN_TEST(a_session_trains_to_the_bits_of_eager_ops) {
    GD_SCOPE;
    for (int any = 0; any < 2; any++) {
        gd_seed(1);
        net n = make_net(any);
        gd_session *s = gd_session_new(n.graph, .level = 0);
        gd_tensor *x = ramp(gd_dims(8, 20), -1, 0.0125), *y = ramp(gd_dims(8, 5), 0, 0.1);
        gd_tensor *w1 = gd_requires_grad(gd_session_get(s, n.w1)),
                  *w2 = gd_requires_grad(gd_session_get(s, n.w2));
        for (int i = 0; i < 5; i++) {
            GD_SCOPE;
            gd_session_run(s, gd_feed(n.x, x, n.y, y), gd_list(n.train));
            gd_tensor *loss =
                gd_mean(gd_square(gd_sub(gd_matmul(gd_relu(gd_matmul(x, w1)), w2), y)));
            gd_tensors g = gd_grad(gd_list(loss), gd_list(w1, w2));
            GD_NO_GRAD;
            gd_sub_(w1, gd_mul(g.at[0], gd_scalar_of(0.01, GD_F32)));
            gd_sub_(w2, gd_mul(g.at[1], gd_scalar_of(0.01, GD_F32)));
        }
        CHECK_SAYING(tensors_same_bits(gd_detach(w1), gd_session_get(s, n.w1)) &&
                         tensors_same_bits(gd_detach(w2), gd_session_get(s, n.w2)),
                     "%s batch: %s", any ? "any" : "known", gd_error_message());
    }
}

CLEAN_TEST(one_graph_takes_batches_of_any_size) {
    GD_SCOPE;
    net n = make_net(true);
    gd_session *s = gd_session_new(n.graph);
    for (int64_t batch = 1; batch < 6; batch++) {
        gd_tensor *x = ramp(gd_dims(batch, 20), 0, 0.01), *y = ramp(gd_dims(batch, 5), 1, 0.1);
        double loss =
            gd_item(gd_session_run(s, gd_feed(n.x, x, n.y, y), gd_list(n.loss, n.train)).at[0]);
        CHECK_SAYING(isfinite(loss) && !gd_failed(), "batch %d: %s", (int)batch,
                     gd_error_message());
    }
}

/* --- values ----------------------------------------------------------------------------------- */

CLEAN_TEST(results_that_the_program_holds_are_not_overwritten) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(3));
        y = gd_mul(x, gd_scalar(2));
    }
    gd_session *s = gd_session_new(graph);
    gd_tensor *first = gd_session_run(s, gd_feed(x, gd_full(gd_dims(3), 1)), gd_list(y)).at[0];
    gd_tensor *second = gd_session_run(s, gd_feed(x, gd_full(gd_dims(3), 5)), gd_list(y)).at[0];
    CHECK(((float *)gd_data(first))[0] == 2 && ((float *)gd_data(second))[2] == 10);
    gd_tensor *mine = gd_full(gd_dims(3), 0);
    gd_session_run(s, gd_feed(x, gd_full(gd_dims(3), 7)), gd_list(y), .into = gd_list(mine));
    CHECK(((float *)gd_data(mine))[1] == 14 && !gd_failed());
}

CLEAN_TEST(fetches_may_be_feeds_variables_views_and_the_same_twice) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    gd_tensor *x = gd_placeholder(gd_dims(2, 3)), *v = gd_variable(gd_full(gd_dims(2), 4));
    gd_tensor *t = gd_permute(x, gd_dims(1, 0)),
              *update = gd_assign(v, gd_add(v, gd_full(gd_dims(2), 1)));
    gd_session *s = gd_session_new(graph);
    float data[6] = {1, 2, 3, 4, 5, 6};
    gd_tensor *value = gd_from_array(gd_dims(2, 3), GD_F32, data);
    gd_tensors r = gd_session_run(s, gd_feed(x, value), gd_list(x, v, t, update, v, t));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
    CHECK(gd_tensor_shape(r.at[2]).at[0] == 3);
    r = gd_session_run(s, gd_feed(x, value), gd_list(v));
    CHECK(gd_item(gd_session_run(s, gd_nothing, gd_list(gd_sum(v))).at[0]) == 10);
}

CLEAN_TEST(captured_tensors_are_read_when_the_graph_runs) {
    GD_SCOPE;
    gd_tensor *scale = gd_full(gd_dims(1), 3);
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(2));
        y = gd_mul(x, scale);
    }
    gd_session *s = gd_session_new(graph);
    gd_tensor *ones = gd_full(gd_dims(2), 1);
    CHECK(((float *)gd_data(gd_session_run(s, gd_feed(x, ones), gd_list(y)).at[0]))[0] == 3);
    gd_add_(scale, gd_scalar(1));
    CHECK(((float *)gd_data(gd_session_run(s, gd_feed(x, ones), gd_list(y)).at[0]))[1] == 4);
}

CLEAN_TEST(random_numbers_differ_in_each_run_and_agree_between_sessions) {
    GD_SCOPE;
    gd_seed(5);
    gd_graph *graph = gd_graph_new();
    gd_tensor *noise;
    {
        GD_GRAPH(graph);
        noise = gd_randn(gd_dims(4));
    }
    gd_session *a = gd_session_new(graph), *b = gd_session_new(graph);
    gd_tensor *a1 = gd_session_run(a, gd_nothing, gd_list(noise)).at[0],
              *a2 = gd_session_run(a, gd_nothing, gd_list(noise)).at[0];
    gd_tensor *b1 = gd_session_run(b, gd_nothing, gd_list(noise)).at[0];
    CHECK(tensors_same_bits(a1, b1) && !tensors_same_bits(a1, a2));
    gd_seed(5);
    CHECK(tensors_same_bits(
        a1, gd_randn(gd_dims(4)))); /* the first run draws the numbers of an eager call */
}

CLEAN_TEST(control_dependencies_run_too) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *v, *y;
    {
        GD_GRAPH(graph);
        v = gd_variable(gd_full(gd_dims(1), 0), .name = "count");
        gd_tensor *more = gd_assign(v, gd_add(v, gd_full(gd_dims(1), 1)));
        GD_AFTER(gd_list(more));
        y = gd_full(gd_dims(2), 7);
    }
    gd_session *s = gd_session_new(graph);
    for (int i = 0; i < 3; i++) gd_session_run(s, gd_nothing, gd_list(y));
    CHECK_SAYING(gd_item(gd_session_get(s, v)) == 3, "%g %s", gd_item(gd_session_get(s, v)),
                 gd_error_message());
}

CLEAN_TEST(sizes_that_depend_on_data_work_and_have_gradients) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *sum, *g;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(5));
        sum = gd_sum(gd_square(gd_masked_select(x, gd_gt(x, gd_scalar(0)))));
        g = gd_gradients(gd_list(sum), gd_list(x)).at[0];
    }
    gd_session *s = gd_session_new(graph);
    float data[5] = {1, -2, 3, -4, 5};
    gd_tensors r =
        gd_session_run(s, gd_feed(x, gd_from_array(gd_dims(5), GD_F32, data)), gd_list(sum, g));
    CHECK_SAYING(gd_item(r.at[0]) == 35 && !gd_failed(), "%s", gd_error_message());
    CHECK(((float *)gd_data(r.at[1]))[2] == 6 && ((float *)gd_data(r.at[1]))[3] == 0);
}

/* --- failures --------------------------------------------------------------------------------- */

CLEAN_TEST(shapes_are_checked_while_the_graph_is_built) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    GD_GRAPH(graph);
    gd_tensor *x = gd_placeholder(gd_dims(GD_ANY, 7)), *w = gd_variable(gd_randn(gd_dims(8, 3)));
    gd_matmul(x, w);
    CHECK(gd_error_status() == GD_E_SHAPE && says("[?,7]") && says("test_graph.c"));
    gd_clear_error();
}

CLEAN_TEST(feeds_are_checked_before_anything_runs) {
    GD_SCOPE;
    net n = make_net(false);
    gd_session *s = gd_session_new(n.graph);
    gd_tensor *x = gd_full(gd_dims(8, 20), 1), *y = gd_full(gd_dims(8, 5), 1);
    gd_session_run(s, gd_feed(n.x, x), gd_list(n.loss));
    CHECK(gd_error_status() == GD_E_ARGUMENT && says("'y' is needed and was not fed"));
    gd_clear_error();
    gd_session_run(s, gd_feed(n.x, gd_full(gd_dims(8, 21), 1), n.y, y), gd_list(n.loss));
    CHECK(gd_error_status() == GD_E_SHAPE && says("feed 'x' takes f32[8,20], not f32[8,21]"));
    gd_clear_error();
    gd_session_run(s, gd_feed(n.x, gd_full(gd_dims(8, 20), 1, .dtype = GD_F64), n.y, y),
                   gd_list(n.loss));
    CHECK(gd_error_status() == GD_E_DTYPE);
    gd_clear_error();
    gd_session_run(s, gd_feed(n.x, x, n.y, y), gd_list(x));
    CHECK(gd_error_status() == GD_E_ARGUMENT && says("fetch 0 is a value"));
    gd_clear_error();
    net other = make_net(false);
    gd_session_run(s, gd_feed(n.x, x, n.y, y), gd_list(other.loss));
    CHECK(gd_error_status() == GD_E_ARGUMENT && says("another graph"));
    gd_clear_error();
}

CLEAN_TEST(a_failed_run_changes_no_variable) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *i, *v, *update, *picked;
    {
        GD_GRAPH(graph);
        i = gd_placeholder(gd_dims(2), .dtype = GD_I64);
        v = gd_variable(gd_full(gd_dims(3), 1));
        update = gd_assign(v, gd_add(v, gd_full(gd_dims(3), 1)));
        picked = gd_index_select(update, 0, i); /* fails if an index is out of range */
    }
    gd_session *s = gd_session_new(graph);
    int64_t good[2] = {0, 2}, bad[2] = {0, 3};
    gd_session_run(s, gd_feed(i, gd_from_array(gd_dims(2), GD_I64, good)), gd_list(update, picked));
    CHECK_SAYING(!gd_failed() && gd_item(gd_sum(gd_session_get(s, v))) == 6, "%s",
                 gd_error_message());
    gd_session_run(s, gd_feed(i, gd_from_array(gd_dims(2), GD_I64, bad)), gd_list(update, picked));
    CHECK(gd_error_status() == GD_E_INDEX && says("index_select"));
    gd_clear_error();
    CHECK(gd_item(gd_sum(gd_session_get(s, v))) == 6);
}

CLEAN_TEST(the_later_of_two_assigns_wins) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *v, *one, *two;
    {
        GD_GRAPH(graph);
        v = gd_variable(gd_full(gd_dims(3), 1));
        one = gd_assign(v, gd_full(gd_dims(3), 2));
        two = gd_assign(v, gd_full(gd_dims(3), 3));
    }
    gd_session *s = gd_session_new(graph);
    gd_session_run(s, gd_nothing,
                   gd_list(two, one)); /* run in the order in which they were built */
    CHECK(gd_item(gd_sum(gd_session_get(s, v))) == 9);
    gd_session_run(s, gd_nothing, gd_list(one));
    CHECK(gd_item(gd_sum(gd_session_get(s, v))) == 6 && !gd_failed());
}

/* --- plans ------------------------------------------------------------------------------------ */

CLEAN_TEST(the_plan_text_lists_steps_and_memory) {
    GD_SCOPE;
    net n = make_net(false);
    gd_session *s = gd_session_new(n.graph);
    gd_tensor *x = gd_full(gd_dims(8, 20), 1), *y = gd_full(gd_dims(8, 5), 1);
    gd_plan_memory m;
    CHECK(gd_session_plan(s, gd_feed(n.x, x, n.y, y), gd_list(n.loss, n.train), &m) == GD_OK);
    CHECK(m.peak_bytes > 0 && m.peak_bytes < 8192 && m.variable_bytes == (200 + 50) * 4 &&
          !m.at_least);
    char *text = gd_session_plan_text(s, gd_feed(n.x, x, n.y, y), gd_list(n.loss, n.train));
    CHECK(text && strstr(text, "matmul(") && strstr(text, "variable 0 <- "));
    free(text);
    text = gd_graph_text(n.graph);
    CHECK(text && strstr(text, "w1 = variable -> f32[20,10]") && strstr(text, "relu_"));
    free(text);
    text = gd_graph_dot(n.graph);
    CHECK(text && strncmp(text, "digraph", 7) == 0);
    free(text);
}

CLEAN_TEST(old_plans_are_evicted) {
    GD_SCOPE;
    net n = make_net(true);
    gd_session *s = gd_session_new(n.graph, .plans = 2);
    for (int round = 0; round < 2; round++)
        for (int64_t batch = 1; batch < 5; batch++) {
            GD_SCOPE;
            gd_tensor *x = gd_full(gd_dims(batch, 20), 1), *y = gd_full(gd_dims(batch, 5), 1);
            gd_session_run(s, gd_feed(n.x, x, n.y, y), gd_list(n.loss));
        }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* --- threads ---------------------------------------------------------------------------------- */

typedef struct worker {
    gd_session *session;
    net *n;
    bool trains;
    int failures;
} worker;

static void *run_in_thread(void *arg) {
    worker *w = arg;
    GD_SCOPE;
    for (int i = 0; i < 50; i++) {
        GD_SCOPE;
        gd_tensor *x = gd_full(gd_dims(8, 20), 0.1), *y = gd_full(gd_dims(8, 5), 1);
        gd_tensors r = gd_session_run(w->session, gd_feed(w->n->x, x, w->n->y, y),
                                      gd_list(w->n->loss, w->trains ? w->n->train : w->n->loss));
        if (gd_failed() || !isfinite(gd_item(r.at[0]))) w->failures++;
    }
    return NULL;
}

CLEAN_TEST(several_threads_run_one_session) {
    GD_SCOPE;
    net n = make_net(false);
    gd_session *s = gd_session_new(n.graph);
    pthread_t threads[4];
    worker workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){s, &n, i == 0, 0};
        pthread_create(&threads[i], NULL, run_in_thread, &workers[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK(workers[i].failures == 0);
    }
}

/* --- more feeds and fetches ------------------------------------------------------------------- */

CLEAN_TEST(all_or_none_of_the_results_of_a_node_are_fed) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *first, *second;
    gd_tensors parts;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(4), .name = "x");
        parts = gd_chunk(x, 2);
        gd_named(parts.at[0], "parts");
        first = gd_sum(parts.at[0]);
        second = gd_sum(parts.at[1]);
    }
    for (int level = 0; level < 3; level++) {
        gd_session *s = gd_session_new(graph, .level = level);
        gd_tensor *ones = gd_ones(gd_dims(4)), *tens = gd_full(gd_dims(2), 10),
                  *twenties = gd_full(gd_dims(2), 20);
        CHECK(gd_item(gd_session_run(s, gd_feed(parts.at[0], tens), gd_list(first)).at[0]) == 20);
        CHECK(gd_item(gd_session_run(s, gd_feed(parts.at[1], tens), gd_list(second)).at[0]) ==
              20); /* not the plan of the previous run */
        gd_tensors r = gd_session_run(s, gd_feed(parts.at[0], tens, parts.at[1], twenties),
                                      gd_list(first, second));
        CHECK(!gd_failed() && gd_item(r.at[0]) == 20 && gd_item(r.at[1]) == 40);
        gd_session_run(s, gd_feed(parts.at[0], tens, x, ones), gd_list(first, second));
        CHECK_SAYING(gd_error_status() == GD_E_ARGUMENT &&
                         says("'parts' has several results; result 1 is needed"),
                     "%s", gd_error_message());
        gd_clear_error();
        gd_session_run(s, gd_feed(x, ones, x, ones), gd_list(first));
        CHECK_SAYING(gd_error_status() == GD_E_ARGUMENT && says("feed 'x' is fed twice"), "%s",
                     gd_error_message());
        gd_clear_error();
    }
}

CLEAN_TEST(tensors_of_into_must_have_the_shape_of_the_fetch) {
    GD_SCOPE;
    net n = make_net(true);
    gd_session *s = gd_session_new(n.graph);
    gd_tensor *x = gd_ones(gd_dims(2, 20)), *y = gd_ones(gd_dims(2, 5)),
              *into = gd_full(gd_dims(), 0, .dtype = GD_F64);
    gd_session_run(s, gd_feed(n.x, x, n.y, y), gd_list(n.loss), .into = gd_list(into));
    CHECK(!gd_failed() && gd_item(into) > 0); /* converted to the dtype of `into` */
    gd_session_run(s, gd_feed(n.x, x, n.y, y), gd_list(n.loss), .into = gd_list(n.loss));
    CHECK_SAYING(gd_error_status() == GD_E_SHAPE && says("into a symbol, f32[]"), "%s",
                 gd_error_message());
    gd_clear_error();
    gd_session_run(s, gd_feed(n.x, x, n.y, y), gd_list(n.loss), .into = gd_list(into, into));
    CHECK_SAYING(gd_error_status() == GD_E_ARGUMENT && says(".into has 2 tensors for 1 fetches"),
                 "%s", gd_error_message());
    gd_clear_error();
    gd_tensor *array[] = {into};
    gd_session_run(s, gd_feed(n.x, x, n.y, y), gd_list(n.loss), .into = array);
    CHECK_SAYING(gd_error_status() == GD_E_ARGUMENT &&
                     says(".into is an array without a count; write gd_list(a, b), or gd_list_of("),
                 "%s", gd_error_message());
    gd_clear_error();
    CHECK(gd_session_plan(s, gd_feed(n.x, x, n.y, y), gd_list(n.loss), NULL) == GD_OK);
    CHECK(gd_session_plan(s, gd_feed(n.x, x), gd_list(n.loss), NULL) == GD_E_ARGUMENT &&
          says("gd_session_plan: 'y' is needed"));
    gd_clear_error();
    CHECK(gd_session_set(s, n.x, x) == GD_E_ARGUMENT &&
          says("gd_session_set: 'x' is not a variable"));
    gd_clear_error();
    CHECK(gd_session_set(s, n.w1, n.w1) == GD_E_ARGUMENT && says("the value for 'w1' is a symbol"));
    gd_clear_error();
}

/* Messages name source lines of the program, not of the library. Without a failure there is no
 * message. */
CLEAN_TEST(messages_name_source_lines_of_the_program) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y, *loss, *train;
    gd_clear_error();
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(GD_ANY, 3), .name = "x");
        y = gd_placeholder(gd_dims(GD_ANY), .name = "y", .dtype = GD_I64);
        loss = gd_cross_entropy(gd_matmul(x, gd_variable(gd_ones(gd_dims(3, 4)))), y);
        train = gd_minimize(gd_optim_sgd(gd_graph_variables(graph)), loss);
    }
    CHECK_SAYING(!*gd_error_message(), "%s", gd_error_message());
    gd_session *s = gd_session_new(graph);
    gd_session_run(s,
                   gd_feed(x, gd_ones(gd_dims(1, 3)), y, gd_full(gd_dims(1), 77, .dtype = GD_I64)),
                   gd_list(loss, train));
    CHECK_SAYING(gd_error_status() != GD_OK && says("class 77") && names_this_file_alone(), "%s",
                 gd_error_message());
    gd_clear_error();
    CHECK(gd_onnx_save("never.onnx", s, gd_list(x, y), gd_list(train)) == GD_E_UNSUPPORTED);
    CHECK_SAYING(names_this_file_alone(), "%s", gd_error_message());
    gd_clear_error();
}

CLEAN_TEST(a_symbol_stays_in_its_graph) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new(), *another = gd_graph_new();
    gd_tensor *a, *b, *orphan;
    {
        GD_GRAPH(graph);
        a = gd_placeholder(gd_dims(2), .name = "a");
    }
    {
        GD_GRAPH(another);
        b = gd_placeholder(gd_dims(2), .name = "b");
    }
    gd_add(a, b);
    CHECK_SAYING(gd_error_status() == GD_E_ARGUMENT && says("'b', is a symbol of another graph"),
                 "%s", gd_error_message());
    gd_clear_error();
    {
        GD_SCOPE;
        GD_GRAPH(gd_graph_new());
        orphan = gd_keep(gd_placeholder(gd_dims(2), .name = "orphan"));
    }
    gd_relu(orphan);
    CHECK_SAYING(gd_error_status() == GD_E_STATE && says("'orphan' of ") &&
                     says("is a symbol of a graph that was freed"),
                 "%s", gd_error_message());
    gd_clear_error();
}

typedef struct runner {
    gd_session *session;
    const net *net;
} runner;
static void *run_once(void *arg) {
    GD_SCOPE;
    const runner *r = arg;
    gd_session_run(r->session, gd_feed(r->net->x, gd_ones(gd_dims(2, 20))),
                   gd_list(r->net->w1, gd_graph_find(r->net->graph, "w2")));
    return gd_failed() ? "failed" : NULL;
}

/* Several threads run a new session at the same time: each sees all variables initialized. */
CLEAN_TEST(several_threads_may_start_a_session_at_once) {
    GD_SCOPE;
    for (int again = 0; again < 5; again++) {
        GD_SCOPE;
        gd_seed(1);
        net n = make_net(true);
        gd_session *s = gd_session_new(n.graph, .level = 0);
        pthread_t threads[4];
        runner shared = {s, &n};
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run_once, &shared);
        for (int i = 0; i < 4; i++) {
            void *wrong;
            pthread_join(threads[i], &wrong);
            CHECK(!wrong);
        }
    }
}

TEST_MAIN
