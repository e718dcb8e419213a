/* test_become.c - gd_tensor_become: parameters that move to other memory, another device or another
 * dtype. */
#include "backend/test/device.h"
#include "clean_test.h"
#include "core/tensor.h"
#include "gradus/gradus.h"
#include "graph/build/graph.h"

static double value_at(gd_tensor *t, int i) {
    float host[64];
    gd_copy_to(t, host, (size_t)gd_tensor_numel(t) * sizeof(float));
    return host[i];
}

static gd_tensor *make_leaf(double value) {
    return gd_requires_grad(gd_full(gd_dims(2, 3), value));
}

CLEAN_TEST(a_leaf_takes_over_memory_dtype_device_and_strides) {
    GD_SCOPE;
    gd_tensor *w = make_leaf(1), *transposed = gd_transpose(gd_full(gd_dims(3, 2), 4), 0, 1);
    gd_set_grad(w, gd_ones(gd_dims(2, 3)));
    CHECK(gd_tensor_become(w, transposed) == GD_OK && value_at(w, 5) == 4 &&
          !gd_tensor_is_contiguous(w) && w->requires_grad);
    CHECK(gd_tensor_grad(w)); /* kept, since shape, dtype and device agree */
    CHECK(gd_tensor_become(w, gd_cast(gd_full(gd_dims(2, 3), 5), GD_F64)) == GD_OK);
    CHECK(gd_tensor_dtype(w) == GD_F64 && !gd_tensor_grad(w));
    CHECK(gd_tensor_become(w, gd_to_device(gd_full(gd_dims(2, 3), 6), gd_test_device())) == GD_OK);
    CHECK(gd_tensor_device(w) == gd_test_device() && value_at(w, 0) == 6);
    gd_backward(gd_sum(gd_square(w)));
    CHECK_SAYING(!gd_failed() && gd_tensor_device(gd_tensor_grad(w)) == gd_test_device() &&
                     value_at(gd_tensor_grad(w), 0) == 12,
                 "%s", gd_error_message());
}

CLEAN_TEST(tensors_that_cannot_be_replaced_fail) {
    GD_SCOPE;
    gd_tensor *w = make_leaf(1), *y = gd_square(w), *other = gd_ones(gd_dims(2, 3));
    CHECK(gd_tensor_become(y, other) == GD_E_STATE && strstr(gd_latest_failure(), "only leaves"));
    CHECK(gd_tensor_become(w, gd_cast(other, GD_I32)) == GD_E_DTYPE);
    CHECK(gd_tensor_become(w, gd_detach(w)) == GD_E_ARGUMENT &&
          gd_tensor_become(w, NULL) == GD_E_ARGUMENT);
    CHECK(!gd_failed()); /* nothing is recorded */
}

CLEAN_TEST(backward_fails_if_a_saved_tensor_was_replaced) {
    GD_SCOPE;
    gd_tensor *w = make_leaf(3), *x = gd_requires_grad(gd_ones(gd_dims(2, 3))),
              *y = gd_sum(gd_mul(w, x));
    gd_tensor_become(w, gd_full(gd_dims(2, 3), 7));
    CHECK(gd_backward(y) != GD_OK && says("overwritten"));
    gd_clear_error();
    gd_tensor *sum = gd_sum(gd_add(w, x)); /* its gradient needs no saved value */
    gd_tensor_become(w, gd_cast(gd_full(gd_dims(2, 3), 7), GD_F64));
    CHECK_SAYING(gd_backward(sum) != GD_OK && says("f32") && says("f64") &&
                     says("since the forward"),
                 "%s", gd_error_message());
    gd_clear_error();
}

typedef struct layer {
    gd_tensor *w, *stats;
} layer;
static gd_tensors forward(gd_tensors in, void *user) {
    layer *l = user;
    return gd_listed(gd_mul(gd_mul(in.at[0], l->w), l->stats));
}

CLEAN_TEST(a_jit_traces_again_for_a_tensor_that_moved) {
    GD_SCOPE;
    layer l = {make_leaf(2), gd_full(gd_dims(2, 3), 10)};
    gd_jit *jit = gd_jit_new(forward, &l);
    gd_tensor *x = gd_ones(gd_dims(2, 3));
    gd_tensor *y = gd_jit_call(jit, gd_list(x)).at[0];
    CHECK(value_at(y, 0) == 20 && gd_jit_traces(jit) == 1);
    gd_tensor_become(l.stats, gd_full(gd_dims(2, 3), 100)); /* a tensor without gradient */
    CHECK(value_at(gd_jit_call(jit, gd_list(x)).at[0], 0) == 200 && gd_jit_traces(jit) == 2);
    CHECK(gd_backward(gd_sum(y)) != GD_OK && says("has moved"));
    gd_clear_error();
    gd_tensor_become(l.w, gd_cast(gd_full(gd_dims(2, 3), 3), GD_F64));
    y = gd_jit_call(jit, gd_list(x)).at[0];
    CHECK(gd_tensor_dtype(y) == GD_F64 && gd_jit_traces(jit) == 3);
    gd_backward(gd_sum(y));
    CHECK_SAYING(!gd_failed() && gd_tensor_dtype(gd_tensor_grad(l.w)) == GD_F64, "%s",
                 gd_error_message());

    gd_device *device = gd_test_device();
    gd_tensor_become(l.w, gd_to_device(gd_full(gd_dims(2, 3), 5), device));
    gd_tensor_become(l.stats, gd_to_device(gd_full(gd_dims(2, 3), 7), device));
    for (int i = 0; i < 2; i++) y = gd_jit_call(jit, gd_list(gd_to_device(x, device))).at[0];
    CHECK_SAYING(!gd_failed() && gd_tensor_device(y) == device && value_at(y, 0) == 35 &&
                     gd_jit_traces(jit) == 4,
                 "%s", gd_error_message());
}

CLEAN_TEST(a_jit_releases_the_old_memory_of_moved_tensors) {
    GD_SCOPE;
    GD_NO_GRAD;
    layer l = {make_leaf(2), gd_full(gd_dims(2, 3), 10)};
    gd_jit *jit = gd_jit_new(forward, &l);
    gd_tensor *x = gd_ones(gd_dims(2, 3));
    gd_storage *old = l.w->storage;
    gd_storage_retain(old);
    gd_jit_call(jit, gd_list(x));
    gd_tensor_become(l.w, gd_full(gd_dims(2, 3), 3));
    CHECK(atomic_load(&old->refs) > 1);
    gd_jit_call(jit, gd_list(x));
    CHECK(!gd_failed() && atomic_load(&old->refs) == 1);
    gd_storage_release(old);
}

/* A graph whose nodes and gradient read w and a frozen tensor, also in a branch. */
typedef struct model {
    gd_graph *graph;
    gd_tensor *x, *y, *gx, *in_branch;
} model;

static model build_model(layer *l) {
    model m = {.graph = gd_graph_new()};
    GD_GRAPH(m.graph);
    m.x = gd_placeholder(gd_dims(2, 3));
    m.y = forward(gd_list(m.x), l).at[0];
    m.gx = gd_grad(gd_list(gd_sum(m.y)), gd_list(m.x)).at[0];
    m.in_branch =
        gd_cond(gd_gt(gd_sum(m.x), gd_scalar(0)), forward, forward, gd_list(m.x), l).at[0];
    return m;
}

CLEAN_TEST(a_session_reads_the_new_memory) {
    GD_SCOPE;
    for (int level = 0; level < 3; level++) {
        layer l = {make_leaf(2), gd_full(gd_dims(2, 3), 10)};
        const model m = build_model(&l);
        gd_session *a = gd_session_new(m.graph, .level = level),
                   *b = gd_session_new(m.graph, .level = level);
        gd_tensor *x = gd_ones(gd_dims(2, 3));
        for (int i = 0; i < 3; i++) {
            for (int k = 0; k < 2; k++) {
                gd_tensors r =
                    gd_session_run(k ? b : a, gd_feed(m.x, x), gd_list(m.y, m.gx, m.in_branch));
                const double expected = (2 + i) * (10 + 10 * i);
                CHECK_SAYING(
                    !gd_failed() && value_at(r.at[0], 1) == expected &&
                        value_at(r.at[1], 2) == expected && value_at(r.at[2], 0) == expected,
                    "level %d: %g %g %g, expected %g: %s", level, value_at(r.at[0], 1),
                    value_at(r.at[1], 2), value_at(r.at[2], 0), expected, gd_error_message());
            }
            gd_tensor_become(l.w, i ? gd_transpose(gd_full(gd_dims(3, 2), 4), 0, 1)
                                    : gd_full(gd_dims(2, 3), 3));
            gd_tensor_become(l.stats, gd_full(gd_dims(2, 3), 20 + 10 * i));
        }
    }
}

CLEAN_TEST(a_session_fails_for_another_dtype_or_device) {
    GD_SCOPE;
    layer l = {make_leaf(2), gd_full(gd_dims(2, 3), 10)};
    const model m = build_model(&l);
    gd_session *s = gd_session_new(m.graph);
    gd_tensor *x = gd_ones(gd_dims(2, 3));
    gd_session_run(s, gd_feed(m.x, x), gd_list(m.y));
    gd_tensor_become(l.stats, gd_cast(gd_full(gd_dims(2, 3), 1), GD_F64));
    for (int again = 0; again < 2; again++) {
        gd_session_run(s, gd_feed(m.x, x), gd_list(m.y));
        CHECK_SAYING(gd_failed() && says("f32[2,3]") && says("f64[2,3]") &&
                         says("build the graph again") && says("test_become.c"),
                     "%s", gd_error_message());
        gd_clear_error();
    }
    gd_device *device = gd_test_device();
    gd_tensor_become(l.stats, gd_to_device(gd_full(gd_dims(2, 3), 4), device));
    gd_session_run(s, gd_feed(m.x, x), gd_list(m.y));
    CHECK_SAYING(gd_failed() && says("is on test:0") && says("runs on cpu"), "%s",
                 gd_error_message());
    gd_clear_error();
    gd_tensor_become(l.w, gd_to_device(gd_full(gd_dims(2, 3), 3), device));
    gd_session *there = gd_session_new(m.graph, .device = device);
    gd_tensors r = gd_session_run(there, gd_feed(m.x, x), gd_list(m.y, m.gx));
    CHECK_SAYING(!gd_failed() && value_at(r.at[0], 1) == 12 && value_at(r.at[1], 1) == 12, "%s",
                 gd_error_message());
}

CLEAN_TEST(training_continues_in_the_new_memory) {
    GD_SCOPE;
    layer l = {make_leaf(2), gd_full(gd_dims(2, 3), 1)};
    gd_graph *graph = gd_graph_new();
    gd_tensor *x, *update;
    {
        GD_GRAPH(graph);
        x = gd_placeholder(gd_dims(2, 3));
        gd_tensor *g = gd_grad(gd_list(gd_sum(gd_mul(x, l.w))), gd_list(l.w)).at[0];
        update = gd_assign(l.w, gd_sub(l.w, g));
    }
    gd_session *s = gd_session_new(graph);
    gd_tensor *one = gd_ones(gd_dims(2, 3)), *old = gd_detach(l.w);
    gd_session_run(s, gd_feed(x, one), gd_list(update));
    CHECK(value_at(l.w, 0) == 1);
    gd_tensor_become(l.w, gd_full(gd_dims(2, 3), 9));
    gd_session_run(s, gd_feed(x, one), gd_list(update));
    CHECK_SAYING(!gd_failed() && value_at(l.w, 0) == 8 && value_at(old, 0) == 1, "%s",
                 gd_error_message());
}

static gd_tensors move_captured(gd_tensors in, void *user) {
    const gd_status status = gd_tensor_become(user, gd_empty(gd_dims(2, 3), GD_F32));
    if (status != GD_OK) gd_error_record(status);
    return in;
}

CLEAN_TEST(a_traced_function_cannot_move_a_tensor) {
    GD_SCOPE;
    gd_tensor *w = make_leaf(1);
    gd_storage *before = w->storage;
    gd_jit_call(gd_jit_new(move_captured, w), gd_list(gd_ones(gd_dims(2, 3))));
    CHECK(gd_failed() && w->storage == before && says("in the function of a gd_jit"));
    gd_clear_error();
}

TEST_MAIN
