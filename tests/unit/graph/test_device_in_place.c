/* test_device_in_place.c - plans with large feeds and fetches on an asynchronous device: runs use the
 * tensors in place, and results are those of copies. */
#include <string.h>

#include "backend/test/device.h"
#include "gradus/gradus.h"
#include "test.h"

enum { N = 2 << 20 }; /* 8 MiB of f32: with a fetch of this size, enough for a plan of two calls */

static gd_device *device;

__attribute__((constructor)) static void open_device(void) { device = gd_test_device(); }

static gd_test_counts counts(void) { return gd_test_device_controls(device)->counts; }

static gd_tensor *constant(int64_t n, double value) {
    return gd_to_device(gd_full(gd_dims(n), value), device);
}

/* Whether the first, a middle and the last element have this value. */
static bool is_all(gd_tensor *t, double value) {
    const int64_t n = gd_tensor_dim(t, 0), at[] = {0, n / 2 + 1, n - 1};
    for (int i = 0; i < 3; i++)
        if (gd_item(gd_narrow(t, 0, at[i], 1)) != value) return false;
    return !gd_failed();
}

static gd_tensors square(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_square(in.at[0]));
}

TEST(a_run_copies_neither_large_feeds_nor_large_fetches) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(square, NULL);
    gd_tensor *x = constant(N, 3);
    for (int i = 0; i < 2; i++) {
        GD_SCOPE;
        CHECK(is_all(gd_jit_call(jit, gd_list(x)).at[0], 9));
    }
    const gd_test_counts before = counts();
    for (int i = 0; i < 5; i++) {
        GD_SCOPE;
        gd_jit_call(jit, gd_list(x));
    }
    const gd_test_counts after = counts();
    CHECK(after.kernels - before.kernels == 5);
    CHECK(after.boundaries - before.boundaries == 5); /* the entries set the number of the run */
    CHECK(after.launches == before.launches && after.captured == before.captured);
    CHECK(after.allocs == before.allocs && after.waits == before.waits);
    CHECK(after.uploads == before.uploads && after.downloads == before.downloads);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* The same plan with small tensors is captured. */
TEST(small_feeds_are_copied_and_the_plan_is_captured) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(square, NULL);
    gd_tensor *x = constant(1000, 3);
    for (int i = 0; i < 2; i++) CHECK(is_all(gd_jit_call(jit, gd_list(x)).at[0], 9));
    const gd_test_counts before = counts();
    CHECK(is_all(gd_jit_call(jit, gd_list(x)).at[0], 9));
    CHECK(counts().launches == before.launches + 1);
}

TEST(a_fetched_tensor_does_not_change_in_later_runs) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(square, NULL);
    gd_tensor *results[4];
    for (int i = 0; i < 4; i++) results[i] = gd_jit_call(jit, gd_list(constant(N, i))).at[0];
    for (int i = 0; i < 4; i++) CHECK_SAYING(is_all(results[i], i * i), "result %d", i);
}

TEST(a_feed_may_be_changed_or_released_while_the_run_is_queued) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(square, NULL);
    gd_tensor *x = constant(N, 3), *host = gd_full(gd_dims(N), 5), *results[3];
    CHECK(is_all(gd_jit_call(jit, gd_list(x)).at[0], 9));
    gd_test_device_controls(device)->delay_us = 20000;
    results[0] = gd_jit_call(jit, gd_list(x)).at[0];
    gd_add_(x, x);
    results[1] = gd_jit_call(jit, gd_list(x)).at[0];
    gd_copy_from(x, gd_data(host), N * sizeof(float));
    {
        GD_SCOPE; /* the feed is released before its run begins */
        results[2] = gd_keep(gd_jit_call(jit, gd_list(gd_mul(x, x))).at[0]);
    }
    gd_tensor *other = constant(N, 7);
    gd_test_device_controls(device)->delay_us = 0;
    CHECK(is_all(results[0], 9));
    CHECK(is_all(results[1], 36));
    CHECK(is_all(results[2], 625));
    CHECK(is_all(x, 5) && is_all(other, 7));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

static gd_tensors subtract(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_sub(in.at[0], in.at[1]));
}

TEST(a_tensor_is_fed_twice) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(subtract, NULL);
    gd_tensor *x = constant(N, 3);
    for (int i = 0; i < 3; i++) CHECK(is_all(gd_jit_call(jit, gd_list(x, x)).at[0], 0));
    CHECK(is_all(gd_jit_call(jit, gd_list(constant(N, 4), x)).at[0], 1));
}

TEST(a_result_is_fed_to_the_next_run) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(square, NULL);
    gd_tensor *x = constant(N, 2);
    for (int i = 0; i < 3; i++) {
        gd_scope *scope = gd_scope_open();
        gd_tensor *y = gd_keep(gd_jit_call(jit, gd_list(x)).at[0]);
        gd_scope_close(&scope);
        x = y;
    }
    CHECK(is_all(x, 256));
}

TEST(a_fetch_of_a_feed_is_a_copy) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *y;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(N));
        y = gd_square(x);
    }
    gd_session *s = gd_session_new(graph, .device = device);
    gd_tensor *value = constant(N, 3);
    for (int i = 0; i < 2; i++) {
        gd_tensors r = gd_session_run(s, gd_feed(x, value), gd_list(x, y));
        gd_add_(value, value);
        CHECK(is_all(r.at[0], 3 << i) && is_all(r.at[1], 9 << 2 * i));
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* Kernels of a plan are prepared for aligned operands. */
TEST(an_unaligned_feed_is_copied) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(square, NULL);
    gd_tensor *x = constant(N + 1, 3), *view = gd_narrow(x, 0, 1, N);
    gd_memory_trim(device);
    gd_tensor *results[3];
    for (int i = 0; i < 3; i++) {
        results[i] = gd_jit_call(jit, gd_list(view)).at[0];
        gd_add_(x, x);
    }
    for (int i = 0; i < 3; i++) CHECK(is_all(results[i], 9 << 2 * i));
    CHECK(is_all(gd_jit_call(jit, gd_list(constant(N, 5))).at[0], 25)); /* the same plan */
    /* no memory for the copy: the run fails, and the next succeeds */
    gd_memory_trim(device);
    gd_test_device_controls(device)->fail_alloc_after = 1; /* of the result */
    gd_jit_call(jit, gd_list(view));
    gd_test_device_controls(device)->fail_alloc_after = -1;
    CHECK(gd_error_status() == GD_E_MEMORY);
    gd_clear_error();
    CHECK(is_all(gd_jit_call(jit, gd_list(view)).at[0], 24 * 24));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* --- captured plans --------------------------------------------------------------------------- */

enum { SMALL = 50000 }; /* large enough for a feed in place, too small for a plan without capture */

static gd_tensors sum_of_squares(gd_tensors in, void *user) {
    (void)user;
    return gd_listed(gd_sum(gd_square(in.at[0])));
}

static bool has_sum(gd_jit *jit, gd_tensor *x, double value) {
    GD_SCOPE;
    return gd_item(gd_jit_call(jit, gd_list(x)).at[0]) == value * value * SMALL && !gd_failed();
}

TEST(tensors_that_are_fed_in_turn_have_captures_of_their_own) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(sum_of_squares, NULL);
    gd_tensor *x[3] = {constant(SMALL, 2), constant(SMALL, 3), constant(SMALL, 4)};
    CHECK(has_sum(jit, x[0], 2)); /* not captured */
    const int64_t none = counts().captured;
    CHECK(has_sum(jit, x[0], 2));
    const int64_t one = counts().captured - none;
    for (int i = 1; i < 3; i++) CHECK(has_sum(jit, x[i], 2 + i));
    CHECK(one > 0 && counts().captured == none + 3 * one);
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < 3; i++) CHECK(has_sum(jit, x[i], 2 + i));
    CHECK(counts().captured == none + 3 * one);
    gd_add_(x[1], x[1]); /* captures have addresses, not values */
    CHECK(has_sum(jit, x[1], 6));
    CHECK(counts().captured == none + 3 * one);
}

TEST(many_different_feeds_are_copied) {
    GD_SCOPE;
    enum { MANY = 12 };
    gd_jit *jit = gd_jit_new(sum_of_squares, NULL);
    gd_tensor *x[MANY];
    for (int i = 0; i < MANY; i++) x[i] = constant(SMALL, i);
    for (int i = 0; i < MANY; i++) CHECK(has_sum(jit, x[i], i));
    const int64_t before = counts().captured;
    for (int i = 0; i < 3 * MANY; i++) CHECK(has_sum(jit, x[i % MANY], i % MANY));
    CHECK(counts().captured == before);
}

/* Copies are no necessity: a run that worked before must not run out of memory by them. */
TEST(without_memory_for_copies_feeds_stay_in_place) {
    GD_SCOPE;
    enum { MANY = 12 };
    gd_jit *jit = gd_jit_new(sum_of_squares, NULL);
    gd_tensor *x[MANY];
    for (int i = 0; i < MANY; i++) x[i] = constant(SMALL, i);
    CHECK(has_sum(jit, x[0], 0));
    gd_test_device_controls(device)->fail_alloc_after = 0;
    gd_set_default_device(device);
    while (!gd_failed()) gd_empty(gd_dims(SMALL), GD_F32); /* what the allocator has cached */
    gd_clear_error();
    gd_set_default_device("cpu");
    for (int i = 0; i < 3 * MANY; i++) CHECK(has_sum(jit, x[i % MANY], i % MANY));
    gd_test_device_controls(device)->fail_alloc_after = -1;
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* Four sets of captures are kept; one more combination now and then replaces the oldest. */
TEST(a_rare_feed_does_not_stop_captures_in_place) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(sum_of_squares, NULL);
    gd_tensor *x[4];
    for (int i = 0; i < 4; i++) x[i] = constant(SMALL, i);
    for (int i = 0; i < 5; i++) CHECK(has_sum(jit, x[i % 4], i % 4));
    for (int rare = 0; rare < 8; rare++) {
        CHECK(has_sum(jit, constant(SMALL, 9), 9));
        for (int i = 0; i < 120; i++) CHECK(has_sum(jit, x[i % 3], i % 3));
    }
    gd_memory_trim(device);
    const int64_t live = gd_memory_stats(device).live_bytes;
    CHECK(has_sum(jit, x[0], 0));
    CHECK(gd_memory_stats(device).live_bytes == live);
}

TEST(a_captured_run_copies_an_unaligned_feed) {
    GD_SCOPE;
    gd_jit *jit = gd_jit_new(sum_of_squares, NULL);
    gd_tensor *all = constant(SMALL + 1, 3), *view = gd_narrow(all, 0, 1, SMALL),
              *aligned = constant(SMALL, 5);
    for (int i = 0; i < 6; i++) {
        CHECK(has_sum(jit, view, 3));
        CHECK(has_sum(jit, aligned, 5));
    }
}

/* Fetching a group runs the assigns that it awaits, and costs no kernel. */
TEST(a_group_is_stored_by_the_entry_of_a_run) {
    GD_SCOPE;
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *v, *done;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(8));
        v = gd_variable(gd_zeros(gd_dims(8)));
        done = gd_group(gd_list(gd_assign(v, gd_add(v, x))));
    }
    gd_session *s = gd_session_new(graph, .device = device);
    gd_tensor *ones = constant(8, 1);
    for (int i = 0; i < 4; i++)
        CHECK(gd_item(gd_session_run(s, gd_feed(x, ones), gd_list(done)).at[0]) == 1);
    CHECK(is_all(gd_session_get(s, v), 4));
    char *text = gd_session_plan_text(s, gd_feed(x, ones), gd_list(done));
    CHECK_SAYING(text && strstr(text, "add(") && !strstr(text, "group("), "%s", text);
    free(text);
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST(a_fed_tensor_is_written_by_the_run) {
    GD_SCOPE;
    gd_tensor *fed = constant(SMALL, 1), *copy = constant(SMALL, 0), *x, *add, *set;
    gd_graph *graph = gd_graph_new();
    gd_set_default_device(device); /* of the placeholder */
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(SMALL));
        add = gd_assign(fed, gd_add(fed, gd_scalar(10)));
        set = gd_assign(copy, x);
    }
    gd_set_default_device("cpu");
    gd_session *s = gd_session_new(graph, .device = device);
    for (int i = 0; i < 4; i++) {
        gd_session_run(s, gd_feed(x, fed), gd_list(add, set));
        CHECK(is_all(copy, 1 + 10 * i) && is_all(fed, 11 + 10 * i));
    }
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

/* --- failures --------------------------------------------------------------------------------- */

/* A run adds the selected row of the table to a variable. */
TEST(a_failed_run_changes_nothing) {
    GD_SCOPE;
    enum { ROWS = 4, COLUMNS = 4 << 20 };
    gd_graph *graph = gd_graph_new();
    gd_tensor *table, *index, *v, *sum, *set;
    {
        GD_GRAPH(graph);
        table = gd_placeholder(gd_dims(ROWS, COLUMNS));
        index = gd_placeholder(gd_dims(1), .dtype = GD_I64);
        v = gd_variable(gd_full(gd_dims(1, COLUMNS), 1));
        sum = gd_add(v, gd_index_select(table, 0, index));
        set = gd_assign(v, sum);
    }
    gd_session *s = gd_session_new(graph, .device = device);
    gd_tensor *values = gd_to_device(gd_full(gd_dims(ROWS, COLUMNS), 2), device), *results[4];
    for (int i = 0; i < 4; i++) {
        gd_tensor *at =
            gd_to_device(gd_from_array(gd_dims(1), GD_I64, &(int64_t){i == 2 ? 9 : i}), device);
        results[i] = gd_session_run(s, gd_feed(table, values, index, at), gd_list(set)).at[0];
    }
    gd_synchronize(device);
    CHECK_SAYING(gd_error_status() == GD_E_INDEX, "%s", gd_error_message());
    gd_clear_error();
    /* the runs 0 and 1 count; run 2 fails, and 3 was queued behind it */
    gd_tensor *now = gd_session_run(s, gd_nothing, gd_list(v)).at[0];
    CHECK(is_all(gd_reshape(now, gd_dims(COLUMNS)), 5));
    CHECK(is_all(gd_reshape(results[1], gd_dims(COLUMNS)), 5));
    CHECK(is_all(gd_reshape(values, gd_dims(ROWS * COLUMNS)), 2));
    CHECK_SAYING(!gd_failed(), "%s", gd_error_message());
}

TEST_MAIN
